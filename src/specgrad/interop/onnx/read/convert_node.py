"""Converts one ONNX node: looks up its converter, runs it, and names its outputs."""

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
from .node import CONTRIBUTED, OPERATORS, Converter, OnnxNode, later_operator

TABLES = (indexing, layout, math_lines, quantized, windows)  # each fills its part of OPERATORS
DOMAINS = ("", "ai.onnx")
MAX_GRAPH_NODES = 15_000  # nodes of the graph
MAX_NAME_CHARS = 1000  # characters of a node's name


def run(importer: Importer, node: NodeProto, convert: Converter, version: int) -> None:
    """Convert one node with its converter, check the result against the budget, and define its outputs."""
    onnx_node = _checked_node(importer, node, version)
    start = len(importer.trace.nodes)
    try:
        with scope(onnx_node.name, composite=True):
            results = convert(onnx_node)
        onnx_node.finish()
    except SpecgradError as error:
        if error.operator == onnx_node.title or isinstance(error, ModelError):
            raise
        raise _with_title(error, onnx_node.title) from error
    _mark_formats(importer, onnx_node, start)
    for recorded in importer.trace.nodes[start:]:
        _check_recorded(importer, onnx_node.title, recorded)
    if len(importer.trace.nodes) > MAX_GRAPH_NODES:
        raise ModelError(f"the graph would have more than {MAX_GRAPH_NODES} nodes", onnx_node.title)
    _name_outputs(importer, onnx_node, results if isinstance(results, tuple) else (results,))


def _checked_node(importer: Importer, node: NodeProto, version: int) -> OnnxNode:
    """Return the node for its converter; ModelError if its name is too long or an input is not computed yet."""
    onnx_node = OnnxNode(importer, node, version)
    if len(onnx_node.name) > MAX_NAME_CHARS:
        raise ModelError(
            f"a name has {len(onnx_node.name)} characters; at most {MAX_NAME_CHARS} are read", onnx_node.title
        )
    for name in node.input:
        if name and name not in importer.values:
            text = f"input {shown(name)} is not computed before this node: the graph is cyclic, unsorted or cut"
            raise ModelError(text, onnx_node.title)
    return onnx_node


def _check_recorded(importer: Importer, title: str, node: Node) -> None:
    """Raise ModelError if a recorded node, or the padded input of its windows, exceeds the budget."""
    check_shape(title, node.shape)
    importer.budget.check_value(title, extent(node.shape))
    window = node.params.get("window")
    if window is not None:
        lead = node.shape[: len(node.shape) - window.rank]
        importer.budget.check_value(f"{title}: the padded input", extent((*lead, *window.padded)))


def _name_outputs(importer: Importer, onnx_node: OnnxNode, results: tuple[Value, ...]) -> None:
    """Define the outputs of a node; an error if the model uses one that was not computed."""
    for name in onnx_node.node.output[len(results) :]:
        if name and name in importer.used:
            onnx_node.refuse(f"output {shown(name)} is not supported in inference", None)
    types = onnx_node.result_types or (_result_type(onnx_node),) * len(results)
    for name, value, elem_type in zip(onnx_node.node.output, results, types, strict=False):
        if name:
            index = getattr(value, "kind", "") == "index"
            importer.define(name, value, TensorProto.INT64 if index else elem_type)


def _result_type(onnx_node: OnnxNode) -> int:
    """Return the element type of a node's outputs: as its converter set it, else that of its first input."""
    if onnx_node.result_type is not None:
        return onnx_node.result_type
    return onnx_node.elem_type(0) if onnx_node.has(0) else TensorProto.FLOAT


def _mark_formats(importer: Importer, onnx_node: OnnxNode, start: int) -> None:
    """Mark nodes recorded since `start` as computed in the result's type, unless the converter marked them."""
    form = FORMATS.get(_result_type(onnx_node), "float32")
    for position in range(start, len(importer.trace.nodes)):
        importer.formats.setdefault(position, form)


def _with_title(error: SpecgradError, title: str) -> SpecgradError:
    """Return the error with the name of the ONNX node in its text."""
    titled = type(error)(title, one_line(str(error)))
    titled.rule = error.rule
    return titled


def lookup(node: NodeProto, opset: int) -> tuple[Converter, int]:
    """Return the converter for the schema version in force at this opset, and that version."""
    title = f"{shown(node.op_type)[1:-1]} {shown(node.name or next(iter(node.output), ''))}"
    if node.domain == "com.microsoft" and node.op_type in CONTRIBUTED:
        contributed, least, most = CONTRIBUTED[node.op_type]
        if not least <= len(node.input) <= most or len(node.output) != 1:
            raise ModelError(f"{len(node.input)} inputs and {len(node.output)} outputs do not fit the operator", title)
        return contributed.convert, 1
    if node.domain not in DOMAINS:
        raise UnsupportedError(title, f"operators of the domain {shown(node.domain)} are not known")
    known = OPERATORS.get(node.op_type) or later_operator(node.op_type)
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
    return known.convert, version
