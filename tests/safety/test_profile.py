"""The rules of the safety profile: each fires on its own violation, and on nothing else."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import profile_cases as cases  # noqa: E402
from specgrad.errors import SpecgradError  # noqa: E402
from specgrad.process import Process  # noqa: E402
from specgrad.safety.profile import RULES, Profile, check_profile, in_order, model_view  # noqa: E402
from specgrad.safety.profile.digests import digests_of  # noqa: E402

BOX = (-2.0, 2.0)
MATRIX = [(rule, name) for rule, each in cases.VIOLATIONS.items() for name in each]


ANSWERS: dict[bytes, Any] = {}


@pytest.fixture(autouse=True)
def _ask_once(monkeypatch: pytest.MonkeyPatch, shared: Process) -> None:
    """ONNX's own code is another process: there is one for all tests, and the same bytes are given to it once."""
    run_onnx_code = model_view.run_onnx_code

    def remembered(model: Any, folder: Any, process: Process) -> Any:
        data = model.SerializeToString()
        if folder is not None or data not in ANSWERS:
            ANSWERS[data] = run_onnx_code(model, folder, shared)
        return ANSWERS[data]

    monkeypatch.setattr(model_view, "run_onnx_code", remembered)


def held(model: Any, **options: Any) -> Profile:
    """With a side file that fits, so that S24 has nothing to say."""
    data = model.SerializeToString()
    return check_profile(model, **{"digests": digests_of(model, None, data), "box": BOX, **options})


def rules_of(profile: Profile) -> set[str]:
    return {f.rule for f in profile.findings}


def strays(rule: str, name: str) -> tuple[set[str], set[str]]:
    """Rules that should have fired on a violation and did not; rules that fired and should not have."""
    expected = {rule} | cases.COUPLED.get((rule, name), (set(), ""))[0]
    if rule in cases.START:
        expected |= rules_of(held(cases.START[rule]()))
    fired = rules_of(held(cases.VIOLATIONS[rule][name]()))
    return expected - fired, fired - expected


def test_the_base_breaks_nothing() -> None:
    profile = held(cases.base())
    assert (profile.verdict, profile.findings, profile.unchecked) == ("no finding", (), {})


def test_every_rule_of_the_page_is_there_and_has_a_violation() -> None:
    names = [f"S{i}" for i in range(1, 32)]
    assert [r.id for r in in_order()] == names
    assert {*cases.VIOLATIONS, "S24"} == set(names)  # S24 is about a second file, below
    assert all(r.tag and r.source and r.version and r.sentence for r in in_order())
    assert {r.id for r in in_order() if r.level == "W"} == {f"S{i}" for i in (7, 11, 13, 21, 22, 23, 25, 26)}


@pytest.mark.parametrize(("rule", "name"), MATRIX, ids=[f"{r}: {n}" for r, n in MATRIX])
def test_a_violation_is_found_and_nothing_else(rule: str, name: str) -> None:
    assert strays(rule, name) == (set(), set())


@pytest.mark.parametrize("rule", sorted(cases.VIOLATIONS, key=lambda r: int(r[1:])))
def test_a_rule_that_sleeps_is_seen(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(cases.VIOLATIONS[rule]))
    monkeypatch.delitem(RULES, rule)
    assert rule in strays(rule, name)[0]


def test_a_rule_that_cries_everywhere_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    loud = replace(RULES["S8"], check=RULES["S22"].check)
    monkeypatch.setitem(RULES, "S8", loud)
    assert "S8" in strays("S22", "no order")[1]


# --- severities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "name", "verdict"),
    [
        ("S2", "neither", "broken"),
        ("S2", "listed only", "undecided"),
        ("S2", "text only", "undecided"),
        ("S7", "Conv without bias", "undecided"),
        ("S20", "subnormal", "undecided"),
        ("S28", "group", "broken"),
        ("S28", "depthwise", "undecided"),
        ("S29", "one axis", "undecided"),
        ("S29", "pads below the dilated kernel", "undecided"),
        ("S29", "empty window that passes all guards", "broken"),
    ],
)
def test_what_the_texts_do_not_decide_is_undecided(rule: str, name: str, verdict: str) -> None:
    profile = held(cases.VIOLATIONS[rule][name]())
    assert (profile.status(RULES[rule]), profile.verdict) == (verdict, verdict)


