"""The step from one ONNX node to the next: look up its line in the table, run it, name its outputs."""

from __future__ import annotations

import onnx
from onnx import NodeProto, TensorProto

from specgrad.errors import SpecgradError, UnsupportedError
from specgrad.graph.graph import Node
from specgrad.op import Value, scope

from ..file import ModelError, check_shape, extent, one_line, shown
from . import indexing, layout, quantized, windows
from . import math as math_lines
from .importer import FORMATS, Importer
from .node import CONTRIBUTED, OPERATORS, Line, OnnxNode

TABLES = (indexing, layout, math_lines, quantized, windows)  # each fills its part of OPERATORS
DOMAINS = ("", "ai.onnx")
RECORDED = 15_000  # nodes of the graph
NAME = 1000  # characters of a node's name


def run(importer: Importer, node: NodeProto, line: Line, version: int) -> None:
    """One node: its line in the table, then the names of its outputs."""
    call = _call(importer, node, version)
    start = len(importer.trace.nodes)
    try:
        with scope(call.name, composite=True):
            results = line(call)
        call.finish()
    except SpecgradError as error:
        if error.operator == call.title or isinstance(error, ModelError):
            raise
        raise _titled(error, call.title) from error
    _mark_formats(importer, call, start)
    for recorded in importer.trace.nodes[start:]:
        _check_recorded(importer, call.title, recorded)
    if len(importer.trace.nodes) > RECORDED:
        raise ModelError(f"the graph would have more than {RECORDED} nodes", call.title)
    _name_outputs(importer, call, results if isinstance(results, tuple) else (results,))


def _call(importer: Importer, node: NodeProto, version: int) -> OnnxNode:
    call = OnnxNode(importer, node, version)
    if len(call.name) > NAME:
        raise ModelError(f"a name has {len(call.name)} characters; at most {NAME} are read", call.title)
    for name in node.input:
        if name and name not in importer.values:
            text = f"input {shown(name)} is not computed before this node: the graph is cyclic, unsorted or cut"
            raise ModelError(text, call.title)
    return call


def _check_recorded(importer: Importer, title: str, node: Node) -> None:
    """The budget, before any data: the value itself, and the padded input its windows range over."""
    check_shape(title, node.shape)
    importer.budget.check_value(title, extent(node.shape))
    window = node.params.get("window")
    if window is not None:
        lead = node.shape[: len(node.shape) - window.rank]
        importer.budget.check_value(f"{title}: the padded input", extent((*lead, *window.padded)))


def _name_outputs(importer: Importer, call: OnnxNode, results: tuple[Value, ...]) -> None:
    for name in call.node.output[len(results) :]:
        if name and name in importer.used:
            call.refuse(f"output {shown(name)} is not supported in inference", None)
    types = call.result_types or (_result_type(call),) * len(results)
    for name, value, elem_type in zip(call.node.output, results, types, strict=False):
        if name:
            index = getattr(value, "kind", "") == "index"
            importer.define(name, value, TensorProto.INT64 if index else elem_type)


def _result_type(call: OnnxNode) -> int:
    if call.result_type is not None:
        return call.result_type
    return call.elem_type(0) if call.has(0) else TensorProto.FLOAT


def _mark_formats(importer: Importer, call: OnnxNode, start: int) -> None:
    """What the line has not said itself is computed in the type of the result."""
    form = FORMATS.get(_result_type(call), "float32")
    for position in range(start, len(importer.trace.nodes)):
        importer.formats.setdefault(position, form)


def _titled(error: SpecgradError, title: str) -> SpecgradError:
    """The same error, under the name of the ONNX node."""
    titled = type(error)(title, one_line(str(error)))
    titled.rule = error.rule
    return titled


def lookup(node: NodeProto, opset: int) -> tuple[Line, int]:
    """The line for the schema version in force at this opset, and that version."""
    title = f"{shown(node.op_type)[1:-1]} {shown(node.name or next(iter(node.output), ''))}"
    if node.domain == "com.microsoft" and node.op_type in CONTRIBUTED:
        contributed, least, most = CONTRIBUTED[node.op_type]
        if not least <= len(node.input) <= most or len(node.output) != 1:
            raise ModelError(f"{len(node.input)} inputs and {len(node.output)} outputs do not fit the operator", title)
        return contributed.line, 1
    if node.domain not in DOMAINS:
        raise UnsupportedError(title, f"operators of the domain {shown(node.domain)} are not known")
    known = OPERATORS.get(node.op_type)
    if known is None:
        raise UnsupportedError(title, "the operator is not known")
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        raise UnsupportedError(title, f"opset {opset} has no such operator") from None
    version = schema.since_version
    if version not in known.versions:
        raise UnsupportedError(title, f"version {version} is not supported; known are {known.versions}")
    if not schema.min_input <= len(node.input) <= schema.max_input or len(node.output) > schema.max_output:
        counts = f"{len(node.input)} inputs and {len(node.output)} outputs"
        raise ModelError(f"{counts} do not fit version {version} of the operator", title)
    return known.line, version
