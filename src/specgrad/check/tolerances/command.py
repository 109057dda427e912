"""specgrad tolerance: how far may a correct runtime be off? Exit codes: 0 proven or estimated, 2 unknown.

With --onnx-node-tests: 0 all stored values are correct ones, 1 some are not, 2 out of time.
"""

from __future__ import annotations

import json
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
from specgrad.cli.shared.exit_codes import CODES, json_data, print_verdict
from specgrad.cli.shared.models import MODEL_HELP, Fixed, Inputs, Preprocess, Shapes, at_fixed, read_inputs
from specgrad.cli.shared.options import Accumulate, Depth, Dtype, Execution, Operands, Stored, arithmetic_of
from specgrad.cli.shared.output_files import Force, Json, check_file, writing
from specgrad.deadline import check_time, time_limit
from specgrad.execution_text import but
from specgrad.interop.model import named_model

MAX_LAYERS_SHOWN, MIN_SHARE_SHOWN = 12, 0.005  # layers, and the least share of one
SECONDS, NODE_TESTS_SECONDS = 120, 600  # by default: of one model, of all node tests
MAX_NAMES_SHOWN = 12
Points = Annotated[
    bool, typer.Option("--points", help="The first axis of the inputs counts points: a tolerance for each.")
]


NodeTestsFile = Annotated[
    Path | None,
    typer.Option(
        "--onnx-node-tests",
        help="Write here what is proven of each node test of the package onnx, cell by cell; "
        "MODEL, if it is given, is a folder of such tests.",
    ),
]


commands = typer.Typer(rich_markup_mode=None)


@commands.command(
    epilog="Example: specgrad tolerance resnet18.onnx --input x.npy --execution node\n"
    "Or: specgrad tolerance --onnx-node-tests tolerances.json"
)
def tolerance(
    model: Annotated[str | None, typer.Argument(help=MODEL_HELP)] = None,
    inputs: Inputs = None,
    preprocess: Preprocess = None,
    points: Points = False,
    shape: Shapes = None,
    fix: Fixed = None,
    dtype: Dtype = "float32",
    operands: Operands = None,
    accumulate: Accumulate = None,
    execution: Execution = "fused",
    depth: Depth = None,
    stored: Stored = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="Time limit, by default 120; what is not proven then is estimated. Of node tests 600."
        ),
    ] = None,
    onnx_node_tests: NodeTestsFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """How far can a correct execution be from the exact outputs? The tolerance for a test, proven or estimated."""
    if onnx_node_tests is not None:
        _node_tests(onnx_node_tests, model, execution, seconds, force, as_json)
    if model is None:
        raise typer.BadParameter("give a MODEL, or --onnx-node-tests FILE")
    from specgrad.check.tolerances.labelled import labelled_tolerance

    arithmetic = arithmetic_of(dtype, operands, accumulate, execution, depth)
    loaded = at_fixed(named_model(model), fix)
    given = read_inputs(loaded, inputs or [], shape or [], preprocess)
    loaded, arrays = loaded.at_scalars(given.arrays)
    options = {"arithmetic": arithmetic, "points": points}
    with time_limit(SECONDS if seconds is None else seconds), screen.progress(as_json) as step:
        labelled = labelled_tolerance(loaded, arrays, stored or (), options, step)
    labelled = replace(labelled, notes=(*labelled.notes, *loaded.notes, *given.notes))
    print_verdict(
        "tolerance", labelled.form, labelled.to_json(), as_json, lambda: show_tolerance(Console(), model, labelled)
    )
    raise typer.Exit(CODES[labelled.form])


def show_tolerance(console: Console, model: str, labelled: Any) -> None:
    """Print the tolerance `labelled` of a model of this name: what it means, where it comes from, and what it holds
    for.
    """
    proven = labelled.proven if labelled.form == "proven" else None
    excluded = but(proven.deployment) if proven is not None else ""
    number = f"  tolerance {labelled.text}" if labelled.text else ""
    colour = "bold yellow" if labelled.form == "unknown" else "bold green"
    screen.line(console, (labelled.form, colour), f"{number}  {model}{excluded}")
    for sentence in labelled.sentences():
        screen.line(console, sentence, whole=sentence.startswith(" "))
    if proven is not None and proven.layers:
        _show_layers(console, proven.layers)
    screen.line(console, f"{labelled.seconds:.2f} s")
    if proven is not None:
        screen.show_deployment(console, proven.deployment, labelled.notes)
    else:
        for note in labelled.notes:
            screen.line(console, f"note: {note}")


