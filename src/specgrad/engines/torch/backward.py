"""Derivatives in graphs for which PyTorch has one operator: where the nodes of a rule stand, it is called instead.

Three shapes of them. A convolution's cotangents of input, weight and bias are three nodes of one `gy`; those of a
normalisation by channels likewise; and the cotangent of an activation is a small tree, which is compared with what the
activation's own rule records, so that table and rules cannot drift apart. A match says the same as the nodes do,
wherever it comes from: nothing is assumed of how the graph was made. What then is read by nobody is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ...graph.graph import INPUT, Arg, Graph, Node, NumberArg
from ...graph.rules import rule_graphs
from ...op import REGISTRY
from ...window import Shape
from ..base import Plan, number
from .conv import conv_line, conv_transpose_line, conv_weight_line
from .doubling import on_tape

aten = torch.ops.aten


@dataclass(frozen=True)
class Call:
    """One call: its arguments are values at these positions, its results the nodes `gives`, None where unwanted."""

    name: str
    plan: Plan
    args: tuple[int, ...]
    gives: tuple[int | None, ...]

    @property
    def first(self) -> int:
        return min(p for p in self.gives if p is not None)


def backward_calls(graph: Graph) -> dict[int, Call]:
    """The call behind every node that is part of one; no node belongs to two."""
    users = _users(graph)
    calls: dict[int, Call] = {}
    for find in (_activations, _normalisations, _convolutions):
        for call in find(graph, users, calls):
            if all(a < call.first for a in call.args):  # it stands where the first of its nodes does
                calls.update((p, call) for p in call.gives if p is not None)
    return calls


def _users(graph: Graph) -> dict[int, list[int]]:
    users = defaultdict[int, list[int]](list)
    for i, node in enumerate(graph.nodes):
        for a in set(node.operands()):
            users[a].append(i)
    return users


# --- activations ------------------------------------------------------------------------------------------------------


def differentiated(*ts: Tensor) -> bool:
    """Whether a derivative is taken through this call: not all backward operators have one, nor a batching rule."""
    if on_tape(*ts):
        return True
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def _by_native(name: str, params: dict[str, Any]) -> Plan:
    """(gy, x or y) -> gx by PyTorch's operator; by the rule itself where that may not do."""
    native, rule, numbers = ACTIVATIONS[name], REGISTRY[name], {key: number(v) for key, v in params.items()}

    def plan(g: Tensor, v: Tensor) -> Any:
        if g.dtype == v.dtype and not differentiated(g, v):
            return native(g, v, **numbers)
        return rule.cotangents(g, v, [v], params)[0]  # the rule reads one of both

    return plan


# By the output where the rule can be asked of it too: the input then need not be kept. At a NaN PyTorch's kernels of
# relu6 and hardswish pass the cotangent or drop it, as the cell lies in a vector or behind the last one.
BY_OUTPUT: dict[str, Callable[..., Tensor]] = {
    "relu": lambda g, y: aten.threshold_backward.default(g, y, 0),
    "relu6": lambda g, y: aten.hardtanh_backward.default(g, y, 0, 6),
    "sigmoid": aten.sigmoid_backward.default,
    "tanh": aten.tanh_backward.default,
}
BY_INPUT: dict[str, Callable[..., Tensor]] = {
    "leaky_relu": lambda g, x, *, slope: aten.leaky_relu_backward.default(g, x, slope, False),
    "hardswish": aten.hardswish_backward.default,
    "silu": aten.silu_backward.default,
    "gelu": aten.gelu_backward.default,
}
ACTIVATIONS = {**BY_OUTPUT, **BY_INPUT}


@cache
def _rule(name: str, params: tuple[tuple[str, Any], ...]) -> Graph:
    """The cotangent rule as a graph of x0, y and gy."""
    return rule_graphs(REGISTRY[name], (1,), **dict(params))[1]


def _matches(rule: Graph, at: Arg, graph: Graph, position: Arg, stands_for: dict[str, int]) -> bool:
    """Whether the node at a position is that of a rule; `stands_for` says which values stand for the rule's inputs."""
    if isinstance(at, NumberArg) or isinstance(position, NumberArg):
        return at == position
    wanted, node = rule.nodes[at], graph.nodes[position]
    if wanted.op is INPUT:
        return stands_for.setdefault(wanted.name, position) == position
    if wanted.op is not node.op or wanted.params != node.params or len(wanted.args) != len(node.args):
        return False
    return all(_matches(rule, a, graph, b, stands_for) for a, b in zip(wanted.args, node.args, strict=True))


