"""The network as it is deployed in float32: which models are, and what becomes of their constants.

A proof about float32 says nothing of a model that computes in another format, so a model that declares one is refused:
float16, bfloat16 and float64 in ONNX files and PyTorch modules, float16 and others among a graph's constants. Constants
that a Python function captured as float64 or exact numbers are rounded to float32, once: that is the network which is
deployed, and `rounded_constants` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..graph.graph import Graph
from ..scalar import Array

REFUSED = "certify proves things about float32; this model is executed in another format"


def deployed_graph(graph: Graph) -> Graph:
    """The graph with its constants as float32, which are then its weights; one input and one output are asked for.

    >>> import specgrad as sg
    >>> deployed_graph(sg.trace(lambda x, y: sg.add(x, y), (2,), (2,)))
    Traceback (most recent call last):
    specgrad.errors.ShapeError: certify: the graph must have one input and one output; got inputs x, y
    >>> deployed_graph(sg.trace(lambda x: x * np.float16([0.5]), (1,)))
    Traceback (most recent call last):
    specgrad.errors.ParameterError: certify [P5]: constant 'constant' is of float16; certify proves things about float32
    """
    if len(graph.input_positions) != 1 or len(graph.output_positions) != 1:
        given = f"inputs {', '.join(graph.names)}" if len(graph.input_positions) != 1 else "several outputs"
        raise ShapeError("certify", f"the graph must have one input and one output; got {given}")
    return replace(graph, constants={i: _float32(graph, i, a) for i, a in graph.constants.items()})


def _float32(graph: Graph, i: int, array: Array) -> Array:
    name = graph.nodes[i].name
    if array.dtype.kind in "iu" or array.dtype == np.float32:
        return array
    if array.dtype not in (np.float64, object):
        raise ParameterError("certify", f"constant {name!r} is of {array.dtype}; {REFUSED}", rule="P5")
    with np.errstate(over="ignore"):
        rounded: Array = array.astype(np.float32)
    if (np.isinf(rounded) & np.isfinite(array.astype(float))).any():
        raise ParameterError("certify", f"constant {name!r} has numbers that are too large for float32", rule="P5")
    return rounded


def rounded_constants(graph: Graph) -> tuple[str, ...]:
    """A sentence about the constants that deployment rounds, if there are any."""
    changed = [graph.nodes[i].name for i, a in graph.constants.items() if _rounds(a)]
    if not changed:
        return ()
    names = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
    return (f"constants were rounded to float32 first ({names}): the network that they make is the one that is meant",)


def _rounds(array: Array) -> bool:
    if array.dtype.kind in "iu" or array.dtype == np.float32:
        return False
    return bool((array.astype(np.float32).astype(array.dtype) != array).any())


# --- models -----------------------------------------------------------------------------------------------------------


def refuse_other_formats(model: Any) -> None:
    """Refuse an ONNX file or a PyTorch module that declares tensors of another floating type than float32."""
    declared = _onnx_types(model) if isinstance(model, str | Path | bytes) else _torch_types(model)
    for what, kind in declared:
        raise ParameterError("certify", f"{what} is of {kind}; {REFUSED}", rule="P5")


def _onnx_types(model: Any) -> Iterator[tuple[str, str]]:
    """Inputs, weights, constants and casts of another format."""
    from onnx import TensorProto

    from ..interop.onnx_file import BYTE_BUDGET, FLOATS, read_model, shown, type_name

    graph = read_model(model, BYTE_BUDGET)[0].graph
    declared = [(f"input {shown(i.name)}", i.type.tensor_type.elem_type) for i in graph.input]
    declared += [(f"tensor {shown(t.name)}", t.data_type) for t in graph.initializer]
    for node in graph.node:
        for attribute in node.attribute:
            what = f"{attribute.name} of node {shown(node.name or node.op_type)}"
            declared += [(what, attribute.t.data_type)] if attribute.HasField("t") else []
            declared += [(what, attribute.i)] if node.op_type == "Cast" and attribute.name == "to" else []
    for what, kind in declared:
        if kind in FLOATS and kind != TensorProto.FLOAT:
            yield what, type_name(kind)


def _torch_types(model: Any) -> Iterator[tuple[str, str]]:
    for name, value in {**dict(model.named_parameters()), **dict(model.named_buffers())}.items():
        if value.is_floating_point() and str(value.dtype) != "torch.float32":
            yield f"{name!r}", str(value.dtype).removeprefix("torch.")
