"""VNN-LIB 2.0: every text means what its twin in 1.0 means; what is not honoured is refused by name."""

from __future__ import annotations

import json
import re
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from competition import SHARED, needs_shared
from formulas import cases_of, formula, true, written
from specgrad.errors import MissingPackageError
from specgrad.properties.property import PropertyError
from specgrad.properties.vnnlib import read, read_text

pytest.importorskip("vnnlib")

VERSION = "(vnnlib-version <2.0>)\n"
HEAD = VERSION + "(declare-network N (declare-input X float32 [1, 2]) (declare-output Y float32 [2]))\n"
BOX = "(assert (and (>= X[0,0] -1.0) (<= X[0,0] 1.0) (>= X[0,1] 0.0) (<= X[0,1] 0.2)))\n"
OLD_HEAD = "(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)\n"
OLD_BOX = "(assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= X_1 0)) (assert (<= X_1 2e-1))\n"


def twin(text: str, x: tuple[int, ...], y: tuple[int, ...], cells: str = "float32") -> str:
    """A 1.0 text rewritten: tensors of these shapes, numbers with a point and without an exponent."""

    def word(found: re.Match[str]) -> str:
        token = found.group()
        if token[0] in "XY":
            index = np.unravel_index(int(token[2:]), x if token[0] == "X" else y)
            return f"{token[0]}[{', '.join(map(str, index))}]"
        digits = format(Decimal(token), "f")
        return digits if "." in digits else digits + ".0"

    body = re.sub(r"\(declare-const [^)]*\)|;[^\n]*", "", text)
    body = re.sub(r"[XY]_\d+|-?(\d+\.?\d*|\.\d+)([eE]-?\d+)?", word, body)
    tensors = f"(declare-input X {cells} {list(x)}) (declare-output Y {cells} {list(y)})"
    return f"{VERSION}(declare-network N {tensors})\n{body}"


def meaning(found: Any) -> Any:
    """A property as plain values that can be compared."""
    cases = [(c.low, c.high, [(a.rows.tolist(), a.limits) for a in c.alternatives]) for c in found.cases]
    return found.inputs, found.outputs, cases


# --- twins ------------------------------------------------------------------------------------------------------------


def test_a_property_in_full() -> None:
    text = "; (\n" + HEAD + BOX + "(assert (or (and (<= Y[0] 0.5) (>= Y[1] Y[0])) (<= (+ Y[0] (* -2.5 Y[1]) 1.0) 0.0)))"
    expected = [([[1, 0], [1, -1]], (Fraction(1, 2), 0)), ([[2, -5]], (-2,))]
    assert meaning(read_text(text)) == (2, 2, [((-1, 0), (1, Fraction(1, 5)), expected)])


@pytest.mark.parametrize("cells", ["float32", "real"])
@pytest.mark.parametrize(("x", "y"), [((2,), (2,)), ((1, 2), (2, 1)), ((2, 1, 1), (1, 1, 2))])
def test_random_formulas(x: tuple[int, ...], y: tuple[int, ...], cells: str) -> None:
    rng, outcomes = Random(repr((x, y, cells))), []
    for _ in range(60):
        tree = formula(rng, 3)
        text = OLD_HEAD + OLD_BOX + f"(assert {written(tree)})"
        cases = cases_of(twin(text, x, y, cells))
        if cases:
            assert meaning(read_text(twin(text, x, y, cells))) == meaning(read_text(text)), text
        assert len(cases) == len(cases_of(text))
        at = [rng.choice([-1.0, -0.5, 0.0, 0.1, 0.25, 3.0]) for _ in range(2)]
        outcomes.append(true(tree, [Fraction(v) for v in at]))
        assert any(c.contains(np.array(at)) for c in cases) == outcomes[-1], (text, at)
    assert 0.2 < np.mean(outcomes) < 0.8


