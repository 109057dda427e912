"""Variable of a graph under construction: Python's and NumPy's operators on it record nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import index as whole_number
from typing import Any, Never, Protocol

import numpy as np

from ..errors import ParameterError, SpecgradError, UnsupportedError
from ..op import REGISTRY, Op, Params, Value, apply
from ..ops import activation, contract, elementwise, integer_rounding, layout, max_pool
from ..window import Shape
from .graph import Kind, Node


class NodeRecorder(Protocol):
    """Protocol of the builder that a variable belongs to."""

    @property
    def nodes(self) -> Sequence[Node]:
        """Nodes recorded so far, in order."""

    def record(self, op: Op, args: Sequence[Value], params: Params) -> Var:
        """Append a node, `op` of these arguments, and return its variable."""


def _no_value(what: str, write: str) -> Never:
    """Raise SpecgradError: a variable has no value yet, and what to write instead."""
    raise SpecgradError("trace", f"a graph variable has no value yet, so {what}; {write}")


class Var:
    """A value of a graph under construction: it has a shape and a kind, and no data.

    Arithmetic, comparisons (1 where one holds, else 0), indexing and many of NumPy's functions record nodes; what would
    need a value says what to write instead. Variables are hashed, and found in dicts, by identity; `in` would compare
    them, and is refused.

    Parameters
    ----------
    builder : GraphBuilder
        What records its node.
    id : int
        Number of its node in the builder.

    Examples
    --------
    >>> from specgrad import GraphBuilder
    >>> x = GraphBuilder().input("x", (2, 5))
    >>> x[0, ::-2] * 2 + 1
    Var(add: (3,))
    """

    __slots__ = ("builder", "id")

    def __init__(self, builder: NodeRecorder, id: int) -> None:
        self.builder = builder
        self.id = id

    @property
    def node(self) -> Node:
        """Return the node that the variable stands for."""
        return self.builder.nodes[self.id]

    @property
    def shape(self) -> Shape:
        """Return the shape of the value, symbolic sizes included."""
        return self.node.shape

    @property
    def ndim(self) -> int:
        """Return the number of axes of the value."""
        return len(self.shape)

    @property
    def kind(self) -> Kind:
        """Return "real" for numbers, "index" for integers that are positions."""
        return self.node.kind

    @property
    def name(self) -> str:
        """Return the unique name of the node."""
        return self.node.name

    def __repr__(self) -> str:
        return f"Var({self.name}: {self.shape})"

    @staticmethod
    def __specgrad_apply__(op: Op, args: Sequence[Value], params: Params) -> Var:
        builder: NodeRecorder = next(a.builder for a in args if isinstance(a, Var))
        return builder.record(op, args, params)

    # --- what needs a value ---------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        _no_value("Python cannot branch on it", "write specgrad.select(condition, a, b), maximum or relu")

    def __int__(self) -> int:
        _no_value("int() cannot read it", "keep it as it is, or compute the number outside the traced function")

    def __float__(self) -> float:
        _no_value("float() cannot read it", "keep it as it is, or compute the number outside the traced function")

    def __array__(self, *_: Any, **__: Any) -> Never:
        _no_value("it cannot become an array", "call specgrad's own functions on it (several variables: concat)")

    def __len__(self) -> int:
        _no_value("it has no len()", "write x.shape[0]")

    def __iter__(self) -> Never:
        _no_value("Python cannot iterate over it", "write x[0], x[1], ... up to x.shape[0]")

    def __contains__(self, _: object) -> bool:
        _no_value("`in` cannot look into it", "write specgrad.equal(x, value)")

    def __getattr__(self, name: str) -> Never:
        write = ATTRIBUTES.get(name, f"specgrad.{name}(x)" if name in REGISTRY else "")
        raise AttributeError(f"a graph variable has no attribute {name!r}" + (f"; write {write}" if write else ""))

    # --- what records nodes ---------------------------------------------------------------------------------------

    __add__ = elementwise.add
    __sub__ = elementwise.sub
    __mul__ = elementwise.mul
    __truediv__ = elementwise.div
    __neg__ = elementwise.neg
    __abs__ = elementwise.abs_
    __matmul__ = contract.matmul
    __mod__ = integer_rounding.mod
    __gt__ = elementwise.greater
    __ge__ = elementwise.greater_equal
    __hash__ = object.__hash__

    def __radd__(self, other: Value) -> Value:
        return elementwise.add(other, self)

    def __rsub__(self, other: Value) -> Value:
        return elementwise.sub(other, self)

    def __rmul__(self, other: Value) -> Value:
        return elementwise.mul(other, self)

    def __rtruediv__(self, other: Value) -> Value:
        return elementwise.div(other, self)

    def __rmod__(self, other: Value) -> Value:
        return integer_rounding.mod(other, self)

    def __rmatmul__(self, other: Value) -> Value:
        return contract.matmul(other, self)

    def __pow__(self, exponent: Any) -> Value:
        return elementwise.power(self, exponent)

    def __lt__(self, other: Value) -> Value:
        return elementwise.greater(other, self)

    def __le__(self, other: Value) -> Value:
        return elementwise.greater_equal(other, self)

    def __eq__(self, other: object) -> Any:
        return _equal(self, other)

    def __ne__(self, other: object) -> Any:
        return elementwise.sub(1, _equal(self, other))

    def __getitem__(self, index: Any) -> Value:
        return _index(self, index)

    def reshape(self, *shape: Any) -> Value:
        """Return the value in another shape, given as one tuple or as numbers; see specgrad.reshape."""
        return layout.reshape(self, shape[0] if len(shape) == 1 and hasattr(shape[0], "__iter__") else shape)

    def relu(self) -> Value:
        """Return max(x, 0), cell by cell; see specgrad.relu."""
        return activation.relu(self)

    def sum(self, axes: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Value:
        """Return the sum over axes (None: all), which stay with size 1 if keepdims."""
        return layout.sum_(self, axes, keepdims=keepdims)

    def mean(self, axes: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Value:
        """Return the mean over axes (None: all), which stay with size 1 if keepdims."""
        return elementwise.mean(self, axes, keepdims=keepdims)

    # --- NumPy's functions ------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Value:
        ours = UFUNCS.get(ufunc.__name__) or _operator_of_ufunc(ufunc.__name__)
        if method != "__call__":
            raise _unsupported_numpy(f"{ufunc.__name__}.{method}")
        if ours is None:
            raise _unsupported_numpy(ufunc.__name__)
        if kwargs:
            raise UnsupportedError("trace", f"numpy.{ufunc.__name__} takes no {', '.join(kwargs)} on a graph variable")
        return ours(*args)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ not in FUNCTIONS:
            raise _unsupported_numpy(function.__name__)
        try:
            return FUNCTIONS[function.__name__](*args, **kwargs)
        except TypeError as error:
            if isinstance(error, SpecgradError):
                raise
            text = f"numpy.{function.__name__} on a graph variable: {error}"
            raise ParameterError("trace", text.replace("<lambda>()", "it"), rule="P5") from None


def _operator_of_ufunc(ufunc: str) -> Callable[..., Value] | None:
    """Return the operator whose record names this ufunc of NumPy, as a function; None if there is none."""
    return next((partial(apply, op) for op in REGISTRY.values() if op.names.numpy == ufunc), None)


def _equal(x: Var, other: Any) -> Value:
    """Return the node x == other; raise SpecgradError for None, texts and bools."""
    if other is None or isinstance(other, str | bool | type | dict):
        text = f"a graph variable cannot be compared with {other!r}; write `is None`, or compare with numbers"
        raise SpecgradError("trace", text)
    return elementwise.equal(x, other)


def _index(x: Var, index: Any) -> Value:
    """Return x[index] for integers, slices, ... and None: by slice and reshape, or take for negative steps.

    ParameterError if there are more entries than axes.
    """
    entries = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, e in enumerate(entries) if e is Ellipsis]
    used = len(entries) - len(dots) - sum(e is None for e in entries)
    if len(dots) > 1 or used > x.ndim:
        raise ParameterError("index", f"{entries} does not fit {x.ndim} axes; got shape {x.shape}", rule="P5")
    at = dots[0] if dots else len(entries)
    entries[at : at + 1] = [slice(None)] * (x.ndim - used)
    sizes = iter(x.shape)
    ranges = [None if e is None else _as_slice(e, next(sizes)) for e in entries]
    if any(r is not None and r.step is not None and r.step < 0 for r in ranges):
        cells = np.arange(whole_number(math.prod(x.shape))).reshape(x.shape)[index]
        flat = layout.reshape(x, (math.prod(x.shape),))
        return layout.reshape(max_pool.take(flat, cells.reshape(-1), rank=1, empty=False), cells.shape)
    y = layout.slice_(x, *(r for r in ranges if r is not None))
    extents = iter(y.shape)
    axes = [(e, 1 if e is None else next(extents)) for e in entries]
    shape = tuple(n for e, n in axes if e is None or isinstance(e, slice))
    return y if shape == y.shape else layout.reshape(y, shape)


def _as_slice(entry: Any, size: int) -> slice:
    """Return an index entry of an axis of `size` cells as a slice; IndexError out of range, ParameterError for another
    type.
    """
    if isinstance(entry, slice):
        return entry
    if isinstance(entry, bool | np.bool_) or not isinstance(entry, int | np.integer):
        text = "a variable is indexed by whole numbers, slices, ... and None; write specgrad.select for a mask, "
        raise ParameterError("index", f"{text}concat of slices for a list; got {type(entry).__name__}", rule="P5")
    i = whole_number(entry)
    if not -size <= i < size:
        raise IndexError(f"index {i} is out of range for an axis of {size} cells")
    at = i if i >= 0 else i + size
    return slice(at, at + 1)


def _unsupported_numpy(name: str) -> UnsupportedError:
    """Return the error for the NumPy function `name`, which does not record, with what to write instead."""
    ours = NUMPY_NAMES.get(name, name)
    known = f"write specgrad.{ours}" if ours in REGISTRY else "write it with specgrad's own functions"
    return UnsupportedError("trace", f"numpy.{name} does not record graph variables; {known}")


def _permute(x: Value, axes: Sequence[int] | None = None) -> Value:
    """Return x with axes in this order; reversed if None."""
    return layout.permute(x, tuple(reversed(range(len(x.shape)))) if axes is None else axes)


NUMPY_NAMES = {
    "add.reduce": "sum",
    "maximum.reduce": "amax",
    "max": "amax",
    "clip": "clamp",
    "broadcast_to": "broadcast",
}
ATTRIBUTES = {
    "T": "specgrad.permute(x, order)",
    "transpose": "specgrad.permute(x, order)",
    "view": "x.reshape(...)",
    "flatten": "specgrad.flatten(x)",
    "max": "specgrad.amax(x, axes)",
    "min": "specgrad.amin(x, axes)",
    "clip": "specgrad.clamp(x, low, high)",
    "softmax": "specgrad.softmax(x)",
    "size": "math.prod(x.shape)",
    "detach": "specgrad.stop_gradient(x)",
    "item": "float(...) of the traced graph's result",
}
UFUNCS: dict[str, Callable[..., Value]] = {
    "add": elementwise.add,
    "subtract": elementwise.sub,
    "multiply": elementwise.mul,
    "divide": elementwise.div,
    "trunc": integer_rounding.trunc,
    "fmod": integer_rounding.fmod,
    "remainder": integer_rounding.mod,
    "square": lambda x: elementwise.mul(x, x),
    "power": elementwise.power,
    "maximum": elementwise.maximum,
    "minimum": elementwise.minimum,
    "matmul": contract.matmul,
    "greater": elementwise.greater,
    "greater_equal": elementwise.greater_equal,
    "less": lambda x, y: elementwise.greater(y, x),
    "less_equal": lambda x, y: elementwise.greater_equal(y, x),
    "equal": lambda x, y: _equal(*((x, y) if isinstance(x, Var) else (y, x))),
    "not_equal": lambda x, y: elementwise.sub(1, UFUNCS["equal"](x, y)),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "shape": lambda a: a.shape,
    "ndim": lambda a: a.ndim,
    "sum": lambda a, axis=None, *, keepdims=False: layout.sum_(a, axis, keepdims=keepdims),
    "mean": lambda a, axis=None, *, keepdims=False: elementwise.mean(a, axis, keepdims=keepdims),
    "amax": lambda a, axis=None, *, keepdims=False: max_pool.amax(a, axis, keepdims=keepdims),
    "max": lambda a, axis=None, *, keepdims=False: max_pool.amax(a, axis, keepdims=keepdims),
    "amin": lambda a, axis=None, *, keepdims=False: max_pool.amin(a, axis, keepdims=keepdims),
    "min": lambda a, axis=None, *, keepdims=False: max_pool.amin(a, axis, keepdims=keepdims),
    "reshape": lambda a, shape: layout.reshape(a, (shape,) if isinstance(shape, int) else shape),
    "transpose": _permute,
    "concatenate": lambda arrays, axis=0: layout.concat(arrays, axis),
    "where": lambda condition, x, y: elementwise.select(condition, x, y),
}
