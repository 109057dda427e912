"""Matrices that are mostly zeros, cell by cell: selections, pairs, and other structure that was written as a matrix."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

MAX_WEIGHTS = 1 << 22  # weights of a matrix that is looked at
MAX_READER_SHARE = 1 / 8  # of cells that a source may be read by


class SparseMatrix(NamedTuple):
    """A sparse matrix by columns: per source the cells that read it and their weights, both (readers, sources).

    Where a source has fewer readers, cells that do not read it fill up, with weight 0.
    """

    cells: Tensor
    weights: Tensor

    def adjoint(self, a: Tensor) -> Tensor:
        """Return the transpose applied to a: (..., cells) to (..., sources).

        >>> import torch
        >>> matrix = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 5.0]])
        >>> sparse_of(matrix, share=1).adjoint(torch.tensor([1.0, 10.0, 100.0]))
        tensor([  0.,   2., 530.])
        """
        total = a[..., self.cells[0]] * self.weights[0]
        for cells, weights in zip(self.cells[1:], self.weights[1:], strict=True):
            total.addcmul_(a[..., cells], weights)
        return total


def sparse_of(matrix: Tensor, share: float = MAX_READER_SHARE) -> SparseMatrix | None:
    """Convert weights `matrix` (cells, sources) to sparse form; None if some source feeds more than `share` of the
    cells.
    """
    there = matrix != 0
    most = int(there.sum(0).max()) if matrix.numel() else 0
    if not 0 < most <= share * len(matrix):
        return None
    cells = there.byte().topk(most, 0).indices
    return SparseMatrix(cells, matrix.gather(0, cells))
