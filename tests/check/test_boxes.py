"""Radii of graphs cropped to boxes against radii of whole graphs, and against executions of whole graphs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import laws
import specgrad as sg
from slices import slices as parts
from specgrad.check.conform.error_boxes import REACH_FURTHER, error_boxes
from specgrad.graph.graph import CONSTANT, Graph
from specgrad.graph.ir.node import bind_inputs
from specgrad.op import REGISTRY, Op, apply
from specgrad.partition.cell_lines import cell_line
from specgrad.partition.cropped_graph import crop_to_boxes
from specgrad.partition.spatial_axes import box_rules
from specgrad.rounding import Arithmetic, Ball, radius
from specgrad.window.footprint import Box, BoxRule, slices

sys.path += [str(Path(__file__).parents[1] / name) for name in ("hunt", "scale")]

import tiled_networks
from claims import Setting, arithmetic, leaves_ball
from executor import execute
from networks import network
from program import Program

ARITHMETICS = [Arithmetic(), Arithmetic(execution="node"), Arithmetic("bfloat16", accumulate="float32")]
SAME = 1 - 1e-9  # of our own roundings: a cropped graph adds up the same numbers in another order


def cropped_ball(graph: Graph, given: Any, box: Box, settings: Arithmetic, rules: dict[int, BoxRule]) -> Ball:
    """The ball of the first output on a box, from a graph of that box alone."""
    (end, *_) = graph.output_positions
    cut = crop_to_boxes(graph, rules, {end: box})
    arrays = bind_inputs(graph, tuple(given)) | dict(graph.constants)
    read = {p: np.asarray(arrays[p])[slices(cut.needs[p])] for p in cut.needs if p not in cut.cuts}
    constants = {p: a for p, a in read.items() if graph.nodes[p].op is CONSTANT}
    small = cut.graph_with_constants(constants)
    (ball,) = radius(small, *(read[p] for p in sorted(graph.input_positions) if p in read), arithmetic=settings).outputs
    return ball


def check_contains(small: Ball, large: Ball, where: Any) -> None:
    """A ball of a box holds what the whole's ball holds there, wherever the whole says anything."""
    known = np.isfinite(large.radius) & np.isfinite(large.value)
    assert small.value.shape == large.value.shape
    if large.value.dtype.kind == "i":
        assert (small.value == large.value)[known].all(), where
        return
    with np.errstate(all="ignore"):
        apart = np.abs(small.value - large.value) + large.radius * SAME - small.radius
        allowed = 1e-12 * np.abs(large.value) + 1e-30
    bad = known & (apart > allowed) & ~np.isinf(small.radius)
    assert not bad.any(), (
        where,
        small.radius[bad][:3],
        large.radius[bad][:3],
        small.value[bad][:3],
        large.value[bad][:3],
    )


def on(ball: Ball, box: Box) -> Ball:
    return Ball(ball.value[slices(box)], ball.radius[slices(box)])


def operator_graph(op: Op, seed: int) -> tuple[Graph, list[np.ndarray]]:
    args, params = op.cases(Random(f"boxes/{op.name}/{seed}"))
    given = [a if a.dtype.kind == "i" else a.astype(np.float32) for a in map(np.asarray, args)]
    return sg.trace(lambda *xs: apply(op, *xs, **params), *given), given


def check_operator(op: Op, seed: int, rules: Any = error_boxes) -> None:
    graph, given = operator_graph(op, seed)
    rng = Random(seed)
    for settings in ARITHMETICS:
        ball = radius(graph, *given, arithmetic=settings).outputs
        for _ in range(3):
            box = laws.random_box(ball.shape, rng)
            small = cropped_ball(graph, given, box, settings, rules(graph))
            check_contains(small, on(ball, box), (op.name, seed, box, settings.dtype, settings.execution))


@pytest.mark.parametrize("seeds", parts(5, 200))
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_balls_of_boxes_hold_what_balls_of_the_whole_hold(name: str, seeds: Iterable[int]) -> None:
    for seed in seeds:
        check_operator(REGISTRY[name], seed)


@pytest.mark.parametrize("name", REACH_FURTHER)
def test_an_error_that_reaches_further_than_the_value_is_noticed(name: str) -> None:
    """With the boxes of the value alone some ball of a box is narrower than the whole's."""
    with pytest.raises(AssertionError):
        [check_operator(REGISTRY[name], seed, box_rules) for seed in range(60)]


# --- compositions -----------------------------------------------------------------------------------------------------


