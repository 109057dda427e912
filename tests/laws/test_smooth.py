"""Smooth pooling: the adjoint law in exact arithmetic, enclosures from balls, and its bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import drawn_windows
import specgrad as sg
from formal import ExpSum
from laws import inner
from slices import slices
from specgrad import window
from specgrad.errors import ParameterError
from specgrad.graph.files.save import from_json, to_json
from specgrad.op import REGISTRY, run_spec
from specgrad.ops import sample_inputs, smooth_pool
from specgrad.window import Adaptive, Strided, Window


def formal(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, dtype=object)
    for k in np.ndindex(x.shape):
        out[k] = ExpSum.of(x[k])
    return out


@pytest.mark.parametrize("seeds", slices(40, 200))
@pytest.mark.parametrize("name", ["smooth_max_pool", "smooth_pull", "smooth_push"])
def test_adjoint_law_is_exact(name: str, seeds: Iterable[int]) -> None:
    """Over sums of e**q the law holds to the last digit; any rational stands for y, which the law does not need."""
    op = REGISTRY[name]
    for seed in seeds:
        rng = Random(f"{name}/{seed}")
        args, params = op.cases(rng)
        y = sample_inputs.numbers(rng, op.shape(*(a.shape for a in args), **params))
        if name != "smooth_max_pool":
            y = run_spec(op, [formal(a) for a in args], params)
        else:
            y = formal(y)
        fargs = [formal(a) for a in args]
        dargs = [formal(sample_inputs.like(rng, a)) for a in args]
        gy = formal(sample_inputs.like(rng, y))
        dy, gargs = op.tangent(y, fargs, dargs, params), op.cotangents(gy, y, fargs, params)
        left, right = inner(gy, dy), ExpSum({})
        for g, d in zip(gargs, dargs, strict=True):
            right = right + inner(g, d)
        assert right == left, seed


def window_values(x: np.ndarray, win: Window, padded: str) -> list[list[float]]:
    """Brute force: for every output position the taps, a padded one being 0 or left out."""
    rows = []
    axes = [a for a in win.axes if isinstance(a, Strided)]
    for o in np.ndindex(win.out):
        taps = []
        for t in np.ndindex(win.kernel):
            i = tuple(a.stride * p + a.dilation * k - a.lo for a, p, k in zip(axes, o, t, strict=True))
            inside = all(0 <= c < n for c, n in zip(i, win.size, strict=True))
            if inside or padded == "zero":
                taps.append(float(x[i]) if inside else 0.0)
        rows.append(taps)
    return rows


def rounding_bound(taps: list[float], beta: float, y: float, u: float) -> float:
    """ROUNDING: smooth max with a shift, exp within 3.6u and log within 4u (NumPy)."""
    if not taps:
        return 0.0
    top = max(beta * v for v in taps)
    t = [beta * v - top for v in taps]
    s = sum(math.exp(v) for v in t)
    inner_error = 2 * u * sum(math.exp(v) * abs(v) for v in t) / s + 3.6 * u + (len(t) - 1) * u
    shift = 2 * u * max(abs(beta * v) for v in taps)  # beta*x is rounded before the shift
    return ((inner_error + (4 * u + 2 * u) * math.log(s) + shift) / abs(beta) + 2 * u * abs(y)) * (1 + 1e-4)


@pytest.mark.parametrize(("dtype", "u"), [(np.float64, 2.0**-53), (np.float32, 2.0**-24)])
def test_balls_enclose_the_float_result(dtype: type, u: float) -> None:
    """The ball around the exact value, widened by the proven rounding bound, contains the float result."""
    op = REGISTRY["smooth_max_pool"]
    for seed in range(200):
        rng = Random(seed)
        (x,), params = op.cases(rng)
        win = params["window"]
        x = x.reshape(-1, *win.size)[:1].reshape(win.size) if x.size else np.zeros(win.size, dtype=object)
        floats = x.astype(dtype)
        got = run_spec(op, [floats], params)
        enclosure = run_spec(op, [sg.balls(floats)], params)
        rows = window_values(floats, win, params["padded"])
        for value, ball, taps in zip(got.flat, enclosure.flat, rows, strict=True):
            ball = ball if hasattr(ball, "mid") else sg.balls(ball).item()
            distance = (
                abs(float(ball.mid()) - float(value))
                if dtype is np.float32
                else abs(float((ball - sg.balls(value).item()).mid()))
            )
            assert distance <= rounding_bound(taps, params["beta"], float(value), u) + float(ball.rad()) + 1e-300, seed
            exact = sum(sg.balls(v).item().__mul__(sg.balls(params["beta"]).item()).exp() for v in taps)
            if taps:
                assert ball.overlaps(exact.log() / sg.balls(params["beta"]).item())


def test_between_max_and_max_plus_log() -> None:
    for seed in range(200):
        rng = Random(seed)
        win = sample_inputs.window(rng)
        x = sample_inputs.numbers(rng, win.size)
        beta = rng.choice((1, 3, 7))
        smooth = run_spec(REGISTRY["smooth_max_pool"], [sg.balls(x)], {"window": win, "beta": beta, "padded": "ignore"})
        hard = run_spec(REGISTRY["max_pool"], [x], {"window": win})
        slack = float(np.log(win.taps_count)) / beta
        for s, h in zip(smooth.flat, hard.flat, strict=True):
            s = s if hasattr(s, "mid") else sg.balls(s).item()
            assert not (s < sg.balls(h).item())
            assert not (s > sg.balls(h + Fraction(slack * (1 + 1e-12))).item())


def test_stable_for_large_arguments() -> None:
    x = np.array([1e300, -1e300, 3.0, 4.0])
    assert sg.smooth_max_pool(x, (2,), beta=1.0).tolist() == [1e300, pytest.approx(4.313261687518223, rel=1e-15)]
    low = np.array([-np.inf, -np.inf, -np.inf, 1.0, np.inf, 0.0, np.nan, 0.0])
    y = sg.smooth_max_pool(low, (2,), beta=2.0)
    assert y[:3].tolist() == [-np.inf, 1.0, np.inf]
    assert np.isnan(y[3])


# --- windows of every kind ------------------------------------------------------------------------------------------


def wrong_maxima(seeds: range) -> list[int]:
    """Windows of every kind over which the specification takes other taps than the relation reads."""
    wrong = []
    for seed in seeds:
        rng = Random(seed)
        win = drawn_windows.window(rng, drawn_windows.sizes(rng))
        x = np.array([rng.uniform(-2, 2) for _ in range(math.prod(win.size))]).reshape(win.size)
        for padded in ("zero", "ignore"):
            try:
                y = sg.apply(REGISTRY["smooth_max_pool"], x, window=win, beta=1, padded=padded)
            except ParameterError:
                assert padded == "zero"
                assert any(isinstance(a, Adaptive) for a in win.axes)
                continue
            for o in np.ndindex(win.out):
                cells = [c for _, c in win.reads(o) if c is not None or padded == "zero"]
                total = math.fsum(1.0 if c is None else math.exp(x[c]) for c in cells)
                if not math.isclose(y[o], math.log(total), abs_tol=1e-12):
                    wrong.append(seed)
    return wrong


def test_every_kind_of_window_counts_the_taps_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taps of an uneven cell that do not exist counted as zeros; the refusal left out, that is found again."""
    assert wrong_maxima(range(60)) == []
    monkeypatch.setattr(smooth_pool, "refuse_adaptive", lambda *_: None)
    assert wrong_maxima(range(60)) != []


