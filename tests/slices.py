"""A long hunt in two parts: its first seeds in every run, the rest with `-m slow`."""

from __future__ import annotations

from typing import Any

import pytest


def each(first: int, whole: int) -> list[Any]:
    """The seeds 0 to `whole` one by one, the first few by default: values for `parametrize("seed", ...)`."""
    return [*range(first), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(first, whole))]


def slices(first: int, whole: int) -> list[Any]:
    """Of the seeds 0 to `whole`, the first few by default: values for `pytest.mark.parametrize("seeds", ...)`."""
    return [
        pytest.param(range(first), id="first"),
        pytest.param(range(first, whole), id="rest", marks=pytest.mark.slow),
    ]
