"""Estimate how large the rounding errors of correct executions usually are: a standard deviation per cell, no proof.

A radius holds for every order of summation, so of long sums it is far wider than what anybody sees. Here roundings are
taken as independent, evenly spread over one unit u in the last place, and carried through the graph to first order:

    variance of y = op(x, ...)  =  sum of (dy/dx)^2 * variance of x  +  what op rounds itself

    a sum of K products     u^2/3 * (K*q/2 + K*y^2/3 + y^2)      q: the sum of the squares of its terms
    one rounding            u^2/3 * y^2
    a function of one cell  (2u)^2/3 * y^2
    a step of height 1      exp(-(d/deviation)^2/2) / 2          d: how far its argument is from the step;
                                                                 of a quantised value 1/64 more

K*q/2: partial sums walk at random; K*y^2/3: they drift to y. A sum of products may begin with what is added to it, c:
then all its roundings have the size of c, and K*c^2 is added. Terms may come in runs of equal ones (padding, numbers of
a coarse grid), which all round alike: if most cells of every factor stand there twice, K*u/8 times the absolute sum is
added. A subnormal number may be flushed to 0. What two values share is not followed: they count as independent.
docs/guide/usual.md says where this was measured, and how it held.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..deadline import check_time
from ..errors import UnsupportedError, need
from ..graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg, order_of_use
from ..graph.ir.node import bind_inputs
from ..op import REGISTRY, apply, shape_of
from ..scalar import Array
from ..window.footprint import same_cell
from .arithmetic import FORMATS, Format

NEARLY_EQUAL, MANY_EQUAL = 0.99, 8  # y^2 over K*q from which terms round alike, if there are as many
MAX_PLAIN_TERMS = 4096  # of a sum that is no kernel: terms of one sign drift further than the formula says
MOVES, MOVED_DEVIATIONS = 8, 6.0  # how often values are moved, and how far, to see whether positions change
MIN_FLIPS = 1 / 64  # of quantised cells: integer kernels round scales and biases in ways of their own
POSITIONED = ("resize", "resize_spread")  # their positions are computed and rounded too, and so are coefficients
SHARED = ("cumsum",)  # its cells share their terms, and so their errors
UNESTIMATED = ("cumprod",)
FUNCTION_UNITS = 2.0  # a function of one cell is off by up to a unit in the last place: 2u


@dataclass(frozen=True, eq=False)
class UsualError:
    """The estimated standard deviation of every cell of the outputs.

    values      per output, in float64
    deviations  per output; inf: of that cell nothing is estimated, since a step or an overflow stands in the way
    unsure      per output, cells of sums whose terms are nearly equal, so that their roundings have one sign and add
                up, or whose positions are computed and rounded too (resize), or that share their terms (cumsum)
    alike       per output, whether terms come in runs of equal ones, so that errors of all cells may have one sign
    """

    values: list[Array]
    deviations: list[Array]
    unsure: list[Array]
    alike: list[bool]


def usual_error(
    graph: Graph,
    inputs: Sequence[Any],
    backend: str = "numpy",
    formats: Mapping[str, str] | None = None,
    dtype: str = "float32",
) -> UsualError:
    """Return the estimated deviation of every output cell of an execution in `dtype`.

    UnsupportedError where an operator has no derivative, or steps of a kind that is not known here.

    inputs    one array per input, in order
    backend   what computes, in float64: "numpy" or "torch" (for real sizes)
    formats   name of a node -> the format it is computed in, where that is not `dtype`

    >>> import specgrad as sg
    >>> mean = sg.trace(lambda x: sg.sum(x) / 3, (3,))
    >>> mean_error = usual_error(mean, [np.array([1.0, 2.0, 4.0])])
    >>> bool(1e-8 < mean_error.deviations[0] < 5e-7)
    True
    """
    check_time("usual errors")  # before PyTorch is imported
    graph = graph.fitted(tuple(inputs))
    walk = _Walk(graph, _lifter(backend), formats or {}, dtype)
    given = bind_inputs(graph, tuple(inputs))
    with np.errstate(all="ignore"):
        for i in order_of_use(graph):
            check_time("usual errors")
            walk.step(i, given)
    outputs = [walk.estimates[p] for p in graph.output_positions]
    return UsualError(
        [_as_numpy(e.value) for e in outputs],
        [_deviation(e) for e in outputs],
        [np.broadcast_to(_as_numpy(e.unsure), shape_of(e.value)) for e in outputs],
        [e.alike for e in outputs],
    )


@dataclass(frozen=True, eq=False)
class _Estimate:
    """Estimate of a node's rounding error, cell by cell.

    value      of the node
    variance   of its error; None: exact
    unsure     mask of cells of which nothing is said
    alike      whether terms are alike
    count      how many terms the sum of products has that this is, scaled or moved; 0: it is none
    """

    value: Any
    variance: Any = None
    unsure: Any = False
    alike: bool = False
    count: int = 0


def _as_numpy(x: Any) -> Array:
    """Return a tensor or array as an array."""
    return np.asarray(x)


def _deviation(e: _Estimate) -> Array:
    """Return the standard deviation of every cell of the estimate e; inf where it is not known."""
    if e.variance is None:
        return np.zeros(shape_of(e.value))
    deviation = np.sqrt(_as_numpy(e.variance))
    return np.where(np.isfinite(deviation), deviation, np.inf)


def _lifter(backend: str) -> Any:
    """Return the function that converts an array to the own one of `backend`, "numpy" or "torch", in float64.

    Integers stay. MissingPackageError without PyTorch, if that is asked for.
    """
    if backend == "numpy":
        return lambda a: a if a.dtype.kind in "iub" else np.asarray(a, np.float64)
    need("torch", 'backend="torch" needs')
    import torch

    def lift(a: Array) -> Any:
        """Return a tensor of the array."""
        wide = a if a.dtype.kind in "iub" else a.astype(np.float64)
        return torch.from_numpy(np.require(wide, requirements=("C", "W")))

    return lift


class _Walk:
    """Values and variances of all nodes of one graph, in order; what is not read again is released.

    lift      converts an array to the backend's
    formats   of nodes that a runtime computes in others
    dtype     the format of all others
    """

    def __init__(self, graph: Graph, lift: Any, formats: Mapping[str, str], dtype: str) -> None:
        self.graph, self.lift, self.formats, self.dtype = graph, lift, formats, dtype
        self.estimates: dict[int, _Estimate] = {}
        self.last_use = {a: i for i, node in enumerate(graph.nodes) for a in node.operands()}

    def step(self, i: int, given: Mapping[int, Any]) -> None:
        """Estimate node i from earlier ones; `given` are the graph's inputs by position.

        UnsupportedError where rounding may decide which cells are read.
        """
        node = self.graph.nodes[i]
        if node.op in (INPUT, CONSTANT):
            value = given[i] if node.op is INPUT else self.graph.constants[i]
            kind = np.int64 if node.kind == "index" else np.float64
            value = self.lift(np.asarray(value).astype(kind))
            self.estimates[i] = _Estimate(value, None if node.kind == "index" else _flush_variance(value))
            return
        args = [_Estimate(a.value) if isinstance(a, NumberArg) else self.estimates[a] for a in node.args]
        values = [e.value for e in args]
        value = apply(node.op, *values, **node.params)
        if node.kind == "index":
            if i in self.last_use:  # somebody reads what stands there
                self._check_positions(node, value, args)
            self.estimates[i] = _Estimate(value)
        else:
            carried = self._carried_variance(node, value, args)
            own, unsure, alike = self._own_variance(node, value, values)
            own = _add_variances(
                own, _variance_of_start(node, value, args, self._format_of(node)), self._overflow_mask(node, value)
            )
            unsure = unsure | _carried_unsure(args, node, value)
            alike = alike or any(e.alike for e in args)
            variance = self._without_infinities(node, value, args, carried, _add_variances(carried, own))
            self.estimates[i] = _Estimate(value, variance, unsure, alike, _count_terms(node, args))
        outputs = self.graph.output_positions
        for a in set(node.operands()):
            if self.last_use[a] == i and a not in outputs:
                del self.estimates[a]

    def _carried_variance(self, node: Node, y: Any, args: Sequence[_Estimate]) -> Any:
        """Return the variance of y that comes from those of its arguments; None if these are exact.

        UnsupportedError for an operator of which no usual error is known.
        """
        if node.op.name in UNESTIMATED:
            raise UnsupportedError(node.op.name, "is a product of many factors, of which no usual error is known")
        if all(e.variance is None for e in args):
            return None
        values = [e.value for e in args]
        if node.op.jumps:
            return _variance_over_steps(node, args)
        if node.op.footprint is same_cell:
            return _add_variances(*(self._slope(node, y, values, k) ** 2 * e.variance for k, e in _with_variance(args)))
        if node.op.kernel:  # linear in each factor: its tangent on squares has squares for coefficients
            squares = [v**2 for v in values]
            return node.op.tangent(y**2, squares, [e.variance for e in args], node.params)
        tangent = node.op.tangent(y, values, [e.variance for e in args], node.params)
        return None if tangent is None else abs(tangent) / _divisor_of(node)  # coefficients of 0, 1 and -1, or averages

    def _without_infinities(self, node: Node, y: Any, args: Sequence[_Estimate], carried: Any, variance: Any) -> Any:
        """Return the variance of y, 0 in cells where it is an infinity that was given, as masks add and layout moves
        it: every execution has the same one there.

        carried   what of it comes from the arguments `args` of the node
        """
        if variance is None or not np.isinf(_as_numpy(y)).any():
            return variance
        if node.op.name in ("add", "sub"):
            given = [np.isinf(_as_numpy(e.value)) & (_deviation(e) == 0) for e in args]
            exact = np.logical_or.reduce(np.broadcast_arrays(*given))
        elif node.op.exact:
            exact = np.asarray(carried is None or _as_numpy(carried) == 0)
        else:
            return variance
        known = np.isinf(_as_numpy(y)) & exact
        return self.lift(np.where(known, 0.0, np.broadcast_to(_as_numpy(variance), shape_of(y))))

    def _slope(self, node: Node, y: Any, values: Sequence[Any], k: int) -> Any:
        """Return dy/dx_k, per cell, of a cellwise operator at the `values` of its arguments, y being its value; 0.0 for
        none.
        """
        tangents: list[Any] = [None] * len(values)
        tangents[k] = _ones_like(values[k])
        slope = node.op.tangent(y, values, tangents, node.params)
        return 0.0 if slope is None else slope

    def _own_variance(self, node: Node, y: Any, values: Sequence[Any]) -> tuple[Any, Any, bool]:
        """Return what the node's own roundings add: a variance per cell (None: no rounding); a mask of cells of which
        nothing is known (False: none); and whether the errors of all cells may have one sign.

        `y` is the node's value, `values` are those of its arguments, in order.
        """
        op, form = node.op, self._format_of(node)
        if form is None or op.exact or op.jumps:
            return None, False, False
        if op.footprint is same_cell or op.roundings is None:
            units = FUNCTION_UNITS if op.roundings is None else 1.0
            return (units * form.u) ** 2 / 3 * y**2 + max(form.smallest, FORMATS["float32"].tiny) ** 2, False, False
        return self._own_variance_of_sum(node, y, values, form)

    def _own_variance_of_sum(self, node: Node, y: Any, values: Sequence[Any], form: Format) -> tuple[Any, Any, bool]:
        """Return the variance of a sum's own roundings in the format `form` at these values, the cells of which nothing
        is said, and whether it has runs.
        """
        op = node.op
        assert op.roundings is not None
        count = op.roundings(*map(shape_of, values), **node.params)
        q = apply(op, *(v**2 if i not in op.index_args else v for i, v in enumerate(values)), **node.params)
        q = q / _divisor_of(node)
        wide = FORMATS["float32"] if form.digits < FORMATS["float32"].digits else form  # halves are summed in float32
        variance = wide.u**2 * sum_variance(count, q, y) + (form.u**2 - wide.u**2) / 3 * y**2
        alike = all(map(_has_runs, values if op.kernel else values[:1]))
        if alike or op.name in POSITIONED:
            size = apply(op, *(v if i in op.index_args else abs(v) for i, v in enumerate(values)), **node.params)
            if op.name in POSITIONED:  # a position is off by about u times the number of cells
                variance = variance + (2 * wide.u * sum(shape_of(values[0])) * size) ** 2
            variance = variance + alike * (count * wide.u / 8 * size) ** 2
        unsure = (y**2 > NEARLY_EQUAL * count * q) & (y != 0) if count >= MANY_EQUAL else False
        if op.name in (*POSITIONED, *SHARED) or (count > MAX_PLAIN_TERMS and not op.kernel):
            unsure = y == y
        largest = sum(float(abs(v).max()) for v in values if np.prod(shape_of(v)) and not _is_index(v))
        flushed = (count * FORMATS["float32"].tiny * (1 + largest)) ** 2
        return variance + flushed + unsure * (count * wide.u * y / 4) ** 2, unsure, alike

    def _check_positions(self, node: Node, positions: Any, args: Sequence[_Estimate]) -> None:
        """Raise UnsupportedError if usual errors may change positions: what is read there has no usual error then."""
        rng = np.random.default_rng(0)
        for _ in range(MOVES if any(e.variance is not None for e in args) else 0):
            moved = [e.value if e.variance is None else self._randomly_moved(e, rng) for e in args]
            if bool((_as_numpy(apply(node.op, *moved, **node.params)) != _as_numpy(positions)).any()):
                raise UnsupportedError(node.op.name, "rounding may decide which cells are read behind it")

    def _randomly_moved(self, e: _Estimate, rng: np.random.Generator) -> Any:
        """Return the value of the estimate e with every cell moved by MOVED_DEVIATIONS of its deviations, up or down at
        random.
        """
        apart = MOVED_DEVIATIONS * _deviation(e) * rng.choice((-1.0, 1.0), size=shape_of(e.value))
        return e.value + self.lift(np.where(np.isfinite(apart), apart, 0.0))

    def _overflow_mask(self, node: Node, y: Any) -> Any:
        """Return inf in cells of y that the node's format does not hold, 0 in others; None where it holds all of
        them.
        """
        form = self._format_of(node)
        over = 0.0 if form is None else (abs(y) > form.largest) * 1.0
        return over / (1 - over) if form is not None and bool(_as_numpy(over).any()) else None

    def _format_of(self, node: Node) -> Format | None:
        """Return the format that a node is computed in; None: in integers, exactly."""
        return FORMATS.get(self.formats.get(node.name, self.dtype))


def sum_variance(count: int, squares: Any, y: Any) -> Any:
    """Return the estimated variance of a sum y of `count` terms, in units u^2; `squares` is the sum of their squares.

    >>> sum_variance(6, 1.0, 3.0)  # (6/2 + 6*9/3 + 9) / 3
    10.0
    """
    return (count * squares / 2 + count * y**2 / 3 + y**2) / 3


def _variance_over_steps(node: Node, args: Sequence[_Estimate]) -> Any:
    """Return the variance, per cell, behind a step of height 1 of `node`; 0 where its argument is far from the step.

    UnsupportedError for a step of another kind.
    """
    x, deviation = args[0].value, sum(e.variance for _, e in _with_variance(args)) ** 0.5
    name = node.op.name
    if name == "quantize":
        x, deviation = x / args[1].value, deviation / abs(args[1].value)
    if name in ("quantize", "round"):
        distance = 0.5 - abs(x - apply(REGISTRY["round"], x))
    elif name in ("floor", "ceil"):
        distance = abs(x - apply(REGISTRY["round"], x))
    elif name in ("greater", "greater_equal", "less", "equal"):
        distance = abs(x - args[1].value)
    elif name == "sign":
        distance = abs(x)
    else:
        raise UnsupportedError(name, "has steps, behind which no usual error is known")
    tail = (distance / (deviation + FORMATS["float32"].tiny)) ** 2 / 2
    return math.e ** (-tail) / 2 + (MIN_FLIPS if name == "quantize" else 0.0)


def _has_runs(x: Any) -> bool:
    """Return whether most cells that are not 0 hold a number that another cell holds too."""
    cells = _as_numpy(x).reshape(-1)
    cells = np.sort(cells[cells != 0])
    return bool(cells.size > 1 and np.count_nonzero(np.diff(cells)) + 1 < cells.size / 2)


def _ones_like(x: Any) -> Any:
    """Return ones in the shape and type of x."""
    return x.new_ones(x.shape) if hasattr(x, "new_ones") else np.ones(shape_of(x))


def _is_index(x: Any) -> bool:
    """Return whether x holds integers, by its dtype."""
    return "int" in str(getattr(x, "dtype", ""))


def _with_variance(args: Sequence[_Estimate]) -> Any:
    """Yield (position, estimate) of the arguments that are not exact."""
    return ((k, e) for k, e in enumerate(args) if e.variance is not None)


def _carried_unsure(args: Sequence[_Estimate], node: Node, y: Any) -> Any:
    """Return the mask of cells of y that come from unsure cells of arguments: in place, as layout moves them, or else
    all.
    """
    unsure: Any = False
    for e in args:
        if e.unsure is False or not bool(_as_numpy(e.unsure).any()):
            continue
        if node.op.footprint is same_cell:
            unsure = unsure | e.unsure
        elif node.op.kind == "same" and len(args) == 1:
            marks = e.value * 0 + 1.0 * e.unsure
            unsure = unsure | (apply(node.op, marks, **node.params) != 0)
        else:
            return y == y
    return unsure


def _count_terms(node: Node, args: Sequence[_Estimate]) -> int:
    """Return the number of terms of the sum of products that a node is, or scales, moves or adds to; 0 if there is
    none.
    """
    op = node.op
    if op.kernel and op.roundings is not None:
        return int(op.roundings(*(shape_of(e.value) for e in args), **node.params))
    counts = [e.count for e in args if e.count]
    scaled = op.name in ("mul", "div") and sum(e.variance is not None for e in args) == 1
    return counts[0] if len(counts) == 1 and (scaled or op.name in ("add", "sub", "neg") or op.kind == "same") else 0


def _variance_of_start(node: Node, y: Any, args: Sequence[_Estimate], form: Format | None) -> Any:
    """Return the variance that a sum of products gains if it begins with what node adds to it; None where nothing is
    added.

    `form` is the format that the node is computed in; None: exactly.
    """
    if node.op.name not in ("add", "sub") or form is None:
        return None
    wide = FORMATS["float32"] if form.digits < FORMATS["float32"].digits else form
    counts = [e.count for e in args]
    return _add_variances(*(wide.u**2 / 3 * n * e.value**2 for n, e in zip(reversed(counts), args, strict=True) if n))


def _flush_variance(x: Any) -> Any:
    """Return the variance of numbers x that may be flushed to 0 where they are read, the subnormal ones; None if there
    are none.
    """
    small = (abs(x) < FORMATS["float32"].tiny) & (x != 0)
    return small * x**2 if bool(_as_numpy(small).any()) else None


def _divisor_of(node: Node) -> float:
    """Return what an average divides by: its coefficients are 1 over that, their squares once more."""
    divisor = node.params.get("divisor", 1)
    return float(node.params["window"].taps_count if isinstance(divisor, str) else abs(divisor))


def _add_variances(*terms: Any) -> Any:
    """Return the sum of variances `terms`; None, which is zero, in and out."""
    present = [t for t in terms if t is not None]
    return sum(present[1:], start=present[0]) if present else None
