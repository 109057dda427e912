"""Converts one ONNX node: looks up its converter, runs it, and names its outputs; or passes over it.

Where a node has no meaning here, what it reads becomes outputs of the graph, what it gives inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from specgrad.errors import SpecgradError, UnsupportedError
from specgrad.graph.builder import Var
from specgrad.graph.graph import Kind, Node
from specgrad.op import Value, scope
from specgrad.window import Shape

from ..file import DTYPES, MAX_RANK, ModelError, check_shape, declared_size, extent, one_line, shown, type_name
from . import layout, windows
from . import math as math_lines
from .importer import FORMATS, WIDE, Importer, reads
from .node import BLOCKED, CONTRIBUTED, MICROSOFT, OPERATORS, Body, Converter, OnnxNode, Operator, later_operator

TABLES = (
    layout,
    math_lines,
    windows,
)  # each fills its part of OPERATORS; rare ones are loaded for a node that they lack
DOMAINS = ("", "ai.onnx")
MAX_GRAPH_NODES = 30_000  # nodes of the graph
MAX_NAME_CHARS = 1000  # characters of a node's name


def run(importer: Importer, node: NodeProto, convert: Converter, version: int) -> Iterator[list[NodeProto]]:
    """Convert one node with its converter, check the result against the budget, and define its outputs.

    Of control flow, return the nodes to be converted in its place, part by part. `version` is that of the operator's
    schema. ModelError beyond the budget of nodes; errors of a converter get the node's title.
    """
    onnx_node = _checked_node(importer, node, version)
    start = len(importer.trace.nodes)
    try:
        with scope(onnx_node.name, composite=True), _block_layout(importer, node):
            results = convert(onnx_node)
            is_body = isinstance(results, Body)
            results = _values_of_body(importer, onnx_node, results) if is_body else results
        if isinstance(results, Iterator):
            return results
        if not is_body:
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
    return iter(())


def _values_of_body(importer: Importer, onnx_node: OnnxNode, body: Body) -> tuple[Value, ...]:
    """Convert the nodes that a node stands for, as parts of its layer, and return its outputs; other values of these
    nodes are forgotten: no runtime shows them.
    """
    decided, layers, before = len(importer.decided), len(importer.integer_layers), set(importer.values)
    _convert_in_order(importer, body.nodes)
    del importer.decided[decided:]
    if len(importer.integer_layers) > layers:
        importer.integer_layers[layers:] = [onnx_node.name]
    ends = iter(body.outputs)
    names = [next(ends) if name else "" for name in onnx_node.node.output]
    values = tuple(importer.values.get(name) for name in names)
    onnx_node.result_types = tuple(importer.types.get(name, TensorProto.FLOAT) for name in names)
    for name in importer.values.keys() - before:
        for known in (importer.values, importer.types, importer.recorded):
            known.pop(name, None)
    return values


def _convert_in_order(importer: Importer, nodes: Sequence[NodeProto]) -> None:
    """Convert nodes, and those that stand in place of some of them; the first that has no meaning is an error.

    UnsupportedError, or ModelError.
    """
    for node in nodes:
        convert, version = lookup(node, importer.opset)
        for part in run(importer, node, convert, version):
            _convert_in_order(importer, part)


def _block_layout(importer: Importer, node: NodeProto) -> AbstractContextManager[None]:
    """Return the block in which a node is converted: it settles the order of cells, where some are in blocks."""
    if not importer.blocks:
        return nullcontext()
    from .blocked import layout_of

    return layout_of(importer, node)


def _checked_node(importer: Importer, node: NodeProto, version: int) -> OnnxNode:
    """Return the node for its converter, with its schema `version`; ModelError if its name is too long or an input is
    not computed yet.
    """
    onnx_node = OnnxNode(importer, node, version)
    if len(onnx_node.name) > MAX_NAME_CHARS:
        raise ModelError(
            f"a name has {len(onnx_node.name)} characters; at most {MAX_NAME_CHARS} are read", onnx_node.title
        )
    for name in node.input:
        if name and name not in importer.values:
            text = f"input {shown(name)} is not computed before this node: the graph is cyclic or cut"
            raise ModelError(text, onnx_node.title)
    return onnx_node


def _check_recorded(importer: Importer, title: str, node: Node) -> None:
    """Raise ModelError, with `title` as the name, if a recorded node, or the padded input of its windows, exceeds the
    budget.
    """
    check_shape(title, node.shape)
    importer.budget.check_value(title, extent(node.shape))
    window = node.params.get("window")
    if window is not None:
        lead = node.shape[: len(node.shape) - window.rank]
        importer.budget.check_value(f"{title}: the padded input", extent((*lead, *window.padded)))


def _name_outputs(importer: Importer, onnx_node: OnnxNode, results: tuple[Value, ...]) -> None:
    """Define the outputs of a node as the values `results`.

    Refused if the model uses one that was not computed, or a type cannot hold its value.
    """
    for name in onnx_node.node.output[len(results) :]:
        if name and name in importer.used:
            onnx_node.refuse(f"output {shown(name)} is not supported in inference", None)
    types = onnx_node.result_types or (_result_type(onnx_node),) * len(results)
    for name, value, elem_type in zip(onnx_node.node.output, results, types, strict=False):
        if name:
            _check_type_holds(onnx_node, value, elem_type)
            index = getattr(value, "kind", "") == "index"  # positions are int64, where a Cast does not say int32
            importer.define(name, value, TensorProto.INT64 if index and elem_type not in WIDE else elem_type)


def _check_type_holds(onnx_node: OnnxNode, value: Value, elem_type: int) -> None:
    """Refuse known integers `value`, folded in int64, that the result's type `elem_type` does not hold: there they
    would wrap.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
        dtype = DTYPES.get(elem_type)
        if dtype is not None and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if not (limits.min <= int(value.min()) and int(value.max()) <= limits.max):
                onnx_node.refuse(f"known numbers leave {type_name(elem_type)}, and wrap around", None)


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
    """Return the error with `title`, the name of the ONNX node, in its text."""
    titled = type(error)(title, one_line(str(error)))
    titled.rule = error.rule
    return titled


