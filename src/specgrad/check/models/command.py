"""specgrad audit record: write what a runtime computes, for audit --recorded. Exit codes: 0 recorded, 1 the runtime
crashes, 2 it refuses the model or runs out of time: then there is no recording.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specgrad.check.models.make_recording import RecordResult
from specgrad.check.models.make_recording import record as run_record
from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.exit_codes import CODES, print_verdict, warn_unlimited
from specgrad.cli.shared.models import Inputs, ModelName, Preprocess, Shapes, complete_runtime, read_inputs
from specgrad.cli.shared.output_files import Force, Json, check_folder
from specgrad.interop.model import named_model

commands = typer.Typer(rich_markup_mode=None)
EXAMPLE = "Example: specgrad audit record net.onnx --runtime onnxruntime --input x.npy --out recorded"


@commands.command(epilog=EXAMPLE)
def record(
    model: ModelName,
    runtime: Annotated[
        str,
        typer.Option(
            help="onnxruntime, openvino, openvino-f32, onnx-reference; openvino:GPU; of a module torch, torch-compile.",
            autocompletion=complete_runtime,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder to write; a recording that is there is replaced.")],
    inputs: Inputs = None,
    preprocess: Preprocess = None,
    shape: Shapes = None,
    points: Annotated[
        bool, typer.Option("--points", help="The first axis of the inputs counts points: a run for each.")
    ] = False,
    run_seconds: Annotated[float, typer.Option(min=0, help="Time limit for one run of the model.")] = 300,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Record every value that a runtime computes, in a folder that audit --recorded and evidence read elsewhere."""
    from specgrad.check.models.load import points_of

    check_folder(out)
    loaded = named_model(model)
    given = read_inputs(loaded, inputs or [], shape or [], preprocess)
    arrays = loaded.arrays(given.arrays, "record")
    each = points_of(loaded, arrays, "record") if points else [arrays]
    files = ", ".join(str(path.name) for path in inputs or ())
    about = given.note.removeprefix("inputs: ") or files
    warn_unlimited()
    with screen.progress(as_json) as step:
        done = run_record(loaded, runtime, each, out, about=about, run_seconds=run_seconds, force=force, progress=step)
    print_verdict("record", done.verdict, done.to_json(), as_json, lambda: show_record(Console(), done))
    raise typer.Exit(CODES[done.verdict])


def show_record(console: Console, done: RecordResult) -> None:
    """Print what was recorded and where, or why nothing was."""
    data = done.to_json()
    versions = ", ".join(f"{k} {v}" for k, v in done.versions.items())
    head = f"  {done.model['name']} on {done.runtime} ({versions})"
    screen.line(console, (done.verdict, f"bold {screen.colour(done.verdict)}"), head)
    if done.recording is None:
        screen.line(console, f"nothing was recorded: {done.reason}")
        return
    screen.line(console, f"{data['tensors']} tensors of {data['runs']} runs, {data['bytes']} bytes in {data['folder']}")
    for text in dict.fromkeys(data["inputs"]):
        screen.line(console, f"inputs: {text}")
    screen.line(console, f"model {done.model['sha256']} (SHA-256)")
    for note in done.notes:
        screen.line(console, f"note: {note}")


# --- JSON -------------------------------------------------------------------------------------------------------------

DIGEST = j.text("64 hexadecimal digits")
SCHEMAS = {
    "record": j.command_schema(
        "record",
        "what a runtime computed, and where it was written",
        j.choice("ok", "refuses", "crashes", "times out"),
        model=j.object_of(
            "the model that was run",
            name=j.text("its file"),
            sha256=j.text("SHA-256 of its bytes"),
            data=j.map_of(DIGEST, "SHA-256 of the files that hold data of its tensors, by name"),
        ),
        runtime=j.text("the runtime, with its device"),
        versions=j.VERSIONS_USED,
        folder=j.or_null(j.text("a folder"), "the recording; null: there is none"),
        runs=j.count("how many runs were recorded"),
        tensors=j.count("how many tensors, inputs and outputs among them"),
        bytes=j.count("how many bytes the shards have"),
        inputs=j.list_of(j.text("in words"), "how the inputs of each run came about"),
        reason=j.text("why nothing was recorded; empty: it was"),
        notes=j.NOTES,
    ),
}
