"""Converters of If, Loop and Scan: the nodes that run, written out, where that is known while reading. And of operators
that ONNX itself defines by nodes.

The former yield nodes instead of returning values, and go on when these have been converted: whether a loop runs again
may depend on what they computed. The latter return a `Body`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ....errors import ShapeError, UnsupportedError
from ....ops.layout import axis_of
from ....scalar import Array
from ..file import ModelError, one_line, shown
from ..plain import sorted_nodes, write_defaults
from .importer import own_names, reads, subgraphs
from .node import Body, OnnxNode, operator

MAX_ITERATIONS = 500  # of one loop
MAX_WRITTEN = 5000  # nodes of all subgraphs, written out
VERSIONS = (16, 19, 21, 23, 24, 25)
KNOWN = "read where it is known while reading: computed from constants, shapes and fixed inputs"


def _copy_subgraph(
    c: OnnxNode, graph: onnx.GraphProto, given: Mapping[str, str], suffix: str, gives: Mapping[str, str] | None = None
) -> tuple[list[NodeProto], list[str]]:
    """Return the nodes of a subgraph under names of their own, and the names of its outputs.

    Refused: sparse and quantised constants.

    given   names of values outside for the names of its inputs
    suffix  of all names of its own; "": those that no other value has stay
    gives   names of values outside for names that its nodes compute
    """
    if len(graph.sparse_initializer) or len(graph.quantization_annotation):
        c.refuse("sparse_initializer and quantization_annotation of a subgraph are not honoured")
    importer = c.importer
    outer = {**given, **(gives or {})}
    names = {n: importer.names.unused(n, suffix) for n in own_names(graph) if n not in outer} | outer
    nodes = [_constant_node(t, names[t.name]) for t in graph.initializer if t.name not in given]
    for node in sorted_nodes(graph.node) or graph.node:
        copy = NodeProto()
        copy.CopyFrom(node)
        _rename(copy, names)
        copy.output[:] = [names.get(n, n) for n in node.output]
        copy.name = importer.node_names.unused(node.name, suffix) if node.name else ""
        nodes.append(copy)
    importer.written += len(nodes)
    if importer.written > MAX_WRITTEN:
        c.refuse(f"its subgraphs written out have more than {MAX_WRITTEN} nodes", None, UnsupportedError)
    outputs = [names.get(o.name, o.name) for o in graph.output]
    importer.used.update(name for node in nodes for name in reads(node))
    importer.used.update(outputs)
    return nodes, outputs


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename what a node reads, and what its subgraphs read from outside, by `names` (old -> new).

    ModelError if a subgraph's own input has a new name that it must read from outside.
    """
    node.input[:] = [names.get(n, n) for n in node.input]
    for inner in subgraphs(node):
        own = set(own_names(inner))
        outer = {k: v for k, v in names.items() if k not in own}
        for name in own & {outer[k] for each in inner.node for k in reads(each) if k in outer}:
            raise ModelError(
                f"an input of a subgraph is called {shown(name)}, as a value that it reads from far outside"
            )
        for each in inner.node:
            _rename(each, outer)
        for end in inner.output:
            end.name = outer.get(end.name, end.name)


def _constant_node(value: TensorProto | Array, name: str) -> NodeProto:
    """Return a node Constant that holds `value` and gives it the name `name`."""
    tensor = value if isinstance(value, TensorProto) else numpy_helper.from_array(value)
    return helper.make_node("Constant", [], [name], value=tensor)


def _identity_nodes(sources: Sequence[str], outputs: Sequence[str]) -> list[NodeProto]:
    """Return nodes that give the outputs, where they are used and of another name, the values of the sources."""
    pairs = [(source, name) for source, name in zip(sources, outputs, strict=False) if name not in ("", source)]
    return [helper.make_node("Identity", [source], [name]) for source, name in pairs]


def _check_counts(c: OnnxNode, graph: onnx.GraphProto, inputs: int, outputs: int, least: bool = False) -> None:
    """Refuse a subgraph with another number of inputs, or of outputs (`least`: with fewer)."""
    given = len(graph.input), len(graph.output)
    if given[0] != inputs or given[1] < outputs or (given[1] > outputs and not least):
        wanted = f"{inputs} inputs and {outputs} outputs"
        c.refuse(f"its subgraph has {given[0]} inputs and {given[1]} outputs; needed are {wanted}", None, ShapeError)


