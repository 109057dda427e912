"""Graphs that nobody runs whole: inputs and what is computed from them may be of any size, weights may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from specgrad.interop import from_onnx  # noqa: E402
from specgrad.interop.onnx import ModelError  # noqa: E402

BIG = {"x": (1, 3, 200_000, 200_000)}


def model(*nodes: Any, tensors: Any = ()) -> Any:
    info = onnx.helper.make_tensor_value_info
    ends = [info("x", 1, [1, 3, "h", "w"])], [info("y", 1, None)]
    arrays = [onnx.numpy_helper.from_array(a, name) for name, a in tensors]
    graph = onnx.helper.make_graph(list(nodes), "g", *ends, arrays)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)


def node(operator: str, *inputs: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(operator, list(inputs), ["y"], name=operator.lower(), **attributes)


def test_a_value_that_is_never_there_at_once() -> None:
    pool = model(node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2]))
    with pytest.raises(ModelError, match="byte_budget=2147483648 allows less"):
        from_onnx(pool, input_shapes=BIG)
    graph = from_onnx(pool, input_shapes=BIG, largest_value=1 << 80)
    assert graph.nodes[-1].shape == (1, 3, 100_000, 100_000)
    with pytest.raises(ModelError, match="input 'x' needs 960000000000 bytes; largest_value=4294967296 allows less"):
        from_onnx(pool, input_shapes=BIG, largest_value=1 << 32)


def test_weights_keep_to_their_budget() -> None:
    tensors = [("w", np.zeros((64, 3, 3, 3), np.float32))]
    conv = model(node("Conv", "x", "w"), tensors=tensors)
    with pytest.raises(ModelError, match="byte_budget=4000 allows less"):
        from_onnx(conv, input_shapes=BIG, byte_budget=4000, largest_value=1 << 80)


def test_positions_that_would_be_written_down_keep_to_it_too() -> None:
    """A scatter lists every row of the data while it is read."""
    tensors = [("where", np.zeros((1, 3), np.int64)), ("what", np.zeros((1, 200_000), np.float32))]
    scatter = model(node("ScatterND", "x", "where", "what"), tensors=tensors)
    with pytest.raises(ModelError, match="byte_budget=2147483648 allows less"):
        from_onnx(scatter, input_shapes=BIG, largest_value=1 << 80)
