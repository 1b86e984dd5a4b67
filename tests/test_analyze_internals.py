"""The private names of TensorFlow Transform that the analysis stands on: a new version that moves one fails here."""

from __future__ import annotations

import inspect

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


def test_operations_that_are_known_exist() -> None:
    from tensorflow_transform import analyzer_nodes
    from tensorflow_transform.beam import beam_nodes

    for name in KNOWN:
        assert hasattr(analyzer_nodes, name) or hasattr(beam_nodes, name), name


def test_quantile_sketches_survive_as_bytes() -> None:
    import pyarrow as pa
    from tfx_bsl.sketches import QuantilesSketch

    from transforms.analyze.states import decode_states, encode_states

    sketch = QuantilesSketch(0.01, 1 << 32, 1)
    sketch.AddValues(pa.array(range(1000), pa.float64()))
    (copy,) = decode_states(pa.RecordBatch.from_pydict(encode_states([sketch])), None)
    assert copy.GetQuantiles(4).equals(sketch.GetQuantiles(4))