# --- If ---------------------------------------------------------------------------------------------------------------


@operator("If", 1, 11, 13, *VERSIONS, note=f"the branch taken; {KNOWN}")
def _if(c: OnnxNode) -> Iterator[list[NodeProto]]:
    """Yield the nodes of the branch that is taken. Which it is is noted in the importer's `decided`.

    Refused where that depends on inputs.
    """
    branches = {True: c.graph("then_branch"), False: c.graph("else_branch")}
    c.finish()
    holds = _is_true(c, c.input_name(0))
    taken = branches[holds]
    _check_counts(c, taken, 0, len(c.node.output))
    ends = {o.name: name for o, name in zip(taken.output, c.node.output, strict=True) if name}
    computed = {name for node in taken.node for name in node.output}
    nodes, outputs = _copy_subgraph(c, taken, {}, "", {n: name for n, name in ends.items() if n in computed})
    yield [*nodes, *_identity_nodes(outputs, c.node.output)]
    c.importer.decided.append(f"{c.title} takes {'then' if holds else 'else'}_branch")


# --- Loop and Scan ----------------------------------------------------------------------------------------------------


@operator(
    "Loop", 1, 11, 13, *VERSIONS, note=f"written out, at most {MAX_ITERATIONS} times; count and condition {KNOWN}"
)
def _loop(c: OnnxNode) -> Iterator[list[NodeProto]]:
    """Yield the nodes of each iteration, as long as the condition holds, then those that give the outputs.

    How often is noted in the importer's `decided`. Refused where that depends on inputs.
    """
    body = c.graph("body")
    c.finish()
    most = c.known_number(0, "the trip count") if c.has(0) else MAX_ITERATIONS + 1
    runs = _is_true(c, c.input_name(1)) if c.has(1) else True
    state = [c.input_name(i) for i in range(2, len(c.node.input))]
    _check_counts(c, body, 2 + len(state), 1 + len(state), least=True)
    rows: list[list[str]] = []
    if runs and _keeps_condition(body):
        _next_suffix(c, most - 1)  # too many are refused before the first
    while runs and len(rows) < most:
        suffix = _next_suffix(c, len(rows))
        count, flag = (c.importer.names.unused(f"{c.name}/{what}", suffix) for what in ("count", "condition"))
        given = dict(zip((i.name for i in body.input), (count, flag, *state), strict=True))
        nodes, results = _copy_subgraph(c, body, given, suffix)
        yield [_constant_node(np.array(len(rows), np.int64), count), _constant_node(np.array(True), flag), *nodes]
        runs = _is_true(c, results[0])
        state, kept = results[1 : 1 + len(state)], results[1 + len(state) :]
        rows.append(kept)
    yield _output_nodes(c, state, rows, [0] * (len(body.output) - 1 - len(state)))
    c.importer.decided.append(f"{c.title} is written out {len(rows)} times")


def _keeps_condition(body: onnx.GraphProto) -> bool:
    """Return whether the `body` of a loop hands its condition on as it came, so that only the count ends it."""
    same = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity" and node.input}
    name = body.output[0].name
    for _ in range(len(same)):
        name = same.get(name, name)
    return bool(name == body.input[1].name)


def _next_suffix(c: OnnxNode, count: int) -> str:
    """Return the suffix of the names of iteration number `count`; UnsupportedError if there are too many."""
    if count >= MAX_ITERATIONS:
        c.refuse(f"more than {MAX_ITERATIONS} iterations are not written out", None, UnsupportedError)
    return f"/{count}"


def _is_true(c: OnnxNode, name: str) -> bool:
    """Return the condition `name` as a bool; UnsupportedError if it is not known by now."""
    known = c.importer.constant_value(name) if name in c.importer.values else None
    if known is None or known.size != 1:
        text = "the condition depends on the input; an input that alone decides it can be fixed (--fix, fixed=)"
        c.refuse(text, None, UnsupportedError)
    return bool(known.reshape(-1)[0])


