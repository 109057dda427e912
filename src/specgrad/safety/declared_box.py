"""An ONNX model with a box that declares, for every cell of every input, the same two limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..bounds import Box
from ..check.models.load import graph_in_one_format
from ..graph.graph import Graph
from ..interop.model import open_model
from ..rounding import Arithmetic


def on_box(
    model: Any, low: float, high: float, sizes: Mapping[str, Sequence[int]] | None, who: str
) -> tuple[Graph, tuple[Box, ...]]:
    """Return the graph of an ONNX model in one float format, and a box [low, high] per input.

    ParameterError for a model that cannot be read; refused: one with other float formats.

    sizes   of inputs that the file leaves open
    who     names the caller in errors
    """
    graph = open_model(model, who).graph(sizes).at()
    boxes = tuple(Box(np.full(s, low), np.full(s, high)) for s in (graph.nodes[p].shape for p in graph.input_positions))
    zeros = [np.zeros(np.shape(b.low), np.float32) for b in boxes]
    return graph_in_one_format(model, zeros, who, Arithmetic()), boxes
