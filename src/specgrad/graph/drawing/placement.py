"""Placement of boxes and lines: columns of boxes, lanes beside them, a bus above.

Boxes follow each other down a column, and from column to column; a network whose second half mirrors its first goes
down and up again, as a U. A value runs straight to the box below, and on a lane of its own to all others. Two values
share a lane only where they do not meet. Nothing here depends on what a box is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Point = tuple[float, float]
Edges = Sequence[tuple[int, tuple[int, ...]]]  # per value: the box that makes it, the boxes that read it

WIDE, GAP, LANE, SIDE = 196.0, 24.0, 7.0, 11.0
PAGE = (595.0, 842.0)  # A4 in points
MAX_COLUMNS = 12
MAX_BOXES_U_SHAPED = 120
MIN_READABLE_SCALE = 0.72  # of the size on screen: 9 points become 6.5


@dataclass
class Wire:
    """The lines of one value: the pieces of its trunk, the ends that reach a box, and the dots at branches."""

    trunk: list[list[Point]] = field(default_factory=list)
    ends: list[list[Point]] = field(default_factory=list)
    dots: list[Point] = field(default_factory=list)


@dataclass
class Layout:
    """Upper left corners of boxes, lines between them, and the size of the drawing, `width` and `height`, in points.

    `upward` says which columns run upward.
    """

    corners: list[Point]
    lines: list[Wire]
    upward: list[bool]
    width: float
    height: float

    @property
    def scale(self) -> float:
        """Return the factor, at most 1, at which the drawing fits an A4 page."""
        return min(PAGE[0] / self.width, PAGE[1] / self.height, 1.0)


def arranged(heights: Sequence[float], edges: Edges, starts: Sequence[int] = (), columns: int | None = None) -> Layout:
    """Return the layout of boxes of these heights that is largest on a page; `starts` are boxes that a column should
    preferably begin with.

    `edges` are (source, targets) of values; `columns` fixes their number.
    """
    most = min(MAX_COLUMNS, len(heights))
    if columns in (None, 2) and most >= 2 and (turned := _u_shaped(heights, edges, starts)) is not None:
        return turned
    counts = range(1, most + 1) if columns is None else [max(1, min(columns, most))]
    best: Layout | None = None
    for count in counts:
        made = _Routing(heights, edges, _split(len(heights), edges, starts, count), False).layout()
        best = made if best is None or made.scale > best.scale * 1.02 else best
    assert best is not None
    return best


def _u_shaped(heights: Sequence[float], edges: Edges, starts: Sequence[int]) -> Layout | None:
    """Return the layout of boxes of these heights as a U, if that shortens the lines and a page holds it readably; else
    None.

    The second column preferably begins with one of `starts`.
    """
    count = len(heights)
    if count > MAX_BOXES_U_SHAPED:
        return None
    middle = range(max(1, count // 3), min(count, 2 * count // 3 + 2))
    places = [b for b in middle if b in starts] or list(middle)
    up = min((_Routing(heights, edges, [0, b], True) for b in places), key=_Routing.bends)
    down = _Routing(heights, edges, _split(count, edges, starts, 2), False)
    if _crossing(edges, up.column.index(1)) < 3 or up.bends() > 0.6 * down.bends():
        return None
    layout = up.layout()
    return layout if layout.scale >= MIN_READABLE_SCALE else None


def _split(count: int, edges: Edges, starts: Sequence[int], columns: int) -> list[int]:
    """Return the first of `count` boxes in every column: near equal columns, split where few values cross, preferably
    at `starts`.
    """
    firsts = [0]
    for k in range(1, columns):
        ideal = k * count / columns
        room = max(1, count // (4 * columns))
        places = [b for b in range(int(ideal) - room, int(ideal) + room + 2) if firsts[-1] < b < count]
        if places:
            firsts.append(min(places, key=lambda b: (b not in starts, _crossing(edges, b), abs(b - ideal))))
    return firsts


def _crossing(edges: Edges, at: int) -> int:
    """Return how many values cross from boxes before `at` to later ones."""
    return sum(source < at <= max(targets) for source, targets in edges if targets)


class _Routing:
    """Positions and lines for one way of splitting boxes into columns.

    heights   of the boxes, from top to bottom
    edges     between boxes
    split     the first box of every column
    turned    the second column runs upwards, as in a U
    """

    def __init__(self, heights: Sequence[float], edges: Edges, split: list[int], turned: bool) -> None:
        self.heights, self.edges, self.turned = heights, edges, turned
        self.count = len(split)
        ends = [*split[1:], len(heights)]
        self.column = [c for c, (a, b) in enumerate(zip(split, ends, strict=True)) for _ in range(a, b)]
        self.tall = max(sum(heights[a:b]) + GAP * (b - a) for a, b in zip(split, ends, strict=True))
        self.top = [0.0] * len(heights)
        for c, (a, b) in enumerate(zip(split, ends, strict=True)):
            y, gap = 0.0, GAP
            if turned and b - a > 1:  # both sides of a U are as long as each other
                gap = min(3 * GAP, (self.tall - GAP - sum(heights[a:b])) / (b - a - 1))
            for i in range(a, b):
                self.top[i] = self.tall - GAP - y - heights[i] if turned and c == 1 else y
                y += heights[i] + gap

    def bends(self) -> float:
        """Return the total vertical distance that values travel on lanes."""
        pairs = [(s, t) for s, targets in self.edges for t in targets if not self._straight(s, t)]
        return sum(abs(self.top[s] - self.top[t]) for s, t in pairs)

    def layout(self) -> Layout:
        """Return the layout with all lines routed. On the way it assigns ports and lanes, and sets `begins`."""
        self._ports()
        self._assign_lanes()
        lanes = [max((lane for lane, _ in used.values()), default=-1) + 1 for used in self.lanes]
        widths = [2 * SIDE + LANE * max(n - 1, 0) if n else (14.0 if c in (0, self.count) else 20.0)
                  for c, n in enumerate(lanes)]  # fmt: skip
        self.begins = [sum(widths[:c]) + WIDE * c for c in range(self.count + 1)]
        buses = max(self.bus.values(), default=-1) + 1
        above = 8.0 + LANE * buses
        lines = [self._line(k, above) for k in range(len(self.edges))]
        corners = [(self.begins[c] + widths[c], self.top[i] + above) for i, c in enumerate(self.column)]
        for line in lines:
            for piece in (*line.trunk, *line.ends):
                piece[:] = [(x, y + above) for x, y in piece]
            line.dots[:] = [(x, y + above) for x, y in line.dots]
        return Layout(corners, lines, [self.turned and c == 1 for c in self.column],
                      self.begins[-1] + widths[-1], self.tall + above)  # fmt: skip

    def _straight(self, source: int, target: int) -> bool:
        """Return whether the box `target` is the next one after `source` in the same column."""
        return target == source + 1 and self.column[source] == self.column[target]

    def _ports(self) -> None:
        """Set the heights at which lines enter and leave boxes: entries above each other, exits below them on the right
        side.
        """
        left: dict[int, list[int]] = {}
        right: dict[int, list[int]] = {}
        leaves: dict[int, list[int]] = {}
        for k, (source, targets) in enumerate(self.edges):
            aside = [t for t in targets if not self._straight(source, t)]
            if aside:
                leaves.setdefault(source, []).append(k)
            for t in aside:
                (right if self.column[t] == self.column[source] else left).setdefault(t, []).append(k)
        self.entry: dict[tuple[int, int], float] = {}
        self.exit: dict[int, float] = {}
        for sides, low, high in ((left, 0.1, 0.9), (right, 0.08, 0.5)):
            for t, values in sides.items():
                for i, k in enumerate(values):
                    self.entry[k, t] = self._at(t, low, high, i, len(values))
        for source, values in leaves.items():
            for i, k in enumerate(values):
                self.exit[k] = self._at(source, 0.55, 0.95, i, len(values))

    def _at(self, box: int, low: float, high: float, i: int, count: int) -> float:
        """Return the height of entry i of `count`, spread between the fractions low and high of a box's height."""
        return self.top[box] + self.heights[box] * (low + (high - low) * (i + 1) / (count + 1))

    def _assign_lanes(self) -> None:
        """Assign a lane in every channel that a value uses, and a bus to values that pass columns."""
        spans: list[dict[int, tuple[float, float]]] = [{} for _ in range(self.count + 1)]
        passing: dict[int, tuple[float, float]] = {}
        for k, (source, targets) in enumerate(self.edges):
            if k not in self.exit:
                continue
            home = self.column[source] + 1
            ys = [self.exit[k]]
            for t in targets:
                if (k, t) not in self.entry:
                    continue
                if self.column[t] <= home:
                    ys.append(self.entry[k, t])
                else:
                    ys.append(-LANE)
                    low, high = spans[self.column[t]].get(k, (-LANE, -LANE))
                    spans[self.column[t]][k] = (min(low, self.entry[k, t]), max(high, self.entry[k, t]))
                    passing[k] = (home, max(self.column[t], passing.get(k, (0, 0))[1]))
            spans[home][k] = (min(ys), max(ys))
        self.lanes = [_lanes(s, 3.0) for s in spans]
        self.bus = {k: lane for k, (lane, _) in _lanes(passing, 0.5).items()}

    def _x(self, channel: int, k: int) -> float:
        """Return the x coordinate of value k's lane in a channel, the space between two columns."""
        return self.begins[channel] + SIDE + LANE * self.lanes[channel][k][0]

    def _line(self, k: int, above: float) -> Wire:
        """Return the lines of value k; those to other columns pass at height `above`."""
        source, targets = self.edges[k]
        line = Wire()
        home = self.column[source]
        for t in targets:
            if self._straight(source, t):
                x = self._left(home) + WIDE / 2
                down = self.top[t] > self.top[source]
                ends = (self.top[source] + self.heights[source], self.top[t])
                back = (self.top[source], self.top[t] + self.heights[t])
                line.ends.append([(x, y) for y in (ends if down else back)])
        if k not in self.exit:
            return line
        x = self._x(home + 1, k)
        _, (low, high) = self.lanes[home + 1][k]
        line.trunk.append([(self._left(home) + WIDE, self.exit[k]), (x, self.exit[k])])
        over = -LANE * (1 + self.bus.get(k, 0))
        line.trunk.append([(x, over if k in self.bus else low), (x, high)])
        for t in targets:
            if (k, t) in self.entry:
                self._end(line, k, t, x, over)
        return line

    def _end(self, line: Wire, k: int, t: int, x: float, over: float) -> None:
        """Add to `line` the end of value k that reaches box t, from x; it crosses columns at height `over`."""
        y, column = self.entry[k, t], self.column[t]
        if column > self.column[self.edges[k][0]] + 1:
            far = self._x(column, k)
            line.trunk += [[(x, over), (far, over)], [(far, over), (far, y)]]
            x = far
        same = column == self.column[self.edges[k][0]]
        line.ends.append([(x, y), (self._left(column) + (WIDE if same else 0), y)])
        home = self.column[self.edges[k][0]] + 1
        low, high = self.lanes[max(column, home)][k][1]
        if low < y < high:
            line.dots.append((x, y))

    def _left(self, column: int) -> float:
        """Return the x of the left side of a column's boxes."""
        following = self.begins[column + 1]
        return following - WIDE


def _lanes(spans: dict[int, tuple[float, float]], room: float) -> dict[int, tuple[int, tuple[float, float]]]:
    """Return a lane per value, short spans first; spans closer than `room` get different lanes."""
    taken: list[list[tuple[float, float]]] = []
    lanes = {}
    for k, (low, high) in sorted(spans.items(), key=lambda item: (item[1][1] - item[1][0], item[0])):
        free = [i for i, used in enumerate(taken) if all(high + room < a or b + room < low for a, b in used)]
        lane = free[0] if free else len(taken)
        if not free:
            taken.append([])
        taken[lane].append((low, high))
        lanes[k] = (lane, (low, high))
    return lanes
