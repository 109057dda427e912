"""The commands. Exit codes: 0 yes, 1 no, 2 cannot tell, 3 usage, 4 unexpected, 128 + signal; see outcome.py."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

from ..errors import MissingPackageError, need

try:
    need("typer", "the command needs")
    need("rich", "the command needs")
except MissingPackageError as missing:  # said in one line to whoever installed the core alone
    print(f"specgrad: {missing}", file=sys.stderr)
    raise SystemExit(3) from None

import typer
from rich.console import Console

from ..atomic_files import write_whole
from ..check import OPERATORS, RUNTIMES, audit_recorded, kernel_signature
from ..check import audit as run_audit
from ..check import conformance as run_conformance
from ..check.conform.findings_page import PAGE, is_page
from ..check.conform.findings_page import write as write_page
from ..check.conform.repro_script import write_scripts
from ..check.models.recorded import name_ends, read_recorded
from ..check.runtimes import runtime as runtime_named
from ..declared_errors import MEASURED
from ..errors import ParameterError, SpecgradError
from ..graph.drawing.summary import HEADER, Row, rows
from ..graph.explain import explain as run_explain
from ..graph.graph import Graph
from ..interop.model import named_model
from ..rulebook import rule as rule_text
from ..rulebook import rules
from ..svg import is_picture
from .accuracy import register_accuracy
from .campaign import register_campaign
from .certify import register_certify
from .compare import register_compare
from .evidence import register_evidence
from .preserve import register_preserve
from .profile import register_profile
from .shared import console
from .shared.exit_codes import (
    CODES,
    USAGE,
    YES,
    open_streams,
    print_json,
    print_quietly,
    print_verdict,
    report,
    warn_unlimited,
)
from .shared.help_groups import Grouped
from .shared.models import importable_graph, read_array, read_inputs
from .shared.output_files import Force, Html, Json, check_file, check_folder, is_report, writing
from .shared.schemas import SCHEMAS
from .shared.shape_option import Shapes
from .tiles import register_tiles
from .tolerance import register_tolerance
from .vectors import register_vectors
from .verify import register_verify
from .window import register_window

app = typer.Typer(
    cls=Grouped,
    no_args_is_help=True,
    help="One network, one meaning: show, audit, certify models; examine runtimes; explain outputs; check proofs.",
    rich_markup_mode=None,
)
COMPLETION = "_SPECGRAD_COMPLETE"
Model = Annotated[str, typer.Argument(help="An .onnx file, a saved graph (.json), or module:attribute (PyTorch).")]
Inputs = Annotated[
    list[Path] | None, typer.Option("--input", help="A float32 .npy file per input; default: normal numbers, seed 0.")
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        help="Another arithmetic that may explain a layer: tf32, bfloat16, winograd-f4, ..., any; repeatable."
    ),
]


def _complete_runtime(typed: str) -> list[str]:
    """Return the runtimes that begin with `typed`, for shell completion."""
    return [name for name in RUNTIMES if name.startswith(typed)]


def _complete_measured(typed: str) -> list[str]:
    """Return the runtimes with measured function errors that begin with `typed`, for shell completion."""
    return [name for name in dict.fromkeys((*RUNTIMES, *MEASURED)) if name.startswith(typed)]


def _complete_operator(typed: str) -> list[str]:
    """Return the operators that begin with `typed`, for shell completion."""
    return [name for name in OPERATORS if name.startswith(typed)]


def _print_version(asked: bool) -> None:
    """Print the version and exit, if the option is given."""
    if asked:
        from .. import __version__

        print(__version__)
        raise typer.Exit(YES)


def _print_name(asked: bool) -> None:
    """Print the solver's name and exit, if the option is given."""
    if asked:
        print("specgrad")
        raise typer.Exit(YES)


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; after a command too.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
    name: Annotated[
        bool, typer.Option("--name", help="Print the solver's name and exit.", is_eager=True, callback=_print_name)
    ] = False,
) -> None:
    """`main` takes --debug out of the arguments; here it stands for --help."""


