"""Values for the tensors that a VNN-LIB text declares, in the words of its version: what a counterexample is told in.

    1.0    ((X_0 0.5)          the form of VNN-COMP: one pair per cell, inputs before outputs
            (Y_0 -1.25))
    2.0    X float32 [1,2]     section 5.3 of the standard: a header per tensor, then its cells in row-major order,
           0.5                 tensors in the order of their declarations
           0.25

Inputs are those of a counterexample's point, with all their digits: who reads them exactly has a point of the property,
and who rounds them to float32 has what the network was run on. Outputs are float32 numbers, in the shortest decimals
that give them back exactly when they are read as float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..scalar import Array
from . import vnnlib2
from .points import decimal_text, rounded_cells
from .vnnlib import text_of
from .vnnlib1 import is_2_0

KINDS = {"F32": "float32", "Real": "real"}


@dataclass(frozen=True)
class TensorDeclaration:
    """A declaration: its name, its element type in the words of the standard, its sizes."""

    name: str
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class NetworkDeclaration:
    """A declared network; `same_as` names the network that it is said to equal, and is empty otherwise."""

    name: str
    inputs: tuple[TensorDeclaration, ...]
    outputs: tuple[TensorDeclaration, ...]
    same_as: str = ""


@dataclass(frozen=True, eq=False)
class Assigned:
    """A tensor and its float32 cells, flat, in row-major order; of an input, its exact cells too."""

    tensor: TensorDeclaration
    cells: Array
    exact: tuple[Fraction, ...] = ()

    def is_rounded(self) -> bool:
        """Whether the float32 cells are others than the exact ones."""
        return bool(self.exact) and rounded_cells(self.exact, self.cells) > 0

    def texts(self) -> list[str]:
        return [decimal_text(v) for v in self.exact] or [repr(v) for v in self.cells.tolist()]


def declared(path: str | Path) -> tuple[NetworkDeclaration, ...]:
    """The networks of a VNN-LIB 2.0 file, in their order; 1.0 declares cells alone: no network at all."""
    return declared_in(text_of(path))


def declared_in(text: str) -> tuple[NetworkDeclaration, ...]:
    """The networks that a text declares.

    >>> text = "(vnnlib-version <2.0>) (declare-network N (declare-input X real [2, 3]) (declare-output Y float32 []))"
    >>> declared_in(text + "(assert (>= Y 0.0))")[0].inputs
    (TensorDeclaration(name='X', kind='real', shape=(2, 3)),)
    >>> declared_in("(declare-const X_0 Real)")
    ()
    """
    if not is_2_0(text):
        return ()
    query = vnnlib2.checked_query(text)
    return tuple(
        NetworkDeclaration(n.name, tuple(map(_tensor, n.inputs)), tuple(map(_tensor, n.outputs)), n.equal_to or "")
        for n in query.networks
    )


def _tensor(declaration: Any) -> TensorDeclaration:
    kind = KINDS.get(declaration.dtype.name, declaration.dtype.name)
    return TensorDeclaration(declaration.name, kind, tuple(declaration.shape))


def of_cells(x: Array, point: Sequence[Fraction], y: Array) -> tuple[Assigned, ...]:
    """What 1.0 declares: X_0, X_1, ..., Y_0, Y_1, ..."""
    parts = (("X", x, tuple(point)), ("Y", y, ()))
    return tuple(Assigned(TensorDeclaration(n, "real", (np.size(a),)), np.ravel(a), exact) for n, a, exact in parts)


def text_1_0(assigned: Sequence[Assigned]) -> str:
    """
    >>> print(text_1_0(of_cells(np.float32([0.1]), [Fraction(1, 10)], np.float32([2, -1]))))
    ((X_0 0.1)
     (Y_0 2.0)
     (Y_1 -1.0))
    """
    pairs = [f"({a.tensor.name}_{i} {text})" for a in assigned for i, text in enumerate(a.texts())]
    return "(" + "\n ".join(pairs) + ")"


def text_2_0(assigned: Sequence[Assigned]) -> str:
    """
    >>> print(text_2_0([Assigned(TensorDeclaration("X", "float32", (1, 2)), np.float32([0.5, 0.1]))]))
    X float32 [1,2]
    0.5
    0.10000000149011612
    """
    lines = []
    for a in assigned:
        lines.append(f"{a.tensor.name} {a.tensor.kind} [{','.join(map(str, a.tensor.shape))}]")
        lines += a.texts()
    return "\n".join(lines)
