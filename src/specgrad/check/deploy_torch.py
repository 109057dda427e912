"""PyTorch modules in audits: as they run, what they mean, and as torch.onnx exports them."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..graph.graph import Graph
from ..interop import from_torch
from ..scalar import Array
from .deploy import Deployed
from .process import Answer


def _tensors(inputs: Sequence[Array]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.array(a)) for a in inputs]


def meaning_of(module: torch.nn.Module, inputs: Sequence[Array]) -> Graph:
    """The module as a graph."""
    graph: Graph = from_torch(module, *_tensors(inputs))
    return graph


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
    with warnings.catch_warnings(), _without_log("torch.onnx"):
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(module, tuple(_tensors(inputs)), dynamo=True, verbose=False)
    return bytes(program.model_proto.SerializeToString())


def run_module(module: torch.nn.Module, inputs: Sequence[Array]) -> Deployed:
    """The module in this process, its layers watched by forward hooks."""
    graph = meaning_of(module, inputs)
    seen: dict[str, Array] = {}
    calls: Counter[str] = Counter()

    def watch(name: str) -> Any:
        def hook(_: Any, __: Any, output: Any) -> None:
            calls[name] += 1
            if isinstance(output, torch.Tensor):
                seen[name] = output.detach().numpy().copy()

        return hook

    leaves = {name: m for name, m in module.named_modules() if name and not list(m.children())}
    hooks = [m.register_forward_hook(watch(name)) for name, m in leaves.items()]
    try:
        with torch.no_grad():
            result = module(*_tensors(inputs))
    finally:
        for hook in hooks:
            hook.remove()
    last = {node.group: p for p, node in enumerate(graph.nodes)}  # a layer's value is its last node's
    layers = {n: last[n] for n in seen if n in last and calls[n] == 1 and graph.nodes[last[n]].shape == seen[n].shape}
    known = {p: seen[n] for n, p in layers.items()} | dict(zip(graph.input_positions, inputs, strict=True))
    results = result if isinstance(result, tuple | list) else [result]
    answer = Answer("answers", tuple(r.detach().numpy() for r in results))
    ordered = dict(sorted(layers.items(), key=lambda item: item[1]))
    return Deployed(type(module).__name__, graph, known, ordered, answer)
