"""HTML reports in one file: no network, no scripts, the verdict first, for light and dark pages and phones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape as escape_html

from .errors import printable
from .svg import TONES, Picture, shortened

GOOD = (
    *("exact", "rounding", "ok", "proven", "estimated", "holds", "valid", "same", "same within rounding"),
    *("bounded", "no finding", "unsat"),
)
OPEN = (
    "timed-out",
    "cannot tell",
    "partly examined",
    "unusual",
    "refuses",
    "not offered",
    "not proven",
    "not examined",
    "unknown",
    "times out",
    "unbounded",
    "unfinished",
    "crashed",
    "undecided",
    "not checked",
)
MAX_NAME_CHARS = 30


def tone_of(kind: str) -> str:
    """Return "good", "open" or "bad" for a verdict's `kind`.

    >>> tone_of("rounding"), tone_of("unknown"), tone_of("differs")
    ('good', 'open', 'bad')
    """
    return "good" if kind in GOOD else "open" if kind in OPEN else "bad"


def colours(which: int) -> dict[str, str]:
    """Return the colours of a light page (`which` 0) or a dark one (1), by name; texts have a contrast of at least 4.5
    to 1.
    """
    paper, ink, _ = TONES["paper"][which]
    lines = {tone: TONES[tone][which][2] for tone in ("good", "bad", "open")}
    soft, shade, line = TONES["soft"][which][1], ("#f3f5f7", "#161b22")[which], ("#d0d7de", "#3d444d")[which]
    link = ("#0550ae", "#79b8ff")[which]
    return {"paper": paper, "ink": ink, **lines, "soft": soft, "link": link, "shade": shade, "line": line}


def _variables(which: int) -> str:
    """Return the colours of a light page (`which` 0) or a dark one (1) as CSS variables."""
    return " ".join(f"--{name}: {value};" for name, value in colours(which).items())


STYLE = (
    f"""
:root {{ color-scheme: light dark; {_variables(0)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(1)} }} }}
"""
    + """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
body { background: var(--paper); color: var(--ink); overflow-wrap: break-word; } a { color: var(--link); }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.verdict { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); }
.lead { border-left: 4px solid; padding: .25rem 1rem; margin: 1rem 0; } .lead span { color: var(--ink); }
td.used { white-space: nowrap; } :target { background: var(--shade); outline: 2px solid var(--bad); }
.wide { overflow-x: auto; } .wide > table { min-width: 46rem; } .wide > table.slim { min-width: 0; width: auto; }
.wide > svg { display: block; max-width: none !important; }
.wide + .wide { margin-top: 1rem; } details > .wide { margin-top: .5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; } td > code { white-space: nowrap; }
tr.above td { border-bottom: 0; } tr.below td { padding-top: 0; }
details .wide > table { min-width: 0; width: auto; margin: .3rem 0 .6rem; }
.track { background: var(--line); width: 7rem; height: .7rem; border-radius: .35rem; overflow: hidden; }
.track { display: inline-block; }
.track i { display: block; height: 100%; background: var(--good); } .track i.bad { background: var(--bad); }
.track i.open { background: var(--open); }
pre { background: var(--shade); padding: .8rem; overflow-x: auto; font-size: 13px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; margin: .3rem 0; } dd { margin: 0; }
code { font-size: 13px; } footer { margin-top: 3rem; color: var(--soft); font-size: 13px; }
svg.plot text { fill: var(--ink); } svg.plot line { stroke: var(--line); } svg.plot line.bad { stroke: var(--bad); }
svg.plot line.middle { stroke: var(--soft); } svg .fill-good { fill: var(--good); } svg .fill-bad { fill: var(--bad); }
svg .fill-open { fill: var(--open); } svg .fill-link { fill: var(--link); } svg .fill-soft { fill: var(--soft); }
svg path.branch { fill: none; stroke: var(--soft); }
.images { display: flex; flex-wrap: wrap; gap: 1rem; margin: .5rem 0 1rem; } figure { margin: 0; max-width: 100%; }
figure img { image-rendering: pixelated; max-width: 100%; height: auto; border: 1px solid var(--line); }
@media print {
  body { max-width: none; margin: 0; font-size: 10pt; } a { color: inherit; } .wide { overflow: visible; }
  .wide > svg { max-width: 100% !important; height: auto; }
  .wide > table { min-width: 0; font-size: 8.5pt; } td > code { white-space: normal; overflow-wrap: anywhere; }
  h2 { break-after: avoid; } tr, pre, figure, .lead { break-inside: avoid; }
  details::details-content { content-visibility: visible; }
}
"""
    + f"@media print {{ :root {{ color-scheme: light; {_variables(0)} }} }}"
)


def escape(text: str) -> str:
    """Return text escaped for HTML, attribute values included; control characters but newlines are made visible."""
    return escape_html("\n".join(map(printable, text.split("\n"))))


def named(name: str) -> str:
    """Return the name of a layer as HTML, shortened in the middle, with the full name as its title."""
    short = shortened(name, MAX_NAME_CHARS)
    title = "" if short == printable(name) else f' title="{escape(name)}"'
    return f"<code{title}>{escape(short)}</code>"


def kind_of(kind: str) -> str:
    """Return a verdict's `kind` as HTML in its tone."""
    return f'<span class="verdict {tone_of(kind)}">{escape(kind)}</span>'


