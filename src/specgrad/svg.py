"""Pictures as SVG: one palette for light and dark pages, a few shapes, and an object that notebooks show.

Every text is data: escaped, printable, shortened in the middle. A picture has its own paper, so that it can be read on
any page; its styles reach nothing outside itself, and it needs no script, no font and no other file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from pathlib import Path

from .atomic_files import write_whole
from .errors import printable

Ink = tuple[str, str, str]  # fill, text on it, line around it
Point = tuple[float, float]
TONES: dict[str, tuple[Ink, Ink]] = {  # on light pages, on dark ones
    "paper": (("#ffffff", "#1f2328", "#8c959f"), ("#0d1117", "#e6edf3", "#7d8590")),
    "soft": (("#ffffff", "#57606a", "#8c959f"), ("#0d1117", "#9aa4af", "#6e7681")),
    "cell": (("#f6f8fa", "#1f2328", "#8c959f"), ("#1c2128", "#e6edf3", "#6e7681")),
    "pad": (("#ffffff", "#57606a", "#8c959f"), ("#0d1117", "#9aa4af", "#6e7681")),
    "grain": (("#d0d7de", "#1f2328", "#d0d7de"), ("#373e47", "#e6edf3", "#373e47")),
    "read": (("#cfe3ff", "#0a3069", "#2f6feb"), ("#12365f", "#dcebff", "#4a8fe7")),
    "win": (("#ffdd75", "#3b2300", "#b87400"), ("#6b4a00", "#fff1c9", "#e0a92b")),
    "back": (("#eadcff", "#2e1065", "#8250df"), ("#3b2468", "#efe4ff", "#a371f7")),
    "good": (("#d7f5dd", "#0b3d1a", "#1a7f37"), ("#0f3d1f", "#d2f5dc", "#3fb950")),
    "open": (("#ffe8c2", "#4d2d00", "#8a5c00"), ("#4a3200", "#ffe9c4", "#d29922")),
    "bad": (("#ffd9d6", "#5f0f0a", "#cf222e"), ("#5c1a17", "#ffe3e0", "#f85149")),
    "width0": (("#f1f6ff", "#12213d", "#8aa4cf"), ("#16202f", "#e3ecf9", "#50688c")),
    "width1": (("#d3e2ff", "#12213d", "#7391c6"), ("#1d3355", "#e3ecf9", "#5b7eb5")),
    "width2": (("#abc6fb", "#0c1930", "#5c7fbd"), ("#28487b", "#f0f5fd", "#7397d3")),
    "width3": (("#84aaf5", "#071022", "#3f67ad"), ("#355f9f", "#ffffff", "#94b4e8")),
}
"""What a thing is called, and its colours; tests/test_picture.py holds every text against its fill (4.5 to 1)."""
LETTER_WIDTH = 0.56  # of the font size: the mean width of a letter


def shortened(text: object, most: int) -> str:
    """Return the text in at most `most` visible letters, by leaving out the middle.

    >>> shortened("features.denseblock1.denselayer2.conv1", 22)
    'features.d…ayer2.conv1'
    >>> shortened("\\x1b[2J", 22)
    '\\\\x1b[2J'
    """
    line = printable(text)
    if len(line) <= most:
        return line
    kept = max(most - 1, 2)
    return f"{line[: kept // 2]}…{line[kept // 2 - kept :]}"


def fits(text: object, width: float, size: float) -> str:
    """Return the text shortened to a width in pixels at this font size, but not below 3 letters."""
    return shortened(text, max(3, int(width / (LETTER_WIDTH * size))))


def _rules(tones: set[str], which: int) -> str:
    """Return the CSS of the tones that a picture uses, for light pages (`which` 0) or dark ones (1)."""
    rules = []
    for tone in sorted(tones):
        fill, ink, line = TONES[tone][which]
        rules.append(f".sgp .area.{tone}{{fill:{fill};stroke:{line}}}.sgp text.{tone}{{fill:{ink}}}")
        rules.append(f".sgp .line.{tone}{{stroke:{line}}}.sgp .head.{tone}{{fill:{line}}}")
    return "".join(rules)


STYLE = (
    ".sgp{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}"
    ".sgp path.line{fill:none}.sgp .area.ground{stroke:none}.sgp .dashed{stroke-dasharray:3 2.5}"
    ".sgp .bold{font-weight:600}.sgp .mono{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
)


@dataclass
class Canvas:
    """SVG shapes in drawing order (`parts`), the extent that they reach (`right`, `bottom`), and the `tones` that they
    use.
    """

    parts: list[str] = field(default_factory=list)
    right: float = 0
    bottom: float = 0
    tones: set[str] = field(default_factory=lambda: {"paper"})

    def _extend(self, x: float, y: float, tone: str) -> None:
        """Extend the drawing's extent to a point, and note the tone as used."""
        self.right, self.bottom = max(self.right, x), max(self.bottom, y)
        self.tones.add(tone)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        tone: str,
        *,
        dashed: bool = False,
        heavy: bool = False,
        radius: float = 2,
        title: str = "",
    ) -> None:
        """Draw a rectangle with the upper left corner (x, y); `title` is what a pointer over it shows.

        `tone` is its colour, a class of the style; `heavy` gives it a thick frame, `radius` rounds its corners. width,
        height and a `dashed` frame are as SVG has them.
        """
        self._extend(x + width, y + height, tone)
        line = 1.8 if heavy else 0.8
        inner = f"><title>{escape(printable(title))}</title></rect>" if title else "/>"
        self.parts.append(
            f'<rect class="area {tone}{" dashed" * dashed}" x="{x:.5g}" y="{y:.5g}" width="{width:.5g}" '
            f'height="{height:.5g}" rx="{radius:.3g}" stroke-width="{line}"{inner}'
        )

    def text(
        self,
        x: float,
        y: float,
        text: object,
        tone: str = "paper",
        *,
        size: float = 11,
        anchor: str = "middle",
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        """Draw a line of text with its baseline at y; `anchor` says whether x is its start, middle or end.

        `tone` is its colour, a class of the style; `size` its height in points. `bold` and `mono` choose the font.
        """
        said = printable(text)
        length = LETTER_WIDTH * size * len(said)
        self._extend(x + {"start": length, "middle": length / 2}.get(anchor, 0), y + size / 3, tone)
        words = f"{tone}{' bold' * bold}{' mono' * mono}"
        self.parts.append(
            f'<text class="{words}" x="{x:.5g}" y="{y:.5g}" font-size="{size:.3g}" text-anchor="{anchor}">'
            f"{escape(said)}</text>"
        )

    def path(
        self,
        points: Sequence[Point],
        tone: str = "paper",
        *,
        arrow: bool = False,
        dashed: bool = False,
        width: float = 1,
        title: str = "",
    ) -> None:
        """Draw a line of a width through the points, `dashed` or not; with an arrow, its last piece must be parallel to
        an axis.

        `tone` is its colour, `title` what a pointer over it shows.
        """
        for x, y in points:
            self._extend(x, y, tone)
        line = "M" + "L".join(f"{x:.5g} {y:.5g}" for x, y in points)
        inner = f"><title>{escape(printable(title))}</title></path>" if title else "/>"
        self.parts.append(f'<path class="line {tone}{" dashed" * dashed}" d="{line}" stroke-width="{width:.3g}"{inner}')
        if arrow:
            self.parts.append(_head(points[-2], points[-1], tone))

    def squares(self, corners: Sequence[Point], side: float, tone: str) -> None:
        """Draw squares of a `side` with these upper left corners, all of one tone, as one shape, which keeps the file
        small.
        """
        for x, y in corners:
            self._extend(x + side, y + side, tone)
        step = f"h{side:.3g}v{side:.3g}h-{side:.3g}z"
        line = "".join(f"M{x:.5g} {y:.5g}{step}" for x, y in corners)
        self.parts.append(f'<path class="area {tone}" d="{line}" stroke-width=".6"/>')

    def dot(self, x: float, y: float, tone: str, radius: float = 1.7) -> None:
        """Draw a filled circle of a radius and tone around (x, y)."""
        self._extend(x + radius, y + radius, tone)
        self.parts.append(f'<circle class="head {tone}" cx="{x:.5g}" cy="{y:.5g}" r="{radius:.3g}"/>')

    def picture(self, title: str, *, margin: float = 12) -> Picture:
        """Return the finished picture on its own background, with a margin; `title` is what a screen reader says."""
        width, height = self.right + margin, self.bottom + margin
        name = escape(printable(title))
        style = f"{STYLE}{_rules(self.tones, 0)}@media(prefers-color-scheme:dark){{{_rules(self.tones, 1)}}}"
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="sgp" role="img" viewBox="0 0 {width:.5g} {height:.5g}" '
            f'width="{width:.5g}" height="{height:.5g}" style="max-width:100%;height:auto"><title>{name}</title>'
            f'<style>{style}</style><rect class="area paper ground" width="100%" height="100%" rx="6"/>'
            f"{''.join(self.parts)}</svg>\n"
        )
        return Picture(svg)


