"""A plan as bytes, for another process: graph, tile size and types as JSON, weights as safetensors, no pickle."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..bounded_files import arrays_of, parse_json
from ..errors import FileError, ParameterError, UnsupportedError, need
from ..graph.files.save import MAX_CELLS, digest, from_json, named_arrays, to_json
from ..graph.graph import Graph
from ..scalar import Array
from .job_status import read_record, status, write_record
from .record_store import Records
from .torch_devices import DEVICES, check_device, cuda_names
from .zarr_arrays import always_fits

ENGINES = ("torch", "jax", "numpy")
PLAN_KEYS = {"graph", "axes", "size", "statistics", "engine", "device", "compute"}
FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True)
class Blueprint:
    """A serialisable plan: `about` is JSON data, `arrays` the constants by name and arguments by position.

    known   what passes before have computed, by position: of a measured plan
    """

    about: dict[str, Any]
    arrays: dict[str, Array]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """JSON data by name of all that decides results: digests of graph and weights, options, package versions."""
        graph = hashlib.sha256(json.dumps(self.about["graph"], sort_keys=True).encode()).hexdigest()
        rest = {key: value for key, value in self.about.items() if key != "graph"}
        return {"graph": graph, "weights": digest(self.arrays), **rest, "versions": versions(self.engine, self.device)}

    @property
    def engine(self) -> str:
        """Name of the engine that computes: "torch", "jax" or "numpy"."""
        return str(self.about["engine"])

    @property
    def device(self) -> str:
        """Name of the device that it computes on: "cpu" or "cuda"."""
        return str(self.about["device"])

    @property
    def compute(self) -> np.dtype[Any]:
        """Floating type that the engine computes in."""
        return np.dtype(str(self.about["compute"]))

    def graph(self) -> Graph:
        """Rebuild the graph with its constants.

        FileError if its data are not a graph's.
        """
        start = "constant."
        constants = {name.removeprefix(start): a for name, a in self.arrays.items() if name.startswith(start)}
        return from_json(self.about["graph"], constants)

    def arrays_of(self, kind: str) -> dict[int, Array]:
        """Return arrays by node position: of kind "argument", or "known" (computed by passes before)."""
        named = ((name.partition("."), array) for name, array in self.arrays.items())
        return {int(position): array for (word, _, position), array in named if word == kind}

    def write(self, records: Records, fingerprint: str) -> None:
        """Write both files of the plan into the records of the job with this fingerprint, if they are not there."""
        from safetensors.numpy import save as pack

        write_record(records, "plan/arrays.safetensors", pack(self.arrays), fingerprint)
        write_record(records, "plan/about.json", json.dumps(self.about).encode(), fingerprint)

    @classmethod
    def read(cls, records: Records) -> Blueprint:
        """Return the blueprint of a plan in the records of a job; JobError without one, or if it was changed, FileError
        if it is none.
        """
        job = status(records).about
        about, arrays = (read_record(records, f"plan/{name}", job) for name in ("about.json", "arrays.safetensors"))
        name = f"{records.where}: the plan"
        return cls(_checked(parse_json(about, name), name), arrays_of(bytearray(arrays), name)[0])


def _checked(about: Any, name: str) -> dict[str, Any]:
    """Return the JSON data of a plan, called `name`; FileError unless all its entries are there, of their types."""
    ok = isinstance(about, dict) and set(about) == PLAN_KEYS and about["device"] in DEVICES
    ok = ok and all(_are_positions(about[key]) for key in ("axes", "size", "statistics"))
    if not (ok and about["engine"] in ENGINES and about["compute"] in FLOATS and isinstance(about["graph"], dict)):
        raise FileError(f"{name} must have a graph, axes, size, statistics, an engine, a device and a type of floats")
    return dict(about)


def _are_positions(data: Any) -> bool:
    """Return whether JSON data are a list of whole numbers from 0 to MAX_CELLS."""
    return isinstance(data, list) and all(type(n) is int and 0 <= n <= MAX_CELLS for n in data)


def arguments_of(given: dict[int, Any]) -> dict[int, Array]:
    """Return the arguments `given` by position as NumPy arrays.

    UnsupportedError for what is no array of numbers.
    """
    return {p: _as_saveable_array(v) for p, v in given.items()}


def blueprint_of(
    plan: Any, arguments: dict[int, Array], engine: str, compute: np.dtype[Any], device: str = "cpu"
) -> Blueprint:
    """Return a `Plan` with its array arguments as a Blueprint that computes in the type `compute` on a device.

    `arguments` are by position in the graph; `engine` is "numpy" or one of our engines.

    ParameterError if engine or device is unknown, MissingPackageError if it is not installed, UnsupportedError for a
    device that is not there.
    """
    if engine not in ENGINES:
        raise ParameterError("run", f"engine must be one of {', '.join(ENGINES)}; got {engine!r}")
    if engine != "numpy":
        need(engine, f"engine={engine!r} needs")
    need("safetensors", "weights of a plan need")
    check_device(device, engine)
    graph = replace(plan.graph, open=None)
    about = {
        "graph": to_json(graph),
        "axes": list(plan.lines.axes),
        "size": list(plan.size),
        "statistics": plan.statistics,
        "engine": engine,
        "compute": str(compute),
        "device": device,
    }
    arrays = {f"constant.{name}": a for name, a in named_arrays(graph).items() if a.dtype != object}
    arrays |= {f"argument.{p}": a for p, a in arguments.items()}
    arrays |= {f"known.{p}": _as_saveable_array(v) for p, v in plan.programs.known.items()}
    return Blueprint(json.loads(json.dumps(about)), {k: np.ascontiguousarray(v) for k, v in arrays.items()})


def _as_saveable_array(value: Any) -> Array:
    """Return any tensor `value` as a NumPy array; UnsupportedError if its type cannot be saved."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except TypeError as error:
        raise UnsupportedError("run", f"weights of type {value.dtype} cannot be saved: {error}") from error
    if array.dtype.kind not in "biuf":
        raise UnsupportedError(
            "run", f"weights of type {array.dtype} cannot be saved; exact numbers run in `plan` itself"
        )
    return array


