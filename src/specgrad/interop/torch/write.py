"""Exports a graph as a PyTorch module that can be trained."""

from __future__ import annotations

from collections.abc import Callable, Collection

from torch import nn

from specgrad.engines.torch.fx_graph import module_of
from specgrad.engines.torch.symbolic import OpenModule
from specgrad.graph.ir.tree import is_branch

from ...errors import ParameterError
from ...graph.graph import Graph

Chosen = Collection[str] | Callable[[str], bool] | None


def to_torch(graph: Graph, *, trainable: Chosen = None) -> nn.Module:
    """Return the graph as an nn.Module (a torch.fx.GraphModule) that owns a copy of the graph's constants.

    Constants stand in its state_dict under their own dotted names: as parameters if they are trainable, as buffers
    otherwise. Statistics of batch normalisation stay as they are while it trains.

    Parameters
    ----------
    graph : Graph
        The network; no argument is a structure.
    trainable : collection of str, or callable, optional
        Names of the constants that are parameters, or a test on names; by default `graph.trainable`, which from_torch
        fills.

    Returns
    -------
    nn.Module
        It takes the graph's shapes, and any size that is open.

    Raises
    ------
    ParameterError
        For a graph whose argument is a structure ([P5]).
    MissingPackageError
        Without PyTorch.

    Examples
    --------
    >>> import torch
    >>> from specgrad.interop import from_torch
    >>> net = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.BatchNorm1d(2)).eval()
    >>> module = to_torch(from_torch(net, torch.zeros(1, 1, 5)))
    >>> [name for name, _ in module.named_parameters()]
    ['0.weight', '0.bias', '1.weight', '1.bias']
    >>> torch.equal(module(torch.ones(1, 1, 5)), net(torch.ones(1, 1, 5)))
    True
    >>> net.load_state_dict(module.state_dict())
    <All keys matched successfully>
    """
    for name, tree in zip(graph.names, graph.inputs, strict=True):
        if is_branch(tree):
            text = f'argument {name} is a structure; compile(graph, "torch", parameters=...) makes it the module\'s own'
            raise ParameterError("to_torch", text, rule="P5")
    chosen = _trainable_names(graph, trainable)
    return module_of(graph, chosen) if graph.open is None else OpenModule(graph, chosen)


def _trainable_names(graph: Graph, trainable: Chosen) -> set[str]:
    """Return the names of the constants to train, by `trainable` (see to_torch); ParameterError if one is unknown or
    holds integers.
    """
    constants = {graph.nodes[p].name: a for p, a in graph.constants.items()}
    if callable(trainable):
        chosen = {name for name in constants if trainable(name)}
    else:
        chosen = set(graph.trainable if trainable is None else trainable)
    for name in sorted(chosen):
        if name not in constants:
            raise ParameterError("to_torch", f"trainable {name!r} is no constant of the graph", rule="P5")
        if constants[name].dtype.kind == "i":
            raise ParameterError("to_torch", f"trainable {name!r} holds integers and has no derivative", rule="P5")
    return chosen
