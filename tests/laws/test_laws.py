"""Every registered operator obeys the laws, on 200 generated cases each (see laws.py)."""

from __future__ import annotations

from random import Random

import pytest

import laws
from specgrad.op import REGISTRY

CASES = 200
OPERATORS = sorted(REGISTRY)


@pytest.mark.parametrize("name", OPERATORS)
def test_laws(name: str) -> None:
    op = REGISTRY[name]
    for seed in range(CASES):
        rng = Random(f"{name}/{seed}")
        case = op.cases(rng)
        try:
            laws.check_all(op, case, rng)
        except Exception as error:
            error.add_note(
                f"operator {name}, seed {seed}, params {case[1]}, shapes {[getattr(a, 'shape', a) for a in case[0]]}"
            )
            raise
