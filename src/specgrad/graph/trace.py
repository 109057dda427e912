"""Tracing: run an ordinary Python function once on variables that carry only a shape, and record its graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .builder import GraphBuilder
from .graph import Graph, distinct


def _argument_names(fn: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return distinct names for the first `count` arguments: those of fn's signature, else arg0, arg1, ..."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return distinct((), [plain[i] if i < len(plain) else f"arg{i}" for i in range(count)])


def trace(fn: Callable[..., Any], *examples: Any) -> Graph:
    """Build the graph of `fn` by running it once on variables.

    Examples are arrays or shapes, nested in tuples and dicts: trace(net, {"w": (8, 3, 3, 3)}, (1, 3, 32, 32)).
    Integer arrays, or Index(shape), make integer inputs (labels, indices). Only shapes are looked at. A name in place
    of a size leaves it open, for `Graph.at` and for whoever calls: ("N", 3, "H=224", "W=224").
    A shape error carries the line of your code and the layers built so far.

    >>> from specgrad import relu
    >>> g = trace(lambda x: relu(x) + 1, (2, 3))
    >>> g(np.array([[-1.0, 0.0, 1.0], [2.0, 3.0, 4.0]]))
    array([[1., 1., 2.],
           [3., 4., 5.]])
    """
    builder = GraphBuilder()
    inputs = [builder.input(*pair) for pair in zip(_argument_names(fn, len(examples)), examples, strict=True)]
    return builder.build(builder.call(fn, *inputs))
