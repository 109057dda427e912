"""The operator record, the registry, and dispatch on the type of the arguments.

An operator is one record: shape rule, specification, derivative rules, declared traits, and a generator of cases.
Registering a record gives tracing, printing, serialization, jvp, vjp and the law tests for it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, wraps
from random import Random
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import numpy as np

from . import scalar
from .call_cache import CALLERS, ENTER, Caller, cached_call, record_call
from .curve import Curve
from .errors import ParameterError, ShapeError, UnsupportedError
from .facts import DeclaredErrors, Names, SheetText
from .late_tables import fill
from .scalar import Array, Number
from .window import OPEN_SIZES, Shape
from .window.footprint import BoxRule, unsplit
from .window.receptive_field import ReceptiveField

Params = dict[str, Any]
Value = Any  # a graph variable, a NumPy array, an engine's tensor, or a Python number
Case = tuple[tuple[Any, ...], Params]  # arguments (arrays of exact numbers) and parameters


@dataclass(frozen=True, eq=False)
class Op:
    """Record of one operator: shape rule, specification, derivative rules, declared traits and random cases.

    Both derivative rules are written with operators, so they run on graphs and on arrays alike.

    Parameters
    ----------
    name : str
        Name under which it is registered and saved.
    shape : callable
        `shape(*shapes, **params)` gives the output shape, or raises a ShapeError that names the rule.
    spec : callable
        `spec(*arrays, **params)` is the meaning, over any scalar.
    cases : callable
        `cases(rng)` gives one random valid case, for the laws; arguments are exact numbers.
    jvp : callable, optional
        `jvp(y, args, dargs, **params)` gives the tangent of the output; a tangent that is None is zero. Not needed if
        the operator is linear in its only argument.
    vjp : callable, optional
        `vjp(gy, y, args, **params)` gives one cotangent per argument; None where there is none.
    linear : tuple of tuple of int, or "all", default ()
        Groups of arguments in which the operator is jointly linear, the others held fixed.
    monotone : tuple of int, optional
        Arguments in which every output never decreases.
    exact : bool, default False
        No rounding in floating point: the result is one of the inputs, or a sign or a zero.
    roundings : callable, optional
        (*shapes, **params) -> N with abs(error) <= gamma_N * magnitude.
    magnitude : callable, optional
        The operator on absolute values, for `roundings`; the specification itself unless said otherwise.
    outside : callable, optional
        (*absolute values, **params) -> per output cell the sum of the factors that may meet a zero which is no cell:
        padding, and what is stuffed between cells. None: nothing does.
    kernel : bool, default False
        Sums of products by a kernel of its own, computed once however many read them: convolutions, matrix products.
    transcendental : bool, default False
        Needs exp, log or the like: no exact rational values.
    curve : Curve, optional
        Where a function of one cell turns and bends.
    errors : DeclaredErrors, optional
        What runtimes are off by, for a function of one cell that no standard rounds correctly.
    sheet : SheetText, optional
        What its page of error bounds says, if it is one of ONNX's functions.
    names : Names, optional
        Its names in other libraries.
    largest : bool, default False
        The largest or smallest of several cells, or smoothly so: no steeper than 1 in the largest change of a cell.
    jumps : bool, default False
        Has steps, which a derivative does not see: a comparison, a sign, a floor, a remainder, a winner's position.
    commutative : bool, default False
        It has two arguments, which may be exchanged.
    divides : bool, default False
        It divides; a runtime may multiply by the reciprocal, which may be a constant of the format.
    readers : callable, optional
        (*shapes, **params) -> the most output cells that read one cell of an argument; None: any number of them.
    reads : {"window", "transpose", "tap"}, default "window"
        Along its window, if it has one: a cell reads its taps, or the outputs whose taps read it, or is a tap itself.
    idle : callable, optional
        (x, **params) -> whether it changes nothing at this shape, so that its call records nothing.
    index_args : tuple of int, optional
        Arguments that are integer positions, not numbers.
    picks : bool, default False
        A sum over the cells of its one index argument, each adding what it alone decides: take, put.
    kind : {"real", "index", "same"}, default "real"
        What the output is; "same" follows the first argument.
    multiply_adds : callable, optional
        (*shapes, **params) -> multiply-adds.
    receptive_field : callable, optional
        (*shapes, **params) -> per trailing output axis, what it reads of the data (None: everything).
    footprint : callable, optional
        (*shapes, **params) -> which boxes of the arguments a box of the result needs, and the parameters there; None:
        an operator without parts.

    Examples
    --------
    >>> from specgrad import REGISTRY
    >>> mul = REGISTRY["mul"]
    >>> mul.shape((2, 3), (2, 3)), mul.linear, mul.commutative
    ((2, 3), ((0,), (1,)), True)
    """

    name: str
    shape: Callable[..., Shape]
    spec: Callable[..., Array]
    cases: Callable[[Random], Case]
    jvp: Callable[..., Value | None] | None = None
    vjp: Callable[..., tuple[Value | None, ...]] | None = None

    # Traits. They are promises; the laws test them.
    linear: tuple[tuple[int, ...], ...] | Literal["all"] = ()
    monotone: tuple[int, ...] = ()
    exact: bool = False
    roundings: Callable[..., int] | None = None
    magnitude: Callable[..., Array] | None = None
    outside: Callable[..., Array] | None = None
    kernel: bool = False
    transcendental: bool = False
    curve: Curve | None = None
    errors: DeclaredErrors | None = None
    sheet: SheetText | None = None
    names: Names = field(default_factory=Names)
    largest: bool = False
    jumps: bool = False
    commutative: bool = False
    divides: bool = False
    readers: Callable[..., int] | None = None
    reads: Literal["window", "transpose", "tap"] = "window"
    idle: Callable[..., bool] | None = None
    index_args: tuple[int, ...] = ()
    picks: bool = False
    kind: Literal["real", "index", "same"] = "real"
    multiply_adds: Callable[..., int] = field(default=lambda *_, **__: 0)
    receptive_field: Callable[..., tuple[ReceptiveField | None, ...]] = field(default=lambda *_, **__: ())
    footprint: Callable[..., BoxRule] | None = None

    @cached_property
    def param_names(self) -> frozenset[str]:
        """Return the names of the operator's parameters: the keyword-only arguments of its shape rule."""
        parameters = inspect.signature(self.shape).parameters.values()
        return frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    def check_params(self, params: Params) -> None:
        """Raise ParameterError unless exactly the declared parameters are given ([P5])."""
        for name in sorted(params.keys() ^ self.param_names):
            problem = "is unknown" if name in params else "is missing"
            raise ParameterError(self.name, f"attribute {name} {problem}", rule="P5")

    def linear_groups(self, count: int) -> tuple[tuple[int, ...], ...]:
        """Return the linear groups for a call with `count` arguments (trailing ones may be left out)."""
        groups = (tuple(range(count)),) if self.linear == "all" else self.linear
        kept = (tuple(i for i in g if i < count) for g in groups)
        return tuple(g for g in kept if g)

    def boxes(self, shapes: Sequence[Shape], params: Params) -> BoxRule:
        """Return the rule from boxes of the result to the boxes of the arguments, and the parameters on them.

        `shapes` are the arguments'.

        >>> from specgrad import REGISTRY
        >>> cut = REGISTRY["slice"].boxes([(9,)], {"ranges": ((1, 9, 2),)}).on(((1, 3),))
        >>> cut.args, cut.params
        ((((3, 6),),), {'ranges': ((0, 3, 2),)})
        """
        return (
            unsplit(self.shape(*shapes, **params), shapes, params)
            if self.footprint is None
            else self.footprint(*shapes, **params)
        )

    def rules(self) -> dict[str, bool]:
        """Return which derivative rules this operator has; `specgrad.rule_graphs` shows them.

        >>> from specgrad import REGISTRY
        >>> REGISTRY["max_pool"].rules()
        {'jvp': True, 'vjp': True}
        """
        return {"jvp": self.jvp is not None or self.linear == "all", "vjp": self.vjp is not None}

    def tangent(self, y: Value, args: Sequence[Value], dargs: Sequence[Value | None], params: Params) -> Value | None:
        """Return the tangent of y = op(*args) for tangents `dargs` of the arguments; None stands for zero, in and out.

        On arrays it computes, on graph variables it records: jvp is this rule, node after node. UnsupportedError
        without a rule.

        >>> from specgrad import REGISTRY
        >>> a, b, da = np.array([2.0]), np.array([5.0]), np.array([1.0])
        >>> REGISTRY["mul"].tangent(a * b, (a, b), (da, None), {})
        array([5.])
        """
        if all(d is None for d in dargs):
            return None
        if self.jvp is not None:
            return self.jvp(y, args, dargs, **params)
        if self.linear == "all" and len(args) == 1:
            return apply(self, *dargs, **params)  # linear: the same map on the tangent
        raise UnsupportedError(self.name, "has no jvp rule")

    def cotangents(self, gy: Value, y: Value, args: Sequence[Value], params: Params) -> tuple[Value | None, ...]:
        """Return one cotangent per argument for the cotangent gy of the output y; None where there is none.

        UnsupportedError without a rule.

        >>> from specgrad import REGISTRY
        >>> a, b, gy = np.array([2.0]), np.array([5.0]), np.array([1.0])
        >>> REGISTRY["mul"].cotangents(gy, a * b, (a, b), {})
        (array([5.]), array([2.]))
        """
        if self.vjp is None:
            raise UnsupportedError(self.name, "has no vjp rule")
        return self.vjp(gy, y, args, **params)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def __copy__(self) -> Op:
        return self

    def __deepcopy__(self, _: Any) -> Op:
        return self  # a record is never changed, and graphs know operators by identity

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: an operator is code, and the reader must have it. UnsupportedError if it is unregistered."""
        if (OUTSIDE | _registered).get(self.name) is not self:
            raise UnsupportedError(self.name, "is not registered, so it cannot be pickled; register it first")
        return operator_named, (self.name,)


# --- names of layers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Scope:
    """A name around some calls; a composite is one layer made of several operators, shown as one row."""

    name: str
    composite: bool = False


SCOPES: ContextVar[tuple[Scope, ...]] = ContextVar("specgrad_scopes", default=())


@contextmanager
def scope(name: str, *, composite: bool = False) -> Iterator[None]:
    """Name the layers built inside: `with scope("layer1"): ...` gives layer1.conv, layer1.relu. Scopes nest.

    Parameters
    ----------
    name : str
        Put before the names of layers, with a dot.
    composite : bool, default False
        Make one layer of what is inside.

    Returns
    -------
    context manager
        Within it the name holds.

    Examples
    --------
    >>> import specgrad as sg
    >>> def net(x):
    ...     with sg.scope("layer1"):
    ...         return sg.relu(x)
    >>> sg.trace(net, (2,)).nodes[-1].name
    'layer1.relu'
    """
    token = SCOPES.set((*SCOPES.get(), Scope(name, composite)))
    try:
        yield
    finally:
        SCOPES.reset(token)


P = ParamSpec("P")


COMPOSITIONS: set[str] = set()
"""Names of all compositions, filled by `composite`: a layer is shown by such a name."""


def composite(fn: Callable[P, Value]) -> Callable[P, Value]:
    """Return fn, a composition, such that its nodes form one layer with its name while tracing.

    An engine may have a function of its own for one of ours.

    Parameters
    ----------
    fn : callable
        A function of values that is made of operators.

    Returns
    -------
    callable
        Called as fn is.

    Examples
    --------
    >>> import specgrad as sg
    >>> @sg.composite
    ... def swish2(x):
    ...     return x * sg.sigmoid(2 * x)
    >>> sorted({node.group for node in sg.trace(swish2, (3,)).nodes})
    ['swish2', 'x']
    """

    name = fn.__name__
    COMPOSITIONS.add(name)
    ours = fn.__module__.startswith(f"{__package__}.")  # engines know our compositions by name, and no others

    @wraps(fn)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Value:
        values: tuple[Any, ...] = (*args, *kwargs.values()) if kwargs else args
        for a in values:
            handler = _handlers[type(a)] if type(a) in _handlers else _find_handler(type(a))
            if handler is None:
                continue
            if type(a) in _composites and _recorder(values) is None:
                line = _composites[type(a)].get(name) if ours else None
                native = None if line is None else line(*args, **kwargs)  # one operator of the engine for the whole
                return fn(*args, **kwargs) if native is None else record_call(native, *args, **kwargs)
            with scope(name, composite=True):
                return fn(*args, **kwargs)
        return fn(*args, **kwargs)

    return cached_call(wrapped)


# --- the registry -----------------------------------------------------------------------------------------------

_registered: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Make an operator known by name: to serialization, to the engines, and to the laws.

    Parameters
    ----------
    op : Op
        The operator.

    Returns
    -------
    Op
        The same.

    Raises
    ------
    ValueError
        If the name is taken.

    Examples
    --------
    >>> from specgrad import REGISTRY
    >>> register(REGISTRY["mul"])
    Traceback (most recent call last):
    ValueError: operator mul is registered twice
    """
    if op.name in _registered:
        raise ValueError(f"operator {op.name} is registered twice")
    _registered[op.name] = op
    return op


