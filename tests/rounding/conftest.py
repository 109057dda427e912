"""Balls far narrower than any rounding bound, for these tests alone."""

from __future__ import annotations

from collections.abc import Iterator

import flint
import pytest


@pytest.fixture(autouse=True)
def _narrow_balls() -> Iterator[None]:
    with flint.ctx.workprec(128):
        yield
