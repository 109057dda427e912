"""The table of formulas that runtimes replace by one kernel, and the search for its formulas in a graph.

log(exp(x) + 1) is softplus(x), exactly, and a runtime that sees the formula runs its kernel of softplus. So

    what it reads    is the formula's x, not the values between, even where those are asked for as outputs
    what it errs by  is the error of the kernel. Some keep to the class *fused* (a quotient counts two roundings, and
                     holds x*(1/r) for x/r). Others do not: the error of a sigmoid is a part of 1, that of
                     1/(1 + exp(-x)) a part of the result. The table says which; statements exclude them by name

Formulas and kernels are written down as functions of this library. A formula is found in any order of its sums and
products, with numbers that are its own in float32; layout that only repeats values is looked through.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from specgrad.graph.builder import trace
from specgrad.graph.graph import CONSTANT, Graph, NumberArg
from specgrad.op import REGISTRY, apply

ANY = 0.7390851332151607
"""In a formula of the table: any number."""
SAME_RTOL = 1e-6  # relative: a product of a few float32 numbers
MAX_NODES = 48  # nodes of a formula, layout included
FUNCTIONS = ("exp", "log", "tanh", "sigmoid", "softplus", "normal_cdf")
REDUCTIONS = ("sum", "amax")
LAYOUT = ("neg", "reshape", "permute", "slice", "pad", "concat", "broadcast", "stop_gradient", "gather", "take")
READ = ("add", "sub", "mul", "div", "neg", "power", "sqrt", "reshape", "broadcast", "stop_gradient")


@dataclass(frozen=True)
class Formula:
    """One formula that runtimes compute by a kernel, in all its spellings.

    name       of the function whose kernel is run
    text       as in a sentence
    spellings  functions of x; ANY stands for any number
    kernel     what the kernel computes, of x and of the axes of the formula's sums; None: what is written, from x on
    held       whether the class *fused* holds what the kernel computes (tests/proof/test_formulas.py)
    numbers    of the formula, and how near (relatively) a constant is that a runtime may take for one
    beside     the operator beside which such constants are looked for
    """

    name: str
    text: str
    spellings: tuple[Callable[[Any], Any], ...]
    kernel: Callable[[Any, tuple[int, ...]], Any] | None = None
    held: bool = False
    numbers: Mapping[float, float] = field(default_factory=dict)
    beside: str = ""


def _function(name: str, **params: Any) -> Callable[[Any], Any]:
    """Return an operator as a function of x, looked up by name: this package imports no operator's module."""
    return lambda x: apply(REGISTRY[name], x, **params)


exp, log, tanh, sqrt = map(_function, ("exp", "log", "tanh", "sqrt"))
sigmoid, normal_cdf, gelu = map(_function, ("sigmoid", "normal_cdf", "gelu"))
softplus = _function("softplus", beta=1)


def _tanh_gelu(x: Any) -> Any:
    """Return the tanh approximation of gelu at x."""
    return x * 0.5 * (tanh((x + x**3 * 0.044715) * math.sqrt(2 / math.pi)) + 1)


def _softmax(x: Any, axes: tuple[int, ...] = (-1,)) -> Any:
    """Return exp(x - max(x)) / sum(exp(x - max(x))) along `axes`."""
    axes = tuple(a % len(x.shape) for a in axes)
    kept = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    e = exp(x - apply(REGISTRY["amax"], x, axes=axes, ties="split").reshape(kept))
    return e / e.sum(axes, keepdims=True)


def _row_mean(x: Any) -> Any:
    """Return the mean along the last axis, which is kept with size 1."""
    return x.mean(-1, keepdims=True)


def _row_sum(x: Any) -> Any:
    """Return the sum along the last axis, which is kept with size 1."""
    return x.sum(-1, keepdims=True)


def _root_of_shifted(square: Any) -> Any:
    """Return sqrt(square + c) for any constant c."""
    return sqrt(square + ANY)


