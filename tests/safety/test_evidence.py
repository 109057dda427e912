"""Evidence of a small network whose target's values were recorded from another runtime; planted faults; the page."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("flint")

from onnx import TensorProto, helper  # noqa: E402

import specgrad as sg  # noqa: E402
from specgrad.bounds.search.certificates.prove import prove  # noqa: E402
from specgrad.errors import SpecgradError  # noqa: E402
from specgrad.safety.evidence import Evidence, gather  # noqa: E402
from specgrad.safety.evidence import page as page_of_items  # noqa: E402
from specgrad.safety.evidence.item import ASSUMPTIONS, PURPOSE, Item  # noqa: E402
from specgrad.safety.evidence.page import evidence_page  # noqa: E402

SIZE, CLASSES = 4, 3


def written(path: Path, scale: float = 1.0) -> dict[str, Any]:
    """conv, relu, matrix; the weights as arrays."""
    rng = np.random.default_rng(3)
    w = {
        "w": rng.normal(size=(2, 1, 3, 3)).astype(np.float32) * np.float32(scale),
        "v": rng.normal(size=(2 * SIZE * SIZE, CLASSES)).astype(np.float32),
    }
    helper, info = onnx.helper, onnx.helper.make_tensor_value_info
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], name="conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Flatten", ["r"], ["f"], name="flat", axis=1),
        helper.make_node("MatMul", ["f", "v"], ["scores"], name="last"),
    ]
    ends = [info("image", 1, [1, 1, SIZE, SIZE])], [info("scores", 1, [1, CLASSES])]
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in w.items()]
    graph = helper.make_graph(nodes, "net", *ends, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)
    return w


def run_elsewhere(path: Path, images: np.ndarray) -> dict[str, np.ndarray]:
    """Every value at every image, as ONNX Runtime computes them; one axis in front."""
    file = onnx.load(path)
    names = [name for node in file.graph.node for name in node.output]
    del file.graph.output[:]
    file.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = ort.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    runs = [session.run(None, {"image": x}) for x in images]
    return {"image": images, **{n: np.stack([r[k] for r in runs]) for k, n in enumerate(names)}}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("evidence")


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).random((3, 1, 1, SIZE, SIZE), dtype=np.float32)


@pytest.fixture(scope="module")
def recorded(place: Path, images: np.ndarray) -> dict[str, np.ndarray]:
    written(place / "net.onnx")
    values = run_elsewhere(place / "net.onnx", images)
    np.savez(place / "target.npz", **values)
    return values


@pytest.fixture(scope="module")
def statement(place: Path, recorded: dict[str, np.ndarray]) -> Path:
    """The first image's class stays the largest within 1/4096; and its certificate."""
    x, y = recorded["image"][0].ravel(), recorded["scores"][0].ravel()
    label, eps = int(y.argmax()), Fraction(1, 4096)
    lines = [f"(declare-const X_{i} Real)" for i in range(x.size)] + [f"(declare-const Y_{i} Real)" for i in range(3)]
    for i, v in enumerate(x.tolist()):
        low, high = (float(Fraction(v) + sign * eps) for sign in (-1, 1))
        lines.append(f"(assert (>= X_{i} {low!r})) (assert (<= X_{i} {high!r}))")
    others = " ".join(f"(and (>= Y_{j} Y_{label}))" for j in range(CLASSES) if j != label)
    (place / "p.vnnlib").write_text("\n".join([*lines, f"(assert (or {others}))"]))
    prove(str(place / "net.onnx"), place / "p.vnnlib").save(place / "net.cert.json")
    return place / "p.vnnlib"


@pytest.fixture(scope="module")
def whole(place: Path, recorded, statement: Path) -> Evidence:
    asked: dict[str, Any] = {"data": {"image": recorded["image"][:, 0]}, "box": (0.0, 1.0)}
    asked |= {"certificates": [(place / "net.cert.json", statement)], "files": {"recorded": place / "target.npz"}}
    return gather(place / "net.onnx", recorded, **asked)


def verdicts(evidence: Evidence) -> dict[str, str]:
    return {item.name.partition(" ")[0]: item.verdict for item in evidence.items}


def test_every_question_has_its_answer(whole: Evidence) -> None:
    found = verdicts(whole)
    assert found.pop("profile") in ("broken", "undecided")
    assert found == {
        "model": "ok",
        "layers": "rounding",
        "outputs": "proven",
        "decisions": "proven",
        "box": "bounded",
        "certificate": "valid",
    }


