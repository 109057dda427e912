"""The oracle of benchmarks/compare_mutants.py: some of its pairs, and verdicts that are wrong, which it must see."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad.check

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("torch")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
BY_ONNXRUNTIME = [15, 18, 20, 23, 25, 28]  # a tool's own package need not be here
MUTANTS = [1, 2, 6, 7, 11, 12, 16, 17]


@pytest.fixture(scope="module")
def oracle() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import compare_mutants

        yield compare_mutants
    for name in ("compare_mutants", "mutant_judges", "mutant_networks", "mutations", "zoo_files", "zoo_inputs"):
        sys.modules.pop(name, None)


def lines(oracle: Any, numbers: list[int]) -> list[dict[str, Any]]:
    return [oracle.line_of(number, 60) for number in numbers]


@pytest.fixture(scope="module")
def honest(oracle: Any) -> list[dict[str, Any]]:
    return lines(oracle, MUTANTS)


@pytest.mark.filterwarnings("ignore")
def test_no_pair_is_wrong(oracle: Any, honest: list[dict[str, Any]]) -> None:
    found = [line for line in lines(oracle, BY_ONNXRUNTIME) + honest if line["verdict"] != "no pair"]
    assert len(found) > 8
    assert [line for line in found if "wrong" in line or "judge" in line] == []
    assert {line["verdict"] for line in found} >= {"same", "differs"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lie", ["same", "same within rounding"])
def test_a_false_same_is_seen(
    oracle: Any, honest: list[dict[str, Any]], lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where networks differ by more than 16 roundings of every constant; a moved weight may be less."""
    apart = {line["pair"]: line["apart"] for line in honest if line["verdict"] == "differs"}
    compare = specgrad.check.compare
    monkeypatch.setattr(specgrad.check, "compare", lambda *a, **k: replace(compare(*a, **k), verdict=lie))
    large = [k for k, distance in apart.items() if distance > (1e-8 if lie == "same" else 1e-3)]
    assert len(large) > 3
    assert [line["pair"] for line in lines(oracle, large) if "wrong" not in line] == []


@pytest.mark.filterwarnings("ignore")
def test_moved_constants_leave_numbers_of_the_same_shape(oracle: Any) -> None:
    """A Pow of negative numbers, a Resize by 1.5: no rounding is in their exponents and scales, which nobody folds."""
    judges = sys.modules["mutant_judges"]
    for seed, operator in ((666, "Pow"), (148, "Resize")):
        model, shapes = oracle.network(seed)
        assert operator in {node.op_type for node in model.graph.node}
        inputs = judges.drawn_inputs(shapes, 0, True)
        plain, moved = (judges.in_float64(model, inputs, rng) for rng in (None, np.random.default_rng(0)))
        assert all(0 < judges.apart(p, q) < 1e-3 for p, q in zip(plain, moved, strict=True))
        assert all(np.isfinite(y).all() for outputs in moved for y in outputs)


@pytest.mark.filterwarnings("ignore")
def test_numbers_of_attributes_are_moved_too(oracle: Any) -> None:
    """A HardSigmoid alone has no other constants; tools round a sixth to its alpha."""
    onnx, judges = pytest.importorskip("onnx"), sys.modules["mutant_judges"]
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("HardSigmoid", ["x"], ["y"], alpha=1 / 6, beta=0.5)
    graph = onnx.helper.make_graph([node], "g", [info("x", 1, (2,))], [info("y", 1, (2,))])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=8)
    inputs = [{"x": np.float32([1, 2])}]
    plain, moved = (judges.in_float64(model, inputs, rng) for rng in (None, np.random.default_rng(0)))
    assert 1e-8 < judges.apart(plain[0], moved[0]) < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_a_false_difference_is_seen(oracle: Any, honest: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference that is said to be a thousandth larger than it is."""
    compare = specgrad.check.compare

    def told(*args: Any, **given: Any) -> Any:
        done = compare(*args, **given)
        larger = [replace(p, lower=p.lower * 1.001, upper=p.upper * 1.001) for p in done.points]
        return replace(done, points=tuple(larger))

    large = [line["pair"] for line in honest if line.get("apart", 0) > 1e-3]
    monkeypatch.setattr(specgrad.check, "compare", told)
    assert len(large) > 3
    assert [line["pair"] for line in lines(oracle, large) if "wrong" not in line] == []
