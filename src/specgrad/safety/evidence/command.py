"""specgrad evidence: what is known of a model and its target, for engineers who must sign.

Exit codes: 0 every answer is good, 1 something is wrong, 2 something is open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from specgrad.atomic_files import write_whole
from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.console import Column, print_table
from specgrad.cli.shared.exit_codes import CODES, json_data, print_verdict
from specgrad.cli.shared.json_parts import schema_name
from specgrad.cli.shared.models import read_samples
from specgrad.cli.shared.options import limits_of
from specgrad.cli.shared.output_files import Force, Html, Json, check_file, is_report, writing
from specgrad.deadline import time_limit

EXAMPLE = (
    "Example: specgrad evidence net.onnx --recorded target.npz --data test.npz --box 0,1 --certificate net.cert.json "
    "--property robust.vnnlib --html evidence.html"
)


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog=EXAMPLE)
def evidence(
    model: Annotated[Path, typer.Argument(help="The .onnx file that was deployed.")],
    recorded: Annotated[
        Path,
        typer.Option(help="What the target computed: a recording (specgrad audit record), or an .npz file by names."),
    ],
    data: Annotated[
        Path | None, typer.Option(help="Samples whose decisions are asked about: .npz by input names, or .npy.")
    ] = None,
    decision: Annotated[str, typer.Option(help="argmax, top-5, threshold:0.5, mask (per pixel) or mask:0.5.")] = (
        "argmax"
    ),
    axis: Annotated[int | None, typer.Option(help="The axis of the classes; default: the second.")] = None,
    box: Annotated[
        str | None, typer.Option("--box", metavar="LO,HI", help="Every cell of every input lies between these.")
    ] = None,
    low: Annotated[str | None, typer.Option(help="With --high, in place of --box: no cell is below this.")] = None,
    high: Annotated[str | None, typer.Option(help="No cell is above this.")] = None,
    certificate: Annotated[
        list[Path] | None, typer.Option(help="A certificate to check; repeatable, each with its --property.")
    ] = None,
    statement: Annotated[
        list[Path] | None, typer.Option("--property", help="The .vnnlib file that the certificate must prove.")
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(help="The target's runtime, for its errors of exp, tanh, ...; default: the largest measured."),
    ] = None,
    accept: Annotated[
        list[str] | None, typer.Option(help="An arithmetic beside float32 that layers may have; repeatable.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit; what is not answered then stays open.")] = 600,
    question_seconds: Annotated[float, typer.Option(min=0, help="Time limit of each question.")] = 60,
    html: Html = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Gather what is known of a model and its target: profile, layers, tolerance, decisions, overflow, certificates."""
    from specgrad.check.models.recorded import read_recorded
    from specgrad.safety.evidence import gather
    from specgrad.safety.evidence.page import evidence_page

    check_file(html, is_report, force)
    for path in (model, recorded, data, *(certificate or ()), *(statement or ())):
        if path is not None and not path.exists():
            raise typer.BadParameter(f"no file {path}")
    if len(certificate or ()) != len(statement or ()):
        raise typer.BadParameter("each --certificate needs its --property, in the same order")
    files = {"recorded": recorded} | ({} if data is None else {"data": data})
    options: dict[str, Any] = {"decision": decision, "axis": axis, "accept": accept or (), "of": of}
    options["seconds"] = question_seconds
    options |= {"box": limits_of(box, low, high), "data": None if data is None else read_samples(data, None)}
    options["certificates"] = list(zip(certificate or (), statement or (), strict=True))
    with time_limit(seconds), screen.progress(as_json) as step:
        result = gather(model, read_recorded(recorded), files=files, progress=step, **options)
    print_verdict(
        "evidence", result.verdict, _json_with_schemas(result), as_json, lambda: _show_evidence(Console(), result)
    )
    if html is not None:
        with writing(html):
            write_whole(html, evidence_page(result))
    raise typer.Exit(CODES[result.verdict])


def _json_with_schemas(result: Any) -> dict[str, Any]:
    """Return the evidence `result` as JSON data; details of each item name the schema of their command."""
    data = result.to_json()
    for row, item in zip(data["items"], result.items, strict=True):
        if item.schema is not None:
            row["details"] = json_data(
                {**row["details"], "schema": schema_name(item.schema), "verdict": _command_verdict(item)}
            )
    return dict(data)


def _command_verdict(item: Any) -> str:
    """Return the verdict that the command behind an evidence `item` gave; the item's own where its result has none.

    They can differ: `tolerance` says "bounded" where the item says "differs", as outputs lie beyond that bound.
    """
    return str(getattr(item.result, "verdict", item.verdict))


def _show_evidence(console: Console, result: Any) -> None:
    """Print the verdict of the evidence `result` and a row per item."""
    screen.line(console, (result.verdict, f"bold {screen.colour(result.verdict)}"), f"  evidence for {result.model}")
    rows = [
        [screen.cell(i.verdict, screen.COLOURS.get(i.tone, "")), screen.cell(i.name), screen.cell(i.answer)]
        for i in result.items
    ]
    print_table(console, [Column("verdict"), Column("item"), Column("answer", folds=True)], rows)
    screen.line(console, "This is supporting analysis; --html writes what it rests on.")


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "evidence": j.command_schema(
        "evidence",
        "what is known of a model and its target",
        j.choice("ok", "findings", "cannot tell"),
        model=j.text("the file"),
        digests=j.map_of(j.text("64 hexadecimal digits"), "SHA-256 of every file that was read"),
        items=j.list_of(
            j.object_of(
                "one question",
                name=j.text("model, profile, layers, outputs, decisions, box, or certificate and its file"),
                question=j.text("in words"),
                verdict=j.text("a verdict of the command that answers it, or: not asked"),
                answer=j.text("in sentences"),
                supports=j.text("what it may support, in the words of ED-324/ARP6983"),
                deployment=j.DEPLOYMENT,
                details=j.or_null(
                    j.map_of({}, ""),
                    "what profile, audit, tolerance, preserve, accuracy or check-certificate print as --json, by its "
                    "schema; of the model, sizes by name; null: not asked, or nothing more is known",
                ),
            ),
            "in the order of the page",
        ),
        versions=j.VERSIONS_USED,
        purpose=j.list_of(j.text("a sentence"), "what this is, and what it is not"),
        assumptions=j.list_of(j.text("a sentence"), "what it rests on"),
        notes=j.NOTES,
    ),
}
