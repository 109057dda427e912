"""A room is one group of tests, of which a worker takes all: its caches, workers and networks are made in one process.

Not by marks and `--dist loadgroup`: xdist 3.8 writes groups into names that pytest 9.2 makes anew, and deals out single
tests.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling


def group_of(nodeid: str) -> str:
    """tests/cli/test_ends.py::test_a[b] -> tests/cli, src/specgrad/ops/conv.py::conv -> src/specgrad/ops."""
    parts = nodeid.partition("::")[0].split("/")
    return "/".join(parts[: 2 if parts[0] == "tests" else 3])


class RoomScheduling(LoadScopeScheduling):
    """The groups with most tests first, each to the worker that waits."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Return the test that a lost worker was at, if any. It has failed: xdist 3.8 would run it on the next worker,
        where it crashes or hangs again, four times per worker, each for the whole time limit.
        """
        units = self.assigned_work[node].values()
        unit, crashed = next(((unit, test) for unit in units for test, done in unit.items() if not done), ({}, None))
        if crashed is not None:
            unit[crashed] = True
        super().remove_node(node)
        return crashed
