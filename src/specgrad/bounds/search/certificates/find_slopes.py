"""Slopes for a certificate, from float bounds. Nothing here needs to be right: the checker believes none of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.linear.intermediate.tighten import output_bounds
from specgrad.bounds.linear.relaxation import formulas as relax
from specgrad.bounds.linear.relaxation.bound_layers import BoundMaxPool, BoundUnary, tensor
from specgrad.graph.graph import Graph, Node
from specgrad.op import apply
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.executions import executions
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.base.split_tree import Tree
from specgrad.proof.batched.tree_replay import TreeProof
from specgrad.proof.exact.activations import CHORD, CURVES
from specgrad.proof.exact.multi_neuron import VECTOR_FRAC_BITS
from specgrad.proof.exact.replay import ALWAYS_NONLINEAR, Slopes
from specgrad.proof.files.certificate import (
    SCALE,
    CaseProof,
    ExcludedAlternative,
    OpenAlternativeError,
    Proof,
    Proven,
    check_case,
    encode,
)
from specgrad.properties.property import Alternative, Case, Property
from specgrad.rounding.arithmetic import Arithmetic
from specgrad.scalar import Array, nearest_float

from ..certify import target
from ..input_split.search import Boxes, split_inputs
from ..network.pgd_attack import DeployedNetwork
from ..neuron_split.multi_neuron import piecewise
from ..neuron_split.subproblems import Bounder, root_forward
from .find_tree_proof import Step, TreeProver

STEPS = 60
SECONDS = 30.0  # for vectors of one row


Trees = Sequence[tuple[Sequence[int], Tree]]  # of a case: numbers of alternatives, and the tree that excludes them


def prove(graph: Graph, statement: Property, arithmetic: Any = None) -> list[CaseProof]:
    """Return one candidate proof per case, by linear bounds without splits; only the checker decides whether it is
    valid.

    `statement` is the property, `arithmetic` the executions meant (None: float32, fused). ShapeError unless the graph
    has one input and one output.
    """
    graph = deployed_graph(graph)
    return [_case_proof(graph, case, _options(arithmetic)) for case in statement.cases]


def certificate(graph: Graph, statement: Property, arithmetic: Any = None) -> tuple[bytes, bytes]:
    """Return the bytes of a certificate's two files, for the property `statement` and the executions that `arithmetic`
    describes.

    ShapeError unless the graph has one input and one output.
    """
    meant = Arithmetic() if arithmetic is None else arithmetic
    return encode(deployed_graph(graph), prove(graph, statement, meant), meant)


def prove_by_trees(
    graph: Graph,
    statement: Property,
    trees: Sequence[Trees],
    arithmetic: Any = None,
    deadline: Callable[[], None] = lambda: None,
    step: Step | None = None,
    refine: bool = True,
) -> list[tuple[CaseProof, Proven]]:
    """Return per case a proof, every leaf of which the checker's code has accepted, and what it proves.

    trees    per case; alternatives of no tree are proven on the whole box, or else by cuts that are made here
    refine   cut further where trees leave something open
    deadline  called between leaves; may raise
    statement, arithmetic   the property, and the executions meant (None: float32, fused)
    step     is told (what, done, total)
    """
    graph, proofs, meant = deployed_graph(graph), [], Arithmetic() if arithmetic is None else arithmetic
    for case, given in zip(statement.cases, trees, strict=True):
        proofs.append(_case_by_trees(graph, case, given, meant, deadline, step, refine))
    return proofs


def _options(arithmetic: Any) -> dict[str, Any]:
    """Keyword arguments of `root_forward` for an arithmetic; empty for the default."""
    return {} if arithmetic is None else {"arithmetic": arithmetic}


def _case_by_trees(
    graph: Graph,
    case: Case,
    given: Trees,
    arithmetic: Any,
    deadline: Callable[[], None],
    step: Step | None,
    refine: bool,
) -> tuple[CaseProof, Proven]:
    """Return the checked proof of one case and what it proves: alternatives with a tree by it, others on the whole box.

    given    pairs of numbers of alternatives and the tree that covers them; unused where no input varies
    refine   cut further where an alternative stays open; else that is an OpenAlternativeError
    step     is told the progress
    deadline   is called now and then, and raises when the time is over
    arithmetic  the executions meant
    """
    low, high, forward = _forward_over_box(graph, case, _options(arithmetic))
    refine = refine and forward.varies
    todo = [(list(numbers), tree) for numbers, tree in given] if forward.varies else []  # else cuts are of no use
    alone = sorted(set(range(len(case.alternatives))) - {k for numbers, _ in todo for k in numbers})
    proofs, by_tree, said = list[TreeProof](), dict[int, int](), dict[int, ExcludedAlternative]()
    for numbers, proof, each in _integer_proofs(forward, case, alone, arithmetic, deadline):
        said |= zip(numbers, each, strict=True)
        by_tree |= dict.fromkeys(numbers, len(proofs))
        proofs.append(proof)
    whole = _proofs_without_splits(forward, case, [k for k in alone if k not in said])
    while whole:
        try:
            proven = check_case(graph, CaseProof(low, high, tuple(whole.values())), executions(arithmetic), deadline)
            said |= zip(whole, proven.alternatives, strict=True)
            break
        except OpenAlternativeError as error:
            if not refine:
                raise
            todo.append(([list(whole)[error.alternative]], Tree()))
            del whole[todo[-1][0][0]]
    for numbers, tree in todo:
        boxes = _batched_bounds(
            forward, case, numbers
        )  # which have no folds, as the checker: it is slow to say what they closed
        if (
            refine
            and any(map(forward.state.duplicate_fold, forward.layers))
            and all(cut is None or cut.node == boxes.input for cut in tree.cuts)
        ):
            some = replace(case, alternatives=tuple(case.alternatives[k] for k in numbers))
            tree = split_inputs(DeployedNetwork(graph), some, boxes, math.inf, lambda *_: deadline()).tree
        prover = TreeProver(forward, case, numbers, boxes, arithmetic)
        proof, each = prover.proof(tree, deadline, step, refine)
        said |= zip(numbers, each, strict=True)
        by_tree |= dict.fromkeys(numbers, len(proofs))
        proofs.append(proof)
    numbered = enumerate(case.alternatives)
    alternatives = tuple(whole[k] if k in whole else (a.rows, a.limits, by_tree[k]) for k, a in numbered)
    proven = Proven(low, high, tuple(said[k] for k in range(len(alternatives))))
    return CaseProof(low, high, alternatives, tuple(proofs)), proven


def _integer_proofs(
    forward: ForwardPass, case: Case, numbers: Sequence[int], arithmetic: Any, deadline: Callable[[], None]
) -> Iterator[tuple[list[int], TreeProof, list[ExcludedAlternative]]]:
    """Yield (numbers of alternatives, proof, what it proves) of those among `numbers`, by integers on the whole box.

    None if some node has no integer rule.
    """
    if numbers and forward.varies:
        with suppress(ReplayError):
            prover = TreeProver(forward, case, numbers, _batched_bounds(forward, case, numbers), arithmetic)
            yield from prover.one_leaf(deadline)


def _batched_bounds(forward: ForwardPass, case: Case, numbers: Sequence[int]) -> Boxes:
    """Return batched float bounds of the alternatives with these `numbers` as the checker has them: without merging
    duplicate relus.
    """
    forward = copy(forward)
    forward.state = replace(forward.state, folds=dict.fromkeys(forward.layers), cached_relaxations={})
    some = [case.alternatives[k] for k in numbers]
    rows = torch.from_numpy(np.concatenate([a.rows for a in some]))
    targets = torch.tensor([target(limit) for a in some for limit in a.limits], dtype=torch.float64)
    return Boxes(forward, rows, targets, [k for k, a in enumerate(some) for _ in a.limits])


def _forward_over_box(graph: Graph, case: Case, options: Mapping[str, Any]) -> tuple[Array, Array, ForwardPass]:
    """Return (low, high) of the case's box in float32, and crown's forward pass over it; `options` are of
    root_forward.
    """
    shape = graph.nodes[graph.input_positions[0]].shape
    low, high = (end.reshape(shape) for end in case.outer())
    return low.astype(np.float32), high.astype(np.float32), root_forward(graph, low, high, **options)


def _case_proof(graph: Graph, case: Case, options: Mapping[str, Any]) -> CaseProof:
    """Return a candidate proof of one case on its whole box; `options` are of root_forward."""
    low, high, forward = _forward_over_box(graph, case, options)
    return CaseProof(low, high, tuple(_proofs_without_splits(forward, case, range(len(case.alternatives))).values()))


def _proofs_without_splits(
    forward: ForwardPass, case: Case, numbers: Sequence[int]
) -> dict[int, tuple[Array, tuple[Fraction, ...], Proof | int]]:
    """Return candidate proofs of some alternatives without splits, by their numbers."""
    common = _common_slopes(forward)
    deep = tuple(i for i in _inputs_of_relaxed(forward.graph) if forward.depth.get(i, 0) > 1)
    some = ((k, case.alternatives[k]) for k in numbers)
    return {k: (a.rows, a.limits, _proof(forward, a, common, deep)) for k, a in some}


def _inputs_of_relaxed(graph: Graph) -> list[int]:
    """Positions of the nodes that relus and smooth functions read."""
    return [n.operands()[0] for n in graph.nodes if n.op.name == "relu" or n.op.name in ALWAYS_NONLINEAR]


def _proof(
    forward: ForwardPass, alternative: Alternative, common: Mapping[int, Slopes], deep: tuple[int, ...]
) -> Proof:
    """Return a candidate proof that the alternative is excluded, by the one of its rows whose bound is farthest above
    its limit.

    `alternative` states rows and limits: excluded if some row of outputs exceeds its limit. The proof has crown's
    slopes if they suffice or nothing varies; optimised slopes if those suffice; else crown's slopes with several
    neurons bounded together. `common` are crown's slopes by node; `deep` are the nodes that the checker is to bound
    again, by lines.
    """
    bounds = output_bounds(forward, alternative.rows)[0]
    margins = [b - nearest_float(limit) for b, limit in zip(bounds, alternative.limits, strict=True)]
    best = int(np.argmax(margins))
    weights = tuple(int(k == best) for k in range(len(margins)))
    if margins[best] > 0 or not forward.varies:
        return Proof(weights, common, deep)
    bounder = Bounder(forward)
    start = bounder.start(torch.from_numpy(alternative.rows[best : best + 1]))
    target = torch.tensor([nearest_float(alternative.limits[best])])
    optimised, bound = bounder.optimised(start, STEPS, target)
    if bound.item() <= target.item():
        together = _multi_neuron_vectors(forward, start.rows)
        return Proof(weights, common, deep, together)
    changed = {i: _slope_integers(bounder.slope(i, s[0])) for i, s in optimised.slopes.items()}
    slopes = {i: Slopes(changed[i], s.upper, SCALE) if i in changed else s for i, s in common.items()}
    return Proof(weights, slopes, deep)


def _multi_neuron_vectors(forward: ForwardPass, row: Tensor) -> dict[int, Array]:
    """Return vectors m of multi-neuron relaxations for one output row, as integers of the certificate, by the position
    of a relu.
    """
    kept: dict[int, Tensor] = {}
    piecewise(forward, row, torch.full((1,), torch.inf), time.monotonic() + SECONDS, kept)
    return {i: _vector_integers(m[0].numpy()) for i, m in kept.items()}


def _vector_integers(m: Array) -> Array:
    """Return slopes m rounded to integer multiples of 2**-VECTOR_FRAC_BITS, clamped to int32; NaN becomes 0."""
    most = np.iinfo(np.int32).max
    return np.rint(np.clip(np.nan_to_num(m) * 2.0**VECTOR_FRAC_BITS, -most, most)).astype(np.int32)


def _slope_integers(x: Any) -> Array:
    """Return numbers x rounded to integers over SCALE, clamped to int16; NaN becomes 0.

    >>> _slope_integers([0.5, -1e9, float("nan")]).tolist()
    [512, -32767, 0]
    """
    most = np.iinfo(np.int16).max
    whole: Array = np.rint(np.clip(np.nan_to_num(np.asarray(x, dtype=float) * SCALE), -most, most)).astype(np.int16)
    return whole


def _common_slopes(forward: ForwardPass) -> dict[int, Slopes]:
    """Return crown's slopes of every relaxed node, by position, also where crown itself merges the node."""
    slopes = {}
    for i, node in enumerate(forward.graph.nodes):
        if node.op.name in ("relu", "max_pool") or node.op.name in CURVES:
            (source,) = node.operands()
            low, high = (tensor(end)[None] for end in forward.interval(source))
            if node.op.name == "max_pool":
                slopes[i] = _max_pool_slopes(node, source, (low, high))
            else:
                slopes[i] = _relu_slopes(low, high) if node.op.name == "relu" else _unary_slopes(node, low, high)
    return slopes


