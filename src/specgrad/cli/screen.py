"""What the command prints: tables and progress on a terminal, plain text in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..check.audit import Audit
from ..check.conformance import Conformance
from ..check.judge import SEVERITY, Verdict
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
    columns = TextColumn("{task.description:<28.28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda name, done, total: bar.update(task, description=name, completed=done, total=total)


def coloured(kind: str) -> str:
    return f"[{COLOURS.get(kind, 'red')}]{kind}[/]"


def bar(ratio: float, width: int = 12) -> str:
    """How much of the allowance was used; all of it where it was exceeded, by any factor."""
    filled = max(round(ratio * width), int(ratio > 0)) if ratio <= 1 else width
    return "█" * filled + "·" * (width - filled)


def show_graph(console: Console, graph: Graph, detail: bool) -> None:
    found, total = rows(graph, detail=detail)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(HEADER):
        table.add_column(name, justify="left" if i < 2 else "right", overflow="fold")
    for row in found:
        table.add_row(*map(escape, row))
    console.print(table)
    console.print(total)


def show_audit(console: Console, audit: Audit) -> None:
    """Verdict first, then the layer to look at, then all layers."""
    versions = ", ".join(f"{k} {v}" for k, v in audit.versions.items())
    console.print(f"[bold]{coloured(audit.verdict)}[/]  {escape(audit.model)} on {audit.runtime} ({versions})")
    if audit.export is not None:
        console.print(
            f"the export changes layer [bold]{escape(audit.export.name)}[/]: {escape(str(audit.export.verdict))}"
        )
    elif audit.first is not None:
        console.print(f"first layer that rounding does not explain: [bold]{escape(audit.first.name)}[/]")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("layer", "operator", "shape", "verdict", "used of allowed", ""):
        table.add_column(name, overflow="fold")
    for layer in audit.layers:
        v = layer.verdict
        shape = "x".join(map(str, layer.shape))
        text = _used(v)
        table.add_row(escape(layer.name), layer.operator, shape, coloured(v.kind), bar(v.ratio), text)
    console.print(table)
    console.print(f"whole model: {escape(str(audit.whole))}")
    console.print("layers were judged by node, the whole model as fused (--json: deployment says what that includes)")
    for note in audit.notes:
        console.print(f"note: {escape(note)}")
    if audit.script:
        console.print("\n[bold]minimal reproduction[/] (needs only the runtime and numpy)\n")
        console.print(audit.script, markup=False, highlight=False, soft_wrap=True)


def _used(v: Verdict) -> str:
    if v.kind in ("exact", "rounding"):
        return f"{v.ratio:.2g}"
    return escape(v.detail or f"{v.got:.6g} must be {v.wanted:.6g} within {v.allowed:.2g}")


def show_conformance(console: Console, result: Conformance) -> None:
    """Counts per operator, then every finding."""
    versions = ", ".join(f"{k} {v}" for k, v in result.versions.items())
    console.print(f"[bold]{coloured(result.verdict)}[/]  {result.runtime} ({versions}), seed {result.seed}")
    kinds = [k for k in SEVERITY if any(c[k] for c in result.counts.values())]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator")
    for kind in kinds:
        table.add_column(kind, justify="right")
    table.add_column("worst used/allowed", justify="right")
    for operator, counts in result.counts.items():
        cells = [f"[{COLOURS.get(k, 'red')}]{counts[k]}[/]" if counts[k] else "" for k in kinds]
        table.add_row(operator, *cells, f"{result.ratios[operator]:.2f}" if result.ratios[operator] else "")
    console.print(table)
    for finding in result.findings:
        console.print(
            f"\n[red]{finding.verdict.kind}[/] {finding.operator} \\[{finding.rule}] {escape(str(finding.question))}"
        )
        console.print(f"  {escape(str(finding.verdict))}")


def show_explanation(console: Console, found: Explanation) -> None:
    """The taps of one output, one line each, padded ones marked."""
    place = ", ".join(map(str, found.index))
    console.print(f"[bold]{escape(found.layer)}\\[{place}][/]  {escape(found.operator)}, shape {found.shape}")
    for name, spans in found.fields.items():
        text = ", ".join("all" if s is None else f"{s[0]}..{s[1]}" for s in spans)
        console.print(f"depends on nothing outside {escape(name)}\\[{text}]")
    if found.channels is not None:
        console.print(f"channels {found.channels[0]}..{found.channels[1]}")
    if found.divisor is not None:
        console.print(f"divisor {found.divisor}")
    if found.reads:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("tap")
        table.add_column("reads")
        for tap, cell in found.reads:
            table.add_row(str(tap), "padding" if cell is None else str(cell))
        console.print(table)


def show_runtimes(console: Console, found: Mapping[str, Mapping[str, str] | None]) -> None:
    """Every known runtime, and what of it is installed."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("runtime")
    table.add_column("installed")
    for name, versions in found.items():
        table.add_row(name, "no" if versions is None else ", ".join(f"{k} {v}" for k, v in versions.items()))
    console.print(table)
