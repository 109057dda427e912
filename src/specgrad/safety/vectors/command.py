"""specgrad conformance vectors: cases by equivalence class with exact answers. Exit code 0: written, or listed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.console import Column, print_table
from specgrad.cli.shared.exit_codes import YES, print_verdict
from specgrad.cli.shared.output_files import Json, check_folder

Operators = Annotated[
    list[str] | None, typer.Option("--operator", help="By ONNX's name; may be given again. Default: all.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The folder to write; it must be empty or new.")]
Listed = Annotated[bool, typer.Option("--list", help="Show the classes, and write nothing.")]
Seed = Annotated[int, typer.Option(min=0, help="Another seed draws other numbers in the same classes.")]
Flush = Annotated[bool, typer.Option("--flush", help="Also allow subnormal numbers to count as zero.")]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that holds files.")]


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: specgrad conformance vectors --operator MaxPool --out maxpool")
def vectors(
    operator: Operators = None,
    out: Out = None,
    listed: Listed = False,
    seed: Seed = 0,
    flush: Flush = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Test vectors by equivalence class: one-node models, inputs, exact answers and allowed radii as plain files."""
    if (out is None) != listed:
        raise typer.BadParameter("give --out FOLDER, or --list")
    from specgrad.safety import vectors as room

    if listed:
        listing = {c.operator: room.coverage(c) for c in room.chosen(operator)}
        data = {"operators": listing, "incompleteness": room.INCOMPLETE}
        print_verdict("classes", "ok", data, as_json, lambda: show_classes(Console(), listing))
        raise typer.Exit(YES)
    check_folder(out)
    with screen.progress(as_json) as step:
        pack = room.write_pack(out or Path(), operator, seed=seed, flush=flush, force=force, progress=step)
    print_verdict("vectors", "ok", pack.to_json(), as_json, lambda: show_pack(Console(), pack))
    raise typer.Exit(YES)


def show_classes(console: Console, coverage_by_operator: Any) -> None:
    """Print a table with a row per equivalence class: operator, zone, kind, element types and what the class is.

    `coverage_by_operator` maps an operator's name to its coverage. Classes of which no cases are made follow as rows of
    kind "missing", with the reason.
    """
    body = []
    for name, listing in coverage_by_operator.items():
        zones: dict[str, Any] = {}
        for row in listing["classes"]:
            zones.setdefault(row["zone"], (row, []))[1].append(row["type"])
        for zone, (row, types) in zones.items():
            body.append([screen.cell(t) for t in (name, zone, row["kind"], " ".join(types), row["text"])])
        body += [
            [screen.cell(t) for t in (name, "-", "missing", what, why)] for what, why in listing["missing"].items()
        ]
    names = ("operator", "zone", "kind", "types", "class")
    print_table(console, [Column(n, folds=n in ("types", "class")) for n in names], body)


def show_pack(console: Console, pack: Any) -> None:
    """Print what a pack of test vectors holds, its coverage, and what it does not show."""
    body = []
    for name, listing in pack.operators.items():
        cases = sum(row["cases"] for row in listing["classes"])
        body.append([screen.cell(str(t)) for t in (name, cases, listing["covered"], listing["listed"])])
    heads = (Column("operator"), *(Column(n, right=True) for n in ("cases", "classes covered", "listed")))
    print_table(console, heads, body)
    cells = f"{pack.cells:,} cells, {pack.open:,} of them open"
    screen.line(console, ("ok", "bold green"), f"  {pack.cases:,} cases in {pack.folder}, {cells}; seed {pack.seed}")
    screen.line(console, "README.txt says how to judge a cell; run_vectors.py runs them on ONNX Runtime")
    from specgrad.safety.vectors import INCOMPLETE

    screen.line(console, INCOMPLETE)


# --- JSON -------------------------------------------------------------------------------------------------------------

CLASSES_OF = j.map_of(
    j.object_of(
        "the classes of one operator",
        covered=j.count("classes with a case"),
        listed=j.count("classes in all, those without a case too"),
        classes=j.list_of(
            j.object_of(
                "one class",
                type=j.text("the element type, as tags write it"),
                zone=j.text("the word of its tag"),
                kind=j.choice("type", "shape", "broadcasting", "constraint", "function", "risk"),
                text=j.text("what it holds"),
                cases=j.count("how many were written; 0 under --list"),
            ),
            "by zone and type",
        ),
        missing=j.map_of(j.text("why"), "classes that are known and not drawn"),
    ),
    "by ONNX's name",
)
INCOMPLETE = j.text("what vectors do not show")
SCHEMAS = {
    "vectors": j.command_schema(
        "vectors",
        "test vectors that were written",
        j.choice("ok"),
        folder=j.text("where they are"),
        seed=j.count("the same seed draws the same numbers"),
        operators=CLASSES_OF,
        cases=j.count("in all"),
        cells=j.count("of all outputs"),
        open=j.count("cells of which nothing is demanded"),
        executions=j.DEPLOYMENT,
        incompleteness=INCOMPLETE,
    ),
    "classes": j.command_schema(
        "classes",
        "the classes that test vectors are drawn from (vectors --list)",
        j.choice("ok"),
        operators=CLASSES_OF,
        incompleteness=INCOMPLETE,
    ),
}
