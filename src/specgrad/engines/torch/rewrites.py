"""Rewrites of graphs for PyTorch: where nodes are what one of its operators computes, it is called instead.

A rewrite is a claim that two graphs are one function. One side of each claim is recorded by our own compositions and
derivative rules at the shapes at hand, and never typed in here, so that it cannot drift from them; the other is an
operator of PyTorch. `match_claim` alone decides whether nodes of a graph are the recorded side, and of which values:
the search for candidates assumes nothing of how the graph was made. Nodes that are no longer read are left out.

What each rewrite earns on networks, and what tests it: docs/reference/hunters.md.
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

from ...graph.builder import trace
from ...graph.graph import CONSTANT, INPUT, Arg, Graph, Node, NumberArg
from ...op import REGISTRY, Op, Params, Value
from ...ops.elementwise import add, mul, sub
from ...ops.layout import reshape
from ...window import Shape
from ..base import Kernel, key_of, number
from .autograd_rules import HALF_TYPES, flatten_spatial, packed, unflatten_spatial
from .conv import lower_conv, lower_conv_transpose, lower_conv_weight
from .modes import in_dual_level, in_torch_func, needs_grad

aten = torch.ops.aten


@dataclass(frozen=True)
class NativeCall:
    """One call of a PyTorch operator that replaces nodes of a graph.

    name      of the call, in the program that is written
    compute   the function called, with the argument values and then the numbers

    `args` are positions of the argument values; `results` are the nodes that it computes, None for a result that is not
    used; `numbers` follow the arguments.
    """

    name: str
    compute: Kernel
    args: tuple[int, ...]
    results: tuple[int | None, ...]
    numbers: tuple[float, ...] = ()  # behind the arguments

    @property
    def first(self) -> int:
        """Return the lowest position among the nodes that the call computes."""
        return min(p for p in self.results if p is not None)


Calls = dict[int, NativeCall]
Binding = dict[str, int]


def find_native_calls(graph: Graph) -> Calls:
    """Return, for every node that a native call computes, that call; no node belongs to two calls."""
    calls: Calls = {}
    for rewrite in REWRITES.values():
        for call in rewrite(graph):
            given = [p for p in call.results if p is not None]
            if calls.keys().isdisjoint(given) and all(a < call.first for a in call.args):  # it stands at the first
                calls.update(dict.fromkeys(given, call))
    return calls


# --- what justifies a match -------------------------------------------------------------------------------------------


def match_claim(claim: Graph, result: int, graph: Graph, position: int, given: Binding) -> Binding | None:
    """Return the nodes that the inputs of `claim` stand for, if one of its results is the node at `position`.

    None if it is not.

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
    """Return whether positions a and b are one node; equal nodes at two positions do not count."""
    return a == b


def same_number(a: Arg, b: Arg) -> bool:
    """Return whether arguments a and b are the same number; 0.0 and -0.0 are distinct."""
    return isinstance(a, NumberArg) and a == b and (a.value != 0 or str(a) == str(b))


def same_call(a: Node, b: Node) -> bool:
    """Return whether nodes a and b have the same operator, parameters and number of arguments."""
    return a.op is b.op and len(a.args) == len(b.args) and key_of(a.op, (), a.params) == key_of(b.op, (), b.params)


def before_reshapes(graph: Graph, position: int) -> int:
    """Return the position of the value of which a node is a reshape or a chain of reshapes; else its own."""
    while graph.nodes[position].op.name == "reshape":
        (position,) = graph.nodes[position].operands()
    return position


def _readers_by_node(graph: Graph) -> dict[int, list[int]]:
    """Return, for each position, the nodes that read it."""
    users = defaultdict[int, list[int]](list)
    for i, node in enumerate(graph.nodes):
        for a in set(node.operands()):
            users[a].append(i)
    return users


class _Settings:
    """Operator `op` and parameters `params` as a hashable cache key; 0.0 and -0.0 differ."""

    def __init__(self, op: Op, params: Params) -> None:
        self.op, self.params, self.key = op, params, key_of(op, (), params)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Settings) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=4096)
def _cotangent_claim(settings: _Settings, *shapes: Shape) -> Graph:
    """Return the cotangent rule of an operator with these settings, for arguments of these shapes, as a graph of x0,
    x1, ..., y and gy.
    """
    return rule_graphs(settings.op, *shapes, **settings.params)[1]


# --- activations ------------------------------------------------------------------------------------------------------


