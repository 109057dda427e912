"""Proofs, at fixed shapes, that the two derivative rules of a node are each other's adjoint.

A form that is linear in each of its arguments is determined by its values on bases of them. A rule is run once on the
generic elements sum_k s_k e_k, with symbols s_k: the coefficient of s_j t_k is the value at the pair (e_j, e_k), so all
pairs are computed at once, and exactly; and what is not linear shows itself, whatever its operators promise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any, Literal

import numpy as np

from specgrad.errors import ScalarError, ShapeError, SpecgradError
from specgrad.op import REGISTRY, Op, run_spec
from specgrad.scalar import Array, exact
from specgrad.window import Shape

from ..builder import Index, Var
from ..graph import CONSTANT, INPUT, Graph, Node, NumberArg, bind
from .operator_rules import Rules

Cell = tuple[str, Shape]  # the name of an array, and a position in it
Terms = dict[tuple[Cell, ...], int | Fraction]
Verdict = Literal["proven", "refuted", "not proven"]
Maker = Callable[[str, Shape], Array]


class NotProvenError(SpecgradError):
    """Raised where nothing can be claimed, with the reason."""


class Polynomial:
    """A polynomial with rational coefficients in cells of named arrays: what a specification makes of symbols.

    It adds, multiplies, and is divided by numbers. It has neither order nor equality nor truth, so a specification that
    looks at a value stops here instead of taking a branch. NotProvenError when all polynomials of one proof together
    have more terms than `work` allows. `terms` map products of cells to coefficients; left[0] is how many more all of
    them may have.
    """

    __slots__ = ("left", "terms")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, terms: Terms, left: list[int]) -> None:
        self.terms = terms  # none of them 0
        self.left = left  # how many terms may still be written, by all forms of a proof together
        left[0] -= 1 + len(terms)
        if left[0] < 0:
            raise NotProvenError("prove_adjoint", "it takes more terms than work= allows")

    def _as_polynomial(self, other: Any) -> Polynomial:
        """Return an exact number as a constant polynomial; raise ScalarError for other types."""
        if isinstance(other, Polynomial):
            return other
        if isinstance(other, bool) or not isinstance(other, int | Fraction | np.integer):
            raise ScalarError("symbol", f"meets exact numbers alone; got {type(other).__name__}")
        return Polynomial({(): int(other) if isinstance(other, np.integer) else other} if other else {}, self.left)

    def __add__(self, other: Any) -> Polynomial:
        few, many = sorted((self.terms, self._as_polynomial(other).terms), key=len)
        return Polynomial(_add_terms(dict(many), few), self.left)

    def __mul__(self, other: Any) -> Polynomial:
        total: Terms = {}
        for q, b in self._as_polynomial(other).terms.items():
            _add_terms(total, {tuple(sorted(p + q)): a * b for p, a in self.terms.items()})
        return Polynomial(total, self.left)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Polynomial:
        return self * -1

    def __sub__(self, other: Any) -> Polynomial:
        return self + -self._as_polynomial(other)

    def __rsub__(self, other: Any) -> Polynomial:
        return self._as_polynomial(other) - self

    def __truediv__(self, other: Any) -> Polynomial:
        divisor = self._as_polynomial(other).terms
        if divisor.keys() != {()}:
            raise ScalarError("symbol", "is divided by numbers other than 0 alone")
        return self * (1 / Fraction(divisor[()]))

    def _no_value(self, *_: Any) -> Any:
        """Raise ScalarError: a symbol has no value to look at."""
        raise ScalarError("symbol", "has no value to look at")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __abs__ = __pow__ = _no_value

    def at(self, point: Mapping[str, Array]) -> Any:
        """Return the value at a point that gives every array by name."""
        return sum(c * math.prod(point[name][k] for name, k in cells) for cells, c in self.terms.items())


def _add_terms(total: Terms, terms: Terms) -> Terms:
    """Add `terms` into `total`, and return it; terms that cancel are removed."""
    for cells, c in terms.items():
        coefficient = total.get(cells, 0) + c
        if coefficient:
            total[cells] = coefficient
        else:
            total.pop(cells, None)
    return total


def _total(forms: Iterable[Polynomial], left: list[int]) -> Polynomial:
    """Return the sum of the polynomials `forms`; `left` holds how many terms all of a proof may still write."""
    total: Terms = {}
    for form in forms:
        _add_terms(total, form.terms)
    return Polynomial(total, left)


@dataclass(frozen=True)
class Claim:
    """Verdict on one node: whether <gy, J dx> = <J^T gy, dx> at these shapes, and for which values.

    verdict    "proven", "refuted", or "not proven"
    text       the reason for it, in words
    operator   the node's operator
    """

    node: str
    operator: str
    shapes: tuple[Shape, ...]
    tangents: tuple[int, ...]
    """The arguments that have a tangent when every input of the graph has one; only their cotangents matter."""
    verdict: Verdict
    text: str

    def __str__(self) -> str:
        sizes = ", ".join("x".join(map(str, s)) or "scalar" for s in self.shapes)
        return f"{self.node} ({self.operator} of {sizes}): {self.verdict}: {self.text}"


@dataclass(frozen=True)
class AdjointProof:
    """Result of `prove_adjoint`: `claims`, one per node that a derivative of the graph goes through."""

    claims: tuple[Claim, ...]

    @property
    def proven(self) -> bool:
        """Return whether every claim is proven; then jvp and vjp, as far as they chain these rules, are adjoint too."""
        return all(claim.verdict == "proven" for claim in self.claims)

    def __str__(self) -> str:
        return "\n".join(map(str, self.claims))


class AdjointCheck:
    """Check of one node, that both its derivative rules are adjoint: recorded, and run on symbols and on numbers.

    Raises NotProvenError where the rules read the output or are no compositions that a proof can be made for. `rules`
    are those of `op` recorded, `constants` the arrays of its constant inputs, by name.
    """

    def __init__(self, op: Op, rules: Rules, constants: Mapping[str, Array]) -> None:
        self.op, self.rules, self.constants = op, rules, constants
        self.nodes = rules.builder.nodes
        self.reads: list[frozenset[str]] = []  # per node, the inputs that it depends on
        for n in self.nodes:
            below = frozenset[str]().union(*(self.reads[a] for a in n.operands()))
            self.reads.append(frozenset((n.name,)) if n.op is INPUT else below)
        self.moving = frozenset(d.name for d in rules.dargs.values()) | {"gy"}
        self.forward = self._inner_products([(rules.gy, rules.y, rules.dy)])
        self.reverse = self._inner_products([(d, d, rules.gargs[k]) for k, d in rules.dargs.items()])
        self.needed = self.moving.union(*(self.reads[out.id] for _, out in self.forward + self.reverse))
        if "y" in self.needed:
            raise NotProvenError(op.name, "its rules read the output")
        self.fixed: set[str] = set()  # constants in which a rule is not linear: they keep their values
        self.indices: set[int] = set()  # the index argument, or the index that both rules compute: any integers
        self._check_composition()

    def _inner_products(self, triples: list[tuple[Var, Var, Any]]) -> list[tuple[Var, Var]]:
        """Return the pairs of variables whose products are summed; a rule that gives None is zero and drops out.

        `triples` are (variable, one of the shape that is right, what the rule gives).

        NotProvenError if one gives no numbers of the right shape.
        """
        for _, like, out in triples:
            if out is not None and not (isinstance(out, Var) and out.kind == "real" and out.shape == like.shape):
                raise NotProvenError(self.op.name, f"a rule gives {out}, not numbers of shape {like.shape}")
        return [(var, out) for var, _, out in triples if out is not None]

    # --- the rules are compositions of registered linear operators --------------------------------------------------

    def _check_composition(self) -> None:
        """Raise NotProvenError unless both rules are compositions of registered linear operators."""
        todo, seen = [out.id for _, out in self.forward + self.reverse], set()
        while todo:
            i = todo.pop()
            if i not in seen:
                seen.add(i)
                todo += self._operands(i, self.nodes[i])
        if len(self.indices) > 1:
            raise NotProvenError(self.op.name, "its rules read more than one index")

    def _operands(self, i: int, node: Node) -> list[int]:
        """Return the operands in which a node must be linear; constants and an index end the search.

        No node multiplies two operands that move, or that read the same input: so both sides are linear in each input,
        and sums over the cells of an index, which is read once on every path. Constants in which it is not linear are
        added to `fixed`, an index that moves to `indices`. NotProvenError for a node that no proof can be made for.
        """
        op = node.op
        if op is CONSTANT:
            raise NotProvenError(op.name, "a rule reads an array of its own")
        if node.kind == "index" and self._is_constant(i):
            self.fixed |= self.reads[i]
            return []
        if op is INPUT and node.kind == "real":
            return []
        if op is not INPUT and REGISTRY.get(op.name) is not op:
            raise NotProvenError(op.name, "stands in a rule and is not registered")
        if node.kind == "index":
            self.indices.add(i)
            return []
        groups, kept = op.linear_groups(len(node.args)), dict[int, int]()
        for k, a in enumerate(node.args):
            if isinstance(a, NumberArg):
                continue
            if k in op.index_args and not op.picks and not self._is_constant(a):
                raise NotProvenError(op.name, "stands in a rule and may read several cells of the index at once")
            if k in op.index_args or any(k in g for g in groups):
                kept[k] = a
            elif self._is_constant(a):
                self.fixed |= self.reads[a]
            else:
                raise NotProvenError(op.name, f"stands in a rule and is not linear in argument {k}")
        _check_jointly_linear(node, {k for k, a in kept.items() if self.reads[a] & self.moving})
        for j, k in itertools.combinations(kept, 2):
            if self.reads[kept[j]] & self.reads[kept[k]]:
                _check_jointly_linear(node, {j, k})
        return list(kept.values())

    def _is_constant(self, i: int) -> bool:
        """Return whether node i is made of constants of the graph alone."""
        return self.reads[i] <= self.constants.keys()

    # --- what they give ---------------------------------------------------------------------------------------------

    def sides(self, make: Maker, index: Array | None) -> tuple[list[Any], list[Any]]:
        """Return the terms of <gy, J dx> and of <J^T gy, dx>, on arrays that `make` gives for the free inputs.

        `index` is what index inputs get. NotProvenError if a shape rule is wrong.
        """
        values: dict[int, Any] = {i: _read_only(index) for i in self.indices}
        for name, var in self.rules.builder.arguments.items():
            if var.id not in values and name in self.needed:
                value_of = self._constant if name in self.fixed else make
                values[var.id] = _read_only(value_of(name, var.shape))

        def value(i: int) -> Any:
            if i not in values:
                node = self.nodes[i]
                for a in node.operands():
                    value(a)
                values[i] = _read_only(run_spec(node.op, bind(node.args, values), node.params))
                if (given := values[i].shape) != node.shape:
                    raise NotProvenError(node.op.name, f"gives {given} where its shape rule says {node.shape}")
            return values[i]

        def products(pairs: list[tuple[Var, Var]]) -> list[Any]:
            cells = ((values[v.id].flat, value(out.id).flat) for v, out in pairs)
            return [a * b for p, q in cells for a, b in zip(p, q, strict=True)]

        return products(self.forward), products(self.reverse)

    def _constant(self, name: str, _: Shape) -> Array:
        """Return the graph's constant `name` in exact numbers; integers unchanged."""
        value = self.constants[name]
        return value if value.dtype.kind == "i" else exact(value)

    def decide(self, work: int) -> tuple[Verdict, str]:
        """Return the verdict and its text: both sides are expanded over symbols and compared.

        NotProvenError if rules multiply a value with itself. `work` is how many products may be formed.
        """
        left, symbols = [work], dict[str, Array]()

        def symbol(name: str, shape: Shape) -> Array:
            if name not in symbols:
                symbols[name] = _array(shape, lambda k: Polynomial({((name, k),): 1}, left))
            return symbols[name]

        for index in self._test_indices(symbol):
            forward, reverse = (_total(side, left) for side in self.sides(symbol, index))
            wrong = (forward - reverse).terms
            if wrong:
                return self._refuted(min(wrong, key=lambda cells: (len(cells), cells)), forward, reverse, index)
            if any(len({name for name, _ in cells}) < len(cells) for cells in forward.terms):
                raise NotProvenError(self.op.name, "its rules multiply a value with itself")
        self._check_numbers(forward, index)
        return "proven", self._scope()

    def _test_indices(self, symbol: Maker) -> Iterator[Array | None]:
        """Yield the indices that decide all: one constant index, and those that differ from it in one cell.

        A sum over cells, S(i) = sum_p s_p(i_p), is 0 everywhere if it is 0 at these. Without an index: one None.
        `symbol` makes symbolic arrays. The values that a cell may have are stored in `taken`. NotProvenError if no
        index is accepted.
        """
        if not self.indices:
            yield None
            return
        shape = self.nodes[min(self.indices)].shape
        taken = self.taken = list[int]()
        for c in range(-1, 1 + max(math.prod(n.shape) for n in self.nodes)):
            if self._accepts_index(symbol, np.full(shape, c)):
                taken.append(c)
            elif taken:
                break
        if not taken:
            raise NotProvenError(self.op.name, "its rules take no index")
        yield np.full(shape, taken[0])
        for cell in np.ndindex(shape):
            for c in taken[1:]:
                index = np.full(shape, taken[0])
                index[cell] = c
                yield index

    def _accepts_index(self, symbol: Maker, index: Array) -> bool:
        """Return whether the rules run with this index, on arrays that `symbol` makes."""
        try:
            self.sides(symbol, index)
        except ShapeError:
            return False
        return True

    def _refuted(
        self, cells: tuple[Cell, ...], forward: Polynomial, reverse: Polynomial, index: Any
    ) -> tuple[Verdict, str]:
        """Return "refuted" with the smallest product of basis elements on which the sides differ.

        It is tried over Fractions too; raise NotProvenError if they agree there. `forward` and `reverse` are both
        sides, at an index if there is one; `cells` is that product.
        """
        unit = lambda name, shape: _array(shape, lambda k: Fraction(int((name, k) in cells)))
        pair = " ".join(f"{name}{list(k)}" for name, k in cells) or "1"
        counts = f"{forward.terms.get(cells, 0)} in <gy, J dx> and {reverse.terms.get(cells, 0)} in <J^T gy, dx>"
        text = f"{pair} counts {counts}" + (f", index {index.tolist()}" if index is not None else "")
        first, second = map(sum, self.sides(unit, index))
        if first == second or any(self.nodes[i].op is not INPUT for i in self.indices):
            text += "; over numbers, or for the indices that occur, it may be otherwise"
            raise NotProvenError(self.op.name, text)
        return "refuted", text

    def _check_numbers(self, form: Polynomial, index: Array | None) -> None:
        """Raise NotProvenError unless, at one random point, Fractions give the value of the polynomial.

        `index` is what index inputs get.
        """
        rng, point = Random(0), dict[str, Array]()

        def number(name: str, shape: Shape) -> Array:
            point[name] = _array(shape, lambda _: Fraction(rng.randint(1, 99), rng.randint(1, 9)))
            return point[name]

        if set(map(sum, self.sides(number, index))) != {form.at(point)}:
            raise NotProvenError(self.op.name, "its rules compute otherwise on numbers than on symbols")

    def _scope(self) -> str:
        """Return for which values the claim holds, as text."""
        if not self.forward and not self.reverse:
            return "both rules are zero"
        indices = {n.name for n in self.nodes if n.kind == "index"}
        free, held = ", ".join(sorted(self.needed - self.fixed - indices)), sorted(self.fixed)
        index = f" and every index in {self.taken[0]}..{self.taken[-1]}" if self.indices else ""
        return f"for all {free}{index}" + (f", at this {', '.join(held)}" if held else "")


