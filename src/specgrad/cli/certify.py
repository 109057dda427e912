"""specgrad certify: does a property hold for the deployed network? Exit codes: 0 holds, 1 counterexample, 2 unknown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from ..check.printable import printable
from ..files import write_whole
from ..scalar import Array
from . import screen
from .models import as_graph, load_model, read_array
from .outcome import CODES, say
from .output import Force, check_certificate_files, check_file, is_vnncomp, writing

COLOURS = {"holds": "green", "counterexample": "red", "unknown": "yellow"}
WORDS = {"holds": "unsat", "counterexample": "sat", "unknown": "unknown"}
SHOWN = 20  # alternatives of a case
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with a top-level verdict.")]
Statement = Annotated[Path | None, typer.Argument(metavar="PROPERTY", help="A .vnnlib file, or .vnnlib.gz.")]
Around = Annotated[Path | None, typer.Option("--input", help="A .npy file: the input to stay around.")]
Label = Annotated[int | None, typer.Option(help="The output that must stay the largest.")]
Eps = Annotated[str | None, typer.Option(help="How far every cell may move: 0.01 or 2/255.")]
Low = Annotated[str | None, typer.Option(help="No cell moves below this.")]
High = Annotated[str | None, typer.Option(help="No cell moves above this.")]


def register_certify(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(epilog="Example: specgrad certify net.onnx robust.vnnlib --seconds 120")(certify)
    example = "Example: specgrad check-certificate net.cert.json net.onnx robust.vnnlib"
    check = app.command("check-certificate", epilog=example)
    check(check_certificate)


def certify(
    model: Annotated[str, typer.Argument(help="An .onnx file, a saved graph (.json), or module:attribute (PyTorch).")],
    statement: Statement = None,
    x: Around = None,
    label: Label = None,
    eps: Eps = None,
    low: Low = None,
    high: High = None,
    execution: Annotated[str, typer.Option(help="fused: runtimes merge nodes; node: every layer is stored.")] = "fused",
    operands: Annotated[str | None, typer.Option(help="Factors are rounded first: tf32 or bfloat16.")] = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit.")] = 60,
    vnncomp: Annotated[Path | None, typer.Option(help="Write the result here, as VNN-COMP asks for it.")] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Write a proof that check-certificate can check: this .json, and .safetensors.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Prove a property for every float32 execution of a class, or find an input that breaks it."""
    from ..bounds.certificate import store
    from ..bounds.certify import certify as run_certify
    from ..rounding import Arithmetic

    check_file(vnncomp, is_vnncomp, force)
    check_certificate_files(certificate, force)
    arithmetic = Arithmetic(execution=execution, operands=operands)
    asked = _statement(statement, x, label, eps)
    loaded = load_model(model)
    network = loaded if isinstance(loaded, str) else as_graph(loaded, [x] if x is not None else [])
    limits = {"low": _number("--low", low), "high": _number("--high", high)}
    with screen.progress(as_json) as step:
        found = run_certify(network, asked, seconds=seconds, progress=step, arithmetic=arithmetic, **limits)
    if not as_json:
        show_verdict(Console(), model, found)
        sys.stdout.flush()
    made, reason = None, None if certificate is None else "only what holds has one"
    if certificate is not None and found.verdict == "holds":
        made, reason = _certificate(network, asked, limits, arithmetic)
    note = {"file": None, "reason": reason} if reason else {"file": str(certificate)}
    data = {**found.to_json(), **({} if certificate is None else {"certificate": note})}
    said = f"no certificate: {reason}" if reason else f"certificate: {certificate}"
    say(found.verdict, data, as_json, lambda: None if certificate is None else print(printable(said)))
    if vnncomp is not None:
        with writing(vnncomp):
            write_whole(vnncomp, vnncomp_text(found))
    if certificate is not None and made is not None:
        with writing(certificate):
            store(certificate, *made)
    raise typer.Exit(CODES[found.verdict])


