"""Decisions: what is proven is so on every execution we can think of; what differs, differs on executions that ran."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from pace import ENDS
from specgrad.check import preserve
from specgrad.errors import ContradictionError, ParameterError
from specgrad.rounding import Arithmetic

pytest.importorskip("torch")
from deciding import boundary, exact_argmax, exact_outputs, executed, trained
from executor import Setting
from specgrad.check.models.emulate import Executor, slopes

margins = import_module("specgrad.check.decisions.margins")
preserving = import_module("specgrad.check.decisions.preserve")
NODE = Arithmetic(execution="node")
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 25))]


def near_ones(seed: int, count: int) -> tuple[sg.Graph, np.ndarray]:
    """A trained network, and inputs next to its boundaries."""
    pairs = decided_differently(seed)[:count]
    return trained(seed)[0], np.concatenate([between_two(seed, i, j) for i, j in pairs])


@cache
def decided_differently(seed: int) -> list[tuple[int, int]]:
    graph, x = trained(seed)
    decided = [exact_argmax(graph, one[None]) for one in x[:20]]
    return [(i, j) for i in range(20) for j in range(i) if decided[i] != decided[j]]


@cache
def between_two(seed: int, i: int, j: int) -> np.ndarray:
    graph, x = trained(seed)
    return boundary(graph, x[i : i + 1], x[j : j + 1])


# --- verdicts against exact arithmetic --------------------------------------------------------------------------------


@pytest.mark.quick
def test_margins_are_those_of_exact_arithmetic() -> None:
    """The margin of every sample, recomputed over rationals, is the one that is stated, within the tolerance."""
    graph, x = trained(0)
    result = preserve(graph, x[:12], runtimes=())
    assert result.verdict == "proven"
    for s in result.samples:
        y = exact_outputs(graph, x[s.number : s.number + 1])
        assert s.decision == max(range(len(y)), key=lambda k: (y[k], -k))
        first, second = s.between
        assert abs(y[first] - y[second] - Fraction(s.margin)) < Fraction(s.tolerance)
        assert s.margin > s.tolerance > 0


def hunted(graph: sg.Graph, x: np.ndarray, decision: int, seed: int, executions: int = 2) -> bool:
    """Whether some execution decides otherwise: random ones of the class, and orders driven against the decision."""
    for k in range(executions):
        if int(np.argmax(executed(graph, x, f"{seed}/{k}"))) != decision:
            return True
    outputs = graph.nodes[graph.output_positions[0]].shape[1]
    for j in set(range(outputs)) - {decision}:
        row = np.zeros(outputs)
        row[decision], row[j] = 1, -1
        steep = slopes(graph, [x.astype(float)], row)
        (y,) = Executor(graph, Arithmetic()).run([x.astype(float)], {i: -s for i, s in steep.items()})
        if int(np.argmax(y)) != decision:
            return True
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_next_to_a_boundary_nothing_false_is_proven(seed: int) -> None:
    """Inputs within a rounding of the boundary are open; those that differ have two executions, decided as stated."""
    graph, x = near_ones(seed, 4)
    result = preserve(graph, x, runtimes=())
    assert result.counts["proven"] == 0
    assert result.counts["differs"] >= 1
    for s in result.samples:
        assert s.margin < s.tolerance
        for run in s.executions:
            y = [run["outputs"][str(k)] for k in range(3)]
            assert int(np.argmax(y)) == run["decision"]
            assert all(v == float(np.float32(v)) for v in y)
        assert len({run["decision"] for run in s.executions}) in (0, 2)


def between(graph: sg.Graph, near: np.ndarray, far: np.ndarray, shares: list[float]) -> np.ndarray:
    return np.concatenate([(near + np.float32(t) * (far - near)).astype(np.float32) for t in shares])


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_proven_withstands_the_hunter(seed: int) -> None:
    """From the boundary outward: where it begins to be proven, no execution decides otherwise."""
    graph, x = trained(seed)
    _, near = near_ones(seed, 2)
    shares = [2.0**-e for e in range(4, 20, 3)]
    samples = np.concatenate([between(graph, near[k : k + 1], x[k : k + 1], shares) for k in (0, 1)])
    result = preserve(graph, samples, runtimes=())
    assert 0 < result.counts["proven"] < len(samples)
    for s in result.samples:
        if s.verdict == "proven":
            assert s.decision == exact_argmax(graph, samples[s.number : s.number + 1])
            assert not hunted(graph, samples[s.number : s.number + 1], s.decision, s.number)


# --- planted mistakes -------------------------------------------------------------------------------------------------


def level_net(count: int = 64) -> sg.Graph:
    """A large bias beside many terms of which each is lost when it comes first: executions reach most of the bound."""
    w = np.float32(np.random.default_rng(0).uniform(0.3, 0.49, (1, count, 1)) * 2.0**-13)
    return sg.trace(lambda x: sg.conv(w, np.float32([1024.0]), x), (1, count, 1))


LEVEL = np.ones((1, 64, 1), np.float32)


def at_share(graph: sg.Graph, share: float) -> str:
    """The threshold that makes the margin this share of the tolerance."""
    (s,) = preserve(graph, LEVEL, "threshold:0", runtimes=()).samples
    return f"threshold:{s.margin - share * s.tolerance}"


def falls_below(graph: sg.Graph, decision: str, executions: int = 20) -> bool:
    """Whether some execution is not above the threshold."""
    level, x = float(decision.partition(":")[2]), LEVEL.astype(float)
    steep = slopes(graph, [x], np.ones(1))
    (driven,) = Executor(graph, Arithmetic()).run([x], {i: -s for i, s in steep.items()})
    random = [executed(graph, x, str(k)) for k in range(executions)]
    return any(y.item() <= level for y in (driven, *random))


PLANTED = {
    "rounding is ignored": lambda m: m.margin + m.comparisons.demand(),
    "half the tolerance": lambda m: m.margin + m.comparisons.demand() - m.tolerance / 2,
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_margins_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A margin that is too large calls a decision proven which an execution of the class changes."""
    graph = level_net()
    decision = at_share(graph, 0.6)
    (s,) = preserve(graph, LEVEL, decision, runtimes=()).samples
    assert s.verdict == "differs"
    right = margins.margins_at

    def wrong(question: Any, inputs: Any) -> Any:
        m = right(question, inputs)
        return replace(m, low=PLANTED[name](m))

    monkeypatch.setattr(preserving, "margins_at", wrong)
    (s,) = preserve(graph, LEVEL, decision, runtimes=()).samples
    assert s.verdict == "proven"
    assert falls_below(graph, decision)


