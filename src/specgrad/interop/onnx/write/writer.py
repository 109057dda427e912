"""The state of one export: nodes and constants of an ONNX graph under construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Never

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ....errors import UnsupportedError
from ....graph.graph import Graph, Node
from ....op import Op
from ....scalar import Array, Number
from ....window import Shape

TYPES = {np.dtype(t): code for t, code in (("f2", 10), ("f4", 1), ("f8", 11), ("i8", 7))}


class Writer:
    """State of one export: the ONNX nodes and constants so far.

    Emitters add nodes and return the name of the result. Numbers of `graph` are written as `dtype`.
    """

    def __init__(self, graph: Graph, dtype: np.dtype[Any]) -> None:
        self.graph = graph
        self.dtype = dtype
        self.elem_type = TYPES[dtype]
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.layer = ""  # the graph node being written
        self._stored: dict[tuple[Any, ...], str] = {}
        self._count = 0

    def refuse(self, node: Node, text: str) -> Never:
        """Raise UnsupportedError, which names a node and says `text` of it."""
        raise UnsupportedError("to_onnx", f"layer {node.name}: {node.op.name} {text}")

    # --- nodes --------------------------------------------------------------------------------------------------

    def emit(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of the ONNX operator `op` with these inputs and attributes and one output, and return the output's
        name.
        """
        return self.emit_many(op, inputs, 1, attributes)[0]

    def emit_many(self, op: str, inputs: Sequence[str], outputs: int, attributes: dict[str, Any]) -> list[str]:
        """Add a node of the ONNX operator `op` with these inputs and attributes and several outputs, and return their
        names.
        """
        names = [self.fresh(op) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=names[0], **attributes))
        return names

    def fresh(self, word: str) -> str:
        """Return a new name in the present layer that ends with `word` and a number, which is counted up."""
        self._count += 1
        return f"{self.layer}/{word}_{self._count}"

    def finish(self, result: str, name: str) -> str:
        """Give the last node of a layer, and its output `result`, the layer's own `name`, and return it; an Identity is
        added if needed.
        """
        if not self.nodes or result not in self.nodes[-1].output or not result.startswith(f"{self.layer}/"):
            return self.finish(self.emit("Identity", result), name)
        last = self.nodes[-1]
        last.output[list(last.output).index(result)] = name
        last.name = name
        return name

    # --- constants ----------------------------------------------------------------------------------------------

    def store(self, array: Array, name: str | None = None) -> str:
        """Store an array as an initializer and return its name; equal small arrays are stored once."""
        key = (name, array.dtype.str, array.shape, array.tobytes() if array.size <= 64 else len(self.constants))
        if key not in self._stored:
            self._stored[key] = name or self.fresh("constant")
            self.constants.append(
                numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), self._stored[key])
            )
        return self._stored[key]

    def ints(self, values: Sequence[int]) -> str:
        """Store the integers `values` as an int64 initializer of one axis and return its name; a short list is stored
        once.
        """
        return self.store(np.array(list(values), dtype=np.int64))

    def number(self, value: Number) -> str:
        """Store the number `value`, rounded to the model's type, and return the constant's name."""
        return self.store(np.array(float(value), dtype=self.dtype))

    def array(self, values: Any) -> str:
        """Store the array `values`, rounded to the model's type, and return its name."""
        return self.store(np.asarray(values, dtype=float).astype(self.dtype))

    # --- steps that many lines need -----------------------------------------------------------------------------

    def reshape(self, x: str, old: Shape, new: Shape) -> str:
        """Reshape the value x from shape `old` to `new` if they differ, and return its name; a 0 is a size."""
        return x if old == new else self.emit("Reshape", x, self.ints(new), allowzero=int(0 in new))

    def slice(self, x: str, axis: int, start: int, stop: int, step: int = 1) -> str:
        """Add a Slice of one axis of x, from start to stop by step; return the name of its result."""
        return self.emit("Slice", x, *(self.ints([v]) for v in (start, stop, axis, step)))

    def pad(self, x: str, pads: Sequence[tuple[int, int]], rank: int, value: Number = 0) -> str:
        """Pad the last axes of the value x, which has `rank` axes, by (low, high) cells; return the name. Negative
        widths crop.
        """
        if not any(map(any, pads)):
            return x
        lead = [0] * (rank - len(pads))
        widths = [*lead, *(lo for lo, _ in pads), *lead, *(hi for _, hi in pads)]
        return self.emit("Pad", x, self.ints(widths), self.number(value))

    def concat(self, parts: Sequence[str], axis: int) -> str:
        """Concatenate the values `parts` along an axis and return the name of the result; one part is returned as it
        is.
        """
        return parts[0] if len(parts) == 1 else self.emit("Concat", *parts, axis=axis)

    def planes(self, x: str, shape: Shape, rank: int) -> tuple[str, Shape]:
        """Reshape the value x to (mapped axes, 1, *spatial), since ONNX pools want a batch and a channel axis; return
        its name and shape.
        """
        lead = (math.prod(shape[: len(shape) - rank]), 1)
        new = lead + shape[len(shape) - rank :]
        return self.reshape(x, shape, new), new


Emitter = Callable[[Writer, Node, list[str], list[Shape]], str]
EMITTERS: dict[str, Emitter] = {}


def emits(*names: str) -> Callable[[Emitter], Emitter]:
    """Return a decorator that registers the emitter of the operators `names`."""

    def add(fn: Emitter) -> Emitter:
        EMITTERS.update(dict.fromkeys(names, fn))
        return fn

    return add


def emit_named(op: Op) -> Emitter | None:
    """Return the emitter of the one ONNX node that the record names; None without a name, or with parameters."""
    plain = op.names.onnx and not op.param_names
    return (lambda w, node, args, shapes: w.emit(op.names.onnx, *args)) if plain else None
