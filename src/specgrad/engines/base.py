"""What the engines share: a table from operator to lowering, a cache of plans, dispatch.

A lowering takes shapes and parameters and returns a plan: a function of the engine's tensors, specialised once.
Eager calls look their plan up; compiled graphs hold theirs. A missing line is an error, never a silent fallback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NoReturn

from ..errors import ScalarError, UnsupportedError
from ..op import Op, Params, is_literal
from ..window import Shape, whole

Plan = Callable[..., Any]
Lowering = Callable[..., Plan]
MOST_PLANS = 8192  # then start anew: a long run over many shapes must not grow without bound


def refuse_integers(operator: str, engine: str, dtype: Any, what: str = "an argument") -> NoReturn:
    """[P6] Machine integers wrap and truncate; NumPy's are exact numbers to us, and an engine has none."""
    text = f"{what} has dtype {dtype}, which wraps and truncates on {engine}; pass floats, or NumPy integers, which"
    raise ScalarError(operator, f"{text} are exact", rule="P6")


class Engine:
    """One engine: its name, its tensor type, its table, and the types of its integers (bool among them)."""

    def __init__(
        self, name: str, tensor: type, table: dict[str, Lowering], integers: frozenset[Any] = frozenset()
    ) -> None:
        self.name = name
        self.tensor = tensor
        self.table = table
        self.integers = integers
        self._plans: dict[tuple[Any, ...], Plan] = {}

    def plan(self, op: Op, shapes: Sequence[Shape], params: Params) -> Plan:
        """The function that computes this operator on these shapes."""
        key = (op, *shapes, *params, *params.values())
        found = self._plans.get(key)
        return self._lower(key, op, shapes, params) if found is None else found

    def _lower(self, key: tuple[Any, ...], op: Op, shapes: Sequence[Shape], params: Params) -> Plan:
        plain = [tuple(s) for s in shapes]
        if any(type(n) is not int for s in plain for n in s):  # torch.jit.trace: sizes are tensors
            return self.plan(op, whole(plain), params)
        op.shape(*plain, **params)
        if op.name not in self.table:
            raise UnsupportedError(op.name, f"the {self.name} engine has no line for it")
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        plan = self._plans[key] = self.table[op.name](*plain, **params)
        return plan

    def run(self, op: Op, args: Sequence[Any], params: Params) -> Any:
        """One eager call. Written out flat: this is the whole cost of a call beyond the engine's own."""
        tensor = self.tensor
        shapes = []
        for a in args:
            if not isinstance(a, tensor):
                return self._run_with_numbers(op, args, params)
            if a.dtype in self.integers:
                self._check_integers(op, args)
            shapes.append(a.shape)
        key = (op, *shapes, *params, *params.values())
        try:
            plan = self._plans.get(key)
        except TypeError:  # torch.compile has left sizes open: take them as they are now, which it then guards
            return self.plan(op, whole(shapes), {name: whole(value) for name, value in params.items()})(*args)
        if plan is None:
            plan = self._lower(key, op, shapes, params)
        return plan(*args)

    def _run_with_numbers(self, op: Op, args: Sequence[Any], params: Params) -> Any:
        self._check_integers(op, args)
        shapes = [a.shape if isinstance(a, self.tensor) else self._number_shape(op, a) for a in args]
        return self.plan(op, whole(shapes), params)(*(float(a) if type(a) is Fraction else a for a in args))

    def _check_integers(self, op: Op, args: Sequence[Any]) -> None:
        """[P6] Integers are positions, or what a layout moves, or the mask of select; never numbers."""
        if op.kind == "same":
            return
        free = (0,) if op.name == "select" else op.index_args
        for i, a in enumerate(args):
            if i not in free and isinstance(a, self.tensor) and a.dtype in self.integers:
                refuse_integers(op.name, self.name, a.dtype)

    def _number_shape(self, op: Op, a: Any) -> Shape:
        if is_literal(a):
            return ()
        given = f"{type(a).__module__}.{type(a).__qualname__}"
        raise ScalarError(op.name, f"cannot mix {self.name} tensors with {given}; convert it first")
