"""Profile rules about convolutions and max pooling; empty windows are found exactly, by specgrad.window."""

from __future__ import annotations

from collections.abc import Iterator

from ... import window
from ...errors import SpecgradError
from ...interop.onnx.read.windows import AUTO_PADS
from ...window import Padding, Shape, Strided, Window
from .file_rules import WRITES
from .model_view import ModelView, NodeView
from .rule import Spot, rule
from .sources import CONV, CONV_SA, MAXPOOL, MAXPOOL_EJ, MAXPOOL_SA, TEST_GUIDE


@rule(
    "S28",
    "E",
    "conv2 R1-R3; SA conv R3",
    CONV,
    CONV_SA,
    says="Conv (and ConvInteger): 2 spatial axes, auto_pad is NOTSET, group is 1 or the number of input channels (1 "
    "alone in the other text), 4 pads of 0 or more, strides and dilations of 1 or more, kernel_shape as the weights.",
)
def convolutions(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for everything in a Conv or ConvInteger that breaks their rules (S28)."""
    for node in view.of("Conv", "ConvInteger"):
        x, w = view.shape(node.input(0)), view.shape(node.input(1))
        rank = None if x is None else len(x) - 2
        if rank is not None and rank != 2:
            yield Spot(f"there are {rank} spatial axes", node.at())
        yield from _padding_spots(node, rank)
        yield from _step_spots(node)
        kernel = node.attributes.get("kernel_shape")
        if kernel is not None and w is not None and tuple(kernel) != w[2:]:
            yield Spot(f"kernel_shape {tuple(kernel)} is not that of the weights, {w[2:]}", node.at())
        yield from _group_spots(node, x)


def _padding_spots(node: NodeView, rank: int | None) -> Iterator[Spot]:
    """Yield a spot for auto_pad, for negative pads, and for a number of pads that does not fit `rank` (None:
    unknown).
    """
    auto = node.text_attribute("auto_pad", "NOTSET")
    if auto != "NOTSET":
        yield Spot(f"auto_pad is {auto[:40]}", node.at(), cure=WRITES)
    pads = node.attributes.get("pads")
    if pads is not None and any(p < 0 for p in pads):
        yield Spot(f"pads {list(pads)} are not all 0 or more", node.at())
    if pads is not None and rank is not None and len(pads) != 2 * rank:
        yield Spot(f"there are {len(pads)} pads for {rank} spatial axes", node.at())


def _step_spots(node: NodeView) -> Iterator[Spot]:
    """Yield a place per attribute `strides` or `dilations` that has a number below 1."""
    for name in ("strides", "dilations"):
        if any(s < 1 for s in node.attributes.get(name, ())):
            yield Spot(f"{name} {list(node.attributes[name])} are not all 1 or more", node.at())


def _group_spots(node: NodeView, x: Shape | None) -> Iterator[Spot]:
    """Yield a group that is neither 1 nor the number of channels; the latter is undecided."""
    group = node.attributes.get("group", 1)
    if group == 1:
        return
    if x is None or len(x) < 2:
        yield Spot(f"group is {group}; the number of channels is not known", node.at(), undecided=True)
    elif group == x[1]:
        yield Spot(f"group is {group}, one per channel; the two texts disagree", node.at(), undecided=True)
    else:
        yield Spot(f"group is {group}, neither 1 nor the {x[1]} channels of the input", node.at())


@rule(
    "S29",
    "E",
    "maxpool R1-R5; SA R6, pads C3; EJ R4-R5",
    MAXPOOL,
    MAXPOOL_SA,
    MAXPOOL_EJ,
    TEST_GUIDE,
    says="MaxPool: 2 spatial axes, auto_pad is NOTSET, ceil_mode and storage_order are 0, no Indices, outputs are not "
    "empty, and every window has a cell of the input. The texts have three guards on pads, and none of them suffices.",
)
def maxima(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for everything in a MaxPool that breaks its rules (S29)."""
    for node in view.of("MaxPool"):
        x = view.shape(node.input(0))
        if x is not None and len(x) != 4:
            yield Spot(f"there are {len(x) - 2} spatial axes; the texts disagree", node.at(), undecided=True)
        yield from _padding_spots(node, None if x is None else len(x) - 2)
        yield from _step_spots(node)
        for name in ("ceil_mode", "storage_order"):
            if node.attributes.get(name, 0) != 0:
                yield Spot(f"{name} is {node.attributes[name]}", node.at())
        if len(node.proto.output) > 1 and node.proto.output[1]:
            yield Spot("Indices are given; one text forbids them, another asks for them", node.at(), undecided=True)
        yield from _window_spots(node, x)


def _window_spots(node: NodeView, x: Shape | None) -> Iterator[Spot]:
    """Yield a spot for windows that read no cell of x, and for pads that break the limits of the profile."""
    if x is None:
        yield Spot("the shape of its input is not known: no window could be looked at", node.at(), undecided=True)
        return
    try:
        win = pool_window(node, x)
        yield from _guard_spots(node, win)
        if win.has_empty:
            yield Spot(
                f"the window at {first_empty(win)} reads no cell of the input {x}",
                node.at(),
                cure="choose pads so that every window meets the input; runtimes differ here",
            )
    except SpecgradError as error:  # sizes that fit no window: the output would have none
        yield Spot(f"it has no windows over the input {x}: {error}", node.at())


def _guard_spots(node: NodeView, win: Window) -> Iterator[Spot]:
    """Yield pads of the node's window `win` that break one of the texts' three guards; undecided if the others hold."""
    for i, pad in enumerate(node.attributes.get("pads", ())):
        axis = win.axes[i % win.rank]
        if not isinstance(axis, Strided):
            continue
        k, span = axis.kernel, axis.span
        held = {"pads < kernel": pad < k, "pads <= kernel": pad <= k, "pads < dilated kernel": pad < span}
        if not all(held.values()):
            broken = ", ".join(text for text, holds in held.items() if not holds)
            where = f"pads[{i}] is {pad}, the kernel has {k} cells, dilated {span}: not {broken}"
            yield Spot(where, node.at(), undecided=any(held.values()))


def padding_of(node: NodeView, rank: int) -> Padding:
    """Return auto_pad as a padding of specgrad.window, or pads as a (low, high) pair for each of `rank` axes."""
    pads = node.attributes.get("pads", [0] * 2 * rank)
    word = AUTO_PADS.get(node.text_attribute("auto_pad", "NOTSET"))
    return word if word is not None else tuple(zip(pads[:rank], pads[rank:], strict=False))


def pool_window(node: NodeView, x: Shape) -> Window:
    """Return the window of a pooling node over an input of shape x (N, C, *spatial); a SpecgradError if none fits."""
    rank = len(x) - 2
    return window.strided(
        "MaxPool",
        x[2:],
        tuple(node.attributes.get("kernel_shape", ())),
        stride=tuple(node.attributes.get("strides", [1] * rank)),
        padding=padding_of(node, rank),
        dilation=tuple(node.attributes.get("dilations", [1] * rank)),
        ceil=bool(node.attributes.get("ceil_mode", 0)),
    )


def first_empty(win: Window) -> Shape | None:
    """Return the index of an output whose window is empty (0 on the other axes), or None.

    >>> first_empty(window.strided("MaxPool", (1,), (2,), padding=1, dilation=2))
    (0,)
    """
    for a, axis in enumerate(win.axes):
        if axis.has_empty:
            at = next(o for o in range(axis.out) if axis.inside(o) == 0)
            return tuple(at if i == a else 0 for i in range(win.rank))
    return None
