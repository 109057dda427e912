"""specgrad show, specgrad explain: the layers of a model; what one cell reads, or what a rule says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.console import Column, print_table
from specgrad.cli.shared.exit_codes import (
    print_verdict,
)
from specgrad.cli.shared.models import ArrayFiles, Fixed, ModelName, Shapes, at_fixed, importable_graph
from specgrad.cli.shared.output_files import Force, Json, check_file, writing
from specgrad.graph.drawing.summary import HEADER, Row, rows
from specgrad.graph.explain import CellExplanation
from specgrad.graph.explain import explain as run_explain
from specgrad.graph.graph import Graph
from specgrad.interop.model import named_model
from specgrad.rulebook import rule as rule_text
from specgrad.rulebook import rules
from specgrad.svg import is_picture

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: specgrad show resnet18.onnx --svg resnet18.svg")
def show(
    model: ModelName,
    inputs: ArrayFiles = None,
    shape: Shapes = None,
    fix: Fixed = None,
    detail: Annotated[bool, typer.Option(help="A row per operator, not per layer.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="Also draw the network into this file.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Layers, shapes, parameters, multiply-adds and receptive fields."""
    check_file(svg, is_picture, force)
    graph, notes = importable_graph(at_fixed(named_model(model), fix), inputs or [], shape or [])
    body, total = rows(graph, detail=detail)
    data = {"layers": [_as_numbers(row) for row in body], "total": total, "notes": notes}
    picture = None if svg is None else graph.draw(detail=detail)
    print_verdict("show", "ok", data, as_json, lambda: show_graph(Console(), graph, detail, notes))
    if svg is not None and picture is not None:
        with writing(svg):
            picture.save(svg)


def _as_numbers(row: Row) -> dict[str, Any]:
    """Return a row of the table as JSON data: counts as numbers, the shape as a list."""
    data: dict[str, Any] = dict(zip(HEADER, row, strict=True))
    data |= {k: int(data[k].replace(",", "") or 0) for k in ("parameters", "multiply-adds")}
    data["shape"] = [int(n) for n in data["shape"].split("x")] if data["shape"] != "scalar" else []
    return data


@commands.command(epilog="Example: specgrad explain unet.onnx --layer node_conv2d_3 --output 0,2,5,7")
def explain(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL|RULE",
            help="A model: an .onnx file, a saved graph (.json), or module:attribute (PyTorch). "
            "Or a rule, as errors quote it: W2. Default: list all rules.",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option(help="The cell of a model: one whole number per axis, with commas between.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Which layer; default: the model's first output.")] = None,
    inputs: ArrayFiles = None,
    shape: Shapes = None,
    as_json: Json = False,
) -> None:
    """Which inputs, taps and divisor give one output cell of a model; or what a rule says that an error quotes."""
    if output is None:
        if layer or inputs or shape or (what is not None and (":" in what or Path(what).suffix)):
            raise typer.BadParameter("a model needs --output, the cell to explain: --output 0,2,5,7")
        _explain_rule(what, as_json)
        return
    if what is None:
        raise typer.BadParameter("--output is a cell of a model: name the model")
    try:
        index = tuple(int(part) for part in output.split(","))
    except ValueError:
        raise typer.BadParameter(f"--output must be whole numbers with commas between; got {output!r}") from None
    graph, _ = importable_graph(named_model(what), inputs or [], shape or [])
    explanation = run_explain(graph, index, layer)
    print_verdict("explain", "ok", explanation.to_json(), as_json, lambda: show_explanation(Console(), explanation))


def _explain_rule(label: str | None, as_json: bool) -> None:
    """Print the rule `label` of the contract, or the titles of all of them if it is None; as JSON if `as_json`."""
    if label is None:
        titles = {name: text.partition("\n")[0].partition("] ")[2] for name, text in rules().items()}
        print_verdict("rule", "ok", {"rules": titles}, as_json, lambda: show_rules(Console(), titles))
        return
    text = rule_text(label)
    print_verdict("rule", "ok", {"rule": label.strip("[]"), "text": text}, as_json, lambda: print(text))


def show_graph(console: Console, graph: Graph, detail: bool, notes: Sequence[str] = ()) -> None:
    """Print the table of a graph's layers, or if `detail` of its operators, then the notes."""
    body, total = rows(graph, detail=detail)
    columns = [Column(name, folds=i < 2, right=i >= 2) for i, name in enumerate(HEADER)]
    print_table(console, columns, [[screen.cell(text) for text in row] for row in body])
    screen.line(console, total)
    for note in notes:
        screen.line(console, note)


def show_explanation(console: Console, explanation: CellExplanation) -> None:
    """Print what one output cell is computed from: inputs' cells, channels and divisor, and its taps, one line each."""
    place = ", ".join(map(str, explanation.index))
    screen.line(
        console, (f"{explanation.layer}[{place}]", "bold"), f"  {explanation.operator}, shape {explanation.shape}"
    )
    for name, spans in explanation.fields.items():
        text = ", ".join("all" if s is None else f"{s[0]}..{s[1]}" for s in spans)
        screen.line(console, f"depends on nothing outside {name}[{text}]")
    if explanation.channels is not None:
        screen.line(console, f"channels {explanation.channels[0]}..{explanation.channels[1]}")
    if explanation.divisor is not None:
        screen.line(console, f"divisor {explanation.divisor}")
    if explanation.reads:
        reads = [
            [screen.cell(tap), screen.cell("padding" if read is None else read)] for tap, read in explanation.reads
        ]
        print_table(console, [Column("tap"), Column("reads")], reads)


def show_rules(console: Console, titles: Mapping[str, str]) -> None:
    """Print every rule of the contract: `titles` by label."""
    body = [[screen.cell(label), screen.cell(title)] for label, title in titles.items()]
    print_table(console, [Column("rule"), Column("", folds=True)], body)


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "show": j.command_schema(
        "show",
        "the layers of a model",
        j.choice("ok"),
        layers=j.list_of(
            j.object_of(
                "one layer",
                name=j.text("its name"),
                operator=j.text("its operator"),
                shape=j.SHAPE,
                parameters=j.count("parameters that it is the first to use"),
                multiply__adds=j.count("multiply-adds"),
                optional={"receptive field": j.text("the input cells that one output reads, per axis; or all")},
            ),
            "in the order of the model, inputs first",
        ),
        total=j.text("layers, nodes, parameters and multiply-adds, in one line"),
        notes=j.list_of(j.text("a sentence"), "nodes that are passed over, with the reason"),
    ),
    "explain": j.command_schema(
        "explain",
        "what one output cell is computed from",
        j.choice("ok"),
        layer=j.text("its layer"),
        operator=j.text("its operator"),
        shape=j.SHAPE,
        index=j.INDEX,
        taps=j.list_of(
            j.object_of(
                "one tap of the window", tap=j.INDEX, reads=j.or_null(j.INDEX, "the input cell; null: padding")
            ),
            "empty for an operator without a window",
        ),
        channels=j.or_null(j.list_of(j.count("a channel"), ""), "the first and the last input channel that it reads"),
        divisor=j.or_null(j.text(""), "of an average, and why"),
        inputs=j.map_of(
            j.list_of(j.or_null(j.list_of(j.count("an index"), ""), "first and last index; null: all"), "per axis"),
            "outside these cells of an input nothing is read",
        ),
    ),
    "rule": j.command_schema(
        "rule",
        "a rule of the contract, or all of them",
        j.choice("ok"),
        {
            "rule": j.text("the label"),
            "text": j.text("formula, example, who enforces it"),
            "rules": j.map_of(j.text("a title"), "without a label: every label with its title"),
        },
    ),
}
