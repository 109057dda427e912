"""specgrad tolerance: how far may a correct runtime be off? Exit codes: 0 proven or estimated, 2 unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.console import Column, print_table
from specgrad.cli.shared.exit_codes import CODES, print_verdict
from specgrad.cli.shared.models import Fixed, Inputs, ModelName, Preprocess, Shapes, at_fixed, read_inputs
from specgrad.cli.shared.options import Accumulate, Depth, Dtype, Execution, Operands, Stored, arithmetic_of
from specgrad.cli.shared.output_files import Json
from specgrad.deadline import time_limit
from specgrad.execution_text import but
from specgrad.interop.model import named_model

MAX_LAYERS_SHOWN, MIN_SHARE_SHOWN = 12, 0.005  # layers, and the least share of one
Points = Annotated[
    bool, typer.Option("--points", help="The first axis of the inputs counts points: a tolerance for each.")
]


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: specgrad tolerance resnet18.onnx --input x.npy --execution node")
def tolerance(
    model: ModelName,
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
    seconds: Annotated[float, typer.Option(min=0, help="Time limit; what is not proven then is estimated.")] = 120,
    as_json: Json = False,
) -> None:
    """How far can a correct execution be from the exact outputs? The tolerance for a test, proven or estimated."""
    from specgrad.check.tolerances.labelled import labelled_tolerance

    arithmetic = arithmetic_of(dtype, operands, accumulate, execution, depth)
    loaded = at_fixed(named_model(model), fix)
    given = read_inputs(loaded, inputs or [], shape or [], preprocess)
    loaded, arrays = loaded.at_scalars(given.arrays)
    options = {"arithmetic": arithmetic, "points": points}
    with time_limit(seconds), screen.progress(as_json) as step:
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
SCHEMAS = {
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
