"""Reads PyTorch modules as they are deployed: every number in its own format, each rounding between formats a node.

A call computes in the format of its result. Narrower arguments are widened, which is exact. A wider one would be
rounded unseen, and is refused: `_to_copy` alone rounds, as the node `cast`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...errors import ParameterError
from ...graph.builder import Var
from ...graph.graph import Graph, Node
from ...ops.quantize import cast
from ...scalar import Array
from .constant_folding import CREATING
from .read import ProgramImporter, exported_program

HALVES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
FORMATS = {**HALVES, torch.float32: "float32", torch.float64: "float64"}
CONVERSIONS = ("_to_copy", "to")


@dataclass(frozen=True, eq=False)
class TorchGraph(Graph):
    """A graph read from a PyTorch module, its halves held as float32.

    formats   name of a node -> the format PyTorch computes it in, where that is not float32
    """

    formats: Mapping[str, str] = field(default_factory=dict)


def as_deployed(module: nn.Module, *example: Any) -> TorchGraph:
    """Return the graph that `module(*example)` computes, with the number format of every node.

    Refused: what `from_torch` refuses, but for halves, and float formats that calls of `to` mix.

    >>> halved = nn.Sequential(nn.Linear(2, 1), nn.ReLU()).bfloat16()
    >>> as_deployed(halved, torch.zeros(1, 2, dtype=torch.bfloat16)).formats["1"]
    'bfloat16'
    """
    importer = DeployedImporter(exported_program(module, example), module)
    graph = importer.graph()
    fields = {name: getattr(graph, name) for name in Graph.__dataclass_fields__}
    return TorchGraph(**fields, formats=importer.formats)


class DeployedImporter(ProgramImporter):
    """State of one import that keeps formats: `formats` is by the names of the finished graph's nodes."""

    def __init__(self, program: Any, module: nn.Module) -> None:
        super().__init__(program, module)
        self.formats: dict[str, str] = {}
        self.recorded: dict[str, str] = {}  # the same by names in the trace

    def _placeholder_value(self, node: Any, spec: Any) -> Any:
        """Return the value of a placeholder, as `ProgramImporter` does; its format is noted."""
        before = len(self.trace.nodes)
        value = super()._placeholder_value(node, spec)
        self._note(before, _format_of(node))
        return value

    def _check_type(self, name: str, dtype: torch.dtype, *others: torch.dtype) -> None:
        """Raise ParameterError, which calls it `name`, unless its dtype is a float format or among `others`."""
        if dtype not in FORMATS:
            super()._check_type(name, dtype, *others)

    def _numbers(self, tensor: Tensor) -> Array:
        """Return the cells of a tensor as a new array, of halves as float32."""
        tensor = tensor.float() if tensor.dtype in HALVES else tensor
        return np.array(tensor.detach().cpu().numpy())

    def _call_value(self, node: Any) -> Any:
        """Return the value of one call, as `ProgramImporter` does, in the format of its result.

        ParameterError if it would round unseen.
        """
        before, form = len(self.trace.nodes), _format_of(node)
        wider = [a for a in node.all_input_nodes if not _is_held(_format_of(a), form)]
        name = str(node.target).removeprefix("aten.").partition(".")[0]
        if wider and form is not None and name not in (*CONVERSIONS, *CREATING) and not name.startswith("new_"):
            text = f"{name} rounds {wider[0].name}, which is {_format_of(wider[0])}, to {form} unseen"
            raise ParameterError("from_torch", f"{text}; convert it by .to({form}) first", rule="P5")
        self.float = _type_of(node) or _type_of(*node.all_input_nodes)
        value = super()._call_value(node)
        if wider and form is not None and isinstance(value, Var) and name in CONVERSIONS:
            value = cast(value, form)
        self._note(before, form)
        return value

    def _note(self, before: int, form: str | None) -> None:
        """Note the format of the nodes that were recorded since there were `before`."""
        if form is not None:
            self.recorded.update((node.name, form) for node in self.trace.nodes[before:])

    def _named_nodes(self, graph: Graph) -> tuple[Node, ...]:
        """Return the nodes with their final names, as `ProgramImporter` does; their formats are noted by them."""
        nodes = super()._named_nodes(graph)
        forms = (self.recorded.get(node.name, "float32") for node in graph.nodes)
        pairs = zip(nodes, forms, strict=True)
        self.formats = {node.name: form for node, form in pairs if form != "float32" and node.kind == "real"}
        return nodes


def _type_of(*nodes: Any) -> torch.dtype | None:
    """Return the first float type among the values of nodes of an exported program; None: none has one."""
    values = pytree.tree_leaves([node.meta.get("val") for node in nodes])
    return next((t.dtype for t in values if isinstance(t, Tensor) and t.is_floating_point()), None)


def _format_of(node: Any) -> str | None:
    """Return the float format of a node's value in an exported program; None of other values."""
    return FORMATS.get(_type_of(node))  # type: ignore[arg-type]  # None is in no table


def _is_held(form: str | None, target: str | None) -> bool:
    """Return whether every number of a format is one of the target's; True where either is no float format.

    >>> [_is_held(*pair) for pair in (("float16", "float32"), ("float16", "bfloat16"), ("float32", "float16"))]
    [True, False, False]
    """
    if form is None or target is None or form == target:
        return True
    order = {"float16": 0, "bfloat16": 0, "float32": 1, "float64": 2}
    return order[form] < order[target]
