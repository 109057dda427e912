"""A graph as a table: name, operator, shape, parameters, multiply-adds, receptive field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from specgrad.op import COMPOSITIONS, is_literal
from specgrad.window import Window, size_at
from specgrad.window.receptive_field import CELL, ReceptiveField, through, union

from ..ir.node import CONSTANT, INPUT, Node, NumberArg, Program
from ..ir.tree import is_branch, leaves

Field = tuple[ReceptiveField | None, ...] | None  # per trailing axis; None: does not depend on the data


def describe(params: dict[str, Any]) -> str:
    """Return parameters as short text: a window as k3 s2 p1, defaults left out.

    >>> describe({"groups": 1, "axis": 1})
    'axis=1'
    """
    words = []
    for name, value in params.items():
        if isinstance(value, Window):
            words.append(str(value))
        elif name != "empty" and (name, value) not in (("groups", 1), ("divisor", "padded")):
            text = _text(value)
            words.append(f"{name}={text if len(text) <= 28 else text[:25] + '...'}")
    return " ".join(words)


def _text(value: Any) -> str:
    """Return a value as text: a tuple without spaces, a fraction as 16/13."""
    return f"({','.join(map(_text, value))}{',' * (len(value) == 1)})" if isinstance(value, tuple) else str(value)


def data_inputs(graph: Program) -> set[int]:
    """Return the positions of data inputs: bare arguments are data, structures hold parameters."""
    return {p for tree in graph.inputs for p in leaves(tree) if not is_branch(tree)}


def _field(node: Node, nodes: Sequence[Node], fields: list[Field]) -> Field:
    """Return the receptive field of a node from the `fields` of its operands; `nodes` are all of the graph."""
    reaches = node.op.receptive_field(*(nodes[a].shape if isinstance(a, int) else () for a in node.args), **node.params)
    result: Field = None
    for a in node.operands():
        inner = fields[a]
        if inner is None:
            continue
        count = min(len(reaches), len(inner))
        pairs = zip(reaches[len(reaches) - count :], inner[len(inner) - count :], strict=True)
        seen = tuple(None if outer is None or i is None else through(outer, i) for outer, i in pairs)
        if result is None:
            result = seen
        else:
            count = min(len(result), len(seen))
            tails = zip(result[len(result) - count :], seen[len(seen) - count :], strict=True)
            result = tuple(union(p, q) for p, q in tails)
    return result


def receptive_fields(nodes: Sequence[Node], data: set[int]) -> list[Field]:
    """Return, per node of `nodes`, what one of its cells depends on in the data, per trailing axis (None: nothing)."""
    fields: list[Field] = []
    for i, node in enumerate(nodes):
        if node.op is INPUT:
            fields.append((CELL,) * len(node.shape) if i in data else None)
        else:
            fields.append(None if node.op is CONSTANT else _field(node, nodes, fields))
    return fields


def _field_text(node: Node, field: Field) -> str:
    """Return the receptive field of a node as text, such as 3x3, its last axes.

    "all" if it covers the last; "" for none.
    """
    if field is None or node.op is INPUT or "(" in node.group:
        return ""  # a derivative depends on the cotangents as well: no field of the data says it all
    if not field or field[-1] is None:
        return "all"
    known = []
    for r in reversed(field):
        if r is None:
            break
        known.append(str(r.width))
    return "x".join(reversed(known))


def multiply_adds(node: Node, nodes: Sequence[Node]) -> int:
    """Return the number of multiply-adds of one node; `nodes` are all of its graph."""
    if node.op in (INPUT, CONSTANT):
        return 0
    return node.op.multiply_adds(
        *(() if isinstance(a, NumberArg) else nodes[a].shape for a in node.args), **node.params
    )


def _number(n: int) -> str:
    """Return n with separators, "" for 0."""
    return f"{n:,}" if n else ""


Row = tuple[str, str, str, str, str, str]
HEADER: Row = ("name", "operator", "shape", "parameters", "multiply-adds", "receptive field")


def _parameters(nodes: Sequence[Node], data: set[int], fields: list[Field]) -> list[set[int]]:
    """Return, per node of `nodes`, the parameters that it uses: those that reach it without meeting the data.

    `data` are positions of the data inputs, `fields` the receptive fields.
    """
    seen: list[set[int]] = []
    for i, node in enumerate(nodes):
        if node.op in (INPUT, CONSTANT):
            seen.append({i} if node.kind == "real" and i not in data else set())
        else:
            seen.append(set().union(*(seen[a] for a in node.operands() if fields[a] is None)))
    return seen


def layer_text(members: list[Node]) -> str:
    """Return the operator of a layer's nodes `members`, or their composition with those operators in it that have
    settings.
    """
    last = members[-1]
    derivative = "(" in last.group
    if len(members) == 1 and (derivative or last.group == last.name):
        return f"{last.op.name} {describe(last.params)}".rstrip()
    if derivative:
        text = " + ".join(dict.fromkeys(m.op.name for m in members))
    else:
        text = last.group.rpartition(".")[2].rstrip("0123456789").rstrip("_")
        is_known = text in COMPOSITIONS
        text = _only_composition(members if is_known else _computing(members)) or (text if is_known else "")
        settings = [f"{m.op.name} {w}" for m in members if (w := describe(_choices(m)))]
        if not text:  # the user's name of the layer: what it computes is said instead
            settings = [f"{m.op.name} {describe(_choices(m))}".rstrip() for m in _computing(members)]
        choices = ", ".join(dict.fromkeys(settings))
        text = choices if not text or choices.startswith(f"{text} ") else f"{text}: {choices}" if choices else text
    return text if len(text) <= 48 else f"{text[:45].rpartition(' ')[0]} ..."  # between words: no number is cut


def _only_composition(members: list[Node]) -> str:
    """Return the name of the composition whose parts all nodes of a named layer are, bn1 being a batch_norm; or ""."""
    inner = {m.name[len(m.group) + 1 :].rpartition(".")[0].partition(".")[0] for m in members}
    return inner.pop() if len(inner) == 1 and inner <= COMPOSITIONS else ""


def _computing(members: list[Node]) -> list[Node]:
    """Return the nodes of a layer that do more than move cells; all of them if there is none."""
    return [m for m in members if not (m.op.exact and m.op.linear)] or members


def _choices(node: Node) -> dict[str, Any]:
    """Return the settings that no shape shows: a window, how ties are broken, an exponent."""
    free = not node.op.linear  # a linear map is what its shapes and its layer's name say
    words = {k: v for k, v in node.params.items() if isinstance(v, Window) or (free and isinstance(v, str))}
    return words | {k: v for k, v in node.params.items() if free and not node.op.exact and is_literal(v)}


def rows(graph: Program, *, detail: bool = False, every: Sequence[Node] | None = None) -> tuple[list[Row], str]:
    """Return one row per layer (`detail`: per node) that depends on the data, and a line of totals; `every` are nodes
    to show in place of the graph's.
    """
    nodes = graph.nodes if every is None else every
    named, at = _open_sizes(graph)
    data = data_inputs(graph)
    fields = receptive_fields(nodes, data)
    parameters = _parameters(nodes, data, fields)
    layers: dict[str, list[int]] = {}
    for i, node in enumerate(nodes):
        if i in data or (fields[i] is not None):
            layers.setdefault(node.name if detail else node.group, []).append(i)
    counted: set[int] = set()
    per_layer, total = [], 0
    for layer, members in layers.items():
        own = set().union(*(parameters[i] for i in members)) - counted
        counted |= own
        macs = sum(multiply_adds(nodes[i], nodes) for i in members)
        total += macs
        last = nodes[members[-1]]
        cells = sum(math.prod(nodes[p].shape) for p in own)
        shape = "x".join(map(str, named.get(last.name, last.shape))) or "scalar"
        text = _field_text(last, fields[members[-1]])
        per_layer.append((layer, layer_text([nodes[i] for i in members]), shape, _number(cells), _number(macs), text))
    cells = sum(math.prod(nodes[p].shape) for p in counted)
    count = sum(1 for members in layers.values() if nodes[members[0]].op is not INPUT)
    layers_text = "1 layer" if count == 1 else f"{count} layers"
    return per_layer, f"{layers_text}, {len(nodes)} nodes, {cells:,} parameters, {total:,} multiply-adds{at}"


def _open_sizes(graph: Program) -> tuple[dict[str, Any], str]:
    """Return shapes with names for symbolic sizes, by node, and the sizes used for counts as text."""
    opened = getattr(graph, "open", None)
    if opened is None:
        return {}, ""
    at = ", ".join(f"{name}={n}" for name, n in opened.defaults.items())
    return {n.name: [_one_word(s, opened.defaults) for s in n.shape] for n in opened.program.nodes}, f" at {at}"


def open_shapes(graph: Program) -> dict[str, Any]:
    """Return shapes with names for symbolic sizes, by node; {} if no size is symbolic."""
    return _open_sizes(graph)[0]


def _one_word(size: Any, defaults: dict[str, int]) -> str:
    """Return a size as one word; a long expression as its value at the default sizes, in brackets."""
    return f"({size_at(size, defaults)})" if " " in str(size) or "/" in str(size) else str(size)


def table(graph: Program, *, detail: bool = False, every: Sequence[Node] | None = None) -> str:
    """Return the graph as a text table; parameters stand in the row of the layer that uses them first.

    Parameters
    ----------
    graph : Graph
        The network.
    detail : bool, default False
        A row per operator, not per layer.
    every : sequence of Node, optional
        Nodes to show in place of the graph's.

    Returns
    -------
    str
        Name, operator, shape, parameters, multiply-adds and receptive field of every row.

    Examples
    --------
    >>> import specgrad as sg
    >>> print(table(sg.trace(lambda x: sg.avg_pool(x, (2,)), (1, 6))))
    name      operator        shape  parameters  multiply-adds  receptive field
    ---------------------------------------------------------------------------
    x         input             1x6
    avg_pool  avg_pool k2 s2    1x3                                           2
    1 layer, 2 nodes, 0 parameters, 0 multiply-adds
    """
    body, total = rows(graph, detail=detail, every=every)
    everything = [HEADER, *body]
    widths = [max(len(row[c]) for row in everything) for c in range(6)]

    def line(row: Row) -> str:
        cells = (t.ljust(w) if c < 2 else t.rjust(w) for c, (t, w) in enumerate(zip(row, widths, strict=True)))
        return "  ".join(cells).rstrip()

    rule = "-" * (sum(widths) + 10)
    return "\n".join([line(HEADER), rule, *map(line, body), total])
