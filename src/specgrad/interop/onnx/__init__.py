"""ONNX in and out. Needs the package `onnx` (extra: `onnx`).

docs/reference/onnx.md lists every operator with its versions, what is honoured and what is refused.
"""

from __future__ import annotations

import functools

from ...errors import SpecgradError, need

need("onnx", "ONNX files need")

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...graph.graph import Graph
from .file import BYTE_BUDGET, ByteBudget, ModelError, read_model
from .read import symbolic as reading_open
from .read.convert_node import Declared, UnsupportedNode, declared_values
from .read.importer import Importer
from .read.model import OnnxGraph, import_model, run_model
from .read.symbolic import import_open, open_shapes

__all__ = ["ModelError", "OnnxGraph", "UnsupportedNode", "from_onnx", "to_onnx"]

MALFORMED = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


def from_onnx(
    model: Any,
    *,
    byte_budget: int = BYTE_BUDGET,
    largest_value: int | None = None,
    input_shapes: Mapping[str, Sequence[Any]] | None = None,
    partial: bool = False,
    declared: Declared | None = None,
) -> OnnxGraph:
    """Return the graph of an ONNX model of opset 7 to 22: a path, the bytes of a file, or a ModelProto.

    The result is a Graph. Its weights are constants (`trainable` names them), its layers carry the names of the ONNX
    nodes (of their first output where they have none), and `values` maps the name of an ONNX value to the position of
    the node that computes it.

    input_shapes  sizes for inputs whose declared shape leaves some open: {"x": (1, 3, 224, 224)}. A name leaves a size
                  open in the graph too, for `Graph.at`: ("N", 3, "H=224", "W=224"). So does a first axis that the file
                  leaves open; it is 1 by default
    byte_budget   no single value, at 8 bytes a cell, and not all weights together may need more
    largest_value in place of byte_budget for the inputs and what is computed from them: of graphs that nobody runs
                  whole, but in tiles
    partial       pass over nodes that have no meaning here, and list them in `unexamined`: what they read are further
                  outputs of the graph, what they give are further inputs. Otherwise they are refused, all at once
    declared      shape and element type of values that such nodes give; default: what ONNX's shape inference finds

    The model is not trusted. Sizes are computed in Python integers and compared with the budget before anything is
    allocated; external data is read from the model's own folder only, never through a link. Whatever is not honoured
    is refused by name ([P5]), in one line, with a SpecgradError.

    >>> import numpy as np
    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None if n == "y" else [1, 1, 4]) for n in "xy")
    >>> pool = helper.make_node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2], strides=[2])
    >>> model = helper.make_model(helper.make_graph([pool], "net", [x], [y]))
    >>> graph = from_onnx(model)
    >>> graph(np.array([[[1.0, 3.0, 2.0, 5.0]]]))
    array([[[3., 5.]]])
    >>> graph.nodes[graph.values["y"]].name
    'pool'
    """
    try:
        proto, folder = read_model(model, byte_budget)
        given = input_shapes or {}
        if partial:
            declared = declared_values(proto, given) if declared is None else declared
        elif open_inputs := open_shapes(proto, given):
            names = [t.name for t in proto.graph.initializer]
            return import_open(functools.partial(_import_at_sizes, byte_budget), model, given, open_inputs, names)
        return import_model(proto, folder, ByteBudget(byte_budget, largest_value), given, partial, declared or {})
    except SpecgradError:
        raise
    except MALFORMED as error:  # the last net under files that no rule above has met
        raise ModelError(f"malformed model ({type(error).__name__}: {error})") from error


def examine(
    model: onnx.ModelProto,
    folder: Path | None,
    declared: Declared,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    byte_budget: int = BYTE_BUDGET,
) -> tuple[Importer, list[UnsupportedNode]]:
    """Return what is known of every value (shape, type, constant array), and the nodes without a meaning here.

    Values that no output needs are there too, which a graph leaves out.
    """
    try:
        given = input_shapes or {}
        importer, _, passed = run_model(model, folder, ByteBudget(byte_budget), given, declared)
        return importer, passed
    except SpecgradError:
        raise
    except MALFORMED as error:
        raise ModelError(f"malformed model ({type(error).__name__}: {error})") from error


def input_dims(model: Any, *, byte_budget: int = BYTE_BUDGET) -> dict[str, list[int | None] | None]:
    """Return the sizes that an ONNX model declares for its inputs; None for an open size or an open shape."""
    return reading_open.input_dims(read_model(model, byte_budget)[0])


def declared_inputs(proto: onnx.ModelProto) -> list[tuple[str, list[int | None] | None, str | None]]:
    """Return (name, sizes, NumPy's name of the type) of every input that is no initializer; None for what is open."""
    types = {i.name: i.type.tensor_type.elem_type for i in proto.graph.input}
    return [(name, dims, _numpy_name(types[name])) for name, dims in reading_open.input_dims(proto).items()]


def _numpy_name(elem_type: int) -> str | None:
    """Return NumPy's name of an ONNX element type; None for a type that ONNX does not know."""
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)).name if elem_type else None
    except (KeyError, TypeError, ValueError):
        return None


def _import_at_sizes(byte_budget: int, model: Any, input_shapes: Mapping[str, Sequence[int]]) -> OnnxGraph:
    """Import the model at fixed input shapes; for models with symbolic sizes."""
    return from_onnx(model, byte_budget=byte_budget, input_shapes=input_shapes)


def to_onnx(graph: Graph, *, dtype: Any = np.float32) -> onnx.ModelProto:
    """Return the graph as an ONNX model of opset 22, with the names of the graph's nodes.

    Exact: cells of different lengths (adaptive pools) are one slice each, other divisors a convolution with ones and a
    division; padding is explicit, since runtimes disagree about auto_pad and ceil_mode. Numbers of the graph are
    rounded to `dtype`, as they are when it runs in that type; arrays must fit it exactly. What has no counterpart is
    refused by name.

    >>> import specgrad as sg
    >>> model = to_onnx(sg.trace(lambda x: sg.adaptive_avg_pool(x, (2,)), (1, 1, 5)))
    >>> [node.op_type for node in model.graph.node]
    ['Slice', 'Slice', 'ReduceSum', 'ReduceSum', 'Concat', 'Div']
    >>> from_onnx(model)(np.array([[[1.0, 2.0, 3.0, 4.0, 5.0]]]))
    array([[[2., 4.]]])
    """
    from .write.model import export_graph

    return export_graph(graph, dtype)
