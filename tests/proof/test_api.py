"""Certificates from Python: prove, save, load, check; what is missing or changed is refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import specgrad as sg

pytest.importorskip("torch")
pytest.importorskip("flint")
from specgrad.bounds import NoCertificateError, prove
from specgrad.proof import Certificate, ReplayError, check
from specgrad.properties.property import robustness

W = np.array([[1, 1], [1, -1]])
ASKED = ([1.0, 0.5], 0, 0.25)


def graph(w=W) -> sg.Graph:
    return sg.trace(lambda x: sg.relu(sg.linear(w.astype(np.float64), None, x)), (2,))


def test_a_certificate_goes_round(tmp_path: Path) -> None:
    made = prove(graph(), ASKED)
    made.save(tmp_path / "c.json")
    for given in (made, Certificate.load(tmp_path / "c.json"), tmp_path / "c.json"):
        checked = check(given, graph(), ASKED)
        (case,) = checked.cases
        np.testing.assert_array_equal(case.low, np.float32([0.75, 0.25]))
        # y_0 - y_1 = (x_0 + x_1) - max(x_0 - x_1, 0) >= min(2 * x_1, x_0 + x_1) >= 1/2 on the box
        assert 0.4 < float(checked.margin) <= 0.5
        text = str(checked)
        assert all(words in text for words in ("Y_0 - Y_1 <= 0 never happens", checked.network, "float32, fused"))
    assert check(made, graph(), robustness(*ASKED, 2)).margin == checked.margin


@pytest.mark.parametrize(
    ("network", "asked", "words"),
    [
        (W, ([1.0, 0.5], 0, 0.3), "the certificate's box does not hold the property's"),
        (W, ([1.0, 0.5], 1, 0.25), "is not excluded|does not state|alternative"),
        (W + np.eye(2), ASKED, "the network is not the one that the certificate was written for"),
    ],
)
def test_another_question_is_refused(network, asked, words: str) -> None:
    with pytest.raises(ReplayError, match=words):
        check(prove(graph(), ASKED), graph(network), asked)


def test_a_flipped_byte_is_refused() -> None:
    made = prove(graph(), ASKED)
    for k in (0, len(made.packed) // 2, len(made.packed) - 1):
        packed = bytearray(made.packed)
        packed[k] ^= 1
        with pytest.raises(ReplayError):
            check(Certificate(made.text, bytes(packed)), graph(), ASKED)


def test_what_has_no_certificate_says_why() -> None:
    with pytest.raises(NoCertificateError, match="certify finds a counterexample"):
        prove(graph(), ([1.0, 0.5], 0, 0.75))
    with pytest.raises(NoCertificateError, match="operands must be None"):
        prove(graph(), ASKED, arithmetic=sg_arithmetic(operands="tf32"))


def sg_arithmetic(**named):
    from specgrad.rounding import Arithmetic

    return Arithmetic(**named)


def test_files_that_are_not_there_are_no_refusal(tmp_path: Path) -> None:
    prove(graph(), ASKED).save(tmp_path / "c.json")
    (tmp_path / "c.safetensors").unlink()
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "c.json", graph(), ASKED)
