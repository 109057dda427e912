"""A run of a model: its inputs in the types that it declares, its outputs, the values of layers that were observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from specgrad.errors import ParameterError
from specgrad.graph.graph import Graph
from specgrad.interop.model import Model, ModelInput
from specgrad.process import ProcessResult
from specgrad.scalar import Array
from specgrad.window import Shape

CALLER_FLOATS = ("float16", "float32")  # what callers may give
FEEDABLE_FLOATS = (*CALLER_FLOATS, "float64")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
WHOLE_NUMBERS = ("int8", "uint8", "int16", "uint16", "int32", "int64", "bool")
"""These too, where a file declares that very type; a module says itself what it takes."""
MAX_WHOLE = 1 << 53  # beyond it float64, in which values are held, does not have every integer


def check_floats(inputs: Mapping[str, Array] | Sequence[Array], besides: Sequence[str] = ()) -> None:
    """Raise ParameterError for an input that is neither float16, float32 nor one of the types `besides`."""
    for a in inputs.values() if isinstance(inputs, Mapping) else inputs:
        if a.dtype.name not in (*CALLER_FLOATS, *besides):
            raise ParameterError("audit", f"inputs must be float32; got {a.dtype}", rule="P5")
        if a.dtype.kind == "i" and a.size and max(int(a.max()), -int(a.min())) > MAX_WHOLE:
            raise ParameterError("audit", "inputs of int64 must be whole numbers up to 2^53 in size", rule="P5")


def as_declared(model: Model, given: Mapping[str, Array]) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return the inputs `given`, by name, in the types that an ONNX file declares, and a note for each that was
    converted.

    ParameterError for a type that is not known.
    """
    declared = {i.name: i for i in model.inputs}
    feeds, notes = dict(given), []
    for name, a in given.items():
        if a.dtype.name == declared[name].dtype:
            continue
        check_floats([a])
        feeds[name] = _convert_to_declared(declared[name], a)
        notes.append(f"input {name} was converted from {a.dtype} to {declared[name].dtype}")
    return feeds, tuple(notes)


def _convert_to_declared(declared: ModelInput, a: Array) -> Array:
    """Return `a` in the declared type: floats are rounded; whole numbers must be in its range, else ParameterError."""
    name, wanted = declared.name, declared.dtype
    if wanted is None:
        raise ParameterError("audit", f"input {name} declares no type that is known", rule="P5")
    if wanted in FEEDABLE_FLOATS:
        with np.errstate(over="ignore"):
            return a.astype(wanted)
    if declared.range is None or wanted not in INTEGERS:
        raise ParameterError("audit", f"input {name} is {wanted}, which is not fed", rule="P5")
    (low, high), exact = declared.range, a.astype(np.float64)
    if not ((exact >= low) & (exact < high + 1) & (exact == np.rint(exact))).all():  # high + 1: a power of 2, a float
        text = f"input {name} is {wanted} in the model, whole numbers from {low} to {high}"
        raise ParameterError("audit", f"{text}; got {a.dtype} numbers that it does not hold", rule="P5")
    return a.astype(wanted)


@dataclass(frozen=True)
class UnsupportedLayer:
    """A layer that specgrad does not support: its operator, why, and its multiply-adds if they are known.

    shape           of its output
    reason          why it is not supported, in words
    multiply_adds   how many it computes; None: not known
    """

    operator: str
    shape: Shape
    reason: str
    multiply_adds: int | None = None


@dataclass(frozen=True)
class ModelRun:
    """A model run: what ran, its graph, and which values the runtime showed.

    graph     the meaning of what the runtime was given
    known     the runtime's values by position in the graph; inputs included
    layers    name -> position of the layers whose output is known, or the node that was passed over, in order
    answer    the outputs of the model with nothing exposed
    module    the PyTorch module, where the runtime was given an export of it
    formats   name of a node -> what it is computed in, where that is not float32
    merged    name of a value -> position and value, of a run in which nothing but quantised values were exposed: what
              stands between them the runtime may have merged into integer kernels
    title     the model, for people
    notes     what else to know
    passing   name -> ONNX's operator, of layers that compute nothing here: their value is that of another layer
    """

    title: str
    graph: Graph
    known: Mapping[int, Array]
    layers: Mapping[str, int | UnsupportedLayer]
    answer: ProcessResult
    notes: tuple[str, ...] = ()
    module: Model | None = None
    formats: Mapping[str, str] = field(default_factory=dict)
    merged: Mapping[str, tuple[int, Array]] = field(default_factory=dict)
    passing: Mapping[str, str] = field(default_factory=dict)

    @property
    def computed_in(self) -> Mapping[str, str]:
        """The formats of nodes that are not float32: `formats`, or those of the imported graph."""
        return self.formats or getattr(self.graph, "formats", {})
