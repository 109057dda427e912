"""One table of declared errors: a runtime's numbers get one verdict, live, recorded by name, and recorded by nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from onnx import TensorProto, helper

from functions import EVERYWHERE
from specgrad.check import Audit, audit, audit_recorded
from specgrad.check.models.recorded import recorded_of
from specgrad.check.runtimes import RUNTIMES, runtime
from specgrad.check.verdicts import run_case
from specgrad.declared_errors import MEASURED, WORST_ULPS, declared
from specgrad.errors import ParameterError
from specgrad.process import Process

pytestmark = pytest.mark.usefixtures("kept_workers")
OPERATORS: dict[str, dict[str, float | int | str]] = {
    **{op.names.onnx: {} for op in EVERYWHERE.values() if op.names.onnx and op.errors is not None},
    "Erf": {}, "Softplus": {}, "Swish": {}, "Mish": {}, "HardSigmoid": {}, "Elu": {"alpha": 0.7}, "Selu": {},
    "Celu": {"alpha": 1.7}, "Softsign": {}, "Softmax": {"axis": 1}, "LogSoftmax": {"axis": 1},
}  # fmt: skip
NAMES = ("onnxruntime", "openvino-f32", "onnx-reference")
SEEDS, CELLS = 24, 512
WRONG = {
    ("openvino-f32", "Softplus"),  # below -6: specgrad.declared_errors.WRONG
    ("openvino-f32", "Mish"),  # which is made of it
    ("onnx-reference", "LogSoftmax"),  # log(softmax(x)): minus infinity where softmax underflows
}


@cache
def x() -> np.ndarray:
    """Arguments of many seeds, a row each: where activations bend, then of any exponent (exp stays finite)."""
    rows = []
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, 33])
        sizes = np.ldexp(rng.uniform(1, 2, CELLS), rng.integers(-120, 6, CELLS))
        wide = np.clip(sizes * rng.choice((-1, 1), CELLS), -110, 80)
        rows.append(wide if seed % 3 == 2 else rng.normal(size=CELLS) * 4)
    return np.array(rows, np.float32)


@cache
def model(operators: tuple[str, ...] = tuple(OPERATORS)) -> bytes:
    """All functions of one input."""
    shape = (SEEDS, CELLS)
    nodes = [helper.make_node(op, ["x"], [f"y_{op}"], name=op, **OPERATORS[op]) for op in operators]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", *(f"y_{op}" for op in operators))]
    graph = helper.make_graph(nodes, "functions", ends[:1], ends[1:])
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    return bytes(file.SerializeToString())


@cache
def computed(name: str) -> Mapping[str, np.ndarray]:
    """What the runtime computes, by the names of the file: a recording."""
    found = RUNTIMES[name]
    with Process(environment=found.environment) as process:
        answer = process.run(found.model, {"x": x()}, [np.frombuffer(model(), np.uint8)])
    assert answer.outcome == "answers", answer.reason
    return {"x": x(), **{f"y_{op}": y for op, y in zip(OPERATORS, answer.arrays, strict=True)}}


def verdicts(audited: Audit) -> dict[str, tuple[str, float]]:
    return {layer.name: (layer.verdict.kind, layer.verdict.ratio) for layer in audited.layers}


def recorded(name: str, of: str | None) -> dict[str, tuple[str, float]]:
    return verdicts(audit_recorded(model(), computed(name), of=of, tolerance_seconds=0))


def disagreeing(name: str) -> set[str]:
    """Functions whose live verdict another look at the same numbers does not have."""
    live = verdicts(audit(model(), name, x(), tolerance_seconds=0))
    same, unnamed = recorded(name, name), recorded(name, None)
    apart = {op for op in live if live[op] != same[op]}
    return apart | {op for op in live if live[op][0] in ("exact", "rounding") and unnamed[op][0] != live[op][0]}


@pytest.mark.parametrize("name", NAMES)
def test_live_and_recorded_verdicts_agree(name: str) -> None:
    assert disagreeing(name) == set()


@pytest.mark.parametrize("name", NAMES)
def test_no_function_is_blamed_for_its_rounding(name: str) -> None:
    """Swish of ONNX Runtime is x * Sigmoid(x), and Sigmoid's error is its own."""
    found = recorded(name, name)
    blamed = {(name, op) for op, (verdict, _) in found.items() if verdict not in ("exact", "rounding")}
    assert blamed <= WRONG
    assert len(found) == len(OPERATORS)


def test_a_second_table_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings that are held to a table of their own, with less than ONNX Runtime's Sigmoid errs by."""

    def second(runtime: str | None = None) -> Mapping[str, float | tuple[float, str]]:
        return {**WORST_ULPS, "sigmoid": (1.5, "1")} if runtime is None else declared(runtime)

    monkeypatch.setattr(run_case, "declared", second)
    assert disagreeing("onnxruntime") == {"Sigmoid"}


@pytest.mark.parametrize(
    ("function", "operator", "bound"),
    [("sigmoid", "Sigmoid", (1.5, "1")), ("silu", "Swish", (2.0, "x")), ("tanh", "Tanh", 2.0)],
)
def test_an_error_declared_too_small_is_an_alarm(
    monkeypatch: pytest.MonkeyPatch, function: str, operator: str, bound: float | tuple[float, str]
) -> None:
    small: Callable[..., object] = lambda runtime=None: {**declared(runtime), function: bound}
    monkeypatch.setattr(run_case, "declared", small)
    assert recorded("onnxruntime", "onnxruntime")[operator][0] == "differs"


# --- who computed it --------------------------------------------------------------------------------------------------


def test_a_recording_names_any_runtime_that_is_known() -> None:
    assert recorded_of(None).functions is None
    assert (recorded_of("onnxruntime").functions, recorded_of("onnxruntime").flush) == ("onnxruntime", False)
    assert (recorded_of("openvino").functions, recorded_of("openvino:GPU").functions) == ("openvino-f32", None)
    assert [recorded_of(name).functions for name in MEASURED] == list(MEASURED)
    with pytest.raises(ParameterError, match=r"unknown runtime 'ort'; known are torch, .*, iree, tract, mnn, ncnn"):
        recorded_of("ort")
    for name in ("onnxruntime:", "openvino: "):
        for named in (recorded_of, runtime):
            with pytest.raises(ParameterError, match="names no device; write"):
                named(name)


def test_a_known_fault_is_said_beside_the_verdict() -> None:
    """MNN's tanh, as it computes it: a finding of its own name, not rounding; and tanh of others stays as it is."""
    x = np.random.default_rng(0).uniform(-1, 1, (SEEDS, CELLS)).astype(np.float32)
    e = np.exp(2 * x)
    file = model(("Tanh",))
    wrong = audit_recorded(file, {"x": x, "y_Tanh": (e - 1) / (e + 1)}, of="mnn")
    assert wrong.verdict == "differs"
    assert wrong.notes[-1].startswith("tanh is known to be wrong in mnn 3.6.1: ")
    right = audit_recorded(file, {"x": x, "y_Tanh": np.tanh(x.astype(np.float64)).astype(np.float32)}, of="numpy")
    assert (right.verdict, right.runtime, right.notes) == ("rounding", "recorded of numpy", ())
