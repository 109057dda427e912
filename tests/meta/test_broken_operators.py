"""The laws reject operators that are wrong: each mutant below breaks one promise of a correct record."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import laws
import specgrad as sg
from specgrad import scalar
from specgrad.op import REGISTRY, Op, apply

pytestmark = pytest.mark.quick  # of `pytest -m quick`, under a minute in all

ORIGINAL = dict(REGISTRY)


def last_winner(x: Any, *, window: Any) -> Any:
    """Ties to the last."""
    y = ORIGINAL["max_pool"].spec(x, window=window)
    position = np.arange(int(np.prod(window.size))).reshape(window.size)
    index = np.full(y.shape, -1, dtype=np.int64)
    for tap in window.taps():
        equal = tap.read_inputs(x) == tap.read_outputs(y)
        tap.write_outputs(index, np.where(equal, tap.read_inputs(position), tap.read_outputs(index)))
    return index


def max_vjp_last(gy: Any, y: Any, args: Any, *, window: Any) -> Any:
    last = replace(ORIGINAL["winner"], spec=last_winner)
    return (sg.put(gy, apply(last, args[0], window=window), size=window.size),)


def spread_with_the_wrong_divisor(gy: Any, y: Any, args: Any, **params: Any) -> Any:
    return (apply(ORIGINAL["avg_spread"], gy, window=params["window"], divisor=1),)


def conv_without_flip(gy: Any, y: Any, args: Any, **params: Any) -> Any:
    """The gradient in x with the kernel reversed."""
    found = list(ORIGINAL["conv"].vjp(gy, y, args, **params))
    flipped = args[1][(..., *(slice(None, None, -1),) * params["window"].rank)]
    found[0] = apply(ORIGINAL["conv_transpose"], gy, flipped, **params)
    return tuple(found)


def leak_into_padding(gy: Any, *, window: Any, divisor: Any) -> Any:
    """The gradient of padded taps lands on the nearest cell inside."""
    gx = ORIGINAL["avg_spread"].spec(gy, window=window, divisor=divisor)
    gx[(..., *(0,) * window.rank)] += gy.sum()
    return gx


def shifted(x: Any, *, window: Any) -> Any:
    return np.roll(ORIGINAL["max_pool"].spec(x, window=window), 1, axis=-1)


def forgetful_scatter(gy: Any, i: Any, *, size: Any, empty: Any) -> Any:
    """put that overwrites instead of adding."""
    out = scalar.zeros(gy.shape[: gy.ndim - len(size)] + size, gy)
    flat = out.reshape(*gy.shape[: gy.ndim - len(size)], -1)
    where, values = i.reshape(*flat.shape[:-1], -1), gy.reshape(*flat.shape[:-1], -1)
    for k in np.ndindex(where.shape):
        if where[k] >= 0:
            flat[(*k[:-1], where[k])] = values[k]
    return out


def no_bias_tangent(y: Any, args: Any, dargs: Any, **params: Any) -> Any:
    return ORIGINAL["conv"].jvp(y, args, (dargs[0], dargs[1], *(None,) * (len(args) - 2)), **params)


def sum_of_taps(y: Any, args: Any, dargs: Any, *, window: Any, **_: Any) -> Any:
    return apply(ORIGINAL["avg_pool"], dargs[0], window=window, divisor=1)


def relu_passes_at_zero(gy: Any, y: Any, args: Any) -> Any:
    return (sg.select(sg.greater_equal(args[0], 0), gy, 0),)


def first_takes_the_tie(gy: Any, y: Any, args: Any) -> Any:
    first = sg.greater_equal(*args)
    return sg.select(first, gy, 0), sg.select(first, 0, gy)


def half_slope(y: Any, t: Any) -> Any:
    return sg.div(t, sg.mul(y, 4))


def wrong_shape(x: Any, *, axes: Any) -> Any:
    return (*ORIGINAL["sum"].shape(x, axes=axes), 1)


def unregistered(gy: Any, y: Any, args: Any) -> Any:
    return (apply(replace(ORIGINAL["neg"], name="secret"), gy),)


# mutant: (operator, what is broken, the law that must notice)
MUTANTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "ties to the last, in reverse only": ("max_pool", {"vjp": max_vjp_last}, "closure"),
    "divisor in the gradient only": ("avg_pool", {"vjp": spread_with_the_wrong_divisor}, "adjoint"),
    "kernel flipped in the gradient": ("conv", {"vjp": conv_without_flip}, "adjoint"),
    "gradient leaks from the padding": ("avg_spread", {"spec": leak_into_padding}, "adjoint"),
    "outputs shifted by one": ("max_pool", {"spec": shifted}, "dual"),
    "put overwrites": ("put", {"spec": forgetful_scatter}, "dual"),
    "tangent of the bias dropped": ("conv", {"jvp": no_bias_tangent}, "adjoint"),
    "pull without its exponent": ("smooth_max_pool", {"jvp": sum_of_taps}, "adjoint"),
    "relu'(0) = 1 in reverse only": ("relu", {"vjp": relu_passes_at_zero}, "adjoint"),
    "relu declared linear": ("relu", {"linear": "all"}, "linear"),
    "neg declared monotone": ("neg", {"monotone": (0,)}, "monotone"),
    "mul declared exact": ("mul", {"exact": True}, "exact"),
    "sum declared free of rounding": ("sum", {"roundings": lambda *_, **__: 0}, "roundings"),
    "shape rule off by one": ("sum", {"shape": wrong_shape}, "shape"),
    "sqrt with half its slope": (
        "sqrt",
        {"jvp": lambda y, _, d: half_slope(y, d[0]), "vjp": lambda gy, y, _: (half_slope(y, gy),)},
        "dual",
    ),
    "shared tie in forward, first in reverse": ("maximum", {"vjp": first_takes_the_tie}, "adjoint"),
    "a rule that leaves the registry": ("neg", {"vjp": unregistered}, "closure"),
}


def rejecting_law(op: Op, cases: int = 40) -> str | None:
    for seed in range(cases):
        rng = Random(f"{op.name}/{seed}")
        case = op.cases(rng)
        for name, law in laws.LAWS.items():
            try:
                law(op, case, rng)
            except (AssertionError, ValueError):
                return name
    return None


@pytest.mark.parametrize("mutant", list(MUTANTS))
def test_mutants_are_rejected_by_the_right_law(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, changes, law = MUTANTS[mutant]
    broken = replace(REGISTRY[name], **changes)
    monkeypatch.setitem(REGISTRY, name, broken)
    assert rejecting_law(broken) == law


def test_the_original_operators_pass() -> None:
    for name in {name for name, *_ in MUTANTS.values()}:
        assert rejecting_law(REGISTRY[name], cases=20) is None, name


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("avg_pool", {"readers": lambda x, *, window, divisor: 1}),
        ("sum", {"readers": lambda x, *, axes: 0}),
        ("max_pool", {"spec": lambda x, *, window: 2 * REGISTRY["max_pool"].spec(x, window=window)}),
        ("maximum", {"spec": lambda a, b: REGISTRY["maximum"].spec(a, b) + REGISTRY["maximum"].spec(a, b)}),
    ],
)
def test_wrong_promises_of_what_moves_are_seen(name: str, wrong: dict) -> None:
    broken = replace(REGISTRY[name], **wrong)

    def seen(seed: int) -> bool:
        rng = Random(seed)
        try:
            laws.check_moves(broken, broken.cases(rng), rng)
        except AssertionError:
            return True
        return False

    assert any(map(seen, range(40)))