def _read_only(a: Any) -> Array:
    """Return a view that cannot be written to: a rule that changes its argument would change the other side."""
    view = np.asarray(a).view()
    view.setflags(write=False)
    return view


def _array(shape: Shape, cell: Callable[[Shape], Any]) -> Array:
    """Return an object array of this shape with cell(index) in every cell."""
    array = np.empty(shape, dtype=object)
    for k in np.ndindex(shape):
        array[k] = cell(k)
    return array


def _check_jointly_linear(node: Node, operands: set[int]) -> None:
    """Raise NotProvenError unless the node is jointly linear in these operands."""
    groups = (set(g) - set(node.op.index_args) for g in node.op.linear_groups(len(node.args)))
    if operands and not any(operands <= g for g in groups):
        text = f"stands in a rule and is not linear in arguments {sorted(operands)} together"
        raise NotProvenError(node.op.name, text)


def _claim(graph: Graph, node: Node, moves: list[bool], work: int) -> tuple[Claim, bool]:
    """Return the claim about a node with a moving argument, and whether its own tangent may be nonzero.

    `moves` says which nodes have a tangent; `work` is how many products may be formed.
    """
    at = {k: a for k, a in enumerate(node.args) if isinstance(a, int)}
    nodes, moving = {k: graph.nodes[a] for k, a in at.items()}, tuple(k for k, a in at.items() if moves[a])
    examples = {k: Index(n.shape) if n.kind == "index" else n.shape for k, n in nodes.items()}
    given = [a.value if isinstance(a, NumberArg) else examples[k] for k, a in enumerate(node.args)]
    constants = {f"x{k}": graph.constants[a] for k, a in at.items() if a in graph.constants}
    verdict: Verdict = "not proven"
    rules = None
    try:
        rules = Rules(node.op, given, node.params, moving)
        verdict, text = AdjointCheck(node.op, rules, constants).decide(work)
    except Exception as error:  # whatever goes wrong is no proof
        text = str(error) if isinstance(error, SpecgradError) else repr(error)
    shapes = tuple(n.shape for n in nodes.values())
    return Claim(node.name, node.op.name, shapes, moving, verdict, text), rules is None or rules.dy is not None


