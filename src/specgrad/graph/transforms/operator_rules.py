"""The derivative rules of one operator as graphs: what jvp and vjp put in the place of one node."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from specgrad.op import Op, Params, Value, is_literal, shape_of
from specgrad.ops.layout import fill

from ..builder import GraphBuilder
from ..graph import Graph


class Rules:
    """Both derivative rules of one call of `op` with the parameters `params`, recorded in one builder, so that shared
    values are one node.

    given: per argument its shape, an array or Index(shape), or a number. Those in `active` have a tangent (None: all
    but numbers and indices). The tangent `dy` and the cotangents `gargs` are variables, or None: zero.
    """

    def __init__(self, op: Op, given: Collection[Any], params: Params, active: Collection[int] | None = None) -> None:
        self.builder = b = GraphBuilder(share=True)
        self.args = [g if is_literal(g) else b.input(f"x{k}", g) for k, g in enumerate(given)]
        if active is None:
            active = [k for k, a in enumerate(self.args) if not is_literal(a) and a.kind == "real"]
        self.active = tuple(active)
        shape = op.shape(*map(shape_of, self.args), **params)
        self.y, self.gy = b.input("y", shape), b.input("gy", shape)
        self.dargs = {k: b.input(f"dx{k}", self.args[k].shape) for k in self.active}
        self.dy = op.tangent(self.y, self.args, [self.dargs.get(k) for k in range(len(self.args))], params)
        cotangents = op.cotangents(self.gy, self.y, self.args, params)
        self.gargs = {k: cotangents[k] for k in self.active}

    def graph(self, inputs: Callable[[str], bool], outputs: dict[int, Value | None], like: dict[int, Value]) -> Graph:
        """Return a graph with the inputs whose names satisfy `inputs`; outputs that are None are zeros like `like`."""
        kept = {name: var for name, var in self.builder.arguments.items() if inputs(name)}
        results = tuple(fill(like[k], 0) if v is None else v for k, v in outputs.items())
        return self.builder.freeze(tuple(kept), tuple(kept.values()), results, len(results) == 1)


def rule_graphs(op: Op, *given: Any, **params: Any) -> tuple[Graph, Graph]:
    """Return the tangent rule and the cotangent rule of an operator as graphs: they print, run, differentiate.

    Parameters
    ----------
    op : Op
        The operator.
    *given : shape, array, Index or number
        Per argument its shape, an array or Index(shape), or a number.
    **params : any
        The operator's parameters, by name.

    Returns
    -------
    Graph
        The tangent rule, (x0, .., y, dx0, ..) -> dy.
    Graph
        The cotangent rule, (x0, .., y, gy) -> one cotangent per argument, but for indices.

    Examples
    --------
    >>> import specgrad as sg
    >>> tangent, cotangent = rule_graphs(sg.REGISTRY["mul"], (2,), (2,))
    >>> print(tangent)
    name   operator  shape  parameters  multiply-adds  receptive field
    ------------------------------------------------------------------
    x0     input         2
    x1     input         2
    y      input         2
    dx0    input         2
    dx1    input         2
    mul    mul           2                                           1
    mul_2  mul           2                                           1
    add    add           2                                           1
    3 layers, 8 nodes, 0 parameters, 0 multiply-adds
    >>> [node.op.name for node in cotangent.nodes]
    ['input', 'input', 'input', 'input', 'mul', 'mul']
    """
    rules = Rules(op, given, params)
    tangent = rules.graph(lambda name: name != "gy", {0: rules.dy}, {0: rules.y})
    return tangent, rules.graph(lambda name: name[0] != "d", rules.gargs, dict(enumerate(rules.args)))