def test_adaptive_cells_have_neither_padding_nor_weights() -> None:
    """Refused by name: called, traced, read from a file, and on both engines."""
    win, x = Window((Adaptive(5, 3),)), np.arange(5.0).reshape(1, 1, 5)
    smooth = {"window": win, "beta": 1.0, "padded": "zero"}
    calls = [
        (REGISTRY["smooth_max_pool"], (x,), smooth, "have no padding"),
        (REGISTRY["conv"], (x, np.ones((1, 1, 3))), {"window": win, "groups": 1}, "have no weights"),
        (REGISTRY["conv_transpose"], (x[..., :3], np.ones((1, 1, 3))), {"window": win, "groups": 1}, "have no weights"),
        (REGISTRY["conv_weight"], (x, x[..., :3]), {"window": win, "groups": 1}, "have no weights"),
    ]
    for op, args, params, said in calls:
        for given in (args, *_tensors(args)):
            with pytest.raises(ParameterError, match=f"adaptive cells {said}"):
                sg.apply(op, *given, **params)
        with pytest.raises(ParameterError, match=f"adaptive cells {said}"):
            sg.trace(lambda *a, op=op, p=params: sg.apply(op, *a, **p), *(a.shape for a in args))
    graph = sg.trace(lambda x: sg.apply(REGISTRY["smooth_max_pool"], x, **{**smooth, "padded": "ignore"}), x.shape)
    forged = to_json(graph)
    forged["nodes"][-1]["params"]["padded"] = "zero"
    with pytest.raises(sg.SpecgradError, match="adaptive cells have no padding"):
        from_json(forged)
    with pytest.raises(ParameterError, match="have no weights"):
        sg.trace(
            lambda x: sg.apply(REGISTRY["conv"], x, np.ones((1, 1, 3)), window=_open_cells(x), groups=1), (1, 1, "H=5")
        )


def _open_cells(x: Any) -> Any:
    return window.adaptive("adaptive_avg_pool", x.shape, (3,))


def _tensors(args: tuple[np.ndarray, ...]) -> list[tuple[Any, ...]]:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    return [tuple(map(torch.tensor, args)), tuple(map(jax.numpy.asarray, args))]
