"""Recordings: what a runtime computed at some inputs, as a folder of safetensors files with an index.

docs/reference/recording.md is the format. Shards are named by what is in them and the index is written last, each file
whole: a folder without an index is no recording, and one that is written again stays readable until the new index is
there. A reader maps shards into memory, one when a value in it is first asked for, and checks its digest then.
"""

from __future__ import annotations

import errno
import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from specgrad.atomic_files import write_whole
from specgrad.bounded_files import TYPES, file_digest, map_arrays, read_json
from specgrad.errors import FileError, ParameterError, need, quoted
from specgrad.interop.model import Model
from specgrad.scalar import Array

FORMAT, VERSION, INDEX = "specgrad-recording", 1, "index.json"
MAX_SHARD_BYTES = 1 << 28
Role = Literal["input", "output", "value", "quantised"]
"""What a tensor is: an input; an output of the run as it is; a value, of a run with every value exposed; a value of a
run with nothing but quantised values exposed."""
ROLES: tuple[Role, ...] = ("input", "output", "value", "quantised")
KEYS = {"format", "version", "model", "runtime", "writer", "inputs", "outputs", "runs", "tensors", "shards"}
TENSOR_KEYS = {"run", "role", "name", "dtype", "format", "shape", "shard", "key"}


def refuse(text: str) -> ParameterError:
    """Return the error, with `text`, of a folder that is no recording, or not of this model; what it quotes is one
    line.
    """
    return ParameterError("recorded", quoted(text))


# --- the model --------------------------------------------------------------------------------------------------------


def model_digest(model: Model) -> dict[str, Any]:
    """Return {name, sha256, data}: the digest of an ONNX file's bytes, and of each file that holds data of its tensors.

    A ModelProto is serialised first. Of a PyTorch module: the digest of its parameters and buffers.
    """
    if model.kind == "torch":
        from .run_torch import module_digest

        return module_digest(model)
    source = model.source
    if not isinstance(source, str | Path):
        data = source if isinstance(source, bytes) else source.SerializeToString()
        return {"name": model.title, "sha256": hashlib.sha256(data).hexdigest(), "data": {}}
    from specgrad.interop.onnx.file import digests_beside

    path = Path(source)
    return {"name": path.name, "sha256": file_digest(path), "data": digests_beside(path)}


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass
class RecordingWriter:
    """Writes a recording: `add` tensors run by run, then `close`.

    folder                  where files are written
    shard_bytes             the most bytes of tensors in one file
    runs, tensors, shards   entries of the index so far
    _waiting                tensors of the file that is being filled, by key
    _replaced               names of files of an older recording, which `close` removes

    Refused, before anything is written: a folder with an index of somebody else, unless `force`.
    """

    folder: Path
    force: bool = False
    shard_bytes: int = MAX_SHARD_BYTES
    runs: list[dict[str, Any]] = field(default_factory=list)
    tensors: list[dict[str, Any]] = field(default_factory=list)
    shards: dict[str, dict[str, Any]] = field(default_factory=dict)
    _waiting: dict[str, Array] = field(default_factory=dict)
    _replaced: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        need("safetensors", "recordings need")
        index = self.folder / INDEX
        if index.exists():
            ours = _is_ours(index)
            if not (ours or self.force):
                text = "exists and was not written by specgrad; --force overwrites it"
                raise FileExistsError(errno.EEXIST, text, str(index))
            self._replaced = frozenset(_shard_names(index)) if ours else frozenset()
        self.folder.mkdir(parents=True, exist_ok=True)

    def add_run(self, about: str, notes: Sequence[str], sequence: int, step: int) -> int:
        """Begin a run and return its number: `step` of a sequence of runs, each of which has inputs of its own.

        `about` says how its inputs came about, `notes` what else to know.
        """
        self.runs.append({"sequence": sequence, "step": step, "inputs": about, "notes": list(notes)})
        return len(self.runs) - 1

    def add(self, run: int, role: Role, name: str, array: Array, computed_in: str | None = None) -> None:
        """Add the tensor `name` of a run, in the `role` "input", "output", "value" or "quantised".

        Full shards are written. `computed_in` is the format that the model computes it in, if the array's is wider.
        ParameterError for a type that recordings do not hold.
        """
        if array.dtype.name not in TYPES.values():
            raise refuse(f"{name} is of type {array.dtype}, which recordings do not hold")
        if self._waiting and sum(a.nbytes for a in self._waiting.values()) + array.nbytes > self.shard_bytes:
            self._flush()
        key = f"{run}/{role}/{name}"
        self._waiting[key] = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
        about: dict[str, Any] = {"run": run, "role": role, "name": name, "dtype": array.dtype.name}
        about |= {"format": computed_in or array.dtype.name, "shape": list(array.shape), "shard": None, "key": key}
        self.tensors.append(about)

    def _flush(self) -> None:
        """Write the tensors that wait as one shard, named by its digest, and enter it in the index to be.

        Nothing if none wait.
        """
        from safetensors.numpy import save as pack

        if not self._waiting:
            return
        data = pack(self._waiting)
        digest = hashlib.sha256(data).hexdigest()
        name = f"{digest[:16]}.safetensors"
        write_whole(self.folder / name, data)
        self.shards[name] = {"sha256": digest, "bytes": len(data)}
        for tensor in self.tensors:
            tensor["shard"] = tensor["shard"] or name
        self._waiting = {}

    def close(self, model: Mapping[str, Any], runtime: Mapping[str, Any], ends: tuple[list[str], list[str]]) -> None:
        """Write the index, which makes it a recording, and remove shards of the one that was there before.

        model     as of `model_digest`
        runtime   {name, versions}
        ends      names of the model's inputs and outputs
        """
        self._flush()
        writer = {"specgrad": version("specgrad"), "Python": platform.python_version()}
        writer |= {"numpy": np.__version__, "system": f"{platform.system()} {platform.machine()}"}
        index = {"format": FORMAT, "version": VERSION, "model": dict(model), "runtime": dict(runtime), "writer": writer}
        index |= {"inputs": ends[0], "outputs": ends[1], "runs": self.runs}
        index |= {"tensors": self.tensors, "shards": self.shards}
        write_whole(self.folder / INDEX, json.dumps(index, indent=1) + "\n")
        for name in self._replaced - set(self.shards):
            (self.folder / name).unlink(missing_ok=True)


