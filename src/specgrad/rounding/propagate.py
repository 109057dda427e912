"""Propagates balls through a whole graph, node by node.

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import html_page
from ..deadline import check_time
from ..errors import ParameterError
from ..graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg, broadcast_back, order_of_use
from ..graph.ir.node import bind_inputs
from ..graph.ir.tree import Tree, transform, walk
from ..op import REGISTRY, Op, is_literal
from ..ops.elementwise import EQUAL, SELECT
from ..ops.layout import BROADCAST, RESHAPE, SUM
from ..ops.max_pool import AMAX
from ..scalar import upward
from . import selection
from .arithmetic import INTEGERS, Arithmetic, in_format
from .ball import Ball
from .context import ArithmeticVariant, Context, Kind, NodeContext, WholeCall, evaluator
from .layers.shares import shares_of
from .layers.statistics import statistics_of
from .rules import apply_rule
from .stated import deployment_of


@dataclass(frozen=True, eq=False)
class RadiusReport:
    """What is proven about every execution of a graph on given inputs.

    Attributes
    ----------
    outputs : Ball, or structure of them
        A Ball per output, in the graph's structure.
    nodes : mapping of str to Ball
        The Balls of the nodes that were asked for, by name.
    unbounded : tuple of str
        Names of nodes with a cell about which nothing is proven: overflow is possible, a divisor may be 0, ...
    undecided : tuple of str
        Names of nodes whose choice (a comparison, the winner of a maximum) rounding may change.
    roundings : int
        R: the most that a term of a sum, of nodes merged where the execution is fused, may meet.
    deployment : mapping of str to str
        The executions that all this holds for, in sentences.

    Examples
    --------
    >>> import specgrad as sg
    >>> from specgrad.rounding import radius
    >>> report = radius(sg.trace(lambda x: sg.exp(x), (1,)), np.array([1.0]), keep=True)
    >>> sorted(report.nodes), report.unbounded, report.undecided
    (['exp', 'x'], (), ())
    """

    outputs: Tree
    nodes: Mapping[str, Ball]
    unbounded: tuple[str, ...]
    undecided: tuple[str, ...]
    roundings: int = 0
    deployment: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        said = [" ".join(row) for row in self._rows()]
        said += [f"nothing is proven of {', '.join(self.unbounded[:3])}"] if self.unbounded else []
        return f"RadiusReport({', '.join(said)})"

    def _rows(self) -> list[tuple[str, str, str]]:
        """Return (name, shape, largest radius) of the outputs and of the nodes that were asked for, as text."""
        balls = [*walk(self.outputs, "output", lambda t: isinstance(t, Ball)), *self.nodes.items()]
        return [
            (name, "x".join(map(str, b.shape)) or "one number", f"within {upward(float(b.radius.max(initial=0.0)))}")
            for name, b in balls
        ]

    def _repr_html_(self) -> str:
        """Return the radii of outputs and nodes as HTML for notebooks."""
        said = [f"nothing is proven of a cell of {', '.join(self.unbounded[:5])}"] if self.unbounded else []
        head = ("value", "shape", "every execution, of the exact value")
        return html_page.fragment("unbounded" if self.unbounded else "bounded", said, head, self._rows())


def radius(
    graph: Graph,
    *inputs: Any,
    arithmetic: Arithmetic | None = None,
    backend: str = "numpy",
    keep: bool | Collection[str] = False,
    stored: Collection[str] = (),
    formats: Mapping[str, str] | None = None,
    way: ArithmeticVariant | None = None,
) -> RadiusReport:
    """Return the value of a graph, and how far from it any execution in `arithmetic` can be.

    Holds for every execution that `arithmetic.deployment` describes: in any order of summation, with or without fused
    multiply-add, nodes merged or not. Derivative graphs are graphs.

    Parameters
    ----------
    graph : Graph
        The network.
    *inputs : array_like or structure of arrays
        One per argument: exact where the arithmetic can store them, rounded once where not.
    arithmetic : Arithmetic, optional
        The executions meant; float32, fused, if not given (docs/reference/executions.md).
    backend : str, default "numpy"
        What computes the float64 reference: "numpy" (the specification) or "torch" (for real sizes).
    keep : bool or collection of str, default False
        True, or names of nodes: their Balls are in `nodes`.
    stored : collection of str, optional
        Names of nodes whose results the runtime is known to round and store: nothing is merged across them.
    formats : mapping of str to str, optional
        Name of a node -> the format it is computed in, where that is not the arithmetic's: "float16" (its sums in the
        arithmetic's format), "int32", "uint8", ... (exact, or wrapped). Nothing is merged across a change of format.
    way : ArithmeticVariant, optional
        A named class of executions that does something else (specgrad.rounding.arithmetic_variants).

    Returns
    -------
    RadiusReport
        Balls of the outputs, and names of what is not bounded.

    Raises
    ------
    ShapeError
        For arguments that do not fit the graph.
    ParameterError
        For names that no node has ([P5]).
    UnsupportedError
        For `formats` beside tensor cores, and beside casts that may be dropped.

    Examples
    --------
    >>> import specgrad as sg
    >>> mean = sg.trace(lambda x: sg.sum(x) / 3, (3,))
    >>> report = radius(mean, np.array([1.0, 2.0, 4.0]))
    >>> bool(2e-7 < report.outputs.radius < 2e-6)
    True
    """
    graph = graph.fitted(inputs)
    if way is not None:
        (arithmetic or Arithmetic()).check_plain(f"the variant {type(way).__name__}")
    if any(name not in INTEGERS for name in (formats or {}).values()):
        (arithmetic or Arithmetic()).check_plain("radius with formats=", "cores", "casts")
    run = replace(graph_context(graph, arithmetic or Arithmetic(), backend, stored=stored), way=way)
    run.formats = {i: formats[n.name] for i, n in enumerate(graph.nodes) if n.name in formats} if formats else {}
    wanted = {n.name for n in graph.nodes} if keep is True else set(keep or ())
    kept: dict[str, Ball] = {}
    unbounded: list[str] = []
    balls = _balls_of_nodes(graph, bind_inputs(graph, inputs), run, wanted, kept, unbounded)
    outputs = transform(lambda _, p: balls[p], graph.outputs)
    undecided = tuple(n.name for n in graph.nodes if n.name in run.undecided)
    run.arithmetic = arithmetic or Arithmetic()
    said = deployment_of(run.arithmetic, graph)
    return RadiusReport(outputs[0] if graph.single else outputs, kept, tuple(unbounded), undecided, run.roundings, said)


def _balls_of_nodes(
    graph: Graph,
    inputs: dict[int, Any],
    context: Context,
    wanted: set[str],
    kept: dict[str, Ball],
    unbounded: list[str],
) -> list[Any]:
    """Return the balls of all nodes, by position, from `inputs` by position; a ball is released after its last use
    (None).

    Those of layers named in `wanted` are put into `kept`; `context.arithmetic` is left as the last node's; names of
    nodes of infinite radius are appended to `unbounded`. TimeLimitError when the time is over.
    """
    last_use = {a: i for i, node in enumerate(graph.nodes) for a in node.operands()}
    outputs = set(graph.output_positions)
    balls: list[Any] = [None] * len(graph.nodes)
    general = context.arithmetic
    for i in order_of_use(graph):
        node = graph.nodes[i]
        check_time("rounding")
        context.arithmetic = in_format(general, context.formats.get(i, general.dtype))
        balls[i] = node_ball(graph, i, node, balls, inputs, context)
        if node.kind == "real" and np.isinf(balls[i].radius).any():
            unbounded.append(node.name)
        if node.name in wanted:
            kept[node.name] = replace(balls[i], expansion=None)  # which is twice as large
        for a in node.operands():
            if last_use[a] == i and a not in outputs:
                balls[a] = None
    return balls


def largest_nodes(graph: Graph) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Return nodes x == amax(x), as derivatives of maxima have them: position -> (position of x, axes).

    The maximum stands beside the cells that it is taken of; beside others the comparison is an ordinary one.
    """
    nodes = {}
    for i, node in enumerate(graph.nodes):
        if node.op is EQUAL and all(isinstance(a, int) for a in node.args):
            x, top = node.operands()
            chain = broadcast_back(graph, top, AMAX, x, (RESHAPE, BROADCAST))
            if chain is not None:
                nodes[i] = (x, graph.nodes[chain[0]].params["axes"])
    return nodes


