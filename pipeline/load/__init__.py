"""Reading what was built: for TensorFlow, for PyTorch, for JAX, and as Arrow and numpy.

    from pipeline.load import dataset, open_split
    for features in dataset(open_split("out/flights", "train"), batch_size=256, shuffle=10_000): ...

``open_split`` refuses a version that is not whole, and knows the types from the schema that the version has.  What is
not used is not imported; ``TorchDataset`` is in ``pipeline.load.torch``, which imports PyTorch.
"""

from pipeline.load.arrow import Ragged, arrays, batches
from pipeline.load.records import Records
from pipeline.load.tensors import dataset, feature_spec
from pipeline.load.version import Split, open_split

__all__ = ["Ragged", "Records", "Split", "arrays", "batches", "dataset", "feature_spec", "open_split"]
