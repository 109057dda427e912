"""What a runtime computed, with the graph that says what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves
from specgrad.rounding.winograd import fits
from specgrad.scalar import Array


@dataclass(frozen=True)
class Observation:
    """A graph, its inputs (float64), and the results that a runtime gave for its last outputs, called `names`;
    `backend` evaluates it.
    """

    graph: Graph
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    names: Sequence[str] = ("y",)
    backend: str = "numpy"

    @property
    def multiplies(self) -> bool:
        """Whether some node is a convolution or matrix product."""
        return any(n.op.kernel for n in self.graph.nodes)

    @property
    def sums(self) -> bool:
        """Whether some node sums: a convolution, a matrix product or an average."""
        return any(n.op.kernel or n.op.name == "avg_pool" for n in self.graph.nodes)

    @property
    def tiled(self) -> bool:
        """Whether some convolution can be computed by Winograd's tiles."""
        shapes = [n.shape for n in self.graph.nodes]
        return any(fits(n.op, n.params.get("window"), [shapes[a] for a in n.operands()]) for n in self.graph.nodes)

    def values(self, graph: Graph | None = None) -> list[Array]:
        """Return the exact results, in float64, of this graph or of another."""
        value = (graph or self.graph)(*self.inputs)
        return [np.asarray(v) for v in leaves(value if isinstance(value, tuple) else (value,))][-len(self.outputs) :]
