"""Programs that once broke a claim, each as a test of its own: what the runtime computes, and what is said of it."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from claims import arithmetic, proof_number, replayed
from executor import Setting
from optimisers import jax_jit, onnxruntime_session, openvino_model
from specgrad.bounds import Box, certify, ibp
from specgrad.properties.property import Alternative, Case, Property
from specgrad.properties.vnnlib import read_text
from specgrad.rounding import Arithmetic, radius

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
onnx = pytest.importorskip("onnx")

FUSED = arithmetic(Setting())


def model(nodes: list[Any], shapes: dict[str, list[int]], weights: dict[str, np.ndarray]) -> bytes:
    """An ONNX model from x to y."""
    info = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shapes[name])
    constants = [onnx.numpy_helper.from_array(np.asarray(w, np.float32), name) for name, w in weights.items()]
    graph = onnx.helper.make_graph(nodes, "g", [info("x")], [info("y")], constants)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    written: bytes = made.SerializeToString()
    return written


def node(op: str, args: str, result: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(op, args.split(), [result], **attributes)


def graph_of(written: bytes) -> sg.Graph:
    from specgrad.interop import from_onnx

    return from_onnx(written)


def saved(written: bytes, folder: Path) -> str:
    (folder / "model.onnx").write_bytes(written)
    return str(folder / "model.onnx")


def audited(written: bytes, runtime: str, x: np.ndarray, folder: Path) -> str:
    from specgrad.check import audit

    return str(audit(saved(written, folder), runtime, x).whole.kind)


# --- b1: chains of constants ------------------------------------------------------------------------------------------


def chain_numbers(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    c1, c2 = ((rng.uniform(1, 2, n) * 1e8).astype(np.float32) for _ in range(2))
    return c1, c2, (-c1 + rng.integers(-20, 20, n)).astype(np.float32)


def test_xla_adds_two_constants_first() -> None:
    """(x + c1) + c2 as x + (c1 + c2): plain jnp code, and our engine."""
    jax = pytest.importorskip("jax")
    c1, c2, x = chain_numbers(300)
    graph = sg.trace(lambda x: x + c1 + c2, x.shape)
    plain = np.asarray(jax.jit(lambda x: (x + c1) + c2)(x), float)
    (ours,) = jax_jit(graph)([x])
    assert (plain != (x + c1 + c2).astype(float)).any()
    ball = radius(graph, x, arithmetic=FUSED).outputs
    assert ball.contains(plain).all()
    assert ball.contains(ours).all()


def test_openvino_adds_two_constants_first(tmp_path: Path) -> None:
    c1, c2, x = (v.reshape(1, -1) for v in chain_numbers(4000))
    nodes = [node("Add", "x c1", "a"), node("Add", "a c2", "y")]
    written = model(nodes, {"x": [1, 4000], "y": [1, 4000]}, {"c1": c1, "c2": c2})
    (y,) = openvino_model(written)([x])
    assert radius(graph_of(written), x, arithmetic=FUSED).outputs.contains(y.astype(float)).all()
    assert audited(written, "openvino-f32", x, tmp_path) in ("exact", "rounding")


@pytest.mark.parametrize(("c", "x"), [(1e30, 1e-30), (1e-30, 1e30), (2.0**100, 2.0**-100), (2.0**-70, 2.0**100)])
def test_xla_multiplies_two_constants_first(c: float, x: float) -> None:
    """x*c*c as x*(c*c), which overflows or vanishes though no partial result from the left does."""
    pytest.importorskip("jax")
    factor, given = np.float32([c]), np.float32([x])
    graph = sg.trace(lambda x: x * factor * factor, (1,))
    (y,) = jax_jit(graph)([given])
    assert y[0] in (0.0, np.inf)
    report = radius(graph, given, arithmetic=FUSED)
    assert report.outputs.contains(y.astype(float)).all()
    assert np.isfinite(y[0]) or report.unbounded


@pytest.mark.parametrize("divisors", [(2.0**127,), (2.0**70, 2.0**70)])
def test_xla_divides_by_subnormal_reciprocals(divisors: tuple[float, ...]) -> None:
    pytest.importorskip("jax")
    given = np.float32([2.0**127])

    def net(x: Any) -> Any:
        for d in divisors:
            x = x / np.float32([d])
        return x

    graph = sg.trace(net, (1,))
    (y,) = jax_jit(graph)([given])
    assert radius(graph, given, arithmetic=FUSED).outputs.contains(y.astype(float)).all()


@pytest.mark.parametrize("accumulate", ["float32", None])
@pytest.mark.parametrize("divisor", [3.0, 7.0, 41.0, 11.0])
def test_bfloat16_quotients_by_reciprocals(divisor: float, accumulate: str | None) -> None:
    """jax.jit divides bfloat16 numbers by a constant in one way in plain code, in another in our engine."""
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(np.random.default_rng(0).normal(size=4000), jax.numpy.bfloat16)
    graph = sg.trace(lambda x: x / divisor, (4000,))
    ball = radius(graph, np.asarray(x, float), arithmetic=Arithmetic("bfloat16", accumulate=accumulate)).outputs
    plain = jax.jit(lambda x: x / jax.numpy.bfloat16(divisor))(x)
    ours = jax.jit(sg.compile(graph, "jax"))(x)
    for y in (plain, ours):
        assert ball.contains(np.asarray(y.astype(jax.numpy.float32), float)).all()


# --- b1: sums that start with a residual or a bias --------------------------------------------------------------------


def residual_model(channels: int, size: int, weight: float) -> bytes:
    w, wz = np.full((channels, channels, 3, 3), weight), np.full((channels, 1, 1, 1), 1e8)
    nodes = [node("Conv", "x wz", "z", group=channels), node("Conv", "x w", "c", pads=[1] * 4), node("Add", "c z", "s")]
    nodes.append(node("Flatten", "s", "y"))
    shapes = {"x": [1, channels, size, size], "y": [1, channels * size * size]}
    return model(nodes, shapes, {"w": w, "wz": wz})


@pytest.mark.parametrize("channels", [32, 128])
def test_onnxruntime_accumulates_onto_the_residual(channels: int, tmp_path: Path) -> None:
    """Conv + Add becomes one kernel, whose accumulator starts with 1e8 and loses every term."""
    written = residual_model(channels, 4, 3.5 / 144)
    x = np.ones((1, channels, 4, 4), np.float32)
    (y,) = onnxruntime_session(written)([x])
    graph = graph_of(written)
    assert radius(graph, x, arithmetic=FUSED, backend="torch").outputs.contains(y.astype(float)).all()
    assert ibp(graph, Box(x, x), backend="torch", arithmetic=FUSED).outputs.contains(y).all()
    assert audited(written, "onnxruntime", x, tmp_path) in ("exact", "rounding")


def test_a_false_claim_of_a_residual_is_not_certified(tmp_path: Path) -> None:
    """ONNX Runtime's first output is at most 100000010, which was certified to be impossible."""
    channels, size = 128, 2
    written = residual_model(channels, size, 3.5 / 64)
    (y,) = onnxruntime_session(written)([np.ones((1, channels, size, size), np.float32)])
    n = channels * size * size
    low, high = (Fraction(1),) * n, (Fraction("1.0000001"),) * n
    claim = Property(n, n, (Case(low, high, (Alternative(np.eye(1, n), (Fraction(100000010),)),)),))
    assert y[0, 0] <= 100000010
    assert certify(saved(written, tmp_path), claim, seconds=1, arithmetic=FUSED).verdict != "holds"


