"""Slopes for a certificate, from float bounds. Nothing here needs to be right: the checker believes none of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..graph.graph import Graph, Node
from ..scalar import Array
from . import relax
from .attack import deployed_graph
from .branch_bound import Bounder, root_forward
from .certificate import SCALE, CaseProof, Proof, encode
from .forward import Forward
from .layers import Taps
from .pieces import piecewise
from .replay import Slopes
from .replay_pieces import VECTOR_PLACES
from .vnnlib import Alternative, Case, Property
from .walk import output_ends

STEPS = 60
SECONDS = 30.0  # for vectors of one row


def prove(graph: Graph, statement: Property) -> list[CaseProof]:
    """A proof per case, by linear bounds without splits; whether it is one, the checker says."""
    graph = deployed_graph(graph)
    return [_case(graph, case) for case in statement.cases]


def certificate(graph: Graph, statement: Property) -> tuple[bytes, bytes]:
    """The bytes of a certificate's two files."""
    return encode(deployed_graph(graph), prove(graph, statement))


def _case(graph: Graph, case: Case) -> CaseProof:
    shape = graph.nodes[graph.input_positions[0]].shape
    low, high = (end.reshape(shape) for end in case.outer())
    forward = root_forward(graph, low, high)
    common = _common_slopes(forward)
    deep = tuple(name for name in _relu_inputs(graph) if forward.depth.get(_position(graph, name), 0) > 1)
    proofs = tuple((a.rows, a.limits, _proof(forward, a, common, deep)) for a in case.alternatives)
    return CaseProof(low.astype(np.float32), high.astype(np.float32), proofs)


def _position(graph: Graph, name: str) -> int:
    return next(i for i, n in enumerate(graph.nodes) if n.name == name)


def _relu_inputs(graph: Graph) -> list[str]:
    return [graph.nodes[n.operands()[0]].name for n in graph.nodes if n.op.name == "relu"]


def _proof(forward: Forward, alternative: Alternative, common: Mapping[str, Slopes], deep: tuple[str, ...]) -> Proof:
    """The row that excludes the alternative best; slopes optimised for it where crown's own leave it open."""
    bounds = output_ends(forward, alternative.rows)[0]
    margins = [b - float(limit) for b, limit in zip(bounds, alternative.limits, strict=True)]
    best = int(np.argmax(margins))
    weights = tuple(int(k == best) for k in range(len(margins)))
    if margins[best] > 0:
        return Proof(weights, common, deep)
    bounder = Bounder(forward)
    start = bounder.start(torch.from_numpy(alternative.rows[best : best + 1]))
    target = torch.tensor([float(alternative.limits[best])])
    found, bound = bounder.optimised(start, STEPS, target)
    if bound.item() <= target.item():
        together = _together(forward, start.rows)
        return Proof(weights, common, deep, together)
    changed = {forward.graph.nodes[i].name: _whole(s[0]) for i, s in found.slopes.items()}
    slopes = {n: Slopes(changed[n], s.upper, SCALE) if n in changed else s for n, s in common.items()}
    return Proof(weights, slopes, deep)


def _together(forward: Forward, row: Tensor) -> dict[str, Array]:
    """Vectors of relus that read the same few cells, as good as a hundred steps make them."""
    kept: dict[str, Tensor] = {}
    piecewise(forward, row, torch.full((1,), torch.inf), time.monotonic() + SECONDS, kept)
    return {name: np.rint(m[0].numpy() * 2.0**VECTOR_PLACES).astype(np.int32) for name, m in kept.items()}


def _whole(x: Any) -> Array:
    whole: Array = np.rint(np.asarray(x, dtype=float) * SCALE).astype(np.int16)
    return whole


def _common_slopes(forward: Forward) -> dict[str, Slopes]:
    """crown's lines for every relu and max_pool, each by itself."""
    found = {}
    for i, node in enumerate(forward.graph.nodes):
        if node.op.name in ("relu", "max_pool") and i in forward.layers:
            (source,) = node.operands()
            ends = forward.state.ends[source]
            found[node.name] = _relu(*ends) if node.op.name == "relu" else _max(node, source, ends)
    return found


def _relu(low: Tensor, high: Tensor) -> Slopes:
    lines = relax.relu(low, high)
    return Slopes(_whole(lines.lower_slope[0]), _whole(lines.upper_slope[0]), SCALE)


def _max(node: Node, source: int, ends: Any) -> Slopes:
    """Taps in the order of the window's relation; those that lie in the padding everywhere are left out."""
    taps = Taps(0, node, source, node.params["window"], with_zero=False)
    lines = taps.lines(ends)
    kept = [taps.window.number(tap.position) for tap in taps.window.taps()]
    return Slopes(_whole(lines.lower_slope[kept, 0]), _whole(lines.upper_slope[kept, 0]), SCALE)
