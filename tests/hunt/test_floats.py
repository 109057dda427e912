"""The hunter's own arithmetic is right: against Fractions, and against NumPy's float16 and float32."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from floats import FORMATS, MODES, Machine, rounded


def drawn(rng: Random, name: str) -> float:
    """A number of the format: of any size, often with few digits so that sums meet ties."""
    form = FORMATS[name]
    low, high = form.lowest - form.digits, form.highest
    exponent = rng.randint(low, high - 1) if rng.random() < 0.3 else rng.randint(max(low, -12), min(12, high - 1))
    digits = rng.choice((2, 4, form.digits))
    return rounded(rng.choice((-1, 1)) * Fraction(rng.getrandbits(digits)) * Fraction(2) ** (exponent - digits), form)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "tf32", "float32"])
@pytest.mark.parametrize("mode", list(MODES))
def test_machine_rounds_the_exact_result(name: str, mode: str) -> None:
    rng = Random(f"{name} {mode}")
    form = FORMATS[name]
    for _ in range(600):
        flush, daz = rng.random() < 0.3, rng.random() < 0.3
        unit = Machine(form, mode, flush, daz)
        a, b, c = (drawn(rng, name) for _ in range(3))
        x, y, z = (Fraction(0 if daz and abs(v) < form.tiny else v) for v in (a, b, c))
        expected = {
            "add": (x + y, unit.add(a, b)),
            "mul": (x * y, unit.mul(a, b)),
            "fma": (x * y + z, unit.fma(a, b, c)),
        }
        if y:
            expected["div"] = (x / y, unit.div(a, b))
        for op, (exact, got) in expected.items():
            assert got == rounded(exact, form, mode, flush), (op, a, b, c, flush, daz)


@pytest.mark.parametrize(("name", "kind"), [("float16", np.float16), ("float32", np.float32)])
def test_machine_equals_numpy(name: str, kind: type) -> None:
    rng = Random(name)
    unit = Machine(FORMATS[name])
    with np.errstate(all="ignore"):
        for _ in range(2000):
            a, b = kind(drawn(rng, name)), kind(drawn(rng, name))
            assert unit.add(float(a), float(b)) == float(a + b)
            assert unit.mul(float(a), float(b)) == float(a * b)
            if b:
                assert unit.div(float(a), float(b)) == float(a / b)
            assert unit.sqrt(abs(float(a))) == float(np.sqrt(abs(a)))


def test_wide_operands_meet_one_rounding() -> None:
    """A product of a float64 and a float32 has more digits than a float64."""
    rng, unit = Random(1), Machine(FORMATS["float32"])
    for _ in range(500):
        a, b, c = (rng.uniform(-2, 2) for _ in range(3))
        assert unit.mul(a, b) == rounded(Fraction(a) * Fraction(b), unit.form)
        assert unit.fma(a, b, c) == rounded(Fraction(a) * Fraction(b) + Fraction(c), unit.form)


def test_overflow_and_infinities() -> None:
    unit = Machine(FORMATS["float16"])
    assert unit.mul(60000.0, 2.0) == math.inf
    assert Machine(FORMATS["float16"], "zero").mul(60000.0, -2.0) == -65504.0
    assert math.isnan(unit.add(math.inf, -math.inf))