if TYPE_CHECKING:
    REGISTRY: dict[str, Op]
else:

    def __getattr__(name: str) -> Any:
        """`REGISTRY`, which nobody sees before all families of operators are in it."""
        if name != "REGISTRY":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        fill("operators")
        return _registered


OUTSIDE: dict[str, Op] = {}
"""Records of nodes that are given, not computed: a graph's inputs and constants."""


def operator_named(name: str) -> Op:
    """Return the operator of that name; raise UnsupportedError if none is registered."""
    fill("operators")
    op = OUTSIDE.get(name) or _registered.get(name)
    if op is None:
        raise UnsupportedError(name, "is no operator here; import the module that registers it")
    return op


def is_literal(x: Any) -> bool:
    """Return whether x is a Python number or a symbolic size: it takes the scalar type of arrays it meets.

    NumPy's numbers and truth values are none.
    """
    return type(x) in OPEN_SIZES if not isinstance(x, Number) else not isinstance(x, np.generic | bool)


def number_of(x: Any) -> Any:
    """Return a number given as NumPy's as Python's: 0.5 for np.float32(0.5); other values unchanged."""
    return x.item() if isinstance(x, np.generic) else x


def shape_of(x: Any) -> Shape:
    """Return the shape of any value as a tuple; () for a number."""
    shape: Shape | None = getattr(x, "shape", None)
    return np.shape(x) if shape is None else shape if isinstance(shape, tuple) else tuple(shape)


