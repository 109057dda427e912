"""Profile rules about operators: which are allowed, written attributes and inputs, conditions of single texts."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from .file_rules import WRITES
from .graph_rules import CONTROL, RANDOM
from .model_view import ModelView, NodeView
from .rule import Spot, rule
from .sources import GRAPH, LISTED, MAXPOOL, REQS, RESTRICTIONS, WRITTEN, spec

WINDOWS = ("Conv", "ConvInteger", "MaxPool")
OPTIONAL = {"Clip": (1, 2), "LSTM": (3, 4, 5, 6, 7)}
"""Inputs whose absence stands for a value."""


@rule(
    "S2",
    "E",
    "REQ-OP-000",
    REQS,
    says="Every operator is in the set, and has a text. In neither: broken. In the set without a text, or with a text "
    "and not in the set: the texts do not decide.",
)
def in_the_set(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the operators outside the profile's set, and undecided ones (S2)."""
    for node in view.nodes:
        name = node.operator
        elsewhere = not node.is_onnx or (node.proto.domain, name) in view.functions or name in (*RANDOM, *CONTROL)
        if elsewhere or (name in LISTED and name in WRITTEN):
            continue  # S3, S17, S18 and S19 report the former
        if name in LISTED:
            yield Spot(f"{name} is in the set and has no text", node.at(), undecided=True)
        elif name in WRITTEN:
            yield Spot(f"{name} has a text and is not in the set", node.at(), undecided=True)
        else:
            yield Spot(f"{name} is not in the set and has no text", node.at())


def missing_attributes(node: NodeView) -> list[str]:
    """Return the attributes that have a default (of windows, all) and are not written in the node.

    Convolutions and maxima have values for all; padding alone cannot be written beside auto_pad.
    """
    if node.schema is None:
        return []
    names = [name for name, a in node.schema.attributes.items() if a.default_value.type]
    if node.operator in WINDOWS:
        pads = ["pads"] if node.text_attribute("auto_pad", "NOTSET") == "NOTSET" else []
        names += [n for n in ("dilations", "kernel_shape", *pads, "strides") if n in node.schema.attributes]
    return sorted(set(names) - {a.name for a in node.proto.attribute})


