"""A plan as bytes, for another process: graph, tile size and types as JSON, weights as safetensors, no pickle."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import ParameterError, UnsupportedError, need
from ..graph.files.save import digest, from_json, named_arrays, to_json
from ..graph.graph import Graph
from ..scalar import Array
from .job_status import JobError
from .record_store import Records
from .zarr_arrays import always_fits

ENGINES = ("torch", "jax", "numpy")


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
        return {"graph": graph, "weights": digest(self.arrays), **rest, "versions": versions(self.engine)}

    @property
    def engine(self) -> str:
        """Name of the engine that computes: "torch", "jax" or "numpy"."""
        return str(self.about["engine"])

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

    def write(self, records: Records) -> None:
        """Write both files of the plan into the records of a job, if they are not there."""
        from safetensors.numpy import save as pack

        records.create("plan/arrays.safetensors", pack(self.arrays))
        records.create("plan/about.json", json.dumps(self.about).encode())

    @classmethod
    def read(cls, records: Records) -> Blueprint:
        """Return the blueprint of a plan in the records of a job; JobError if there is none."""
        need("safetensors", "weights of a plan need")
        from safetensors.numpy import load as unpack

        about, arrays = records.get("plan/about.json"), records.get("plan/arrays.safetensors")
        if about is None or arrays is None:
            raise JobError(f"{records.where} holds no plan")
        return cls(json.loads(about), unpack(arrays))


def arguments_of(given: dict[int, Any]) -> dict[int, Array]:
    """Return the arguments `given` by position as NumPy arrays.

    UnsupportedError for what is no array of numbers.
    """
    return {p: _as_saveable_array(v) for p, v in given.items()}


def blueprint_of(plan: Any, arguments: dict[int, Array], engine: str, compute: np.dtype[Any]) -> Blueprint:
    """Return a `Plan` with its array arguments as a Blueprint that computes in the type `compute`.

    `arguments` are by position in the graph; `engine` is "numpy" or one of our engines.

    ParameterError if the engine is unknown, MissingPackageError if it is not installed.
    """
    if engine not in ENGINES:
        raise ParameterError("run", f"engine must be one of {', '.join(ENGINES)}; got {engine!r}")
    if engine != "numpy":
        need(engine, f"engine={engine!r} needs")
    need("safetensors", "weights of a plan need")
    graph = replace(plan.graph, open=None)
    about = {
        "graph": to_json(graph),
        "axes": list(plan.lines.axes),
        "size": list(plan.size),
        "statistics": plan.statistics,
        "engine": engine,
        "compute": str(compute),
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


def versions(engine: str) -> dict[str, str]:
    """Return {package: version} of what computes with an engine, "numpy", "torch" or "jax".

    For PyTorch the processor stands there too: sums differ between processors.
    """
    from importlib.metadata import version

    known = {"specgrad": version("specgrad"), "numpy": np.__version__}
    if engine == "torch":
        import torch

        return known | {"torch": torch.__version__, "processor": torch.backends.cpu.get_cpu_capability()}
    return known | ({"jax": version("jax"), "jaxlib": version("jaxlib")} if engine == "jax" else {})
