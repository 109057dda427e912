"""Rewrites of graphs for PyTorch: where nodes are what one of its operators computes, it is called instead.

A rewrite is a claim that two graphs are one function. One side of each claim is recorded by our own compositions and
derivative rules at the shapes at hand, and never typed in here, so that it cannot drift from them; the other is an
operator of PyTorch. `bound` alone decides whether nodes of a graph are the recorded side, and of which values: whoever
proposes nodes assumes nothing of how the graph was made. What then is read by nobody is left out.

What each rewrite earns on networks, and what holds it: docs/reference/hunters.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specgrad.graph.transforms.autodiff import vjp
from specgrad.graph.transforms.operator_rules import rule_graphs
from specgrad.ops import composites

from ...graph.graph import CONSTANT, INPUT, Arg, Graph, Node, NumberArg
from ...graph.trace import trace
from ...op import REGISTRY, Op, Params, Value
from ...ops.elementwise import add, mul, sub
from ...ops.layout import reshape
from ...window import Shape
from ..base import Kernel, key_of, number
from .autograd_rules import SHORT, as_images, in_lines, packed
from .conv import lower_conv, lower_conv_transpose, lower_conv_weight
from .modes import dual_level_open, needs_grad, transformed

aten = torch.ops.aten


@dataclass(frozen=True)
class Call:
    """One call: its arguments are values at these positions, its results the nodes `gives`, None where unwanted."""

    name: str
    compute: Kernel
    args: tuple[int, ...]
    gives: tuple[int | None, ...]
    numbers: tuple[float, ...] = ()  # behind the arguments

    @property
    def first(self) -> int:
        return min(p for p in self.gives if p is not None)


Calls = dict[int, Call]
Bound = dict[str, int]


def rewritten(graph: Graph) -> Calls:
    """The call behind every node that is part of one; no node belongs to two."""
    calls: Calls = {}
    for rewrite in REWRITES.values():
        for call in rewrite(graph):
            given = [p for p in call.gives if p is not None]
            if calls.keys().isdisjoint(given) and all(a < call.first for a in call.args):  # it stands at the first
                calls.update(dict.fromkeys(given, call))
    return calls


# --- what justifies a match -------------------------------------------------------------------------------------------


def bound(claim: Graph, result: int, graph: Graph, position: int, given: Bound) -> Bound | None:
    """The nodes that stand for the inputs of a claim, if one of its results is the node at a position; else None.

    Operators, settings, numbers and shapes are equal node by node, and each input stands for one node, of its shape,
    wherever it is read, and for the node that is `given` for it if one is.
    """
    inputs = dict(given)
    pairs: list[tuple[Arg, Arg]] = [(claim.output_positions[result], position)]
    while pairs:
        wanted, here = pairs.pop()
        if isinstance(wanted, NumberArg) or isinstance(here, NumberArg):
            if not same_number(wanted, here):
                return None
            continue
        a, b = claim.nodes[wanted], graph.nodes[here]
        if a.shape != b.shape or a.kind != b.kind:
            return None
        if a.op is INPUT:
            if not same_node(inputs.setdefault(a.name, here), here):
                return None
        elif a.op is CONSTANT or not same_call(a, b):
            return None
        else:
            pairs += zip(a.args, b.args, strict=True)
    return inputs


def same_node(a: int, b: int) -> bool:
    """One input stands for one node; nodes that are merely equal are not asked for."""
    return a == b


def same_number(a: Arg, b: Arg) -> bool:
    """0.0 and -0.0 are equal, and other numbers."""
    return isinstance(a, NumberArg) and a == b and (a.value != 0 or str(a) == str(b))


def same_call(a: Node, b: Node) -> bool:
    """One operator with the same settings, of as many arguments."""
    return a.op is b.op and len(a.args) == len(b.args) and key_of(a.op, (), a.params) == key_of(b.op, (), b.params)


def reshaped(graph: Graph, position: int) -> int:
    """The value of which a node is a reshape, or a chain of them: its cells are in one order whatever the shapes."""
    while graph.nodes[position].op.name == "reshape":
        (position,) = graph.nodes[position].operands()
    return position


def _users(graph: Graph) -> dict[int, list[int]]:
    users = defaultdict[int, list[int]](list)
    for i, node in enumerate(graph.nodes):
        for a in set(node.operands()):
            users[a].append(i)
    return users


class _Settings:
    """Parameters of an operator as a key of a cache, the sign of zero included."""

    def __init__(self, op: Op, params: Params) -> None:
        self.op, self.params, self.key = op, params, key_of(op, (), params)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Settings) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=4096)
def _cotangents(settings: _Settings, *shapes: Shape) -> Graph:
    """The cotangent rule of an operator as a claim: of x0, x1, ..., y and gy."""
    return rule_graphs(settings.op, *shapes, **settings.params)[1]


# --- activations ------------------------------------------------------------------------------------------------------


def differentiated(*ts: Tensor) -> bool:
    """Whether a derivative is taken through this call: not all backward operators have one, nor a batching rule."""
    return needs_grad(*ts) or transformed()  # transforms hide requires_grad: vmap, and all of them in torch.compile


def _by_native(name: str, params: Params) -> Kernel:
    """(gy, x or y) -> gx by PyTorch's operator; by the rule itself where that may not do."""
    native, rule, numbers = ACTIVATIONS[name], REGISTRY[name], {key: number(v) for key, v in params.items()}

    def compute(g: Tensor, v: Tensor) -> Any:
        if g.dtype == v.dtype and not differentiated(g, v):
            return native(g, v, **numbers)
        return rule.cotangents(g, v, [v], params)[0]  # the rule reads one of both

    return compute


