"""Runs the checker that is proven in verified/ (theorem check_sound) on a certificate."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from specgrad.errors import SpecgradError
from specgrad.graph.graph import Graph
from specgrad.properties.property import Property

from ..base.rationals import ReplayError
from ..files.certificate import OutOfTimeError, read_certificate
from .encode import CheckerInput

VARIABLE = "SPECGRAD_PROVEN_CHECKER"
BUILT = Path(__file__).parents[4] / "verified" / "bin" / "check"
TRUSTED = {
    True: "theorems check_sound and graph_exact; trusted: what reads the files and describes the graph, in Python, its "
    "count of roundings",
    False: "theorem check_sound; trusted: what reads the files and multiplies the network's cells out, in Python",
}
DEEP = 'ulimit -S -s 1048576 2>/dev/null || ulimit -S -s "$(ulimit -H -s)"; exec "$0"'
"""For a shell: a program with a stack of 1 GiB, or of as much as there may be. A sum of many terms is a deep call."""
WHO = "the checker extracted from its proof in Coq ({}, its parser, extraction, OCaml, Zarith); executions: fused"


@dataclass(frozen=True)
class CheckerProgram:
    """The checker program that is run, at `path`, with its digest: any program may stand where the proven one should.

    digest     its SHA-256
    is_built   whether it is, byte for byte, the one that `make -C verified` has built; None: there is none to compare
    compiled   it was given the graph and compiled the cells itself; else Python multiplied them out
    """

    path: Path
    digest: str
    is_built: bool | None
    compiled: bool = False

    def __str__(self) -> str:
        """Return a sentence that names the program, and whether it is the proven checker."""
        who = WHO.format(TRUSTED[self.compiled])
        named = f"the program {self.path}, which {VARIABLE} names (SHA-256 {self.digest})"
        if self.is_built:
            return f"{who}; {self.path}, as make -C verified has built it (SHA-256 {self.digest})"
        if self.is_built is None:
            return f"{named}. Whether that is {who} is not known: no {BUILT} is here to compare it with"
        return f"{named}. It is not the one that make -C verified has built here, {who}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `path`, `sha256` of the program, `is_built` and `compiled`."""
        return {"path": str(self.path), "sha256": self.digest, "is_built": self.is_built, "compiled": self.compiled}


class NoCheckerError(SpecgradError, OSError):
    """Raised if the checker program is not installed; `text` says what to do."""

    def __init__(self, text: str) -> None:
        super().__init__("proven", text)


class NoCheckerAnswerError(RuntimeError):
    """Raised if the program ended without an answer, which says nothing about a certificate."""


def program() -> Path:
    """Return the path of the checker program: from the environment variable, or where `make -C verified` puts it.

    NoCheckerError if there is none.
    """
    given = os.environ.get(VARIABLE)
    path = Path(given) if given else BUILT
    if not path.is_file() or not os.access(path, os.X_OK):
        where = f"{VARIABLE} names {path}, which is no program" if given else f"no program {path}"
        raise NoCheckerError(f"{where}; build it (make -C verified), or name it by {VARIABLE}")
    return path


def current_program() -> CheckerProgram:
    """Return the program that would run now, with its digest.

    NoCheckerError if there is none.
    """
    path = program()
    digest = _digest(path)
    return CheckerProgram(path, digest, digest == _digest(BUILT) if BUILT.is_file() else None)


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return sha256(path.read_bytes()).hexdigest()


def ask(questions: Sequence[CheckerInput], seconds: float = 60.0) -> list[bool]:
    """Run the checker on all inputs, `questions`, and return whether it accepts each.

    Raise NoCheckerAnswerError if it does not answer, OutOfTimeError if not within `seconds`.
    """
    return [accepted for accepted, _ in answers(questions, seconds)]


def answers(questions: Sequence[CheckerInput], seconds: float = 60.0) -> list[tuple[bool, bool]]:
    """Run the checker on all inputs, `questions`; return (accepted, compiled) of each: it compiled the cells itself.

    A graph that it does not compile is asked about again, by its cells. Errors are those of `ask`.
    """
    deadline = time.monotonic() + min(seconds, 1e6)
    said = _run("".join(q.text for q in questions), len(questions), deadline, seconds)
    again = [q.multiplied_out() for q, answer in zip(questions, said, strict=True) if answer == "none"]
    rest = iter(_run("".join(q.text for q in again), len(again), deadline, seconds) if again else [])
    return [
        (next(rest) == "yes", False) if answer == "none" else (answer == "yes", q.compiled)
        for q, answer in zip(questions, said, strict=True)
    ]


def _run(text: str, count: int, deadline: float, seconds: float) -> list[str]:
    """Return the checker's `count` answers to `text`: "yes", "no" or "none", which no question of cells has.

    OutOfTimeError, with the limit in `seconds`, after the deadline; NoCheckerAnswerError for anything else.
    """
    try:
        left = max(deadline - time.monotonic(), 0)
        command = ["/bin/sh", "-c", DEEP, str(program())]
        done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=left)
    except subprocess.TimeoutExpired:
        raise OutOfTimeError(f"the proven checker did not end within {seconds:g} s") from None
    said = done.stdout.split()
    if done.returncode or len(said) != count or not set(said) <= {"yes", "no", "none"}:
        text = (done.stderr.strip() or done.stdout.strip())[:200]
        raise NoCheckerAnswerError(f"the proven checker ended with code {done.returncode}: {text or 'it said nothing'}")
    return said


def check_proven(
    text: bytes, packed: bytes, graph: Graph, statement: Property | None = None, *, seconds: float = 60.0
) -> CheckerProgram:
    """Return the program that accepted the certificate; raise ReplayError if the proven checker does not accept it.

    `text` and `packed` are the bytes of its files; `statement` is the property, None: whatever it states. `seconds` is
    the limit for all cases together.
    """
    who = current_program()
    arithmetic, cases = read_certificate(text, packed, graph, statement)
    if arithmetic.functions:
        raise ReplayError("the proven checker has no functions such as exp and tanh")
    each = answers([CheckerInput(graph, case, arithmetic) for case in cases], seconds)
    for k, (accepted, _) in enumerate(each):
        if not accepted:
            raise ReplayError(f"the proven checker does not accept case {k}")
    if current_program() != who:
        raise ReplayError(f"the program {who.path} was changed while it answered")
    return replace(who, compiled=all(compiled for _, compiled in each))
