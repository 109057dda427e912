"""ONNX in and out. Needs the package `onnx` (extra: `onnx`).

docs/reference/onnx.md lists every operator with its versions, what is honoured and what is refused.
"""

from __future__ import annotations

from ...errors import need

need("onnx", "ONNX files need")

from typing import Any

import numpy as np
import onnx

from ...graph.graph import Graph
from .file import ModelError
from .read.convert_node import UnsupportedNode
from .read.from_onnx import MALFORMED, declared_inputs, examine, from_onnx, input_dims
from .read.model import OnnxGraph

__all__ = [
    "MALFORMED",
    "ModelError",
    "OnnxGraph",
    "UnsupportedNode",
    "declared_inputs",
    "examine",
    "from_onnx",
    "input_dims",
    "to_onnx",
]


def to_onnx(graph: Graph, *, dtype: Any = np.float32) -> onnx.ModelProto:
    """Return the graph as an ONNX model of opset 22, with the names of the graph's nodes.

    Cells of different lengths (adaptive pools) are one slice each, other divisors a convolution with ones and a
    division; padding is explicit, since runtimes disagree about auto_pad and ceil_mode. Numbers of the graph are
    rounded to `dtype`, as they are when it runs in that type; arrays must fit it exactly.

    Parameters
    ----------
    graph : Graph
        The network.
    dtype : dtype, default float32
        The type of the file's numbers.

    Returns
    -------
    onnx.ModelProto
        Of opset 22.

    Raises
    ------
    UnsupportedError
        For an operator that has no counterpart, and constants that one file cannot hold.
    ParameterError
        For another type, and constants that do not fit `dtype` exactly ([P5]).
    MissingPackageError
        Without the package `onnx`.

    Examples
    --------
    >>> import specgrad as sg
    >>> model = to_onnx(sg.trace(lambda x: sg.adaptive_avg_pool(x, (2,)), (1, 1, 5)))
    >>> [node.op_type for node in model.graph.node]
    ['Slice', 'Slice', 'ReduceSum', 'ReduceSum', 'Concat', 'Div']
    >>> from_onnx(model)(np.array([[[1.0, 2.0, 3.0, 4.0, 5.0]]]))
    array([[[2., 4.]]])
    """
    from .write.model import export_graph

    return export_graph(graph, dtype)
