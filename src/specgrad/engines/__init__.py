"""Engines: PyTorch and JAX, one table each, imported only when their tensors are met or asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

from ..errors import ParameterError
from ..graph.graph import Graph
from ..graph.transform import Wrt, grad, jvp, vjp

Mode = Literal["forward", "jvp", "vjp", "grad"]
MODULES = {"torch": "torch_graph", "jax": "jax"}


def compile(graph: Graph, engine: str, mode: Mode = "forward", *, wrt: Wrt = None, **options: Any) -> Any:
    """The graph, or its derivative, as one callable of an engine.

    mode: "forward" the graph itself; "jvp", "vjp", "grad" its derivative in `wrt`, with the calling convention of
    specgrad.jvp, vjp and grad. engine="torch" gives an nn.Module around a torch.fx.GraphModule (option parameters=: a
    structure for the first argument, which the module then owns and trains); engine="jax" gives a jitted function.
    """
    if engine not in MODULES:
        raise ParameterError("compile", f'engine must be "torch" or "jax"; got {engine!r}', rule="P5")
    transforms = {"forward": lambda g, _: g, "jvp": jvp, "vjp": vjp, "grad": grad}
    if mode not in transforms:
        raise ParameterError("compile", f"mode must be one of {', '.join(transforms)}; got {mode!r}", rule="P5")
    module = import_module(f".{MODULES[engine]}", __name__)
    return module.compile_graph(transforms[mode](graph, wrt), **options)
