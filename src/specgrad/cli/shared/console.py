"""What commands print: tables and progress on a terminal, plain text in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from specgrad.check.auditing.attribution import Attribution
from specgrad.check.auditing.audit import Audit
from specgrad.check.conform.conformance import Conformance
from specgrad.check.verdicts.judge import SEVERITY, Verdict
from specgrad.errors import printable
from specgrad.graph.drawing.summary import HEADER, rows
from specgrad.graph.explain import CellExplanation
from specgrad.graph.graph import Graph
from specgrad.html_page import tone_of

from .table import Column, print_table

COLOURS = {"good": "green", "open": "yellow", "bad": "red"}
Step = Callable[[str, int, int], None]


@contextmanager
def progress(quiet: bool) -> Iterator[Step | None]:
    """Yield a callback (name, done, total) that shows a bar on stderr, or None under --json or if nobody watches."""
    console = Console(stderr=True)
    if quiet or not sys.stderr.isatty() or not console.is_interactive:
        yield None
        return
    columns = (
        TextColumn("{task.description:<38.38}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda name, done, total: bar.update(task, description=printable(name), completed=done, total=total)


def line(console: Console, *parts: str | tuple[str, str], whole: bool = False) -> None:
    """Print one line of texts and (text, style) pairs; texts are data, without markup or invisible characters.

    In a window it goes on in the next line between words, unless it is to be copied as a `whole`; in a pipe never.
    """
    text = Text.assemble(*map(_printable_part, parts))
    if whole or not console.is_terminal:
        console.print(text, soft_wrap=True, highlight=False)
    else:
        console.print(text, overflow="fold", highlight=False)


def _printable_part(part: str | tuple[str, str]) -> str | tuple[str, str]:
    """Return a text or (text, style) pair with invisible characters escaped."""
    return printable(part) if isinstance(part, str) else (printable(part[0]), part[1])


def cell(text: object, style: str = "") -> Text:
    """Return a text as a table cell, with invisible characters escaped."""
    return Text(printable(text), style=style)


def colour(kind: str) -> str:
    """Return the colour of a verdict."""
    return COLOURS[tone_of(kind)]


def bar(ratio: float, width: int = 12) -> str:
    """Return a bar of the share of the allowance that was used; full if it was exceeded."""
    filled = max(round(ratio * width), int(ratio > 0)) if ratio <= 1 else width
    return "█" * filled + "·" * (width - filled)


def has_bars(console: Console) -> bool:
    """Return whether the console is a terminal whose encoding has the letters of bars."""
    try:
        bar(0.5).encode(console.encoding)
    except UnicodeEncodeError:
        return False
    return console.is_terminal


def show_graph(console: Console, graph: Graph, detail: bool, notes: Sequence[str] = ()) -> None:
    """Print the table of a graph's layers."""
    body, total = rows(graph, detail=detail)
    columns = [Column(name, folds=i < 2, right=i >= 2) for i, name in enumerate(HEADER)]
    print_table(console, columns, [[cell(text) for text in row] for row in body])
    line(console, total)
    for note in notes:
        line(console, note)


def show_audit(console: Console, audit: Audit) -> None:
    """Print the verdict, then the layer to look at, then all layers."""
    versions = ", ".join(f"{k} {v}" for k, v in audit.versions.items())
    line(
        console,
        (audit.verdict, f"bold {colour(audit.verdict)}"),
        f"  {audit.model} on {audit.runtime}{f' ({versions})' if versions else ''}",
    )
    if audit.export is not None:
        line(console, "the export changes layer ", (audit.export.name, "bold"), f": {audit.export.verdict}")
    elif audit.first_divergent is not None:
        line(console, "first layer that rounding does not explain: ", (audit.first_divergent.name, "bold"))
    if not audit.outputs_only:  # else the whole model is all that there is
        _show_layers(console, audit)
        line(console, str(audit.coverage))
    line(console, f"whole model: {audit.whole}")
    for sentence in audit.blind_spots.sentences() if audit.blind_spots is not None else ():
        line(console, sentence)
    _show_attribution(console, None if audit.outputs_only else audit.attribution)
    judged = "the model was judged" if audit.outputs_only else "layers were judged by node, the whole model"
    line(console, f"{judged} as fused (--json: deployment says what that includes)")
    for note in audit.notes:
        line(console, f"note: {note}")
    if audit.script:
        line(console)
        line(console, ("minimal reproduction", "bold"), " (needs only the runtime and numpy)")
        for text in ("", *audit.script.splitlines()):
            line(console, text, whole=True)


