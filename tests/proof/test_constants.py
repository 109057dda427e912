"""Constants that runtimes compute: batch normalisation as importers have it; roots and quotients against fractions."""

from __future__ import annotations

import io
import math
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg

pytest.importorskip("flint")
pytest.importorskip("safetensors")
torch = pytest.importorskip("torch")

from specgrad.bounds import prove  # noqa: E402
from specgrad.interop import from_torch  # noqa: E402
from specgrad.proof.api import check  # noqa: E402
from specgrad.proof.base.rationals import ReplayError, rational, rationals  # noqa: E402
from specgrad.proof.exact import node_ranges  # noqa: E402
from specgrad.proof.exact.replay import ExecutionModel, Replay  # noqa: E402

ROOTS = {"sqrt": (Fraction(6, 5), "y")}


def module() -> Any:
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(2)
    made = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 2), norm, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 3)
    )
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        norm.weight.normal_()
        norm.bias.normal_()
    return made.eval()


def holds(graph: sg.Graph, x: np.ndarray) -> Any:
    asked = (x, int(np.argmax(graph(x.astype(float)))), 0.002)
    return check(prove(graph, asked), graph, asked)


def test_batch_norm_from_torch() -> None:
    x = torch.randn(1, 1, 3, 3, generator=torch.Generator().manual_seed(1))
    found = holds(from_torch(module(), x), x.numpy())
    assert found.margin > 0
    assert "a computed sqrt is off by at most 6/5 u of the result" in str(found)


def test_batch_norm_from_onnx() -> None:
    onnx = pytest.importorskip("onnx")
    made = module()
    conv, norm, last = made[0], made[1], made[4]
    given = {"w": conv.weight, "b": conv.bias, "scale": norm.weight, "shift": norm.bias, "mean": norm.running_mean}
    given |= {"var": norm.running_var, "last": last.weight, "off": last.bias}
    tensors = [onnx.numpy_helper.from_array(v.detach().numpy(), name) for name, v in given.items()]
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        onnx.helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        onnx.helper.make_node("Relu", ["n"], ["r"]),
        onnx.helper.make_node("Flatten", ["r"], ["f"]),
        onnx.helper.make_node("Gemm", ["f", "last", "off"], ["y"], transB=1),
    ]
    value = lambda name, shape: onnx.helper.make_tensor_value_info(name, 1, shape)
    graph = onnx.helper.make_graph(nodes, "g", [value("x", [1, 1, 3, 3])], [value("y", [1, 3])], tensors)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    file = io.BytesIO()
    onnx.save(model, file)
    x = torch.randn(1, 1, 3, 3, generator=torch.Generator().manual_seed(1)).numpy()
    assert holds(sg.interop.from_onnx(file.getvalue()), x).margin > 0


def fraction(x: Any) -> Fraction:
    return Fraction(int(x.p), int(x.q))


def test_roots_and_short_numbers_are_near() -> None:
    """Relatively by less than 2**-BITS, from below in size: a rounding is 2**-24."""
    rng = Random(0)
    for _ in range(500):
        v = rational(rng.getrandbits(rng.randint(1, 90)) + 1, rng.getrandbits(rng.randint(1, 90)) + 1)
        short, root = fraction(node_ranges._shorten_number(v)), fraction(node_ranges._sqrt(v))
        assert abs(short - fraction(v)) <= fraction(v) * Fraction(1, 2**node_ranges.KEPT_BITS)
        assert abs(fraction(node_ranges._shorten_number(-v)) + fraction(v)) <= fraction(v) * Fraction(
            1, 2**node_ranges.KEPT_BITS
        )
        assert root**2 <= fraction(v) <= (root * (1 + Fraction(1, 2**node_ranges.KEPT_BITS))) ** 2
    assert node_ranges._sqrt(rational(0)) == 0
    assert node_ranges._shorten_number(rational(0)) == 0


def test_constants_hold_what_float32_makes_of_them() -> None:
    """gamma/sqrt(var + eps) by NumPy in float32, in two orders, is the replay's number up to its roundings."""
    rng = np.random.default_rng(0)
    u = Fraction(1, 2**24)
    for _ in range(20):
        gamma, var = rng.normal(size=3).astype(np.float32), rng.uniform(1e-3, 9, 3).astype(np.float32)
        graph = sg.trace(
            lambda x, g=gamma, v=var: x * (x.builder.constant(g) / sg.sqrt(x.builder.constant(v) + 1e-5)), (3,)
        )
        replay = Replay(
            graph, np.zeros(3, np.float32), np.ones(3, np.float32), {}, model=ExecutionModel(functions=ROOTS)
        )
        (at,) = [i for i, n in enumerate(graph.nodes) if n.op.name == "div"]
        r, root = replay.ranges[at], np.sqrt(var + np.float32(1e-5))
        allowed = (1 - u) ** -r.constant_roundings - 1
        for computed in (gamma / root, gamma * (np.float32(1) / root)):
            for v, c in zip(r.low, computed.tolist(), strict=True):
                assert abs(Fraction(c) - fraction(v)) <= allowed * abs(fraction(v))
        assert r.constant_roundings <= 10


def test_what_cannot_be_relied_on_is_refused() -> None:
    one = lambda f: sg.trace(lambda x: x * f(x.builder.constant(np.float32([1.0, 2.0]))), (2,))
    cases = {
        "subtracts constants": one(lambda c: c - 3.0),
        "divides by 0": one(lambda c: c / (c * 0.0)),
        "too large or small": one(lambda c: c * 2.0**-120),
        "declares no error of sqrt": one(sg.sqrt),
        "computes with constants": one(sg.sum),
    }
    for words, graph in cases.items():
        with pytest.raises(ReplayError, match=words):
            Replay(graph, np.zeros(2, np.float32), np.ones(2, np.float32), {})


def test_numbers_that_float32_rounds_are_counted() -> None:
    """0.1*x: the factor is rounded, and so is the product; at x = 1 the bound must not be 0.1 itself."""
    graph = sg.trace(lambda x: x * 0.1, (1,))
    one = np.float32([1])
    bound = fraction(Replay(graph, one, one, {}).lower(rationals([1])))
    assert bound < Fraction(0.1) - Fraction(0.1) * Fraction(2, 2**24)
    assert math.isclose(bound, 0.1, rel_tol=1e-5)
