"""The state of one import: what every ONNX value is so far, and the step from one node to the next."""

from __future__ import annotations

import math
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from ..errors import SpecgradError, UnsupportedError
from ..graph.graph import CONSTANT, INPUT, Node, bind
from ..graph.trace import Trace, Var
from ..op import Value, apply, scope
from ..scalar import Array
from . import onnx_layout, onnx_math, onnx_windows  # noqa: F401 - each fills its part of the table
from .onnx_file import Budget, ModelError, check_shape, one_line, shown
from .onnx_node import FOLDED, OPERATORS, Call, Line

DOMAINS = ("", "ai.onnx")
RECORDED = 15_000  # nodes of the graph
KNOWN = 2**22  # cells of all values computed while importing
INTEGERS = 2**22  # cells of an integer tensor that is data
NAME = 1000  # characters of a node's name


class Importer:
    """A trace, the values so far, and the bytes that may still be spent."""

    def __init__(self, folder: Path | None, budget: Budget, used: Container[str]) -> None:
        self.folder = folder
        self.budget = budget
        self.used = used  # names of values that a node or an output of the model reads
        self.trace = Trace()
        self.values: dict[str, Value] = {}  # an array while known, a variable otherwise
        self.types: dict[str, int] = {}
        self.recorded: dict[str, Var] = {}  # arrays that became constants of the graph
        self._known: dict[int, Array | None] = {}
        self._known_cells = 0

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
            self.recorded[name] = self.trace.constant(self._numbers(name, found), name)
        return self.recorded[name]

    def _numbers(self, name: str, found: Array) -> Array:
        """Floats as they are; integers as exact numbers, which take a word each."""
        if found.dtype.kind not in "iub":
            return found
        if found.size > INTEGERS:
            raise ModelError(f"value {shown(name)} has {found.size} integers; at most {INTEGERS} are read")
        self.budget.spend(f"value {shown(name)}", found.size * 8)
        return found.astype(object)

    # --- values that are known while importing ------------------------------------------------------------------

    def constant_value(self, name: str) -> Array | None:
        """The array of a value that depends on constants alone; None where it depends on an input or is large."""
        found = self.values[name]
        if not isinstance(found, Var):
            return found
        for p in self._not_yet_known(found.position):
            self._known[p] = self._computed(p)
        return self._known[found.position]

    def _not_yet_known(self, position: int) -> list[int]:
        seen, todo = set(), [position]
        while todo:
            p = todo.pop()
            if p not in seen and p not in self._known:
                seen.add(p)
                todo.extend(self.trace.nodes[p].operands())
        return sorted(seen)

    def _computed(self, position: int) -> Array | None:
        node = self.trace.nodes[position]
        if node.op is CONSTANT:
            return self.trace.constants[position]
        unknown = node.op is INPUT or any(self._known[p] is None for p in node.operands())
        if unknown or math.prod(node.shape) > FOLDED or "window" in node.params:
            return None
        values: Any = self._known
        return self.small(node.name, apply(node.op, *bind(node.args, values), **node.params))

    def small(self, what: str, array: Any) -> Array:
        """A value computed while importing: shapes and the like, so neither large nor many."""
        found = np.asarray(array)
        self._known_cells += found.size
        if found.size > FOLDED or self._known_cells > KNOWN:
            text = f"computes {found.size} cells while importing; one value may have {FOLDED}, all together {KNOWN}"
            raise ModelError(text, one_line(what))
        return found

    # --- nodes --------------------------------------------------------------------------------------------------

    def run(self, node: NodeProto, line: Line, version: int) -> None:
        """One node: its line in the table, then the names of its outputs."""
        call = self._call(node, version)
        start = len(self.trace.nodes)
        try:
            with scope(call.name, composite=True):
                results = line(call)
            call.finish()
        except SpecgradError as error:
            if error.operator == call.title or isinstance(error, ModelError):
                raise
            raise _titled(error, call.title) from error
        for recorded in self.trace.nodes[start:]:
            self._check_recorded(call.title, recorded)
        if len(self.trace.nodes) > RECORDED:
            raise ModelError(f"the graph would have more than {RECORDED} nodes", call.title)
        self._name_outputs(call, results if isinstance(results, tuple) else (results,))

    def _call(self, node: NodeProto, version: int) -> Call:
        call = Call(self, node, version)
        if len(call.name) > NAME:
            raise ModelError(f"a name has {len(call.name)} characters; at most {NAME} are read", call.title)
        for name in node.input:
            if name and name not in self.values:
                text = f"input {shown(name)} is not computed before this node: the graph is cyclic, unsorted or cut"
                raise ModelError(text, call.title)
        return call

    def _check_recorded(self, title: str, node: Node) -> None:
        """The budget, before any data: the value itself, and the padded input its windows range over."""
        check_shape(title, node.shape)
        self.budget.check(title, math.prod(node.shape))
        window = node.params.get("window")
        if window is not None:
            lead = math.prod(node.shape[: len(node.shape) - window.rank])
            self.budget.check(f"{title}: the padded input", lead * math.prod(window.unpadded().size))

    def _name_outputs(self, call: Call, results: tuple[Value, ...]) -> None:
        for name in call.node.output[len(results) :]:
            if name and name in self.used:
                call.refuse(f"output {shown(name)} is not supported in inference", None)
        elem_type = call.result_type
        if elem_type is None:
            elem_type = call.elem_type(0) if call.has(0) else TensorProto.FLOAT
        for name, value in zip(call.node.output, results, strict=False):
            if name:
                index = getattr(value, "kind", "") == "index"
                self.define(name, value, TensorProto.INT64 if index else elem_type)


def _titled(error: SpecgradError, title: str) -> SpecgradError:
    """The same error, under the name of the ONNX node."""
    titled = type(error)(title, one_line(str(error)))
    titled.rule = error.rule
    return titled


def lookup(node: NodeProto, opset: int) -> tuple[Line, int]:
    """The line for the schema version in force at this opset, and that version."""
    title = f"{shown(node.op_type)[1:-1]} {shown(node.name or next(iter(node.output), ''))}"
    if node.domain not in DOMAINS:
        raise UnsupportedError(title, f"domain {shown(node.domain)} has no table")
    known = OPERATORS.get(node.op_type)
    if known is None:
        raise UnsupportedError(title, "the operator has no line in the table of docs/onnx.md")
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
