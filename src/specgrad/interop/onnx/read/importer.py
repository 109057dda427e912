"""The state of an import: every ONNX value so far, as an array if known or as a variable of the graph."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto

from ....graph.builder import GraphBuilder, Var
from ....graph.graph import CONSTANT, INPUT, bind
from ....op import Value, apply
from ....scalar import Array
from ..file import ByteBudget, ModelError, one_line, shown

MAX_FOLDED_CELLS = 2**16  # cells of a value that is computed while importing
MAX_KNOWN_CELLS = 2**22  # cells of all values computed while importing
MAX_INTEGER_CELLS = 2**22  # cells of an integer tensor that is data
WIDE = (TensorProto.INT32, TensorProto.INT64)  # in which positions and sizes stand
WHOLE = (
    *WIDE,
    *(TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16),
    *(TensorProto.UINT32, TensorProto.UINT64),
)
FORMATS: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.DOUBLE: "float64",
    TensorProto.INT8: "int8",
    TensorProto.UINT8: "uint8",
    TensorProto.INT16: "int16",
    TensorProto.UINT16: "uint16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int32",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint32",
}
"""What a runtime computes with numbers of these types in. Integers are exact, or unknown where they leave the type;
those of 64 bits count as of 32."""


def _exact_floats(integers: Array) -> Array:
    """Return integers as float32 or float64 that hold them, else as Python integers."""
    for kind, most in ((np.float32, 2**24), (np.float64, 2**53)):
        if -most <= integers.min(initial=0) <= integers.max(initial=0) <= most:
            return integers.astype(kind)
    return integers.astype(object)


# --- names and order of nodes -----------------------------------------------------------------------------------------


def reads(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node and the nodes of its subgraphs read."""
    todo = [node]
    while todo:
        at = todo.pop()
        yield from filter(None, at.input)
        for inner in subgraphs(at):
            todo += inner.node
            yield from (o.name for o in inner.output if o.name)


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs in a node's attributes."""
    for a in node.attribute:
        if a.HasField("g"):
            yield a.g
        yield from a.graphs


def needed_before(nodes: Sequence[NodeProto]) -> list[set[int]]:
    """Return for each node the positions of those that it reads from."""
    makers = {name: i for i, node in reversed(list(enumerate(nodes))) for name in node.output if name}
    return [{makers[name] for name in reads(node) if name in makers} for node in nodes]


def in_order(before: Sequence[set[int]]) -> bool:
    """Return whether each node stands behind those that it needs; `before` has the positions of these per node
    (`needed_before`).
    """
    return all(j < i for i, needed in enumerate(before) for j in needed)


class UnusedNames:
    """Names of values, or of nodes, that a file leaves free; an inner name that is used once is kept."""

    def __init__(self, used: Iterable[str]) -> None:
        self._uses = Counter(used)
        self._given: set[str] = set()

    def unused(self, name: str, suffix: str) -> str:
        """Return a name that nothing else has, and take it: `name`, or with the suffix, or with a number too."""
        if not suffix and self._uses[name] == 1 and name not in self._given:
            self._given.add(name)
            return name
        number, wanted = 1, f"{name}{suffix or '#1'}"
        while wanted in self._given or wanted in self._uses:
            number += 1
            wanted = f"{name}{suffix}#{number}"
        self._given.add(wanted)
        return wanted


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield a graph and all of its subgraphs."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from graphs(inner)


def own_names(graph: GraphProto) -> list[str]:
    """Return the names that a graph itself defines: inputs, initializers, values; each once."""
    given = [v.name for v in (*graph.input, *graph.initializer)]
    return list(dict.fromkeys([*given, *(name for node in graph.node for name in node.output if name)]))


def shadowed_name(graph: GraphProto, outside: Iterable[str] = ()) -> str | None:
    """Return a name that a subgraph defines though it could read another value of that name; None: none does.

    outside   names that the nodes of `graph` may read from the graphs around it

    A subgraph's own inputs may have such names: they hide what is outside.
    """
    visible = {*outside, *(v.name for v in (*graph.input, *graph.initializer))}
    for node in graph.node:
        for inner in subgraphs(node):
            own = set(own_names(inner)) - {i.name for i in inner.input}
            name = min(own & visible, default=None) or shadowed_name(inner, visible)
            if name is not None:
                return name
        visible.update(node.output)
    return None


# --- the state --------------------------------------------------------------------------------------------------------


