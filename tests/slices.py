"""A long hunt in two parts: its first seeds, or a share of its cases, in every run, the rest with `-m slow`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest


def each(first: int, whole: int) -> list[Any]:
    """The seeds 0 to `whole` one by one, the first few by default: values for `parametrize("seed", ...)`."""
    return [*range(first), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(first, whole))]


def counts(few: int, many: int) -> list[Any]:
    """A few draws by default, many with `-m slow`: values for `parametrize("count", ...)`."""
    return [few, pytest.param(many, marks=pytest.mark.slow)]


def diagonals(rows: Collection[Any], columns: Collection[Any], every: int) -> list[Any]:
    """All pairs, by default one in `every` of each row and column: values for `parametrize(("a", "b"), ...)`."""
    return [
        pytest.param(a, b, marks=[pytest.mark.slow] if (i + k) % every else [])
        for i, a in enumerate(rows)
        for k, b in enumerate(columns)
    ]


def slices(first: int, whole: int) -> list[Any]:
    """Of the seeds 0 to `whole`, the first few by default: values for `pytest.mark.parametrize("seeds", ...)`."""
    return [
        pytest.param(range(first), id="first"),
        pytest.param(range(first, whole), id="rest", marks=pytest.mark.slow),
    ]
