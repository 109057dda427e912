"""Pooling algorithms for PyTorch on the CPU, where the native operators are far from the limit at stride 1.

Doubling: the maximum over k cells is the maximum of two windows of about half the size, so it takes log2(k) passes per
axis. A chunk of planes is one flat buffer; a shift by one row is a shift by its length, and what wraps around a row
spoils only positions that are no output. Sums over k cells add windows whose sizes are the bits of k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import EllipsisType

import torch
import torch.nn.functional as F
from torch import Tensor

from specgrad.window import Window, tap_schedule

from .modes import is_plain_eager

CHUNK_BYTES = 1 << 20  # a chunk and its scratch stay in the second-level cache
DOUBLING_TYPES = (torch.float32, torch.float64)


def last_axes(where: tuple[slice, ...]) -> tuple[EllipsisType | slice, ...]:
    """Return the index that applies the slices `where` to the last axes of a tensor."""
    return (..., *where)


def cells(t: Tensor, where: tuple[slice, ...]) -> Tensor:
    """Return t[..., *where]; t itself if the slices select everything, since old vmap has no rule for full views."""
    sizes = t.shape[t.ndim - len(where) :]
    whole = all(s.indices(n) == (0, n, 1) for s, n in zip(where, sizes, strict=True))
    return t if whole else t[last_axes(where)]


def spatial_pads(pads: tuple[tuple[int, int], ...]) -> list[int]:
    """Return the (lo, hi) pairs as a flat list in F.pad's order, last axis first."""
    return [n for pair in reversed(pads) for n in pair]


def pad_or_crop(x: Tensor, pads: tuple[tuple[int, int], ...], value: float = 0.0) -> Tensor:
    """Pad the last axes by (lo, hi) cells of `value`; negative widths crop, up to every cell (F.pad crashes)."""
    sizes = x.shape[x.ndim - len(pads) :]
    if all(lo >= -n and hi >= -n for n, (lo, hi) in zip(sizes, pads, strict=True)):
        return F.pad(x, spatial_pads(pads), value=value)
    wide = F.pad(x, [max(n, 0) for n in spatial_pads(pads)], value=value)
    ends = zip(wide.shape[x.ndim - len(pads) :], pads, strict=True)
    return wide[last_axes(tuple(slice(max(-lo, 0), n + min(hi, 0)) for n, (lo, hi) in ends))]


def padded(x: Tensor, win: Window, value: float) -> Tensor:
    """Return x with the padding of `win` on its last axes filled with `value`; x itself if the window pads nothing.

    Negative padding crops.
    """
    return pad_or_crop(x, win.pads, value) if win.pads_anything else x


