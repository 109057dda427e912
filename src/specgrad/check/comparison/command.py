"""specgrad compare: are two models one function? Exit codes: 0 the same, 1 they differ, 2 cannot tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from specgrad.cli.shared import console as screen
from specgrad.cli.shared.execution_options import Accumulate, Depth, Dtype, Execution, Operands, arithmetic_of
from specgrad.cli.shared.exit_codes import CODES, print_verdict
from specgrad.cli.shared.model_options import NamedInputs
from specgrad.cli.shared.models import named_inputs
from specgrad.cli.shared.number_option import number_of
from specgrad.cli.shared.output_files import Json
from specgrad.cli.shared.property_options import High, Low
from specgrad.cli.shared.shape_option import Shapes
from specgrad.interop.model import named_model

Help = "An .onnx file, a saved graph (.json), or module:attribute (PyTorch)."
Eps = Annotated[
    str | None, typer.Option(help="Also bound the difference wherever every cell is this close: 0.01 or 2/255.")
]
EXAMPLE = "Example: specgrad compare trained.onnx optimised.onnx --input x.npy --eps 1/255 --low 0 --high 1"


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog=EXAMPLE)
def compare(
    model: Annotated[str, typer.Argument(metavar="A", help=Help)],
    other: Annotated[str, typer.Argument(metavar="B", help=Help)],
    inputs: NamedInputs = None,
    shape: Shapes = None,
    eps: Eps = None,
    low: Low = None,
    high: High = None,
    execution: Execution = "fused",
    operands: Operands = None,
    dtype: Dtype = "float32",
    accumulate: Accumulate = None,
    depth: Depth = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit; what is not settled then cannot be told.")] = 300,
    as_json: Json = False,
) -> None:
    """Are two models one function over real numbers? If not, how far apart, and in which layer do they part?"""
    from specgrad.check import compare as run_compare

    near = {"eps": number_of("--eps", eps), "low": number_of("--low", low), "high": number_of("--high", high)}
    arithmetic = arithmetic_of(dtype, operands, accumulate, execution, depth)
    first, second = named_model(model), named_model(other)
    arrays = named_inputs(first, inputs or [], shape or [])
    with screen.progress(as_json) as step:
        done = run_compare(first, second, *arrays, **near, arithmetic=arithmetic, seconds=seconds, progress=step)
    if not inputs:
        done = replace(done, notes=(*done.notes, "no --input was given: normal numbers, seed 0, were tried"))
    print_verdict(
        "compare", done.verdict, done.to_json(), as_json, lambda: show_comparison(Console(), model, other, done)
    )
    raise typer.Exit(CODES[done.verdict])


def show_comparison(console: Console, model: str, other: str, done: Any) -> None:
    """Print the verdict, then what it rests on."""
    screen.line(console, (done.verdict, f"bold {screen.colour(done.verdict)}"), f"  {model}  {other}")
    first, *rest = done.sentences()
    for sentence in (first.partition(": ")[2], *rest):
        screen.line(console, sentence)
    sizes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in done.shapes.items())
    screen.line(console, f"over real numbers, for inputs {sizes}; {done.seconds:.2f} s")
    if done.box is not None:
        screen.show_deployment(console, done.deployment, done.notes)
        return
    for note in done.notes:
        screen.line(console, f"note: {note}")
