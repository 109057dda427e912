"""The numbers of a window: the cells that it reads, its outputs, and the gradients that go back to the cells."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from ..scalar import Array
from ..window import Shape, Window
from ..window.axis import Strided

Kind = Literal["input", "padding", "beyond"]


class Read(NamedTuple):
    """One cell (or padding position) that one output reads through one tap.

    kind   of the position: a cell of the input, one of its padding, or beyond both, where a window under `ceil` ends
    share  the derivative of the output by that cell: what it counts forward, and what of gy goes back; None: no cell
    """

    tap: Shape
    position: Shape
    kind: Kind
    share: Any


@dataclass(frozen=True, eq=False)
class WindowValues:
    """A window over numbers, with its inputs, outputs, cotangents and derivative.

    x, y       input and output
    gy, gx     a cotangent of the output, and what the adjoint makes of it
    winners    of a maximum: the cell that every output took; None for windows with no cell inside
    chosen     the output that a picture of two axes points at
    operator   name of the operator
    weights    of a convolution; None for others
    jacobian   derivative of all outputs by all inputs
    """

    operator: str
    window: Window
    x: Array
    weights: Array | None
    y: Array
    gy: Array
    gx: Array
    jacobian: Array
    winners: dict[Shape, Shape | None] | None
    chosen: Shape

    @property
    def title(self) -> str:
        """Operator, window parameters and sizes in one line.

        >>> import specgrad as sg
        >>> sg.show_window(size=7, kernel=3, stride=2, padding=1).title
        'max_pool k3 s2 p1: 7 cells to 4'
        """
        ends = ("x".join(map(str, shape)) for shape in (self.window.size, self.window.out))
        return f"{self.operator} {self.window}: {' cells to '.join(ends)}"

    @property
    def counted(self) -> str:
        """The formula of the number of outputs, with its numbers.

        >>> import specgrad as sg
        >>> sg.show_window(size=7, kernel=3, stride=2, padding=1).counted
        'outputs: floor((7 + 1 + 1 - 3) / 2) + 1 = 4'
        """
        texts = [a.counted_out() for a in self.window.axes if isinstance(a, Strided)]
        return f"outputs: {', '.join(dict.fromkeys(texts))}"

    def outputs(self) -> Iterator[Shape]:
        """Iterate over the indices of all outputs, in row-major order."""
        return itertools.product(*(range(n) for n in self.window.out))

    def reads(self, output: Shape) -> list[Read]:
        """Return what one output reads: one `Read` per tap, in row-major order."""
        axes = self.window.axes
        taps = []
        for pairs in itertools.product(*(a.reads(o) for a, o in zip(axes, output, strict=True))):
            position = tuple(i for _, i in pairs)
            kind = kind_of(self.window, position)
            share = self.jacobian[output + position] if kind == "input" else None
            taps.append(Read(tuple(t for t, _ in pairs), position, kind, share))
        return taps

    def formula(self, output: Shape) -> str:
        """Return the formula of one output's value, with its numbers.

        >>> import specgrad as sg
        >>> sg.show_window(size=4, kernel=3, stride=2, padding=1, operator="avg_pool").formula((0,))
        '(3+1)/3'
        """
        cells = [(r, self.x[r.position]) for r in self.reads(output) if r.kind == "input"]
        if not cells:
            return "no cell inside"
        if self.operator == "max_pool":
            return f"max({', '.join(number(v) for _, v in cells)})"
        if self.operator == "avg_pool":
            total = "+".join(number(v) for _, v in cells).replace("+-", "-")
            return f"({total})/{number(1 / cells[0][0].share)}"
        return " + ".join(f"{number(r.share)}·{number(v)}" for r, v in cells)

    def to_json(self) -> dict[str, Any]:
        """Return all numbers that the pictures show, as JSON data: operator, window, size, out, weights, `outputs` with
        their taps, and `cells` of the input.

        Numbers are strings, since exact ones are fractions.
        """
        size, out = self.window.size, self.window.out
        outputs = [
            {
                "output": list(o),
                "taps": [
                    {
                        "tap": list(r.tap),
                        "position": list(r.position),
                        "kind": r.kind,
                        "share": None if r.share is None else str(r.share),
                    }
                    for r in self.reads(o)
                ],
                "winner": None if self.winners is None or self.winners[o] is None else list(self.winners[o] or ()),
                "value": str(self.y[o]),
                "formula": self.formula(o),
                "cotangent": str(self.gy[o]),
            }
            for o in self.outputs()
        ]
        cells = [
            {"cell": list(c), "value": str(self.x[c]), "cotangent": str(self.gx[c])}
            for c in itertools.product(*(range(n) for n in size))
        ]
        weights = None if self.weights is None else [str(w) for w in self.weights.ravel()]
        return {
            "operator": self.operator,
            "window": str(self.window),
            "size": list(size),
            "out": list(out),
            "weights": weights,
            "outputs": outputs,
            "cells": cells,
        }


def kind_of(window: Window, position: Shape) -> Kind:
    """Return whether a position is a cell of the input, padding, or beyond both (the last window under `ceil`)."""
    if all(0 <= i < n for i, n in zip(position, window.size, strict=True)):
        return "input"
    return "padding" if all(i in a.extent for i, a in zip(position, window.axes, strict=True)) else "beyond"


def number(value: Any) -> str:
    """Return `value` as a short text: fractions and integers up to six characters exactly, others to four digits.

    >>> number(Fraction(7, 3)), number(Fraction(1, 1000003)), number(2.0)
    ('7/3', '1e-06', '2')
    """
    text = str(value)
    return text if isinstance(value, Fraction | int) and len(text) <= 6 else f"{float(value):.4g}"
