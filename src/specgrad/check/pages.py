"""Audit and conformance reports as one HTML file each: no network, no scripts, the verdict first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import SpecgradError
from ..graph.graph import Graph
from ..html_page import escape, executions, kind_of, legend, level, named, page, picture, plot, text_at, tone_of, wide
from .auditing.attribution import Attribution, Difference
from .auditing.audit import Audit
from .auditing.layer import LayerVerdict
from .conform.broken_rule import TEXT
from .conform.conformance import Conformance, Finding
from .verdicts.judge import SEVERITY, Verdict

MAX_UNFOLDED_LAYERS = 24  # layers of a picture that is shown without being asked for
MEANINGS = {
    "exact": "every number is the one that exact arithmetic gives",
    "rounding": "every number is within the proven radius: correct executions may differ that much",
    "unusual": "within the proven radius, and far beyond what float32 usually shows: an estimate, not a proof",
    "partly examined": "every layer that was judged is explained; others were not judged",
    "other arithmetic": "explained by an arithmetic other than float32 that was named, and not by float32",
    "differs": "some number lies outside the proven radius: no correct execution gives it",
    "crashes": "the runtime ended without an answer",
    "times out": "the runtime gave no answer in time",
    "refuses": "the runtime says that it does not support this",
    "not offered": "the runtime has no such operator",
    "not examined": "nothing was exposed here, so nothing is said",
    "cannot tell": "no radius is known here",
}


def _versions_text(versions: object) -> str:
    """Return package versions as escaped text in parentheses; "" if there are none."""
    text = ", ".join(f"{k} {v}" for k, v in dict(versions).items())  # type: ignore[call-overload]
    return escape(f" ({text})") if text else ""


def _share_bar(v: Verdict) -> str:
    """Return an HTML bar of the share of the allowance that verdict v used; full and red if it was exceeded."""
    share = 100 if v.ratio > 1 else max(100 * v.ratio, 1 if v.ratio > 0 else 0)
    text = "&gt; 1" if v.ratio > 1 else f"{v.ratio:.2g}"
    tone = ' class="bad"' if v.ratio > 1 else ""
    return f'<span class="track"><i{tone} style="width:{share:.0f}%"></i></span> {text}'


def _worst_cell(v: Verdict) -> str:
    """Return the worst cell of a verdict as HTML: its index, its value, the expected one; or the verdict's detail."""
    if v.kind not in ("differs", "rounding", "unusual", "other arithmetic") or not v.index:
        return escape(v.detail)
    place = ", ".join(map(str, v.index))
    text = f"[{place}] is {v.actual:.9g}, must be {v.expected:.9g} &plusmn; {v.allowed:.2g}"
    return f"{text} {escape(v.detail)}".rstrip()


def _layer_row(number: int, layer: LayerVerdict) -> str:
    """Return the HTML table row of one layer; `number` makes its anchor."""
    v = layer.verdict
    shape = "&times;".join(map(str, layer.shape))
    cell = "; ".join((_worst_cell(v), *map(escape, layer.remarks))).lstrip("; ")
    times = "" if layer.usual is None else f"{layer.usual.times:.2g}"
    judged = (
        f'<td>{kind_of(v.kind)}</td><td>{named(layer.name)}</td><td class="used">{_share_bar(v)}</td><td>{times}</td>'
    )
    return f'<tr id="layer-{number}">{judged}<td>{escape(layer.operator)}</td><td>{shape}</td><td>{cell}</td></tr>'


