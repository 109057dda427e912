"""Four rewritings that no class of executions includes, as graphs of their own with their own radii.

moved      a constant factor goes through a choice: clip(x + 3, 0, 6) is 6*clip(x/6 + 1/2, 0, 1). The same real
           function, so the radius of the rewritten graph holds what such a program computes, and the exact value
replaced   a factor near 1/n is taken for 1/n, as a matched pattern takes 0.1667 for 1/6, and 0.79 beside a tanh for
           the sqrt(2/pi) of a gelu: another function
formula    a formula of the table (specgrad.proof.base.kernel_formulas) is computed by a kernel of its function, from
           its x on: the same function, with that kernel's declared error
by sigmoid tanh(x) inside a layer, as in a recurrent cell, is computed as 2*sigmoid(2*x) - 1, whose error is a part
           of 1 and not of tanh(x): the same function
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.graph.builder import trace
from specgrad.graph.graph import CONSTANT, INPUT, Graph, NumberArg
from specgrad.op import Op, apply
from specgrad.ops.activation import sigmoid
from specgrad.proof.base.executions import CHOICES
from specgrad.proof.base.kernel_formulas import LAYOUT, Found, formulas, near_numbers

MOVED = "moved-constants"
REPLACED = "replaced-constants"
FORMULA = "formula-kernel"
BY_SIGMOID = "tanh-by-sigmoid"
TEXTS = {
    MOVED: "a constant factor moved through a choice",
    REPLACED: "numbers of the file replaced by others",
    FORMULA: "a kernel in place of a formula",
    BY_SIGMOID: "tanh(x) computed as 2*sigmoid(2*x) - 1",
}
RECIPROCAL_TOLERANCE = Fraction(1, 1000)
HOMOGENEOUS = ("relu", "clamp", "maximum", "minimum", "add", "sub", "max_pool", "amax", *LAYOUT)
"""What a positive factor goes through: f(s*x, s*y) = s*f(x, y), limits scaled along."""


def rewritings(part: Graph) -> Iterator[tuple[str, str, Graph]]:
    """Yield (name of the rewriting, what was done in words, the rewritten graph) for each rewriting of `part` that
    fits.
    """
    for i, number in _near_reciprocals(part):
        words = f"1/{number} in place of {float(part.constants[i].flat[0]):.8g}"
        other = np.full(part.constants[i].shape, Fraction(1, number), dtype=object)
        yield REPLACED, words, replace(part, constants={**part.constants, i: other})
    if near := _near_constants(part):
        words = ", ".join(f"{n:.8g} in place of {float(part.constants[i].flat[0]):.8g}" for i, n in near.items())
        other_numbers = _replace_constants(part, near)
        yield REPLACED, words, other_numbers
        for _, graph in _with_kernels(other_numbers):
            yield REPLACED, words, graph
    for k, node in enumerate(part.nodes):
        for factor in (
            sorted(_scale_candidates(part, k)) if node.op.name in CHOICES and node.op.name in HOMOGENEOUS else ()
        ):
            yield MOVED, f"1/{1 / factor} through {node.name}", _scale_through_choice(part, k, factor)
    for words, graph in _with_kernels(part):
        yield FORMULA, words, graph
    if tanhs := _inner_tanhs(part):
        formulas_of = {i: _tanh_by_sigmoid(x) for i, x in tanhs.items()}
        yield BY_SIGMOID, f"at {part.nodes[min(tanhs)].name}", _replace_nodes(part, formulas_of)


def _inner_tanhs(part: Graph) -> dict[int, int]:
    """Return {position of a tanh: position of its argument} of those whose argument the graph computes itself.

    A tanh of a value that was recorded is a kernel of its own, and its declared error is what it is held to.
    """
    tanhs = {i: node.operands()[0] for i, node in enumerate(part.nodes) if node.op.name == "tanh"}
    return {i: x for i, x in tanhs.items() if part.nodes[x].op is not INPUT}


def _tanh_by_sigmoid(x: int) -> Made:
    """Return what computes tanh of the node at position `x` as 2*sigmoid(2*x) - 1."""
    return lambda values: 2 * sigmoid(2 * values[x]) - 1


def without_formula_interiors(graph: Graph, position: int, known: Mapping[int, Any]) -> tuple[str, dict[int, Any]]:
    """Return the formulas that end at node `position`, in words, and `known` without their inner values.

    Numbers that may be taken for those of a formula are read as such.
    """
    everywhere = [f for g in (graph, _replace_constants(graph, _near_constants(graph))) for f in formulas(g)]
    ending = [f for f in everywhere if f.position == position]
    inside = {p for f in ending for p in f.between}
    words = ", ".join(sorted({f"{f.formula.text} as a {f.formula.name}" for f in ending}))
    return words, {p: v for p, v in known.items() if p not in inside}


def _with_kernels(part: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield (words, graph) with formulas replaced by kernels: those that leave the class, and all of them."""
    every = [f for f in formulas(part) if f.formula.kernel is not None]
    leaving = [f for f in every if not f.formula.held]
    for chosen in [leaving] if leaving == every else [leaving, every]:
        if chosen:
            words = ", ".join(
                f"{f.formula.text} at {part.nodes[f.position].name} as a {f.formula.name}" for f in chosen
            )
            yield words, _replace_nodes(part, {f.position: _kernel_of(f) for f in chosen})