# --- dispatch ---------------------------------------------------------------------------------------------------

Handler = Callable[[Op, Sequence[Value], Params], Value]
Engine = tuple[Handler, dict[str, Callable[..., Value]], Caller | None]
"""One operator; compositions that the engine has in one piece; who remembers public calls."""
FINDERS: list[Callable[[type], Engine | None]] = []
"""Who may know a type of tensor; engines enter themselves here."""
_handlers: dict[type, Handler | None] = {np.ndarray: None, int: None, float: None, list: None, Fraction: None}
_composites: dict[type, dict[str, Callable[..., Value]]] = {}


def _find_handler(kind: type) -> Handler | None:
    """Return what computes with values of the type `kind`, and keep it in `_handlers`: a trace, an engine, or None for
    the specification.
    """
    handler: Handler | None = getattr(kind, "__specgrad_apply__", None)
    if handler is None:
        fill("engines")
        for engine in filter(None, (find(kind) for find in FINDERS)):
            handler, _composites[kind], caller = engine
            if caller is not None:
                CALLERS[kind] = caller
            break
    _handlers[kind] = handler
    return handler


def _enter(kind: type) -> None:
    """Find the engine or trace that computes with arrays of the type `kind` and keep it in `_handlers` for the next
    call.

    Nothing happens if the type is known there, or is none of arrays: it needs `dtype` and `shape` (torch.Size has
    none).
    """
    if kind not in _handlers and hasattr(kind, "dtype") and hasattr(kind, "shape"):
        _find_handler(kind)


