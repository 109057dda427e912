"""Boxes: a low and a high end per cell, in float64, and the arrays of other frameworks on their way in and out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import html_page
from ..errors import ShapeError
from ..graph.ir.tree import Tree, leaves, transform, walk
from ..rounding.arithmetic import REFERENCE, Arithmetic, Format
from ..rounding.ball import Ball, hull
from ..scalar import Array, upward


@dataclass(frozen=True, eq=False)
class Box:
    """Every array x with low <= x <= high, cell by cell.

    Results come back as the same kind of arrays. Ends are taken as float64, exactly; where a deployed network's format
    does not hold an end, its bounds hold for the inputs rounded to it as well. Integers are numbers like any other:
    between the bytes 3 and 5 lies 4.5 too.

    Parameters
    ----------
    low : array_like
        Lower ends, one per cell.
    high : array_like
        Upper ends, of the same shape.

    Raises
    ------
    ShapeError
        Unless low and high have one shape and low <= high everywhere, NaN excluded.

    Examples
    --------
    >>> Box([0.0, 1.0], [1.0, 1.0]).width
    array([1., 0.])
    >>> Box(np.uint8([200]), np.uint8([255])).width + Box(np.uint8([0]), np.uint8([255])).high
    array([310.])
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        low, high = end_of(self.low), end_of(self.high)
        for name, end, given in (("low", low, self.low), ("high", high, self.high)):
            if not _is_tensor(given):
                object.__setattr__(self, name, end)
        if low.shape != high.shape:
            raise ShapeError("box", f"low and high must have one shape; got {low.shape} and {high.shape}")
        if not np.all(low <= high):
            raise ShapeError("box", f"low must not exceed high, nor be NaN; got {_first_disordered(low, high)}")

    @staticmethod
    def around(x: Any, eps: Any, low: float | None = None, high: float | None = None) -> Box:
        """Return the box x - eps to x + eps rounded outward, kept between low and high (None: no limit), of x's kind of
        arrays.

        eps is a number, or an array that broadcasts to x.

        >>> box = Box.around(np.array([0.5, 1.0]), 0.25, low=0, high=1)
        >>> box.low, box.high
        (array([0.25, 0.75]), array([0.75, 1.  ]))
        """
        middle, reach = end_of(x), end_of(eps)
        ends = [_add_outward(middle, -reach), _add_outward(middle, reach)]
        ends = [e if low is None else np.maximum(e, low) for e in ends]
        ends = [e if high is None else np.minimum(e, high) for e in ends]
        return box_like(Box(*ends), x)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the input that the box is of: that of `low` and of `high`."""
        return tuple(self.low.shape)

    @property
    def width(self) -> Any:
        """high - low, cell by cell."""
        return self.high - self.low

    def contains(self, x: Any) -> Array:
        """Bool array: whether x lies between low and high, cell by cell.

        >>> Box([0.0, 0.0], [1.0, 1.0]).contains([0.5, 2.0])
        array([ True, False])
        """
        given = numpy_of(x)
        return np.asarray((given >= numpy_of(self.low)) & (given <= numpy_of(self.high)))

    def __repr__(self) -> str:
        return f"Box({self.low!r}, {self.high!r})"


def _add_outward(x: Array, step: Array) -> Array:
    """x + step, rounded away from x: one float64 further if the sum is not exact."""
    total = x + step
    exact = (total - x == step) & (total - (total - x) == x)
    return np.where(exact, total, np.nextafter(total, np.where(step < 0, -np.inf, np.inf)))


def _first_disordered(low: Array, high: Array) -> str:
    """Text with the first cell where low <= high fails."""
    where = tuple(np.argwhere(~(low <= high))[0].tolist())
    return f"{low[where]} and {high[where]} at {where}"


@dataclass(frozen=True, eq=False)
class Bounds:
    """Result of `ibp` and `crown`: a box per output, and per layer by its name.

    Attributes
    ----------
    outputs : Box, or structure of them
        The box of the output, or boxes in the structure of the graph's outputs.
    layers : mapping of str to Box
        The box of every layer, by its name.
    objective : Box or None
        Where rows were given: the box of every row's value.
    unbounded : tuple of str
        Names of layers about which nothing is proven: overflow is possible, a divisor may be 0, ...
    infeasible : bool
        Whether no execution fits the splits that were asked for.
    roundings : int
        R: the most that a term of a sum, of nodes merged where the execution is fused, may meet.
    deployment : mapping of str to str
        The executions that all this holds for, in sentences.

    Examples
    --------
    >>> import specgrad as sg
    >>> from specgrad.bounds import ibp
    >>> bounds = ibp(sg.trace(lambda x: sg.relu(x) * 2, (1,)), Box([-1.0], [3.0]), deployed=False)
    >>> bounds.outputs.high, sorted(bounds.layers), bounds.unbounded
    (array([6.]), ['mul', 'relu', 'x'], ())
    """

    outputs: Tree
    layers: Mapping[str, Box]
    objective: Box | None = None
    unbounded: tuple[str, ...] = field(default=())
    infeasible: bool = False
    roundings: int = 0
    deployment: Mapping[str, str] = field(default_factory=dict)

    @property
    def low(self) -> Any:
        """Lower bounds of the objective, or of the only output.

        AttributeError where there are several outputs and no rows.
        """
        return (self.objective or self.outputs).low

    @property
    def high(self) -> Any:
        """Upper bounds of the objective, or of the only output.

        AttributeError where there are several outputs and no rows.
        """
        return (self.objective or self.outputs).high

    def __repr__(self) -> str:
        if self.infeasible or self.unbounded:
            what = "no execution fits" if self.infeasible else f"nothing is proven of {', '.join(self.unbounded[:3])}"
            return f"Bounds({what})"
        rows = self._rows(self._named_outputs())
        return f"Bounds({', '.join(f'{name} {shape} in {ends}' for name, shape, ends in rows)})"

    def _named_outputs(self) -> list[tuple[str, Box]]:
        """Return the boxes of the outputs, or of the objective, by name."""
        asked = [("objective", self.objective)] if self.objective is not None else []
        outputs = [(path or "output", box) for path, box in walk(self.outputs, leaf=lambda t: isinstance(t, Box))]
        return [*asked, *outputs]

    def _rows(self, boxes: Iterable[tuple[str, Box]]) -> list[tuple[str, str, str]]:
        """Return (name, shape, range) per box, as text; ranges are rounded outward."""
        rows = []
        for name, box in boxes:
            low, high = numpy_of(box.low), numpy_of(box.high)
            ends = f"{-float(upward(-low.min())):g} to {upward(high.max())}" if low.size else "no cell"
            rows.append((name, "x".join(map(str, low.shape)) or "one number", ends))
        return rows

    def _repr_html_(self) -> str:
        """Return the ranges of outputs and layers as HTML for notebooks."""
        proven = not self.unbounded and not self.infeasible
        rows = self._rows([*self._named_outputs(), *self.layers.items()]) if proven else []
        said = [] if proven else [repr(self)]
        return html_page.fragment("bounded" if proven else "unbounded", said, ("value", "shape", "all cells in"), rows)


# --- arrays of other frameworks ------------------------------------------------------------------------------------


def _is_tensor(x: Any) -> bool:
    """Whether x is a PyTorch or JAX array."""
    return type(x).__module__.partition(".")[0] in ("torch", "jax", "jaxlib")


def numpy_of(x: Any) -> Array:
    """Convert any framework's array, or a list, to float64; integers stay integers."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = x.double().numpy() if x.dtype.is_floating_point else x.numpy()
    array = np.asarray(x)
    if array.dtype == object or array.dtype.kind in "iub":
        return array
    return array.astype(np.float64)


