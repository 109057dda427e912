"""Bring a model to a runtime twice: as it is, and with every layer's output exposed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.errors import ParameterError, SpecgradError, need
from specgrad.graph.graph import CONSTANT, INPUT, Graph
from specgrad.process import Process, ProcessResult
from specgrad.scalar import Array
from specgrad.window import Shape

from ..runtimes import Runtime
from .inputs import as_declared, check_floats
from .model_run import ModelRun, UnsupportedLayer


def deploy(model: Any, runtime: Runtime, inputs: Sequence[Array], seconds: float) -> ModelRun:
    """Run the model; the runtime decides how it must be written."""
    is_module = not isinstance(model, str | Path | bytes) and hasattr(model, "state_dict")
    if is_module:
        check_floats(inputs)
    if is_module and runtime.name == "torch":
        need("torch", "PyTorch modules need")
        from .run_torch import run_module

        return run_module(model, inputs)
    if not runtime.model:
        text = (
            f"runtime {runtime.name} runs no whole models; give onnxruntime, openvino, openvino-f32 or onnx-reference"
        )
        raise ParameterError("audit", f"{text}, or torch with a PyTorch module", rule="P5")
    if is_module:
        need("torch", "PyTorch modules need")
        from .run_torch import exported

        return run_file(exported(model, inputs), runtime, inputs, seconds, type(model).__name__, model)
    title = Path(model).name if isinstance(model, str | Path) else "model"
    return run_file(model, runtime, inputs, seconds, title)


def run_file(
    source: Any, runtime: Runtime, inputs: Sequence[Array], seconds: float, title: str, module: Any = None
) -> ModelRun:
    """An ONNX file on a runtime that reads ONNX files. Nodes without a meaning here are passed over."""
    file = whole_file(source)
    names = [i.name for i in real_inputs(file)]
    if len(names) != len(inputs):
        raise ParameterError("audit", f"the model takes {len(names)} inputs ({', '.join(names)}); got {len(inputs)}")
    feeds, converted = as_declared(file, dict(zip(names, inputs, strict=True)))
    with Process(seconds=seconds, environment=runtime.environment) as process:

        def expose(values: Sequence[str]) -> tuple[ProcessResult, dict[str, Array]]:
            return _exposed(process, runtime, file, feeds, values)

        graph = _meaning(source, file, feeds, lambda values: expose(values)[1])
        answer, _ = expose(())
        given = {n for u in graph.unexamined for n in u.gives}
        shown, values = expose([n for n, p in graph.values.items() if _is_shown(graph, p) or n in given])
        whole = {n: p for n, p in graph.values.items() if graph.nodes[p].op.name == "quantize"}
        apart = expose(list(whole))[1] if whole else {}
    notes = converted
    if shown.outcome != "answers":
        notes += (f"with every layer exposed the runtime {shown.outcome}: {shown.reason}",)
    known = known_values(graph, {**feeds, **values})
    meaning = None
    if module is not None:
        meaning, reason = _module_meaning(module, inputs)
        notes += (reason,) if reason else ()
    merged = {n: (p, apart[n]) for n, p in whole.items() if n in apart}
    return ModelRun(title, graph, known, by_layer(file, graph, known), answer, notes, meaning, merged=merged)


def _exposed(
    process: Process, runtime: Runtime, file: Any, feeds: Mapping[str, Array], values: Sequence[str]
) -> tuple[ProcessResult, dict[str, Array]]:
    """One run with these values as further outputs; what the runtime gave, by name."""
    own = [o.name for o in file.graph.output]
    extra = [n for n in dict.fromkeys(values) if n not in own and n not in feeds]
    answer = process.run(runtime.model, feeds, [_bytes(_exposing(file, extra))])
    return answer, dict(zip([*own, *extra], answer.arrays, strict=False))


def _meaning(source: Any, file: Any, feeds: Mapping[str, Array], run: Callable[[Sequence[str]], Any]) -> Any:
    """The graph. What unexamined nodes give has the shape that ONNX infers, or else the one that the runtime shows."""
    from specgrad.interop import from_onnx
    from specgrad.interop.onnx.read.unsupported_nodes import declared_values

    shapes = {n: a.shape for n, a in feeds.items()}
    graph = from_onnx(source, input_shapes=shapes, partial=True, declared={})
    if not graph.unexamined:
        return graph
    declared = declared_values(file, shapes)
    graph = from_onnx(source, input_shapes=shapes, partial=True, declared=declared)
    if any(n not in graph.values for u in graph.unexamined for n in u.gives):
        given = run([n for node in file.graph.node for n in node.output if n and n not in declared])
        graph = from_onnx(source, input_shapes=shapes, partial=True, declared={**declared, **declared_by(given)})
    return graph


def declared_by(arrays: Mapping[str, Array]) -> dict[str, tuple[Shape, int]]:
    """Shape and ONNX element type of arrays."""
    from onnx import helper

    return {n: (a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in arrays.items()}


def known_values(graph: Any, arrays: Mapping[str, Array]) -> dict[int, Array]:
    """Arrays by position in the graph; true and false are the numbers 1 and 0."""
    numbers = {n: a.astype(np.float32) if a.dtype.kind == "b" else a for n, a in arrays.items()}
    return {graph.values[n]: a for n, a in numbers.items() if n in graph.values}


def _module_meaning(module: Any, inputs: Sequence[Array]) -> tuple[Graph | None, str]:
    """What the module means, or why the export cannot be compared with it."""
    from .run_torch import meaning_of

    try:
        return meaning_of(module, inputs), ""
    except SpecgradError as error:
        return None, f"the export was not compared with the module: {error}"


def real_inputs(model: Any) -> list[Any]:
    """Inputs that are not initializers under another name."""
    initial = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in initial]


def whole_file(source: Any) -> Any:
    """The model with external data inside, so that its bytes are all a runtime needs; read as `from_onnx` reads it."""
    need("onnx", "ONNX files need")
    from specgrad.interop.onnx.file import BYTE_BUDGET, gathered, read_model

    return gathered(*read_model(source, BYTE_BUDGET))


def _bytes(model: Any) -> Array:
    return np.frombuffer(model.SerializeToString(), np.uint8)


def _is_shown(graph: Graph, position: int) -> bool:
    node = graph.nodes[position]
    return node.kind == "real" and node.op is not INPUT and node.op is not CONSTANT


def _exposing(model: Any, values: Sequence[str]) -> Any:
    """A copy whose outputs are its own, then these."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in values)
    return copy


