"""Three rewritings that no class of executions has, as graphs of their own: what they compute has a radius of its own.

moved      a constant factor goes through a choice: clip(x + 3, 0, 6) is 6*clip(x/6 + 1/2, 0, 1). The same real
           function, so the radius of the rewritten graph holds what such a program computes, and the exact value
replaced   a factor near 1/n is taken for 1/n, as a matched pattern takes 0.1667 for 1/6, and 0.79 beside a tanh for
           the sqrt(2/pi) of a gelu: another function
formula    a formula of the table (specgrad.proof.base.kernel_formulas) is computed by a kernel of its function, from
           its x on: the same function, with that kernel's declared error
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph, NumberArg
from specgrad.graph.trace import trace
from specgrad.op import Op, apply
from specgrad.proof.base.excluded_rewrites import CHOICES
from specgrad.proof.base.kernel_formulas import LAYOUT, Found, formulas, near_numbers

MOVED = "moved-constants"
REPLACED = "replaced-constants"
FORMULA = "formula-kernel"
TEXTS = {
    MOVED: "a constant factor moved through a choice",
    REPLACED: "numbers of the file replaced by others",
    FORMULA: "a kernel in place of a formula",
}
NEAR = Fraction(1, 1000)
PUSHED = ("relu", "clamp", "maximum", "minimum", "add", "sub", "max_pool", "amax", *LAYOUT)
"""What a positive factor goes through: f(s*x, s*y) = s*f(x, y), limits scaled along."""


def rewritten(part: Graph) -> Iterator[tuple[str, str, Graph]]:
    """Name of the class, what was done in words, and the graph of it; those that keep the function first."""
    for i, number in _near_reciprocals(part):
        words = f"1/{number} in place of {float(part.constants[i].flat[0]):.8g}"
        other = np.full(part.constants[i].shape, Fraction(1, number), dtype=object)
        yield REPLACED, words, replace(part, constants={**part.constants, i: other})
    if near := _near_constants(part):
        words = ", ".join(f"{n:.8g} in place of {float(part.constants[i].flat[0]):.8g}" for i, n in near.items())
        other_numbers = _with_numbers(part, near)
        yield REPLACED, words, other_numbers
        for _, graph in _with_kernels(other_numbers):
            yield REPLACED, words, graph
    for k, node in enumerate(part.nodes):
        for factor in sorted(_factors(part, k)) if node.op.name in CHOICES and node.op.name in PUSHED else ():
            yield MOVED, f"1/{1 / factor} through {node.name}", _moved(part, k, factor)
    for words, graph in _with_kernels(part):
        yield FORMULA, words, graph


def behind_formulas(graph: Graph, position: int, known: Mapping[int, Any]) -> tuple[str, dict[int, Any]]:
    """What is known but the values inside of formulas that end at node `position`, and the formulas in words.

    Numbers that may be taken for those of a formula are read as such.
    """
    everywhere = [f for g in (graph, _with_numbers(graph, _near_constants(graph))) for f in formulas(g)]
    ending = [f for f in everywhere if f.position == position]
    inside = {p for f in ending for p in f.between}
    words = ", ".join(sorted({f"{f.formula.text} as a {f.formula.name}" for f in ending}))
    return words, {p: v for p, v in known.items() if p not in inside}


def _with_kernels(part: Graph) -> Iterator[tuple[str, Graph]]:
    """The same function by the kernels of its formulas: of those that leave the class, and of all."""
    every = [f for f in formulas(part) if f.formula.kernel is not None]
    leaving = [f for f in every if not f.formula.held]
    for chosen in [leaving] if leaving == every else [leaving, every]:
        if chosen:
            words = ", ".join(
                f"{f.formula.text} at {part.nodes[f.position].name} as a {f.formula.name}" for f in chosen
            )
            yield words, _by_kernels(part, {f.position: f for f in chosen})


def _by_kernels(part: Graph, chosen: Mapping[int, Found]) -> Graph:
    def net(*inputs: Any) -> Any:
        values: dict[int, Any] = dict(zip(part.input_positions, inputs, strict=True))
        for i, node in enumerate(part.nodes):
            if i in values:
                continue
            if node.op is CONSTANT:
                values[i] = inputs[0].builder.constant(part.constants[i])
            elif i in chosen and (kernel := chosen[i].formula.kernel) is not None:
                values[i] = kernel(values[chosen[i].x], chosen[i].axes)
            else:
                args = [a.value if isinstance(a, NumberArg) else values[a] for a in node.args]
                values[i] = apply(node.op, *args, **node.params)
        results = tuple(values[p] for p in part.output_positions)
        return results[0] if part.single else results

    return trace(net, *(part.nodes[p].shape for p in part.input_positions))


def behind_choices(graph: Graph, position: int, known: Mapping[int, Any]) -> dict[int, Any]:
    """What is known but the choices that node `position` reads, and the sums that those choose from."""
    inside: set[int] = set()
    through = (*PUSHED, "mul", "div")
    todo = list(graph.nodes[position].operands())
    while todo:
        i = todo.pop()
        node = graph.nodes[i]
        if node.op in (INPUT, CONSTANT) or i in inside or node.op.kernel:
            continue
        if node.op.name in through:
            inside.add(i)
            todo += node.operands()
    return {p: v for p, v in known.items() if p not in inside}


def _near_reciprocals(part: Graph) -> Iterator[tuple[int, int]]:
    """Constants of one number that is nearly 1/n, and are not 1/n in float32."""
    factors: set[int] = set()
    for i, node in reversed(list(enumerate(part.nodes))):
        if node.op.name == "mul" or (i in factors and node.op.name in ("reshape", "broadcast")):
            factors |= set(node.operands())
    for i, array in part.constants.items():
        if i not in factors or array.dtype.kind != "f" or array.size == 0 or (array != array.flat[0]).any():
            continue
        c = float(array.flat[0])
        number = round(1 / c) if 0 < c < 0.5 else 0
        if number and abs(Fraction(c) * number - 1) < NEAR:
            yield i, number


def _near_constants(part: Graph) -> dict[int, float]:
    """Constants that are taken for numbers of a formula, and those numbers."""
    near = near_numbers(part)
    one = {i: float(a.flat[0]) for i, a in part.constants.items() if a.size and (a == a.flat[0]).all()} if near else {}
    return {i: near[c] for i, c in one.items() if c in near and part.constants[i].dtype.kind == "f"}


def _with_numbers(part: Graph, numbers: Mapping[int, float]) -> Graph:
    others = {i: np.full(part.constants[i].shape, Fraction(n), dtype=object) for i, n in numbers.items()}
    return replace(part, constants={**part.constants, **others})


def _factors(part: Graph, k: int) -> set[Fraction]:
    """Reciprocals of limits above, and factors behind: what a pattern scales by."""
    limits = [part.nodes[k].params.get("high")]
    limits += [
        a.value for n in part.nodes for a in n.args if isinstance(a, NumberArg) and n.op.name in ("div", "minimum")
    ]
    limits += [a.flat[0] for a in part.constants.values() if a.size == 1]
    numbers = {Fraction(float(v)) for v in limits if v is not None and np.isfinite(float(v))}
    return {1 / v for v in numbers if v > 1}


def _moved(part: Graph, k: int, s: Fraction) -> Graph:
    """The same function with node k computed as choice(s * ...) / s, s pushed as far down as it goes."""
    shapes = [part.nodes[p].shape for p in part.input_positions]

    def net(*inputs: Any) -> Any:
        values: dict[int, Any] = dict(zip(part.input_positions, inputs, strict=True))
        pushed: dict[int, Any] = {}

        def value(a: int | NumberArg) -> Any:
            if isinstance(a, NumberArg):
                return a.value
            if a not in values:
                node = part.nodes[a]
                if node.op is CONSTANT:
                    values[a] = inputs[0].builder.constant(part.constants[a])
                elif a == k:
                    values[a] = scaled(a) * (1 / s)
                else:
                    values[a] = apply(node.op, *map(value, node.args), **node.params)
            return values[a]

        def scaled(a: int | NumberArg) -> Any:
            if isinstance(a, NumberArg):
                return Fraction(a.value) * s
            if a not in pushed:
                node = part.nodes[a]
                if node.op is CONSTANT:
                    exact = [Fraction(float(v)) * s for v in part.constants[a].flat]
                    pushed[a] = inputs[0].builder.constant(_objects(exact, node.shape), owned=True)
                elif node.op.name in PUSHED and not node.op.index_args:
                    pushed[a] = apply(node.op, *map(scaled, node.args), **_scaled_params(node.op, node.params, s))
                else:
                    pushed[a] = value(a) * s
            return pushed[a]

        results = tuple(value(p) for p in part.output_positions)
        return results[0] if part.single else results

    return trace(net, *shapes)


def _scaled_params(op: Op, params: Mapping[str, Any], s: Fraction) -> dict[str, Any]:
    if op.name != "clamp":
        return dict(params)
    return {name: None if v is None else Fraction(v) * s for name, v in params.items()}


def _objects(values: Sequence[Fraction], shape: tuple[int, ...]) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)
