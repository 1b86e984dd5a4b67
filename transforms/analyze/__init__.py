"""The analysis of a ``preprocessing_fn``: TensorFlow Transform's analyzers, executed column by column.

``analyze`` traces the function and drives the passes; ``accumulate`` is one pass over one partition, on any machine;
``analyze_stock`` is TFT's own Beam pipeline, for what only that can analyze.
"""

from transforms.analyze.engine import analyze
from transforms.analyze.phase import accumulate
from transforms.analyze.sections import SectionFile
from transforms.analyze.spec import AnalysisReport, PhaseSpec, Unsupported
from transforms.analyze.stock import analyze_stock

__all__ = ["AnalysisReport", "PhaseSpec", "SectionFile", "Unsupported", "accumulate", "analyze", "analyze_stock"]