def _is_ours(index: Path) -> bool:
    """Return whether a file is the index of a recording, of whatever version."""
    try:
        data = read_json(index)
    except (FileError, OSError):
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


def _shard_names(index: Path) -> Iterator[str]:
    """Yield the names of shards that an index lists, such as we give them."""
    shards = read_json(index).get("shards")
    for name in shards if isinstance(shards, dict) else ():
        if name == f"{name[:16]}.safetensors" and set(name[:16]) <= set("0123456789abcdef"):
            yield name


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ModelRecording:
    """A recording in a folder that was opened: its index is checked, its shards when they are read.

    Attributes
    ----------
    folder : Path
        Where it lies.
    index : mapping
        Its index.json.

    Examples
    --------
    >>> import specgrad as sg, tempfile
    >>> sg.check.open_recording(tempfile.mkdtemp())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    specgrad.errors.ParameterError: ...
    """

    folder: Path
    index: Mapping[str, Any]

    @property
    def runtime(self) -> str:
        """The runtime that computed it, with its device."""
        return str(self.index["runtime"]["name"])

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of the runtime's packages."""
        return dict(self.index["runtime"]["versions"])

    @property
    def inputs(self) -> tuple[str, ...]:
        """How the inputs of each run came about, in words."""
        return tuple(run["inputs"] for run in self.index["runs"])

    def check_model(self, model: Model) -> None:
        """Raise ParameterError unless the recording is of this model, to the byte."""
        here, there = model_digest(model), self.index["model"]
        if here["sha256"] != there["sha256"]:
            raise refuse(
                f"{self.folder} was recorded of {there['name']} with SHA-256 {there['sha256']}; "
                f"{here['name']} has {here['sha256']}"
            )
        for name in sorted({*here["data"], *there["data"]}):
            if here["data"].get(name) != there["data"].get(name):
                raise refuse(f"{self.folder} was recorded with other weights: {name} of the model has another SHA-256")

    def run(self, number: int) -> RecordedRun:
        """Return the run of this number."""
        return RecordedRun(self, number)

    @property
    def runs(self) -> tuple[RecordedRun, ...]:
        """Return all runs of the recording, in order."""
        return tuple(self.run(k) for k in range(len(self.index["runs"])))

    @cached_property
    def by_run(self) -> Mapping[tuple[int, str], Mapping[str, Mapping[str, Any]]]:
        """(run, role) -> name -> entry of the index."""
        sorted_: dict[tuple[int, str], dict[str, Mapping[str, Any]]] = {}
        for tensor in self.index["tensors"]:
            sorted_.setdefault((tensor["run"], tensor["role"]), {})[tensor["name"]] = tensor
        return sorted_

    @cached_property
    def _shards(self) -> dict[str, Mapping[str, Array]]:
        """The shards that were mapped, by name."""
        return {}

    def array(self, tensor: Mapping[str, Any]) -> Array:
        """Return a tensor's array, mapped: nothing is read before its cells are.

        Its shard is checked when it is first mapped, and stays mapped; ParameterError for a shard that is not as the
        index says.
        """
        name = tensor["shard"]
        if name not in self._shards:
            listed = {t["key"]: t for t in self.index["tensors"] if t["shard"] == name}
            self._shards[name] = _map_shard(self.folder / name, self.index["shards"][name], listed)
        return self._shards[name][tensor["key"]]


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """One run of a recording, by its number."""

    recording: ModelRecording
    number: int

    def values(self, role: Role) -> Mapping[str, Array]:
        """Return the arrays of a role by name, each mapped when it is asked for."""
        return LateArrays(self.recording, self.recording.by_run.get((self.number, role), {}))

    @property
    def known(self) -> dict[str, Array]:
        """Inputs and values by name; outputs of the run as it is, where no value of that name was recorded."""
        return {**self.values("output"), **self.values("value"), **self.values("input")}

    @property
    def notes(self) -> tuple[str, ...]:
        """How its inputs came about, and what was said while it was recorded."""
        run = self.recording.index["runs"][self.number]
        return (f"inputs: {run['inputs']}", *run["notes"])


