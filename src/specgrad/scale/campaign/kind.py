"""Base classes of the kinds of campaigns: items in shards, and rows as JSON lines."""

from __future__ import annotations

import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...bounded_files import file_digest
from ...errors import need
from ..job_status import JobError
from .keys import CampaignError, Key, options_of
from .sample_summary import SampleSummary

Row = dict[str, Any]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finding:
    """One distinct problem: its smallest case in words (`what`, `detail`), the row of it, how many rows are like it
    (`times`), and a script.
    """

    what: str
    detail: str
    row: Mapping[str, Any]
    times: int
    name: str = ""
    """Of the script's file; "": there is none, and `detail` says why."""
    script: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: verdict, what, detail, times (how often), file (the script's; null: none) and row."""
        named = {"verdict": self.row["verdict"], "what": self.what, "detail": self.detail, "times": self.times}
        return {**named, "file": self.name or None, "row": dict(self.row)}


class Kind(ABC):
    """Base class of campaigns: `count` shards, each a pure function `work(i)` of the spec and of `identity`.

    Paths are relative to `home`, the folder of the spec; rows and identity have them as the spec does, so that a
    campaign is the same one wherever its folder is mounted. A subclass has a `name` and the KEYS that its spec may
    have; `given` are its values for them, and CampaignError is raised for what is missing or wrong.
    """

    name: ClassVar[str]
    KEYS: ClassVar[Mapping[str, Key]]
    BAD: ClassVar[tuple[str, ...]]
    """Verdicts that are findings."""
    GOOD: ClassVar[tuple[str, ...]]
    """Verdicts that say yes: without any, a campaign has shown nothing."""
    OPEN: ClassVar[tuple[str, ...]] = ()
    """Verdicts that leave the whole open."""

    def __init__(self, given: Mapping[str, Any], home: str | Path) -> None:
        self.options, self.home = options_of(self.name, self.KEYS, given), Path(home)
        self._digests: dict[str, str] = {}
        self._hashed: dict[str, tuple[dict[Path, tuple[int, int, int] | None], str]] = {}

    @property
    @abstractmethod
    def count(self) -> int:
        """Return the number of shards, which are called 0 ... count - 1."""

    @abstractmethod
    def fingerprint_inputs(self) -> dict[str, Any]:
        """Return what decides the results beside the options: digests of files, versions of packages."""

    @abstractmethod
    def rows(self, shard: int) -> Iterator[Row]:
        """Yield the verdicts of one shard as JSON data, without times: they are equal in every run."""

    @abstractmethod
    def group_of(self, row: Row) -> str:
        """Return the group under which the verdict of a row is counted."""

    @abstractmethod
    def dedup_key(self, row: Row) -> tuple[Any, ...]:
        """Return the key of a bad row; of the rows with equal keys only the smallest is reported."""

    @abstractmethod
    def size_key(self, row: Row) -> tuple[Any, ...]:
        """Return a sort key; of the rows with equal `dedup_key` the one with the smallest is reported."""

    @abstractmethod
    def findings(self, smallest: Sequence[tuple[Row, int]], progress: Progress) -> list[Finding]:
        """Return a finding with a script for each (smallest row, number of rows) of one `dedup_key`."""

    def counts_of(self, row: Row) -> Mapping[str, int]:
        """Return how often each verdict is counted for a row: its own once, unless the row stands for several."""
        return {row["verdict"]: 1}

    def summary(self) -> SampleSummary | None:
        """Return an empty summary, to which rows are added; None for a kind whose rows stand for themselves."""
        return None

    def start(self) -> None:  # noqa: B027 - most have nothing to load
        """Load what the first shard would have to wait for; by default nothing."""

    def close(self) -> None:  # noqa: B027
        """End what was started for the shards; by default nothing."""

    @property
    def identity(self) -> dict[str, Any]:
        """JSON data that decides all results: campaigns with equal identities have equal results."""
        versions = {"specgrad": version("specgrad"), "numpy": np.__version__}
        return {"kind": self.name, "options": self.options, "versions": versions, **self.fingerprint_inputs()}

    def work(self, shard: int) -> bytes:
        """Return the rows of a shard as JSON lines, each with the numbers of its shard and row."""
        return b"".join(line_of({"shard": shard, "number": k, **row}) for k, row in enumerate(self.rows(shard)))

    def dry_run(self, shard: int) -> bytes:
        """Do the work of a shard to measure its time, without effects outside; return its rows."""
        return self.work(shard)

    def recheck_row(self, row: Row) -> Row:
        """Return a recorded row, with its verdict updated if what it describes has changed since."""
        return row

    def expect(self, identity: Mapping[str, Any]) -> None:
        """Take digests of files from the identity of a runner, so that those that are never read here are not hashed.

        Files that were read already keep the digests of their own bytes.
        """
        for group in ("models", "files"):
            named = identity.get(group)
            self._digests = {**named, **self._digests} if isinstance(named, Mapping) else self._digests

    def digest(self, name: str) -> str:
        """Return the digest of a file that the spec names: the one that `expect` was told, else that of its bytes."""
        if name not in self._digests:
            self._digests[name] = self._digest_here(name)
        return self._digests[name]

    def unchanged(self, name: str) -> Path:
        """Return the path of a file, to be read now; JobError unless its bytes are those that the runner saw."""
        path = self.file(name)
        if self._digest_here(name) != self.digest(name):
            raise JobError(f"{name} is another file here than where the campaign was started, or has changed since")
        return path

    def _digest_here(self, name: str) -> str:
        """Return the digest of a file's bytes, which are hashed again when its size or time have changed."""
        stamps, path = self._hashed.get(name, ({}, ""))[0], self.home / name
        if not stamps or any(_stamp(p) != there for p, there in stamps.items()):
            stamps = {p: _stamp(p) for p in (path, *_beside(path))}
            self._hashed[name] = stamps, digest_of_model(path)
        return self._hashed[name][1]

    def file(self, name: str) -> Path:
        """Return the path of the file `name` that the spec names; CampaignError if it is missing."""
        path = self.home / name
        if not os.path.isfile(path):  # False of names that are too long
            raise CampaignError(f"no file {name} in {self.home}")
        return path

    def files(self, patterns: Sequence[str]) -> list[str]:
        """Return the files that match the patterns, sorted, each once; CampaignError if a pattern matches none."""
        names: set[str] = set()
        for pattern in patterns:
            some = [p for p in self.home.glob(pattern) if p.is_file()] if not Path(pattern).is_absolute() else []
            if Path(pattern).is_absolute() or not some:
                why = "is absolute; name it from the spec's folder" if Path(pattern).is_absolute() else "names no file"
                raise CampaignError(f"{pattern} {why} ({self.home})")
            names |= {p.relative_to(self.home).as_posix() for p in some}
        return sorted(names)


class Listed(Kind):
    """Base class of campaigns whose items are a list; `each` of them are a shard."""

    items: Sequence[Any]

    @property
    def count(self) -> int:
        """Return the number of shards, of `each` items, the last with the rest."""
        return -(-len(self.items) // int(self.options["each"]))

    def items_of(self, shard: int) -> Sequence[Any]:
        """Return the items of one shard."""
        each = self.options["each"]
        return self.items[shard * each : (shard + 1) * each]


def line_of(row: Mapping[str, Any]) -> bytes:
    """Return a row as one line of strict JSON.

    >>> line_of({"verdict": "exact", "ratio": 0.0})
    b'{"verdict":"exact","ratio":0.0}\\n'
    """
    return json.dumps(row, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def finite_or_none(number: float) -> float | None:
    """Return a finite number as a float, and None for NaN and infinities, which JSON does not have."""
    return float(number) if math.isfinite(number) else None


def digest_of_model(path: Path) -> str:
    """Return the SHA-256 of a model file and, for ONNX, of the files beside it that hold its weights."""
    whole = file_digest(path)
    if path.suffix == ".onnx":
        need("onnx", "ONNX files need")
        from specgrad.interop.onnx.file import digests_beside

        beside = digests_beside(path)
        whole = hashlib.sha256(json.dumps([whole, beside]).encode()).hexdigest() if beside else whole
    return whole


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return size, time and number of a file, which change when somebody writes it again; None if it is missing."""
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_size, there.st_mtime_ns, there.st_ino


def _beside(path: Path) -> list[Path]:
    """Return the files beside an ONNX file that hold its weights; none of another file."""
    if path.suffix != ".onnx":
        return []
    need("onnx", "ONNX files need")
    from specgrad.interop.onnx.file import names_beside

    return [path.parent / name for name in names_beside(path)]


def file_name(words: Sequence[str], taken: Sequence[Finding]) -> str:
    """Return a file name made of `words` for a finding's script, numbered if a finding in `taken` has it.

    >>> file_name(["onnxruntime", "max pool"], [])
    'onnxruntime-max_pool.py'
    """
    name = "-".join("".join(c if c.isalnum() else "_" for c in word) for word in words)
    names = {f.name for f in taken}
    return f"{name}-{len(names)}.py" if f"{name}.py" in names else f"{name}.py"


def one_line(text: object, max_chars: int = 400) -> str:
    """Return a text in one line, cut to `max_chars` characters."""
    return " ".join(str(text).split())[:max_chars]
