"""An append-only JSON-lines file of finished work, from which a stopped run resumes.

The first line says what the run is about: its kind ("preserve"), and a digest of model, data and options; a run with
another digest is refused, not mixed in. Every further line is one finished piece with its number. A line is written
whole and synced before the next piece begins; what kill -9 leaves of a line is cut off by the run that resumes. One
process writes at a time: another is refused at once.

Every line ends with the SHA-256 of the line before it, as it ends, and of its own text: one that was changed, left out
or moved is refused by its number. Who rewrites all lines from there on, with their digests, is not noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.atomic_files import claimed
from specgrad.bounded_files import parse_json, read_bytes
from specgrad.errors import FileError, SpecgradError, quoted
from specgrad.scalar import Array

FORMAT = "specgrad/record/2"
CHAIN = b',"chain":"'


class RecordError(SpecgradError, ValueError):
    """A checkpoint file that belongs to another run, that another process is writing, or that is damaged in the middle.

    `text` says which.
    """

    def __init__(self, text: str) -> None:
        super().__init__("record", quoted(text))


def digest_of(parts: Iterable[bytes | str | Array]) -> str:
    """Return one SHA-256 digest of `parts`: texts, bytes and arrays; an array counts with its type and shape.

    >>> digest_of(["a", np.zeros(2)]) == digest_of(["a", np.zeros((2, 1))])
    False
    """
    whole = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            cells = repr(part.tolist()).encode() if part.dtype == object else np.ascontiguousarray(part).tobytes()
            head, data = f"array {part.dtype.str} {part.shape}", cells
        else:
            head, data = type(part).__name__, part.encode() if isinstance(part, str) else part
        whole.update(f"{head} {len(data)}\n".encode())
        whole.update(data)
    return whole.hexdigest()


class Checkpoint:
    """The finished pieces of a run, by number; with path None nothing is written.

    Its first line says what it records: a `kind` of run, the `digest` of all that decides its results, and `about`,
    further entries. RecordError for the file of another run, and for one that another process is writing.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> with Checkpoint(path, "preserve", "d0") as record:
    ...     record.add(0, {"verdict": "proven"})
    >>> with Checkpoint(path, "preserve", "d0") as record:
    ...     record.done
    {0: {'verdict': 'proven'}}
    >>> Checkpoint(path, "preserve", "d1")
    Traceback (most recent call last):
    specgrad.check.models.checkpoint.RecordError: record: run.jsonl records another run: its model, data or options
    differ
    """

    def __init__(self, path: str | Path | None, kind: str, digest: str, about: Mapping[str, Any] | None = None) -> None:
        self.done: dict[int, dict[str, Any]] = {}
        self._file: Any = None
        self._chain = b""
        self._held = ExitStack()
        if path is None:
            return
        head = {"record": FORMAT, "kind": kind, "digest": digest, **(about or {})}
        target = Path(path)
        if target.exists() and not target.is_file():
            raise RecordError(f"{target.name} is not a regular file")
        self._file = self._held.enter_context(target.open("ab"))
        try:
            self._held.enter_context(claimed(target))
            self._resume(target, head)
        except BaseException as error:
            self._held.close()
            if isinstance(error, BlockingIOError):
                raise RecordError(f"{target.name} is being written by another process") from None
            raise

    def _resume(self, path: Path, head: Mapping[str, Any]) -> None:
        """Read the finished pieces from the file at `path` into `done`, and cut off an incomplete last line; write
        `head`, the first line of this run, where no line is whole.

        RecordError for another run's file, and for one that is damaged before its end.
        """
        *whole, torn = bytes(read_bytes(path)).split(b"\n")
        first, self._chain = self._line(head), b""
        if not whole and first.startswith(torn):
            self._file.truncate(0)
            self._write(head)
            return
        self._read_pieces(path.name, whole, head)
        if torn:
            self._file.truncate(path.stat().st_size - len(torn))

    def _read_pieces(self, name: str, whole: Sequence[bytes], head: Mapping[str, Any]) -> None:
        """Read the finished pieces from the lines `whole` of the file called `name`; RecordError unless the first is of
        the run that `head` says, and all are as they were written.
        """
        first = _parse_line(whole[0]) if whole else None
        if first is None or first.get("record") != FORMAT:
            raise RecordError(f"{name} is no record of this version of specgrad; it stays as it is")
        if first.get("kind") != head["kind"]:
            raise RecordError(f"{name} records a run of {first.get('kind')}, not of {head['kind']}")
        if first.get("digest") != head["digest"]:
            raise RecordError(f"{name} records another run: its model, data or options differ")
        for number, text in enumerate(whole, 1):
            piece = _parse_line(text)
            if piece is None or text != self._chained(text.rpartition(CHAIN)[0]):
                said = f"{name} was changed: line {number} is not what was written there"
                raise RecordError(f"{said}; without the file all is done again")
            if number > 1:
                if type(piece.get("number")) is not int or piece["number"] in self.done:
                    raise RecordError(f"{name}: line {number} has no number of its own")
                self.done[piece["number"]] = {k: v for k, v in piece.items() if k not in ("number", "chain")}

    def add(self, number: int, piece: Mapping[str, Any]) -> None:
        """Record the finished piece of this number; it is on the disk before this returns."""
        self.done[number] = dict(piece)
        if self._file is not None:
            self._write({"number": number, **piece})

    def _write(self, data: Mapping[str, Any]) -> None:
        """Write data as the next line; it is on the disk before this returns."""
        self._file.write(self._line(data))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _line(self, data: Mapping[str, Any]) -> bytes:
        """Return data as the next line of the file: JSON, with its digest."""
        body = json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
        return self._chained(body.removesuffix(b"}")) + b"\n"

    def _chained(self, body: bytes) -> bytes:
        """Return the next line without its end, of which `body` is all before the digest; that one is kept."""
        self._chain = hashlib.sha256(self._chain + body).hexdigest().encode()
        return body + CHAIN + self._chain + b'"}'

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()


def is_record(data: bytes) -> bool:
    """Return whether `data`, a file's bytes, begins as a checkpoint does."""
    first = _parse_line(data.partition(b"\n")[0])
    return first is not None and first.get("record") == FORMAT


def _parse_line(text: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line of text; None if it is none."""
    try:
        data = parse_json(text, "it")
    except FileError:
        return None
    return data if isinstance(data, dict) else None
