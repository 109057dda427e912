"""Node tests of one operator, and their files as onnx stores them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


def make(op: str, inputs: list[np.ndarray], outputs: list[np.ndarray], opset: int = 18, **attributes: Any) -> Any:
    """A NodeTest of one node."""
    from specgrad.check.tolerances.node_tests.load import NodeTest

    ends = [[f"{kind}{k}" for k in range(len(arrays))] for kind, arrays in (("x", inputs), ("y", outputs))]
    infos = [list(map(_info, names, arrays)) for names, arrays in zip(ends, (inputs, outputs), strict=True)]
    graph = helper.make_graph([helper.make_node(op, *ends, **attributes)], "g", *infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return NodeTest(f"test_{op.lower()}", model, tuple(inputs), tuple(outputs))


def _info(name: str, array: np.ndarray) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def store(folder: Path, test: Any) -> Path:
    """Write a test as onnx does; return its folder."""
    home = folder / test.name
    (home / "test_data_set_0").mkdir(parents=True)
    onnx.save(test.model, home / "model.onnx")
    for kind, arrays in (("input", test.inputs), ("output", test.outputs)):
        for k, array in enumerate(arrays):
            (home / "test_data_set_0" / f"{kind}_{k}.pb").write_bytes(
                numpy_helper.from_array(array).SerializeToString()
            )
    return home
