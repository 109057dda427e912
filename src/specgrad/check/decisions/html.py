"""The report of `preserve` as one HTML file: margins over tolerances, and every sample that is open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from specgrad.html_page import escape, executions, kind_of, level, page, text_at, tone_of
from specgrad.html_page import plot as plotted

from .preserve import PreserveResult
from .sample_verdict import Sample

KINDS = ("proven", "not proven", "differs")
LOW, HIGH, PER_DECADE = -6, 8, 2  # of log10(margin / tolerance); what lies beyond stands in the outer bars
FIRST_DECADE, LAST_DECADE = -2, 2  # decades that are drawn in any case
MAX_ROWS = 200
MAX_OUTPUTS = 6
FOOT = (
    "The margin is how far a decision is from turning, in exact arithmetic; the tolerance is what a correct execution "
    "may take from it. Where the margin is larger, no correct runtime can change the decision."
)


def preserved_page(result: PreserveResult) -> str:
    """Return the HTML page: counts, distribution, open samples, and the nearest of the proven ones."""
    body = [
        f"<p>{escape(result.model)}: {escape(result.decision.said())}{_eps_text(result)}.</p>",
        *(f"<p>{escape(note)}</p>" for note in result.notes),
        f"<h2>Margin over tolerance</h2>{plot(result.samples)}",
        "<h2>Not proven, or shown to differ</h2>"
        + _samples_table([s for s in result.samples if s.verdict != "proven"]),
        f"<h2>Nearest of the proven</h2>{_samples_table(_nearest_proven(result.samples))}",
        "<h2>What counts as a correct execution</h2>" + executions("of the whole model", result.deployment),
    ]
    return page(
        f"{result.decision} of {result.model}", result.verdict, escape(f"{'. '.join(result.sentences())}."), body, FOOT
    )


def _eps_text(result: PreserveResult) -> str:
    """Return the words for the box around a sample, its eps; "" if the result has none."""
    return "" if result.eps is None else f", on every input within {escape(str(result.eps))} of the sample"


def _nearest_proven(samples: Sequence[Sample]) -> list[Sample]:
    """Return the 20 proven samples with the smallest margin over tolerance."""
    return sorted((s for s in samples if s.verdict == "proven"), key=lambda s: s.ratio)[:20]


def bar_of(ratio: float) -> int:
    """Return the plot bar of a ratio; the first holds all smaller ratios, the last all larger ones.

    >>> bar_of(0.0), bar_of(1.0) - bar_of(0.99), bar_of(float("inf")) == PER_DECADE * (HIGH - LOW) - 1
    (0, 1, True)
    """
    last = PER_DECADE * (HIGH - LOW) - 1
    if ratio <= 0 or not math.isfinite(ratio):
        return last if ratio > 0 else 0
    return min(max(math.floor((math.log10(ratio) - LOW) * PER_DECADE), 0), last)


def plot(samples: Sequence[Sample]) -> str:
    """Return an SVG histogram of samples by margin over tolerance, half a decade a bar; right of the line is proven."""
    bars: list[dict[str, int]] = [dict.fromkeys(KINDS, 0) for _ in range(PER_DECADE * (HIGH - LOW))]
    for s in samples:
        bars[bar_of(s.ratio)][s.verdict] += 1
    first, last = _decades(bars)
    drawn = range(PER_DECADE * (first - LOW), PER_DECADE * (last - LOW))
    most = max(sum(bars[k].values()) for k in drawn) or 1
    left, step, height, bottom = 46.0, 26.0, 180.0, 214.0
    width = left + step * len(drawn) + 14
    parts = [text_at(0, 16, "samples", "start")]
    for share in (0.0, 0.5, 1.0) if most % 2 == 0 else (0.0, 1.0):
        y = bottom - height * share
        parts += [level(left, width - 10, y), text_at(left - 6, y + 4, f"{most * share:,.0f}", "end")]
    for at, k in enumerate(drawn):
        parts += _bar_rectangles(left + step * at, step, bottom, height / most, bars[k], k)
    for decade in range(first, last + 1):
        name = f"1e{decade}" if decade else "1"
        parts.append(text_at(left + step * PER_DECADE * (decade - first), bottom + 16, name, "middle"))
    line = left + step * PER_DECADE * (0 - first)
    parts.append(f'<line x1="{line:.0f}" x2="{line:.0f}" y1="6" y2="{bottom:.0f}" class="middle" stroke-width="1.5"/>')
    parts += [text_at(line - 6, 16, "may turn", "end"), text_at(line + 6, 16, "cannot turn", "start")]
    beyond = "; the outer bars hold all that lies beyond" if _is_cut(bars, first, last) else ""
    parts += [text_at(left, bottom + 38, f"margin divided by tolerance{beyond}", "start")]
    return plotted(width, 262, "samples by margin over tolerance", parts) + _legend_html(samples)


def _decades(bars: Sequence[dict[str, int]]) -> tuple[int, int]:
    """Return the first and last power of 10 that are drawn, at least FIRST_DECADE to LAST_DECADE.

    `bars` are counts by verdict, PER_DECADE per power of 10 from LOW on.
    """
    used = [k for k, bar in enumerate(bars) if any(bar.values())] or [PER_DECADE * -LOW]
    return min(FIRST_DECADE, LOW + used[0] // PER_DECADE), max(LAST_DECADE, LOW + used[-1] // PER_DECADE + 1)


def _is_cut(bars: Sequence[dict[str, int]], first: int, last: int) -> bool:
    """Return whether an outer bar that is drawn, from 10**first to 10**last, holds samples beyond it."""
    return (first == LOW and any(bars[0].values())) or (last == HIGH and any(bars[-1].values()))


def _bar_rectangles(x: float, step: float, bottom: float, unit: float, bar: dict[str, int], k: int) -> list[str]:
    """Return the SVG rectangles of bar number k, stacked by verdict: `bar` counts the samples of each.

    It stands on `bottom`, begins at x and is `step` wide; a sample is `unit` high.
    """
    parts, y = [], bottom
    low, high = (10 ** (LOW + (k + i) / PER_DECADE) for i in (0, 1))
    for kind, count in bar.items():
        if count:
            y -= count * unit
            label = f"{count} {kind}: margin {low:.2g} to {high:.2g} times the tolerance"
            parts.append(
                f'<rect x="{x + 2:.1f}" y="{y:.1f}" width="{step - 4:.1f}" height="{count * unit:.1f}" '
                f'class="fill-{tone_of(kind)}"><title>{escape(label)}</title></rect>'
            )
    return parts


def _legend_html(samples: Sequence[Sample]) -> str:
    """Return the legend as HTML: each verdict with its number of samples."""
    words = []
    for kind in KINDS:
        count = sum(s.verdict == kind for s in samples)
        words.append(f'<span class="{tone_of(kind)}">&#9632;</span> {escape(kind)} {count}')
    return f"<p>{' &nbsp; '.join(words)}</p>"


def _samples_table(samples: Sequence[Sample]) -> str:
    """Return the HTML table of samples, the first MAX_ROWS, and how many more there are."""
    if not samples:
        return "<p>None.</p>"
    head = (
        '<tr><th class="number">sample<th>decision<th>verdict<th class="number">margin<th class="number">tolerance'
        '<th class="number">margin / tolerance<th>between outputs</tr>'
    )
    more = f"<p>And {len(samples) - MAX_ROWS} more.</p>" if len(samples) > MAX_ROWS else ""
    return f'<div class="wide"><table>{head}{"".join(map(_sample_row, samples[:MAX_ROWS]))}</table></div>{more}'


def _sample_row(s: Sample) -> str:
    """Return the HTML row of one sample, with the executions that differ folded below."""
    decided = f"{s.unproven} of {s.decisions} open" if s.decision is None else str(s.decision)
    numbers = "".join(f'<td class="number">{_number_text(v)}</td>' for v in (s.margin, s.tolerance, s.ratio))
    between = " and ".join(map(str, s.between)) or s.reason
    more = f"<details><summary>two executions</summary>{_executions_table(s)}</details>" if s.executions else ""
    below = f'<tr class="below"><td><td colspan="6">{more}</tr>' if more else ""
    cells = f'<td class="number">{s.number}</td><td>{escape(decided)}</td><td>{kind_of(s.verdict)}</td>'
    above = ' class="above"' if more else ""
    return f"<tr{above}>{cells}{numbers}<td>{escape(between)}</td></tr>{below}"


def _number_text(x: float | None) -> str:
    """Return a number as text, "unknown" for None."""
    return "unknown" if x is None else f"{x:.3g}"


def _executions_table(s: Sample) -> str:
    """Return an HTML table of what each execution of sample s decides, with the outputs that it decides by."""
    known = list(dict.fromkeys(k for run in s.executions for k in run["outputs"]))
    names = [str(k) for k in s.between if str(k) in known] or known[:MAX_OUTPUTS]
    head = "".join(f'<th class="number">output {escape(k)}' for k in names)
    rows = "".join(
        f"<tr><td>{escape(run['name'])}<td>{escape(str(run['decision']))}"
        + "".join(f'<td class="number">{escape(_output_text(run["outputs"].get(k)))}' for k in names)
        for run in s.executions
    )
    return f"<table><tr><th>execution<th>decides{head}</tr>{rows}</table>"


def _output_text(x: Any) -> str:
    """Return an output as text; nine digits distinguish any two float32 numbers."""
    return f"{x:.9g}" if isinstance(x, float) else "" if x is None else str(x)
