"""A model as the rules see it: nodes with their schemas, and what is known of every value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from specgrad.errors import SpecgradError
from specgrad.interop.onnx import examine
from specgrad.interop.onnx.file import BYTE_BUDGET, ByteBudget, read_model, tensor
from specgrad.interop.onnx.read.importer import Importer
from specgrad.process import Process
from specgrad.scalar import Array
from specgrad.window import Shape

from .onnx_checker import Outside, ask

ONNX_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True)
class Location:
    """Where in a model: a node by name and number in the file's order, a value by name, or the file itself."""

    node: str | None = None
    index: int | None = None
    operator: str | None = None
    value: str | None = None

    def __str__(self) -> str:
        parts = [f"node {self.index} {self.operator} {self.node!r}"] if self.index is not None else []
        return ", ".join([*parts, *([f"value {self.value!r}"] if self.value is not None else [])]) or "the file"


FILE = Location()


@dataclass(frozen=True, eq=False)
class NodeView:
    """A node, the schema in force for it (None: there is none), and its attributes by name."""

    index: int
    proto: NodeProto
    schema: Any

    @property
    def operator(self) -> str:
        return str(self.proto.op_type)

    @property
    def is_onnx(self) -> bool:
        return self.proto.domain in ONNX_DOMAINS

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return {a.name: onnx.helper.get_attribute_value(a) for a in self.proto.attribute if not a.ref_attr_name}

    def word(self, name: str, default: str = "") -> str:
        value = self.attributes.get(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def at(self, value: str | None = None) -> Location:
        return Location(str(self.proto.name), self.index, self.operator, value)

    def input(self, i: int) -> str:
        """The name of an input; empty where it is left out."""
        return str(self.proto.input[i]) if i < len(self.proto.input) else ""


class ModelView:
    """A model that was read as if an enemy had written it, and what is known of its values.

    model     the file as it is; `graph` is its graph with functions expanded
    outside   what ONNX's own code says
    refusal   why we could not walk its nodes; None: we could
    """

    def __init__(
        self,
        source: Any,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        digests: Mapping[str, Any] | None = None,
        box: tuple[float, float] | None = None,
        byte_budget: int = BYTE_BUDGET,
        process: Process,
    ) -> None:
        self.model, self.folder = read_model(source, byte_budget)
        self.path = Path(source) if self.folder is not None else None
        self.digests, self.box, self.shapes = digests, box, dict(shapes or {})
        self.outside: Outside = ask(self.model, self.folder, process)
        self.expanded = self.outside.expanded or self.model
        self.graph = self.expanded.graph
        self._budget = byte_budget
        self.refusal: str | None = None
        self.passed: dict[str, str] = {}  # first output of a node that we give no meaning to -> why
        self._importer = self._examined()

    def _examined(self) -> Importer | None:
        declared = {
            name: (tuple(n for n in dims if n is not None), kind)
            for name, (kind, dims) in self.outside.inferred.items()
            if dims is not None and None not in dims and kind
        }
        try:
            importer, passed = examine(
                self.expanded, self.folder, declared, input_shapes=self.sizes, byte_budget=self._budget
            )
            self.passed = {u.gives[0]: u.reason for u in passed if u.gives}
            return importer
        except SpecgradError as error:
            self.refusal = str(error)
            return None

    @cached_property
    def sizes(self) -> dict[str, Sequence[int]]:
        """What was asked for, and 1 for a first axis that the file leaves open."""
        given: dict[str, Sequence[int]] = dict(self.shapes)
        for info in self.inputs:
            dims = info.type.tensor_type.shape.dim
            sizes = [d.dim_value if d.HasField("dim_value") else None for d in dims]
            if info.name not in given and sizes and sizes[0] is None and None not in sizes[1:]:
                given[info.name] = [1, *(n for n in sizes[1:] if n is not None)]
        return given

    # --- nodes --------------------------------------------------------------------------------------------------

    @cached_property
    def opset(self) -> int:
        """The version of ONNX's operators; 0 where the file names none."""
        return max((int(o.version) for o in self.expanded.opset_import if o.domain in ONNX_DOMAINS), default=0)

    @cached_property
    def nodes(self) -> tuple[NodeView, ...]:
        return tuple(NodeView(i, n, self._schema(n)) for i, n in enumerate(self.graph.node))

    def _schema(self, node: NodeProto) -> Any:
        try:
            return onnx.defs.get_schema(node.op_type, self.opset, "") if node.domain in ONNX_DOMAINS else None
        except (onnx.defs.SchemaError, TypeError):
            return None

    def of(self, *operators: str) -> Iterator[NodeView]:
        return (n for n in self.nodes if n.is_onnx and n.operator in operators)

    @cached_property
    def functions(self) -> set[tuple[str, str]]:
        """Domain and name of the functions that the file defines."""
        return {(f.domain, f.name) for f in self.model.functions}

    # --- values -------------------------------------------------------------------------------------------------

    @cached_property
    def initializers(self) -> dict[str, TensorProto]:
        return {t.name: t for t in self.graph.initializer}

    @cached_property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The inputs that are no initializers."""
        return [i for i in self.graph.input if i.name not in self.initializers]

    @cached_property
    def declared(self) -> dict[str, onnx.ValueInfoProto]:
        """What the file says of its values, inputs and outputs included."""
        return {i.name: i for i in (*self.graph.value_info, *self.graph.input, *self.graph.output)}

    @cached_property
    def intermediates(self) -> list[tuple[NodeView, str]]:
        """Values that nodes give and that are no outputs of the graph, each with its node."""
        outputs = {o.name for o in self.graph.output}
        return [(n, str(name)) for n in self.nodes for name in n.proto.output if name and name not in outputs]

    def inferred_shape(self, name: str) -> tuple[int | None, ...] | None:
        """As our reader finds it, else as ONNX's inference does; None: nobody knows. A declaration is no inference."""
        if self._importer is not None and name in self._importer.values:
            return tuple(int(n) for n in self._importer.values[name].shape)
        if name in self.initializers:
            return tuple(self.initializers[name].dims)
        return self.outside.inferred.get(name, (0, None))[1]

    def shape(self, name: str) -> Shape | None:
        """The sizes of a value, where all of them are known."""
        sizes = self.inferred_shape(name)
        if sizes is None and name in self.declared:
            kind = self.declared[name].type.tensor_type
            sizes = tuple(d.dim_value or None for d in kind.shape.dim) if kind.HasField("shape") else None
        return None if sizes is None or None in sizes else tuple(n for n in sizes if n is not None)

    def inferred_type(self, name: str) -> int:
        """An element type; 0 where it is not known."""
        if name in self.initializers:
            return int(self.initializers[name].data_type)
        if (known := self.outside.inferred.get(name, (0, None))[0]) != 0:
            return known
        if name in self.declared and self.declared[name].type.tensor_type.elem_type:
            return int(self.declared[name].type.tensor_type.elem_type)
        return 0 if self._importer is None else self._importer.types.get(name, 0)

    def array(self, name: str) -> Array | None:
        """A value that depends on constants alone; None where it does not, or is large."""
        if name in self.initializers:
            try:
                return tensor(self.initializers[name], self.folder, ByteBudget(self._budget))
            except SpecgradError:
                return None
        if self._importer is None or name not in self._importer.values:
            return None
        try:
            value = self._importer.constant_value(name)
            return None if value is None else np.asarray(value)
        except SpecgradError:
            return None

    def ints(self, name: str) -> list[int] | None:
        value = self.array(name) if name else None
        return None if value is None or value.dtype.kind not in "iu" else [int(n) for n in value.reshape(-1)]
