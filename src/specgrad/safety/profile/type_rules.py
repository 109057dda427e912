"""Profile rules about types and shapes: all are written in the file, none inferred, converted or broadcast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnx import TensorProto, ValueInfoProto

from ...interop.onnx.file import type_name
from .file_rules import ALLOWED, WRITES
from .model_view import Location, ModelView, NodeView
from .rule import Spot, rule
from .sources import INFORMAL, ISSUES, NEEDS, REQS, RESTRICTIONS, spec

_ELEMENTWISE = """
Add Sub Mul Div Pow Max Min Mean Sum Mod Where PRelu BitShift
Equal Less Greater LessOrEqual GreaterOrEqual And Or Xor
"""
ELEMENTWISE = tuple(_ELEMENTWISE.split())
"""Operators whose operands meet cell by cell."""


@rule("S8", "E", "GR1", RESTRICTIONS, says="No sparse tensors.")
def dense(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the places of a model with sparse tensors (S8)."""
    for sparse in view.graph.sparse_initializer:
        yield Spot("is a sparse initializer", Location(value=str(sparse.values.name)))
    for name, info in view.declared.items():
        if info.type.WhichOneof("value") == "sparse_tensor_type":
            yield Spot("is declared as a sparse tensor", Location(value=name))
    for node in view.nodes:
        for attribute in node.proto.attribute:
            if attribute.HasField("sparse_tensor") or len(attribute.sparse_tensors):
                yield Spot(f"attribute {attribute.name} is a sparse tensor", node.at())


