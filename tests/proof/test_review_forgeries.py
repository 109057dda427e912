"""False certificates that reviewers wrote (SPECGRAD_SHARED/review), anew in today's format: both checkers refuse them.

Networks are the reviewers', some with fewer channels. Each false statement has a float32 execution that contradicts it,
added up here by loops; a weaker statement with the same slopes is true, and both accept it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("safetensors")

import specgrad as sg
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.exact.replay import Slopes
from specgrad.proof.extracted import run_checker
from specgrad.proof.files.certificate import SCALE, CaseProof, Proof, check, encode

REVIEW = Path(os.environ.get("SPECGRAD_SHARED", Path(__file__).parents[3] / "shared")) / "review" / "soundness"
f32 = np.float32
DIVISOR = 41  # 1/41 is rounded down by much


@dataclass(frozen=True, eq=False)
class Forgery:
    """It says that sign * y <= limit never happens on a box; `happens` is a y of some execution there.

    true   a limit, and a box, for which it is true
    """

    graph: sg.Graph
    low: Any
    high: Any
    sign: int
    limit: Fraction
    happens: float
    true: tuple[Fraction, Any, Any]

    def certificate(self, limit: Fraction, low: Any, high: Any) -> tuple[bytes, bytes]:
        """Every relu has slopes 0."""
        relus = [i for i, n in enumerate(self.graph.nodes) if n.op.name == "relu"]
        flat = Slopes(np.zeros(1, np.int16), np.zeros(1, np.int16), SCALE)
        rows = np.zeros((1, int(np.prod(self.graph.nodes[self.graph.output_positions[0]].shape))), dtype=object)
        rows[0, 0] = self.sign
        box = (np.full(self.graph.nodes[self.graph.input_positions[0]].shape, end, f32) for end in (low, high))
        return encode(self.graph, [CaseProof(*box, ((rows, (limit,), Proof((1,), dict.fromkeys(relus, flat))),))])


def duplicate_names() -> Forgery:
    """y = -(relu(x + 10) + relu(x - 10)); the lines of the second relu, which is 0, for the first, by its name."""
    graph = sg.trace(lambda x: sg.sub(0.0, sg.add(sg.relu(sg.add(x, 10.0)), sg.relu(sg.add(x, -10.0)))), (1,))
    nodes = (replace(n, name="relu", group="relu") if n.op.name == "relu" else n for n in graph.nodes)
    return Forgery(replace(graph, nodes=tuple(nodes)), -1, 1, 1, Fraction(-5), -10, (Fraction(-12), -1, 1))


def reciprocal() -> Forgery:
    """x / d as x * (1/d), which is off by more than one rounding of x / d."""
    d, x = f32(DIVISOR), np.arange(1 << 23, (1 << 23) + 4096).astype(f32)
    shares = [Fraction(float(v * (f32(1) / d))) * DIVISOR / Fraction(float(v)) for v in x]
    x0 = x[shares.index(min(shares))]
    y = x0 * (f32(1) / d)
    limit = Fraction(float(y))
    assert min(shares) < 1 - Fraction(1, 2**24)
    divisor = np.array([d])
    graph = sg.trace(lambda v: v / divisor, (1,))
    return Forgery(graph, x0, x0, 1, limit, float(y), (limit * (1 - Fraction(1, 2**21)), x0, x0))


def average() -> Forgery:
    """A mean of numbers whose sum overflows: at most 3e38 as rational numbers."""
    graph = sg.trace(lambda x: sg.reshape(sg.avg_pool(x, (2, 2)), (1, 1)), (1, 1, 2, 2))
    total = f32(0)
    with np.errstate(over="ignore"):
        for _ in range(4):
            total = total + f32(3e38)
    return Forgery(graph, 2.9e38, 3e38, -1, -Fraction(32 * 10**37), total / 4, (-Fraction(32 * 10**35), 2.9e36, 3e36))


def residual() -> Forgery:
    """1e8 * x beside a convolution of 28: a runtime adds its products to 1e8 one by one, and each is lost."""
    w, wide = np.full((8, 8, 3, 3), 0.875, f32), np.full((8, 1, 1, 1), 1e8, f32)
    both = lambda x: sg.conv(w, None, x, padding=1) + sg.conv(wide, None, x, groups=8)
    total = f32(1e8)
    for _ in range(4 * 8):
        total = total + f32(0.875)
    graph = sg.trace(lambda x: sg.flatten(both(x), 1), (1, 8, 2, 2))
    return Forgery(graph, 1, 1, 1, Fraction(100000010), total, (Fraction(99999000), 1, 1))


def matmul() -> Forgery:
    """A matrix product of 112 and a bias of 1e8: added to it in parts of 7, each is rounded to 8."""
    w, b = np.full((1, 256), 0.4375, f32), f32([1e8])
    total = f32(1e8)
    for _ in range(16):
        total = total + f32(7)
    graph = sg.trace(lambda x: sg.linear(w, None, x) + b, (256,))
    return Forgery(graph, 1, 1, -1, Fraction(-100000120), total, (Fraction(-100010000), 1, 1))


FORGERIES = {
    "b1_conv_residual_fused.py": residual,
    "b1_matmul_add_fused.py": matmul,
    "b2_forged_duplicate_names.py": duplicate_names,
    "b4_division_by_reciprocal.py": reciprocal,
    "b5_average_overflow_certificate.py": average,
}


@pytest.mark.parametrize("checker", [check, run_checker.check_proven])
@pytest.mark.parametrize("program", FORGERIES)
def test_forgeries_of_the_review_are_refused(program: str, checker: Any) -> None:
    if not (REVIEW / program).exists():
        pytest.skip(f"neither ../shared nor SPECGRAD_SHARED has review/soundness/{program}")
    if checker is not check:
        try:
            run_checker.program()
        except run_checker.NoCheckerError as error:
            pytest.skip(str(error))
    forgery = FORGERIES[program]()
    assert forgery.sign * forgery.happens <= float(forgery.limit)
    checker(*forgery.certificate(*forgery.true), forgery.graph)
    with pytest.raises(ReplayError, match=r"not excluded|does not accept|exceeds|overflow"):
        checker(*forgery.certificate(forgery.limit, forgery.low, forgery.high), forgery.graph)
