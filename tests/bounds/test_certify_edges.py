"""certify at its edges: other formats, rounded constants, empty properties, boxes without float32 numbers, limits."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from pace import ENDS, stretched
from specgrad.proof.base.deployed_graph import rounded_constants
from specgrad.proof.base.executions import deployment
from specgrad.properties.property import Alternative, Case, Property
from specgrad.properties.vnnlib import read_text

torch = pytest.importorskip("torch")

from specgrad.bounds.search.certify import certify, target  # noqa: E402
from specgrad.bounds.search.input_split.search import OpenBoxes  # noqa: E402


def identity() -> sg.Graph:
    return sg.trace(lambda x: sg.relu(x), (1,))


def below(limit: Fraction | int, low: Fraction | int, high: Fraction | int) -> Property:
    """y <= limit must not happen for x in low..high."""
    region = Alternative(np.array([[1.0]]), (Fraction(limit),))
    return Property(1, 1, (Case((Fraction(low),), (Fraction(high),), (region,)),))


# --- formats ----------------------------------------------------------------------------------------------------------


def scaled(factor: Any) -> sg.Graph:
    return sg.trace(lambda x: sg.mul(x, factor), (1,))


def test_constants_of_other_formats_are_refused() -> None:
    for kind in (np.float16, np.longdouble):
        with pytest.raises(sg.ParameterError, match=rf"constant 'constant' is of {np.dtype(kind)}; certify proves"):
            certify(scaled(np.array([0.5], kind)), ([1.0], 0, 0.1))
    with pytest.raises(sg.ParameterError, match="too large for float32"):
        certify(scaled(np.array([1e300])), below(0, 1, 2))


def test_constants_that_deployment_rounds_are_said() -> None:
    """0.1 is no float32 number: the network of the nearest one is meant."""
    found = certify(scaled(np.array([0.1])), below(0, 1, 2))
    assert found.verdict == "holds"
    assert found.notes == rounded_constants(scaled(np.array([0.1])))
    assert "constants were rounded to float32 first (constant)" in found.notes[0]
    for exact in (np.array([0.5]), np.float32([0.1])):
        assert certify(scaled(exact), below(0, 1, 2)).notes == ()


@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16", "DOUBLE"])
def test_onnx_files_of_other_formats_are_refused(kind: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    number = getattr(TensorProto, kind)
    tensor = helper.make_tensor("w", number, [1], [0.5])
    for inputs, where in ((number, "input 'x'"), (TensorProto.FLOAT, "tensor 'w'")):
        ends = [helper.make_tensor_value_info(name, inputs, [1]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [tensor])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
        with pytest.raises(sg.ParameterError, match=f"{where} is of {kind}; certify proves things about float32"):
            certify(str(tmp_path / "m.onnx"), ([1.0], 0, 0.1))


def test_casts_to_other_formats_are_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(n, t, [1]) for n, t in (("x", TensorProto.FLOAT), ("y", TensorProto.DOUBLE))]
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.DOUBLE, name="widen")
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    with pytest.raises(sg.ParameterError, match="to of node 'widen' is of DOUBLE"):
        certify(str(tmp_path / "m.onnx"), ([1.0], 0, 0.1))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_modules_of_other_formats_are_refused(kind: str) -> None:
    module = torch.nn.Linear(1, 2).to(getattr(torch, kind))
    with pytest.raises(sg.ParameterError, match=f"'weight' is of {kind}; certify proves things about float32"):
        certify(module, (np.float32([1.0]), 0, 0.1))


def test_verdicts_say_what_they_hold_for() -> None:
    found = certify(identity(), below(0, 1, 2))
    assert found.deployment == deployment()
    assert found.to_json()["deployment"] == deployment()
    named = {"format", "accumulators", "order", "rounding", "subnormals", "merged", "algorithms", "values", "inputs"}
    assert named <= set(deployment())
    for excluded in ("Winograd", "FFT", "TF32"):
        assert excluded in deployment()["algorithms"]
    assert deployment()["merged"] != deployment({**_plain(), "execution": "node"})["merged"]


def _plain() -> dict[str, Any]:
    from specgrad.proof.base.executions import Executions

    return Executions().to_json()


def test_other_arithmetics_are_refused() -> None:
    from specgrad.rounding import Arithmetic

    with pytest.raises(sg.ParameterError, match="certify answers for dtype='float32'; got 'bfloat16'"):
        certify(identity(), below(0, 1, 2), arithmetic=Arithmetic("bfloat16"))


# --- properties -------------------------------------------------------------------------------------------------------


def test_empty_properties_are_refused() -> None:
    whole = below(0, 1, 2)
    (case,) = whole.cases
    for changed, words in (
        (replace(whole, cases=()), "the property has no cases, so there is nothing to prove"),
        (replace(whole, cases=(replace(case, alternatives=()),)), "case 0 has no alternatives"),
        (below(0, 2, 1), r"case 0 is an empty box: input 0 has lower bound 2.0 above 1.0"),
        (replace(whole, cases=(replace(case, low=()),)), "case 0 has 0 and 1 bounds, not 1"),
        (replace(whole, cases=(replace(case, alternatives=(Alternative(np.zeros((1, 2)), (Fraction(0),)),)),)),
         r"case 0 has rows of shape \(1, 2\) for 1 limits and 1 outputs"),
    ):  # fmt: skip
        with pytest.raises(sg.SpecgradError, match=words):
            certify(identity(), changed)


TEXT = "(declare-const X_0 Real) (declare-const Y_0 Real) (assert (>= X_0 {})) (assert (<= X_0 {})) {}"


def test_without_a_word_about_outputs_every_input_is_a_counterexample() -> None:
    found = certify(identity(), read_text(TEXT.format(1, 2, "")), seconds=ENDS)
    assert found.verdict == "violated"
    assert 1 <= found.counterexample.x.item() <= 2
    found = certify(identity(), read_text(TEXT.format("0.1", "0.1", "")), seconds=ENDS)
    assert found.verdict == "violated"
    assert (found.counterexample.point, found.counterexample.x.item()) == ((Fraction("0.1"),), float(np.float32(0.1)))


def test_boxes_without_float32_numbers() -> None:
    """0.1 lies between two float32 numbers, a below and b above: a proof is about both, a counterexample about b, which
    is nearer."""
    b = Fraction(float(np.float32(0.1)))
    a = Fraction(float(np.nextafter(np.float32(0.1), np.float32(0))))
    tenth = Fraction(1, 10)
    assert a < tenth < b
    assert certify(identity(), below(a - Fraction(1, 10**12), tenth, tenth)).verdict == "holds"
    for limit in (a, tenth):  # y <= limit at a alone, which no network reads
        assert certify(identity(), below(limit, tenth, tenth), seconds=ENDS).verdict == "unknown"
    found = certify(identity(), below(b, tenth, tenth), seconds=ENDS)
    assert (found.verdict, found.counterexample.x.item(), found.counterexample.point) == (
        "violated",
        float(b),
        (tenth,),
    )
    note = "1 of 1 input cells of the counterexample are no float32 numbers: the network was run on the nearest ones"
    assert found.notes == (note,)
    found = certify(identity(), below(b, tenth, b), seconds=ENDS)
    assert (found.verdict, found.counterexample.x.item(), found.notes) == ("violated", float(b), ())


def test_parts_that_say_nothing_are_noted() -> None:
    text = TEXT.format(1, 2, "(assert (or (<= Y_0 0) (and (<= X_0 0) (<= Y_0 9)) (<= 1 0)))")
    found = certify(identity(), read_text(text))
    assert found.verdict == "holds"
    assert found.notes == ("2 alternatives of the property hold for no input or no output, and were left out",)


@pytest.mark.parametrize(("limit", "verdict"), [("1e400", "violated"), ("-1e400", "holds"), ("1e-400", "holds")])
def test_limits_beyond_float64(limit: str, verdict: str) -> None:
    assert (
        certify(identity(), read_text(TEXT.format(1, 2, f"(assert (<= Y_0 {limit}))")), seconds=ENDS).verdict == verdict
    )


def test_targets_lie_above_their_limits() -> None:
    for limit in (Fraction(10) ** 400, -(Fraction(10) ** 400), Fraction(1, 3), Fraction(0), Fraction(-1, 10**400)):
        found = target(limit)
        assert found == np.inf or Fraction(found) > limit
        with np.errstate(over="ignore"):
            before = float(np.nextafter(found, -np.inf))
        assert before == -np.inf or Fraction(before) <= limit


# --- splits -----------------------------------------------------------------------------------------------------------


def test_halves_hold_every_float32_number_once() -> None:
    """Down to single numbers, one by one: 0.1..0.1000001 has the two around its lower end, and some more."""
    tenth = Fraction(1, 10)
    whole = Case((tenth,), (tenth + Fraction(1, 10**7),), ())
    low, high = (np.float32(end[0]) for end in whole.outer())
    expected = [low]
    while expected[-1] < high:
        expected.append(np.nextafter(expected[-1], np.float32(1)))
    boxes, found = [tuple(float(end[0]) for end in whole.outer())], []
    while boxes:
        first, last = boxes.pop()
        parts = cut(first, last)
        found += [] if parts else [Fraction(first)]
        assert parts or first == last
        boxes += parts
    assert sorted(found) == [Fraction(float(v)) for v in expected]
    assert len(found) > 10


def cut(first: float, last: float) -> list[tuple[float, float]]:
    """The two parts of a box of one input; none where it is one number."""
    low, high = (torch.full((1, 1), end, dtype=torch.float64) for end in (first, last))
    nothing = torch.zeros((1, 1), dtype=torch.float64)
    slopes = torch.ones((1, 1, 1), dtype=torch.float64)
    batch = OpenBoxes(low, high, nothing, nothing, slopes, torch.tensor([0]), 0 * slopes)
    if batch.is_one_input().all():
        return []
    return [(float(a), float(b)) for a, b in zip(*batch.cut()[:2], strict=True)]


def test_single_inputs_that_rounding_decides_end_soon() -> None:
    """2**24*1 + 5/2 - 2**24*1 is 2, 5/2 or 4 by the order of the sum; the bound of its error is larger."""
    weights = np.float32([[2**24, 1, -(2**24)]])
    graph = sg.trace(lambda x: sg.linear(weights, None, x), (3,))
    point = (Fraction(1), Fraction(5, 2), Fraction(1))
    found = certify(graph, Property(3, 1, (Case(point, point, (Alternative(np.array([[1.0]]), (Fraction(1),)),)),)))
    assert found.verdict == "unknown"
    assert found.reason == "the box holds one input alone, and rounding decides there"
    assert found.seconds < stretched(20)


def test_a_counterexample_stands_where_the_graph_cannot_be_written_as_onnx() -> None:
    """It is then confirmed in PyTorch alone."""
    adjoint = sg.vjp(sg.trace(lambda x: sg.resize(x, (3,)), (2,)))
    graph = sg.trace(lambda g: adjoint(np.zeros(2, np.float32), g)[1], (3,))
    assert [n.op.name for n in graph.nodes] == ["input", "resize_spread"]
    verdict = certify(graph, (np.float32([1, 0, 0]), 0, 3.0), seconds=ENDS)
    assert verdict.verdict == "violated"
    assert "onnxruntime" not in verdict.counterexample.confirmed
