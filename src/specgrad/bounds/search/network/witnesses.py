"""Confirm counterexamples: every runtime that the user could mean is run, and compared with what is proven.

Our own engine finds an input; it is no witness by itself. A counterexample stands if

    what is proven of every execution at that input (specgrad.bounds.search.network.point_enclosure) does not exclude
    it. A run that it excludes contradicts a proof: one of them is false, and a ContradictionError says so
    everybody was asked: the PyTorch module that was given, and ONNX Runtime on the file that was given, or on the graph
    written as one. Who disagrees, by rounding alone, is told with the counterexample
    where nothing is proven of the outputs, another runtime breaks the property too, or the exact outputs do
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from specgrad.errors import ContradictionError, SpecgradError, need
from specgrad.process import Process, onnxruntime_program
from specgrad.properties.interface import PropertyInterface
from specgrad.properties.property import Case
from specgrad.rounding import Arithmetic
from specgrad.scalar import Array

from .merged_network import NamedNetwork, outputs_of
from .pgd_attack import Counterexample, DeployedNetwork, Run
from .point_enclosure import Enclosure, enclosed, rows_of

ENGINE = "torch"
NOT_ASKED_ABOUT = "its outputs are none of the executions that the question is about"
Runner = Callable[[NamedNetwork, Sequence[Array]], list[Array]]


class NoAnswerError(Exception):
    """Raised if a runtime gives no outputs, with the reason."""


def witnessed(question: Any, point: Counterexample, case: Case, arithmetic: Arithmetic | None) -> Counterexample | None:
    """Return the counterexample with all runtimes' answers; None if it does not stand.

    ContradictionError if a run lies outside what is proven of every execution.

    question     a specgrad.bounds.search.statement.problem.VerificationProblem
    arithmetic   the executions that it must be one of; None: float32, fused
    """
    asked = Arithmetic() if arithmetic is None else arithmetic
    runs = (*point.runs, *ask(question.networks, question.stated.interface, point, case))
    known = enclosed(question.graph, point.x, asked, rows_of(case))
    plain = Arithmetic()
    outside = [run for run in runs if run.y is not None and known.excludes(run.y)]
    for run in outside:  # of the class that was asked about; of the widest it must be
        hold(known if asked == plain else enclosed(question.graph, point.x, plain), run)
    runs = tuple(replace(r, breaks=False, reason=NOT_ASKED_ABOUT) if r in outside else r for r in runs)
    breaking = [r for r in runs if r.breaks]
    exactly = known.decides(case, point.point)
    if not breaking or not (known.is_bounded or exactly or any(r.who != ENGINE for r in breaking)):
        return None
    y = breaking[0].y
    assert y is not None
    return _with_names(replace(point, y=y, runs=runs, exactly=exactly), question.stated.interface)


def hold(known: Enclosure, run: Run) -> None:
    """Raise ContradictionError if a run lies outside `known`, which is proven of every execution."""
    if run.y is not None and (text := known.excludes(run.y)):
        raise ContradictionError(f"{run.who} computes {text} of every execution at the same input")


def held_run(network: DeployedNetwork, x: Any) -> Array:
    """Return our engine's outputs at an input, checked against what is proven.

    ContradictionError if they lie outside it.
    """
    y = network.run(np.asarray(x))
    hold(enclosed(network.graph, np.asarray(x)), Run(ENGINE, y, False))
    return y


def _with_names(point: Counterexample, interface: PropertyInterface | None) -> Counterexample:
    """Return the counterexample with inputs and outputs by the names of the property's `interface`; unchanged for
    None.
    """
    if interface is None:
        return point
    exact = interface.named(np.array(point.point, dtype=object), point.y)
    exact = {t.name: exact[t.name] for t in interface.inputs}
    return replace(point, named=interface.named(point.x, point.y), exact=exact)


# --- who is asked -----------------------------------------------------------------------------------------------------


def ask(
    networks: Sequence[NamedNetwork], interface: PropertyInterface | None, point: Counterexample, case: Case
) -> list[Run]:
    """Return what the given modules and ONNX Runtime give at the point, every network by itself.

    `interface` says which cells of the point each network reads; None: the only one reads all.
    """
    if not networks:
        return []
    interface = interface or PropertyInterface(tuple(range(point.x.size)))
    some = partial(_run_networks, networks, interface, point, case)
    modules = [some("module", _run_as_given)] if any(n.is_module for n in networks) else []
    return [*modules, some("onnxruntime", _run_onnxruntime)]


def _run_networks(
    networks: Sequence[NamedNetwork],
    interface: PropertyInterface,
    point: Counterexample,
    case: Case,
    who: str,
    runner: Runner,
) -> Run:
    """Run all networks at `point` on one runtime, called `who`; the Run says why if there are no outputs.

    It also says whether the outputs lie in `case`, that is, break the property. `runner` runs one network; `interface`
    says which cells are whose.
    """
    try:
        y = outputs_of(networks, interface, point.x, partial(_checked_outputs, runner))
    except (NoAnswerError, SpecgradError) as error:  # what ONNX has no words for is not run there
        return Run(who, None, False, str(error))
    return Run(who, y, case.contains(y, point.point))


def _checked_outputs(runner: Runner, network: NamedNetwork, inputs: Sequence[Array]) -> list[Array]:
    """Return a runner's outputs for `inputs`; raise NoAnswerError if their sizes are not the network's."""
    outputs = runner(network, inputs)
    if [y.size for y in outputs] != [int(np.prod(s)) for s in network.outputs]:
        text = f"{[y.shape for y in outputs]}, where the network has {network.outputs}"
        raise NoAnswerError(f"its outputs have shapes {text}")
    return outputs


def _run_as_given(network: NamedNetwork, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs of a network as it was given, for `inputs`: of the PyTorch module, or else by ONNX Runtime.

    NoAnswerError if there are none.
    """
    return (_run_module if network.is_module else _run_onnxruntime)(network, inputs)