def test_a_false_claim_of_a_bias_is_not_certified(tmp_path: Path) -> None:
    """MatMul + Add becomes Gemm, whose sum starts with the bias."""
    k, n = 4096, 16
    weights = {"w": np.full((k, n), 3.5 / 128), "b": np.full(n, 1e8)}
    written = model([node("MatMul", "x w", "c"), node("Add", "c b", "y")], {"x": [1, k], "y": [1, n]}, weights)
    x = np.ones((1, k), np.float32)
    (y,) = onnxruntime_session(written)([x])
    assert radius(graph_of(written), x, arithmetic=FUSED).outputs.contains(y.astype(float)).all()
    one = (Fraction(1),) * k
    claim = Property(k, n, (Case(one, one, (Alternative(-np.eye(1, n), (Fraction(-100000120),)),)),))
    assert y.max() >= 100000120
    assert certify(saved(written, tmp_path), claim, seconds=1, arithmetic=FUSED).verdict != "holds"


# --- b4: division by a constant ---------------------------------------------------------------------------------------


def worst_quotient() -> tuple[np.float32, np.float32, np.float32]:
    """x, d and x*(1/d) in float32, the furthest below x/d that a search finds."""
    rng, best = np.random.default_rng(0), None
    for d in np.float32([3, 5, 7, 11, 13, 19, 23, 29, 37, 41, 43, 47, 49, 0.7]):
        x = rng.uniform(1, 2, 200_000).astype(np.float32)
        y = x * (np.float32(1) / d)
        short = (y.astype(float) * float(d) - x.astype(float)) / x.astype(float)
        i = int(np.argmin(short))
        if best is None or short[i] < best[0]:
            best = (short[i], x[i], d, y[i])
    assert best is not None
    assert best[0] < -(2.0**-24)  # more than one rounding
    return best[1:]


@pytest.mark.parametrize("execution", ["node", "fused"])
def test_a_replay_counts_the_reciprocal(execution: str) -> None:
    pytest.importorskip("flint")
    x, d, y = worst_quotient()
    box = np.full((1, 1), x, np.float32)
    graph = sg.trace(lambda t: t / np.float32([[d]]), (1, 1))
    proof = replayed(graph, box, box, Setting(model=execution))
    low = proof.ranges[proof.output].low.item()
    assert Fraction(int(low.p), int(low.q)) <= Fraction(float(y))
    assert radius(graph, box, arithmetic=arithmetic(Setting(model=execution))).outputs.contains([[float(y)]]).all()