def test_digests_are_those_of_sha256sum(whole: Evidence, place: Path) -> None:
    for name in ("net.onnx", "target.npz", "net.cert.json", "p.vnnlib"):
        digest = hashlib.sha256((place / name).read_bytes()).hexdigest()
        assert [d for n, d in whole.digests.items() if n.endswith(name)] == [digest]


def test_the_distance_of_the_target_is_the_exact_one(whole: Evidence, place: Path, recorded) -> None:
    """Over fractions, by loops of its own."""
    w = written(place / "again.onnx")
    assert (place / "again.onnx").read_bytes() == (place / "net.onnx").read_bytes()
    far = Fraction(0)
    for image, scores in zip(recorded["image"], recorded["scores"], strict=True):
        x = {(i, j): Fraction(float(image[0, 0, i, j])) for i in range(SIZE) for j in range(SIZE)}
        hidden = []
        for o in range(2):
            for i in range(SIZE):
                for j in range(SIZE):
                    taps = [(a, b) for a in range(3) for b in range(3) if (i + a - 1, j + b - 1) in x]
                    total = sum(Fraction(float(w["w"][o, 0, a, b])) * x[i + a - 1, j + b - 1] for a, b in taps)
                    hidden.append(max(total, Fraction(0)))
        for k in range(CLASSES):
            exact = sum(h * Fraction(float(w["v"][n, k])) for n, h in enumerate(hidden))
            far = max(far, abs(exact - Fraction(float(scores[0, k]))))
    said = float(re.search(r"The target's scores is at most (\S+) from the exact", whole["outputs"].answer)[1])
    assert far <= Fraction(said) <= far * Fraction(1002, 1000) + Fraction(1, 10**15)


def test_what_was_not_asked_is_said(place: Path, recorded) -> None:
    evidence = gather(place / "net.onnx", recorded)
    found = verdicts(evidence)
    assert [name for name, verdict in found.items() if verdict == "not asked"] == [
        "decisions",
        "box",
        "certificate",
    ]
    assert "not asked" in evidence_page(evidence)


@pytest.mark.parametrize(("value", "by"), [("c", 1e-3), ("scores", 1e-2)])
def test_a_planted_fault_is_found(value: str, by: float, place: Path, recorded) -> None:
    wrong = {**recorded, value: recorded[value].copy()}
    wrong[value].flat[-1] += np.float32(by)
    evidence = gather(place / "net.onnx", wrong)
    assert evidence.verdict == "findings"
    assert evidence["layers"].verdict == "differs"
    assert evidence["outputs"].verdict == ("differs" if value == "scores" else "proven")


def test_nan_of_the_target_is_no_good_answer(place: Path, recorded) -> None:
    wrong = {**recorded, "scores": recorded["scores"].copy()}
    wrong["scores"].flat[0] = np.nan
    evidence = gather(place / "net.onnx", wrong)
    assert (evidence["layers"].tone, evidence["outputs"].verdict) == ("bad", "differs")


def test_a_certificate_of_another_network_is_refused(place: Path, recorded, statement: Path) -> None:
    written(place / "other.onnx", scale=2.0)
    values = run_elsewhere(place / "other.onnx", recorded["image"])
    evidence = gather(place / "other.onnx", values, certificates=[(place / "net.cert.json", statement)])
    assert (evidence.items[-1].verdict, evidence.verdict) == ("refused", "findings")


def test_overflow_that_is_not_excluded(place: Path, images: np.ndarray) -> None:
    written(place / "large.onnx", scale=1e37)
    evidence = gather(place / "large.onnx", run_elsewhere(place / "large.onnx", images), box=(-100.0, 100.0))
    assert evidence["box"].tone == "open"
    assert "conv" in evidence["box"].answer


def test_the_page_says_what_it_is(whole: Evidence) -> None:
    text = evidence_page(whole)
    assert all(sentence in text for sentence in (*PURPOSE, *ASSUMPTIONS))
    assert not re.search(r"https?://|<script", text)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(re.findall(r'id="([^"]+)"', text))
    assert "@media print" in text


def test_inputs_that_were_not_recorded_are_named(place: Path, recorded) -> None:
    with pytest.raises(SpecgradError, match=r"the inputs .* of the model were not recorded; got y"):
        gather(place / "net.onnx", {"y": next(iter(recorded.values()))})


