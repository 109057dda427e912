"""Operators that are read by the nodes with which ONNX defines them: one layer each, nothing of the inside shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import helper

from onnx_cases import network, one, runtime
from specgrad import SpecgradError
from specgrad.check import audit
from specgrad.interop import from_onnx
from specgrad.interop.onnx.read.control_flow import BODIES
from specgrad.rounding import radius

DRAW = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return DRAW.normal(size=shape).astype(np.float32)


def test_every_version_has_a_body() -> None:
    for name, versions in BODIES.items():
        for version in versions:
            schema = onnx.defs.get_schema(name, version, "")
            assert schema.since_version == version
            assert schema.has_function or schema.has_context_dependent_function, (name, version)


def attention() -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Queries of eight positions, keys and values of twelve, a mask, and a product behind."""
    arrays = [normal(1, 2, 8, 16), normal(1, 2, 12, 16), normal(1, 2, 12, 16)]
    nodes = [
        helper.make_node("Attention", ["q", "k", "v", "mask"], ["a"], name="attention", scale=0.25),
        helper.make_node("MatMul", ["a", "w"], ["y"], name="product"),
    ]
    mask = np.where(np.tri(8, 12, 4) > 0, 0, -1e9).astype(np.float32)
    inputs = dict(zip(("q", "k", "v"), arrays, strict=True))
    return network(nodes, inputs, ["y"], {"mask": mask, "w": normal(16, 4)}, 23), arrays


def test_an_attention_is_one_layer() -> None:
    model, arrays = attention()
    graph = from_onnx(model)
    assert {n.group for n in graph.nodes if n.op.name not in ("input", "constant")} == {"attention", "product"}
    assert graph.values.keys() == {"q", "k", "v", "a", "w", "y"}
    assert graph.notes == ()
    assert graph.written is None
    (expected,) = runtime(model, arrays)
    assert radius(graph, *arrays).outputs.contains(expected).all()
    done = audit(model, "onnxruntime", arrays)
    assert [(layer.name, layer.verdict.kind) for layer in done.layers] == [
        ("attention", "rounding"), ("product", "rounding"),
    ]  # fmt: skip


def test_an_attention_of_a_wrong_scale_differs() -> None:
    """The file that runs has another scale than the file that was read."""
    model, arrays = attention()
    graph = from_onnx(model)
    model.graph.node[0].attribute[0].f = 0.2501
    (actual,) = runtime(model, arrays)
    assert not radius(graph, *arrays).outputs.contains(actual).all()


@pytest.mark.parametrize("opset", [9, 13, 18, 25])
def test_defaults_of_attributes_are_honoured(opset: int) -> None:
    """The package onnx writes a body without them: means over all axes, where the default leaves channels apart."""
    model, (x,) = one("MeanVarianceNormalization", [normal(2, 3, 4, 5)], opset=opset)
    found = from_onnx(model)(x.astype(float))
    np.testing.assert_allclose(found, runtime(model, [x])[0], rtol=0, atol=1e-5)
    body = onnx.inliner.inline_selected_functions(
        model, [("", "MeanVarianceNormalization")], inline_schema_functions=True
    )
    means = [n for n in body.graph.node if n.op_type == "ReduceMean"]
    assert all(not n.attribute for n in means), "onnx writes defaults now"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"axes": [1], "other": 3}, "attribute 'other' is not honoured"),
        ({"axes": 1}, "attribute 'axes' is not honoured"),
    ],
)
def test_attributes_that_the_body_would_ignore_are_refused(given: dict[str, Any], text: str) -> None:
    model, _ = one("MeanVarianceNormalization", [normal(2, 3, 4, 5)], opset=13, **given)
    with pytest.raises(SpecgradError, match=f"MeanVarianceNormalization 'node'.*{text}"):
        from_onnx(model)


def test_two_nodes_of_one_kind_are_apart() -> None:
    nodes = [
        helper.make_node("RMSNormalization", ["x", "a"], ["u"], name="first"),
        helper.make_node("RMSNormalization", ["u", "b"], ["y"], name="second"),
    ]
    x = normal(3, 5)
    model = network(nodes, {"x": x}, ["y"], {"a": normal(5), "b": normal(5)}, 23)
    graph = from_onnx(model)
    assert radius(graph, x).outputs.contains(runtime(model, [x])[0]).all()
    assert {n.group for n in graph.nodes if n.op.name not in ("input", "constant")} == {"first", "second"}