def constant_nodes(graph: Graph) -> frozenset[int]:
    """Return the positions of nodes that depend on no input: a runtime may compute them while loading."""
    positions: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if node.op is not INPUT and all(a in positions for a in node.operands()):
            positions.add(i)
    return frozenset(positions)


def graph_context(
    graph: Graph, arithmetic: Arithmetic, backend: str, centred: bool = False, stored: Collection[str] = ()
) -> Context:
    """Return the context in which rules run on a graph, for the executions `arithmetic`.

    stored   names of nodes that the runtime is known to store; ParameterError if there is no such node
    backend  evaluates operators: "numpy" or "torch"
    centred  whether balls may be moved to the middle of their range
    """
    names = {n.name: i for i, n in enumerate(graph.nodes)}
    for name in stored:
        if name not in names:
            raise ParameterError("rounding", f"stored names {name!r}, which is no node of the graph", rule="P5")
    return Context(
        arithmetic,
        evaluator(backend),
        largest=largest_nodes(graph),
        constants=constant_nodes(graph),
        stored_nodes=frozenset(names[name] for name in stored),
        centred=centred,
        groups=() if centred else (statistics_of(graph), shares_of(graph)),
    )


def node_context(graph: Graph, i: int, constants: Collection[int]) -> NodeContext:
    """Return the context of node i for its rule: name, layer, position, and kinds of its arguments; `constants` are
    positions of constant nodes.
    """
    node = graph.nodes[i]
    kinds = tuple(_kind_of_argument(graph, a, constants) for a in node.args)
    sources = tuple(-1 - k if isinstance(a, NumberArg) else a for k, a in enumerate(node.args))
    return NodeContext(node.name, node.group, i, sources, kinds)


