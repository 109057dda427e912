"""The state of a job, read from its records: which job it is, which shards are done, which crashed and how."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import SpecgradError
from .record_store import Records

FORMAT = "specgrad-job"


class JobError(SpecgradError, RuntimeError):
    """Raised if a job cannot go on: its folder holds another one, a worker built another one, too many crashes, as
    `text` says.
    """

    def __init__(self, text: str) -> None:
        super().__init__("run", text)


@dataclass(frozen=True, slots=True)
class Status:
    """State of a job: `about` (its job.json), and the numbers of the done and the crashed shards (not done later)."""

    about: dict[str, Any]
    done: frozenset[int]
    crashed: frozenset[int]

    @property
    def count(self) -> int:
        """Number of shards of the job."""
        return int(self.about["count"])

    @property
    def left(self) -> int:
        """Number of shards that are neither done nor crashed."""
        return self.count - len(self.done) - len(self.crashed)


def status(where: Any) -> Status:
    """Return the state of the job in `where`, a folder or object store; JobError if it holds none."""
    records = Records(where)
    raw = records.get("job.json")
    if raw is None:
        raise JobError(f"{records.where} holds no job")
    done, crashed = (frozenset(int(n) for n in records.names(f) if n.isdecimal()) for f in ("results", "crashed"))
    return Status(_read(raw, records), done, crashed - done)


def results(where: Any) -> Iterator[tuple[int, bytes]]:
    """Yield (shard, result bytes) of every shard that is done in `where`, in the order of the shards.

    JobError if no job is there.
    """
    records = Records(where)
    for i in sorted(status(records).done):
        data = records.get(f"results/{i}")
        assert data is not None
        yield i, data


def crashes(where: Any) -> Iterator[dict[str, Any]]:
    """Yield the record of every crashed shard in `where`, in order: {"shard", "how", "attempts"}.

    JobError if no job is there.
    """
    records = Records(where)
    for i in sorted(status(records).crashed):
        yield json.loads(records.get(f"crashed/{i}") or b"{}")


def digest(where: Any) -> str:
    """Return the SHA-256, as hex, of all results in `where`, the records of a job, with their shard numbers and
    lengths.
    """
    sha = hashlib.sha256()
    for i, data in results(where):
        sha.update(f"{i} {len(data)}\n".encode() + data)
    return sha.hexdigest()


def bind(records: Records, about: dict[str, Any]) -> bool:
    """Write job.json with the description `about` if there is none and return True; else return False, or raise
    JobError if it is another job.
    """
    records.check()
    whole = {"format": FORMAT, "version": 1, **about}
    if records.create("job.json", json.dumps(whole, indent=1, sort_keys=True, allow_nan=False).encode()):
        return True
    refuse_other(_read(records.get("job.json") or b"", records), about, records.where)
    return False


def refuse_other(there: dict[str, Any], about: dict[str, Any], where: Any) -> None:
    """Raise JobError, with what differs, if the fingerprint of `there` is not that of `about`.

    `there` is the job description that stands in the place `where`.
    """
    if there["fingerprint"] != about["fingerprint"]:
        keys = ("recipe", "count", "identity")
        differences = _json_differences({key: there.get(key) for key in keys}, {key: about[key] for key in keys}, "")
        raise JobError(f"{where} holds another job: {'; '.join(differences[:4])}. Choose another place")


def _read(raw: bytes, records: Records) -> dict[str, Any]:
    """Return the content of `raw`, the bytes of job.json; JobError if it is not of this format and version."""
    try:
        about = json.loads(raw)
        if about["format"] == FORMAT and about["version"] == 1:
            return dict(about)
    except (ValueError, KeyError, TypeError):
        pass
    raise JobError(f"job.json in {records.where} was not written by this version of specgrad")


def _json_differences(there: Any, here: Any, path: str) -> list[str]:
    """Return one text for each entry in which JSON values `there` and `here` differ; `path` is the prefix of its
    name.
    """
    if isinstance(there, dict) and isinstance(here, dict):
        keys = [*there, *(key for key in here if key not in there)]
        return [
            text
            for key in keys
            for text in _json_differences(there.get(key), here.get(key), f"{path}.{key}".lstrip("."))
        ]
    return [] if there == here else [f"{path} is {short(there)} there, {short(here)} here"]


def short(value: Any) -> str:
    """Return a value as JSON, cut to 80 characters."""
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
