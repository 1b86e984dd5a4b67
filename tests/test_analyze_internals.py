"""The private names of TensorFlow Transform that the analysis stands on: a new version that moves one fails here."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from tensorflow_transform import analyzer_nodes
from tensorflow_transform.beam import beam_nodes

from transforms.analyze.plan import KNOWN
from transforms.analyze.tft_internals import COMBINERS, internals


def test_every_name_is_there() -> None:
    tft = internals()
    assert set(tft.combiners) == set(COMBINERS)
    assert all(value is not None for value in vars(tft).values())


def test_signatures_are_those_that_are_called() -> None:
    tft = internals()

    def parameters(function: object) -> list[str]:
        return list(inspect.signature(function).parameters)  # type: ignore[arg-type]

    assert parameters(tft.trace) == ["preprocessing_fn", "input_specs", "use_tf_compat_v1", "base_temp_dir"]
    assert parameters(tft.build)[:3] == ["graph", "input_signature", "output_signature"]
    assert parameters(tft.create_saved_model) == [
        "tensor_replacement_map",
        "base_temp_dir",
        "preprocessing_fn",
        "input_signature",
        "baseline_analyzers_fingerprint",
        "output_keys_to_name_map",
        "save_options",
    ]
    assert parameters(tft.binding) == ["value", "tensor_name", "dtype_enum", "is_asset_filepath"]


# All fields of each operation: one that is new may mean that the operation does something else.
FIELDS = {
    "AddKey": "key label",
    "ApplySavedModel": "phase label",
    "CacheableCombineAccumulate": "combiner label",
    "CacheableCombineMerge": "combiner label",
    "CacheableCombinePerKeyAccumulate": "combiner label",
    "CacheableCombinePerKeyFormatKeys": "combiner label",
    "CacheableCombinePerKeyFormatLarge": "label",
    "CacheableCombinePerKeyMerge": "combiner label",
    "CreateSavedModel": "table_initializers output_signature label",
    "CreateTensorBinding": "tensor_name dtype_enum is_asset_filepath label",
    "ExtractCombineMergeOutputs": "output_tensor_info_list label",
    "ExtractFromDict": "keys label",
    "ExtractInputForSavedModel": "dataset_key label",
    "ExtractPackedCombineMergeOutputs": "output_tensor_info_list label",
    "ExtractVocabularyReservedTokens": "name label",
    "Flatten": "label",
    "PackedCombineAccumulate": "combiners label",
    "PackedCombineMerge": "combiners label",
    "ScaleAndFlattenPerKeyBucketBouandaries": "output_tensor_dtype label",
    "VocabularyAccumulate": "vocab_ordering_type input_dtype label",
    "VocabularyCount": "label",
    "VocabularyMerge": "vocab_ordering_type use_adjusted_mutual_info min_diff_from_avg label",
    "VocabularyOrderAndWrite": (
        "vocab_filename store_frequency input_dtype label fingerprint_shuffle file_format input_is_sorted"
    ),
    "VocabularyPrune": (
        "top_k frequency_threshold informativeness_threshold coverage_top_k "
        "coverage_frequency_threshold coverage_informativeness_threshold key_fn input_dtype label"
    ),
}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_operations_have_the_fields_that_are_known(name: str) -> None:
    operation = getattr(analyzer_nodes, name, None) or getattr(beam_nodes, name)
    assert list(operation._fields) == FIELDS[name].split()
    assert isinstance(operation.num_outputs, property)


def test_combiners_have_the_parameters_that_are_read() -> None:
    made = internals().combiners
    reduction = made["NumPyCombiner"](np.max, 0, [np.float32], [()])
    assert reduction._fn is np.max
    moments = made["WeightedMeanAndVarCombiner"](np.float32, (), compute_variance=False, compute_weighted=True)
    assert (moments._compute_variance, moments._compute_weighted) == (False, True)
    assert moments.accumulator_class._fields == ("count", "mean", "variance", "weight")


def test_versions_are_those_that_setup_allows() -> None:
    """A release outside of the range that was tried is refused by pip, and here."""
    setup = (Path(__file__).parent.parent / "setup.py").read_text()
    for name in ("tensorflow", "tensorflow-transform", "tensorflow-metadata", "tfx-bsl"):
        ((least, below),) = re.findall(rf'"{name}>=([\d.]+),<([\d.]+)"', setup)
        assert numbers(least) <= numbers(version(name)) < numbers(below)
        assert numbers(below)[:2] == (numbers(least)[0], numbers(least)[1] + 1), "one minor release"


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def test_a_moved_name_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow_transform.beam import analyzer_impls

    monkeypatch.delattr(analyzer_impls, "_join_boundary_rows")
    with pytest.raises(AttributeError, match="_join_boundary_rows"):
        internals.__wrapped__()


def test_quantile_sketches_survive_as_bytes() -> None:
    import pyarrow as pa
    from tfx_bsl.sketches import QuantilesSketch

    from transforms.analyze.states import decode_states, encode_states

    sketch = QuantilesSketch(0.01, 1 << 32, 1)
    sketch.AddValues(pa.array(range(1000), pa.float64()))
    (copy,) = decode_states(pa.RecordBatch.from_pydict(encode_states([sketch])), None)
    assert copy.GetQuantiles(4).equals(sketch.GetQuantiles(4))
