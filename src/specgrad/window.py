"""The window relation: which input cell does tap t of output position o read?

Everything windowed in this library (conv, conv_transpose, every pooling, receptive fields, halos) is this
relation, and nothing outside this file computes an input coordinate. Per spatial axis

    strided:   tap t of output o reads input  i = s*o + e*t - lo ;  i outside [0, n) is a padded tap
               out = floor((n + lo + hi - e*(k-1) - 1) / s) + 1
    adaptive:  output o reads the cells  [floor(o*n/out), ceil((o+1)*n/out))

A window over d axes is the product of its axes; taps are visited in row-major order.

Rules: [W1] k, s, e, n >= 1 and lo, hi >= 0. [W2] e*(k-1)+1 <= n + lo + hi. [W3] `ceil` rounds the output size
up, then drops a last window that would start in the high padding; so under `ceil` the last window may hang over the
padded input by up to s-1 cells, and [W2] allows as much (PyTorch's max_pool1d(2 cells, 3, 2, ceil) is one window).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from . import reach
from .errors import ParameterError, ShapeError
from .reach import Reach
from .scalar import Array

Shape = tuple[int, ...]
Padding = int | str | tuple[int, ...] | tuple[tuple[int, int], ...]
PerAxis = int | tuple[int, ...]


MOST_TAPS = 10**7  # a kernel of 3162 x 3162; a walk over them takes a minute

Built = TypeVar("Built")


def whole(value: Any) -> Any:
    """Sizes that an engine's tracer has left open (they cannot be hashed), as the numbers they have now."""
    if isinstance(value, tuple | list):
        return type(value)(whole(v) for v in value)
    return operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else value


def _plain(value: Any) -> bool:
    """Nothing inside a tuple that equals an int without being one: 2 == 2.0 == True would share one entry."""
    for v in value:
        kind = type(v)
        if kind is not int and (kind is not tuple or not _plain(v)):
            return False
    return True


def remembered(build: Callable[..., Built]) -> Callable[..., Built]:
    """Cache by arguments and their types; lists, open sizes and what only equals an int do without.

    An error of ours that is a TypeError is raised by the second try as by the first.
    """
    cached = lru_cache(maxsize=4096, typed=True)(build)

    def call(*args: Any) -> Built:
        try:
            for a in args:
                if isinstance(a, tuple) and not _plain(a):
                    return build(*whole(args))
            return cached(*args)
        except TypeError:
            return build(*whole(args))

    return call


class Native(NamedTuple):
    """A window in the words of a framework's own operator."""

    stride: Shape
    dilation: Shape
    padding: Shape | None  # equal on both sides; None if the sizes do not follow from it
    ceil: bool


