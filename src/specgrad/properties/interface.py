"""How the tensors of one network, or of several, stand in the flat vectors that a property speaks of.

A property has variables, which a box bounds, and values, which its rows read:

    variables   one per input cell; cells that the property calls equal are one variable
    values      the cells of all outputs, one after the other, and then the variables that inequalities name (`seen`)

So Y_0 <= X_1 is one row over the values, and X_0 <= X_1 another: both are exact, since X_0 is its own value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..scalar import Array


@dataclass(frozen=True)
class PropertyTensor:
    """An input or an output that a property declares. Networks know them by their order."""

    name: str
    shape: tuple[int, ...]
    network: str

    @property
    def cells(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class PropertyInterface:
    """Which tensors there are, and which cells of them are variables of the box.

    inputs, outputs   in the order of declaration; none where a property numbers cells alone (VNN-LIB 1.0): then those
                      of the network, one after the other
    variables         of every input cell: the variable that it is
    seen              variables that stand among the values, behind the outputs
    models            network -> the network that it is declared to be equal to
    """

    variables: tuple[int, ...]
    seen: tuple[int, ...] = ()
    inputs: tuple[PropertyTensor, ...] = ()
    outputs: tuple[PropertyTensor, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)

    @property
    def networks(self) -> tuple[str, ...]:
        """Their names, in the order of declaration."""
        return tuple(dict.fromkeys(t.network for t in (*self.inputs, *self.outputs)))

    def named(self, x: Array, y: Array) -> dict[str, Array]:
        """A point by the names of the tensors: variables x, values y.

        >>> import numpy as np
        >>> two = (PropertyTensor("A", (2,), "f"), PropertyTensor("B", (1, 1), "g"))
        >>> interface = PropertyInterface((0, 1, 0), (), two, (PropertyTensor("Y", (1,), "f"),))
        >>> interface.named(np.array([3.0, 4.0]), np.array([5.0]))["B"]
        array([[3.]])
        """
        cells = x.reshape(-1)[list(self.variables)]
        parts = [*_cut(self.inputs, cells), *_cut(self.outputs, y.reshape(-1))]
        each = dict(parts)
        order = [t.name for n in self.networks for t in (*self.inputs, *self.outputs) if t.network == n]
        return {name: each[name] for name in order}


def _cut(tensors: tuple[PropertyTensor, ...], cells: Array) -> Iterator[tuple[str, Array]]:
    start = 0
    for t in tensors:
        yield t.name, cells[start : start + t.cells].reshape(t.shape)
        start += t.cells