def _run_module(network: NamedNetwork, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs of the PyTorch module for `inputs`, in float32; raise NoAnswerError if it fails."""
    import torch
    from torch.utils._pytree import tree_leaves

    module = network.source
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    try:
        with torch.no_grad():
            outputs = module(*(torch.tensor(x, dtype=torch.float32, device=device) for x in inputs))
        return [y.detach().cpu().numpy() for y in tree_leaves(outputs) if isinstance(y, torch.Tensor)]
    except Exception as error:  # it is another's code
        raise NoAnswerError(f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]) from error


def _run_onnxruntime(network: NamedNetwork, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs of ONNX Runtime for `inputs` in a process of its own, on the given file or on the graph
    written as ONNX.

    NoAnswerError if it is not installed, or gives none.
    """
    missing = [package for package in ("onnxruntime", "onnx") if find_spec(package) is None]
    if missing:
        raise NoAnswerError(f"{missing[0]} is not installed")
    data, names = _onnx_bytes(network)
    with Process(environment=onnxruntime_program.ENVIRONMENT) as process:
        answer = process.run(
            onnxruntime_program.PROGRAM, dict(zip(names, inputs, strict=True)), [np.frombuffer(data, np.uint8)]
        )
    if answer.outcome != "answers":
        raise NoAnswerError(f"it {answer.outcome}: {answer.reason}")
    return list(answer.arrays)


def _onnx_bytes(network: NamedNetwork) -> tuple[bytes, list[str]]:
    """Return an ONNX file as bytes, external data included, and the names of its inputs.

    ModelError for a file that cannot be read; refused: a graph that ONNX cannot state.
    """
    need("onnx", "ONNX files need")
    from specgrad.interop import to_onnx
    from specgrad.interop.onnx.file import BYTE_BUDGET, read_model, with_external_data

    model = network.source
    written = model is None or network.is_module
    loaded = to_onnx(network.graph) if written else with_external_data(*read_model(model, BYTE_BUDGET))
    initial = {t.name for t in loaded.graph.initializer}
    return loaded.SerializeToString(), [i.name for i in loaded.graph.input if i.name not in initial]
