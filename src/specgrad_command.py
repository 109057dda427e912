"""The `specgrad` command, which ends with 4 where specgrad itself, or a package that it needs, cannot be imported.

Python would end with 1, which is "no" (specgrad.cli.shared.exit_codes). It is no part of the package, whose import
may be what fails.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from importlib import import_module

STOPPED, MISSING, UNEXPECTED = 2, 3, 4  # of specgrad.cli.shared.exit_codes


def main() -> None:
    """Import the command and run it; the version alone needs no package of ours."""
    try:
        if [word for word in sys.argv[1:] if word != "--debug"] == ["--version"]:
            _print_version()
            return
        run = import_module("specgrad.cli.main").main
    except BaseException as error:
        sys.exit(_said(error))
    run()


def _print_version() -> None:
    """Past Python's buffer, which would fail again at the end: a stream that is closed or unread changes nothing."""
    from importlib.metadata import version

    text = f"{version('specgrad')}{os.linesep}".encode()
    with contextlib.suppress(BrokenPipeError):
        if sys.stdout is not None:
            os.write(sys.stdout.fileno(), text)


def _said(error: BaseException) -> int:
    """One line on stderr, with --debug the traceback too; the exit code."""
    if isinstance(error, SystemExit) and error.code == MISSING:  # a package, which has been said
        return MISSING
    if isinstance(error, KeyboardInterrupt):
        code, text = STOPPED, "stopped"
    else:
        words = " ".join(str(error).split())[:300]
        code, text = UNEXPECTED, f"cannot start: {type(error).__name__}: {words} (--debug shows where)"
    if sys.stderr is not None:
        trace = "".join(traceback.format_exception(error)) if "--debug" in sys.argv[1:] else ""
        print(f"{trace}specgrad: {text}", file=sys.stderr)
    return code
