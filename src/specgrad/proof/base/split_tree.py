"""The tree of splits: how a box of executions is divided until every part can be excluded.

A split has two sides, and together they hold every execution:

    input      x[cell] <= at                  or  x[cell] > at, that is from the next float32 number on
    a node     z[cell] <= at                  or  z[cell] >= at      of its reference z
               (specgrad.bounds.linear.intermediate.forward_pass)
    a winner   the winner of window `cell` is tap `tap`, or it is another one

The winner of a window is the first of its largest taps, in the references of the node that the maximum reads; `cell` is
a cell of the maximum. It is one tap, so a window keeps it when others are excluded one after the other, and where tap t
wins, x_t >= x_j for all taps j. "Another is at least as large" would not do: of two equal taps each could exclude the
other. A minimum has the first of its smallest. Side 0 of a split stands first above: z <= at, `tap` wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Split:
    """One split of a part: at a point `at` of a cell of a node, or by the winner `tap` of a window.

    node   position in the graph
    cell   flat index in that node
    tap    of a max_pool its place in the kernel, of amax the cell over its axes, row by row; the argument of maximum;
           None: a split at a point
    """

    node: int
    cell: int
    at: float = 0.0
    tap: int | None = None


@dataclass(frozen=True)
class OpenPart:
    """A part that a search could not exclude: its box of inputs, and its splits from the root, each with its side.

    margin   a proven lower bound of (row.y - limit) for the best row of the worst alternative, not above 0
    low, high   of that box; cuts are the splits
    """

    low: Sequence[float]
    high: Sequence[float]
    cuts: Sequence[tuple[Split, int]]
    margin: float


@dataclass
class Tree:
    """A binary tree of splits over numbered parts; part 0 is the whole box, a part without a split is a leaf.

    cuts      split of each part, None for a leaf
    parents   part above it, sides which of both it is; firsts the part of its side 0

    >>> tree = Tree()
    >>> tree.divide(0, Split(0, 1, 0.5)), tree.divide(2, Split(3, 7))
    ((1, 2), (3, 4))
    >>> list(tree.leaves()), tree.path(3)
    ([1, 3, 4], [(Split(node=0, cell=1, at=0.5, tap=None), 1), (Split(node=3, cell=7, at=0.0, tap=None), 0)])
    >>> [part for part, _ in tree.preorder()]
    [0, 1, 2, 3, 4]
    """

    cuts: list[Split | None] = field(default_factory=lambda: [None])
    parents: list[int] = field(default_factory=lambda: [-1])
    sides: list[int] = field(default_factory=lambda: [0])
    firsts: dict[int, int] = field(default_factory=dict)

    def divide(self, part: int, cut: Split) -> tuple[int, int]:
        """Split the leaf `part` by `cut` and return the numbers of its two parts: side 0, then side 1.

        ValueError if it is no leaf.
        """
        if self.cuts[part] is not None:
            raise ValueError(f"part {part} is cut already")
        first = self.firsts[part] = len(self.cuts)
        self.cuts[part] = cut
        self.cuts += [None, None]
        self.parents += [part, part]
        self.sides += [0, 1]
        return first, first + 1

    def leaves(self) -> Iterator[int]:
        """Yield the numbers of all parts without a split."""
        return (part for part, cut in enumerate(self.cuts) if cut is None)

    def preorder(self) -> Iterator[tuple[int, Split | None]]:
        """Yield (part, its split or None), each part before its two sides, side 0 first: the order in files."""
        todo = [0]
        while todo:
            part = todo.pop()
            yield part, self.cuts[part]
            if part in self.firsts:
                todo += [self.firsts[part] + 1, self.firsts[part]]

    def path(self, part: int) -> list[tuple[Split, int]]:
        """Return the splits from the root down to a part, each with the side (0 or 1) that the part lies on."""
        steps: list[tuple[Split, int]] = []
        while part:
            side, part = self.sides[part], self.parents[part]
            cut = self.cuts[part]
            assert cut is not None
            steps.append((cut, side))
        return steps[::-1]
