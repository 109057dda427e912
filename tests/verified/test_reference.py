"""Our specification agrees, to the last digit, with the program extracted from the theorems."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from questions import KINDS, differs, question
from rocq import ask
from slices import slices
from specgrad.ops import conv, max_pool
from specgrad.window.axis import Strided


def disagreements(seeds: Iterable[int]) -> list[str]:
    """Questions with different answers, shortest first."""
    asked = [question(seed) for seed in seeds]
    answers = ask("reference", [q.line for q in asked])
    assert len(answers) == len(asked)
    wrong = [(q.line, differs(q, a)) for q, a in zip(asked, answers, strict=True)]
    return [f"{line}\n{why}" for line, why in sorted(wrong, key=lambda w: len(w[0])) if why]


@pytest.mark.parametrize("part", range(20))
@pytest.mark.parametrize("seeds", slices(240, 10_000))
def test_reference_and_specification_agree(seeds: range, part: int) -> None:
    """In parts, so that no test is long."""
    wrong = disagreements(seeds[len(seeds) * part // 20 : len(seeds) * (part + 1) // 20])
    assert not wrong, f"{len(wrong)} differ, the shortest: {wrong[0]}"


def test_questions_are_of_every_kind() -> None:
    """Both answers are common: refused and not; so are empty windows, ties, all ranks and attributes."""
    asked = [question(seed) for seed in range(300)]
    lines = " ".join(q.line for q in asked)
    refused = sum(q.parts is None for q in asked)
    assert 10 < refused < 100
    assert {q.line.split()[0] for q in asked} == set(KINDS)
    for word in (
        "w:",
        "u:",
        "l:",
        "a:",
        "t:",
        "ties=all",
        "ties=split",
        "ties=first",
        "divisor=padded",
        "divisor=inside",
    ):
        assert word in lines
    ranks = {q.line.split("axes=")[1].split()[0].count(",") for q in asked if "axes=" in q.line}
    assert ranks == {0, 1, 2, 3}
    winners = [q.parts[1][1] for q in asked if q.parts and q.line.startswith("max_pool")]
    assert any(-1 in w for w in winners)


def test_every_difference_is_seen() -> None:
    """One digit, one part, one shape, a refusal."""
    asked = question(5)
    (right,) = ask("reference", [asked.line])
    assert differs(asked, right) is None
    assert asked.parts is not None
    parts = right.split(";")
    shape, cells = parts[-1].split("|")
    digit = "1" if not cells.endswith("1") else "2"
    wrong = [";".join(parts[:-1]), f"{right};1|0", "refused", "error: no operator"]
    wrong += [right[:-1] + digit, ";".join([*parts[:-1], f"{shape},1|{cells}"])]
    assert all(differs(asked, answer) for answer in wrong)


def last_winner(v, best):
    return np.asarray(v >= best, dtype=bool)


def whole_kernel(self, o):
    return self.kernel


def bias_twice(gy, rank, right=conv._bias_cotangent):
    return right(gy + gy, rank)


PLANTED = {
    "the last winner takes a tie": ("max_pool", max_pool, "_beats", last_winner),
    "the divisor is the whole kernel under ceil": ("avg_pool", Strided, "counted", whole_kernel),
    "the bias receives twice": ("conv", conv, "_bias_cotangent", bias_twice),
    "split and all are one rule": ("global_max", max_pool, "div", lambda a, b: a),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, *place = PLANTED[mistake]
    seeds = range(list(KINDS).index(operator), 600, len(KINDS))
    monkeypatch.setattr(*place)
    assert disagreements(seeds)
