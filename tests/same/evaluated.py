"""The value of a normal form, term by term, over balls: what it must share with the graph that it was made from."""

from __future__ import annotations

from typing import Any

import flint
import numpy as np

import specgrad as sg
from exactly import point, value
from specgrad.equivalence.folded import plain
from specgrad.equivalence.normal_form import normal_form
from specgrad.equivalence.surd import Surd
from specgrad.equivalence.term_table import Atom, TermTable
from specgrad.graph.graph import Graph
from specgrad.op import run_spec

NAMED = {"conv": ("window", "groups"), "conv_transpose": ("window", "groups"), "contract": ("spec",), "sum": ("axes",)}
NAMED |= {"pad": ("widths",), "slice": ("ranges",), "permute": ("order",), "reshape": ("shape",), "concat": ("axis",)}
NAMED |= {"broadcast": ("shape",)}
NAMED |= {"clamp": ("low", "high"), "max_pool": ("window",)}


def ball(x: Any) -> Any:
    if isinstance(x, flint.arb):
        return x
    x = plain(x)
    if not isinstance(x, Surd):
        return sg.balls(x).item()
    return sum((ball(r) * ball(q).sqrt() for q, r in x.parts.items()), ball(0))


def balls(array: np.ndarray) -> np.ndarray:
    made = np.empty(array.shape, dtype=object)
    for place, v in np.ndenumerate(array):
        made[place] = ball(v)
    return made


class Evaluation:
    """Every value of a table once."""

    def __init__(self, table: TermTable, inputs: tuple[np.ndarray, ...]) -> None:
        self.table, self.inputs = table, [sg.balls(x) for x in inputs]
        self.values: dict[int, np.ndarray] = {}

    def constant(self, number: int) -> np.ndarray:
        kept = self.table.constants[number]
        cells = sg.balls(kept.array) if kept.array.dtype != object else balls(kept.array)
        return cells if kept.factors is None else cells * balls(kept.factors)

    def value(self, number: int) -> np.ndarray:
        if number not in self.values:
            form = self.table.values[number]
            total = sg.balls(np.zeros(form.shape))
            for atom, scale in form.terms:
                total = total + self.constant(scale) * self.atom(self.table.atoms[atom])
            self.values[number] = total if form.shift is None else total + self.constant(form.shift)
        return np.broadcast_to(self.values[number], self.table.values[number].shape)

    def atom(self, atom: Atom) -> np.ndarray:
        if atom.op == "input":
            return self.inputs[atom.params[0]]
        args = [np.array(self.value(a)) for a in atom.args]
        if atom.weights is not None:
            args.append(self.constant(atom.weights))
        if atom.op == "window_sum":
            return run_spec(sg.REGISTRY["avg_pool"], args, {"window": atom.params[0], "divisor": 1})
        stands = all(isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in atom.params)  # no rule did
        params = dict(atom.params if stands else zip(NAMED[atom.op], atom.params, strict=True))
        return balls(run_spec(sg.REGISTRY[atom.op], args, params))  # zeros around no cell at all are Fractions


def is_kept(graphs: list[Graph], seed: int) -> bool:
    """Whether the normal forms of graphs, in one table, have the values of the graphs at a random point."""
    before = flint.ctx.prec
    flint.ctx.prec = 300
    try:
        table = TermTable()
        forms = [normal_form(g, table) for g in graphs]
        given = point(graphs[0], seed)
        evaluation = Evaluation(table, given)
        for graph, form in zip(graphs, forms, strict=True):
            wanted = value(graph, given, sg.balls)
            got = [v for number in form.outputs for v in evaluation.value(number).flat]
            if not all(p.overlaps(q) for p, q in zip(got, wanted, strict=True)):
                return False
        return True
    except ZeroDivisionError:
        return True
    finally:
        flint.ctx.prec = before