def test_openvino_multiplies_by_the_reciprocal(tmp_path: Path) -> None:
    x, d, _ = worst_quotient()
    written = model([node("Div", "x d", "y")], {"x": [1, 1], "y": [1, 1]}, {"d": np.float32([d])})
    (y,) = openvino_model(written)([np.full((1, 1), x, np.float32)])
    assert radius(graph_of(written), np.full((1, 1), x), arithmetic=FUSED).outputs.contains(y.astype(float)).all()
    at, limit = (Fraction(float(x)),), Fraction(float(y.item()))
    claim = Property(1, 1, (Case(at, at, (Alternative(np.eye(1), (limit,)),)),))  # bad: y at most what it computes
    assert certify(saved(written, tmp_path), claim, seconds=10, arithmetic=FUSED).verdict != "holds"


# --- b5: averages that overflow ---------------------------------------------------------------------------------------

AVERAGES = {
    "avg_pool": lambda x: sg.avg_pool(x, (2, 2)),
    "mean": lambda x: sg.mean(x),
    "global_avg_pool": lambda x: sg.global_avg_pool(x, rank=2),
    "adaptive_avg_pool": lambda x: sg.adaptive_avg_pool(x, (1, 1)),
}


@pytest.mark.parametrize("name", list(AVERAGES))
@pytest.mark.parametrize(("dtype", "value"), [("float32", 3e38), ("float16", 2e4)])
@pytest.mark.parametrize("execution", ["node", "fused"])
def test_a_sum_may_overflow_though_the_average_does_not(name: str, dtype: str, value: float, execution: str) -> None:
    x = np.full((1, 1, 2, 2), value, dtype)
    graph = sg.trace(AVERAGES[name], x.shape)
    chosen = Arithmetic(dtype, execution=execution)
    report = radius(graph, x, arithmetic=chosen)
    assert np.isinf(report.outputs.radius).all()
    assert report.unbounded
    assert ibp(graph, Box(x, x), arithmetic=chosen).unbounded


def test_an_average_that_overflows_is_not_certified() -> None:
    """PyTorch gives inf where at most 3.2e38 was certified."""
    torch = pytest.importorskip("torch")
    x = np.full((1, 1, 2, 2), 3e38, np.float32)
    graph = sg.trace(lambda x: sg.reshape(sg.avg_pool(x, (2, 2)), (1, 1)), x.shape)
    assert torch.isinf(torch.nn.functional.avg_pool2d(torch.from_numpy(x), 2)).all()
    text = "".join(f"(declare-const X_{i} Real)" for i in range(4)) + "(declare-const Y_0 Real)"
    text += "".join(f"(assert (>= X_{i} 2.9e38))(assert (<= X_{i} 3e38))" for i in range(4))
    claim = read_text(text + "(assert (>= Y_0 3.2e38))")
    assert certify(graph, claim, seconds=1, arithmetic=FUSED).verdict != "holds"


def test_an_average_that_overflows_is_not_replayed() -> None:
    pytest.importorskip("flint")
    from specgrad.proof.base.rationals import ReplayError

    low, high = (np.full((1, 1, 2, 2), v, np.float32) for v in (2.9e38, 3e38))
    graph = sg.trace(lambda x: sg.reshape(sg.avg_pool(x, (2, 2)), (1, 1)), low.shape)
    with pytest.raises(ReplayError, match="overflow"):
        replayed(graph, low, high, Setting())


def test_sums_laid_side_by_side_are_one_sum() -> None:
    """Relus of 100 cells each, added up, laid side by side, added: 199 additions in a row, each of which loses all that
    it adds. A region was said to have 101 roundings.
    """
    n, lost = 100, np.float32(2.0**-24 * (1 - 2.0**-10))
    x = np.full(2 * n, lost)
    x[0] = 1

    def net(x: Any) -> Any:
        y = sg.relu(x)
        return sg.sum(sg.concat([sg.sum(y[:n], (0,), keepdims=True), sg.sum(sg.relu(y[n:]), (0,), keepdims=True)], 0))

    graph = sg.trace(net, (2 * n,))
    total = np.float32(0)
    for v in x:
        total = total + v
    assert total == 1
    report = radius(graph, x)
    assert report.roundings >= 2 * n - 1
    assert report.outputs.contains(float(total))
    box = ibp(graph, Box(x, x)).outputs
    assert box.low <= float(total) <= box.high
    limit = replayed(graph, x, x, Setting(model="fused")).lower(np.array(proof_number(1), dtype=object))
    assert Fraction(int(limit.p), int(limit.q)) <= Fraction(float(total))
