"""Random networks: tiles equal one run over the whole, bit for bit, on integers; what a plan predicts is what runs."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.scale import Plan, tiles
from specgrad.window.axis_maps import AxisPart, Windowed
from tiled_networks import EXACT, network

DEFAULT, ALL = 60, 1200  # of 100 up to twelve are left out, since at so few cells one window may be the whole axis


def listed(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def whole_and_tiles(seed: int) -> tuple[Any, Any] | None:
    """Results of one run, and of tiles of random size; None where float64 may round, or a layer reads everything."""
    rng = Random(seed)
    graph = network(rng)
    shape = graph.nodes[graph.input_positions[0]].shape
    x = torch.tensor([rng.randint(-3, 3) for _ in range(math.prod(shape))], dtype=torch.float64).reshape(shape)
    module = sg.compile(graph, "torch")
    whole = listed(module(x))
    if max(float(v.abs().max()) for v in (*whole, *listed(module(x.abs())))) > EXACT:
        return None
    try:
        cells = tiles(graph, 1).cells
    except sg.UnsupportedError:
        return None
    plan = tiles(graph, tuple(rng.randint(max(1, n // 5), n) for n in cells))
    results = [torch.full(v.shape, torch.nan, dtype=v.dtype) for v in whole]
    for t in plan:
        boxes = (t.box,) if graph.single else t.box
        for out, box, value in zip(results, boxes, listed(t(x[t.reads])), strict=True):
            assert out[box].isnan().all()  # each cell once
            out[box] = value
    alike_as_said(plan)
    return whole, results


def alike_as_said(plan: Plan) -> None:
    """Tiles that share a graph need what they would need on their own."""
    alone = [plan.cut(*where) for where in product(*map(range, plan.counts))]
    for t, cut in zip(plan, alone, strict=True):
        assert t.cut.key == cut.key
        assert t.needs == {p: cut.needs[p] for p in cut.leaves}
    assert plan.multiply_adds == sum(cut.multiply_adds for cut in alone)
    assert {cut.key for cut in alone} == {t.cut.key for t, _ in plan.kinds} == {k for k, *_ in plan.programs.compiled}
    assert plan.peak_bytes == plan.weight_bytes + 4 * max(cut.peak_cells for cut in alone)


def check(seeds: range) -> int:
    """How many networks were compared."""
    count = 0
    for seed in seeds:
        pair = whole_and_tiles(seed)
        if pair is not None:
            count += 1
            assert all(torch.equal(a, b) for a, b in zip(*pair, strict=True)), seed
    return count


@pytest.mark.parametrize("part", [pytest.param(0, marks=pytest.mark.quick), 1, 2])
def test_tiles_are_the_whole(part: int) -> None:
    assert check(range(part * DEFAULT // 3, (part + 1) * DEFAULT // 3)) > 15


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_tiles_are_the_whole_on_a_thousand_networks(part: int) -> None:
    assert check(range(DEFAULT + part * ALL // 10, DEFAULT + (part + 1) * ALL // 10)) >= 100


def gradients(seed: int) -> tuple[Any, Any, float] | None:
    """Of a random cotangent: by the whole graph, by tiles, and how far apart; None as above, and where large."""
    rng = Random(seed)
    graph = network(rng)
    shape = graph.nodes[graph.input_positions[0]].shape
    x = torch.tensor([rng.randint(-3, 3) for _ in range(math.prod(shape))], dtype=torch.float64).reshape(shape)
    try:
        cells = tiles(graph, 1).cells
    except sg.UnsupportedError:
        return None
    plan = tiles(graph, tuple(rng.randint(max(1, n // 3), n) for n in cells))
    gys = [torch.from_numpy(np.random.default_rng(seed).integers(-1, 2, graph.nodes[p].shape).astype(float))
           for p in graph.output_positions]  # fmt: skip
    whole = sg.compile(sg.vjp(graph), "torch")(x, *gys)[-1]
    if float(whole.abs().max()) > 2.0**30:
        return None
    rounds = any(node.op.name == "avg_pool" for node in graph.nodes)  # thirds of a cotangent are no floats
    return whole, plan.vjp(x, *gys)[0], 1e-13 * float(whole.abs().max()) if rounds else 0.0


@pytest.mark.parametrize("count", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_gradients_by_tiles_are_those_of_the_whole(count: int) -> None:
    pairs = [pair for seed in range(count) if (pair := gradients(seed)) is not None]
    assert len(pairs) > count / 2
    assert all(float((a - b).abs().max()) <= allowed for a, b, allowed in pairs)
    assert sum(allowed == 0 for *_, allowed in pairs) > len(pairs) / 2


def test_padding_in_place_of_a_cell_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Windowed.part

    def wrong(self: Windowed, o: int, p: int) -> AxisPart:
        part = right(self, o, p)
        (a, b), local = part.need, part.local
        if b - a == 1 or b == self.axis.size:
            return part
        return part._replace(need=(a, b - 1), local=replace(local, size=local.size - 1, hi=local.hi + 1))

    monkeypatch.setattr(Windowed, "part", wrong)
    with pytest.raises(AssertionError):
        check(range(30))
