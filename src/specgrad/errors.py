"""The errors of the library: each names the operator, the rule, what was given and what would be right."""

from __future__ import annotations

from typing import Any


class SpecgradError(Exception):
    """Base of every error raised on purpose.

    >>> e = SpecgradError("max_pool", "kernel must be positive", rule="W1")
    >>> print(e)
    max_pool [W1]: kernel must be positive
    >>> e.operator, e.rule
    ('max_pool', 'W1')
    """

    def __init__(self, operator: str, text: str, *, rule: str | None = None) -> None:
        self.operator = operator
        self.rule = rule
        super().__init__(f"{operator} [{rule}]: {text}" if rule else f"{operator}: {text}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with its text and fields: an error of a worker must reach the one who waits for it."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[SpecgradError], args: tuple[Any, ...], fields: dict[str, Any]) -> SpecgradError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class ShapeError(SpecgradError, ValueError):
    """Sizes that do not fit each other: rules [W1], [W2], [C1], [C2]."""


class ParameterError(SpecgradError, TypeError):
    """An attribute that we do not honour: rule [P5]."""


class UnsupportedError(SpecgradError, NotImplementedError):
    """A combination of operator and engine, or of operator and transformation, that has no line."""


class ScalarError(SpecgradError, ArithmeticError):
    """A value the scalar type cannot express or decide: exp of a rational, the larger of two overlapping balls."""
