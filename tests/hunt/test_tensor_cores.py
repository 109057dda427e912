"""Sums by tensor cores stay within their radius; an emulator of them, random data and data made against them.

Planted mistakes, in the emulator (a narrower one than was declared) and in the bound (a loss that is not counted),
are found.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from claims import leaves_ball
from floats import FORMATS, round_float
from specgrad.rounding import Arithmetic, linear, radius
from specgrad.rounding.formats.tensor_core import TensorCore
from tensor_cores import Unit, dot, splits

Format = type(FORMATS["float32"])
SHORT = {name: FORMATS[name] for name in ("float16", "bfloat16", "tf32")} | {
    "float8_e4m3fn": Format("float8_e4m3fn", 4, -6, 8),
    "float8_e5m2": Format("float8_e5m2", 3, -14, 15),
}
ALIGN = {"cut": ("zero", "down"), "nearest": ("nearest",)}


def held(x: np.ndarray, form: str) -> np.ndarray:
    """x in the format, to nearest, none beyond its largest number."""
    top = 448.0 if form == "float8_e4m3fn" else SHORT[form].largest
    return np.vectorize(lambda v: round_float(float(v), SHORT[form]), otypes=[float])(np.clip(x, -top, top))


@dataclass(frozen=True)
class Run:
    """Products of `x` and `w`, with a bias or without; `form` holds the factors, `meant` is declared of the sums."""

    meant: TensorCore
    form: str
    x: np.ndarray
    w: np.ndarray
    b: np.ndarray

    def ball(self, execution: str, dtype: str, biased: bool) -> Any:
        graph = sg.trace(
            lambda x, w, b: sg.linear(w, b if biased else None, x), self.x.shape, self.w.shape, (len(self.w),)
        )
        inner = None if dtype == "float32" else "float32"
        operands = self.form if dtype == "float32" else None
        meant = Arithmetic(dtype, operands, inner, execution=execution, flush=False, cores=self.meant)
        return radius(graph, self.x, self.w, self.b, arithmetic=meant).outputs

    def results(self, unit: Unit, rng: np.random.Generator, biased: bool) -> Iterator[np.ndarray]:
        """Executions by the unit: the bias first, or added afterwards; one accumulator, several, or one per chain."""
        shape = (len(self.x), len(self.w), self.x.shape[1])
        a, b = np.broadcast_to(self.x[:, None], shape), np.broadcast_to(self.w[None], shape)
        order = rng.permutation(shape[-1])
        bias = np.broadcast_to(self.b, shape[:2]) if biased else np.zeros(shape[:2])
        nothing = np.zeros(shape[:2])
        for x, w in ((a, b), (a[..., order], b[..., order])):
            yield dot(unit, x, w, bias, self.meant.terms, self.meant.chain, rng)
            after = dot(unit, x, w, nothing, self.meant.terms, self.meant.chain, rng).astype(np.float32)
            yield (after + bias.astype(np.float32)).astype(float)
            if self.meant.chain is None:
                yield splits(unit, x, w, bias, self.meant.terms, rng)


def unit_of(meant: TensorCore, form: str, rng: np.random.Generator) -> Unit:
    """A unit that keeps to what is declared, in one of the ways that it leaves open."""
    align, keep = (str(rng.choice(ALIGN[word])) for word in (meant.align, meant.keep))
    late = bool(rng.random() < 0.3 and meant.fraction > 2)  # the sum of a step's products is aligned once more
    fraction = meant.fraction + 1 if late else meant.fraction
    lowest = SHORT[form].lowest
    return Unit(fraction, meant.digits, align, keep, lowest, bool(rng.random() < 0.7), late)


PUBLISHED = {
    "V100": TensorCore(23),
    "A100, L40S": TensorCore(24),
    "H100, B200": TensorCore(25),
    "H100, float8": TensorCore(13, digits=14),
    "MI300": TensorCore(23, keep="nearest"),
}


def drawn(rng: np.random.Generator, form: str) -> tuple[TensorCore, np.ndarray, np.ndarray, np.ndarray]:
    """Random declarations and numbers: wide, few large ones, such as cancel, subnormal ones, zeros."""
    if rng.random() < 0.4:
        meant = list(PUBLISHED.values())[int(rng.integers(len(PUBLISHED)))]
    else:
        words = [str(rng.choice(("cut", "cut", "nearest"))) for _ in range(2)]
        meant = TensorCore(int(rng.integers(6, 27)), int(rng.integers(6, 25)), align=words[0], keep=words[1])
    meant = replace(meant, terms=int(rng.choice((1, 1, 4, 16))), chain=[None, None, 8, 32][int(rng.integers(4))])
    n = int(rng.integers(1, 90))
    x, w = rng.normal(size=(6, n)), rng.normal(size=(5, n))
    kind = rng.integers(6)
    if kind == 1:
        x = np.where(rng.random(x.shape) < 0.1, x * 64, x / 64)
    if kind == 2:
        x, w = np.abs(x), np.abs(w)
    if kind == 3:
        x = np.concatenate([x, -x], axis=-1)[:, :n]
        w = np.concatenate([w, w], axis=-1)[:, :n]
    if kind == 4:
        x, w = x * 2.0 ** (SHORT[form].lowest), w * 2.0 ** -int(rng.integers(0, 4))
    if kind == 5:
        x = x * (rng.random(x.shape) < 0.3)
    return meant, held(x, form), held(w, form), rng.normal(size=5).astype(np.float32) * 4.0 ** int(rng.integers(-3, 4))


def against(rng: np.random.Generator, form: str) -> tuple[TensorCore, np.ndarray, np.ndarray, np.ndarray]:
    """Numbers made against truncation: all products but one just below what is kept, or a sum that loses each step."""
    n = int(rng.integers(2, 70))
    digits = int(rng.integers(5, 12))
    fraction = int(rng.integers(5, 10)) if rng.random() < 0.5 else digits + int(rng.integers(6, 12))
    meant = TensorCore(fraction, digits, terms=int(rng.choice((1, 8, n))))
    last = min(fraction, digits - 1)
    share = 0.9375 if fraction <= last else 0.9375 / meant.terms
    x, w = np.full((2, n), 2.0**-last * share), np.ones((1, n))
    x[:, 0] = 1
    x[1] = -x[1]
    return meant, held(x, form), w, np.zeros(1, np.float32)


Draw = Callable[[np.random.Generator, str], tuple[TensorCore, np.ndarray, np.ndarray, np.ndarray]]
FORMS = {drawn: tuple(SHORT), against: ("bfloat16",)}


def escapes(
    draw: Draw, seeds: range, spoil: Callable[[Unit], Unit] = lambda unit: unit
) -> Iterator[tuple[bool, float]]:
    """Of each execution: whether it left the ball, and the largest error over the radius."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        form = FORMS[draw][seed % len(FORMS[draw])]
        run = Run(*(lambda m, x, w, b: (m, form, x, w, b))(*draw(rng, form)))
        unit, biased = spoil(unit_of(run.meant, form, rng)), draw is drawn and rng.random() < 0.5
        dtype = "bfloat16" if form == "bfloat16" and rng.random() < 0.3 else "float32"
        balls = [run.ball(execution, dtype, biased) for execution in ("node", "fused")]
        for got, ball in itertools.product(run.results(unit, rng, biased), balls):
            stored = held(got, "bfloat16") if dtype == "bfloat16" else got
            yield leaves_ball(ball, stored)


