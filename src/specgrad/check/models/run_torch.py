"""Run PyTorch modules in audits: as they are, as graphs, and as torch.onnx exports them."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from specgrad.errors import ParameterError, need
from specgrad.graph.graph import CONSTANT, Graph
from specgrad.graph.ir.tree import leaves
from specgrad.interop.model import Model
from specgrad.interop.torch.deployed import HALVES
from specgrad.interop.torch.formats import half_type, numbers_of, tensors_of
from specgrad.process import ProcessResult
from specgrad.scalar import Array

from .model_run import ModelRun

LARGEST_FILE = 1 << 28
"""Bytes of parameters and buffers above which an exported file has its weights beside it: protobuf holds twice as much
in memory, and none beyond 2 GB.
"""


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


@contextmanager
def exported(module: torch.nn.Module, inputs: Sequence[Array]) -> Iterator[Path]:
    """Yield the ONNX file that torch.onnx writes for the module, called with `inputs`, in a folder of its own that is
    removed afterwards; large weights stand beside it.

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
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        size = sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
        program.save(path, external_data=size > LARGEST_FILE)
        del program
        yield path


@dataclass(frozen=True)
class ObservedModule:
    """What a PyTorch module computed at one input; halves as float32, which holds all of them.

    given     the inputs, in the types that the module was given
    outputs   of the module as it is, in order
    values    of the innermost modules that were called once: the one tensor that each gave, by name, and the one that
              it was given ("name input") where no other shows it; and of the outputs beside them ("output 0"): of the
              run that showed them
    formats   name of a value -> its type, where that is a half
    notes     what else to know
    """

    given: Sequence[Array]
    outputs: Sequence[Array]
    values: Mapping[str, Array]
    formats: Mapping[str, str]
    notes: tuple[str, ...] = ()


class _ExposingModule(torch.nn.Module):
    """A module that returns its outputs and what each of its innermost modules gave, in lists by name.

    With `inputs`, what each was given too, unless it is what another gave or was given just before.
    """

    def __init__(self, module: torch.nn.Module, inputs: bool) -> None:
        super().__init__()
        self.module = module
        self.seen: dict[str, list[torch.Tensor]] = {}
        self.last: deque[tuple[torch.Tensor, int]] = deque(maxlen=4)  # shown of late, and how often changed in place
        innermost = {name: m for name, m in module.named_modules() if name and not list(m.children())}
        self.hooks = [m.register_forward_hook(self._watch(name)) for name, m in innermost.items()]
        if inputs:
            enter = {m: self._watch_input(name) for name, m in innermost.items()}
            self.hooks += [m.register_forward_pre_hook(hook, with_kwargs=True) for m, hook in enter.items()]

    def _watch(self, name: str) -> Any:
        def hook(_: Any, __: Any, output: Any) -> None:
            self._show(name, output.clone() if isinstance(output, torch.Tensor) else output)  # it may be overwritten
            self._remember(output)

        return hook

    def _watch_input(self, name: str) -> Any:
        def hook(module: torch.nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
            what = [*given, *named.values(), *vars(module).values()]  # it may read what it keeps
            tensors = [t for t in what if isinstance(t, torch.Tensor)]
            alone = tensors[0] if len(tensors) == 1 else None
            if alone is None or any(alone is t and t._version == version for t, version in self.last):
                self._show(f"{name} input", None)  # of a layer that is called twice, the other one is not its input
            else:
                self._show(f"{name} input", alone.clone())
                self._remember(alone)

        return hook

    def _show(self, name: str, value: Any) -> None:
        """Enter a value of this name; a name with several shows none."""
        self.seen[name] = [*self.seen.get(name, []), value]

    def _remember(self, value: Any) -> None:
        """Keep what was shown as it is, to know it again; under inference_mode nothing says whether it changed."""
        if isinstance(value, torch.Tensor) and not torch.compiler.is_compiling() and not value.is_inference():
            self.last.append((value, value._version))

    def forward(self, *inputs: torch.Tensor) -> Any:
        self.seen.clear()
        result = self.module(*inputs)
        self.last.clear()
        return result, dict(self.seen)


def observe_module(model: Model, inputs: Sequence[Array], *, compiled: bool = False) -> ObservedModule:
    """Run a PyTorch module in this process, on the device that it is on, and return what it and its layers gave.

    ParameterError if it does not run on these inputs, or returns something other than tensors.

    compiled   run what torch.compile makes of it, and for the layers of the module that returns their values too; what
               layers are given is not shown: a compiled reader may hold more digits of it than are stored
    """
    module: torch.nn.Module = model.source
    half = half_type(module)
    place = next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))
    tensors = [t.to(place) for t in tensors_of(inputs, half)]

    def run(what: torch.nn.Module) -> Any:
        try:
            with torch.no_grad():
                return (torch.compile(what) if compiled else what)(*[t.clone() for t in tensors])
        except Exception as error:  # of the user's program
            text = " ".join(f"{model.title} does not run on these inputs: {type(error).__name__}: {error}".split())
            raise ParameterError("audit", f"{text:.300}", rule="P5") from error

    outputs = leaves(run(module)) if compiled else None
    exposing = _ExposingModule(module, inputs=not compiled)
    try:
        result, seen = run(exposing)
    finally:
        for hook in exposing.hooks:
            hook.remove()
        if compiled:
            torch.compiler.reset()
    values = {n: g[0] for n, g in seen.items() if len(g) == 1 and isinstance(g[0], torch.Tensor)}
    ends = leaves(result)
    outputs = ends if outputs is None else outputs
    if other := [t for t in outputs if not isinstance(t, torch.Tensor)]:
        text = f"the module must return tensors; got {other[0]!r:.100} among them"
        raise ParameterError("audit", text, rule="P5")
    values |= {f"output {k}": t for k, t in enumerate(ends)}
    formats = {n: HALVES[t.dtype] for n, t in values.items() if t.dtype in HALVES}
    notes = tuple(
        f"input {name} was converted from {a.dtype} to {HALVES[half]}"
        for name, a in zip(model.names, inputs, strict=False)
        if half is not None and a.dtype.kind == "f" and a.dtype.name != HALVES[half]
    )
    seen_values = dict(zip(values, numbers_of(list(values.values())), strict=True))
    return ObservedModule(numbers_of(tensors), numbers_of(outputs), seen_values, formats, notes)


