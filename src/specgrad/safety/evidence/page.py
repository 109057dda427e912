"""The evidence as one HTML file: its purpose, a table of all checks, then each check with its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from specgrad.check.pages import layer_table
from specgrad.html_page import escape, kind_of, named, page, wide

from ...scalar import upward
from .item import ASSUMPTIONS, NOT_ASKED, PURPOSE, SUPPORTS, Evidence, Item

MAX_TABLE_ROWS = 200  # rows of one table
FOOT = "Supporting analysis: what each sentence rests on stands above."
REMAINS = (
    "Which inputs, which box, which decisions and which properties matter for the function of the system.",
    "That the recorded inputs cover what the target will meet.",
    "That the target's arithmetic belongs to the class of executions, for every build that flies, drives or runs.",
    "That memory, time and the hardware behave; nothing here looks at them.",
    "Qualification, independence, and the argument to the authority.",
)


def evidence_page(evidence: Evidence) -> str:
    """Return the HTML page of the evidence: purpose, all answers, each item, executions, assumptions, digests."""
    body = [
        f"<h2>What this is</h2>{_bullet_list(PURPOSE)}",
        f"<h2>Questions and answers</h2>{_summary_table(evidence.items)}",
        *(_section_html(item) for item in evidence.items if item.verdict != NOT_ASKED),
        f"<h2>Which executions this holds for</h2>{_executions_html(evidence.items)}",
        f"<h2>What it rests on</h2>{_bullet_list(ASSUMPTIONS)}",
        f"<h2>What remains yours</h2>{_bullet_list(REMAINS)}",
        f"<h2>Files that were read</h2>{_two_column_table(('file', 'SHA-256'), evidence.digests)}",
        f"<h2>Versions</h2>{_two_column_table(('package', 'version'), evidence.versions)}",
    ]
    return page(f"evidence for {evidence.model}", evidence.verdict, _first_sentence(evidence), body, FOOT)


def _first_sentence(evidence: Evidence) -> str:
    """Return the first sentence of the page, with links to what is wrong, open or not asked."""
    by_tone = {tone: [i for i in evidence.items if i.tone == tone] for tone in ("bad", "open", "none")}
    said = {"bad": "found something wrong", "open": "could not be answered", "none": "not asked"}
    parts = [f"{said[t]}: {', '.join(_section_link(i) for i in items)}" for t, items in by_tone.items() if items]
    good = sum(i.tone == "good" for i in evidence.items)
    return f"{good} of {len(evidence.items)} questions have a good answer. {'; '.join(parts).capitalize()}".rstrip() + (
        "." if parts else ""
    )


def _section_link(item: Item) -> str:
    """Return a link to the section of an item."""
    return f'<a href="#{_section_id(item)}">{escape(item.name)}</a>'


def _section_id(item: Item) -> str:
    """Return the HTML id of an item's section."""
    return escape("".join(c if c.isalnum() else "-" for c in item.name))


def _summary_table(items: Sequence[Item]) -> str:
    """Return the HTML table of all items: verdict, question and answer."""
    rows = "".join(
        f"<tr><td>{_verdict_html(i)}</td><td>{_section_link(i) if i.verdict != NOT_ASKED else escape(i.name)}</td>"
        f"<td>{escape(i.question)}</td><td>{escape(i.answer)}</td><td>{escape(SUPPORTS[i.supports])}</td></tr>"
        for i in items
    )
    return wide(f"<table><tr><th>verdict<th>item<th>question<th>answer<th>may support</tr>{rows}</table>")


def _verdict_html(item: Item) -> str:
    """Return the verdict of an item as HTML."""
    return escape(NOT_ASKED) if item.verdict == NOT_ASKED else kind_of(item.verdict)


def _section_html(item: Item) -> str:
    """Return the HTML section of one item: title, answer and details."""
    kind = item.name.partition(" ")[0]
    detail = SECTIONS[kind](item) if item.result is not None or kind == "model" else ""
    title = f'<h2 id="{_section_id(item)}">{kind_of(item.verdict)} &middot; {escape(item.name)}</h2>'
    return f"{title}<p><b>{escape(item.question)}</b> {escape(item.answer)}</p>{detail}"


def _executions_html(items: Sequence[Item]) -> str:
    """Return HTML with each class of executions once, and the items that are about it."""
    classes: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for item in items:
        if item.deployment:
            classes.setdefault(tuple(item.deployment.items()), []).append(item.name)
    return "".join(
        f"<p>{escape(', '.join(names))}:</p>{_table_html([], [(escape(k), escape(v)) for k, v in said])}"
        for said, names in classes.items()
    )


# --- what was found ---------------------------------------------------------------------------------------------------


def _model_section(item: Item) -> str:
    """Return the HTML section of the check "model": the graph's digest, inputs and outputs; "" if none was read."""
    if not item.details:  # not every operator has a meaning here
        return ""
    ends = [(named(n), "input", _shape_text(s)) for n, s in item.details["inputs"].items()]
    ends += [(named(n), "output", _shape_text(s)) for n, s in item.details["outputs"].items()]
    digest = f"<p>Digest of the graph with every bit of its weights: <code>{escape(item.details['graph'])}</code></p>"
    return digest + _table_html(("name", "what", "shape"), ends)


