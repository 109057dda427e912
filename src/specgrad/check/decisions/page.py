"""The report of `preserve` as one HTML file: how margins compare with tolerances, and every sample that is open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..html import escape, executions, kind_of, level, page, text_at
from .preserve import Preserved, Sample

COLOURS = {"proven": "#2e7d32", "not proven": "#b26a00", "differs": "#c62828"}
LOW, HIGH, PER_DECADE = -6, 8, 2  # of log10(margin / tolerance); what lies beyond stands in the outer bars
MOST_ROWS = 200


def preserved_page(result: Preserved) -> str:
    """Counts, the distribution, the open samples, the nearest of the proven."""
    body = [
        f"<p>{escape(result.model)}: {escape(result.decision.said())}{_moved(result)}.</p>",
        *(f"<p>{escape(note)}</p>" for note in result.notes),
        f"<h2>Margin over tolerance</h2>{plot(result.samples)}",
        f"<h2>Not proven, or shown to differ</h2>{_table([s for s in result.samples if s.verdict != 'proven'])}",
        f"<h2>Nearest of the proven</h2>{_table(_nearest(result.samples))}",
        "<h2>What counts as a correct execution</h2>" + executions("of the whole model", result.deployment),
    ]
    return page(f"{result.decision} of {result.model}", result.verdict, escape(f"{result}."), body)


def _moved(result: Preserved) -> str:
    return "" if result.eps is None else f", on every input within {escape(str(result.eps))} of the sample"


def _nearest(samples: Sequence[Sample]) -> list[Sample]:
    return sorted((s for s in samples if s.verdict == "proven"), key=lambda s: s.ratio)[:20]


def bar_of(ratio: float) -> int:
    """Which bar of the plot a ratio belongs to; the first holds all that is smaller, the last all that is larger.

    >>> bar_of(0.0), bar_of(1.0) - bar_of(0.99), bar_of(float("inf")) == PER_DECADE * (HIGH - LOW) - 1
    (0, 1, True)
    """
    last = PER_DECADE * (HIGH - LOW) - 1
    if ratio <= 0 or not math.isfinite(ratio):
        return last if ratio > 0 else 0
    return min(max(math.floor((math.log10(ratio) - LOW) * PER_DECADE), 0), last)


def plot(samples: Sequence[Sample]) -> str:
    """How many samples have which margin over tolerance, half a decade a bar; right of the line is proven."""
    count = PER_DECADE * (HIGH - LOW)
    bars: list[dict[str, int]] = [dict.fromkeys(COLOURS, 0) for _ in range(count)]
    for s in samples:
        bars[bar_of(s.ratio)][s.verdict] += 1
    most = max(sum(bar.values()) for bar in bars) or 1
    left, step, height, bottom = 46.0, 26.0, 180.0, 200.0
    width = left + step * count + 14
    parts = [
        f'<svg viewBox="0 0 {width:.0f} 250" style="max-width:{width:.0f}px" role="img">',
        "<title>samples by margin over tolerance</title>",
    ]
    for share in (0.0, 0.5, 1.0) if most % 2 == 0 else (0.0, 1.0):
        y = bottom - height * share
        parts += [level(left, width - 10, y, "#8883"), text_at(left - 6, y + 4, f"{most * share:,.0f}", "end")]
    for k, bar in enumerate(bars):
        parts += _bar(left + step * k, step, bottom, height / most, bar, k)
    for decade in range(LOW, HIGH + 1, 2):
        parts.append(
            text_at(left + step * PER_DECADE * (decade - LOW), bottom + 16, f"1e{decade}" if decade else "1", "middle")
        )
    line = left + step * PER_DECADE * (0 - LOW)
    parts.append(f'<line x1="{line:.0f}" x2="{line:.0f}" y1="14" y2="{bottom:.0f}" stroke="#c62828"/>')
    parts += [text_at(line + 5, 18, "margin = tolerance", "start")]
    parts += [text_at(left, bottom + 40, "margin over tolerance; the outer bars hold all that lies beyond", "start")]
    return "".join([*parts, "</svg>", _legend(samples)])


def _bar(x: float, step: float, bottom: float, unit: float, bar: dict[str, int], k: int) -> list[str]:
    parts, y = [], bottom
    low, high = (10 ** (LOW + (k + i) / PER_DECADE) for i in (0, 1))
    for kind, count in bar.items():
        if count:
            y -= count * unit
            label = f"{count} {kind}: margin {low:.2g} to {high:.2g} times the tolerance"
            parts.append(
                f'<rect x="{x + 2:.1f}" y="{y:.1f}" width="{step - 4:.1f}" height="{count * unit:.1f}" '
                f'fill="{COLOURS[kind]}"><title>{escape(label)}</title></rect>'
            )
    return parts


def _legend(samples: Sequence[Sample]) -> str:
    words = []
    for kind, colour in COLOURS.items():
        count = sum(s.verdict == kind for s in samples)
        words.append(f'<span style="color:{colour}">&#9632;</span> {escape(kind)} {count}')
    return f"<p>{' &nbsp; '.join(words)}</p>"


def _table(samples: Sequence[Sample]) -> str:
    if not samples:
        return "<p>None.</p>"
    head = (
        '<tr><th class="number">sample<th>decision<th>verdict<th class="number">margin<th class="number">tolerance'
        '<th class="number">margin / tolerance<th>between outputs</tr>'
    )
    more = f"<p>And {len(samples) - MOST_ROWS} more.</p>" if len(samples) > MOST_ROWS else ""
    return f"<table>{head}{''.join(map(_row, samples[:MOST_ROWS]))}</table>{more}"


def _row(s: Sample) -> str:
    decided = f"{s.unproven} of {s.decisions} open" if s.decision is None else str(s.decision)
    numbers = "".join(f'<td class="number">{_number(v)}</td>' for v in (s.margin, s.tolerance, s.ratio))
    between = " and ".join(map(str, s.between)) or s.reason
    shown = "".join(map(_execution, s.executions))
    shown = f"<details><summary>two executions</summary>{shown}</details>" if shown else ""
    cells = f'<td class="number">{s.number}</td><td>{escape(decided)}</td><td>{kind_of(s.verdict)}</td>'
    return f"<tr>{cells}{numbers}<td>{escape(between)}{shown}</td></tr>"


def _number(x: float | None) -> str:
    return "unknown" if x is None else f"{x:.3g}"


def _execution(run: dict[str, Any]) -> str:
    values = ", ".join(f"y[{k}] = {v!r}" for k, v in list(run["outputs"].items())[:20])
    return f"<p>{escape(run['name'])}: decides {escape(str(run['decision']))}<br><code>{escape(values)}</code></p>"
