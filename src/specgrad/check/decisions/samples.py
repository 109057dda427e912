"""Fit a model and its data together, sample by sample: shapes, types, and which array goes to which input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specgrad.proof.base.deployed_graph import constants_in_float32, rounded_constants

from ...errors import ParameterError, ShapeError
from ...graph.graph import Graph
from ...interop.model import Dims, Model, array_of, open_model
from ...rounding import Arithmetic
from ...scalar import Array
from ..models.checkpoint import digest_of
from ..models.load import graph_of


@dataclass(frozen=True, eq=False)
class Samples:
    """The graph at the size of one sample, and the samples.

    source    the ONNX file that the graph was read from, for runtimes; None for graphs and modules
    formats   nodes that the model computes in another format than the arithmetic's: bytes, integers, halves
    arrays    one per input, whose first axis numbers the samples
    batched   per input: whether the model keeps that axis, of size 1
    notes     what a reader should know of the fitting, in sentences
    """

    graph: Graph
    arrays: tuple[Array, ...]
    batched: tuple[bool, ...]
    source: Any
    formats: Mapping[str, str]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.arrays[0])

    def fed(self, number: int) -> list[Array]:
        """Return the sample of this number as a runtime gets it, one array per input."""
        pairs = zip(self.arrays, self.batched, strict=True)
        return [a[number : number + 1] if batched else a[number] for a, batched in pairs]

    def numbers(self, number: int) -> list[Array]:
        """Return one sample as numbers: float64, also for bytes and integers; indices stay integers."""
        return self._as_numbers(self.fed(number))

    def stacked_numbers(self, first: int, stop: int) -> list[Array]:
        """Return samples first ... stop - 1 as numbers, along the first axis of every input."""
        return self._as_numbers([a[first:stop] for a in self.arrays])

    def _as_numbers(self, arrays: list[Array]) -> list[Array]:
        """Return arrays, one per input, in float64; indices stay integers."""
        kinds = [self.graph.nodes[p].kind for p in self.graph.input_positions]
        return [x if k == "index" else x.astype(np.float64) for k, x in zip(kinds, arrays, strict=True)]

    def digest(self) -> str:
        """Return a digest of the graph, its weights and the data."""
        from specgrad.graph.files.save import to_json

        text = repr(to_json(self.graph))
        return digest_of([text, *(a for _, a in sorted(self.graph.constants.items())), *self.arrays])


def samples_of(model: Any, data: Any, arithmetic: Arithmetic) -> Samples:
    """Return a model and its data, fitted together.

    ParameterError or ShapeError for data that do not fit, and integers beyond 2**53.

    model        a Graph, an ONNX file (path, bytes, ModelProto), or a PyTorch module
    data         an array whose first axis numbers the samples, or one such array per input, by name
    arithmetic   the executions that are asked about: in its format the graph is read, and constants that do not fit it
                 are noted
    """
    given = open_model(model, "preserve")
    arrays, batched = _fit_arrays(_declared_sizes(given, data), data)
    first = [a[:1] if b else a[0] for a, b in zip(arrays, batched, strict=True)]
    graph, formats = graph_of(given, first, "preserve", arithmetic)
    for p, array in zip(graph.input_positions, arrays, strict=True):
        refuse = _refuse_long_integers if graph.nodes[p].kind == "real" else _refuse_fractions
        refuse(graph.nodes[p].name, array)
    notes: tuple[str, ...] = ()
    if arithmetic.dtype == "float32":
        constants = constants_in_float32(graph, "preserve")
        notes = () if formats else rounded_constants(graph)
        graph = replace(graph, constants=constants)
    source = given if given.kind == "onnx" else None
    return Samples(graph, arrays, batched, source, formats, notes)


def _declared_sizes(model: Model, data: Any) -> dict[str, Dims]:
    """Return {input: sizes} of the model (None: open or unknown).

    Of a module, which declares none, by the names of `data`.
    """
    if model.kind == "torch":
        return dict.fromkeys(data if isinstance(data, Mapping) else ("input",))
    return {i.name: i.dims for i in model.inputs}


def _fit_arrays(declared: Mapping[str, Dims], data: Any) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
    """Return the arrays of `data` in the order of the inputs, and per input whether a sample is a batch of one.

    `declared` are the inputs' sizes by name, None for a free one. ParameterError or ShapeError for arrays that do not
    fit.
    """
    named = {name: array_of(a, name, "preserve") for name, a in _match_by_name(list(declared), data).items()}
    _check_counts(named)
    batched = tuple(_is_batched(name, dims, named[name].shape) for name, dims in declared.items())
    return tuple(named[name] for name in declared), batched


def _match_by_name(inputs: list[str], data: Any) -> dict[str, Any]:
    """Return {input: array}, matched by name, or the only array for the only input; ParameterError if they do not
    match.

    `data` is an array or a mapping.
    """
    if not isinstance(data, Mapping):
        if len(inputs) != 1:
            text = f"the model takes {len(inputs)} inputs ({', '.join(inputs)}): give one array per input, by name"
            raise ParameterError("preserve", text, rule="P5")
        return {inputs[0]: data}
    if all(name in data for name in inputs):
        return {name: data[name] for name in inputs}
    if len(inputs) == len(data) == 1:
        return {inputs[0]: next(iter(data.values()))}
    text = f"the data must have arrays {', '.join(inputs)}; got {', '.join(map(str, data)) or 'none'}"
    raise ParameterError("preserve", text, rule="P5")


def _check_counts(arrays: Mapping[str, Array]) -> None:
    """Raise ParameterError unless all arrays hold numbers, ShapeError unless they have one number of samples, not 0."""
    for name, a in arrays.items():
        if a.dtype.kind not in "fiub":
            raise ParameterError("preserve", f"array {name} must hold numbers; got {a.dtype}", rule="P5")
        if a.ndim == 0 or len(a) == 0:
            raise ShapeError("preserve", f"array {name} must have samples along its first axis; got shape {a.shape}")
    if len({len(a) for a in arrays.values()}) > 1:
        counts = ", ".join(f"{name} {len(a)}" for name, a in arrays.items())
        raise ShapeError("preserve", f"every array must have the same number of samples; got {counts}")


def _refuse_long_integers(name: str, array: Array) -> None:
    """Raise ParameterError if the array `name` has integers that float64, in which samples are judged, does not
    hold.
    """
    if array.dtype.kind in "iu" and array.size and max(abs(int(array.min())), int(array.max())) > 2**53:
        text = f"array {name} has integers beyond 2^53, which float64 does not hold one by one"
        raise ParameterError("preserve", text, rule="P5")


def _refuse_fractions(name: str, array: Array) -> None:
    """Raise ParameterError if the array `name`, of ids, has numbers that int64 does not hold: they would be cut.

    Those that are not finite belong to a sample of which nothing is proven.
    """
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
        wrong = np.isfinite(array) & ((whole != array) | ((whole < 0) != (array < 0)))
    if wrong.any():
        text = f"array {name} must have whole numbers, of which int64 holds each; got {array[wrong].flat[0]}"
        raise ParameterError("preserve", text, rule="P5")


def _is_batched(name: str, dims: Dims, shape: tuple[int, ...]) -> bool:
    """Return whether a sample is a[i:i+1], for an input with a batch axis, or a[i]; ShapeError if data of that shape
    fit neither.

    `name` is the input's, `dims` its declared sizes (None: not declared).
    """
    if dims is None or len(dims) == len(shape):
        if dims is not None and dims[0] not in (None, 1):
            text = f"input {name} takes batches of {dims[0]}; give data with one more axis in front, a batch each"
            raise ShapeError("preserve", text)
        return True
    if len(dims) + 1 == len(shape):
        return False
    raise ShapeError("preserve", f"input {name} has {len(dims)} axes; data of shape {shape} fit no sample of it")