def whole_call(graph: Graph, i: int) -> WholeCall:
    """Return the call of node i, as the graph says it."""
    node = graph.nodes[i]
    shapes = tuple(() if isinstance(a, NumberArg) else graph.nodes[a].shape for a in node.args)
    return WholeCall(shapes, node.params, math.prod(node.shape))


def roots_of(graph: Graph, i: int) -> tuple[frozenset[int], ...]:
    """Return, per argument of node i, the nodes whose cells it copies; none for a number.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x, y: sg.concat([x, -y], axis=0) + 1, (2,), (3,))
    >>> [sorted(nodes) for nodes in roots_of(graph, len(graph.nodes) - 1)]
    [[0, 1], []]
    """
    return tuple(frozenset() if isinstance(a, NumberArg) else _copied(graph, a) for a in graph.nodes[i].args)


def _copied(graph: Graph, a: int) -> frozenset[int]:
    """Return the nodes of which node a holds cells, through nodes that only move cells or negate them."""
    ends: set[int] = set()
    seen, waiting = {a}, [a]
    while waiting:
        p = waiting.pop()
        node = graph.nodes[p]
        if node.op.exact and node.op.linear and node.args:
            waiting += [b for b in node.operands() if b not in seen]
            seen |= set(node.operands())
        else:
            ends.add(p)
    return frozenset(ends)


def _kind_of_argument(graph: Graph, a: int | NumberArg, constants: Collection[int]) -> Kind:
    """Return "constant", "input" or "computed" for an argument; `constants` are the positions of constant nodes."""
    if isinstance(a, NumberArg) or a in constants:
        return "constant"
    return "input" if graph.nodes[a].op is INPUT else "computed"


