"""What another device has computed, as arrays by the names of the model's values: a phone, a GPU, a customer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zipfile import BadZipFile

import numpy as np

from ..errors import ParameterError
from ..scalar import Array
from .deploy import by_layer, declared_by, known_values, real_inputs, whole_file
from .deployed import Deployed
from .process import Answer
from .question import Question
from .runtimes import NotOffered, Runtime


def _nobody(question: Question) -> str:
    raise NotOffered("the device cannot be asked")


RECORDED = Runtime("recorded", (), _nobody, flush=True)
"""A device that nobody can ask again, with the largest error of functions that any backend has."""


def read_recorded(path: Path) -> dict[str, Array]:
    """An .npz file, or a folder of .npy files: `a/b.npy` and `a%2Fb.npy` are both the value a/b."""
    try:
        if path.is_dir():
            files = {f: unquote(f.relative_to(path).with_suffix("").as_posix()) for f in sorted(path.rglob("*.npy"))}
            return {name: np.load(file, allow_pickle=False) for file, name in files.items()}
        with np.load(path, allow_pickle=False) as entries:
            return {unquote(name): entries[name] for name in entries.files}
    except (AttributeError, ValueError, EOFError, OSError, BadZipFile) as error:
        text = f"{path} is no .npz file and no folder of .npy files: {error}"
        raise ParameterError("--recorded", text) from None


def run_recorded(source: Any, recorded: Mapping[str, Array]) -> Deployed:
    """The recorded values in the place of a run."""
    from ..interop import from_onnx
    from ..interop.onnx.read.unexamined import declared_values

    file = whole_file(source)
    names = [i.name for i in real_inputs(file)]
    _refuse_missing("inputs", names, recorded)
    values = {n: np.asarray(a) for n, a in recorded.items()}
    for n, a in values.items():
        if a.dtype.kind not in "fiub":  # NumPy stores a bfloat16 as bytes of no type
            raise ParameterError("recorded", f"{n} is of type {a.dtype}, not of numbers; save it as float32")
    computed = {o for node in file.graph.node for o in node.output if o}
    if not computed & set(values):
        text = f"none of the arrays is a value of the model; values are {_listed(sorted(computed))}"
        raise ParameterError("recorded", f"{text}; got {_listed(sorted(values))}")
    shapes = {n: values[n].shape for n in names}
    declared = {**declared_values(file, shapes), **declared_by(values)}
    graph = from_onnx(source, input_shapes=shapes, partial=True, declared=declared)
    known = known_values(graph, values)
    for p, array in known.items():
        node = graph.nodes[p]
        if array.shape != node.shape:
            text = f"{node.name} was recorded with shape {array.shape}; in the model it has {node.shape}"
            raise ParameterError("recorded", f"{text}. Are its axes in another order?")
    foreign = sorted(set(values) - computed - set(names))
    outputs = [o.name for o in file.graph.output]
    missing = [n for n in outputs if n not in values]
    said = {f"{len(foreign)} recorded arrays are no values of the model: {_listed(foreign)}": foreign}
    said |= {f"outputs that were not recorded: {_listed(missing)}": missing}
    notes = tuple(note for note, names in said.items() if names)
    answer = Answer("answers", tuple(values[n] for n in outputs if n in values))
    title = Path(source).name if isinstance(source, str | Path) else "model"
    return Deployed(title, graph, known, by_layer(file, graph, known), answer, notes)


def _refuse_missing(what: str, names: Sequence[str], recorded: Mapping[str, Array]) -> None:
    missing = [n for n in names if n not in recorded]
    if missing:
        text = f"the {what} {_listed(missing)} of the model were not recorded; got {_listed(sorted(recorded))}"
        raise ParameterError("recorded", text)


def _listed(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "") or "none"
