"""Runs a graph in one of the ways that an execution model allows, drawn at random; shares no code with the bounds.

What is computed is a *part*: a node with everything `inline` below it (tests/hunt/program.py). A part's cell is summed
over its terms as they are, over its distinct inputs with merged coefficients, or with coefficients folded node by node;
each product and sum in any order, with or without FMA, divisions by a constant perhaps by its reciprocal. No term of a
part meets more roundings than

    max(those of its nodes one after the other, F + n)    F to form a coefficient, n inputs and constants

and a tree in which one would is not taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import numpy as np

from floats import FORMATS, WIDE, Format, Machine, rounded
from program import Program, draw_modes, has_one_use
from smooth_maxima import smooth_maximum
from specgrad.graph.graph import CONSTANT, INPUT, Node, NumberArg
from specgrad.op import run_spec
from sums import Found, Met, Summand, add_up
from terms import ONCE, Cell, Factor, Literal, Term


@dataclass(frozen=True)
class Setting:
    """What a runtime computes in; `rounding` "any" rounds each result up or down as it likes."""

    form: Format = FORMATS["float32"]
    inner: Format = FORMATS["float32"]
    operands: Format | None = None
    model: str = "fused"
    flush: bool = True
    rounding: str = "nearest"


FUNCTIONS = {
    "exp": (lambda x: math.exp(x) if x < 700 else math.inf, 6.0, "y"),
    "log": (lambda x: math.log(x) if x > 0 else -math.inf, 5.0, "y"),
    "tanh": (math.tanh, 8.0, "y"),
    "sigmoid": (lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0, 2.0, "1"),
    "hardswish": (lambda x: x * min(max(x + 3, 0), 6) / 6, 3.5, "x"),
}
"""In float64, which errs by far less than float32 rounds; units of u that a runtime may be off by, and of what."""


# --- one execution ----------------------------------------------------------------------------------------------------


@dataclass
class Part:
    """Roundings of a cell with what is inline below it: of its own node, of the longest path, of that but its first."""

    own: int
    path: int
    folded: int


@dataclass
class Execution:
    """One way to run a program.

    values    of each node that is not inline: its versions, flat
    met       of each linear one: the most roundings that a term has met since its region began
    aim       per node and cell, which way its value is to be off (tests/hunt/steered.py); None: as it happens
    """

    program: Program
    setting: Setting
    rng: Random
    values: dict[int, list[list[float]]] = field(default_factory=dict)
    met: dict[int, int] = field(default_factory=dict)
    modes: list[str] = field(default_factory=list)
    aim: Mapping[int, Sequence[float]] | None = None

    def __post_init__(self) -> None:
        s, rng = self.setting, self.rng
        self.modes = draw_modes(self.program, s.model, rng)
        self.flush, self.daz = s.flush and rng.random() < 0.5, s.flush and rng.random() < 0.5
        self.units = [self._machine(s.inner), self._machine(s.inner), Machine(WIDE)]
        self.unit, self.at = self.units[0], 0
        self.storing = self._machine(s.form)
        self.wide = rng.choice((0.0, 0.3)) if s.model == "fused" else 0.0  # how often a result is not stored
        self.push = rng.choice((0, 0, 1, -1))  # every cell as large, or as small, as a few attempts make it
        self.parts: dict[Cell, Part] = {}
        self.expansions: dict[Cell, list[tuple[Term, bool]]] = {}

    def _machine(self, form: Format) -> Machine:
        mode: Any = "nearest" if self.setting.rounding == "nearest" else lambda: self.rng.choice(("up", "down"))
        return Machine(form, mode, self.flush, self.daz)

    def run(self, inputs: dict[int, Any]) -> Execution:
        graph = self.program.graph
        for i, node in enumerate(graph.nodes):
            if node.op in (INPUT, CONSTANT):
                given = inputs[i] if node.op is INPUT else graph.constants[i]
                self.values[i] = [[self._held(v) for v in np.asarray(given).flat]]
            elif self.modes[i] != "inline":
                count = 1 if self.modes[i] == "once" else 2
                self.values[i] = [self._computed(i, node) for _ in range(count)]
        return self

    def array(self, i: int, version: int = 0) -> np.ndarray:
        return np.array(self.values[i][version]).reshape(self.program.graph.nodes[i].shape)

    def _held(self, v: Any) -> float:
        """A number of an array, in the format."""
        v = v.item() if isinstance(v, np.generic) else v
        return rounded(Fraction(v), self.setting.form) if math.isfinite(v) else float(v)

    def _literal(self, value: Fraction) -> float:
        """A number of the program's text: in the format, or in that of the accumulators."""
        return _written(value, self.rng.choice((self.setting.form, self.setting.inner)))

    def _computed(self, i: int, node: Node) -> list[float]:
        self.at, self.unit = i, self.rng.choice(self.units)
        stores = self._is_stored(i) or self.rng.random() >= self.wide
        if i in self.program.formulas:
            found = [self._cell(i, p) for p in range(len(self.program.formulas[i]))]
        else:
            found = self._nonlinear(node)
        return [self.storing.store(v) for v in found] if stores else found

    def _is_stored(self, i: int) -> bool:
        """Results of the graph, and of what is computed once but read more often."""
        reduced = self.program.graph.nodes[i].op.name in ONCE
        read_twice = reduced and not has_one_use(self.program, self.modes, i)
        return read_twice or i in self.program.graph.output_positions

    def _read(self, cell: Cell | Literal) -> float:
        """One of the versions of a cell."""
        if isinstance(cell, Literal):
            return self._literal(cell.value)
        return self.rng.choice(self.values[cell.node])[cell.index]

    def _behind(self, of: Cell | Literal) -> Met:
        """The roundings that a value's terms have met in the region at work."""
        if isinstance(of, Literal) or of.node not in self.met:
            return Met()
        nodes = self.program.graph.nodes
        inside = self.setting.model == "fused" or nodes[of.node].group == nodes[self.at].group
        return Met(0, self.met[of.node] if inside else 0)

    # --- nonlinear nodes

    def _nonlinear(self, node: Node) -> list[float]:
        args = [self._argument(a) for a in node.args]
        if len(set(node.args)) == 1:
            args = args[:1] * len(args)  # a square is one of one value
        name = node.op.name
        if name == "mul":
            return [self.unit.mul(a, b) for a, b in zip(*(a.flat for a in args), strict=True)]
        if name == "div":
            return [
                self._quotient(a, b) for a, b in zip(*(np.broadcast_to(a, node.shape).flat for a in args), strict=True)
            ]
        if name == "sqrt":
            return [self.unit.sqrt(a) for a in args[0].flat]
        if name == "leaky_relu":
            slope = self._literal(Fraction(node.params["slope"]))
            return [float(x) if x > 0 else self.unit.mul(float(x), slope) for x in args[0].flat]
        if name in FUNCTIONS:
            return [self._function(name, float(x)) for x in args[0].flat]
        if name == "smooth_max_pool":
            beta = self._literal(Fraction(node.params["beta"]))
            return smooth_maximum(node, args[0], self.unit, self.rng, beta, self._function)
        if name == "clamp":
            return self._clamped(args[0], **node.params)
        if not node.op.exact:
            raise NotImplementedError(f"the executor has no line for {name}")
        return [self.unit.read(float(v)) for v in run_spec(node.op, args, node.params).flat]

    def _quotient(self, a: float, b: float) -> float:
        """By division, or by the reciprocal."""
        a, b = float(a), float(b)
        return self.unit.mul(a, self.unit.div(1.0, b)) if self.rng.random() < 0.5 else self.unit.div(a, b)

    def _function(self, name: str, x: float) -> float:
        """Off by nearly as much as a runtime may be, less one rounding for the store."""
        f, units, kind = FUNCTIONS[name]
        y, u = f(x), 2.0 ** ((self.setting.rounding == "any") - self.setting.form.digits)
        way = self.push or self.rng.choice((-1, 0, 1))
        of = {"y": abs(y), "x": abs(x), "1": 1.0}[kind]
        return y + 0.999 * way * (units - 1) * u * of if math.isfinite(y) else y

    def _clamped(self, x: np.ndarray, low: Any, high: Any) -> list[float]:
        ends = [None if e is None else self._literal(Fraction(e)) for e in (low, high)]
        found = x if ends[0] is None else np.maximum(x, ends[0])
        return [float(v) for v in (found if ends[1] is None else np.minimum(found, ends[1])).flat]

    def _argument(self, arg: int | NumberArg) -> np.ndarray:
        if isinstance(arg, NumberArg):
            return np.asarray(rounded(Fraction(arg.value), self.setting.form))
        shape = self.program.graph.nodes[arg].shape
        cells = [self.unit.read(self._read(Cell(arg, p))) for p in range(math.prod(shape))]
        return np.array(cells, dtype=float).reshape(shape)

    # --- parts

    def _cell(self, i: int, p: int) -> float:
        push = self.push if self.aim is None else self.aim[i][p] or self.rng.choice((1, -1))
        tries, steer = (1 if push == 0 else 3, 0.0) if self.aim is None else (2, push)
        found = [self._attempt(Cell(i, p), steer) for _ in range(tries)]
        value, met = max(found, key=lambda f: f[0] * push)
        self.met[i] = max(self.met.get(i, 0), met.all)
        return value

    def _attempt(self, cell: Cell, push: float) -> Found:
        """The cell's value, by a way in which no term meets too many roundings."""
        part, limit = self._part(cell), self.limit(cell)
        for way in (self.rng.choice((self._term_by_term, self._merged, self._folded)), self._term_by_term):
            items = way(cell, part)
            value, met = add_up(self.unit, [s for _, s in items], self.rng, limit, push)
            if met.part <= limit:
                return value, met
        raise AssertionError(f"{met.part} roundings where {limit} are allowed")

    def limit(self, cell: Cell) -> int:
        """The most roundings that a term of a cell may meet in its part; n terms without factors need n - 1."""
        part = self._part(cell)
        if part.path == part.own:
            return part.path
        split, names = [self._split(term) for term, _ in self._expanded(cell)], self.names(cell)
        multiplied = len(names) < len(split) or any(constants for name, constants in split if name is not None)
        return max(part.path, part.folded + len(names) - (not multiplied))

    def names(self, cell: Cell) -> set[Cell | None]:
        """What a cell of a part reads; None for constants that are added."""
        return {self._split(term)[0] for term, _ in self._expanded(cell)}

    def _part(self, cell: Cell) -> Part:
        if cell not in self.parts:
            terms = self.program.formulas[cell.node][cell.index]
            inner = [self._part(f.of) for t in terms for f in t.factors if self._is_inline(f.of)]
            own = max(0, len(terms) - 1) + max((_products(t) for t in terms), default=0)
            path = own + max((q.path for q in inner), default=0)
            self.parts[cell] = Part(own, path, own + max(q.folded for q in inner) if inner else 0)
        return self.parts[cell]

    def _is_inline(self, of: Cell | Literal) -> bool:
        return isinstance(of, Cell) and self.modes[of.node] == "inline"

    def _expanded(self, cell: Cell) -> list[tuple[Term, bool]]:
        """The terms over inputs and constants, and whether one passes a convolution or matrix product."""
        if cell not in self.expansions:
            here = self.program.graph.nodes[cell.node].op.name in ONCE
            terms = self.program.formulas[cell.node][cell.index]
            expanded = [found for term in terms for found in self._multiplied_out(term)]
            self.expansions[cell] = [(t, (here and len(t.factors) > 1) or below) for t, below in expanded]
        return self.expansions[cell]

    def _multiplied_out(self, term: Term) -> list[tuple[Term, bool]]:
        partial = [(Term(term.sign, ()), False)]
        for f in term.factors:
            inner = self._expanded(f.of) if self._is_inline(f.of) else [(Term(1, (f,)), False)]
            partial = [(Term(a.sign * b.sign, a.factors + b.factors), u or v) for a, u in partial for b, v in inner]
        return partial

    def _split(self, term: Term) -> tuple[Cell | None, list[Factor]]:
        """The factor that varies, and the constants."""
        moving = [f.of for f in term.factors if isinstance(f.of, Cell) and self.program.varying[f.of.node]]
        constants = [f for f in term.factors if f.of not in moving]
        return (moving[0] if moving else None), constants

    # --- ways to write a cell as a sum

    def _term_by_term(self, cell: Cell, part: Part) -> list[tuple[Any, Summand]]:
        """Every term is a summand of its own; its factors in any order."""
        found = []
        for term, through in self._expanded(cell):
            name, constants = self._split(term)
            if through and self.setting.operands is not None:
                found.append((name, self._applied(self._coefficient([(term.sign, constants)], math.inf), name, True)))
            else:
                found.append((name, self._product(term)))
        return found

    def _merged(self, cell: Cell, part: Part) -> list[tuple[Any, Summand]]:
        """One summand per distinct input: its coefficients are added up beforehand."""
        groups: dict[Cell | None, list[tuple[int, list[Factor]]]] = {}
        passes: dict[Cell | None, bool] = {}
        for term, through in self._expanded(cell):
            name, constants = self._split(term)
            groups.setdefault(name, []).append((term.sign, constants))
            passes[name] = passes.get(name, False) or through
        limit = max(part.folded, 1)
        return [(name, self._applied(self._coefficient(g, limit), name, passes[name])) for name, g in groups.items()]

    def _folded(self, cell: Cell, part: Part) -> list[tuple[Any, Summand]]:
        """The same, with coefficients formed node by node: as batch normalisation goes into a convolution."""
        return [(name, self._applied(c, name, through)) for name, (c, through) in self._coefficients(cell).items()]

    def _coefficients(self, cell: Cell) -> dict[Cell | None, tuple[Found, bool]]:
        node = self.program.graph.nodes[cell.node]
        with_external_data: dict[Cell | None, list[Summand]] = {}
        passes: dict[Cell | None, bool] = {}
        for term in self.program.formulas[cell.node][cell.index]:
            moving = [f for f in term.factors if isinstance(f.of, Cell) and self.program.varying[f.of.node]]
            rest = [f for f in term.factors if f not in moving]
            if moving and self._is_inline(moving[0].of):
                inner = self._coefficients(moving[0].of)
            elif not moving and (inline := [f for f in rest if self._is_inline(f.of)]):
                inner = self._coefficients(inline[0].of)
                rest.remove(inline[0])
            else:
                inner = {moving[0].of if moving else None: ((1.0, Met()), False)}
            for name, (c, through) in inner.items():
                with_external_data.setdefault(name, []).append(self._scaled(term.sign, rest, c))
                passes[name] = passes.get(name, False) or through or (node.op.name in ONCE and len(term.factors) > 1)
        return {name: (add_up(self.unit, items, self.rng), passes[name]) for name, items in with_external_data.items()}

    def _scaled(self, sign: int, constants: list[Factor], by: Found) -> Summand:
        """A coefficient from below, times the constants of one term."""
        if not constants:
            return Summand(sign * by[0], None, by[1])
        value, met = self._constant(constants)
        if by == (1.0, Met()):
            return Summand(sign * value, None, met)
        return Summand(sign * value, by[0], met.times(by[1]))

    # --- products

    def _product(self, term: Term) -> Summand:
        """The factors in any order; the last product may be left to an FMA."""
        factors = self.rng.sample(term.factors, len(term.factors))
        value, met = float(term.sign), Met()
        for k, f in enumerate(factors):
            v, divides, more = self._factor(f)
            if abs(value) == 1.0 and met == Met() and not divides:
                value, met = value * v, more
            elif k == len(factors) - 1 and not divides:
                return Summand(value, v, met.times(more))
            else:
                value, met = (self.unit.div if divides else self.unit.mul)(value, v), met.times(more).rounded()
        return Summand(value, None, met)

    def _factor(self, f: Factor) -> tuple[float, bool, Met]:
        """A factor's value, whether to divide by it, and the roundings of it or its reciprocal."""
        v = self._constant_cell(f.of) if self._is_inline(f.of) else (self._read(f.of), self._behind(f.of))
        if f.divides and self.rng.random() < 0.5:
            return self.unit.div(1.0, v[0]), False, v[1].rounded()
        return v[0], f.divides, v[1]

    def _constant_cell(self, cell: Any) -> Found:
        """An inline cell that no input reaches."""
        found = self._coefficients(cell)
        return found.get(None, ((0.0, Met()), False))[0]

    def _constant(self, constants: list[Factor]) -> Found:
        """A product of constants, rounded."""
        s = self._product(Term(1, tuple(constants)))
        return (s.a, s.met) if s.b is None else (self.unit.mul(s.a, s.b), s.met.rounded())

    def _coefficient(self, terms: list[tuple[int, list[Factor]]], limit: float) -> Found:
        """The sum over terms of their constants."""
        items = []
        for sign, constants in terms:
            value, met = self._constant(constants) if constants else (1.0, Met())
            items.append(Summand(sign * value, None, met))
        return add_up(self.unit, items, self.rng, limit)

    def _applied(self, c: Found, name: Cell | None, through: bool) -> Summand:
        """A coefficient times its input, both rounded to the format of operands where that is another."""
        if name is None:
            return Summand(c[0], None, c[1])
        x, form, met = self._read(name), self.setting.operands, c[1].times(self._behind(name))
        if through and form is not None:
            operands = self._machine(form)
            return Summand(operands.store(c[0]), operands.store(x), met)
        return Summand(c[0] * x, None, met) if abs(c[0]) == 1.0 else Summand(c[0], x, met)


_written = cache(rounded)


def _products(term: Term) -> int:
    """Roundings of a term's product; a division counts its reciprocal too."""
    return max(0, len(term.factors) - 1) + sum(f.divides for f in term.factors)


def execute(
    program: Program, inputs: Sequence[Any], setting: Setting, rng: Random, aim: Mapping[int, Any] | None = None
) -> Execution:
    """One execution on inputs, given in the order of the graph's leaves."""
    given = dict(zip(program.graph.input_positions, inputs, strict=True))
    return Execution(program, setting, rng, aim=aim).run(given)