@dataclass(frozen=True, eq=False)
class LateArrays(Mapping[str, Array]):
    """Arrays of a recording by name: the names are there (`tensors`, entries of the index), an array is mapped when it
    is asked for.
    """

    recording: ModelRecording
    tensors: Mapping[str, Mapping[str, Any]]

    def __getitem__(self, name: str) -> Array:
        return self.recording.array(self.tensors[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def open_recording(folder: str | Path) -> ModelRecording:
    """Return the recording in a folder.

    Parameters
    ----------
    folder : str or Path
        A folder that `record` has written.

    Returns
    -------
    ModelRecording
        Its shards are checked when they are read.

    Raises
    ------
    ParameterError
        For a folder that is none, or whose index contradicts itself.

    Examples
    --------
    >>> import tempfile
    >>> open_recording(tempfile.mkdtemp())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    specgrad.errors.ParameterError: ...
    """
    folder = Path(folder)
    try:
        index = read_json(folder / INDEX)
    except FileNotFoundError:
        if any(folder.glob("**/*.npy")):
            text = "a folder of .npy files is not read; save one .npz file, or record with specgrad audit record"
            raise refuse(f"{folder}: {text}") from None
        raise refuse(f"{folder} is no recording: it has no {INDEX}") from None
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise refuse(f"{folder / INDEX} is not of format {FORMAT}")
    if index.get("version") != VERSION:
        raise refuse(f"{folder / INDEX} is of version {index.get('version')}; this specgrad reads {VERSION}")
    _check_index(folder, index)
    return ModelRecording(folder, index)


def _check_index(folder: Path, index: Mapping[str, Any]) -> None:
    """Raise ParameterError unless every part of an index is there and names files that are in `folder`."""

    def holds(condition: bool, what: str) -> None:
        if not condition:
            raise refuse(f"{folder / INDEX}: {what}")

    holds(set(index) == KEYS, f"its keys must be {', '.join(sorted(KEYS))}")
    model, runtime = index["model"], index["runtime"]
    holds(isinstance(model, dict) and isinstance(model.get("name"), str), "model must have a name")
    holds(_is_digest(model.get("sha256")) and isinstance(model.get("data"), dict), "model must have digests")
    holds(all(map(_is_digest, model["data"].values())), "model must have digests")
    holds(isinstance(runtime, dict) and isinstance(runtime.get("name"), str), "runtime must have a name")
    versions = runtime.get("versions")
    is_map = isinstance(versions, dict) and all(isinstance(v, str) for v in versions.values())
    holds(is_map, "runtime must have versions")
    for end in ("inputs", "outputs"):
        holds(isinstance(index[end], list) and all(isinstance(n, str) for n in index[end]), f"{end} must be names")
    runs, shards = index["runs"], index["shards"]
    holds(isinstance(runs, list) and bool(runs) and all(map(_is_run, runs)), "runs must be a list of runs")
    holds(isinstance(shards, dict), "shards must be an object")
    for name, shard in shards.items():
        plain = name.endswith(".safetensors") and Path(name).name == name and name[0] != "."
        holds(plain and isinstance(shard, dict) and _is_digest(shard.get("sha256")), f"shard {name!r} is no shard")
    seen: set[tuple[Any, ...]] = set()
    holds(isinstance(index["tensors"], list), "tensors must be a list")
    for tensor in index["tensors"]:
        holds(isinstance(tensor, dict) and set(tensor) == TENSOR_KEYS, f"a tensor must have {', '.join(TENSOR_KEYS)}")
        holds(_is_tensor(tensor, len(runs)) and tensor["shard"] in shards, f"{str(tensor)[:200]} is no tensor")
        seen.add((tensor["run"], tensor["role"], tensor["name"]))
        seen.add((tensor["shard"], tensor["key"]))
    holds(len(seen) == 2 * len(index["tensors"]), "a tensor is listed twice")
    for k in range(len(runs)):
        missing = [n for n in index["inputs"] if (k, "input", n) not in seen]
        holds(not missing, f"run {k} lacks the inputs {', '.join(missing)}")


def _is_digest(text: Any) -> bool:
    """Return whether `text` is a SHA-256 in hexadecimal digits."""
    return isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")


def _is_run(run: Any) -> bool:
    """Return whether `run` is an entry of `runs` of an index: its keys, and their types."""
    if not isinstance(run, dict) or set(run) != {"sequence", "step", "inputs", "notes"}:
        return False
    counts = all(type(run[k]) is int and run[k] >= 0 for k in ("sequence", "step"))
    texts = isinstance(run["notes"], list) and all(isinstance(t, str) for t in (run["inputs"], *run["notes"]))
    return counts and texts


def _is_tensor(tensor: Mapping[str, Any], runs: int) -> bool:
    """Return whether this is an entry of `tensors`, of one of so many runs."""
    texts = all(isinstance(tensor[k], str) for k in ("name", "format", "shard", "key"))
    shape = tensor["shape"]
    sizes = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    kind = tensor["role"] in ROLES and tensor["dtype"] in TYPES.values()
    return texts and sizes and kind and type(tensor["run"]) is int and 0 <= tensor["run"] < runs


def _map_shard(path: Path, about: Mapping[str, Any], listed: Mapping[str, Mapping[str, Any]]) -> dict[str, Array]:
    """Return the arrays of a shard by key, mapped; ParameterError unless its bytes, types and shapes are those listed.

    about    the shard's entry in the index
    listed   the index's entries of the tensors in it, by key
    """
    if (digest := file_digest(path)) != about["sha256"]:
        raise refuse(f"{path} is not the shard that was recorded: its SHA-256 is {digest}, not {about['sha256']}")
    arrays = map_arrays(path)
    if set(arrays) != set(listed):
        raise refuse(f"{path} holds other tensors than its index lists")
    for key, tensor in listed.items():
        dtype, shape = arrays[key].dtype.name, list(arrays[key].shape)
        if dtype != tensor["dtype"] or shape != tensor["shape"]:
            text = f"{tensor['name']} is {tensor['dtype']} {tensor['shape']} in the index and {dtype} {shape} in {path}"
            raise refuse(text)
    return arrays
