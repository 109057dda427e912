"""What every ONNX value is so far: an array while it is known, a variable of the graph otherwise."""

from __future__ import annotations

import math
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from ....graph.builder import GraphBuilder, Var
from ....graph.graph import CONSTANT, INPUT, bind
from ....op import Value, apply
from ....scalar import Array
from ..file import ByteBudget, ModelError, one_line, shown

FOLDED = 2**16  # cells of a value that is computed while importing
KNOWN = 2**22  # cells of all values computed while importing
INTEGERS = 2**22  # cells of an integer tensor that is data
FORMATS: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.DOUBLE: "float64",
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16), "int32"),
    TensorProto.INT32: "int32",
}
"""What a runtime computes with numbers of these types in; integers are exact."""


class Importer:
    """A trace, the values so far, and the bytes that may still be spent."""

    def __init__(self, folder: Path | None, budget: ByteBudget, used: Container[str]) -> None:
        self.folder = folder
        self.budget = budget
        self.used = used  # names of values that a node or an output of the model reads
        self.trace = GraphBuilder()
        self.values: dict[str, Value] = {}  # an array while known, a variable otherwise
        self.types: dict[str, int] = {}
        self.missing: set[str] = set()  # values of unexamined nodes of which not even the shape is known
        self.recorded: dict[str, Var] = {}  # arrays that became constants of the graph
        self.formats: dict[int, str] = {}  # position in the trace -> what a runtime computes there in
        self._known: dict[int, Array | None] = {}
        self._known_cells = 0

    # --- values -------------------------------------------------------------------------------------------------

    def define(self, name: str, value: Value, elem_type: int) -> None:
        if name in self.values:
            raise ModelError(f"value {shown(name)} is computed twice")
        self.values[name] = value
        self.types[name] = elem_type
        if isinstance(value, Var) and self.trace.nodes[value.id].op is INPUT:
            self._mark(value, name)

    def variable(self, name: str) -> Var:
        """The value as a variable of the graph; constants are recorded on first use, under their own name."""
        value = self.values[name]
        if isinstance(value, Var):
            return value
        if name not in self.recorded:
            self.recorded[name] = self._mark(self.trace.constant(self._numbers(name, value), name), name)
        return self.recorded[name]

    def whole_numbers(self, name: str) -> Var:
        """An integer tensor beside floats: constants become floats that hold them."""
        value = self.values[name]
        if isinstance(value, Var):
            return value
        if name not in self.recorded:
            self.budget.spend(f"value {shown(name)}", value.size * 4)
            small = np.abs(value.astype(np.int64)).max(initial=0) <= 2**24
            constant = self.trace.constant(value.astype(np.float32 if small else np.float64), name)
            self.recorded[name] = self._mark(constant, name)
        return self.recorded[name]

    def _mark(self, var: Var, name: str) -> Var:
        if self.types[name] in FORMATS:
            self.formats[var.id] = FORMATS[self.types[name]]
        return var

    def _numbers(self, name: str, array: Array) -> Array:
        """Floats as they are; integers as exact numbers, which take a word each."""
        if array.dtype.kind not in "iub":
            return array
        if array.size > INTEGERS:
            raise ModelError(f"value {shown(name)} has {array.size} integers; at most {INTEGERS} are read")
        self.budget.spend(f"value {shown(name)}", array.size * 8)
        return array.astype(object)

    # --- values that are known while importing ------------------------------------------------------------------

    def constant_value(self, name: str) -> Array | None:
        """The array of a value that depends on constants alone; None where it depends on an input or is large."""
        value = self.values[name]
        if not isinstance(value, Var):
            return np.asarray(value)
        for p in self._not_yet_known(value.id):
            self._known[p] = self._computed(p)
        return self._known[value.id]

    def repeated_number(self, name: str) -> Any:
        """The number in every cell of a value that a constant of one cell was reshaped and broadcast to; else None."""
        value = self.values[name]
        if not isinstance(value, Var):
            return None
        node, position = self.trace.nodes[value.id], value.id
        while node.op.name in ("broadcast", "reshape"):
            (position,) = node.operands()
            node = self.trace.nodes[position]
        array = self.trace.constants[position] if node.op is CONSTANT else None
        return array.reshape(-1)[0].item() if array is not None and array.size == 1 and array.dtype != object else None

    def repeated_row(self, name: str) -> Var | None:
        """The row that a matrix repeats, where broadcasting made it, or a reshape to one row alone."""
        value = self.values[name]
        if not isinstance(value, Var) or len(value.shape) != 2:
            return None
        node = self.trace.nodes[value.id]
        if node.op.name == "broadcast":
            node = self.trace.nodes[node.operands()[0]]
        if node.op.name != "reshape" or node.shape != (1, value.shape[1]):
            return None
        row = Var(self.trace, node.operands()[0])
        return row if row.shape == value.shape[1:] else None

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
        cells = np.asarray(array)
        self._known_cells += cells.size
        if cells.size > FOLDED or self._known_cells > KNOWN:
            text = f"computes {cells.size} cells while importing; one value may have {FOLDED}, all together {KNOWN}"
            raise ModelError(text, one_line(what))
        return cells