class Tap(NamedTuple):
    """One tap: its position in the kernel, the outputs that read it inside the input, and the inputs they read.

    `outs` and `ins` index the last d axes (after `...`) and correspond one to one.
    """

    position: Shape
    outs: tuple[Any, ...]
    ins: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Strided:
    """One axis of the relation i = stride*o + dilation*t - lo."""

    size: int
    kernel: int
    stride: int
    dilation: int
    lo: int
    hi: int
    out: int

    def __post_init__(self) -> None:
        if min(self.size, self.kernel, self.stride, self.dilation, self.out) < 1 or min(self.lo, self.hi) < 0:
            raise ShapeError("window", f"sizes must be positive and padding not negative; got {self}", rule="W1")
        if self.out > self.floor_out + 1:
            raise ShapeError("window", f"at most {self.floor_out + 1} output positions fit; got {self}", rule="W2")

    @property
    def most_taps(self) -> int:
        return self.kernel

    @property
    def span(self) -> int:
        """Cells from the first tap to the last."""
        return self.dilation * (self.kernel - 1) + 1

    def reads(self, o: int) -> list[tuple[int, int]]:
        """(tap, input cell) of output o; a cell outside [0, size) is padding."""
        return [(t, self.stride * o + self.dilation * t - self.lo) for t in range(self.kernel)]

    @property
    def floor_out(self) -> int:
        """The output size without `ceil`."""
        return (self.size + self.lo + self.hi - self.span) // self.stride + 1

    def tap(self, t: int) -> tuple[slice, slice]:
        """The outputs whose tap t is inside the input, and what they read: two slices of equal length."""
        shift = self.dilation * t - self.lo
        first = max(0, -(shift // self.stride))  # the first o with stride*o + shift >= 0
        last = min(self.out - 1, (self.size - 1 - shift) // self.stride)
        count = max(0, last - first + 1)
        if count == 0:
            return slice(0, 0), slice(0, 0)
        start = self.stride * first + shift
        return slice(first, first + count), slice(start, start + self.stride * (count - 1) + 1, self.stride)

    def _taps_between(self, low: int, high: int) -> list[int]:
        """For every output: how many taps read a position in [low, high)."""

        def count(o: int) -> int:
            base = self.stride * o - self.lo
            first = max(0, -((base - low) // self.dilation))
            last = min(self.kernel - 1, (high - 1 - base) // self.dilation)
            return max(0, last - first + 1)

        return [count(o) for o in range(self.out)]

    def inside(self) -> list[int]:
        """For every output: the taps inside the input."""
        return self._taps_between(0, self.size)

    def counted(self) -> list[int]:
        """[A1] For every output: the taps inside the padded extent [-lo, n+hi)."""
        return self._taps_between(-self.lo, self.size + self.hi)

    @property
    def pads(self) -> tuple[int, int]:
        """The padding that makes the windows end exactly at the edge; a negative high side crops."""
        return self.lo, (self.out - 1) * self.stride + self.span - self.size - self.lo

    def adjoint(self) -> Strided | None:
        """Stride 1: cell i is read by the outputs i + lo - e*t, a window of as many taps over the outputs.

        None at other strides, and where padding beyond the window would have to be cut off.
        """
        lo, hi = self.span - 1 - self.lo, self.size - self.out + self.lo
        if self.stride != 1 or lo < 0 or hi < 0:
            return None
        return Strided(self.out, self.kernel, 1, self.dilation, lo, hi, self.size)

    def spaced(self) -> tuple[int, int]:
        """Padding with which the outputs, set `stride` apart, correlate with the flipped kernel into the inputs."""
        return self.span - 1 - self.lo, self.size + self.lo - self.stride * (self.out - 1) - 1

    def phase_count(self) -> int:
        """Cells of every residue of the stride, counted from the low padding on."""
        return -(-(self.lo + self.size) // self.stride)

    def cropped(self) -> tuple[int, int]:
        """Where the input stands among the cells counted from the low padding on."""
        return self.lo, self.lo + self.size

    def unpadded(self) -> Strided:
        """The same windows over an input that carries `pads` itself."""
        return Strided(self.size + sum(self.pads), self.kernel, self.stride, self.dilation, 0, 0, self.out)

    def over(self, outs: int) -> Strided:
        """The same windows for a patch of outputs, over the cells they read, padded ones among them."""
        return Strided(self.stride * (outs - 1) + self.span, self.kernel, self.stride, self.dilation, 0, 0, outs)

    def reach(self) -> Reach:
        """What an output depends on."""
        return reach.strided(self.stride, -self.lo, self.span - 1 - self.lo)

    def reach_back(self) -> Reach:
        """Which outputs an input contributes to: the relation read backwards."""
        return reach.backwards(self.stride, -self.lo, self.span - 1 - self.lo)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """One axis cut into `out` cells, cell o being [floor(o*n/out), ceil((o+1)*n/out))."""

    size: int
    out: int

    def __post_init__(self) -> None:
        if min(self.size, self.out) < 1:
            raise ShapeError("window", f"sizes must be positive; got {self}", rule="W1")

    def start(self, o: int) -> int:
        return o * self.size // self.out

    def end(self, o: int) -> int:
        return -(-(o + 1) * self.size // self.out)

    @property
    def most_taps(self) -> int:
        """No cell is longer than this, which needs no walk."""
        return min(self.size, -(-self.size // self.out) + 1)

    @property
    def kernel(self) -> int:
        """The longest cell."""
        return max(self.inside())

    def tap(self, t: int) -> tuple[Array, Array]:
        outs = [o for o in range(self.out) if self.start(o) + t < self.end(o)]
        return np.array(outs, dtype=np.intp), np.array([self.start(o) + t for o in outs], dtype=np.intp)

    def inside(self) -> list[int]:
        return [self.end(o) - self.start(o) for o in range(self.out)]

    counted = inside
    pads = (0, 0)

    def unpadded(self) -> Adaptive:
        return self

    def reads(self, o: int) -> list[tuple[int, int]]:
        """(tap, input cell) of output o."""
        return list(enumerate(range(self.start(o), self.end(o))))

    def clamped(self, t: int) -> list[int]:
        """For every output the cell of tap t, or the cell's last one where it is shorter: the same maximum."""
        return [min(self.start(o) + t, self.end(o) - 1) for o in range(self.out)]

    def matrix(self) -> Array:
        """(out, size), 1 where an output reads a cell."""
        return np.array([[self.start(o) <= i < self.end(o) for i in range(self.size)] for o in range(self.out)])

    def reach(self) -> None:
        return None  # cells are not evenly spaced: callers treat the axis as wholly read

    reach_back = reach


Axis = Strided | Adaptive


@dataclass(frozen=True, slots=True)
class Window:
    """The product of its axes: a relation between inputs of shape `size` and outputs of shape `out`.

    >>> w = strided("max_pool", (5,), (3,), stride=(2,), padding=((1, 1),))
    >>> w.out
    (3,)
    >>> for tap in w.taps():
    ...     print(tap.position, tap.outs, tap.ins)
    (0,) (slice(1, 3, None),) (slice(1, 4, 2),)
    (1,) (slice(0, 3, None),) (slice(0, 5, 2),)
    (2,) (slice(0, 2, None),) (slice(1, 4, 2),)
    """

    axes: tuple[Axis, ...]
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.axes))  # windows are keys of every engine's cache

    def __hash__(self) -> int:
        return self._hash

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def size(self) -> Shape:
        return tuple(a.size for a in self.axes)

    @property
    def out(self) -> Shape:
        return tuple(a.out for a in self.axes)

    @property
    def kernel(self) -> Shape:
        return tuple(a.kernel for a in self.axes)

    @property
    def taps_count(self) -> int:
        return math.prod(self.kernel)

    def number(self, position: Shape) -> int:
        """A tap's place among all taps of the kernel, in row-major order."""
        return int(np.ravel_multi_index(position, self.kernel))

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """Per axis, the padding that makes the windows end exactly at the edge."""
        return tuple(a.pads for a in self.axes)

    @property
    def pads_anything(self) -> bool:
        return any(p != (0, 0) for p in self.pads)

    def unpadded(self) -> Window:
        """The same windows over an input that carries `pads` itself."""
        return Window(tuple(a.unpadded() for a in self.axes))

    def adjoint(self) -> Window | None:
        """The window over the outputs that reads, for every cell, the outputs that read it; see Strided.adjoint."""
        axes = [a.adjoint() for a in self.axes if isinstance(a, Strided)]
        found = tuple(a for a in axes if a is not None)
        return Window(found) if len(found) == self.rank else None

    def low_padding(self) -> Shape:
        return tuple(lo for lo, _ in self.pads)

    def output_padding(self) -> Shape | None:
        """What a framework's conv_transpose must add to reach `size` with equal padding; None if it cannot."""
        axes = [a for a in self.axes if isinstance(a, Strided)]
        extra = tuple(a.size - ((a.out - 1) * a.stride - 2 * a.lo + a.span) for a in axes)
        fits = all(0 <= n < max(a.stride, a.dilation) for n, a in zip(extra, axes, strict=True))
        return extra if fits else None

    def native(self) -> Native | None:
        """The arguments a framework's own operator takes; None for adaptive axes."""
        axes = [a for a in self.axes if isinstance(a, Strided)]
        if len(axes) != self.rank:
            return None
        same = all(a.lo == a.hi for a in axes)
        ceil = [a.out - a.floor_out for a in axes]
        regular = same and (all(c == 0 for c in ceil) or self._is_ceil(axes))
        return Native(
            tuple(a.stride for a in axes),
            tuple(a.dilation for a in axes),
            tuple(a.lo for a in axes) if regular else None,
            any(ceil),
        )

    @staticmethod
    def single(size: int) -> Strided:
        """An axis whose windows are its cells."""
        return Strided(size, 1, 1, 1, 0, 0, size)

    @staticmethod
    def _is_ceil(axes: list[Strided]) -> bool:
        """Whether the output sizes are those that `ceil` gives."""
        return all(a == _axis(a.size, a.kernel, a.stride, a.dilation, a.lo, a.hi, True) for a in axes)

    @property
    def has_empty(self) -> bool:
        """Whether some output position has no tap inside the input."""
        return any(min(a.inside()) == 0 for a in self.axes)

    @property
    def covers(self) -> int:
        """An upper bound on the (output, tap) pairs that read one input cell."""
        return math.prod(min(a.kernel, a.out) for a in self.axes)

    def taps(self) -> Iterator[Tap]:
        """Every tap that some output reads inside the input, in row-major order; too many are refused before."""
        self.check_walk()
        return self._walk()

    def check_walk(self) -> None:
        """Refuse to visit tap by tap what would take minutes."""
        count = math.prod(a.most_taps for a in self.axes)
        if count > MOST_TAPS:
            raise ShapeError("window", f"{count:,} taps; at most {MOST_TAPS:,} are walked; got {self.axes}", rule="W1")

    def _walk(self) -> Iterator[Tap]:
        per_axis = [[a.tap(t) for t in range(a.kernel)] for a in self.axes]
        for position in itertools.product(*(range(k) for k in self.kernel)):
            pairs = [axis[t] for axis, t in zip(per_axis, position, strict=True)]
            outs, ins = (
                self._index([p[side] for p in pairs], sizes) for side, sizes in ((0, self.out), (1, self.size))
            )
            if all(_length(p[0]) for p in pairs):
                yield Tap(position, outs, ins)

    def reads(self, output: Shape) -> list[tuple[Shape, Shape | None]]:
        """(tap, input position) of one output position, in row-major order; None for a padded tap.

        >>> strided("max_pool", (4,), (3,), stride=(2,), padding=((1, 0),)).reads((0,))
        [((0,), None), ((1,), (0,)), ((2,), (1,))]
        """
        found: list[tuple[Shape, Shape | None]] = []
        for pairs in itertools.product(*(a.reads(o) for a, o in zip(self.axes, output, strict=True))):
            cell = tuple(i for _, i in pairs)
            inside = all(0 <= i < n for i, n in zip(cell, self.size, strict=True))
            found.append((tuple(t for t, _ in pairs), cell if inside else None))
        return found

    def attributes(self) -> dict[str, Any] | None:
        """The arguments of a call that gives this window; None for adaptive axes.

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
        if all(isinstance(p, slice) for p in parts):
            return tuple(parts)
        arrays = [np.arange(n)[p] if isinstance(p, slice) else p for p, n in zip(parts, sizes, strict=True)]
        return np.ix_(*arrays)

    def inside(self) -> Array:
        """For every output: the taps inside the input (exact integers, shape `out`)."""
        return self._product(lambda a: a.inside())

    def counted(self) -> Array:
        """[A1] For every output: the taps inside the padded extent."""
        return self._product(lambda a: a.counted())

    def _product(self, counts: Callable[[Axis], list[int]]) -> Array:
        total = np.ones((), dtype=object)
        for axis in self.axes:
            total = np.multiply.outer(total, np.array(counts(axis), dtype=object))
        return np.asarray(total, dtype=object)

    def reach(self) -> tuple[Reach | None, ...]:
        return tuple(a.reach() for a in self.axes)

    def reach_back(self) -> tuple[Reach | None, ...]:
        return tuple(a.reach_back() for a in self.axes)

    def __str__(self) -> str:
        if not all(isinstance(a, Strided) for a in self.axes):
            return f"cells {'x'.join(map(str, self.out))}"
        words = [f"k{_compact(self.kernel)}"]
        axes = [a for a in self.axes if isinstance(a, Strided)]
        for letter, values, default in (
            ("s", tuple(a.stride for a in axes), 1),
            ("d", tuple(a.dilation for a in axes), 1),
            ("p", tuple((a.lo, a.hi) if a.lo != a.hi else a.lo for a in axes), 0),
        ):
            if any(v != default for v in values):
                words.append(letter + _compact(values))
        if any(a.out > a.floor_out for a in axes):
            words.append("ceil")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Patch:
    """The cells speed*p + start .. speed*p + start + size - 1 that belong to a position p, per axis.

    >>> w = strided("max_pool", (8,), (3,), stride=(2,), padding=((1, 1),))
    >>> cell = Patch((1,), (0,), (1,))
    >>> cell.read_through(w)
    Patch(speed=(2,), start=(-1,), size=(3,))
    >>> cell.read_through(w).cells(np.array([[0], [2]]), (8,))
    array([[8, 0, 1],
           [3, 4, 5]])
    """

    speed: Shape
    start: Shape
    size: Shape

    def read_through(self, window: Window) -> Patch | None:
        """What the window reads, when the patch is one of its outputs; None for adaptive axes."""
        axes = [a for a in window.axes if isinstance(a, Strided)]
        if len(axes) != len(self.size):
            return None
        speed = tuple(a.stride * s for a, s in zip(axes, self.speed, strict=True))
        start = tuple(a.stride * s - a.lo for a, s in zip(axes, self.start, strict=True))
        return Patch(speed, start, tuple(a.over(n).size for a, n in zip(axes, self.size, strict=True)))

    def window(self, window: Window) -> Window:
        """The window between the patch, as its outputs, and what it reads."""
        axes = [a for a in window.axes if isinstance(a, Strided)]
        return Window(tuple(a.over(n) for a, n in zip(axes, self.size, strict=True)))

    def cells(self, positions: Array, sizes: Shape) -> Array:
        """(positions, *size): flat numbers of the cells in an array of `sizes`; one past the last for outside ones."""
        flat, outside = np.zeros((len(positions), *self.size), dtype=np.int64), np.zeros((), dtype=bool)
        for axis, n in enumerate(sizes):
            shape = (len(positions), *(1,) * axis, self.size[axis], *(1,) * (len(sizes) - axis - 1))
            first = self.speed[axis] * positions[:, axis] + self.start[axis]
            cell = (first[:, None] + np.arange(self.size[axis])).reshape(shape)
            flat, outside = flat * n + cell, outside | (cell < 0) | (cell >= n)
        return np.where(outside, math.prod(sizes), flat)

    def union(self, other: Patch) -> Patch | None:
        """The smallest patch around both; None where they move at different speeds."""
        if self.speed != other.speed:
            return None
        start = tuple(map(min, self.start, other.start))
        ends = (max(s + n, t + m) for s, n, t, m in zip(self.start, self.size, other.start, other.size, strict=True))
        return Patch(self.speed, start, tuple(end - s for end, s in zip(ends, start, strict=True)))

    def margins(self, within: Patch) -> tuple[tuple[int, int], ...]:
        """Cells before and after this patch in a larger one, per axis."""
        before = [s - t for s, t in zip(self.start, within.start, strict=True)]
        return tuple((b, m - n - b) for b, n, m in zip(before, self.size, within.size, strict=True))


def scatter_add(target: Array, ins: tuple[Any, ...], values: Array) -> None:
    """target[..., ins] += values, where adaptive cells may name one input cell twice."""
    if all(isinstance(i, slice) for i in ins):
        target[(..., *ins)] += values
    else:
        np.add.at(target, (..., *ins), values)


def _length(outs: Any) -> int:
    return outs.stop - outs.start if isinstance(outs, slice) else len(outs)


def _compact(values: tuple[Any, ...]) -> str:
    texts = [f"({v[0]},{v[1]})" if isinstance(v, tuple) else str(v) for v in values]
    return texts[0] if len(set(texts)) == 1 else "x".join(texts)


# --- from what a user writes to a Window ------------------------------------------------------------------------


def per_axis(operator: str, name: str, value: PerAxis, rank: int) -> Shape:
    """An int stands for all axes.

    >>> per_axis("conv", "stride", 2, 3)
    (2, 2, 2)
    """
    values = _as_ints(operator, name, (value,) * rank if _is_int(value) else value)
    if len(values) != rank:
        raise ShapeError(operator, f"{name}={value} has {len(values)} entries for {rank} spatial axes")
    return values


def int_of(operator_: str, name: str, value: Any) -> int:
    """An int, or what stands for one (NumPy's, an engine's open size); bools and floats are refused ([P5])."""
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise ParameterError(operator_, f"{name} must be an int; got {value!r}", rule="P5")
    return operator.index(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _as_ints(operator: str, name: str, value: Any) -> Shape:
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__") or not all(_is_int(v) for v in value):
        raise ParameterError(operator, f"{name} must be an int or one int per axis; got {value!r}", rule="P5")
    return tuple(int(v) for v in value)


def kernel_of(operator: str, kernel: PerAxis, rank: int | None) -> Shape:
    """The kernel as a tuple; its length is the rank, and an int needs `rank=`."""
    if _is_int(kernel) and rank is None:
        raise ParameterError(operator, f"an int kernel needs rank=; got kernel={kernel}", rule="P5")
    if rank is not None and (not _is_int(rank) or rank < 1):
        raise ShapeError(operator, f"rank must be at least 1; got rank={rank}", rule="W1")
    values = per_axis(operator, "kernel", kernel, rank) if rank is not None else _as_ints(operator, "kernel", kernel)
    if not values:
        raise ShapeError(operator, "needs at least one spatial axis; got an empty kernel", rule="W1")
    return values


def _pairs(operator: str, padding: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """padding as one (lo, hi) pair per axis."""
    if _is_int(padding):
        padding = (padding,) * rank
    given: Any = padding if hasattr(padding, "__iter__") else (None,) * rank
    pairs = tuple((p, p) if _is_int(p) else tuple(p) if hasattr(p, "__iter__") else p for p in given)
    if len(pairs) != rank:
        raise ShapeError(operator, f"padding={padding} has {len(pairs)} entries for {rank} spatial axes")
    for p in pairs:
        if not (isinstance(p, tuple) and len(p) == 2 and all(_is_int(v) for v in p)):
            raise ParameterError(
                operator, f"padding must be an int, an int or a (lo, hi) pair per axis; got {padding!r}", rule="P5"
            )
    return tuple((int(lo), int(hi)) for lo, hi in pairs)


def _same(n: int, k: int, s: int, e: int, upper: bool) -> tuple[int, int]:
    """Padding for out = ceil(n/s); the odd cell goes high (upper) or low."""
    total = max(0, (-(-n // s) - 1) * s + e * (k - 1) + 1 - n)
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)


def resolve_padding(
    operator: str, padding: Padding, sizes: Shape, kernel: Shape, stride: Shape, dilation: Shape
) -> tuple[tuple[int, int], ...]:
    """padding is an int, one int per axis, (lo, hi) pairs, "valid", "same_upper" or "same_lower"."""
    if not isinstance(padding, str):
        return _pairs(operator, padding, len(sizes))
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    if padding not in ("same_upper", "same_lower"):
        raise ParameterError(
            operator, f'padding must be "valid", "same_upper" or "same_lower"; got {padding!r}', rule="P5"
        )
    upper = padding == "same_upper"
    return tuple(_same(*a, upper) for a in zip(sizes, kernel, stride, dilation, strict=True))


@lru_cache(maxsize=4096)
def _axis(n: int, k: int, s: int, e: int, lo: int, hi: int, ceil: bool) -> Strided:
    over = n + lo + hi - e * (k - 1) - 1
    out = over // s + 1
    if ceil:
        out = -(-over // s) + 1
        if (out - 1) * s >= n + lo:  # [W3] the last window would start in the high padding
            out -= 1
    return Strided(n, k, s, e, lo, hi, out)


def _check_positive(operator: str, sizes: Shape, padding: Any, shown: str, **values: Shape) -> None:
    """[W1], before anything is computed."""
    for name, value in values.items():
        if min(value) < 1:
            raise ShapeError(operator, f"{name} must be at least 1; got {name}={value}, {shown}", rule="W1")
    if any(min(p) < 0 for p in padding):
        raise ShapeError(operator, f"padding must not be negative; got padding={padding}, {shown}", rule="W1")
    if min(sizes) < 1:
        raise ShapeError(operator, f"spatial axis {sizes.index(0)} is empty; got {shown}", rule="W1")


def _check_fit(
    operator: str, sizes: Shape, kernel: Shape, overhang: Shape, dilation: Shape, padding: Any, shown: str
) -> None:
    """[W2] A window larger than its padded input has no position; under `ceil` it may hang over by stride-1 cells."""
    for axis, (n, k, over, e, (lo, hi)) in enumerate(zip(sizes, kernel, overhang, dilation, padding, strict=True)):
        span = e * (k - 1) + 1
        if span > n + lo + hi + over:
            raise ShapeError(
                operator,
                f"window of {span} cells does not fit {n} + {lo} + {hi} input cells on axis {axis}; "
                f"got kernel={kernel}, {shown}",
                rule="W2",
            )


def strided(
    operator: str,
    shape: Shape,
    kernel: Shape,
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil: bool = False,
) -> Window:
    """The window over the last axes of `shape`; its rank is the kernel's length.

    >>> strided("max_pool", (4, 9, 5), (3, 7))
    Traceback (most recent call last):
    specgrad.errors.ShapeError: max_pool [W2]: window of 7 cells does not fit 5 + 0 + 0 input cells on axis 1; got kernel=(3, 7), input shape (4, 9, 5)
    """  # noqa: E501 - the message is one line
    return _strided(operator, shape, kernel, stride, padding, dilation, ceil)


@remembered
def _strided(
    operator: str, shape: Shape, kernel: Shape, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Window:
    rank, shape = len(kernel), tuple(shape)
    if len(shape) < rank:
        raise ShapeError(operator, f"kernel={kernel} needs {rank} spatial axes; got input shape {shape}", rule="W1")
    sizes = shape[len(shape) - rank :]
    strides = per_axis(operator, "stride", stride, rank)
    dilations = per_axis(operator, "dilation", dilation, rank)
    shown = f"input shape {shape}"
    _check_positive(operator, sizes, (), shown, kernel=kernel, stride=strides, dilation=dilations)
    pads = resolve_padding(operator, padding, sizes, kernel, strides, dilations)
    _check_positive(operator, sizes, pads, shown)
    overhang = tuple(s - 1 if ceil else 0 for s in strides)
    _check_fit(operator, sizes, kernel, overhang, dilations, pads, shown)
    return Window(
        tuple(
            _axis(n, k, s, e, lo, hi, bool(ceil))
            for n, k, s, e, (lo, hi) in zip(sizes, kernel, strides, dilations, pads, strict=True)
        )
    )


def pooling(
    operator: str,
    shape: Shape,
    kernel: PerAxis,
    *,
    rank: int | None,
    stride: PerAxis | None,
    padding: Padding,
    dilation: PerAxis = 1,
    ceil: bool = False,
) -> Window:
    """The window of a pooling call: stride defaults to the kernel, an int kernel needs its rank."""
    return _pooling(operator, shape, kernel, rank, stride, padding, dilation, ceil)


@remembered
def _pooling(
    operator: str, shape: Shape, kernel: Any, rank: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Window:
    sizes = kernel_of(operator, kernel, rank)
    step = sizes if stride is None else stride
    return strided(operator, shape, sizes, stride=step, padding=padding, dilation=dilation, ceil=ceil)


def mapped(operator: str, shape: Shape, spatial: Shape) -> Shape:
    """The leading axes of a value whose last axes must have the sizes `spatial`."""
    lead = shape[: max(0, len(shape) - len(spatial))]
    if shape != lead + spatial:
        raise ShapeError(operator, f"spatial sizes must be {spatial}; got shape {shape}", rule="W1")
    return lead


def adaptive(operator: str, shape: Shape, output: Shape) -> Window:
    """`output` cells over the last axes; an axis that divides evenly is an ordinary strided one.

    >>> adaptive("adaptive_avg_pool", (7,), (3,)).axes[0].inside()
    [3, 3, 3]
    >>> str(adaptive("adaptive_avg_pool", (6,), (3,)))
    'k2 s2'
    """
    rank = len(output)
    if len(shape) < rank:
        raise ShapeError(operator, f"output={output} needs {rank} spatial axes; got input shape {shape}", rule="W1")
    sizes = shape[len(shape) - rank :]
    if min(output) < 1 or min(sizes) < 1:
        raise ShapeError(operator, f"sizes must be positive; got output={output}, input shape {shape}", rule="W1")
    return Window(
        tuple(
            Strided(n, n // m, n // m, 1, 0, 0, m) if n % m == 0 else Adaptive(n, m)
            for n, m in zip(sizes, output, strict=True)
        )
    )


def transposed(
    operator: str,
    sizes: Shape,
    kernel: Shape,
    *,
    stride: PerAxis,
    padding: Padding,
    output_padding: PerAxis,
    dilation: PerAxis,
) -> Window:
    """The relation read backwards: `sizes` are its outputs, the result of conv_transpose its inputs.

    size = (n-1)*s - lo - hi + e*(k-1) + 1 + output_padding, and [C2] size >= 1, output_padding < max(s, e).
    """
    return _transposed(operator, sizes, kernel, stride, padding, output_padding, dilation)


@remembered
def _transposed(
    operator: str, sizes: Shape, kernel: Shape, stride: Any, padding: Any, output_padding: Any, dilation: Any
) -> Window:
    rank, sizes, kernel = len(kernel), tuple(sizes), tuple(kernel)
    strides = per_axis(operator, "stride", stride, rank)
    dilations = per_axis(operator, "dilation", dilation, rank)
    extra = per_axis(operator, "output_padding", output_padding, rank)
    if isinstance(padding, str) and padding != "valid":
        raise ParameterError(operator, f"padding={padding!r} is not defined here; give numbers", rule="P5")
    pads = resolve_padding(operator, padding, sizes, kernel, strides, dilations)
    shown = f"input sizes {sizes}"
    _check_positive(operator, sizes, pads, shown, kernel=kernel, stride=strides, dilation=dilations)
    axes = []
    for n, k, s, e, (lo, hi), more in zip(sizes, kernel, strides, dilations, pads, extra, strict=True):
        size = (n - 1) * s - lo - hi + e * (k - 1) + 1 + more
        if not 0 <= more < max(s, e):
            text = f"output_padding must be below max(stride, dilation); got output_padding={extra}, "
            raise ShapeError(operator, text + f"stride={strides}, dilation={dilations}", rule="C2")
        if size < 1:
            text = f"output size would be {size}; got kernel={kernel}, stride={strides}, padding={pads}, {shown}"
            raise ShapeError(operator, text, rule="C2")
        axes.append(Strided(size, k, s, e, lo, hi, n))
    return Window(tuple(axes))


def transposed_padding(
    sizes: Shape,
    kernel: Shape,
    output: Shape,
    *,
    stride: Shape,
    output_padding: Shape,
    dilation: Shape,
    upper: bool,
) -> tuple[tuple[tuple[int, int], ...], Shape]:
    """The padding with which conv_transpose gives `output` cells, as ONNX's output_shape asks; and what it lacks.

    The total is split evenly, an odd cell going high (upper) or low. Where even no padding reaches `output`, the cells
    that are lacking stand at the high end.

    >>> transposed_padding((3,), (3,), (6,), stride=(2,), output_padding=(0,), dilation=(1,), upper=False)
    (((1, 0),), (0,))
    >>> transposed_padding((3,), (3,), (9,), stride=(2,), output_padding=(0,), dilation=(1,), upper=False)
    (((0, 0),), (2,))
    """
    pairs, lacking = [], []
    for n, k, s, e, more, m in zip(sizes, kernel, stride, dilation, output_padding, output, strict=True):
        total = (n - 1) * s + e * (k - 1) + 1 + more - m
        small, large = max(total, 0) // 2, max(total, 0) - max(total, 0) // 2
        pairs.append((small, large) if upper else (large, small))
        lacking.append(max(-total, 0))
    return tuple(pairs), tuple(lacking)
