"""Bring a model to a runtime twice: as it is, and with every layer's output exposed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ParameterError
from ..graph.graph import CONSTANT, INPUT, Graph
from ..scalar import Array
from .process import Answer, Process
from .runtimes import Runtime


@dataclass(frozen=True)
class Deployed:
    """What ran, what it means, and which values the runtime showed.

    graph    the meaning of what the runtime was given
    known    the runtime's values by position in the graph; inputs included
    layers   name -> position of the layers whose output is known, in order
    answer   the outputs of the model with nothing exposed
    module   the meaning of the PyTorch module, where the runtime was given an export of it
    """

    title: str
    graph: Graph
    known: Mapping[int, Array]
    layers: Mapping[str, int]
    answer: Answer
    notes: tuple[str, ...] = ()
    module: Graph | None = field(default=None)


def deploy(model: Any, runtime: Runtime, inputs: Sequence[Array], seconds: float) -> Deployed:
    """Run the model; the runtime decides how it must be written."""
    is_module = not isinstance(model, str | Path | bytes) and hasattr(model, "state_dict")
    if is_module and runtime.name == "torch":
        from .deploy_torch import run_module

        return run_module(model, inputs)
    if not runtime.model:
        text = (
            f"runtime {runtime.name} runs no whole models; give onnxruntime, openvino, openvino-f32 or onnx-reference"
        )
        raise ParameterError("audit", f"{text}, or torch with a PyTorch module", rule="P5")
    if is_module:
        from .deploy_torch import exported

        return run_file(exported(model, inputs), runtime, inputs, seconds, type(model).__name__, model)
    title = Path(model).name if isinstance(model, str | Path) else "model"
    return run_file(model, runtime, inputs, seconds, title)


def run_file(
    source: Any, runtime: Runtime, inputs: Sequence[Array], seconds: float, title: str, module: Any = None
) -> Deployed:
    """An ONNX file on a runtime that reads ONNX files."""
    from ..interop import from_onnx
    from ..interop.onnx_file import BYTE_BUDGET, read_model

    names = [i.name for i in _real_inputs(read_model(source, BYTE_BUDGET)[0])]
    if len(names) != len(inputs):
        raise ParameterError("audit", f"the model takes {len(names)} inputs ({', '.join(names)}); got {len(inputs)}")
    graph = from_onnx(source, input_shapes={n: a.shape for n, a in zip(names, inputs, strict=True)})
    file = _whole(source)
    layers = {name: p for name, p in graph.values.items() if _is_shown(graph, p)}
    feeds = dict(zip(names, inputs, strict=True))
    with Process(seconds=seconds, environment=runtime.environment) as process:
        answer = process.run(runtime.model, feeds, [_bytes(file)])
        shown = process.run(runtime.model, feeds, [_bytes(_exposing(file, layers))])
    known = {graph.values[n]: a for n, a in feeds.items()}
    notes: tuple[str, ...] = ()
    if shown.outcome == "answers":
        extra = shown.arrays[len(file.graph.output) :]
        outputs = dict(zip([o.name for o in file.graph.output], shown.arrays, strict=False))
        rest = [n for n in layers if n not in outputs]
        known |= {layers[n]: a for n, a in [*outputs.items(), *zip(rest, extra, strict=True)] if n in layers}
    else:
        notes = (f"with every layer exposed the runtime {shown.outcome}: {shown.reason}",)
        layers = {}
    meaning = None
    if module is not None:
        from .deploy_torch import meaning_of

        meaning = meaning_of(module, inputs)
    return Deployed(title, graph, known, _by_layer(file, layers), answer, notes, meaning)


def _real_inputs(model: Any) -> list[Any]:
    """Inputs that are not initializers under another name."""
    initial = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in initial]


def _whole(source: Any) -> Any:
    """The model with external data inside, so that its bytes are all a runtime needs."""
    import onnx

    if isinstance(source, str | Path):
        return onnx.load(str(source))
    return onnx.load_from_string(source) if isinstance(source, bytes) else source


def _bytes(model: Any) -> Array:
    return np.frombuffer(model.SerializeToString(), np.uint8)


def _is_shown(graph: Graph, position: int) -> bool:
    node = graph.nodes[position]
    return node.kind == "real" and node.op is not INPUT and node.op is not CONSTANT


def _exposing(model: Any, layers: Mapping[str, int]) -> Any:
    """A copy whose outputs are its own, then every other layer's."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    present = {o.name for o in model.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in layers if name not in present)
    return copy


def _by_layer(model: Any, layers: Mapping[str, int]) -> dict[str, int]:
    """Named after the node where it has a name, in the order of the file; a name that is taken gets a number."""
    found: dict[str, int] = {}
    for node in model.graph.node:
        for output in node.output:
            if output in layers:
                names = itertools.chain((node.name or output, output), (f"{output} #{k}" for k in itertools.count(2)))
                found[next(n for n in names if n not in found)] = layers[output]
    return found
