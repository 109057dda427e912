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
    if as_json:
        print(json.dumps({"verdict": found.verdict, **found.to_json()}, indent=2))
    else:
        show_verdict(Console(), model, found)
    raise typer.Exit(CODES[found.verdict])


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
        raise typer.BadParameter(f"give a property file, or --input, --label and --eps; {missing} is missing")
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