def end_of(x: Any) -> Array:
    """Convert an end of a box to float64; integers that float64 does not hold are refused."""
    end = numpy_of(x)
    if end.dtype.kind not in "iub":
        return end
    if end.size and max(int(end.max()), -int(end.min())) > 2**53:
        raise ShapeError("box", f"ends must be numbers that float64 holds; got integers up to {end.max()}")
    return end.astype(np.float64)


def like(x: Array, example: Any, direction: float) -> Any:
    """Convert a float64 end to the kind of array that `example` is, on its device, never rounded inward; `direction` is
    -inf for a lower end, inf for an upper one.
    """
    package = type(example).__module__.partition(".")[0]
    if package == "torch":
        import torch

        return torch.from_numpy(np.ascontiguousarray(x)).to(example.device)
    if package in ("jax", "jaxlib"):
        return _to_jax(x, direction)
    return x


def _to_jax(x: Array, direction: float) -> Any:
    """Convert to a JAX array; where JAX uses float32, round towards `direction` (-inf or inf)."""
    import jax

    if jax.numpy.asarray(0.0).dtype == np.float32:
        with np.errstate(over="ignore"):
            single = x.astype(np.float32)
        short = single < x if direction > 0 else single > x
        x = np.where(short, np.nextafter(single, np.float32(direction)), single)
    return jax.numpy.asarray(x)


