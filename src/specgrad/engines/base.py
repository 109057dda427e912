"""What the engines share: a table from operator to lowering, a cache of plans, dispatch.

A lowering takes shapes and parameters and returns a plan: a function of the engine's tensors, specialised once.
Eager calls look their plan up; compiled graphs hold theirs. A missing line is an error, never a silent fallback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ..errors import ScalarError, UnsupportedError
from ..op import Op, Params, is_literal
from ..window import Shape

Plan = Callable[..., Any]
Lowering = Callable[..., Plan]


class Engine:
    """One engine: its name, its tensor type, and its table."""

    def __init__(self, name: str, tensor: type, table: dict[str, Lowering]) -> None:
        self.name = name
        self.tensor = tensor
        self.table = table
        self._cached = lru_cache(maxsize=8192)(self._lower)

    def _lower(self, op: Op, shapes: tuple[Shape, ...], params: tuple[tuple[str, Any], ...]) -> Plan:
        named = dict(params)
        op.shape(*shapes, **named)
        if op.name not in self.table:
            raise UnsupportedError(op.name, f"the {self.name} engine has no line for it")
        return self.table[op.name](*shapes, **named)

    def plan(self, op: Op, shapes: Sequence[Shape], params: Params) -> Plan:
        """The function that computes this operator on these shapes."""
        return self._cached(op, tuple(shapes), tuple(params.items()))

    def run(self, op: Op, args: Sequence[Any], params: Params) -> Any:
        """One eager call."""
        tensor = self.tensor
        shapes = tuple([a.shape if isinstance(a, tensor) else self._literal_shape(op, a) for a in args])
        plan = self._cached(op, shapes, tuple(params.items()))
        return plan(*[float(a) if type(a) is Fraction else a for a in args])

    def _literal_shape(self, op: Op, a: Any) -> Shape:
        if is_literal(a):
            return ()
        given = f"{type(a).__module__}.{type(a).__qualname__}"
        raise ScalarError(op.name, f"cannot mix {self.name} tensors with {given}; convert it first")
