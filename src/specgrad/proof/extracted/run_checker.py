"""Runs the checker that is proven in verified/ (theorem check_sound) on a certificate."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
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
WHO = (
    "the checker extracted from its proof in Coq (theorem check_sound; trusted: what reads the files and multiplies "
    "the network's cells out, in Python, its parser, extraction, OCaml, Zarith); executions: fused"
)


@dataclass(frozen=True)
class CheckerProgram:
    """The checker program that is run, at `path`, with its digest: any program may stand where the proven one should.

    digest     its SHA-256
    is_built   whether it is, byte for byte, the one that `make -C verified` has built; None: there is none to compare
    """

    path: Path
    digest: str
    is_built: bool | None

    def __str__(self) -> str:
        """Return a sentence that names the program, and whether it is the proven checker."""
        named = f"the program {self.path}, which {VARIABLE} names (SHA-256 {self.digest})"
        if self.is_built:
            return f"{WHO}; {self.path}, as make -C verified has built it (SHA-256 {self.digest})"
        if self.is_built is None:
            return f"{named}. Whether that is {WHO} is not known: no {BUILT} is here to compare it with"
        return f"{named}. It is not the one that make -C verified has built here, {WHO}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `path`, `sha256` of the program, and `is_built`."""
        return {"path": str(self.path), "sha256": self.digest, "is_built": self.is_built}


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
    command, text = [str(program())], "".join(q.text for q in questions)
    try:
        done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=min(seconds, 1e6))
    except subprocess.TimeoutExpired:
        raise OutOfTimeError(f"the proven checker did not end within {seconds:g} s") from None
    answers = done.stdout.split()
    if done.returncode or len(answers) != len(questions) or not set(answers) <= {"yes", "no"}:
        said = (done.stderr.strip() or done.stdout.strip())[:200]
        raise NoCheckerAnswerError(f"the proven checker ended with code {done.returncode}: {said or 'it said nothing'}")
    return [answer == "yes" for answer in answers]


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
    for k, accepted in enumerate(ask([CheckerInput(graph, case, arithmetic) for case in cases], seconds)):
        if not accepted:
            raise ReplayError(f"the proven checker does not accept case {k}")
    if current_program() != who:
        raise ReplayError(f"the program {who.path} was changed while it answered")
    return who