def widened(low: Array, high: Array, form: Format) -> tuple[Array, Array]:
    """Return (low, high) rounded outward to numbers of a format: inputs that it does not hold are rounded once.

    Rounding never reorders numbers, so between two numbers of the format it stays there: only an end that is none of
    them moves, to the next one outward (infinity beyond the largest).

    >>> low, high = widened(np.array([0.1]), np.array([0.5]), Arithmetic("float32").format)
    >>> bool(np.float32(0.1) >= low), bool(low < 0.1), high
    (True, True, array([0.5]))
    """
    if form.digits >= REFERENCE.digits:  # every end is a float64
        return low, high
    return _next_in_format(low, form, np.floor), _next_in_format(high, form, np.ceil)


def _next_in_format(x: Array, form: Format, toward: Any) -> Array:
    """Return the next number of the format at or below x (toward: np.floor), or at or above it (np.ceil), cell by cell.

    Beyond the largest number it is infinite, or the largest where that is nearer to x on this side.
    """
    power = np.maximum(np.frexp(x)[1] - 1, form.lowest) - (form.digits - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.ldexp(toward(np.ldexp(x, -power)), power)
        near = np.where(near > form.largest, form.largest if toward is np.floor else np.inf, near)
        near = np.where(near < -form.largest, -form.largest if toward is np.ceil else -np.inf, near)
    return np.where(np.isinf(x), x, near)


def ball_of(given: Any, form: Format) -> Any:
    """Convert a Box to a ball in the format `form`, widened to its numbers; anything else that is given to a float64
    array.

    Refused: integers that float64 does not hold.
    """
    if isinstance(given, Box):
        return hull(*widened(end_of(given.low), end_of(given.high), form))
    return numpy_of(given)


def box_of(ball: Ball) -> Box:
    """Convert a ball to a Box; NaN ends become infinite."""
    low, high = ball.low, ball.high
    return Box(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))


def example_of(trees: Tree) -> Any:
    """Return the first array in `trees`, the arguments of a call: results become arrays of its kind. None if there is
    none.
    """
    for leaf in leaves(trees):
        return leaf.low if isinstance(leaf, Box) else leaf
    return None


def box_like(box: Box, example: Any) -> Box:
    """Convert a box to the kind of array that `example` is, rounded outward."""
    return Box(like(numpy_of(box.low), example, -np.inf), like(numpy_of(box.high), example, np.inf))


def balls_of(args: tuple[Tree, ...], arithmetic: Arithmetic) -> tuple[Tree, ...]:
    """Convert arguments of a graph to balls and arrays, inputs rounded to the arithmetic's format."""
    return tuple(transform(lambda _, leaf: ball_of(leaf, arithmetic.format), arg) for arg in args)