@operator(
    "Scan", 8, 9, 11, *VERSIONS, note=f"written out, at most {MAX_ITERATIONS} times; version 8 (a batch) is refused"
)
def _scan(c: OnnxNode) -> Iterator[list[NodeProto]]:
    """Yield the nodes of each iteration over the cells of the scanned axes, in order, then those that give the outputs.

    How often is noted in the importer's `decided`. Refused: version 8, and inputs of several lengths.
    """
    if c.version == 8:
        c.refuse("version 8, which has an axis of batches, is not supported", None, UnsupportedError)
    body, count = c.graph("body"), c.integer("num_scan_inputs")
    states = len(c.node.input) - count
    if not 0 < count <= len(c.node.input):
        c.refuse(f"num_scan_inputs={count} does not fit {len(c.node.input)} inputs", None, ShapeError)
    _check_counts(c, body, len(c.node.input), states, least=True)
    scanned = len(body.output) - states
    axes, backward = _per_input(c, "scan_input_axes", count), _per_input(c, "scan_input_directions", count)
    out_axes, reverse = _per_input(c, "scan_output_axes", scanned), _per_input(c, "scan_output_directions", scanned)
    c.finish()
    axes = [axis_of("scan_input_axes", a, len(c.shape(states + i))) for i, a in enumerate(axes)]
    lengths = {c.shape(states + i)[a] for i, a in enumerate(axes)}
    if len(lengths) != 1:
        c.refuse(f"its inputs must be equally long; got lengths {sorted(lengths)}", None, ShapeError)
    (length,) = lengths
    _next_suffix(c, length - 1)
    state, rows = [c.input_name(i) for i in range(states)], []
    for k in range(length):
        suffix = _next_suffix(c, k)
        cut, parts = [], []
        for i, axis in enumerate(axes):
            at, part = (c.importer.names.unused(f"{c.name}/{what}{i}", suffix) for what in ("position", "part"))
            cut.append(_constant_node(np.array(length - 1 - k if backward[i] else k, np.int64), at))
            cut.append(helper.make_node("Gather", [c.input_name(states + i), at], [part], axis=axis))
            parts.append(part)
        given = dict(zip((i.name for i in body.input), (*state, *parts), strict=True))
        nodes, results = _copy_subgraph(c, body, given, suffix)
        yield [*cut, *nodes]
        state = results[:states]
        rows.append(results[states:])
    rows = [[rows[length - 1 - k if back else k][i] for i, back in enumerate(reverse)] for k in range(length)]
    yield _output_nodes(c, state, rows, out_axes)
    c.importer.decided.append(f"{c.title} is written out {length} times")


def _per_input(c: OnnxNode, name: str, count: int) -> list[int]:
    """Return the attribute `name`, a number for each of `count` scanned inputs or outputs; 0 by default.

    Refused: another number of entries, and directions other than 0 and 1.
    """
    values = c.ints(name, [0] * count)
    if len(values) != count:
        c.refuse(f"{name}={values} must have {count} entries", None, ShapeError)
    if name.endswith("directions") and not set(values) <= {0, 1}:
        c.refuse(f"{name}={values} must be 0 or 1")
    return list(values)


def _output_nodes(
    c: OnnxNode, state: Sequence[str], rows: Sequence[Sequence[str]], axes: Sequence[int]
) -> list[NodeProto]:
    """Return the nodes that give the outputs: the last state, and what each iteration gave, behind each other.

    `state` names the last state, `rows` what each iteration gave, `axes` are those along which the latter are
    concatenated. The names of parts are marked as used. Refused: outputs whose shape is not known, as without any
    iteration.
    """
    nodes = _identity_nodes(state, c.node.output)
    for i, name in enumerate(c.node.output[len(state) :]):
        if name and not rows:
            c.refuse(f"no iteration gives {shown(name)}, so its shape is not known", None, UnsupportedError)
        if name:
            if rows[0][i] not in c.importer.values:
                c.refuse(f"the shape of what an iteration gives for {shown(name)} is not known", None, UnsupportedError)
            axis = axis_of("axis", axes[i], len(c.importer.values[rows[0][i]].shape) + 1)
            parts = [c.importer.names.unused(row[i], "/row") for row in rows]
            for row, part in zip(rows, parts, strict=True):
                nodes += _unsqueeze_nodes(c, row[i], part, axis)
            nodes.append(helper.make_node("Concat", parts, [name], axis=axis))
            c.importer.used.update(parts)
    return nodes


