"""A copy of a model that is being written anew: nodes, fresh names, constants, and a list of what was done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from specgrad.errors import UnsupportedError
from specgrad.window import Shape

from ..model_view import ModelView, NodeView


class Draft:
    """The copy, and what is known of the values of the model that it is a copy of."""

    def __init__(self, view: ModelView, model: onnx.ModelProto) -> None:
        self.view, self.model = view, onnx.ModelProto()
        self.model.CopyFrom(model)
        self.done: Counter[str] = Counter()
        self.expanded: dict[str, str] = {}  # what an inserted Expand gives -> what it reads
        graph = self.model.graph
        self.names = {str(t.name) for t in graph.initializer} | {str(i.name) for i in graph.input}
        self.names |= {str(name) for n in graph.node for name in (*n.input, *n.output, n.name)}

    @property
    def opset(self) -> int:
        return next(int(o.version) for o in self.model.opset_import if o.domain in ("", "ai.onnx"))

    def nodes(self, *operators: str) -> Iterator[NodeView]:
        """The nodes as they are now, with the schemas of the copy's opset; none of another domain."""
        for i, node in enumerate(self.model.graph.node):
            if not operators or node.op_type in operators:
                yield NodeView(i, node, onnx.defs.get_schema(node.op_type, self.opset, ""))

    def fresh(self, like: str) -> str:
        """A name that nobody has."""
        name, k = like, 1
        while name in self.names:
            name, k = f"{like}_{k}", k + 1
        self.names.add(name)
        return name

    def constant(self, like: str, array: Any) -> str:
        """A new initializer."""
        name = self.fresh(like)
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def whole_numbers(self, like: str, numbers: Sequence[int]) -> str:
        return self.constant(like, np.array(numbers, np.int64))

    def shape(self, name: str) -> Shape:
        shape = self.view.shape(name)
        if shape is None:
            raise UnsupportedError("normalise", f"the shape of {name!r} is not known")
        return shape

    def count(self, what: str, times: int = 1) -> None:
        if times:
            self.done[what] += times


def put(node: NodeProto, name: str, value: Any) -> None:
    """An attribute, in place of one of its name."""
    take(node, name)
    node.attribute.append(helper.make_attribute(name, value))


def take(node: NodeProto, *names: str) -> None:
    kept = [a for a in node.attribute if a.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


def put_input(node: NodeProto, i: int, name: str) -> None:
    """Input number i; those before it that are left out are empty names."""
    node.input.extend([""] * (i + 1 - len(node.input)))
    node.input[i] = name
