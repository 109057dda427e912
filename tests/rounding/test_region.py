"""R, the roundings that a term may meet, against all ways of merging a small region, counted one by one.

A way of merging is a choice of the nodes whose results are kept; every other node is taken into those that read it, and
what lies between kept ones is one sum. Its coefficients are formed node by node, and their roundings are counted cell
by cell along the true pattern of zeros, as are the distinct terms.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from specgrad.proof.exact.rounding_counts import CONSTANT
from specgrad.proof.exact.rounding_counts import RoundingCount as CheckerCount
from specgrad.proof.exact.rounding_counts import count_after_node as checker_count_after_node
from specgrad.proof.exact.rounding_counts import region_input as checker_region_input
from specgrad.rounding.fusion_region import RegionNode, RoundingCount, count_after_node, region_input


@dataclass(frozen=True)
class Step:
    """A node of a region: a map (cells, cells) of each argument, 0 where a cell is not read; roundings of one cell.
    Without any it lays cells of its arguments side by side.
    """

    args: tuple[int, ...]
    maps: tuple[np.ndarray, ...]
    constant: bool  # one more term, added
    own: int
    cellwise: bool
    spread: int


def region(rng: np.random.Generator, cells: int, length: int, inputs: int) -> list[Step]:
    """Sums, products with constants, matrices full or thin, concatenations; the first nodes, `inputs` of them, are what
    the region reads.
    """
    steps: list[Step] = []
    kinds = ["add", "bias", "mul", "matrix", "thin"] + ["beside", "matrix", "thin"] * 2 * (inputs > 1)
    for i in range(inputs, inputs + length):
        one = np.eye(cells, dtype=bool)
        first, other = (int(k) for k in rng.integers(0, i, 2))
        kind = rng.choice(kinds)
        if kind == "beside":
            args = tuple(dict.fromkeys(int(k) for k in rng.integers(0, i, 3)))
            whose = rng.integers(0, len(args), cells)
            steps.append(Step(args, tuple(one & (whose == k)[:, None] for k in range(len(args))), False, 0, True, 1))
        elif kind == "add":
            steps.append(Step((first, other), (one, one), False, 1, True, 1))
        elif kind == "bias":
            steps.append(Step((first,), (one,), True, 1, True, 1))
        elif kind == "mul":
            steps.append(Step((first,), (one,), False, 1, True, 1))
        else:
            pattern = np.ones((cells, cells), dtype=bool) if kind == "matrix" else one | np.roll(one, 1, 1)
            steps.append(Step((first,), (pattern,), False, int(pattern.sum(1).max()), False, cells))
    return steps


# --- our counts -------------------------------------------------------------------------------------------------


def by_rounding(steps: list[Step], cells: int, inputs: int) -> list[int]:
    counts: list[RoundingCount] = [region_input(k, cells) for k in range(inputs)]
    for i, s in enumerate(steps, inputs):
        parts = [counts[a] for a in s.args] + [RoundingCount()] * s.constant
        reads = 1 if s.cellwise else s.own + 1
        counts.append(count_after_node(parts, s.own, node=RegionNode(i, cells, reads, s.spread), depth=None))
    return [c.total for c in counts[inputs:]]


def by_checker(steps: list[Step], cells: int, inputs: int) -> list[int]:
    found: list[CheckerCount] = [checker_region_input(k, cells) for k in range(inputs)]
    for i, s in enumerate(steps, inputs):
        args = {a: found[a] for a in s.args} | ({-1: CONSTANT} if s.constant else {})
        found.append(checker_count_after_node(args, s.own, s.cellwise, i, cells, s.spread))
    return [m.total for m in found[inputs:]]


# --- every way of merging, by brute force -----------------------------------------------------------------------


def worst(steps: list[Step], cells: int, kept: frozenset[int], inputs: int) -> int:
    """The most roundings of a term of the last node, where the nodes `kept` and the last are computed, each as one sum.

    Of a part: coefficients[k] is (cells, cells of node k) with the roundings of each coefficient, -1 for none.
    """
    met, last = dict.fromkeys(range(inputs), 0), len(steps) + inputs - 1
    for end in sorted(kept | {last}):
        met[end] = _met_of(steps, cells, end, kept, inputs, met)
    return met[last]


def _met_of(steps: list[Step], cells: int, end: int, kept: frozenset[int], inputs: int, met: dict[int, int]) -> int:
    """The most roundings that a term of node `end` meets, given those of the kept nodes before."""
    step = steps[end - inputs]
    if step.own == 0:  # a cell of one of its arguments
        read = [a for a, pattern in zip(step.args, step.maps, strict=True) if pattern.any()]
        return max(met[a] if a in met else _met_of(steps, cells, a, kept, inputs, met) for a in read)
    coefficients, units, constants, merged = _expanded(steps, cells, end, kept, inputs)
    if len(merged) == 1:  # its constants as they are
        return max(met[k] for k in coefficients) + step.own
    terms = sum((c >= 0).sum(1) for c in coefficients.values()) + constants
    each = {k: met[k] + c.max(1) + terms - 1 + ((c >= 0) & ~units[k]).any(1) for k, c in coefficients.items()}
    return max(int(each[k][(c >= 0).any(1)].max(initial=0)) for k, c in coefficients.items())


Arrays = dict[int, np.ndarray]


def _expanded(
    steps: list[Step], cells: int, end: int, kept: frozenset[int], inputs: int
) -> tuple[Arrays, Arrays, np.ndarray, list[int]]:
    """The node `end` over kept nodes: coefficients' roundings, which ones are 1, additive constants, and the roundings
    of the nodes that were merged, layout apart.
    """
    units: Arrays = {end: np.eye(cells, dtype=bool)}  # by 1 nothing is multiplied
    coefficients: Arrays = {end: np.where(units[end], 0, -1)}
    constants, merged = np.zeros(cells, int), []
    for i in range(end, inputs - 1, -1):
        if i not in coefficients or (i != end and i in kept):
            continue
        step, outer, unit = steps[i - inputs], coefficients.pop(i), units.pop(i)
        merged += [step.own] * (step.own > 0)
        constants = constants + step.constant * (outer >= 0).sum(1)
        ones = step.cellwise and (step.constant or len(step.args) == 2 or step.own == 0)
        for a, pattern in dict(zip(step.args, step.maps, strict=True)).items():  # y + y doubles, which is exact
            part, one = _times(outer, unit, pattern, ones)
            if a in coefficients:
                one = np.where(part < 0, units[a], one) & ~((part >= 0) & (coefficients[a] >= 0))
                part = _plus(coefficients[a], part)
            coefficients[a], units[a] = part, one
    return coefficients, units, constants, merged


def _times(outer: np.ndarray, unit: np.ndarray, pattern: np.ndarray, ones: bool) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients through one more node: a rounding per product, unless one factor is 1, and per addition."""
    ways = (outer >= 0).astype(int) @ pattern.astype(int)
    each = np.where(outer[:, :, None] >= 0, outer[:, :, None] + ~(unit[:, :, None] | ones), -1)
    deepest = np.where(pattern[None], each, -1).max(1)
    return np.where(ways > 0, deepest + ways - 1, -1), (unit @ pattern) & (ways == 1) & ones


