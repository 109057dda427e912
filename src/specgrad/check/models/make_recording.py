"""Record what a runtime computes of a model: every value, at one input or several, in a folder (`recording`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specgrad.atomic_files import claimed
from specgrad.errors import ParameterError
from specgrad.interop.model import Model, open_model
from specgrad.process import ProcessResult
from specgrad.scalar import Array

from ..runtimes import Runtime
from ..runtimes import runtime as runtime_named
from .model_run import WHOLE_NUMBERS, check_floats
from .recording import MAX_SHARD_BYTES, ModelRecording, RecordingWriter, Role, model_digest, open_recording
from .run_onnx import MODULE_RUNTIMES, ObservedRun, observe

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class RecordResult:
    """What came of recording: "ok" and the recording, or how the runtime ended, and then nothing is recorded.

    Attributes
    ----------
    verdict : str
        "ok", or how the runtime ended.
    model : mapping
        What was run, as `model_digest` describes it.
    runtime : str
        Name of the runtime.
    versions : mapping of str to str
        Of the runtime's packages, by name.
    recording : ModelRecording or None
        The recording; None if nothing was recorded.
    reason : str
        Why nothing is recorded; "" if something is.
    notes : tuple of str
        What else a reader should know, in sentences.

    Examples
    --------
    >>> RecordResult("times out", {"name": "net.onnx"}, "onnxruntime", {}, reason="over 300 s").to_json()["runs"]
    0
    """

    verdict: str
    model: Mapping[str, Any]
    runtime: str
    versions: Mapping[str, str]
    recording: ModelRecording | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: verdict, model, runtime, versions, folder, inputs, reason, notes, and how many runs,
        tensors and bytes there are.

        If nothing was recorded these counts are 0, and the folder null.
        """
        index: Mapping[str, Any] = {} if self.recording is None else self.recording.index
        return {
            "verdict": self.verdict,
            "model": dict(self.model),
            "runtime": self.runtime,
            "versions": dict(self.versions),
            "folder": None if self.recording is None else str(self.recording.folder),
            "runs": len(index.get("runs", ())),
            "tensors": len(index.get("tensors", ())),
            "bytes": sum(shard["bytes"] for shard in index.get("shards", {}).values()),
            "inputs": [] if self.recording is None else list(self.recording.inputs),
            "reason": self.reason,
            "notes": list(self.notes),
        }


def record(
    model: Any,
    runtime: str | Runtime,
    points: Sequence[Sequence[Array]],
    folder: str | Path,
    *,
    about: str = "given",
    run_seconds: float = 300,
    shard_bytes: int = MAX_SHARD_BYTES,
    force: bool = False,
    progress: Progress | None = None,
) -> RecordResult:
    """Run an ONNX file or a PyTorch module and write what it computed to a folder, which `open_recording` reads.

    Each point is run as `audit` runs it: as it is, with every value exposed, and with quantised values alone exposed if
    there are any, so that `audit_recorded` of the recording has the verdicts of `audit`.

    Parameters
    ----------
    model : path, bytes, ModelProto or nn.Module
        An ONNX file, or a module, which is run on the device that it is on.
    runtime : str or Runtime
        One that reads ONNX files; for a module "torch" or "torch-compile".
    points : sequence of sequence of array
        One array per input of the model, for each point; shapes may differ from point to point.
    folder : str or Path
        Where to write.
    about : str, default "given"
        How the inputs came about, in words.
    run_seconds : float, default 300
        The time for one run.
    shard_bytes : int, default 268435456
        A file of the recording is at most as large, unless one tensor is larger.
    force : bool, default False
        Whether to write into a folder whose index.json is not ours.
    progress : callable, optional
        Called along the way with (what, done, total).

    Returns
    -------
    RecordResult
        The recording, or how the runtime ended.

    Raises
    ------
    ParameterError
        For a model that is neither, a runtime that does not run it, and without points.
    BlockingIOError
        For a folder that another process is recording into.

    Examples
    --------
    >>> import tempfile, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    >>> made = record(net, "torch", [[np.float32([[1, 2, 3, 4]])]], tempfile.mkdtemp() + "/run")
    >>> made.verdict, len(made.recording.runs)
    ('ok', 1)
    """
    given = open_model(model, "record")
    target = runtime_named(runtime) if isinstance(runtime, str) else runtime
    if given.kind == "graph":
        raise ParameterError("record", "runtimes run no saved graph; write it with specgrad.interop.to_onnx first")
    if given.kind == "torch" and target.name not in MODULE_RUNTIMES:
        text = f"a PyTorch module is recorded on {' or '.join(MODULE_RUNTIMES)}; export it for {target.name}"
        raise ParameterError("record", text, rule="P5")
    if given.kind == "onnx" and not target.model:
        raise ParameterError("record", f"runtime {target.name} reads no ONNX files", rule="P5")
    if not points:
        raise ParameterError("record", "there is no point to record at")
    if len(counts := sorted({len(point) for point in points})) > 1:
        raise ParameterError("record", f"points must be of one number of inputs; got {counts[0]} and {counts[-1]}")
    head = model_digest(given), target.name, target.versions()
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with claimed(place):
        writer = RecordingWriter(place, force, shard_bytes)
        notes: list[str] = []
        ends: tuple[list[str], list[str]] = [], []
        for step, point in enumerate(points):
            if progress is not None:
                progress(f"run {step}", step, len(points))
            arrays = given.arrays(point, "record")
            check_floats(arrays, WHOLE_NUMBERS)
            added = _add_point(writer, given, target, arrays, about, run_seconds)
            if isinstance(added, ProcessResult):
                return RecordResult(added.outcome, *head, reason=f"run {step}: {added.reason}")
            ends = added
            notes += [note for note in writer.runs[-1]["notes"] if note not in notes]
        writer.close(head[0], {"name": head[1], "versions": head[2]}, ends)
        return RecordResult("ok", *head, open_recording(place), notes=tuple(notes))