def attached_zeros(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return zeros of `shape` that depend on t in autograd: the result of windows without a tap inside."""
    return t.flatten()[:0].sum().expand(shape)


def has_negative_zero(x: Tensor) -> bool:
    """Return whether a cell of float32 or float64 x is -0 (its bits, read as an integer, are the least)."""
    kind = torch.int32 if x.dtype == torch.float32 else torch.int64
    return int(x.detach().view(kind).min()) == torch.iinfo(kind).min


def embed(t: Tensor, widths: tuple[tuple[int, int, int], ...]) -> Tensor:
    """Return t with zeros around and between cells of its last axes, `widths` being (lo, hi, gap) per axis; traceable
    everywhere.
    """
    first = t.ndim - len(widths)
    for axis, (_, _, gap) in enumerate(widths, first):
        if gap and t.shape[axis] > 1:
            wide = F.pad(t.movedim(axis, -1).unsqueeze(-1), (0, gap))
            wide = wide.reshape(*wide.shape[:-2], wide.shape[-2] * wide.shape[-1])
            t = wide[..., : wide.shape[-1] - gap].movedim(-1, axis)
    return F.pad(t, spatial_pads(tuple((lo, hi) for lo, hi, _ in widths)))


def accumulate(total: Tensor, where: tuple[slice, ...], part: Tensor) -> Tensor:
    """Return total with `part` added at [..., *where]: in place in eager mode without gradients, else by padding."""
    if not part.requires_grad and not total.requires_grad and is_plain_eager():
        total[last_axes(where)] += part
        return total
    sizes, counts = total.shape[total.ndim - len(where) :], part.shape[part.ndim - len(where) :]
    widths = []
    for n, m, s in zip(sizes, counts, where, strict=True):
        step = s.step or 1
        widths.append((s.start, n - s.start - (m - 1) * step - 1, step - 1))
    return total + embed(part, tuple(widths))


def _plane_ranges(planes: int, cells: int, bytes_per_cell: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) ranges of planes, of so many cells and bytes per cell; each chunk holds about CHUNK_BYTES."""
    count = max(1, CHUNK_BYTES // max(1, cells * bytes_per_cell))
    for start in range(0, planes, count):
        yield start, min(start + count, planes)


class _PlaneChunks:
    """Chunks of the planes of x as flat buffers padded for the window `win` with `value`; x is never copied as a whole.

    A chunk has so many planes that about CHUNK_BYTES are needed, at `bytes_per_cell`.
    """

    def __init__(self, x: Tensor, win: Window, value: float, bytes_per_cell: int) -> None:
        self.bare = win.unpadded()
        self.cells = math.prod(self.bare.size)
        if min(min(p) for p in win.pads) < 0:
            x, win = padded(x, win, value), self.bare
        self.planes = x.contiguous().view(-1, *win.size)
        self.bytes = bytes_per_cell
        self.interior: Tensor | None = None
        if any(p != (0, 0) for p in win.pads):
            most = min(len(self.planes), max(1, CHUNK_BYTES // (self.cells * bytes_per_cell)))
            self.buffer = torch.full((most, *self.bare.size), value, dtype=x.dtype)
            self.interior = self.buffer[(slice(None), *win.interior)]

    def chunks(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yield (start, stop, flat buffer) for each chunk of planes; a padded buffer is reused by the next chunk."""
        for start, stop in _plane_ranges(len(self.planes), self.cells, self.bytes):
            part = self.planes[start:stop]
            if self.interior is not None:
                self.interior[: stop - start].copy_(part)
                part = self.buffer[: stop - start]
            yield start, stop, part.view(-1)


def _window_starts(buffer: Tensor, planes: int, win: Window, shift: int = 0) -> Tensor:
    """Return the cells at output positions, (planes, *win.out), as a strided view of a flat buffer.

    `shift` is added to the storage offset.
    """
    steps = tap_schedule.anchor_strides(win)
    return buffer.as_strided((planes, *win.out), (math.prod(win.size), *steps), buffer.storage_offset() + shift)


def first_maximum(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
    """Write max(a, b) to `out`, with a if they are equal or a is NaN; torch.maximum may return either zero."""
    return torch.where((b <= a) | (a != a), a, b, out=out)


def dense_max(x: Tensor, padded_window: Window) -> Tensor:
    """Return the maximum of every window, (*lead, *out), in log2(k) passes per axis.

    Padding is -inf and NaN propagates; of equal zeros the first in its window is returned.
    """
    source = _PlaneChunks(x, padded_window, -math.inf, x.element_size())
    win = source.bare
    shifts = tap_schedule.doubling_shifts(win)
    out = torch.empty((len(source.planes), *win.out), dtype=x.dtype)
    scratch: list[Tensor] = []
    for start, stop, current in source.chunks():
        length = current.numel()
        if not scratch:
            scratch = [torch.empty(length, dtype=x.dtype) for _ in range(min(2, max(0, len(shifts) - 1)))]
        larger = first_maximum if has_negative_zero(current) else torch.maximum
        for turn, shift in enumerate(shifts[:-1]):
            length -= shift
            target = scratch[turn % 2]
            larger(current[:length], current[shift : shift + length], out=target[:length])
            current = target
        if shifts:
            views = (_window_starts(current, stop - start, win, s) for s in (0, shifts[-1]))
            larger(*views, out=out[start:stop])
        else:
            out[start:stop] = _window_starts(current, stop - start, win)
    return out.view(x.shape[: x.ndim - win.rank] + win.out)


# --- the first winner, packed into integers ------------------------------------------------------------------------

SIGN_BITS = 0x7FFFFFFF
LOW_WORD = 0xFFFFFFFF


def _ordered_bits(x: Tensor, bits: Tensor) -> Tensor:
    """Return float32 x as int32 with the same order (a bijection, its own inverse).

    The result is written into `bits`, int32 of x's shape, and returned; x stays as it is.
    """
    i = x.view(torch.int32)
    torch.bitwise_right_shift(i, 31, out=bits)
    bits.bitwise_and_(SIGN_BITS)
    return torch.bitwise_xor(i, bits, out=bits)


def packed_winner(x: Tensor, win: Window) -> tuple[Tensor, Tensor]:
    """Return maximum and first argmax of every window, for float32 without NaN.

    The argmax is a flat position in the input plane, -1 (and maximum 0) for a window without a cell inside.

    Key of a cell: its value, order preserved, in the high word; the complement of its position in the low word. The
    largest key is the largest value and, among ties, the smallest position. A padded cell is -inf with low word 0:
    it loses to every real cell.
    """
    source = _PlaneChunks(x, win, -math.inf, 8)
    bare, cells = source.bare, source.cells
    planes, outs = len(source.planes), math.prod(win.out)
    y = torch.empty((planes, outs), dtype=x.dtype)
    index = torch.empty((planes, outs), dtype=torch.int64)
    low = _position_words(win)
    buffers: _KeyBuffers | None = None
    for start, stop, chunk in source.chunks():
        buffers = buffers or _KeyBuffers(stop - start, cells, low)
        keys = buffers.pack(chunk)
        top = buffers.window_maximum(keys, (stop - start) * cells, tap_schedule.doubling_shifts(bare))
        key = buffers.spare(top)[: (stop - start) * outs]
        key.view(stop - start, *win.out).copy_(_window_starts(top, stop - start, bare))
        buffers.unpack(key, y[start:stop].view(-1), index[start:stop].view(-1))
    shape = x.shape[: x.ndim - win.rank] + win.out
    if win.has_empty:
        index = torch.where(index == LOW_WORD, -1, index)
        y = torch.where(index < 0, torch.zeros((), dtype=x.dtype), y)
    y, index = y.view(shape), index.view(shape)
    return (_with_sign_of_winner(x, y, index, win.rank) if has_negative_zero(x) else y), index


def _with_sign_of_winner(x: Tensor, y: Tensor, index: Tensor, rank: int) -> Tensor:
    """Return y with the sign of the winning cell of x, at `index`, wherever y is 0; keys do not tell -0 from +0."""
    cells, where = x.flatten(x.ndim - rank), index.flatten(index.ndim - rank)
    signed = cells.gather(-1, where.clamp(min=0)).view(y.shape)
    return torch.where((y == 0) & (index >= 0), signed, y)


def _position_words(win: Window) -> Tensor:
    """Return the low key words of one plane padded for the window `win`, flat int32: complement of the position, 0 in
    the padding.
    """
    inside = torch.arange(math.prod(win.size), dtype=torch.int32).view(win.size).bitwise_not()
    return pad_or_crop(inside, win.pads).reshape(-1)


class _KeyBuffers:
    """Scratch memory for the int64 keys of one chunk: value in the high word, complement of position in the low.

    It holds up to `planes` planes of `cells` cells; `low` are the low words of one.
    """

    def __init__(self, planes: int, cells: int, low: Tensor) -> None:
        count = planes * cells
        self.all = [torch.empty(count, dtype=torch.int64) for _ in range(3)]
        words = self.all[0].view(torch.int32)
        words[0::2].view(planes, cells).copy_(low)
        self.high = words[1::2]
        self.floats = torch.empty(count, dtype=torch.float32)
        self.bits = torch.empty(count, dtype=torch.int32)

    def pack(self, x: Tensor) -> Tensor:
        """Write the values of x into the high words and return the key buffer."""
        n = x.numel()
        torch.add(x, 0.0, out=self.floats[:n])  # -0 becomes +0, so that the two tie
        self.high[:n].copy_(_ordered_bits(self.floats[:n], self.bits[:n]))
        return self.all[0]

    def window_maximum(self, keys: Tensor, length: int, shifts: list[int]) -> Tensor:
        """Return the buffer whose cell p is the maximum of the keys in the window that begins at p.

        The first `length` keys count; each pass takes the maximum with a copy moved by the next of `shifts`.
        """
        for turn, shift in enumerate(shifts):
            length -= shift
            target = self.all[1 + turn % 2]
            torch.maximum(keys[:length], keys[shift : shift + length], out=target[:length])
            keys = target
        return keys

    def spare(self, used: Tensor) -> Tensor:
        """Return the scratch buffer that `used` is not."""
        return self.all[2] if used is self.all[1] else self.all[1]

    def unpack(self, key: Tensor, y: Tensor, index: Tensor) -> None:
        """Write the value of each key to y and its position to index, which are contiguous and as long as `key`."""
        torch.bitwise_not(key, out=index)
        index.bitwise_and_(LOW_WORD)
        ordered = y.view(torch.int32)
        ordered.copy_(key.view(torch.int32)[1::2])
        ordered.copy_(_ordered_bits(y, self.bits[: y.numel()]))


# --- sums -----------------------------------------------------------------------------------------------------------


def dense_sum(x: Tensor, padded_window: Window, scale: float | None = None, outside: float = 0.0) -> Tensor:
    """Return the sum of every window times `scale`, (*lead, *out), without subtraction; padding is `outside`."""
    source = _PlaneChunks(x, padded_window, outside, x.element_size())
    win = source.bare
    additions = tap_schedule.additions(win)
    out = torch.empty((len(source.planes), *win.out), dtype=x.dtype)
    scratch: list[Tensor] = []
    for start, stop, chunk in source.chunks():
        scratch = scratch or [torch.empty(chunk.numel(), dtype=x.dtype) for _ in range(3)]
        part = out[start:stop]
        if additions:
            current, other = _all_but_last_add(chunk, additions, scratch)
            views = (_window_starts(t, stop - start, win, s) for t, s in ((current, 0), (other, additions[-1].shift)))
            torch.add(*views, out=part)
        else:
            part.copy_(_window_starts(chunk, stop - start, win))
        if scale is not None:
            part.mul_(scale)  # while it is in the cache
    return out.view(x.shape[: x.ndim - win.rank] + win.out)


def _all_but_last_add(chunk: Tensor, additions: list[tap_schedule.Add], scratch: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Run all passes but the last of `additions` on a chunk, in `scratch` buffers; return the two operands of the
    last.
    """
    current = base = chunk
    length = base_length = chunk.numel()
    for n, add in enumerate(additions, 1):
        if add.first:
            base, base_length = current, length
        other, other_length = (current, length) if add.doubles else (base, base_length)
        if n == len(additions):
            return current, other
        length = min(length, other_length - add.shift)
        target = next(t for t in scratch if t is not current and t is not base)
        torch.add(current[:length], other[add.shift : add.shift + length], out=target[:length])
        current = target
    raise AssertionError("there is no addition")