def all_operators() -> Mapping[str, Operator]:
    """Return the converters of all ONNX operators, by name; CONTRIBUTED is complete then, too."""
    from . import (  # noqa: F401 - they fill their parts
        blocked,
        control_flow,
        fused,
        indexing,
        language,
        quantized,
        recurrent,
        sampling,
    )

    return OPERATORS


def lookup(node: NodeProto, opset: int) -> tuple[Converter, int]:
    """Return the converter for the schema version in force at this opset, and that version.

    UnsupportedError if the operator or its version is not known, ModelError if inputs or outputs do not fit it.
    """
    title = f"{shown(node.op_type)[1:-1]} {shown(node.name or next(iter(node.output), ''))}"
    if node.domain in (MICROSOFT, BLOCKED):
        all_operators()
    if node.domain not in DOMAINS:
        return _contributed_converter(node, node.domain, title), 1
    known = OPERATORS.get(node.op_type) or all_operators().get(node.op_type) or later_operator(node.op_type)
    if known is None and ("", node.op_type) not in CONTRIBUTED:
        raise UnsupportedError(title, "the operator is not known")
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        if ("", node.op_type) in CONTRIBUTED:
            return _contributed_converter(node, "", title), 1
        raise UnsupportedError(title, f"opset {opset} has no such operator") from None
    assert known is not None  # what ONNX does not know has no schema
    version = schema.since_version
    if version not in known.versions:
        raise UnsupportedError(title, f"version {version} is not supported; known are {known.versions}")
    if not schema.min_input <= len(node.input) <= schema.max_input or len(node.output) > schema.max_output:
        counts = f"{len(node.input)} inputs and {len(node.output)} outputs"
        raise ModelError(f"{counts} do not fit version {version} of the operator", title)
    return known.convert, version


def _contributed_converter(node: NodeProto, domain: str, title: str) -> Converter:
    """Return the converter of an operator of ONNX Runtime, called `title` in errors; `domain` "" is ONNX's own.

    UnsupportedError if it is not known, ModelError if the node's inputs or outputs do not fit.
    """
    contributed = CONTRIBUTED.get((domain, node.op_type))
    if contributed is None:
        raise UnsupportedError(title, f"operators of the domain {shown(domain)} are not known")
    if not contributed.fits(node):
        raise ModelError(f"{len(node.input)} inputs and {len(node.output)} outputs do not fit the operator", title)
    return contributed.operator.convert


# --- nodes without a meaning here -------------------------------------------------------------------------------------

MAX_LISTED = 20  # nodes that an error lists
TypesByName = Mapping[str, tuple[Shape, int]]  # (shape, element type) of values that skipped nodes compute


@dataclass(frozen=True)
class UnsupportedNode:
    """An ONNX node that a partial import skipped.

    layer      its name, or that of its first output
    reason     what would be needed
    reads      the values that it reads, those of its subgraphs included
    gives      the values that it computes
    error      what was raised for it; None where it only reads values of unknown shape
    operator   its type in ONNX
    """

    layer: str
    operator: str
    reason: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    error: SpecgradError | None = None


