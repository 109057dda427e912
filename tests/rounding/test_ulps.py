"""The declared errors of functions, against what benchmarks/ulps.py last measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from specgrad.rounding import ANY, ULPS, Arithmetic

MEASURED = (Path(__file__).parents[2] / "benchmarks" / "ulps.txt").read_text().splitlines()[3:]


def size(bound: object) -> float:
    return bound[0] if isinstance(bound, tuple) else bound


@pytest.mark.parametrize("row", MEASURED, ids=lambda r: " ".join(r.split()[:2]))
def test_declared_bounds_cover_the_measurement(row: str) -> None:
    name, backend, scale, *cells = row.split()
    *found, declared = (float(c) for c in cells if c != "-")
    bound = ULPS[backend][name]
    assert (size(bound), bound[1] if isinstance(bound, tuple) else "y") == (declared, scale)
    assert max(found) <= declared
    assert size(ANY[name]) >= declared


def test_every_backend_is_measured() -> None:
    rows = {tuple(r.split()[:2]) for r in MEASURED}
    assert rows == {(name, backend) for backend, table in ULPS.items() for name in table}


def test_a_bound_is_a_number_or_a_pair() -> None:
    arithmetic = Arithmetic(ulps={"exp": 2.0, "gelu": (2.5, "x")})
    assert arithmetic.ulp_bound("exp") == (2.0, "y")
    assert arithmetic.ulp_bound("gelu") == (2.5, "x")
