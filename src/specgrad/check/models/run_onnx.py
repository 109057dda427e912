"""Run a model on a runtime twice: as it is, and with every layer's output exposed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specgrad.deadline import is_over, time_left
from specgrad.errors import ParameterError
from specgrad.graph.graph import CONSTANT, INPUT, Graph
from specgrad.interop.model import Model, open_model
from specgrad.process import Process, ProcessResult
from specgrad.scalar import Array
from specgrad.window import Shape

from ..runtimes import Runtime
from .model_run import ModelRun, UnsupportedLayer, as_declared

LARGE_CELLS = 1 << 24
"""Cells of a constant above which it is not shown: 64 MiB in float32."""
MODULE_RUNTIMES = {"torch": False, "torch-compile": True}
"""Runtimes that run PyTorch modules, and whether they compile them first."""


def deploy(model: Any, runtime: Runtime, inputs: Sequence[Array], seconds: float) -> ModelRun:
    """Run a model on a runtime and return the values that it showed; a module is exported to ONNX where needed.

    `inputs` are one array per input; one run may take `seconds`.

    ParameterError if the runtime runs no models.
    """
    given = open_model(model, "audit")
    is_module = given.kind == "torch"
    if is_module and runtime.name in MODULE_RUNTIMES:
        from .run_torch import module_run, observe_module

        return module_run(given, observe_module(given, inputs, compiled=MODULE_RUNTIMES[runtime.name]))
    if not runtime.model:
        text = (
            f"runtime {runtime.name} runs no whole models; give onnxruntime, openvino, openvino-f32 or onnx-reference"
        )
        raise ParameterError("audit", f"{text}, or {' or '.join(MODULE_RUNTIMES)} with a PyTorch module", rule="P5")
    if is_module:
        from .run_torch import exported

        with exported(given.source, inputs) as path:
            return run_file(open_model(path), runtime, inputs, seconds, given.title, given)
    return run_file(given, runtime, inputs, seconds, given.title)


def run_file(
    model: Model, runtime: Runtime, inputs: Sequence[Array], seconds: float, title: str, module: Model | None = None
) -> ModelRun:
    """Run an ONNX file on a runtime and return its values; nodes that specgrad does not support are skipped.

    `title` names the model in reports; `module` is what the file was exported from; one run may take `seconds`.
    ParameterError for another number of inputs.
    """
    model.check_count(inputs, "audit")
    fixed, rest = model.at_scalars(inputs)
    observed = observe(fixed, runtime, rest, seconds)
    return replace(observed.to_run(fixed, title), module=module)


@dataclass(frozen=True)
class ObservedRun:
    """What a runtime showed of a model at one input.

    graph       the meaning of the model at these sizes
    inputs      by name, in the types that the model declares
    answer      the outputs of the model as it is, nothing exposed
    values      by name, of a run with every value exposed
    quantised   by name, of a run with nothing but quantised values exposed
    notes       what else to know
    """

    graph: Any
    inputs: Mapping[str, Array]
    answer: ProcessResult
    values: Mapping[str, Array]
    quantised: Mapping[str, Array]
    notes: tuple[str, ...] = ()

    def to_run(self, model: Model, title: str) -> ModelRun:
        """Return what was observed as a ModelRun of the model, called `title`."""
        known = known_values(self.graph, {**self.inputs, **self.values})
        merged = {n: (self.graph.values[n], a) for n, a in self.quantised.items()}
        file = written_file(model, self.graph)
        layers = observed_layers(file, self.graph, known)
        passing = passing_layers(file, self.graph, layers)
        return ModelRun(title, self.graph, known, layers, self.answer, self.notes, merged=merged, passing=passing)


def observe(model: Model, runtime: Runtime, inputs: Sequence[Array], seconds: float) -> ObservedRun:
    """Return what an ONNX file gives on a runtime: as it is, with every value exposed, with quantised values alone
    exposed.

    One run may take `seconds`. ParameterError for another number of inputs, and for a file that was changed meanwhile.
    """
    file = model.proto
    model.check_count(inputs, "audit")
    feeds, converted = as_declared(model, dict(zip(model.names, inputs, strict=True)))
    with Process(seconds=seconds, environment=runtime.environment, folder=model.folder) as process:

        def expose(values: Sequence[str]) -> tuple[ProcessResult, dict[str, Array]]:
            return _run_exposing(process, runtime, file, feeds, values)

        def show(values: Sequence[str], written: Any) -> dict[str, Array]:
            return _run_exposing(process, runtime, written, feeds, values)[1]

        answer, _ = expose(())
        graph = meaning_at(model, feeds, show)
        file = written_file(model, graph)
        given = {n for u in graph.unexamined for n in u.gives}
        states = [name for name, _ in graph.states.values()]
        left = large_constants(graph)
        computed = [n for n, p in graph.values.items() if (_is_computed(graph, p) and p not in left) or n in given]
        shown, values = expose([*computed, *states])
        whole = [n for n, p in graph.values.items() if graph.nodes[p].op.name == "quantize"]
        apart = expose(whole)[1] if whole else {}
    if changed := model.changed_file:
        raise ParameterError("audit", f"{changed} was changed while {model.title} was read and run", rule="P5")
    notes = (*model.notes, *graph.notes, *converted)
    if shown.outcome != "answers":
        notes += (f"with every layer exposed the runtime {shown.outcome}: {shown.reason}",)
    return ObservedRun(graph, feeds, answer, values, {n: apart[n] for n in whole if n in apart}, notes)


def _run_exposing(
    process: Process, runtime: Runtime, file: Any, feeds: Mapping[str, Array], values: Sequence[str]
) -> tuple[ProcessResult, dict[str, Array]]:
    """Run the file on the inputs `feeds` with `values` as further outputs; return the outcome and the arrays by name.

    It "times out" without a run if no time is left; the limit of `process` is lowered to what is left.
    """
    if is_over():
        return ProcessResult("times out", reason="no time was left to run the model"), {}
    process.seconds = min(process.seconds, time_left())
    own = [o.name for o in file.graph.output]
    extra = [n for n in dict.fromkeys(values) if n not in own and n not in feeds]
    answer = process.run(runtime.model, feeds, [_model_bytes(_with_outputs(file, extra))])
    return answer, dict(zip([*own, *extra], answer.arrays, strict=False))


def meaning_at(model: Model, feeds: Mapping[str, Array], run: Callable[[Sequence[str], Any], Any]) -> Any:
    """Return the file as a graph; unsupported nodes get shapes from ONNX's inference, or from the runtime.

    `feeds` are the inputs by name; run(names, file) executes a file and gives the values of these names.
    """
    from specgrad.interop.onnx.read.convert_node import declared_values

    shapes = {n: a.shape for n, a in feeds.items()}
    graph = model.part(shapes, declared={})
    if not graph.unexamined:
        return graph
    declared = declared_values(written_file(model, graph), shapes)
    graph = model.part(shapes, declared)
    if any(n not in graph.values for u in graph.unexamined for n in u.gives):
        file = written_file(model, graph)
        given = run([n for node in file.graph.node for n in node.output if n and n not in declared], file)
        graph = model.part(shapes, {**declared, **shapes_and_types(given)})
    return graph


def written_file(model: Model, graph: Any) -> Any:
    """Return the ONNX model that computes the values of `graph`: the model's own, or a copy in which branches are taken
    and loops written out.
    """
    return model.proto if graph.written is None else model.whole(graph.written)


def shapes_and_types(arrays: Mapping[str, Array]) -> dict[str, tuple[Shape, int]]:
    """Return {name: (shape, ONNX element type)} of arrays."""
    from onnx import helper

    return {n: (a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in arrays.items()}


def known_values(graph: Any, arrays: Mapping[str, Array]) -> dict[int, Array]:
    """Return arrays by their position in the graph; booleans as 1 and 0, blocks of channels in the order of axes.

    Parts of a value that nodes hold are known with it: hidden states, which the next step of a recurrent layer reads.
    Constants are the file's: layers that read others than those are wrong.
    """
    numbers = {n: a.astype(np.float32) if a.dtype.kind == "b" else a for n, a in arrays.items()}
    if graph.blocks:
        from specgrad.interop.onnx.read.blocked import in_axis_order

        numbers |= {n: in_axis_order(numbers[n], block) for n, block in graph.blocks.items() if n in numbers}
    parts = {p: numbers[name][index] for p, (name, index) in graph.states.items() if name in numbers}
    observed = {graph.values[n]: a for n, a in numbers.items() if n in graph.values}
    return parts | {p: a for p, a in observed.items() if graph.nodes[p].op is not CONSTANT}


def _model_bytes(model: Any) -> Array:
    """Return the serialised model as an array of bytes."""
    return np.frombuffer(model.SerializeToString(), np.uint8)


def _is_computed(graph: Graph, position: int) -> bool:
    """Return whether the node at `position` computes numbers: neither an input nor a constant nor an index."""
    node = graph.nodes[position]
    return node.kind == "real" and node.op is not INPUT and node.op is not CONSTANT


def large_constants(graph: Graph) -> set[int]:
    """Return the positions of large values that no input reaches, such as a transposed table of weights.

    Runtimes compute them once, or never; to show one takes as much memory as the weights do. They are judged within the
    layers that read them.
    """
    constant: set[int] = set()
    for position, node in enumerate(graph.nodes):
        if node.op is not INPUT and all(p in constant for p in node.operands()):
            constant.add(position)
    return {p for p in constant if math.prod(graph.nodes[p].shape) > LARGE_CELLS}


def _with_outputs(model: Any, values: Sequence[str]) -> Any:
    """Return a copy of the model (a ModelProto) with the values of these names as further outputs."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in values)
    return copy


