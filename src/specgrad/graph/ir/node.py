"""Nodes, each the application of one operator to earlier nodes, and a program: a flat list of them.

Nodes refer to each other by position, so nothing here recurses; parameters are inputs and live beside the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from specgrad.op import OUTSIDE, Op, Params, Value
from specgrad.scalar import Array, Number
from specgrad.window import Shape

from .tree import Tree, leaves

Kind = Literal["real", "index"]


def _outside(*_: Any, **__: Any) -> Any:
    """Raise AssertionError: inputs and constants are not computed."""
    raise AssertionError("inputs and constants are not computed")


INPUT = Op(name="input", shape=_outside, spec=_outside, cases=_outside)
CONSTANT = Op(name="constant", shape=_outside, spec=_outside, cases=_outside)
OUTSIDE.update(input=INPUT, constant=CONSTANT)


@dataclass(frozen=True, slots=True)
class NumberArg:
    """A Python number among the arguments of a node."""

    value: Number


Arg = int | NumberArg  # the position of an earlier node, or a number


@dataclass(frozen=True, slots=True)
class Node:
    """One application of one operator to earlier nodes, with its shape, name and layer."""

    op: Op
    args: tuple[Arg, ...]
    params: Params
    shape: Shape
    kind: Kind
    name: str
    group: str
    """The layer this node belongs to: its own name, or that of a composition such as batch_norm."""
    where: tuple[str, int] | None = field(default=None, compare=False)
    """File and line of the user's call; not serialized."""

    def operands(self) -> tuple[int, ...]:
        """Return the positions of the arguments that are nodes; numbers are skipped."""
        return tuple(a for a in self.args if not isinstance(a, NumberArg))


@dataclass(frozen=True, eq=False)
class Program:
    """A flat list of nodes with inputs, outputs and captured constants: the data of a graph.

    inputs     one structure of node positions per argument
    outputs    one structure of node positions per result; `single` if the function returned a bare value
    trainable  names of the constants that training may change: an imported model's parameters, not its buffers
    """

    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    inputs: tuple[Tree, ...]
    outputs: tuple[Tree, ...]
    single: bool
    constants: Mapping[int, Array]
    trainable: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.nodes)

    def node(self, name: str) -> Node:
        """Return the node of that name; raise KeyError if there is none."""
        for n in self.nodes:
            if n.name == name:
                return n
        raise KeyError(name)

    @property
    def input_positions(self) -> list[int]:
        """Return the positions of all inputs, in order."""
        return leaves(self.inputs)

    @property
    def output_positions(self) -> list[int]:
        """Return the positions of all outputs, in order; one may occur several times."""
        return leaves(self.outputs)

    @property
    def real_outputs(self) -> list[int]:
        """Return the positions of outputs that are numbers, repeated as they are; indices are left out."""
        return [p for p in self.output_positions if self.nodes[p].kind == "real"]


def bind(args: tuple[Arg, ...], values: list[Any] | dict[int, Any]) -> tuple[Value, ...]:
    """Return the arguments of a node as values."""
    return tuple(a.value if isinstance(a, NumberArg) else values[a] for a in args)


def distinct(taken: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Return `taken`, then `new` with a counter appended to names that are taken already.

    >>> distinct(("x", "d_x"), ("d_x", "d_d_x"))
    ('x', 'd_x', 'd_x_2', 'd_d_x')
    """
    names = list(taken)
    for name in new:
        free, count = name, 1
        while free in names:
            count += 1
            free = f"{name}_{count}"
        names.append(free)
    return tuple(names)
