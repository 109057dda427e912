"""Choices that stand beside a constant factor, where a runtime may move the constant through the choice.

relu, clip, minimum, maximum and their kin commute with a positive factor: clip(v, 0, 6)/6 is clip(v/6, 0, 1), exactly.
Rounded they are two programs: v = x + 3 is exact near x = -3, and x/6 + 1/2 is not. No class of executions has such a
move (docs/reference/executions.md); a statement about a network in which it can be made names the places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg

CHOICES = ("relu", "relu6", "clamp", "maximum", "minimum", "max_pool", "amax", "leaky_relu", "abs", "top", "select")
LAYOUT = ("neg", "reshape", "permute", "slice", "pad", "concat", "broadcast", "stop_gradient", "gather", "take")
SHOWN = 3


def scaled_choices(graph: Graph) -> tuple[str, ...]:
    """Names of choices that a constant factor or divisor follows, or comes before, in the same chain.

    Between them may be layout, sums with anything, products with computed values, and other choices; not a convolution
    or a matrix product, whose weights are no common factor.

    >>> import specgrad as sg
    >>> gate = sg.trace(lambda x: x * sg.clamp(x + 3, 0, 6) / 6, (2,))
    >>> layers = sg.trace(lambda x: sg.linear(np.ones((2, 2)), None, sg.relu(sg.linear(np.eye(2), None, x))), (2,))
    >>> scaled_choices(gate), scaled_choices(layers)
    (('clamp',), ())
    """
    fixed = _constants(graph)
    before: dict[int, bool] = {}  # the node's value has a constant factor, as far as it can be followed
    for i, node in enumerate(graph.nodes):
        varying = [a for a in node.operands() if a not in fixed]
        inherits = node.op.name in (*CHOICES, *LAYOUT, "add", "sub") and any(before.get(a, False) for a in varying)
        before[i] = inherits or _scales(graph, node, fixed)
    after: set[int] = set()  # some reader multiplies the node's value by a constant
    for i in reversed(range(len(graph.nodes))):
        node = graph.nodes[i]
        follows = i in after and node.op.name in (*CHOICES, *LAYOUT, "add", "sub", "mul", "div")
        if follows or _scales(graph, node, fixed):
            after.update(a for a in node.operands() if a not in fixed)
    names = []
    for i, node in enumerate(graph.nodes):
        if i in fixed or node.op.name not in CHOICES or node.kind != "real":
            continue
        if i in after or any(before.get(a, False) for a in node.operands() if a not in fixed):
            names.append(node.name)
    return tuple(names)


def exclusion(graph: Graph) -> str:
    """What is excluded of this network in particular, in a sentence; nothing where no constant stands by a choice.

    >>> import specgrad as sg
    >>> exclusion(sg.trace(lambda x: sg.relu(x) * 0.1, (2,)))
    'executions that move a constant factor through relu, or take another number for it, are excluded'
    """
    names = scaled_choices(graph)
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    where = f"{', '.join(names[:SHOWN])}{more}"
    return f"executions that move a constant factor through {where}, or take another number for it, are excluded"


def with_exclusion(said: Mapping[str, str], graph: Graph) -> dict[str, str]:
    """The sentences of a statement about this graph."""
    text = exclusion(graph)
    return {**said, "choices": text} if text else dict(said)


def _constants(graph: Graph) -> set[int]:
    fixed: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if node.op is CONSTANT or (node.op is not INPUT and all(a in fixed for a in node.operands())):
            fixed.add(i)
    return fixed


def _scales(graph: Graph, node: Node, fixed: set[int]) -> bool:
    """Whether it is a product with a constant, or a quotient by one, that is not 1 or -1 in all cells."""
    if node.op.name not in ("mul", "div"):
        return False
    args = node.args[1:] if node.op.name == "div" else node.args
    return any(_is_factor(graph, a) for a in args if isinstance(a, NumberArg) or a in fixed)


def _is_factor(graph: Graph, arg: Any) -> bool:
    if isinstance(arg, NumberArg):
        return abs(arg.value) != 1
    value = graph.constants.get(arg)
    return value is None or bool((np.abs(value) != 1).any())
