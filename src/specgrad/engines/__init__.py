"""Engines: PyTorch and JAX, one table of lowerings each, imported when needed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

from ..errors import ParameterError
from ..graph.graph import Graph
from ..graph.transforms.autodiff import Wrt, grad, jvp, vjp
from ..op import FINDERS, Engine

PACKAGES = {"torch": "torch", "jax": "jax", "jaxlib": "jax"}  # of a tensor's type -> our engine for it
Mode = Literal["forward", "jvp", "vjp", "grad"]
ENGINES = {"torch": "torch.symbolic", "jax": "jax.jit_graph"}
TRANSFORMS: dict[str, Callable[[Graph, Wrt], Graph]] = {"forward": lambda g, _: g, "jvp": jvp, "vjp": vjp, "grad": grad}


def engine_of(kind: type) -> Engine | None:
    """Return (run, composites, call) of the engine that computes with values of the type `kind`; None if there is
    none.
    """
    packages = [base.__module__.partition(".")[0] for base in kind.__mro__]
    names = [PACKAGES[p] for p in packages if p in PACKAGES]
    if not names:
        return None
    engine = import_module(f".{names[0]}", __name__)
    return engine.run, getattr(engine, "COMPOSITES", {}), getattr(engine, "call", None)


FINDERS.append(engine_of)


def compile(graph: Graph, engine: str, mode: Mode = "forward", *, wrt: Wrt = None, **options: Any) -> Any:
    """Return the graph, or its derivative, as one callable of an engine.

    Options of "torch": parameters=, a structure for the first argument, which the module then owns and trains.

    Options of "jax": mesh=a jax Mesh, split=PartitionSpec("data", None, "rows"): on the devices of the mesh, whose axes
    cut the axes of the first data input at these places, and whatever goes along them. Halos are exchanged layer by
    layer, each cell once (docs/guide/sharding.md); weights are whole on all devices, and so are their gradients.

    Parameters
    ----------
    graph : Graph
        The network.
    engine : str
        "torch" or "jax".
    mode : {"forward", "jvp", "vjp", "grad"}, default "forward"
        The graph itself, or its derivative with the calling convention of `specgrad.jvp`, `vjp` or `grad`.
    wrt : int, str or sequence, optional
        Arguments to differentiate by: positions, names or dotted paths ("params.fc1"). By default all that are made of
        numbers.
    **options : any
        Of the engine, see above.

    Returns
    -------
    nn.Module or callable
        For "torch" an nn.Module around a torch.fx.GraphModule; for "jax" a jitted function.

    Raises
    ------
    ParameterError
        For another engine or mode, for split without mesh, and for a mesh with engine="torch" ([P5]).

    Examples
    --------
    >>> import specgrad as sg, torch
    >>> module = sg.compile(sg.trace(lambda x: sg.relu(x), (3,)), "torch")
    >>> module(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    if engine not in ENGINES:
        raise ParameterError("compile", f'engine must be "torch" or "jax"; got {engine!r}', rule="P5")
    if mode not in TRANSFORMS:
        raise ParameterError("compile", f"mode must be one of {', '.join(TRANSFORMS)}; got {mode!r}", rule="P5")
    derived = TRANSFORMS[mode](graph, wrt)
    if options.keys() & {"mesh", "split"}:
        if engine != "jax" or "mesh" not in options:
            raise ParameterError("compile", 'mesh= and split= go together, with engine="jax"', rule="P5")
        return import_module(".jax.shard", __name__).compile_sharded(graph, mode, wrt, derived, **options)
    return import_module(f".{ENGINES[engine]}", __name__).compile_graph(derived, **options)