def _activations(graph: Graph, users: Any, taken: Any) -> Iterator[Call]:
    outputs = {(n.op.name, n.args, tuple(n.params.items())): i for i, n in enumerate(graph.nodes)}
    kinds = {(n.op.name, tuple(n.params.items())) for n in graph.nodes if n.op.name in ACTIVATIONS}
    rules = defaultdict[Any, list[Any]](list)
    for name, params in sorted(kinds, key=repr):
        rule = _rule(name, params)
        rules[rule.nodes[rule.output_positions[0]].op].append((name, params, rule))
    for i, node in enumerate(graph.nodes):
        for name, params, rule in rules.get(node.op, ()):
            stands_for: dict[str, int] = {}
            if not _matches(rule, rule.output_positions[0], graph, i, stands_for):
                continue
            read = stands_for.get("y", stands_for.get("x0", i))
            if name in BY_OUTPUT:
                read = outputs.get((name, (read,), params), read)
            if graph.nodes[read].shape == graph.nodes[stands_for["gy"]].shape == node.shape:
                plan = _by_native(name, dict(params))
                yield Call(f"{name}_backward", plan, (stands_for["gy"], read), (i,))


# --- normalisation by channels ----------------------------------------------------------------------------------------


def per_channel(graph: Graph, position: Arg, shape: Shape) -> int | None:
    """The (C,) vector v behind broadcast(reshape(v)) along axis 1; None if it is anything else."""
    if not isinstance(position, int) or graph.nodes[position].op.name != "broadcast" or len(shape) < 2:
        return None
    if graph.nodes[position].shape != shape:
        return None
    (vector,) = graph.nodes[position].operands()
    if graph.nodes[vector].shape != (1, shape[1], *(1,) * (len(shape) - 2)):
        return None
    while graph.nodes[vector].op.name == "reshape":
        (vector,) = graph.nodes[vector].operands()
    return vector if graph.nodes[vector].shape == (shape[1],) else None


def _sums_channels(node: Node, shape: Shape) -> bool:
    """Whether it leaves one number per channel. Rules do not sum along axes of size 1, as that of a batch of one."""
    others = {k for k, size in enumerate(shape) if k != 1 and size != 1}
    return node.op.name == "sum" and others <= set(node.params["axes"]) and 1 not in node.params["axes"]


def _with_sums(plan: Plan, graph: Graph, *sums: int | None) -> Plan:
    """Its last results, a number per channel each, in the shapes of the nodes `sums`: (C,), or with axes of size 1."""
    shapes = [None if p is None or len(graph.nodes[p].shape) == 1 else graph.nodes[p].shape for p in sums]
    if not any(shapes):
        return plan

    def shaped(*ts: Tensor) -> Any:
        results = plan(*ts)
        behind = (r if s is None else r.view(s) for r, s in zip(results[-len(shapes) :], shapes, strict=True))
        return (*results[: -len(shapes)], *behind)

    return shaped


def _normalisations(graph: Graph, users: dict[int, list[int]], taken: dict[int, Call]) -> Iterator[Call]:
    """g * scale and, over all but the channels, sum(g * (x - mean)) and sum(g): cotangents of (x - mean) * scale + b"""
    for g, read_by in list(users.items()):
        shape = graph.nodes[g].shape
        scaled, dotted, summed = [], [], []
        for i in (i for i in read_by if i not in taken):
            node = graph.nodes[i]
            if _sums_channels(node, shape):
                summed.append(i)
            elif node.op.name == "mul" and node.args[0] == g and len(shape) > 1:
                other = node.args[1]
                scale = per_channel(graph, other, shape)
                if scale is not None:
                    scaled.append((i, scale))
                elif isinstance(other, int) and graph.nodes[other].op.name == "sub":
                    x, mean = graph.nodes[other].args[0], per_channel(graph, graph.nodes[other].args[1], shape)
                    sums = [k for k in users[i] if _sums_channels(graph.nodes[k], shape)]
                    if len(sums) == 1 and isinstance(x, int) and graph.nodes[x].shape == shape and mean is not None:
                        dotted.append((sums[0], x, mean))
        for (gx, scale), (dot, x, mean) in zip(scaled, dotted, strict=False):
            total = summed.pop() if summed else None
            plan = _with_sums(batch_norm_backward, graph, dot, total)
            yield Call("batch_norm_backward", plan, (g, x, scale, mean), (gx, dot, total))


