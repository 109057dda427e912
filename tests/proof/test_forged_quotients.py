"""Certificates have no rule for a quotient whose divisor varies: one that is forged for such a network is refused by
both checkers, with an error of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("safetensors")

import specgrad as sg
from specgrad.errors import UnsupportedError
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.base.executions import executions
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.extracted.encode import CheckerInput
from specgrad.proof.files.certificate import CaseProof, Proof, check, encode
from specgrad.rounding.arithmetic import Arithmetic

GIVEN = np.float32([3, 7])
QUOTIENTS: dict[str, Callable[[Any], Any]] = {
    "of two values": lambda x: (x + 1) / x,
    "by itself": lambda x: x / x,
    "by its sum": lambda x: x / sg.sum(x, -1, keepdims=True),
    "of constants": lambda x: GIVEN / x,
    "a reciprocal": lambda x: 1 / (x + 1),
    "by what vanishes": lambda x: x / (x - x + 3),
    "by 0 times a value": lambda x: x / (0 * x),
    "of constants by 0 times a value": lambda x: GIVEN / (x * 0),
}
CASE = CaseProof(
    np.float32([1, 1]),
    np.float32([2, 2]),
    ((np.array([[1, -1]], dtype=object), (Fraction(10**6),), Proof((1,), {})),),
)
"""That Y_0 - Y_1 <= -10**6 never happens, which is true of some of them: no rule says so."""


@pytest.mark.parametrize("name", QUOTIENTS)
@pytest.mark.parametrize("execution", ["fused", "node"])
def test_quotients_by_what_varies_are_refused(name: str, execution: str) -> None:
    graph = deployed_graph(sg.trace(QUOTIENTS[name], (2,)))
    arithmetic = Arithmetic(execution=execution)
    with pytest.raises((ReplayError, UnsupportedError)):
        check(*encode(graph, [CASE], arithmetic), graph)
    with pytest.raises(ReplayError):
        CheckerInput(graph, CASE, executions(arithmetic))
