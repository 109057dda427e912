"""Turn a differing layer of a model into a minimal script, if the runtime also fails on the layer alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from specgrad.graph.graph import CONSTANT, Graph, Node, NumberArg
from specgrad.process import Process, ProcessResult
from specgrad.scalar import Array
from specgrad.window import Window

from ..cases.op_case import OPERATORS, OpCase
from ..cases.shrink import shrink
from ..conform.conformance import BAD
from ..conform.repro_script import reproduction
from ..models.model_run import ModelRun
from ..runtimes import Runtime
from ..verdicts.arithmetic_classes import Probe
from ..verdicts.probe import LayerProbe
from ..verdicts.run_case import RuntimeExaminer, arithmetic_of


def _case_attributes(node: Node) -> dict[str, Any] | None:
    """Return the attributes of a test case (OpCase) for this node; None if no case can say what it does."""
    if node.op.name not in OPERATORS:
        return None
    if not node.op.param_names:
        return {}
    window = node.params.get("window")
    if not isinstance(window, Window) or not node.op.param_names <= {"window", "groups", "divisor"}:
        return None
    attributes = window.attributes()
    if attributes is None:
        return None
    if "groups" in node.params:
        attributes = {k: attributes[k] for k in ("stride", "padding", "dilation")} | {"groups": node.params["groups"]}
        more = {"output_padding": window.output_padding() or 0} if node.op.reads == "transpose" else {}
        return attributes | more
    if "divisor" in node.params:
        rule = node.params["divisor"]
        attributes = {k: attributes[k] for k in ("kernel", "stride", "padding", "ceil")}
        attributes |= {"inside": {"count_include_pad": False}, "padded": {}}.get(rule, {"divisor": rule})
    return attributes


def _argument_values(graph: Graph, node: Node, deployed: ModelRun) -> list[Array] | None:
    """Return the arguments of the node in the run `deployed`: the runtime's values, and constants; None if some are
    unknown.
    """
    values: list[Array] = []
    for a in node.args:
        if isinstance(a, NumberArg):
            return None
        value = graph.constants[a] if graph.nodes[a].op is CONSTANT else deployed.known.get(a)
        if value is None:
            return None
        values.append(np.asarray(value, np.float32))
    return values


def case_of(deployed: ModelRun, position: int) -> OpCase | None:
    """Return the layer at `position` alone, on the values it got in the run `deployed`, as a test case.

    None if it is more than one operator.
    """
    node = deployed.graph.nodes[position]
    attributes, values = _case_attributes(node), _argument_values(deployed.graph, node, deployed)
    if attributes is None or values is None:
        return None
    names = ("x", "w", "b") if node.op.param_names else ("x", "z")
    return OpCase(node.op.name, attributes, dict(zip(names, values, strict=False)), data="from the model")


def probe_of(deployed: ModelRun, position: int, runtime: Runtime) -> Probe | None:
    """Return a probe that runs the layer at `position` alone; None if it is more than one operator, or no file was
    run.
    """
    question = case_of(deployed, position) if runtime.model else None
    if question is None:
        return None

    def ask(again: OpCase) -> ProcessResult:
        with Process(environment=runtime.environment) as process:
            return RuntimeExaminer(runtime, process).answer(again)

    return LayerProbe(question, ask, arithmetic_of(runtime), deployed.known[position])


def reproduce(deployed: ModelRun, position: int, runtime: Runtime, seconds: float = 20) -> str:
    """Return a minimal script of the fault of the layer at `position` of the run `deployed`; "" if the layer alone does
    not show it within `seconds`.
    """
    question = case_of(deployed, position)
    if question is None:
        return ""
    with Process(environment=runtime.environment) as process:
        examiner = RuntimeExaminer(runtime, process)
        verdict = examiner.ask(question)
        if verdict.kind not in BAD:
            return ""
        small = shrink(question, lambda q: examiner.ask(q).same_sort(verdict), seconds=seconds)
        return reproduction(small, runtime, examiner.ask(small))
