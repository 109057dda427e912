"""Verdicts: right where the answer is known, sound where splits and multipliers are arbitrary, as a user types them."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from competition import VERIVITAL, needs_shared
from pace import ENDS, stretched
from slices import counts
from specgrad.properties.property import Alternative, Case, Property

torch = pytest.importorskip("torch")

from specgrad.bounds.search.certify import certify  # noqa: E402
from specgrad.bounds.search.neuron_split.subproblems import Bounder, root_forward  # noqa: E402


def dense_network(rng: np.random.Generator, width: int = 8) -> tuple[sg.Graph, float]:
    """Two inputs, two hidden layers, two outputs; and a Lipschitz constant of y0 - y1 for the largest norm."""
    w = [rng.normal(size=s).astype(np.float32) / 2 for s in ((width, 2), (width, width), (2, width))]
    b = [rng.normal(size=s).astype(np.float32) / 2 for s in (width, width, 2)]

    def net(x: Any) -> Any:
        for k in range(2):
            x = sg.relu(sg.linear(w[k], b[k], x))
        return sg.linear(w[2], b[2], x)

    slope = np.abs(w[2][0] - w[2][1]) @ np.abs(w[1]) @ np.abs(w[0])
    return sg.trace(net, (2,)), float(slope.sum())


def convolutional_network(rng: np.random.Generator, pool: str) -> sg.Graph:
    """conv - relu - pool - linear on 1 x 6 x 6."""
    w = (rng.normal(size=(3, 1, 3, 3)) / 2).astype(np.float32)
    v = (rng.normal(size=(3, 3 * 4 * 4)) / 4).astype(np.float32)
    b = rng.normal(size=3).astype(np.float32) / 4

    def net(x: Any) -> Any:
        y = sg.relu(sg.conv(w, b, x, padding=1))
        y = sg.max_pool(y, (3, 3), stride=1) if pool == "max" else sg.avg_pool(y, (3, 3), stride=1)
        return sg.linear(v, None, sg.flatten(y, 1))

    return sg.trace(net, (1, 1, 6, 6))


def difference_at_most(limit: Fraction, low: list[float], high: list[float]) -> Property:
    region = Alternative(np.array([[1.0, -1.0]]), (limit,))
    return Property(2, 2, (Case(tuple(map(Fraction, low)), tuple(map(Fraction, high)), (region,)),))


def test_answers_are_right() -> None:
    """On a fine grid the least y0 - y1 is known up to half a step times a Lipschitz constant."""
    steps, verdicts = 400, []
    axis = np.linspace(-1, 1, steps + 1)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    for seed in range(3):
        graph, slope = dense_network(np.random.default_rng(seed))
        values = _run(graph, grid)
        least = (values[:, 0] - values[:, 1]).min()
        surely = least - slope / steps - 1e-4
        for limit, expected in ((surely, "holds"), (least + 1e-3, "violated")):
            found = certify(graph, difference_at_most(Fraction(limit), [-1, -1], [1, 1]), seconds=ENDS)
            verdicts.append(found.verdict)
            assert found.verdict in (expected, "unknown")
            if found.counterexample is not None:
                assert "torch" in found.counterexample.confirmed
                assert (np.abs(found.counterexample.x) <= 1).all()
    assert verdicts.count("unknown") == 0
    assert verdicts.count("holds") == 3


def _run(graph: sg.Graph, x: Any) -> Any:
    """The float32 outputs of many inputs."""
    with torch.no_grad():
        found = torch.func.vmap(sg.compile(graph, "torch"))(torch.from_numpy(x.astype(np.float32)))
    return found.double().numpy() if graph.single else [y.double().numpy() for y in found]


# --- subproblems ------------------------------------------------------------------------------------------------------


def violations(graph: sg.Graph, rng: np.random.Generator, optimise: bool) -> tuple[int, int]:
    """Random signs, slopes and multipliers, or optimised ones: how many samples inside, how many below the bound."""
    shape = graph.nodes[graph.input_positions[0]].shape
    middle = rng.normal(size=shape).astype(np.float32).astype(float)
    low, high = middle - 0.25, middle + 0.25
    bounder = Bounder(root_forward(graph, low, high))
    outputs = int(np.prod(graph.nodes[graph.output_positions[0]].shape))
    problems = bounder.start(torch.from_numpy(rng.normal(size=(1, outputs))))
    slopes, multipliers = dict(problems.slopes), dict(problems.multipliers)
    for i, z in bounder.kinked.items():
        flat = np.flatnonzero(bounder.unstable(z).numpy())
        for cell in rng.choice(flat, size=min(2, len(flat)), replace=False).tolist():
            problems = problems.cut(z, torch.tensor([0]), torch.tensor([cell]), 0.0, int(rng.integers(2)))
        slopes[i] = torch.from_numpy(rng.uniform(size=slopes[i].shape)).float()
        multipliers[z] = torch.from_numpy(rng.normal(size=multipliers[z].shape) / 4).float()
    problems = replace(problems, slopes=slopes, multipliers=multipliers)
    bound = bounder.lower(problems) if not optimise else bounder.optimised(problems, 30, torch.tensor([torch.inf]))[1]
    showing = replace(graph, outputs=(*graph.outputs, *problems.limits), single=False)
    x = rng.uniform(low, high, size=(2000, *shape))
    y, *inner = _run(showing, x)
    limits = [v[0].numpy() for v in problems.limits.values()]
    agree = [(least <= z) & (z <= most) for (least, most), z in zip(limits, inner, strict=True)]
    inside = np.all([a.reshape(len(x), -1).all(1) for a in agree], axis=0)
    values = y.reshape(len(x), -1)[inside] @ problems.rows[0].numpy()
    return len(values), int((values < float(bound)).sum())


def networks(rng: np.random.Generator) -> list[sg.Graph]:
    return [dense_network(rng)[0], convolutional_network(rng, "max"), convolutional_network(rng, "avg")]


@pytest.mark.parametrize("trials", counts(5, 40))
def test_subproblem_bounds_hold_for_any_slopes_and_multipliers(trials: int) -> None:
    rng, inside = np.random.default_rng(0), 0
    for trial in range(trials):
        for graph in networks(rng):
            count, below = violations(graph, rng, bool(trial % 2))
            inside += count
            assert below == 0
    assert inside > 600


def test_the_hunt_catches_a_multiplier_of_the_wrong_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Bounder.lower

    def wrong(self: Any, problems: Any, **options: Any) -> Any:
        flipped = {z: -limits.flip(1) for z, limits in problems.limits.items()}
        cheat = replace(problems, limits=flipped, multipliers={z: -m for z, m in problems.multipliers.items()})
        return original(self, cheat, **options)

    monkeypatch.setattr(Bounder, "lower", wrong)
    rng = np.random.default_rng(0)
    assert any(violations(graph, rng, True)[1] for _ in range(8) for graph in networks(rng))


def test_branching_settles_what_linear_bounds_leave_open() -> None:
    """abs(x0) + abs(x1) > -1/100 on a box around 0: linear bounds give -2 or so."""
    w = np.float32([[1, 0], [-1, 0], [0, 1], [0, -1]])
    graph = sg.trace(lambda x: sg.linear(np.float32([[1, 1, 1, 1]]), None, sg.relu(sg.linear(w, None, x))), (2,))
    region = Alternative(np.array([[1.0]]), (Fraction(-1, 100),))
    case = Case((Fraction(-1),) * 2, (Fraction(1),) * 2, (region,))
    found = certify(graph, Property(2, 1, (case,)), seconds=ENDS)
    assert found.verdict == "holds"
    assert found.margins[0][0] > 0


def test_what_float32_decides_is_not_certified() -> None:
    """y = (x + 2**24) - 2**24 is x in exact arithmetic; float32 gives 0 where x > 1/2 is demanded."""
    graph = sg.trace(lambda x: sg.sub(sg.add(x, 2.0**24), 2.0**24), (1,))
    case = Case((Fraction(3, 4),), (Fraction(7, 8),), (Alternative(np.array([[1.0]]), (Fraction(1, 2),)),))
    assert certify(graph, Property(1, 1, (case,)), seconds=5).verdict != "holds"


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_refused_by_name() -> None:
    graph, _ = dense_network(np.random.default_rng(0))
    with pytest.raises(sg.ShapeError, match=r"the property has 3 inputs; the network's input has shape \(2,\)"):
        certify(graph, ([0.0, 0.0, 0.0], 0, 0.1))
    with pytest.raises(sg.ParameterError, match=r"model must be a Graph, an ONNX file or a PyTorch module; got int"):
        certify(3, ([0.0], 0, 0.1))
    with pytest.raises(sg.ParameterError, match="low and high go with"):
        certify(graph, difference_at_most(Fraction(0), [0, 0], [1, 1]), low=0)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx")
    pytest.importorskip("typer")
    folder = tmp_path_factory.mktemp("certify")
    w = np.float32([[1, 1], [1, -1]])
    from specgrad.interop import to_onnx

    model = to_onnx(sg.trace(lambda x: sg.relu(sg.linear(w, None, x)), (2,)))
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    np.save(folder / "x.npy", np.float32([1, 0.5]))
    head = "".join(f"(declare-const {v} Real)" for v in ("X_0", "X_1", "Y_0", "Y_1"))
    box = "(assert (<= X_0 1)) (assert (>= X_0 0.5)) (assert (<= X_1 {0})) (assert (>= X_1 0.25)) (assert (<= Y_0 Y_1))"
    (folder / "holds.vnnlib").write_text(head + box.format(1))
    (folder / "breaks.vnnlib").write_text(head + box.format(1).replace("0.25", "-0.25"))
    return folder


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def specgrad(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command in this process: starting another costs seconds."""
    from specgrad.cli.main import main

    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["specgrad", *args])
        with pytest.raises(SystemExit) as done:
            main()
        return int(done.value.code or 0), *capfd.readouterr()

    return run


