"""A model as the rules see it: nodes with their schemas, and the known shapes, types and values."""

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
from specgrad.interop.onnx.file import BYTE_BUDGET, ByteBudget, declared_size, read_model, tensor
from specgrad.interop.onnx.read.importer import Importer
from specgrad.process import Process
from specgrad.scalar import Array
from specgrad.window import Shape

from .onnx_checker import OnnxCodeResult, run_onnx_code

ONNX_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True)
class Location:
    """A place in a model: a node (name, index in the file's order, its operator), a value by name, or the file
    itself.
    """

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
    """A node of the file, the schema in force for it (None if there is none), and its attributes by name.

    index is its place in the file, proto its protocol buffer.
    """

    index: int
    proto: NodeProto
    schema: Any

    @property
    def operator(self) -> str:
        """Return the node's ONNX operator, such as "Conv"."""
        return str(self.proto.op_type)

    @property
    def is_onnx(self) -> bool:
        """Whether the node is an operator of the ONNX domain."""
        return self.proto.domain in ONNX_DOMAINS

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Return the attributes that are written at the node, by name."""
        return {a.name: onnx.helper.get_attribute_value(a) for a in self.proto.attribute if not a.ref_attr_name}

    def text_attribute(self, name: str, default: str = "") -> str:
        """Return the attribute `name` as text, or `default` if it is not written."""
        value = self.attributes.get(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def at(self, value: str | None = None) -> Location:
        """Return the location of this node, or of its value `value`."""
        return Location(str(self.proto.name), self.index, self.operator, value)

    def input(self, i: int) -> str:
        """Return the name of input i, or "" if it is left out."""
        return str(self.proto.input[i]) if i < len(self.proto.input) else ""


class ModelView:
    """An untrusted model, read within limits, and what is known of its values.

    model         the file as it is; `graph` is its graph with functions expanded
    outside       what ONNX's own code says
    refusal       why we could not walk its nodes; None: we could
    shapes        of inputs that the file leaves open
    digests       content of the side file, None: none
    box           the ends between which every input cell lies, if said
    byte_budget   the most that values may need
    process       where ONNX's own code runs
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
        self.onnx_result: OnnxCodeResult = run_onnx_code(self.model, self.folder, process)
        self.expanded = self.onnx_result.expanded or self.model
        self.graph = self.expanded.graph
        self._budget = byte_budget
        self.refusal: str | None = None
        self.unsupported: dict[str, str] = {}  # first output of a node that we give no meaning to -> why
        self._importer = self._import_model()

    def _import_model(self) -> Importer | None:
        """Return the importer after a walk over the model, which knows its shapes and constants.

        None if that is refused, see `refusal`.
        """
        declared = {
            name: (tuple(n for n in dims if n is not None), kind)
            for name, (kind, dims) in self.onnx_result.inferred.items()
            if dims is not None and None not in dims and kind
        }
        try:
            importer, passed = examine(
                self.expanded, self.folder, declared, input_shapes=self.sizes, byte_budget=self._budget
            )
            self.unsupported = {u.gives[0]: u.reason for u in passed if u.gives}
            return importer
        except SpecgradError as error:
            self.refusal = str(error)
            return None

    @cached_property
    def sizes(self) -> dict[str, Sequence[int]]:
        """Input shapes: those requested, and batch 1 for inputs whose first size alone is symbolic."""
        given: dict[str, Sequence[int]] = dict(self.shapes)
        for info in self.inputs:
            dims = info.type.tensor_type.shape.dim
            sizes = [declared_size(d) for d in dims]
            if info.name not in given and sizes and sizes[0] is None and None not in sizes[1:]:
                given[info.name] = [1, *(n for n in sizes[1:] if n is not None)]
        return given

    # --- nodes --------------------------------------------------------------------------------------------------

    @cached_property
    def opset(self) -> int:
        """Version of the ONNX operators; 0 if the file names none."""
        return max((int(o.version) for o in self.expanded.opset_import if o.domain in ONNX_DOMAINS), default=0)

    @cached_property
    def nodes(self) -> tuple[NodeView, ...]:
        """All nodes of the graph, functions expanded."""
        return tuple(NodeView(i, n, self._schema(n)) for i, n in enumerate(self.graph.node))

    def _schema(self, node: NodeProto) -> Any:
        """Return the ONNX schema of a node in the file's opset, or None."""
        try:
            return onnx.defs.get_schema(node.op_type, self.opset, "") if node.domain in ONNX_DOMAINS else None
        except (onnx.defs.SchemaError, TypeError):
            return None

    def of(self, *operators: str) -> Iterator[NodeView]:
        """Iterate over the nodes of these ONNX operators."""
        return (n for n in self.nodes if n.is_onnx and n.operator in operators)

    @cached_property
    def functions(self) -> set[tuple[str, str]]:
        """(domain, name) of the functions that the file defines."""
        return {(f.domain, f.name) for f in self.model.functions}

    # --- values -------------------------------------------------------------------------------------------------

    @cached_property
    def initializers(self) -> dict[str, TensorProto]:
        """Initializers of the graph by name."""
        return {t.name: t for t in self.graph.initializer}

    @cached_property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """Inputs of the graph that are no initializers."""
        return [i for i in self.graph.input if i.name not in self.initializers]

    @cached_property
    def declared(self) -> dict[str, onnx.ValueInfoProto]:
        """Declarations of the file about its values, by name, inputs and outputs included."""
        return {i.name: i for i in (*self.graph.value_info, *self.graph.input, *self.graph.output)}

    @cached_property
    def intermediates(self) -> list[tuple[NodeView, str]]:
        """(node, name) of the node outputs that are no outputs of the graph."""
        outputs = {o.name for o in self.graph.output}
        return [(n, str(name)) for n in self.nodes for name in n.proto.output if name and name not in outputs]

    def inferred_shape(self, name: str) -> tuple[int | None, ...] | None:
        """Return the shape of the value `name` by our importer, else by ONNX's inference; None if unknown. Declarations
        are ignored.
        """
        if self._importer is not None and name in self._importer.values:
            return tuple(int(n) for n in self._importer.values[name].shape)
        if name in self.initializers:
            return tuple(self.initializers[name].dims)
        return self.onnx_result.inferred.get(name, (0, None))[1]

    def shape(self, name: str) -> Shape | None:
        """Return the inferred or declared shape of the value `name`, or None unless all sizes are known."""
        sizes = self.inferred_shape(name)
        if sizes is None and name in self.declared:
            kind = self.declared[name].type.tensor_type
            sizes = tuple(declared_size(d) or None for d in kind.shape.dim) if kind.HasField("shape") else None
        return None if sizes is None or None in sizes else tuple(n for n in sizes if n is not None)

    def inferred_type(self, name: str) -> int:
        """Return the ONNX element type of the value `name`, or 0 if it is unknown."""
        if name in self.initializers:
            return int(self.initializers[name].data_type)
        if (known := self.onnx_result.inferred.get(name, (0, None))[0]) != 0:
            return known
        if name in self.declared and self.declared[name].type.tensor_type.elem_type:
            return int(self.declared[name].type.tensor_type.elem_type)
        return 0 if self._importer is None else self._importer.types.get(name, 0)

    def array(self, name: str) -> Array | None:
        """Return the value `name` if it depends on constants only; None if not, or if it is too large."""
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
        """Return the constant integer value `name` as a flat list, or None if it is none."""
        value = self.array(name) if name else None
        return None if value is None or value.dtype.kind not in "iu" else [int(n) for n in value.reshape(-1)]
