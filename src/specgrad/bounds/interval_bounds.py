"""Interval bounds: every operator's rounding rule on balls as wide as the box.

The rules of specgrad.rounding carry a value and a radius through every registered operator, derivative operators
included. A box is a ball; what is left is to keep ranges centred. "Real" bounds are those of an arithmetic without
rounding, "deployed" ones those of float32 or of any `Arithmetic`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ..graph.graph import Graph, Node
from ..graph.ir.node import bind_inputs
from ..graph.ir.tree import Tree, transform
from ..rounding.arithmetic import Arithmetic
from ..rounding.ball import Ball
from ..rounding.context import Context
from ..rounding.propagate import graph_context, node_ball
from ..rounding.stated import deployment_of
from .batched_boxes import fitted, split_boxes, stack_bounds
from .box import Bounds, balls_of, box_like, box_of, example_of

REAL = Arithmetic("real", execution="node")  # no rounding, so nothing to merge


def ibp(
    graph: Graph,
    *boxes: Tree,
    deployed: bool = True,
    arithmetic: Arithmetic | None = None,
    backend: str = "numpy",
    stored: Collection[str] = (),
) -> Bounds:
    """Bounds of every layer of a graph, for all inputs in the boxes, by interval arithmetic.

    Parameters
    ----------
    graph : Graph
        The network.
    *boxes : Box, array or structure of them
        One per argument of the graph: a Box where inputs vary, an array where not. Boxes with one more axis in front
        are several, and so are the answers.
    deployed : bool, default True
        True: for every execution that `arithmetic.deployment` describes, and for exact arithmetic as well; False: for
        exact arithmetic alone.
    arithmetic : Arithmetic, optional
        The executions meant; float32, fused, if not given (docs/reference/executions.md).
    backend : str, default "numpy"
        What computes: "numpy" (the specification) or "torch" (its engine, for real sizes); torch arrays ask for the
        latter.
    stored : collection of str, optional
        Names of nodes whose results the runtime is known to round and store: nothing is merged across them.

    Returns
    -------
    Bounds
        A box per output, and per layer by its name.

    Raises
    ------
    ShapeError
        For arguments that do not fit the graph.
    ParameterError
        For names that no node has ([P5]).
    UnsupportedError
        For tensor cores, dropped casts or saturation.

    Examples
    --------
    >>> import specgrad as sg
    >>> from specgrad.bounds import Box
    >>> graph = sg.trace(lambda x: sg.relu(x) - 1, (2,))
    >>> ibp(graph, Box([-1.0, 2.0], [1.0, 3.0]), deployed=False).outputs.low
    array([-1.,  1.])
    """
    graph = fitted(graph, boxes)
    if (several := split_boxes(graph, boxes)) is not None:
        options: dict[str, Any] = {"deployed": deployed, "arithmetic": arithmetic, "backend": backend, "stored": stored}
        return stack_bounds([ibp(graph, *one, **options) for one in several])
    example = example_of(boxes)
    backend = "torch" if type(example).__module__.startswith("torch") else backend
    run = box_context(graph, deployed, arithmetic, backend, stored)
    balls, unbounded = propagate(graph, bind_inputs(graph, balls_of(boxes, run.arithmetic)), run)
    ranges = [
        None if n.kind == "index" else box_like(box_of(b), example) for n, b in zip(graph.nodes, balls, strict=True)
    ]
    layers = {n.name: box for n, box in zip(graph.nodes, ranges, strict=True) if box is not None}
    outputs = transform(lambda _, p: ranges[p], graph.outputs)
    whole = outputs[0] if graph.single else outputs
    return Bounds(whole, layers, None, tuple(unbounded), False, run.roundings, describe_executions(run, graph))


def box_context(
    graph: Graph, deployed: bool, arithmetic: Arithmetic | None, backend: str, stored: Collection[str] = ()
) -> Context:
    """Return the rounding context for bounds: of `arithmetic` (default: float32, fused), or exact if not deployed.

    `backend` ("numpy" or "torch") evaluates operators; `stored` names nodes that a runtime surely writes to memory, and
    a name that no node has is a ParameterError. UnsupportedError for tensor cores, casts that are dropped, saturation.
    """
    if arithmetic is not None:
        arithmetic.check_plain("bounds over a box")
    return graph_context(graph, (arithmetic or Arithmetic()) if deployed else REAL, backend, True, stored)


def describe_executions(context: Context, graph: Graph) -> dict[str, str]:
    """Describe the executions that bounds of a graph, computed in this context, hold for, as texts by topic."""
    if context.arithmetic is REAL:
        return {"execution": "exact arithmetic alone"}
    return deployment_of(context.arithmetic, graph)


def propagate(graph: Graph, inputs: dict[int, Any], context: Context) -> tuple[list[Ball], list[str]]:
    """Return the ball of every node in order, and the names of unbounded nodes.

    `inputs` are the balls or arrays of the input nodes by position.
    """
    balls: list[Ball] = []
    unbounded: list[str] = []
    for i, node in enumerate(graph.nodes):
        ball = node_ball(graph, i, node, balls, inputs, context)
        balls.append(checked(node, ball, [balls[a] for a in node.operands()]))
        if is_unbounded(node, balls[i]):
            unbounded.append(node.name)
    return balls, unbounded


def checked(node: Node, ball: Ball, args: list[Ball]) -> Ball:
    """Return the ball, made unbounded if an argument may be infinite: a NaN could follow and pass every operator."""
    if node.kind == "index":
        return ball
    poisoned = any(a.value.dtype.kind == "f" and np.isinf(a.radius).any() for a in args)
    radius = np.full(ball.shape, np.inf) if poisoned else ball.radius
    unknown = np.isinf(radius)  # the other cells of the layer keep their middles
    return Ball(np.where(unknown, 0.0, ball.value), radius) if unknown.any() else ball


def is_unbounded(node: Node, ball: Ball) -> bool:
    """Return whether a node is real and its `ball` has an infinite radius in some cell."""
    return node.kind == "real" and bool(np.isinf(ball.radius).any())
