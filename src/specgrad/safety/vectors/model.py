"""A test case as an ONNX model of one node, with every type declared."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import need
from ...window import Shape
from .case import OPSET, VectorCase

need("onnx", "test vectors need")

from onnx import ModelProto, helper, numpy_helper  # noqa: E402 - the line above says what to install


def model(case: VectorCase, shapes: Mapping[str, Shape] | None = None) -> ModelProto:
    """Return the ONNX model of a case, one node; `shapes` are the output shapes, which are left undeclared if None."""
    given = {k: a for k, a in case.arguments.items() if a is not None}
    names = [k if a is not None else "" for k, a in case.arguments.items()]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(case.operator, names, list(case.outputs), name="node", **case.attributes)
    infos = [
        helper.make_tensor_value_info(o, helper.np_dtype_to_tensor_dtype(t), None if shapes is None else shapes[o])
        for o, t in case.outputs.items()
    ]
    graph = helper.make_graph(
        [node],
        "vector",
        [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for k, a in case.fed.items()
        ],
        infos,
        [numpy_helper.from_array(given[k], k) for k in case.stored],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10, producer_name="specgrad"
    )
