"""Run PyTorch modules in audits: as they are, as graphs, and as torch.onnx exports them."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from specgrad.errors import ParameterError, need
from specgrad.graph.ir.tree import leaves
from specgrad.interop.model import Model
from specgrad.interop.torch.deployed import HALVES
from specgrad.interop.torch.formats import half_type, numbers_of, tensors_of
from specgrad.process import ProcessResult
from specgrad.scalar import Array

from .model_run import ModelRun


@contextmanager
def _silenced(name: str) -> Iterator[None]:
    """Silence the logger `name` below errors meanwhile: the exporter warns of packages that it could use, such as
    torchvision.
    """
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def export_onnx(module: torch.nn.Module, inputs: Sequence[Array]) -> bytes:
    """Return the bytes of the ONNX file that torch.onnx writes for the module, called with `inputs`.

    ParameterError if it writes none.
    """
    need("onnx", "torch.onnx needs")
    need("onnxscript", "torch.onnx needs")
    tensors = tuple(tensors_of(inputs, half_type(module)))
    with warnings.catch_warnings(), _silenced("torch.onnx"):
        warnings.simplefilter("ignore")
        try:
            program: Any = torch.onnx.export(module, tensors, dynamo=True, verbose=False)
        except Exception as error:  # of the user's program, or of the exporter on it
            cause = error.__cause__ or error
            text = f"torch.onnx does not export {type(module).__name__}: {type(cause).__name__}: {cause}"
            raise ParameterError("audit", f"{' '.join(text.split()):.300}", rule="P5") from error
    return bytes(program.model_proto.SerializeToString())


def run_module(model: Model, inputs: Sequence[Array]) -> ModelRun:
    """Run a PyTorch module on `inputs` in this process and return its layers' outputs, observed by forward hooks."""
    module: torch.nn.Module = model.source
    graph, half = model.graph_for(inputs, "audit"), half_type(module)
    given = numbers_of(tensors_of(inputs, half))
    seen: dict[str, Array] = {}
    calls: Counter[str] = Counter()

    def watch(name: str) -> Any:
        def hook(_: Any, __: Any, output: Any) -> None:
            calls[name] += 1
            if isinstance(output, torch.Tensor):
                (seen[name],) = numbers_of([output])

        return hook

    innermost = {name: m for name, m in module.named_modules() if name and not list(m.children())}
    hooks = [m.register_forward_hook(watch(name)) for name, m in innermost.items()]
    try:
        with torch.no_grad():
            result = module(*tensors_of(inputs, half))
    finally:
        for hook in hooks:
            hook.remove()
    last = {node.group: p for p, node in enumerate(graph.nodes)}  # a layer's value is its last node's
    layers = {n: last[n] for n in seen if n in last and calls[n] == 1 and graph.nodes[last[n]].shape == seen[n].shape}
    known = {p: seen[n] for n, p in layers.items()} | dict(zip(graph.input_positions, given, strict=True))
    answer = ProcessResult("answers", tuple(numbers_of(leaves(result))))
    ordered = dict(sorted(layers.items(), key=lambda item: item[1]))
    notes = tuple(
        f"input {name} was converted from {a.dtype} to {HALVES[half]}"
        for name, a in zip(graph.names, inputs, strict=True)
        if half is not None and a.dtype.kind == "f" and a.dtype.name != HALVES[half]
    )
    return ModelRun(model.title, graph, known, ordered, answer, notes, formats=model.formats(graph))
