"""`crown`: backward linear bounds (CROWN) that hold for the deployed network.

The bounds themselves (specgrad.bounds.linear) are computed on PyTorch, which is imported when they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError, need
from ..graph.graph import Graph
from ..graph.ir.node import bind_inputs
from ..graph.ir.tree import Tree, transform
from ..rounding.arithmetic import Arithmetic
from ..scalar import Array
from .batched_boxes import fitted, rows_of_each, split_boxes, stack_bounds
from .box import Bounds, Box, balls_of, box_like, box_of, example_of, numpy_of
from .interval_bounds import box_context, describe_executions


def crown(
    graph: Graph,
    *boxes: Tree,
    objective: Any = None,
    deployed: bool = True,
    arithmetic: Arithmetic | None = None,
    alpha_steps: int = 0,
    splits: Mapping[str, Any] | None = None,
    stored: Collection[str] = (),
    interm_bounds: Mapping[str, Box] | None = None,
    on_forward: Callable[[Any], None] | None = None,
    seconds: float | None = None,
    memory: int | None = None,
) -> Bounds:
    """Bounds of the outputs, or of linear objectives of them, for all inputs in the box, by backward propagation.

    Parameters
    ----------
    graph : Graph
        The network.
    *boxes : Box, array or structure of them
        One per argument of the graph: a Box where inputs vary, an array where not. Boxes with one more axis in front
        are several, and so are the answers.
    objective : array_like, shape (S, n), optional
        Rows over the n cells of the outputs, flattened one after the other; if not given, every output by itself.
        Several boxes share them, or have rows (boxes, S, n).
    deployed : bool, default True
        True: for every execution that `arithmetic.deployment` describes, and for exact arithmetic as well; False: for
        exact arithmetic alone.
    arithmetic : Arithmetic, optional
        The executions meant; float32, fused, if not given (docs/reference/executions.md).
    alpha_steps : int, default 0
        Gradient steps on the slopes (alpha) of unstable relus, for the objective; more steps, narrower bounds.
    splits : mapping of str to array, optional
        Name of a relu, or of its input, -> array of -1, 0, 1: only executions whose inputs of that relu are negative
        (or 0), any, positive (or 0); where an input has several values, its reference's sign
        (specgrad.bounds.linear.intermediate.forward_pass).
    stored : collection of str, optional
        Names of nodes whose results the runtime is known to round and store: nothing is merged across them.
    interm_bounds : mapping of str to Box, optional
        Boxes of layers, by name, that are known to hold: what a wider problem has found.
    on_forward : callable, optional
        Is called for every box with its network (specgrad.bounds.linear.intermediate.forward_pass.ForwardPass).
    seconds : float, optional
        When they are over, boxes that are not narrowed yet keep their intervals: wider, and as true.
    memory : int, optional
        Bytes that the work may take; the machine's if not given.

    Returns
    -------
    Bounds
        `outputs` and `layers` hold boxes; `objective`, where rows were given, the box of every row's value.

    Raises
    ------
    ShapeError
        For arguments, rows or splits that do not fit the graph.
    ParameterError
        For names that no layer has ([P5]).
    UnsupportedError
        For tensor cores, dropped casts or saturation, and work that needs more than `memory`.
    MissingPackageError
        Without PyTorch.

    Examples
    --------
    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(x) - x, (1,))
    >>> bounds = crown(graph, Box([-1.0], [2.0]), deployed=False).outputs
    >>> bool(abs(bounds.low) < 1e-9), bool(abs(bounds.high - 1) < 1e-9)
    (True, True)
    """
    need("torch", "crown needs")
    graph = fitted(graph, boxes)
    if (several := split_boxes(graph, boxes)) is not None:
        each = zip(several, rows_of_each(objective, len(several)), strict=True)
        options: dict[str, Any] = {"deployed": deployed, "arithmetic": arithmetic, "alpha_steps": alpha_steps}
        options |= {"splits": splits, "stored": stored, "interm_bounds": interm_bounds, "on_forward": on_forward}
        options["memory"] = memory
        options["seconds"] = None if seconds is None else seconds / max(1, len(several))
        return stack_bounds([crown(graph, *one, objective=rows, **options) for one, rows in each])
    rows = rows_of(graph, objective)
    rules = box_context(graph, deployed, arithmetic, "torch", stored)
    from .linear.intermediate.forward_pass import ForwardPass
    from .linear.intermediate.tighten import output_bounds, walk
    from .linear.propagation.budget import ComputeBudget
    from .near_masks import near_masks

    budget = ComputeBudget(seconds, memory)
    budget.check(graph)
    inputs, near = bind_inputs(graph, balls_of(boxes, rules.arithmetic)), near_masks(graph)
    narrower = interm_bounds or {}
    known = {
        i: (numpy_of(b.low), numpy_of(b.high))
        for i, n in enumerate(graph.nodes)
        if (b := narrower.get(n.name)) is not None
    }
    signs = split_signs(graph, splits or {})
    forward = ForwardPass(near.graph, rules, inputs, budget)
    walk(forward, signs, {i: ends for i, ends in known.items() if i not in near.moved})
    if not near.hold(forward):
        forward = ForwardPass(graph, rules, inputs, budget)
        walk(forward, signs, known)
    ends = output_bounds(forward, rows, alpha_steps)
    if on_forward is not None:
        on_forward(forward)
    return _bounds_of(forward, near, objective is not None, ends, example_of(boxes))


def rows_of(graph: Graph, objective: Any) -> Array | None:
    """Return `objective` as float64 rows (S, n) over the n flattened outputs, or None if it is None; ShapeError for
    another shape.
    """
    if objective is None:
        return None
    outs = sum(math.prod(graph.nodes[p].shape) for p in graph.real_outputs)
    rows = numpy_of(objective).astype(float)
    if rows.ndim != 2 or rows.shape[1] != outs:
        raise ShapeError("crown", f"objective must be rows (S, {outs}) over the flattened outputs; got {rows.shape}")
    return rows


def split_signs(graph: Graph, splits: Mapping[str, Any]) -> dict[int, Array]:
    """Return signs of splits by the position of the relu's input, given by layer names.

    ParameterError for a name that is no layer, ShapeError for signs that do not have its shape.
    """
    names = {n.name: i for i, n in enumerate(graph.nodes)}
    signs = {}
    for name, given in splits.items():
        if name not in names:
            raise ParameterError("crown", f"splits name {name!r}, which is no layer of the graph", rule="P5")
        node = graph.nodes[names[name]]
        i = node.operands()[0] if node.op.name == "relu" else names[name]
        sign = numpy_of(given)
        if sign.shape != graph.nodes[i].shape:
            raise ShapeError("crown", f"splits of {name} must have shape {graph.nodes[i].shape}; got {sign.shape}")
        signs[i] = sign
    return signs


def _bounds_of(forward: Any, near: Any, given: bool, ends: tuple[Array, Array], example: Any) -> Bounds:
    """Return the Bounds of a finished forward pass; `given`: `ends` are of objective rows, else of outputs.

    Results are arrays of the kind of `example`. `near` are the masks that the pass may have brought near
    (specgrad.bounds.near_masks).
    """
    graph, (low, high) = forward.graph, ends
    boxes = {p: box_of(b) for p, b in enumerate(forward.balls) if graph.nodes[p].kind == "real"}
    boxes |= {p: Box(near.low_of(boxes[p]), boxes[p].high) for p in near.moved if forward.graph is near.graph}
    layers = {graph.nodes[p].name: box_like(b, example) for p, b in boxes.items()}
    start = 0
    for p in graph.real_outputs if not given else ():
        stop = start + math.prod(boxes[p].shape)
        boxes[p] = _intersection(boxes[p], *(e[start:stop].reshape(boxes[p].shape) for e in ends))
        start = stop
    tree = transform(lambda _, p: box_like(boxes[p], example) if p in boxes else None, graph.outputs)
    rows = box_like(Box(np.minimum(low, high), np.maximum(low, high)), example) if given else None
    outputs, rules = tree[0] if graph.single else tree, forward.rules
    unbounded = tuple(forward.unbounded)
    return Bounds(
        outputs, layers, rows, unbounded, forward.infeasible, rules.roundings, describe_executions(rules, graph)
    )


def _intersection(box: Box, low: Array, high: Array) -> Box:
    """Intersection of a box with low..high; ends are swapped where it is empty."""
    low, high = np.maximum(box.low, low), np.minimum(box.high, high)
    return Box(np.minimum(low, high), np.maximum(low, high))