def may_be_differentiated(*ts: Tensor) -> bool:
    """Return whether a derivative may be taken through a call of tensors `ts`; not all backward operators have one."""
    return needs_grad(*ts) or in_torch_func()  # transforms hide requires_grad: vmap, and all of them in torch.compile


def _activation_backward(name: str, params: Params) -> Kernel:
    """Return (gy, x or y) -> gx of the function `name` by PyTorch's backward operator, by the rule where types or modes
    forbid it.
    """
    native, rule, numbers = ACTIVATIONS[name], REGISTRY[name], {key: number(v) for key, v in params.items()}

    def compute(g: Tensor, v: Tensor) -> Any:
        if g.dtype == v.dtype and not may_be_differentiated(g, v):
            return native(g, v, **numbers)
        return rule.cotangents(g, v, [v], params)[0]  # the rule reads one of both

    return compute


# At a NaN PyTorch's kernels of relu6 and hardswish pass the cotangent or drop it, as the cell lies in a vector or
# behind the last one.
FROM_X_OR_Y: dict[str, Callable[..., Tensor]] = {  # the rule says the same of x and of y: y is kept anyway
    "relu": lambda g, y: aten.threshold_backward.default(g, y, 0),
    "relu6": lambda g, y: aten.hardtanh_backward.default(g, y, 0, 6),
}
ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    **FROM_X_OR_Y,
    "hardswish": aten.hardswish_backward.default,
    "silu": aten.silu_backward.default,
}
"""Of gy, and of x or y: whichever of both the rule reads."""


def _activation_calls(graph: Graph) -> Iterator[NativeCall]:
    """Yield native calls that stand for nodes of the graph which are cotangents of activations."""
    nodes = [(i, _Settings(n.op, n.params)) for i, n in enumerate(graph.nodes) if n.op.name in ACTIVATIONS]
    outputs = {(settings, graph.nodes[i].args): i for i, settings in nodes}
    rules = defaultdict[Op, list[_Settings]](list)
    for settings in dict.fromkeys(settings for _, settings in nodes):
        rule = _cotangent_claim(settings, (1,))
        rules[rule.nodes[rule.output_positions[0]].op].append(settings)
    for i, node in enumerate(graph.nodes):
        for settings in rules.get(node.op, ()):
            inputs = match_claim(_cotangent_claim(settings, node.shape), 0, graph, i, {})
            if inputs is not None:
                name, compute = settings.op.name, _activation_backward(settings.op.name, settings.params)
                yield NativeCall(
                    f"{name}_backward", compute, (inputs["gy"], _saved_value(settings, inputs, outputs)), (i,)
                )


def _saved_value(settings: _Settings, inputs: Binding, outputs: dict[Any, int]) -> int:
    """Return the position of the value that the backward operator reads beside gy: y if either of x and y will do.

    `settings` are the operator's; `inputs` are the values that are known, `outputs` the nodes of the forward pass.
    """
    (value,) = inputs.keys() - {"gy"}
    x = inputs[value]
    return outputs.get((settings, (x,)), x) if value == "x0" and settings.op.name in FROM_X_OR_Y else x


# --- normalisation by channels ----------------------------------------------------------------------------------------


