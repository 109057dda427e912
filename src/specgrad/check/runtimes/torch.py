"""PyTorch runtimes, eager and compiled: each test case as a user would write it with torch.nn.functional.

`q` is the test case in all functions here; what the runtime lacks raises NotOffered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...op import REGISTRY
from ..cases.op_case import OpCase
from .runtime_spec import NotOffered, Runtime, SourceExpression, call_text

X, W, B = SourceExpression("x"), SourceExpression("w"), SourceExpression("b")


def _rank(question: OpCase) -> int:
    """Return the number of spatial axes of the case; raise NotOffered above 3."""
    rank = question.arrays["x"].ndim - 2
    if rank > 3:
        raise NotOffered(f"torch has no rank {rank}")
    return rank


def _symmetric_padding(padding: Any, rank: int) -> tuple[int, ...]:
    """Return one padding number for each of `rank` axes.

    Raise NotOffered for padding by side, which torch does not have.
    """
    if padding == "valid" or padding == 0:
        return (0,) * rank
    if isinstance(padding, str) or any(lo != hi for lo, hi in padding):
        raise NotOffered("torch has no padding by side")
    return tuple(lo for lo, _ in padding)


def _pool_padding(question: OpCase, rank: int) -> tuple[int, ...]:
    """Return the padding of the pooling `question`, a number per axis; raise NotOffered above half the kernel, which
    torch refuses.
    """
    padding = _symmetric_padding(question.attributes["padding"], rank)
    if any(p > k // 2 for p, k in zip(padding, question.attributes["kernel"], strict=True)):
        raise NotOffered("torch limits padding to half the kernel")
    return padding


def _conv(q: OpCase) -> str:
    """Return test case q, a convolution or its transpose, as a call of torch.nn.functional."""
    rank, a = _rank(q), dict(q.attributes)
    a["padding"] = _symmetric_padding(a["padding"], rank)
    name = {"conv": f"conv{rank}d", "conv_transpose": f"conv_transpose{rank}d"}[q.operator]
    return call_text(f"F.{name}", X, W, B if "b" in q.arrays else None, **a)


def _max_pool(q: OpCase) -> str:
    """Return test case q, a max pooling with or without indices, as a call of torch.nn.functional."""
    rank, a = _rank(q), q.attributes
    named = {"stride": a["stride"], "padding": _pool_padding(q, rank), "dilation": a.get("dilation", 1)}
    named |= {"ceil_mode": a.get("ceil", False), "return_indices": q.operator == "max_pool_indices"}
    return call_text(f"F.max_pool{rank}d", X, a["kernel"], **named)


def _avg_pool(q: OpCase) -> str:
    """Return test case q, an average pooling, as source text; raise NotOffered with a divisor on one axis."""
    rank, a = _rank(q), q.attributes
    named = {"stride": a["stride"], "padding": _pool_padding(q, rank), "ceil_mode": a.get("ceil", False)}
    named["count_include_pad"] = a.get("count_include_pad", True)
    if a.get("divisor") is not None:
        if rank == 1:
            raise NotOffered("avg_pool1d has no divisor_override")
        named["divisor_override"] = a["divisor"]
    return call_text(f"F.avg_pool{rank}d", X, a["kernel"], **named)


def _lp_pool(q: OpCase) -> str:
    """Return test case q, an Lp pooling, as source text; raise NotOffered with padding, dilation or ceil."""
    rank, a = _rank(q), q.attributes
    if any(_symmetric_padding(a["padding"], rank)) or max(a.get("dilation", (1,))) > 1 or a.get("ceil"):
        raise NotOffered("torch's lp_pool has no padding and no dilation, and another rule under ceil")
    kernel, stride = (a["kernel"][0], a["stride"][0]) if rank == 1 else (a["kernel"], a["stride"])
    return call_text(f"F.lp_pool{rank}d", SourceExpression("x.abs()"), float(a["p"]), kernel, stride=stride)


def _adaptive_pool(q: OpCase) -> str:
    """Return test case q, an adaptive pooling, as a call of torch.nn.functional."""
    return call_text(f"F.{q.operator}{_rank(q)}d", X, q.attributes["output"])


def _global_pool(q: OpCase) -> str:
    """Return test case q, a global pooling, as a mean or maximum over spatial axes."""
    name = {"global_avg_pool": "mean", "global_max_pool": "amax"}[q.operator]
    return call_text(f"x.{name}", dim=tuple(range(2, 2 + _rank(q))), keepdim=True)


def _batch_norm(q: OpCase) -> str:
    """Return test case q, a batch normalisation, as a call of torch.nn.functional."""
    text = {name: SourceExpression(name) for name in ("mean", "var", "weight", "bias")}
    return call_text("F.batch_norm", X, *text.values(), eps=q.attributes["eps"])


def _resize(q: OpCase) -> str:
    """Return test case q as F.interpolate: nearest is asymmetric and rounded down; linear has half pixels, or aligned
    corners.

    Raises NotOffered for other coordinates and roundings.
    """
    a, rank = q.attributes, len(q.attributes["sizes"])
    if a["how"] == "linear" and a["where"] != "asymmetric":
        mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[rank]
        return call_text("F.interpolate", X, a["sizes"], mode=mode, align_corners=a["where"] == "align_corners")
    if (a["where"], a["how"]) != ("asymmetric", "floor"):
        raise NotOffered(f"torch has no {a['how']} by {a['where']}")
    return call_text("F.interpolate", X, a["sizes"])


def _cumsum(q: OpCase) -> str:
    """Return test case q, a cumulative sum, as source text; raise NotOffered for exclusive and reverse ones."""
    if q.attributes["exclusive"] or q.attributes["reverse"]:
        raise NotOffered("torch has no exclusive or reverse cumsum")
    return call_text("torch.cumsum", X, q.attributes["axis"])


def _direct_call(function: str, *args: Any, **renamed: str) -> Callable[[OpCase], str]:
    """Return the writer of operators that are one call in PyTorch: from a test case to the source text function(x,
    *args, **attributes), with attributes renamed.
    """
    return lambda q: call_text(function, X, *args, **{renamed[k]: v for k, v in q.attributes.items()})


CALLS: dict[str, Callable[[OpCase], str]] = {
    **{op.name: _direct_call(op.names.torch) for op in REGISTRY.values() if op.names.torch},
    "conv": _conv,
    "conv_transpose": _conv,
    "linear": lambda q: call_text("F.linear", X, W, B if "b" in q.arrays else None),
    "max_pool": _max_pool,
    "max_pool_indices": _max_pool,
    "avg_pool": _avg_pool,
    "lp_pool": _lp_pool,
    "adaptive_avg_pool": _adaptive_pool,
    "adaptive_max_pool": _adaptive_pool,
    "global_avg_pool": _global_pool,
    "global_max_pool": _global_pool,
    "batch_norm": _batch_norm,
    "upsample_nearest": lambda q: call_text("F.interpolate", X, scale_factor=q.attributes["factor"]),
    "resize": _resize,
    "cumsum": _cumsum,
    "add": _direct_call("torch.add", SourceExpression("z")),
    "mul": _direct_call("torch.mul", SourceExpression("z")),
    "leaky_relu": _direct_call("F.leaky_relu", slope="negative_slope"),
    "clamp": _direct_call("torch.clamp", low="min", high="max"),
    "softmax": _direct_call("F.softmax", axis="dim"),
    "log_softmax": _direct_call("F.log_softmax", axis="dim"),
}

FORWARD = """
def run({names}):
    y = f({tensors})
    return [t.numpy() for t in (y if isinstance(y, tuple) else [y])]
