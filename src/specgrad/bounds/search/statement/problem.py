"""What `certify` is asked: networks and a property that fits them, as one deployed graph and one property of it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.errors import ParameterError, ShapeError
from specgrad.graph.graph import Graph
from specgrad.interop.model import Model, array_of, is_onnx, open_model, refuse_other_formats, refuse_parts
from specgrad.proof.base.deployed_graph import at_the_property, deployed_constants, deployed_graph, rounded_constants
from specgrad.properties.interface import PropertyInterface, PropertyTensor
from specgrad.properties.property import Property, robustness
from specgrad.properties.vnnlib import read
from specgrad.scalar import Array, nearest_float

from ..network.merged_network import NamedNetwork, check_cells, interface_of, is_plain, joined, networks_of
from .argmax_property import another_position

Around = tuple[Any, int, Fraction | float]  # (x, label, eps)


@dataclass(frozen=True, eq=False)
class VerificationProblem:
    """A verification problem: the networks, and the merged deployed graph from the property's variables to
    its values.

    stated   the property of the merged graph
    notes    what a reader should know of the merging, in sentences
    """

    networks: tuple[NamedNetwork, ...]
    graph: Graph
    stated: Property
    notes: tuple[str, ...] = ()

    @property
    def is_joined(self) -> bool:
        """Whether it has several networks, inputs or outputs, or inequalities that name inputs; `graph` joins them."""
        return self.stated.interface is not None or len(self.networks) > 1


def question_of(
    model: Any,
    statement: Any,
    *,
    low: Any = None,
    high: Any = None,
    norm: str = "inf",
    shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    source: Any = None,
) -> VerificationProblem:
    """Return the verification problem that the arguments of `certify` describe; reads the files that they name.

    model       a Graph, an ONNX file or a PyTorch module; of several networks, one per name
    statement   a Property, the path of a VNN-LIB file, or (x, label, eps), with which low, high and norm go
    norm        of (x, label, eps): "inf", "2" or "1"
    shape       of the input, or one per input's name, where the model leaves sizes open
    source      the file or module that a Graph was read from: counterexamples are run on it too

    ParameterError for a statement that is none, and for low, high or norm beside a property, which has its own bounds.
    """
    around = isinstance(statement, tuple)
    if isinstance(statement, tuple | Property):
        stated: Any = statement
    elif isinstance(statement, str | os.PathLike):
        stated = read(os.fspath(statement))
    else:
        text = f"a statement is a Property, a file, or (x, label, eps); got {type(statement).__name__}"
        raise ParameterError("certify", text, rule="P5")
    if not around and (low is not None or high is not None):
        raise ParameterError("certify", "low and high go with (x, label, eps); a property has its own bounds")
    if not around and norm != "inf":
        raise ParameterError("certify", "norm goes with (x, label, eps); a property has its own bounds")
    models = _named_models(model, stated)
    given = [(n, _sized_graph(m, stated, shape, n), _counterexample_source(m, source)) for n, m in models]
    networks = tuple(NamedNetwork(n, deployed_constants(graph), source) for n, graph, source in given)
    if around:
        stated = _robustness_around(networks[0], stated, {"low": low, "high": high, "norm": norm})
    check_cells(networks, stated)
    stated = _with_interface(stated, networks)
    check_cases(stated)
    whole = networks[0].graph if stated.interface is None else joined(networks, stated.interface)
    notes = (*dict.fromkeys(note for _, graph, _ in given for note in rounded_constants(graph)), *_empty_note(stated))
    return VerificationProblem(networks, deployed_graph(whole), stated, notes)


def _robustness_around(network: NamedNetwork, stated: Around, limits: dict[str, Any]) -> Property:
    """Return the robustness property of (x, label, eps), `stated`; `limits` are the options low, high and norm.

    ParameterError if it has not three entries.
    """
    if len(stated) != 3:
        raise ParameterError("certify", f"a tuple is (x, label, eps); got {len(stated)} entries", rule="P5")
    x, label, eps = stated
    cells = cells_of(x, network.graph)
    if is_plain(network.graph) and (positions := another_position(cells, label, eps, network.graph, **limits)):
        return positions
    return robustness(cells, label, eps, sum(math.prod(s) for s in network.outputs), **limits)


def graph_and_property(model: Any, statement: Any, **options: Any) -> tuple[Graph, Property]:
    """Return the deployed graph, and the property that fits it, for `model`, `statement` and options of `certify`.

    ParameterError for options or a statement that do not fit the model.
    """
    question = question_of(model, statement, **options)
    return question.graph, question.stated


def cells_of(x: Any, graph: Graph) -> Array:
    """Return an input as one array; several inputs, by name or in order, are concatenated flat.

    ShapeError unless they are the model's, of its sizes.

    >>> import specgrad as sg
    >>> cells_of({"b": [3.0], "a": [1.0, 2.0]}, sg.trace(lambda a, b: sg.concat([a, b], 0), (2,), (1,)))
    array([1., 2., 3.])
    """
    names = [graph.nodes[p].name for p in graph.input_positions]
    if not names:
        raise ShapeError("certify", "the model takes no inputs, so that there is nothing to vary")
    if len(names) == 1 and not isinstance(x, Mapping):
        return array_of(x, names[0], "certify")
    if isinstance(x, Mapping) and set(x) != set(names):
        raise ShapeError("certify", f"x must hold arrays {', '.join(names)}; got {', '.join(map(str, x)) or 'none'}")
    each = [x[n] for n in names] if isinstance(x, Mapping) else x
    arrays = [array_of(a, names[k] if k < len(names) else str(k), "certify") for k, a in enumerate(each)]
    shapes = [graph.nodes[p].shape for p in graph.input_positions]
    if [a.size for a in arrays] != [math.prod(s) for s in shapes]:
        given = ", ".join(str(a.shape) for a in arrays)
        raise ShapeError("certify", f"x must hold arrays {', '.join(names)} of shapes {shapes}; got {given}")
    mixed = len({a.dtype.kind for a in arrays}) > 1  # NumPy makes floats of integers beside floats, and rounds them
    return np.concatenate([a.ravel().astype(object) if mixed else a.ravel() for a in arrays])


# --- networks ---------------------------------------------------------------------------------------------------------


def _counterexample_source(model: Any, given: Any) -> Any:
    """Return what counterexamples are run on besides our engine: the model, or what its graph was read from, `given`.

    ParameterError if that is no file or module, or stands beside a model that is no graph.
    """
    if given is None:
        opened = open_model(model, "certify")
        return None if opened.kind == "graph" else opened.source
    if not isinstance(model, Graph) or not (is_onnx(given) or hasattr(given, "state_dict")):
        text = "source is the ONNX file or PyTorch module that a Graph was read from"
        raise ParameterError("certify", f"{text}; got {type(given).__name__} for a {type(model).__name__}", rule="P5")
    refuse_other_formats(given)
    return given


def _named_models(model: Any, stated: Any) -> list[tuple[str, Any]]:
    """Return (name, model) pairs; a single network needs no name. ParameterError if models are not those of the
    property.

    `stated` is the property as given; `model` one network, or a mapping from name to network.
    """
    interface = stated.interface if isinstance(stated, Property) else None
    if interface is not None and len(interface.networks) > 1:
        needed = [n for n in interface.networks if n not in interface.models]
        alone = {needed[0]: model} if len(needed) == 1 else {}
        return networks_of(interface, model if isinstance(model, Mapping) else alone)
    if isinstance(model, Mapping) and len(model) != 1:
        raise ParameterError("certify", f"the property is about one network; got {', '.join(model) or 'none'}")
    return [("", next(iter(model.values())) if isinstance(model, Mapping) else model)]


def _sized_graph(model: Any, stated: Any, shape: Any, name: str) -> Graph:
    """Return the model of network `name` as a graph with all sizes known; refuse other formats than float32, and parts
    of models.

    Sizes that it leaves open are those of `shape`, else those that the property `stated` says.
    """
    given = open_model(model, "certify")
    refuse_other_formats(given)
    if given.kind == "torch":
        return given.graph(_module_shapes(stated, shape))
    if given.kind == "graph":
        refuse_parts(given.source, "certify")
        graph = given.source.fitted_to(_named_shapes(given.source, shape))
    else:
        graph = given.graph(_open_shapes(given, stated, shape, name))
    return graph.at() if name else at_the_property(graph, stated)


def _module_shapes(stated: Any, shape: Any) -> dict[str, Sequence[int]]:
    """Return the shapes of a module's arguments, in order: as given, or those of x in `stated`; {} if neither tells
    them.
    """
    if shape is None:
        x = stated[0] if isinstance(stated, tuple) else ()
        each = [np.shape(a) for a in (x if isinstance(x, tuple) else (x,))]
    else:
        each = list(shape.values()) if isinstance(shape, Mapping) else [shape]
    return {str(k): tuple(s) for k, s in enumerate(each)}


def _named_shapes(graph: Graph, shape: Any) -> dict[str, tuple[int, ...]]:
    """Return input shapes by name; `shape` is such a mapping, the shape of the first input, or None."""
    if shape is None or isinstance(shape, Mapping):
        return {name: tuple(s) for name, s in (shape or {}).items()}
    return {graph.names[0]: tuple(shape)}


def _open_shapes(model: Model, stated: Any, shape: Any, name: str) -> dict[str, Sequence[int]]:
    """Return the shapes of inputs, as given in `shape`; where the file leaves sizes open, those of x or of the property
    `stated`, of which the model is network `name`.
    """
    declared = {i.name: i.dims for i in model.inputs}
    if isinstance(shape, Mapping):
        return {n: tuple(s) for n, s in shape.items()}
    if shape is not None:
        return {next(iter(declared)): tuple(shape)} if len(declared) == 1 else {}
    known = _shapes_of(stated, name, list(declared))
    fits = {n: s for n, s in known.items() if declared[n] is None or len(declared[n] or ()) == len(s)}
    return {n: s for n, s in fits.items() if declared[n] is None or None in (declared[n] or ())}


def _shapes_of(stated: Any, name: str, inputs: list[str]) -> dict[str, Sequence[int]]:
    """Return the input shapes that the statement, `stated`, tells of network `name`, by input."""
    if isinstance(stated, tuple):
        x = stated[0]
        arrays = [x] if len(inputs) == 1 and not isinstance(x, Mapping) else x
        each = arrays.items() if isinstance(arrays, Mapping) else zip(inputs, arrays, strict=False)
        return {n: np.shape(a) for n, a in each if n in inputs}
    tensors: tuple[PropertyTensor, ...] = () if stated.interface is None else stated.interface.inputs
    mine = [t for t in tensors if not name or t.network == name]
    return {n: t.shape for n, t in zip(inputs, mine, strict=False)} if len(mine) == len(inputs) else {}


# --- the property -----------------------------------------------------------------------------------------------------


def _with_interface(stated: Property, networks: Sequence[NamedNetwork]) -> Property:
    """Return the property `stated` with an interface, of the first network's inputs and outputs, if it has several."""
    graph, interface = networks[0].graph, stated.interface
    if interface is None:
        return stated if is_plain(graph) else replace(stated, interface=interface_of(graph))
    if interface.inputs:
        return stated
    whole = interface_of(graph)
    known = PropertyInterface(interface.variables, interface.named_inputs, whole.inputs, whole.outputs)
    return replace(stated, interface=known)