def _certificate(
    network: Any, asked: Any, limits: Any, arithmetic: Any
) -> tuple[tuple[bytes, bytes] | None, str | None]:
    """The bytes of a proof that the checker accepts; otherwise why there is none."""
    from ..bounds.certificate import check
    from ..bounds.certificate_slopes import certificate as make
    from ..bounds.certify import graph_and_property
    from ..bounds.execution import ExecutionError
    from ..bounds.replay_numbers import ReplayError

    graph, statement = graph_and_property(network, asked, **limits)
    try:
        made = make(graph, statement, arithmetic)
        check(*made, graph, statement, seconds=np.inf)
    except ExecutionError as error:
        return None, str(error)
    except ReplayError as error:
        return None, f"bounds of the whole box, which are what a certificate holds, do not prove it ({error})"
    except Exception as error:  # the verdict stands, and must be printed
        return None, f"unexpected {type(error).__name__}: {error}"
    return made, None


def check_certificate(
    certificate: Annotated[Path, typer.Argument(help="The .json file; its .safetensors file must stand beside it.")],
    model: Annotated[str, typer.Argument(help="The network that it is about: an .onnx file or a saved graph (.json).")],
    statement: Statement = None,
    x: Around = None,
    label: Label = None,
    eps: Eps = None,
    low: Low = None,
    high: High = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit.")] = 60,
    as_json: Json = False,
) -> None:
    """Replay a certificate of a property in exact arithmetic. Exit codes: 0 valid, 1 refused, 2 out of time."""
    from ..bounds.certificate import OutOfTimeError, check_file
    from ..bounds.replay_numbers import ReplayError

    asked = _statement(statement, x, label, eps)
    if not certificate.exists():
        raise typer.BadParameter(f"no file {certificate}")
    graph, notes = _network(model)
    question = _question(asked, graph, {"low": _number("--low", low), "high": _number("--high", high)})
    files = {"network": model, "property": str(statement) if statement is not None else f"around {x}"}
    try:
        found = check_file(certificate, graph, question, seconds=seconds, files=files)
    except ReplayError as error:
        verdict = "unknown" if isinstance(error, OutOfTimeError) else "refused"
        colour, reason = "yellow" if verdict == "unknown" else "red", str(error)
        said = (verdict, f"bold {colour}"), f"  {reason}"
        say(verdict, {"reason": reason}, as_json, lambda: screen.line(Console(), *said))
        raise typer.Exit(CODES[verdict]) from None
    say("valid", checked_json(found, notes), as_json, lambda: show_checked(Console(), found, notes))


def _network(model: str) -> tuple[Any, tuple[str, ...]]:
    """The deployed graph, without any code that proves things, and what deployment changed."""
    from ..bounds.deployed import deployed_graph, refuse_other_formats, rounded_constants

    loaded = load_model(model)
    if isinstance(loaded, str):
        refuse_other_formats(loaded)
    graph = as_graph(loaded, [])
    return deployed_graph(graph), rounded_constants(graph)


def _question(asked: Any, graph: Any, limits: Any) -> Any:
    from ..bounds.vnnlib import read, robustness

    if not isinstance(asked, tuple):
        return read(asked)
    x, label, eps = asked
    outputs = int(np.prod(graph.nodes[graph.output_positions[0]].shape))
    return robustness(x, label, eps, outputs, **limits)


def checked_json(found: Any, notes: Sequence[str]) -> dict[str, Any]:
    """What is proven, as data."""
    cases = [
        {
            "box": case.box(),
            "alternatives": [{"excluded": str(a), "margin": as_number(a.margin)} for a in case.alternatives],
        }
        for case in found.cases
    ]
    data: dict[str, Any] = {"verdict": "valid", "network": {"file": found.files["network"], "digest": found.network}}
    data |= {"property": found.files["property"], "cases": cases, "margin": as_number(found.margin)}
    data |= {"arithmetic": found.arithmetic.to_json(), "deployment": found.deployment}
    return {**data, "notes": list(notes)} if notes else data


def as_number(exact: Fraction) -> float:
    """Rounded towards 0, so that a margin is not shown larger than it is."""
    from ..bounds.vnnlib import as_float

    near = as_float(exact)
    return near if abs(Fraction(near) if np.isfinite(near) else exact) <= abs(exact) else float(np.nextafter(near, 0))