def continues_region(graph: Graph, i: int, context: Context) -> bool:
    """Return whether node i is linear with constants, so that a runtime may merge it with what it reads."""
    node = graph.nodes[i]
    if not context.arithmetic.fused or node.kind != "real" or not node.args:
        return False
    return node_context(graph, i, context.constants).linear_group(node.op, len(node.args)) is not None


def feeds_later_sum(graph: Graph, context: Context) -> frozenset[int]:
    """Return the positions of nodes whose value enters a later sum of their region, directly or through layout."""
    positions: set[int] = set()
    for i in reversed(range(len(graph.nodes))):
        node = graph.nodes[i]
        if continues_region(graph, i, context) and (not node.op.exact or i in positions):
            positions |= set(node.operands()) - context.stored_nodes
    return frozenset(positions)


def recomputed_per_reader(graph: Graph, context: Context) -> frozenset[int]:
    """Return the nodes with a cell that is read more than once, by a linear node among others: each reader may
    recompute it.

    Included are nodes that only such nodes read, or nodes of which several cells read one: they carry the whole
    deviation, and what is read below need not count as one error besides.

    >>> import specgrad as sg
    >>> w, run = np.ones((2, 2), np.float32), Context(Arithmetic(), evaluator("numpy"))
    >>> halves = sg.trace(lambda x: (lambda y: y[:1] * 2 + y[1:] * 3)(sg.linear(w, None, x)), (2,))
    >>> twice = sg.trace(lambda x: (lambda y: y * 2 + y * 3)(sg.linear(w, None, x)), (2,))
    >>> rows = sg.trace(lambda x: sg.broadcast(sg.linear(w, None, x) * 2, (3, 2)), (2,))
    >>> found = [(g, sorted(recomputed_per_reader(g, run))) for g in (halves, twice, rows)]
    >>> [[g.nodes[i].op.name for i in positions if g.nodes[i].args] for g, positions in found]
    [[], ['contract'], ['contract', 'mul', 'reshape']]
    """
    reads = [np.zeros((), int)] * len(graph.nodes)  # one number for all cells, as long as all are read alike
    linear: set[int] = set()
    for i, node in enumerate(graph.nodes):
        ranges = node.params["ranges"] if node.op.name == "slice" else ()
        for a in node.operands():
            if not ranges:
                reads[a] = reads[a] + 1
                continue
            if reads[a].shape != graph.nodes[a].shape:
                reads[a] = np.full(graph.nodes[a].shape, reads[a])
            reads[a][tuple(slice(*r) for r in ranges)] += 1
        if continues_region(graph, i, context):
            linear |= set(node.operands())
    for p in graph.output_positions:
        reads[p] = reads[p] + 1
    apart, candidates = set[int](), linear - context.stored_nodes
    not_carried: set[int] = set()  # by some reader
    for i in reversed(range(len(graph.nodes))):
        if i in candidates and (np.max(reads[i], initial=0) > 1 or i not in not_carried):
            apart.add(i)
        operands = linear & set(graph.nodes[i].operands())
        if operands and i not in apart and most_readers(graph, i) <= 1:
            not_carried |= operands
    return frozenset(apart)


def most_readers(graph: Graph, i: int) -> int:
    """Return the most cells of node i that read one cell of an argument."""
    node = graph.nodes[i]
    if node.op.readers is None:
        return math.prod(node.shape)
    shapes = (() if isinstance(a, NumberArg) else graph.nodes[a].shape for a in node.args)
    return node.op.readers(*shapes, **node.params)


