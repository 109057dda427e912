"""The commands. Exit codes: 0 yes, 1 no, 2 cannot tell, 3 usage, 4 unexpected; see outcome.py."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
except ImportError as missing:  # pragma: no cover - said in one line to whoever installed the core alone
    print(f"specgrad: the command needs {missing.name}: pip install 'specgrad[cli]'", file=sys.stderr)
    raise SystemExit(3) from None

from ..check import RUNTIMES
from ..check import audit as run_audit
from ..check import conformance as run_conformance
from ..check.matrix import PAGE, is_page, write_scripts
from ..check.matrix import write as write_page
from ..check.runtimes import runtime as runtime_named
from ..files import write_whole
from ..graph.explain import explain as run_explain
from ..graph.show import HEADER, Row, rows
from . import screen
from .certify import register_certify
from .models import as_graph, load_model, read_inputs
from .outcome import CODES, USAGE, YES, report, say, say_limits
from .output import Force, check_file, check_folder, is_report, writing

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="One network, one meaning: show, audit, certify models; examine runtimes; explain outputs; check proofs.",
    rich_markup_mode=None,
)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with a top-level verdict.")]
Model = Annotated[str, typer.Argument(help="An .onnx file, a saved graph (.json), or module:attribute (PyTorch).")]
Inputs = Annotated[
    list[Path] | None, typer.Option("--input", help="A float32 .npy file per input; default: normal numbers, seed 0.")
]
Html = Annotated[Path | None, typer.Option("--html", help="Also write a self-contained report to this file.")]


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; after a command too.")
    ] = False,
) -> None:
    """`main` takes --debug out of the arguments; here it stands for --help."""


@app.command(epilog="Example: specgrad show resnet18.onnx")
def show(
    model: Model,
    inputs: Inputs = None,
    detail: Annotated[bool, typer.Option(help="A row per operator, not per layer.")] = False,
    as_json: Json = False,
) -> None:
    """Layers, shapes, parameters, multiply-adds and receptive fields."""
    graph = as_graph(load_model(model), inputs or [])
    found, total = rows(graph, detail=detail)
    data = {"layers": [_as_numbers(row) for row in found], "total": total}
    say("ok", data, as_json, lambda: screen.show_graph(Console(), graph, detail))


def _as_numbers(row: Row) -> dict[str, Any]:
    """A row of the table with its counts as numbers and its shape as a list."""
    found: dict[str, Any] = dict(zip(HEADER, row, strict=True))
    found |= {k: int(found[k].replace(",", "") or 0) for k in ("parameters", "multiply-adds")}
    found["shape"] = [int(n) for n in found["shape"].split("x")] if found["shape"] != "scalar" else []
    return found


@app.command(epilog="Example: specgrad audit resnet18.onnx --runtime onnxruntime --input x.npy --html report.html")
def audit(
    model: Model,
    runtime: Annotated[str, typer.Option(help="onnxruntime, openvino, openvino-f32, onnx-reference or torch.")],
    inputs: Inputs = None,
    html: Html = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit for one run of the model.")] = 300,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Is every layer's output on this runtime explained by rounding? If not, which is the first that is not?"""
    check_file(html, is_report, force)
    loaded = load_model(model)
    arrays = read_inputs(loaded, inputs or [])
    say_limits()
    with screen.progress(as_json) as step:
        found = run_audit(loaded, runtime, arrays, seconds=seconds, progress=step)
    say(found.verdict, found.to_json(), as_json, lambda: screen.show_audit(Console(), found))
    if html is not None:
        from ..check.html import audit_page

        with writing(html):
            write_whole(html, audit_page(found))
    raise typer.Exit(CODES[found.verdict])


