"""Sentences that say for which executions a statement about a graph holds: the one place that has arithmetic and graph.

Whatever states something of a graph uses `deployment_of`, so that no statement can omit what is excluded of that graph,
or whose errors of functions were taken.
"""

from __future__ import annotations

import math
from typing import Any

from ..declared_errors import as_pair, whose
from ..graph.graph import Graph
from ..proof.base.executions import RELATIVE, deployment, exclusion
from .arithmetic import Arithmetic

PARTS = dict.fromkeys(("smooth_max_pool", "smooth_pull", "smooth_push"), ("exp", "log"))
PARTS |= {"power": ("power", "sqrt"), "root": ("power", "sqrt")}
"""Operators whose rule asks for other errors than the one of their own name."""


def deployment_of(given: Any, *graphs: Graph) -> dict[str, str]:
    """Return the executions that a statement about these graphs holds for: general sentences, then those of these
    graphs.

    given   an Arithmetic, the executions of a certificate, or None: float32, fused

    >>> import specgrad as sg
    >>> said = deployment_of(None, sg.trace(lambda x: 0.1 * sg.relu(sg.exp(x)), (2,)))
    >>> said["functions"]
    'assumed, measured and not proven: exp is off by at most 12 u of the result; u = 2**-24, the widest of 10 runtimes'
    >>> said["choices"]
    'executions that move a constant factor through relu, or take another number for it, are excluded'
    """
    arithmetic = Arithmetic() if given is None else given
    if not isinstance(arithmetic, Arithmetic):
        said = deployment(arithmetic)
    else:
        functions = _functions_sentence(arithmetic, graphs)
        said = {**arithmetic.deployment, **({"functions": functions} if functions else {})}
    excluded = "; ".join(dict.fromkeys(filter(None, map(exclusion, graphs))))
    return {**said, "choices": excluded} if excluded else said


def functions_of(arithmetic: Arithmetic, *graphs: Graph) -> tuple[str, ...]:
    """Return the names of the functions in these graphs whose error is declared.

    >>> import specgrad as sg
    >>> functions_of(Arithmetic(), sg.trace(lambda x: sg.sigmoid(x) + sg.log(x), (2,)))
    ('log', 'sigmoid')
    """
    if arithmetic.dtype == "real":
        return ()
    names = {node.op.name for graph in graphs for node in graph.nodes}
    asked = {part for name in names for part in PARTS.get(name, (name,))}
    return tuple(sorted(asked & set(arithmetic.ulps)))


def _functions_sentence(arithmetic: Arithmetic, graphs: tuple[Graph, ...]) -> str:
    """Return the sentence about declared errors of functions in these graphs; "" if there are none."""
    each = []
    for name in functions_of(arithmetic, *graphs):
        units, kind = as_pair(arithmetic.ulps[name])
        each.append(f"{name} is off by at most {units:g} u of {RELATIVE[kind]}")
    unit = f"u = 2**{round(math.log2(arithmetic.u))}" if each else ""
    taken = f"{unit}, {whose(arithmetic.ulps)}"
    return f"assumed, measured and not proven: {', '.join(each)}; {taken}" if each else ""
