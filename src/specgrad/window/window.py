"""Window: the product of axes; which cells an output reads, and which outputs read a cell."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..scalar import Array
from .axis import Axis, Strided
from .receptive_field import ReceptiveField
from .sizes import MAX_OUTPUTS, MAX_PAIRS, MAX_TAPS, Shape, budget
from .tap import Tap


class Native(NamedTuple):
    """A window as the arguments of a framework's own operator: stride, dilation, padding, and whether sizes round up
    (`ceil`).
    """

    stride: Shape
    dilation: Shape
    padding: Shape | None  # equal on both sides; None if the sizes do not follow from it
    ceil: bool


@dataclass(frozen=True, slots=True)
class Window:
    """The product of its axes: a relation between inputs of shape `size` and outputs of shape `out`.

    >>> from specgrad.window import strided
    >>> w = strided("max_pool", (5,), (3,), stride=(2,), padding=((1, 1),))
    >>> w.out
    (3,)
    >>> for tap in w.taps():
    ...     print(tap.position, *tap.slices())
    (0,) (slice(1, 3, None),) (slice(1, 4, 2),)
    (1,) (slice(0, 3, None),) (slice(0, 5, 2),)
    (2,) (slice(0, 2, None),) (slice(1, 4, 2),)
    """

    axes: tuple[Axis, ...]
    _hash: int = field(init=False, repr=False, compare=False, default=0)  # computed once

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.axes))  # windows are keys of every engine's cache

    def __hash__(self) -> int:
        return self._hash

    @property
    def rank(self) -> int:
        """Return the number of spatial axes."""
        return len(self.axes)

    @property
    def size(self) -> Shape:
        """Return the input cells per axis."""
        return tuple(a.size for a in self.axes)

    @property
    def out(self) -> Shape:
        """Return the output cells per axis."""
        return tuple(a.out for a in self.axes)

    @property
    def kernel(self) -> Shape:
        """Return the number of taps per axis."""
        return tuple(a.kernel for a in self.axes)

    @property
    def taps_count(self) -> int:
        """Return the number of taps of the kernel."""
        return math.prod(self.kernel)

    def number(self, position: Shape) -> int:
        """Return the place of the tap at `position` among all taps of the kernel, in row-major order."""
        return int(np.ravel_multi_index(position, self.kernel))

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """Return, per axis, the padding that makes the windows end exactly at the edge; negative: cells are cropped."""
        return tuple(a.pads for a in self.axes)

    @property
    def pads_anything(self) -> bool:
        """Return whether some axis is padded or cropped."""
        return any(p != (0, 0) for p in self.pads)

    @property
    def crops(self) -> tuple[tuple[int, int], ...]:
        """Return `pads` negated: the widths to cut off again."""
        return tuple((-lo, -hi) for lo, hi in self.pads)

    @property
    def interior(self) -> tuple[slice, ...]:
        """Return the slices of the padded input that are the input."""
        return tuple(a.interior for a in self.axes if isinstance(a, Strided))

    @property
    def ends_inside(self) -> bool:
        """Return whether some input cell is left after cropping what no window reads."""
        return all(n + hi > 0 for n, (_, hi) in zip(self.size, self.pads, strict=True))

    def unpadded(self) -> Window:
        """Return the window over an input that contains `pads` itself."""
        return Window(tuple(a.unpadded() for a in self.axes))

    def moved(self) -> list[Window]:
        """Return the windows that stand one cell further along an axis, on either side, if the padding has room for
        that."""
        windows = []
        for k, axis in enumerate(self.axes):
            for other in axis.moved() if isinstance(axis, Strided) else ():
                windows.append(Window((*self.axes[:k], other, *self.axes[k + 1 :])))
        return windows

    @property
    def padded(self) -> Shape:
        """Return the cells per axis with all padding; windows that end early do not make it smaller."""
        return tuple(a.size + sum(max(0, p) for p in a.pads) for a in self.axes)

    def adjoint(self) -> Window | None:
        """Return the window over the outputs that reads, for every cell, the outputs that read it; see Strided.adjoint.

        None if an axis has none.
        """
        axes = [a.adjoint() for a in self.axes if isinstance(a, Strided)]
        strided = tuple(a for a in axes if a is not None)
        return Window(strided) if len(strided) == self.rank else None

    def low_padding(self) -> Shape:
        """Return the low padding per axis."""
        return tuple(lo for lo, _ in self.pads)

    def output_padding(self) -> Shape | None:
        """Return what a framework's conv_transpose must add to reach `size` with equal padding; None if it cannot."""
        axes = [a for a in self.axes if isinstance(a, Strided)]
        extra = tuple(a.size - ((a.out - 1) * a.stride - 2 * a.lo + a.span) for a in axes)
        fits = all(0 <= n < max(a.stride, a.dilation) for n, a in zip(extra, axes, strict=True))
        return extra if fits else None

    def native(self) -> Native | None:
        """Return the arguments of a framework's own operator; None for adaptive axes."""
        axes = [a for a in self.axes if isinstance(a, Strided)]
        if len(axes) != self.rank:
            return None
        same = all(a.lo == a.hi for a in axes)
        ceil = [a.out - a.floor_out for a in axes]
        regular = same and (all(c == 0 for c in ceil) or all(a.out == a.ceil_out for a in axes))
        return Native(
            tuple(a.stride for a in axes),
            tuple(a.dilation for a in axes),
            tuple(a.lo for a in axes) if regular else None,
            any(ceil),
        )

    def steps(self) -> Native:
        """Return `native` of a window that must be strided; else raise ShapeError."""
        native = self.native()
        if native is None:
            raise ShapeError("window", f"adaptive cells have no stride; got {self}")
        return native

    @staticmethod
    def single(size: int) -> Strided:
        """Return an axis of `size` cells whose windows are its cells."""
        return Strided(size, 1, 1, 1, 0, 0, size)

    @property
    def has_empty(self) -> bool:
        """Return whether some output position has no tap inside the input."""
        return any(a.has_empty for a in self.axes)

    @property
    def reads_all(self) -> bool:
        """Return whether there is one output, and it reads every cell.

        >>> from specgrad.window import strided
        >>> strided("max_pool", (3,), (4,), padding=((0, 1),)).reads_all
        True
        """
        if not self.rank or self.out != (1,) * self.rank or 0 in self.size:
            return False
        return all(a.inside(0) == a.size for a in self.axes)

    @property
    def covers(self) -> int:
        """Return an upper bound of the (output, tap) pairs that read one input cell."""
        return math.prod(min(a.most_readers, a.out) for a in self.axes)

    @property
    def overlap(self) -> int:
        """Return how many windows read one input cell, at most; `covers` is a looser count, by which roundings are
        claimed."""
        return math.prod(a.overlap for a in self.axes)

    def taps(self) -> Iterator[Tap]:
        """Yield every tap that some output reads inside the input, in row-major order; raise ShapeError if they are too
        many."""
        self.check_walk()
        return self._walk_taps()

    def check_walk(self) -> None:
        """Raise ShapeError if visiting all taps would take minutes."""
        budget(math.prod(a.most_taps for a in self.axes), MAX_TAPS, "taps", self.axes)

    def _walk_taps(self) -> Iterator[Tap]:
        """Yield the taps that some output reads inside the input, in row-major order."""
        per_axis = [[a.tap(t) for t in range(a.kernel)] for a in self.axes]
        for position in itertools.product(*(range(k) for k in self.kernel)):
            pairs = [axis[t] for axis, t in zip(per_axis, position, strict=True)]
            outs, ins = (
                self._index([p[side] for p in pairs], sizes) for side, sizes in ((0, self.out), (1, self.size))
            )
            if all(_count_outputs(p[0]) for p in pairs):
                yield Tap(position, outs, ins)

    def reads(self, output: Shape) -> list[tuple[Shape, Shape | None]]:
        """Return (tap, input position) of one output position, in row-major order; None for a padded tap.

        ShapeError for more pairs than can be walked.

        >>> from specgrad.window import strided
        >>> strided("max_pool", (4,), (3,), stride=(2,), padding=((1, 0),)).reads((0,))
        [((0,), None), ((1,), (0,)), ((2,), (1,))]
        """
        budget(math.prod(a.most_taps for a in self.axes), MAX_PAIRS, "taps", self.axes)
        reads: list[tuple[Shape, Shape | None]] = []
        for pairs in itertools.product(*(a.reads(o) for a, o in zip(self.axes, output, strict=True))):
            cell = tuple(i for _, i in pairs)
            inside = all(0 <= i < n for i, n in zip(cell, self.size, strict=True))
            reads.append((tuple(t for t, _ in pairs), cell if inside else None))
        return reads

    def read_by(self, cell: Shape) -> list[tuple[Shape, Shape]]:
        """Return (tap, output position) of every output that reads an input cell.

        ShapeError for more pairs than can be walked.

        >>> from specgrad.window import strided
        >>> strided("max_pool", (4,), (3,), stride=(2,), padding=((1, 0),)).read_by((1,))
        [((0,), (1,)), ((2,), (0,))]
        """
        budget(math.prod(a.most_readers for a in self.axes), MAX_PAIRS, "readers", self.axes)
        pairs = itertools.product(*(a.read_by(i) for a, i in zip(self.axes, cell, strict=True)))
        return [(tuple(t for t, _ in p), tuple(o for _, o in p)) for p in pairs]

    def attributes(self) -> dict[str, Any] | None:
        """Return the arguments of a call that makes this window; None for adaptive axes.

        >>> from specgrad.window import strided
        >>> w = strided("max_pool", (5,), (2,), stride=(2,), padding=((0, 0),), ceil=True)
        >>> w.attributes()
        {'kernel': (2,), 'stride': (2,), 'padding': ((0, 0),), 'dilation': (1,), 'ceil': True}
        """
        axes = [a for a in self.axes if isinstance(a, Strided)]
        if len(axes) != self.rank:
            return None
        return {
            "kernel": self.kernel,
            "stride": tuple(a.stride for a in axes),
            "padding": tuple((a.lo, a.hi) for a in axes),
            "dilation": tuple(a.dilation for a in axes),
            "ceil": any(a.out != a.floor_out for a in axes),
        }

    @staticmethod
    def _index(parts: list[Any], sizes: Shape) -> tuple[Any, ...]:
        """Return slices, or an open mesh of positions if some axis is adaptive; `parts` are per axis, of the given
        sizes.
        """
        if all(isinstance(p, slice) for p in parts):
            return tuple(parts)
        arrays = [np.arange(n)[p] if isinstance(p, slice) else p for p, n in zip(parts, sizes, strict=True)]
        return np.ix_(*arrays)

    def inside_at(self, output: Shape) -> int:
        """Return the number of taps of one output inside the input."""
        return math.prod(a.inside(o) for a, o in zip(self.axes, output, strict=True))

    def counted_at(self, output: Shape) -> int:
        """[A1] Return the number of taps of one output inside the padded extent."""
        return math.prod(a.counted(o) for a, o in zip(self.axes, output, strict=True))

    def inside(self) -> Array:
        """Return, for every output, the number of taps inside the input (exact integers, shape `out`).

        ShapeError for more outputs than can be counted.
        """
        return self._product_over_axes(lambda a: a.inside)

    def counted(self) -> Array:
        """[A1] Return, for every output, the number of taps inside the padded extent.

        ShapeError for more outputs than can be counted.
        """
        return self._product_over_axes(lambda a: a.counted)

    def counts(self, padded: bool) -> list[Array]:
        """Return, per axis, the taps of every output inside the input, or (padded) the extent; `inside` is their
        product.

        ShapeError for more outputs than can be counted.
        """
        budget(max(self.out, default=1), MAX_TAPS, "outputs along an axis", self.axes)
        kinds = [a.counted if padded and isinstance(a, Strided) else a.inside for a in self.axes]
        return [np.array([count(o) for o in range(n)]) for count, n in zip(kinds, self.out, strict=True)]

    def _product_over_axes(self, count: Callable[[Axis], Callable[[int], int]]) -> Array:
        """Return the product over axes of count(axis)(output), per output, as exact integers of shape `out`.

        ShapeError if there are too many outputs to visit.
        """
        budget(math.prod(self.out), MAX_OUTPUTS, "outputs", self.axes)
        budget(max(self.out, default=1), MAX_TAPS, "outputs along an axis", self.axes)
        total = np.ones((), dtype=object)
        for axis in self.axes:
            total = np.multiply.outer(total, np.array([count(axis)(o) for o in range(axis.out)], dtype=object))
        return np.asarray(total, dtype=object)

    def reach(self) -> tuple[ReceptiveField | None, ...]:
        """Return the receptive field per axis; None: everything."""
        return tuple(a.reach() for a in self.axes)

    def reach_back(self) -> tuple[ReceptiveField | None, ...]:
        """Return, per axis, which outputs an input contributes to; None: everything."""
        return tuple(a.reach_back() for a in self.axes)

    def __str__(self) -> str:
        if not all(isinstance(a, Strided) for a in self.axes):
            return f"cells {'x'.join(map(str, self.out))}"
        words = [f"k{_values_text(self.kernel)}"]
        axes = [a for a in self.axes if isinstance(a, Strided)]
        for letter, values, default in (
            ("s", tuple(a.stride for a in axes), 1),
            ("d", tuple(a.dilation for a in axes), 1),
            ("p", tuple((a.lo, a.hi) if a.lo != a.hi else a.lo for a in axes), 0),
        ):
            if any(v != default for v in values):
                words.append(letter + _values_text(values))
        if any(a.out > a.floor_out for a in axes):
            words.append("ceil")
        return " ".join(words)


def _count_outputs(outs: Any) -> int:
    """Return the number of outputs of a tap along one axis; `outs` is a slice or an index."""
    return outs.stop - outs.start if isinstance(outs, slice) else len(outs)


def _values_text(values: tuple[Any, ...]) -> str:
    """Return values as text, once if all are equal."""
    texts = [f"({v[0]},{v[1]})" if isinstance(v, tuple) else str(v) for v in values]
    return texts[0] if len(set(texts)) == 1 else "x".join(texts)
