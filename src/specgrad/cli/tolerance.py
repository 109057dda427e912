"""specgrad tolerance: how far may a correct runtime be off? Exit codes: 0 a number is proven, 2 unbounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..execution_text import but
from ..interop.model import named_model
from .certify import show_deployment
from .shared import console as screen
from .shared.execution_options import Accumulate, Depth, Dtype, Execution, Operands, arithmetic_of
from .shared.exit_codes import CODES, print_verdict
from .shared.models import named_inputs
from .shared.output_files import Json
from .shared.shape_option import Shapes
from .shared.table import Column, print_table

MAX_LAYERS_SHOWN, MIN_SHARE_SHOWN = 12, 0.005  # layers, and the least share of one
Model = Annotated[str, typer.Argument(help="An .onnx file, a saved graph (.json), or module:attribute (PyTorch).")]
Inputs = Annotated[
    list[Path] | None,
    typer.Option("--input", help="A .npy file per input, or one .npz file by names; default: normal numbers, seed 0."),
]
Points = Annotated[
    bool, typer.Option("--points", help="The first axis of the inputs counts points: a tolerance for each.")
]
Stored = Annotated[
    list[str] | None,
    typer.Option("--stored", help="A node whose result the runtime is known to store. May be given again."),
]


def register_tolerance(app: typer.Typer) -> None:
    """Add the command `tolerance` to the app."""
    app.command(epilog="Example: specgrad tolerance resnet18.onnx --input x.npy --execution node")(tolerance)


def tolerance(
    model: Model,
    inputs: Inputs = None,
    points: Points = False,
    shape: Shapes = None,
    dtype: Dtype = "float32",
    operands: Operands = None,
    accumulate: Accumulate = None,
    execution: Execution = "fused",
    depth: Depth = None,
    stored: Stored = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit; bounds that are still open then are wide.")] = 600,
    as_json: Json = False,
) -> None:
    """How far can any correct execution be from the exact outputs, and from another one? The tolerance for a test."""
    from ..check import tolerance as run_tolerance

    arithmetic = arithmetic_of(dtype, operands, accumulate, execution, depth)
    loaded = named_model(model)
    arrays = named_inputs(loaded, inputs or [], shape or [])
    with screen.progress(as_json) as step:
        proven = run_tolerance(
            loaded,
            *arrays,
            arithmetic=arithmetic,
            stored=stored or (),
            points=points,
            seconds=seconds,
            progress=step,
        )
    if not inputs:
        proven = replace(proven, notes=(*proven.notes, "no --input was given: these are normal numbers, seed 0"))
    print_verdict(
        "tolerance", proven.verdict, proven.to_json(), as_json, lambda: show_tolerance(Console(), model, proven)
    )
    raise typer.Exit(CODES[proven.verdict])


def show_tolerance(console: Console, model: str, proven: Any) -> None:
    """Print the tolerance, what it means, where it comes from, and what it holds for."""
    bounded = proven.verdict == "bounded"
    number = f"  tolerance {proven.text}" if bounded else ""
    excluded = but(proven.deployment) if bounded else ""
    screen.line(console, (proven.verdict, "bold green" if bounded else "bold yellow"), f"{number}  {model}{excluded}")
    for sentence in proven.sentences():
        screen.line(console, sentence, whole=sentence.startswith(" "))
    if proven.layers:
        _show_layers(console, proven.layers)
    screen.line(console, f"{proven.seconds:.2f} s")
    show_deployment(console, proven.deployment, proven.notes)


def _show_layers(console: Console, layers: Any) -> None:
    """Print the contributions of the layers that have a noticeable share."""
    whole, body = sum(layers.values()), []
    shown = [name for name in list(layers)[:MAX_LAYERS_SHOWN] if layers[name] >= MIN_SHARE_SHOWN * whole]
    for name in shown:
        share = f"{100 * layers[name] / whole:.1f} %"
        body.append([screen.cell(name), screen.cell(f"{layers[name]:.3g}"), screen.cell(share)])
    print_table(console, [Column("layer", folds=True), Column("contributes", right=True), Column("", right=True)], body)
    if rest := [amount for name, amount in layers.items() if name not in shown]:
        screen.line(console, f"and {len(rest)} more, together {100 * sum(rest) / whole:.1f} % (--json lists all)")
