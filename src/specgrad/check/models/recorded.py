"""Tensors that another device computed (a phone, a GPU, a customer), by the names of the model's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from specgrad.bounded_files import read_npz
from specgrad.declared_errors import MEASURED, WRONG
from specgrad.errors import FileError, ParameterError
from specgrad.graph.graph import Graph
from specgrad.interop.model import Model, open_model
from specgrad.op import Op
from specgrad.process import ProcessResult
from specgrad.scalar import Array

from ..cases.op_case import OpCase
from ..runtimes import RUNTIMES, NotOffered, Runtime, base_and_device
from .model_run import ModelRun
from .recording import ModelRecording, RecordedRun, open_recording
from .run_onnx import ObservedRun, known_values, meaning_at, observed_layers, passing_layers, shapes_and_types


def _refuse_question(question: OpCase) -> str:
    """Raise NotOffered for any question: a recorded device cannot be run again."""
    raise NotOffered("the device cannot be asked")


RECORDED = Runtime("recorded", (), _refuse_question, flush=True)
"""A device that nobody can ask again and nobody named: functions have the largest error that any runtime has."""


def recorded_of(name: str | None) -> Runtime:
    """Return the device that a recording was made on, with the declared errors of functions of the runtime `name`.

    ParameterError for another name.

    name   a runtime that can be asked (`RUNTIMES`, with :device too) or one that was measured
           (`specgrad.declared_errors`); it need not be installed. None: not known
    """
    if name is None:
        return RECORDED
    base, device = base_and_device(name)
    if base in RUNTIMES:
        asked = RUNTIMES[base].on(device) if device else RUNTIMES[base]
        return replace(RECORDED, name=f"recorded of {name}", flush=asked.flush, functions=asked.functions)
    if name in MEASURED:
        return replace(RECORDED, name=f"recorded of {name}", functions=name)
    known = ", ".join(dict.fromkeys((*RUNTIMES, *MEASURED)))
    raise ParameterError(
        "recorded", f"unknown runtime {name!r}; known are {known}; without a name the widest error holds"
    )


def known_faults(device: Runtime, graph: Graph) -> tuple[str, ...]:
    """Return what the runtime `device` is known to get wrong of the functions in the graph, a sentence each."""
    computed = {n.op.name for n in graph.nodes if isinstance(n.op, Op)}
    faults = [(f, text) for (name, f), text in WRONG.items() if name == device.functions and f in computed]
    return tuple(f"{f} is known to be wrong in {MEASURED[str(device.functions)][0]}: {text}" for f, text in faults)


Recorded = Mapping[str, Array] | ModelRecording
"""What another device computed: arrays by name, or a recording, which says of which model, by whom, at what inputs."""


def runtime_of(recorded: Recorded, of: str | None) -> str | None:
    """Return the runtime whose errors of functions count: that of `recorded` if it is a recording, else `of`.

    None: not known. ParameterError if a recording says another than `of`. A runtime that nobody here has
    measured is not known.
    """
    if not isinstance(recorded, ModelRecording):
        return of
    if of not in (None, recorded.runtime):
        raise ParameterError("recorded", f"it was recorded of {recorded.runtime}; --of says {of}")
    return recorded.runtime if base_and_device(recorded.runtime)[0] in (*RUNTIMES, *MEASURED) else None


def read_recorded(path: Path) -> Recorded:
    """Return a recording, of a folder, or the arrays of an .npz file by name; FileError if it cannot be read."""
    if path.is_dir():
        return open_recording(path)
    arrays = read_npz(path)
    named = {unquote(name): array for name, array in arrays.items()}
    if len(named) != len(arrays):
        raise FileError(f"{path} has two arrays of one name")
    return named


def name_ends(source: Any, inputs: Sequence[Array], outputs: Sequence[Array]) -> dict[str, Array]:
    """Return inputs and outputs, given in the model's order, by their names in the file; ParameterError if the model
    has another number of them.

    `source` is whatever `open_model` takes.
    """
    model = open_model(source, "recorded")
    values: dict[str, Array] = {}
    for what, names, arrays in (
        ("inputs", model.names, inputs),
        ("outputs", [end.name for end in model.proto.graph.output], outputs),
    ):
        if len(names) != len(arrays):
            text = f"the model has {len(names)} {what} ({_names_text(names)}); got {len(arrays)} arrays"
            raise ParameterError("recorded", text)
        values |= dict(zip(names, arrays, strict=True))
    return values


def run_recorded(source: Any, recorded: Recorded) -> list[ModelRun]:
    """Return recorded values as model runs, one per recorded point.

    ParameterError for arrays of no numbers, if nothing that the model computes was recorded, and for a recording of
    another model. `source` is whatever `open_model` takes.
    """
    from specgrad.interop.onnx.read.convert_node import declared_values

    model = open_model(source, "recorded")
    if isinstance(recorded, ModelRecording):
        recorded.check_model(model)
        read = _recorded_module if model.kind == "torch" else _recorded_run
        return [read(model, run) for run in recorded.runs]
    if model.kind == "torch":
        raise ParameterError("recorded", "a PyTorch module is judged by a recording of it; arrays go with an ONNX file")
    file, names = model.proto, model.names
    refuse_missing("inputs", names, recorded)
    values = {n: np.asarray(a) for n, a in recorded.items()}
    for n, a in values.items():
        if a.dtype.kind not in "fiub":  # NumPy stores a bfloat16 as bytes of no type
            raise ParameterError("recorded", f"{n} is of type {a.dtype}, not of numbers; save it as float32")
    computed = {o for node in file.graph.node for o in node.output if o}
    if not computed & set(values):
        text = f"none of the arrays is a value of the model; values are {_names_text(sorted(computed))}"
        raise ParameterError("recorded", f"{text}; got {_names_text(sorted(values))}")
    foreign = sorted(set(values) - computed - set(names))
    points = split_points({n: a for n, a in values.items() if n not in foreign}, {i.name: i.dims for i in model.inputs})
    shapes = {n: points[0][n].shape for n in names}
    declared = {**declared_values(file, shapes), **shapes_and_types(points[0])}
    graph = model.part(shapes, declared)
    file = file if graph.written is None else graph.written
    outputs = [o.name for o in file.graph.output]
    missing = [n for n in outputs if n not in values]
    said = {f"{len(foreign)} recorded arrays are no values of the model: {_names_text(foreign)}": foreign}
    said |= {f"outputs that were not recorded: {_names_text(missing)}": missing}
    notes = (*model.notes, *graph.notes, *(note for note, names in said.items() if names))
    deployed = []
    for point in points:
        known = known_values(graph, point)
        _refuse_shapes(graph, known)
        answer = ProcessResult("answers", tuple(point[n] for n in outputs if n in point))
        layers = observed_layers(file, graph, known)
        passing = passing_layers(file, graph, layers)
        deployed.append(ModelRun(model.title, graph, known, layers, answer, notes, passing=passing))
    return deployed


def _recorded_run(model: Model, run: RecordedRun) -> ModelRun:
    """Return one run of a recording as the run that was recorded.

    ParameterError for a recorded array of another shape than in the model.
    """
    inputs, known = run.values("input"), run.known
    graph = meaning_at(model, inputs, lambda names, _: {n: known[n] for n in names if n in known})
    _refuse_shapes(graph, known_values(graph, known))
    outputs = run.values("output")
    answer = ProcessResult("answers", tuple(outputs[o.name] for o in model.proto.graph.output if o.name in outputs))
    observed = ObservedRun(graph, inputs, answer, known, run.values("quantised"), run.notes)
    return observed.to_run(model, model.title)


def _recorded_module(model: Model, run: RecordedRun) -> ModelRun:
    """Return one run of a recording of a PyTorch module as the run that was recorded."""
    from .run_torch import ObservedModule, module_run

    index = run.recording.index
    inputs = [run.values("input")[name] for name in index["inputs"]]
    outputs = [run.values("output")[name] for name in index["outputs"]]
    return module_run(model, ObservedModule(inputs, outputs, run.values("value"), {}, run.notes))


def split_points(
    values: Mapping[str, Array], dims: Mapping[str, Sequence[int | None] | None]
) -> list[dict[str, Array]]:
    """Return what was recorded at each of several points: inputs have an axis more in front, or a larger batch than 1.

    ParameterError if arrays are not of one number of points.

    dims   the sizes that the model declares for its inputs

    >>> values = {"x": np.zeros((3, 1, 2)), "y": np.array([[1], [2], [3]])}
    >>> [p["y"].tolist() for p in split_points(values, {"x": [1, 2]})]
    [[1], [2], [3]]
    >>> [p["y"].tolist() for p in split_points({**values, "x": np.zeros((3, 2))}, {"x": [1, 2]})]
    [[[1]], [[2]], [[3]]]
    """
    ways = {_count_points(values[n].shape, sizes) for n, sizes in dims.items()}
    if ways <= {(1, "one")}:
        return [dict(values)]
    if len(ways) > 1:
        shapes = ", ".join(f"{n} {values[n].shape}" for n in dims)
        raise ParameterError("recorded", f"the inputs are not of one number of points: {shapes}")
    ((count, way),) = ways
    for n, a in values.items():
        if not a.ndim or not count or (len(a) % count if way == "batch" else len(a) != count):
            raise ParameterError("recorded", f"the inputs are of {count} points; {n} has shape {a.shape}")
    each = {n: np.split(a, count) if way == "batch" else list(a) for n, a in values.items()}
    return [{n: parts[i] for n, parts in each.items()} for i in range(count)]


def _count_points(shape: Sequence[int], dims: Sequence[int | None] | None) -> tuple[int, str]:
    """Return how many points an input of this shape holds, and how: "front" (an axis more), "batch" (a batch of points)
    or "one".

    `dims` are the sizes that the file declares, None for free ones.
    """
    if dims is not None and len(shape) == len(dims) + 1:
        return shape[0], "front"
    is_batch = dims is not None and len(shape) == len(dims) > 0 and dims[0] == 1 != shape[0]
    return (shape[0], "batch") if is_batch else (1, "one")


def _refuse_shapes(graph: Graph, known: Mapping[int, Array]) -> None:
    """Raise ParameterError for a recorded array (`known`, by node) that has another shape than in the model."""
    for p, array in known.items():
        node = graph.nodes[p]
        if array.shape != node.shape:
            text = f"{node.name} was recorded with shape {array.shape}; in the model it has {node.shape}"
            raise ParameterError("recorded", f"{text}. Are its axes in another order?")


def refuse_missing(what: str, names: Sequence[str], recorded: Mapping[str, Array]) -> None:
    """Raise ParameterError if a named value was not recorded; `what` says in it what the names are of."""
    missing = [n for n in names if n not in recorded]
    if missing:
        text = f"the {what} {_names_text(missing)} of the model were not recorded; got {_names_text(sorted(recorded))}"
        raise ParameterError("recorded", text)


def _names_text(names: Sequence[str], most: int = 8) -> str:
    """Return names joined by commas, at most `most` of them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "") or "none"