def test_command_holds(folder: Path, specgrad: Command) -> None:
    code, out, _ = specgrad("certify", "net.onnx", "holds.vnnlib", "--json", "--vnncomp", "r.txt")
    data = json.loads(out)
    assert code == 0
    assert data["verdict"] == "holds"
    assert 0 < data["margins"][0][0] <= 0.5  # y0 - y1 = 2*x1 >= 1/2
    assert (folder / "r.txt").read_text() == "unsat\n"


def test_command_counterexample(folder: Path, specgrad: Command) -> None:
    command = ("certify", "net.onnx", "breaks.vnnlib", "--vnncomp", "r.txt")
    code, out, _ = specgrad(*command, "--json")
    data = json.loads(out)
    assert code == 1
    assert data["verdict"] == "violated"
    lines = (folder / "r.txt").read_text().splitlines()
    assert lines[0] == "sat"
    x0, x1, y0, y1 = (float(line.strip(" ()").split()[1]) for line in lines[1:])
    assert lines[1].startswith("((X_0 ")
    assert lines[4].endswith("))")
    assert (x0, x1) == tuple(data["counterexample"]["x"])
    assert (y0, y1) == (max(x0 + x1, 0), max(x0 - x1, 0))
    assert y0 <= y1


def test_command_around_an_input(specgrad: Command) -> None:
    around = ("certify", "net.onnx", "--input", "x.npy", "--label", "0")
    code, out, _ = specgrad(*around, "--eps", "63/128")
    assert code == 0
    assert "holds" in out
    assert specgrad(*around, "--eps", "1/2")[0] == 1
    assert specgrad(*around, "--eps", "0.9", "--low", "0.01")[0] == 0  # x1 stays positive


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("certify net.onnx", "missing: --input, --label, --eps"),
        ("certify net.onnx holds.vnnlib --label 3", "got both (--label)"),
        ("certify net.onnx none.vnnlib", "no file none.vnnlib"),
        ("certify net.onnx net.onnx", "net.onnx is not readable"),
        ("certify net.onnx --input x.npy --label 0 --eps two", "--eps must be a number such as 0.01 or 2/255"),
        ("certify net.onnx --input x.npy --label 7 --eps 1/2", "label must be one of 0..1; got 7"),
    ],
)
def test_usage_errors(specgrad: Command, command: str, words: str) -> None:
    code, out, err = specgrad(*command.split())
    assert code == 3, (out, err)
    assert words in " ".join(err.split())
    assert "Traceback" not in err