def _empty_note(stated: Property) -> tuple[str, ...]:
    """Return a note on alternatives of the property `stated` that were left out as empty, in a tuple; () if there are
    none.
    """
    if not stated.left_out:
        return ()
    return (f"{stated.left_out} alternatives of the property hold for no input or no output, and were left out",)


def check_cases(stated: Property) -> None:
    """Raise ParameterError if a property, case or box is empty, so that it would hold vacuously.

    ShapeError if the box or the rows of a case have another size than the property's inputs and outputs.
    """
    if not stated.cases:
        raise ParameterError("certify", "the property has no cases, so there is nothing to prove")
    for k, case in enumerate(stated.cases):
        if not case.alternatives:
            raise ParameterError("certify", f"case {k} has no alternatives, so there is nothing to prove")
        if not len(case.low) == len(case.high) == stated.inputs:
            raise ShapeError(
                "certify", f"case {k} has {len(case.low)} and {len(case.high)} bounds, not {stated.inputs}"
            )
        for i, (low, high) in enumerate(zip(case.low, case.high, strict=True)):
            if low > high:
                ends = f"{nearest_float(low)} above {nearest_float(high)}"
                raise ParameterError("certify", f"case {k} is an empty box: input {i} has lower bound {ends}")
        for a in case.alternatives:
            if a.rows.shape != (len(a.limits), stated.outputs):
                text = f"case {k} has rows of shape {a.rows.shape} for {len(a.limits)} limits"
                raise ShapeError("certify", f"{text} and {stated.outputs} outputs")