def test_cells_are_counted_row_by_row() -> None:
    shape, values = (2, 3, 4), np.arange(24).reshape(2, 3, 4)
    bounds = "".join(
        f"(assert (<= image[{','.join(map(str, i))}] {v}.5)) (assert (>= image[{','.join(map(str, i))}] -{v}.25))"
        for i, v in np.ndenumerate(values)
    )
    tensors = f"(declare-input image float32 {list(shape)}) (declare-output X float32 [])"
    (case,) = read_text(VERSION + f"(declare-network net {tensors}) {bounds} (assert (<= X 0.0))").cases
    assert case.high == tuple(Fraction(v) + Fraction(1, 2) for v in range(24))
    assert case.low == tuple(-Fraction(v) - Fraction(1, 4) for v in range(24))


def test_decimals_are_exact() -> None:
    digits = "0.1000000000000000000000000000000000000000001"
    found = read_text(HEAD + BOX + f"(assert (<= X[0,0] {digits})) (assert (<= (* 3.0 Y[0]) -{digits}))")
    assert found.cases[0].high[0] == Fraction(digits)
    assert found.cases[0].alternatives[0].limits == (-Fraction(digits),)


def test_equations_are_two_inequalities() -> None:
    found = read_text(HEAD + BOX + "(assert (== X[0,0] 0.5)) (assert (== Y[0] Y[1]))")
    (case,) = found.cases
    assert (case.low[0], case.high[0]) == (Fraction(1, 2), Fraction(1, 2))
    assert [case.contains(np.array(y)) for y in ([1.0, 1.0], [1.0, 2.0], [2.0, 1.0])] == [True, False, False]


@needs_shared
def test_competition_files(tmp_path: Path) -> None:
    for folder, x in (("verivital/specs/maxpool_specs", (1, 1, 28, 28)), ("oval21/vnnlib", (1, 3, 32, 32))):
        old = sorted((SHARED / folder).iterdir())[0]
        (tmp_path / "new.vnnlib").write_text(twin(old.read_text(), x, (1, 10)))
        assert meaning(read(tmp_path / "new.vnnlib")) == meaning(read(old))


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(assert (not (<= Y[0] Y[1])))", "syntax error at line 4, column 9: 'not'"),
        ("(assert (<= (* Y[0] Y[1]) 0.0))", "line 4: a product of two variables is not linear"),
        ("(assert (<= Z[0] 0.0))", "line 4: Z: Undeclared variable"),
        ("(assert (<= Y[2] 0.0))", "line 4: Y[2]: Index out of bounds for variable. Index 2 is out of bounds"),
        ("(assert (<= X[0] 0.0))", "line 4: X[0]: Not enough indices"),
        ("(assert (<= Y[-1] 0.0))", "line 4: Y [-1] has an index that is no whole number"),
        ("(assert (<= Y[0.9] 0.0))", "line 4: Y [0.9] has an index that is no whole number"),
        ("(assert (<= Y[0] 1))", "line 4: 1: Type mismatch in arithmetic expression. Expected type 'F32'"),
        ("(assert (<= Y[0] 1e5))", "syntax error at line 4"),
        ("(assert (<= Y[0] 0." + "0" * 400 + "1))", "a number is too large or too small for the package vnnlib"),
        ("(assert (<= Y[0] 0." + "3" * 2000 + "))", "line 4: number 0.3333333333333333333333... has over 1024 digits"),
        ("(assert (>= X[0,1] 3.0))", "input X_1 has lower bound 3.0 above upper bound 0.2"),
        ("(assert (<= Y[0] 0.0)", "syntax error"),
        ("(assert (<= Y[0] 0.0)) é", "line 4: character U+00E9 is not read"),
        ("(assert (<= Y[0] 0.0))\0(assert (<= Y[1] 0.0))", "line 4: the text holds a zero character"),
        ("(assert " + "(and " * 200000, "line 4: over 1024 parentheses are open at once"),
        ("(assert (and" + " (or (<= Y[0] 0.0) (<= Y[1] 0.0))" * 40 + "))", "form has over 4194304 inequalities"),
    ],
)  # fmt: skip
def test_assertions_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        read_text(HEAD + BOX + text)
    assert message in str(caught.value)