@app.command(epilog="Example: specgrad show resnet18.onnx --svg resnet18.svg")
def show(
    model: Model,
    inputs: Inputs = None,
    shape: Shapes = None,
    detail: Annotated[bool, typer.Option(help="A row per operator, not per layer.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="Also draw the network into this file.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Layers, shapes, parameters, multiply-adds and receptive fields."""
    check_file(svg, is_picture, force)
    graph, notes = importable_graph(named_model(model), inputs or [], shape or [])
    body, total = rows(graph, detail=detail)
    data = {"layers": [_as_numbers(row) for row in body], "total": total, "notes": notes}
    picture = None if svg is None else graph.draw(detail=detail)
    print_verdict("show", "ok", data, as_json, lambda: console.show_graph(Console(), graph, detail, notes))
    if svg is not None and picture is not None:
        with writing(svg):
            picture.save(svg)


def _as_numbers(row: Row) -> dict[str, Any]:
    """Return a row of the table as JSON data: counts as numbers, the shape as a list."""
    data: dict[str, Any] = dict(zip(HEADER, row, strict=True))
    data |= {k: int(data[k].replace(",", "") or 0) for k in ("parameters", "multiply-adds")}
    data["shape"] = [int(n) for n in data["shape"].split("x")] if data["shape"] != "scalar" else []
    return data


@app.command(epilog="Example: specgrad audit resnet18.onnx --runtime onnxruntime --input x.npy --html report.html")
def audit(
    model: Model,
    runtime: Annotated[
        str | None,
        typer.Option(
            help="onnxruntime, openvino, openvino-f32, onnx-reference or torch; "
            "a device too: onnxruntime:CUDAExecutionProvider, openvino:GPU.",
            autocompletion=_complete_runtime,
        ),
    ] = None,
    inputs: Inputs = None,
    shape: Shapes = None,
    recorded: Annotated[
        Path | None,
        typer.Option(help="Values that another device computed: an .npz file or a folder of .npy files, by name."),
    ] = None,
    outputs: Annotated[
        list[Path] | None,
        typer.Option(help="A black box: an .npy file per output that it gave on --input; nothing else is known."),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            help="The runtime that computed what was recorded, for its errors of exp, tanh, ...: onnxruntime, iree, "
            "...; default: the largest of any runtime that was measured.",
            autocompletion=_complete_measured,
        ),
    ] = None,
    require_coverage: Annotated[
        bool, typer.Option("--require-coverage", help="Exit with 2 where a layer could not be examined.")
    ] = False,
    accept: Accept = None,
    html: Html = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit for one run of the model.")] = 300,
    tolerance_seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Time for proven tolerances; default: 10, or 60 where outputs alone are known."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Is every layer's output on this runtime explained by rounding? If not, which is the first that is not?"""
    check_file(html, is_report, force)
    loaded = named_model(model)
    if loaded.kind == "graph":
        raise ParameterError("audit", "runtimes run no saved graph; write it with specgrad.interop.to_onnx first")
    _check_one_source(runtime, recorded, inputs, outputs, shape)
    if runtime is not None and of is not None:
        raise typer.BadParameter("--of goes with --recorded and --outputs: --runtime names the runtime")
    options: dict[str, Any] = {"accept": accept or (), "require_coverage": require_coverage}
    options["tolerance_seconds"] = tolerance_seconds
    if runtime is None:
        if loaded.kind != "onnx":
            raise ParameterError("audit", "what was recorded is judged by an ONNX file; export the module first")
        given = [read_array(file) for file in inputs or ()]
        values = read_recorded(recorded) if recorded else name_ends(loaded, given, list(map(read_array, outputs or ())))
        with console.progress(as_json) as step:
            audited = audit_recorded(loaded, values, of=of, **options, progress=step)
    else:
        arrays = read_inputs(loaded, inputs or [], shape or [])
        warn_unlimited()
        with console.progress(as_json) as step:
            audited = run_audit(loaded, runtime, arrays, seconds=seconds, **options, progress=step)
    print_verdict("audit", audited.verdict, audited.to_json(), as_json, lambda: console.show_audit(Console(), audited))
    if html is not None:
        from ..check.pages import audit_page

        with writing(html):
            write_whole(html, audit_page(audited, _graph_for_report(loaded, inputs or [], shape or [])))
    raise typer.Exit(CODES[audited.verdict])


def _graph_for_report(loaded: Any, inputs: list[Path], shape: list[str]) -> Graph | None:
    """Return the graph of an ONNX file for the report, or None if it cannot be imported."""
    try:
        return importable_graph(loaded, inputs, shape)[0] if loaded.kind == "onnx" else None
    except SpecgradError:
        return None


def _check_one_source(
    runtime: str | None,
    recorded: Path | None,
    inputs: list[Path] | None,
    outputs: list[Path] | None,
    shape: list[str] | None,
) -> None:
    """Raise BadParameter unless exactly one of --runtime, --recorded and --outputs is given."""
    if sum((runtime is not None, recorded is not None, bool(outputs))) != 1:
        raise typer.BadParameter("give one of --runtime NAME, --recorded FILE, --outputs FILE")
    if recorded is not None and (inputs or shape):
        raise typer.BadParameter("--recorded FILE holds the inputs too")
    if outputs and (not inputs or shape):
        raise typer.BadParameter("--outputs needs --input, one file per input of the model, and no --shape")


@app.command(epilog="Example: specgrad conformance --runtime onnxruntime --operator max_pool --scripts cases/")
def conformance(
    runtime: Annotated[
        str | None,
        typer.Option(
            help="One of specgrad.check.RUNTIMES: torch, jax, onnxruntime, openvino, ...",
            autocompletion=_complete_runtime,
        ),
    ] = None,
    operator: Annotated[
        list[str] | None,
        typer.Option(help="Only this operator; may be given again.", autocompletion=_complete_operator),
    ] = None,
    count: Annotated[int, typer.Option(min=8, help="Questions per operator.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Another seed asks other questions.")] = 0,
    gradients: Annotated[bool, typer.Option(help="Ask for gradients too, where the runtime has them.")] = True,
    scripts: Annotated[
        Path | None, typer.Option(help="Write the reproduction of every finding into this folder.")
    ] = None,
    html: Html = None,
    described: Annotated[
        bool, typer.Option("--describe", help="Ask nobody: print how assert_conforms calls a kernel of each operator.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Does this runtime compute what the operators mean, on generated shapes, attributes and data?"""
    if described:
        signatures = {name: kernel_signature(name) for name in operator or OPERATORS}
        data = {"operators": {name: signature.to_json() for name, signature in signatures.items()}}
        print_verdict("describe", "ok", data, as_json, lambda: print("\n\n".join(map(str, signatures.values()))))
        return
    if runtime is None:
        raise typer.BadParameter("give --runtime NAME, or --describe")
    check_file(html, is_report, force)
    check_folder(scripts)
    warn_unlimited()
    with console.progress(as_json) as step:
        result = run_conformance(
            runtime, operators=operator, count=count, seed=seed, gradients=gradients, progress=step
        )
    print_verdict(
        "conformance", result.verdict, result.to_json(), as_json, lambda: console.show_conformance(Console(), result)
    )
    if scripts is not None:
        with writing(scripts):
            write_scripts(result.scripts(), scripts, force=force)
    if html is not None:
        from ..check.pages import conformance_page

        with writing(html):
            write_whole(html, conformance_page(result))
    raise typer.Exit(CODES[result.verdict])


@app.command(epilog="Example: specgrad runtimes --write docs/findings --count 256")
def runtimes(
    write: Annotated[Path | None, typer.Option(help="Examine them all and write runtimes.md and scripts here.")] = None,
    count: Annotated[int, typer.Option(min=8, help="Questions per operator.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Another seed asks other questions.")] = 0,
    only: Annotated[list[str] | None, typer.Option(help="Only this runtime; may be given again.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Which runtimes are known, which are installed; with --write, the page of all their findings."""
    names = [runtime_named(n).name for n in only] if only else [n for n, r in RUNTIMES.items() if r.installed()]
    data: dict[str, Any] = {"runtimes": {n: r.versions() if r.installed() else None for n, r in RUNTIMES.items()}}
    if write is None:
        print_verdict("runtimes", "ok", data, as_json, lambda: console.show_runtimes(Console(), data["runtimes"]))
        raise typer.Exit(YES)
    check_folder(write)
    check_file(write / PAGE if write.exists() else None, is_page, force)
    warn_unlimited()
    results = []
    for name in names:
        with console.progress(as_json) as step:
            results.append(run_conformance(name, count=count, seed=seed, progress=step))
    data |= {"page": str(write / PAGE)}
    print_verdict("runtimes", "ok", data, as_json, lambda: console.show_runtimes(Console(), data["runtimes"]))
    with writing(write):
        write_page(results, write, force=force)
    raise typer.Exit(YES)


@app.command(epilog="Example: specgrad explain unet.onnx --layer node_conv2d_3 --output 0,2,5,7")
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
    inputs: Inputs = None,
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
    print_verdict(
        "explain", "ok", explanation.to_json(), as_json, lambda: console.show_explanation(Console(), explanation)
    )


def _explain_rule(label: str | None, as_json: bool) -> None:
    """Print a rule of the contract, or the titles of all of them."""
    if label is None:
        titles = {name: text.partition("\n")[0].partition("] ")[2] for name, text in rules().items()}
        print_verdict("rule", "ok", {"rules": titles}, as_json, lambda: console.show_rules(Console(), titles))
        return
    text = rule_text(label)
    print_verdict("rule", "ok", {"rule": label.strip("[]"), "text": text}, as_json, lambda: print(text))


@app.command(epilog="Example: specgrad schema audit")
def schema(
    command: Annotated[str | None, typer.Argument(help="Whose objects: audit, certify, ... Default: list all.")] = None,
) -> None:
    """The JSON schema of what a command prints under --json."""
    if command is None:
        print("\n".join(SCHEMAS))
    elif command not in SCHEMAS:
        raise typer.BadParameter(f"no schema {command!r}; there are {', '.join(SCHEMAS)}")
    else:
        print_json(SCHEMAS[command])


register_certify(app)
register_verify(app)
register_preserve(app)
register_tolerance(app)
register_accuracy(app)
register_compare(app)
register_tiles(app)
register_window(app)
register_campaign(app)
register_evidence(app)
register_profile(app)
register_vectors(app)


def main() -> None:
    """Run the command line; an error is one line on stderr, and the exit code is always set."""
    open_streams()
    if COMPLETION in os.environ:  # the shell asks what could come next
        _command().main(args=[], prog_name="specgrad")
    args = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        code = _run(args) if args else max(_run(["--help"]), USAGE)
        sys.stdout.flush()  # a full disk shows here at the latest
    except BaseException as error:  # Python itself would end with 1, which is "no"
        if "--debug" in sys.argv[1:]:
            print_quietly(sys.stderr, "".join(traceback.format_exception(error)), end="")
        code = report(error, "--json" in args)
    sys.exit(code)


def _command() -> Any:
    """Return the click command, with full first lines of help in its lists."""
    command: Any = typer.main.get_command(app)
    groups = [command]
    for several in groups:
        for one in several.commands.values():
            one.short_help = one.help.partition("\n")[0]
            one.epilog = f"\b\n{one.epilog}"  # an example stays one line, as it is to be typed
            groups += [one] if hasattr(one, "commands") else []
    return command


def _run(args: list[str]) -> int:
    """Run the command line and return the exit code, without typer's own handling of interrupts."""
    command = _command()
    try:
        try:
            context = command.make_context("specgrad", args)
        except SystemExit as shown:  # typer's --show-completion and --install-completion; no command has begun
            return USAGE if shown.code else YES
        with context:
            command.invoke(context)
    except typer.Exit as done:
        return int(done.exit_code)
    return YES
