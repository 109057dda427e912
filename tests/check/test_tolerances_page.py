"""What benchmarks/kernel_tolerances.py plants and asks, at reduced sizes, and the page made of what it recorded."""

from __future__ import annotations

import itertools
import runpy
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import kernel_tolerances as bench
from kernel_faults import _of_one_tap, close, faults
from kernel_operations import Operation, operations

ROOT = Path(__file__).parents[2]
SMALL = operations(reduced=True)


def test_the_page_is_current() -> None:
    page = ROOT / "docs" / "guide" / "tolerances.md"
    assert page.read_text() == runpy.run_path(str(ROOT / "tools" / "make_tolerances.py"))["document"]()


def planted(op: Operation) -> set[str]:
    """Plant all faults; the right result is whole again after each."""
    given = op.draw(0)
    y = op.function(*given)
    right, names = y.clone(), set()
    for fault in faults(op, given, y, 0):
        assert fault.wrong.shape == right.shape, fault.name
        if not torch.equal(fault.wrong, right):
            names.add(fault.name)
            assert not close(fault.wrong, right, 0.0, 0.0)
            assert close(fault.cells, fault.right, 0.0, 0.0) == torch.equal(fault.cells, fault.right)
    assert torch.equal(y, right)
    return names


@pytest.mark.parametrize("number", [1, 16, 23, 31, 33, 35, 43, 46, 47, 51, 72, 86, 91, 96, 97])
def test_faults_are_planted(number: int) -> None:
    op = SMALL[number - 1]
    names = planted(op)
    assert "zeros" in names
    assert ("last term dropped" in names) == (number not in (31,))
    assert ("gain of 1 + 2^-12" in names) == (op.name != "argmax")


def test_a_dropped_term_and_short_sums_by_hand() -> None:
    op = SMALL[0]
    a, b = op.draw(0)
    made = {f.name: f.wrong.clone() for f in faults(op, [a, b], a @ b, 0)}
    torch.testing.assert_close(made["last term dropped"], a[:, :-1] @ b[:-1])
    torch.testing.assert_close(made["sums in bfloat16"], (a @ b).bfloat16().float(), rtol=0.01, atol=0.01)
    conv = SMALL[62]
    x, w = conv.draw(0)
    less = w.clone()
    less[:, -1, -1, -1] = 0
    made = {f.name: f.wrong.clone() for f in faults(conv, [x, w], conv.function(x, w), 0)}
    torch.testing.assert_close(made["last term dropped"], conv.function(x, less), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", [op for op in SMALL if op.taps is not None], ids=lambda op: op.name)
def test_taps_add_up(op: Operation) -> None:
    """One tap at a time, without a rounding: the convolution, however it strides, pads and dilates."""
    if op.name.startswith("separable"):
        return
    x, w, *_ = (t.double() for t in op.draw(0))
    assert op.taps is not None
    wanted = op.taps.function()(x[:1], w)
    places = itertools.product(*map(range, op.taps.kernel))
    torch.set_default_dtype(torch.float64)
    try:
        found = sum(_of_one_tap(op.taps, x[:1], w, tap, wanted.shape[2:]) for tap in places)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, wanted)


def test_tolerances_as_pytorch_has_them() -> None:
    x, y = torch.tensor([1.0, 100.0]), torch.tensor([1.02, 101.0])
    assert close(x, y, 0.0, 1.0) == torch.allclose(x, y, 0.0, 1.0)
    assert close(x, y, 1e-2, 1e-2) == torch.allclose(x, y, 1e-2, 1e-2)
    assert not close(x, y, 1e-2, 1e-3)


def test_a_batch_is_cut_where_limits_are_passed() -> None:
    whole = operations()[0]
    assert bench.cut(whole, 1.0, 200.0) is whole
    assert bench.cut(whole, 1.0, 40.0).batch == 4096 * 10_000 // 137_438
    assert bench.gigaflops(whole) == pytest.approx(2 * 4.096**3)
    conv = operations()[62]
    assert bench.gigaflops(conv) == pytest.approx(2e-9 * 16 * 128 * 1022**2 * 16 * 9)


def test_a_kernel_that_pytorch_lacks_is_named() -> None:
    line = bench.run(SMALL[45], "bfloat16", 1.0, 1.0)
    assert (line["verdict"], line["name"]) == ("no kernel", "mean pool 3d")
    assert "not implemented" in line["text"]


@pytest.mark.parametrize("number", [1, 21])
def test_a_line_is_recorded(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specgrad.check.conform.cropped_reference.MAX_WHOLE", 64)
    with torch.no_grad():
        line = bench.run(SMALL[number - 1], "float32", 1.0, 1.0)
    assert line["verdict"] == "inside"
    assert all(by["specgrad"] or by.get("integers") for by in line["faults"].values())
