"""specgrad tolerance accuracy: errors per layer, on all of a box. Exit codes: 0 numbers are proven, 2 unbounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.console import Column, print_table
from specgrad.cli.shared.exit_codes import CODES, print_verdict
from specgrad.cli.shared.models import ModelName, Shapes, input_shapes
from specgrad.cli.shared.options import Accumulate, Depth, Dtype, Execution, Operands, arithmetic_of, box_limits
from specgrad.cli.shared.output_files import Json
from specgrad.execution_text import but
from specgrad.interop.model import named_model
from specgrad.scalar import upward

Boxes = Annotated[
    list[str],
    typer.Option("--box", help="LO,HI for every cell of every input, or x=LO,HI for input x. May be given again."),
]


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: specgrad tolerance accuracy net.onnx --box 0,1 --execution node")
def accuracy(
    model: ModelName,
    box: Boxes,
    shape: Shapes = None,
    dtype: Dtype = "float32",
    operands: Operands = None,
    accumulate: Accumulate = None,
    execution: Execution = "fused",
    depth: Depth = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit; ranges that are still wide then stay wide.")] = 300,
    as_json: Json = False,
) -> None:
    """Propagated and introduced error of every layer, for every input in a box and every correct execution."""
    from specgrad.safety.accuracy import accuracy as run_accuracy

    arithmetic = arithmetic_of(dtype, operands, accumulate, execution, depth)
    loaded = named_model(model)
    shapes = input_shapes(loaded, shape or [])
    boxes = boxes_of(box, loaded.names, shapes)
    with screen.progress(as_json) as step:
        if step is not None:
            step("accuracy", 0, 1)
        proven = run_accuracy(loaded, *boxes, arithmetic=arithmetic, seconds=seconds)
    print_verdict(
        "accuracy", proven.verdict, proven.to_json(), as_json, lambda: show_accuracy(Console(), model, proven)
    )
    raise typer.Exit(CODES[proven.verdict])


def boxes_of(texts: Sequence[str], names: Sequence[str], shapes: Sequence[Any]) -> list[Any]:
    """Return one Box per input, of these shapes, from the texts of --box; BadParameter if one has none, or a text
    names no input.
    """
    from specgrad.bounds import Box

    limits: dict[str, tuple[float, float]] = {}
    for text in texts:
        name = text.rpartition("=")[0]
        if name and name not in names:
            raise typer.BadParameter(f"--box: there is no input {name!r}; the model takes {', '.join(names)}")
        for each in [name] if name else [n for n in names if n not in limits]:
            limits[each] = box_limits(text)
    if missing := [n for n in names if n not in limits]:
        raise typer.BadParameter(f"--box: input {missing[0]} has none; give --box {missing[0]}=LO,HI")
    pairs = zip(names, shapes, strict=True)
    return [Box(*(np.full(shape, limit) for limit in limits[n])) for n, shape in pairs]


def show_accuracy(console: Console, model: str, proven: Any) -> None:
    """Print the verdict on a model of this name, a row per layer of `proven`, and what it holds for."""
    bounded = proven.verdict == "bounded"
    excluded = but(proven.deployment) if bounded else ""
    screen.line(console, (proven.verdict, "bold green" if bounded else "bold yellow"), f"  {model}{excluded}")
    for sentence in proven.sentences():
        screen.line(console, sentence)
    columns = [Column("layer", folds=True), Column("operator", folds=True)]
    columns += [Column(name, right=True) for name in ("propagated", "introduced", "total")] + [Column("worst cell")]
    body = []
    for layer in proven.layers:
        numbers = [_bound_text(n) for n in (layer.propagated, layer.introduced, layer.total)]
        place = f"[{', '.join(map(str, layer.worst_index))}]" if np.isfinite(layer.total) else ""
        body.append([screen.cell(text) for text in (layer.name, layer.operator, *numbers, place)])
    print_table(console, columns, body)
    screen.line(console, f"{proven.seconds:.2f} s")
    screen.show_deployment(console, proven.deployment, proven.notes)


def _bound_text(x: float) -> str:
    """Return a bound rounded up, or "unbounded"."""
    return "unbounded" if math.isinf(x) else "0" if x == 0 else upward(x)


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "accuracy": j.command_schema(
        "accuracy",
        "errors of every layer, for every input in a box and every execution of a class; null stands for unbounded",
        j.choice("bounded", "unbounded"),
        layers=j.list_of(
            j.object_of(
                "one layer, by its own name in the model; numbers are those of its worst cell",
                layer=j.text("its name"),
                operator=j.text("its operator, with the attributes that shape it"),
                shape=j.SHAPE,
                output={"type": "boolean", "description": "whether it is an output of the model"},
                propagated=j.bound("how far errors of its inputs move the exact result"),
                introduced=j.bound("what its own arithmetic adds; fused, that of its region up to here"),
                total=j.bound("no execution is farther from the exact value, in any cell"),
                low=j.bound("the least value of any cell, exact or computed"),
                high=j.bound("the largest value of any cell"),
                worst_index=j.INDEX,
            ),
            "in the order of the model; layers that compute nothing from the inputs are left out",
        ),
        unbounded=j.list_of(j.text("a layer"), "layers about which nothing is proven: overflow is possible, ..."),
        notes=j.NOTES,
        deployment=j.DEPLOYMENT,
        seconds=j.number("spent"),
    ),
}