# --- known answers ------------------------------------------------------------------------------------------------


@needs_shared
@pytest.mark.parametrize(
    ("step", "holds", "broken"), [(6, 6, 4), pytest.param(1, 53, 7, marks=pytest.mark.slow)], ids=["sixth", "all"]
)
def test_a_competition_set_is_settled(step: int, holds: int, broken: int) -> None:
    """verivital: 53 of its 60 instances hold and 7 do not, as complete verifiers agree; every sixth by default."""
    pytest.importorskip("onnx")
    from specgrad.interop import from_onnx

    with (VERIVITAL / "verivital_instances.csv").open() as file:
        instances = [(net, VERIVITAL / statement) for net, statement, _ in csv.reader(file)]
    graphs = {net: from_onnx(VERIVITAL / net) for net, _ in instances}
    found = [certify(graphs[net], statement, seconds=ENDS).verdict for net, statement in instances[::step]]
    assert {kind: found.count(kind) for kind in set(found)} == {"holds": holds, "violated": broken}


# --- other functions than relu ----------------------------------------------------------------------------------------

W, V, U = (
    np.random.default_rng(k).normal(size=s).astype(np.float32) for k, s in ((0, (6, 4)), (1, (6, 4)), (2, (2, 6)))
)
OTHERS = {
    "maximum": lambda x: sg.maximum(sg.linear(W, None, x), sg.linear(V, None, x)),
    "product": lambda x: sg.relu(sg.linear(W, None, x)) * sg.linear(V, None, x),
    "sigmoid": lambda x: sg.sigmoid(sg.linear(W, None, x)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_networks_with_other_functions_are_settled(name: str) -> None:
    """Splits of inputs settle what splits of relus cannot; answers agree with samples."""
    graph = sg.trace(lambda x: sg.linear(U, None, OTHERS[name](x)), (4,))
    x = np.random.default_rng(3).normal(size=4).astype(np.float32)
    label = int(np.argmax(graph(x.astype(float))))
    sizes = (0.001, 0.01, 0.1, 0.2, 0.3, 0.6, 2.0)
    found = {eps: certify(graph, (x, label, eps), seconds=ENDS).verdict for eps in sizes}
    assert set(found.values()) == {"holds", "violated"}
    for eps in (eps for eps, verdict in found.items() if verdict == "holds"):
        points = x + np.random.default_rng(4).uniform(-eps, eps, (2000, 4)).astype(np.float32) * 0.999
        y = torch.func.vmap(sg.compile(graph, "torch"))(torch.from_numpy(points.astype(np.float32)))
        assert (y.argmax(1) == label).all()


def test_open_maxima_end_in_an_answer() -> None:
    """relu and max_pool are one layer: its relus are split, then inputs; between both answers there may be none."""
    w, v = (np.random.default_rng(k).normal(size=s).astype(np.float32) for k, s in ((9, (3, 1, 2, 2)), (10, (2, 12))))

    def network(x: Any) -> Any:
        return sg.linear(v, None, sg.flatten(sg.max_pool(sg.relu(sg.conv(w, None, x)), (2, 2)), 1))

    graph = sg.trace(network, (1, 1, 5, 5))
    x = np.random.default_rng(11).normal(size=(1, 1, 5, 5)).astype(np.float32)
    label = int(np.argmax(graph(x.astype(float))))
    sizes = {0.02: ENDS, 0.2: stretched(1), 0.26: stretched(1), 0.34: ENDS}
    found = [certify(graph, (x, label, eps), seconds=seconds) for eps, seconds in sizes.items()]
    kinds = [v.verdict for v in found]
    assert kinds == sorted(kinds, key=["holds", "unknown", "violated"].index)
    assert kinds[0] == "holds"
    assert kinds[-1] == "violated"
    assert any(v.problems for v in found)


def test_a_wrong_label_is_said() -> None:
    graph = sg.trace(lambda x: sg.linear(np.float32([[1, 0], [0, 1]]), None, x), (2,))
    found = certify(graph, ([1.0, 0.0], 1, 0.1))
    assert found.verdict == "violated"
    assert found.reason == "at the input itself output 0 is the largest, not 1"
    assert certify(graph, ([1.0, 0.0], 0, 0.6)).reason == ""