def test_without_a_box_ranges_are_not_checked() -> None:
    profile = held(cases.VIOLATIONS["S26"]["overflow"](), box=None)
    assert profile.verdict == "no finding"
    assert profile.unchecked == {"S26": "no --box LO,HI was given"}
    assert profile.status(RULES["S26"]) == "not checked"


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_ranges_in_another_format_are_not_checked(kind: Any) -> None:
    """4 * 300 * 1000 is no float16, and bounds of float32 would not say so."""
    w, element = (
        numpy_helper.from_array(np.full((4, 4), 300, kind), "w"),
        helper.np_dtype_to_tensor_dtype(np.dtype(kind)),
    )
    x, y = (helper.make_tensor_value_info(name, element, [1, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="m")], "g", [x], [y], [w])
    profile = check_profile(helper.make_model(graph, ir_version=10), box=(0.0, 1000.0))
    assert profile.status(RULES["S26"]) == ("no finding" if kind is np.float32 else "not checked")


def test_a_finding_says_whose_rule_it_is_and_where() -> None:
    (finding,) = held(cases.without("strides")).findings
    data = finding.to_json()
    assert (data["rule"], data["severity"], data["node"], data["index"]) == ("S5", "broken", "conv", 0)
    assert (data["operator"], data["what"], data["cure"]) == ("Conv", "strides is not written", "--normalise writes it")
    assert "REQ-OP-070" in data["tag"]
    assert "1598dbc" in data["version"]
    json.dumps(held(cases.base()).to_json(), allow_nan=False)


# --- empty windows ------------------------------------------------------------------------------------------------


def reads_nothing(n: int, k: int, s: int, e: int, lo: int, hi: int) -> bool | None:
    """By the definition, cell by cell; None: there is no window."""
    outputs = (n + lo + hi - e * (k - 1) - 1) // s + 1
    if e * (k - 1) + 1 > n + lo + hi:
        return None
    return any(all(not 0 <= s * o + e * t - lo < n for t in range(k)) for o in range(outputs))


def test_empty_windows_are_found_exactly() -> None:
    """Every pool of 1 to 3 cells, kernels of 1 to 3, strides and dilations of 1 to 3, pads of 0 to 3, on one axis."""
    from specgrad.safety.profile.model_view import NodeView
    from specgrad.safety.profile.window_rules import first_empty, pool_window

    missed = 0
    for n, k, s, e, lo, hi in itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 2, 3), range(4), range(4)):
        empty = reads_nothing(n, k, s, e, lo, hi)
        if empty is None:
            continue
        node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[k], strides=[s], dilations=[e], pads=[lo, hi])
        at = first_empty(pool_window(NodeView(0, node, None), (1, 1, n)))
        assert (at is not None) == empty, (n, k, s, e, lo, hi)
        if at is not None:
            assert all(not 0 <= s * at[0] + e * t - lo < n for t in range(k))
            missed += max(lo, hi) < k and max(lo, hi) < e * (k - 1) + 1
    assert missed > 0  # by every guard of the texts, the smallest being n=1, k=2, dilation=2, pads 1 and 1


@pytest.mark.parametrize(("pad", "severity"), [(1, None), (2, "undecided"), (4, "undecided"), (5, "broken")])
def test_guards_of_pads_at_their_ends(pad: int, severity: str | None) -> None:
    """2 cells with 3 between them, 5 in all: below 2 every guard holds, at 5 none does, as 5 < 5 does not."""
    model = cases.pool((1, 1, 9, 9), (1, 1, 5 + pad, 5 + pad), dilations=[4, 4], pads=[pad, pad, 0, 0], strides=[1, 1])
    found = [f.severity for f in held(model).findings if f.what.startswith("pads[")]
    assert found == ([] if severity is None else [severity] * 2)


# --- files --------------------------------------------------------------------------------------------------------


