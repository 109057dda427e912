"""Files that a command writes: refused before the work, written after the verdict was printed."""

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

from .exit_codes import tell

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with a top-level verdict.")]
Html = Annotated[Path | None, typer.Option("--html", help="Also write a self-contained report to this file.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that specgrad did not write.")]


def is_report(data: bytes) -> bool:
    """A page of check/pages.py, by its footer."""
    return b"<footer>Written by specgrad." in data[-1000:]


def is_certificate(data: bytes) -> bool:
    """By its format entry."""
    from specgrad.proof.files.certificate import FORMAT

    try:
        content = json.loads(data)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def is_vnncomp(data: bytes) -> bool:
    """By its first line."""
    return data.partition(b"\n")[0] in (b"unsat", b"sat", b"unknown")


def check_file(path: Path | None, is_ours: Ours, force: bool) -> None:
    """Before the work: the folder is there, and the file is new or our own."""
    if path is None:
        return
    refuse_misplaced(path)
    if not force:
        refuse_foreign(path, is_ours)


def check_certificate_files(path: Path | None, force: bool) -> None:
    """The arrays beside a certificate are ours if the certificate is: a saved graph has the same two names."""
    if path is not None and path.suffix == ".safetensors":
        raise typer.BadParameter(f"{path} is where the arrays go; name the certificate {path.stem}.json")
    check_file(path, is_certificate, force)
    if path is not None and not path.is_file():
        check_file(path.with_suffix(".safetensors"), lambda _: False, force)


def check_folder(path: Path | None) -> None:
    """Before the work: it is a folder, or can become one."""
    if path is not None:
        refuse_misplaced(path, folder=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """After the verdict: a disk that is full costs the file, and a line on stderr, not the verdict."""
    try:
        yield
    except OSError as error:
        place = error.filename or path
        tell(sys.stderr, printable(f"specgrad: could not write {place}: {error.strerror or error}"))