ENTER.append(_enter)


def apply(op: Op, *args: Value, **params: Any) -> Value:
    """Run or record one operator; the types of the arguments decide.

    Graph variables record a node; tensors of an engine run that engine's kernel; NumPy arrays, lists and numbers run
    the specification.

    Parameters
    ----------
    op : Op
        The operator, such as REGISTRY["mul"].
    *args : array_like
        Its arguments; their types decide what happens.
    **params : any
        Its parameters, by name.

    Returns
    -------
    array or Var
        The result, of the kind of the arguments.

    Raises
    ------
    ShapeError
        For shapes that the operator's rule refuses.
    ScalarError
        If floats and exact numbers are mixed.

    Examples
    --------
    >>> from specgrad import REGISTRY
    >>> apply(REGISTRY["mul"], np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([3., 8.])
    """
    for a in args:
        kind = type(a)
        handler = _handlers[kind] if kind in _handlers else _find_handler(kind)
        if handler is not None:
            return (_recorder(args) or handler)(op, args, params) if kind in _composites else handler(op, args, params)
    return run_spec(op, args, params)


def by_engine(name: str, x: Value, *other: Value, **settings: Any) -> Value | None:
    """Return the result of an engine's native function `name` of x and `other`; None if it has none for these
    arguments.

    Arguments are one tensor, two, or one and a plain number. The engine's selector looks at shapes, types and settings,
    and gives the function to call, or None: the general way must run.
    """
    y = other[0] if other else x
    table = _composites.get(type(y if type(x) in PLAIN_NUMBERS else x))
    if table is None or name not in table:
        return None
    if not (type(y) is type(x) or _is_plain_number(x) or _is_plain_number(y) or _composites.get(type(y)) is table):
        return None
    native = table[name](x, *other, **settings)
    return None if native is None else record_call(native, x, *other, **settings)


