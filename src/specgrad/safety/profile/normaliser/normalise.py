"""The normaliser: write the draft, give every value its type and shape, and prove that it means the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from specgrad.equivalence.matching import same_node_for_node
from specgrad.errors import SpecgradError, UnsupportedError, printable
from specgrad.interop.onnx import OnnxGraph, from_onnx
from specgrad.interop.onnx.file import gathered
from specgrad.process import Process

from ..digests import digests_of
from ..model_view import ModelView
from ..onnx_checker import ask
from ..report import Profile
from .draft import Draft
from .opset import pin
from .passes import STEPS

MARK = "specgrad.normalised"
SHOWN = "both files import to one graph, node for node, at the shapes written"
MOST_BYTES = 2**31 - 1
LARGEST = {float(np.finfo(kind).max) for kind in (np.float16, np.float32, np.float64)}


@dataclass(frozen=True)
class Normalised:
    """A file that may be written.

    data      its bytes
    digests   its side file's content
    changes   what was written differently, and how often
    """

    data: bytes
    digests: Mapping[str, Any]
    changes: Mapping[str, int]

    @property
    def side(self) -> str:
        """The text of the side file."""
        return json.dumps(self.digests, indent=2) + "\n"

    def to_json(self, file: str, before: Profile) -> dict[str, Any]:
        """With the name of the file, and what was found in the model before."""
        counts = Counter(f.rule for f in before.findings)
        said = {"file": file, "changes": dict(self.changes), "shown": SHOWN}
        return {**said, "before": {"verdict": before.verdict, "digest": before.digest, "findings": dict(counts)}}

    def sentences(self) -> list[str]:
        said = [f"{what}: {times}" for what, times in self.changes.items()]
        return [*said, SHOWN]


def normalise(
    model: Any, *, shapes: Mapping[str, Sequence[int]] | None = None, process: Process | None = None
) -> Normalised:
    """The model with everything written: defaults, types, shapes, padding, axes, broadcasts, one opset; no dead nodes.

    Functions are expanded by ONNX's own inliner first. What it gives and what is written are imported, and must be one
    graph, node for node, weights bit for bit (specgrad.equivalence; bounds of Clip at the limits of the type count
    as absent ones). Otherwise, and where a node has no meaning here or an input has an open size that `shapes` does
    not close, an UnsupportedError says why, and there is nothing to write.

    >>> from onnx import TensorProto
    >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 4]) for n in "xy")
    >>> pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], auto_pad="SAME_UPPER")
    >>> opset = [helper.make_opsetid("", 18)]
    >>> file = helper.make_model(helper.make_graph([pool], "net", [x], [y]), opset_imports=opset)
    >>> done = normalise(file)
    >>> [a.name for a in onnx.load_from_string(done.data).graph.node[0].attribute]
    ['kernel_shape', 'dilations', 'strides', 'pads', 'auto_pad', 'ceil_mode', 'storage_order']
    """
    with nullcontext(process) if process is not None else Process(seconds=120) as runner:
        return _normalised(ModelView(model, shapes=shapes, process=runner), runner)


def _normalised(view: ModelView, process: Process) -> Normalised:
    _check(view)
    source = gathered(view.expanded, view.folder)
    draft = Draft(view, source)
    draft.count("functions expanded", len(view.model.functions))
    del draft.model.functions[:]
    pin(draft)
    for step in STEPS:
        step(draft)
    _declare(draft, process)
    if not any(p.key == MARK for p in draft.model.metadata_props):
        draft.model.metadata_props.add(key=MARK, value="see the side file")
    data = _valid(draft.model, process)
    _check_same(source, draft.model, view)
    written = onnx.load_from_string(data)
    return Normalised(data, digests_of(written, None, data), dict(draft.done))


def is_normalised(data: bytes) -> bool:
    """Whether the normaliser wrote a file with these bytes."""
    return MARK.encode() in data


def _refuse(text: str) -> UnsupportedError:
    return UnsupportedError("normalise", printable(text))


def _check(view: ModelView) -> None:
    if view.outside.ended is not None or view.outside.checker is not None:
        raise _refuse(f"the file is not valid ONNX: {view.outside.ended or view.outside.checker}")
    if view.outside.inliner is not None:
        raise _refuse(f"its functions cannot be expanded: {view.outside.inliner}")
    if view.refusal is not None:
        raise _refuse(f"the file has no meaning here, so nothing could be compared: {view.refusal}")
    for name, reason in view.passed.items():
        raise _refuse(f"the node that gives {name!r} has no meaning here, so nothing could be compared: {reason}")
    for info in view.inputs:
        if info.name not in view.shapes and any(d.dim_value < 1 for d in info.type.tensor_type.shape.dim):
            raise _refuse(f"input {info.name!r} has an open size; give --shape {info.name}=...")


# --- types and shapes -------------------------------------------------------------------------------------------------


def _declare(draft: Draft, process: Process) -> None:
    """Type and shape of every value: shapes as our reader finds them, types as ONNX's inference does."""
    graph = draft.model.graph
    for info in graph.input:
        _write_shape(info, draft.view.sizes.get(str(info.name)) or draft.shape(str(info.name)))
    del graph.value_info[:]
    for info in graph.output:
        info.type.tensor_type.ClearField("shape") if not _is_closed(info) else None
    view = ModelView(_with_shapes(draft), process=process)
    if view.refusal is not None:
        raise _refuse(f"what would be written cannot be read: {view.refusal}")
    for node, name in view.intermediates:
        shape, kind = view.shape(name), view.inferred_type(name)
        if shape is None or not kind:
            raise _refuse(f"type or shape of {name!r} (node {node.proto.name!r}) is not known")
        graph.value_info.append(helper.make_tensor_value_info(name, kind, shape))
    known = {name for name, info in draft.view.declared.items() if info.type.tensor_type.elem_type and _is_closed(info)}
    lacking = sum(name not in known for _, name in view.intermediates if name not in draft.expanded)
    draft.count("types and shapes of values written", lacking)
    for info in graph.output:
        shape = view.shape(str(info.name))
        if shape is None:
            raise _refuse(f"the shape of output {info.name!r} is not known")
        _write_shape(info, shape)


