"""How the tensors of one or several networks map to the flat vectors that a property constrains.

A property has variables, which a box bounds, and values, which its rows read:

    variables   one per input cell; cells that the property calls equal are one variable
    values      the cells of all outputs, one after the other, and then the variables that inequalities name
                (`named_inputs`)

So Y_0 <= X_1 is one row over the values, and X_0 <= X_1 another: both are exact, since X_0 is its own value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..scalar import Array


@dataclass(frozen=True)
class PropertyTensor:
    """An input or output tensor that a property declares; networks match their tensors by order, not by name.

    shape     as declared
    network   name of the network whose tensor it is
    """

    name: str
    shape: tuple[int, ...]
    network: str

    @property
    def cells(self) -> int:
        """Return the number of elements of the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class PropertyInterface:
    """The tensors that a property declares, and the variable of each of their input cells.

    inputs, outputs   in the order of declaration; empty if the property only numbers cells (VNN-LIB 1.0): then they are
                      those of the network, one after the other
    variables         variable index of every input cell
    named_inputs      variables that inequalities name: they are appended to the values, behind the outputs
    models            network -> the network that it is declared to be equal to
    """

    variables: tuple[int, ...]
    named_inputs: tuple[int, ...] = ()
    inputs: tuple[PropertyTensor, ...] = ()
    outputs: tuple[PropertyTensor, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)

    @property
    def networks(self) -> tuple[str, ...]:
        """The names of the networks, in the order of declaration."""
        return tuple(dict.fromkeys(t.network for t in (*self.inputs, *self.outputs)))

    def named(self, x: Array, y: Array) -> dict[str, Array]:
        """Return {tensor name: array} of a point with variables x and values y.

        >>> import numpy as np
        >>> two = (PropertyTensor("A", (2,), "f"), PropertyTensor("B", (1, 1), "g"))
        >>> interface = PropertyInterface((0, 1, 0), (), two, (PropertyTensor("Y", (1,), "f"),))
        >>> interface.named(np.array([3.0, 4.0]), np.array([5.0]))["B"]
        array([[3.]])
        """
        cells = x.reshape(-1)[list(self.variables)]
        parts = [*_tensor_slices(self.inputs, cells), *_tensor_slices(self.outputs, y.reshape(-1))]
        each = dict(parts)
        order = [t.name for n in self.networks for t in (*self.inputs, *self.outputs) if t.network == n]
        return {name: each[name] for name in order}


def _tensor_slices(tensors: tuple[PropertyTensor, ...], cells: Array) -> Iterator[tuple[str, Array]]:
    """Yield (name, array) of each tensor, cut in order from the flat vector `cells`."""
    start = 0
    for t in tensors:
        yield t.name, cells[start : start + t.cells].reshape(t.shape)
        start += t.cells
