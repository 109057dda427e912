"""R, the roundings that a term may meet, counted a third time: in the trees that the executor really runs.

Each execution knows how often its terms were rounded since their region began. Neither the rounding rules nor the
replay may allow less than that: a count that is too small is seen here whatever the numbers are.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from claims import MODELS, Hunted, arithmetic, random_slopes
from executor import Setting, execute
from networks import network
from specgrad.graph.ir.interpreter import bind_inputs


def counted_by_rules(graph: sg.Graph, inputs: Any, setting: Setting) -> dict[int, int]:
    from specgrad.bounds.interval_bounds import box_context, propagate

    run = box_context(graph, True, arithmetic(setting), "numpy")
    balls, _ = propagate(graph, bind_inputs(graph, inputs), run)
    return {i: b.expansion.count.total for i, b in enumerate(balls) if b.expansion is not None}


def counted_by_replay(graph: sg.Graph, x: np.ndarray, setting: Setting) -> dict[int, int]:
    from specgrad.proof.base.rationals import ReplayError
    from specgrad.proof.exact.replay import Model, Replay

    slopes = random_slopes(graph, np.random.default_rng(0))
    try:
        proof = Replay(graph, x, x, slopes, model=Model.of(setting.model, setting.rounding))
    except (ReplayError, sg.UnsupportedError):
        return {}
    return {i: r.sum.met.total for i, r in enumerate(proof.ranges) if r.sum is not None}


def shortfalls(seeds: range, setting: Setting, ways: int, less: int = 0) -> tuple[list[str], int]:
    """Where somebody counts less than there was, and how many counts were compared.

    less    a planted mistake: so many are taken from each count
    """
    problems, compared = [], 0
    for seed in seeds:
        drawn = network(seed)
        hunted = Hunted(drawn, setting, Random(seed))
        claims = {"rules": counted_by_rules(drawn.graph, drawn.inputs, setting)}
        if len(drawn.inputs) == 1 and len(drawn.graph.output_positions) == 1:
            claims["replay"] = counted_by_replay(drawn.graph, drawn.inputs[0], setting)
        for k in range(ways):
            here = execute(hunted.program, drawn.inputs, setting, Random(f"{seed}/{k}")).met
            for who, counts in claims.items():
                common = here.keys() & counts.keys()
                compared += len(common)
                problems += [
                    f"{who} {drawn.kind}/{seed} {drawn.graph.nodes[i].name}: {counts[i]} < {here[i]}"
                    for i in common
                    if counts[i] - less < here[i]
                ]
    return problems, compared


@pytest.mark.parametrize("model", MODELS)
def test_nobody_counts_fewer_roundings(model: str) -> None:
    pytest.importorskip("flint")
    problems, compared = shortfalls(range(56), replace(Setting(), model=model), 4)
    assert not problems
    assert compared > 500


@pytest.mark.parametrize("model", MODELS)
def test_one_rounding_less_is_caught(model: str) -> None:
    """In the rules and in the replay, in networks of most kinds: the counts are met by some execution."""
    pytest.importorskip("flint")
    problems, _ = shortfalls(range(56), replace(Setting(), model=model), 4, less=1)
    seen = {tuple(p.split("/")[0].split()) for p in problems}
    assert len({kind for who, kind in seen if who == "rules"}) >= 15
    assert len({kind for who, kind in seen if who == "replay"}) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_nobody_counts_fewer_roundings_in_many_networks(model: str) -> None:
    pytest.importorskip("flint")
    problems, compared = shortfalls(range(1000, 1560), replace(Setting(), model=model), 8)
    print(model, compared)
    assert not problems
