"""What the kinds of campaigns have in common: items in shards, and JSON lines of them."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .keys import CampaignError, Key, options_of

Row = dict[str, Any]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finding:
    """What is wrong, once: the smallest case in words, its row, how many rows are like it, and a script of it."""

    what: str
    detail: str
    row: Mapping[str, Any]
    times: int
    name: str = ""
    """Of the script's file; "": there is none, and `detail` says why."""
    script: str = ""

    def to_json(self) -> dict[str, Any]:
        named = {"verdict": self.row["verdict"], "what": self.what, "detail": self.detail, "times": self.times}
        return {**named, "file": self.name or None, "row": dict(self.row)}


class Kind(ABC):
    """One campaign: `count` shards, each a pure function `work(i)` of the spec; `identity` is all that decides it.

    Paths are relative to `home`, the folder of the spec; rows and identity have them as the spec does, so that a
    campaign is the same one wherever its folder is mounted.
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

    @property
    @abstractmethod
    def count(self) -> int:
        """How many shards."""

    @abstractmethod
    def decides(self) -> dict[str, Any]:
        """What decides the results beside the options: digests of files, versions of packages."""

    @abstractmethod
    def rows(self, shard: int) -> Iterator[Row]:
        """The verdicts of one shard; no times in them."""

    @abstractmethod
    def group_of(self, row: Row) -> str:
        """Under what its verdict is counted."""

    @abstractmethod
    def sort_of(self, row: Row) -> tuple[Any, ...]:
        """Findings of one sort are shown once."""

    @abstractmethod
    def size_of(self, row: Row) -> tuple[Any, ...]:
        """The smallest of a sort is kept."""

    @abstractmethod
    def findings(self, smallest: Sequence[tuple[Row, int]], progress: Progress) -> list[Finding]:
        """Scripts of the smallest row of each sort, and of how many rows."""

    def start(self) -> None:  # noqa: B027 - most have nothing to load
        """Load what the first shard would have to wait for."""

    def close(self) -> None:  # noqa: B027
        """End what was started for the shards."""

    @property
    def identity(self) -> dict[str, Any]:
        """Whoever has the same identity has the same results."""
        versions = {"specgrad": version("specgrad"), "numpy": np.__version__}
        return {"kind": self.name, "options": self.options, "versions": versions, **self.decides()}

    def work(self, shard: int) -> bytes:
        """The rows as JSON lines, each with the number of its shard and its own."""
        return b"".join(line_of({"shard": shard, "number": k, **row}) for k, row in enumerate(self.rows(shard)))

    def trial(self, shard: int) -> bytes:
        """The same work for its time alone: what others see stays as it is."""
        return self.work(shard)

    def judged(self, row: Row) -> Row:
        """The row, as it stands now."""
        return row

    def file(self, name: str) -> Path:
        """A file that the spec names."""
        path = self.home / name
        if not path.is_file():
            raise CampaignError(f"no file {name} in {self.home}")
        return path

    def files(self, patterns: Sequence[str]) -> list[str]:
        """The files that patterns name, sorted, each once; a pattern that names none is refused."""
        names: set[str] = set()
        for pattern in patterns:
            some = [p for p in self.home.glob(pattern) if p.is_file()] if not Path(pattern).is_absolute() else []
            if Path(pattern).is_absolute() or not some:
                why = "is absolute; name it from the spec's folder" if Path(pattern).is_absolute() else "names no file"
                raise CampaignError(f"{pattern} {why} ({self.home})")
            names |= {p.relative_to(self.home).as_posix() for p in some}
        return sorted(names)


class Listed(Kind):
    """A kind whose items are listed; `each` of them are a shard."""

    items: Sequence[Any]

    @property
    def count(self) -> int:
        return -(-len(self.items) // int(self.options["each"]))

    def items_of(self, shard: int) -> Sequence[Any]:
        each = self.options["each"]
        return self.items[shard * each : (shard + 1) * each]


def line_of(row: Mapping[str, Any]) -> bytes:
    """One row as one line of strict JSON.

    >>> line_of({"verdict": "exact", "ratio": 0.0})
    b'{"verdict":"exact","ratio":0.0}\\n'
    """
    return json.dumps(row, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def finite(number: float) -> float | None:
    """JSON has neither NaN nor infinities, and a column of numbers has no words."""
    return float(number) if math.isfinite(number) else None


def digest_of_model(path: Path) -> str:
    """Of an ONNX file, and of the files beside it that hold its weights."""
    whole = hashlib.sha256(path.read_bytes())
    if path.suffix == ".onnx":
        for name in sorted(_places(path)):
            beside = path.parent / name
            whole.update(name.encode() + b"\0" + (beside.read_bytes() if beside.is_file() else b"is missing"))
    return whole.hexdigest()


def _places(path: Path) -> set[str]:
    """External data of a file; whether it can be read at all is said in its row."""
    from google.protobuf.message import DecodeError

    from ...errors import need

    need("onnx", "ONNX files need")
    import onnx

    try:
        tensors = onnx.load(str(path), load_external_data=False).graph.initializer
    except (DecodeError, ValueError, OSError):
        return set()
    return {e.value for t in tensors for e in t.external_data if e.key == "location"}


def file_name(words: Sequence[str], taken: Sequence[Finding]) -> str:
    """Of a script; a number tells those of one name apart.

    >>> file_name(["onnxruntime", "max pool"], [])
    'onnxruntime-max_pool.py'
    """
    name = "-".join("".join(c if c.isalnum() else "_" for c in word) for word in words)
    names = {f.name for f in taken}
    return f"{name}-{len(names)}.py" if f"{name}.py" in names else f"{name}.py"


def short(text: object, most: int = 400) -> str:
    """One line of a reason."""
    return " ".join(str(text).split())[:most]
