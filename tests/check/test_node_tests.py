"""Tolerances of onnx's node tests, against exact fractions and every order of short float32 sums."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
from node_test_files import make, store
from specgrad.check.tolerances.node_tests import judge, load, report
from specgrad.errors import ContradictionError, ParameterError, SpecgradError, UnsupportedError
from specgrad.rounding import FORMATS, Ball

AXES = np.array([1])


def only(test: Any) -> judge.TestOutput:
    (output,) = judge.judge_test(test).outputs
    return output


def orders(row: np.ndarray) -> set[float]:
    """A sum of four float32 numbers, one by one in every order and in pairs."""
    found = set()
    for a, b, c, d in itertools.permutations(row):
        found |= {float(((a + b) + c) + d), float((a + b) + (c + d))}
    return found


def test_the_pair_holds_for_every_order_of_a_sum() -> None:
    x = np.float32([[100, 1e-3, -100, 3e-5], [1, 2, 3, 4], [0.1, 0.2, -0.3, 0.4]])
    stored = x.sum(1)
    output = only(make("ReduceSum", [x, AXES], [stored], keepdims=0))
    assert output.state == "proven"
    for i, row in enumerate(x):
        exact = sum(map(Fraction, map(float, row)))
        assert abs(Fraction(float(output.exact[i])) - exact) <= Fraction(float(output.radius[i]))
        for y in orders(row):
            assert abs(Fraction(y) - exact) <= Fraction(float(output.radius[i]))
            np.testing.assert_allclose(np.float32(y), stored[i], rtol=output.rtol, atol=output.atol)


def test_a_pair_below_a_correct_execution_has_a_witness() -> None:
    x = np.float32([[1000, 1e-3, -1000, 3e-5]])
    output = only(make("ReduceSum", [x, AXES], [np.float32([0.00103])], keepdims=0))
    assert (output.onnx, output.outside, output.failing) == ("below", 0, 1)
    assert output.witness.computed in orders(x[0])
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(output.witness.computed, 0.00103, rtol=load.RTOL, atol=load.ATOL)


def test_a_stored_value_that_no_execution_gives_is_outside() -> None:
    x, y = np.float32([0.1, 0.2, 0.7]), np.float32([0.4, 0.3, 0.5])
    right = only(make("Mul", [x, y], [x * y]))
    assert (right.outside, right.onnx, right.cells) == (0, "enough", ())
    assert max(right.rtol * 0.35, right.atol) <= 2.0**-23
    wrong = x * y
    wrong[1] += 4 * np.spacing(wrong[1])
    output = only(make("Mul", [x, y], [wrong]))
    assert (output.outside, output.cells[0].index, output.cells[0].stored) == (1, (1,), float(wrong[1]))
    exact = Fraction(float(x[1])) * Fraction(float(y[1]))
    assert output.cells[0].low <= exact <= output.cells[0].high < wrong[1]
    assert output.atol + output.rtol * wrong[1] >= abs(wrong[1] - output.cells[0].low)


def test_numbers_of_a_format_are_found_at_both_ends() -> None:
    numbers = np.sort(np.arange(2**16, dtype=np.uint16).view(np.float16).astype(float))
    numbers = numbers[np.isfinite(numbers)]
    ends = np.concatenate([numbers[::37], numbers[::41] * 1.0003, numbers[::43] + 1e-8, [0.0, 65504.0, -65504.0]])
    ends = ends[np.abs(ends) <= 65504]
    up = judge.numbers_within(ends, FORMATS["float16"], np.ceil)
    down = judge.numbers_within(ends, FORMATS["float16"], np.floor)
    assert (up == numbers[np.searchsorted(numbers, ends, "left")]).all()
    assert (down == numbers[np.searchsorted(numbers, ends, "right") - 1]).all()


def test_a_ball_without_a_number_of_the_format_is_a_contradiction() -> None:
    ball = Ball(np.array([1 + 2.0**-30]), np.array([2.0**-40]))
    with pytest.raises(ContradictionError):
        judge.Cells(np.array([1.0]), ball, FORMATS["float32"])


def test_moved_cells_are_exact_and_infinities_stay() -> None:
    x = np.float32([[1, -np.inf], [np.nan, 0.1]])
    output = only(make("Transpose", [x], [x.T], perm=[1, 0]))
    assert (output.rtol, output.atol, output.onnx, output.outside) == (0, 0, "enough", 0)
    assert only(make("Transpose", [x], [x], perm=[1, 0])).outside == 2


def test_bfloat16_is_held_against_what_the_runner_allows() -> None:
    x = np.array([1.0, 3.0, 0.7], "float32").astype(pytest.importorskip("ml_dtypes").bfloat16)
    y = x + x[::-1]
    test = make("Add", [x, x[::-1].copy()], [y], opset=14)
    test = load._made_tests(import_module("types").SimpleNamespace(
        name="a", model=test.model, data_sets=[(test.inputs, test.outputs)], rtol=1e-3, atol=1e-7
    ))[0]  # fmt: skip
    output = only(test)
    assert (output.dtype, output.state, output.onnx, output.outside) == ("bfloat16", "proven", "enough", 0)


def test_what_steers_an_operator_is_a_constant_and_nothing_is_guessed() -> None:
    x = np.float32([[1, 2], [3, 4]])
    assert only(make("Reshape", [x, np.array([4])], [x.ravel()])).state == "proven"
    assert only(make("Pow", [x, np.float32(2)], [x**2], opset=15)).state == "proven"
    judged = judge.judge_test(make("Range", [np.float32(0), np.float32(1), np.float32(0.1)], [np.float32([0.0] * 10)]))
    assert judged.outputs[0].state == "not read"
    assert "constant" in judged.reason
    judged = judge.judge_test(make("Hardmax", [x], [x]))
    assert (judged.outputs[0].state, judged.reason) == ("not read", "Hardmax 'y0': the operator is not known")


def test_integers_and_booleans_are_listed() -> None:
    x = np.float32([0.1, 2])
    output = only(make("Greater", [x, x[::-1].copy()], [np.array([False, True])]))
    assert (output.state, output.dtype, output.rtol, output.undecided) == ("boolean", "bool", None, 0)
    x = np.float32([0, 2, -3, -2.5, 1.34, 0.5])  # onnx 6433: -2.5 / (5/255) is -127.5, which rounding may miss
    outputs = [np.uint8([153, 255, 0, 26, 221, 179]), np.float32(5 / 255), np.uint8(153)]
    y, scale, _ = judge.judge_test(make("DynamicQuantizeLinear", [x], outputs, opset=11)).outputs
    assert (y.state, y.dtype, y.undecided > 0, scale.state) == ("integer", "uint8", True, "proven")


# --- files ------------------------------------------------------------------------------------------------------------


def test_stored_tests_are_read_and_other_types_are_not(tmp_path: Path) -> None:
    x = np.float32([1, 2])
    home = store(tmp_path, make("Relu", [x], [x]))
    (test,) = load.stored_tests(tmp_path)
    assert (test.name, only(test).atol, test.operators) == ("test_relu", 0, ("Relu",))
    path = home / "test_data_set_0" / "input_0.pb"
    path.write_bytes(import_module("onnx").numpy_helper.from_array(x.view(np.uint32)).SerializeToString())
    judged = judge.judge_test(load.stored_tests(tmp_path)[0])
    assert (judged.outputs[0].state, "x0" in judged.reason) == ("not read", True)
    (home / "model.onnx").write_bytes(b"\xff")
    with pytest.raises(SpecgradError, match="not an ONNX model"):
        load.stored_tests(tmp_path)
    with pytest.raises(ParameterError, match="no subfolder"):
        load.stored_tests(home)


def test_the_report_counts_and_stops_in_time(tmp_path: Path) -> None:
    from specgrad.deadline import time_limit

    x = np.float32([0.1, 2])
    tests = [make("Relu", [x], [x]), make("Hardmax", [x], [x]), make("Mul", [x, x], [x]), make("Not", [x > 1], [x < 1])]
    found = report.judge_tests(tests, "these")
    row = found.counts()["float32"]
    assert [row[c] for c in ("outputs", "proven", "not read", "enough", "outside")] == [3, 2, 1, 1, 1]
    assert (found.verdict, found.others()) == ("findings", {"boolean": 1})
    assert found.reasons() == {"Hardmax: the operator is not known": 1}
    assert found.named("outside") == ["test_mul"]
    assert (
        "exact" not in json.dumps({k: v for k, v in found.to_json(False).items() if k == "tests"}).split('"cells"')[0]
    )
    with time_limit(0):
        found = report.judge_tests(tests, "these")
    assert (found.verdict, len(found.left)) == ("unfinished", 4)


# --- what onnx has ----------------------------------------------------------------------------------------------------


def bilinear(image: np.ndarray, y: Fraction, x: Fraction) -> Fraction:
    """What RoiAlign reads at a point, as onnx's text has it."""
    sizes = image.shape
    if not all(-1 <= at <= size for at, size in zip((y, x), sizes, strict=True)):
        return Fraction(0)
    pairs = []
    for at, size in zip((y, x), sizes, strict=True):
        at = max(at, Fraction(0))
        low = min(int(at), size - 1)
        share = Fraction(0) if low == size - 1 else at - low
        pairs.append([(low, 1 - share), (min(low + 1, size - 1), share)])
    return sum(p * q * Fraction(float(image[i, k])) for i, p in pairs[0] for k, q in pairs[1])