# At a NaN PyTorch's kernels of relu6 and hardswish pass the cotangent or drop it, as the cell lies in a vector or
# behind the last one.
BY_EITHER: dict[str, Callable[..., Tensor]] = {  # the rule says the same of x and of y: y is kept anyway
    "relu": lambda g, y: aten.threshold_backward.default(g, y, 0),
    "relu6": lambda g, y: aten.hardtanh_backward.default(g, y, 0, 6),
}
ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    **BY_EITHER,
    "hardswish": aten.hardswish_backward.default,
    "silu": aten.silu_backward.default,
}
"""Of gy, and of x or y: whichever of both the rule reads."""


def _activations(graph: Graph) -> Iterator[Call]:
    nodes = [(i, _Settings(n.op, n.params)) for i, n in enumerate(graph.nodes) if n.op.name in ACTIVATIONS]
    outputs = {(settings, graph.nodes[i].args): i for i, settings in nodes}
    rules = defaultdict[Op, list[_Settings]](list)
    for settings in dict.fromkeys(settings for _, settings in nodes):
        rule = _cotangents(settings, (1,))
        rules[rule.nodes[rule.output_positions[0]].op].append(settings)
    for i, node in enumerate(graph.nodes):
        for settings in rules.get(node.op, ()):
            inputs = bound(_cotangents(settings, node.shape), 0, graph, i, {})
            if inputs is not None:
                name, compute = settings.op.name, _by_native(settings.op.name, settings.params)
                yield Call(f"{name}_backward", compute, (inputs["gy"], _read(settings, inputs, outputs)), (i,))


def _read(settings: _Settings, inputs: Bound, outputs: dict[Any, int]) -> int:
    """The one value that a rule reads beside gy; what stands for its y is y itself, whoever computed it."""
    (value,) = inputs.keys() - {"gy"}
    x = inputs[value]
    return outputs.get((settings, (x,)), x) if value == "x0" and settings.op.name in BY_EITHER else x


# --- normalisation by channels ----------------------------------------------------------------------------------------


