"""Tap: one offset of a kernel, and the only place where arrays are indexed by what a tap reads.

A tap's outputs, and the inputs they read, are slices (strided axes) or arrays of positions (adaptive ones). An integer,
an ellipsis and such an array in one index move axes silently: NumPy sets the indexed axes in front. So nobody else
indexes by a tap; leading axes are indexed before, as in `tap.write_outputs(y[t], value)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from ..errors import ShapeError
from ..scalar import Array
from .sizes import Shape

A = TypeVar("A")  # an array of NumPy or a tensor of PyTorch
Index = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Tap:
    """One tap: its position in the kernel, the outputs that read it inside the input, and the inputs they read.

    Outputs and inputs correspond one to one, and are those of the last d axes; any axes may stand before them. `_outs`
    and `_ins` are the slices of these outputs and inputs.

    >>> from specgrad.window import adaptive
    >>> first, second = adaptive("max_pool", (3,), (2,)).taps()
    >>> first.read_inputs(np.array([[5, 6, 7]])), second.read_inputs(np.array([[5, 6, 7]]))
    (array([[5, 6]]), array([[6, 7]]))
    >>> x = np.zeros((1, 3), int)
    >>> first.add_to_inputs(x, np.array([[1, 2]]))
    >>> x
    array([[1, 2, 0]])
    """

    position: Shape
    _outs: Index
    _ins: Index

    def read_inputs(self, x: A) -> A:
        """Return the cells that the tap's outputs read, in the outputs' order; a view if they are evenly spaced."""
        return cast(A, _read_cells(x, self._ins))

    def read_outputs(self, y: A) -> A:
        """Return the cells of the tap's outputs; a view if they are evenly spaced."""
        return cast(A, _read_cells(y, self._outs))

    def write_outputs(self, y: Any, value: Any) -> None:
        """Set the cells of y at the tap's outputs to `value`."""
        y[(..., *_index(y, self._outs))] = value

    def add_to_outputs(self, y: Any, value: Any) -> None:
        """Add `value` to the cells of y at the tap's outputs."""
        _add_at(y, self._outs, value)

    def add_to_inputs(self, x: Any, value: Any) -> None:
        """Add `value` to the cells of x that the tap's outputs read: the adjoint of `read_inputs`, also where two read
        one cell.
        """
        _add_at(x, self._ins, value)

    def join_inputs(self, join: np.ufunc, x: Array, value: Array) -> None:
        """Replace the cells that the tap's outputs read by join(cell, value), such as the smaller of both."""
        if _is_evenly_spaced(self._ins):
            here = x[(..., *self._ins)]
            join(here, value, out=here)
        else:
            join.at(x, (..., *self._ins), value)

    def transposed(self) -> Tap:
        """Return the tap with inputs and outputs exchanged."""
        return Tap(self.position, self._ins, self._outs)

    def slices(self) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the tap's outputs and inputs as slices; raise ShapeError for adaptive cells."""
        if not (_is_evenly_spaced(self._outs) and _is_evenly_spaced(self._ins)):
            raise ShapeError("window", f"the cells of an adaptive axis are no slice; tap {self.position}")
        return self._outs, self._ins


def _is_evenly_spaced(index: Index) -> bool:
    """Return whether an index consists of slices, so that its cells are evenly spaced."""
    return all(isinstance(i, slice) for i in index)


def _index(x: Any, index: Index) -> Index:
    """Return an index for the array x: as it is for NumPy, with tensors for a tensor."""
    if isinstance(x, np.ndarray) or _is_evenly_spaced(index):
        return index
    import torch

    return tuple(torch.from_numpy(i).to(x.device) for i in index)


def _read_cells(x: Any, index: Index) -> Any:
    """Return the cells of x at an index of its last axes."""
    return x[(..., *_index(x, index))]


def _add_at(x: Any, index: Index, value: Any) -> None:
    """Add `value` to x[..., index], where an index may name one cell twice."""
    if _is_evenly_spaced(index):
        x[(..., *index)] += value
    elif isinstance(x, np.ndarray):
        np.add.at(x, (..., *index), value)
    else:
        import torch

        lead, sizes = x.shape[: x.ndim - len(index)], x.shape[x.ndim - len(index) :]
        flat = torch.from_numpy(np.ravel_multi_index(np.broadcast_arrays(*index), sizes).ravel()).to(x.device)
        x.view(*lead, math.prod(sizes)).index_add_(len(lead), flat, value.flatten(len(lead)))
