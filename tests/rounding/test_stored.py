"""Arrays of the format itself are exact without a look at every number; the long way gives the same ball."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import specgrad as sg
from specgrad.rounding import Arithmetic
from specgrad.rounding.propagate import graph_context

pytestmark = pytest.mark.quick
BITS = np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint32)


@pytest.mark.parametrize("rounding", ["nearest", "any"])
@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_short_way_is_the_long_way(dtype: str, flush: bool, rounding: str) -> None:
    """Any bits: subnormal numbers, infinities and NaN among them."""
    numbers = BITS.astype(f"uint{np.dtype(dtype).itemsize * 8}").view(dtype)
    graph = sg.trace(lambda x: x, (1,))
    run = graph_context(graph, replace(Arithmetic(dtype), flush=flush, rounding=rounding), "numpy")
    with np.errstate(all="ignore"):
        short, long = run.stored(numbers), run.stored(numbers.astype(np.float64))
    np.testing.assert_array_equal(short.value, long.value)
    np.testing.assert_array_equal(short.radius, long.radius)
    assert flush == bool(short.radius.any())


def test_other_formats_round() -> None:
    run = graph_context(sg.trace(lambda x: x, (1,)), Arithmetic("bfloat16", flush=False), "numpy")
    assert (
        run.stored(np.float32([1.0, 1.00390625])).radius.tolist()[0]
        == 0
        < run.stored(np.float32([1.00390625])).radius[0]
    )
