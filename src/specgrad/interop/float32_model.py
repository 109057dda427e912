"""The network as it is deployed in float32: which models are, and what becomes of their constants.

A proof about float32 says nothing of a model that computes in another format, so a model that declares one is refused:
float16, bfloat16 and float64 in ONNX files and PyTorch modules, float16 and others among a graph's constants. Constants
that a Python function captured as float64 or exact numbers are rounded to float32, once: that is the network which is
deployed, and `rounded_constants` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from specgrad.errors import ParameterError
from specgrad.graph.graph import Graph
from specgrad.graph.ir.symbolic import sizes_of_cells
from specgrad.interop.model import Model, open_model
from specgrad.proof.base.deployed_graph import REFUSED, deployed_constants, deployed_graph, rounded_constants
from specgrad.properties.property import Property
from specgrad.properties.vnnlib import read

__all__ = [
    "REFUSED",
    "at_the_property",
    "deployed_constants",
    "deployed_graph",
    "refuse_other_formats",
    "rounded_constants",
]


def at_the_property(graph: Graph, statement: Any) -> Graph:
    """Return the graph with open sizes set to those of x, or to the property's number of cells; a batch is 1 if that
    fits.

    >>> import specgrad as sg
    >>> graph = sg.trace(sg.relu, ("N", 3))
    >>> at_the_property(graph, (np.zeros((4, 3)), 0, 0.5)).nodes[0].shape
    (4, 3)
    """
    if graph.open is None or len(graph.input_positions) != 1:
        return graph.at()
    if isinstance(statement, tuple):
        x = np.asarray(statement[0])
        same_rank = x.ndim == len(graph.nodes[graph.input_positions[0]].shape)
        return graph.fitted((x,)) if same_rank else graph.at(**sizes_of_cells(graph.open, x.size))
    question = statement if isinstance(statement, Property) else read(statement)
    return graph.at(**sizes_of_cells(graph.open, question.cells))


def refuse_other_formats(model: Any) -> None:
    """Raise ParameterError if an ONNX file or PyTorch module declares floating tensors other than float32.

    Inputs of whole numbers are refused too: a point between them would be a counterexample that nobody can give.
    """
    given = open_model(model, "certify")
    declared = {"onnx": _onnx_types, "torch": _torch_types}.get(given.kind, lambda _: iter(()))
    for what, kind in declared(given):
        raise ParameterError("certify", f"{what} is of {kind}; {REFUSED}", rule="P5")


def _onnx_types(model: Model) -> Iterator[tuple[str, str]]:
    """Yield (what, type) of inputs, weights, constants and casts that are not float32."""
    from onnx import TensorProto

    from specgrad.interop.onnx.file import FLOATS, shown, type_name

    graph = model.file.graph
    initial = {t.name for t in graph.initializer}
    for i in graph.input:
        kind = i.type.tensor_type.elem_type
        if i.name not in initial and kind not in FLOATS:
            text = "certify proves things about all numbers of a box, and may find a counterexample between whole ones"
            raise ParameterError("certify", f"input {shown(i.name)} is of {type_name(kind)}; {text}", rule="P5")
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


def _torch_types(model: Model) -> Iterator[tuple[str, str]]:
    """Yield (name, type) of parameters and buffers that are not float32."""
    for name, value in {**dict(model.source.named_parameters()), **dict(model.source.named_buffers())}.items():
        if value.is_floating_point() and str(value.dtype) != "torch.float32":
            yield f"{name!r}", str(value.dtype).removeprefix("torch.")
