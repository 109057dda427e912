"""From an ONNX model to a graph: one pass over its nodes, each through its line in the table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from ..errors import UnsupportedError
from ..graph.graph import Graph, Node
from ..graph.trace import Var
from ..window import Shape
from .onnx_file import DTYPES, FLOATS, NODES, Budget, ModelError, check_shape, read_model, shown, tensor, type_name
from .onnx_importer import DOMAINS, Importer, lookup

OLDEST = 7  # tested to 22; a newer opset is read where the version of every operator in force is one of the table


@dataclass(frozen=True, eq=False)
class OnnxGraph(Graph):
    """A graph read from ONNX, with the way back to the names of the model.

    values  ONNX value (tensor) name -> position of the graph node that computes it. Values that no output needs, or
            that were computed while importing (shapes, axes), have none.
    """

    values: Mapping[str, int] = field(default_factory=dict)


# --- the model --------------------------------------------------------------------------------------------------


def _opset(model: onnx.ModelProto) -> int:
    found = {o.version for o in model.opset_import if o.domain in DOMAINS}
    if len(found) != 1:
        raise ModelError(f"the model must import the ONNX operators once; got opsets {sorted(found)[:5]}")
    (opset,) = found
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        raise UnsupportedError("from_onnx", f"opset {opset} is not supported; opsets {OLDEST} to {newest} are")
    return opset


def _check_model(model: onnx.ModelProto) -> None:
    """What a model may contain besides nodes, and we do not honour."""
    if len(model.graph.node) > NODES:
        raise ModelError(f"the graph has {len(model.graph.node)} nodes; at most {NODES} are read")
    graph = model.graph
    named = [v.name for group in (graph.input, graph.output, graph.initializer) for v in group]
    for name in [*named, *(text for n in graph.node for text in (n.op_type, n.name, *n.input, *n.output))]:
        if not isinstance(name, str):  # protobuf hands out the bytes
            raise ModelError(f"the name {shown(name)} is not UTF-8 text")
    refused = {
        "functions": model.functions,
        "training_info": model.training_info,
        "sparse_initializer": model.graph.sparse_initializer,
        "quantization_annotation": model.graph.quantization_annotation,
    }
    for name, found in refused.items():
        if len(found):
            raise ModelError(f"{name} of the model is not honoured", rule="P5")


def _input_shape(info: onnx.ValueInfoProto, given: Mapping[str, Sequence[int]]) -> Shape:
    """The declared shape, its unknown sizes filled in from input_shapes."""
    what = f"input {shown(info.name)}"
    if info.type.WhichOneof("value") != "tensor_type":
        raise ModelError(f"{what} is not a tensor")
    declared = info.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else None for d in declared.shape.dim]
    known = declared.HasField("shape")
    if info.name in given:
        shape = check_shape(what, given[info.name])
        if known and (len(shape) != len(dims) or any(d not in (None, n) for d, n in zip(dims, shape, strict=True))):
            raise ModelError(f"{what} is declared as {tuple(dims)}; input_shapes gives {shape}")
        return shape
    if not known or None in dims:
        text = (
            f"{what} has unknown sizes {tuple(dims) if known else ''}; give input_shapes={{{shown(info.name)}: (...)}}"
        )
        raise ModelError(text)
    return check_shape(what, dims)


def _define_inputs(importer: Importer, graph: onnx.GraphProto, given: Mapping[str, Sequence[int]]) -> list[str]:
    for proto in graph.initializer:
        importer.define(proto.name, tensor(proto, importer.folder, importer.budget), proto.data_type)
    names = [i.name for i in graph.input if i.name not in importer.values]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ModelError(f"input_shapes names {shown(unknown[0])}, which is no input; inputs are {shown(names)}")
    for info in graph.input:
        if info.name in names:
            _define_input(importer, info, given)
    return names


def _define_input(importer: Importer, info: onnx.ValueInfoProto, given: Mapping[str, Sequence[int]]) -> None:
    shape = _input_shape(info, given)
    elem_type = info.type.tensor_type.elem_type
    if elem_type not in DTYPES or elem_type == TensorProto.BOOL:
        raise ModelError(f"input {shown(info.name)} has element type {type_name(elem_type)}, which is not read")
    importer.budget.check(f"input {shown(info.name)}", math.prod(shape))
    index = elem_type in (TensorProto.INT32, TensorProto.INT64)
    importer.define(info.name, importer.trace.input(info.name, shape, "index" if index else "real"), elem_type)


def _outputs(importer: Importer, graph: onnx.GraphProto) -> tuple[Var, ...]:
    if not graph.output:
        raise ModelError("the graph has no output")
    for info in graph.output:
        if info.name not in importer.values:
            raise ModelError(f"output {shown(info.name)} is not computed by any node")
    return tuple(_output(importer, info.name) for info in graph.output)


def _output(importer: Importer, name: str) -> Var:
    found = importer.values[name]
    if isinstance(found, Var) or found.dtype.kind not in "iub":
        return importer.variable(name)
    return importer.trace.constant(found.astype(np.int64), name)


def import_model(source: Any, byte_budget: int, input_shapes: Mapping[str, Sequence[int]] | None) -> OnnxGraph:
    model, folder = read_model(source, byte_budget)
    _check_model(model)
    opset = _opset(model)
    used = {name for node in model.graph.node for name in node.input} | {o.name for o in model.graph.output}
    importer = Importer(folder, Budget(byte_budget), used)
    names = _define_inputs(importer, model.graph, dict(input_shapes or {}))
    lines = [(node, *lookup(node, opset)) for node in model.graph.node]  # unknown operators before any work
    for node, line, version in lines:
        importer.run(node, line, version)
    outputs = _outputs(importer, model.graph)
    inputs = tuple(importer.values[name] for name in names)
    graph = importer.trace.graph(tuple(names), inputs, outputs, len(outputs) == 1)
    return _with_values(graph, importer, model.graph)


def _with_values(graph: Graph, importer: Importer, proto: onnx.GraphProto) -> OnnxGraph:
    """The mapping from ONNX values to nodes; node names are unique and survive the renumbering."""
    position = {n.name: i for i, n in enumerate(graph.nodes)}
    variables = {**importer.recorded, **{k: v for k, v in importer.values.items() if isinstance(v, Var)}}
    values = {name: position[v.name] for name, v in variables.items() if v.name in position}
    fields = {f: getattr(graph, f) for f in Graph.__dataclass_fields__}
    fields["nodes"] = _named_as_layers(graph)
    fields["trainable"] = frozenset(graph.nodes[values[n]].name for n in _weights(proto) if n in values)
    return OnnxGraph(**fields, values=values)


def _named_as_layers(graph: Graph) -> tuple[Node, ...]:
    """A layer of one node gives it its name: conv1, not conv1.conv."""
    members = Counter(n.group for n in graph.nodes)
    return tuple(replace(n, name=n.group) if members[n.group] == 1 else n for n in graph.nodes)


def _weights(proto: onnx.GraphProto) -> set[str]:
    """Initializers that training may change: floats with an axis, except running statistics."""
    names = {t.name for t in proto.initializer if t.data_type in FLOATS and t.dims}
    return names - {name for n in proto.node if n.op_type == "BatchNormalization" for name in n.input[3:]}