def observed_layers(model: Any, graph: Any, known: Mapping[int, Array]) -> dict[str, int | UnsupportedLayer]:
    """Return {unique layer name: position in the graph, or the unsupported node}, in the file's order.

    Only layers that compute numbers and whose position is in `known`, the values that were observed. `model` is the
    file's proto.
    """
    from specgrad.interop.onnx.read.convert_node import multiply_adds

    passed = {u.gives: u for u in graph.unexamined}
    shapes = {t.name: tuple(t.dims) for t in model.graph.initializer}
    shapes |= {name: graph.nodes[p].shape for name, p in graph.values.items()}
    by_name: dict[str, int | UnsupportedLayer] = {}
    for node in model.graph.node:
        skipped = passed.get(tuple(filter(None, node.output)))
        if skipped is not None:
            shape = shapes.get(node.output[0], ())
            layer = UnsupportedLayer(skipped.operator, shape, skipped.reason, multiply_adds(node, shapes))
            by_name[_unused_name(node, node.output[0], by_name)] = layer
            continue
        for output in node.output:
            position = graph.values.get(output)
            if position is not None and position in known and _is_computed(graph, position):
                by_name[_unused_name(node, output, by_name)] = position
    return by_name


def passing_layers(model: Any, graph: Any, layers: Mapping[str, int | UnsupportedLayer]) -> dict[str, str]:
    """Return {layer name: ONNX's operator} of the `layers` whose node computes nothing in the graph: a Cast to the type
    that its input has, a Slice of everything.

    `model` is the file's proto.
    """
    groups = {node.group for node in graph.nodes}
    return {n.name: n.op_type for n in model.graph.node if n.name in layers and n.name not in groups}


def _unused_name(node: Any, output: str, taken: Collection[str]) -> str:
    """Return the node's name, else its output's, numbered until it is not in `taken`."""
    names = itertools.chain((node.name or output, output), (f"{output} #{k}" for k in itertools.count(2)))
    return next(n for n in names if n not in taken)