def module_run(model: Model, observed: ObservedModule) -> ModelRun:
    """Return what was observed of a PyTorch module as a run of its graph: a layer's value is that of its one node that
    is read elsewhere, its input the one node that it reads; what stands behind the last layers is judged as an output.

    ParameterError if it gave another number of outputs than its graph has.
    """
    graph = model.graph_for(observed.given, "audit")
    if len(observed.outputs) != (count := len(graph.output_positions)):
        text = f"{len(observed.outputs)} outputs were recorded; {model.title} has {count} at these inputs"
        raise ParameterError("recorded", text)
    ends = _ends_of_groups(graph)
    shown = {p for name, p in ends.items() if name in observed.values} | set(graph.input_positions)
    ends |= {f"output {k}": p for k, p in enumerate(graph.output_positions) if p not in shown}
    shown |= {p for name, p in ends.items() if name in observed.values}
    ends |= {name: p for name, p in _starts_of_groups(graph).items() if p not in shown}
    values = {n: a for n, a in observed.values.items() if n in ends and graph.nodes[ends[n]].shape == a.shape}
    layers = dict(sorted(((n, ends[n]) for n in values), key=lambda item: item[1]))
    known = {p: values[n] for n, p in layers.items()} | dict(zip(graph.input_positions, observed.given, strict=True))
    answer = ProcessResult("answers", tuple(observed.outputs))
    return ModelRun(model.title, graph, known, layers, answer, observed.notes, formats=model.formats(graph))


def _ends_of_groups(graph: Graph) -> dict[str, int]:
    """Return the node of each group that is read outside of it; groups of which several are have none.

    A layer that keeps a second value for others, or that is called twice, does not show which of them it gave.
    """
    readers = [(a, node.group) for node in graph.nodes for a in node.operands()]
    read = {a for a, group in readers if graph.nodes[a].op is not CONSTANT and graph.nodes[a].group != group}
    ends: dict[str, list[int]] = {}
    for p in sorted(read | set(graph.output_positions)):
        ends.setdefault(graph.nodes[p].group, []).append(p)
    return {group: positions[0] for group, positions in ends.items() if len(positions) == 1}


def _starts_of_groups(graph: Graph) -> dict[str, int]:
    """Return the node of numbers that each group reads of others, as "name input"; groups that read several have
    none.
    """
    reads: dict[str, set[int]] = {}
    for node in graph.nodes:
        others = {a for a in node.operands() if graph.nodes[a].group != node.group}
        reads.setdefault(node.group, set()).update(a for a in others if graph.nodes[a].op is not CONSTANT)
    starts = {f"{group} input": min(positions) for group, positions in reads.items() if len(positions) == 1}
    return {name: p for name, p in starts.items() if graph.nodes[p].kind == "real"}


def module_digest(model: Model) -> dict[str, Any]:
    """Return {name, sha256, data}: the digest of a PyTorch module's parameters and buffers, by name, type, shape and
    cells; its code is not in it.
    """
    digest = hashlib.sha256()
    for name, tensor in (*model.source.named_parameters(), *model.source.named_buffers()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        cells = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(memoryview(cells.view(torch.uint8).numpy()))
    return {"name": model.title, "sha256": digest.hexdigest(), "data": {}}