Made = Callable[[Mapping[int, Any]], Any]
"""What computes a node from the values before it, by position."""


def _kernel_of(match: Found) -> Made:
    """Return the function of {position: value} that computes the end of `match`, a formula, by its kernel, such as
    softplus for log(exp(x) + 1); the formula must have one.
    """
    kernel = match.formula.kernel
    assert kernel is not None
    return lambda values: kernel(values[match.x], match.axes)


def _replace_nodes(part: Graph, made: Mapping[int, Made]) -> Graph:
    """Return the graph with some nodes, by position, computed otherwise: `made`."""

    def net(*inputs: Any) -> Any:
        values: dict[int, Any] = dict(zip(part.input_positions, inputs, strict=True))
        for i, node in enumerate(part.nodes):
            if i in values:
                continue
            if node.op is CONSTANT:
                values[i] = inputs[0].builder.constant(part.constants[i])
            elif i in made:
                values[i] = made[i](values)
            else:
                args = [a.value if isinstance(a, NumberArg) else values[a] for a in node.args]
                values[i] = apply(node.op, *args, **node.params)
        results = tuple(values[p] for p in part.output_positions)
        return results[0] if part.single else results

    return trace(net, *(part.nodes[p].shape for p in part.input_positions))


def without_choices(graph: Graph, position: int, known: Mapping[int, Any]) -> dict[int, Any]:
    """Return `known` without the maxima, clamps and selections that node `position` reads through products, and without
    the sums below them.
    """
    inside: set[int] = set()
    through = (*HOMOGENEOUS, "mul", "div")
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
    """Yield (position, n) of constant factors of the graph that are nearly 1/n."""
    factors: set[int] = set()
    for i, node in reversed(list(enumerate(part.nodes))):
        if node.op.name == "mul" or (i in factors and node.op.name in ("reshape", "broadcast")):
            factors |= set(node.operands())
    for i, array in part.constants.items():
        if i not in factors or array.dtype.kind != "f" or array.size == 0 or (array != array.flat[0]).any():
            continue
        c = float(array.flat[0])
        number = round(1 / c) if 0 < c < 0.5 else 0
        if number and abs(Fraction(c) * number - 1) < RECIPROCAL_TOLERANCE:
            yield i, number


def _near_constants(part: Graph) -> dict[int, float]:
    """Return {position: number} of constants of the graph that may be taken for a number of a formula."""
    near = near_numbers(part)
    one = {i: float(a.flat[0]) for i, a in part.constants.items() if a.size and (a == a.flat[0]).all()} if near else {}
    return {i: near[c] for i, c in one.items() if c in near and part.constants[i].dtype.kind == "f"}


def _replace_constants(part: Graph, numbers: Mapping[int, float]) -> Graph:
    """Return the graph `part` with other numbers in some constants: `numbers` by position."""
    others = {i: np.full(part.constants[i].shape, Fraction(n), dtype=object) for i, n in numbers.items()}
    return replace(part, constants={**part.constants, **others})


def _scale_candidates(part: Graph, k: int) -> set[Fraction]:
    """Return reciprocals of upper limits (of node k too) and divisors above 1: what a pattern in the graph may scale
    by.
    """
    limits = [part.nodes[k].params.get("high")]
    limits += [
        a.value for n in part.nodes for a in n.args if isinstance(a, NumberArg) and n.op.name in ("div", "minimum")
    ]
    limits += [a.flat[0] for a in part.constants.values() if a.size == 1]
    numbers = {Fraction(float(v)) for v in limits if v is not None and np.isfinite(float(v))}
    return {1 / v for v in numbers if v > 1}


def _scale_through_choice(part: Graph, k: int, s: Fraction) -> Graph:
    """Return the graph with node k computed as f(s * x) / s, for f with f(s*x) = s*f(x) such as maxima and clamps, s
    moved down as far as possible.
    """
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
                    pushed[a] = inputs[0].builder.constant(_object_array(exact, node.shape), owned=True)
                elif node.op.name in HOMOGENEOUS and not node.op.index_args:
                    pushed[a] = apply(node.op, *map(scaled, node.args), **_scaled_params(node.op, node.params, s))
                else:
                    pushed[a] = value(a) * s
            return pushed[a]

        results = tuple(value(p) for p in part.output_positions)
        return results[0] if part.single else results

    return trace(net, *shapes)


def _scaled_params(op: Op, params: Mapping[str, Any], s: Fraction) -> dict[str, Any]:
    """Return the parameters of an operator for arguments times s: limits of a clamp are scaled."""
    if op.name != "clamp":
        return dict(params)
    return {name: None if v is None else Fraction(v) * s for name, v in params.items()}


def _object_array(values: Sequence[Fraction], shape: tuple[int, ...]) -> Any:
    """Return the exact numbers `values` as an object array of a shape."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)