def tiled(seed: int) -> tuple[Graph, list[np.ndarray]]:
    """A random network of windows, skips, shuffles and resizes, its weights constants; and numbers of full length."""
    rng = Random(f"composed/{seed}")
    graph = tiled_networks.network(rng)
    numbers = np.random.default_rng(seed)
    return graph, [numbers.normal(size=graph.nodes[p].shape).astype(np.float32) for p in graph.input_positions]


def check_network(graph: Graph, given: Any, seed: int, rules: Any = error_boxes) -> None:
    """By node, where a count of roundings is that of the operator. A fused region counts the terms that a cell has, and
    at a border these are fewer: there executions decide (below).
    """
    rng, settings = Random(seed), Arithmetic(execution="node")
    first = radius(graph, *given, arithmetic=settings).outputs
    ball = first if graph.single else first[0]
    for _ in range(4):
        box = laws.random_box(ball.shape, rng)
        small = cropped_ball(graph, given, box, settings, rules(graph))
        check_contains(small, on(ball, box), (seed, box))


@pytest.mark.parametrize("seeds", parts(10, 300))
def test_boxes_of_random_networks(seeds: Iterable[int]) -> None:
    for seed in seeds:
        check_network(*tiled(seed), seed)


def narrowed(graph: Graph) -> dict[int, BoxRule]:
    """Rules of which every windowed one forgets the last cell of what it needs: the planted mistake."""

    def short(rule: BoxRule) -> Any:
        class Short(BoxRule):
            def on(self, box: Box, without_ends: Any = ()) -> Any:
                cut = rule.on(box, without_ends)
                first, *others = cut.args
                moved = tuple((a - 1, b - 1) if a > 0 else (a, b) for a, b in first)
                return cut._replace(args=(moved, *others))

        return Short(rule.axes, rule.args, rule.params, rule.open)

    rules = error_boxes(graph)
    return {p: short(r) if graph.nodes[p].op.name in ("conv", "max_pool") else r for p, r in rules.items()}


def test_a_wrong_footprint_is_noticed() -> None:
    with pytest.raises(AssertionError):
        [check_network(*tiled(seed), seed, narrowed) for seed in range(20)]


def execution_on_boxes(seed: int, settings: Setting, rules: Any = error_boxes) -> int:
    """How many boxes of a random network have an execution of the whole network outside of the box' own ball."""
    found, rng = network(seed), Random(f"boxes/{seed}")
    graph, (end, *_) = found.graph, found.graph.output_positions
    program = Program(graph, found.fixed)
    escapes = 0
    for _ in range(3):
        box = laws.random_box(graph.nodes[end].shape, rng)
        if any(a == b for a, b in box):
            continue
        ball = cropped_ball(graph, found.inputs, box, arithmetic(settings), rules(graph))
        run = execute(program, found.inputs, settings, rng)
        escapes += sum(leaves_ball(ball, run.array(end, v)[slices(box)])[0] for v in range(len(run.values[end])))
    return escapes


@pytest.mark.parametrize("model", ["fused", "node"])
@pytest.mark.parametrize("seeds", parts(40, 2000))
def test_executions_of_the_whole_stay_in_balls_of_boxes(seeds: Iterable[int], model: str) -> None:
    for seed in seeds:
        assert execution_on_boxes(seed, Setting(model=model)) == 0, seed


# --- positions along free axes ----------------------------------------------------------------------------------------


def lines_of(graph: Graph) -> list[bool]:
    end = graph.output_positions[0]
    return [cell_line(graph, error_boxes(graph), end, axis) is not None for axis in range(len(graph.nodes[end].shape))]


@pytest.mark.parametrize(
    ("net", "shapes", "free"),
    [
        (lambda x, w: sg.contract(x, w, "ab,bc->ac"), ((5, 4), (4, 7)), [True, True]),
        (lambda x: sg.softmax(x, 1), ((5, 4),), [True, False]),
        (lambda x: x + sg.permute(x, (1, 0)), ((4, 4),), [False, False]),
        (lambda x: x * sg.sum(x, (0,), keepdims=True), ((4, 3),), [False, True]),
        (lambda x: sg.reshape(x, (6, 2)), ((2, 3, 2),), [False, True]),
        (lambda x: x[:, :2], ((3, 4),), [True, True]),
        (lambda x: x[:, 1:], ((3, 4),), [True, False]),
        (lambda x: sg.cumsum(x, 1), ((3, 4),), [True, False]),
        (lambda x: sg.concat([x, x], axis=0), ((3, 4),), [False, True]),
    ],
)
def test_which_axes_go_cell_by_cell(net: Any, shapes: Any, free: list[bool]) -> None:
    assert lines_of(sg.trace(net, *shapes)) == free
