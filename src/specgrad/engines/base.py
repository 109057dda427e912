"""Base of the engines: a table from operator to lowering, a cache of kernels, dispatch.

A lowering takes shapes and parameters and returns a kernel: a function of the engine's tensors, specialised once. Eager
calls look their kernel up; compiled graphs hold theirs. A missing lowering is an error, never a silent fallback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, NoReturn

import numpy as np

from ..call_cache import RECORDER, record_call
from ..errors import ScalarError, UnsupportedError
from ..op import REGISTRY, Op, Params, is_literal
from ..scalar import Array, as_float
from ..window import Shape, whole

Kernel = Callable[..., Any]
Lowering = Callable[..., Kernel]
MAX_CACHED_KERNELS = 8192  # then start again: a long run over many shapes must not grow without bound


def refuse_integers(operator: str, engine: str, dtype: Any, what: str = "an argument") -> NoReturn:
    """Raise ScalarError for a dtype that is no real number: integers, bool, complex.

    [P6] Machine integers wrap and truncate; NumPy's are exact numbers to us, and an engine has none. Complex numbers
    have no order, and no rule of ours means them. `what` says in the error whose dtype it is.
    """
    if "complex" in str(dtype):
        raise ScalarError(operator, f"cannot compute with dtype {dtype}; give floats or exact numbers")
    text = f"{what} has dtype {dtype}, which wraps and truncates on {engine}; pass floats, or NumPy integers, which"
    raise ScalarError(operator, f"{text} are exact", rule="P6")


def number(value: Any) -> Any:
    """Return a Python number `value` as an engine takes it: integers that fit 32 bits unchanged, all others as floats.

    ScalarError for a number beyond all floats.
    """
    return value if isinstance(value, int) and abs(value) < 2**31 else as_float(value)


def key_of(op: Op, shapes: Sequence[Shape], params: Params) -> tuple[Any, ...]:
    """Return the cache key of an operator with shapes and parameters; 0.0 and -0.0 have distinct keys."""
    for v in params.values():
        if type(v) is float and v == 0:
            return (op, *shapes, *params, *params.values(), str(params))
    return (op, *shapes, *params, *params.values())


def function_named(name: str, **modules: Any) -> Any:
    """Return the function that a program writes as `name`: "F.silu" is the silu of the module given as F in
    `modules`.
    """
    head, *rest = name.split(".")
    return reduce(getattr, rest, modules[head])


def named_lowerings(lower_named: Callable[[Op], Lowering | None]) -> dict[str, Lowering]:
    """Return the lowerings of all registered operators that `lower_named` knows by the names in their records."""
    return {op.name: lowering for op in REGISTRY.values() if (lowering := lower_named(op)) is not None}


class Engine:
    """Dispatch of one engine: its name, tensor type, table of lowerings and dtypes that are no real numbers
    (`integers`).

    lower_named(op)    the lowering of an operator by the names in its record, if it was registered after the table
    positions(i, x)    an index that is a NumPy array (which cells a padding reads), where x is
    """

    def __init__(
        self,
        name: str,
        tensor: type[Any],
        table: dict[str, Lowering],
        integers: frozenset[Any] = frozenset(),
        positions: Callable[[Array, Any], Any] | None = None,
        lower_named: Callable[[Op], Lowering | None] = lambda _: None,
    ) -> None:
        self.name = name
        self.tensor = tensor
        self.table = table
        self.integers = integers
        self.positions = positions
        self.lower_named = lower_named
        self._kernels: dict[tuple[Any, ...], Kernel] = {}

    def kernel_for(self, op: Op, shapes: Sequence[Shape], params: Params) -> Kernel:
        """Return the function that computes this operator on these shapes, from the cache or newly lowered.

        UnsupportedError if the table has no lowering.
        """
        key = key_of(op, shapes, params)
        try:
            compute = self._kernels.get(key)
        except TypeError:  # torch.compile has left sizes open: they stay so, in a kernel that is not cached
            if (recorder := RECORDER.get()) is not None:
                recorder.complete = False
            return self._make_kernel(op, [tuple(s) for s in shapes], params)
        return self._cache_kernel(key, op, shapes, params) if compute is None else compute

    def _cache_kernel(self, key: tuple[Any, ...], op: Op, shapes: Sequence[Shape], params: Params) -> Kernel:
        """Return a new kernel for arguments of these shapes and store it under `key`; the cache is emptied when it is
        full.

        UnsupportedError if the table has no lowering.
        """
        plain = [tuple(s) for s in shapes]
        if any(type(n) is not int for s in plain for n in s):  # torch.jit.trace: sizes are tensors
            return self.kernel_for(op, whole(plain), params)
        compute = self._make_kernel(op, plain, params)
        if len(self._kernels) >= MAX_CACHED_KERNELS:
            self._kernels.clear()
        self._kernels[key] = compute
        return compute

    def _make_kernel(self, op: Op, shapes: Sequence[Shape], params: Params) -> Kernel:
        """Return a new kernel for arguments of these shapes; raise UnsupportedError if the table has no lowering."""
        op.shape(*shapes, **params)
        lowering = self.table.get(op.name) or self.lower_named(op)
        if lowering is None:
            raise UnsupportedError(op.name, f"the {self.name} engine has no line for it")
        compute: Kernel = lowering(*shapes, **params)
        return compute

    def run(self, op: Op, args: Sequence[Any], params: Params) -> Any:
        """Return the result of one eager call of `op` on tensors.

        It is written out flat: this is the entire cost of a call beyond the engine's own. ScalarError for integer
        tensors that are neither indices nor masks nor only moved.
        """
        tensor = self.tensor
        shapes = []
        for a in args:
            if not isinstance(a, tensor):
                return self._run_with_numbers(op, args, params)
            if a.dtype in self.integers:
                self._check_integers(op, args)
            shapes.append(a.shape)
        try:
            compute = self._kernels.get(key_of(op, shapes, params))
        except TypeError:
            compute = None
        return record_call(compute or self.kernel_for(op, shapes, params), *args)

    def _run_with_numbers(self, op: Op, args: Sequence[Any], params: Params) -> Any:
        """Return the result of one eager call with arguments that are not tensors: Python numbers, NumPy indices.

        ScalarError for integer tensors that are neither indices nor masks nor only moved.
        """
        args = self._with_positions(op, args)
        self._check_integers(op, args)
        shapes = [a.shape if isinstance(a, self.tensor) else self._number_shape(op, a) for a in args]
        return record_call(
            self.kernel_for(op, shapes, params), *(number(a) if type(a) in (int, Fraction) else a for a in args)
        )

    def _with_positions(self, op: Op, args: Sequence[Any]) -> Sequence[Any]:
        """Return the arguments with NumPy index arrays converted to tensors."""
        like = next((a for a in args if isinstance(a, self.tensor)), None)
        if self.positions is None or like is None or not op.index_args:
            return args
        here = [i in op.index_args and isinstance(a, np.ndarray) and a.dtype.kind == "i" for i, a in enumerate(args)]
        return [self.positions(a, like) if given else a for given, a in zip(here, args, strict=True)]

    def _check_integers(self, op: Op, args: Sequence[Any]) -> None:
        """Raise ScalarError for integer tensors, unless they are indices, masks or only moved ([P6])."""
        if op.kind == "same":
            return
        free = (0,) if op.name == "select" else op.index_args
        for i, a in enumerate(args):
            if i not in free and isinstance(a, self.tensor) and a.dtype in self.integers:
                refuse_integers(op.name, self.name, a.dtype)

    def _number_shape(self, op: Op, a: Any) -> Shape:
        """Return (), the shape of a Python number `a`; raise ScalarError for anything else."""
        if is_literal(a):
            return ()
        given = f"{type(a).__module__}.{type(a).__qualname__}"
        raise ScalarError(op.name, f"cannot mix {self.name} tensors with {given}; convert it first")