class Importer:
    """State of one import: the graph being built, the values so far, and the remaining byte budget.

    External data lie in `folder` (None: there is none); `graph` is the file's, `opset` the version of its operators.
    """

    def __init__(self, folder: Path | None, budget: ByteBudget, graph: GraphProto, opset: int) -> None:
        self.folder = folder
        self.budget = budget
        self.opset = opset
        self.used = {name for node in graph.node for name in reads(node)} | {o.name for o in graph.output}
        """Names of values that a node or an output of the model reads."""
        self.names = UnusedNames(name for each in graphs(graph) for name in own_names(each))
        self.node_names = UnusedNames(node.name for each in graphs(graph) for node in each.node)
        self.nodes: list[NodeProto] = []  # those of the file in order, with the nodes of subgraphs that run
        self.written = 0  # nodes of subgraphs, written out
        self.decided: list[str] = []  # what was decided while reading: branches taken, loops written out
        self.trace = GraphBuilder()
        self.values: dict[str, Value] = {}  # an array while known, a variable otherwise
        self.types: dict[str, int] = {}
        self.integer_layers: list[str] = []  # layers that compute with int32 and int64, or compare them
        self.missing: set[str] = set()  # values of unexamined nodes of which not even the shape is known
        self.recorded: dict[str, Var] = {}  # arrays that became constants of the graph
        self.formats: dict[int, str] = {}  # position in the trace -> what a runtime computes there in
        self.block: int | None = None  # channels of a block, where a file stores them in blocks
        self.blocks: dict[str, int] = {}  # values that are stored in blocks of channels
        self.states: dict[int, tuple[str, tuple[Any, ...]]] = {}  # position in the trace -> cells of a named value
        self._known: dict[int, Array | None] = {}
        self._known_cells = 0

    # --- values -------------------------------------------------------------------------------------------------

    def define(self, name: str, value: Value, elem_type: int) -> None:
        """Define the value of an ONNX name, of the ONNX type `elem_type`; ModelError if it has one already."""
        if name in self.values:
            raise ModelError(f"value {shown(name)} is computed twice")
        self.values[name] = value
        self.types[name] = elem_type
        if isinstance(value, Var) and self.trace.nodes[value.id].op is INPUT:
            self._mark_format(value, name)

    def variable(self, name: str) -> Var:
        """Return a value as a variable of the graph; constants are recorded on first use, under their own name.

        ModelError if all constants together have too many cells.
        """
        value = self.values[name]
        if isinstance(value, Var):
            return value
        if name not in self.recorded:
            self.recorded[name] = self._mark_format(self.trace.constant(self._numbers(name, value), name), name)
        return self.recorded[name]

    def _mark_format(self, var: Var, name: str) -> Var:
        """Note in `formats` the number format in which a runtime computes the value `name`, and return `var`, its
        variable.
        """
        if self.types[name] in FORMATS:
            self.formats[var.id] = FORMATS[self.types[name]]
        return var

    def _numbers(self, name: str, array: Array) -> Array:
        """Return `array`, the value of `name`, integers and booleans as floats that hold them.

        ModelError if they are too many.
        """
        if array.dtype.kind not in "iub":
            return array
        if array.size > MAX_INTEGER_CELLS:
            raise ModelError(f"value {shown(name)} has {array.size} integers; at most {MAX_INTEGER_CELLS} are read")
        self.budget.spend(f"value {shown(name)}", array.size * 8)
        return _exact_floats(array)

    # --- values that are known while importing ------------------------------------------------------------------

    def constant_value(self, name: str) -> Array | None:
        """Return the array of the value `name` if it depends on constants only, cached.

        None if it depends on an input or is large. Integers are integers, also where nodes of the graph computed them.
        ModelError if all folded values together have too many cells.
        """
        value = self.values[name]
        if not isinstance(value, Var):
            return np.asarray(value)
        for p in self._unknown_ancestors(value.id):
            self._known[p] = self._fold_node(p)
        known = self._known[value.id]
        if known is None or self.types[name] not in WHOLE or known.dtype.kind in "iu":
            return known
        return np.array([int(n) for n in known.reshape(-1)], np.int64).reshape(known.shape)

    def repeated_number(self, name: str) -> Any:
        """Return the number of the value `name` if it is one constant cell, reshaped and broadcast; else None."""
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
        """Return the row that the matrix `name` repeats by broadcasting (or is, by a reshape to one row); else None."""
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

    def _unknown_ancestors(self, position: int) -> list[int]:
        """Return the node at `position` and its ancestors that have not been folded yet, in order."""
        pending, todo = set(), [position]
        while todo:
            p = todo.pop()
            if p not in pending and p not in self._known:
                pending.add(p)
                todo.extend(self.trace.nodes[p].operands())
        return sorted(pending)

    def _fold_node(self, position: int) -> Array | None:
        """Return the value of the node at `position` from known arguments; None if it depends on an input or is large.

        ModelError if all folded values together have too many cells.
        """
        node = self.trace.nodes[position]
        if node.op is CONSTANT:
            return self.trace.constants[position]
        unknown = node.op is INPUT or any(self._known[p] is None for p in node.operands())
        if unknown or math.prod(node.shape) > MAX_FOLDED_CELLS or "window" in node.params:
            return None
        values: Any = self._known
        return self.check_folded(node.name, apply(node.op, *bind(node.args, values), **node.params))

    def check_folded(self, what: str, array: Any) -> Array:
        """Return `array`, a value computed while importing, and count its cells.

        ModelError, with the name `what`, if it, or all together, have too many cells.
        """
        cells = np.asarray(array)
        self._known_cells += cells.size
        if cells.size > MAX_FOLDED_CELLS or self._known_cells > MAX_KNOWN_CELLS:
            limits = f"one value may have {MAX_FOLDED_CELLS}, all together {MAX_KNOWN_CELLS}"
            text = f"computes {cells.size} cells while importing; {limits}"
            raise ModelError(text, one_line(what))
        return cells
