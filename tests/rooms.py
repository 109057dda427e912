"""A room is one group of tests, of which a worker takes all: its caches, workers and networks are made in one process.

Not by marks and `--dist loadgroup`: xdist 3.8 writes groups into names that pytest 9.2 makes anew, and deals out single
tests.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling


def group_of(nodeid: str) -> str:
    """tests/cli/test_ends.py::test_a[b] -> tests/cli, src/specgrad/ops/conv.py::conv -> src/specgrad/ops."""
    parts = nodeid.partition("::")[0].split("/")
    return "/".join(parts[: 2 if parts[0] == "tests" else 3])


class RoomScheduling(LoadScopeScheduling):
    """The groups with most tests first, each to the worker that waits."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
