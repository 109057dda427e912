"""Values for the tensors that a VNN-LIB text declares, in the words of its version: what a counterexample is told in.

    1.0    ((X_0 0.5)          the form of VNN-COMP: one pair per cell, inputs before outputs
            (Y_0 -1.25))
    2.0    X float32 [1,2]     section 5.3 of the standard: a header per tensor, then its cells in row-major order,
           0.5                 tensors in the order of their declarations
           0.25

Cells are float32 numbers, in the shortest decimals that give them back exactly when they are read as float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..scalar import Array
from . import vnnlib2
from .vnnlib import text_of
from .vnnlib1 import is_2_0

KINDS = {"F32": "float32", "Real": "real"}


@dataclass(frozen=True)
class Tensor:
    """A declaration: its name, its element type in the words of the standard, its sizes."""

    name: str
    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """A declared network; `same_as` names the network that it is said to equal, and is empty otherwise."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    same_as: str = ""


@dataclass(frozen=True, eq=False)
class Assigned:
    """A tensor and its cells, flat, in row-major order."""

    tensor: Tensor
    cells: Array


def declared(path: str | Path) -> tuple[Network, ...]:
    """The networks of a VNN-LIB 2.0 file, in their order; 1.0 declares cells alone: no network at all."""
    return declared_in(text_of(path))


def declared_in(text: str) -> tuple[Network, ...]:
    """The networks that a text declares.

    >>> text = "(vnnlib-version <2.0>) (declare-network N (declare-input X real [2, 3]) (declare-output Y float32 []))"
    >>> declared_in(text + "(assert (>= Y 0.0))")[0].inputs
    (Tensor(name='X', kind='real', shape=(2, 3)),)
    >>> declared_in("(declare-const X_0 Real)")
    ()
    """
    if not is_2_0(text):
        return ()
    query = vnnlib2.checked_query(text)
    return tuple(
        Network(n.name, tuple(map(_tensor, n.inputs)), tuple(map(_tensor, n.outputs)), n.equal_to or "")
        for n in query.networks
    )


def _tensor(declaration: Any) -> Tensor:
    kind = KINDS.get(declaration.dtype.name, declaration.dtype.name)
    return Tensor(declaration.name, kind, tuple(declaration.shape))


def of_cells(x: Array, y: Array) -> tuple[Assigned, ...]:
    """What 1.0 declares: X_0, X_1, ..., Y_0, Y_1, ..."""
    return tuple(Assigned(Tensor(n, "real", (np.size(a),)), np.ravel(a)) for n, a in (("X", x), ("Y", y)))


def text_1_0(assigned: Sequence[Assigned]) -> str:
    """
    >>> print(text_1_0(of_cells(np.float32([0.1]), np.float32([2, -1]))))
    ((X_0 0.10000000149011612)
     (Y_0 2.0)
     (Y_1 -1.0))
    """
    pairs = [f"({a.tensor.name}_{i} {v!r})" for a in assigned for i, v in enumerate(a.cells.tolist())]
    return "(" + "\n ".join(pairs) + ")"


def text_2_0(assigned: Sequence[Assigned]) -> str:
    """
    >>> print(text_2_0([Assigned(Tensor("X", "float32", (1, 2)), np.float32([0.5, 0.1]))]))
    X float32 [1,2]
    0.5
    0.10000000149011612
    """
    lines = []
    for a in assigned:
        lines.append(f"{a.tensor.name} {a.tensor.kind} [{','.join(map(str, a.tensor.shape))}]")
        lines += map(repr, a.cells.tolist())
    return "\n".join(lines)