def test_the_right_margin_is_not_caught() -> None:
    graph = level_net()
    decision = at_share(graph, 1.001)
    (s,) = preserve(graph, LEVEL, decision, runtimes=()).samples
    assert s.verdict == "proven"
    assert not falls_below(graph, decision)


def test_an_execution_that_leaves_a_bound_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds too narrow, on a sample that stays open: the search itself notices."""
    graph = level_net()
    decision = at_share(graph, 0.1)
    right = margins.margins_at

    def wrong(question: Any, inputs: Any) -> Any:
        m = right(question, inputs)
        return replace(m, low=m.low + 0.7 * m.tolerance)

    monkeypatch.setattr(preserving, "margins_at", wrong)
    with pytest.raises(ContradictionError, match="leaves what is proven"):
        preserve(graph, LEVEL, decision, runtimes=())


# --- ties, what is not finite, what overflows -------------------------------------------------------------------------


def test_a_forced_tie_is_proven_and_another_is_not() -> None:
    """Two relus that are 0 on every execution tie by force; two sums that are equal in exact arithmetic do not."""
    forced = sg.trace(lambda x: sg.relu(x - 2.0), (1, 3))
    (s,) = preserve(forced, np.float32([[0.5, 0.25, 0.125]]), runtimes=()).samples
    assert (s.verdict, s.decision, s.margin) == ("proven", 0, 0.0)
    weights = np.float32([[0.1, 0.7, 0.3], [0.3, 0.1, 0.7]])
    equal = sg.trace(lambda x: sg.linear(weights, None, x), (1, 3))
    (s,) = preserve(equal, np.float32([[1, 1, 1]]), runtimes=()).samples
    assert s.verdict in ("not proven", "differs")


def test_nothing_is_proven_of_what_may_overflow_or_is_not_finite() -> None:
    huge = sg.trace(lambda x: sg.linear(np.float32([[3e38, 3e38], [1, 1]]), None, x), (1, 2))
    data = np.float32([[1, 1], [np.nan, 0], [np.inf, 0], [1e-3, 1e-3]])
    result = preserve(huge, data, runtimes=())
    assert [s.verdict for s in result.samples] == ["not proven"] * 3 + ["proven"]
    assert result.samples[0].tolerance is None
    assert "finite" in result.samples[1].reason
    json.dumps(result.to_json(), allow_nan=False)


# --- other decisions, classes, inputs ---------------------------------------------------------------------------------


def test_thresholds_top_k_and_masks() -> None:
    """Proven as exact arithmetic has it; pixel by pixel where there are many."""
    w = np.float32(np.random.default_rng(0).normal(size=(3, 2, 3, 3)))
    graph = sg.trace(lambda x: sg.conv(w, None, x, padding=1), (1, 2, 4, 4))
    x = np.random.default_rng(1).normal(size=(5, 2, 4, 4)).astype(np.float32)
    for name in ("mask", "threshold:0.25", "top-2", "argmax"):
        result = preserve(graph, x, name, runtimes=())
        assert result.verdict == "proven"
        assert {s.decisions for s in result.samples} == {48 if name.startswith("threshold") else 16}
    (pixel,) = preserve(sg.trace(lambda x: x[:, :1] * 3.0, (1, 2, 1, 1)), x[:1, :, :1, :1], "mask", runtimes=()).samples
    assert pixel.decision == int(x[0, 0, 0, 0] > 0)


def test_an_open_pixel_is_counted() -> None:
    graph = sg.trace(lambda x: sg.conv(np.float32([[[[1]]], [[[1]]]]) + np.float32(2**-23), None, x), (1, 1, 2, 2))
    x = np.float32([[[[1, 0], [0, 0]]]])
    (s,) = preserve(graph, x, "argmax", runtimes=()).samples
    assert s.decisions == 4
    assert s.decision is None


@cache
def near_and_far(arithmetic: Arithmetic) -> Any:
    graph, near = near_ones(1, 3)
    return preserve(graph, np.concatenate([near, trained(1)[1][:3]]), arithmetic=arithmetic, runtimes=())


@pytest.mark.parametrize(
    "arithmetic",
    [Arithmetic(operands="tf32"), Arithmetic(operands="bfloat16"), Arithmetic("float16"), Arithmetic("bfloat16"),
     Arithmetic("bfloat16", accumulate="float32"), Arithmetic("float64"), Arithmetic(depth=8), NODE],
)  # fmt: skip
def test_every_class_is_searched_in_its_own_arithmetic(arithmetic: Arithmetic) -> None:
    """Executions that are shown are numbers of that format; coarser classes prove no more."""
    result = near_and_far(arithmetic)
    assert result.deployment == arithmetic.deployment
    if arithmetic.u > 2.0**-24:
        assert result.counts["proven"] <= near_and_far(Arithmetic()).counts["proven"]
    for s in result.samples:
        for run in s.executions:
            values = np.array(list(run["outputs"].values()))
            assert arithmetic.format.holds(values).all()


def test_several_inputs_and_outputs() -> None:
    graph = sg.trace(lambda a, b: (a + b, sg.linear(np.float32([[1, 2], [3, 4]]), None, a)), (1, 2), (1, 2))
    data = {"a": np.float32([[1, 2], [3, 0]]), "b": np.float32([[1, 0], [0, 1]])}
    with pytest.raises(sg.ParameterError, match="which of its outputs"):
        preserve(graph, data, runtimes=())
    assert [s.decision for s in preserve(graph, data, output=1, runtimes=()).samples] == [1, 1]
    assert [s.decision for s in preserve(graph, data, output=0, runtimes=()).samples][1] == 0
    with pytest.raises(sg.ParameterError, match="one array per input"):
        preserve(graph, data["a"], runtimes=())


def test_sizes_that_fit_no_sample_are_refused() -> None:
    graph = sg.trace(sg.relu, (4, 3))
    assert len(preserve(graph, np.ones((5, 4, 3), np.float32), runtimes=()).samples) == 5
    with pytest.raises(sg.ShapeError, match="batches of 4"):
        preserve(graph, np.ones((8, 3), np.float32), runtimes=())
    with pytest.raises(sg.ShapeError, match="no sample"):
        preserve(graph, np.ones(3, np.float32), runtimes=())
    open_batch = sg.trace(sg.relu, ("N", 3))
    assert len(preserve(open_batch, np.ones((8, 3), np.float32), runtimes=()).samples) == 8


# --- a box around every sample ----------------------------------------------------------------------------------------


def test_eps_makes_it_certify() -> None:
    """Far from the boundary a box is proven; a box that holds the boundary has an input that is decided otherwise."""
    graph, x = trained(0)
    small = preserve(graph, x[:4], eps="1/1000", runtimes=())
    assert small.verdict == "proven"
    assert all(a.tolerance > b.tolerance for a, b in
               zip(small.samples, preserve(graph, x[:4], runtimes=()).samples, strict=True))  # fmt: skip
    wide = preserve(graph, x[:2], eps=2, runtimes=(), seconds=ENDS)
    assert wide.verdict == "differs"
    for s in wide.samples:
        first, second = s.executions
        at = np.float32(second["input"]).reshape(x[:1].shape)
        assert np.abs(at - x[s.number]).max() <= 2
        assert first["decision"] != second["decision"]
        assert exact_argmax(graph, at) == second["decision"]


def test_eps_asks_about_the_file_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime is given that file, and not our export of its graph; a module is run itself."""
    onnx, torch = pytest.importorskip("onnx"), pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    from specgrad.bounds.search.network import witnesses

    seen: list[Any] = []
    bytes_of = witnesses._onnx_bytes
    monkeypatch.setattr(witnesses, "_onnx_bytes", lambda network: (seen.append(network.source), bytes_of(network))[1])
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[1,2] x) => (float[1,2] y) { y=Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    x = np.float32([[1, 0.5]])
    (sample,) = preserve(str(tmp_path / "net.onnx"), x, eps=1, runtimes=()).samples
    assert [*map(str, seen)] == [str(tmp_path / "net.onnx")]
    answers = [{"who": who, "outcome": "breaks it"} for who in ("torch", "onnxruntime")]
    assert sample.executions[1]["asked"] == answers
    (sample,) = preserve(torch.nn.ReLU(), x, eps=1, runtimes=()).samples
    assert [one["who"] for one in sample.executions[1]["asked"]] == ["torch", "module", "onnxruntime"]


# --- from the camera's bytes ------------------------------------------------------------------------------------------


def camera() -> Any:
    """uint8 images: crop, turn, cast, halve by averaging, / 255, normalise, then a linear layer."""
    onnx = pytest.importorskip("onnx")
    h, t, tensor = onnx.helper, onnx.TensorProto, onnx.numpy_helper.from_array
    w = np.random.default_rng(0).normal(size=(5, 3 * 4 * 4)).astype(np.float32)
    mean, dev = np.float32([0.485, 0.456, 0.406]).reshape(3, 1, 1), np.float32([0.229, 0.224, 0.225]).reshape(3, 1, 1)
    constants = {"full": np.float32(255), "mean": mean, "dev": dev, "w": w, "axes": np.array([1, 2])}
    constants |= {"from": np.array([1, 2]), "to": np.array([9, 10]), "scales": np.float32([1, 0.5, 0.5, 1])}
    constants |= {"flat": np.array([1, -1])}
    nodes = [
        h.make_node("Slice", ["image", "from", "to", "axes"], ["crop"]),
        h.make_node("Cast", ["crop"], ["numbers"], to=t.FLOAT),
        h.make_node("Resize", ["numbers", "", "scales"], ["small"], mode="linear"),
        h.make_node("Transpose", ["small"], ["planes"], perm=[0, 3, 1, 2]),
        h.make_node("Div", ["planes", "full"], ["unit"]),
        h.make_node("Sub", ["unit", "mean"], ["centred"]),
        h.make_node("Div", ["centred", "dev"], ["normal"]),
        h.make_node("Reshape", ["normal", "flat"], ["cells"]),
        h.make_node("Gemm", ["cells", "w"], ["scores"], transB=1),
    ]
    ends = [h.make_tensor_value_info("image", t.UINT8, ["N", 10, 12, 3])], [h.make_tensor_value_info("scores", 1, None)]
    graph = h.make_graph(nodes, "camera", *ends, [tensor(np.asarray(v), k) for k, v in constants.items()])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)


