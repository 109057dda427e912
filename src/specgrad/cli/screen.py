"""What the command prints: tables and progress on a terminal, plain text in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..check.audit import Audit
from ..check.conformance import Conformance
from ..check.judge import SEVERITY, Verdict
from ..check.printable import printable
from ..graph.explain import Explanation
from ..graph.graph import Graph
from ..graph.show import HEADER, rows

COLOURS = {"exact": "green", "rounding": "green", "cannot tell": "yellow", "refuses": "yellow", "ok": "green"}
Step = Callable[[str, int, int], None]


@contextmanager
def progress(quiet: bool) -> Iterator[Step | None]:
    """A bar on stderr that names what is at work; none under --json, or where nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description:<28.28}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda name, done, total: bar.update(task, description=printable(name), completed=done, total=total)


def line(console: Console, *parts: str | tuple[str, str]) -> None:
    """One line of texts and (text, style) pairs. Texts are data: no markup, no highlighting, nothing invisible."""
    console.print(Text.assemble(*map(_part, parts)), soft_wrap=True, highlight=False)


def _part(part: str | tuple[str, str]) -> str | tuple[str, str]:
    return printable(part) if isinstance(part, str) else (printable(part[0]), part[1])


def cell(text: object, style: str = "") -> Text:
    """The same in a table."""
    return Text(printable(text), style=style)


def colour(kind: str) -> str:
    return COLOURS.get(kind, "red")


def bar(ratio: float, width: int = 12) -> str:
    """How much of the allowance was used; all of it where it was exceeded, by any factor."""
    filled = max(round(ratio * width), int(ratio > 0)) if ratio <= 1 else width
    return "█" * filled + "·" * (width - filled)


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def show_graph(console: Console, graph: Graph, detail: bool) -> None:
    found, total = rows(graph, detail=detail)
    table = _table()
    for i, name in enumerate(HEADER):
        table.add_column(name, justify="left" if i < 2 else "right", overflow="fold")
    for row in found:
        table.add_row(*map(cell, row))
    console.print(table)
    line(console, total)


def show_audit(console: Console, audit: Audit) -> None:
    """Verdict first, then the layer to look at, then all layers."""
    versions = ", ".join(f"{k} {v}" for k, v in audit.versions.items())
    line(
        console,
        (audit.verdict, f"bold {colour(audit.verdict)}"),
        f"  {audit.model} on {audit.runtime} ({versions})",
    )
    if audit.export is not None:
        line(console, "the export changes layer ", (audit.export.name, "bold"), f": {audit.export.verdict}")
    elif audit.first is not None:
        line(console, "first layer that rounding does not explain: ", (audit.first.name, "bold"))
    console.print(_layers(audit))
    line(console, f"whole model: {audit.whole}")
    line(console, "layers were judged by node, the whole model as fused (--json: deployment says what that includes)")
    for note in audit.notes:
        line(console, f"note: {note}")
    if audit.script:
        line(console)
        line(console, ("minimal reproduction", "bold"), " (needs only the runtime and numpy)")
        for text in ("", *audit.script.splitlines()):
            line(console, text)


def _layers(audit: Audit) -> Table:
    table = _table("layer", "operator", "shape", "verdict", "used of allowed", "")
    for layer in audit.layers:
        v, shape = layer.verdict, "x".join(map(str, layer.shape))
        verdict = cell(v.kind, colour(v.kind))
        table.add_row(cell(layer.name), cell(layer.operator), shape, verdict, bar(v.ratio), cell(_used(v)))
    return table


def _used(v: Verdict) -> str:
    if v.kind in ("exact", "rounding"):
        return f"{v.ratio:.2g}"
    return v.detail or f"{v.got:.6g} must be {v.wanted:.6g} within {v.allowed:.2g}"


def show_conformance(console: Console, result: Conformance) -> None:
    """Counts per operator, then every finding."""
    versions = ", ".join(f"{k} {v}" for k, v in result.versions.items())
    said = f"  {result.runtime} ({versions}), seed {result.seed}"
    line(console, (result.verdict, f"bold {colour(result.verdict)}"), said)
    kinds = [k for k in SEVERITY if any(c[k] for c in result.counts.values())]
    table = _table("operator")
    for kind in (*kinds, "worst used/allowed"):
        table.add_column(kind, justify="right")
    for operator, counts in result.counts.items():
        cells = [cell(counts[k] or "", colour(k)) for k in kinds]
        table.add_row(cell(operator), *cells, f"{result.ratios[operator]:.2f}" if result.ratios[operator] else "")
    console.print(table)
    for finding in result.findings:
        about = f" {finding.operator} [{finding.rule}] {finding.question}"
        line(console)
        line(console, (finding.verdict.kind, "red"), about)
        line(console, f"  {finding.verdict}")


def show_explanation(console: Console, found: Explanation) -> None:
    """The taps of one output, one line each, padded ones marked."""
    place = ", ".join(map(str, found.index))
    line(console, (f"{found.layer}[{place}]", "bold"), f"  {found.operator}, shape {found.shape}")
    for name, spans in found.fields.items():
        text = ", ".join("all" if s is None else f"{s[0]}..{s[1]}" for s in spans)
        line(console, f"depends on nothing outside {name}[{text}]")
    if found.channels is not None:
        line(console, f"channels {found.channels[0]}..{found.channels[1]}")
    if found.divisor is not None:
        line(console, f"divisor {found.divisor}")
    if found.reads:
        table = _table("tap", "reads")
        for tap, read in found.reads:
            table.add_row(str(tap), "padding" if read is None else str(read))
        console.print(table)


def show_runtimes(console: Console, found: Mapping[str, Mapping[str, str] | None]) -> None:
    """Every known runtime, and what of it is installed."""
    table = _table("runtime", "installed")
    for name, versions in found.items():
        text = "no" if versions is None else ", ".join(f"{k} {v}" for k, v in versions.items())
        table.add_row(cell(name), cell(text))
    console.print(table)
