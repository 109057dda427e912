"""The normaliser: rewrites a draft, writes type and shape of every value, and proves that the meaning is equal."""

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
from specgrad.interop.onnx.file import with_external_data
from specgrad.process import Process

from ..digests import digests_of
from ..model_view import ModelView
from ..onnx_checker import run_onnx_code
from ..report import Profile
from .draft import Draft
from .opset import pin
from .passes import PASSES

MARK = "specgrad.normalised"
PROVEN_TEXT = "both files import to one graph, node for node, at the shapes written"
MAX_MODEL_BYTES = 2**31 - 1
FORMAT_LIMITS = {float(np.finfo(kind).max) for kind in (np.float16, np.float32, np.float64)}


@dataclass(frozen=True)
class Normalised:
    """A normalised model, ready to be written.

    data      its bytes
    digests   its side file's content
    changes   what was written differently, and how often
    """

    data: bytes
    digests: Mapping[str, Any]
    changes: Mapping[str, int]

    @property
    def side(self) -> str:
        """Return the text of the side file: its digests as JSON."""
        return json.dumps(self.digests, indent=2) + "\n"

    def to_json(self, file: str, before: Profile) -> dict[str, Any]:
        """Return JSON data: `file` (its name), `changes` by kind, how their meaning is `shown`, and `before`: verdict,
        digest and findings by rule of the model before.
        """
        counts = Counter(f.rule for f in before.findings)
        said = {"file": file, "changes": dict(self.changes), "shown": PROVEN_TEXT}
        return {**said, "before": {"verdict": before.verdict, "digest": before.digest, "findings": dict(counts)}}

    def sentences(self) -> list[str]:
        """Return the changes, and what was proven, one sentence each."""
        said = [f"{what}: {times}" for what, times in self.changes.items()]
        return [*said, PROVEN_TEXT]


def normalise(
    model: Any, *, shapes: Mapping[str, Sequence[int]] | None = None, process: Process | None = None
) -> Normalised:
    """Return the model with all written: defaults, types, shapes, padding, axes, broadcasts, opset; no dead nodes.

    Functions are expanded by ONNX's own inliner first. What it gives and what is written are imported, and must be one
    graph, node for node, weights bit for bit (specgrad.equivalence; bounds of Clip at the limits of the type count as
    absent ones). Otherwise, and where a node has no meaning here or an input has an open size that `shapes` does not
    close, an UnsupportedError says why, and there is nothing to write. `process` is where ONNX's own code runs; None: a
    new one.

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
        return _normalise_view(ModelView(model, shapes=shapes, process=runner), runner)


def _normalise_view(view: ModelView, process: Process) -> Normalised:
    """Return a copy of the model after all passes, proven to mean the same, with its digests and changes.

    UnsupportedError where it cannot be normalised; `process` runs ONNX's own code.
    """
    _check_supported(view)
    source = with_external_data(view.expanded, view.folder)
    draft = Draft(view, source)
    draft.count_change("functions expanded", len(view.model.functions))
    del draft.model.functions[:]
    pin(draft)
    for step in PASSES:
        step(draft)
    _declare_values(draft, process)
    if not any(p.key == MARK for p in draft.model.metadata_props):
        draft.model.metadata_props.add(key=MARK, value="see the side file")
    data = _serialise_valid(draft.model, process)
    _check_same(source, draft.model, view)
    written = onnx.load_from_string(data)
    return Normalised(data, digests_of(written, None, data), dict(draft.changes))


def is_normalised(data: bytes) -> bool:
    """Return whether the normaliser wrote a file with the bytes `data`."""
    return MARK.encode() in data


def _cannot_normalise(text: str) -> UnsupportedError:
    """Return the UnsupportedError whose text says why nothing can be written."""
    return UnsupportedError("normalise", printable(text))


def _check_supported(view: ModelView) -> None:
    """Raise UnsupportedError if the file is invalid, has unknown nodes, or inputs with open sizes."""
    if view.onnx_result.ended is not None or view.onnx_result.checker is not None:
        raise _cannot_normalise(f"the file is not valid ONNX: {view.onnx_result.ended or view.onnx_result.checker}")
    if view.onnx_result.inliner is not None:
        raise _cannot_normalise(f"its functions cannot be expanded: {view.onnx_result.inliner}")
    if view.refusal is not None:
        raise _cannot_normalise(f"the file has no meaning here, so nothing could be compared: {view.refusal}")
    for name, reason in view.unsupported.items():
        raise _cannot_normalise(
            f"the node that gives {name!r} has no meaning here, so nothing could be compared: {reason}"
        )
    for info in view.inputs:
        if info.name not in view.shapes and any(d.dim_value < 1 for d in info.type.tensor_type.shape.dim):
            raise _cannot_normalise(f"input {info.name!r} has an open size; give --shape {info.name}=...")


# --- types and shapes -------------------------------------------------------------------------------------------------


def _declare_values(draft: Draft, process: Process) -> None:
    """Write type and shape of every value: shapes by our importer, types by ONNX's inference.

    UnsupportedError if one is not known, or what would be written cannot be read.
    """
    graph = draft.model.graph
    for info in graph.input:
        _write_shape(info, draft.view.sizes.get(str(info.name)) or draft.shape(str(info.name)))
    del graph.value_info[:]
    for info in graph.output:
        info.type.tensor_type.ClearField("shape") if not _is_closed(info) else None
    view = ModelView(_with_shapes(draft), process=process)
    if view.refusal is not None:
        raise _cannot_normalise(f"what would be written cannot be read: {view.refusal}")
    for node, name in view.intermediates:
        shape, kind = view.shape(name), view.inferred_type(name)
        if shape is None or not kind:
            raise _cannot_normalise(f"type or shape of {name!r} (node {node.proto.name!r}) is not known")
        graph.value_info.append(helper.make_tensor_value_info(name, kind, shape))
    known = {name for name, info in draft.view.declared.items() if info.type.tensor_type.elem_type and _is_closed(info)}
    lacking = sum(name not in known for _, name in view.intermediates if name not in draft.expanded)
    draft.count_change("types and shapes of values written", lacking)
    for info in graph.output:
        shape = view.shape(str(info.name))
        if shape is None:
            raise _cannot_normalise(f"the shape of output {info.name!r} is not known")
        _write_shape(info, shape)


def _with_shapes(draft: Draft) -> onnx.ModelProto:
    """Return a copy of the model whose outputs have the original's shapes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(draft.model)
    for info in copy.graph.output:
        _write_shape(info, draft.shape(str(info.name)))
    return copy


