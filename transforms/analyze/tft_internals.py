"""The names of TensorFlow Transform (1.21) that are not part of its public interface, and what we use them for.

======================================================  ==============================================================
name                                                    use
======================================================  ==============================================================
impl_helper.trace_preprocessing_function                the graph of the ``preprocessing_fn``, with its analyzers
impl_helper.METADATA_DIR_NAME                           where a finished SavedModel holds the schema of its outputs
graph_tools.get_analyzers_fingerprint                   which inputs each analyzer depends on; a check of TFT's own
analysis_graph_builder.build                            the analyzers as a graph of operations, in phases
annotators.get_asset_annotations, …clear_…              the names of vocabularies for ``asset_map``
beam.impl._create_v2_saved_model                        the SavedModel with the analyzers' results bound
beam.impl._TensorBinding, _get_tensor_replacement_map   results in the form in which they are bound
beam.analyzer_impls._join_boundary_rows                 bucket boundaries of all keys as one array
beam.analyzer_impls._merge_outputs_by_key               results per key as one array for each output
analyzers._VocabOrderingType                            how a vocabulary is ordered
analyzers.get_empy_vocabulary_dummy_value               the entry of an empty vocabulary (the name is spelled so)
analyzers.calculate_recommended_min_diff_from_avg       the default threshold of mutual information
analyzers.NumPyCombiner and the other combiners         how batches are reduced and accumulators merged; of two of them
                                                        ``_fn``, ``_compute_variance``, ``_compute_weighted``
tf_utils.fetch_vocabulary_reserved_tokens               the reserved tokens of a vocabulary
tf_utils.GLOBAL_Y_COUNT_SENTINEL_STRING, …_INT          the key under which the label counts of all rows are kept
======================================================  ==============================================================

``tests/test_analyze_internals.py`` fails by name when one of them has moved.
"""

from __future__ import annotations

import functools
import warnings
from types import SimpleNamespace

from transforms.tensors import import_tensorflow, no_collection

COMBINERS = (
    "NumPyCombiner",
    "WeightedMeanAndVarCombiner",
    "_LMomentsCombiner",
    "QuantilesCombiner",
    "CovarianceCombiner",
    "PCACombiner",
)


@functools.cache
def no_numpy_warnings() -> None:
    """Has no warning printed when NaN or infinity meets a combiner: ``observe`` says which columns have them."""
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"tensorflow_transform\.|transforms\.analyze\.")


@functools.cache
def internals() -> SimpleNamespace:
    """All of the table, under short names.  Raises ImportError or AttributeError when TFT has another version."""
    import_tensorflow()
    no_numpy_warnings()
    with no_collection():
        from tensorflow_transform import analyzers, annotators, graph_tools, impl_helper, tf_utils
        from tensorflow_transform.beam import analysis_graph_builder, analyzer_impls, impl

    return SimpleNamespace(
        trace=impl_helper.trace_preprocessing_function,
        metadata_folder=impl_helper.METADATA_DIR_NAME,
        fingerprint=graph_tools.get_analyzers_fingerprint,
        build=analysis_graph_builder.build,
        asset_annotations=annotators.get_asset_annotations,
        clear_asset_annotations=annotators.clear_asset_annotations,
        create_saved_model=impl._create_v2_saved_model,
        binding=impl._TensorBinding,
        replacements=impl._get_tensor_replacement_map,
        join_boundary_rows=analyzer_impls._join_boundary_rows,
        merge_outputs_by_key=analyzer_impls._merge_outputs_by_key,
        ordering=analyzers._VocabOrderingType,
        empty_vocabulary_entry=analyzers.get_empy_vocabulary_dummy_value,
        default_min_diff=analyzers.calculate_recommended_min_diff_from_avg,
        combiners={name: getattr(analyzers, name) for name in COMBINERS},
        reserved_tokens=tf_utils.fetch_vocabulary_reserved_tokens,
        all_rows_keys=(tf_utils.GLOBAL_Y_COUNT_SENTINEL_STRING, tf_utils.GLOBAL_Y_COUNT_SENTINEL_INT),
    )