def _show_layers(console: Console, layers: Any) -> None:
    """Print the contributions of `layers` (by name, largest first) that have a noticeable share, and the sum of the
    rest.
    """
    whole, body = sum(layers.values()), []
    shown = [name for name in list(layers)[:MAX_LAYERS_SHOWN] if layers[name] >= MIN_SHARE_SHOWN * whole]
    for name in shown:
        share = f"{100 * layers[name] / whole:.1f} %"
        body.append([screen.cell(name), screen.cell(f"{layers[name]:.3g}"), screen.cell(share)])
    print_table(console, [Column("layer", folds=True), Column("contributes", right=True), Column("", right=True)], body)
    if rest := [amount for name, amount in layers.items() if name not in shown]:
        screen.line(console, f"and {len(rest)} more, together {100 * sum(rest) / whole:.1f} % (--json lists all)")


# --- node tests of onnx -----------------------------------------------------------------------------------------------


def _node_tests(
    out: Path, folder: str | None, execution: str, seconds: float | None, force: bool, as_json: bool
) -> None:
    """Judge the node tests of the package onnx, or those in a folder, write `out`, print the counts, and exit.

    `execution` and `seconds` are the options; `force` overwrites a file of others.
    """
    from specgrad.check.tolerances.node_tests.load import installed_tests, stored_tests
    from specgrad.check.tolerances.node_tests.report import judge_tests

    schema = j.schema_name("node-tests")
    check_file(out, lambda data: data.startswith(f'{{"schema": "{schema}"'.encode()), force)
    with time_limit(NODE_TESTS_SECONDS if seconds is None else seconds), screen.progress(as_json) as step:
        check_time("the node tests")
        tests, source = installed_tests() if folder is None else (stored_tests(Path(folder)), folder)
        report = judge_tests(tests, source, execution, step)
    with writing(out):
        data = {"schema": schema, "verdict": report.verdict, **report.to_json(cells=True)}
        write_whole(out, json.dumps(json_data(data), allow_nan=False) + "\n")
    said = report.to_json(cells=False)
    print_verdict("node-tests", report.verdict, said, as_json, lambda: show_node_tests(Console(), report, out))
    raise typer.Exit(CODES[report.verdict])


def show_node_tests(console: Console, report: Any, out: Path) -> None:
    """Print what is proven of node tests, `report`: counts by format, and the tests that are findings; `out` has the
    cells.
    """
    from specgrad.check.tolerances.node_tests.report import COLUMNS, MEANING

    screen.line(
        console, (report.verdict, screen.colour(report.verdict)), f"  {len(report.tests):,} tests of {report.source}"
    )
    body = [[screen.cell(dtype), *(screen.cell(row[c]) for c in COLUMNS)] for dtype, row in report.counts().items()]
    print_table(console, [Column("format"), *(Column(c, right=True) for c in COLUMNS)], body)
    others = ", ".join(f"{count} {state}" for state, count in report.others().items())
    screen.line(console, f"outputs of no float, listed without a pair: {others or 'none'}")
    screen.line(console, f"A pair is proven: {MEANING}.")
    screen.line(console, "onnx's own pair is enough for all of these, below one that was found, or neither is known.")
    _show_names(console, "outside: stored values that no correct execution gives", report.named("outside"))
    _show_names(console, "below: a correct execution fails onnx's pair", report.named("below"))
    unread = report.reasons()
    screen.line(console, f"not read: {sum(unread.values())} tests, for {len(unread)} reasons, by name in {out}")
    if report.left:
        screen.line(console, f"out of time: {len(report.left)} tests were not reached; --seconds gives more")
    screen.line(console, f"{report.seconds:.1f} s; {out} has the exact value and the radius of every cell")
    screen.show_deployment(console, report.arithmetic.deployment, ())


def _show_names(console: Console, what: str, names: Sequence[str]) -> None:
    """Print a line per name, the first MAX_NAMES_SHOWN of them, under `what` they are; nothing without names."""
    if names:
        screen.line(console, f"{what} ({len(names)} tests)")
    for name in names[:MAX_NAMES_SHOWN]:
        screen.line(console, f"  {name}")
    if len(names) > MAX_NAMES_SHOWN:
        screen.line(console, f"  and {len(names) - MAX_NAMES_SHOWN} more")


# --- JSON -------------------------------------------------------------------------------------------------------------