def _is_closed(info: onnx.ValueInfoProto) -> bool:
    """Return whether the shape that `info` declares has a positive size on every axis."""
    kind = info.type.tensor_type
    return kind.HasField("shape") and all(d.dim_value > 0 for d in kind.shape.dim)


def _write_shape(info: onnx.ValueInfoProto, sizes: Sequence[int]) -> None:
    """Replace the shape that `info` declares by `sizes`, as numbers; denotations of the axes stay."""
    dims = info.type.tensor_type.shape.dim
    said = [d.denotation for d in dims]
    info.type.tensor_type.shape.ClearField("dim")
    info.type.tensor_type.shape.SetInParent()
    for i, size in enumerate(sizes):
        dim = info.type.tensor_type.shape.dim.add(dim_value=size)
        if i < len(said) and said[i]:
            dim.denotation = said[i]


# --- the proof --------------------------------------------------------------------------------------------------------


def _serialise_valid(model: onnx.ModelProto, process: Process) -> bytes:
    """Return the bytes of the model; UnsupportedError if it is too large or onnx.checker rejects it."""
    if model.ByteSize() > MAX_MODEL_BYTES:
        raise _cannot_normalise(f"the file would have {model.ByteSize()} bytes; {MAX_MODEL_BYTES} can be written")
    said = run_onnx_code(model, None, process)
    if said.ended is not None or said.checker is not None:
        raise _cannot_normalise(f"what would be written is not valid ONNX: {said.ended or said.checker}")
    return bytes(model.SerializeToString())


def _check_same(before: onnx.ModelProto, after: onnx.ModelProto, view: ModelView) -> None:
    """Raise UnsupportedError unless the files `before` and `after` import to one graph, node for node.

    Broadcasting is a node of our graphs, whether a file has an Expand or not.
    """
    try:
        first, second = (without_limits(from_onnx(m, input_shapes=view.sizes).at()) for m in (before, after))
    except SpecgradError as error:
        raise _cannot_normalise(f"the two files could not be compared: {error}") from None
    if not same_node_for_node(first, second):
        raise _cannot_normalise(f"the two files do not import to one graph{_first_shape_difference(first, second)}")


def without_limits(graph: OnnxGraph) -> OnnxGraph:
    """Return the graph with clamp bounds at the limits of a float format removed, as ONNX writes them for none."""
    nodes = tuple(replace(n, params=dict(_clamp_bounds(n.params))) if n.op.name == "clamp" else n for n in graph.nodes)
    return replace(graph, nodes=nodes)


def _clamp_bounds(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of a clamp, with bounds at the limits of a format as None."""
    for name, value in params.items():
        yield name, None if value is not None and abs(float(value)) in FORMAT_LIMITS else value


def _first_shape_difference(a: OnnxGraph, b: OnnxGraph) -> str:
    """Return the first value that the graphs a and b have in different shapes, as text; "" if there is none."""
    for name, p in a.values.items():
        if name in b.values and a.nodes[p].shape != b.nodes[b.values[name]].shape:
            return f": {name!r} has shapes {a.nodes[p].shape} and {b.nodes[b.values[name]].shape}"
    return ""
