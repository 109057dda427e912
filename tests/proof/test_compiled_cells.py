"""The proven compiler's cells are those that Python multiplies out: programs that share no code, on drawn graphs."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("safetensors")

import specgrad as sg
from proven_program import needed
from slices import slices
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.executions import Executions
from specgrad.proof.extracted import run_checker
from specgrad.proof.extracted.encode import CheckerInput
from specgrad.proof.extracted.scalar_network import ScalarNetwork
from specgrad.proof.files.certificate import CaseProof

Drawn = tuple[sg.Graph, set[str]]
MOST_CELLS = 400


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Some of them 0, 1, large or no short number."""
    drawn = rng.choice([0, 1, -1, 0.5, 3, 0.1, 1e4, 2.0**-30], shape) * rng.choice([1, 1, -1, 0.75], shape)
    return np.float32(drawn)


def layer(rng: np.random.Generator, x: Any, used: set[str]) -> Any:
    """Any operator that the compiler has, on a value of shape (1, channels, cells)."""
    _, c, n = np.shape(x)
    name = str(rng.choice(STEPS))
    used.add(name)
    stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 2))
    match name:
        case "conv":
            groups = int(rng.choice([g for g in (1, 2, 3) if c % g == 0]))
            k, dilation = int(rng.integers(1, 4)), int(rng.integers(1, 3))
            bias = weights(rng, 2 * groups) if rng.random() < 0.5 else None
            w = weights(rng, 2 * groups, c // groups, k)
            wide = 0 if n > (k - 1) * dilation and rng.random() < 0.5 else 3
            return sg.conv(w, bias, x, stride=stride, padding=wide, dilation=dilation, groups=groups)
        case "conv_transpose":
            bias = weights(rng, 2) if rng.random() < 0.5 else None
            return sg.conv_transpose(weights(rng, c, 2, 2), bias, x, stride=stride)
        case "avg_pool" if n > 1:
            divisor = rng.choice(["padded", "inside", "4"])
            counts = {"divisor": 4} if divisor == "4" else {"count_include_pad": divisor == "padded"}
            return sg.avg_pool(x, (2,), stride=(stride,), padding=padding, **counts)
        case "max_pool" if n > 1:
            return sg.max_pool(x, (2,), stride=(stride,), padding=padding)
        case "adaptive":
            return sg.adaptive_max_pool(x, (int(rng.integers(1, n + 1)),))
        case "relu":
            return sg.relu(x)
        case "clamp":
            return sg.clamp(x, -1, 2)
        case "twice":
            return x + sg.relu(x)
        case "less":
            return sg.relu(x) - x
        case "add":
            return x + weights(rng, 1, c, n)
        case "minus":
            return sg.neg(x) + 0.5 if rng.random() < 0.5 else weights(rng, 1, c, n) - x
        case "scale":
            return x * weights(rng, 1, c, n)
        case "turn":
            return sg.permute(x, (0, 2, 1))
        case "flat":
            return sg.reshape(x, (1, 1, c * n))
        case "cut":
            return x[:, :, :: 2 if n > 1 else 1]
        case "pad":
            return sg.pad(x, [(0, 0), (0, 1), (1, 0)])
        case "beside":
            return sg.concat([x, sg.relu(x)], axis=1)
        case "wide":
            return sg.broadcast(x[:, :, :1], (1, c, 3))
        case _:
            return sg.reshape(sg.linear(weights(rng, 3, c * n), weights(rng, 3), sg.reshape(x, (1, c * n))), (1, 1, 3))


STEPS = (
    *("conv", "conv_transpose", "avg_pool", "max_pool", "adaptive", "relu", "clamp", "twice", "less", "add", "minus"),
    *("scale", "turn", "flat", "cut", "pad", "beside", "wide", "linear"),
)


def drawn(seed: int) -> Drawn:
    rng, used = np.random.default_rng(seed), set[str]()

    def network(x: Any) -> Any:
        for _ in range(int(rng.integers(1, 7))):
            y = layer(rng, x, used)
            x = y if np.prod(np.shape(y)) <= MOST_CELLS else x
        return x

    graph = deployed_graph(sg.trace(network, (1, int(rng.integers(1, 4)), int(rng.integers(3, 7)))))
    return graph, used


def question(graph: sg.Graph) -> CheckerInput | None:
    """The graph on a box, with nothing to prove; None if there are no words for it."""
    shape = graph.nodes[graph.input_positions[0]].shape
    ends = np.full(shape, -1, np.float32), np.full(shape, 1, np.float32)
    asked = CheckerInput(graph, CaseProof(*ends, ()), Executions())
    return asked if asked.compiled else None


Cell = tuple[Any, ...]


def cells_of_program(text: str) -> list[Cell] | None:
    """What the proven program compiles, a tuple per cell; None if it does not compile the graph."""
    done = subprocess.run([run_checker.program(), "--cells"], input=text, text=True, capture_output=True, check=True)
    *lines, answer = done.stdout.splitlines()
    if answer == "none":
        return None
    return [cell_of([int(word) for word in line.split()[1:]]) for line in lines]


def cell_of(words: list[int]) -> Cell:
    kind, *rest = words
    if kind != 1:
        return kind, *(tuple(number(*rest[:2])) if kind == 0 else rest)
    blur, rounds, spread, once, *products = number(*rest[:2]), rest[2], number(*rest[3:5]), rest[5], *rest[6:]
    each = (products[i : i + 4] for i in range(0, len(products), 4))
    terms = sorted((source, *number(m, e), shared) for m, e, source, shared in each if m)
    return 1, blur, rounds, spread, once, tuple(terms)


def number(m: int, e: int) -> tuple[int, int]:
    """In one form: m odd, or 0."""
    while m and m % 2 == 0:
        m, e = m // 2, e + 1
    return (m, e) if m else (0, 0)


def cells_of_python(graph: sg.Graph) -> list[Cell]:
    shape = graph.nodes[graph.input_positions[0]].shape
    net = ScalarNetwork(graph, np.full(shape, -1, np.float32), np.full(shape, 1, np.float32))
    cells: list[Cell] = []
    for cell in net.cells:
        if cell.kind == "input":
            cells.append((0, *number(int(cell.ends[0]), 0)) if cell.ends else ())
        elif cell.kind == "sum":
            terms = sorted((c or 0, *number(*w), int(shared)) for w, c, shared in cell.products if w[0])
            blur = (1, -120) if cell.blurred else (0, 0)
            cells.append((1, blur, cell.roundings, number(1, cell.spread), int(cell.once), tuple(terms)))
        else:
            cells.append(({"relu": 2, "max": 3, "bend": 4}[cell.kind], *cell.sources))
    return cells


def compared(seed: int) -> tuple[str, set[str]]:
    """What became of a drawn graph: "same"; "none"; "wider", as slices may count more roundings and share less; or how
    a cell differs. Spreads may be smaller than in Python, where a padded 0 is 0 times some cell, with its factors.
    """
    graph, used = drawn(seed)
    asked = question(graph)
    compiled = None if asked is None else cells_of_program(asked.text)
    if compiled is None:
        return "none", used
    multiplied = cells_of_python(graph)
    if any(a[3] > b[3] for a, b in zip(compiled, multiplied, strict=True) if a[0] == 1):
        return f"seed {seed}: larger spreads compiled", used
    compiled, multiplied = ([without_spread(c) for c in cells] for cells in (compiled, multiplied))
    if compiled == multiplied:
        return "same", used
    if len(compiled) == len(multiplied) and all(map(is_wider, compiled, multiplied)) and used & {"cut", "wide"}:
        return "wider", used
    pair = next((a, b) for a, b in zip(compiled, multiplied, strict=False) if a != b)
    return f"seed {seed}: {pair[0]} compiled, {pair[1]} multiplied out", used


def is_wider(a: Cell, b: Cell) -> bool:
    """Whether all executions of cell b are some of cell a."""
    if a == b or a[0] != 1 or b[0] != 1:
        return a == b
    same_terms = [t[:3] for t in a[5]] == [t[:3] for t in b[5]]
    shared = same_terms and all(s[3] <= t[3] for s, t in zip(a[5], b[5], strict=True))
    return shared and a[2] >= b[2] and a[4] <= b[4] and Fraction(2) ** a[3][1] >= Fraction(2) ** b[3][1]


def without_spread(cell: Cell) -> Cell:
    return cell if cell[0] != 1 else (*cell[:3], (1, 0), *cell[4:])


@cache
def all_compared(seeds: range) -> list[tuple[str, set[str]]]:
    return [compared(seed) for seed in seeds]


@needed
def test_factors_that_cancel_count_in_the_spread() -> None:
    """2^14 and then 2^-20 leave 2^-6, whose products may be as large as 2^14; so may those of a 0."""
    first, second = np.float32([[2.0**14], [2.0**14]]), np.float32([[2.0**-20, 0]])
    graph = deployed_graph(sg.trace(lambda x: sg.linear(second, None, sg.linear(first, None, x)), (1, 1)))
    asked = question(graph)
    assert asked is not None
    (_, total) = cells_of_program(asked.text) or ()
    assert (total[3], [t[:3] for t in total[5]]) == ((1, 14), [(1, 1, -6)])


@needed
@pytest.mark.parametrize("seeds", slices(60, 10_000))
def test_compiled_cells_are_those_multiplied_out(seeds: range) -> None:
    results = all_compared(seeds)
    assert [r for r, _ in results if r not in ("same", "wider", "none")] == []
    assert sum(r == "none" for r, _ in results) < len(results) / 3
    compiled = set[str]().union(*(used for r, used in results if r != "none"))
    assert compiled == {*STEPS}


@needed
def test_a_sum_of_many_terms_is_answered() -> None:
    """A mean over 100 cells of convolutions of 8 channels and 9x9 taps: 64,800 products, one call inside the other."""
    w = np.ones((1, 8, 9, 9), np.float32)
    graph = deployed_graph(sg.trace(lambda x: sg.avg_pool(sg.conv(w, None, x), (10, 10), divisor=128), (1, 8, 18, 18)))
    asked = question(graph)
    assert asked is not None
    assert run_checker.answers([asked]) == [(True, True)]
