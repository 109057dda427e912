"""Imports an ONNX model: one pass over its nodes, each through its converter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from ....errors import SpecgradError, UnsupportedError
from ....graph.builder import Var
from ....graph.graph import Graph, Node
from ....graph.interface import End, Interface
from ....window import Shape
from ..file import (
    DTYPES,
    FLOATS,
    MAX_NODES,
    ByteBudget,
    ModelError,
    check_shape,
    declared_size,
    extent,
    one_line,
    shown,
    tensor,
    type_name,
)
from .convert_node import DOMAINS, TypesByName, UnsupportedNode, lookup, raise_unsupported, read_outside, run, skip_node
from .importer import Importer, shadowed_name
from .node import BLOCKED

OLDEST = 7  # tested to 25; a newer opset is read where the version of every operator in force is one of the table


@dataclass(frozen=True, eq=False)
class OnnxGraph(Graph):
    """A graph imported from ONNX, with the positions of the model's values.

    values  ONNX value (tensor) name -> position of the graph node that computes it. Values that no output needs, or
            that were computed while importing (shapes, axes), have none.
    formats name of a node -> what a runtime computes it in, where that is not float32: "float16", "int32", ...
    blocks  ONNX value name -> channels of a block, where a runtime stores the channels in blocks (com.microsoft.nchwc)
    states  position of a node -> (ONNX value name, index): the node holds these cells of that value. Hidden states that
            a step of a recurrent layer reads, in what the layer shows of the step before
    """

    values: Mapping[str, int] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    blocks: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[int, tuple[str, tuple[Any, ...]]] = field(default_factory=dict)
    interface: Interface | None = None
    """What the file declares to those who run it; None where parts of it were passed over."""
    notes: tuple[str, ...] = ()
    """What was done to the file to read it: nodes sorted, functions inlined, branches taken, loops written out."""
    written: onnx.ModelProto | None = None
    """The file with branches taken and loops written out, which has all values of `values`; None: the file itself."""
    integer_layers: tuple[str, ...] = ()
    """Layers of int32 or int64 data. Where a number leaves its type, a runtime's wraps around and the graph's does not;
    radii are infinite there."""
    unexamined: tuple[UnsupportedNode, ...] = ()
    """Nodes that a partial import passed over: what they read are outputs of the graph, what they give are inputs."""


# --- the model --------------------------------------------------------------------------------------------------


def _opset(model: onnx.ModelProto) -> int:
    """Return the opset of the ONNX operators.

    ModelError if it is not one, UnsupportedError if it is too old or too new.
    """
    opsets = {o.version for o in model.opset_import if o.domain in DOMAINS}
    if len(opsets) != 1:
        raise ModelError(f"the model must import the ONNX operators once; got opsets {sorted(opsets)[:5]}")
    (opset,) = opsets
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        raise UnsupportedError("from_onnx", f"opset {opset} is not supported; opsets {OLDEST} to {newest} are")
    return int(opset)


def _check_model(model: onnx.ModelProto) -> None:
    """Raise ModelError for names that are no text, too many nodes, and parts of a model that are not honoured."""
    if len(model.graph.node) > MAX_NODES:
        raise ModelError(f"the graph has {len(model.graph.node)} nodes; at most {MAX_NODES} are read")
    graph = model.graph
    named = [v.name for group in (graph.input, graph.output, graph.initializer) for v in group]
    for name in [*named, *(text for n in graph.node for text in (n.op_type, n.name, *n.input, *n.output))]:
        if not isinstance(name, str):  # protobuf hands out the bytes
            raise ModelError(f"the name {shown(name)} is not UTF-8 text")
    if (shadowed := shadowed_name(graph)) is not None:
        raise ModelError(f"a subgraph redefines {shown(shadowed)}, a value from outside: runtimes differ on it")
    refused = {
        "functions": model.functions,
        "training_info": model.training_info,
        "sparse_initializer": model.graph.sparse_initializer,
        "quantization_annotation": model.graph.quantization_annotation,
    }
    for name, entries in refused.items():
        if len(entries):
            raise ModelError(f"{name} of the model is not honoured", rule="P5")


def _input_shape(info: onnx.ValueInfoProto, given: Mapping[str, Sequence[int]]) -> Shape:
    """Return the declared shape of an input, with open sizes taken from `given`; ModelError if one is missing."""
    what = f"input {shown(info.name)}"
    if info.type.WhichOneof("value") != "tensor_type":
        raise ModelError(f"{what} is not a tensor")
    declared = info.type.tensor_type
    dims = [declared_size(d) for d in declared.shape.dim]
    known = declared.HasField("shape")
    if info.name in given:
        shape = check_shape(what, given[info.name])
        if known and (len(shape) != len(dims) or any(d not in (None, n) for d, n in zip(dims, shape, strict=True))):
            raise ModelError(f"{what} is declared as {tuple(dims)}; input_shapes gives {shape}")
        return shape
    if not known or None in dims:
        text = (
            f"{what} has unknown sizes {tuple(dims) if known else ''}; give input_shapes={{{shown(info.name)}: (...)}}"
        )
        raise ModelError(text)
    return check_shape(what, dims)


def _define_inputs(importer: Importer, graph: onnx.GraphProto, given: Mapping[str, Sequence[int]]) -> list[str]:
    """Define initializers and inputs; return the names of the inputs that are no initializers.

    ModelError if `given` names a shape of no input.
    """
    for proto in graph.initializer:
        importer.define(proto.name, tensor(proto, importer.folder, importer.budget), proto.data_type)
    names = [i.name for i in graph.input if i.name not in importer.values]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ModelError(f"input_shapes names {shown(unknown[0])}, which is no input; inputs are {shown(names)}")
    whole = any(i.type.tensor_type.elem_type in (TensorProto.INT32, TensorProto.INT64) for i in graph.input)
    numbers: set[str] = set()
    if whole:
        from .integers import number_inputs

        numbers = number_inputs(graph)
    for info in graph.input:
        if info.name in names:
            _define_input(importer, info, given, info.name in numbers)
    return names


def _define_input(
    importer: Importer, info: onnx.ValueInfoProto, given: Mapping[str, Sequence[int]], number: bool
) -> None:
    """Define one input as a leaf of the graph, its open sizes taken from `given`.

    Int32 and int64 are positions unless `number`. ModelError for an element type that is not read.
    """
    shape = _input_shape(info, given)
    elem_type = info.type.tensor_type.elem_type
    if elem_type not in DTYPES:
        raise ModelError(f"input {shown(info.name)} has element type {type_name(elem_type)}, which is not read")
    importer.budget.check_value(f"input {shown(info.name)}", extent(shape))
    index = elem_type in (TensorProto.INT32, TensorProto.INT64) and not number
    importer.define(info.name, importer.trace.leaf(info.name, shape, "index" if index else "real"), elem_type)


def _graph_outputs(importer: Importer, graph: onnx.GraphProto) -> tuple[Var, ...]:
    """Return the variables of the model's outputs that are known.

    ModelError if there are none or one is not computed, UnsupportedError if one has its channels in blocks.
    """
    if not graph.output:
        raise ModelError("the graph has no output")
    for info in graph.output:
        if info.name not in importer.values and info.name not in importer.missing:
            raise ModelError(f"output {shown(info.name)} is not computed by any node")
        if info.name in importer.blocks:
            raise UnsupportedError("from_onnx", f"output {shown(info.name)} has its channels stored in blocks")
    return tuple(_output_variable(importer, info.name) for info in graph.output if info.name in importer.values)


def _output_variable(importer: Importer, name: str) -> Var:
    """Return the output `name` as a variable; known integers become an int64 constant, which is recorded.

    ModelError for integers beyond.
    """
    value = importer.values[name]
    if isinstance(value, Var) or value.dtype.kind not in "iub":
        return importer.variable(name)
    if value.dtype == np.uint64 and value.max(initial=0) > np.iinfo(np.int64).max:
        raise ModelError(f"output {shown(name)} has numbers beyond INT64")
    return importer.trace.constant(value.astype(np.int64), name)


def run_model(
    model: onnx.ModelProto,
    folder: Path | None,
    budget: ByteBudget,
    input_shapes: Mapping[str, Sequence[int]],
    skipped_types: TypesByName,
    block_channels: int | None = None,
) -> tuple[Importer, list[str], list[UnsupportedNode]]:
    """Convert every node that can be; return the importer, the names of the inputs, and the nodes that were skipped.

    `folder` has external data, `budget` limits bytes. `input_shapes` closes open sizes, by input. `skipped_types` has
    shape and element type of values that skipped nodes compute: they become inputs, and reading goes on behind them.
    `block_channels` is what blocks of com.microsoft.nchwc have where the file does not say it. ModelError for a model
    that cannot be read at all.
    """
    _check_model(model)
    importer = Importer(folder, budget, model.graph, _opset(model))
    importer.block = _block_size(model.graph, block_channels)
    names = _define_inputs(importer, model.graph, dict(input_shapes))
    passed: list[UnsupportedNode] = []
    _convert_all(importer, model.graph.node, skipped_types, passed)
    return importer, names, passed


def _block_size(graph: onnx.GraphProto, asked: int | None) -> int | None:
    """Return the channels of a block of com.microsoft.nchwc: what the graph says, else what was `asked` for.

    None where the graph has no operators of that domain. ParameterError if it says another number.
    """
    if all(node.domain != BLOCKED for node in graph.node):
        return None
    from .blocked import chosen_block_size

    return chosen_block_size(graph, asked)


def leaves_blocks_open(graph: onnx.GraphProto) -> bool:
    """Return whether a graph has operators of com.microsoft.nchwc, and does not say how many channels a block has."""
    return any(node.domain == BLOCKED for node in graph.node) and _block_size(graph, None) is None


def import_model(
    model: onnx.ModelProto,
    folder: Path | None,
    budget: ByteBudget,
    input_shapes: Mapping[str, Sequence[int]],
    partial: bool,
    skipped_types: TypesByName,
    notes: Sequence[str] = (),
    block_channels: int | None = None,
) -> OnnxGraph:
    """Import a plain model as a graph; unless `partial`, raise the error of nodes that were skipped.

    `folder` has external data, `budget` limits bytes. `input_shapes` closes open sizes, by input; `notes` say what was
    done to the file before. `skipped_types` has shape and element type of values that skipped nodes compute: they
    become inputs. `block_channels` as of `run_model`.
    """
    importer, names, passed = run_model(model, folder, budget, input_shapes, skipped_types, block_channels)
    if not partial:
        raise_unsupported(passed)
    outputs = _graph_outputs(importer, model.graph)
    reads = read_outside(importer, passed, outputs)
    outside = [n for u in passed for n in u.gives if n in importer.values]
    inputs = tuple(importer.values[name] for name in (*names, *outside))
    single = len(outputs) == 1 and not passed
    graph = importer.trace.freeze((*names, *outside), inputs, (*outputs, *reads), single)
    interface = None if passed else _declared_interface(importer, model)
    named = _with_values(graph, importer, model.graph)
    written = _written(importer, model) if importer.decided else None
    decided = [one_line(f"decided while reading: {'; '.join(importer.decided)}")] if importer.decided else []
    return replace(
        named,
        interface=interface,
        notes=(*notes, *decided),
        written=written,
        integer_layers=tuple(dict.fromkeys(importer.integer_layers)),
        unexamined=tuple(passed),
    )


def _written(importer: Importer, model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the nodes that were converted or passed over, none of which holds a subgraph that ran."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.ClearField("node")
    copy.graph.node.extend(importer.nodes)
    return copy


def _declared_interface(importer: Importer, model: onnx.ModelProto) -> Interface:
    """Return the declared inputs and outputs; before IR version 4 initializers had to stand among the inputs."""
    initial = {t.name for t in model.graph.initializer}
    listed = [i for i in model.graph.input if i.name not in initial or model.ir_version >= 4]
    inputs = (End(i.name, _declared_type(i), _declared_sizes(i), i.name in initial) for i in listed)
    outputs = (End(o.name, type_name(importer.types[o.name]).lower()) for o in model.graph.output)
    return Interface(tuple(inputs), tuple(outputs))


def _declared_type(info: onnx.ValueInfoProto) -> str:
    """Return the declared element type of a value as lower-case text."""
    return type_name(info.type.tensor_type.elem_type).lower()


def _declared_sizes(info: onnx.ValueInfoProto) -> tuple[int | str, ...] | None:
    """Return the declared sizes, numbers or names; None if no shape is declared.

    A size that is declared without a number and a name gets a name: x[0] on the first axis of x.
    """
    declared = info.type.tensor_type
    if not declared.HasField("shape"):
        return None
    return tuple(
        d.dim_param or f"{info.name}[{axis}]" if (size := declared_size(d)) is None else size
        for axis, d in enumerate(declared.shape.dim)
    )


def _convert_all(
    importer: Importer, nodes: Iterable[onnx.NodeProto], skipped_types: TypesByName, passed: list[UnsupportedNode]
) -> None:
    """Convert every node; append to `passed` those that no converter takes, or that read a value of unknown shape.

    `skipped_types` has shape and element type of values that such nodes compute: they become inputs. ModelError for a
    node that redefines an output.
    """
    for node in nodes:
        error = None
        done: tuple[list[Any], ...] = (importer.nodes, passed, importer.decided, importer.integer_layers)
        before = [len(each) for each in done]
        try:
            line, version = lookup(node, importer.opset)
            if importer.missing.isdisjoint(node.input):
                inner = run(importer, node, line, version)
                for part in inner:
                    _convert_all(importer, part, skipped_types, passed)
                if len(importer.nodes) == before[0]:
                    importer.nodes.append(node)
                continue
        except ModelError:
            raise
        except SpecgradError as refused:
            error = refused
        for each, length in zip(done, before, strict=True):
            del each[length:]  # a loop may be refused in its middle
        importer.nodes.append(node)
        passed.append(skip_node(importer, node, error, skipped_types))


def _with_values(graph: Graph, importer: Importer, proto: onnx.GraphProto) -> OnnxGraph:
    """Return the graph with the mapping from ONNX values to nodes, number formats and trainable names."""
    position = {n.name: i for i, n in enumerate(graph.nodes)}
    variables = {**importer.recorded, **{k: v for k, v in importer.values.items() if isinstance(v, Var)}}
    values = {name: position[v.name] for name, v in variables.items() if v.name in position}
    fields = {f: getattr(graph, f) for f in Graph.__dataclass_fields__}
    fields["nodes"] = _named_as_layers(graph)
    formats = {
        position[importer.trace.nodes[p].name]: f
        for p, f in importer.formats.items()
        if f != "float32" and importer.trace.nodes[p].name in position
    }
    named = {fields["nodes"][p].name: f for p, f in formats.items()}
    fields["trainable"] = frozenset(graph.nodes[values[n]].name for n in _trainable_names(proto) if n in values)
    states = {
        position[importer.trace.nodes[p].name]: cells
        for p, cells in importer.states.items()
        if importer.trace.nodes[p].name in position
    }
    return OnnxGraph(**fields, values=values, formats=named, blocks=importer.blocks, states=states)


def _named_as_layers(graph: Graph) -> tuple[Node, ...]:
    """Return the nodes, with the only node of a layer named like the layer: conv1, not conv1.conv."""
    members = Counter(n.group for n in graph.nodes)
    return tuple(replace(n, name=n.group) if members[n.group] == 1 else n for n in graph.nodes)


def _trainable_names(proto: onnx.GraphProto) -> set[str]:
    """Return the initializers that training may change: floats with an axis, except running statistics."""
    names = {t.name for t in proto.initializer if t.data_type in FLOATS and t.dims}
    return names - {name for n in proto.node if n.op_type == "BatchNormalization" for name in n.input[3:]}