_HALVES = {1.0: 2e-5, 0.5: 2e-5}
FORMULAS = (
    Formula("softplus", "log(exp(x) + 1)", (lambda x: log(exp(x) + 1),), lambda x, _: softplus(x)),
    Formula("sigmoid", "1/(1 + exp(-x))", (lambda x: 1 / (1 + exp(-x)),), lambda x, _: sigmoid(x)),
    Formula("silu", "x/(1 + exp(-x))", (lambda x: x / (1 + exp(-x)),), lambda x, _: x * sigmoid(x)),
    Formula(
        "mish",
        "x*tanh(log(exp(x) + 1))",
        (lambda x: x * tanh(log(exp(x) + 1)),),
        lambda x, _: x * tanh(softplus(x)),
    ),
    Formula("softmax", "exp(x)/sum(exp(x))", (lambda x: exp(x) / _row_sum(exp(x)),), _softmax),
    Formula("silu", "x*sigmoid(c*x)", (lambda x: x * sigmoid(x * ANY),), held=True),
    Formula("mish", "x*tanh(softplus(x))", (lambda x: x * tanh(softplus(x)),), held=True),
    Formula(
        "gelu",
        "x*(1 + erf(x/sqrt(2)))/2",
        (lambda x: x * normal_cdf(x),),
        lambda x, _: gelu(x),
        True,
        {math.sqrt(2): 0.025, math.sqrt(0.5): 0.025, **_HALVES},
        "normal_cdf",
    ),
    Formula(
        "gelu",
        "x*(1 + tanh(s*(x + k*x^3)))/2",
        (_tanh_gelu,),
        None,
        True,
        {math.sqrt(2 / math.pi): 0.025, 0.044715: 0.025, **_HALVES},
        "tanh",
    ),
    Formula(
        "gelu",
        "x*(1 + tanh(s*x*(1 + k*x^2)))/2",
        (lambda x: x * (1 + tanh(x * (1 + x * x * 0.044715) * math.sqrt(2 / math.pi))) / 2,),
        lambda x, _: _tanh_gelu(x),
    ),
    Formula(
        "softmax",
        "exp(x - max(x))/sum(exp(x - max(x)))",
        (_softmax,),
        held=True,
    ),
    Formula("RMS norm", "x/sqrt(mean(x^2) + c)", (lambda x: x / _root_of_shifted(_row_mean(x * x) * ANY),), held=True),
    Formula("L2 norm", "x/sqrt(sum(x^2))", (lambda x: x / sqrt(_row_sum(x * x)) * ANY,), held=True),
    Formula(
        "mean-variance norm",
        "(x - mean(x))/sqrt(mean((x - mean(x))^2) + c)",
        (lambda x: (x - _row_sum(x) * ANY) / _root_of_shifted(_row_mean((x - _row_sum(x) * ANY) ** 2) * ANY),),
        held=True,
    ),
)


@dataclass(frozen=True)
class Found:
    """One place of a graph where a formula stands.

    position   the node that is the formula's value
    x          the node that is its argument
    between    the nodes between both
    axes       the axes of its sums; () without any
    """

    formula: Formula
    position: int
    x: int
    between: frozenset[int]
    axes: tuple[int, ...] = ()


def formulas(graph: Graph) -> list[Found]:
    """Return every place of `graph` where a formula of the table stands, by the position of its value.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.log(1 + sg.exp(x)) + sg.log(2 + sg.exp(x)), (2,))
    >>> [(seen.formula.name, seen.position, seen.x, sorted(seen.between)) for seen in formulas(graph)]
    [('softplus', 3, 0, [1, 2])]
    """
    names = [n.op.name for n in graph.nodes]
    if not any(name in (*FUNCTIONS, "sum") for name in names):
        return []
    return [
        place
        for i, name in enumerate(names)
        if name in ("log", "mul", "div", "power")
        for place in _formula_ending_at(graph, i)
    ]


def near_numbers(graph: Graph) -> dict[float, float]:
    """Return constants of `graph` that are near a number of a formula but differ from it in float32, each with that
    number.

    >>> import specgrad as sg
    >>> near_numbers(sg.trace(lambda x: x * sg.normal_cdf(x * 1.414) * 0.5, (2,)))
    {1.414: 1.4142135623730951}
    """
    names = {n.op.name for n in graph.nodes}
    meant = [f.numbers for f in FORMULAS if f.beside in names]
    constants = sorted(set(_single_numbers(graph))) if meant else []
    near = {c: [n for numbers in meant for n, by in numbers.items() if abs(abs(c) - n) <= n * by] for c in constants}
    return {c: math.copysign(ns[0], c) for c, ns in near.items() if ns and np.float32(abs(c)) != np.float32(ns[0])}


def _single_numbers(graph: Graph) -> Iterator[float]:
    """Constants of one number, in all cells, that are added, multiplied or divided by."""
    read: set[int] = set()
    for i, node in reversed(list(enumerate(graph.nodes))):
        joins = node.op.name in ("mul", "div", "add", "sub")
        yield from (float(a.value) for a in node.args if joins and isinstance(a, NumberArg))
        if joins or (i in read and node.op.name in LAYOUT):
            read.update(node.operands())
    for i, value in graph.constants.items():
        if i in read and value.size and value.dtype.kind in "fO" and (value == value.flat[0]).all():
            yield float(value.flat[0])


