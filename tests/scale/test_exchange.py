"""What devices send each other, played through with lists: all that is read arrives, and nothing else is sent."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest

import specgrad as sg
from specgrad.partition.halo_exchange import AxisExchange
from specgrad.partition.spmd_stages import Stages

pytestmark = pytest.mark.quick


def random_exchange(rng: Random) -> tuple[AxisExchange, int]:
    """Regular parts and halos; or any parts, of which any intervals are read, beyond the ends too."""
    devices = rng.randint(1, 6)
    if rng.random() < 0.5:
        block, before, after = rng.randint(1, 4), rng.randint(0, 5), rng.randint(0, 5)
        owned = [(d * block, (d + 1) * block) for d in range(devices)]
        beyond = (lambda i: i) if rng.random() < 0.5 else (lambda i: min(max(i, 0), devices * block))
        return AxisExchange(owned, [[(beyond(i - before), beyond(j + after))] for i, j in owned]), devices * block
    cells = rng.randint(1, 20)
    cuts = [0, *sorted(rng.randint(0, cells) for _ in range(devices - 1)), cells]
    owned = list(pairwise(cuts))
    ends = lambda: sorted(rng.randint(-3, cells + 3) for _ in range(2))
    return AxisExchange(owned, [[tuple(ends()) for _ in range(rng.randint(0, 2))] for _ in owned]), cells


def played(exchange: AxisExchange) -> tuple[list[list[int]], int]:
    """What each device has in the end, cell c standing for c + 1 and nothing for 0; and how many cells were sent."""
    blocks = [[c + 1 for c in range(*own)] for own in exchange.owned]
    blocks = [block + [0] * (exchange.block - len(block)) for block in blocks]
    sent = 0
    arrays = [list(block) for block in blocks]
    for piece in exchange.pieces:
        arrived = [[0] * piece.cells for _ in blocks]
        for source, target in piece.pairs:
            start = piece.starts[source]
            arrived[target] = blocks[source][start : start + piece.cells]
            sent += piece.cells
        arrays = [array + more for array, more in zip(arrays, arrived, strict=True)]
    if exchange.runs is not None:
        return [[v for a, b in exchange.runs for v in array[a:b]] for array in arrays], sent
    return [
        [array[i] if i >= 0 else 0 for i in line] for array, line in zip(arrays, exchange.table.tolist(), strict=True)
    ], sent


def check(seeds: range) -> int:
    """How many of them were laid out by intervals."""
    regular = 0
    for seed in seeds:
        exchange, cells = random_exchange(Random(seed))
        arrays, sent = played(exchange)
        missing = 0
        for array, start, reads, own in zip(arrays, exchange.starts, exchange.reads, exchange.owned, strict=True):
            assert len(array) == exchange.length
            assert all(array[c - start] == (c + 1 if 0 <= c < cells else 0) for c in reads), seed
            missing += len({c for c in reads if 0 <= c < cells} - set(range(*own)))
        assert sent == missing == exchange.cells_moved, seed
        regular += exchange.runs is not None
    return regular


def test_what_is_read_arrives_and_nothing_else_is_sent() -> None:
    assert 100 < check(range(600)) < 500


def test_a_cell_of_the_neighbour_in_place_of_zero_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if cells beyond the ends could hold anything."""
    right = AxisExchange.table.func

    def wrong(self: AxisExchange) -> np.ndarray:
        return np.maximum(right(self), -1)

    monkeypatch.setattr(AxisExchange, "table", property(wrong))
    with pytest.raises(AssertionError):
        check(range(3000))


def test_a_piece_that_begins_one_cell_late_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = AxisExchange._pieces

    def wrong(self: AxisExchange):
        for piece in right(self):
            yield piece._replace(starts={source: max(0, start - 1) for source, start in piece.starts.items()})

    monkeypatch.setattr(AxisExchange, "_pieces", wrong)
    with pytest.raises(AssertionError):
        check(range(30))


def test_halos_of_a_u_net_by_hand() -> None:
    """Rows of 16 x 8 images on 4 parts: 3 x 3 convolutions need one row of each neighbour, pooling and 2 x 2 none."""

    def net(p, x):
        y = sg.relu(sg.conv(p["a"], None, x, padding=1))
        z = sg.conv(p["b"], None, sg.max_pool(y, (2, 2)), padding=1)
        return sg.concat([sg.conv_transpose(p["up"], None, z, stride=2), y], 1)

    graph = sg.trace(net, {"a": (2, 1, 3, 3), "b": (3, 2, 3, 3), "up": (3, 2, 2, 2)}, (2, 1, 16, 8))
    stages = Stages(graph, {"data": (0, 2), "rows": (2, 4)})
    rows_sent = 2 * 3  # two neighbours at each of three borders
    assert stages.cells_moved == 2 * rows_sent * (1 * 8 + 2 * 4)
    assert len(stages.stages) == 2  # a maximum after a convolution waits for nobody
    assert all(stages.exchange(a, "data") is None for a in range(len(graph.nodes)))
