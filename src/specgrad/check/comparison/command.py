"""specgrad compare: are two models one function? Exit codes: 0 the same, or within rounding; 1 they differ; 2 open."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.exit_codes import CODES, print_verdict
from specgrad.cli.shared.models import Fixed, Inputs, Preprocess, Shapes, at_fixed, read_inputs
from specgrad.cli.shared.options import (
    Accumulate,
    Depth,
    Dtype,
    Execution,
    High,
    Low,
    Operands,
    arithmetic_of,
    number_of,
)
from specgrad.cli.shared.output_files import Json
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
    inputs: Inputs = None,
    preprocess: Preprocess = None,
    shape: Shapes = None,
    fix: Fixed = None,
    eps: Eps = None,
    low: Low = None,
    high: High = None,
    execution: Execution = "fused",
    operands: Operands = None,
    dtype: Dtype = "float32",
    accumulate: Accumulate = None,
    depth: Depth = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Constants within rounding are not enough: 1 if an input shows it, else 2.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit; what is not decided then stays open.")] = 300,
    as_json: Json = False,
) -> None:
    """Are two models one function over real numbers? If not, how far apart, and in which layer do they part?"""
    from specgrad.check import compare as run_compare

    near: Any = {"eps": number_of("--eps", eps), "low": number_of("--low", low), "high": number_of("--high", high)}
    arithmetic = arithmetic_of(dtype, operands, accumulate, execution, depth)
    first = at_fixed(named_model(model), fix)
    given = read_inputs(first, inputs or [], shape or [], preprocess)
    first, arrays = first.at_scalars(given.arrays)
    second = named_model(other)
    second = second.at_values({name: value for name, value in first.fixed.items() if name in second.names})
    with screen.progress(as_json) as step:
        done = run_compare(
            first, second, *arrays, **near, arithmetic=arithmetic, exact=exact, seconds=seconds, progress=step
        )
    done = replace(done, notes=(*done.notes, *first.notes, *given.notes))
    print_verdict(
        "compare", done.verdict, done.to_json(), as_json, lambda: show_comparison(Console(), model, other, done)
    )
    raise typer.Exit(CODES[done.verdict])


def show_comparison(console: Console, model: str, other: str, done: Any) -> None:
    """Print the verdict of the comparison `done` with the names of both models, `model` and `other`, then what it rests
    on.
    """
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


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "compare": j.command_schema(
        "compare",
        "whether two models are one function over real numbers",
        j.choice("same", "same within rounding", "differs", "cannot tell"),
        method=j.text("how it was shown, in words"),
        interface=j.list_of(j.text("a sentence"), "names, types, open sizes and inputs with a default that differ"),
        executed=j.or_null(
            j.object_of(
                "executions of both that are farther apart than the tolerance of one",
                about=j.text("at which input"),
                output=j.count("the output, counted from 0 among those of numbers"),
                index=j.INDEX,
                values=j.list_of(j.or_null(j.number(""), "null: not finite"), "what each of the two gave"),
                tolerances=j.list_of(
                    j.or_null(j.number(""), "null: unbounded"), "how far each may be from the exact value"
                ),
            ),
            "with verdict same: that the spellings are not alike as programs; null: not seen, or not looked for",
        ),
        weights=j.or_null(
            j.object_of(
                "constants of two networks of one structure",
                max_difference=j.number("no constant differs by more from its counterpart"),
                largest=j.number("the largest constant of that array"),
                units=j.or_null(
                    j.number(""),
                    "the most that one differs, in 2**-24 of the sizes it was folded from; null: any number",
                ),
                roundings=j.count("how often float32 programs that fold them round one, at most; 0: nothing is folded"),
                within_rounding={"type": "boolean", "description": "whether that explains every difference"},
                layers=j.list_of(j.text("a layer"), "where they differ the most: of the first model, of the second"),
            ),
            "null: the structures differ, or the models are the same",
        ),
        points=j.list_of(
            j.object_of(
                "one input",
                about=j.text("which"),
                lower=j.number("the outputs are at least so far apart at that cell"),
                upper=j.number("no output is farther apart at this input"),
                output=j.count("the output that is farthest apart, counted from 0 among those of numbers"),
                index=j.INDEX,
                value=j.number("what the first model gives there"),
                how=j.text("what it was computed with"),
                within_rounding=j.or_null(
                    {"type": "boolean"}, "whether float32 executions of both could agree there; null: not known"
                ),
                allowed=j.or_null(j.number(""), "the sum of both tolerances at that cell; null: not computed"),
            ),
            "inputs that were looked at",
        ),
        max_difference=j.or_null(
            j.number(""), "the largest difference that is proven: over the box, else at the inputs"
        ),
        box=j.or_null(
            j.object_of(
                "all inputs of a box",
                max_difference=j.or_null(
                    j.number(""), "no input sets the exact outputs farther apart; null: not known"
                ),
                max_execution_difference=j.or_null(
                    j.number(""),
                    "no two executions of `deployment`, one of each, are farther apart; null: unknown",
                ),
                witness_difference=j.number(
                    "so far apart the exact outputs are, at least, at some input; 0: none was found"
                ),
                how=j.text("what `max_difference` was found by"),
                independent_bound=j.or_null(
                    j.number(""), "what bounds of each model by itself would say; null: nothing"
                ),
            ),
            "with --eps, or --low and --high; null: not asked for",
        ),
        divergent_layers=j.or_null(
            j.list_of(j.text("a layer"), "of the first model, of the second; empty: none"),
            "the first layers that compute what the other model computes nowhere; null: not looked for",
        ),
        first_divergent_value=j.or_null(
            j.text(""), "the first layer of the first model whose values, up to float32, the second has nowhere"
        ),
        inputs=j.map_of(j.SHAPE, "the inputs, by name: what is said holds at these sizes"),
        witness=j.or_null(
            {"type": "array"}, "one nested list per input: an input that shows the difference; null: none, or large"
        ),
        deployment=j.DEPLOYMENT,
        notes=j.NOTES,
        seconds=j.number("how long it took"),
    ),
}
