"""Installed runtimes with one model: each is run on a sample and gives its outputs, in float32.

PyTorch and JAX run the graph; ONNX Runtime and OpenVINO run the model's own file, or the graph written as one, in a
process of their own. One that is missing, refuses or fails is left out: no verdict rests on it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

from specgrad.engines import compile
from specgrad.errors import ParameterError, SpecgradError
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves
from specgrad.interop.model import Model, open_model
from specgrad.process import Process
from specgrad.scalar import Array

from ..models.model_run import as_declared
from ..runtimes import RUNTIMES

ONNXRUNTIME = """import onnxruntime

def run(model, /, **inputs):
    options = onnxruntime.SessionOptions()
    results = []
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(model.tobytes(), options, providers=["CPUExecutionProvider"])
        results += session.run(None, inputs)
    return results
"""
KNOWN_RUNTIMES = ("torch", "onnxruntime", "openvino-f32", "jax")
OWN_ENGINES = ("torch", "jax")  # run by our engines, not by the model's own file
PROGRAMS = {"onnxruntime": ONNXRUNTIME, "openvino-f32": RUNTIMES["openvino-f32"].model}
VARIANTS = {"onnxruntime": ("", " without optimisation"), "openvino-f32": ("",)}


def installed(names: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the runtimes to run: all that are installed, or those in `names`.

    ParameterError if one is unknown or missing.
    """
    for name in names or ():
        if name not in KNOWN_RUNTIMES:
            raise ParameterError(
                "preserve", f"unknown runtime {name!r}; there are {', '.join(KNOWN_RUNTIMES)}", rule="P5"
            )
        if not _is_installed(name):
            raise ParameterError("preserve", f"runtime {name} is not installed", rule="P5")
    return tuple(n for n in KNOWN_RUNTIMES if _is_installed(n)) if names is None else tuple(names)


def _is_installed(name: str) -> bool:
    """Return whether the packages of the runtime `name` are installed and importable."""
    return RUNTIMES[name].installed() and all(find_spec(p) is not None for p in RUNTIMES[name].packages)


@dataclass
class Runtimes:
    """Some runtimes with one model; they are started when first used.

    source                 an ONNX file (path, bytes, ModelProto) that the graph was read from; None: the graph is
                           written
    names                  of the runtimes
    seconds                the most that one call may take
    _engines, _processes   what was started, by the runtime's name
    """

    names: Sequence[str]
    graph: Graph
    source: Any = None
    seconds: float = 60.0
    _engines: dict[str, Any] = field(default_factory=dict)
    _processes: dict[str, Process] = field(default_factory=dict)

    def run(self, inputs: Sequence[Array]) -> dict[str, list[Array]]:
        """Return {runtime, version and variant: outputs} of one sample, `inputs`; runtimes that fail are left out."""
        results: dict[str, list[Array]] = {}
        for name in self.names:
            title = f"{name} {version(RUNTIMES[name].packages[0])}"
            if name in PROGRAMS:
                results |= {
                    f"{title}{variant}": outputs for variant, outputs in self._run_onnx_runtime(name, inputs).items()
                }
            else:
                outputs = self._run_engine(name, inputs)
                results |= {title: outputs} if outputs is not None else {}
        return results

    @property
    def _kinds(self) -> list[str]:
        """What the inputs hold: "real" numbers, or an "index"."""
        return [self.graph.nodes[p].kind for p in self.graph.input_positions]

    def _run_engine(self, name: str, inputs: Sequence[Array]) -> list[Array] | None:
        """Return the outputs of the graph on our engine `name`, "torch" or "jax", in float32; None if it refuses.

        The graph is compiled once.
        """
        try:
            if name not in self._engines:
                self._engines[name] = compile(self.graph, name)
            given = [x if k == "index" else np.asarray(x, np.float32) for k, x in zip(self._kinds, inputs, strict=True)]
            if name == "torch":
                import torch

                with torch.no_grad():
                    outputs = self._engines[name](*map(torch.from_numpy, given))
                return [t.numpy() for t in leaves(outputs)]
            import jax

            return [np.asarray(v) for v in leaves(self._engines[name](*map(jax.numpy.asarray, given)))]
        except SpecgradError:
            return None

    def _run_onnx_runtime(self, name: str, inputs: Sequence[Array]) -> dict[str, list[Array]]:
        """Return {variant: outputs} of the runtime `name`, which reads ONNX files; {} if it fails, or reads another
        file than the graph was read from.

        Its process is started once and kept.
        """
        try:
            file, feeds = self._file_and_feeds(inputs)
            data = np.frombuffer(file.proto.SerializeToString(), np.uint8)
        except SpecgradError:  # what ONNX has no words for is not run there
            return {}
        if name not in self._processes:
            environment = RUNTIMES[name].environment
            self._processes[name] = Process(seconds=self.seconds, environment=environment, folder=file.folder)
        answer = self._processes[name].run(PROGRAMS[name], feeds, [data])
        if answer.outcome != "answers" or file.changed_file:
            return {}
        each = len(answer.arrays) // len(VARIANTS[name])
        return {v: list(answer.arrays[k * each : (k + 1) * each]) for k, v in enumerate(VARIANTS[name])}

    def _file_and_feeds(self, inputs: Sequence[Array]) -> tuple[Model, Mapping[str, Array]]:
        """Return the ONNX file, and its inputs by name; the file is opened, or exported, once.

        ParameterError for an input of a type that is not known.
        """
        if "file" not in self._engines:
            from specgrad.interop import to_onnx

            self._engines["file"] = open_model(to_onnx(self.graph) if self.source is None else self.source)
        file: Model = self._engines["file"]
        return file, as_declared(file, dict(zip(file.names, inputs, strict=True)))[0]

    def close(self) -> None:
        """End the processes in which runtimes were asked."""
        for process in self._processes.values():
            process.close()
        self._processes.clear()
