"""From an ONNX model to a graph: one pass over its nodes, each through its line in the table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from ..errors import SpecgradError, UnsupportedError
from ..graph.graph import CONSTANT, INPUT, Graph, Node, bind
from ..graph.trace import Trace, Var
from ..op import Value, apply, scope
from ..scalar import Array
from ..window import Shape
from . import onnx_layout, onnx_math, onnx_windows  # noqa: F401 - each fills its part of the table
from .onnx_file import (
    DTYPES,
    FLOATS,
    NODES,
    Budget,
    ModelError,
    check_shape,
    read_model,
    shown,
    tensor,
    type_name,
)
from .onnx_node import FOLDED, OPERATORS, Call

OLDEST = 7  # tested to 22; a newer opset is read where the version of every operator in force is one of the table
INTEGERS = 2**20  # cells of an integer tensor
DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True, eq=False)
class OnnxGraph(Graph):
    """A graph read from ONNX, with the way back to the names of the model.

    values  ONNX value (tensor) name -> position of the graph node that computes it. Values that no output needs, or
            that were computed while importing (shapes, axes), have none.
    """

    values: Mapping[str, int] = field(default_factory=dict)


class Importer:
    """The state of one import: a trace, and what every ONNX value is so far."""

    def __init__(self, folder: Path | None, budget: Budget) -> None:
        self.folder = folder
        self.budget = budget
        self.trace = Trace()
        self.values: dict[str, Value] = {}  # an array while known, a variable otherwise
        self.types: dict[str, int] = {}
        self.recorded: dict[str, Var] = {}

    # --- values -------------------------------------------------------------------------------------------------

    def define(self, name: str, value: Value, elem_type: int) -> None:
        if name in self.values:
            raise ModelError(f"value {shown(name)} is computed twice")
        self.values[name] = value
        self.types[name] = elem_type

    def variable(self, name: str) -> Var:
        """The value as a variable of the graph; constants are recorded on first use, under their own name."""
        found = self.values[name]
        if isinstance(found, Var):
            return found
        if name not in self.recorded:
            if found.dtype.kind in "iub":
                if found.size > INTEGERS:
                    raise ModelError(f"value {shown(name)} has more than {INTEGERS} integers")
                found = found.astype(object)
            self.recorded[name] = self.trace.constant(found, name)
        return self.recorded[name]

    def constant_value(self, name: str) -> Array | None:
        """The array of a value that depends on constants alone; None if it depends on an input."""
        found = self.values[name]
        return self._evaluate(found.position) if isinstance(found, Var) else found

    def _evaluate(self, position: int) -> Array | None:
        needed, todo = set(), [position]
        while todo:
            p = todo.pop()
            node = self.trace.nodes[p]
            if node.op is INPUT or math.prod(node.shape) > FOLDED or len(needed) > NODES:
                return None
            if p not in needed:
                needed.add(p)
                todo.extend(node.operands())
        values: Any = {}
        for p in sorted(needed):
            node = self.trace.nodes[p]
            args = bind(node.args, values)
            values[p] = self.trace.constants[p] if node.op is CONSTANT else apply(node.op, *args, **node.params)
        return np.asarray(values[position])

    def small(self, what: str, array: Any) -> Array:
        found = np.asarray(array)
        if found.size > FOLDED:
            raise ModelError(f"computes a constant of {found.size} cells; at most {FOLDED} are", what)
        return found

    # --- nodes --------------------------------------------------------------------------------------------------

    def run(self, node: NodeProto, opset: int) -> None:
        """One node: its line in the table, then the names of its outputs."""
        call, line = self._prepare(node, opset)
        start = len(self.trace.nodes)
        try:
            with scope(call.name, composite=True):
                results = line(call)
            call.finish()
        except SpecgradError as error:
            if error.operator == call.title or isinstance(error, ModelError):
                raise
            wrapped = type(error)(call.title, str(error))
            wrapped.rule = error.rule
            raise wrapped from error
        for recorded in self.trace.nodes[start:]:
            self._check_recorded(call.title, recorded)
        self._name_outputs(call, results if isinstance(results, tuple) else (results,))

    def _prepare(self, node: NodeProto, opset: int) -> tuple[Call, Any]:
        if node.domain not in DOMAINS:
            raise UnsupportedError(
                f"{shown(node.op_type)} {shown(node.name)}", f"domain {shown(node.domain)} has no table"
            )
        line, version = _lookup(node, opset)
        call = Call(self, node, version)
        for name in node.input:
            if name and name not in self.values:
                text = f"input {shown(name)} is not computed before this node: the graph is cyclic, unsorted or cut"
                raise ModelError(text, call.title)
        return call, line

    def _check_recorded(self, title: str, node: Any) -> None:
        """The budget, before any data: the value itself, and the padded input its windows range over."""
        self.budget.check(f"{title}: {node.name}", math.prod(node.shape))
        check_shape(title, node.shape)
        window = node.params.get("window")
        if window is not None:
            lead = math.prod(node.shape[: len(node.shape) - window.rank])
            self.budget.check(f"{title}: the padded input", lead * math.prod(window.unpadded().size))

    def _name_outputs(self, call: Call, results: tuple[Value, ...]) -> None:
        if call.outputs > len(results):
            call.refuse(f"output {shown(call.node.output[call.outputs - 1])} is not supported in inference", None)
        elem_type = call.result_type
        if elem_type is None:
            elem_type = call.elem_type(0) if call.has(0) else TensorProto.FLOAT
        for name, value in zip(call.node.output, results, strict=False):
            if name:
                index = getattr(value, "kind", "") == "index"
                self.define(name, value, TensorProto.INT64 if index else elem_type)


def _lookup(node: NodeProto, opset: int) -> tuple[Any, int]:
    """The line for the schema version in force at this opset."""
    title = f"{shown(node.op_type)[1:-1]} {shown(node.name or next(iter(node.output), ''))}"
    known = OPERATORS.get(node.op_type)
    if known is None:
        raise UnsupportedError(title, "the operator has no line in the table of docs/onnx.md")
    try:
        version = onnx.defs.get_schema(node.op_type, opset, "").since_version
    except onnx.defs.SchemaError:
        raise UnsupportedError(title, f"opset {opset} has no such operator") from None
    if version not in known.versions:
        raise UnsupportedError(title, f"version {version} is not supported; known are {known.versions}")
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    if not schema.min_input <= len(node.input) <= schema.max_input or len(node.output) > schema.max_output:
        counts = f"{len(node.input)} inputs and {len(node.output)} outputs"
        raise ModelError(f"{counts} do not fit version {version} of the operator", title)
    return known.line, version


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
    importer = Importer(folder, Budget(byte_budget))
    names = _define_inputs(importer, model.graph, dict(input_shapes or {}))
    for node in model.graph.node:
        importer.run(node, opset)
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
