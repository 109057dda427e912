"""The result of running a model: its outputs, and the values of the layers that were observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specgrad.graph.graph import Graph
from specgrad.process import ProcessResult
from specgrad.scalar import Array
from specgrad.window import Shape


@dataclass(frozen=True)
class UnsupportedLayer:
    """A layer that specgrad does not support: its operator, why, and its multiply-adds if they are known."""

    operator: str
    shape: Shape
    reason: str
    multiply_adds: int | None = None


@dataclass(frozen=True)
class ModelRun:
    """A model run: what ran, its graph, and which values the runtime showed.

    graph    the meaning of what the runtime was given
    known    the runtime's values by position in the graph; inputs included
    layers   name -> position of the layers whose output is known, or the node that was passed over, in order
    answer   the outputs of the model with nothing exposed
    module   the meaning of the PyTorch module, where the runtime was given an export of it
    formats  name of a node -> what it is computed in, where that is not float32
    merged   name of a value -> position and value, of a run in which nothing but quantised values were exposed: what
             stands between them the runtime may have merged into integer kernels
    """

    title: str
    graph: Graph
    known: Mapping[int, Array]
    layers: Mapping[str, int | UnsupportedLayer]
    answer: ProcessResult
    notes: tuple[str, ...] = ()
    module: Graph | None = field(default=None)
    formats: Mapping[str, str] = field(default_factory=dict)
    merged: Mapping[str, tuple[int, Array]] = field(default_factory=dict)

    @property
    def computed_in(self) -> Mapping[str, str]:
        """The formats of nodes that are not float32: `formats`, or those of the imported graph."""
        return self.formats or getattr(self.graph, "formats", {})