def _unsqueeze_nodes(c: OnnxNode, source: str, name: str, axis: int) -> list[NodeProto]:
    """Return the nodes that give the value `source` one more axis, under the new `name`, in the model's opset."""
    if c.importer.opset < 13:
        return [helper.make_node("Unsqueeze", [source], [name], axes=[axis])]
    axes = c.importer.names.unused(name, "/axes")
    return [
        _constant_node(np.array([axis], np.int64), axes),
        helper.make_node("Unsqueeze", [source, axes], [name]),
    ]


# --- operators that ONNX defines by nodes -----------------------------------------------------------------------------

BODIES: dict[str, tuple[int, ...]] = {
    "AffineGrid": (20,),
    "Attention": (23, 24, 25),
    "CastLike": (15, 19, 21, 23, 24, 25),
    "CausalConvWithState": (27,),
    "CenterCropPad": (18,),
    "LinearAttention": (27,),
    "MeanVarianceNormalization": (9, 13),
    "NegativeLogLikelihoodLoss": (12, 13, 22),
    "RMSNormalization": (23,),
    "RotaryEmbedding": (23,),
    "SoftmaxCrossEntropyLoss": (12, 13),
    "SwiGLU": (28,),
}
"""Operators that have no converter of their own, by the versions of which ONNX gives a body."""


def _by_body(c: OnnxNode) -> Body:
    """Return the nodes with which ONNX defines the node, as the package onnx writes them in place of a call.

    Refused: attributes that the operator does not have, blocked channels, and what the package does not write out.
    """
    schema: Any = onnx.defs.get_schema(c.node.op_type, c.importer.opset, "")
    for a in c.node.attribute:
        if a.name not in schema.attributes or a.type != int(schema.attributes[a.name].type) or a.ref_attr_name:
            c.refuse(f"attribute {shown(a.name)} is not honoured")
    if any(name in c.importer.blocks for name in c.node.input):
        c.refuse("inputs whose channels are stored in blocks are not supported", None, UnsupportedError)
    call = NodeProto()
    call.CopyFrom(c.node)
    call.domain = BODY
    write_defaults(call, (a.default_value for a in schema.attributes.values() if a.default_value.name))
    types = [
        helper.make_tensor_type_proto(c.elem_type(i), c.shape(i)) if name else onnx.TypeProto()
        for i, name in enumerate(call.input)
    ]
    inputs = {n: onnx.ValueInfoProto(name=n, type=t) for n, t in zip(call.input, types, strict=True) if n}
    ends = [helper.make_empty_tensor_value_info(name) for name in call.output if name]
    try:
        function = _body_function(schema, c.importer.opset, call, types)
        model = helper.make_model(
            helper.make_graph([call], "body", list(inputs.values()), ends),
            opset_imports=[helper.make_opsetid("", c.importer.opset), helper.make_opsetid(BODY, 1)],
            functions=[function],
        )
        body = onnx.inliner.inline_local_functions(model).graph
    except Exception as error:  # what the package raises is not documented
        c.refuse(f"onnx does not write it out: {one_line(str(error))}", None, UnsupportedError)
    nodes, outputs = _copy_subgraph(c, body, {name: name for name in inputs}, "/body")
    return Body(nodes, outputs)


BODY = "specgrad.body"  # a domain that no operator has


def _body_function(schema: Any, opset: int, call: NodeProto, types: Sequence[onnx.TypeProto]) -> onnx.FunctionProto:
    """Return the body of an operator as a function of domain BODY, for a `call` with inputs of these types.

    LookupError if ONNX gives none at this opset.
    """
    dependent = schema.has_context_dependent_function
    known = schema.context_dependent_function_opset_versions if dependent else schema.function_opset_versions
    version = max((v for v in known if v <= opset), default=None)
    if version is None:
        raise LookupError(f"no body of it at opset {opset}")
    if dependent:
        node = NodeProto()
        node.CopyFrom(call)
        node.domain = ""
        given = [t.SerializeToString() for t in types]
        data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), given)
    else:
        data = schema.get_function_with_opset_version(version)
    function: onnx.FunctionProto = onnx.FunctionProto.FromString(data)
    function.domain, function.name = BODY, call.op_type
    for opsets in function.opset_import:
        opsets.version = opset
    return function


for _name, _versions in BODIES.items():
    operator(_name, *_versions, note="by the nodes with which ONNX defines it; one layer")(_by_body)
