"""The executor computes the network, by every way it knows, and merges, copies and folds as it says."""

from __future__ import annotations

from math import prod
from random import Random

import numpy as np
import pytest

import specgrad as sg
from executor import Setting, execute
from floats import FORMATS
from hunt import with_constants
from networks import KINDS, network
from program import Program
from terms import Factor, Literal

DOUBLE = Setting(FORMATS["float64"], FORMATS["float64"], flush=False)


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_way_computes_the_network(kind: str) -> None:
    """In float64 all executions are the specification's float64 value, but for their last digits."""
    for seed in range(2):
        found = network(seed, kind=kind)
        program = Program(found.graph, found.fixed)
        inputs = tuple(x.astype(float) for x in found.inputs)
        graph = with_constants(found.graph, lambda a: a.astype(float))
        leaves, scale = sg.tree.leaves(graph(*inputs)), 1e-9 * largest(program, inputs)
        for k in range(6):
            run = execute(program, found.inputs, DOUBLE, Random(f"{seed}/{k}"))
            for p, y in zip(found.graph.output_positions, leaves, strict=True):
                for version in run.values[p]:
                    assert np.allclose(np.array(version), np.asarray(y).ravel(), rtol=1e-9, atol=scale), kind


def largest(program: Program, inputs: tuple[np.ndarray, ...]) -> float:
    """Of all cells with every term in absolute value: what cancels is off by a digit of that."""
    graph, sizes = program.graph, dict[int, list[float]]()
    given = dict(zip(graph.input_positions, inputs, strict=True)) | dict(graph.constants)
    for i, node in enumerate(graph.nodes):
        if i in given:
            sizes[i] = [abs(float(v)) for v in given[i].flat]
        elif i in program.formulas:
            sizes[i] = [sum(prod(size(f, sizes) for f in t.factors) for t in cell) for cell in program.formulas[i]]
        else:
            sizes[i] = [max(max(sizes[a], default=0.0) for a in node.operands())] * prod(node.shape)
    return max(max(s, default=0.0) for s in sizes.values())


def size(f: Factor, sizes: dict[int, list[float]]) -> float:
    value = float(f.of.value) if isinstance(f.of, Literal) else sizes[f.of.node][f.of.index]
    return 1 / value if f.divides else value


def test_it_merges_and_reorders() -> None:
    """(x + c1) + c2 as x + (c1 + c2), in the model that allows it and not in the other."""
    big = np.float32([2.0**25])
    graph = sg.trace(lambda x: x + big - big, (1,))
    seen = {model: results(graph, np.float32([1.0]), model) for model in ("node", "fused")}
    assert seen == {"node": {0.0}, "fused": {0.0, 1.0}}


def test_it_copies_but_not_convolutions() -> None:
    """relu(v) - relu(v) for v = 0.1*x + 0.1, and for v a convolution."""
    x = np.float32([[[0.3, 1.7, 2.9, 0.7]]])
    plain = sg.trace(lambda x: sg.relu(x * 0.1 + 0.1) - sg.relu(x * 0.1 + 0.1) * 1.0, x.shape)
    shared = sg.trace(lambda x: (lambda r: r - r)(sg.relu(x * np.float32([0.1]) + np.float32([0.1]))), x.shape)
    conv = sg.trace(lambda x: (lambda r: r - r)(sg.relu(sg.conv(np.float32([[[0.1, 0.3, 0.7]]]), None, x))), x.shape)
    assert {any_difference(plain, x), any_difference(shared, x)} == {True}
    assert not any_difference(conv, x)


def any_difference(graph: sg.Graph, x: np.ndarray) -> bool:
    program, (out,) = Program(graph), graph.output_positions
    return any(np.any(execute(program, [x], Setting(), Random(k)).values[out]) for k in range(80))


def test_it_divides_by_reciprocals_and_flushes() -> None:
    tenths = np.arange(1, 100, dtype=np.float32) / np.float32(10)
    x = tenths[tenths / np.float32(49) != tenths * (np.float32(1) / np.float32(49))][:1]
    assert results(sg.trace(lambda x: x / 49.0, (1,)), x, "node") == {
        float(x[0] / np.float32(49)), float(x[0] * (np.float32(1) / np.float32(49)))
    }  # fmt: skip
    assert results(sg.trace(lambda x: x * 2.0**-10, (1,)), np.float32([2.0**-120]), "node") == {0.0, 2.0**-130}


def results(graph: sg.Graph, x: np.ndarray, model: str) -> set[float]:
    program, (out,) = Program(graph), graph.output_positions
    return {execute(program, [x], Setting(model=model), Random(k)).values[out][0][0] for k in range(60)}