@pytest.mark.parametrize("draw", list(FORMS))
def test_no_sum_leaves_its_radius(draw: Draw) -> None:
    """0 outside; data made against the bound come near it."""
    outcome = list(escapes(draw, range(60)))
    assert not any(out for out, _ in outcome)
    assert max(ratio for _, ratio in outcome) > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("draw", list(FORMS))
def test_long_hunt_of_tensor_cores(draw: Draw) -> None:
    assert not any(out for out, _ in escapes(draw, range(1000, 6000)))


# --- planted mistakes -------------------------------------------------------------------------------------------------


def low(rng: np.random.Generator, form: str) -> tuple[TensorCore, np.ndarray, np.ndarray, np.ndarray]:
    """A large factor times the smallest number, whose exponents stand for more than their product is, and products
    just below what is kept beside it.
    """
    meant, n = TensorCore(13, digits=14, terms=int(rng.choice((1, 32)))), int(rng.integers(2, 40))
    top, tiny = {"float8_e4m3fn": (8, -6), "float8_e5m2": (15, -14)}[form]
    x, w = np.full((2, n), 1.75 * 2.0 ** (top + tiny - 8)), np.full((1, n), 2.0**-6)
    x[:, 0], w[:, 0] = 1.75 * 2.0**top, 2.0 ** (tiny - SHORT[form].digits + 1)
    x[1] = -x[1]
    return meant, x, w, np.zeros(1, np.float32)