# --- values as sums and products in no order --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    """A constant times powers of x, of sums and of function calls; the constant is NaN if it may be any number."""

    number: float
    powers: tuple[tuple[Any, float], ...] = ()


@dataclass(frozen=True)
class _Sum:
    """The constant `number` plus the products `terms`, in no particular order."""

    number: float
    terms: tuple[_Product, ...]


@dataclass(frozen=True)
class _Call:
    """The function `name` of one cell, or a reduction along axes whose result is broadcast along them again, of
    `argument`.
    """

    name: str
    argument: _Product


X = "x"


def _product_of(*products: _Product) -> _Product:
    """Return the product of products: constants are multiplied, exponents of equal bases added."""
    powers: dict[Any, float] = {}
    for base, e in itertools.chain.from_iterable(p.powers for p in products):
        powers[base] = powers.get(base, 0.0) + e
    return _Product(math.prod(p.number for p in products), tuple((b, e) for b, e in powers.items() if e))


def _power_of(p: _Product, e: float) -> _Product | None:
    """Return p**e, or None if the constant is 0, or negative with a fractional exponent."""
    if p.number == 0 or (p.number < 0 and e != round(e)):
        return None
    return _Product(p.number**e, tuple((base, f * e) for base, f in p.powers))


def _sum_of(*products: _Product) -> _Product:
    """Return the sum of products as one product: nested sums are flattened, constants added up."""
    number, terms = 0.0, list[_Product]()
    for p in products:
        if not p.powers:
            number += p.number
        elif len(p.powers) == 1 and isinstance(p.powers[0][0], _Sum) and p.powers[0][1] == 1:
            inner = p.powers[0][0]
            number += p.number * inner.number
            terms += [_Product(p.number * t.number, t.powers) for t in inner.terms]
        else:
            terms.append(p)
    if number == 0 and len(terms) == 1:
        return terms[0]
    return _Product(1.0, ((_Sum(number, tuple(terms)), 1.0),)) if terms else _Product(number)


class _FormulaMatcher:
    """Reads values of a graph as expressions in one node x; None stands for a value that depends on something else.

    With `any_number` the constant ANY, of either sign, stands for any number.
    """

    def __init__(self, graph: Graph, x: int, any_number: bool = False) -> None:
        self.graph, self.any_number = graph, any_number
        self.values: dict[int, _Product | None] = {x: _Product(1.0, ((X, 1.0),))}
        self.axes: set[tuple[int, ...]] = set()

    def read(self, arg: int | NumberArg) -> _Product | None:
        """Return `arg`, a node or number, as an expression in x, or None; results are cached by node."""
        if isinstance(arg, NumberArg):
            return self._read_number(float(arg.value))
        if arg not in self.values:
            self.values[arg] = None  # while its own operands are read
            self.values[arg] = self._read_node(arg)
        return self.values[arg]

    def _read_number(self, value: float) -> _Product | None:
        """Return a constant `value` as an expression, None if it is infinite; ANY becomes NaN in formulas of the
        table.
        """
        if self.any_number and abs(value) == ANY:
            value = math.nan
        return None if math.isinf(value) else _Product(value)

    def _read_node(self, i: int) -> _Product | None:
        """Return the expression of node `i` in x, computed from those of its operands.

        None if there is none that is known.
        """
        node, name = self.graph.nodes[i], self.graph.nodes[i].op.name
        if i in self.graph.constants:
            value = self.graph.constants[i]
            one = value.size and value.dtype.kind in "fiO" and (value == value.flat[0]).all()
            return self._read_number(float(value.flat[0])) if one else None
        if name not in (*READ, *FUNCTIONS) or len(self.values) > MAX_NODES:
            return None
        if name == "reshape":
            return self._read_reshape(i)
        known: list[_Product] = []
        for a in node.args:
            part = self.read(a)
            if part is None:
                return None  # at once: of a long chain, such as steps of time, nothing else need be read
            known.append(part)
        return _expression_of(name, node.params, known)

    def _read_reshape(self, i: int) -> _Product | None:
        """Return the expression of reshape node i: of a number, or of a reduction whose axes stay with size 1; else
        None.

        The axes of such a reduction are added to `axes`.
        """
        (source,) = self.graph.nodes[i].operands()
        below = self.graph.nodes[source]
        if below.op.name not in REDUCTIONS:
            value = self.read(source)
            return value if value is not None and not value.powers else None
        (argument,) = below.operands()
        shape, axes = self.graph.nodes[argument].shape, tuple(below.params["axes"])
        kept = tuple(1 if k in axes else n for k, n in enumerate(shape))
        value = self.read(argument) if self.graph.nodes[i].shape == kept else None
        self.values[source] = None  # of no use but here
        self.axes.add(axes)
        return None if value is None else _Product(1.0, ((_Call(below.op.name, value), 1.0),))