@rule(
    "S9",
    "E",
    "GR2; REQ-GR-000",
    RESTRICTIONS,
    REQS,
    says="The type of every value is written: no type inference.",
    cure=WRITES,
)
def typed(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the values without a written element type (S9)."""
    for node, name in view.intermediates:
        info = view.declared.get(name)
        if info is None or not info.type.tensor_type.elem_type:
            yield Spot("its element type is not written", node.at(name))
    for info in (*view.inputs, *view.graph.output):
        if not info.type.tensor_type.elem_type:
            yield Spot("its element type is not written", Location(value=str(info.name)), cure="")


def _open_sizes(info: ValueInfoProto) -> list[int]:
    """Return the axes of a declared value without a size above 0; [-1] if no shape is written."""
    kind = info.type.tensor_type
    return [i for i, d in enumerate(kind.shape.dim) if d.dim_value < 1] if kind.HasField("shape") else [-1]


def _dimensions(info: ValueInfoProto) -> list[Any]:
    """Return the dimensions that `info` declares, as ONNX's Dimension objects."""
    return list(info.type.tensor_type.shape.dim)


def _is_open_batch(info: ValueInfoProto, axes: list[int]) -> bool:
    """Return whether `axes`, the open ones of a declared value, are axis 0 alone, and its size is a symbol."""
    return axes == [0] and bool(info.type.tensor_type.shape.dim[0].dim_param)


@rule(
    "S10",
    "E",
    "REQ-GR-000; need AI-008; issues 1.4",
    REQS,
    NEEDS,
    ISSUES,
    says="The shape of every value is written, with sizes above 0, and is the one that follows from the inputs: no "
    "shape inference.",
    cure=WRITES,
)
def shaped(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the values without a written shape, or with another one than follows from the inputs
    (S10).
    """
    named: list[tuple[str, Location]] = [(name, node.at(name)) for node, name in view.intermediates]
    named += [(str(i.name), Location(value=str(i.name))) for i in (*view.inputs, *view.graph.output)]
    for name, place in named:
        info = view.declared.get(name)
        axes = [-1] if info is None else _open_sizes(info)
        if info is None or (axes and not _is_open_batch(info, axes)):
            where = "" if axes == [-1] else f" on axis {', '.join(map(str, axes))}"
            empty = info is not None and any(d.HasField("dim_value") for d in _dimensions(info) if d.dim_value < 1)
            text = f"a size is not above 0{where}" if empty else f"its shape is not written{where}"
            yield Spot(text, place, cure="" if empty else None)
        else:
            yield from _declared_shape_spots(view, name, info, place)


def _declared_shape_spots(view: ModelView, name: str, info: ValueInfoProto, place: Location) -> Iterator[Spot]:
    """Yield a spot at `place` if the shape that `info` writes for the value `name` is not the inferred one, or nothing
    could be inferred.
    """
    written = [d.dim_value or None for d in info.type.tensor_type.shape.dim]
    follows = view.inferred_shape(name)
    if follows is None:
        if name not in {i.name for i in view.inputs}:
            yield Spot(
                "its shape is written; what follows from the inputs is not known", place, undecided=True, cure=""
            )
        return
    agree = len(written) == len(follows) and all(
        None in (m, n) or m == n for m, n in zip(written, follows, strict=True)
    )
    if not agree:
        yield Spot(f"the shape {tuple(written)} is written, and {tuple(follows)} follows from the inputs", place)


@rule("S11", "W", "need THAV-003", NEEDS, says="Whether the size of the batch may be a name is not decided.")
def batch(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the values whose batch size is a symbol (S11)."""
    for name, info in view.declared.items():
        if _is_open_batch(info, _open_sizes(info)):
            symbol = info.type.tensor_type.shape.dim[0].dim_param
            cure = "--normalise with --shape writes a number"
            yield Spot(f"its first axis has the size {symbol!r}", Location(value=name), cure=cure)


@rule(
    "S12",
    "E",
    "GR3",
    RESTRICTIONS,
    says="No implicit conversion: operands of one node that meet in a result have one type.",
    cure="write a Cast",
)
def one_type(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the nodes whose operands have different types where the schema asks for one (S12)."""
    for node in view.nodes:
        types: dict[str, dict[int, str]] = {}
        for i, name in enumerate(node.proto.input):
            parameter = _type_parameter(node, i)
            if name and parameter and (kind := view.inferred_type(name)):
                types.setdefault(parameter, {})[kind] = name
        for kinds in types.values():
            if len(kinds) > 1:
                yield Spot(f"inputs have types {', '.join(type_name(k) for k in sorted(kinds))}", node.at())


def _type_parameter(node: NodeView, i: int) -> str:
    """Return the schema's type parameter of input i, or ""; Pow's base and exponent count as one."""
    if node.schema is None or not node.schema.inputs:
        return ""
    formal = node.schema.inputs[min(i, len(node.schema.inputs) - 1)]
    if not formal.is_homogeneous:
        return ""
    parameters = {c.type_param_str for c in node.schema.type_constraints}
    return ("T" if node.operator == "Pow" else formal.type_str) if formal.type_str in parameters else ""


@rule(
    "S13",
    "W",
    "need AI-008; mul.md, where.md, pow.md, max.md",
    NEEDS,
    spec("mul"),
    spec("where"),
    spec("pow"),
    spec("max"),
    says="No implicit broadcasting: operands have one shape. The texts of Mul, Div, Pow and Where demand it; those of "
    "Max and Add allow broadcasting.",
    cure="--normalise writes an Expand",
)
def one_shape(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the nodes whose operands are broadcast (S13)."""
    for node in view.of(*ELEMENTWISE):
        shapes = [view.shape(name) for name in node.proto.input if name]
        if None in shapes:
            yield Spot("the shapes of its operands are not known", node.at(), cure="")
        elif len(set(shapes)) > 1:
            yield Spot(f"operands of shapes {', '.join(map(str, shapes))} are broadcast", node.at())
    for node in view.of("Gemm"):
        result, added = (view.shape(name) for name in (node.proto.output[0], node.input(2)))
        if node.input(2) and None not in (result, added) and result != added:
            yield Spot(f"C of shape {added} is broadcast to {result}", node.at())


@rule(
    "S14",
    "E",
    "informal.md, section Types",
    INFORMAL,
    says="Elements are float16, float, double, signed or unsigned integers of 8 to 64 bits, bool or string.",
)
def element_types(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the values whose element type the profile does not allow (S14)."""
    kinds = {name: int(proto.data_type) for name, proto in view.initializers.items()}
    kinds |= {name: int(info.type.tensor_type.elem_type) for name, info in view.declared.items() if name not in kinds}
    for node, name in view.intermediates:
        kinds.setdefault(name, view.inferred_type(name))
        if not kinds[name]:
            kinds[name] = view.inferred_type(name)
        for attribute in node.proto.attribute:
            if attribute.HasField("t"):
                kinds[name] = int(attribute.t.data_type)
    for name, kind in kinds.items():
        if kind and kind not in ALLOWED and kind != TensorProto.UNDEFINED:
            yield Spot(f"has element type {type_name(kind)}", Location(value=name))
