"""One ONNX node as its converter sees it: typed attributes, inputs, known values.

An attribute is read by name and type; one that no line reads is refused. A value is a NumPy array as long as it
consists of integers, depends on constants alone and is small (shapes, axes, paddings), and a variable of the graph
otherwise; a variable that depends on constants alone is computed when a line needs its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Never

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from ....errors import ParameterError, ShapeError, SpecgradError, UnsupportedError
from ....graph.builder import Var
from ....graph.graph import INPUT
from ....op import REGISTRY, Op, Value, apply
from ....ops.elementwise import add
from ....scalar import Array
from ....window import Shape
from ..file import FLOATS, one_line, shown, tensor, type_name
from .importer import FORMATS, MAX_FOLDED_CELLS, WHOLE, Importer

REQUIRED: Any = object()
MAX_STEP = 2**16  # the largest stride or dilation
FIELDS = {
    "int": (AttributeProto.INT, "i"),
    "ints": (AttributeProto.INTS, "ints"),
    "float": (AttributeProto.FLOAT, "f"),
    "floats": (AttributeProto.FLOATS, "floats"),
    "string": (AttributeProto.STRING, "s"),
    "strings": (AttributeProto.STRINGS, "strings"),
    "tensor": (AttributeProto.TENSOR, "t"),
    "graph": (AttributeProto.GRAPH, "g"),
}


class OnnxNode:
    """A node with the schema version in force, for its converter; attributes must all be read or are refused.

    `importer` has the values so far; `version` is that of the schema. Refused: one attribute given twice.
    """

    def __init__(self, importer: Importer, node: NodeProto, version: int) -> None:
        self.importer = importer
        self.node = node
        self.version = version
        self.name = node.name or next((o for o in node.output if o), "")
        self.title = f"{node.op_type} {shown(self.name)}"
        self.result_type: int | None = None  # the element type of the outputs; None: that of the first input
        self.result_types: tuple[int, ...] = ()  # one per output, where they differ
        self._attributes = {a.name: a for a in node.attribute}
        if len(self._attributes) != len(node.attribute):
            self.refuse("an attribute is given twice")

    def refuse(self, text: str, rule: str | None = "P5", kind: type[SpecgradError] = ParameterError) -> Never:
        """Raise an error of type `kind` that names this node, says `text`, and quotes the contract's `rule`."""
        raise kind(self.title, one_line(text), rule=rule)

    # --- attributes ---------------------------------------------------------------------------------------------

    def attribute(self, name: str, kind: str, default: Any = REQUIRED) -> Any:
        """Return the attribute `name` and mark it as read; `default` if it is not written.

        It is refused if its type is not `kind`, a key of FIELDS ("ints", "floats" and "strings" give lists), or if it
        is missing without a default.
        """
        attribute = self._attributes.pop(name, None)
        if attribute is None:
            return self.refuse(f"attribute {name} is missing") if default is REQUIRED else default
        number, field = FIELDS[kind]
        if attribute.type != number or attribute.ref_attr_name:
            return self.refuse(f"attribute {name} must be of type {kind}")
        value = getattr(attribute, field)
        return list(value) if kind in ("ints", "floats", "strings") else value

    def integer(self, name: str, default: Any = REQUIRED) -> Any:
        """Return the integer attribute `name`; `default` if it is not written."""
        return self.attribute(name, "int", default)

    def ints(self, name: str, default: Any = REQUIRED) -> Any:
        """Return the attribute `name`, a list of integers; `default` if it is not written."""
        return self.attribute(name, "ints", default)

    def floating(self, name: str, default: Any = REQUIRED) -> float:
        """Return the float attribute `name` at its exact float32 value, the default rounded to float32.

        Refused: numbers that float32 does not hold.
        """
        value = self.attribute(name, "float", default)
        if not math.isfinite(np.float32(value)):
            self.refuse(f"attribute {name}={value} is not finite")
        return float(np.float32(value))

    def string(self, name: str, default: Any = REQUIRED) -> str:
        """Return the text attribute `name`; `default` if it is not written."""
        value = self.attribute(name, "string", default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def flag(self, name: str, default: int = 0) -> bool:
        """Return the attribute `name` as a bool, `default` if it is not written; refused unless it is 0 or 1."""
        value = self.integer(name, default)
        if value not in (0, 1):
            self.refuse(f"attribute {name} must be 0 or 1; got {value}")
        return bool(value)

    def tensor(self, name: str, default: Any = REQUIRED) -> Any:
        """Return the tensor attribute `name` as an array; `default` if it is not written."""
        proto = self.attribute(name, "tensor", default)
        if proto is default:
            return default
        return tensor(proto, self.importer.folder, self.importer.budget, self.name)

    def graph(self, name: str) -> GraphProto:
        """Return the attribute `name`, which must be a graph; refused otherwise."""
        graph: GraphProto = self.attribute(name, "graph")
        return graph

    def require(self, name: str, kind: str, *honoured: Any) -> None:
        """Refuse the node unless attribute `name` has one of the values `honoured`, the first being its default ([P5]).

        `kind` is "string", or a key of FIELDS. The attribute is marked as read.
        """
        value = self.string(name, honoured[0]) if kind == "string" else self.attribute(name, kind, honoured[0])
        if value not in honoured:
            wanted = " or ".join(map(repr, honoured))
            self.refuse(f"{name}={shown(value)} is not supported; only {wanted}")

    def without_effect(self, name: str, kind: str) -> None:
        """Mark the attribute `name`, of type `kind`, as read: it does not influence the result (momentum in inference,
        a seed).
        """
        self.attribute(name, kind, None)

    def finish(self) -> None:
        """Refuse the node, with ParameterError, if an attribute was not read ([P5])."""
        for name in self._attributes:
            self.refuse(f"attribute {shown(name)} is not honoured")

    # --- inputs -------------------------------------------------------------------------------------------------

    def has(self, i: int) -> bool:
        """Return whether input i is given."""
        return i < len(self.node.input) and self.node.input[i] != ""

    def input_name(self, i: int) -> str:
        """Return the name of input i; ShapeError if it is left out."""
        return str(self.node.input[i]) if self.has(i) else self.refuse(f"input {i} is missing", None, ShapeError)

    def value(self, i: int) -> Value:
        """Return input i as an int64 array if it is known, whole and small (a shape computation), else as a variable.

        ShapeError if it is left out; refused: whole numbers beyond int64.
        """
        name = self.input_name(i)
        value = self.importer.values[name]
        if isinstance(value, Var) or value.size > MAX_FOLDED_CELLS or value.dtype.kind not in "iub":
            return self.importer.variable(name)
        return self._as_int64(i, value)

    def _as_int64(self, i: int, value: Array) -> Array:
        """Return known integers as int64, in which they are computed with; refused beyond it."""
        if value.dtype == np.uint64 and value.max(initial=0) > np.iinfo(np.int64).max:
            self.refuse(f"input {i} has numbers beyond INT64", None)
        return np.asarray(value, np.int64)

    def real(self, i: int) -> Var:
        """Return input i as a variable of real numbers; integers, which have other arithmetic, are refused."""
        name = self.input_name(i)
        if self.importer.types[name] not in FLOATS:
            self.refuse(f"input {i} of type {type_name(self.elem_type(i))} is not supported", None)
        return self.importer.variable(name)

    def number(self, i: int) -> Var:
        """Return input i as a variable of numbers: floats, integers as whole numbers, and 1 or 0 of booleans."""
        return self.real(i) if self.elem_type(i) in FLOATS else whole_numbers(self, i)

    def any_variable(self, i: int) -> Var:
        """Return input i as a variable of any type, for operators that neither wrap nor divide."""
        return self.importer.variable(self.input_name(i))

    def positions(self, i: int) -> Var:
        """Return input i as a variable that holds positions; refused if it holds none."""
        var = self.importer.variable(self.input_name(i))
        return var if var.kind == "index" else self.refuse(f"input {i} must be computed positions", None)

    def are_positions(self, i: int) -> bool:
        """Return whether input i holds computed positions."""
        value = self.importer.values[self.input_name(i)]
        return isinstance(value, Var) and value.kind == "index"

    def optional(self, i: int) -> Var | None:
        """Return input i as a real variable, or None if it is left out."""
        return self.real(i) if self.has(i) else None

    def reals(self) -> list[Var]:
        """Return all inputs as real variables."""
        return [self.real(i) for i in range(len(self.node.input))]

    def shape(self, i: int) -> Shape:
        """Return the shape of input i."""
        return tuple(self.importer.values[self.input_name(i)].shape)

    def elem_type(self, i: int) -> int:
        """Return the ONNX element type of input i."""
        return self.importer.types[self.input_name(i)]

    def format_of(self, i: int) -> str:
        """Return the float format of input i, such as "float16"."""
        return FORMATS.get(self.elem_type(i), "float32")

    @contextmanager
    def computing(self, form: str) -> Iterator[None]:
        """Mark all nodes recorded in the block as computed in the format `form`: "int32", "float32", ..."""
        start = len(self.importer.trace.nodes)
        yield
        for position in range(start, len(self.importer.trace.nodes)):
            self.importer.formats.setdefault(position, form)

    def known(self, i: int, what: str) -> Array:
        """Return the constant value of input i; UnsupportedError, in which it is called `what`, if it depends on an
        input of the model.
        """
        value = self.importer.constant_value(self.input_name(i))
        if value is None:
            return self.refuse(f"{what} must be a constant; it depends on the input", None, UnsupportedError)
        return self._as_int64(i, value) if value.dtype.kind in "iub" else value

    def known_ints(self, i: int, what: str) -> list[int]:
        """Return the constant value of input i, called `what` in errors, as a list of integers.

        Refused: a value that is computed, has no integers, or several rows.
        """
        row = self.known(i, what)
        if row.dtype.kind != "i" or row.ndim > 1:
            self.refuse(f"{what} must be integers in one row; got {row.dtype} of shape {row.shape}", None)
        return [int(n) for n in row.reshape(-1)]

    def known_number(self, i: int, what: str) -> Any:
        """Return the constant value of input i, called `what` in errors, as a number; ShapeError unless it is one."""
        array = self.known(i, what)
        if array.size != 1:
            self.refuse(f"{what} must be one number; got shape {array.shape}", None, ShapeError)
        number = array.reshape(-1)[0]
        return number.item() if isinstance(number, np.generic) else number

    def repeated_number(self, i: int, what: str) -> Any:
        """Return the one number of input i, called `what` in errors, even if an Expand has repeated it."""
        number = self.importer.repeated_number(self.input_name(i))
        return self.known_number(i, what) if number is None else number

    def axes(self, i: int | None, default: Any = None) -> Any:
        """Return the axes from input i or, if i is None (older versions), from the attribute; `default` if neither is
        given.
        """
        if i is None:
            return self.ints("axes", default)
        return self.known_ints(i, "axes") if self.has(i) else default

    def is_mask(self, i: int) -> bool:
        """Return whether input i is computed in the graph; of booleans: a mask whose true is the number 1."""
        return isinstance(self.importer.values[self.input_name(i)], Var)

    @property
    def outputs(self) -> int:
        """Number of outputs that the model uses, counted up to the last one."""
        wanted = [i for i, name in enumerate(self.node.output) if name]
        return wanted[-1] + 1 if wanted else 0

    def folded(self, array: Any) -> Array:
        """Return `array`, a value computed while importing, checked against the limits (ModelError)."""
        return self.importer.check_folded(self.title, array)


# --- integers ---------------------------------------------------------------------------------------------------------


def whole_numbers(c: OnnxNode, i: int) -> Var:
    """Return input i of an integer type, or of booleans, as whole numbers of the graph; other types are refused.

    A layer whose input is no constant index is added to `integer_layers`.
    """
    if c.elem_type(i) not in (*WHOLE, TensorProto.BOOL):
        c.refuse(f"input {i} of type {type_name(c.elem_type(i))} is not supported", None)
    var = c.importer.variable(c.input_name(i))
    if c.elem_type(i) == TensorProto.BOOL:
        return var
    if var.kind != "index" or depends_on_inputs(c, var):
        c.importer.integer_layers.append(c.name)
    return _numbers_of_positions(c, i, var) if var.kind == "index" else var


def depends_on_inputs(c: OnnxNode, var: Var, *, kinds: tuple[str, ...] = ("real", "index")) -> bool:
    """Return whether a value is computed from inputs of the model, not from its constants alone, by nodes of these
    kinds.
    """
    nodes, todo, seen = c.importer.trace.nodes, [var.id], set()
    while todo:
        i = todo.pop()
        if nodes[i].kind not in kinds:
            continue
        if nodes[i].op is INPUT:
            return True
        if i not in seen:
            seen.add(i)
            todo += nodes[i].operands()
    return False


def _numbers_of_positions(c: OnnxNode, i: int, var: Var) -> Var:
    """Return `var`, input i, which holds computed positions, as numbers: each reads its own number from a row of all of
    them.

    Refused: positions other than those of a top_index, of which it is not known how far they go.
    """
    nodes = c.importer.trace.nodes
    node = nodes[var.id]
    while node.op.kind == "same" and len(node.operands()) == 1:
        node = nodes[node.operands()[0]]
    if node.op.name != "top_index":
        c.refuse(f"input {i} holds positions, of which it is not known how far they go", None)
    cells = nodes[node.operands()[0]].shape[node.params["axis"]]
    from ....ops.gather import gather

    numbers: Var = gather(c.importer.trace.constant(np.arange(cells, dtype=np.float64)), var, axis=0)
    return numbers


def kept_in_type(c: OnnxNode, number: Value, elem_type: int) -> Value:
    """Return whole numbers, unknown where they leave the integer type `elem_type`."""
    with c.computing(FORMATS[elem_type]):
        return add(number, 0)


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Body:
    """The `nodes` that a node stands for, in order, and the names of their values that are its `outputs`, without those
    that are left out.
    """

    nodes: list[NodeProto]
    outputs: list[str]


Converter = Callable[[OnnxNode], Any]


@dataclass(frozen=True)
class Operator:
    """A table entry: the supported schema versions, the converter (`convert`), and a note for the documentation."""

    versions: tuple[int, ...]
    convert: Converter
    note: str = ""


OPERATORS: dict[str, Operator] = {}
MICROSOFT, BLOCKED = "com.microsoft", "com.microsoft.nchwc"


@dataclass(frozen=True)
class ContributedOperator:
    """An operator of ONNX Runtime, whose schema the package onnx does not know.

    least_inputs, most_inputs, most_outputs   how many it may have
    """

    operator: Operator
    least_inputs: int
    most_inputs: int
    most_outputs: int = 1

    def fits(self, node: NodeProto) -> bool:
        """Return whether the node has as many inputs and outputs as the operator takes."""
        return self.least_inputs <= len(node.input) <= self.most_inputs and 1 <= len(node.output) <= self.most_outputs


CONTRIBUTED: dict[tuple[str, str], ContributedOperator] = {}
"""Operators of the domains com.microsoft and com.microsoft.nchwc, by (domain, name)."""


def contributed(
    name: str, least: int, most: int, note: str = "", *, outputs: int = 1, domain: str = MICROSOFT
) -> Callable[[Converter], Converter]:
    """Return a decorator that registers the converter of an operator of ONNX Runtime's own domains, version 1.

    It takes `least` to `most` inputs and gives at most `outputs`; `note` goes to the documentation.
    """

    def add(converter: Converter) -> Converter:
        CONTRIBUTED[domain, name] = ContributedOperator(Operator((1,), converter, note), least, most, outputs)
        return converter

    return add


def operator(name: str, *versions: int, note: str = "") -> Callable[[Converter], Converter]:
    """Return a decorator that registers the converter of the ONNX operator `name` for these schema versions.

    `note` goes to the documentation.
    """

    def add(converter: Converter) -> Converter:
        OPERATORS[name] = Operator(versions, converter, note)
        return converter

    return add


def register_unary(op: Op) -> Operator:
    """Register a converter for the ONNX operator that `op` names, which applies `op` to its only input; to integers,
    where it does not round.

    Return its entry in the table of operators.
    """

    def convert(c: OnnxNode) -> Value:
        if c.elem_type(0) in FLOATS or not op.exact:
            return apply(op, c.real(0))
        return kept_in_type(c, apply(op, c.number(0)), c.elem_type(0))

    operator(op.names.onnx, *op.names.opsets)(convert)
    return OPERATORS[op.names.onnx]


def later_operator(name: str) -> Operator | None:
    """Return the converter of the ONNX operator `name` if its record was registered after the table was made, else
    None.

    It is registered here.
    """
    named = (op for op in REGISTRY.values() if op.names.onnx == name and op.names.opsets)
    return next(map(register_unary, named), None)
