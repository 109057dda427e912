"""One axis of the window relation: strided (Strided), or cut into adaptive cells (Adaptive)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..errors import ShapeError
from ..scalar import Array
from . import receptive_field as reach
from .receptive_field import ReceptiveField
from .sizes import MAX_TAPS, budget


@dataclass(frozen=True, slots=True)
class Strided:
    """One strided axis: tap t of output o reads cell i = stride*o + dilation*t - lo; i outside [0, size) is padding.

    size, out   cells of the input and of the output
    lo, hi      padding before and behind the input
    kernel      number of taps

    ShapeError for sizes below 1, negative padding, and more outputs than fit.
    """

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
        """Return an upper bound of the taps of one output."""
        return self.kernel

    most_readers = most_taps

    @property
    def overlap(self) -> int:
        """Return how many windows read one cell, at most: taps of a cell lie stride / gcd(stride, dilation) apart.

        >>> [Strided(9, 3, stride, 1, 0, 0, 3).overlap for stride in (1, 2, 3)]
        [3, 2, 1]
        """
        return min(self.out, -(-self.kernel * math.gcd(self.stride, self.dilation) // self.stride))

    @property
    def span(self) -> int:
        """Return how many cells a window covers from its first tap to its last."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def is_even_cut(self) -> bool:
        """Return whether the windows are the axis cut into parts of one size, as even adaptive cells are."""
        return self == Strided(self.kernel * self.out, self.kernel, self.kernel, 1, 0, 0, self.out)

    def reads(self, o: int) -> list[tuple[int, int]]:
        """Return (tap, input cell) of output o; a cell outside [0, size) is padding."""
        return [(t, self.stride * o + self.dilation * t - self.lo) for t in range(self.kernel)]

    @property
    def extent(self) -> range:
        """Return the positions of the input and of its padding."""
        return range(-self.lo, self.size + self.hi)

    @property
    def positions(self) -> range:
        """Return `extent`, and the positions that the last window under `ceil` hangs over to."""
        return range(-self.lo, max(self.size + self.hi, self.reads(self.out - 1)[-1][1] + 1))

    @property
    def floor_out(self) -> int:
        """Return the output size without `ceil`."""
        return (self.size + self.lo + self.hi - self.span) // self.stride + 1

    @property
    def ceil_out(self) -> int:
        """Return the output size with `ceil`; 0 or less if not even the first window reaches into the padded input."""
        return ceil_out(self.size + self.lo + self.hi - self.span, self.stride, self.size + self.lo)

    def counted_out(self) -> str:
        """Return text that derives the output size in numbers: [W3] `ceil` rounds up, and drops a last window in
        padding."""
        ends = f"({self.size} + {self.lo} + {self.hi} - {self.span}) / {self.stride}"
        if self.out < self.floor_out:
            return f"floor({ends}) + 1 = {self.floor_out}, less {self.floor_out - self.out} in the high padding"
        return f"{'ceil' if self.out > self.floor_out else 'floor'}({ends}) + 1 = {self.out}"

    def tap(self, t: int) -> tuple[slice, slice]:
        """Return two slices of equal length: the outputs whose tap t is inside the input, and the cells they read."""
        shift = self.dilation * t - self.lo
        first = max(0, -(shift // self.stride))  # the first o with stride*o + shift >= 0
        last = min(self.out - 1, (self.size - 1 - shift) // self.stride)
        count = max(0, last - first + 1)
        if count == 0:
            return slice(0, 0), slice(0, 0)
        start = self.stride * first + shift
        return slice(first, first + count), slice(start, start + self.stride * (count - 1) + 1, self.stride)

    def read_by(self, i: int) -> list[tuple[int, int]]:
        """Return (tap, output) of every output that reads input cell i: `reads` backwards."""
        steps = ((t, divmod(i + self.lo - self.dilation * t, self.stride)) for t in range(self.kernel))
        return [(t, o) for t, (o, rest) in steps if rest == 0 and 0 <= o < self.out]

    def _taps_between(self, o: int, low: int, high: int) -> int:
        """Return how many taps of output o read a position in [low, high)."""
        base = self.stride * o - self.lo
        first = max(0, -((base - low) // self.dilation))
        last = min(self.kernel - 1, (high - 1 - base) // self.dilation)
        return max(0, last - first + 1)

    def inside(self, o: int) -> int:
        """Return the number of taps of output o inside the input."""
        return self._taps_between(o, 0, self.size)

    def counted(self, o: int) -> int:
        """[A1] Return the number of taps of output o inside the padded extent [-lo, n+hi)."""
        return self._taps_between(o, -self.lo, self.size + self.hi)

    @property
    def has_empty(self) -> bool:
        """Return whether some output has no tap inside the input.

        Taps no further apart than the input is long cannot step over it: then it is the first output, which ends before
        the input, or the last, which begins behind it.
        """
        if self.dilation <= self.size:
            return min(self.inside(0), self.inside(self.out - 1)) == 0
        budget(self.out, MAX_TAPS, "outputs along an axis", self)
        return any(self.inside(o) == 0 for o in range(self.out))

    @property
    def pads(self) -> tuple[int, int]:
        """Return the (low, high) padding that makes the windows end exactly at the edge; a negative high side crops."""
        return self.lo, (self.out - 1) * self.stride + self.span - self.size - self.lo

    def adjoint(self) -> Strided | None:
        """Return, for stride 1, the axis over the outputs that reads for every cell the outputs that read it.

        Cell i is read by the outputs i + lo - e*t, a window of as many taps. None at other strides, and where padding
        beyond the window would have to be cut off.
        """
        lo, hi = self.span - 1 - self.lo, self.size - self.out + self.lo
        if self.stride != 1 or lo < 0 or hi < 0:
            return None
        return Strided(self.out, self.kernel, 1, self.dilation, lo, hi, self.size)

    def spaced(self) -> tuple[int, int]:
        """Return the (low, high) padding with which outputs set `stride` apart, correlated with the flipped kernel,
        give inputs."""
        return self.span - 1 - self.lo, self.size + self.lo - self.stride * (self.out - 1) - 1

    @property
    def gap(self) -> int:
        """Return the cells between two outputs that are set `stride` apart."""
        return self.stride - 1

    @property
    def interior(self) -> slice:
        """Return the slice of the padded input that is the input."""
        return slice(*self.cropped())

    def doubling(self) -> list[int]:
        """Return how far apart two halves of growing windows stand, in cells; `doubling` of the kernel
        counts in taps."""
        return [self.dilation * shift for shift in doubling(self.kernel)]

    def phase_count(self) -> int:
        """Return how many cells each residue of the stride has, counted from the low padding on."""
        return -(-(self.lo + self.size) // self.stride)

    def cropped(self) -> tuple[int, int]:
        """Return (start, stop) of the input among the cells counted from the low padding on."""
        return self.lo, self.lo + self.size

    def unpadded(self) -> Strided:
        """Return the axis with these windows over an input that contains `pads` itself: longer by both of them, or
        cropped where the high one is negative.
        """
        return Strided(self.size + sum(self.pads), self.kernel, self.stride, self.dilation, 0, 0, self.out)

    def moved(self) -> list[Strided]:
        """Return the axes whose windows stand one cell further, on either side, if the padding has room for that."""
        return [replace(self, lo=self.lo + d, hi=self.hi - d) for d in (1, -1) if min(self.lo + d, self.hi - d) >= 0]

    def over(self, outs: int) -> Strided:
        """Return the axis of `outs` neighbouring outputs over just the cells they read, padded ones among them."""
        return Strided(self.stride * (outs - 1) + self.span, self.kernel, self.stride, self.dilation, 0, 0, outs)

    def reach(self) -> ReceptiveField:
        """Return the receptive field of outputs: which input cells each of them reads."""
        return reach.strided(self.stride, -self.lo, self.span - 1 - self.lo)

    def reach_back(self) -> ReceptiveField | None:
        """Return which outputs an input contributes to, as a receptive field; None at strides of thousands."""
        return reach.backwards(self.stride, -self.lo, self.span - 1 - self.lo)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """One axis of `size` = n cells cut into `out` cells.

    Output o reads the input cells [floor(o*n/out), ceil((o+1)*n/out)). ShapeError for a size below 1.
    """

    size: int
    out: int

    def __post_init__(self) -> None:
        if min(self.size, self.out) < 1:
            raise ShapeError("window", f"sizes must be positive; got {self}", rule="W1")

    @property
    def extent(self) -> range:
        """Return the positions of the input; there is no padding."""
        return range(self.size)

    positions = extent

    def start(self, o: int) -> int:
        """Return the first input cell of output o."""
        return o * self.size // self.out

    def end(self, o: int) -> int:
        """Return one past the last input cell of output o."""
        return -(-(o + 1) * self.size // self.out)

    @property
    def most_taps(self) -> int:
        """Return an upper bound of the length of any adaptive cell, without visiting them."""
        return min(self.size, -(-self.size // self.out) + 1)

    @property
    def kernel(self) -> int:
        """Return the length of the longest adaptive cell.

        With n = q*out + r, a cell begins at any multiple of gcd(n, out) past a whole one; it is q, q+1 or q+2 long.
        """
        q, r = divmod(self.size, self.out)
        return q + (r > 0) + (r > math.gcd(self.size, self.out))

    def tap(self, t: int) -> tuple[Array, Array]:
        """Return two arrays of equal length: the outputs that have a tap t, and the cells they read."""
        outs = [o for o in range(self.out) if self.start(o) + t < self.end(o)]
        return np.array(outs, dtype=np.intp), np.array([self.start(o) + t for o in outs], dtype=np.intp)

    def inside(self, o: int) -> int:
        """Return how many input cells output o reads."""
        return self.end(o) - self.start(o)

    @property
    def most_readers(self) -> int:
        """Return an upper bound of the outputs that read one input cell."""
        return min(self.out, -(-self.out // self.size) + 1)

    overlap = most_readers
    counted = inside
    has_empty = False
    pads = (0, 0)

    def read_by(self, i: int) -> list[tuple[int, int]]:
        """Return (tap, output) of every output that reads input cell i."""
        outs = range(i * self.out // self.size, -(-(i + 1) * self.out // self.size))
        return [(i - self.start(o), o) for o in outs]

    def unpadded(self) -> Adaptive:
        """Return the axis itself: it has no padding."""
        return self

    def reads(self, o: int) -> list[tuple[int, int]]:
        """Return (tap, input cell) of output o."""
        return list(enumerate(range(self.start(o), self.end(o))))

    def clamped(self, t: int) -> list[int]:
        """Return for every output the cell of its tap t, or its last one if it is shorter: the maximum
        stays the same."""
        return [min(self.start(o) + t, self.end(o) - 1) for o in range(self.out)]

    def matrix(self) -> Array:
        """Return a bool matrix (out, size): whether an output reads a cell."""
        return np.array([[self.start(o) <= i < self.end(o) for i in range(self.size)] for o in range(self.out)])

    def reach(self) -> None:
        """Return None: cells are not evenly spaced, so callers treat the axis as read completely."""

    reach_back = reach


Axis = Strided | Adaptive


def strided_axis(n: int, k: int, s: int, e: int, lo: int, hi: int, ceil: bool) -> Strided:
    """Return a strided axis of n cells with kernel k, stride s, dilation e and padding lo, hi; its output size follows.

    It is rounded up if `ceil`.
    """
    over = n + lo + hi - e * (k - 1) - 1
    return Strided(n, k, s, e, lo, hi, ceil_out(over, s, n + lo) if ceil else over // s + 1)


def ceil_out(over: int, stride: int, end: int) -> int:
    """Return the output size with `ceil`, rounded up, less 1 if the last window would begin in the high padding.

    `over` cells, padding included, are left behind the first window. The high padding begins `end` cells after that
    window does.
    """
    out = -(-over // stride) + 1
    return out - 1 if (out - 1) * stride >= end else out  # [W3] the last window would start in the high padding


def doubling(kernel: int) -> list[int]:
    """Return shifts that join windows of 1 cell into windows of `kernel` cells, overlapping in the last.

    >>> doubling(9)
    [1, 2, 4, 1]
    """
    shifts, width = [], 1
    while width < kernel:
        shifts.append(min(width, kernel - width))
        width += shifts[-1]
    return shifts
