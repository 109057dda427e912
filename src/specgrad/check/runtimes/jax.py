"""JAX runtime: each test case as a user would write it with jax.lax and jax.nn.

`q` is the test case in all functions here; what the runtime lacks raises NotOffered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import window
from ...op import REGISTRY
from ..cases.generate import pooling_window
from ..cases.op_case import OpCase
from .runtime_spec import NotOffered, Runtime, SourceExpression, call_text

X = SourceExpression("x")


def _rank(q: OpCase) -> int:
    """Return the number of spatial axes of test case q."""
    return q.arrays["x"].ndim - 2


def _plus_bias(q: OpCase, text: str) -> str:
    """Return `text` plus the bias, if the case has one."""
    return f"{text} + b.reshape(-1, {', '.join('1' * _rank(q))})" if "b" in q.arrays else text


def _padding_pairs(q: OpCase) -> tuple[tuple[int, int], ...]:
    """Return the padding of case q, a convolution, as pairs, which lax takes literally; a name would mean TensorFlow's
    rule.
    """
    a, w = q.attributes, q.arrays["w"].shape[2:]
    return window.resolve_padding("conv", a["padding"], q.arrays["x"].shape[2:], w, a["stride"], a["dilation"])


def _conv(q: OpCase) -> str:
    """Return test case q, a convolution, as a call of lax.conv_general_dilated."""
    a = q.attributes
    named = {"rhs_dilation": a["dilation"], "feature_group_count": a["groups"]}
    return _plus_bias(
        q, call_text("lax.conv_general_dilated", X, SourceExpression("w"), a["stride"], _padding_pairs(q), **named)
    )


def _conv_transpose(q: OpCase) -> str:
    """Return case q, a transposed convolution, as source text: a convolution of the dilated input with the flipped
    kernel.
    """
    a, rank, groups = q.attributes, _rank(q), q.attributes["groups"]
    kernel, cin, cout = q.arrays["w"].shape[2:], *q.arrays["w"].shape[:2]
    spans = [e * (k - 1) for e, k in zip(a["dilation"], kernel, strict=True)]
    pads = window.resolve_padding("conv_transpose", a["padding"], kernel, kernel, a["stride"], a["dilation"])
    extra = a["output_padding"]
    padding = tuple((s - lo, s - hi + p) for s, (lo, hi), p in zip(spans, pads, extra, strict=True))
    flip = "[:, :" + ", ::-1" * rank + "]"
    split = (groups, cin // groups, cout, *kernel)
    w = f"w{flip}.reshape{split}.swapaxes(1, 2).reshape{(groups * cout, cin // groups, *kernel)}"
    named = {"lhs_dilation": a["stride"], "rhs_dilation": a["dilation"], "feature_group_count": groups}
    return _plus_bias(q, call_text("lax.conv_general_dilated", X, SourceExpression(w), (1,) * rank, padding, **named))


def _reduce_window(q: OpCase, x: str, start: str, combine: str) -> str:
    """Return the pooling q as a lax.reduce_window call with the padding of our window, ceil resolved.

    x, start (the first value) and combine (the function) are source text.
    """
    a = q.attributes
    named: dict[str, Any] = {}
    if "dilation" in a:
        named["window_dilation"] = (1, 1, *a["dilation"])
    pads = ((0, 0), (0, 0), *((lo, max(0, hi)) for lo, hi in pooling_window(q).pads))
    text = SourceExpression(start), SourceExpression(combine), (1, 1, *a["kernel"]), (1, 1, *a["stride"]), pads
    return call_text("lax.reduce_window", SourceExpression(x), *text, **named)


def _max_pool(q: OpCase) -> str:
    """Return test case q, a max pooling, as source text."""
    return _reduce_window(q, "x", "-jnp.inf", "lax.max")


def _avg_pool(q: OpCase) -> str:
    """Return test case q, an average pooling, as source text; raise NotOffered under ceil without a divisor."""
    a, total = q.attributes, _reduce_window(q, "x", "0.0", "lax.add")
    if a.get("divisor") is not None:
        return f"{total} / {float(a['divisor'])}"
    if not a.get("count_include_pad", True):
        return f"{total} / {_reduce_window(q, 'jnp.ones_like(x)', '0.0', 'lax.add')}"
    if a.get("ceil"):
        raise NotOffered("jax has no rule for the divisor under ceil")
    return f"{total} / {float(pooling_window(q).taps_count)}"


def _global_pool(q: OpCase) -> str:
    """Return test case q, a global pooling, as source text."""
    name = {"global_avg_pool": "mean", "global_max_pool": "max"}[q.operator]
    return call_text(f"x.{name}", tuple(range(2, 2 + _rank(q))), keepdims=True)


def _batch_norm(q: OpCase) -> str:
    """Return test case q, a batch normalisation, as source text."""
    per = ", ".join(["1", "-1", *"1" * _rank(q)])
    mean, var, weight, bias = (f"{v}.reshape({per})" for v in ("mean", "var", "weight", "bias"))
    return f"(x - {mean}) * lax.rsqrt({var} + {q.attributes['eps']}) * {weight} + {bias}"


def _upsample(q: OpCase) -> str:
    """Return test case q, a nearest upsampling, as source text."""
    text = "x"
    for axis, factor in enumerate(q.attributes["factor"], start=2):
        text = f"jnp.repeat({text}, {factor}, axis={axis})"
    return text


def _cumsum(q: OpCase) -> str:
    """Return test case q, a cumulative sum, as source text; raise NotOffered for an exclusive one."""
    if q.attributes["exclusive"]:
        raise NotOffered("jax has no exclusive cumsum")
    axis = q.attributes["axis"] % q.arrays["x"].ndim
    return call_text("lax.cumsum", X, axis=axis, reverse=q.attributes["reverse"])


def _direct_call(function: str, *args: Any) -> Callable[[OpCase], str]:
    """Return the writer of operators that are one call in JAX: from a test case to the source text function(x, *args,
    *attributes).
    """
    return lambda q: call_text(function, X, *args, *q.attributes.values())


CALLS: dict[str, Callable[[OpCase], str]] = {
    **{op.name: _direct_call(op.names.jax) for op in REGISTRY.values() if op.names.jax},
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "linear": lambda q: "x @ w.T" + (" + b" if "b" in q.arrays else ""),
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "global_avg_pool": _global_pool,
    "global_max_pool": _global_pool,
    "batch_norm": _batch_norm,
    "upsample_nearest": _upsample,
    "cumsum": _cumsum,
    "add": lambda q: "x + z",
    "mul": lambda q: "x * z",
    "leaky_relu": _direct_call("jax.nn.leaky_relu"),
    "clamp": _direct_call("jnp.clip"),
    "gelu": _direct_call("jax.nn.gelu", False),
    "softmax": _direct_call("jax.nn.softmax"),
    "log_softmax": _direct_call("jax.nn.log_softmax"),
}

FORWARD = "\ndef run({names}):\n    return [np.asarray(f({names}))]\n"
GRADIENT = """
def run({names}, g):
    y, pull = jax.vjp(f, {names})
    return [np.asarray(t) for t in pull(jnp.asarray(g))]