def by_pixels(model: Any, image: np.ndarray) -> list[Fraction]:
    """The same over rationals, written from the words: crop, average of 2x2, / 255, normalise, linear."""
    onnx = pytest.importorskip("onnx")
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    exact = lambda name: [Fraction(float(v)) for v in arrays[name].ravel()]
    crop = image[1:9, 2:10].astype(int)
    cells = []
    for c in range(3):
        for i in range(4):
            for j in range(4):
                mean = Fraction(int(crop[2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c].sum()), 4)
                cells.append((mean / 255 - exact("mean")[c]) / exact("dev")[c])
    w = exact("w")
    return [sum((w[k * 48 + n] * cells[n] for n in range(48)), Fraction(0)) for k in range(5)]


def test_the_statement_begins_at_the_bytes() -> None:
    """uint8 in, decisions out, against rationals; one whose two best classes nearly tie is not proven."""
    model = camera()
    images = np.random.default_rng(3).integers(0, 256, (8, 10, 12, 3), dtype=np.uint8)
    result = preserve(model, {"image": images}, runtimes=())
    assert result.counts["proven"] >= 6
    for s in result.samples:
        y = by_pixels(model, images[s.number])
        assert s.decision == max(range(5), key=lambda k: y[k])
        first, second = s.between
        assert abs(y[first] - y[second] - Fraction(s.margin)) <= Fraction(s.tolerance)