def _plus(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    both = (a >= 0) & (b >= 0)
    return np.where(both, np.maximum(a, b) + 1, np.maximum(a, b))


def left_over(seed: int, inputs: int = 1) -> int:
    """R less the most that any way of merging meets; the checker must count the same R."""
    rng = np.random.default_rng(seed)
    cells, length = int(rng.integers(1, 5)), int(rng.integers(1, 7))
    steps = region(rng, cells, length, inputs)
    ours = by_rounding(steps, cells, inputs)
    assert ours == by_checker(steps, cells, inputs)
    middle = range(inputs, inputs + length - 1)
    ways = (k for count in range(length) for k in itertools.combinations(middle, count))
    return ours[-1] - max(worst(steps, cells, frozenset(kept), inputs) for kept in ways)


def test_no_way_of_merging_meets_more() -> None:
    """And many regions attain it: R is not merely large."""
    found = [left_over(seed) for seed in (*range(150), 812)]
    assert min(found) >= 0
    assert found.count(0) > len(found) / 3


@pytest.mark.parametrize("inputs", [2, 3])
def test_values_side_by_side_add_up(inputs: int) -> None:
    """What reads several cells of a concatenation adds the terms of all of them up."""
    found = [left_over(seed, inputs) for seed in range(150)]
    assert min(found) >= 0
    assert found.count(0) > len(found) / 5


def test_sums_side_by_side_that_are_added() -> None:
    """Two sums of 100 numbers are one of 200."""
    sums = [count_after_node([region_input(k, 100)], 99, node=RegionNode(k + 2, 1, 100), depth=None) for k in (0, 1)]
    both = count_after_node(sums, 0, node=RegionNode(4, 2), depth=None)
    assert both.total == 99
    assert count_after_node([both], 1, node=RegionNode(5, 1, 2), depth=None).total >= 199


@pytest.mark.slow
def test_no_way_of_many_meets_more() -> None:
    assert min(map(left_over, range(20_000))) >= 0
    assert min(left_over(seed, inputs) for inputs in (2, 3) for seed in range(10_000)) >= 0


def test_one_sum_may_be_added_onto_another() -> None:
    """Two convolutions of one x: the second is added, term by term, onto the first. No flat sum of them has as many."""
    x = region_input(0, 16)
    both = [count_after_node([x], 16, node=RegionNode(k, 16, 17, 16), depth=None) for k in (1, 2)]
    assert count_after_node(both, 1, node=RegionNode(3, 16), depth=None).total >= 16 + 16


def test_a_plain_maximum_would_be_too_small() -> None:
    """1,600 inputs whose coefficients are folded from 9 products: a term meets more than 1,600 roundings."""
    x = region_input(0, 1600)
    first = count_after_node([x], 576, node=RegionNode(1, 400, 577, 400), depth=None)
    both = count_after_node([first], 9, node=RegionNode(2, 400, 10, 400), depth=None)
    assert both.total >= 1600 + 9
    assert first.total == 576


def test_doubling_adds_no_terms() -> None:
    y = region_input(0, 1)
    for k in range(12):
        y = count_after_node([y, y], 1, node=RegionNode(k + 1, 1), depth=None)
    assert y.total == 12


def test_a_known_depth_limits_every_sum() -> None:
    x = region_input(0, 4608)
    assert count_after_node([x], 4608, node=RegionNode(1, 1, 4609), depth=293).total == 293
