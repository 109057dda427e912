"""One cell that is infinite, NaN or beyond the format, in one argument of any operator: engines stay in the radius."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.op import REGISTRY, apply
from specgrad.rounding import Arithmetic, local_radius, radius

torch = pytest.importorskip("torch")
PLANTED = (np.inf, -np.inf, 1e39, -1e39, np.nan, 3.4e38)


def spoiled(rng: Random, name: str) -> tuple[list[Any], dict[str, Any]]:
    """A case of an operator with one such number."""
    op = REGISTRY[name]
    args, params = op.cases(rng)
    arrays = [
        a if not hasattr(a, "shape") else np.array(a, int if i in op.index_args else float) for i, a in enumerate(args)
    ]
    real = [a for i, a in enumerate(arrays) if getattr(a, "size", 0) and i not in op.index_args]
    if real:
        chosen = rng.choice(real)
        chosen.flat[rng.randrange(chosen.size)] = rng.choice(PLANTED)
    return arrays, params


def in_float32(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    with np.errstate(all="ignore"):
        return torch.from_numpy(x.astype(np.float32) if x.dtype.kind == "f" else x)


@pytest.mark.parametrize("name", [n for n, op in REGISTRY.items() if op.kind == "real"])
def test_radius_holds_beside_a_cell_that_is_no_number(name: str) -> None:
    rng, found = Random(f"infinite {name}"), 0
    for _ in range(25):
        args, params = spoiled(rng, name)
        with np.errstate(all="ignore"):
            ball = local_radius(name, *args, **params)
        got = apply(REGISTRY[name], *map(in_float32, args), **params).numpy()
        assert ball.contains(got).all(), (args, params, got, ball)
        found += ball.value.size
    assert found


def test_a_slope_beyond_the_format_proves_nothing() -> None:
    """Runtimes multiply it by 0, as x or as min(x, 0); JAX gets NaN at 0."""
    x = np.array([0.0, 1.0, -0.0])
    with np.errstate(all="ignore"):
        assert np.isinf(local_radius("leaky_relu", x, slope=1e39).radius).all()
        half = local_radius("leaky_relu", x, slope=1e6, arithmetic=Arithmetic("float16"))
    assert np.isinf(half.radius).all()
    assert not local_radius("leaky_relu", x, slope=1e6).radius.any()


def test_beside_a_cell_that_may_be_nan_no_rank_is_known() -> None:
    """OpenVINO sorts [2, NaN, 3, 1] into [2, NaN, 3]."""
    graph = sg.trace(lambda x: sg.topk(sg.sqrt(x), 3)[0], (2, 4))
    with np.errstate(all="ignore"):
        ball = radius(graph, np.float32([[4, -1, 9, 1], [4, 1, 9, 1]])).outputs
    assert np.isinf(ball.radius[0]).all()
    assert np.isfinite(ball.radius[1]).all()