def test_an_input_that_is_shown_for_bytes_is_of_bytes() -> None:
    model, images = camera(), np.random.default_rng(3).integers(0, 256, (2, 10, 12, 3), dtype=np.uint8)
    result = preserve(model, images, eps=80, low=0, high=255, runtimes=(), seconds=ENDS)
    assert result.counts["differs"] >= 1
    for s in result.samples:
        for run in s.executions[1:]:
            at = np.array(run["input"])
            assert (at == at.astype(np.uint8)).all()
            assert np.abs(at - images[s.number].ravel().astype(float)).max() <= 80
            y = by_pixels(model, at.reshape(10, 12, 3))
            assert run["decision"] == max(range(5), key=lambda k: y[k]) != s.decision


def test_runtimes_are_fed_the_bytes() -> None:
    """ONNX Runtime takes uint8 and stays within the proven ends; PyTorch takes the same numbers."""
    pytest.importorskip("onnxruntime")
    from specgrad.check.decisions.runtime_pool import Runtimes
    from specgrad.check.decisions.samples import samples_of

    images = np.random.default_rng(3).integers(0, 256, (2, 10, 12, 3), dtype=np.uint8)
    samples = samples_of(camera(), images, Arithmetic())
    runs = Runtimes(("torch", "onnxruntime"), samples.graph, samples.source)
    try:
        results = runs.run(samples.fed(0))
    finally:
        runs.close()
    assert len(results) == 3
    y = by_pixels(camera(), images[0])
    for outputs in results.values():
        assert np.allclose(outputs[0].ravel(), [float(v) for v in y], rtol=1e-4)