def batch_norm(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return F.batch_norm; the formula if a derivative in mean or var may be needed, which it does not have.

    Of mixed types the kernel takes few, and gives that of x: it is called where all are one, or as PyTorch's own layer
    is under autocast. `weight` and `bias` are per channel, `eps` is added to var.
    """
    wanted = mean.requires_grad or var.requires_grad or in_dual_level() or in_torch_func()
    if not wanted and _have_one_type(x, mean, var, weight, bias):
        mean, var, weight, bias = packed(mean, var, weight, bias)
        (lines,) = flatten_spatial(x) if needs_grad(x, weight, bias) else (x,)
        y = F.batch_norm(lines, mean, var, weight, bias, False, 0.0, eps)
        return unflatten_spatial(y, x.shape)
    shape = (-1, *(1,) * (x.ndim - 2))
    scale = weight / torch.sqrt(var + eps)
    return (x - mean.view(shape)) * scale.view(shape) + bias.view(shape)


def _have_one_type(x: Tensor, *others: Tensor) -> bool:
    """Whether all have the type of x; or x is a half type under autocast, and the others have float32."""
    halved = x.dtype in HALF_TYPES and torch.is_autocast_enabled(x.device.type)
    return len({x.dtype, *(t.dtype for t in others)}) == 1 or (halved and {t.dtype for t in others} == {torch.float32})


@lru_cache(maxsize=4096)
def _batch_norm_claim(shape: Shape, eps: Any) -> Graph:
    """Return batch normalisation of this shape and eps as a graph to match."""
    normalise = lambda x, mean, var, weight, bias: composites.batch_norm(x, mean, var, weight, bias, eps=eps)
    return trace(normalise, shape, *((shape[1],),) * 4)


def _batch_norm_calls(graph: Graph) -> Iterator[NativeCall]:
    """Yield native calls for batch normalisation with constant mean and var, eps >= 0 and some channels."""
    roots = [graph.nodes[n.operands()[0]].args for n in graph.nodes if n.op.name == "sqrt"]
    numbers = {a.value for args in roots for a in args if isinstance(a, NumberArg)}
    known = {i for i, n in enumerate(graph.nodes) if n.op in (INPUT, CONSTANT)}
    for i, node in enumerate(graph.nodes):
        for eps in numbers if node.op.name == "add" and len(node.shape) >= 2 and node.shape[1] else ():
            inputs = match_claim(_batch_norm_claim(node.shape, eps), 0, graph, i, {}) if eps >= 0 else None
            if inputs is not None and {inputs["mean"], inputs["var"]} <= known:
                args = tuple(inputs[name] for name in ("x", "mean", "var", "weight", "bias"))
                yield NativeCall("batch_norm", batch_norm, args, (i,), (float(eps),))


@lru_cache(maxsize=4096)
def _norm_cotangent_claim(shape: Shape) -> Graph:
    """Return (x - mean) * scale + shift by channels with the cotangents of its arguments, gy as g0."""

    def normalise(x: Value, mean: Value, scale: Value, shift: Value) -> Value:
        mean, scale, shift = (reshape(v, (shape[1], *(1,) * (len(shape) - 2))) for v in (mean, scale, shift))
        return add(mul(sub(x, mean), scale), shift)

    return vjp(trace(normalise, shape, *((shape[1],),) * 3))


_OF_X, _OF_SCALE, _OF_SHIFT = 1, 3, 4  # among the results of that claim


def _norm_backward_calls(graph: Graph) -> Iterator[NativeCall]:
    """Yield one native call for the cotangents of x, scale and shift of one normalisation.

    Two norms that share their g share its sum, which is computed once.
    """
    users, sums, used = _readers_by_node(graph), _vector_sums(graph), set[int]()
    for gx, node in enumerate(graph.nodes):
        if node.op.name != "mul" or len(node.shape) < 2:
            continue
        claim = _norm_cotangent_claim(node.shape)
        given = match_claim(claim, _OF_X, graph, gx, {})
        if given is None:
            continue
        dots = (p for product in users[given["g0"]] for p in sums[product] if p not in used)
        both = next(
            ((p, inputs) for p in dots if (inputs := match_claim(claim, _OF_SCALE, graph, p, given)) is not None), None
        )
        if both is None:
            continue
        dot, inputs = both
        totals = (p for p in sums[inputs["g0"]] if p not in used)
        total = next((p for p in totals if match_claim(claim, _OF_SHIFT, graph, p, inputs) is not None), None)
        used |= {dot} if total is None else {dot, total}
        args = tuple(inputs[name] for name in ("g0", "x", "scale", "mean"))
        yield NativeCall("batch_norm_backward", batch_norm_backward, args, (gx, dot, total))


def _vector_sums(graph: Graph) -> dict[int, list[int]]:
    """Return, for each summed value, the nodes that are its sums and have one axis."""
    sums = defaultdict[int, list[int]](list)
    for i, node in enumerate(graph.nodes):
        total = graph.nodes[before_reshapes(graph, i)]
        if len(node.shape) == 1 and total.op.name == "sum":
            sums[total.operands()[0]].append(i)
    return sums


def batch_norm_backward(g: Tensor, x: Tensor, scale: Tensor, mean: Tensor) -> Any:
    """Return (gx, g_scale, g_shift) of (x - mean)*scale + shift, g its cotangent, by PyTorch's kernel with variance 1;
    by the formula if differentiated.
    """
    alike = g.dtype == x.dtype == scale.dtype == mean.dtype and g.numel()
    if alike and not may_be_differentiated(g, x, scale, mean):
        (scale, mean), wanted = packed(scale, mean), [True, True, True]
        one, (lines, cotangents) = torch.ones_like(mean), flatten_spatial(x, g)
        native = aten.native_batch_norm_backward.default
        gx, dot, total = native(cotangents, lines, scale, mean, one, mean, one, False, 0.0, wanted)
        return unflatten_spatial(gx, x.shape), dot, total
    shape, others = (-1, *(1,) * (x.ndim - 2)), (0, *range(2, x.ndim))
    return g * scale.view(shape), (g * (x - mean.view(shape))).sum(others), g.sum(others)


# --- convolution ------------------------------------------------------------------------------------------------------


def _convolution_calls(graph: Graph) -> Iterator[NativeCall]:
    """Yield native calls that compute gx, gw and gb of one convolution or transposed convolution.

    A convolution's gw reads x and gy, a transposed one's gy and x.
    """
    users = _readers_by_node(graph)
    for gw, node in enumerate(graph.nodes):
        if node.op.name == "conv_weight":
            for name in ("conv", "conv_transpose"):
                yield from _convolution_call(graph, users, gw, REGISTRY[name])


def _convolution_call(graph: Graph, users: dict[int, list[int]], gw: int, op: Op) -> Iterator[NativeCall]:
    """Yield the native call for the weight gradient at node `gw` of a convolution `op`, if nodes that are gx and
    perhaps gb go with it.

    `users` are the readers of each node.
    """
    node = graph.nodes[gw]
    x, gy = (graph.nodes[p].shape for p in (node.operands() if op.name == "conv" else reversed(node.operands())))
    compute = convolution_backward(gy, x, node.shape, **node.params, transposed=op.name != "conv")
    if compute is None:
        return
    rule = _cotangent_claim(_Settings(op, node.params), x, node.shape, gy[1:2])
    given = match_claim(rule, 1, graph, gw, {})
    if given is None:
        return
    read_by = users[given["gy"]]
    both = [(gx, inputs) for gx in read_by if (inputs := match_claim(rule, 0, graph, gx, given)) is not None]
    if both:
        gx, inputs = both[-1]
        gb = next((p for p in read_by if match_claim(rule, 2, graph, p, inputs) is not None), None)
        args = (inputs["gy"], inputs["x0"], inputs["x1"])
        yield NativeCall("convolution_backward", compute(gb is not None), args, (gx, gw, gb))


def convolution_backward(
    gy: Shape, x: Shape, w: Shape, *, window: Any, groups: int, transposed: bool
) -> Callable[[bool], Kernel] | None:
    """Return a function has_bias -> kernel (gy, x, w) -> (gx, gw, gb or None) of conv, or if `transposed` of
    conv_transpose.

    gy, x and w are shapes; None for windows that PyTorch's operator lacks.
    """
    steps = window.steps()
    extra = window.output_padding() if transposed else (0,) * window.rank
    padding = window.low_padding() if transposed else steps.padding
    if window.rank > 3 or len(x) != window.rank + 2 or extra is None or padding is None or 0 in (*gy, *x, *w):
        return None
    if not transposed and steps.ceil:
        return None
    conv_args = (steps.stride, padding, steps.dilation, transposed, extra, groups)
    params: Any = {"window": window, "groups": groups}
    back = lower_conv(gy, w, **params) if transposed else lower_conv_transpose(gy, w, **params)
    weigh = lower_conv_weight(*((gy, x) if transposed else (x, gy)), **params)
    others = (0, *range(2, len(x)))

    def with_bias(bias: bool) -> Kernel:
        sizes, wanted = [gy[1]] if bias else None, [True, True, bias]

        def compute(g: Tensor, t: Tensor, v: Tensor) -> Any:
            if g.dtype == t.dtype == v.dtype and not torch.is_autocast_enabled(g.device.type):
                return aten.convolution_backward.default(g, t, v, sizes, *conv_args, wanted)
            gw = weigh(g, t) if transposed else weigh(t, g)
            return back(g, v), gw, g.sum(others) if bias else None

        return compute

    return with_bias


REWRITES: dict[str, Callable[[Graph], Iterator[NativeCall]]] = {
    "cotangents of activations": _activation_calls,
    "batch normalisation": _batch_norm_calls,
    "cotangents of batch normalisation": _norm_backward_calls,
    "cotangents of convolutions": _convolution_calls,
}
"""All of them; each yields calls that `match_claim` has justified."""