def show_checked(console: Console, found: Any, notes: Sequence[str]) -> None:
    """What is proven, of which network, on which box, for which executions."""
    line = partial(screen.line, console)
    line(("valid", "bold green"), f"  least margin {as_number(found.margin):.6g}, exactly")
    line(f"network: {found.files['network']}, digest {found.network}")
    line(f"property: {found.files['property']}")
    for k, case in enumerate(found.cases):
        line(f"case {k + 1} of {len(found.cases)}: {case.box()}")
        for a in case.alternatives[:SHOWN]:
            line(f"  {a}; margin {as_number(a.margin):.6g}")
        if len(case.alternatives) > SHOWN:
            line(f"  and {len(case.alternatives) - SHOWN} more; --json lists all")
    show_deployment(console, found.deployment, notes)


def show_deployment(console: Console, deployment: Mapping[str, str], notes: Sequence[str]) -> None:
    screen.line(console, "for every execution with")
    for name, text in deployment.items():
        screen.line(console, f"  {name}: {text}")
    for note in notes:
        screen.line(console, f"note: {note}")


def _statement(file: Path | None, x: Path | None, label: int | None, eps: str | None) -> Any:
    """A file, or (x, label, eps)."""
    around = {"--input": x, "--label": label, "--eps": eps}
    given = [name for name, value in around.items() if value is not None]
    if file is not None:
        if given:
            raise typer.BadParameter(f"give a property file or --input, --label, --eps; got both ({', '.join(given)})")
        if not file.exists():
            raise typer.BadParameter(f"no file {file}")
        return file
    if x is None or label is None or eps is None:
        missing = ", ".join(name for name in around if name not in given)
        raise typer.BadParameter(f"give a property file, or --input, --label and --eps; missing: {missing}")
    return _read(x), label, _number("--eps", eps)


def _read(path: Path) -> Array:
    found = read_array(path)
    if found.dtype.kind != "f" or not np.isfinite(found).all():
        raise typer.BadParameter(f"{path} must hold finite floats; got dtype {found.dtype}")
    return found


def _number(name: str, text: str | None) -> Fraction | None:
    """2/255 and 0.01 at their exact values; sizes are bounded before anything is computed."""
    from ..bounds.vnnlib_parse import PropertyError, number

    if text is None:
        return None
    above, slash, below = text.partition("/")
    try:
        parts = number(above), number(below if slash else "1")
    except PropertyError as error:
        raise typer.BadParameter(f"{name}: {error.text}") from None
    if parts[0] is None or not parts[1]:
        raise typer.BadParameter(f"{name} must be a number such as 0.01 or 2/255; got {text[:40]!r}")
    return parts[0] / parts[1]


def vnncomp_text(found: Any) -> str:
    """unsat, sat with the assignment, or unknown."""
    lines = [WORDS[found.verdict]]
    if found.counterexample is not None:
        cells = [(f"{name}_{i}", v) for name, a in (("X", found.counterexample.x), ("Y", found.counterexample.y))
                 for i, v in enumerate(np.ravel(a).tolist())]  # fmt: skip
        lines += [f"{'(' if k == 0 else ' '}({name} {value!r})" for k, (name, value) in enumerate(cells)]
        lines[-1] += ")"
    return "\n".join(lines) + "\n"


def show_verdict(console: Console, model: str, found: Any) -> None:
    """The verdict, then what it rests on."""
    line = partial(screen.line, console)
    line((found.verdict, f"bold {COLOURS[found.verdict]}"), f"  {model}")
    if found.counterexample is not None:
        y = ", ".join(f"{v:.6g}" for v in found.counterexample.y[:20])
        line(f"outputs of the counterexample: {y}")
        line(f"confirmed by: {', '.join(found.counterexample.confirmed)} (--json or --vnncomp give the input)")
    elif found.verdict == "holds":
        least = min((m for case in found.margins for m in case), default=np.inf)
        line(f"least proven margin: {least:.6g}")
    if found.reason:
        line(f"why: {found.reason}")
    times = ", ".join(f"{name} {spent:.2f} s" for name, spent in found.stages.items() if spent)
    line(f"{times}{f'; {found.problems} subproblems' if found.problems else ''}")
    show_deployment(console, found.deployment, found.notes)
