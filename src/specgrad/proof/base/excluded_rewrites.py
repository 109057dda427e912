"""Find the places where a runtime may compute a network by other formulas, which no class of executions covers.

Choices that stand beside a constant factor, where a runtime may move the constant through the choice:

relu, clip, minimum, maximum and their kin commute with a positive factor: clip(v, 0, 6)/6 is clip(v/6, 0, 1), exactly.
Rounded they are two programs: v = x + 3 is exact near x = -3, and x/6 + 1/2 is not. No class of executions has such a
move (docs/reference/executions.md); a statement about a network in which it can be made names the places.

Formulas that a kernel replaces, with another error; and numbers that are taken for those of a formula: 0.79 for the
sqrt(2/pi) of a gelu, another function (specgrad.proof.base.kernel_formulas). A statement names both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg

from .kernel_formulas import FORMULAS, formulas, near_numbers

CHOICES = ("relu", "relu6", "clamp", "maximum", "minimum", "max_pool", "amax", "leaky_relu", "abs", "top", "select")
SHOWN = 3


def scaled_choices(graph: Graph) -> tuple[str, ...]:
    """Return the names of choices (relu, clamp, max_pool, ...) that have a constant factor or divisor before or after
    them in their chain.

    Between them may be whatever is linear in what it reads, other choices, and products and quotients with computed
    values; not a convolution or a matrix product with weights, which take the factor in.

    >>> import specgrad as sg
    >>> gate = sg.trace(lambda x: x * sg.clamp(x + 3, 0, 6) / 6, (2,))
    >>> layers = sg.trace(lambda x: sg.linear(np.ones((2, 2)), None, sg.relu(sg.linear(np.eye(2), None, x))), (2,))
    >>> scaled_choices(gate), scaled_choices(layers)
    (('clamp',), ())
    """
    fixed = _constants(graph)
    before: set[int] = set()  # the node's value has a constant factor, as far as it can be followed
    for i, node in enumerate(graph.nodes):
        if _scales(graph, node, fixed) or not before.isdisjoint(_carried(node, fixed)):
            before.add(i)
    after: set[int] = set()  # some reader multiplies the node's value by a constant
    for i in reversed(range(len(graph.nodes))):
        node = graph.nodes[i]
        if i in after or _scales(graph, node, fixed):
            after.update(_carried(node, fixed))
    names = []
    for i, node in enumerate(graph.nodes):
        if i in fixed or node.op.name not in CHOICES or node.kind != "real":
            continue
        if i in after or not before.isdisjoint(_carried(node, fixed)):
            names.append(node.name)
    return tuple(names)


def exclusion(graph: Graph) -> str:
    """Return a sentence that says which rewrites of this network are excluded, or "" if none is possible.

    >>> import specgrad as sg
    >>> exclusion(sg.trace(lambda x: sg.relu(x) * 0.1, (2,)))
    'executions that move a constant factor through relu, or take another number for it, are excluded'
    >>> exclusion(sg.trace(lambda x: sg.log(sg.exp(x) + 1), (2,)))
    'executions that compute log(exp(x) + 1) at log as a softplus are excluded'
    >>> exclusion(sg.trace(lambda x: x * (1 + sg.tanh(0.8 * x)), (2,)))
    "executions that take a gelu's number for 0.8 are excluded"
    """
    said = []
    if names := scaled_choices(graph):
        said.append(f"move a constant factor through {_listed(names)}, or take another number for it,")
    leaving = [(f.formula, graph.nodes[f.position].name) for f in formulas(graph) if not f.formula.held]
    for formula in (f for f in FORMULAS if any(f is g for g, _ in leaving)):
        names = tuple(name for g, name in leaving if g is formula)
        said.append(f"compute {formula.text} at {_listed(names)} as a {formula.name}")
    if numbers := [f"{c:.8g}" for c in near_numbers(graph)]:
        said.append(f"take a gelu's number for {_listed(numbers)}")
    return f"executions that {' or '.join(said)} are excluded" if said else ""


def _listed(names: Sequence[str]) -> str:
    """Return names joined by commas, at most SHOWN of them, and how many more there are."""
    return f"{', '.join(names[:SHOWN])}{f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''}"


def _constants(graph: Graph) -> set[int]:
    """Return the positions of nodes that are constants, or computed from constants alone."""
    fixed: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if node.op is CONSTANT or (node.op is not INPUT and all(a in fixed for a in node.operands())):
            fixed.add(i)
    return fixed


def _carried(node: Node, fixed: set[int]) -> list[int]:
    """Return the varying operands of `node` whose constant factors are factors of its own value too.

    Limits and constant terms would be scaled along. Kernels with weights have none: their weights take the factor in.
    """
    varying = [a for a in node.operands() if a not in fixed]
    if node.op.kernel and len(varying) < len(node.operands()):
        return []
    if node.op.name in (*CHOICES, "div", "stop_gradient"):
        return varying
    linear = {k for group in node.op.linear_groups(len(node.args)) for k in group}
    return [a for k, a in enumerate(node.args) if k in linear and isinstance(a, int) and a in varying]


def _scales(graph: Graph, node: Node, fixed: set[int]) -> bool:
    """Return whether `node` is a product with a constant, or a quotient by one, that is not 1 or -1 in all cells.

    The divisor of a mean is none: it belongs to the mean, as that of avg_pool does.
    """
    if node.op.name not in ("mul", "div") or _is_mean(graph, node):
        return False
    args = node.args[1:] if node.op.name == "div" else node.args
    return any(_is_factor(graph, a) for a in args if isinstance(a, NumberArg) or a in fixed)


def _is_mean(graph: Graph, node: Node) -> bool:
    """Return whether `node` divides a sum by the number of its terms."""
    total, count = node.args
    if node.op.name != "div" or not isinstance(total, int) or not isinstance(count, NumberArg):
        return False
    while graph.nodes[total].op.name == "reshape":
        (total,) = graph.nodes[total].operands()
    if graph.nodes[total].op.name != "sum":
        return False
    (summed,) = graph.nodes[total].operands()
    return bool(count.value * math.prod(node.shape) == math.prod(graph.nodes[summed].shape))


def _is_factor(graph: Graph, arg: Any) -> bool:
    """Return whether a constant argument changes magnitudes: some absolute value is not 1, or it is computed."""
    if isinstance(arg, NumberArg):
        return abs(arg.value) != 1
    value = graph.constants.get(arg)
    return value is None or bool((np.abs(value) != 1).any())
