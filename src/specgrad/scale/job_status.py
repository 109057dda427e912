"""The state of a job, read from its records: which job it is, which shards are done, which crashed and how.

Every record begins with the SHA-256 of the job's fingerprint, its own name and its data; one that was changed, moved or
comes from another job is refused by its name. Who writes a digest for what was changed is not noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..bounded_files import parse_json
from ..errors import FileError, SpecgradError
from .record_store import Records

FORMAT, VERSION = "specgrad-job", 2
MAX_SHARDS = 1 << 53
SHARD = re.compile("0|[1-9][0-9]{0,15}")
TYPES = {"fingerprint": str, "options": dict, "recipe": str, "count": int, "identity": dict}


class JobError(SpecgradError, RuntimeError):
    """Raised if a job cannot go on: its folder holds another one, a worker built another one, too many crashes, as
    `text` says.
    """

    def __init__(self, text: str) -> None:
        super().__init__("run", text)


@dataclass(frozen=True, slots=True)
class Status:
    """State of a job: `about` (its job.json), and the numbers of the done and the crashed shards (not done later).

    Shards are counted by the names of their records, which are not read.
    """

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
    about = described(records)
    done, crashed = (_shards(records.names(folder), about["count"]) for folder in ("results", "crashed"))
    return Status(about, done, crashed - done)


def described(where: Any) -> dict[str, Any]:
    """Return the content of job.json in `where`, what the job there is; JobError if there is none."""
    records = Records(where)
    raw = records.get("job.json")
    if raw is None:
        raise JobError(f"{records.where} holds no job")
    return _read(raw, records)


def _shards(names: Iterable[str], count: int) -> frozenset[int]:
    """Return the numbers of shards, below `count`, of which there are records with these names."""
    return frozenset(int(n) for n in names if SHARD.fullmatch(n) and int(n) < count)


def results(where: Any) -> Iterator[tuple[int, bytes]]:
    """Yield (shard, result bytes) of every shard that is done in `where`, in the order of the shards.

    JobError if no job is there, or a record was changed.
    """
    records = Records(where)
    there = status(records)
    for i in sorted(there.done):
        yield i, read_record(records, f"results/{i}", there.about)


def unsound(where: Any, changes: Callable[[bytes], str]) -> dict[int, str]:
    """Return {shard: why} for every result in `where` that was changed since it was written, or of which `changes` says
    what else is no longer so ("": nothing).

    JobError if no job is there.
    """
    records, said = Records(where), dict[int, str]()
    there = status(records)
    for i in sorted(there.done):
        try:
            said[i] = changes(read_record(records, f"results/{i}", there.about))
        except JobError as error:
            said[i] = str(error)
    return {i: why for i, why in said.items() if why}


def crashes(where: Any) -> Iterator[dict[str, Any]]:
    """Yield the record of every crashed shard in `where`, in order: {"shard", "how", "attempts"}.

    JobError if no job is there, or a record was changed.
    """
    records = Records(where)
    there = status(records)
    for i in sorted(there.crashed):
        record = parse_json(read_record(records, f"crashed/{i}", there.about), f"crashed/{i}")
        if not isinstance(record, dict) or record.get("shard") != i or not isinstance(record.get("how"), str):
            raise FileError(f"crashed/{i} in {records.where} is no record of a crash")
        yield record


def write_record(records: Records, name: str, data: bytes, fingerprint: str) -> bool:
    """Create the record `name` of the job with this fingerprint, with a digest before its `data`; return False if there
    is one already.
    """
    return records.create(name, _with_digest(name, data, fingerprint))


def read_record(records: Records, name: str, about: dict[str, Any]) -> bytes:
    """Return the data of the record `name` of the job that `about` describes; JobError if it is missing, or is not what
    was written.
    """
    raw = records.get(name)
    if raw is None:
        raise JobError(f"{records.where} lacks the record {name}")
    data = raw.partition(b"\n")[2]
    if raw != _with_digest(name, data, about["fingerprint"]):
        raise JobError(f"the record {name} of {records.where} was changed; repair has its shard computed again")
    return data


def _refuse_foreign(records: Records, name: str, about: dict[str, Any]) -> None:
    """Raise JobError unless the record `name` was written by the job that `about` describes, which finds no job.json
    beside it.
    """
    try:
        read_record(records, name, about)
    except JobError:
        text = f"{records.where} has no job.json, and {name} there is not of this job, or was changed"
        raise JobError(f"{text}: choose another place") from None


def _with_digest(name: str, data: bytes, fingerprint: str) -> bytes:
    """Return the data of a record of this name after a line of JSON with its digest."""
    sha = hashlib.sha256(f"{fingerprint} {name}\n".encode() + data).hexdigest()
    return f'{{"sha256":"{sha}"}}\n'.encode() + data


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

    JobError, too, for results of another job without their job.json: they would count as done.
    """
    records.check()
    if not records.has("job.json"):
        for i in sorted(_shards(records.names("results"), about["count"])):
            _refuse_foreign(records, f"results/{i}", about)
    whole = {"format": FORMAT, "version": VERSION, **about}
    whole["digest"] = _digest_of_json(whole)
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
    """Return the content of `raw`, the bytes of job.json; JobError if it is not of this format and version, or was
    changed.
    """
    about = parse_json(raw, f"job.json in {records.where}")
    if not isinstance(about, dict) or (about.get("format"), about.get("version")) != (FORMAT, VERSION):
        text = "an earlier one wrote records without digests: choose another place"
        raise JobError(f"job.json in {records.where} was not written by this version of specgrad; {text}")
    if about.pop("digest", None) != _digest_of_json(about):
        raise JobError(f"job.json in {records.where} was changed: choose another place")
    if {key: type(about.get(key)) for key in TYPES} != TYPES or not 0 <= about["count"] <= MAX_SHARDS:
        raise FileError(f"job.json in {records.where} must have {', '.join(TYPES)}")
    return about


def _digest_of_json(data: dict[str, Any]) -> str:
    """Return the SHA-256 of JSON data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


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
