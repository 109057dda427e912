"""A copy of a model that is being rewritten: nodes, fresh names, constants, and a count of the changes."""

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
    """The copy of `model`, what is known of the original (`view`), and how often each kind of change was made."""

    def __init__(self, view: ModelView, model: onnx.ModelProto) -> None:
        self.view, self.model = view, onnx.ModelProto()
        self.model.CopyFrom(model)
        self.changes: Counter[str] = Counter()
        self.expanded: dict[str, str] = {}  # what an inserted Expand gives -> what it reads
        graph = self.model.graph
        self.names = {str(t.name) for t in graph.initializer} | {str(i.name) for i in graph.input}
        self.names |= {str(name) for n in graph.node for name in (*n.input, *n.output, n.name)}

    @property
    def opset(self) -> int:
        """Return the version of ONNX's operator set that the model imports."""
        return next(int(o.version) for o in self.model.opset_import if o.domain in ("", "ai.onnx"))

    def nodes(self, *operators: str) -> Iterator[NodeView]:
        """Iterate over the present nodes (of these operators), with the schemas of the copy's opset."""
        for i, node in enumerate(self.model.graph.node):
            if not operators or node.op_type in operators:
                yield NodeView(i, node, onnx.defs.get_schema(node.op_type, self.opset, ""))

    def fresh(self, like: str) -> str:
        """Return `like`, numbered if the name is in use, and add it to `names`."""
        name, k = like, 1
        while name in self.names:
            name, k = f"{like}_{k}", k + 1
        self.names.add(name)
        return name

    def constant(self, like: str, array: Any) -> str:
        """Add an array as an initializer with a fresh name after `like`, and return its name."""
        name = self.fresh(like)
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def int64_constant(self, like: str, numbers: Sequence[int]) -> str:
        """Add an int64 initializer of these numbers and return its name, which is made from the name `like`."""
        return self.constant(like, np.array(numbers, np.int64))

    def shape(self, name: str) -> Shape:
        """Return the shape of the value `name` of the original; UnsupportedError if it is not known."""
        shape = self.view.shape(name)
        if shape is None:
            raise UnsupportedError("normalise", f"the shape of {name!r} is not known")
        return shape

    def count_change(self, what: str, times: int = 1) -> None:
        """Count `times` more changes of a kind, which `what` says in words."""
        if times:
            self.changes[what] += times


def set_attribute(node: NodeProto, name: str, value: Any) -> None:
    """Set the attribute `name` of a node to `value`, replacing one of that name."""
    remove_attributes(node, name)
    node.attribute.append(helper.make_attribute(name, value))


def remove_attributes(node: NodeProto, *names: str) -> None:
    """Remove the attributes of these names from a node, as far as it has them."""
    kept = [a for a in node.attribute if a.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


def set_input(node: NodeProto, i: int, name: str) -> None:
    """Set input i of a node to the value `name`; missing inputs before it become empty names."""
    node.input.extend([""] * (i + 1 - len(node.input)))
    node.input[i] = name
