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
from .points import count_rounded_cells, decimal_text
from .vnnlib import text_of
from .vnnlib1 import is_2_0

ELEMENT_TYPES = {"F32": "float32", "Real": "real"}


@dataclass(frozen=True)
class TensorDeclaration:
    """A declared tensor: its name, element type (`kind`: "float32" or "real"), and shape."""

    name: str
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class NetworkDeclaration:
    """A declared network: `name`, tensors that are `inputs` and `outputs`; `same_as` names the network that it is
    declared equal to, or is empty.
    """

    name: str
    inputs: tuple[TensorDeclaration, ...]
    outputs: tuple[TensorDeclaration, ...]
    same_as: str = ""


@dataclass(frozen=True, eq=False)
class Assigned:
    """A tensor with its float32 cells, flat, in row-major order; an input also has its exact cells."""

    tensor: TensorDeclaration
    cells: Array
    exact: tuple[Fraction, ...] = ()

    def is_rounded(self) -> bool:
        """Return whether some float32 cell differs from the exact one."""
        return bool(self.exact) and count_rounded_cells(self.exact, self.cells) > 0

    def texts(self) -> list[str]:
        """Return one decimal text per cell: of the exact value if there is one, else of the float32 value."""
        return [decimal_text(v) for v in self.exact] or [repr(v) for v in self.cells.tolist()]


def read_declarations(path: str | Path) -> tuple[NetworkDeclaration, ...]:
    """Return the networks that a VNN-LIB 2.0 file declares, in order; of a 1.0 file, which has none, ().

    PropertyError if the text is malformed, OSError if the file cannot be read.
    """
    return parse_declarations(text_of(path))


def parse_declarations(text: str) -> tuple[NetworkDeclaration, ...]:
    """Return the networks that a VNN-LIB text declares, in order; () for version 1.0.

    PropertyError if the text is malformed.

    >>> text = "(vnnlib-version <2.0>) (declare-network N (declare-input X real [2, 3]) (declare-output Y float32 []))"
    >>> parse_declarations(text + "(assert (>= Y 0.0))")[0].inputs
    (TensorDeclaration(name='X', kind='real', shape=(2, 3)),)
    >>> parse_declarations("(declare-const X_0 Real)")
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
    """Return the declaration of one tensor of the package `vnnlib`."""
    kind = ELEMENT_TYPES.get(declaration.dtype.name, declaration.dtype.name)
    return TensorDeclaration(declaration.name, kind, tuple(declaration.shape))


def assign_1_0(x: Array, point: Sequence[Fraction], y: Array) -> tuple[Assigned, ...]:
    """Return the assignment of a counterexample, input x (exactly: `point`) and output y, to the variables of VNN-LIB
    1.0: X_0, X_1, ..., Y_0, Y_1, ...
    """
    parts = (("X", x, tuple(point)), ("Y", y, ()))
    return tuple(Assigned(TensorDeclaration(n, "real", (np.size(a),)), np.ravel(a), exact) for n, a, exact in parts)


def text_1_0(assigned: Sequence[Assigned]) -> str:
    """Return the counterexample, the values `assigned` to tensors, in the form of VNN-COMP."""
    pairs = [f"({a.tensor.name}_{i} {text})" for a in assigned for i, text in enumerate(a.texts())]
    return "(" + "\n ".join(pairs) + ")"


def text_2_0(assigned: Sequence[Assigned]) -> str:
    """Return the assignment in the form of VNN-LIB 2.0, section 5.3.
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