def _error_plot(layers: Sequence[LayerVerdict]) -> str:
    """Return an SVG plot of what is allowed (proven), usual (an estimate) and seen: per layer, in its units, by powers
    of ten.
    """
    marks = [(layer, _error_sizes(layer)) for layer in layers if layer.verdict.kind != "not examined"]
    sizes = [v for _, values in marks for v in values if v is not None and 0 < v < math.inf]
    if not sizes:
        return ""
    low, high = math.floor(math.log10(max(min(sizes), 1e-12))), math.ceil(math.log10(max(sizes)))
    height, left = 180.0, 48.0
    step = max(6.0, min(28.0, 900 / len(marks)))
    width = max(left + step * len(marks) + 10, 420.0)  # room for the line of text below

    def y(value: float) -> float:
        exponent = math.log10(value) if 0 < value < math.inf else low if value == 0 else high
        return 10 + height * (high - min(max(exponent, low), high)) / max(high - low, 1)

    parts = []
    for exponent in range(low, high + 1, max(1, (high - low) // 6)):
        parts += [
            level(left, width - 10, y(10.0**exponent)),
            text_at(left - 6, y(10.0**exponent) + 4, f"1e{exponent}", "end"),
        ]
    for i, (layer, (allowed, usual, seen)) in enumerate(marks):
        x, tone = left + step * (i + 0.5), tone_of(layer.verdict.kind)
        errors = f"allowed {_size_text(allowed)}, usual {_size_text(usual)}, seen {_size_text(seen)}"
        said = f"{layer.name}: {layer.verdict.kind}; {errors}"
        title = f"<title>{escape(said)}</title>"
        if allowed is not None:
            parts.append(f'<path class="fill-bad" d="M{x - 3:.1f} {y(allowed) - 1:.1f}h6v2h-6z">{title}</path>')
        if usual is not None:
            parts.append(f'<path class="fill-open" d="M{x - 3:.1f} {y(usual) - 1:.1f}h6v2h-6z">{title}</path>')
        if seen is not None:
            parts.append(f'<circle class="fill-{tone}" cx="{x:.1f}" cy="{y(seen):.1f}" r="2.5">{title}</circle>')
    below = "red: allowed (proven); yellow: usual (an estimate); dots: seen. Layers in order; exact ones on the floor"
    parts += [text_at(left, height + 34, below, "start")]
    return plot(width, height + 40, "allowed, usual and seen, layer by layer", parts)


def _error_sizes(layer: LayerVerdict) -> tuple[float | None, float | None, float | None]:
    """Return three sizes of a layer's errors, in its units: allowed at the worst cell, usual, and seen; None where not
    known.
    """
    v, usual = layer.verdict, layer.usual
    allowed = v.allowed if v.index and v.allowed > 0 else None
    if usual is not None:
        return allowed, usual.scale, usual.seen
    return allowed, None, 0.0 if v.kind == "exact" else abs(v.actual - v.expected) if v.index else None


def _size_text(x: float | None) -> str:
    """Return a size in two significant digits; "not known" for None."""
    return "not known" if x is None else f"{x:.2g}"


def _attribution_table(a: Attribution | None) -> str:
    """Return the HTML table of layers that, by the attribution a, explain the difference at the output; "" for None."""
    if a is None:
        return ""
    if not a.is_first_order:
        text = "Which layers explain it cannot be said: the first order does not hold here."
        return f"<h2>Which layers explain the difference</h2><p>At the output: {_difference_text(a.output)}. {text}</p>"
    rows = "".join(
        f"<tr><td>{named(name)}</td><td>{100 * share:.3g} %</td><td>{_difference_text(a.own_error[name])}</td>"
        f"<td>{_difference_text(a.difference[name])}</td></tr>"
        for name, share in a.largest(12)
    )
    usual = (
        ""
        if a.estimate is None
        else (f" A correct runtime differs there by about {a.estimate:.2g} (an estimate, not a bound).")
    )
    head = "<tr><th>layer<th>share, to first order<th>its own error<th>difference seen at it</tr>"
    return (
        "<h2>Which layers explain the difference</h2>"
        f"<p>Largest difference at the output: {_difference_text(a.output)}. "
        f"All layers' own errors together explain {100 * a.explained:.3g} % of it, to first order.{usual}</p>"
        + wide(f"<table>{head}{rows}</table>")
    )


def _difference_text(d: Difference) -> str:
    """Return a difference as escaped text: absolute, relative and in units in the last place."""
    return escape(f"{d.absolute:.2g}, relative {d.relative:.2g}, {d.ulps:.3g} ulp")


def _layer_link(audit: Audit, layer: LayerVerdict) -> str:
    """Return the layer's name as a link to its table row."""
    row = next((k for k, other in enumerate(audit.layers) if other.name == layer.name), None)
    return named(layer.name) if row is None else f'<a href="#layer-{row}">{named(layer.name)}</a>'


def _audit_summary(audit: Audit) -> str:
    """Return how many layers have which verdict, and the layer that used the largest share of its allowance."""
    kinds = [layer.verdict.kind for layer in audit.layers]
    counts = ", ".join(f"{kinds.count(k)} {kind_of(k)}" for k in dict.fromkeys((*MEANINGS, *kinds)) if k in kinds)
    used = [layer for layer in audit.layers if 0 < layer.verdict.ratio <= 1]
    if not used:
        return f"{counts}."
    most = max(used, key=lambda layer: layer.verdict.ratio)
    return f"{counts}. {_layer_link(audit, most)} used the most of its allowance: {most.verdict.ratio:.2g} of 1."


def _network_drawing(audit: Audit, graph: Graph | None) -> str:
    """Return a drawing of the network coloured by verdicts, folded if it is long; "" without a graph."""
    if graph is None or not audit.layers:
        return ""
    try:
        drawn = picture(graph.draw(audit).svg)
    except SpecgradError as error:  # a picture is not worth a report
        drawn = f"<p>None: {escape(str(error))}</p>"
    unfolded = " open" * (len(audit.layers) <= MAX_UNFOLDED_LAYERS)
    return (
        f"<h2>The network</h2><details{unfolded}><summary>layers coloured by their verdicts</summary>{drawn}</details>"
    )


def audit_page(audit: Audit, graph: Graph | None = None) -> str:
    """Return the HTML page of one audit: layer to look at, table, plot, graph, minimal reproduction."""
    first = audit.first_divergent
    if audit.export is not None:
        lead = f"The export changes layer {_layer_link(audit, audit.export)}: {_worst_cell(audit.export.verdict)}"
    elif first is not None:
        lead = (
            f"First layer that rounding does not explain: {_layer_link(audit, first)} ({escape(first.operator)}): "
            f"{_worst_cell(first.verdict)}"
        )
    elif audit.outputs_only:
        lead = f"Outputs alone: {escape(str(audit.whole))}"
    else:
        within = [layer for layer in audit.layers if layer.verdict.kind in ("exact", "rounding", "unusual")]
        lead = f"{len(within)} of {len(audit.layers)} layers are within the proven radius of their own inputs."
    body = [
        f"<p>{_audit_summary(audit)}</p>" if audit.layers else "",
        f"<p>{escape(audit.model)} on {escape(audit.runtime)}{_versions_text(audit.versions)}. "
        f"Whole model, nothing exposed: {kind_of(audit.whole.kind)} {_worst_cell(audit.whole)}</p>",
        f"<p>{escape(str(audit.coverage))}.</p>",
        *(f"<p>Not examined: {escape(what)}.</p>" for what in audit.left_out),
        f"<p>The run as it is, {escape(str(audit.run))}.</p>" if audit.run is not None else "",
        *(
            f"<p>{escape(note)}</p>"
            for note in (*(audit.blind_spots.sentences() if audit.blind_spots else ()), *audit.notes)
        ),
        _attribution_table(audit.attribution),
        f"<h2>Layers</h2>{layer_table(audit)}",
        _network_drawing(audit, graph),
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


def layer_table(audit: Audit) -> str:
    """Return an HTML table of every layer with its verdict, and a plot of the shares of their allowances."""
    first = audit.worst_layers()
    order = [*first, *(layer for layer in audit.layers if layer not in first)]
    rows = "".join(_layer_row(audit.layers.index(layer), layer) for layer in order)
    columns = "verdict", "layer", "error / bound", "times usual (estimate)", "operator", "shape", "worst element"
    head = "<tr>" + "".join(f"<th>{name}" for name in columns) + "</tr>"
    words = legend(MEANINGS, [layer.verdict.kind for layer in audit.layers])
    return words + _error_plot(audit.layers) + wide(f"<table>{head}{rows}</table>")


def _finding_html(finding: Finding) -> str:
    """Return one finding as folded HTML with its script."""
    about = TEXT[finding.rule]
    title = f"<b>{escape(finding.operator)}</b> [{escape(finding.rule)}] {escape(about)}"
    text = f"<p><code>{escape(str(finding.question))}</code><br>{escape(str(finding.verdict))}</p>"
    summary = f"<summary>{kind_of(finding.verdict.kind)} {title}</summary>"
    return f"<details>{summary}{text}<pre>{escape(finding.script)}</pre></details>"


def conformance_page(result: Conformance) -> str:
    """Return the HTML page of one runtime's result: counts per operator, and every finding with its script."""
    kinds = [k for k in SEVERITY if any(c[k] for c in result.counts.values())]
    head = "<th>operator" + "".join(f'<th class="number">{escape(k)}' for k in kinds) + "<th>largest error / bound"
    rows = []
    for operator, counts in result.counts.items():
        cells = "".join(f'<td class="number {tone_of(k)}">{counts[k] or ""}</td>' for k in kinds)
        ratio = _share_bar(Verdict("rounding", result.ratios[operator])) if result.ratios[operator] else ""
        rows.append(f"<tr><td>{escape(operator)}</td>{cells}<td>{ratio}</td></tr>")
    count = sum(sum(c.values()) for c in result.counts.values())
    lead = f"{len(result.findings)} findings in {count:,} generated questions (seed {result.seed})."
    body = [
        f"<p>{escape(result.runtime)}{_versions_text(result.versions)}</p>",
        "<h2>Operators</h2>" + legend(MEANINGS, kinds) + wide(f"<table><tr>{head}</tr>{''.join(rows)}</table>"),
        "<h2>Findings</h2>" + ("".join(map(_finding_html, result.findings)) or "<p>None.</p>"),
        "<h2>What counts as a correct execution</h2>" + executions("of one operator", result.deployment),
    ]
    return page(f"conformance of {result.runtime}", result.verdict, lead, body)