def _show_attribution(console: Console, a: Attribution | None) -> None:
    """Print the difference at the output, and the layers whose own errors explain most of it."""
    if a is None:
        return
    line(console, f"largest difference at the output: {a.output}")
    parts = ", ".join(f"{name} {100 * share:.3g} %" for name, share in a.largest())
    holds = "" if abs(a.explained - 1) < 0.2 else ", so the first order does not hold here"
    all_layers = f"all layers {100 * a.explained:.3g} %{holds}"
    line(console, f"layers whose own error explains it, to first order: {parts}; {all_layers}")
    line(console, f"a correct runtime differs there by about {a.estimate:.2g} (an estimate, not a bound)")


def _show_layers(console: Console, audit: Audit) -> None:
    """Print the table of an audit's layers."""
    bars = has_bars(console)
    columns = [Column("layer", folds=True), Column("operator", folds=True), Column("shape"), Column("verdict")]
    columns += [Column("used of allowed", folds=True)]
    body = []
    for layer in audit.layers:
        v, shape = layer.verdict, "x".join(map(str, layer.shape))
        used = cell(f"{bar(v.ratio)} {_used_text(v)}" if bars else _used_text(v))
        body.append([cell(layer.name), cell(layer.operator), cell(shape), cell(v.kind, colour(v.kind)), used])
    print_table(console, columns, body)


def _used_text(v: Verdict) -> str:
    """Return the used share of the allowance, or what differs."""
    if v.kind in ("exact", "rounding"):
        return f"{v.ratio:.2g}"
    return v.detail or f"{v.actual:.6g} must be {v.expected:.6g} within {v.allowed:.2g}"


def show_conformance(console: Console, result: Conformance) -> None:
    """Print the counts per operator, then every finding."""
    versions = ", ".join(f"{k} {v}" for k, v in result.versions.items())
    said = f"  {result.runtime} ({versions}), seed {result.seed}"
    line(console, (result.verdict, f"bold {colour(result.verdict)}"), said)
    kinds = [k for k in SEVERITY if any(c[k] for c in result.counts.values())]
    columns = [Column("operator"), *(Column(k, right=True) for k in (*kinds, "worst used/allowed"))]
    body = []
    for operator, counts in result.counts.items():
        worst = f"{result.ratios[operator]:.2f}" if result.ratios[operator] else ""
        body.append([cell(operator), *(cell(counts[k] or "", colour(k)) for k in kinds), cell(worst)])
    print_table(console, columns, body)
    for finding in result.findings:
        about = f" {finding.operator} [{finding.rule}] {finding.question}"
        line(console)
        line(console, (finding.verdict.kind, "red"), about)
        line(console, f"  {finding.verdict}")


def show_explanation(console: Console, explanation: CellExplanation) -> None:
    """Print the taps of one output cell, one line each."""
    place = ", ".join(map(str, explanation.index))
    line(console, (f"{explanation.layer}[{place}]", "bold"), f"  {explanation.operator}, shape {explanation.shape}")
    for name, spans in explanation.fields.items():
        text = ", ".join("all" if s is None else f"{s[0]}..{s[1]}" for s in spans)
        line(console, f"depends on nothing outside {name}[{text}]")
    if explanation.channels is not None:
        line(console, f"channels {explanation.channels[0]}..{explanation.channels[1]}")
    if explanation.divisor is not None:
        line(console, f"divisor {explanation.divisor}")
    if explanation.reads:
        reads = [[cell(tap), cell("padding" if read is None else read)] for tap, read in explanation.reads]
        print_table(console, [Column("tap"), Column("reads")], reads)


def show_runtimes(console: Console, installed: Mapping[str, Mapping[str, str] | None]) -> None:
    """Print every known runtime, and the installed versions."""
    body = []
    for name, versions in installed.items():
        text = "no" if versions is None else ", ".join(f"{k} {v}" for k, v in versions.items())
        body.append([cell(name), cell(text)])
    print_table(console, [Column("runtime"), Column("installed", folds=True)], body)


def show_rules(console: Console, titles: Mapping[str, str]) -> None:
    """Print every rule of the contract, by its label."""
    body = [[cell(label), cell(title)] for label, title in titles.items()]
    print_table(console, [Column("rule"), Column("", folds=True)], body)