PLAIN_NUMBERS = (float, int)


def _is_plain_number(x: Value) -> bool:
    """Return whether every engine takes x as it is: a float, or an int of 32 bits."""
    return type(x) is float or (type(x) is int and abs(x) < 2**31)


def _recorder(args: Sequence[Value]) -> Handler | None:
    """Return the recording function of a graph variable among the arguments; None if there is none.

    A variable among tensors records, wherever it stands: `tensor * x` is `x * tensor`.
    """
    for a in args:
        kind = type(a)
        if kind not in _composites and hasattr(kind, "__specgrad_apply__"):
            recorder: Handler = kind.__specgrad_apply__
            return recorder
    return None


def run_spec(op: Op, args: Sequence[Any], params: Params) -> Array:
    """Return the specification's result on NumPy arrays, after the shape rule has agreed.

    ShapeError if shapes do not fit, ScalarError if floats and exact numbers are mixed.
    """
    op.shape(*(shape_of(a) for a in args), **params)
    arrays: list[Any] = list(args)
    real = [i for i, a in enumerate(args) if i not in op.index_args and not is_literal(a)]
    if op.kind != "same" or not _is_index(args[0]):
        for i in real:
            arrays[i] = scalar.as_array(op.name, args[i])
        scalar.check_same_kind(op.name, [arrays[i] for i in real], [np.asarray(args[i]).dtype for i in real])
    for i in op.index_args:
        arrays[i] = as_index(op.name, args[i])
    like = arrays[real[0]] if real else np.zeros(())
    for i, a in enumerate(args):
        if is_literal(a):
            arrays[i] = np.asarray(scalar.literal(a, like), dtype=like.dtype)
    with np.errstate(all="ignore"):  # inf and NaN are values of the contract ([P1], [P2])
        if op.kernel and like.dtype == object and (y := _by_integers(op, arrays, params)) is not None:
            return y
        return np.asarray(op.spec(*arrays, **params))  # NumPy turns results of rank 0 into bare scalars


def _by_integers(op: Op, arrays: Sequence[Array], params: Params) -> Array | None:
    """Return the specification's result on rationals, computed over integers; None where these are not over one
    denominator each.

    Of a group of arguments in which the operator is jointly linear, s times these give s times the result. So each
    group is multiplied by a number that makes it whole, and the result, of integers alone, divided by all of them.
    """
    wholes = [scalar.over_one_denominator(a) for a in arrays]
    groups = op.linear_groups(len(arrays))
    if any(w is None for w in wholes) or {k for g in groups for k in g} != {*range(len(arrays))}:
        return None
    known = [w for w in wholes if w is not None]
    factors = [math.lcm(*(known[k][1] for k in g)) for g in groups]
    each = [math.prod(f for f, g in zip(factors, groups, strict=True) if k in g) for k in range(len(arrays))]
    scaled = [x if e == d else x * (e // d) for (x, d), e in zip(known, each, strict=True)]
    return scalar.fractions(np.asarray(op.spec(*scaled, **params)), math.prod(factors))


def _is_index(x: Any) -> bool:
    """Return whether x holds signed integers."""
    return np.asarray(x).dtype.kind == "i"


def as_index(operator: str, x: Any) -> Array:
    """Return x as int64; raise ShapeError if it does not hold integers."""
    a = np.asarray(x)
    if a.dtype.kind not in "iu":
        raise ShapeError(operator, f"indices must be integers; got dtype {a.dtype}")
    return a.astype(np.int64)