def _with_shapes(draft: Draft) -> onnx.ModelProto:
    """A copy whose outputs have shapes as before, for a reader that needs some."""
    copy = onnx.ModelProto()
    copy.CopyFrom(draft.model)
    for info in copy.graph.output:
        _write_shape(info, draft.shape(str(info.name)))
    return copy


def _is_closed(info: onnx.ValueInfoProto) -> bool:
    kind = info.type.tensor_type
    return kind.HasField("shape") and all(d.dim_value > 0 for d in kind.shape.dim)


def _write_shape(info: onnx.ValueInfoProto, sizes: Sequence[int]) -> None:
    """Sizes as numbers; what the file says of its axes stays."""
    dims = info.type.tensor_type.shape.dim
    said = [d.denotation for d in dims]
    info.type.tensor_type.shape.ClearField("dim")
    info.type.tensor_type.shape.SetInParent()
    for i, size in enumerate(sizes):
        dim = info.type.tensor_type.shape.dim.add(dim_value=size)
        if i < len(said) and said[i]:
            dim.denotation = said[i]


# --- the proof --------------------------------------------------------------------------------------------------------


def _valid(model: onnx.ModelProto, process: Process) -> bytes:
    if model.ByteSize() > MOST_BYTES:
        raise _refuse(f"the file would have {model.ByteSize()} bytes; {MOST_BYTES} can be written")
    said = ask(model, None, process)
    if said.ended is not None or said.checker is not None:
        raise _refuse(f"what would be written is not valid ONNX: {said.ended or said.checker}")
    return bytes(model.SerializeToString())


def _check_same(before: onnx.ModelProto, after: onnx.ModelProto, view: ModelView) -> None:
    """Both are one graph, node for node. Broadcasting is a node of our graphs, whether a file has an Expand or not."""
    try:
        first, second = (without_limits(from_onnx(m, input_shapes=view.sizes).at()) for m in (before, after))
    except SpecgradError as error:
        raise _refuse(f"the two files could not be compared: {error}") from None
    if not same_node_for_node(first, second):
        raise _refuse(f"the two files do not import to one graph{_first_apart(first, second)}")


def without_limits(graph: OnnxGraph) -> OnnxGraph:
    """Bounds of clamp at the limits of a format are what ONNX writes for none."""
    nodes = tuple(replace(n, params=dict(_bounds(n.params))) if n.op.name == "clamp" else n for n in graph.nodes)
    return replace(graph, nodes=nodes)


def _bounds(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in params.items():
        yield name, None if value is not None and abs(float(value)) in LARGEST else value


def _first_apart(a: OnnxGraph, b: OnnxGraph) -> str:
    """Where they part, by the names of values that both have."""
    for name, p in a.values.items():
        if name in b.values and a.nodes[p].shape != b.nodes[b.values[name]].shape:
            return f": {name!r} has shapes {a.nodes[p].shape} and {b.nodes[b.values[name]].shape}"
    return ""