def _shape_text(shape: Sequence[int]) -> str:
    """Return a shape as HTML text."""
    return "&times;".join(map(str, shape)) or "a number"


def _profile_section(item: Item) -> str:
    """Return the HTML section of the check "profile": findings and unchecked rules."""
    rows = [
        (kind_of(f.severity), escape(f.rule), escape(f.tag), escape(str(f.place)), escape(f.what))
        for f in item.result.findings
    ]
    unchecked = [(escape(rule), escape(reason)) for rule, reason in item.result.unchecked.items()]
    places = _table_html(("", "rule", "their label", "where", "what"), rows)
    return places + (f"<p>Not looked at:</p>{_table_html(('rule', 'why'), unchecked)}" if unchecked else "")


def _layers_section(item: Item) -> str:
    """Return the HTML section of the check "layers": the audit's table."""
    return layer_table(item.result)


def _outputs_section(item: Item) -> str:
    """Return HTML tables of the tolerance of every output and of the largest contributions of layers to it.

    `item` is the check "outputs" with its result. "" if nothing was proven.
    """
    if item.result.form != "proven":
        return ""
    p = item.result.proven
    rows = [
        (named(n), escape(f), upward(float(d.max(initial=0.0)), 3), upward(float(b.max(initial=0.0)), 3))
        for n, f, d, b in zip(p.names, p.formats, p.tolerances, p.pairwise_tolerances, strict=True)
    ]
    head = ("output", "format", "from the exact value, at most", "between two executions, at most")
    layers = [(named(n), upward(amount, 3)) for n, amount in list(p.layers.items())[:10]]
    return _table_html(head, rows) + _table_html(("layer", "contributes to the largest"), layers)


def _decisions_section(item: Item) -> str:
    """Return the HTML section of the check "decisions": one row per sample, smallest margin first."""
    rows = [
        (
            str(s.number),
            kind_of(s.verdict),
            _number_or_unknown(s.margin),
            _number_or_unknown(s.tolerance),
            escape(str(s.decision)),
        )
        for s in sorted(item.result.samples, key=lambda s: s.ratio)
    ]
    text = "<p>Nearest to another decision first. A decision is proven where its margin exceeds its tolerance.</p>"
    return text + _table_html(("sample", "verdict", "margin", "tolerance", "decision"), rows)


def _number_or_unknown(x: float | None) -> str:
    """Return a number to three digits, or "unknown" for None."""
    return "unknown" if x is None else f"{x:.3g}"


def _box_section(item: Item) -> str:
    """Return the HTML section of the check "box": ranges and errors per layer."""
    rows = [
        (
            named(x.name),
            f"{x.low:.3g} to {x.high:.3g}",
            *(_bound_text(e) for e in (x.propagated, x.introduced, x.total)),
        )
        for x in item.result.layers
    ]
    return _table_html(("layer", "values, about", "propagated error", "introduced error", "total error, at most"), rows)


def _bound_text(x: float) -> str:
    """Return a bound rounded up to three digits, or "unbounded"."""
    return upward(x, 3) if math.isfinite(x) else "unbounded"


def _certificate_section(item: Item) -> str:
    """Return the HTML section of a certificate: cases, alternatives and margins."""
    checked = item.result
    rows = [
        (str(k + 1), escape(str(a)), f"{proven['margin']:.4g}")
        for k, (case, data) in enumerate(zip(checked.cases, item.details["cases"], strict=True))
        for a, proven in zip(case.alternatives, data["alternatives"], strict=True)
    ]
    network = f"<p>Network: digest <code>{escape(checked.network)}</code>. The checker used exact fractions only.</p>"
    return network + _table_html(("case", "what never happens", "margin"), rows)


SECTIONS: Mapping[str, Callable[[Item], str]] = {
    "model": _model_section,
    "profile": _profile_section,
    "layers": _layers_section,
    "outputs": _outputs_section,
    "decisions": _decisions_section,
    "box": _box_section,
    "certificate": _certificate_section,
}


# --- parts of a page --------------------------------------------------------------------------------------------------


def _bullet_list(sentences: Iterable[str]) -> str:
    """Return sentences as an HTML list."""
    return f"<ul>{''.join(f'<li>{escape(s)}</li>' for s in sentences)}</ul>"


def _two_column_table(head: tuple[str, str], data: Mapping[str, Any]) -> str:
    """Return the mapping `data` as an HTML table of two columns, headed by `head`."""
    return _table_html(head, [(escape(k), f"<code>{escape(str(v))}</code>") for k, v in data.items()])


def _table_html(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table with the headings `head`; cells are HTML already, and rows beyond MAX_TABLE_ROWS are only
    counted.
    """
    if not rows:
        return ""
    top = f"<tr>{''.join(f'<th>{escape(h)}' for h in head)}</tr>" if head else ""
    cells = "".join(f"<tr>{''.join(f'<td>{c}</td>' for c in row)}</tr>" for row in rows[:MAX_TABLE_ROWS])
    more = f"<p>And {len(rows) - MAX_TABLE_ROWS:,} more; --json lists all.</p>" if len(rows) > MAX_TABLE_ROWS else ""
    return wide(f'<table class="slim">{top}{cells}</table>') + more
