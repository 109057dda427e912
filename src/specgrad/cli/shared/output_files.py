"""Files that commands write: checked before the work, written after the verdict is printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from specgrad.atomic_files import Ours, refuse_foreign, refuse_misplaced
from specgrad.errors import printable

from .exit_codes import print_quietly

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with a top-level verdict.")]
Html = Annotated[Path | None, typer.Option("--html", help="Also write a self-contained report to this file.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that specgrad did not write.")]


def is_report(data: bytes) -> bool:
    """Return whether these bytes are one of our HTML pages, by its footer."""
    return b"<footer>Written by specgrad." in data[-1000:]


def is_certificate(data: bytes) -> bool:
    """Return whether these bytes are a certificate, by its format entry."""
    from specgrad.proof.files.certificate import FORMAT

    try:
        content = json.loads(data)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def is_vnncomp(data: bytes) -> bool:
    """Return whether these bytes are a VNN-COMP results file, by its first line."""
    return data.partition(b"\n")[0] in (b"unsat", b"sat", b"unknown")


def check_file(path: Path | None, is_ours: Ours, force: bool) -> None:
    """Raise an error, before the work, if the folder is missing or the file is not our own (unless `force`)."""
    if path is None:
        return
    refuse_misplaced(path)
    if not force:
        refuse_foreign(path, is_ours)


def check_certificate_files(path: Path | None, force: bool) -> None:
    """Raise an error if a certificate, or the arrays beside it, may not be written."""
    if path is not None and path.suffix == ".safetensors":
        raise typer.BadParameter(f"{path} is where the arrays go; name the certificate {path.stem}.json")
    check_file(path, is_certificate, force)
    if path is not None and not path.is_file():
        check_file(path.with_suffix(".safetensors"), lambda _: False, force)


def check_folder(path: Path | None) -> None:
    """Raise an error, before the work, if the path is no folder and cannot become one."""
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