def smallest(rng: np.random.Generator, form: str) -> tuple[TensorCore, np.ndarray, np.ndarray, np.ndarray]:
    """Products below the accumulator's normal numbers."""
    meant, n = TensorCore(int(rng.integers(6, 26)), int(rng.integers(6, 25)), terms=1), int(rng.integers(2, 20))
    x, w = held(rng.normal(size=(6, n)) * 2.0**-70, form), held(rng.normal(size=(5, n)) * 2.0**-70, form)
    return meant, x, w, np.zeros(5, np.float32)


FORMS |= {low: ("float8_e4m3fn", "float8_e5m2"), smallest: ("bfloat16",)}


def _without_accumulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits that the accumulator loses from step to step are not counted."""
    right = TensorCore.growth
    monkeypatch.setattr(
        TensorCore, "growth", lambda self, *args: right(replace(self, digits=24, keep="nearest"), *args)
    )


def _without_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TensorCore.growth
    monkeypatch.setattr(TensorCore, "growth", lambda self, *args: right(replace(self, fraction=30), *args))


def _without_subnormal_exponents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_aligned_sizes", lambda a, op, parts: [p.size for p in parts])


def _without_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_lost_in_cores", lambda *args: 0.0)


UNITS: dict[str, Callable[[Unit], Unit]] = {
    "one place fewer than declared": lambda unit: replace(unit, fraction=unit.fraction - 1),
    "one digit fewer than declared": lambda unit: replace(unit, digits=unit.digits - 1),
}
BOUNDS: dict[str, tuple[Draw, Callable[[pytest.MonkeyPatch], None]]] = {
    "what the accumulator loses": (against, _without_accumulator),
    "what is cut in a step": (against, _without_alignment),
    "exponents of subnormal factors": (low, _without_subnormal_exponents),
    "what is lost at the smallest numbers": (smallest, _without_the_smallest),
}
COUNTS = {"steps of fewer products": {"terms": 8}, "a longer chain": {"chain": 4}}


@pytest.mark.parametrize("draw", [low, smallest])
def test_sums_of_small_numbers_stay(draw: Draw) -> None:
    assert not any(out for out, _ in escapes(draw, range(60)))


@pytest.mark.parametrize("mistake", list(UNITS))
def test_a_narrower_unit_is_seen(mistake: str) -> None:
    assert any(out for out, _ in escapes(against, range(60), UNITS[mistake]))


@pytest.mark.parametrize("mistake", list(BOUNDS))
def test_a_loss_that_is_not_counted_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, planted = BOUNDS[mistake]
    planted(monkeypatch)
    assert any(out for out, _ in escapes(draw, range(60)))


@pytest.mark.parametrize("mistake", list(COUNTS))
def test_more_steps_than_declared_are_seen(mistake: str) -> None:
    """The unit takes one product at a time, with one accumulator; more was declared."""

    def is_seen(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        meant, x, w, b = against(rng, "bfloat16")
        right = Run(replace(meant, terms=1), "bfloat16", x, w, b)
        wrong = replace(right, meant=replace(right.meant, **COUNTS[mistake]))
        unit = unit_of(right.meant, "bfloat16", rng)
        ball = wrong.ball("node", "float32", False)
        return any(leaves_ball(ball, got)[0] for got in right.results(unit, rng, False))

    assert any(map(is_seen, range(60)))


def test_a_mask_is_cut_too() -> None:
    """The lowest number as a mask swallows the products, and an accumulator of few digits cuts it."""
    mask = np.full((1, 1), np.finfo(np.float32).min)
    graph = sg.trace(lambda x, w, m: sg.linear(w, None, x) + m, (1, 4), (1, 4), (1, 1))
    meant = Arithmetic(operands="bfloat16", cores=TensorCore(13, digits=14))
    ball = radius(graph, np.ones((1, 4)), np.ones((1, 4)), mask, arithmetic=meant).outputs
    got = dot(
        Unit(13, 14), np.ones((1, 1, 4)), np.ones((1, 1, 4)), mask.astype(float), 1, None, np.random.default_rng(0)
    )
    assert got != mask
    assert ball.contains(got).all()
