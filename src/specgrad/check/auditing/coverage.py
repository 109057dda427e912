"""Coverage of an audit: how many layers and multiply-adds were judged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from specgrad.graph.drawing.summary import multiply_adds
from specgrad.graph.graph import Graph
from specgrad.graph.subgraph import needed

from ..models.model_run import ModelRun, UnsupportedLayer


@dataclass(frozen=True)
class Coverage:
    """Layers and multiply-adds that were judged, of all; `uncounted` names layers whose multiply-adds are unknown."""

    layers: int
    of_layers: int
    multiply_adds: int
    of_multiply_adds: int
    uncounted: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every layer was judged."""
        return self.layers == self.of_layers

    def __str__(self) -> str:
        layers = f"{self.layers} of {self.of_layers} layers were judged"
        if not self.of_multiply_adds:
            return layers
        share = f"{100 * self.multiply_adds / self.of_multiply_adds:.4g} % of {self.of_multiply_adds:,} multiply-adds"
        but = f" (those of {', '.join(self.uncounted)} are not counted)" if self.uncounted else ""
        return f"{layers}, {share}{but}"

    def to_json(self) -> dict[str, Any]:
        names = ("layers", "of_layers", "multiply_adds", "of_multiply_adds")
        return {name: getattr(self, name) for name in names} | {"uncounted": list(self.uncounted)}


def coverage(deployed: ModelRun, judged: Iterable[str]) -> Coverage:
    """Return the coverage of a run by the judged layers; unsupported nodes count as not judged."""
    graph, names = deployed.graph, set(judged)
    positions = {p for name, p in deployed.layers.items() if name in names and isinstance(p, int)}
    seen = {p for at in positions for p in needed(graph, at, deployed.known) if p == at or p not in deployed.known}
    passed = {name: u for name, u in deployed.layers.items() if isinstance(u, UnsupportedLayer)}
    total = _count(graph, range(len(graph.nodes))) + sum(u.multiply_adds or 0 for u in passed.values())
    uncounted = tuple(name for name, u in passed.items() if u.multiply_adds is None)
    return Coverage(len(names), len(deployed.layers), _count(graph, seen), total, uncounted)


def _count(graph: Graph, positions: Iterable[int]) -> int:
    """Return the multiply-adds of the nodes at these positions."""
    return sum(multiply_adds(graph.nodes[p], graph.nodes) for p in positions)
