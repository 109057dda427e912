"""R, the roundings that a term may meet, counted a third time: in the trees that the executor really runs.

Each execution knows how often its terms were rounded since their region began. Neither the rounding rules nor the
replay may allow less than that: a count that is too small is seen here whatever the numbers are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

import specgrad as sg
from claims import MODELS, Hunted, arithmetic, random_slopes
from executor import Setting, execute
from networks import KINDS, network
from specgrad.graph.ir.node import bind_inputs


def counted_by_rules(graph: sg.Graph, inputs: Any, setting: Setting) -> dict[int, int]:
    from specgrad.bounds.interval_bounds import box_context, propagate

    run = box_context(graph, True, arithmetic(setting), "numpy")
    balls, _ = propagate(graph, bind_inputs(graph, inputs), run)
    return {i: b.expansion.count.total for i, b in enumerate(balls) if b.expansion is not None}


def counted_by_replay(graph: sg.Graph, x: np.ndarray, setting: Setting) -> dict[int, int]:
    from specgrad.proof.base.rationals import ReplayError
    from specgrad.proof.exact.replay import ExecutionModel, Replay

    slopes = random_slopes(graph, np.random.default_rng(0))
    try:
        proof = Replay(graph, x, x, slopes, model=ExecutionModel.of(setting.model, setting.rounding))
    except (ReplayError, sg.UnsupportedError):
        return {}
    return {i: r.sum.roundings.total for i, r in enumerate(proof.ranges) if r.sum is not None}


class Count(NamedTuple):
    """Of one node in one execution: what somebody allows, and what there was."""

    who: str
    where: str
    allowed: int
    met: int


def counts(seeds: range, setting: Setting, ways: int) -> list[Count]:
    found = []
    for seed in seeds:
        drawn = network(seed)
        hunted = Hunted(drawn, setting, Random(seed))
        claims = {"rules": counted_by_rules(drawn.graph, drawn.inputs, setting)}
        if len(drawn.inputs) == 1 and len(drawn.graph.output_positions) == 1:
            claims["replay"] = counted_by_replay(drawn.graph, drawn.inputs[0], setting)
        for k in range(ways):
            here = execute(hunted.program, drawn.inputs, setting, Random(f"{seed}/{k}")).met
            for who, allowed in claims.items():
                found += [
                    Count(who, f"{drawn.kind}/{seed} {drawn.graph.nodes[i].name}", allowed[i], here[i])
                    for i in here.keys() & allowed.keys()
                ]
    return found


def shortfalls(seeds: range, setting: Setting, ways: int) -> tuple[list[Count], int]:
    """Where somebody allows less than there was, and how many counts were compared."""
    found = counts(seeds, setting, ways)
    return [c for c in found if c.allowed < c.met], len(found)


@cache
def of_every_kind(model: str) -> list[Count]:
    """Four executions of a network of every kind."""
    return counts(range(len(KINDS)), replace(Setting(), model=model), 4)


@pytest.mark.parametrize("model", MODELS)
def test_nobody_counts_fewer_roundings(model: str) -> None:
    pytest.importorskip("flint")
    found = of_every_kind(model)
    assert not [c for c in found if c.allowed < c.met]
    assert len(found) > 250


@pytest.mark.parametrize("model", MODELS)
def test_one_rounding_less_is_caught(model: str) -> None:
    """In the rules and in the replay, in networks of most kinds: the counts are met by some execution."""
    pytest.importorskip("flint")
    found = of_every_kind(model)
    seen = {(c.who, c.where.split("/")[0]) for c in found if c.allowed - 1 < c.met}
    assert len({kind for who, kind in seen if who == "rules"}) >= 15
    assert len({kind for who, kind in seen if who == "replay"}) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_nobody_counts_fewer_roundings_in_many_networks(model: str) -> None:
    pytest.importorskip("flint")
    problems, compared = shortfalls(range(1000, 1560), replace(Setting(), model=model), 8)
    print(model, compared)
    assert not problems
