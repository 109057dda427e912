"""specgrad profile: a file against the ONNX safety profile. Codes: 0 no finding, 1 a rule is broken, 2 undecided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from specgrad.atomic_files import write_whole
from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.console import Column, print_table
from specgrad.cli.shared.exit_codes import CODES, print_verdict
from specgrad.cli.shared.models import Shapes, requested_shapes
from specgrad.cli.shared.options import box_limits
from specgrad.cli.shared.output_files import Force, Html, Json, check_file, is_report, writing
from specgrad.errors import ParameterError, need
from specgrad.interop.model import open_model
from specgrad.process import Process

EXAMPLE = "Example: specgrad profile model.onnx --sonnx --box 0,1 --html profile.html"
MAX_FINDINGS_SHOWN = 3  # findings of one rule; --json and --html list all
Box = Annotated[
    str | None, typer.Option("--box", metavar="LO,HI", help="Every cell of every input lies between these: checks S26.")
]


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog=EXAMPLE)
def profile(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    sonnx: Annotated[
        bool, typer.Option("--sonnx", help="The safety-related profile of ONNX, the only one so far.")
    ] = True,
    digests: Annotated[
        Path | None, typer.Option(help="The side file with SHA-256 digests; default: MODEL.digests.json, if any.")
    ] = None,
    box: Box = None,
    normalise: Annotated[
        Path | None,
        typer.Option(help="Write the model with everything explicit to this file, its digests beside it; check that."),
    ] = None,
    shape: Shapes = None,
    html: Html = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit for ONNX's own checker.")] = 120,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Which rules of the ONNX safety profile (SONNX) does a file break? No finding is not compliance."""
    need("onnx", "the safety profile needs")
    from specgrad.safety import profile as room
    from specgrad.safety.profile.digests import side_of

    check_file(html, is_report, force)
    _check_target(model, normalise, force)
    limits = None if box is None else box_limits(box)
    if not model.is_file():
        raise ParameterError("model", f"no file {model}; give an .onnx file")
    shapes = requested_shapes(shape, open_model(model).names) if shape else {}
    written, data = None, {}
    with Process(seconds=seconds) as process:
        options: Any = {"box": limits, "process": process}
        checked = room.check_profile(model, digests=digests, shapes=shapes, **options)
        if normalise is not None:
            before, written = checked, room.normalise(model, shapes=shapes, process=process)
            checked = replace(
                room.check_profile(written.data, digests=written.digests, **options), model=normalise.name
            )
            data = written.to_json(normalise.name, before)
    changes = [] if written is None else written.sentences()
    show = lambda: show_profile(Console(), checked, changes)
    print_verdict("profile", checked.verdict, {**checked.to_json(), "normalised": data or None}, as_json, show)
    if normalise is not None and written is not None:
        with writing(normalise):
            write_whole(normalise, written.data)
            write_whole(side_of(normalise), written.side)
    if html is not None:
        from specgrad.safety.profile.html import profile_page

        with writing(html):
            write_whole(html, profile_page(checked, changes))
    raise typer.Exit(CODES[checked.verdict])


def _check_target(model: Path, target: Path | None, force: bool) -> None:
    """Raise OSError if `target`, the file to write, or its side file is foreign (unless `force`).

    BadParameter: the model.
    """
    from specgrad.safety.profile.digests import is_side_file, side_of
    from specgrad.safety.profile.normaliser import is_normalised

    check_file(target, is_normalised, force)
    if target is not None:
        check_file(side_of(target), is_side_file, force)
        if target.resolve() == model.resolve():
            raise typer.BadParameter("--normalise must name another file than the model")


