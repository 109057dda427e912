"""Output shapes as functions of shapes, from the window relation: no array, no graph.

>>> from specgrad import shapes
>>> shapes.pool((3, 7, 7), (2, 2))
(3, 3, 3)
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import window
from ..window import Padding, PerAxis, Shape
from .conv import CONV, CONV_TRANSPOSE, conv_window, transpose_window


def pool(
    x: Sequence[int],
    kernel: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil: bool = False,
    rank: int | None = None,
) -> Shape:
    """Return the output shape of a pooling: floor((n + lo + hi - e*(k-1) - 1) / s) + 1 per axis.

    x is the input's shape; ceil rounds up in place of floor, as [W3] says. The stride defaults to the kernel; an int
    kernel needs rank=. Rules: [W1] [W2] [W3]. ShapeError where no window fits, ParameterError for arguments that are no
    such numbers or words.

    >>> pool((3, 7, 7), 2, rank=2, ceil=True)
    (3, 4, 4)
    """
    shape = tuple(x)
    win = window.pooling("pool", shape, kernel, rank=rank, stride=stride, padding=padding, dilation=dilation, ceil=ceil)
    return shape[: len(shape) - win.rank] + win.out


def conv(
    w: Sequence[int],
    x: Sequence[int],
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Shape:
    """Return the output shape of conv(w, b, x): floor((n + lo + hi - e*(k-1) - 1) / s) + 1 per axis. [W1] [W2] [C1].

    ShapeError for shapes that do not fit, ParameterError for arguments that are no such numbers or words.

    >>> conv((8, 3, 3, 3), (1, 3, 32, 32), stride=2, padding=1)
    (1, 8, 16, 16)
    """
    win = conv_window(tuple(x), tuple(w), stride, padding, dilation, groups)
    return CONV.shape(tuple(x), tuple(w), window=win, groups=groups)


def conv_transpose(
    w: Sequence[int],
    x: Sequence[int],
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    output_padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Shape:
    """Return the output shape of conv_transpose: (n-1)*s - lo - hi + e*(k-1) + 1 + output_padding. [W1] [C1] [C2].

    ShapeError for shapes that do not fit, ParameterError for arguments that are no such numbers or words.

    >>> conv_transpose((3, 8, 2, 2), (1, 3, 16, 16), stride=2)
    (1, 8, 32, 32)
    """
    win = transpose_window(tuple(x), tuple(w), stride, padding, output_padding, dilation, groups)
    return CONV_TRANSPOSE.shape(tuple(x), tuple(w), window=win, groups=groups)
