"""Cache of the hidden cells' intervals on open boxes, in float32, rounded outward; stored once for both parts of
a box.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specgrad.bounds.linear.relaxation.bound_layers import Interval

MAX_CACHE_BYTES = 1 << 30  # bytes; boxes beyond that start from what is known of the whole


class IntervalCache:
    """Intervals by slot. Slot 0 is the whole box and stays; any other is freed when both parts have read it.

    whole   lower and upper ends on the whole box, each (1, columns)
    most    bytes that the slots may take, about; what is stored beyond them gets slot 0

    >>> kept = IntervalCache((torch.tensor([[-1.0]]), torch.tensor([[1.0]])))
    >>> slots = kept.store(torch.tensor([[0.1]], dtype=torch.float64), torch.tensor([[0.1]], dtype=torch.float64))
    >>> low, high = kept.read(slots)
    >>> bool(low < 0.1), bool(high > 0.1), kept.read(torch.tensor([0]))[1].tolist()
    (True, True, [[1.0]])
    """

    def __init__(self, whole: Interval, most: int = MAX_CACHE_BYTES) -> None:
        self.low, self.high = (outward(end, side) for end, side in zip(whole, (-1, 1), strict=True))
        self.readers = torch.zeros(1, dtype=torch.int64)
        self.free: list[int] = []
        self.most = most // (8 * max(1, self.low.shape[1]))

    def read(self, slots: Tensor) -> Interval:
        """(lower, upper) of some slots in float64, each (N, columns); counts as one read of each slot."""
        low, high = self.low[slots].double(), self.high[slots].double()
        for slot in slots.tolist():
            self.readers[slot] -= 1
            if slot and not self.readers[slot]:
                self.free.append(slot)
        return low, high

    def store(self, low: Tensor, high: Tensor) -> Tensor:
        """Store intervals low..high, each (N, columns), to be read twice; return their slots, 0 where the cache is
        full.
        """
        while len(self.free) < len(low) and len(self.low) < self.most:
            self._grow()
        slots = torch.tensor([self.free.pop() if self.free else 0 for _ in range(len(low))], dtype=torch.int64)
        own = slots > 0
        for all_, end, side in ((self.low, low, -1), (self.high, high, 1)):
            all_[slots[own]] = outward(end[own], side)
        self.readers[slots[own]] = 2
        return slots

    def _grow(self) -> None:
        """Double the number of slots; the new ones are free."""
        old = len(self.low)
        self.low, self.high = (torch.cat([t, torch.empty_like(t)]) for t in (self.low, self.high))
        self.readers = torch.cat([self.readers, torch.zeros_like(self.readers)])
        self.free += range(old, len(self.low))


def outward(end: Tensor, side: int) -> Tensor:
    """Return float64 numbers `end` rounded to float32, never inward: down for side -1, up for side 1."""
    near = end.float()
    beyond = torch.nextafter(near, torch.full_like(near, side * torch.inf))
    return torch.where((near.double() - end) * side < 0, beyond, near)