def node_ball(graph: Graph, i: int, node: Node, balls: Any, inputs: dict[int, Any], context: Context) -> Ball:
    """Return the ball of node i, given those of the earlier nodes and `inputs`, both by position.

    `context.call` is set to this node's.
    """
    if node.op is INPUT or node.op is CONSTANT:
        return context.stored(inputs[i] if node.op is INPUT else graph.constants[i], index=node.kind == "index")
    integers = INTEGERS.get(context.formats.get(i, ""))
    roots = roots_of(graph, i) if context.arithmetic.stores else ()
    whole = whole_call(graph, i) if context.blocks else None
    context.call = replace(node_context(graph, i, context.constants), integers=integers, roots=roots, whole=whole)
    if i in context.largest:
        x, axes = context.largest[i]
        return selection.largest_rule(context, balls[x], axes)
    args = [context.stored(a.value) if isinstance(a, NumberArg) else balls[a] for a in node.args]
    for group in context.groups:
        args = group.arguments(context, i, node, args)
    rule = context.way.product if context.way is not None and (node.op.kernel or node.op.divides) else apply_rule
    ball = rule(context, node.op, args, node.params)
    for group in context.groups:
        ball = group.result(context, graph, i, node, args, ball)
    if context.way is not None and _ends_layer(graph, i):
        ball = context.way.stored(ball, i in graph.output_positions)
    return replace(ball, ends=(np.maximum(ball.low, 1.0), ball.high)) if _counts_largest(graph, node, context) else ball


def _ends_layer(graph: Graph, i: int) -> bool:
    """Return whether node i is the last of its layer, or an output."""
    group = graph.nodes[i].group
    return i in graph.output_positions or not any(n.group == group for n in graph.nodes[i + 1 :])


def _counts_largest(graph: Graph, node: Node, context: Context) -> bool:
    """Return whether `node` counts the largest cells, as the derivative of amax does: then its value is at least 1."""
    if node.op is not SUM:
        return False
    chosen = graph.nodes[node.operands()[0]]
    if chosen.op is not SELECT or chosen.args[1] not in context.largest or chosen.args[2] != NumberArg(1):
        return False
    x, axes = context.largest[chosen.args[1]]
    number = graph.nodes[chosen.args[0]] if isinstance(chosen.args[0], int) else None
    return axes == node.params["axes"] and number is not None and number.op is EQUAL and number.args == (x, x)


def local_radius(
    op: Op | Node | str, *args: Any, arithmetic: Arithmetic | None = None, backend: str = "numpy", **params: Any
) -> Ball:
    """Return the ball of one operator call on the given numbers.

    Parameters
    ----------
    op : Op, Node or str
        An operator, its name, or a node of a graph, which brings its parameters and Python numbers along; then args are
        the node's other arguments.
    *args : array_like
        The numbers that it is called with.
    arithmetic : Arithmetic, optional
        The executions meant; float32, fused, if not given (docs/reference/executions.md).
    backend : str, default "numpy"
        What evaluates it: "numpy" or "torch".
    **params : any
        Parameters of the operator, by name.

    Returns
    -------
    Ball
        The value and its radius.

    Raises
    ------
    ParameterError
        For parameters that the operator does not have.

    Examples
    --------
    >>> local_radius("add", np.float32([1.0]), np.float32([1e-9])).radius <= 2.0**-23
    array([ True])
    """
    if isinstance(op, Node):
        values = iter(args)
        args = tuple(a.value if isinstance(a, NumberArg) else next(values) for a in op.args)
        return local_radius(op.op, *args, arithmetic=arithmetic, backend=backend, **{**op.params, **params})
    record = REGISTRY[op] if isinstance(op, str) else op
    record.check_params(params)
    run = Context(arithmetic or Arithmetic(), evaluator(backend), call=NodeContext(record.name))
    index = [i in record.index_args or (record.kind == "same" and _is_index(a)) for i, a in enumerate(args)]
    return apply_rule(run, record, [run.stored(a, index=i) for a, i in zip(args, index, strict=True)], params)


def _is_index(x: Any) -> bool:
    """Return whether tracing would take x for positions: an array of integers."""
    return not is_literal(x) and getattr(x, "dtype", np.dtype(float)).kind == "i"
