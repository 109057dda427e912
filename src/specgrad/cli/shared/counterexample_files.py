"""Counterexamples as files: the values of the declared tensors, and how they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from specgrad.atomic_files import write_whole

from .output_files import check_file, writing

Counterexample = Annotated[
    Path | None,
    typer.Option("--counterexample", help="Write the counterexample here, in the words of the property's VNN-LIB."),
]
WORDS = {"holds": "unsat", "violated": "sat", "unknown": "unknown"}
FIRST_LINE = re.compile(rb"\(\(X_0 \S+\)|\S+ (float32|real) \[[0-9,]*\]\n")


def is_counterexample(data: bytes) -> bool:
    """Return whether a file of these bytes is one of our counterexamples, by its first line."""
    return FIRST_LINE.match(data) is not None


def assigned_tensors(verdict: Any, statement: Any) -> tuple[Any, ...]:
    """Return the values of all tensors that the property declares, or of inputs and outputs if it declares none."""
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
    """Return the assignment as text in the property's VNN-LIB version; 1.0 if it is no file."""
    from specgrad.properties.assignment import text_1_0, text_2_0
    from specgrad.properties.vnnlib import text_of
    from specgrad.properties.vnnlib1 import is_2_0

    in_2_0 = isinstance(statement, str | Path) and is_2_0(text_of(statement))
    return (text_2_0 if in_2_0 else text_1_0)(values) + "\n"


def check_counterexample(path: Path | None, force: bool) -> None:
    """Raise an error, before the work, if the file may not be written."""
    check_file(path, is_counterexample, force)


def write_counterexample(path: Path | None, verdict: Any, statement: Any) -> None:
    """Write the counterexample of a verdict, if it has one."""
    if path is not None and verdict.counterexample is not None:
        with writing(path):
            write_whole(path, assignment_text(assigned_tensors(verdict, statement), statement))


def is_unconfirmed(verdict: Any) -> bool:
    """Return whether ONNX Runtime is installed and did not confirm the counterexample.

    Its outputs are those that count in the competition.
    """
    point = verdict.counterexample
    return point is not None and "onnxruntime" not in point.confirmed and find_spec("onnxruntime") is not None


def vnncomp_text(verdict: Any, statement: Any) -> str:
    """Return a results file of VNN-COMP: unsat, unknown, or sat with the assignment."""
    if is_unconfirmed(verdict):
        return "unknown\n"
    rest = "" if verdict.counterexample is None else assignment_text(assigned_tensors(verdict, statement), statement)
    return f"{WORDS[verdict.verdict]}\n{rest}"