"""
HEAD = "import jax\nimport jax.numpy as jnp\nimport numpy as np\nfrom jax import lax\n\n"


def _program(q: OpCase) -> str:
    """Return the program text of test case q; raise NotOffered if jax lacks the operator."""
    if q.operator not in CALLS:
        raise NotOffered(f"jax has no {q.operator}")
    names = ", ".join(q.arrays)
    body = f"@jax.jit\ndef f({names}):\n    return {CALLS[q.operator](q)}\n"
    return HEAD + body + (FORWARD if q.gradient is None else GRADIENT).format(names=names)


SHARDED = """
def run({names}, g):
    from jax.sharding import NamedSharding, PartitionSpec
    mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(x, NamedSharding(mesh, PartitionSpec(None, None, "a")))
    pull = jax.jit(lambda {names}, g: jax.vjp(f, {names})[1](g))
    return [np.asarray(t) for t in pull({names}, jnp.asarray(g))]
"""


def _sharded(q: OpCase) -> str:
    """Return the program of case q's gradient with the first spatial axis split over two devices.

    Raises NotOffered unless the case has a gradient and that axis an even size.
    """
    if q.gradient is None or q.arrays["x"].ndim < 3 or q.arrays["x"].shape[2] % 2:
        raise NotOffered("two devices share the first spatial axis: its size must be even")
    if q.operator not in CALLS:
        raise NotOffered(f"jax has no {q.operator}")
    names = ", ".join(q.arrays)
    return HEAD + f"def f({names}):\n    return {CALLS[q.operator](q)}\n" + SHARDED.format(names=names)


JAX = Runtime(
    "jax",
    ("jax",),
    _program,
    gradients=True,
    flush=True,
    functions="jax",
    cost=2,
    environment={"JAX_PLATFORMS": "cpu"},
)
JAX_SHARDED = Runtime(
    "jax-sharded",
    ("jax",),
    _sharded,
    gradients=True,
    flush=True,
    cost=4,
    environment={"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
)