def _unary_slopes(node: Node, low: Tensor, high: Tensor) -> Slopes:
    """Return slopes of a unary function on low..high, or grid points whose tangents are nearest to crown's; CHORD if
    that is nearer.
    """
    lines = BoundUnary(0, node, (0,)).relaxation((low, high))
    if CURVES[node.op.name](node.params).is_piecewise_linear:
        return Slopes(_slope_integers(lines.lower_slope[0]), _slope_integers(lines.upper_slope[0]), SCALE)
    lower, upper = (_tangent_points(node, low[0], high[0], s[0]) for s in (lines.lower_slope, lines.upper_slope))
    return Slopes(lower, upper, SCALE)


def _tangent_points(node: Node, low: Tensor, high: Tensor, wanted: Tensor) -> Array:
    """Return per cell the grid point (0..SCALE) of low..high whose tangent is nearest to slope `wanted`; CHORD if the
    chord is nearer.
    """
    share = torch.linspace(0, 1, SCALE + 1, dtype=low.dtype).view(-1, *(1,) * low.ndim)
    grid = (low + (high - low) * share).requires_grad_()
    values = apply(node.op, grid, **node.params)
    (slopes,) = torch.autograd.grad(values.sum(), grid)
    chord = (values[-1] - values[0]) / torch.where(high > low, high - low, 1.0)
    best, at = (slopes - wanted).abs().min(0)
    points: Array = torch.where((chord - wanted).abs() <= best, CHORD, at).detach().numpy().astype(np.int16)
    return points


def _relu_slopes(low: Tensor, high: Tensor) -> Slopes:
    """Return the slopes of crown's lines of relu on low..high, lower and upper ones, as integers over SCALE."""
    lines = relax.relu(low, high)
    return Slopes(_slope_integers(lines.lower_slope[0]), _slope_integers(lines.upper_slope[0]), SCALE)


def _max_pool_slopes(node: Node, source: int, ends: Any) -> Slopes:
    """Return the slopes of a max pool of node `source`, whose interval is `ends`; taps in the window's order, without
    those that are padding everywhere.
    """
    taps = BoundMaxPool(0, node, source, node.params["window"], with_zero=False)
    lines = taps.relaxation(ends)
    kept = [taps.window.number(tap.position) for tap in taps.window.taps()]
    return Slopes(_slope_integers(lines.lower_slope[kept, 0]), _slope_integers(lines.upper_slope[kept, 0]), SCALE)
