"""`show_window`: what a window reads and one derivative of its operator, as numbers, text and SVG."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..graph.builder import trace
from ..graph.transforms.autodiff import vjp
from ..op import apply
from ..ops.avg_pool import AVG_POOL
from ..ops.conv import conv
from ..ops.max_pool import MAX_POOL, WINNER
from ..scalar import Array, exact
from ..svg import Picture
from ..window import Shape, Window, strided
from ..window.arguments import kernel_of, per_axis
from .window_svg import draw
from .window_text import text
from .window_values import WindowValues

MAX_CELLS_PER_AXIS = {1: 40, 2: 20}  # positions along an axis, by rank: what a page holds
DIGITS = "31415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679"
OPERATORS = ("max_pool", "avg_pool", "conv")


@dataclass(frozen=True, eq=False)
class WindowPicture(WindowValues):
    """A window over numbers: print it, save it as SVG, show it in a notebook, read its numbers."""

    @cached_property
    def picture(self) -> Picture:
        """The window as an SVG picture, drawn once."""
        return draw(self)

    @property
    def svg(self) -> str:
        """Return the picture as SVG text."""
        return self.picture.svg

    def _repr_svg_(self) -> str:
        """Return the picture as SVG text, for notebooks."""
        return self.svg

    def save(self, path: str | PathLike[str]) -> None:
        """Write the SVG to a file."""
        self.picture.save(path)

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return f"WindowPicture({self.title}; print it, or save(path) the SVG)"


def show_window(
    size: int | Shape,
    kernel: int | Shape,
    *,
    stride: int | Shape | None = None,
    padding: Any = 0,
    dilation: int | Shape = 1,
    ceil: bool = False,
    operator: str = "max_pool",
    values: Any = None,
    weights: Any = None,
    cotangents: Any = None,
    output: int | Shape | None = None,
) -> WindowPicture:
    """Return a picture of a window: the cells that it reads, padding, outputs, values, winners and gradients.

    The positions are those of the one window relation, i = stride*o + dilation*t - lo; the values, and the shares that
    go back, are those of the operator and of its derivative rule, run on exact numbers.

    Parameters
    ----------
    size : int or tuple of int
        Cells of the input: a number, or two for a plane.
    kernel : int or tuple of int
        Cells of a window, per axis.
    stride : int or tuple of int, optional
        Step from a window to the next; defaults as the operator's: the kernel, or 1 for conv.
    padding : int, tuple or str, default 0
        As for `max_pool`.
    dilation : int or tuple of int, default 1
        Step from a tap to the next inside a window.
    ceil : bool, default False
        Whether the last window may hang over.
    operator : str, default "max_pool"
        "max_pool", "avg_pool" or "conv".
    values : array_like, optional
        Of the input; digits unless given. Finite ones are taken exactly.
    weights : array_like, optional
        Of a convolution: 1, 2, 3, ... unless given.
    cotangents : array_like, optional
        Of the outputs, sent back by the adjoint: 1, 2, 3, ... unless given.
    output : int or tuple of int, optional
        The output that the picture of a plane points at: its middle unless given.

    Returns
    -------
    WindowPicture
        It prints as text; notebooks show it, `.save(path)` writes SVG.

    Raises
    ------
    ParameterError
        For another operator, more than two axes, weights of a pooling.
    ShapeError
        For sizes that are not positive ([W1]), and for a window that does not fit its padded input ([W2]).

    Examples
    --------
    >>> print(show_window(size=5, kernel=3, stride=2, padding=1))
    max_pool k3 s2 p1: 5 cells to 3
    outputs: floor((5 + 1 + 1 - 3) / 2) + 1 = 3
    <BLANKLINE>
    forward: a row is what one output reads; * wins
             -1    0     1     2     3     4     5
      x      .     3     1     4     1     5     .
      y[0]  [.]   [3]*  [1]                           = 3  max(3, 1)
      y[1]              [1]   [4]*  [1]               = 4  max(1, 4, 1)
      y[2]                          [1]   [5]*  [.]   = 5  max(1, 5)
    <BLANKLINE>
    backward: a row sends its gy back; a column adds up to gx
      gy[0]        1     0                            = 1
      gy[1]              0     2     0                = 2
      gy[2]                          0     3          = 3
      gx           1     0     2     0     3
    """
    if operator not in OPERATORS:
        raise ParameterError("show_window", f"operator must be one of {', '.join(OPERATORS)}; got {operator!r:.60}")
    sizes = (size,) if isinstance(size, int) else tuple(size)
    if len(sizes) not in MAX_CELLS_PER_AXIS or not all(isinstance(n, int) for n in sizes):
        raise ParameterError("show_window", f"size must be one number or two; got {size!r:.60}")
    window = _window(operator, sizes, kernel, stride, padding, dilation, ceil)
    x = _numbers("values", values, window.size, DIGITS)
    gy = _numbers("cotangents", cotangents, window.out)
    w = _numbers("weights", weights, window.kernel) if operator == "conv" else None
    if weights is not None and w is None:
        raise ParameterError("show_window", f"{operator} has no weights")
    y, jacobian = _values_and_jacobian(_batched_operator(operator, window, w), x, window)
    winners = _winners(x, window) if operator == "max_pool" else None
    gx = np.tensordot(gy, jacobian, axes=gy.ndim)
    return WindowPicture(operator, window, x, w, y, gy, gx, jacobian, winners, _chosen(window, output))


def _window(operator: str, sizes: Shape, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Window:
    """Return the window of these options over an input of `sizes`; ShapeError if it has too many cells for a picture.

    ParameterError for conv with `ceil`.
    """
    taps = kernel_of("show_window", kernel, len(sizes))
    if operator == "conv" and ceil:
        raise ParameterError("show_window", "conv has no ceil")
    step = (1 if operator == "conv" else taps) if stride is None else stride
    for name, value in (
        ("size", sizes),
        ("kernel", taps),
        ("stride", per_axis("show_window", "stride", step, len(sizes))),
    ):
        if max(value) > MAX_CELLS_PER_AXIS[len(sizes)]:
            raise ShapeError(
                "show_window", f"draws up to {MAX_CELLS_PER_AXIS[len(sizes)]} cells on an axis; got {name}={value}"
            )
    window = strided("show_window", sizes, taps, stride=step, padding=padding, dilation=dilation, ceil=ceil)
    longest = max(max(len(a.positions), a.out) for a in window.axes)
    if longest > MAX_CELLS_PER_AXIS[len(sizes)]:
        text = f"draws up to {MAX_CELLS_PER_AXIS[len(sizes)]} cells on an axis, padding included; got {longest}"
        raise ShapeError("show_window", text)
    return window


def _numbers(name: str, given: Any, shape: Shape, digits: str = "") -> Array:
    """Return `given`, the argument `name`, in `shape`, exact if all are finite.

    ShapeError for another number of them, ParameterError for no numbers.

    If None, the digits cyclically, or 1, 2, 3, ... without digits.
    """
    count = math.prod(shape)
    if given is None:
        cells = [int(digits[i % len(digits)]) if digits else i + 1 for i in range(count)]
        return exact(np.array(cells).reshape(shape))
    array = np.asarray(given)
    if array.size != count:
        raise ShapeError("show_window", f"{name} must be {count} numbers; got {array.size}")
    try:
        finite = array.dtype == object or bool(np.isfinite(array).all())
        return exact(array.reshape(shape)) if finite else array.reshape(shape).astype(float)
    except (TypeError, ValueError):
        raise ParameterError("show_window", f"{name} must be numbers; got {given!r:.60}") from None


def _batched_operator(operator: str, window: Window, weights: Array | None) -> Callable[[Any], Any]:
    """Return the operator as a function of a batch of inputs (batch, *size), one channel each.

    With `weights` it is a convolution; without, avg_pool if `operator` is "avg_pool", else max_pool.
    """
    if weights is not None:
        given = {k: v for k, v in (window.attributes() or {}).items() if k not in ("kernel", "ceil")}
        return lambda x: conv(weights[None, None], None, x[:, None], **given)[:, 0]
    if operator == "avg_pool":
        return lambda x: apply(AVG_POOL, x, window=window, divisor="padded")
    return lambda x: apply(MAX_POOL, x, window=window)


def _values_and_jacobian(f: Callable[[Any], Any], x: Array, window: Window) -> tuple[Array, Array]:
    """Return y = f(x) and dy/dx, of shape (*out, *size): one vjp over a batch with one unit cotangent per output."""
    count = math.prod(window.out)
    plain = x.dtype != object
    one = np.eye(count) if plain else exact(np.eye(count, dtype=int))
    batch = np.broadcast_to(x, (count, *x.shape)).copy()
    y, rows = vjp(trace(f, batch.shape))(batch, one.reshape(count, *window.out))
    return y[0], rows.reshape(window.out + window.size)


def _winners(x: Array, window: Window) -> dict[Shape, Shape | None]:
    """Return, per output, the index of the input cell that the maximum takes; None if its window has no cell inside."""
    flat = apply(WINNER, x, window=window)
    cells = {o: int(flat[o]) for o in np.ndindex(*window.out)}
    return {o: None if c < 0 else tuple(map(int, np.unravel_index(c, window.size))) for o, c in cells.items()}


def _chosen(window: Window, output: int | Shape | None) -> Shape:
    """Return the output index that a picture points at: `output` once checked, or the middle one.

    ShapeError if it is no output.
    """
    if output is None:
        return tuple(n // 2 for n in window.out)
    index = (output,) if isinstance(output, int) else tuple(output)
    if len(index) != window.rank or not all(0 <= i < n for i, n in zip(index, window.out, strict=True)):
        raise ShapeError("show_window", f"output {index} is no output; their shape is {window.out}")
    return index