@rule(
    "S5",
    "E",
    "REQ-OP-070; GR4; maxpool R2",
    REQS,
    RESTRICTIONS,
    MAXPOOL,
    says="No default values: every attribute is written.",
    cure=WRITES,
)
def no_defaults(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the nodes with attributes that are not written (S5)."""
    for node in view.nodes:
        if lacking := missing_attributes(node):
            yield Spot(f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not written", node.at())


@rule(
    "S6",
    "E",
    "slice R1-R3; clip; lstm",
    spec("slice"),
    spec("clip"),
    spec("lstm"),
    says="Optional inputs are given where a default would act: axes and steps of Slice, over all axes; min and max of "
    "Clip; B, sequence_lens, initial_h, initial_c and P of LSTM.",
    cure=WRITES,
)
def no_default_inputs(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the nodes whose optional inputs are left to a default (S6)."""
    for node in view.of(*OPTIONAL):
        formal = [i.name for i in node.schema.inputs] if node.schema is not None else []
        absent = [formal[i] for i in OPTIONAL[node.operator] if i < len(formal) and not node.input(i)]
        if absent:
            cure = "" if node.operator == "LSTM" else None
            yield Spot(f"input {', '.join(absent)} is not given", node.at(), cure=cure)
    for node in view.of("Slice"):
        if node.schema is not None and len(node.schema.inputs) >= 5:
            yield from _incomplete_slice_spots(view, node)


def _incomplete_slice_spots(view: ModelView, node: NodeView) -> Iterator[Spot]:
    """Yield a spot if `node`, a Slice, has no axes or steps, or does not list all axes.

    Undecided if they are not known.
    """
    absent = [name for i, name in ((3, "axes"), (4, "steps")) if not node.input(i)]
    if absent:
        yield Spot(f"input {', '.join(absent)} is not given", node.at())
        return
    axes, shape = view.ints(node.input(3)), view.shape(node.input(0))
    if axes is None or shape is None:
        yield Spot("the axes, or the shape of the data, are not known", node.at(), undecided=True, cure="")
    elif sorted(a % len(shape) for a in axes) != list(range(len(shape))):
        yield Spot(f"axes {axes} are not all {len(shape)} axes of the data", node.at())


@rule(
    "S7",
    "W",
    "graph R1 (d0ed4fc; absent in 01aa782)",
    GRAPH,
    says="Inputs and outputs of a node are those of its operator, one to one. One version of the text asks for it; "
    "MaxPool's own text forbids Indices.",
    cure="nothing: --normalise adds no outputs",
)
def one_to_one(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the nodes that leave out inputs or outputs of their operator (S7)."""
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    for node in view.nodes:
        if node.schema is None:
            continue
        absent = []
        for formals, names in ((node.schema.inputs, node.proto.input), (node.schema.outputs, node.proto.output)):
            there = [i < len(names) and names[i] != "" for i in range(len(formals))]
            absent += [f.name for f, ok in zip(formals, there, strict=True) if not ok and f.option != variadic]
        if absent:
            yield Spot(f"{', '.join(absent)} of {node.operator} left out", node.at())


@rule(
    "S27",
    "E",
    "softmax R4; concat R1",
    spec("softmax"),
    spec("concat"),
    says="The axis of Softmax and of Concat is not negative. Flatten and Slice allow negative ones.",
    cure=WRITES,
)
def axis_from_the_front(view: ModelView) -> Iterator[Spot]:
    """Yield negative axes of Softmax and Concat (S27)."""
    for node in view.of("Softmax", "Concat"):
        if (axis := node.attributes.get("axis", 0)) < 0:
            yield Spot(f"axis is {axis}", node.at())


@rule(
    "S30",
    "E",
    "batch_normalization",
    spec("batchnormalization"),
    says="BatchNormalization: epsilon is above 0, and no variance is negative.",
)
def normalisation(view: ModelView) -> Iterator[Spot]:
    """Yield BatchNormalization nodes with epsilon <= 0 or negative variances (S30)."""
    for node in view.of("BatchNormalization"):
        epsilon = node.attributes.get("epsilon", 1e-5)
        if not epsilon > 0:
            yield Spot(f"epsilon is {epsilon}", node.at())
        variance = view.array(node.input(4)) if node.input(4) else None
        if variance is None:
            yield Spot("input_var is not a constant that could be read", node.at(), undecided=True)
        elif not (variance >= 0).all():
            yield Spot(f"input_var has {int((~(variance >= 0)).sum())} entries that are not 0 or above", node.at())


@rule(
    "S31",
    "E",
    "slice R6-R8",
    spec("slice"),
    says="Slice: starts lie within their axis, ends can be reached, steps are not 0, and the result is not empty.",
    cure=WRITES,
)
def slices(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the slices whose start, end or step is out of range, or that are empty (S31)."""
    for node in view.of("Slice"):
        shape = view.shape(node.input(0))
        starts, ends = view.ints(node.input(1)), view.ints(node.input(2))
        if shape is None or starts is None or ends is None:
            yield Spot("starts, ends, or the shape of the data, are not known", node.at(), undecided=True, cure="")
            continue
        axes = view.ints(node.input(3)) or list(range(len(starts)))
        steps = view.ints(node.input(4)) or [1] * len(starts)
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
            if wrong := wrong_slice(start, end, step, shape[axis]):
                curable = step != 0 and len(
                    range(*slice(start, end if end >= -shape[axis] else None, step).indices(shape[axis]))
                )
                yield Spot(f"axis {axis}: {wrong}", node.at(), cure=None if curable else "")


def wrong_slice(start: int, end: int, step: int, size: int) -> str:
    """Return what is wrong with one axis of a slice, or "": start, end and step as in ONNX, on an axis of `size` cells.

    A backward slice may end before the first cell.

    >>> wrong_slice(0, 5, 1, 4), wrong_slice(1, 3, 1, 4), wrong_slice(3, -5, -1, 4)
    ('the end 5 cannot be reached on an axis of 4', '', '')
    """
    if step == 0:
        return "the step is 0"
    if not -size <= start < size:
        return f"the start {start} is not within an axis of {size}"
    first = start % size
    last = end + size if end < 0 else end
    if not (0 <= last <= size if step > 0 else -1 <= last < size):
        return f"the end {end} cannot be reached on an axis of {size}"
    return "" if len(range(first, last, step)) else f"nothing is between {start} and {end}"
