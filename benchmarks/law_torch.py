"""The bare PyTorch call of every case of the law: the framework's best single call, or its plainest spelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from law_cases import CASES, Case, Given, numbers
from specgrad.engines.base import function_named
from specgrad.op import REGISTRY

Work = Callable[[], Any]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CLOSE = {"float32": (1e-4, 1e-4), "bfloat16": (3e-2, 3e-2)}


def _curves() -> dict[str, Callable[..., Any]]:
    named = (op for op in REGISTRY.values() if op.names.torch and not op.param_names)
    return {
        **{f"sg.{op.name}": function_named(op.names.torch, torch=torch, F=F) for op in named},
        **{f"sg.{n}": getattr(torch, n) for n in ("relu", "sign", "trunc", "fmod")},
        **{f"sg.{n}": getattr(F, n) for n in ("leaky_relu", "softplus")},
        "sg.clamp": lambda a: torch.clamp(a, -0.5, 0.5),
        "sg.gelu tanh": lambda a: F.gelu(a, approximate="tanh"),
        "sg.stop_gradient": torch.Tensor.detach,
        "sg.power": lambda a: torch.pow(a, 3),
        "sg.mod": torch.remainder,
        "sg.select": lambda c, a, b: torch.where(c != 0, a, b),
        "sg.quantize": lambda a, s: torch.clamp(torch.round(a / s), -128, 127),
        "sg.dequantize": lambda q, s: (q - 100) * s,
    }


def _pairs() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for name in ("add", "sub", "mul", "div"):
        f = getattr(torch, name)
        found |= {f"sg.{name}": f, f"sg.{name} per channel": f, f"sg.{name} number": lambda a, f=f: f(a, 0.5)}
    for name in ("maximum", "minimum"):
        f = getattr(torch, name)
        bound = lambda a, f=f: f(a, a.new_full((), 0.5))  # clamp has another gradient at the bound
        found |= {f"sg.{name}": f, f"sg.{name} per channel": f, f"sg.{name} number": bound}
    for name, g in (("equal", torch.eq), ("greater", torch.gt), ("greater_equal", torch.ge)):
        found[f"sg.{name}"] = lambda a, b, g=g: g(a, b).to(a.dtype)
        found[f"sg.{name} number"] = lambda a, g=g: g(a, 0.5).to(a.dtype)
    return found


def _layout() -> dict[str, Callable[..., Any]]:
    return {
        "sg.broadcast": lambda a: a.expand((2, *a.shape)),
        "sg.concat": lambda a, b: torch.cat([a, b], 1),
        "sg.fill": lambda a: torch.full_like(a, 0.5),
        "sg.flatten": lambda a: torch.flatten(a, 1),
        "sg.pad": lambda a: F.pad(a, (1, 1, 1, 1)),
        "sg.pad reflect": lambda a: F.pad(a, (1, 1, 1, 1), "reflect"),
        "sg.permute": lambda a: a.permute((0, 2, 3, 1)),
        "sg.reshape": lambda a: a.reshape((a.shape[0], a.shape[1], -1)),
        "sg.roll": lambda a: torch.roll(a, 1, 3),
        "sg.slice": lambda a: a[:, :, 1:-1, 1:-1],
        "sg.unpad": lambda a: a[..., 1:-1, 1:-1],
        "sg.upsample_nearest": lambda a: F.interpolate(a, scale_factor=2),
        "sg.resize": lambda a: F.interpolate(a, (2 * a.shape[2], 2 * a.shape[3]), mode="bilinear"),
        "sg.gather": lambda a, i: a.index_select(1, i),
        "sg.scatter": lambda a, i: torch.zeros_like(a).index_add(1, i, a),
        "sg.take_along": lambda a, i: torch.gather(a, 3, i),
        "sg.take": lambda a, i: a.flatten(2).gather(2, i.flatten(2)).view(i.shape),
        "sg.put": lambda a, i: torch.zeros_like(a).flatten(2).scatter_add(2, i.flatten(2), a.flatten(2)).view(a.shape),
    }


def _reductions() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for name in ("sum", "mean"):
        f = getattr(torch, name)
        found[f"sg.{name}"] = f
        found[f"sg.{name} planes"] = lambda a, f=f: f(a, (2, 3))
        found[f"sg.{name} channels"] = lambda a, f=f: f(a, 1, keepdim=True)
    for name in ("amax", "amin"):
        f = getattr(torch, name)
        found |= {f"sg.{name} planes": lambda a, f=f: f(a, (2, 3)), f"sg.{name} channels": lambda a, f=f: f(a, 1)}
    for name in ("argmax", "argmin"):
        f = getattr(torch, name)
        found |= {f"sg.{name}": lambda a, f=f: f(a, -1), f"sg.{name} channels": lambda a, f=f: f(a, 1)}
    return found | {
        "sg.cumprod": lambda a: torch.cumprod(a, 3),
        "sg.cumsum": lambda a: torch.cumsum(a, 3),
        "sg.prod": lambda a: torch.prod(a, 3),
        "sg.topk": lambda a: torch.topk(a, 3)[0],
        "sg.softmax": lambda a: F.softmax(a, -1),
        "sg.softmax channels": lambda a: F.softmax(a, 1),
        "sg.log_softmax": lambda a: F.log_softmax(a, -1),
        "sg.log_softmax channels": lambda a: F.log_softmax(a, 1),
        "sg.cross_entropy": F.cross_entropy,
        "sg.cross_entropy planes": F.cross_entropy,
        "sg.mse_loss": F.mse_loss,
        "sg.batch_norm": F.batch_norm,
        "sg.layer_norm": lambda a, w, b: F.layer_norm(a, w.shape, w, b),
        "sg.group_norm": lambda a, w, b: F.group_norm(a, 2, w, b),
    }


def _products() -> dict[str, Callable[..., Any]]:
    return {
        "sg.linear": F.linear,
        "sg.matmul": torch.matmul,
        "sg.matmul batched": torch.matmul,
        "sg.contract": lambda a, w: torch.einsum("ij,kj->ik", a, w),
        "sg.conv 3x3": lambda a, w, b: F.conv2d(a, w, b, 1, 1),
        "sg.conv 3x3 s2": lambda a, w: F.conv2d(a, w, None, 2, 1),
        "sg.conv 1x1": F.conv2d,
        "sg.conv depthwise": lambda a, w: F.conv2d(a, w, None, 1, 1, 1, a.shape[1]),
        "sg.conv_transpose 2x2 s2": lambda a, w: F.conv_transpose2d(a, w, None, 2),
        "sg.conv_transpose 4x4 s2": lambda a, w: F.conv_transpose2d(a, w, None, 2, 1),
    }


def _pools() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for k, s, p in ((2, 2, 0), (3, 2, 1), (3, 1, 1)):
        found[f"sg.max_pool k{k} s{s}"] = lambda a, k=k, s=s, p=p: F.max_pool2d(a, k, s, p)
        found[f"sg.avg_pool k{k} s{s}"] = lambda a, k=k, s=s, p=p: F.avg_pool2d(a, k, s, p)
    return found | {
        "sg.lp_pool k2 s2": lambda a: F.lp_pool2d(a, 2, 2),
        "sg.adaptive_avg_pool 4": lambda a: F.adaptive_avg_pool2d(a, 4),
        "sg.adaptive_avg_pool 5": lambda a: F.adaptive_avg_pool2d(a, 5),
        "sg.adaptive_max_pool 4": lambda a: F.adaptive_max_pool2d(a, 4),
        "sg.adaptive_max_pool 5": lambda a: F.adaptive_max_pool2d(a, 5),
        "sg.global_avg_pool": lambda a: F.adaptive_avg_pool2d(a, 1),
        "sg.global_max_pool": lambda a: torch.amax(a, (2, 3), keepdim=True),
        "sg.max_unpool k2 s2": lambda a, i: F.max_unpool2d(a, i, 2),
    }


def _functional() -> dict[str, Callable[..., Any]]:
    """The same arguments as ours: they are in the case's own call, so it is made again with PyTorch's function."""
    how: dict[str, tuple[Any, ...]] = {"conv": (1, 1), "conv_transpose": (2,), "lp_pool": (2, 2)}
    pools = ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "max_unpool")
    how |= dict.fromkeys(pools, (2,))
    found = {f"functional.{n}{r}d": _with(getattr(F, f"{n}{r}d"), *a) for n, a in how.items() for r in (1, 2, 3)}
    for name in ("functional.avg_pool3d", "functional.lp_pool3d"):  # PyTorch has no such kernel for half types
        found[name] = lambda a, f=found[name]: f(a) if a.dtype == torch.float32 else f(a.float()).to(a.dtype)
    same = [
        "relu",
        "relu6",
        "leaky_relu",
        "hardswish",
        "silu",
        "gelu",
        "softplus",
        "linear",
        "batch_norm",
        "cross_entropy",
        "mse_loss",
    ]
    found |= {f"functional.{n}": getattr(F, n) for n in same}
    return found | {
        "functional.sigmoid": torch.sigmoid,
        "functional.tanh": torch.tanh,
        "functional.softmax": _with(F.softmax, 1),
        "functional.log_softmax": _with(F.log_softmax, 1),
        "functional.layer_norm": lambda a, w, b: F.layer_norm(a, w.shape, w, b),
        "functional.group_norm": lambda a, w, b: F.group_norm(a, 2, w, b),
        "functional.pad": _with(F.pad, (1, 1, 1, 1)),
        "functional.interpolate": _with(F.interpolate, None, 2),
        "functional.interpolate bilinear": lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"),
    }


def _with(f: Callable[..., Any], *how: Any) -> Callable[..., Any]:
    return lambda *given: f(*given, *how)


BARE = _curves() | _pairs() | _layout() | _reductions() | _products() | _pools() | _functional()
NONE = {"sg.normal_pdf": "torch.distributions.Normal.log_prob makes objects and checks values"}
"""Cases for which PyTorch has no function."""
_ENDS = "the last cells of each axis are summed: beyond an infinite one PyTorch's weights are others"
_ENDS += "; gradients of half types go by way of float32"
_APART = "positions are marked and counted: where one comes twice PyTorch leaves open which value stays"
PRICE = {
    "sg.sign": "a sum is taken to see that no cell is NaN, of which torch.sign makes 0",
    "sg.global_max_pool": "winners are counted, or kept: every one of them gets the whole cotangent",
    "sg.topk": "one cell more is found, and neighbours are compared: torch.topk leaves the order of equal cells open",
    "sg.quantize": "the zero point is added: it makes +0 of -0",
    "sg.cross_entropy": "the least label is read: F.cross_entropy ignores one, always, and we refuse what is no class",
    "sg.group_norm": "on channels_last means are held against deviations: where they are large the kernel loses digits",
    **dict.fromkeys(("sg.resize", "functional.interpolate"), _ENDS),
    "sg.avg_pool": "half types go through float32 where many windows read a cell: the kernel sums gradients in them",
    "functional.adaptive_avg_pool3d": "half types are averaged in float32, and rounded once",
    "sg.layer_norm": "half types take gradients in float32: PyTorch's of weight and bias stop at 256 in bfloat16",
    "sg.put": "positions are read first: the kernel writes wherever it is told",
    "sg.max_unpool": _APART,
    **{f"functional.max_unpool{rank}d": _APART for rank in (1, 2, 3)},
}
PRICE |= {f"functional.{name}": PRICE[f"sg.{name}"] for name in ("cross_entropy", "group_norm", "layer_norm")}
"""What the contract asks for beyond the bare call, by function: work that a losing row pays."""


# --- one row ------------------------------------------------------------------------------------------------------


def tensor(given: Given, seed: int, dtype: str, layout: str) -> torch.Tensor:
    t = torch.from_numpy(numbers(given, seed))
    if t.dtype == torch.int64:
        return t
    t = t.to(DTYPES[dtype])
    t = t.contiguous(memory_format=torch.channels_last) if layout == "channels_last" and t.ndim == 4 else t
    return t.requires_grad_(given.kind in ("real", "positive", "distinct"))


def variants(case: Case) -> list[dict[str, str]]:
    """Sizes, layouts, types and directions that mean something for this case."""
    four = any(len(g.shape) == 4 and min(g.shape[1:]) > 1 for g in case.given["tiny"])
    layouts = ("contiguous", "channels_last") if four else ("contiguous",)
    ways = ("forward",) if case.flat else ("forward", "forward+backward")
    return [
        {"size": size, "layout": layout, "dtype": dtype, "direction": way}
        for size in case.given for layout in layouts for dtype in DTYPES for way in ways
    ]  # fmt: skip


def works(case: Case, row: dict[str, str]) -> tuple[Work, Work, bool]:
    """Both sides, after ours was found to be the bare one's in float64, and whether results have the same layout."""
    given = [tensor(g, i, row["dtype"], row["layout"]) for i, g in enumerate(case.given[row["size"]])]
    back = row["direction"] != "forward"
    if not back:
        given = [t.detach() for t in given]
    sides = [_work(f, given, back) for f in (BARE[case.name], case.ours)]
    rtol, atol = CLOSE[row["dtype"]]
    found = [side() for side in sides]
    flat = [f if isinstance(f, tuple) else (f,) for f in found]
    wanted = flat[0] if case.flat else _in_float64(BARE[case.name], given, back)  # steps are in another place there
    for want, ours in zip(wanted, flat[1], strict=True):
        size = float(want.abs().max()) if want.is_floating_point() and want.numel() else 0.0
        torch.testing.assert_close(ours, want.to(ours.dtype), rtol=rtol, atol=atol * max(1.0, size))
    alike = all(_strides(a) == _strides(b) for a, b in zip(*flat, strict=True))
    return sides[0], sides[1], alike


def _work(f: Callable[..., Any], given: list[torch.Tensor], back: bool) -> Work:
    if not back:
        return lambda: f(*given)
    wrt = [t for t in given if t.requires_grad]
    y = f(*given)
    g = torch.linspace(0.5, 1.5, y.numel()).to(y.dtype).reshape(y.shape)
    g = torch.empty_like(y).copy_(g)  # in the layout of the result
    return lambda: torch.autograd.grad(f(*given), wrt, g)


def _in_float64(f: Callable[..., Any], given: list[torch.Tensor], back: bool) -> tuple[torch.Tensor, ...]:
    """What the bare call means: in its own type it may be wrong, as gradients of layer_norm's bias are in bfloat16."""
    wide = [t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t for t in given]
    found = _work(f, wide, back)()
    return found if isinstance(found, tuple) else (found,)


def _strides(t: torch.Tensor) -> list[int]:
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]


def missing() -> list[str]:
    return [name for name in CASES if name not in BARE and name not in NONE]
