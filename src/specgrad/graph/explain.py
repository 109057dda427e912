"""Explanation of one output cell: which inputs, taps and divisor it is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ParameterError, ShapeError
from ..window import Shape, Window
from .drawing.summary import data_inputs, describe, receptive_fields
from .graph import INPUT, Graph, Node

Read = tuple[Shape, Shape | None]  # tap, and the cell it reads (None: padding)


@dataclass(frozen=True)
class CellExplanation:
    """One output cell of one layer.

    reads          (tap, spatial position) per tap of its window; None for a padded tap, which counts 0 or is ignored.
                   Of an operator that goes backwards (conv_transpose, derivatives) the outputs whose taps read this
                   cell; none of a weight's gradient, which reads its tap of every output
    channels       the channels it reads, for a convolution
    divisor        what an average divides by
    fields         per input of the graph: first and last cell it depends on, per axis (None: the whole axis)
    shape, index   of the layer's output, and the cell in it
    """

    layer: str
    operator: str
    shape: Shape
    index: Shape
    reads: tuple[Read, ...]
    channels: tuple[int, int] | None
    divisor: str | None
    fields: dict[str, tuple[tuple[int, int] | None, ...]]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: layer, operator, shape, index, taps with what each reads (null: padding), channels,
        divisor, and receptive fields by input (`inputs`).
        """
        return {
            "layer": self.layer,
            "operator": self.operator,
            "shape": list(self.shape),
            "index": list(self.index),
            "taps": [{"tap": list(t), "reads": None if i is None else list(i)} for t, i in self.reads],
            "channels": self.channels,
            "divisor": self.divisor,
            "inputs": {k: [None if s is None else list(s) for s in v] for k, v in self.fields.items()},
        }


def _position(graph: Graph, layer: str | None) -> int:
    """Return the position of the layer's last node; that of the graph's first output if no layer is named.

    ParameterError if there is no such layer.
    """
    if layer is None:
        return graph.output_positions[0]
    positions = [p for p, n in enumerate(graph.nodes) if layer in (n.group, n.name)]
    if not positions:
        known = ", ".join(dict.fromkeys(n.group for n in graph.nodes if n.op is not INPUT))
        raise ParameterError("explain", f"no layer {layer!r}; the layers are {known[:400]}")
    return positions[-1]


def _check(index: Sequence[int], shape: Shape, layer: str) -> Shape:
    """Return the index as a tuple; raise ShapeError, which names the layer, if it is no cell of this shape."""
    if len(index) != len(shape) or any(not 0 <= i < n for i, n in zip(index, shape, strict=False)):
        raise ShapeError("explain", f"output {tuple(index)} is no cell of {layer}, whose shape is {shape}")
    return tuple(index)


def _reads(node: Node, window: Window, spatial: Shape) -> tuple[Read, ...]:
    """Return (tap, cell that it reads) for each tap of the window of the cell `spatial`; () for a weight's gradient."""
    if node.op.reads == "tap":
        return ()
    return tuple(window.read_by(spatial) if node.op.reads == "transpose" else window.reads(spatial))


def _channels(node: Node, nodes: Sequence[Node], index: Shape, window: Window) -> tuple[int, int] | None:
    """Return the first and last channel that a convolution reads for the output cell `index`; None for other operators.

    `nodes` are the graph's.
    """
    if "groups" not in node.params or node.op.reads == "tap":
        return None
    groups, cin = node.params["groups"], nodes[node.operands()[0]].shape[-window.rank - 1]
    group = index[-window.rank - 1] // (node.shape[-window.rank - 1] // groups)
    width = cin // groups
    return group * width, (group + 1) * width - 1


def _divisor(node: Node, window: Window, spatial: Shape, reads: Sequence[Read]) -> str | None:
    """Return the divisor of an average at the cell `spatial` as text; None for other operators.

    Of a spread average: those of every window that reads the cell.
    """
    rule = node.params.get("divisor")
    if rule is None:
        return None
    if rule not in ("padded", "inside"):
        return f"{rule} (given)"
    at = [spatial] if node.op.reads == "window" else [o for _, o in reads if o is not None]
    count = window.counted_at if rule == "padded" else window.inside_at
    said = "cells of the window within the padded input" if rule == "padded" else "cells inside the input"
    return f"{', '.join(map(str, sorted({count(o) for o in at})))} ({said})"


def explain(graph: Graph, index: Sequence[int], layer: str | None = None) -> CellExplanation:
    """Return what the cell `index` of a layer's output (by default the graph's first output) is computed from.

    ShapeError if that is no cell of it.

    >>> import specgrad as sg
    >>> g = sg.trace(lambda x: sg.avg_pool(x, (3,), stride=2, padding=1, count_include_pad=False), (1, 4))
    >>> answer = explain(g, (0, 0))
    >>> answer.reads, answer.divisor, answer.fields
    ((((0,), None), ((1,), (0,)), ((2,), (1,))), '2 (cells inside the input)', {'x': (None, (0, 1))})
    """
    position = _position(graph, layer)
    node = graph.nodes[position]
    cell = _check(index, node.shape, node.group)
    window = node.params.get("window")
    reads: tuple[Read, ...] = ()
    channels = divisor = None
    if isinstance(window, Window):
        spatial = cell[len(cell) - window.rank :]
        reads = _reads(node, window, spatial)
        channels, divisor = _channels(node, graph.nodes, cell, window), _divisor(node, window, spatial, reads)
    operator = f"{node.op.name} {describe(node.params)}".rstrip()
    return CellExplanation(
        node.group, operator, node.shape, cell, reads, channels, divisor, _fields(graph, position, cell)
    )


def _fields(graph: Graph, position: int, cell: Shape) -> dict[str, tuple[tuple[int, int] | None, ...]]:
    """Return, per data input and axis, the (first, last) cells that the output cell of the node at `position` depends
    on; None: the entire axis.
    """
    fields = {}
    for p in sorted(data_inputs(graph)):
        field = receptive_fields(graph.nodes, {p})[position]
        if field is None:
            continue
        shape = graph.nodes[p].shape
        spans: list[tuple[int, int] | None] = [None] * (len(shape) - min(len(field), len(shape)))
        for reach, o, n in zip(
            field[-len(shape) :], cell[len(cell) - len(field) :], shape[-len(field) :], strict=False
        ):
            span = None if reach is None else reach.of(o)
            spans.append(None if span is None else (max(0, span[0]), min(n - 1, span[1])))
        fields[graph.nodes[p].name] = tuple(spans)
    return fields
