"""The checker that is proven in verified/ (theorem check_sound), asked about a certificate."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import SpecgradError
from ..graph.graph import Graph
from ..properties.property import Property
from .certificate import OutOfTimeError, stated
from .numbers import ReplayError
from .question import Question

VARIABLE = "SPECGRAD_PROVEN_CHECKER"
BUILT = Path(__file__).parents[3] / "verified" / "bin" / "check"
WHO = (
    "the checker extracted from its proof in Coq (theorem check_sound; trusted: what reads the files and multiplies "
    "the network's cells out, in Python, its parser, extraction, OCaml, Zarith); executions: fused"
)


class NoCheckerError(SpecgradError, OSError):
    """The program is not installed."""

    def __init__(self, text: str) -> None:
        super().__init__("proven", text)


class NoAnswerError(RuntimeError):
    """The program ended without an answer, which says nothing about a certificate: our fault, or the machine's."""


def program() -> Path:
    """The path of the program: by the environment variable, or where `make -C verified` puts it."""
    given = os.environ.get(VARIABLE)
    path = Path(given) if given else BUILT
    if not path.is_file() or not os.access(path, os.X_OK):
        where = f"{VARIABLE} names {path}, which is no program" if given else f"no program {path}"
        raise NoCheckerError(f"{where}; build it (make -C verified), or name it by {VARIABLE}")
    return path


def ask(questions: Sequence[Question], seconds: float = 60.0) -> list[bool]:
    """What the program answers to each; a program that does not is a NoAnswerError."""
    command, text = [str(program())], "".join(q.text for q in questions)
    try:
        done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=min(seconds, 1e6))
    except subprocess.TimeoutExpired:
        raise OutOfTimeError(f"the proven checker did not end within {seconds:g} s") from None
    answers = done.stdout.split()
    if done.returncode or len(answers) != len(questions) or not set(answers) <= {"yes", "no"}:
        said = (done.stderr.strip() or done.stdout.strip())[:200]
        raise NoAnswerError(f"the proven checker ended with code {done.returncode}: {said or 'it said nothing'}")
    return [answer == "yes" for answer in answers]


def check_proven(
    text: bytes, packed: bytes, graph: Graph, statement: Property | None = None, *, seconds: float = 60.0
) -> None:
    """Refuse a certificate that the proven checker does not accept: a ReplayError says why."""
    arithmetic, cases = stated(text, packed, graph, statement)
    if arithmetic.functions:
        raise ReplayError("the proven checker has no functions such as exp and tanh")
    for k, accepted in enumerate(ask([Question(graph, case, arithmetic) for case in cases], seconds)):
        if not accepted:
            raise ReplayError(f"the proven checker does not accept case {k}")