def _add_point(
    writer: RecordingWriter, model: Model, target: Runtime, inputs: Sequence[Array], about: str, run_seconds: float
) -> tuple[list[str], list[str]] | ProcessResult:
    """Run the model on `inputs`, add that to the writer and return the names of inputs and outputs; the answer of a
    runtime that gives none.

    `about` says how the inputs came about; one run may take `run_seconds`.
    """
    if model.kind == "torch":
        return _add_module_run(writer, model, inputs, about, MODULE_RUNTIMES[target.name])
    observed = observe(model, target, inputs, run_seconds)
    if observed.answer.outcome != "answers":
        return observed.answer
    _add_run(writer, model, observed, about)
    return model.names, [o.name for o in model.file.graph.output]


def _add_module_run(
    writer: RecordingWriter, model: Model, inputs: Sequence[Array], about: str, compiled: bool
) -> tuple[list[str], list[str]]:
    """Run a PyTorch module on `inputs`, add that to the writer and return the names of inputs and outputs.

    `about` says how the inputs came about, `compiled` whether torch.compile runs it.
    """
    from .run_torch import observe_module

    observed = observe_module(model, inputs, compiled=compiled)
    run = writer.add_run(about, observed.notes, len(writer.runs), 0)
    names = [*model.names, *map(str, range(len(inputs)))][: len(inputs)]  # of a module that takes any number
    outputs = [f"output {k}" for k in range(len(observed.outputs))]
    parts: dict[Role, Mapping[str, Array]] = {
        "input": dict(zip(names, observed.given, strict=True)),
        "output": dict(zip(outputs, observed.outputs, strict=True)),
        "value": observed.values,
    }
    for role, arrays in parts.items():
        for name, array in arrays.items():
            writer.add(run, role, name, array, observed.formats.get(name) if role != "input" else None)
    return names, outputs


def _add_run(writer: RecordingWriter, model: Model, observed: ObservedRun, about: str) -> None:
    """Add the run `observed` of the model to the writer: its inputs, its outputs as it is, and what was exposed.

    Points are sequences of one step. `about` says how its inputs came about.
    """
    run = writer.add_run(about, observed.notes, len(writer.runs), 0)
    outputs = [o.name for o in model.proto.graph.output]
    parts: dict[Role, Mapping[str, Array]] = {
        "input": observed.inputs,
        "output": dict(zip(outputs, observed.answer.arrays, strict=True)),
        "value": observed.values,
        "quantised": observed.quantised,
    }
    formats, nodes = getattr(observed.graph, "formats", {}), observed.graph.nodes
    for role, arrays in parts.items():
        for name, array in arrays.items():
            position = observed.graph.values.get(name)
            writer.add(run, role, name, array, None if position is None else formats.get(nodes[position].name))
