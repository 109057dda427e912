"""What is known of a job, read from its records: what it is, which shards are done, which crashed and how."""

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
    """A job that cannot go on: another one lies in its place, a worker made another one, too many shards crash."""

    def __init__(self, text: str) -> None:
        super().__init__("run", text)


@dataclass(frozen=True, slots=True)
class Status:
    """`done` and `crashed` are numbers of shards; one that crashed and was done later is done."""

    about: dict[str, Any]
    done: frozenset[int]
    crashed: frozenset[int]

    @property
    def count(self) -> int:
        return int(self.about["count"])

    @property
    def left(self) -> int:
        return self.count - len(self.done) - len(self.crashed)


def status(where: Any) -> Status:
    """What a place holds; JobError if there is no job."""
    records = Records(where)
    raw = records.get("job.json")
    if raw is None:
        raise JobError(f"{records.where} holds no job")
    done, crashed = (frozenset(int(n) for n in records.names(f) if n.isdecimal()) for f in ("results", "crashed"))
    return Status(_read(raw, records), done, crashed - done)


def results(where: Any) -> Iterator[tuple[int, bytes]]:
    """Every result, in the order of the shards."""
    records = Records(where)
    for i in sorted(status(records).done):
        data = records.get(f"results/{i}")
        assert data is not None
        yield i, data


def crashes(where: Any) -> Iterator[dict[str, Any]]:
    """Every crash, in the order of the shards: {"shard", "how", "attempts"}."""
    records = Records(where)
    for i in sorted(status(records).crashed):
        yield json.loads(records.get(f"crashed/{i}") or b"{}")


def digest(where: Any) -> str:
    """SHA-256 of all results with their numbers."""
    sha = hashlib.sha256()
    for i, data in results(where):
        sha.update(f"{i} {len(data)}\n".encode() + data)
    return sha.hexdigest()


def bind(records: Records, about: dict[str, Any]) -> bool:
    """The first run says which job lies here; another one is refused by what differs. True: this was the first."""
    records.check()
    whole = {"format": FORMAT, "version": 1, **about}
    if records.create("job.json", json.dumps(whole, indent=1, sort_keys=True, allow_nan=False).encode()):
        return True
    refuse_other(_read(records.get("job.json") or b"", records), about, records.where)
    return False


def refuse_other(there: dict[str, Any], about: dict[str, Any], where: Any) -> None:
    """JobError says what differs between the job that lies there and this one."""
    if there["fingerprint"] != about["fingerprint"]:
        keys = ("recipe", "count", "identity")
        apart = _apart({key: there.get(key) for key in keys}, {key: about[key] for key in keys}, "")
        raise JobError(f"{where} holds another job: {'; '.join(apart[:4])}. Choose another place")


def _read(raw: bytes, records: Records) -> dict[str, Any]:
    try:
        about = json.loads(raw)
        if about["format"] == FORMAT and about["version"] == 1:
            return dict(about)
    except (ValueError, KeyError, TypeError):
        pass
    raise JobError(f"job.json in {records.where} was not written by this version of specgrad")


def _apart(there: Any, here: Any, path: str) -> list[str]:
    """Where two JSON values differ."""
    if isinstance(there, dict) and isinstance(here, dict):
        keys = [*there, *(key for key in here if key not in there)]
        return [text for key in keys for text in _apart(there.get(key), here.get(key), f"{path}.{key}".lstrip("."))]
    return [] if there == here else [f"{path} is {short(there)} there, {short(here)} here"]


def short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