def _head(before: Point, end: Point, tone: str) -> str:
    """Return the arrow head at `end`, of a line from `before`, as SVG in the colour `tone`."""
    (ax, ay), (x, y) = before, end
    dx, dy = (x > ax) - (x < ax), (y > ay) - (y < ay)
    one, other = (x - 5 * dx - 2.6 * dy, y - 5 * dy - 2.6 * dx), (x - 5 * dx + 2.6 * dy, y - 5 * dy + 2.6 * dx)
    points = " ".join(f"{px:.5g},{py:.5g}" for px, py in (end, one, other))
    return f'<polygon class="head {tone}" points="{points}"/>'


@dataclass(frozen=True)
class Picture:
    """An SVG: notebooks show it, `save` writes it, `.svg` is its text."""

    svg: str

    def _repr_svg_(self) -> str:
        """Return the SVG text, for notebooks."""
        return self.svg

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file, whole or not at all."""
        write_whole(Path(path), self.svg)

    def __repr__(self) -> str:
        return f"Picture({len(self.svg):,} letters of SVG; save(path) writes it)"


def is_picture(data: bytes) -> bool:
    """Return whether a file with the bytes `data` was written by `Picture.save`."""
    return data.startswith(b'<svg xmlns="http://www.w3.org/2000/svg" class="sgp"')
