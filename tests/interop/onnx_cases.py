"""Small ONNX models for tests, and ONNX Runtime as the other opinion."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IR = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10}


def info(name: str, shape: Any, elem_type: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem_type, shape)


def network(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 22,
) -> onnx.ModelProto:
    """inputs are name -> array or shape; outputs are declared without a shape."""
    declared = []
    for name, value in inputs.items():
        array = value if isinstance(value, np.ndarray) else np.zeros(value, np.float32)
        declared.append(info(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)))
    stored = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    types = {"indices": TensorProto.INT64}  # the second output of MaxPool and TopK
    graph = helper.make_graph(
        nodes, "test", declared, [info(o, None, types.get(o, TensorProto.FLOAT)) for o in outputs], stored
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR.get(opset, 10))


def one(
    op: str, inputs: list[np.ndarray | None], *, opset: int = 22, known: int = 99, outputs: int = 1, **attributes: Any
) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """A model of one node; inputs from position `known` on are constants, None is left out."""
    names = ["" if v is None else f"i{n}" for n, v in enumerate(inputs)]
    given = {n: v for k, (n, v) in enumerate(zip(names, inputs, strict=True)) if n and k < known}
    constants = {n: v for k, (n, v) in enumerate(zip(names, inputs, strict=True)) if n and k >= known}
    results = ["y", "indices", *(f"y{n}" for n in range(2, outputs))][:outputs] if op in ("MaxPool", "TopK") else None
    results = results or [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op, names, results, name="node", **attributes)
    return network([node], given, results, constants, opset), list(given.values())


def runtime(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes, without its graph optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: v for i, v in zip(session.get_inputs(), inputs, strict=True)})
