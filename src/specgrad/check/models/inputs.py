"""Inputs of a model, converted to the types that it declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from specgrad.errors import ParameterError
from specgrad.interop.model import Model
from specgrad.scalar import Array
from specgrad.window import Shape

CALLER_FLOATS = ("float16", "float32")  # what callers may give
FEEDABLE_FLOATS = (*CALLER_FLOATS, "float64")
QUANTISED = ("int8", "uint8", "int16", "uint16", "int32")  # and these, where a file declares that very type


def normal_inputs(shapes: Iterable[Shape], seed: int = 0) -> list[Array]:
    """Return standard normal float32 arrays: the inputs of a model if none are given."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def check_floats(inputs: Mapping[str, Array] | Sequence[Array], besides: Sequence[str] = ()) -> None:
    """Raise ParameterError for an input that is neither float16, float32 nor one of the types `besides`."""
    for a in inputs.values() if isinstance(inputs, Mapping) else inputs:
        if a.dtype.name not in (*CALLER_FLOATS, *besides):
            raise ParameterError("audit", f"inputs must be float32; got {a.dtype}", rule="P5")


def as_declared(model: Model, given: Mapping[str, Array]) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return the inputs in the types that an ONNX file declares, and a note for each that was converted; ParameterError
    for a type that is not known.
    """
    types = {i.name: i.dtype for i in model.inputs}
    feeds, notes = dict(given), []
    for name, a in given.items():
        if types[name] is None:
            raise ParameterError("audit", f"input {name} declares no type that is known", rule="P5")
        wanted = np.dtype(types[name])
        if a.dtype == wanted:
            continue
        check_floats([a])
        feeds[name] = _convert(name, a, wanted)
        notes.append(f"input {name} was converted from {a.dtype} to {wanted}")
    return feeds, tuple(notes)


def _convert(name: str, a: Array, wanted: np.dtype[Any]) -> Array:
    """Return `a` in the declared type: floats are rounded; integers must be in its range, else ParameterError."""
    if wanted.name in FEEDABLE_FLOATS:
        with np.errstate(over="ignore"):
            return a.astype(wanted)
    if wanted.kind in "iu" and (a.astype(np.float64) == a.astype(wanted).astype(np.float64)).all():
        return a.astype(wanted)
    text = f"input {name} is {wanted} in the model; got {a.dtype} numbers that it does not hold"
    raise ParameterError(
        "audit", text if wanted.kind in "iu" else f"input {name} is {wanted}, which is not fed", rule="P5"
    )
