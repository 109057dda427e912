"""specgrad profile: a file against the ONNX safety profile. Codes: 0 no finding, 1 a rule is broken, 2 undecided."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..errors import ParameterError, need
from ..files import write_whole
from . import screen
from .box import ends_of
from .models import declared_shapes
from .outcome import CODES, say
from .output import Force, check_file, is_report, writing
from .shapes import Shapes, asked_shapes
from .table import Column, print_table

EXAMPLE = "Example: specgrad profile model.onnx --sonnx --box 0,1 --html profile.html"
SHOWN = 3  # findings of one rule; --json and --html list all
COLOURS = {"broken": "red", "undecided": "yellow", "not checked": "yellow", "no finding": "green"}
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with a top-level verdict.")]
Box = Annotated[
    str | None, typer.Option("--box", metavar="LO,HI", help="Every cell of every input lies between these: checks S26.")
]


def register_profile(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command(epilog=EXAMPLE)(profile)


def profile(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    sonnx: Annotated[
        bool, typer.Option("--sonnx", help="The safety-related profile of ONNX, the only one so far.")
    ] = True,
    digests: Annotated[
        Path | None, typer.Option(help="The side file with SHA-256 digests; default: MODEL.digests.json, if any.")
    ] = None,
    box: Box = None,
    shape: Shapes = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a self-contained report to this file.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit for ONNX's own checker.")] = 120,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Which rules of the ONNX safety profile (SONNX) does a file break? No finding is not compliance."""
    need("onnx", "the safety profile needs")
    from ..safety import profile as room

    check_file(html, is_report, force)
    limits = None if box is None else ends_of(box)
    if not model.is_file():
        raise ParameterError("model", f"no file {model}; give an .onnx file")
    shapes = asked_shapes(shape, list(declared_shapes(str(model)))) if shape else {}
    checked = room.check_profile(model, digests=digests, box=limits, shapes=shapes, seconds=seconds)
    say("profile", checked.verdict, checked.to_json(), as_json, lambda: show_profile(Console(), checked))
    if html is not None:
        from ..safety.profile.html import profile_page

        with writing(html):
            write_whole(html, profile_page(checked))
    raise typer.Exit(CODES[checked.verdict])


def show_profile(console: Console, checked: Any) -> None:
    """What the verdict is not, the verdict, every rule that has something to say, and where."""
    from ..safety.profile import in_order
    from ..safety.profile.html import summary
    from ..safety.profile.texts import CAVEAT

    for sentence in CAVEAT:
        screen.line(console, sentence)
    style = f"bold {COLOURS[checked.verdict]}"
    screen.line(console, (checked.verdict, style), f"  {checked.model}: {summary(checked)}")
    body = []
    for rule in in_order():
        status = checked.status(rule)
        number = sum(f.rule == rule.id for f in checked.findings)
        if status != "no finding":
            said = checked.unchecked.get(rule.id, rule.sentence)
            row = (rule.id, status, number or "", f"{said} [{rule.tag}]")
            body.append([screen.cell(text, COLOURS[status] if i == 1 else "") for i, text in enumerate(row)])
    if body:
        columns = [Column("rule"), Column("status"), Column("findings", right=True), Column("says", folds=True)]
        print_table(console, columns, body)
    for rule in in_order():
        _show_findings(console, [f for f in checked.findings if f.rule == rule.id])
    for note in checked.notes:
        screen.line(console, f"note: {note}")


def _show_findings(console: Console, findings: Any) -> None:
    for f in findings[:SHOWN]:
        cure = f" ({f.cure})" if f.cure else ""
        screen.line(console, (f.rule, COLOURS[f.severity]), f" {f.place}: {f.what}{cure}")
    if len(findings) > SHOWN:
        screen.line(console, f"{findings[0].rule} and {len(findings) - SHOWN} more (--json and --html list all)")