def batch_norm(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """PyTorch's kernel, which has no derivative in mean and var; the formula where one may be asked for.

    Of several types the kernel takes few, and gives that of x: so it is asked where all are one, or as PyTorch's own
    layer is under autocast.
    """
    wanted = mean.requires_grad or var.requires_grad or dual_level_open() or transformed()
    if not wanted and _one_type(x, mean, var, weight, bias):
        mean, var, weight, bias = packed(mean, var, weight, bias)
        (lines,) = in_lines(x) if needs_grad(x, weight, bias) else (x,)
        y = F.batch_norm(lines, mean, var, weight, bias, False, 0.0, eps)
        return as_images(y, x.shape)
    shape = (-1, *(1,) * (x.ndim - 2))
    scale = weight / torch.sqrt(var + eps)
    return (x - mean.view(shape)) * scale.view(shape) + bias.view(shape)


def _one_type(x: Tensor, *others: Tensor) -> bool:
    """Whether all have the type of x; or x is a half type under autocast, and the others have float32."""
    halved = x.dtype in SHORT and torch.is_autocast_enabled(x.device.type)
    return len({x.dtype, *(t.dtype for t in others)}) == 1 or (halved and {t.dtype for t in others} == {torch.float32})


@lru_cache(maxsize=4096)
def _normalised(shape: Shape, eps: Any) -> Graph:
    """Batch normalisation as a claim."""
    normalise = lambda x, mean, var, weight, bias: composites.batch_norm(x, mean, var, weight, bias, eps=eps)
    return trace(normalise, shape, *((shape[1],),) * 4)


def _batch_norms(graph: Graph) -> Iterator[Call]:
    """F.batch_norm takes no eps below 0, and no x without channels; mean and var must be given."""
    roots = [graph.nodes[n.operands()[0]].args for n in graph.nodes if n.op.name == "sqrt"]
    numbers = {a.value for args in roots for a in args if isinstance(a, NumberArg)}
    known = {i for i, n in enumerate(graph.nodes) if n.op in (INPUT, CONSTANT)}
    for i, node in enumerate(graph.nodes):
        for eps in numbers if node.op.name == "add" and len(node.shape) >= 2 and node.shape[1] else ():
            inputs = bound(_normalised(node.shape, eps), 0, graph, i, {}) if eps >= 0 else None
            if inputs is not None and {inputs["mean"], inputs["var"]} <= known:
                args = tuple(inputs[name] for name in ("x", "mean", "var", "weight", "bias"))
                yield Call("batch_norm", batch_norm, args, (i,), (float(eps),))


@lru_cache(maxsize=4096)
def _norm_cotangents(shape: Shape) -> Graph:
    """(x - mean) * scale + shift by channels and the cotangents of its arguments as a claim, whose gy is g0."""

    def normalise(x: Value, mean: Value, scale: Value, shift: Value) -> Value:
        mean, scale, shift = (reshape(v, (shape[1], *(1,) * (len(shape) - 2))) for v in (mean, scale, shift))
        return add(mul(sub(x, mean), scale), shift)

    return vjp(trace(normalise, shape, *((shape[1],),) * 3))


_OF_X, _OF_SCALE, _OF_SHIFT = 1, 3, 4  # among the results of that claim


def _norm_backwards(graph: Graph) -> Iterator[Call]:
    """Cotangents of x, scale and shift of one g; two norms that share theirs share its sum, which is computed once."""
    users, sums, used = _users(graph), _sums(graph), set[int]()
    for gx, node in enumerate(graph.nodes):
        if node.op.name != "mul" or len(node.shape) < 2:
            continue
        claim = _norm_cotangents(node.shape)
        given = bound(claim, _OF_X, graph, gx, {})
        if given is None:
            continue
        dots = (p for product in users[given["g0"]] for p in sums[product] if p not in used)
        both = next(
            ((p, inputs) for p in dots if (inputs := bound(claim, _OF_SCALE, graph, p, given)) is not None), None
        )
        if both is None:
            continue
        dot, inputs = both
        totals = (p for p in sums[inputs["g0"]] if p not in used)
        total = next((p for p in totals if bound(claim, _OF_SHIFT, graph, p, inputs) is not None), None)
        used |= {dot} if total is None else {dot, total}
        args = tuple(inputs[name] for name in ("g0", "x", "scale", "mean"))
        yield Call("batch_norm_backward", batch_norm_backward, args, (gx, dot, total))


def _sums(graph: Graph) -> dict[int, list[int]]:
    """By what is summed: its sums that are vectors."""
    sums = defaultdict[int, list[int]](list)
    for i, node in enumerate(graph.nodes):
        total = graph.nodes[reshaped(graph, i)]
        if len(node.shape) == 1 and total.op.name == "sum":
            sums[total.operands()[0]].append(i)
    return sums


def batch_norm_backward(g: Tensor, x: Tensor, scale: Tensor, mean: Tensor) -> Any:
    """PyTorch's kernel with a variance of 1; the formula where a derivative is taken through it, for it has few."""
    alike = g.dtype == x.dtype == scale.dtype == mean.dtype and g.numel()
    if alike and not differentiated(g, x, scale, mean):
        (scale, mean), wanted = packed(scale, mean), [True, True, True]
        one, (lines, cotangents) = torch.ones_like(mean), in_lines(x, g)
        native = aten.native_batch_norm_backward.default
        gx, dot, total = native(cotangents, lines, scale, mean, one, mean, one, False, 0.0, wanted)
        return as_images(gx, x.shape), dot, total
    shape, others = (-1, *(1,) * (x.ndim - 2)), (0, *range(2, x.ndim))
    return g * scale.view(shape), (g * (x - mean.view(shape))).sum(others), g.sum(others)


# --- convolution ------------------------------------------------------------------------------------------------------


def _convolutions(graph: Graph) -> Iterator[Call]:
    """gx, gw and gb of one gy; a convolution's gw reads x and gy, a transposed one's gy and x."""
    users = _users(graph)
    for gw, node in enumerate(graph.nodes):
        if node.op.name == "conv_weight":
            for name in ("conv", "conv_transpose"):
                yield from _convolution(graph, users, gw, REGISTRY[name])


def _convolution(graph: Graph, users: dict[int, list[int]], gw: int, op: Op) -> Iterator[Call]:
    node = graph.nodes[gw]
    x, gy = (graph.nodes[p].shape for p in (node.operands() if op.name == "conv" else reversed(node.operands())))
    compute = convolution_backward(gy, x, node.shape, **node.params, transposed=op.name != "conv")
    if compute is None:
        return
    rule = _cotangents(_Settings(op, node.params), x, node.shape, gy[1:2])
    given = bound(rule, 1, graph, gw, {})
    if given is None:
        return
    read_by = users[given["gy"]]
    both = [(gx, inputs) for gx in read_by if (inputs := bound(rule, 0, graph, gx, given)) is not None]
    if both:
        gx, inputs = both[-1]
        gb = next((p for p in read_by if bound(rule, 2, graph, p, inputs) is not None), None)
        args = (inputs["gy"], inputs["x0"], inputs["x1"])
        yield Call("convolution_backward", compute(gb is not None), args, (gx, gw, gb))


def convolution_backward(
    gy: Shape, x: Shape, w: Shape, *, window: Any, groups: int, transposed: bool
) -> Callable[[bool], Kernel] | None:
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
    back = lower_conv(gy, w, **params) if transposed else lower_conv_transpose(gy, w, **params)
    weigh = lower_conv_weight(*((gy, x) if transposed else (x, gy)), **params)
    others = (0, *range(2, len(x)))

    def with_bias(bias: bool) -> Kernel:
        sizes, wanted = [gy[1]] if bias else None, [True, True, bias]

        def compute(g: Tensor, t: Tensor, v: Tensor) -> Any:
            if g.dtype == t.dtype == v.dtype and not torch.is_autocast_enabled(g.device.type):
                return aten.convolution_backward.default(g, t, v, sizes, *settled, wanted)
            gw = weigh(g, t) if transposed else weigh(t, g)
            return back(g, v), gw, g.sum(others) if bias else None

        return compute

    return with_bias


REWRITES: dict[str, Callable[[Graph], Iterator[Call]]] = {
    "cotangents of activations": _activations,
    "batch normalisation": _batch_norms,
    "cotangents of batch normalisation": _norm_backwards,
    "cotangents of convolutions": _convolutions,
}
"""All of them; each yields calls that `bound` has justified."""