def roi_align(image: np.ndarray, rois: np.ndarray, count: int, offset: Fraction) -> np.ndarray:
    out = np.empty((len(rois), 1, count, count), object)
    for r, roi in enumerate(rois):
        x1, y1, x2, y2 = (Fraction(float(end)) - offset for end in roi)
        high, wide = ((b - a) / count for a, b in ((y1, y2), (x1, x2)))
        quarters = [Fraction(1, 4), Fraction(3, 4)]
        for i, k in itertools.product(range(count), repeat=2):
            reads = [bilinear(image, y1 + (i + p) * high, x1 + (k + q) * wide) for p in quarters for q in quarters]
            out[r, 0, i, k] = sum(reads) / 4
    return out


def test_roi_align_of_onnx_is_stored_with_four_digits() -> None:
    """What docs/findings/node-tests.md says of it: the exact values are ours, to the last of float64's digits."""
    import_module("onnx.backend.test.case.node.roialign")
    cases = {c.name: c for c in import_module("onnx.backend.test.case.node")._NodeTestCases}
    for name, offset in (("test_roialign_aligned_false", Fraction(0)), ("test_roialign_aligned_true", Fraction(1, 2))):
        (test,) = load._made_tests(cases[name])
        output, (image, rois, _) = only(test), test.inputs
        exact = roi_align(image[0, 0], rois, 5, offset)
        assert max(abs(Fraction(float(v)) - e) for v, e in zip(output.exact.flat, exact.flat, strict=True)) < 1e-14
        off = np.array(
            [float(abs(Fraction(float(s)) - e)) for s, e in zip(test.outputs[0].flat, exact.flat, strict=True)]
        )
        assert output.outside > 50
        assert off.max() < 1e-4
        assert (np.abs(np.round(test.outputs[0].astype(float), 4) - test.outputs[0]) < 1e-7).all()


@pytest.mark.slow
def test_all_that_is_installed() -> None:
    tests, source = load.installed_tests()
    found = report.judge_tests(tests, source)
    counts = found.counts()["all"]
    assert counts["proven"] > 0.75 * counts["outputs"]
    assert set(found.named("outside")) <= {
        "test_averagepool_2d_ceil_last_window_starts_on_pad",
        "test_roialign_aligned_false",
        "test_roialign_aligned_true",
    }


def test_an_unknown_error_is_no_answer(monkeypatch) -> None:
    """A fault of ours does not become a reason."""
    monkeypatch.setattr(judge, "read_test", lambda *_: (_ for _ in ()).throw(RuntimeError("ours")))
    with pytest.raises(RuntimeError):
        judge.judge_test(make("Relu", [np.float32([1])], [np.float32([1])]))
    monkeypatch.setattr(judge, "read_test", lambda *_: (_ for _ in ()).throw(UnsupportedError("a", "b")))
    assert judge.judge_test(make("Relu", [np.float32([1])], [np.float32([1])])).reason == "a: b"
