"""One operator test case: an operator, its attributes and arrays; the value or the gradient is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

import specgrad as sg
from specgrad.errors import ParameterError
from specgrad.graph.graph import Graph
from specgrad.scalar import Array
from specgrad.window import Shape

ASKED = """
    conv conv_transpose linear max_pool max_pool_indices avg_pool lp_pool smooth_max_pool adaptive_avg_pool
    adaptive_max_pool global_avg_pool global_max_pool batch_norm upsample_nearest resize cumsum add mul relu
    leaky_relu clamp hardswish sigmoid tanh softplus gelu exp floor ceil round softmax log_softmax
"""
_OWN: dict[str, Callable[..., Any]] = {
    "conv": lambda x, w, b=None, **a: sg.conv(w, b, x, **a),
    "conv_transpose": lambda x, w, b=None, **a: sg.conv_transpose(w, b, x, **a),
    "linear": lambda x, w, b=None: sg.linear(w, b, x),
    "max_pool_indices": lambda x, **a: sg.max_pool(x, return_indices=True, **a),
    "lp_pool": lambda x, **a: sg.lp_pool(sg.abs(x), **a),  # on absolute values, as ONNX defines it
}
OPERATORS: dict[str, Callable[..., Any]] = {name: _OWN.get(name) or getattr(sg, name) for name in ASKED.split()}
"""What runtimes are asked, as calls of the arrays by position; attributes are those of the public function."""


def check_operator(name: str) -> str:
    """Return `name`; raise ParameterError that lists the known operators if it is none of them."""
    if name not in OPERATORS:
        raise ParameterError("check", f"unknown operator {name!r}; known are {', '.join(OPERATORS)}")
    return name


@dataclass(frozen=True)
class OpCase:
    """A test case of one operator; with a cotangent `gradient` of its result, the answers are cotangents of all arrays.

    Parameters
    ----------
    operator : str
        A key of OPERATORS, such as "conv" or "softmax"; another name is refused where its graph is made.
    attributes : mapping
        Keyword arguments of specgrad's public function of that name, without the arrays.
    arrays : mapping of str to array
        Its arrays by name, in the order in which they are passed (x, w, b): the order counts.
    gradient : array, optional
        Cotangent of the result, of its shape; None: the answer is the result.
    data : str, default ""
        Name of the kind of numbers in the arrays, such as "gaussian": a label.
    spelling : str, default ""
        "": written as usual in a runtime's language; "output_shape" (conv_transpose) or "constant weights": written
        otherwise. It does not count when cases are compared.

    Examples
    --------
    >>> q = OpCase("max_pool", {"kernel": (2,)}, {"x": np.array([[[1, 3, 2, 0]]], np.float32)})
    >>> q.meaning()(*q.arguments())
    array([[[3., 2.]]])
    >>> q.answers()
    ('y',)
    """

    operator: str
    attributes: Mapping[str, Any]
    arrays: Mapping[str, Array]
    gradient: Array | None = None
    data: str = ""
    spelling: str = field(default="", compare=False)

    @cached_property
    def value_graph(self) -> Graph:
        """The operator on these arrays' shapes as a graph, without its gradient.

        ParameterError for an unknown operator.
        """
        call = OPERATORS[check_operator(self.operator)]
        return sg.trace(lambda *arrays: call(*arrays, **self.attributes), *self.arrays.values())

    def meaning(self) -> Graph:
        """Return the graph of the value, or of (value, cotangents of the arrays) if `gradient` is given."""
        return self.value_graph if self.gradient is None else sg.vjp(self.value_graph)

    def arguments(self) -> list[Array]:
        """Return the inputs of `meaning()` in order, as float64, which holds every float32 exactly."""
        given = [*self.arrays.values(), *([] if self.gradient is None else [self.gradient])]
        return [a.astype(np.float64) for a in given]

    def inputs(self) -> dict[str, Array]:
        """Return the float32 arrays by name that a runtime's program is called with."""
        return {**self.arrays, **({} if self.gradient is None else {"g": self.gradient})}

    def answers(self) -> tuple[str, ...]:
        """Return the names of the results: ("y",), ("y", "indices"), or "gradient of x", ... per array."""
        if self.gradient is not None:
            return tuple(f"gradient of {name}" for name in self.arrays)
        return ("y", "indices") if self.operator == "max_pool_indices" else ("y",)

    def output_shape(self) -> Shape:
        """Return the shape of the first result."""
        graph = self.value_graph
        return graph.nodes[graph.output_positions[0]].shape

    def with_cotangent(self, draw: Callable[[Shape], Array]) -> OpCase:
        """Return this case asking for the gradient, with the cotangent drawn by `draw(shape)`."""
        return replace(self, gradient=draw(self.output_shape()).astype(np.float32))

    def __str__(self) -> str:
        shown = [f"{k}={v!r}" for k, v in self.attributes.items() if v is not None]
        shapes = [f"{name}{tuple(a.shape)}" for name, a in self.arrays.items()]
        what = "gradient of " if self.gradient is not None else ""
        how = f", written with {self.spelling}" if self.spelling else ""
        return f"{what}{self.operator}({', '.join(shapes + shown)}){how}"
