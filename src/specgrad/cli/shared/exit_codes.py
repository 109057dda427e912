"""How a command ends: exit codes, one line on stderr, one strict JSON object on stdout.

0 yes    1 no    2 open: cannot tell, partly examined, unusual, out of time, interrupted (`verdict` tells them apart)
3 refused: usage, a file that cannot be read, something that is not supported here
4 anything unexpected, two answers that exclude each other: an error of specgrad or of the machine; --debug shows where
128 + n ended by signal n, such as 143 by SIGTERM: no answer

A verdict alone ends a command with 0 or 1; whatever else ends it is an exception, and `ending` says what that means.
A reader who closes the pipe early changes none of these.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, TextIO

import numpy as np
import typer

from specgrad.errors import ContradictionError, SpecgradError, TimeLimitError, WorkerError, printable

from .json_parts import schema_name

YES, NO, CANNOT_TELL, USAGE, UNEXPECTED = 0, 1, 2, 3, 4
BY_SIGNAL = 128  # and the signal's number, as shells show it
CODES = dict.fromkeys(
    (
        *("exact", "rounding", "same", "same within rounding", "holds", "proven", "estimated", "valid", "bounded"),
        *("ok", "no finding", "unsat"),
    ),
    YES,
)
CODES |= dict.fromkeys(
    ("differs", "other arithmetic", "crashes", "violated", "refused", "reads everything", "findings", "broken", "sat"),
    NO,
)
CODES |= dict.fromkeys(
    (
        *("cannot tell", "partly examined", "unusual", "unknown", "undecided", "unbounded", "not proven"),
        *("times out", "timed-out", "unfinished", "crashed", "refuses", "not offered", "not examined"),
    ),
    CANNOT_TELL,
)  # sat, unsat and timed-out are words of VNN-LIB
UsageError: Any = typer.BadParameter.__mro__[1]  # click's, wherever this version of typer keeps click


def json_data(data: Any) -> Any:
    """Return data that JSON can hold: NaN and infinities become the strings "nan", "inf", "-inf".

    >>> json_data({"actual": float("nan"), "index": (0, np.int64(2)), "allowed": np.float32(0.5)})
    {'actual': 'nan', 'index': [0, 2], 'allowed': 0.5}
    """
    if isinstance(data, Mapping):
        return {str(name): json_data(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [json_data(value) for value in data]
    if isinstance(data, np.ndarray | np.generic):
        return json_data(data.tolist())
    if isinstance(data, float):
        return data if math.isfinite(data) else str(data)
    return data if data is None or isinstance(data, bool | int | str) else str(data)


def print_json(data: Mapping[str, Any]) -> None:
    """Print `data` as one JSON object, in the encoding of all commands."""
    print(json.dumps(json_data(data), indent=2, allow_nan=False), flush=True)


def print_verdict(command: str, verdict: str, data: Mapping[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """Print the verdict of a command on stdout: under --json one object with `data` (see json_parts.py), else by
    `show`.
    """
    print_and_flush(
        lambda: print_json({"schema": schema_name(command), "verdict": verdict, **data}) if as_json else show()
    )


def print_and_flush(show: Callable[[], None]) -> None:
    """Call `show`, which prints, then flush stdout, so that errors come up here."""
    show()
    sys.stdout.flush()


def warn_unlimited() -> None:
    """Print on stderr what this system cannot limit."""
    from specgrad.process import CANNOT_LIMIT

    for what in CANNOT_LIMIT:
        print_quietly(sys.stderr, f"specgrad: note: this system cannot limit the {what} of a runtime")


def report(error: BaseException, as_json: bool) -> int:
    """Print an error as one line on stderr, under --json also as an object on stdout; return the exit code."""
    code, reason = ending(error)
    line = printable(" ".join(reason.split()))
    print_quietly(sys.stderr, _for_window(f"specgrad: {line}", sys.stderr))
    content = {
        "schema": schema_name("error"),
        "verdict": "cannot tell" if code == CANNOT_TELL or code > BY_SIGNAL else "error",
        "reason": line,
    }
    print_quietly(sys.stdout, json.dumps(content, indent=2) if as_json else "", end="\n" if as_json else "")
    return code


def _for_window(text: str, stream: TextIO) -> str:
    """Return a line as it is to be shown: in a window it goes on between words, elsewhere it is one line."""
    width = shutil.get_terminal_size().columns
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) if stream.isatty() and len(text) > width else text


def print_quietly(stream: TextIO, text: str, end: str = "\n") -> None:
    """Print a text and `end` on a stream; one that is full or broken loses it, without changing the exit code."""
    try:
        print(text, file=stream, end=end, flush=True)
    except OSError:
        silence(stream)


def silence(stream: TextIO) -> None:
    """Redirect a stream to nowhere, so that Python's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class PipeTolerantFile(FileIO):
    """A stream whose reader may leave (`| head -1`); what is written after that is dropped without an error."""

    def write(self, data: Any, /) -> int:
        """Write bytes, `data`, and return how many; if nobody reads the pipe any more they are dropped, and count as
        written.
        """
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """Replace stdout and stderr by streams that tolerate a missing reader and escape letters they lack.

    A full disk remains an error.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - open until the end
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    sys.stdout, sys.stderr = _pipe_tolerant(sys.stdout, sys.__stdout__), _pipe_tolerant(sys.stderr, sys.__stderr__)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _pipe_tolerant(stream: TextIO, own: TextIO | None) -> TextIO:
    """Return a text stream that tolerates a missing reader in place of `stream` if it is `own`, the process's; else
    itself.
    """
    if stream is not own or not isinstance(stream, TextIOWrapper):
        return stream
    stream.flush()
    return TextIOWrapper(
        BufferedWriter(PipeTolerantFile(stream.fileno(), "w", closefd=False)),
        stream.encoding,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def ending(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the text for an exception that ended a command; the code is never 0 or 1."""
    if isinstance(error, typer.Abort | KeyboardInterrupt):
        return CANNOT_TELL, "stopped"
    if isinstance(error, SystemExit) and error.code == signal.SIGTERM:  # so Ray passes on what the process was sent
        return BY_SIGNAL + signal.SIGTERM, "stopped by SIGTERM"
    if isinstance(error, WorkerError):
        return UNEXPECTED, str(error)
    if isinstance(error, UsageError):
        place = f"{error.ctx.command_path.partition(' ')[2]}: ".lstrip(": ") if error.ctx is not None else ""
        return USAGE, f"{place}{error.format_message()}"
    if isinstance(error, TimeLimitError):
        return CANNOT_TELL, str(error)
    if isinstance(error, SpecgradError):
        tail = f" (specgrad explain {error.rule})" if error.rule else ""
        return USAGE, f"{error}{tail}"
    if isinstance(error, ContradictionError):
        return UNEXPECTED, f"{error}. One of them is false: a fault of specgrad, please report it"
    if isinstance(error, OSError) and error.filename is not None:
        return USAGE, f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        return USAGE, f"this needs {package}: pip install {package}"
    return UNEXPECTED, f"unexpected {type(error).__name__}: {str(error)[:300]} (--debug shows where)"