ESTIMATED = j.object_of(
    "what correct executions usually differ by at these inputs: an estimate, not a proof",
    estimated={"type": "boolean", "description": "true: nothing of this is proven"},
    tolerance=j.bound("factor times the largest deviation: the estimated distance from the exact outputs"),
    pairwise_tolerance=j.bound("the estimated distance of two correct executions; null: above an output's spread"),
    atol=j.bound("for numpy.testing.assert_allclose(a, b, rtol=0, atol=atol); estimated"),
    factor=j.number("how many deviations the tolerance is"),
    outputs=j.list_of(
        j.object_of(
            "one output of numbers",
            name=j.text("its name"),
            deviation=j.number("the largest estimated standard deviation of a cell"),
            spread=j.number("the largest value of the output less the smallest"),
        ),
        "in the order of the model",
    ),
)
TEST_CELL = j.object_of(
    "one cell of an output",
    index=j.INDEX,
    stored=j.number("what onnx expects"),
    exact=j.number("the exact value, as float64 has it"),
    low=j.number("no correct execution gives less"),
    high=j.number("no correct execution gives more"),
    computed=j.or_null(j.number(""), "what a correct execution gives that fails onnx's pair; null: none is meant"),
)
TEST_OUTPUT = j.object_of(
    "one output",
    optional={
        "exact": {"description": "in the file: the exact values, as float64 has them"},
        "radius": {"description": "in the file: per cell, no correct execution is farther from the exact value"},
    },
    name=j.text("its name"),
    state=j.choice("proven", "unbounded", "not read", "integer", "boolean", "other"),
    dtype=j.text("the type of its values"),
    shape=j.SHAPE,
    rtol=j.bound("the pair that is enough, with atol; null: nothing is proven"),
    atol=j.bound("see rtol"),
    onnx=j.or_null(
        j.choice("enough", "below", "open"),
        "whether onnx's own pair is enough for every correct execution, below one that was found, or neither is known",
    ),
    outside=j.count("stored values that no correct execution gives"),
    cells=j.list_of(TEST_CELL, "the first of them"),
    failing=j.count("cells of a correct execution that fail onnx's pair"),
    witness=j.or_null(TEST_CELL, "the worst of them; null: there is none"),
    undecided=j.or_null(j.count(""), "of integers and booleans: cells of which not one value is proven"),
)
NODE_TESTS = j.command_schema(
    "node-tests",
    "what is proven of the node tests of the package onnx (tolerance --onnx-node-tests); the file has all cells too",
    j.choice("ok", "findings", "unfinished"),
    source=j.text("where the tests come from"),
    meaning=j.text("what a pair means"),
    counts=j.map_of(j.map_of(j.count("outputs"), "by what is known of them"), "by floating format"),
    others=j.map_of(j.count("outputs"), "what holds no floats"),
    reasons=j.map_of(j.count("tests"), "why tests with a float output were not read"),
    tests=j.list_of(
        j.object_of(
            "one test",
            name=j.text("as onnx calls it"),
            operators=j.list_of(j.text("an operator"), "of its nodes"),
            onnx_rtol=j.number("what onnx allows"),
            onnx_atol=j.number("see onnx_rtol"),
            reason=j.text("why it was not read; empty: it was"),
            assumed=j.text("errors of functions that the proof takes; empty: none"),
            outputs=j.list_of(TEST_OUTPUT, "in order"),
        ),
        "in onnx's order",
    ),
    left=j.list_of(j.text("a test"), "what time did not reach"),
    deployment=j.DEPLOYMENT,
    seconds=j.number("how long judging them took"),
)
SCHEMAS = {
    "node-tests": NODE_TESTS,
    "tolerance": j.command_schema(
        "tolerance",
        "how far a correct execution can be from the exact outputs, and from another one; null: not proven, or useless",
        j.choice("proven", "estimated", "unknown"),
        reason=j.text("why nothing better is known; empty: it is proven"),
        estimated=j.or_null(ESTIMATED, "what is usual: an estimate, never a proof; null: not known"),
        tolerance=j.bound("the largest distance from the exact value, over all outputs"),
        pairwise_tolerance=j.bound("the most that two executions can be apart, over all outputs"),
        rtol=j.bound(
            "with atol: numpy.testing.assert_allclose(a, b, rtol=rtol, atol=atol) holds for any two executions"
        ),
        atol=j.bound("see rtol"),
        largest=j.or_null(
            j.object_of(
                "one cell",
                output=j.text("the name of the output"),
                index=j.INDEX,
                point=j.or_null(j.count(""), "which point; null: one input was given"),
                exact=j.bound("the exact value there, as float64 has it"),
                tolerance=j.bound("the distance there"),
                ulps=j.bound("the distance in units in the last place of the exact value"),
            ),
            "the cell with the largest distance; null: there is no cell",
        ),
        outputs=j.list_of(
            j.object_of(
                "one output of numbers; arrays are nested lists of its shape, with --points one axis more in front",
                name=j.text("its name"),
                dtype=j.text("the format of its values"),
                exact={"description": "the exact values, as float64 has them"},
                tolerance={"description": "per cell, the largest distance from the exact value"},
                pairwise_tolerance={"description": "per cell, the most that two executions can be apart"},
            ),
            "in the order of the model",
        ),
        layers=j.map_of(
            j.number("an amount"), "how much each layer contributes to the largest distance; they sum to it"
        ),
        unbounded=j.list_of(j.text("a layer"), "layers about which nothing is proven"),
        points=j.or_null(j.count(""), "with --points: how many"),
        notes=j.NOTES,
        deployment=j.DEPLOYMENT,
        seconds=j.number("how long it took"),
    ),
}