@app.command(epilog="Example: specgrad conformance --runtime onnxruntime --operator max_pool --scripts cases/")
def conformance(
    runtime: Annotated[
        str, typer.Option(help="One of specgrad.check.RUNTIMES: torch, jax, onnxruntime, openvino, ...")
    ],
    operator: Annotated[list[str] | None, typer.Option(help="Only this operator; may be given again.")] = None,
    count: Annotated[int, typer.Option(min=8, help="Questions per operator.")] = 64,
    seed: Annotated[int, typer.Option(help="Another seed asks other questions.")] = 0,
    gradients: Annotated[bool, typer.Option(help="Ask for gradients too, where the runtime has them.")] = True,
    scripts: Annotated[
        Path | None, typer.Option(help="Write the reproduction of every finding into this folder.")
    ] = None,
    html: Html = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Does this runtime compute what the operators mean, on generated shapes, attributes and data?"""
    check_file(html, is_report, force)
    check_folder(scripts)
    say_limits()
    with screen.progress(as_json) as step:
        found = run_conformance(runtime, operators=operator, count=count, seed=seed, gradients=gradients, progress=step)
    say(found.verdict, found.to_json(), as_json, lambda: screen.show_conformance(Console(), found))
    if scripts is not None:
        with writing(scripts):
            write_scripts(found, scripts, force=force)
    if html is not None:
        from ..check.html import conformance_page

        with writing(html):
            write_whole(html, conformance_page(found))
    raise typer.Exit(CODES[found.verdict])


@app.command(epilog="Example: specgrad runtimes --write docs --count 256")
def runtimes(
    write: Annotated[Path | None, typer.Option(help="Examine them all and write runtimes.md and scripts here.")] = None,
    count: Annotated[int, typer.Option(min=8, help="Questions per operator.")] = 64,
    seed: Annotated[int, typer.Option(help="Another seed asks other questions.")] = 0,
    only: Annotated[list[str] | None, typer.Option(help="Only this runtime; may be given again.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Which runtimes are known, which are installed; with --write, the page of all their findings."""
    names = [runtime_named(n).name for n in only] if only else [n for n, r in RUNTIMES.items() if r.installed()]
    data: dict[str, Any] = {"runtimes": {n: r.versions() if r.installed() else None for n, r in RUNTIMES.items()}}
    if write is None:
        say("ok", data, as_json, lambda: screen.show_runtimes(Console(), data["runtimes"]))
        raise typer.Exit(YES)
    check_folder(write)
    check_file(write / PAGE if write.exists() else None, is_page, force)
    say_limits()
    results = []
    for name in names:
        with screen.progress(as_json) as step:
            results.append(run_conformance(name, count=count, seed=seed, progress=step))
    say("ok", data | {"page": str(write / PAGE)}, as_json, lambda: screen.show_runtimes(Console(), data["runtimes"]))
    with writing(write):
        write_page(results, write, force=force)
    raise typer.Exit(YES)


@app.command(epilog="Example: specgrad explain unet.onnx --layer node_conv2d_3 --output 0,2,5,7")
def explain(
    model: Model,
    output: Annotated[str, typer.Option(help="The cell: one whole number per axis, with commas between.")],
    layer: Annotated[str | None, typer.Option(help="Which layer; default: the model's first output.")] = None,
    inputs: Inputs = None,
    as_json: Json = False,
) -> None:
    """Which inputs, which taps and which divisor give one output cell."""
    try:
        index = tuple(int(part) for part in output.split(","))
    except ValueError:
        raise typer.BadParameter(f"--output must be whole numbers with commas between; got {output!r}") from None
    found = run_explain(as_graph(load_model(model), inputs or []), index, layer)
    say("ok", found.to_json(), as_json, lambda: screen.show_explanation(Console(), found))


register_certify(app)


def main() -> None:
    """Run the command; errors are one line on stderr."""
    args = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        code = _run(args) if args else max(_run(["--help"]), USAGE)
        sys.stdout.flush()  # a full disk shows here at the latest
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in sys.argv[1:]:
            traceback.print_exception(error)
        code = report(error, "--json" in args)
    sys.exit(code)


def _run(args: list[str]) -> int:
    """Without typer's own frame, which gives an interrupt another code and an empty line."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("specgrad", args) as context:
            command.invoke(context)
    except typer.Exit as done:
        return int(done.exit_code)
    return YES
