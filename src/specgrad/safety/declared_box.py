"""A model on a declared box: every cell of every input between two numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..bounds import Box
from ..check.models.load import graph_in_one_format
from ..graph.graph import Graph
from ..interop import from_onnx
from ..rounding import Arithmetic


def on_box(
    model: Any, low: float, high: float, sizes: Mapping[str, Sequence[int]] | None, who: str
) -> tuple[Graph, tuple[Box, ...]]:
    """The graph of an ONNX model and a box per input, for bounds in float32.

    sizes   of inputs that the file leaves open
    """
    graph = from_onnx(model, input_shapes=sizes).at()
    boxes = tuple(Box(np.full(s, low), np.full(s, high)) for s in (graph.nodes[p].shape for p in graph.input_positions))
    zeros = [np.zeros(np.shape(b.low), np.float32) for b in boxes]
    return graph_in_one_format(model, zeros, who, Arithmetic()), boxes