def show_profile(console: Console, checked: Any, changes: Sequence[str] = ()) -> None:
    """Print the caveat, what normalising changed, the verdict of `checked`, and every rule with findings."""
    from specgrad.safety.profile import in_order
    from specgrad.safety.profile.html import summary
    from specgrad.safety.profile.sources import CAVEAT

    for sentence in CAVEAT:
        screen.line(console, sentence)
    for change in changes:
        screen.line(console, f"normalised: {change}")
    style = f"bold {screen.colour(checked.verdict)}"
    screen.line(console, (checked.verdict, style), f"  {checked.model}: {summary(checked)}")
    body = []
    for rule in in_order():
        status = checked.status(rule)
        number = len(checked.of(rule))
        if status != "no finding":
            said = checked.unchecked.get(rule.id, rule.sentence)
            row = (rule.id, status, number or "", f"{said} [{rule.tag}]")
            body.append([screen.cell(text, screen.colour(status) if i == 1 else "") for i, text in enumerate(row)])
    if body:
        columns = [Column("rule"), Column("status"), Column("findings", right=True), Column("says", folds=True)]
        print_table(console, columns, body)
    for rule in in_order():
        _show_findings(console, checked.of(rule))
    for note in checked.notes:
        screen.line(console, f"note: {note}")


def _show_findings(console: Console, findings: Any) -> None:
    """Print the first MAX_FINDINGS_SHOWN findings of one rule, and how many more there are."""
    for f in findings[:MAX_FINDINGS_SHOWN]:
        cure = f" ({f.cure})" if f.cure else ""
        screen.line(console, (f.rule, screen.colour(f.severity)), f" {f.place}: {f.what}{cure}")
    if len(findings) > MAX_FINDINGS_SHOWN:
        screen.line(
            console, f"{findings[0].rule} and {len(findings) - MAX_FINDINGS_SHOWN} more (--json and --html list all)"
        )


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "profile": j.command_schema(
        "profile",
        "which rules of the ONNX safety profile a file breaks",
        j.choice("no finding", "broken", "undecided"),
        profile=j.choice("SONNX"),
        caveat=j.list_of(j.text("a sentence"), "what a verdict is about, and what it is not"),
        model=j.text("the file's name"),
        digest=j.text("the SHA-256 of the file, in hexadecimal"),
        box=j.or_null(j.list_of(j.number("an end"), "lower, upper"), "what --box said; null: nothing"),
        rules=j.list_of(
            j.object_of(
                "one rule",
                rule=j.text("S1 to S31"),
                level=j.choice("E", "W"),
                tag=j.text("the working group's own labels"),
                source=j.text("the texts"),
                version=j.text("their versions, in the same order"),
                says=j.text("the rule in words"),
                status=j.choice("no finding", "broken", "undecided", "not checked"),
                findings=j.count("how many findings it has"),
                reason=j.or_null(j.text(""), "why it was not checked; null: it was"),
            ),
            "every rule, in order; level W: the working group is undecided about it",
        ),
        findings=j.list_of(
            j.object_of(
                "one place",
                rule=j.text("its rule"),
                severity=j.choice("broken", "undecided"),
                tag=j.text("the working group's own labels"),
                source=j.text("the texts"),
                version=j.text("their versions, in the same order"),
                node=j.or_null(j.text(""), "the name of the node; null: it is no node"),
                index=j.or_null(
                    j.count("a number"), "of the node, in the file's order, functions expanded; null: no node"
                ),
                operator=j.or_null(j.text(""), "the node's operator; null: no node"),
                value=j.or_null(j.text(""), "the name of a value or tensor; null: none"),
                what=j.text("what is wrong there"),
                cure=j.text("what to do; empty: nothing that we know"),
            ),
            "rule by rule",
        ),
        notes=j.NOTES,
        versions=j.VERSIONS_USED,
        normalised=j.or_null(
            j.object_of(
                "the file that --normalise wrote, which all of the above is about",
                file=j.text("its name"),
                changes=j.map_of(j.count("how often"), "what was written differently"),
                shown=j.text("how it was shown to mean the same"),
                before=j.object_of(
                    "the model that was given",
                    verdict=j.choice("no finding", "broken", "undecided"),
                    digest=j.text("its SHA-256"),
                    findings=j.map_of(j.count("findings"), "by rule"),
                ),
            ),
            "null: --normalise was not given",
        ),
    ),
}
