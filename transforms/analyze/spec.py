"""What travels between the driver of an analysis and the tasks that look at the data: small, plain values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from transforms.errors import ConfigError

Kind = Literal["combine", "combine_per_key", "vocabulary", "mutual_information"]


OBSERVED = "column "  # before the name of a column that was looked at
UNKEPT = "analyzer"  # before the number of an analyzer without a key


class Unsupported(ConfigError):
    """``construct``: what in the ``preprocessing_fn`` only stock TensorFlow Transform can analyze."""

    def __init__(self, construct: str) -> None:
        self.construct = construct
        super().__init__(
            f"{construct} cannot be analyzed column by column; analyze with TensorFlow Transform's own pipeline "
            "instead (analysis: stock)"
        )

    def __reduce__(self) -> tuple[type[Unsupported], tuple[str]]:
        return Unsupported, (self.construct,)


@dataclass(frozen=True)
class AnalyzerSpec:
    """One accumulator: what it is fed with, and how it counts.

    ``tensors``: names in the phase's graph.  ``combiner``: TFT's object, for the combining kinds.  ``weighted``:
    whether a vocabulary sums weights rather than counting.  ``is_text``: whether tokens are bytes, else int64.
    ``column``: the input whose values are the tokens as they stand, so that no graph has to run for them; it
    ``is_required`` when each row must have one.  ``key``: a hash of all of this and of what computes the tensors, under
    which what it accumulated is kept; empty where that cannot be told.
    """

    label: str
    kind: Kind
    tensors: tuple[str, ...]
    combiner: Any = None
    weighted: bool = False
    is_text: bool = True
    column: str | None = None
    is_required: bool = False
    key: str = ""


@dataclass(frozen=True)
class GraphFile:
    """The graph of a phase: a GraphDef, or TFT's SavedModel where tables or variables take part.

    ``feeds``: the inputs that it takes, each with the names of its component tensors in a GraphDef (``None`` in place
    of those that nothing depends on).  ``bound``: the constants in a GraphDef that are results of earlier phases.
    """

    path: str
    is_saved_model: bool
    feeds: tuple[tuple[str, tuple[str | None, ...]], ...]
    bound: tuple[str, ...] = ()


@dataclass(frozen=True)
class PhaseSpec:
    """One pass over the data.  ``schema_text``: the TFMD schema of the feature batches, in text form.

    ``watched``: numeric columns that feed numeric analyzers, to be looked at for values that spoil statistics.
    """

    number: int
    graph: GraphFile
    schema_text: str
    analyzers: tuple[AnalyzerSpec, ...]
    watched: tuple[str, ...] = ()

    @property
    def sections(self) -> tuple[str, ...]:
        """The names under which a partition's file holds the states of the analyzers, and what is seen of each watched
        column."""
        states = (a.key or f"{UNKEPT} {self.number} {i}" for i, a in enumerate(self.analyzers))
        return (*states, *(f"{OBSERVED}{name}" for name in self.watched))

    @property
    def is_kept(self) -> bool:
        """Whether all of its accumulators can be kept for later builds."""
        return all(analyzer.key for analyzer in self.analyzers)

    def only(self, sections: Collection[str]) -> PhaseSpec:
        """The part of the phase that makes these sections."""
        names = self.sections
        analyzers = tuple(a for a, name in zip(self.analyzers, names, strict=False) if name in sections)
        watched = tuple(name for name in self.watched if f"{OBSERVED}{name}" in sections)
        return replace(self, analyzers=analyzers, watched=watched)

    @property
    def fetches(self) -> tuple[str, ...]:
        """The tensors that must be computed, in a fixed order."""
        return tuple(sorted({t for a in self.analyzers if a.column is None for t in a.tensors}))


@dataclass(frozen=True)
class AnalysisReport:
    """What an analysis was.  ``fallback``: the construct that only stock TFT could analyze, if one was."""

    engine: Literal["columnar", "stock"]
    phases: int
    analyzers: int
    partitions: int
    fallback: str | None = None
    digest: str | None = None  # of what the graph computes; None where that cannot be told
    results: Mapping[str, str] = field(default_factory=dict)  # a hash of each analyzer's result, by its tensor

    def __str__(self) -> str:
        if not self.analyzers:
            return "analysis: no analyzers, no passes"
        size = f"{self.analyzers} analyzers in {self.phases} passes over {self.partitions} partitions"
        return f"analysis: {size}" + (f", by stock TensorFlow Transform ({self.fallback})" if self.fallback else "")