def test_digests_are_held_against_the_file(tmp_path: Path) -> None:
    model, path = cases.base(), tmp_path / "net.onnx"
    data = model.SerializeToString()
    path.write_bytes(data)
    assert rules_of(check_profile(path)) == {"S24"}
    side = digests_of(model, None, data)
    assert side["file"] == hashlib.sha256(data).hexdigest()
    (tmp_path / "net.onnx.digests.json").write_text(json.dumps(side))
    assert rules_of(check_profile(path)) == set()
    bits = bytearray(model.graph.initializer[0].raw_data)
    bits[5] ^= 1
    model.graph.initializer[0].raw_data = bytes(bits)
    path.write_bytes(model.SerializeToString())
    findings = check_profile(path).findings
    assert [(f.rule, f.place.value) for f in findings] == [("S24", None), ("S24", "w")]
    with pytest.raises(SpecgradError, match="is no JSON"):
        check_profile(path, digests=path)


def test_parameters_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    model = cases.base()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    profile = check_profile(model)
    assert ("S20", "broken", "w") in {(f.rule, f.severity, f.place.value) for f in profile.findings}
    outside = cases.base()
    w = outside.graph.initializer[0]
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    w.external_data.add(key="location", value="../w.bin")
    path = tmp_path / "net.onnx"
    path.write_bytes(outside.SerializeToString())
    (finding,) = [f for f in check_profile(path).findings if f.rule == "S20"]
    assert "must stay inside the model's folder" in finding.what


def test_external_data_is_read_from_the_folder(tmp_path: Path) -> None:
    model = cases.base()
    onnx.save_model(model, tmp_path / "net.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    side = digests_of(cases.base(), None, (tmp_path / "net.onnx").read_bytes())
    assert rules_of(check_profile(tmp_path / "net.onnx", digests=side, box=BOX)) == set()


def test_functions_are_expanded() -> None:
    profile = held(cases.function())
    assert (profile.verdict, len(profile.notes)) == ("no finding", 1)
    profile = held(cases.recursion())
    assert {"S1", "S17"} <= rules_of(profile)


def test_training_mode_of_a_node_is_found() -> None:
    model = cases.norm(training_mode=1)
    model.graph.node[0].output.extend(["m", "v"])
    model.graph.output.extend([cases.info("m", [2]), cases.info("v", [2])])
    assert "S4" in rules_of(held(model))


def test_values_given_twice_and_out_of_order_are_found() -> None:
    twice, late = cases.base(), cases.base()
    twice.graph.node[1].output[0] = "c"
    assert {"S1", "S16"} <= rules_of(held(twice))
    first, second = late.graph.node[0], late.graph.node[1]
    nodes = [second, first, *late.graph.node[2:]]
    nodes = [helper.make_node("Relu", ["c"], ["r"], "relu"), *[n for n in nodes if n.name != "relu"]]
    del late.graph.node[:]
    late.graph.node.extend(nodes)
    assert {"S1", "S16"} <= rules_of(held(late))


def test_a_shape_that_is_wrong_is_found() -> None:
    model = cases.base()
    model.graph.value_info[1].type.tensor_type.shape.dim[3].dim_value = 5
    findings = [f for f in held(model).findings if f.rule == "S10"]
    assert [f.place.value for f in findings] == ["r"]
    assert findings[0].what == "the shape (1, 2, 4, 5) is written, and (1, 2, 4, 4) follows from the inputs"


def verdict_of(data: bytes) -> str:
    """Of bytes that may be no model: then the one error, in one line."""
    try:
        return check_profile(data).verdict
    except SpecgradError as error:
        return "two lines" if "\n" in str(error) else "error"


@pytest.mark.parametrize("data", [b"", b"\x00" * 40, b"\x0a\xff"])
def test_what_is_no_model_is_an_error_in_one_line(data: bytes) -> None:
    assert verdict_of(data) in ("error", "broken")


@pytest.mark.parametrize("name", ["strides", "pads", "kernel_shape", "dilations", "group", "auto_pad"])
@pytest.mark.parametrize("value", [1.5, "word", [1.0], 7])
def test_attributes_of_another_type_are_no_crash(name: str, value: Any) -> None:
    node = (model := cases.without(name)).graph.node[0]
    node.attribute.append(helper.make_attribute(name, value))
    assert held(model).verdict != "no finding"


def test_flipped_bytes_give_a_profile_or_one_error() -> None:
    """No rule may fall over what a file says."""
    rng, data = np.random.default_rng(0), cases.base().SerializeToString()
    for _ in range(12):
        broken = bytearray(data)
        for at in rng.integers(0, len(data), 4):
            broken[at] = rng.integers(0, 256)
        assert verdict_of(bytes(broken)) != "two lines"