def compute_dtype(arguments: dict[int, Array], sources: dict[str, np.dtype[Any]], requested: Any) -> np.dtype[Any]:
    """Return the floating type that the engine computes in: `requested`, else that of the weights, else of the sources.

    Sources of another type must fit it exactly, unless it was asked for. `arguments` are arrays by position;
    ParameterError for a type that is no float.
    """
    if requested is not None:
        if np.dtype(requested).kind != "f":
            raise ParameterError("run", f"compute must be a type of floats; got {requested!r}")
        return np.dtype(str(np.dtype(requested)))
    types = {a.dtype for a in arguments.values() if a.dtype.kind == "f"} or set(sources.values())
    names = ", ".join(sorted(map(str, types)))
    if len(types) != 1 or next(iter(types)).kind != "f":
        raise ParameterError("run", f"weights and sources are {names or 'no floats'}: say compute='float32' or another")
    (dtype,) = types
    for name, given in sources.items():
        if not always_fits(given, dtype):
            text = f"{name} is {given} and would be rounded to {dtype}: give compute={str(dtype)!r} if that is meant"
            raise ParameterError("run", text)
    return dtype


def versions(engine: str, device: str = "cpu") -> dict[str, str]:
    """Return {package: version} of what computes with an engine, "numpy", "torch" or "jax", on a device.

    For PyTorch the processor stands there too: sums differ between processors.
    """
    from importlib.metadata import version

    known = {"specgrad": version("specgrad"), "numpy": np.__version__}
    if engine == "torch":
        import torch

        known["torch"] = torch.__version__
        if device == "cuda":
            return known | {"processor": cuda_names()[0], "cudnn": str(torch.backends.cudnn.version())}
        return known | {"processor": torch.backends.cpu.get_cpu_capability()}
    return known | ({"jax": version("jax"), "jaxlib": version("jaxlib")} if engine == "jax" else {})
