"""Every registered operator obeys the laws, on 200 generated cases each, 8 of them by default (see laws.py)."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

import laws
from slices import slices
from specgrad.op import REGISTRY

OPERATORS = sorted(REGISTRY)


@pytest.mark.parametrize("seeds", slices(8, 200))
@pytest.mark.parametrize("name", OPERATORS)
def test_laws(name: str, seeds: Iterable[int]) -> None:
    op = REGISTRY[name]
    for seed in seeds:
        rng = Random(f"{name}/{seed}")
        case = op.cases(rng)
        try:
            laws.check_all(op, case, rng)
        except Exception as error:
            error.add_note(
                f"operator {name}, seed {seed}, params {case[1]}, shapes {[getattr(a, 'shape', a) for a in case[0]]}"
            )
            raise
