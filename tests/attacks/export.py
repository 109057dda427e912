"""Every attack as files for other verifiers: ONNX, VNN-LIB 1.0, the input on which an execution breaks the claim."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from attack import Attack
from specgrad.properties.property import Property
from suite import BUILDERS, attack_named


def export(folder: Path) -> None:
    """<attack>.onnx, .vnnlib, and .npz: the input x, what the triggering execution computes there, its name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in BUILDERS:
        attack, stem = attack_named(name), folder / name.lower().replace(",", "").replace(" ", "_")
        stem.with_suffix(".onnx").write_bytes(onnx_bytes(attack))
        stem.with_suffix(".vnnlib").write_text(vnnlib(attack.claim))
        y = attack.trigger(attack.network, attack.x)
        np.savez(stem.with_suffix(".npz"), x=attack.x, y=y, execution=attack.trigger.name)
        print(stem)


def onnx_bytes(attack: Attack) -> bytes:
    from specgrad.interop import to_onnx

    found: bytes = to_onnx(attack.graph).SerializeToString()
    return found


def vnnlib(claim: Property) -> str:
    return "\n".join(_lines(claim)) + "\n"


def _lines(claim: Property) -> Iterator[str]:
    """Ends of boxes are fractions over powers of two, so decimals say them exactly."""
    (case,) = claim.cases
    yield from (f"(declare-const X_{i} Real)" for i in range(claim.inputs))
    yield from (f"(declare-const Y_{i} Real)" for i in range(claim.outputs))
    for i, (low, high) in enumerate(zip(case.low, case.high, strict=True)):
        yield f"(assert (>= X_{i} {decimal(low)}))"
        yield f"(assert (<= X_{i} {decimal(high)}))"
    pairs = [(int(np.argmax(a.rows[0])), int(np.argmin(a.rows[0]))) for a in case.alternatives]
    yield "(assert (or " + " ".join(f"(and (<= Y_{label} Y_{other}))" for label, other in pairs) + "))"


def decimal(number: Fraction) -> str:
    """A fraction over a power of two, exactly.

    >>> decimal(Fraction(-3, 8)), decimal(Fraction(5))
    ('-0.375', '5.0')
    """
    places = number.denominator.bit_length() - 1
    if number.denominator != 1 << places:
        raise ValueError(f"{number} has no finite decimal that this writes")
    digits = str(abs(number.numerator) * 5**places).rjust(places + 1, "0")
    whole, rest = (digits[:-places], digits[-places:]) if places else (digits, "0")
    return f"{'-' if number < 0 else ''}{whole}.{rest}"