def test_bytes_and_a_proto_are_models_too(whole: Evidence, place: Path, recorded) -> None:
    data = (place / "net.onnx").read_bytes()
    for given in (bytearray(data), onnx.load_from_string(data)):
        evidence = gather(given, recorded)
        assert evidence.digests["model: model"] == whole.digests["model: net.onnx"]
        assert verdicts(evidence)["outputs"] == verdicts(whole)["outputs"]
    with pytest.raises(SpecgradError, match="the model must be an ONNX file; got Graph"):
        gather(sg.trace(sg.relu, (3,)), {})


def test_an_unknown_operator_is_told_in_every_item() -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 3]) for n in "xy")
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="relu"),
        helper.make_node("Det", ["h"], ["d"], name="det"),
        helper.make_node("Add", ["h", "d"], ["y"], name="add"),
    ]
    model = helper.make_model(helper.make_graph(nodes, "net", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    ones = np.ones((1, 3, 3), np.float32)
    found = gather(model, {"x": ones, "h": ones, "y": 5 * ones}, data=ones, box=(0.0, 1.0))
    told = verdicts(found)
    assert told["layers"] == "partly examined"
    assert {told[name] for name in ("model", "outputs", "decisions", "box")} == {"cannot tell"}
    said = {item.name: item.answer for item in found.items}
    for name in ("model", "outputs", "decisions", "box"):
        assert "Det 'det': the operator is not known" in said[name]


def test_a_model_that_cannot_be_read_has_its_section_too() -> None:
    item = Item("model", "Which model?", "cannot tell", "Not every operator has a meaning here", "semantics")
    assert "cannot tell" in page_of_items._section_html(item)


def test_its_json_is_valid_down_to_what_each_command_found(whole: Evidence, place: Path, capsys, monkeypatch) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    cli = pytest.importorskip("specgrad.cli.main")
    from specgrad.cli.schema_command import schemas

    words = (
        f"evidence {place / 'net.onnx'} --recorded {place / 'target.npz'} --box 0,1 --json --html {place / 'e.html'}"
    )
    words += f" --certificate {place / 'net.cert.json'} --property {place / 'p.vnnlib'}"
    monkeypatch.setattr("sys.argv", ["specgrad", *words.split()])
    with pytest.raises(SystemExit) as end:
        cli.main()
    data = json.loads(capsys.readouterr().out)
    assert (end.value.code, data["verdict"]) == (1, "findings")  # the profile is broken: nothing is normalised
    for schema, part in [
        ("evidence", data),
        *((i["details"]["schema"], i["details"]) for i in data["items"] if i["details"] and "schema" in i["details"]),
    ]:
        name = schema.removeprefix("specgrad/").partition("/")[0]
        assert [e.message for e in jsonschema.Draft202012Validator(schemas()[name]).iter_errors(part)] == []
    assert {i["name"] for i in data["items"] if i["details"] and "schema" not in i["details"]} == {"model"}
    assert "Written by specgrad." in (place / "e.html").read_text()


def test_the_example_with_openvino_as_the_target(tmp_path: Path) -> None:
    """The file is normalised, so nothing is broken; what the texts of the profile leave undecided stays open."""
    pytest.importorskip("openvino")
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "evidence.py"))
    evidence = example["main"](tmp_path)
    assert verdicts(evidence) == {
        "model": "ok",
        "profile": "undecided",
        "layers": "rounding",
        "outputs": "proven",
        "decisions": "proven",
        "box": "bounded",
        "certificate": "valid",
    }
    assert evidence.verdict == "cannot tell"
    assert (tmp_path / "evidence.html").stat().st_size > 10_000


def test_outputs_that_were_compared_with_nothing_are_no_yes(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time was over before exact outputs were known: a target that is far off would hide behind an estimate."""
    from specgrad.safety.evidence import checks

    written(tmp_path / "net.onnx")
    values = run_elsewhere(tmp_path / "net.onnx", np.ones((2, 1, 1, SIZE, SIZE), np.float32))
    known = {name: a + 100 if name == "scores" else a for name, a in values.items()}
    request = checks.EvidenceRequest(str(tmp_path / "net.onnx"), known)
    late = "specgrad.check.tolerances.labelled._try_proof"
    monkeypatch.setattr(late, lambda *_: (None, "the time was over"))
    assert checks.outputs(request).verdict == "cannot tell"
    monkeypatch.undo()
    assert checks.outputs(request).verdict == "differs"
