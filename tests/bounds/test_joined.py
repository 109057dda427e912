"""Several inputs, outputs and networks, and inequalities that name inputs: exact values, and no false proof."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

pytest.importorskip("torch")

import specgrad as sg
from slices import each
from specgrad.bounds.search.certificates.prove import NoCertificateError, prove
from specgrad.bounds.search.certify import certify
from specgrad.bounds.search.network.merged_network import NamedNetwork, joined
from specgrad.bounds.search.network.pgd_attack import DeployedNetwork, Effort, attack
from specgrad.bounds.search.query import certify_query
from specgrad.bounds.search.statement.problem import question_of
from specgrad.errors import ParameterError, ShapeError
from specgrad.properties.interface import PropertyInterface
from specgrad.properties.property import Property
from specgrad.properties.vnnlib import read_text

W = np.float32([[1, 2], [3, -4]])
BOTH = sg.trace(lambda x, z: (sg.relu(x + z), x - z), (2,), (1, 2))
F = sg.trace(lambda x: sg.relu(sg.linear(W, None, x)), (2,))
G = sg.trace(lambda x: sg.relu(sg.linear(W + np.float32(2**-10), None, x)), (2,))


def at(graph: sg.Graph, x: list[Fraction]) -> list[Fraction]:
    """The exact values of a graph, its weights taken at theirs."""
    exact = replace(graph, constants={i: a if a.dtype.kind == "i" else sg.exact(a) for i, a in graph.constants.items()})
    return list(exact(sg.exact(x)))


def declared(inputs: int, outputs: int) -> str:
    names = [f"{n}_{i}" for n, k in (("X", inputs), ("Y", outputs)) for i in range(k)]
    return "".join(f"(declare-const {n} Real)" for n in names)


# --- the graph --------------------------------------------------------------------------------------------------------


def test_joined_values_are_those_of_the_networks() -> None:
    """Over fractions: cells chosen, networks one after the other, variables behind them."""
    rng = Random(0)
    for _ in range(20):
        variables = tuple(rng.randrange(4) for _ in range(6))
        variables = tuple(sorted(set(variables)).index(v) for v in variables)
        count = max(variables) + 1
        seen = tuple(sorted(rng.sample(range(count), rng.randint(0, count))))
        graph = joined([NamedNetwork("f", BOTH), NamedNetwork("g", F)], PropertyInterface(variables, seen))
        x = [Fraction(rng.randint(-9, 9), 4) for _ in range(count)]
        cells = [x[v] for v in variables]
        first = [max(cells[i] + cells[2 + i], 0) for i in range(2)] + [cells[i] - cells[2 + i] for i in range(2)]
        second = [max(sum(int(w) * c for w, c in zip(row, cells[4:], strict=True)), 0) for row in W]
        assert at(graph, x) == [*first, *second, *(x[v] for v in seen)]


def test_one_input_and_one_output_are_left_as_they_are() -> None:
    asked = question_of(F, ([1.0, 0.5], 0, 0.25))
    assert [n.op.name for n in asked.graph.nodes] == [n.op.name for n in F.nodes]
    assert not asked.is_joined


def test_whole_numbers_are_refused() -> None:
    graph = sg.trace(lambda x, i: sg.gather(x, i, axis=0), (2,), sg.Index((2,)))
    with pytest.raises(ParameterError, match="input 'i' holds whole numbers"):
        certify(graph, read_text(declared(4, 2) + "(assert (<= Y_0 0))" + box(4)))


def box(count: int, low: float = 0, high: float = 1) -> str:
    return "".join(f"(assert (>= X_{i} {low}))(assert (<= X_{i} {high}))" for i in range(count))


# --- several inputs ---------------------------------------------------------------------------------------------------


def test_around_several_inputs() -> None:
    """At x = (1/2, 1), z = (1/8, 1/4): y = (5/8, 5/4, 3/8, 3/4). Output 1 leads by 1/2, until eps = 1/4 or 1/8."""
    for x in ({"z": [[0.125, 0.25]], "x": [0.5, 1.0]}, ([0.5, 1.0], [[0.125, 0.25]])):
        assert certify(BOTH, (x, 1, Fraction(12, 100))).verdict == "holds"
        verdict = certify(BOTH, (x, 1, Fraction(13, 100)))  # x_1 + z_1 - (x_1 - z_1) = 2*z_1: 1/2 at first, 0 at 1/4
        assert verdict.verdict == ("violated" if _broken(Fraction(13, 100)) else "holds")
        verdict = certify(BOTH, (x, 1, Fraction(26, 100)))
        assert verdict.verdict == "violated"
        point = verdict.counterexample
        assert point is not None
        assert {n: a.shape for n, a in point.named.items()} == {"x": (2,), "z": (1, 2), "relu": (1, 2), "sub": (1, 2)}
        assert point.confirmed == ("torch", "onnxruntime")
        for name, middle in (("x", [0.5, 1.0]), ("z", [0.125, 0.25])):
            away = [
                abs(Fraction(float(a)) - Fraction(b)) for a, b in zip(point.named[name].ravel(), middle, strict=True)
            ]
            assert max(away) <= Fraction(26, 100)


def _broken(eps: Fraction) -> bool:
    """By hand: another output reaches output 1 where 4*eps >= 1/2 + 1/8 + ..., corner by corner."""
    for signs in itertools.product((-1, 1), repeat=4):
        a, b, c, d = (Fraction(v) + s * eps for v, s in zip((0.5, 1, 0.125, 0.25), signs, strict=True))
        y = [max(a + c, 0), max(b + d, 0), a - c, b - d]
        if max(y[0], y[2], y[3]) >= y[1]:
            return True
    return False


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="x must hold arrays x, z; got x"):
        certify(BOTH, ({"x": [0.5, 1.0]}, 1, 0.1))
    with pytest.raises(ShapeError, match=r"x must hold arrays x, z of shapes \[\(2,\), \(1, 2\)\]; got \(2,\), \(1,\)"):
        certify(BOTH, (([0.5, 1.0], [0.1]), 1, 0.1))
    with pytest.raises(
        ShapeError, match=r"the property has 3 inputs; the network's inputs have shapes \[\(2,\), \(1, 2\)"
    ):
        certify(BOTH, read_text(declared(3, 4) + box(3) + "(assert (<= Y_0 0))"))


def test_onnx_files_with_several_inputs(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from specgrad.interop import to_onnx

    onnx.save(to_onnx(BOTH), tmp_path / "both.onnx")
    stated = tmp_path / "p.vnnlib"
    stated.write_text(declared(4, 4) + box(4) + "(assert (>= (- Y_0 Y_2) 2.125))")  # 2*z_0, at most 2
    assert certify(str(tmp_path / "both.onnx"), stated).verdict == "holds"
    stated.write_text(declared(4, 4) + box(4) + "(assert (>= (- Y_0 Y_2) 1.875))")
    verdict = certify(str(tmp_path / "both.onnx"), stated)
    assert verdict.verdict == "violated"
    assert verdict.counterexample is not None
    assert verdict.counterexample.confirmed == ("torch", "onnxruntime")
    assert set(verdict.to_json()["counterexample"]["named"]) >= {"x", "z"}


# --- inequalities that name inputs ------------------------------------------------------------------------------------


def test_a_simplex() -> None:
    """x_0 + x_1 + z_0 + z_1 <= 1, none negative: y_0 = x_0 + z_0 reaches 1, and no more."""
    text = declared(4, 4) + "".join(f"(assert (>= X_{i} 0))" for i in range(4)) + "(assert (<= (+ X_0 X_1 X_2 X_3) 1))"
    assert certify(BOTH, read_text(text + "(assert (>= Y_0 1.001))")).verdict == "holds"
    verdict = certify(BOTH, read_text(text + "(assert (>= Y_0 0.99))"))
    assert verdict.verdict == "violated"
    assert verdict.counterexample is not None
    assert sum(Fraction(float(v)) for v in verdict.counterexample.x) <= 1


def test_outputs_beside_inputs() -> None:
    """relu(x_0 + 2*x_1) - x_0 - 2*x_1 is 0 where x is not negative."""
    text = declared(2, 2) + box(2)
    beyond = "(assert (>= Y_0 (+ X_0 (* 2 X_1) {})))"
    assert certify(F, read_text(text + beyond.format("0.00001"))).verdict == "holds"
    assert certify(F, read_text(text + beyond.format("-0.00001"))).verdict == "violated"


def test_certificates_are_refused_by_name() -> None:
    stated = read_text(declared(2, 2) + box(2) + "(assert (>= Y_0 (+ X_0 (* 2 X_1) 1)))")
    assert certify(F, stated).verdict == "holds"
    with pytest.raises(NoCertificateError, match="several inputs, outputs or networks"):
        prove(F, stated)


def random_network(rng: np.random.Generator, inputs: int) -> sg.Graph:
    w, v = (rng.integers(-4, 5, s).astype(np.float32) / 2 for s in ((6, inputs), (2, 6)))
    return sg.trace(lambda x: sg.linear(v, None, sg.relu(sg.linear(w, None, x))), (inputs,))


def worst_on_the_grid(graph: sg.Graph, rows: list[tuple[list[int], int]], inputs: int) -> Fraction | None:
    """The largest y_0 over points of a grid that satisfy rows.x <= k, exactly."""
    cells = [Fraction(k, 4) for k in range(5)]
    points = [x for x in itertools.product(cells, repeat=inputs)
              if all(sum(c * v for c, v in zip(row, x, strict=True)) <= k for row, k in rows)]  # fmt: skip
    values = [at(graph, list(x))[0] for x in points]
    return max(values, default=None)


@pytest.mark.parametrize("seed", each(3, 6))
def test_what_holds_holds_on_the_set_and_attacks_stay_in_it(seed: int) -> None:
    """Limits just above and just below what exact values on a grid of the set reach."""
    rng, plain = np.random.default_rng(seed), Random(seed)
    graph = random_network(rng, 3)
    rows = [([plain.randint(-2, 2) for _ in range(3)], plain.randint(0, 2)) for _ in range(2)]
    rows = [(r, k) for r, k in rows if sum(map(bool, r)) > 1]
    most = worst_on_the_grid(graph, rows, 3)
    if most is None:
        pytest.skip("no point of the grid is in the set")
    text = declared(3, 2) + box(3)
    for row, k in rows:
        text += "(assert (<= (+ " + " ".join(f"(* {c} X_{i})" for i, c in enumerate(row)) + f") {k}))"
    below = read_text(text + f"(assert (>= Y_0 {float(most) - 2**-10}))")
    verdict = certify(graph, below, seconds=20)
    assert verdict.verdict != "holds"
    for stated in (below, read_text(text + f"(assert (>= Y_0 {float(most) + 2**-10}))")):
        point = attack_of(graph, stated)
        if point is not None:
            x = [Fraction(float(v)) for v in point]
            assert all(0 <= v <= 1 for v in x)
            assert all(sum(c * v for c, v in zip(row, x, strict=True)) <= k for row, k in rows)


def attack_of(graph: sg.Graph, stated: Property) -> np.ndarray | None:
    asked = question_of(graph, stated)
    network = DeployedNetwork(asked.graph)
    for case in asked.stated.cases:
        point = attack(network, case, Effort(starts=4, steps=30))
        if point is not None:
            return point.x.ravel()
    return None


def test_a_set_that_is_too_small_is_caught() -> None:
    """The planted mistake: x_0 + x_1 <= 1/2 in place of 1. What it proves is false, and the grid shows it."""
    text = declared(2, 2) + box(2)
    right, wrong = (text + f"(assert (<= (+ X_0 X_1) {k}))(assert (>= Y_0 1.5))" for k in ("1", "0.5"))
    assert certify(F, read_text(wrong)).verdict == "holds"
    most = worst_on_the_grid(F, [([1, 1], 1)], 2)
    assert most is not None
    assert most >= Fraction(3, 2)  # relu(x_0 + 2*x_1) at (0, 1) is 2
    assert certify(F, read_text(right)).verdict == "violated"


# --- two networks -----------------------------------------------------------------------------------------------------

QUERY = """(vnnlib-version <2.0>)
(declare-network f (declare-input X float32 [2]) (declare-output Y float32 [2]))
(declare-network g (isomorphic-to f) (declare-input V float32 [2]) (declare-output Z float32 [2]))
(assert (and (>= X[0] 0.0) (<= X[0] 1.0) (>= X[1] 0.0) (<= X[1] 1.0)))
(assert (and (== V[0] X[0]) (== V[1] X[1])))
"""


def test_two_networks_of_one_input(tmp_path: Path) -> None:
    """z_0 - y_0 = (x_0 + x_1)/1024, at most 1/512."""
    pytest.importorskip("vnnlib")
    stated = tmp_path / "q.vnnlib"
    stated.write_text(QUERY + "(assert (>= (- Z[0] Y[0]) 0.001954))")
    assert certify_query(stated, {"f": F, "g": G}).verdict == "holds"
    assert certify_query(stated, {"f": G, "g": F}).verdict == "holds"
    stated.write_text(QUERY + "(assert (>= (- Z[0] Y[0]) 0.001952))")
    verdict = certify_query(stated, {"f": F, "g": G})
    assert verdict.verdict == "violated"
    assert verdict.counterexample is not None
    named = verdict.counterexample.named
    assert list(named) == ["X", "Y", "V", "Z"]
    assert named["X"].tolist() == named["V"].tolist()
    assert verdict.counterexample.confirmed == ("torch", "onnxruntime")
    assert certify_query(stated, {"f": G, "g": F}).verdict == "holds"


def test_monotone(tmp_path: Path) -> None:
    """A network is compared with itself: relu(x_0 + 2*x_1) does not fall where x grows; relu(3*x_0 - 4*x_1) does."""
    pytest.importorskip("vnnlib")
    text = QUERY.replace("isomorphic-to", "equal-to").replace("(== V[0] X[0]) (== V[1] X[1])", "{}")
    grows = "(>= V[0] X[0]) (>= V[1] X[1]) (<= V[0] 1.0) (<= V[1] 1.0)"
    stated = tmp_path / "q.vnnlib"
    stated.write_text(text.format(grows) + "(assert (>= Y[0] (+ Z[0] 0.001)))")
    assert certify_query(stated, {"f": F}).verdict == "holds"
    assert certify(F, stated).verdict == "holds"
    stated.write_text(text.format(grows) + "(assert (>= Y[1] (+ Z[1] 0.001)))")
    verdict = certify_query(stated, {"f": F})
    assert verdict.verdict == "violated"
    assert verdict.counterexample is not None
    x, v, y, z = (verdict.counterexample.named[n].astype(float) for n in "XVYZ")
    assert (v >= x).all()
    assert y[1] >= z[1] + 0.001


def test_networks_that_do_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("vnnlib")
    stated = tmp_path / "q.vnnlib"
    stated.write_text(QUERY + "(assert (>= (- Z[0] Y[0]) 0.001954))")
    for networks, message in (
        ({"f": F}, "the property needs networks f, g; got f"),
        ({"f": F, "h": F}, "the property needs networks f, g; got f, h"),
        ({"f": F, "g": BOTH}, r"network g: the property declares inputs V \[2\]; the model has \[\(2,\), \(1, 2\)\]"),
    ):
        with pytest.raises((ParameterError, ShapeError), match=message):
            certify_query(stated, networks)
    with pytest.raises(ParameterError, match="the property needs networks f, g; got none"):
        certify(F, stated)
