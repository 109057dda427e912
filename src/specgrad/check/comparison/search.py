"""Search an input of a box at which two networks differ much: gradient signs, then a rigorous evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from specgrad.bounds import Box
from specgrad.bounds.box import end_of
from specgrad.engines import compile
from specgrad.errors import SpecgradError, need
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves
from specgrad.scalar import Array

from .difference_bounds import difference, difference_at

STARTS, STEPS = 3, 12
Clock = Callable[[], float | None]


def search_witness(a: Graph, b: Graph, boxes: tuple[Any, ...], clock: Clock) -> tuple[float, tuple[Array, ...]]:
    """Return a proven lower bound of the difference at an input in `boxes`, and that input; (0, ()) if none.

    `clock` gives the seconds that are left, None: no limit. MissingPackageError without PyTorch.
    """
    need("torch", "a search by gradients needs")
    try:
        _, inputs = max(_candidate_inputs(a, b, boxes, clock), key=lambda pair: pair[0])
        least = max(float(e.max(initial=0.0)) for e in difference_at(a, b, inputs).least)
    except (SpecgradError, ValueError):  # no time for an input, or no number there
        return 0.0, ()
    return (least, inputs) if least > 0 else (0.0, ())


def _candidate_inputs(
    a: Graph, b: Graph, boxes: tuple[Any, ...], clock: Clock
) -> Iterator[tuple[float, tuple[Array, ...]]]:
    """Yield (difference of a and b in float64, input) in the boxes until `clock` says that no time is left: from the
    middle and from corners, steps along signs of the gradient.
    """
    import torch

    both = compile(difference(a, b), "torch").double()
    ends = [_box_bounds(box) for box in boxes]
    rng = np.random.default_rng(0)
    for start in range(STARTS):
        xs = [_starting_input(low, high, rng if start else None) for low, high in ends]
        for step in range(STEPS):
            left = clock()
            if left is not None and left <= 0:
                return
            given = [torch.from_numpy(x).requires_grad_(x.dtype.kind == "f") for x in xs]
            cells = torch.cat([y.reshape(-1) for y in leaves(both(*given))])
            at = int(cells.detach().abs().argmax())
            yield float(cells.detach()[at].abs()), tuple(xs)
            if not cells.requires_grad:  # steps alone: no gradient leads anywhere
                break
            (cells[at] * cells.detach()[at].sign()).backward()
            reach = 1 - step / STEPS
            xs = [_gradient_step(x, g.grad, *e, reach) for x, g, e in zip(xs, given, ends, strict=True)]


def _box_bounds(box: Any) -> tuple[Array, Array]:
    """Return (low, high) of a box; of an array, itself twice."""
    return (end_of(box.low), end_of(box.high)) if isinstance(box, Box) else (np.asarray(box), np.asarray(box))


def _starting_input(low: Array, high: Array, rng: Any) -> Array:
    """Return the middle of the box low..high (rng None) or a random corner of it."""
    if low is high:
        return low
    share = 0.5 if rng is None else rng.integers(0, 2, low.shape)
    return np.clip(low + (high - low) * share, low, high)


def _gradient_step(x: Array, slope: Any, low: Array, high: Array, reach: float) -> Array:
    """Return x moved along the signs of `slope` by the share `reach` of the box low..high, kept inside."""
    return x if slope is None else np.clip(x + np.sign(slope.numpy()) * (high - low) * reach, low, high)
