"""Properties of positions: ArgMax and ArgMin exact at ties by ONNX's rules, against every input of small boxes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import specgrad as sg
from slices import slices
from specgrad.bounds import certify
from specgrad.bounds.search.certificates.prove import NoCertificateError, prove
from specgrad.bounds.search.statement import argmax_property
from specgrad.bounds.search.statement.argmax_property import choice_of, of_scores
from specgrad.interop import from_onnx
from specgrad.properties.property import Alternative, Case, Property

Choice = tuple[str, int]
CHOICES: list[Choice] = [("ArgMax", 0), ("ArgMax", 1), ("ArgMin", 0), ("ArgMin", 1)]


def file_of(w: np.ndarray, choice: Choice, keepdims: int = 0) -> bytes:
    """relu(x @ w), and where its largest cell stands."""
    ends = [
        helper.make_tensor_value_info("0", TensorProto.FLOAT, (1, len(w))),
        helper.make_tensor_value_info("y", TensorProto.INT64, (1, 1) if keepdims else (1,)),
    ]
    nodes = [
        helper.make_node("MatMul", ["0", "w"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node(choice[0], ["r"], ["y"], axis=1, keepdims=keepdims, select_last_index=choice[1]),
    ]
    graph = helper.make_graph(nodes, "choice", ends[:1], ends[1:], [numpy_helper.from_array(w, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def winner(scores: list[Fraction], choice: Choice) -> int:
    best = (max if choice[0] == "ArgMax" else min)(scores)
    ties = [k for k, s in enumerate(scores) if s == best]
    return ties[-1 if choice[1] else 0]


def exact_position(w: np.ndarray, x: tuple[float, ...], choice: Choice) -> int:
    sums = [sum((Fraction(float(a)) * Fraction(float(v)) for a, v in zip(x, c, strict=True)), Fraction(0)) for c in w.T]
    return winner([max(s, Fraction(0)) for s in sums], choice)


def stated(low: np.ndarray, high: np.ndarray, rows: list[list[int]], limits: list[int]) -> Property:
    ends = [tuple(Fraction(float(v)) for v in end) for end in (low, high)]
    region = Alternative(np.array(rows, dtype=float), tuple(map(Fraction, limits)))
    return Property(len(low), len(rows[0]), (Case(*ends, (region,)),))


def asked(seed: int) -> tuple[np.ndarray, Choice, np.ndarray, np.ndarray, set[int], Property]:
    """Small integers: sums are exact in any order and ties are common; boxes of three numbers a cell at most."""
    rng = np.random.default_rng(seed)
    w = rng.integers(-2, 3, (2, 3)).astype(np.float32)
    low = rng.integers(-2, 3, 2).astype(np.float32)
    high = np.where(rng.random(2) < 0.3, low, np.nextafter(np.nextafter(low, np.float32(9)), np.float32(9)))
    k = int(rng.integers(3))
    kind = int(rng.integers(3))  # counterexamples: Y = k, Y <= k, Y >= k
    rows, limits = [([[1], [-1]], [k, -k]), ([[1]], [k]), ([[-1]], [-k])][kind]
    wrong = [{k}, set(range(k + 1)), set(range(k, 3))][kind]
    return w, CHOICES[seed % 4], low, high, wrong, stated(low, high, rows, limits)


def inputs(low: np.ndarray, high: np.ndarray) -> list[tuple[float, ...]]:
    def between(a: Any, b: Any) -> list[float]:
        numbers = [a]
        while numbers[-1] < b:
            numbers.append(np.nextafter(numbers[-1], np.float32(np.inf)))
        return [float(v) for v in numbers]

    return list(product(*(between(a, b) for a, b in zip(low, high, strict=True))))


def false_answers(seeds: Iterable[int]) -> Iterator[int]:
    """Seeds whose verdict is not true: some input breaks what holds, or a counterexample is none."""
    for seed in seeds:
        w, choice, low, high, breaks, question = asked(seed)
        if len(question.cases) == 0:
            continue
        verdict = certify(file_of(w, choice, seed % 2), question, seconds=2)
        truth = any(exact_position(w, x, choice) in breaks for x in inputs(low, high))
        if verdict.verdict == "holds" and truth:
            yield seed
        if verdict.counterexample is not None:
            x = tuple(float(v) for v in verdict.counterexample.x.ravel())
            position = exact_position(w, x, choice)
            if position not in breaks or verdict.counterexample.y.tolist() != [position]:
                yield seed


@pytest.mark.parametrize("seeds", slices(10, 800))
def test_verdicts_are_true_at_every_input(seeds: range) -> None:
    assert list(false_answers(seeds)) == []


def test_ties_that_are_forgotten_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the closed region in place of the rule, the loser of a tie is a counterexample that no runtime shows."""
    monkeypatch.setattr(argmax_property.Winners, "contains", Alternative.contains)
    monkeypatch.setattr("specgrad.bounds.search.certify.at_positions", lambda question, point, arithmetic: point)
    assert any(True for _ in false_answers(range(40)))


