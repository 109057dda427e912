"""The radii of specgrad.rounding, asked of Rocq: the theorems of verified/Rounding*.v prove numbers of the code.

Each question is a cell with known factors and the radius that the code computed for it, as an exact fraction. Rocq must
prove that no execution of the cell is further off; and must fail to, by the same theorem, when the radius is smaller.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import rocq
import specgrad as sg
from specgrad.graph.graph import Graph
from specgrad.proof.exact.replay import growth as replayed_growth
from specgrad.rounding import Arithmetic, radius

HEAD = """
From Coq Require Import Reals Psatz Lia ZArith List Permutation.
From Specgrad Require Import RoundingTree RoundingRegion RoundingSums RoundingAlone RoundingFloat32 RoundingOperators.
Import ListNotations.
Open Scope R_scope.
Ltac absolute := repeat match goal with |- context [Rabs ?x] =>
  first [rewrite (Rabs_pos_eq x) by lra | rewrite (Rabs_left1 x) by lra] end.
Ltac larger := repeat match goal with |- context [Rmax ?x ?y] =>
  first [rewrite (Rmax_left x y) by lra | rewrite (Rmax_right x y) by lra] end.
Ltac numbers := unfold cell_exact, cell_size, cell_most, growth, gamma, slack, at_least_1;
  cbn [total value room factor_value factor_room length app map sum Nat.add Nat.mul]; unfold at_least_1;
  rewrite ?u32_value, ?tiny32_value, ?smallest32_value, ?INR_IZR_INZ; cbn [Z.of_nat Pos.of_succ_nat Pos.succ pow];
  absolute; larger; lra.