def wide(table: str) -> str:
    """Return the HTML of a table in a box that scrolls where the window is narrow."""
    return f'<div class="wide">{table}</div>'


def picture(svg: str) -> str:
    """Return an SVG for use inside a page, without its namespace address."""
    return wide(svg.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1))


def legend(meanings: Mapping[str, str], used: Iterable[str]) -> str:
    """Return HTML that explains the words in `used` by their `meanings`; "" if none needs it."""
    kinds = [k for k in meanings if k in set(used)]
    rows = "".join(f"<dt>{kind_of(k)}</dt><dd>{escape(meanings[k])}</dd>" for k in kinds)
    return f"<dl>{rows}</dl>" if rows else ""


FOOT = (
    "A radius is a proven bound on what rounding does in every correct execution; what lies outside it is not rounding."
)


def page(title: str, verdict: str, lead: str, body: Sequence[str], foot: str = FOOT) -> str:
    """Return the HTML of a report: title, verdict, lead, body and footer (`foot`).

    Title and verdict are escaped here; lead, body and foot are HTML already.
    """
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(verdict)}: {escape(title)}</title><style>{STYLE}</style>",
            f"<h1>{kind_of(verdict)} &middot; {escape(title)}</h1>",
            f'<div class="lead {tone_of(verdict)}"><span>{lead}</span></div>',
            *body,
            f"<footer>Written by specgrad. {foot}</footer></html>\n",
        ]
    )


MARKS = {"good": "&#10003;", "open": "?", "bad": "&#10007;"}
MAX_NOTEBOOK_ROWS = 30


def fragment(verdict: str, sentences: Sequence[str], head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a result as HTML for the cell of a notebook: a mark and its verdict, sentences, a table of its first rows.

    It brings no colours, so that it fits every theme.

    >>> fragment("rounding", ["1 < 2"], ["layer"], [["a"]])
    '<p><b>&#10003; rounding</b></p><p>1 &lt; 2</p><table><tr><th>layer</th></tr><tr><td>a</td></tr></table>'
    """
    said = "".join(f"<p>{escape(text)}</p>" for text in sentences)
    lines = [_cells("th", head), *(_cells("td", row) for row in rows[:MAX_NOTEBOOK_ROWS])]
    more = f"<p>and {len(rows) - MAX_NOTEBOOK_ROWS} more</p>" if len(rows) > MAX_NOTEBOOK_ROWS else ""
    table = f"<table>{''.join(lines)}</table>{more}" if rows else ""
    return f"<p><b>{MARKS[tone_of(verdict)]} {escape(verdict)}</b></p>{said}{table}"


def _cells(tag: str, row: Sequence[object]) -> str:
    """Return a row of a table as HTML, each cell in this tag."""
    return "<tr>" + "".join(f"<{tag}>{escape(str(v))}</{tag}>" for v in row) + "</tr>"


def executions(title: str, said: Mapping[str, str]) -> str:
    """Return HTML, folded away under a title, that says what a correct execution is; `said` has the texts by topic."""
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(text)}</td></tr>" for k, text in said.items())
    return f"<details><summary>{escape(title)}</summary>{wide(f'<table>{rows}</table>')}</details>"


def level(x1: float, x2: float, y: float, tone: str = "") -> str:
    """Return a horizontal line of a plot from x1 to x2 at y as SVG; `tone` is its class."""
    return f'<line class="{tone}" x1="{x1:.0f}" x2="{x2:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'


def text_at(x: float, y: float, text: str, anchor: str) -> str:
    """Return a text of a plot as SVG; `anchor` ("start", "middle", "end") says which part of it stands at x.

    `text` is SVG already: nothing is escaped.
    """
    return f'<text x="{x:.0f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11">{text}</text>'


def plot(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """Return an SVG of `parts` at its own width and height, which scrolls where the window is narrower; `title` is for
    screen readers.
    """
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return wide(f'<svg class="plot" {size} role="img"><title>{escape(title)}</title>{"".join(parts)}</svg>')


PLOT_RULES = [line for line in STYLE.splitlines() if line.startswith("svg")]


def alone(plotted: str) -> Picture:
    """Return a plot, the HTML text `plotted`, as a standalone SVG file, with its colours, background and font."""
    svg = plotted[plotted.index("<svg") : plotted.index("</svg>") + 6]
    head, body = svg.split("</title>", 1)
    width, height = (int(n) + 24 for n in re.findall(r"viewBox=\"0 0 (\d+) (\d+)\"", head)[0])
    title = head[head.index("<title>") :]
    rules = "".join(PLOT_RULES) + "svg{font-family:system-ui,sans-serif}.paper{fill:var(--paper)}"
    style = f":root{{{_variables(0)}}}@media(prefers-color-scheme:dark){{:root{{{_variables(1)}}}}}{rules}"
    size = f'viewBox="-12 -12 {width} {height}" width="{width}" height="{height}"'
    ground = f'<rect class="paper" x="-12" y="-12" width="{width}" height="{height}" rx="6"/>'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" {size} role="img">{title}</title>'
    return Picture(f"{start}<style>{style}</style>{ground}{body}\n")
