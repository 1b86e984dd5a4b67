"""The statistics of a version: of what its shards hold, split by split, as TFDV and Facets read them.

They stand in the version as ``stats.pb``, a serialized ``DatasetFeatureStatisticsList`` of TensorFlow Metadata
(``statistics.proto``) with a dataset for each split.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.layout import Layout
from transforms.blockfile import BlockFile, read_statistics
from transforms.statistics import FeatureStatistics, Statistics, add, from_bytes

STATISTICS = "stats.pb"
BUCKETS = 10  # of a histogram of either kind, as TFDV has them
TOP_VALUES = 100  # that are told; TFDV has 20, and plots and comparisons want some more


def collected(files: Sequence[BlockFile]) -> dict[tuple[str, str], FeatureStatistics]:
    """By split and feature, of all rows in the block files of partitions.  Raises CorruptError for a damaged one."""
    return add(from_bytes(content) for content in map(read_statistics, files) if content)


def to_proto(statistics: Statistics, rows: Mapping[str, int]) -> Any:
    """A DatasetFeatureStatisticsList.  ``rows``: of each split, all of which become datasets, also the empty ones."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    found = statistics_pb2.DatasetFeatureStatisticsList()
    for split, number in rows.items():
        dataset = found.datasets.add(name=split, num_examples=number)
        for (of, name), feature in statistics.items():
            if of == split:
                _fill(dataset.features.add(), name, feature)
    return found


def of_version(files: Sequence[BlockFile], rows: Mapping[str, int]) -> bytes:
    """The content of ``stats.pb``."""
    content: bytes = to_proto(collected(files), rows).SerializeToString(deterministic=True)
    return content


def statistics_of(layout: Layout, version: str) -> Any:
    """The DatasetFeatureStatisticsList of a version; None where it has none, or a damaged one."""
    from google.protobuf.message import DecodeError

    try:
        with open(os.path.join(layout.version_dir(version), STATISTICS), "rb") as stream:
            return parse_statistics(stream.read())
    except (OSError, DecodeError):
        return None


def parse_statistics(content: bytes) -> Any:
    """The DatasetFeatureStatisticsList that ``of_version`` made."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    return statistics_pb2.DatasetFeatureStatisticsList.FromString(content)


def _fill(proto: Any, name: str, feature: FeatureStatistics) -> None:
    """A FeatureNameStatistics."""
    proto.path.step.append(name)
    if feature.kind != "bytes":
        proto.type = proto.INT if feature.kind == "int" else proto.FLOAT
        _fill_common(proto.num_stats.common_stats, feature)
        _fill_numbers(proto.num_stats, feature)
        return
    mean = feature.length_sum / feature.values if feature.values else 0.0
    if feature.text:
        proto.type = proto.STRING
        strings = proto.string_stats
        _fill_common(strings.common_stats, feature)
        strings.unique, strings.avg_length = feature.distinct, mean
        for rank, (value, count) in enumerate(_top(feature)):
            text = value.decode("utf-8", "replace")
            strings.top_values.add(value=text, frequency=count)
            strings.rank_histogram.buckets.add(low_rank=rank, high_rank=rank, label=text, sample_count=count)
        return
    proto.type = proto.BYTES
    _fill_common(proto.bytes_stats.common_stats, feature)
    proto.bytes_stats.unique, proto.bytes_stats.avg_num_bytes = feature.distinct, mean
    proto.bytes_stats.min_num_bytes = feature.length_min
    proto.bytes_stats.max_num_bytes, proto.bytes_stats.max_num_bytes_int = feature.length_max, feature.length_max


def _top(feature: FeatureStatistics) -> Iterable[tuple[bytes, int]]:
    values = feature.top_values.slice(0, TOP_VALUES).to_pylist()
    return zip(values, feature.top_counts[: len(values)].tolist(), strict=True)


def _fill_common(proto: Any, feature: FeatureStatistics) -> None:
    proto.num_non_missing, proto.num_missing = feature.rows - feature.missing, feature.missing
    proto.tot_num_values = feature.values
    if feature.values:
        proto.min_num_values, proto.max_num_values = feature.min_values, feature.max_values
        proto.avg_num_values = feature.values / (feature.rows - feature.missing)


def _fill_numbers(proto: Any, feature: FeatureStatistics) -> None:
    numbers = feature.values - feature.nan
    if not numbers:
        return
    proto.mean, proto.std_dev, proto.num_zeros = feature.mean, feature.deviation, feature.zeros
    proto.min, proto.max = feature.min, feature.max
    proto.median = float(feature.quantiles(np.array([0.5]))[0])
    if not np.isfinite([feature.min, feature.max]).all():
        return  # an infinite value: there are no buckets of equal width
    ranks = np.linspace(0, 1, BUCKETS + 1)
    _add_histogram(proto, "QUANTILES", feature.quantiles(ranks), np.diff(ranks) * numbers)
    edges = np.linspace(feature.min, feature.max, BUCKETS + 1)
    below = np.searchsorted(feature.points, edges, side="left")
    cumulative = np.concatenate([[0.0], np.cumsum(feature.weights)])[below]
    cumulative[-1] = numbers
    _add_histogram(proto, "STANDARD", edges, np.diff(cumulative))
    for histogram in proto.histograms:
        histogram.num_nan = feature.nan


def _add_histogram(proto: Any, kind: str, edges: np.ndarray, counts: np.ndarray) -> None:
    histogram = proto.histograms.add()
    histogram.type = histogram.HistogramType.Value(kind)
    for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True):
        histogram.buckets.add(low_value=low, high_value=high, sample_count=count)
