"""specgrad certify: does a property hold for the deployed network? Exit codes: 0 holds, 1 counterexample, 2 unknown."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from ..scalar import Array
from . import screen
from .models import as_graph, load_model

CODES = {"holds": 0, "counterexample": 1, "unknown": 2}
COLOURS = {"holds": "green", "counterexample": "red", "unknown": "yellow"}
WORDS = {"holds": "unsat", "counterexample": "sat", "unknown": "unknown"}
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with a top-level verdict.")]


def register_certify(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(epilog="Example: specgrad certify net.onnx robust.vnnlib --seconds 120")(certify)
    check = app.command("check-certificate", epilog="Example: specgrad check-certificate net.cert.json net.onnx")
    check(check_certificate)


def certify(
    model: Annotated[str, typer.Argument(help="An .onnx file, a saved graph (.json), or module:attribute (PyTorch).")],
    statement: Annotated[Path | None, typer.Argument(metavar="PROPERTY", help="A .vnnlib file, or .vnnlib.gz.")] = None,
    x: Annotated[Path | None, typer.Option("--input", help="A .npy file: the input to stay around.")] = None,
    label: Annotated[int | None, typer.Option(help="The output that must stay the largest.")] = None,
    eps: Annotated[str | None, typer.Option(help="How far every cell may move: 0.01 or 2/255.")] = None,
    low: Annotated[str | None, typer.Option(help="No cell moves below this.")] = None,
    high: Annotated[str | None, typer.Option(help="No cell moves above this.")] = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit.")] = 60,
    vnncomp: Annotated[Path | None, typer.Option(help="Write the result here, as VNN-COMP asks for it.")] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Write a proof that check-certificate can check: this .json, and .safetensors.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Prove a property for every float32 execution, or find an input that breaks it."""
    from ..bounds.certify import certify as run_certify

    asked = _statement(statement, x, label, eps)
    loaded = load_model(model)
    network = loaded if isinstance(loaded, str) else as_graph(loaded, [x] if x is not None else [])
    limits = {"low": _number("--low", low), "high": _number("--high", high)}
    with screen.progress(as_json) as step:
        found = run_certify(network, asked, seconds=seconds, progress=step, **limits)
    if vnncomp is not None:
        vnncomp.write_text(vnncomp_text(found))
    reason = None if certificate is None else _write_certificate(certificate, network, asked, limits, found.verdict)
    if as_json:
        note = {"file": None, "reason": reason} if reason else {"file": str(certificate)}
        extra = {} if certificate is None else {"certificate": note}
        print(json.dumps({"verdict": found.verdict, **found.to_json(), **extra}, indent=2))
    else:
        show_verdict(Console(), model, found)
        if certificate is not None:
            print(f"no certificate: {reason}" if reason else f"certificate: {certificate}")
    raise typer.Exit(CODES[found.verdict])


def _write_certificate(path: Path, network: Any, asked: Any, limits: Any, verdict: str) -> str | None:
    """Write a proof if the checker accepts it; otherwise why there is none."""
    from ..bounds.certificate import check, store
    from ..bounds.certificate_slopes import certificate as make
    from ..bounds.certify import graph_and_property
    from ..bounds.replay_numbers import ReplayError

    if verdict != "holds":
        return "only what holds has one"
    graph, statement = graph_and_property(network, asked, **limits)
    text, arrays = make(graph, statement)
    try:
        check(text, arrays, graph, statement)
    except ReplayError as error:
        return f"bounds of the whole box, which are what a certificate holds, do not prove it ({error})"
    store(path, text, arrays)
    return None


def check_certificate(
    certificate: Annotated[Path, typer.Argument(help="The .json file; its .safetensors file must stand beside it.")],
    model: Annotated[str, typer.Argument(help="The network that it is about: an .onnx file or a saved graph (.json).")],
    statement: Annotated[Path | None, typer.Argument(metavar="PROPERTY", help="What it must prove: .vnnlib.")] = None,
    as_json: Json = False,
) -> None:
    """Replay a certificate in exact arithmetic. Exit codes: 0 valid, 1 refused."""
    from ..bounds.attack import deployed_graph
    from ..bounds.certificate import check_file
    from ..bounds.replay_numbers import ReplayError
    from ..bounds.vnnlib import read

    graph = deployed_graph(as_graph(load_model(model), []))
    data: dict[str, Any] = {"verdict": "valid"}
    try:
        found = check_file(certificate, graph, None if statement is None else read(statement))
        least = min((m for case in found.margins for m in case), default=Fraction(0))
        data |= {"network": found.network, "cases": found.cases, "margin": float(least)}
        said = f"[bold green]valid[/]  least margin {float(least):.6g}, exactly; network {found.network[:16]}..."
    except ReplayError as error:
        data |= {"verdict": "refused", "reason": str(error)}
        said = f"[bold red]refused[/]  {escape(str(error))}"
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        Console().print(said)
    raise typer.Exit(0 if data["verdict"] == "valid" else 1)


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
    if not path.exists():
        raise typer.BadParameter(f"no file {path}")
    try:
        found: Array = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise typer.BadParameter(f"{path} is no .npy file: {error}") from None
    if found.dtype.kind != "f" or not np.isfinite(found).all():
        raise typer.BadParameter(f"{path} must hold finite floats; got dtype {found.dtype}")
    return found


def _number(name: str, text: str | None) -> Fraction | None:
    """2/255 and 0.01 at their exact values."""
    try:
        return None if text is None else Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise typer.BadParameter(f"{name} must be a number such as 0.01 or 2/255; got {text!r}") from None


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
    console.print(f"[bold {COLOURS[found.verdict]}]{found.verdict}[/]  {escape(model)}")
    if found.counterexample is not None:
        y = ", ".join(f"{v:.6g}" for v in found.counterexample.y[:20])
        console.print(f"outputs of the counterexample: {y}")
        console.print(f"confirmed by: {', '.join(found.counterexample.confirmed)} (--json or --vnncomp give the input)")
    elif found.verdict == "holds":
        least = min((m for case in found.margins for m in case), default=np.inf)
        console.print(f"least proven margin: {least:.6g}; for every float32 execution, in any order of summation")
    if found.reason:
        console.print(f"why: {escape(found.reason)}")
    times = ", ".join(f"{name} {spent:.2f} s" for name, spent in found.stages.items() if spent)
    console.print(f"{times}{f'; {found.problems} subproblems' if found.problems else ''}")