def prove_adjoint(graph: Graph, *, work: int = 10_000_000) -> AdjointProof:
    """Prove, node by node, that the tangent rule J and the cotangent rule J^T satisfy <gy, J dx> = <J^T gy, dx>.

    Proven: in exact arithmetic, at the node's shapes and attributes, every input of the graph having a tangent, for all
    dx, gy and arguments; what is held at its value in the graph is named. Both rules must be compositions of registered
    operators, in arguments in which these promise to be linear. Then both sides are multiplied out over symbols and
    compared: a coefficient is the value on one choice of basis elements, of dx and gy for a linear operator, of dx, gy
    and w for a convolution. Where both rules read one and the same index (take, put, max_pool), every index is settled,
    output by output and tap by tap, given that take and put are sums over the cells of the index (`Op.picks`: promised,
    and tested by the laws). Refuted: the basis elements on which the sides differ are named. Not proven: everything
    else, such as rules that compare, divide by a value, read the output, read a value twice in one product, or take
    more than `work` terms.

    What it is not. It says nothing of other shapes, of floats, of engines. It does not say that J is the derivative:
    zero is adjoint to zero (the laws compare with dual numbers). Nothing is machine-checked: it rests on Python's
    numbers, NumPy's object arrays and this file, and on specifications that are functions and do with symbols what they
    do with numbers, which is tried at one point.

    Parameters
    ----------
    graph : Graph
        A graph, whose shapes are fixed.
    work : int, default 10000000
        The most terms that are multiplied out at a node.

    Returns
    -------
    AdjointProof
        What is proven of every node; it prints.

    Raises
    ------
    SpecgradError
        If `graph` is no Graph.

    Examples
    --------
    >>> import specgrad as sg
    >>> w = np.ones((1, 1, 2))
    >>> print(prove_adjoint(sg.trace(lambda x: sg.relu(sg.avg_pool(sg.conv(w, None, x), (2,))), (1, 5))))
    conv (conv of 1x5, 1x1x2): proven: for all dx0, gy, x1
    avg_pool (avg_pool of 1x4): proven: for all dx0, gy
    relu (relu of 1x2): not proven: select: stands in a rule and is not linear in argument 0
    """
    if not isinstance(graph, Graph):
        raise SpecgradError("prove_adjoint", f"needs a graph, whose shapes are fixed; trace it first; got {graph!r}")
    claims, moves = [], list[bool]()
    for node in graph.nodes:
        moves.append(node.op is INPUT and node.kind == "real")
        if node.kind == "real" and any(moves[a] for a in node.operands()):
            claim, moves[-1] = _claim(graph, node, moves, work)
            claims.append(claim)
    return AdjointProof(tuple(claims))
