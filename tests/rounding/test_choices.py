"""Tensor cores, casts that may be dropped and saturation: named in every statement, refused elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Box, certify, crown, ibp
from specgrad.bounds.search.certificates.prove import NoCertificateError, prove
from specgrad.check import compare, preserve, tolerance
from specgrad.check.models.emulate import Executor
from specgrad.check.tolerances.estimate import estimate_tolerance
from specgrad.check.tolerances.tolerance import words_of
from specgrad.check.verdicts.judge import is_exact_on_integers
from specgrad.errors import ParameterError, UnsupportedError
from specgrad.proof.base.executions import ExecutionError, executions
from specgrad.rounding import FORMATS, Arithmetic, TensorCore, radius
from specgrad.rounding.arithmetic_variants import ReducedOperands
from specgrad.safety.accuracy.per_layer import accuracy

CORES = Arithmetic(operands="bfloat16", cores=TensorCore(24))
CHOICES = {"cores": CORES, "casts": Arithmetic(casts="dropped"), "overflow": Arithmetic(overflow="saturate")}
NET = sg.trace(lambda x: sg.relu(sg.linear(np.float32([[1, 1], [1, -1]]), None, x)), (1, 2))
X = np.float32([[1, 0.5]])
BOX = Box(np.float32([[0, 0]]), np.float32([[1, 1]]))

REFUSING: dict[str, Callable[[Arithmetic], Any]] = {
    "ibp": lambda a: ibp(NET, BOX, arithmetic=a),
    "crown": lambda a: crown(NET, BOX, arithmetic=a),
    "certify": lambda a: certify(NET, (X, 0, 0.1), arithmetic=a),
    "tolerance": lambda a: tolerance(NET, X, arithmetic=a),
    "estimate": lambda a: estimate_tolerance(NET, X, arithmetic=a),
    "compare": lambda a: compare(NET, NET, X, eps=0.1, arithmetic=a),
    "preserve": lambda a: preserve(NET, X, "argmax", arithmetic=a),
    "accuracy": lambda a: accuracy(NET, BOX, arithmetic=a),
    "emulated": lambda a: Executor(NET, a),
    "variant": lambda a: radius(NET, X, arithmetic=a, way=ReducedOperands(FORMATS["bfloat16"])),
}


@pytest.mark.quick
@pytest.mark.parametrize("choice", list(CHOICES))
def test_certificates_have_no_word_for_it(choice: str) -> None:
    with pytest.raises(ExecutionError, match=f"no word for {choice}"):
        executions(CHOICES[choice])
    with pytest.raises(NoCertificateError, match=f"no word for {choice}"):
        prove(NET, (X, 0, 0.1), arithmetic=CHOICES[choice])


@pytest.mark.parametrize("choice", list(CHOICES))
@pytest.mark.parametrize("who", list(REFUSING))
def test_whoever_does_not_know_it_says_so(who: str, choice: str) -> None:
    with pytest.raises(UnsupportedError, match=f"knows no {choice}="):
        REFUSING[who](CHOICES[choice])


@pytest.mark.parametrize("choice", ["cores", "casts"])
def test_nodes_in_other_formats_do_not_go_with_it(choice: str) -> None:
    names = {n.name: "float16" for n in NET.nodes if n.args}
    with pytest.raises(UnsupportedError, match=f"knows no {choice}="):
        radius(NET, X, arithmetic=CHOICES[choice], formats=names)


@pytest.mark.quick
def test_every_statement_names_it() -> None:
    said = radius(NET, X, arithmetic=Arithmetic(operands="bfloat16", cores=TensorCore(13, digits=14, chain=128)))
    assert "each term cut off below 13 binary places" in said.deployment["cores"]
    assert "after 128 products" in said.deployment["cores"]
    assert "no constant is folded" in said.deployment["factors"]
    assert "truncated" not in said.deployment["algorithms"]
    assert "may be left out" in radius(NET, X, arithmetic=CHOICES["casts"]).deployment["casts"]
    assert "stored as that number" in radius(NET, X, arithmetic=CHOICES["overflow"]).deployment["overflow"]
    plain = Arithmetic().deployment
    assert not {"cores", "factors", "casts", "overflow"} & plain.keys()
    assert "so are sums by tensor cores that are truncated" in plain["algorithms"]
    assert "tensor cores" in words_of(CORES)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Arithmetic(cores=TensorCore(24)), "factors of at most 11 digits"),
        (lambda: Arithmetic("bfloat16", cores=TensorCore(24)), "must hold their 24 digits"),
        (lambda: Arithmetic(operands="tf32", cores=TensorCore(24), depth=3), "depth and cores"),
        (lambda: TensorCore(0), "fraction must be a whole number"),
        (lambda: TensorCore(24, terms=True), "terms must be a whole number"),
        (lambda: TensorCore(24, chain=0), "chain must be a whole number"),
        (lambda: TensorCore(24, keep="up"), "keep must be one of cut, nearest"),
        (lambda: TensorCore(24, exponents="bfloat16"), "exponents must be float32 or float16"),
    ],
)
def test_what_does_not_go_together(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        make()


def test_integers_are_exact_only_where_cores_keep_them() -> None:
    """Sums of integers up to 2**13 are exact in 14 digits, of 2**20 they are not: the judge asks for no more."""
    from specgrad.check.cases.generate import draw_cases

    usual, narrow = (Arithmetic(operands="bfloat16", cores=c) for c in (None, TensorCore(2, digits=3)))
    cases = [(q.meaning(), q.arguments()) for q in draw_cases("linear", 200)]
    kept = [is_exact_on_integers(*case, narrow) for case in cases if is_exact_on_integers(*case, usual)]
    assert not all(kept)
    assert any(kept)