def skip_node(
    importer: Importer, node: NodeProto, error: SpecgradError | None, skipped_types: TypesByName
) -> UnsupportedNode:
    """Define the node's outputs as inputs of the graph if `skipped_types` has them; others are missing from now on.

    ModelError if an output is defined already.
    """
    for name in filter(None, node.output):
        if name in importer.values:
            raise ModelError(f"value {name!r} is computed twice")
        if name in skipped_types:
            shape, elem_type = skipped_types[name]
            importer.define(name, importer.trace.leaf(name, shape, _kind_of_type(elem_type)), elem_type)
        else:
            importer.missing.add(name)
    layer = str(node.name or next(filter(None, node.output), ""))
    reason = "reads a value whose shape is not known"
    if error is not None:
        reason = str(error).removeprefix(str(error.operator)).lstrip(": ")
    gives = tuple(filter(None, node.output))
    return UnsupportedNode(layer, str(node.op_type), reason, tuple(dict.fromkeys(reads(node))), gives, error)


def _kind_of_type(elem_type: int) -> Kind:
    """Return the kind of values of the ONNX type `elem_type`: "index" for int32 and int64, else "real"."""
    return "index" if elem_type in (TensorProto.INT32, TensorProto.INT64) else "real"


def read_outside(importer: Importer, unsupported: Sequence[UnsupportedNode], outputs: Sequence[Var]) -> list[Var]:
    """Return the variables that the skipped nodes `unsupported` read, each once, without those in `outputs`."""
    values = (importer.values.get(name) for u in unsupported for name in u.reads)
    known = {v.id for v in outputs}
    return list({v.id: v for v in values if isinstance(v, Var) and v.id not in known}.values())


def raise_unsupported(unsupported: Sequence[UnsupportedNode]) -> None:
    """Raise one error for all skipped nodes `unsupported`; a single one keeps its own error."""
    errors = [u.error for u in unsupported if u.error is not None]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        listed = "; ".join(str(e) for e in errors[:MAX_LISTED])
        more = f"; and {len(errors) - MAX_LISTED} more" if len(errors) > MAX_LISTED else ""
        error = UnsupportedError("from_onnx", f"{len(errors)} nodes are not supported: {listed}{more}")
        error.add_note("  from_onnx(model, partial=True) passes over them; `specgrad audit` does so by itself")
        raise error


def declared_values(model: Any, inputs: Mapping[str, Sequence[int]]) -> dict[str, tuple[Shape, int]]:
    """Return shape and type of values by the model and ONNX's shape inference; open sizes are left out.

    Only for models that a runtime is about to load anyway: the inference is C++ code of the package onnx.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in copy.graph.input:
        if info.name in inputs:
            dims = info.type.tensor_type.shape
            dims.ClearField("dim")
            for size in inputs[info.name]:
                dims.dim.add(dim_value=size)
    with suppress(Exception):  # what it raises is not documented; then only what the file declares is known
        copy = onnx.shape_inference.infer_shapes(copy, data_prop=True)
    infos = [*copy.graph.value_info, *copy.graph.output]
    return {i.name: known for i in infos if (known := _declared_value(i)) is not None}


def _declared_value(info: onnx.ValueInfoProto) -> tuple[Shape, int] | None:
    """Return (shape, ONNX element type) as declared; None: no shape, an open size, or more than MAX_RANK axes."""
    kind = info.type.tensor_type
    sizes = [declared_size(d) for d in kind.shape.dim]
    if not kind.HasField("shape") or None in sizes or len(sizes) > MAX_RANK:
        return None
    return tuple(n for n in sizes if n is not None), int(kind.elem_type)


def multiply_adds(node: NodeProto, shapes: Mapping[str, Shape]) -> int | None:
    """Return the multiply-adds of a node by the `shapes` of its values, by name; None where they do not tell.

    They do not where the shape of the first two inputs or of the first output is missing.

    A convolution by its window; a matrix product by its rows; of other nodes every matrix that they read (LSTM, GRU,
    attention) is multiplied by every row of the first input.
    """
    known = [shapes.get(name) for name in (*node.input, *node.output[:1])]
    y, w = known[-1] if known else None, known[1] if len(known) > 2 else None
    if y is None or w is None or (x := known[0]) is None:
        return None
    if "Conv" in node.op_type and len(w) > 2:
        return math.prod(x if "Transpose" in node.op_type else y) * math.prod(w[1:])
    if node.op_type == "MatMul":
        return math.prod(y) * math.prod(x[-1:])
    matrices = [s for s in known[1:-1] if s is not None and len(s) > 1]
    rows = math.prod(x[:-1])
    return sum(rows * math.prod(s) for s in matrices) if matrices else None