def test_a_region_that_is_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof that excludes clear winners alone says nothing of a narrow one."""
    monkeypatch.setattr(argmax_property, "FLUSHED", Fraction(-1))
    assert any(True for _ in false_answers((24, *range(40))))  # the first: known to be one


@pytest.mark.parametrize("choice", CHOICES)
def test_the_rule_is_that_of_onnxruntime(choice: Choice) -> None:
    session = onnxruntime.InferenceSession(file_of(np.eye(3, dtype=np.float32), choice))
    question = stated(np.zeros(3), np.full(3, 2.0), [[1], [-1]], [1, -1])
    graph = from_onnx(file_of(np.eye(3, dtype=np.float32), choice))
    scored, of_them = of_scores(graph, question)
    (region,) = of_them.cases[0].alternatives
    for scores in product((0.0, 1.0, 2.0), repeat=3):
        row = np.float32([scores])
        (got,) = session.run(None, {"0": row})
        assert got.item() == winner([Fraction(v) for v in scores], choice)
        assert region.contains(scored(row)) == (got.item() == 1)


def test_robustness_means_another_position() -> None:
    data = file_of(np.float32([[1, 1, 0.5], [1, -1, 0]]), ("ArgMax", 0))
    assert certify(data, (np.float32([[0.5, 0.1]]), 0, 0.05)).verdict == "holds"
    broken = certify(data, (np.float32([[0.5, 0.1]]), 0, 0.2))
    assert broken.counterexample.y.tolist() == [1]
    assert broken.counterexample.confirmed == ("torch", "onnxruntime")


def test_several_positions() -> None:
    """Two choices of three; the property speaks of their sum, so of the ways in which both may fall."""
    graph = sg.trace(lambda x: sg.argmax(sg.relu(x), 1), (2, 3))
    assert choice_of(graph).lines.tolist() == [[0, 1, 2], [3, 4, 5]]
    low, high = np.float32([0, 1, 0, 0, 0, 1]), np.float32([0.5, 2, 0.5, 0.5, 0.5, 2])
    assert certify(graph, stated(low, high, [[1, 1]], [2])).verdict == "holds"
    assert certify(graph, stated(low, high, [[-1, -1]], [-3])).verdict == "violated"


def test_positions_in_the_input_itself() -> None:
    """x_k from k on: up to k + 1/2 the position is 2, whatever the input; up to k + 3/2 it may be another."""
    chosen = sg.trace(lambda x: sg.argmax(x, 1), (1, 3))
    low = np.arange(3.0)
    assert certify(chosen, stated(low, low + 0.5, [[1]], [1])).verdict == "holds"
    verdict = certify(chosen, stated(low, low + 1.5, [[1]], [1]))
    assert verdict.verdict == "violated"
    assert np.argmax(verdict.counterexample.x) == verdict.counterexample.y == 1


def test_what_is_refused() -> None:
    graph = sg.trace(lambda x: sg.topk(x, 2, axis=1)[1], (1, 3))
    with pytest.raises(sg.UnsupportedError, match="positions that no single ArgMax or ArgMin gives"):
        certify(graph, stated(np.zeros(3), np.ones(3), [[1, 1]], [2]))
    chosen = sg.trace(lambda x: sg.argmax(x, 1), (1, 3))
    with pytest.raises(sg.UnsupportedError, match="no position satisfies the property"):
        certify(chosen, stated(np.zeros(3), np.ones(3), [[1]], [-1]))
    with pytest.raises(NoCertificateError, match="the output is a position"):
        prove(chosen, stated(np.zeros(3), np.ones(3), [[1]], [1]))
    many = sg.trace(lambda x: sg.argmax(x, 1), (9, 3))
    with pytest.raises(sg.UnsupportedError, match="is about 9 positions at once: 19683 ways"):
        certify(many, stated(np.zeros(27), np.ones(27), [[1] * 9], [1]))
