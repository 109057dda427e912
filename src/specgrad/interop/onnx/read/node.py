"""One ONNX node, as its line in the table of operators sees it: typed attributes, inputs, known values.

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
from onnx import AttributeProto, NodeProto

from ....errors import ParameterError, ShapeError, SpecgradError, UnsupportedError
from ....graph.builder import Var
from ....op import Value
from ....scalar import Array
from ....window import Shape
from ..file import FLOATS, one_line, shown, tensor, type_name
from .importer import FOLDED, FORMATS, Importer

REQUIRED: Any = object()
STEP = 2**16  # the largest stride or dilation
FIELDS = {
    "int": (AttributeProto.INT, "i"),
    "ints": (AttributeProto.INTS, "ints"),
    "float": (AttributeProto.FLOAT, "f"),
    "floats": (AttributeProto.FLOATS, "floats"),
    "string": (AttributeProto.STRING, "s"),
    "tensor": (AttributeProto.TENSOR, "t"),
}


class OnnxNode:
    """A node with the version of its schema in force and its inputs."""

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
        raise kind(self.title, one_line(text), rule=rule)

    # --- attributes ---------------------------------------------------------------------------------------------

    def attribute(self, name: str, kind: str, default: Any = REQUIRED) -> Any:
        attribute = self._attributes.pop(name, None)
        if attribute is None:
            return self.refuse(f"attribute {name} is missing") if default is REQUIRED else default
        number, field = FIELDS[kind]
        if attribute.type != number or attribute.ref_attr_name:
            return self.refuse(f"attribute {name} must be of type {kind}")
        value = getattr(attribute, field)
        return list(value) if kind in ("ints", "floats") else value

    def integer(self, name: str, default: Any = REQUIRED) -> Any:
        return self.attribute(name, "int", default)

    def ints(self, name: str, default: Any = REQUIRED) -> Any:
        return self.attribute(name, "ints", default)

    def floating(self, name: str, default: Any = REQUIRED) -> float:
        """A float attribute is a float32: its exact value, and the default rounded to the same type."""
        value = self.attribute(name, "float", default)
        if not math.isfinite(np.float32(value)):
            self.refuse(f"attribute {name}={value} is not finite")
        return float(np.float32(value))

    def string(self, name: str, default: Any = REQUIRED) -> str:
        value = self.attribute(name, "string", default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def flag(self, name: str, default: int = 0) -> bool:
        value = self.integer(name, default)
        if value not in (0, 1):
            self.refuse(f"attribute {name} must be 0 or 1; got {value}")
        return bool(value)

    def tensor(self, name: str, default: Any = REQUIRED) -> Any:
        proto = self.attribute(name, "tensor", default)
        if proto is default:
            return default
        return tensor(proto, self.importer.folder, self.importer.budget, self.name)

    def only(self, name: str, kind: str, *honoured: Any) -> None:
        """[P5] An attribute that must have one of these values, the first being its default."""
        value = self.string(name, honoured[0]) if kind == "string" else self.attribute(name, kind, honoured[0])
        if value not in honoured:
            wanted = " or ".join(map(repr, honoured))
            self.refuse(f"{name}={shown(value)} is not supported; only {wanted}")

    def without_effect(self, name: str, kind: str) -> None:
        """An attribute that changes nothing in what we compute (momentum in inference, a seed)."""
        self.attribute(name, kind, None)

    def finish(self) -> None:
        """[P5] Whatever attribute nobody read."""
        for name in self._attributes:
            self.refuse(f"attribute {shown(name)} is not honoured")

    # --- inputs -------------------------------------------------------------------------------------------------

    def has(self, i: int) -> bool:
        return i < len(self.node.input) and self.node.input[i] != ""

    def input_name(self, i: int) -> str:
        return str(self.node.input[i]) if self.has(i) else self.refuse(f"input {i} is missing", None, ShapeError)

    def value(self, i: int) -> Value:
        """An array of integers if it is known and small (a shape under computation), else a variable."""
        name = self.input_name(i)
        value = self.importer.values[name]
        if isinstance(value, Var) or value.size > FOLDED or value.dtype.kind not in "iub":
            return self.importer.variable(name)
        return value.astype(np.int64)

    def real(self, i: int) -> Var:
        """A variable of the graph that holds real numbers; integers would wrap and divide by other rules."""
        name = self.input_name(i)
        if self.importer.types[name] not in FLOATS:
            self.refuse(f"input {i} of type {type_name(self.elem_type(i))} is not supported", None)
        return self.importer.variable(name)

    def whole(self, i: int) -> Var:
        """A variable of any type, for operators that neither wrap nor divide."""
        return self.importer.variable(self.input_name(i))

    def positions(self, i: int) -> Var:
        """A variable of the graph that holds positions: an input of integers, or what is computed from one."""
        var = self.importer.variable(self.input_name(i))
        return var if var.kind == "index" else self.refuse(f"input {i} must be computed positions", None)

    def are_positions(self, i: int) -> bool:
        """Whether an input holds computed positions."""
        value = self.importer.values[self.input_name(i)]
        return isinstance(value, Var) and value.kind == "index"

    def optional(self, i: int) -> Var | None:
        return self.real(i) if self.has(i) else None

    def reals(self) -> list[Var]:
        return [self.real(i) for i in range(len(self.node.input))]

    def shape(self, i: int) -> Shape:
        return tuple(self.importer.values[self.input_name(i)].shape)

    def elem_type(self, i: int) -> int:
        return self.importer.types[self.input_name(i)]

    def format_of(self, i: int) -> str:
        """The float format of an input."""
        return FORMATS.get(self.elem_type(i), "float32")

    @contextmanager
    def computing(self, form: str) -> Iterator[None]:
        """What is recorded inside is computed in this format: "int32", "float32", ..."""
        start = len(self.importer.trace.nodes)
        yield
        for position in range(start, len(self.importer.trace.nodes)):
            self.importer.formats.setdefault(position, form)

    def known(self, i: int, what: str) -> Array:
        """The value of an input that must not depend on the data."""
        value = self.importer.constant_value(self.input_name(i))
        if value is None:
            return self.refuse(f"{what} must be a constant; it depends on the input", None, UnsupportedError)
        return np.asarray(value, np.int64) if value.dtype.kind in "iub" else value

    def known_ints(self, i: int, what: str) -> list[int]:
        row = self.known(i, what)
        if row.dtype.kind != "i" or row.ndim > 1:
            self.refuse(f"{what} must be integers in one row; got {row.dtype} of shape {row.shape}", None)
        return [int(n) for n in row.reshape(-1)]

    def known_number(self, i: int, what: str) -> Any:
        array = self.known(i, what)
        if array.size != 1:
            self.refuse(f"{what} must be one number; got shape {array.shape}", None, ShapeError)
        return array.reshape(-1)[0].item()

    def repeated_number(self, i: int, what: str) -> Any:
        """The same, where an Expand may have repeated it."""
        number = self.importer.repeated_number(self.input_name(i))
        return self.known_number(i, what) if number is None else number

    def axes(self, i: int | None, default: Any = None) -> Any:
        """axes as an input (position i) or, in older versions, as an attribute."""
        if i is None:
            return self.ints("axes", default)
        return self.known_ints(i, "axes") if self.has(i) else default

    def is_mask(self, i: int) -> bool:
        """Whether an input is a comparison in the graph, where true is the number 1."""
        return isinstance(self.importer.values[self.input_name(i)], Var)

    @property
    def outputs(self) -> int:
        """How many outputs the model wants."""
        wanted = [i for i, name in enumerate(self.node.output) if name]
        return wanted[-1] + 1 if wanted else 0

    def folded(self, array: Any) -> Array:
        """A value computed while importing."""
        return self.importer.small(self.title, array)


Line = Callable[[OnnxNode], Any]


@dataclass(frozen=True)
class Operator:
    """A line of the table: the schema versions it honours, and how."""

    versions: tuple[int, ...]
    line: Line
    note: str = ""


OPERATORS: dict[str, Operator] = {}
CONTRIBUTED: dict[str, tuple[Operator, int, int]] = {}
"""Of the domain com.microsoft, whose schemas the package onnx does not know: with the least and most inputs."""


def contributed(name: str, least: int, most: int, note: str = "") -> Callable[[Line], Line]:
    """Register the line of an operator of com.microsoft, version 1."""

    def add(line: Line) -> Line:
        CONTRIBUTED[name] = Operator((1,), line, note), least, most
        return line

    return add


def operator(name: str, *versions: int, note: str = "") -> Callable[[Line], Line]:
    """Register the line of an operator for these schema versions."""

    def add(line: Line) -> Line:
        OPERATORS[name] = Operator(versions, line, note)
        return line

    return add