"""


@dataclass(frozen=True)
class Question:
    """What Rocq is asked: `goal` with {radius} in it, and the proof up to a comparison of numbers."""

    goal: str
    proof: str
    radius: Fraction

    def text(self, share: Fraction, fails: bool) -> str:
        goal = self.goal.replace("{radius}", _number(self.radius * share))
        ending = "assert_fails numbers. Abort." if fails else "numbers. Qed."
        return f"Goal {goal}.\nProof. {self.proof} {ending}\n"


def _number(v: Fraction) -> str:
    return f"({v.numerator} / {v.denominator})"


def _cell(monomials: Sequence[Sequence[float]]) -> str:
    return "[" + "; ".join(f"[{'; '.join(f'Times {_number(Fraction(f))}' for f in m)}]" for m in monomials) + "]"


def _radius(graph: Graph, *inputs: np.ndarray, flush: bool = True, rounding: str = "nearest") -> tuple[Fraction, int]:
    report = radius(graph, *inputs, arithmetic=Arithmetic(flush=flush, rounding=rounding))
    return Fraction(float(report.outputs.radius.ravel()[0])), report.roundings


def _scaled(numbers: Sequence[float], scale: float) -> np.ndarray:
    return (np.array(numbers) * scale).astype(np.float32)


W, X, B = (5, -7, 11), (1, -2, 3), 13


def _sum(scale: float, flush: bool = True, rounding: str = "nearest") -> Question:
    w, x, b = _scaled(W, 1), _scaled(X, scale), _scaled([B], scale)
    graph = sg.trace(lambda v: sg.conv(w[None, None], b, v), (1, 3))
    given, roundings = _radius(graph, x[None], flush=flush, rounding=rounding)
    assert roundings == 4  # three products and a bias
    cell = _cell([*zip(w.tolist(), x.tolist(), strict=True), (float(b[0]),)])
    kept, either = "" if flush else "_kept", rounding == "any"
    unit, operation = ("(2 * u32)", f"directed32{kept}") if either else ("u32", f"operation32{kept}")
    theorem = f"float32_sum{'_directed' if either else ''}{kept}"
    goal = f"forall c t y, dot c t -> Permutation c {cell} -> computed {unit} 0 {operation} t y -> "
    proof = f"intros c t y D P C. eapply Rle_trans; [apply ({theorem} _ _ _ _ D P C)"
    proof += "; [rewrite u32_value; simpl; lra]|]." if theorem == "float32_sum_kept" else "|]."
    return Question(goal + f"Rabs (y - cell_exact {cell}) <= {{radius}}", proof, given)


def _average(scale: float) -> Question:
    x = _scaled((1, -2, 3, 4), scale)
    given, roundings = _radius(sg.trace(lambda v: sg.avg_pool(v, (4,)), (1, 4)), x[None])
    assert roundings == 5
    cells = "[" + "; ".join(_number(Fraction(v)) for v in x.tolist()) + "]"
    goal = (
        f"forall t y, average 4 {cells} t -> computed u32 0 operation32 t y -> Rabs (y - sum {cells} / 4) <= {{radius}}"
    )
    proof = "intros t y A C. eapply Rle_trans; [apply (float32_average 4 _ t y); [absolute; lra | exact A | exact C]|]."
    return Question(goal, proof, given)


def _add(scale: float) -> Question:
    x, y = _scaled([4], scale), _scaled([-3], scale)
    given, roundings = _radius(sg.trace(lambda v, w: v + w, (1,), (1,)), x, y)
    assert roundings == 1
    both = f"{_number(Fraction(float(x[0])))} + {_number(Fraction(float(y[0])))}"
    goal = f"forall y, operation32 ({both}) y -> Rabs (y - ({both})) <= {{radius}}"
    return Question(goal, "intros y O. eapply Rle_trans; [apply (float32_add _ _ _ O)|].", given)


def _region(scale: float) -> Question:
    """Two convolutions, merged: 4 inputs, each with a coefficient of two products."""
    first, second, x = _scaled(W, 1), _scaled((3, 2), 1), _scaled((1, -2, 3, 4), scale)
    graph = sg.trace(lambda v: sg.conv(second[None, None], None, sg.conv(first[None, None], None, v)), (1, 4))
    given, roundings = _radius(graph, x[None])
    assert roundings == 2 + 4
    taps = [(float(second[j]), float(first[i]), float(x[i + j])) for j in range(2) for i in range(3)]
    cell = _cell(taps)
    goal = (
        f"forall y, executed u32 tiny32 operation32 {roundings} {cell} y -> Rabs (y - cell_exact {cell}) <= {{radius}}"
    )
    few = "rewrite tiny32_value, INR_IZR_INZ; simpl; lra"
    return Question(goal, f"intros y E. eapply Rle_trans; [apply (float32_region _ _ _ E); {few}|].", given)


def _checker(digits: int, unit: str) -> Question:
    """gamma of the checker, of 100 roundings."""
    given = Fraction(str(replayed_growth(100, digits)))
    return Question(f"gamma 100 ({unit}) <= {{radius}}", "", given)


SMALL = 2.0**-105  # here flushing costs more than rounding; every number is normal
QUESTIONS = {
    "conv": lambda: _sum(1.0),
    "conv, small": lambda: _sum(SMALL),
    "conv, subnormal numbers kept": lambda: _sum(2.0**-125, flush=False),
    "conv, rounded either way": lambda: _sum(SMALL, rounding="any"),
    "conv, rounded either way and kept": lambda: _sum(2.0**-125, flush=False, rounding="any"),
    "avg_pool": lambda: _average(1.0),
    "avg_pool, small": lambda: _average(SMALL),
    "add": lambda: _add(1.0),
    "region": lambda: _region(1.0),
    "region, small": lambda: _region(SMALL),
    "checker": lambda: _checker(24, "u32"),
    "checker, any rounding": lambda: _checker(23, "2 * u32"),
}
LARGER = {"region, small": Fraction(1, 4)}  # one number of the code stands for the largest factors of all terms
CLOSE = 1 - Fraction(1, 10**7)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    rocq.make("RoundingOperators.vo")


def _asked(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "asked.v").write_text(HEAD + text)
    command = ["coqc", "-R", str(rocq.VERIFIED), "Specgrad", "asked.v"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_rocq_proves_every_radius_and_no_smaller_one(tmp_path: Path) -> None:
    asked = {name: make() for name, make in QUESTIONS.items()}
    proven = [f"(* {name} *)\n" + q.text(Fraction(1), False) for name, q in asked.items()]
    refused = [f"(* {name}, less *)\n" + q.text(LARGER.get(name, CLOSE), True) for name, q in asked.items()]
    ran = _asked("\n".join(proven + refused), tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_a_rounding_too_few_is_not_proven(tmp_path: Path) -> None:
    """Planted: the radius of the sum without its bias."""
    q = _sum(1.0)
    size = sum(abs(w * x) for w, x in zip(W, X, strict=True)) + B
    planted = Question(q.goal, q.proof, ((1 + Fraction(1, 2**24)) ** 3 - 1) * size)
    ran = _asked(planted.text(Fraction(1), False), tmp_path)
    assert ran.returncode != 0
    assert "No applicable tactic" in ran.stderr  # of lra: the numbers are in the way