def by_layer(model: Any, graph: Any, known: Mapping[int, Array]) -> dict[str, int | UnsupportedLayer]:
    """Named after the node where it has a name, in the order of the file; a name that is taken gets a number."""
    from specgrad.interop.onnx.read.unsupported_nodes import multiply_adds

    passed = {u.gives: u for u in graph.unexamined}
    shapes = {t.name: tuple(t.dims) for t in model.graph.initializer}
    shapes |= {name: graph.nodes[p].shape for name, p in graph.values.items()}
    by_name: dict[str, int | UnsupportedLayer] = {}
    for node in model.graph.node:
        skipped = passed.get(tuple(filter(None, node.output)))
        if skipped is not None:
            shape = shapes.get(node.output[0], ())
            layer = UnsupportedLayer(skipped.operator, shape, skipped.reason, multiply_adds(node, shapes))
            by_name[_free(node, node.output[0], by_name)] = layer
            continue
        for output in node.output:
            position = graph.values.get(output)
            if position is not None and position in known and _is_shown(graph, position):
                by_name[_free(node, output, by_name)] = position
    return by_name


def _free(node: Any, output: str, taken: Collection[str]) -> str:
    names = itertools.chain((node.name or output, output), (f"{output} #{k}" for k in itertools.count(2)))
    return next(n for n in names if n not in taken)
