"""Accuracy sheet: error formulas of one ONNX operator over exact numbers, with their conditions.

abs(computed - exact) <= total = propagated + introduced, cell by cell, for every execution of a class. Two losses are
the same for every operator, and stand in no formula:

    read      an operand X with abs(X) - E_X < t may be read as 0: E_X grows by min(abs(X) + E_X, t)
    stored    a result Y with abs(Y) - total < t may be stored as 0: total grows by min(abs(Y) + total, t)

where runtimes may flush subnormal numbers to zero; else neither is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .expression import Env, Expr


@dataclass(frozen=True)
class Family:
    """Sentences that all operators of one rounding rule share.

    fused        how the formula reads where runtimes merge nodes
    conditions   overflow, underflow, NaN and infinities, ties: (word, sentence) each
    promises     what an implementation must keep for the formula to hold
    source       where the constants come from
    name         of the family
    """

    name: str
    fused: str
    conditions: tuple[tuple[str, str], ...]
    promises: tuple[str, ...]
    source: str


class Quantity(NamedTuple):
    """A quantity that formulas read: name, meaning in `words`, and its formula; None: it comes from the model."""

    name: str
    words: str
    formula: Expr | None = None


@dataclass(frozen=True)
class Sheet:
    """Accuracy sheet of one ONNX operator.

    meaning     the exact result Y
    inputs      names of the inputs, in ONNX's order; E_X is the error of X
    steps       quantities, each by those before it
    propagated  how far the errors of the inputs move the exact result
    introduced  what this operator's own arithmetic adds
    fits        at most the largest number of the format, or nothing is claimed
    divisor     at least t, the smallest normal number, or nothing is claimed
    declared    the function whose measured error e is, if there is one
    family      the sentences of its rounding rule
    conditions  (name, sentence) pairs: where the formulas hold
    promises    what an execution must do for them to hold, in words
    notes       what else a reader should know
    """

    operator: str
    meaning: str
    inputs: tuple[str, ...]
    propagated: Expr
    introduced: Expr
    family: Family
    steps: tuple[Quantity, ...] = ()
    fits: Expr | None = None
    divisor: Expr | None = None
    declared: str = ""
    conditions: tuple[tuple[str, str], ...] = ()
    promises: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Errors(NamedTuple):
    """Evaluated errors, cell by cell; `fits` is False where nothing is claimed.

    `propagated` comes from the inputs' errors, `introduced` from rounding, `total` is their sum.
    """

    propagated: Any
    introduced: Any
    total: Any
    fits: Any


def errors(sheet: Sheet, env: Env, flush: bool = True) -> Errors:
    """Return what a sheet says: propagated, introduced and total error; exact if the numbers of `env` are.

    env     X, E_X of every input, the exact result Y, the operator F where formulas call it, sizes, and the format's
            u, t, largest
    flush   whether subnormal inputs may be read as 0

    >>> from fractions import Fraction
    >>> from .operator_sheets import SHEETS
    >>> third, half = Fraction(1, 3), Fraction(1, 2)
    >>> form = {"u": Fraction(1, 2**24), "t": Fraction(1, 2**126), "largest": 2**128}
    >>> e = errors(SHEETS["Add"], {"A": third, "B": half, "E_A": 0, "E_B": 0, "Y": third + half, **form})
    >>> e.propagated, e.introduced >= form["u"] * 5 / 6
    (0, True)
    """
    known: dict[str, Any] = dict(env)
    for name in sheet.inputs:
        if flush:
            known[f"E_{name}"] = known[f"E_{name}"] + flush_loss(known[name], known[f"E_{name}"], env["t"])
    for step in sheet.steps:
        if step.formula is not None:
            known[step.name] = step.formula.value(known)
    propagated = known["propagated"] = sheet.propagated.value(known)
    introduced = sheet.introduced.value(known)
    total = propagated + introduced
    fits = abs(env["Y"]) + total <= env["largest"]
    if sheet.fits is not None:
        fits = fits & (sheet.fits.value(known) <= env["largest"])
    if sheet.divisor is not None:
        fits = fits & (sheet.divisor.value(known) >= env["t"])
    if flush:
        total = total + flush_loss(env["Y"], total, env["t"])
    return Errors(propagated, introduced, total, fits)


def flush_loss(x: Any, error: Any, t: Any) -> Any:
    """Return what x, known to within `error`, loses at most if it is below t in size and taken as 0."""
    if np.ndim(x) == 0 and np.ndim(error) == 0:
        return min(abs(x) + error, t) if abs(x) - error < t else 0
    size = abs(x) + error
    return np.where(abs(x) - error < t, np.minimum(size, t), 0)


def words(sheet: Sheet) -> Mapping[str, str]:
    """Return the meaning of every quantity of a sheet, by name."""
    return {step.name: step.words for step in sheet.steps}
