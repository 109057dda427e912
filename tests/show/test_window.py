"""Pictures of windows against brute force over plain integers and fractions."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg


def case(rng: Random) -> dict[str, Any]:
    """A random window of one or two axes that fits, and a random operator."""
    rank = rng.choice((1, 1, 2))
    operator = rng.choice(("max_pool", "avg_pool", "conv"))
    while True:
        given = {
            "size": tuple(rng.randint(1, 7) for _ in range(rank)),
            "kernel": tuple(rng.randint(1, 3) for _ in range(rank)),
            "stride": tuple(rng.randint(1, 3) for _ in range(rank)),
            "padding": tuple((rng.randint(0, 2), rng.randint(0, 2)) for _ in range(rank)),
            "dilation": tuple(rng.randint(1, 2) for _ in range(rank)),
            "ceil": operator != "conv" and rng.random() < 0.4,
            "operator": operator,
        }
        spans = [e * (k - 1) + 1 for e, k in zip(given["dilation"], given["kernel"], strict=True)]
        room = [n + sum(p) for n, p in zip(given["size"], given["padding"], strict=True)]
        if all(s <= r for s, r in zip(spans, room, strict=True)):
            return given


def outs(given: dict[str, Any]) -> list[int]:
    """[W3]: floor; or ceil, and then no last window that begins in the high padding."""
    sizes = []
    axes = zip(given["size"], given["kernel"], given["stride"], given["padding"], given["dilation"], strict=True)
    for n, k, s, (lo, hi), e in axes:
        begins = [o * s for o in range(n + lo + hi + 1) if o * s + e * (k - 1) + 1 <= n + lo + hi]
        if given["ceil"]:
            hangs_over = begins[-1] + e * (k - 1) + 1 < n + lo + hi
            begins += [begins[-1] + s] * hangs_over
            del begins[len(begins) - (begins[-1] >= n + lo) :]  # the last alone, as PyTorch does
        sizes.append(len(begins))
    return sizes


@pytest.mark.parametrize("seed", range(60))
def test_what_is_shown_is_what_brute_force_finds(seed: int) -> None:
    given = case(Random(seed))
    p = sg.show_window(**given)
    size, kernel, operator = given["size"], given["kernel"], given["operator"]
    assert list(p.window.out) == outs(given)
    gx = {c: Fraction(0) for c in itertools.product(*map(range, size))}
    weights = dict(zip(itertools.product(*map(range, kernel)), itertools.count(1)))
    for o in itertools.product(*map(range, outs(given))):
        taps = {}
        for t in itertools.product(*map(range, kernel)):
            steps = zip(given["stride"], o, given["dilation"], t, given["padding"], strict=True)
            taps[t] = tuple(s * i + e * j - lo for s, i, e, j, (lo, _) in steps)
        assert {r.tap: r.position for r in p.reads(o)} == taps
        inside = {t: c for t, c in taps.items() if c in gx}
        padded = [
            all(-lo <= i < n + hi for i, n, (lo, hi) in zip(c, size, given["padding"], strict=True))
            for c in taps.values()
        ]
        assert [r.kind != "beyond" for r in p.reads(o)] == padded
        assert [r.kind == "input" for r in p.reads(o)] == [c in gx for c in taps.values()]
        if operator == "max_pool":
            best = max(inside.values(), key=lambda c: p.x[c], default=None)  # the first of the largest
            assert p.winners[o] == best
            shares = {t: Fraction(c == best) for t, c in inside.items()}
        elif operator == "avg_pool":
            shares = {t: Fraction(1, sum(padded)) for t in inside}
        else:
            shares = {t: Fraction(weights[t]) for t in inside}
        assert {r.tap: r.share for r in p.reads(o) if r.kind == "input"} == shares
        assert p.y[o] == sum(share * p.x[inside[t]] for t, share in shares.items())
        for t, share in shares.items():
            gx[inside[t]] += share * p.gy[o]
    assert {c: p.gx[c] for c in gx} == gx
    assert ET.fromstring(p.svg).tag.endswith("svg")
    assert all(line == line.rstrip() for line in str(p).splitlines())
    json.dumps(p.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"size": 7, "kernel": 3, "stride": 2}, "floor((7 + 0 + 0 - 3) / 2) + 1 = 3"),
        ({"size": 8, "kernel": 3, "stride": 2, "ceil": True}, "ceil((8 + 0 + 0 - 3) / 2) + 1 = 4"),
        (
            {"size": 2, "kernel": 1, "padding": 1, "stride": 3, "ceil": True},
            "floor((2 + 1 + 1 - 1) / 3) + 1 = 2, less 1",
        ),
    ],
)
def test_how_many_outputs_there_are_is_counted(given: dict[str, Any], text: str) -> None:
    p = sg.show_window(**given)
    assert text in p.counted
    assert text in p.svg
    assert (
        p.window.out[0]
        == outs(
            {"padding": 0, "ceil": False}
            | given
            | {
                "size": (given["size"],),
                "kernel": (given["kernel"],),
                "stride": (given["stride"],),
                "dilation": (1,),
                "padding": ((given.get("padding", 0),) * 2,),
            }
        )[0]
    )


def test_a_nan_wins_and_is_shown() -> None:
    p = sg.show_window(3, 2, stride=1, values=[1.0, np.nan, 2.0])
    assert p.winners == {(0,): (1,), (1,): (1,)}
    assert "[nan]*" in str(p)
    assert ">nan<" in p.svg


def test_values_weights_and_cotangents_are_taken_exactly() -> None:
    p = sg.show_window(2, 2, operator="conv", values=[0.1, 1], weights=[Fraction(1, 3), 2], cotangents=[-1])
    assert p.y[0] == Fraction(0.1) / 3 + 2
    assert list(p.gx) == [Fraction(-1, 3), -2]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"size": 100, "kernel": 3}, "show_window: draws up to 40 cells on an axis; got size=(100,)"),
        ({"size": 7, "kernel": 3, "padding": 30}, "draws up to 40 cells on an axis, padding included; got 67"),
        ({"size": (7, 7, 7), "kernel": 3}, "size must be one number or two; got (7, 7, 7)"),
        ({"size": 3, "kernel": 7}, "show_window [W2]: window of 7 cells does not fit 3 + 0 + 0 input cells on axis 0"),
        ({"size": 7, "kernel": 3, "operator": "sum"}, "operator must be one of max_pool, avg_pool, conv; got 'sum'"),
        ({"size": 7, "kernel": 3, "values": [1, 2]}, "values must be 7 numbers; got 2"),
        ({"size": 2, "kernel": 1, "values": ["a", "b"]}, "values must be numbers; got ['a', 'b']"),
        ({"size": 7, "kernel": 3, "weights": [1, 2, 3]}, "max_pool has no weights"),
        ({"size": 7, "kernel": 3, "operator": "conv", "ceil": True}, "conv has no ceil"),
        ({"size": 7, "kernel": 3, "output": 5}, "output (5,) is no output; their shape is (2,)"),
        ({"size": 7, "kernel": 3, "stride": 0}, "stride must be at least 1"),
    ],
)
def test_what_cannot_be_drawn_is_said(given: dict[str, Any], text: str) -> None:
    with pytest.raises(sg.SpecgradError) as error:
        sg.show_window(**given)
    assert text in str(error.value)


def test_a_picture_is_small() -> None:
    assert len(sg.show_window(7, 3, stride=2, padding=1).svg) < 20_000
    assert len(sg.show_window((8, 8), 3, stride=2, padding=1).svg) < 80_000