# --- real runtimes ----------------------------------------------------------------------------------------------------


def test_real_runtimes_that_disagree_are_named() -> None:
    """On inputs next to a boundary some pair is shown, real or driven; names carry versions."""
    pytest.importorskip("onnxruntime")
    graph, x = near_ones(2, 4)
    result = preserve(graph, x, runtimes=("torch", "onnxruntime"))
    assert result.counts["differs"] >= 1
    assert not any(s.outside for s in result.samples)
    names = {run["name"].split()[0] for s in result.samples for run in s.executions}
    assert names <= {"torch", "onnxruntime", "every"}


def test_a_runtime_of_another_arithmetic_is_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 factors are no float32 execution: their outputs count for nothing, and are named."""
    from specgrad.check.decisions.runtime_pool import Runtimes

    graph, x = near_ones(0, 1)
    coarse = Executor(graph, Arithmetic("bfloat16"))
    monkeypatch.setattr(Runtimes, "run", lambda self, inputs: {"half 1.0": coarse.run(inputs, {})})
    (s,) = preserve(graph, x, runtimes=("torch",)).samples
    assert s.outside == ["half 1.0"]
    assert not any(run["name"] == "half 1.0" for run in s.executions)


def test_unknown_runtimes_and_models_are_refused() -> None:
    with pytest.raises(sg.ParameterError, match="unknown runtime"):
        preserve(sg.trace(sg.relu, (1, 2)), np.ones((1, 2)), runtimes=("cuda",))
    with pytest.raises(sg.ParameterError, match="must be a Graph"):
        preserve(3, np.ones((1, 2)))
    half = sg.trace(lambda x: x * np.float16([0.5]), (1, 2))
    with pytest.raises(sg.ParameterError, match="float16"):
        preserve(half, np.ones((1, 2)))


# --- records ----------------------------------------------------------------------------------------------------------


def test_a_record_resumes_and_holds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after two samples, it goes on with the third; the result is that of a run that was not stopped."""
    graph, x = near_ones(0, 4)
    path, calls = tmp_path / "run.jsonl", []
    right = margins.margins_at

    def counted(question: Any, inputs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return right(question, inputs)

    monkeypatch.setattr(preserving, "margins_at", counted)
    with pytest.raises(KeyboardInterrupt):
        preserve(graph, x, checkpoint=path, runtimes=())
    again = preserve(graph, x, checkpoint=path, runtimes=())
    monkeypatch.undo()
    assert len(calls) == 3 + len(x) - 2
    whole = preserve(graph, x, runtimes=())
    plain = lambda r: [{**s.to_json(), "seconds": 0} for s in r.samples]
    assert plain(again) == plain(whole)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (lines[0]["kind"], lines[0]["samples"], len(lines)) == ("preserve", len(x), len(x) + 1)
    for other in ({"decision": "top-2"}, {"arithmetic": NODE}, {"eps": 0.5}):
        with pytest.raises(sg.SpecgradError, match="another run"):
            preserve(graph, x, checkpoint=path, runtimes=(), **other)
    with pytest.raises(sg.SpecgradError, match="another run"):
        preserve(graph, x[:3], checkpoint=path, runtimes=())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_command_resumes(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    graph, x = trained(0)
    sg.save(graph, tmp_path / "net.json")
    np.savez(tmp_path / "data.npz", x=np.concatenate([x])[:24])
    command = [sys.executable, "-m", "specgrad", "preserve", "net.json", "data.npz", "--runtime", "none"]
    command += ["--checkpoint", "run.jsonl", "--json"]
    started = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, env=os.environ)
    path = tmp_path / "run.jsonl"
    while started.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < 5):
        time.sleep(0.01)
    started.kill()
    started.wait()
    before = path.read_bytes()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    data = json.loads(done.stdout)
    assert done.returncode in (0, 2)
    assert data["samples"] == 24 == data["proven"] + data["not_proven"] + data["differ"]
    kept = before[: before.rindex(b"\n") + 1]
    assert path.read_bytes().startswith(kept)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_has_every_open_sample_and_whole_bars() -> None:
    from xml.etree import ElementTree

    from specgrad.check.decisions.html import plot, preserved_page

    graph, near = near_ones(0, 3)
    _, x = trained(0)
    result = preserve(graph, np.concatenate([near, x[:10]]), runtimes=())
    page = preserved_page(result)
    assert page.count("two executions</summary>") == result.counts["differs"]
    shown = next(s for s in result.samples if s.executions)
    for run in shown.executions:  # the outputs that it is decided by, with digits that tell any two float32 apart
        for k in shown.between:
            assert np.float32(f"{run['outputs'][str(k)]:.9g}") == np.float32(run["outputs"][str(k)])
            assert f'<td class="number">{run["outputs"][str(k)]:.9g}' in page
    assert str(result) in page
    svg = plot(result.samples)
    root = ElementTree.fromstring(svg[svg.index("<svg") : svg.index("</svg>") + 6])
    _, _, width, height = map(float, root.get("viewBox", "").split())
    bars = [e for e in root.iter() if e.tag.endswith("rect")]
    heights = [float(b.get("height", 0)) for b in bars]
    counts = [int(b[0].text.split()[0]) for b in bars]
    assert sum(counts) == 13
    assert max(abs(h / c - heights[0] / counts[0]) for h, c in zip(heights, counts, strict=True)) < 0.2
    for b in bars:
        x0, y0, w, h = (float(b.get(k, 0)) for k in ("x", "y", "width", "height"))
        assert 0 <= x0 <= x0 + w <= width
        assert 0 <= y0 <= y0 + h <= height
    hostile = replace(result, model="<script>alert(1)</script>")
    assert "<script>" not in preserved_page(hostile)


@pytest.mark.parametrize("model", ["fused", "node"])
def test_random_executions_of_both_classes(model: str) -> None:
    """Nothing that is proven by node differs on executions by node; what is fused needs the wider claim."""
    graph, x = trained(2)
    result = preserve(graph, x[:10], arithmetic=Arithmetic(execution=model), runtimes=())
    for s in result.samples:
        for k in range(3):
            y = executed(graph, x[s.number : s.number + 1], f"{s.number}/{k}", Setting(model=model))
            assert s.verdict != "proven" or int(np.argmax(y)) == s.decision


def test_a_constant_that_float32_lacks_is_refused() -> None:
    graph = sg.trace(lambda x: x * np.array([1e300, 1.0]), (2,))
    with pytest.raises(ParameterError, match="too large for float32"):
        preserve(graph, np.ones((3, 2), np.float32))
