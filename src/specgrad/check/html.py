"""Reports as one HTML file each: no network, no scripts, the verdict first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape as escape_html

from ..errors import printable
from .attribution import Attribution, Difference
from .audit import Audit
from .conformance import Conformance, Finding
from .judge import SEVERITY, Verdict
from .layer import Layer
from .rules import TEXT

STYLE = """
:root { color-scheme: light dark; --good: #2e7d32; --bad: #c62828; --open: #b26a00; --line: #8883; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.verdict { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); }
.lead { border-left: 4px solid; padding: .25rem 1rem; margin: 1rem 0; } .lead span { color: CanvasText; }
td.used { white-space: nowrap; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
.wide { overflow-x: auto; } tr.above td { border-bottom: 0; } tr.below td { padding-top: 0; }
details table { width: auto; margin: .3rem 0 .6rem; }
.track { background: var(--soft); width: 9rem; height: .7rem; border-radius: .35rem; overflow: hidden; display: inline-block; }
.track i { display: block; height: 100%; background: var(--good); } .track i.bad { background: var(--bad); }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; font-size: 13px; }
code { font-size: 13px; } footer { margin-top: 3rem; opacity: .7; font-size: 13px; } svg text { fill: currentColor; }
"""  # noqa: E501 - styles read best a rule per line
GOOD, OPEN = ("exact", "rounding", "ok", "proven"), ("cannot tell", "refuses", "not offered", "not proven")


def escape(text: str) -> str:
    """Data as text of the page: nothing is obeyed, nothing is invisible."""
    return escape_html("\n".join(map(printable, text.split("\n"))))


def _tone(kind: str) -> str:
    return "good" if kind in GOOD else "open" if kind in OPEN else "bad"


def kind_of(kind: str) -> str:
    return f'<span class="verdict {_tone(kind)}">{escape(kind)}</span>'


FOOT = (
    "A radius is a proven bound on what rounding does in every correct execution; what lies outside it is not rounding."
)


def page(title: str, verdict: str, lead: str, body: Sequence[str], foot: str = FOOT) -> str:
    """The frame of every report."""
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(verdict)}: {escape(title)}</title><style>{STYLE}</style>",
            f"<h1>{kind_of(verdict)} &middot; {escape(title)}</h1>",
            f'<div class="lead {_tone(verdict)}"><span>{lead}</span></div>',
            *body,
            f"<footer>Written by specgrad. {foot}</footer></html>\n",
        ]
    )


def _versions(versions: object) -> str:
    text = ", ".join(f"{k} {v}" for k, v in dict(versions).items())  # type: ignore[call-overload]
    return escape(f" ({text})") if text else ""


def executions(title: str, said: Mapping[str, str]) -> str:
    """What a correct execution is, folded away."""
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(text)}</td></tr>" for k, text in said.items())
    return f"<details><summary>{escape(title)}</summary><table>{rows}</table></details>"


def _bar(v: Verdict) -> str:
    """How much of the allowance was used; a full red bar where it was exceeded."""
    share = 100 if v.ratio > 1 else max(100 * v.ratio, 1 if v.ratio > 0 else 0)
    text = "&gt; 1" if v.ratio > 1 else f"{v.ratio:.2g}"
    tone = ' class="bad"' if v.ratio > 1 else ""
    return f'<span class="track"><i{tone} style="width:{share:.0f}%"></i></span> {text}'


def _cell(v: Verdict) -> str:
    """The worst element: where, what, what it must be."""
    if v.kind not in ("differs", "rounding", "other arithmetic") or not v.where:
        return escape(v.detail)
    place = ", ".join(map(str, v.where))
    text = f"[{place}] is {v.got:.9g}, must be {v.wanted:.9g} &plusmn; {v.allowed:.2g}"
    return f"{text} {escape(v.detail)}".rstrip()


def _row(layer: Layer) -> str:
    v = layer.verdict
    shape = "&times;".join(map(str, layer.shape))
    name = f"<td><code>{escape(layer.name)}</code></td><td>{escape(layer.operator)}</td><td>{shape}</td>"
    used = f'<td class="used">{_bar(v)}</td>'
    return f"<tr>{name}<td>{kind_of(v.kind)}</td>{used}<td>{_cell(v)}</td></tr>"


def _plot(layers: Sequence[Layer]) -> str:
    """used / allowed per layer on a logarithmic scale, the allowance as a line."""
    layers = [layer for layer in layers if layer.verdict.kind != "not examined"]
    if not layers:
        return ""
    low, high, height, left = -8.0, 1.0, 160.0, 42.0
    step = max(6.0, min(28.0, 900 / len(layers)))
    width = max(left + step * len(layers) + 10, 300.0)  # room for the line of text below

    def y(exponent: float) -> float:
        return 10 + height * (high - min(max(exponent, low), high)) / (high - low)

    parts = [
        f'<svg viewBox="0 0 {width:.0f} {height + 40:.0f}" style="max-width:{width:.0f}px" role="img">',
        "<title>used / allowed, layer by layer</title>",
    ]
    for exponent in range(int(low), int(high) + 1, 2):
        parts += [
            level(left, width - 10, y(exponent), "#8883"),
            text_at(left - 6, y(exponent) + 4, f"1e{exponent}", "end"),
        ]
    parts += [level(left, width - 10, y(0), "#c62828"), text_at(width - 12, y(0) - 4, "allowance", "end")]
    for i, layer in enumerate(layers):
        ratio = layer.verdict.ratio
        height_of = low if ratio == 0 else high if not math.isfinite(ratio) else math.log10(ratio)
        colour = "#c62828" if ratio > 1 else "#2e7d32"
        label = f"{layer.name}: {layer.verdict.kind}, {ratio:.2g}"
        parts.append(
            f'<circle cx="{left + step * (i + 0.5):.1f}" cy="{y(height_of):.1f}" r="3" fill="{colour}">'
            f"<title>{escape(label)}</title></circle>"
        )
    parts += [text_at(left, height + 34, "layers in order; exact ones lie on the floor", "start"), "</svg>"]
    return "".join(parts)


def level(x1: float, x2: float, y: float, colour: str) -> str:
    return f'<line x1="{x1:.0f}" x2="{x2:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>'


def text_at(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11">{text}</text>'


def _attribution(a: Attribution | None) -> str:
    """Which layers explain the difference at the output."""
    if a is None:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{100 * share:.3g} %</td><td>{_difference(a.own[name])}</td>"
        f"<td>{_difference(a.seen[name])}</td></tr>"
        for name, share in a.largest(12)
    )
    head = "<tr><th>layer<th>share, to first order<th>its own error<th>difference seen at it</tr>"
    return (
        f"<h2>Which layers explain the difference</h2><p>Largest difference at the output: {_difference(a.output)}. "
        f"All layers' own errors together explain {100 * a.explained:.3g} % of it, to first order. A correct runtime "
        f"differs there by about {a.estimate:.2g} (an estimate, not a bound).</p><table>{head}{rows}</table>"
    )


def _difference(d: Difference) -> str:
    return escape(f"{d.absolute:.2g}, relative {d.relative:.2g}, {d.ulps:.3g} ulp")


def audit_page(audit: Audit) -> str:
    """One audit: the layer to look at, the table of layers, the plot, the minimal reproduction."""
    first = audit.first
    if audit.export is not None:
        lead = f"The export changes layer <code>{escape(audit.export.name)}</code>: {_cell(audit.export.verdict)}"
    elif first is not None:
        lead = f"First layer that rounding does not explain: <code>{escape(first.name)}</code> ({escape(first.operator)}): {_cell(first.verdict)}"  # noqa: E501
    elif audit.alone:
        lead = f"Outputs alone: {escape(str(audit.whole))}"
    else:
        lead = f"{audit.coverage.layers} layers, each within the proven radius of its own inputs."
    rows = "".join(map(_row, audit.layers))
    head = "<tr><th>layer<th>operator<th>shape<th>verdict<th>used of allowed<th>worst element</tr>"
    body = [
        f"<p>{escape(audit.model)} on {escape(audit.runtime)}{_versions(audit.versions)}. "
        f"Whole model, nothing exposed: {kind_of(audit.whole.kind)} {_cell(audit.whole)}</p>",
        f"<p>{escape(str(audit.coverage))}.</p>",
        *(f"<p>{escape(note)}</p>" for note in (*(audit.blind.sentences() if audit.blind else ()), *audit.notes)),
        _attribution(audit.attribution),
        f"<h2>Layers</h2>{_plot(audit.layers)}<table>{head}{rows}</table>",
    ]
    titles = {
        "layers": "of one layer",
        "whole": "of the whole model, or of several layers where only the last was read",
    }
    body += ["<h2>What counts as a correct execution</h2>"]
    body += [executions(titles[part], said) for part, said in audit.deployment.items()]
    if audit.script:
        body.append(f"<h2>Minimal reproduction</h2><pre>{escape(audit.script)}</pre>")
    return page(f"{audit.model} on {audit.runtime}", audit.verdict, lead, body)


def _finding(finding: Finding) -> str:
    about = TEXT[finding.rule]
    title = f"<b>{escape(finding.operator)}</b> [{escape(finding.rule)}] {escape(about)}"
    text = f"<p><code>{escape(str(finding.question))}</code><br>{escape(str(finding.verdict))}</p>"
    summary = f"<summary>{kind_of(finding.verdict.kind)} {title}</summary>"
    return f"<details>{summary}{text}<pre>{escape(finding.script)}</pre></details>"


def conformance_page(result: Conformance) -> str:
    """One runtime: counts per operator, and every finding with its script."""
    kinds = [k for k in SEVERITY if any(c[k] for c in result.counts.values())]
    head = "<th>operator" + "".join(f'<th class="number">{escape(k)}' for k in kinds) + "<th>worst used of allowed"
    rows = []
    for operator, counts in result.counts.items():
        cells = "".join(f'<td class="number {_tone(k)}">{counts[k] or ""}</td>' for k in kinds)
        ratio = _bar(Verdict("rounding", result.ratios[operator])) if result.ratios[operator] else ""
        rows.append(f"<tr><td>{escape(operator)}</td>{cells}<td>{ratio}</td></tr>")
    count = sum(sum(c.values()) for c in result.counts.values())
    lead = f"{len(result.findings)} findings in {count:,} generated questions (seed {result.seed})."
    body = [
        f"<p>{escape(result.runtime)}{_versions(result.versions)}</p>",
        f"<h2>Operators</h2><table><tr>{head}</tr>{''.join(rows)}</table>",
        "<h2>Findings</h2>" + ("".join(map(_finding, result.findings)) or "<p>None.</p>"),
        "<h2>What counts as a correct execution</h2>" + executions("of one operator", result.deployment),
    ]
    return page(f"conformance of {result.runtime}", result.verdict, lead, body)
