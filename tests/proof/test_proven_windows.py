"""The question that `--proven` asks, of windows of every kind: cells against another reading of the saved graph."""

from __future__ import annotations

import json
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("safetensors")
pytest.importorskip("torch")

import drawn_windows
import leaves
import second_checker
import specgrad as sg
from proven_program import needed
from second_network import Network
from specgrad.bounds import Box, crown
from specgrad.bounds.search.certificates.prove import prove
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.extracted.scalar_network import ScalarNetwork
from specgrad.proof.files.certificate import check, sealed
from specgrad.properties.property import Alternative, Case, Property
from test_proven import accepted, evaluated

WINDOWED = range(40)


def differences(graph: sg.Graph, seed: int) -> int:
    """Cells of the output that are not what the second checker's reading of the saved graph gives, over rationals."""
    rng = np.random.default_rng(seed)
    x = np.float32(rng.integers(-16, 17, graph.nodes[graph.input_positions[0]].shape) / 8)
    try:
        net = ScalarNetwork(graph, x, x)
    except ReplayError as error:  # two averages in a row
        if "combined divisors" in str(error):
            return 0
        raise
    values = evaluated(net, [Fraction(float(v)) for v in x.ravel()])
    outputs = [values[c - 1] for c in net.output.ravel().tolist()]
    return sum(abs(a - b) > Fraction(1, 2**90) for a, b in zip(outputs, second_values(graph, x), strict=True))


def second_values(graph: sg.Graph, x: np.ndarray) -> list[Fraction]:
    """Node by node, cell by cell, as second_network reads the file: no index of ours."""
    with tempfile.TemporaryDirectory() as folder:
        sg.save(graph, Path(folder) / "net.json")
        net = Network(*second_checker.load(Path(folder) / "net.json"))
    values: list[list[Fraction]] = []
    for node in net.nodes:
        if node.kind == "input":
            values.append([Fraction(float(v)) for v in x.ravel()])
        elif node.kind == "constant":
            values.append(list(node.values.ravel()))
        elif node.kind == "max":
            values.append([max(values[node.argument][c] for _, c in taps) for taps in node.taps])
        elif node.kind == "relu":
            values.append([max(Fraction(0), v) for v in values[node.argument]])
        else:
            each = zip(node.sums, node.constants, strict=True)
            values.append([sum((values[a][c] * f for a, c, f, _ in terms), b) for terms, b in each])
    return values[net.output]


def test_cells_are_the_network_through_windows() -> None:
    graphs = [deployed_graph(leaves.windowed(seed)) for seed in WINDOWED]
    assert drawn_windows.kinds(graphs, ("max_pool",)) >= drawn_windows.KINDS | drawn_windows.RANKS
    assert drawn_windows.kinds(graphs, ("avg_pool",)) >= drawn_windows.KINDS | drawn_windows.RANKS | {"empty"}
    assert [differences(graph, seed) for seed, graph in enumerate(graphs)] == [0] * len(graphs)


@needed
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5, 10])
def test_it_accepts_and_refuses_through_windows(seed: int) -> None:
    """What nothing reaches by much is accepted; what a point of the box reaches is not, whatever the lines."""
    given = leaves.case(seed, width=1.0, of=leaves.windowed)
    graph, shape = deployed_graph(given.graph), given.low.shape
    rng = np.random.default_rng(seed)
    points = [np.float32(np.where(rng.integers(0, 2, shape), given.high, given.low)) for _ in range(20)]
    reached = min(sum(int(r) * v for r, v in zip(given.row, second_values(graph, x), strict=True)) for x in points)
    row = given.row[None].astype(float)
    (bound,) = crown(graph, Box(given.low, given.high), objective=row).low
    ends = (tuple(Fraction(float(v)) for v in end.ravel()) for end in (given.low, given.high))
    below = Alternative(row, (Fraction(float(bound)) - Fraction(1, 10),))
    proof = prove(graph, Property(given.low.size, 2, (Case(*ends, (below,)),)))
    assert accepted(proof.text, proof.packed, graph)
    data = json.loads(proof.text)
    data["cases"][0]["alternatives"][0]["limits"] = [str(reached)]
    data.pop("digest")
    assert not accepted(sealed(data, proof.packed), proof.packed, graph)
    with pytest.raises(ReplayError, match="not excluded"):
        check(sealed(data, proof.packed), proof.packed, graph)


@pytest.mark.parametrize("divisor", [3, -2, 7])
def test_averages_by_a_number_have_cells(divisor: int) -> None:
    """The specification adds the number to a zero of what it computes with: here, of cells."""
    graph = deployed_graph(sg.trace(lambda x: sg.avg_pool(x, (2,), divisor=divisor), (1, 4)))
    assert differences(graph, 0) == 0


def test_products_of_computed_values_are_refused() -> None:
    graph = deployed_graph(sg.trace(lambda x: x * x, (2,)))
    with pytest.raises(ReplayError, match=r"no rule for node|products of two computed values"):
        ScalarNetwork(graph, np.float32([0, 0]), np.float32([1, 1]))
