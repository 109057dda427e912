"""Nothing that was estimated is called proven: every message, page and JSON of a model that no proof reaches."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from specgrad.check.tolerances import point_bounds  # noqa: E402

NEGATED = re.compile(
    r"not (?:a )?proven|not a proof|never a proof|no proof|Not proven|what is proven is wider|within the proven radius"
)
ESTIMATE = re.compile(r"estimat|usual")


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """Twelve layers of 256 terms: bounds of the whole are useless; one layer was computed with rounded weights."""
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("estimated")
    nodes, tensors, last = [], [], "x"
    for k in range(12):
        tensors.append(numpy_helper.from_array((rng.normal(size=(256, 256)) / 11).astype(np.float32), f"w{k}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{k}"], [f"m{k}"], name=f"fc{k}"))
        nodes.append(helper.make_node("Relu", [f"m{k}"], [f"r{k}"], name=f"relu{k}"))
        last = f"r{k}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 256]) for n in ("x", last)]
    graph = helper.make_graph(nodes, "deep", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, folder / "deep.onnx")
    x = rng.normal(size=(1, 256)).astype(np.float32)
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    names = [v for n in model.graph.node[:-1] for v in n.output]
    shown.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    values = ort.InferenceSession(shown.SerializeToString()).run(None, {"x": x})
    recorded = dict(zip([last, *names], values, strict=True))
    recorded["m5"] = (recorded["m5"].astype(float) * (1 + 3e-6)).astype(np.float32)  # within the proof, and unusual
    recorded["r5"] = np.maximum(recorded["m5"], 0)
    np.save(folder / "x.npy", x)
    np.savez(folder / "values.npz", x=x, **recorded)
    return folder


@pytest.fixture(autouse=True)
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which going backwards takes years, so that bounds of the whole stay useless."""
    monkeypatch.setattr(point_bounds, "BACKWARD_RATE", 1.0)


COMMANDS = {
    "tolerance": ("tolerance deep.onnx --input x.npy", "estimated"),
    "audit": ("audit deep.onnx --recorded values.npz", "unusual"),
    "evidence": ("evidence deep.onnx --recorded values.npz", "cannot tell"),
}


def estimates(data: Any) -> Iterator[dict[str, Any]]:
    """Every object that says of itself that it is estimated."""
    if isinstance(data, dict):
        if data.get("estimated") is True:
            yield data
        for part in data.values():
            yield from estimates(part)
    elif isinstance(data, list):
        for part in data:
            yield from estimates(part)


def called_proven(line: str) -> bool:
    """Whether a line that speaks of an estimate calls something proven."""
    return bool(ESTIMATE.search(line)) and "proven" in NEGATED.sub("", line)


@pytest.mark.parametrize("name", COMMANDS)
def test_json_keeps_them_apart(name: str, deep, monkeypatch, run) -> None:
    monkeypatch.chdir(deep)
    words, verdict = COMMANDS[name]
    data = json.loads(run(f"{words} --json")[1])
    assert data["verdict"] in (verdict, "findings")
    found = list(estimates(data))
    assert found
    assert [key for part in found for key in part if "prov" in key or "bound" in key] == []
    if name == "tolerance":
        assert [data[key] for key in ("tolerance", "pairwise_tolerance", "rtol", "atol", "largest")] == [None] * 5


@pytest.mark.parametrize("name", COMMANDS)
def test_messages_and_pages_do_too(name: str, deep, monkeypatch, run) -> None:
    monkeypatch.chdir(deep)
    words, _ = COMMANDS[name]
    page = "" if name == "tolerance" else " --html page.html --force"
    out = run(words + page)[1]
    assert ESTIMATE.search(out)
    table = [line for line in out.splitlines() if called_proven(line) and "error / bound: proven" not in line]
    assert table == []
    if page:
        html = re.sub(r"<title>[^<]*</title>", "", (deep / "page.html").read_text())  # marks of the plot name both
        sentences = re.split(r"[.;]\s|<[^>]*>", html)
        legend = "red: allowed (proven)"
        assert [s for s in sentences if called_proven(s) and legend not in s] == []


def test_a_planted_sentence_is_found() -> None:
    assert called_proven("estimated tolerance 1e-5, proven")
    assert not called_proven("an estimate, not a proof")
    assert not called_proven("estimated, not proven")
