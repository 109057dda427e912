"""PyTorch modules in audits: as they run, what they mean, and as torch.onnx exports them."""

from __future__ import annotations

import copy
import itertools
import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from specgrad.errors import need
from specgrad.graph.graph import Graph
from specgrad.interop import from_torch
from specgrad.process import ProcessResult
from specgrad.scalar import Array

from .model_run import ModelRun

HALVES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}


def _tensors(inputs: Sequence[Array], dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    """Floats in the given type, unless it is None."""
    tensors = [torch.from_numpy(np.array(a)) for a in inputs]
    return [t.to(dtype) if dtype is not None and t.is_floating_point() else t for t in tensors]


def half_of(module: torch.nn.Module) -> torch.dtype | None:
    """The half format that all numbers of the module are in; None if they are not."""
    types = {p.dtype for p in itertools.chain(module.parameters(), module.buffers()) if p.is_floating_point()}
    return next((t for t in HALVES if types == {t}), None)


def own_type(module: torch.nn.Module) -> str:
    """NumPy's name for what the module's numbers are: float32 where it has none, or NumPy lacks theirs."""
    types = [p.dtype for p in itertools.chain(module.parameters(), module.buffers()) if p.is_floating_point()]
    return {torch.float64: "float64", torch.float16: "float16"}.get(types[0], "float32") if types else "float32"


def meaning_of(module: torch.nn.Module, inputs: Sequence[Array]) -> Graph:
    """The module as a graph; a half module is that of its own numbers, which float32 holds."""
    if half_of(module) is not None:
        module, inputs = copy.deepcopy(module).float(), _numbers(_tensors(inputs, half_of(module)))
    graph: Graph = from_torch(module, *_tensors(inputs))
    return graph


def _numbers(tensors: Sequence[torch.Tensor]) -> list[Array]:
    """Arrays of the same numbers; NumPy has no bfloat16."""
    return [(t.float() if t.dtype in HALVES else t).detach().numpy().copy() for t in tensors]


@contextmanager
def _without_log(name: str) -> Iterator[None]:
    """The exporter logs and warns about packages that it could use, such as torchvision."""
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def exported(module: torch.nn.Module, inputs: Sequence[Array]) -> bytes:
    """The bytes that torch.onnx writes for the module."""
    need("onnx", "torch.onnx needs")
    need("onnxscript", "torch.onnx needs")
    with warnings.catch_warnings(), _without_log("torch.onnx"):
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(module, tuple(_tensors(inputs, half_of(module))), dynamo=True, verbose=False)
    return bytes(program.model_proto.SerializeToString())


def run_module(module: torch.nn.Module, inputs: Sequence[Array]) -> ModelRun:
    """The module in this process, its layers watched by forward hooks."""
    graph, half = meaning_of(module, inputs), half_of(module)
    given = _numbers(_tensors(inputs, half))
    seen: dict[str, Array] = {}
    calls: Counter[str] = Counter()

    def watch(name: str) -> Any:
        def hook(_: Any, __: Any, output: Any) -> None:
            calls[name] += 1
            if isinstance(output, torch.Tensor):
                (seen[name],) = _numbers([output])

        return hook

    leaves = {name: m for name, m in module.named_modules() if name and not list(m.children())}
    hooks = [m.register_forward_hook(watch(name)) for name, m in leaves.items()]
    try:
        with torch.no_grad():
            result = module(*_tensors(inputs, half))
    finally:
        for hook in hooks:
            hook.remove()
    last = {node.group: p for p, node in enumerate(graph.nodes)}  # a layer's value is its last node's
    layers = {n: last[n] for n in seen if n in last and calls[n] == 1 and graph.nodes[last[n]].shape == seen[n].shape}
    known = {p: seen[n] for n, p in layers.items()} | dict(zip(graph.input_positions, given, strict=True))
    results = result if isinstance(result, tuple | list) else [result]
    answer = ProcessResult("answers", tuple(_numbers(results)))
    ordered = dict(sorted(layers.items(), key=lambda item: item[1]))
    formats = {} if half is None else {n.name: HALVES[half] for n in graph.nodes if n.kind == "real"}
    notes = tuple(
        f"input {name} was converted from {a.dtype} to {HALVES[half]}"
        for name, a in zip(graph.names, inputs, strict=True)
        if half is not None and a.dtype.kind == "f" and a.dtype.name != HALVES[half]
    )
    return ModelRun(type(module).__name__, graph, known, ordered, answer, notes, formats=formats)
