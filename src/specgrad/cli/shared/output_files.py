"""Files that commands write, counterexamples too: checked before the work, written after the verdict is printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from specgrad.atomic_files import Ours, refuse_foreign, refuse_misplaced, write_whole
from specgrad.bounded_files import parse_json
from specgrad.errors import FileError, printable

from .exit_codes import print_quietly

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with a top-level verdict.")]
Html = Annotated[Path | None, typer.Option("--html", help="Also write a self-contained report to this file.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that specgrad did not write.")]


def is_report(data: bytes) -> bool:
    """Return whether the bytes `data` are one of our HTML pages, by its footer."""
    return b"<footer>Written by specgrad." in data[-1000:]


def is_certificate(data: bytes) -> bool:
    """Return whether the bytes `data` are a certificate, by its format entry."""
    from specgrad.proof.files.certificate import FORMAT

    try:
        content = parse_json(data, "it")
    except FileError:
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def is_vnncomp(data: bytes) -> bool:
    """Return whether the bytes `data` are a VNN-COMP results file, by its first line."""
    return data.partition(b"\n")[0] in (b"unsat", b"sat", b"unknown")


def check_file(path: Path | None, is_ours: Ours, force: bool) -> None:
    """Raise OSError, before the work, if the folder is missing or the file is not our own (unless `force`)."""
    if path is None:
        return
    refuse_misplaced(path)
    if not force:
        refuse_foreign(path, is_ours)


def check_certificate_files(path: Path | None, force: bool) -> None:
    """Raise OSError if a certificate, or the arrays beside it, may not be written, BadParameter if it ends in
    .safetensors; `force` overwrites files of others.
    """
    if path is not None and path.suffix == ".safetensors":
        raise typer.BadParameter(f"{path} is where the arrays go; name the certificate {path.stem}.json")
    check_file(path, is_certificate, force)
    if path is not None and not path.is_file():
        check_file(path.with_suffix(".safetensors"), lambda _: False, force)


def check_folder(path: Path | None) -> None:
    """Raise OSError, before the work, if the path is no folder and cannot become one."""
    if path is not None:
        refuse_misplaced(path, folder=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report an OSError in the block on stderr, so that a full disk does not change the verdict."""
    try:
        yield
    except OSError as error:
        place = error.filename or path
        print_quietly(sys.stderr, printable(f"specgrad: could not write {place}: {error.strerror or error}"))


# --- counterexamples --------------------------------------------------------------------------------------------------

Counterexample = Annotated[
    Path | None,
    typer.Option("--counterexample", help="Write the counterexample here, in the words of the property's VNN-LIB."),
]
WORDS = {"holds": "unsat", "violated": "sat", "unknown": "unknown"}
FIRST_LINE = re.compile(rb"\(\(X_0 \S+\)|\S+ (float32|real) \[[0-9,]*\]\n")


def is_counterexample(data: bytes) -> bool:
    """Return whether a file of the bytes `data` is one of our counterexamples, by its first line."""
    return FIRST_LINE.match(data) is not None


def assigned_tensors(verdict: Any, statement: Any) -> tuple[Any, ...]:
    """Return the values, at a verdict's counterexample, of all tensors that the property `statement` declares, or of
    inputs and outputs.
    """
    from specgrad.properties.assignment import Assigned, assign_1_0, read_declarations

    point = verdict.counterexample
    networks = read_declarations(statement) if isinstance(statement, str | Path) else ()
    if not networks:
        return assign_1_0(point.x, point.point, point.y)
    if point.named:
        tensors = [t for network in networks for t in (*network.inputs, *network.outputs)]
        exact = {name: tuple(np.ravel(cells)) for name, cells in point.exact.items()}
        return tuple(Assigned(t, np.ravel(point.named[t.name]), exact.get(t.name, ())) for t in tensors)
    (network,) = networks  # with one input and one output
    return (
        *(Assigned(t, np.ravel(point.x), point.point) for t in network.inputs),
        *(Assigned(t, np.ravel(point.y)) for t in network.outputs),
    )


def assignment_text(values: Sequence[Any], statement: Any) -> str:
    """Return the assignment `values` as text in the VNN-LIB version of the property `statement`; 1.0 if it is no file.

    PropertyError or OSError if the file cannot be read.
    """
    from specgrad.properties.assignment import text_1_0, text_2_0
    from specgrad.properties.vnnlib import text_of
    from specgrad.properties.vnnlib1 import is_2_0

    in_2_0 = isinstance(statement, str | Path) and is_2_0(text_of(statement))
    return (text_2_0 if in_2_0 else text_1_0)(values) + "\n"


def check_counterexample(path: Path | None, force: bool) -> None:
    """Raise OSError, before the work, if the file may not be written; `force` overwrites files of others."""
    check_file(path, is_counterexample, force)


def write_counterexample(path: Path | None, verdict: Any, statement: Any) -> None:
    """Write the counterexample of a verdict on the property `statement`, if it has one; nothing if path is None.

    OSError if the file cannot be written.
    """
    if path is not None and verdict.counterexample is not None:
        with writing(path):
            write_whole(path, assignment_text(assigned_tensors(verdict, statement), statement))


def is_unconfirmed(verdict: Any) -> bool:
    """Return whether ONNX Runtime is installed and did not confirm the verdict's counterexample.

    Its outputs are those that count in the competition.
    """
    point = verdict.counterexample
    return point is not None and "onnxruntime" not in point.confirmed and find_spec("onnxruntime") is not None


def vnncomp_text(verdict: Any, statement: Any) -> str:
    """Return a results file of VNN-COMP for a verdict on the property `statement`: unsat, unknown, or sat with the
    assignment.
    """
    if is_unconfirmed(verdict):
        return "unknown\n"
    rest = "" if verdict.counterexample is None else assignment_text(assigned_tensors(verdict, statement), statement)
    return f"{WORDS[verdict.verdict]}\n{rest}"