def _expression_of(name: str, params: Mapping[str, Any], args: Sequence[_Product]) -> _Product | None:
    """Return the expression that the operator called `name` makes of expressions `args`, or None.

    mul, div, neg, power and sqrt of products are products, a sum of two is add or sub; broadcast and stop_gradient
    change nothing; any other name is a function of the first argument, unless it has a `beta` other than 1.
    """
    if name in ("mul", "div"):
        last = _power_of(args[1], -1.0) if name == "div" else args[1]
        return None if last is None else _product_of(args[0], last)
    if name in ("add", "sub"):
        return _sum_of(args[0], _product_of(args[1], _Product(1.0 if name == "add" else -1.0)))
    if name == "neg":
        return _product_of(args[0], _Product(-1.0))
    if name in ("power", "sqrt"):
        return _power_of(args[0], float(params.get("exponent", 0.5)))
    if name in ("broadcast", "stop_gradient"):
        return args[0]
    if params.get("beta", 1) != 1:
        return None
    return _Product(1.0, ((_Call(name, args[0]), 1.0),))


def _matches_expression(meant: Any, seen: Any) -> bool:
    """Return whether expression `seen` of a graph is `meant` of the table, up to the order of factors and terms."""
    if type(meant) is not type(seen):
        return False
    if isinstance(meant, _Call):
        return meant.name == seen.name and _matches_expression(meant.argument, seen.argument)
    if isinstance(meant, _Sum):
        return _matches_constant(meant.number, seen.number) and _match_in_some_order(meant.terms, seen.terms)
    if isinstance(meant, _Product):
        return _matches_constant(meant.number, seen.number) and _match_in_some_order(meant.powers, seen.powers)
    if isinstance(meant, tuple):
        return _matches_constant(meant[1], seen[1]) and _matches_expression(meant[0], seen[0])
    return bool(meant == seen)


def _matches_constant(meant: float, seen: float) -> bool:
    """Return whether constant `seen` is `meant` in float32 precision; a NaN in `meant` matches any."""
    return math.isnan(meant) or math.isclose(meant, seen, rel_tol=SAME_RTOL)


def _match_in_some_order(meant: Sequence[Any], seen: Sequence[Any]) -> bool:
    """Return whether expressions `meant` and `seen` fit one to one in some order."""
    if len(meant) != len(seen):
        return False
    return any(all(map(_matches_expression, meant, order)) for order in itertools.permutations(seen))


# --- where they stand -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _table() -> list[tuple[Formula, frozenset[str], _Product]]:
    """Return (formula, names of its functions, its expression in x) for every spelling of every formula."""
    rows = []
    for formula in FORMULAS:
        for spelling in formula.spellings:
            graph = trace(spelling, (2, 3))
            value = _FormulaMatcher(graph, 0, any_number=True).read(graph.output_positions[0])
            assert value is not None, formula.text
            rows.append((formula, _functions_among(graph, range(len(graph.nodes))), value))
    return rows


def _functions_among(graph: Graph, positions: Any) -> frozenset[str]:
    """Return the names of functions and reductions among nodes at `positions`."""
    return frozenset(graph.nodes[i].op.name for i in positions) & {*FUNCTIONS, *REDUCTIONS}


def _formula_ending_at(graph: Graph, position: int) -> Iterator[Found]:
    """Yield the formula, if there is one, whose value is node `position`: each earlier node is tried as its x, in
    order."""
    before = _nodes_before(graph, position)
    rows = [row for row in _table() if row[1] <= _functions_among(graph, before)]
    nodes = graph.nodes
    for x in sorted(before - {position}) if rows else ():
        if nodes[x].shape != nodes[position].shape or nodes[x].op is CONSTANT or nodes[x].kind != "real":
            continue
        reader = _FormulaMatcher(graph, x)
        value = reader.read(position)
        formula = next((f for f, _, meant in rows if value is not None and _matches_expression(meant, value)), None)
        if formula is not None and len(reader.axes) <= 1:
            between = frozenset(i for i in reader.values if i not in (position, x, *graph.constants))
            yield Found(formula, position, x, between, next(iter(reader.axes), ()))
            return


def _nodes_before(graph: Graph, position: int) -> set[int]:
    """Return the nodes that a formula ending at `position` may consist of, and those that they read, about MAX_NODES at
    most."""
    before, todo = {position}, [position]
    while todo and len(before) < MAX_NODES:
        node = graph.nodes[todo.pop()]
        if node.op.name in (*READ, *FUNCTIONS, *REDUCTIONS):
            new = set(node.operands()) - before
            before |= new
            todo += new
    return before
