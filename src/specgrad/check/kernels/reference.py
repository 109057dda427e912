"""What a kernel must compute: a graph, a function, a PyTorch module or function, or an ONNX file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specgrad.errors import ParameterError, SpecgradError, need
from specgrad.graph.builder import trace
from specgrad.graph.graph import Graph
from specgrad.graph.transforms.autodiff import vjp
from specgrad.interop.model import Model, open_model
from specgrad.scalar import Array
from specgrad.window import Shape

from ..cases.op_case import OPERATORS

MAX_GRAPHS = 64  # shapes of which the graph is kept; shrinking asks for many


class Reference:
    """A definition that kernels are held against; `graph(arrays)` is it as a graph at the shapes of its inputs.

    A Graph, a PyTorch module and an ONNX file come through the gate for models. Any other function is run once on
    specgrad's variables, where NumPy's functions and operators record nodes; if it does not take them, and PyTorch is
    loaded, it goes through torch.export.

    source    what the user gave
    title     how errors call it; None: by its own name
    gradient  whether the results are the cotangents of all inputs; the last input is then the result's cotangent
    """

    def __init__(self, source: Any, title: str | None = None, *, gradient: bool = False) -> None:
        self.source, self.gradient = source, gradient
        self._model = _model_of(source)
        own = self._model.title if self._model else getattr(source, "__name__", type(source).__name__)
        self.title = title or ("the reference" if own == "<lambda>" else own)
        self._graphs: dict[Any, Graph] = {}

    @property
    def is_exported(self) -> bool:
        """Whether PyTorch has exported it, as a module or a function of tensors; known after the first reading."""
        return self._model is not None and self._model.kind == "torch"

    def of_gradient(self) -> Reference:
        """Return the reference of the gradient: the cotangents of all inputs, for one of the result."""
        return Reference(self.source, f"the gradient of {self.title}", gradient=True)

    def declared_shapes(self) -> dict[str, Shape]:
        """Return the shapes of the inputs that a graph or file declares; ParameterError for all else."""
        if self._model is None or self._model.kind == "torch":
            text = f"{self.title} does not say its inputs: give inputs= (arrays, shapes or a strategy)"
            raise ParameterError("assert_conforms", text, rule="P5")
        return self._model.closed_shapes({})

    def graph(self, arrays: Sequence[Array]) -> Graph:
        """Return the reference as a graph at the shapes and kinds of these arrays.

        Graphs are cached. ParameterError where the reference does not take them.
        """
        key = tuple((a.shape, a.dtype.kind) for a in arrays)
        if key not in self._graphs:
            if len(self._graphs) >= MAX_GRAPHS:
                self._graphs.clear()
            value = self._read(arrays[:-1] if self.gradient else arrays)
            self._graphs[key] = vjp(value) if self.gradient else value
        return self._graphs[key]

    def formats(self, graph: Graph) -> Mapping[str, str]:
        """Return {node of the graph: format} for nodes that a half module computes in another format than float32."""
        return {} if self._model is None or self.gradient else self._model.formats(graph)

    def _read(self, arrays: Sequence[Array]) -> Graph:
        """Return the graph of the value, without cotangents, at the shapes of these arrays.

        ParameterError if it cannot be read as one.
        """
        if self._model is not None:
            return self._model.graph_for(arrays, "assert_conforms")
        try:
            return trace(self.source, *arrays)
        except Exception as error:  # the user's function, whatever it does
            if "torch" not in sys.modules:
                if isinstance(error, SpecgradError):
                    raise
                text = f"{self.title} does not run on specgrad's variables: {_one_line(error)}"
                raise ParameterError("assert_conforms", text, rule="P5") from error
            return self._exported(arrays, error)

    def _exported(self, arrays: Sequence[Array], refusal: Exception) -> Graph:
        """Return the graph of a function of tensors, by torch.export; `refusal` is why tracing did not take it.

        It is kept in `_model` for other shapes. ParameterError, with both reasons, if it is none.
        """
        model = open_model(_as_module(self.source))
        try:
            graph = model.graph_for(arrays, "assert_conforms")
        except Exception as error:
            text = f"{self.title} is read neither way. On specgrad's variables: {_one_line(refusal)}. "
            raise ParameterError("assert_conforms", f"{text}As PyTorch's: {_one_line(error)}", rule="P5") from refusal
        self._model = model  # other shapes are asked in the same language
        return graph


def _model_of(source: Any) -> Model | None:
    """Return what the gate for models makes of `source`; None for a plain function; ParameterError for neither."""
    if isinstance(source, str) and not Path(source).suffix:
        text = (
            f"unknown operator {source!r}; known are {', '.join(OPERATORS)}; or give a function, module, graph or file"
        )
        raise ParameterError("assert_conforms", text, rule="P5")
    if callable(source) and not isinstance(source, Graph) and not hasattr(source, "state_dict"):
        return None
    return open_model(source, "assert_conforms")


def _as_module(function: Callable[..., Any]) -> Any:
    """Return a PyTorch module that calls a function of tensors, `function`.

    MissingPackageError without PyTorch.
    """
    need("torch", "functions of tensors need")
    import torch

    class TorchFunction(torch.nn.Module):
        """A module that calls one function."""

        def forward(self, *args: Any) -> Any:
            return function(*args)

    return TorchFunction()


def _one_line(error: Exception) -> str:
    """Return type and text of an error on one line of at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