def batch_norm_backward(g: Tensor, x: Tensor, scale: Tensor, mean: Tensor) -> Any:
    """PyTorch's kernel with a variance of 1; the formula where a derivative is taken through it, for it has few."""
    alike = g.dtype == x.dtype == scale.dtype == mean.dtype and g.numel()
    if alike and not differentiated(g, x, scale, mean):
        one, wanted = torch.ones_like(mean), [True, True, True]
        return aten.native_batch_norm_backward.default(g, x, scale, mean, one, mean, one, False, 0.0, wanted)
    shape, others = (-1, *(1,) * (x.ndim - 2)), (0, *range(2, x.ndim))
    return g * scale.view(shape), (g * (x - mean.view(shape))).sum(others), g.sum(others)


# --- convolution ------------------------------------------------------------------------------------------------------


def _convolutions(graph: Graph, users: dict[int, list[int]], taken: dict[int, Call]) -> Iterator[Call]:
    """gx, gw and gb of one gy, for convolutions (gw reads gy second) and transposed ones (first)."""
    for gw, node in enumerate(graph.nodes):
        if node.op.name != "conv_weight":
            continue
        for transposed in (False, True):
            gy, x = node.args if transposed else reversed(node.args)
            call = _convolution(graph, users, taken, gw, gy, x, transposed)
            if call is not None:
                yield call
                break


def _convolution(
    graph: Graph, users: dict[int, list[int]], taken: dict[int, Call], gw: int, gy: Arg, x: Arg, transposed: bool
) -> Call | None:
    window, groups = graph.nodes[gw].params["window"], graph.nodes[gw].params["groups"]
    if not isinstance(gy, int) or not isinstance(x, int) or gw in taken:
        return None
    gx = gb = None
    w = gw
    back = "conv" if transposed else "conv_transpose"
    for i in (i for i in users[gy] if i not in taken):
        node = graph.nodes[i]
        if node.op.name == back and node.args[0] == gy and len(node.args) == 2 and isinstance(node.args[1], int):
            same = node.params == graph.nodes[gw].params and node.shape == graph.nodes[x].shape
            if same and graph.nodes[node.args[1]].shape == graph.nodes[gw].shape:
                gx, w = i, node.args[1]
        elif _sums_channels(node, graph.nodes[gy].shape):
            gb = i
    shapes = [graph.nodes[p].shape for p in (gy, x, gw)]
    plan = convolution_backward(*shapes, window=window, groups=groups, transposed=transposed)
    if plan is None or gx is None:
        return None
    return Call("convolution_backward", _with_sums(plan(gb is not None), graph, gb), (gy, x, w), (gx, gw, gb))


def convolution_backward(
    gy: Shape, x: Shape, w: Shape, *, window: Any, groups: int, transposed: bool
) -> Callable[[bool], Plan] | None:
    """(gy, x, w) -> gx, gw, gb in one call, where PyTorch takes this window; gb only where it is wanted."""
    steps = window.steps()
    extra = window.output_padding() if transposed else (0,) * window.rank
    padding = window.low_padding() if transposed else steps.padding
    if window.rank > 3 or len(x) != window.rank + 2 or extra is None or padding is None or 0 in (*gy, *x, *w):
        return None
    if not transposed and steps.ceil:
        return None
    settled = (steps.stride, padding, steps.dilation, transposed, extra, groups)
    params: Any = {"window": window, "groups": groups}
    back = conv_line(gy, w, **params) if transposed else conv_transpose_line(gy, w, **params)
    weigh = conv_weight_line(*((gy, x) if transposed else (x, gy)), **params)
    others = (0, *range(2, len(x)))

    def with_bias(bias: bool) -> Plan:
        sizes, wanted = [gy[1]] if bias else None, [True, True, bias]

        def plan(g: Tensor, t: Tensor, v: Tensor) -> Any:
            if g.dtype == t.dtype == v.dtype and not torch.is_autocast_enabled(g.device.type):
                return aten.convolution_backward.default(g, t, v, sizes, *settled, wanted)
            gw = weigh(g, t) if transposed else weigh(t, g)
            return back(g, v), gw, g.sum(others) if bias else None

        return plan

    return with_bias
