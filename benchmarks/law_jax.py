"""The bare JAX call of every case of the law, both sides jitted. What `functional` respells is one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from law_cases import CASES, Case, Given, numbers
from specgrad.engines.base import function_named
from specgrad.op import REGISTRY

# A call runs in the thread that makes it: the handing over to another costs one side or the other 30 us by chance.
jax.config.update("jax_cpu_enable_async_dispatch", False)

Work = Callable[[], Any]
SAMPLE = 1e-2  # seconds: XLA works in threads of its own, whose CPU time the clock sees late
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
CLOSE = {"float32": 1e-3, "bfloat16": 5e-2}
NN = jax.nn


def _elementwise() -> dict[str, Callable[..., Any]]:
    named = (op for op in REGISTRY.values() if op.names.jax and not op.param_names)
    found: dict[str, Callable[..., Any]] = {
        **{f"sg.{op.name}": function_named(op.names.jax, jax=jax, jnp=jnp) for op in named},
        **{f"sg.{n}": getattr(jnp, n) for n in ("sign", "trunc", "fmod")},
        **{f"sg.{n}": getattr(NN, n) for n in ("leaky_relu", "softplus")},
    }
    pairs = {"add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.divide}
    for name, f in (pairs | {"maximum": jnp.maximum, "minimum": jnp.minimum}).items():
        found |= {f"sg.{name}": f, f"sg.{name} per channel": f, f"sg.{name} number": lambda a, f=f: f(a, 0.5)}
    for name in ("equal", "greater", "greater_equal"):
        g = getattr(jnp, name)
        found[f"sg.{name}"] = lambda a, b, g=g: g(a, b).astype(a.dtype)
        found[f"sg.{name} number"] = lambda a, g=g: g(a, 0.5).astype(a.dtype)
    return found | {
        "sg.clamp": lambda a: jnp.where(a > 0.5, 0.5, jnp.where(a < -0.5, -0.5, a)),  # as hard_tanh: jnp.clip halves
        "sg.gelu": lambda a: NN.gelu(a, approximate=False),
        "sg.gelu tanh": lambda a: NN.gelu(a, approximate=True),
        "sg.neg": jnp.negative,
        "sg.normal_cdf": jax.scipy.stats.norm.cdf,
        "sg.normal_pdf": jax.scipy.stats.norm.pdf,
        "sg.power": lambda a: a**3,
        "sg.mod": jnp.remainder,
        "sg.stop_gradient": lax.stop_gradient,
        "sg.select": lambda c, a, b: jnp.where(c != 0, a, b),
        "sg.quantize": lambda a, s: jnp.clip(jnp.round(a / s), -128, 127),
        "sg.dequantize": lambda q, s: (q - 100) * s,
    }


def _layout() -> dict[str, Callable[..., Any]]:
    edge = ((0, 0), (0, 0), (1, 1), (1, 1))
    return {
        "sg.broadcast": lambda a: jnp.broadcast_to(a, (2, *a.shape)),
        "sg.concat": lambda a, b: jnp.concatenate([a, b], 1),
        "sg.fill": lambda a: jnp.full_like(a, 0.5),
        "sg.flatten": lambda a: a.reshape((a.shape[0], -1)),
        "sg.pad": lambda a: jnp.pad(a, edge),
        "sg.pad reflect": lambda a: jnp.pad(a, edge, "reflect"),
        "sg.permute": lambda a: jnp.transpose(a, (0, 2, 3, 1)),
        "sg.reshape": lambda a: a.reshape((a.shape[0], a.shape[1], -1)),
        "sg.roll": lambda a: jnp.roll(a, 1, 3),
        "sg.slice": lambda a: a[:, :, 1:-1, 1:-1],
        "sg.unpad": lambda a: a[..., 1:-1, 1:-1],
        "sg.upsample_nearest": lambda a: jax.image.resize(a, _double(a), "nearest"),
        "sg.resize": lambda a: jax.image.resize(a, _double(a), "linear"),
        "sg.gather": lambda a, i: jnp.take(a, i, 1),
        "sg.scatter": lambda a, i: jnp.zeros_like(a).at[:, i].add(a),
        "sg.take_along": lambda a, i: jnp.take_along_axis(a, i, 3),
        "sg.take": lambda a, i: jnp.take_along_axis(_rows(a), _rows(i), 2).reshape(i.shape),
    }


def _double(a: Any) -> tuple[int, ...]:
    return (*a.shape[:2], 2 * a.shape[2], 2 * a.shape[3])


def _rows(a: Any) -> Any:
    return a.reshape((*a.shape[:2], -1))


def _reductions() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for name in ("sum", "mean"):
        f = getattr(jnp, name)
        found[f"sg.{name}"] = f
        found[f"sg.{name} planes"] = lambda a, f=f: f(a, (2, 3))
        found[f"sg.{name} channels"] = lambda a, f=f: f(a, 1, keepdims=True)
    for name in ("amax", "amin"):
        f = getattr(jnp, name)
        found |= {f"sg.{name} planes": lambda a, f=f: f(a, (2, 3)), f"sg.{name} channels": lambda a, f=f: f(a, 1)}
    for name in ("argmax", "argmin"):
        f = getattr(jnp, name)
        found |= {f"sg.{name}": lambda a, f=f: f(a, -1), f"sg.{name} channels": lambda a, f=f: f(a, 1)}
    return found | {
        "sg.cumprod": lambda a: jnp.cumprod(a, 3),
        "sg.cumsum": lambda a: jnp.cumsum(a, 3),
        "sg.prod": lambda a: jnp.prod(a, 3),
        "sg.topk": lambda a: lax.top_k(a, 3)[0],
        "sg.softmax": NN.softmax,
        "sg.softmax channels": lambda a: NN.softmax(a, 1),
        "sg.log_softmax": NN.log_softmax,
        "sg.log_softmax channels": lambda a: NN.log_softmax(a, 1),
        "sg.cross_entropy": lambda a, i: _entropy(a, i),
        "sg.cross_entropy planes": lambda a, i: _entropy(a, i),
        "sg.mse_loss": lambda a, b: jnp.mean((a - b) ** 2),
        "sg.batch_norm": lambda a, m, v, w, b: (a - _c(m)) * lax.rsqrt(_c(v) + 1e-5) * _c(w) + _c(b),
        "sg.layer_norm": lambda a, w, b: NN.standardize(a, -1, epsilon=1e-5) * w + b,
        "sg.group_norm": _group_norm,
    }


def _c(v: Any) -> Any:
    return v[:, None, None]


def _entropy(a: Any, i: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(NN.log_softmax(a, 1), i[:, None], 1))


def _group_norm(a: Any, w: Any, b: Any) -> Any:
    grouped = NN.standardize(a.reshape((a.shape[0], 2, -1)), -1, epsilon=1e-5)
    return grouped.reshape(a.shape) * _c(w) + _c(b)


def conv(stride: int, padding: int, *, depthwise: bool = False) -> Callable[..., Any]:
    def f(a: Any, w: Any, b: Any = None) -> Any:
        rank = a.ndim - 2
        groups = a.shape[1] if depthwise else 1
        y = lax.conv_general_dilated(a, w, (stride,) * rank, ((padding, padding),) * rank, feature_group_count=groups)
        return y if b is None else y + b.reshape((-1, *(1,) * rank))

    return f


def transpose(stride: int, padding: int) -> Callable[..., Any]:
    """As everyone writes it: the input dilated by the stride, the kernel flipped."""

    def f(a: Any, w: Any) -> Any:
        rank = a.ndim - 2
        flipped = jnp.flip(jnp.swapaxes(w, 0, 1), tuple(range(2, w.ndim)))
        pads = tuple((k - 1 - padding, k - 1 - padding) for k in w.shape[2:])
        return lax.conv_general_dilated(a, flipped, (1,) * rank, pads, lhs_dilation=(stride,) * rank)

    return f


def pool(join: Any, start: float, k: int, s: int, p: int) -> Callable[..., Any]:
    def f(a: Any) -> Any:
        rank = a.ndim - 2
        one, pads = (1, 1), ((0, 0), (0, 0), *((p, p),) * rank)
        return lax.reduce_window(a, np.asarray(start, a.dtype), join, (*one, *(k,) * rank), (*one, *(s,) * rank), pads)

    return f


def _products() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for k, s, p in ((2, 2, 0), (3, 2, 1), (3, 1, 1)):
        total = pool(lax.add, 0.0, k, s, p)
        found[f"sg.max_pool k{k} s{s}"] = pool(lax.max, -np.inf, k, s, p)
        found[f"sg.avg_pool k{k} s{s}"] = lambda a, total=total, k=k: total(a) / (k * k)
    for rank in (1, 2, 3):
        found[f"functional.conv{rank}d"] = conv(1, 1)
        found[f"functional.max_pool{rank}d"] = pool(lax.max, -np.inf, 2, 2, 0)
        total = pool(lax.add, 0.0, 2, 2, 0)
        found[f"functional.avg_pool{rank}d"] = lambda a, total=total, rank=rank: total(a) / 2**rank
    return found | {
        "sg.linear": lambda a, w, b: a @ w.T + b,
        "sg.matmul": jnp.matmul,
        "sg.matmul batched": jnp.matmul,
        "sg.contract": lambda a, w: jnp.einsum("ij,kj->ik", a, w),
        "sg.conv 3x3": conv(1, 1),
        "sg.conv 3x3 s2": conv(2, 1),
        "sg.conv 1x1": conv(1, 0),
        "sg.conv depthwise": conv(1, 1, depthwise=True),
        "sg.conv_transpose 2x2 s2": transpose(2, 0),
        "sg.conv_transpose 4x4 s2": transpose(2, 1),
        "sg.global_avg_pool": lambda a: jnp.mean(a, (2, 3), keepdims=True),
        "sg.global_max_pool": lambda a: jnp.max(a, (2, 3), keepdims=True),
    }


BARE = _elementwise() | _layout() | _reductions() | _products()
_POOLS = ("sg.lp_pool", "sg.adaptive_avg_pool", "sg.adaptive_max_pool", "sg.max_unpool", "sg.put")
NONE = {name: "JAX has no function for it" for name, c in CASES.items() if c.function in _POOLS}
NONE |= {
    name: "PyTorch's spelling of a case that stands under its own name: one program under jit"
    for name in CASES
    if name.startswith("functional.") and name not in BARE
}


# --- one row ------------------------------------------------------------------------------------------------------


def variants(case: Case) -> list[dict[str, str]]:
    ways = ("forward",) if case.flat else ("forward", "forward+backward")
    return [
        {"size": size, "layout": "contiguous", "dtype": dtype, "direction": way}
        for size in case.given for dtype in DTYPES for way in ways
    ]  # fmt: skip


def array(given: Given, seed: int, dtype: str) -> Any:
    a = numbers(given, seed)
    return jnp.asarray(a, jnp.int32) if a.dtype == np.int64 else jnp.asarray(a, DTYPES[dtype])


def works(case: Case, row: dict[str, str]) -> tuple[Work, Work, bool]:
    given = case.given[row["size"]]
    arrays = [array(g, i, row["dtype"]) for i, g in enumerate(given)]
    wrt = [i for i, g in enumerate(given) if g.kind in ("real", "positive", "distinct")]
    back = row["direction"] != "forward"
    sides = [_work(f, arrays, wrt, back) for f in (BARE[case.name], case.ours)]
    sides[0]()  # what JAX does not take is said here
    # XLA adds bfloat16 in bfloat16, where 256 + 1 = 256: in the gradient of a bias, bare values are wrong.
    wide = [a.astype(jnp.float32) if a.dtype == jnp.bfloat16 else a for a in arrays]
    wanted = _work(BARE[case.name], wide, wrt, back)
    for want, ours in zip(*(jax.tree.leaves(run()) for run in (wanted, sides[1])), strict=True):
        expected, found = np.asarray(want, np.float64), np.asarray(ours, np.float64)
        near = CLOSE[row["dtype"]]
        np.testing.assert_allclose(found, expected, rtol=near, atol=near * max(1.0, float(np.abs(expected).max())))
    return sides[0], sides[1], True


def _work(f: Callable[..., Any], arrays: list[Any], wrt: list[int], back: bool) -> Work:
    if not back:
        run = jax.jit(f)
        return lambda: jax.block_until_ready(run(*arrays))

    def both(gy: Any, *given: Any) -> Any:
        def of_some(*some: Any) -> Any:
            full = list(given)
            for i, a in zip(wrt, some, strict=True):
                full[i] = a
            return f(*full)

        y, pullback = jax.vjp(of_some, *(given[i] for i in wrt))
        return y, pullback(gy)

    out = jax.eval_shape(f, *arrays)
    gy = jnp.linspace(0.5, 1.5, out.size).astype(out.dtype).reshape(out.shape)
    run = jax.jit(both)
    return lambda: jax.block_until_ready(run(gy, *arrays))


def missing() -> list[str]:
    return [name for name in CASES if name not in BARE and name not in NONE]