"""
GRADIENT = """
def run({names}, g):
    given = [torch.from_numpy(a).requires_grad_() for a in ({names},)]
    return [t.numpy() for t in torch.autograd.grad(f(*given), given, torch.from_numpy(g))]
"""


def _program(q: OpCase, decorator: str = "") -> str:
    """Return the program text of test case q, its function under `decorator`; raise NotOffered if torch lacks the
    operator.
    """
    if q.operator not in CALLS:
        raise NotOffered(f"torch has no {q.operator}")
    names = ", ".join(q.arrays)
    head = f"import torch\nimport torch.nn.functional as F\n\n{decorator}"
    head += f"def f({names}):\n    return {CALLS[q.operator](q)}\n"
    tensors = ", ".join(f"torch.from_numpy({name})" for name in q.arrays)
    return head + (FORWARD if q.gradient is None else GRADIENT).format(names=names, tensors=tensors)


def _compiled_program(q: OpCase) -> str:
    """Return the program text of a case with torch.compile."""
    return _program(q, "torch._dynamo.reset()\n\n@torch.compile\n")


TORCH = Runtime("torch", ("torch",), _program, gradients=True, functions="torch")
TORCH_COMPILE = Runtime("torch-compile", ("torch",), _compiled_program, gradients=True, cost=30)
