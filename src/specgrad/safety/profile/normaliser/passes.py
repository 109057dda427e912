"""The passes of the normaliser: dead nodes, defaults, padding, axes, optional inputs, broadcasts, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from specgrad import window

from ..graph_rules import needed_nodes, reads
from ..model_view import NodeView
from ..operator_rules import WINDOWS, missing_attributes
from ..type_rules import ELEMENTWISE
from ..window_rules import padding_of
from .draft import Draft, set_attribute, set_input

AXIS: tuple[str, ...] = (
    "Softmax",
    "LogSoftmax",
    "Hardmax",
    "Concat",
    "Flatten",
    "Gather",
    "GatherElements",
    "ScatterElements",
    "Split",
)
AXIS += ("ArgMax", "ArgMin", "LayerNormalization", "TopK")
AXES_INPUT = ("Squeeze", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2")
LIMITS = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.DOUBLE: np.float64}


def leave_out_the_dead(draft: Draft) -> None:
    """Remove the nodes that no output needs, and inputs that are initializers."""
    graph = draft.model.graph
    nodes = tuple(draft.nodes())
    needed = needed_nodes(nodes, [str(o.name) for o in graph.output])
    _replace_counted(draft, graph.node, [n.proto for n in nodes if n.index in needed], "dead nodes left out")
    initial = {t.name for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in initial]
    _replace_counted(draft, graph.input, inputs, "initializers that were inputs too are constants")


def leave_out_the_unused(draft: Draft) -> None:
    """Remove the initializers that nothing reads; those that a pass has replaced are not counted."""
    graph = draft.model.graph
    used = {name for n in draft.nodes() for name in reads(n)} | {str(o.name) for o in graph.output}
    before = {name for n in draft.view.nodes for name in reads(n)} | used
    draft.count_change("initializers that nothing reads left out", sum(t.name not in before for t in graph.initializer))
    _replace_entries(graph.initializer, [t for t in graph.initializer if t.name in used])


def _replace_counted(draft: Draft, field: Any, entries: list[Any], what: str) -> None:
    """Replace a repeated field by `entries`, and count how many were removed as the change `what`."""
    draft.count_change(what, len(field) - len(entries))
    _replace_entries(field, entries)


def _replace_entries(field: Any, entries: list[Any]) -> None:
    """Replace the entries of `field`, a repeated field of protobuf, by copies of `entries`."""
    copies = [type(e).FromString(e.SerializeToString()) for e in entries]
    del field[:]
    field.extend(copies)


def write_defaults(draft: Draft) -> None:
    """Write every attribute that has a default by the schema; those of windows from shapes."""
    for node in draft.nodes():
        if node.operator in WINDOWS:
            _write_window(draft, node)
        for name in missing_attributes(node):
            value = node.schema.attributes[name].default_value
            node.proto.attribute.append(helper.make_attribute(name, helper.get_attribute_value(value)))
            draft.count_change("default values written")


def _write_window(draft: Draft, node: NodeView) -> None:
    """Write kernel, strides, dilations and pads of `node`, a convolution or max pool, as numbers into the draft."""
    x = draft.shape(node.input(0))
    rank = len(x) - 2
    kernel = node.attributes.get("kernel_shape") or list(draft.shape(node.input(1))[2:])
    given = {"kernel_shape": list(kernel), "dilations": [1] * rank, "strides": [1] * rank}
    for name, value in given.items():
        if name not in node.attributes:
            set_attribute(node.proto, name, value)
            draft.count_change("default values written")
    if (auto := node.text_attribute("auto_pad", "NOTSET")) != "NOTSET" or "pads" not in node.attributes:
        updated = NodeView(node.index, node.proto, node.schema)
        win = window.strided(
            node.operator,
            x[2:],
            tuple(kernel),
            stride=tuple(updated.attributes["strides"]),
            padding=padding_of(updated, rank),
            dilation=tuple(updated.attributes["dilations"]),
            ceil=bool(updated.attributes.get("ceil_mode", 0)),
        )
        low, high = zip(*((a.lo, a.hi) for a in win.axes), strict=True)  # type: ignore[union-attr]
        set_attribute(node.proto, "pads", [*low, *high])
        set_attribute(node.proto, "auto_pad", "NOTSET")
        draft.count_change("padding written as numbers" if auto != "NOTSET" else "default values written")


def count_axes_from_the_front(draft: Draft) -> None:
    """Make negative axes in the draft positive, in attributes and constant inputs, and count the changes."""
    for node in draft.nodes(*AXIS):
        axis = node.attributes.get("axis")
        if axis is not None and axis < 0:
            set_attribute(node.proto, "axis", axis + len(draft.shape(node.input(0))))
            draft.count_change("negative axes counted from the front")
    for node in draft.nodes(*AXES_INPUT, "Unsqueeze"):
        axes = draft.view.ints(node.input(1)) if node.input(1) else None
        if axes and min(axes) < 0:
            rank = len(draft.shape(str(node.proto.output[0]) if node.operator == "Unsqueeze" else node.input(0)))
            set_input(node.proto, 1, draft.int64_constant(f"{node.proto.output[0]}_axes", [a % rank for a in axes]))
            draft.count_change("negative axes counted from the front")


def give_optional_inputs(draft: Draft) -> None:
    """Write the bounds of Clip (the type's limits by default) into the draft, and slices over all axes.

    Count the changes.
    """
    for node in draft.nodes("Clip"):
        kind = LIMITS.get(draft.view.inferred_type(node.input(0)))  # type: ignore[call-overload]
        for i, name in ((1, "min"), (2, "max")):
            if not node.input(i) and kind is not None:
                limit = getattr(np.finfo(kind), name)
                set_input(node.proto, i, draft.constant(f"{node.proto.output[0]}_{name}", np.array(limit, kind)))
                draft.count_change("bounds of Clip written")
    for node in draft.nodes("Slice"):
        shape, ints = draft.shape(node.input(0)), draft.view.ints
        starts, ends = ints(node.input(1)), ints(node.input(2))
        if starts is None or ends is None:
            continue
        axes = ints(node.input(3)) if node.input(3) else list(range(len(starts)))
        steps = ints(node.input(4)) if node.input(4) else [1] * len(starts)
        if axes is None or steps is None or not all(steps):
            continue
        rows = [(0, n, 1) for n in shape]
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            rows[axis] = _canonical_slice(start, end, step, shape[axis])
        written = [list(column) for column in zip(*rows, strict=True)]
        canonical = [written[0], written[1], list(range(len(shape))), written[2]]
        if canonical != [starts, ends, axes, steps] or not node.input(4):
            for i, (name, numbers) in enumerate(zip(("starts", "ends", "axes", "steps"), canonical, strict=True), 1):
                set_input(node.proto, i, draft.int64_constant(f"{node.proto.output[0]}_{name}", numbers))
            draft.count_change("slices written over all axes")


def _canonical_slice(start: int, end: int, step: int, size: int) -> tuple[int, int, int]:
    """Return (start, end, step) of the same cells with the start inside and an end that is reached.

    The end -size - 1 is before the first cell.

    >>> _canonical_slice(-2, 2**63 - 1, 1, 5), _canonical_slice(-1, -(2**63), -2, 5)
    ((3, 5, 1), (4, -6, -2))
    """
    first, stop, _ = slice(start, end, step).indices(size)
    return first, stop if stop >= 0 else -size - 1, step


def expand_broadcasts(draft: Draft) -> None:
    """Insert an Expand into the draft before every operand that is broadcast, and count them."""
    nodes, shapes = [], {}
    for node in draft.nodes():
        operands = (
            range(len(node.proto.input)) if node.operator in ELEMENTWISE else (2,) if node.operator == "Gemm" else ()
        )
        result = draft.view.shape(str(node.proto.output[0])) if operands else None
        for i in operands:
            name = node.input(i)
            if result is None or not name or draft.view.shape(name) in (None, result):
                continue
            if result not in shapes:
                shapes[result] = draft.int64_constant(f"shape_{'x'.join(map(str, result)) or 'scalar'}", result)
            whole = draft.fresh(f"{name}_expanded")
            nodes.append(helper.make_node("Expand", [name, shapes[result]], [whole], draft.fresh(f"expand_{name}")))
            node.proto.input[i] = whole
            draft.expanded[whole] = name
            draft.count_change("broadcasts written as Expand")
        nodes.append(node.proto)
    _replace_entries(draft.model.graph.node, nodes)


def name_nodes(draft: Draft) -> None:
    """Give every node of the draft that has none, or shares one, a unique name; count them."""
    uses = Counter(str(n.name) for n in draft.model.graph.node)
    for i, node in enumerate(draft.model.graph.node):
        if not node.name or uses[str(node.name)] > 1:
            node.name = draft.fresh(f"{node.op_type}_{i}")
            draft.count_change("nodes named")


def drop_empty_tails(draft: Draft) -> None:
    """Remove empty names at the end of inputs and outputs."""
    for node in draft.model.graph.node:
        for names in (node.input, node.output):
            while len(names) and not names[-1]:
                names.pop()


PASSES: tuple[Callable[[Draft], None], ...] = (
    leave_out_the_dead,
    write_defaults,
    count_axes_from_the_front,
    give_optional_inputs,
    expand_broadcasts,
    leave_out_the_dead,  # nodes that computed what is a constant by now
    drop_empty_tails,
    name_nodes,
    leave_out_the_unused,
)