ONE = "(declare-input X float32 [1]) (declare-output Y float32 [1])"
OTHER = "(declare-input V float32 [1]) (declare-output W float32 [1])"


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        (f"(declare-network N {ONE}) (declare-network M {OTHER})", "input X[0] has no lower bound"),
        (f"(declare-network N {ONE}) (declare-network M (equal-to N) {OTHER[:29]})", "syntax error"),
        (
            f"(declare-network N {ONE}) (declare-network M (isomorphic-to K) {OTHER})",
            "network 'K' not found for isomorphic-to",
        ),
        (f"(declare-network N (declare-input Z float32 [1]) {ONE})", "input Z[0] has no lower bound"),
        (
            f'(declare-network N {ONE[:29]} (declare-hidden H float32 [1] "relu") {ONE[30:]})',
            "line 2: names of ONNX nodes, and so declare-hidden, are not honoured",
        ),
        (f"(declare-network N {ONE})".replace("[1])", '[1] "x")', 1), "names of ONNX nodes"),
        (f"(declare-network N {ONE})".replace("float32", "float64"), "X must have cells of type float32 or real; got"),
        (f"(declare-network N {ONE})".replace("Y float32", "Y int8"), "tensor Y must have cells of type float32 or"),
        (f"(declare-network N {ONE})".replace("float32", "Real"), "tensor X must have cells of type float32 or real"),
        (f"(declare-network N {ONE})".replace("[1]", "[1.5]"), "tensor X has a size that is no whole number"),
        (f"(declare-network N {ONE})".replace("[1]", "[9, 99999999999]"), "tensor X has over 16777216 cells: shape [9"),
        (f"(declare-network N {ONE})".replace("[1]", "[0]"), "Dimensions must be positive integers"),
    ],
)
def test_networks_refused_by_name(networks: str, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        read_text(VERSION + networks + "(assert (<= 0.5 1.0))")
    assert message in str(caught.value)


@pytest.mark.parametrize("version", ["<2.1>", "<1.0>", "2.0", "", "<2.0> (declare"])
def test_other_versions(version: str) -> None:
    with pytest.raises(PropertyError, match=r"the version must be \(vnnlib-version <2.0>\), or none for 1.0; got"):
        read_text(f"(vnnlib-version {version})" + HEAD + BOX)


@pytest.mark.parametrize("old", [False, True])
def test_the_package_is_named_where_it_is_missing(old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, or a version before 1.0, which has none of these functions."""
    monkeypatch.setitem(sys.modules, "vnnlib", type(sys)("vnnlib") if old else None)  # type: ignore[arg-type]
    assert read_text(OLD_HEAD + OLD_BOX + "(assert (<= Y_0 0))").inputs == 2
    error, text = (
        (PropertyError, "version 1.0 or later: .* --upgrade") if old else (MissingPackageError, "need vnnlib:")
    )
    with pytest.raises(error, match=rf"{text}.* 'specgrad\[vnnlib\]'"):
        read_text(HEAD + BOX + "(assert (<= Y[0] 0.0))")


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("least", "verdict"), [("0.25", "holds"), ("-0.25", "violated")])
def test_certify(
    least: str, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """y0 - y1 = 2 * x1 where both are positive: y0 <= y1 needs x1 <= 0."""
    pytest.importorskip("typer")
    interop = pytest.importorskip("specgrad.interop.onnx")
    from specgrad.cli.main import main

    w = np.float32([[1, 1], [1, -1]])
    model = interop.to_onnx(sg.trace(lambda x: sg.relu(sg.linear(w, None, x)), (2,)))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    box = f"(assert (and (<= X[0,0] 1.0) (>= X[0,0] 0.5) (<= X[0,1] 1.0) (>= X[0,1] {least})))"
    (tmp_path / "p.vnnlib").write_text(HEAD + box + "(assert (<= Y[0] Y[1]))")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["specgrad", "certify", "net.onnx", "p.vnnlib", "--json"])
    with pytest.raises(SystemExit):
        main()
    assert json.loads(capfd.readouterr().out)["verdict"] == verdict
