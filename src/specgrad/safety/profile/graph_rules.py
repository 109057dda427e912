"""Profile rules about the graph: determinism, dead nodes, functions, control flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...interop.onnx.file import shown
from .model_view import ONNX_DOMAINS, Location, ModelView, NodeView
from .rule import Spot, rule
from .sources import GRAPH, ISSUES, NEEDS, REQS, STATUS

RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
CONTROL = ("If", "Loop", "Scan", "SequenceMap")
COUNTS = ("NonZero", "Unique", "Compress", "NonMaxSuppression")


@rule(
    "S3",
    "E",
    "REQ-OP-010; graph R2, R3",
    REQS,
    GRAPH,
    says="Deterministic operators only.",
)
def deterministic(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the nodes that give random numbers (S3)."""
    for node in view.of(*RANDOM):
        yield Spot(f"{node.operator} gives random numbers", node.at())
    for node in view.of("Dropout"):
        mode = view.array(node.input(2)) if node.input(2) else None
        if node.input(2) and (mode is None or mode.any()):
            yield Spot("Dropout in training mode drops at random", node.at())


@rule(
    "S15",
    "E",
    "graph R1, R2",
    GRAPH,
    says="No dead nodes: every node is needed by an output of the graph.",
    cure="--normalise leaves it out",
)
def alive(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the nodes that no output needs (S15)."""
    needed = needed_nodes(view.nodes, [str(o.name) for o in view.graph.output])
    for node in view.nodes:
        if node.index not in needed:
            yield Spot("no output of the graph needs it", node.at())


def needed_nodes(nodes: tuple[NodeView, ...], outputs: list[str]) -> set[int]:
    """Return the indices of those among `nodes` that some of `outputs`, names of values, depends on, in subgraphs
    too.
    """
    givers: dict[str, list[NodeView]] = {}
    for node in nodes:
        for name in filter(None, node.proto.output):
            givers.setdefault(str(name), []).append(node)
    todo, needed = list(outputs), set()
    while todo:
        for node in givers.pop(todo.pop(), ()):
            if node.index not in needed:
                needed.add(node.index)
                todo += list(reads(node))
    return needed


def reads(node: NodeView) -> Iterator[str]:
    """Yield the names that a node reads, in its subgraphs too."""
    todo = [node.proto]
    while todo:
        at = todo.pop()
        yield from map(str, filter(None, at.input))
        for attribute in at.attribute:
            for body in (attribute.g, *attribute.graphs):
                todo += list(body.node)
                yield from (str(o.name) for o in body.output)


@rule(
    "S16",
    "E",
    "graph C1-C3, T02a, T05e",
    GRAPH,
    says="Every input and every initializer is used, every value has one producer, names are unique, no node waits for "
    "itself, and every output is computed.",
)
def well_formed(view: ModelView) -> Iterator[Spot]:
    """Yield unused inputs and initializers, values with several producers, and nodes out of order (S16)."""
    used = {name for node in view.nodes for name in reads(node)} | {str(o.name) for o in view.graph.output}
    for info in view.inputs:
        if info.name not in used:
            yield Spot("no node reads this input", Location(value=str(info.name)), cure="leave it out of the interface")
    for name in view.initializers:
        if name not in used:
            yield Spot("no node reads this initializer", Location(value=name), cure="--normalise leaves it out")
    given = [str(i.name) for i in view.inputs] + [str(t.name) for t in view.graph.initializer]
    given += [str(name) for node in view.nodes for name in node.proto.output if name]
    for name, times in Counter(given).items():
        if times > 1:
            yield Spot(f"the value is given {times} times", Location(value=name))
    yield from _order_spots(view)


def _order_spots(view: ModelView) -> Iterator[Spot]:
    """Yield inputs that are not computed before their node, and outputs that are not computed."""
    there = {str(i.name) for i in view.graph.input} | set(view.initializers)
    everything = there | {str(name) for node in view.nodes for name in node.proto.output}
    for node in view.nodes:
        late = [str(n) for n in node.proto.input if n and n not in there]
        for name in late:
            text = (
                "is computed later: the graph has a circle or is out of order" if name in everything else "is not given"
            )
            yield Spot(f"its input {shown(name)} {text}", node.at(name))
        there |= set(map(str, node.proto.output))
    for info in view.graph.output:
        if info.name not in there:
            yield Spot("this output is not computed", Location(value=str(info.name)))


@rule(
    "S17",
    "E",
    "graph, section Functions; issues 1.2-1.4, 1.6",
    GRAPH,
    ISSUES,
    says="Functions are allowed where they can be expanded: no recursion, no overloads, no name of an ONNX operator.",
    cure="--normalise writes the nodes that a function stands for, where that is possible",
)
def functions(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the functions that cannot be expanded, overload, or replace an ONNX operator (S17)."""
    if view.onnx_result.inliner is not None:
        yield Spot(f"the functions of the file cannot be expanded: {view.onnx_result.inliner}")
    for f in view.model.functions:
        what = f"function {shown(f.domain)} {shown(f.name)}"
        if f.overload:
            yield Spot(f"{what} is an overload, {shown(f.overload)}")
        if f.domain in ONNX_DOMAINS:
            yield Spot(f"{what} takes the place of an ONNX operator")
    for node in view.model.graph.node:
        if node.overload:
            yield Spot(f"node {shown(node.name)} calls the overload {shown(node.overload)}")


@rule(
    "S18",
    "E",
    "REQ-OP-000; graph (capture of outer values is open)",
    REQS,
    GRAPH,
    STATUS,
    says="No control flow: If, Loop, Scan and SequenceMap are not in the set.",
)
def no_control_flow(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the control flow operators (S18)."""
    for node in view.of(*CONTROL):
        yield Spot(f"{node.operator} is control flow; what is inside it is not checked", node.at())


@rule(
    "S25",
    "W",
    "REQ-OP-023, REQ-OP-030 (to be discussed); needs AI-009, AI-010",
    REQS,
    NEEDS,
    says="Memory and time do not depend on the data: no operator whose result has a size that the values decide.",
)
def resources(view: ModelView) -> Iterator[Spot]:
    """Yield a spot for each of the nodes whose result has a size that depends on values (S25)."""
    for node in view.of(*COUNTS):
        yield Spot(f"the size of what {node.operator} gives depends on the values", node.at())
    for node in view.of("TopK"):
        if node.input(1) and view.array(node.input(1)) is None:
            yield Spot("k is computed from the data", node.at())
