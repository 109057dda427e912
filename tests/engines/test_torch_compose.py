"""Calls on tensors compose with PyTorch: autograd, torch.func, torch.compile, autocast, layouts, types, meta."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jvp, vjp, vmap

import specgrad as sg
from specgrad.engines.torch import enable_torch_compile
from specgrad.engines.torch.rewrites import batch_norm

CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max_pool stride 1": lambda x: sg.max_pool(x, (3, 3), stride=1, padding=1),
    "max_pool stride 2": lambda x: sg.max_pool(x, (3, 3), stride=2, padding=1),
    "max_pool wide padding": lambda x: sg.max_pool(x, (2, 2), stride=1, padding=3),
    "max_pool dilated": lambda x: sg.max_pool(x, (2, 2), stride=1, dilation=2),
    "avg_pool stride 1": lambda x: sg.avg_pool(x, (3, 3), stride=1, padding=1, count_include_pad=False),
    "avg_pool stride 2": lambda x: sg.avg_pool(x, (2, 2)),
    "smooth_max_pool": lambda x: sg.smooth_max_pool(x, (2, 2), beta=2.0, stride=1, padding=1),
    "smooth_max_pool strided": lambda x: sg.smooth_max_pool(x, (2, 2), beta=-1.5, padded="ignore", padding=1),
    "adaptive_max_pool": lambda x: sg.adaptive_max_pool(x, (3, 2)),
    "adaptive_avg_pool": lambda x: sg.adaptive_avg_pool(x, (3, 4)),
    "global_max_pool": lambda x: sg.global_max_pool(x, rank=2),
    "conv": lambda x: sg.conv(torch.ones(2, 3, 2, 2, dtype=x.dtype) / 7, None, x, padding=((1, 0), (0, 2))),
    "conv_transpose": lambda x: sg.conv_transpose(torch.ones(3, 2, 2, 2, dtype=x.dtype) / 7, None, x, stride=2),
    "softmax": lambda x: sg.softmax(x, 1),
    "batch_norm": lambda x: sg.batch_norm(x, torch.ones(3).to(x), torch.ones(3).to(x)),
}


def distinct(*shape: int) -> torch.Tensor:
    """All cells different, so that every derivative is classical."""
    n = int(np.prod(shape))
    order = torch.from_numpy(np.random.default_rng(0).permutation(n))
    return (order.double() / n * 4 - 2).view(shape)


@pytest.fixture(params=list(CALLS))
def call(request: pytest.FixtureRequest) -> Callable[[torch.Tensor], torch.Tensor]:
    return CALLS[request.param]


def reference(call: Callable, x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Value, tangent in v, gradient of the sum of squares: by the graph over NumPy, not by PyTorch."""
    array, direction = x.numpy(), v.numpy()

    def on_numpy(t):
        return call(t) if isinstance(t, torch.Tensor) else NUMPY_CALLS[id(call)](t)

    graph = sg.trace(on_numpy, array)
    y, dy = sg.jvp(graph)(array, direction)
    gx = sg.vjp(graph)(array, 2 * y)[1]
    return tuple(torch.from_numpy(np.array(a)) for a in (y, dy, gx))


def _numpy_call(name: str) -> Callable:
    table = {
        "conv": lambda x: sg.conv(np.ones((2, 3, 2, 2)) / 7, None, x, padding=((1, 0), (0, 2))),
        "conv_transpose": lambda x: sg.conv_transpose(np.ones((3, 2, 2, 2)) / 7, None, x, stride=2),
        "batch_norm": lambda x: sg.batch_norm(x, np.ones(3), np.ones(3)),
    }
    return table.get(name, CALLS[name])


NUMPY_CALLS = {id(CALLS[name]): _numpy_call(name) for name in CALLS}


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a.detach(), b, rtol=1e-11, atol=1e-12)


def test_backward_and_double_backward(call) -> None:
    x, v = distinct(2, 3, 5, 6), distinct(2, 3, 5, 6).flip(0)
    y, _, gx = reference(call, x, v)
    t = x.clone().requires_grad_()
    out = call(t)
    close(out, y)
    (first,) = torch.autograd.grad(out.square().sum(), t, create_graph=True)
    close(first, gx)
    (second,) = torch.autograd.grad((first * v).sum(), t)
    eps = 1e-6
    numeric = (reference(call, x + eps * v, v)[2] - reference(call, x - eps * v, v)[2]) / (2 * eps)
    torch.testing.assert_close(second, numeric, rtol=1e-4, atol=1e-5)


def test_functional_transforms(call) -> None:
    x, v = distinct(2, 3, 5, 6), distinct(2, 3, 5, 6).flip(0)
    y, dy, gx = reference(call, x, v)
    close(grad(lambda t: call(t).square().sum())(x), gx)
    value, tangent = jvp(call, (x,), (v,))
    close(value, y)
    close(tangent, dy)
    value, pull = vjp(call, x)
    close(pull(2 * value)[0], gx)
    batch = torch.stack([x, x + 0.125])
    close(vmap(call)(batch), torch.stack([call(b) for b in batch]))
    close(vmap(grad(lambda t: call(t).square().sum()))(batch)[0], gx)


@pytest.mark.parametrize("name", ["max_pool stride 1", "smooth_max_pool", "avg_pool stride 1", "conv"])
def test_hessian(name: str) -> None:
    call = CALLS[name]
    x = distinct(1, 3, 3, 3)
    found = hessian(lambda t: call(t).square().sum())(x).reshape(27, 27)
    t = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(call(t).square().sum(), t, create_graph=True)
    rows = [torch.autograd.grad(g, t, retain_graph=True)[0].flatten() for g in first.flatten()]
    close(found, torch.stack(rows))


@pytest.mark.parametrize("name", ["max_pool stride 1", "avg_pool stride 1", "smooth_max_pool", "conv"])
def test_torch_compile(name: str) -> None:
    """Traced whole, without a graph break, and with the same gradient."""
    enable_torch_compile()
    call = CALLS[name]
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    x = distinct(2, 3, 5, 6)
    a, b = (x.clone().requires_grad_() for _ in range(2))
    compiled(a).square().sum().backward()
    call(b).square().sum().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", CALLS)
def test_torch_compile_with_changing_batches(name: str) -> None:
    """torch.compile leaves a size open once it has changed."""
    enable_torch_compile()
    compiled = torch.compile(CALLS[name], fullgraph=True, backend="eager")
    for batch in (2, 3, 4):
        x = distinct(batch, 3, 5, 6)
        torch.testing.assert_close(compiled(x), CALLS[name](x))


LEADING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **CALLS,
    "relu and add": lambda x: sg.add(sg.relu(x), 1.5),
    "broadcast": lambda x: sg.mul(x, torch.ones(5, 1, dtype=x.dtype)),
    "linear": lambda x: sg.linear(torch.ones(2, 6, dtype=x.dtype), None, x),
    "matmul": lambda x: sg.matmul(x, torch.ones(6, 2, dtype=x.dtype)),
    "reshape": lambda x: sg.reshape(x, (x.shape[0], -1)),
    "flatten": lambda x: sg.flatten(x, 1),
    "slice": lambda x: sg.slice(x, None, slice(1, 3), slice(0, 5, 2)),
    "pad": lambda x: sg.pad(x, ((1, 2), (0, 1))),
    "concat": lambda x: sg.concat([x, x], 0),
    "mean": lambda x: sg.mean(x, (0, 2)),
    "lp_pool": lambda x: sg.lp_pool(x, (2, 2)),
    "global_avg_pool": lambda x: sg.global_avg_pool(x, rank=2),
    "cross_entropy": lambda x: sg.cross_entropy(sg.flatten(x, 1), torch.zeros(x.shape[0], dtype=torch.int64)),
}


def compilations(call: Callable, batches: tuple[int, ...]) -> int:
    """How often torch.compile(dynamic=True) compiles the call and its gradient; results are those of the bare call."""
    count = 0

    def backend(module: torch.fx.GraphModule, _: object) -> Callable:
        nonlocal count
        count += 1
        return module.forward

    torch._dynamo.reset()
    compiled = torch.compile(call, dynamic=True, fullgraph=True, backend=backend)
    for batch in batches:
        a, b = (distinct(batch, 3, 5, 6).requires_grad_() for _ in range(2))
        found, want = compiled(a), call(b)
        torch.testing.assert_close(found, want, rtol=1e-11, atol=1e-12)
        found.square().sum().backward()
        want.square().sum().backward()
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-11, atol=1e-12)
    return count


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if k % 3 else []) for k, n in enumerate(LEADING)]
)
def test_torch_compile_leaves_the_batch_open(name: str) -> None:
    """A plan depends on spatial sizes and parameters: one compilation serves every batch, as for PyTorch's calls."""
    enable_torch_compile()
    assert compilations(LEADING[name], (2, 4, 7, 8)) == 1


def test_compilations_are_counted() -> None:
    """The counter itself: a call that reads the batch as a number is compiled for every one."""
    assert compilations(lambda x: x * tuple(range(9))[x.shape[0]], (2, 4, 7, 8)) == 4


UNPREPARED = """
import warnings
import specgrad as sg
import torch
{first}
warnings.filterwarnings("{warn}", message="(?s).*lru_cache")
def net(x):
    return sg.avg_pool(sg.max_pool(sg.conv(torch.ones(2, 3, 2, 2) / 8, None, x), (2, 2), stride=1, padding=1), (2, 2))
x = torch.arange(2 * 3 * 7 * 7.0).sin().view(2, 3, 7, 7)
found = []
for call in (torch.compile(net, backend="aot_eager", fullgraph={full}), net):
    leaf = x.clone().requires_grad_()
    y = call(leaf)
    y.square().sum().backward()
    found.append((y.detach(), leaf.grad))
torch.testing.assert_close(*found)
print("same")
"""


@pytest.mark.parametrize(
    ("first", "warn", "full"),
    [
        pytest.param(
            "", "ignore", False, id="nothing done before: graph breaks, same results", marks=pytest.mark.slow
        ),  # ten seconds
        pytest.param(
            "import torch._dynamo; sg.relu(torch.ones(1))", "error", True, id="registered by itself: one graph"
        ),
    ],
)
def test_torch_compile_in_a_fresh_process(first: str, warn: str, full: bool) -> None:
    code = UNPREPARED.format(first=first, warn=warn, full=full)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "same\n", done.stderr


def test_forward_mode_dual_tensors(call) -> None:
    import torch.autograd.forward_ad as fwd

    x, v = distinct(2, 3, 5, 6), distinct(2, 3, 5, 6).flip(0)
    with fwd.dual_level():
        tangent = fwd.unpack_dual(call(fwd.make_dual(x, v))).tangent
    close(tangent, reference(call, x, v)[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_are_kept(call, dtype: torch.dtype) -> None:
    x = distinct(2, 3, 5, 6).to(dtype)
    y = call(x)
    assert y.dtype == dtype
    exact = call(x.double())
    loss = {torch.float16: 2e-2, torch.bfloat16: 2e-1, torch.float32: 1e-5, torch.float64: 1e-13}[dtype]
    torch.testing.assert_close(y.double(), exact, rtol=loss, atol=loss)


def test_meta_tensors_give_shapes(call) -> None:
    x = distinct(2, 3, 5, 6)
    found = call_on_meta(call, x)
    assert found.device.type == "meta"
    assert found.shape == call(x).shape


def call_on_meta(call: Callable, x: torch.Tensor) -> torch.Tensor:
    with torch.device("meta"):
        return call(x.to("meta"))


def test_empty_batch(call) -> None:
    x = torch.zeros(0, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    y = call(x)
    assert y.shape[0] == 0
    y.sum().backward()
    assert x.grad.shape == x.shape


def test_channels_last(call) -> None:
    x = distinct(2, 3, 5, 6)
    close(call(x.to(memory_format=torch.channels_last)), call(x))


def test_autocast() -> None:
    x, w = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert sg.conv(w, None, x).dtype == F.conv2d(x, w).dtype == torch.bfloat16


def test_smooth_max_is_stable_for_any_finite_argument() -> None:
    x = torch.tensor([[1e30, -1e30, 3.0, 4.0, -1e30, -1e30, 1e4, -1e4]], requires_grad=True)
    y = sg.smooth_max_pool(x, (2,), beta=1.0)
    spec = sg.smooth_max_pool(x.detach().double().numpy(), (2,), beta=1.0)
    np.testing.assert_allclose(y.detach().numpy(), spec, rtol=1e-6)
    y.sum().backward()
    assert torch.isfinite(x.grad).all()
    torch.testing.assert_close(x.grad.sum(), torch.tensor(4.0))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_tangents_of_smooth_max_far_from_zero(layout: Any) -> None:
    """Weights come from x alone there, and the tangent lies in memory as the value does, which PyTorch asks."""
    x, dx = (torch.randn(2, 4, 4, 3, generator=torch.Generator().manual_seed(k), dtype=torch.float64) for k in (0, 1))
    x = (x + 100).to(memory_format=layout)
    _, got = jvp(lambda t: sg.smooth_max_pool(t, (2, 2), beta=3.0, stride=1), (x,), (dx,))
    taps, moved = (np.lib.stride_tricks.sliding_window_view(t.numpy(), (2, 2), (2, 3)) for t in (x, dx))
    weights = np.exp(3 * (taps - taps.max((-1, -2), keepdims=True)))
    wanted = (weights * moved).sum((-1, -2)) / weights.sum((-1, -2))
    np.testing.assert_allclose(got.numpy(), wanted, rtol=0, atol=1e-12)


def test_smooth_max_memory() -> None:
    """At most five times the input, for a window of 9x9 (unfold would take 81)."""
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(4, 8, 64, 64)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        sg.smooth_max_pool(x, (9, 9), beta=1.0, stride=1)
    peak = current = 0
    for event in sorted(
        (e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
    ):
        current += event.nbytes()
        peak = max(peak, current)
    assert peak <= 5 * x.numel() * x.element_size()


HIGH_RANK = {
    "conv": lambda w, x: sg.conv(w, None, x, padding=1),
    "conv_transpose": lambda w, x: sg.conv_transpose(w, None, x, stride=2),
    "max_pool": lambda w, x: sg.max_pool(x, (2,) * (len(x.shape) - 2), stride=1),
    "avg_pool": lambda w, x: sg.avg_pool(x, (2,) * (len(x.shape) - 2), stride=1, divisor=1),
}


@pytest.mark.parametrize("name", list(HIGH_RANK))
@pytest.mark.parametrize("rank", [4, 5])
def test_ranks_four_and_five(name: str, rank: int) -> None:
    """Integers: bit-exact against the specification, in value and in both gradients."""
    draw = np.random.default_rng(rank).integers
    w, x = draw(-3, 4, (2, 2, *(2,) * rank)).astype(float), draw(-3, 4, (1, 2, *(3,) * rank)).astype(float)
    graph = sg.trace(HIGH_RANK[name], w, x)
    tensors = [torch.tensor(a, requires_grad=True) for a in (w, x)]
    y = HIGH_RANK[name](*tensors)
    gradients = torch.autograd.grad(y, tensors, torch.ones_like(y), allow_unused=True)
    expected = sg.vjp(graph)(w, x, np.ones(y.shape))
    for mine, want in zip((y.detach(), *gradients), expected, strict=True):
        np.testing.assert_array_equal(np.zeros(want.shape) if mine is None else mine.numpy(), want)


def test_a_number_normalised_is_no_batch_norm() -> None:
    """PyTorch's kernel takes a tensor; (2 - mean) * (weight / sqrt(var + eps)) + bias has none to give it."""

    def net(mean, var, weight, bias):
        spread = lambda v: sg.broadcast(sg.reshape(v, (1, 3, 1)), (2, 3, 4))
        scale = sg.div(weight, sg.sqrt(sg.add(var, 1 / 16)))
        return sg.add(sg.mul(sg.sub(2.0, spread(mean)), spread(scale)), spread(bias))

    mean, weight, bias = [1.0, 2.0, 4.0], [3.0, 5.0, 7.0], [1.0, 0.0, -1.0]
    given = [torch.tensor(v) for v in (mean, [3 / 16] * 3, weight, bias)]  # sqrt(var + eps) is 1/2
    y = sg.compile(sg.trace(net, (3,), (3,), (3,), (3,)), "torch")(*given)
    want = [(2 - m) * w * 2 + b for m, w, b in zip(mean, weight, bias, strict=True)]
    assert torch.equal(y, torch.tensor(want).view(1, 3, 1).expand(2, 3, 4))


def _norm_graph(shape: tuple[int, ...]) -> Any:
    return sg.trace(lambda x, m, v, w, b: sg.batch_norm(x, m, v, w, b), shape, *((shape[1],),) * 4)


F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


@pytest.mark.parametrize(
    "types", [(F32, F64, F64), (F64, F32, F32), (F32, F32, F64), (BF16, F32, F32), (F32, F16, F32)]
)
def test_a_compiled_batch_norm_of_several_types_has_that_of_the_call(types: tuple[torch.dtype, ...]) -> None:
    """PyTorch's kernel refuses most of them, and gives the type of x where it does not."""
    kinds = (types[0], *types[1:2] * 2, *types[2:] * 2)
    args = [torch.tensor(v, dtype=kind) for v, kind in zip(_norm_args(), kinds, strict=True)]
    y, want = sg.compile(_norm_graph((2, 3, 4)), "torch")(*args), sg.batch_norm(*args)
    assert y.dtype == want.dtype
    torch.testing.assert_close(y, want)


def _norm_args() -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(1)
    return [draw.normal(size=(2, 3, 4)), *(draw.uniform(0.5, 2, 3) for _ in range(4))]


def test_a_compiled_batch_norm_without_channels() -> None:
    shapes = [(2, 0, 3), *((0,),) * 4]
    assert sg.compile(_norm_graph((2, 0, 3)), "torch")(*map(torch.ones, shapes)).shape == (2, 0, 3)


@pytest.mark.parametrize("through", [lambda f: f, lambda f: torch.compile(f, backend="aot_eager")])
@pytest.mark.parametrize("of", [1, 2])
def test_a_compiled_batch_norm_has_gradients_of_mapped_means_and_variances(of: int, through: Any) -> None:
    """torch.func hides requires_grad: vmap of its own tensors, torch.compile of all."""
    args = [torch.tensor(v) for v in _norm_args()]
    many = torch.stack([args[of], args[of] * 2])
    module = sg.compile(_norm_graph((2, 3, 4)), "torch")
    weights = torch.arange(24.0, dtype=F64).view(2, 3, 4)
    loss = lambda v: (module(*args[:of], v, *args[of + 1 :]) * weights).sum()
    back = sg.vjp(_norm_graph((2, 3, 4)))
    want = [back(*_norm_args()[:of], v.numpy(), *_norm_args()[of + 1 :], weights.numpy())[1 + of] for v in many]
    np.testing.assert_allclose(through(torch.func.grad(loss))(many[1]).numpy(), want[1], rtol=1e-12)
    mapped = torch.func.grad(lambda v: torch.vmap(loss)(v).sum())
    np.testing.assert_allclose(through(mapped)(many).numpy(), want, rtol=1e-12)


def _apart(v: np.ndarray[Any, Any]) -> torch.Tensor:
    """Every second cell of a tensor."""
    return torch.tensor(np.stack([v, v + 77], -1))[..., 0].detach()


NORMS: dict[str, Callable[..., Any]] = {
    "batch_norm": sg.batch_norm,
    "group_norm": lambda x, w, b: sg.group_norm(x, 2, w, b),
    "layer_norm": lambda x, w, b: sg.layer_norm(x, x.shape[-1:], w, b),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 4), (2, 4, 3, 4), (2, 4, 2, 2, 4)])
@pytest.mark.parametrize("last", [False, True])
def test_norms_of_vectors_whose_cells_lie_apart(name: str, shape: tuple[int, ...], last: bool) -> None:
    """PyTorch's kernels of some layouts read such vectors as if their cells lay side by side."""
    draw, call = np.random.default_rng(2), NORMS[name]
    x, gy = draw.normal(size=(2, *shape))
    vectors = list(draw.uniform(0.5, 2, (4 if name == "batch_norm" else 2, 4)))
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(shape)) if last else None
    images = [torch.tensor(v).contiguous(memory_format=layout or torch.contiguous_format) for v in (x, gy)]
    graph = sg.trace(call, x, *vectors)
    want = sg.vjp(graph)(x, *vectors, gy)
    compiled = sg.compile(sg.vjp(graph), "torch")(images[0], *map(_apart, vectors), images[1])
    for mine, w in zip(compiled, want, strict=True):
        np.testing.assert_allclose(mine.numpy(), w, rtol=1e-9, atol=1e-12)
    for run in (call, sg.compile(graph, "torch")):
        given = [images[0].clone().requires_grad_(), *map(_apart, vectors)]
        free = [t.requires_grad_() for t in given[-2:]]
        y = run(*given)
        got = (y.detach(), *torch.autograd.grad(y, (given[0], *free), images[1]))
        for mine, w in zip(got, (*want[:2], *want[-2:]), strict=True):
            np.testing.assert_allclose(mine.numpy(), w, rtol=1e-9, atol=1e-12)


def _in_order(v: np.ndarray[Any, Any], order: tuple[int, ...]) -> torch.Tensor:
    """A tensor whose axes lie in memory in this order."""
    return torch.tensor(v).permute(order).contiguous().permute(*map(order.index, range(v.ndim)))


@pytest.mark.parametrize("name", ["batch_norm", "group_norm"])
@pytest.mark.parametrize("shape", [(2, 4, 1, 3), (1, 4, 1, 3), (1, 4, 3, 2), (1, 4, 2, 1, 2)])
def test_norms_of_images_whose_strides_tell_no_layout(name: str, shape: tuple[int, ...]) -> None:
    """The stride of an axis of size 1 may be any, so the same cells are channels_last and are not."""
    draw, call = np.random.default_rng(3), NORMS[name]
    x, gy = draw.normal(size=(2, *shape))
    vectors = list(draw.uniform(0.5, 2, (4 if name == "batch_norm" else 2, 4)))
    graph = sg.trace(call, x, *vectors)
    want, compiled = sg.vjp(graph)(x, *vectors, gy), sg.compile(sg.vjp(graph), "torch")
    orders = list(permutations(range(len(shape))))
    for k in draw.integers(len(orders), size=(24, 2)):
        laid = [_in_order(v, orders[o]) for v, o in zip((x, gy), k, strict=True)]
        given = [laid[0].detach().requires_grad_(), *map(torch.tensor, vectors)]
        y = call(*given)
        grads = torch.autograd.grad(y, given[0], laid[1])
        for mine, w in zip((y.detach(), *grads), want, strict=False):
            np.testing.assert_allclose(mine.numpy(), w, rtol=1e-9, atol=1e-12)
        for mine, w in zip(compiled(laid[0].detach(), *given[1:], laid[1]), want, strict=True):
            np.testing.assert_allclose(mine.numpy(), w, rtol=1e-9, atol=1e-12)


ASKS_FOR_LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "group_norm": lambda t: sg.group_norm(t, 2),
    "max_pool": lambda t: sg.max_pool(t, (5, 5), stride=1, padding=2),
    "avg_pool": lambda t: sg.avg_pool(t, (5, 5), stride=1, padding=2),
}


@pytest.mark.parametrize("name", list(ASKS_FOR_LAYOUTS))
def test_vmap_of_images_that_do_not_lie_in_order(name: str) -> None:
    """Inside a vmap PyTorch answers a question about the layout of an image by an error."""
    call, batch = ASKS_FOR_LAYOUTS[name], torch.randn(2, 1, 40, 40, 4, dtype=F64).movedim(-1, 2)
    loss = lambda t: call(t).square().sum()
    close(vmap(call)(batch), torch.stack([call(t) for t in batch]))
    close(vmap(grad(loss))(batch), torch.stack([grad(loss)(t) for t in batch]))


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2), (1, 2, 1, 1)])
def test_group_norm_of_single_cells(shape: tuple[int, ...]) -> None:
    """F.group_norm refuses them; the contract says that x - mean is 0."""
    bias = torch.arange(1.0, 1 + shape[1])
    y = sg.group_norm(torch.ones(shape), shape[1], torch.ones(shape[1]), bias)
    assert torch.equal(y, bias.view(1, -1, *(1,) * (len(shape) - 2)))


@pytest.mark.parametrize("types", [(F32, F64), (F64, F32), (BF16, F64), (F16, BF16), (F32, F16)])
def test_norms_of_several_types_are_the_formula(types: tuple[torch.dtype, torch.dtype]) -> None:
    """PyTorch's operators take few pairs of types; of the others the formula has the type that PyTorch promotes to."""
    x, weight = torch.randn(2, 4, 6).to(types[0]), torch.rand(24).to(types[1])
    wide = [v.double().numpy() for v in (x, weight)]
    for norm in (lambda x, w: sg.group_norm(x, 2, w[:4]), lambda x, w: sg.layer_norm(x, (6,), w[:6])):
        y = norm(x, weight)
        assert y.dtype == torch.promote_types(*types)
        np.testing.assert_allclose(y.double().numpy(), norm(*wide), atol=0.05 if BF16 in types else 1e-2)


def test_norms_take_what_the_contract_takes() -> None:
    """Exact numbers for eps, other types, weights that broadcast; what it refuses they refuse alike."""
    x, wide = torch.tensor(np.arange(12.0).reshape(2, 2, 3)), torch.ones(2, dtype=F32)
    want = sg.group_norm(x.numpy(), 2, eps=Fraction(1, 8))
    np.testing.assert_allclose(sg.group_norm(x, 2, wide, eps=Fraction(1, 8)).numpy(), want, rtol=1e-12)
    want = sg.layer_norm(x.numpy(), (3,), np.full(1, 2.0), eps=Fraction(1, 8))
    np.testing.assert_allclose(sg.layer_norm(x, (3,), torch.full((1,), 2.0), eps=Fraction(1, 8)).numpy(), want)
    for groups, shape in ((0, (2, 2, 3)), (3, (2, 2, 3)), (1, (3,)), (1, (2, 2, 0))):
        with pytest.raises(sg.ShapeError):
            sg.group_norm(torch.ones(shape), groups)


def test_compiled_graph_matches_and_trains() -> None:
    def net(p, x):
        x = sg.relu(sg.batch_norm(sg.conv(p["w"], None, x, padding=1), p["m"], p["v"], p["g"], p["b"]))
        return sg.flatten(sg.max_pool(x, (2, 2)), 1)

    shapes = {"w": (4, 3, 3, 3), "m": (4,), "v": (4,), "g": (4,), "b": (4,)}
    graph = sg.trace(net, shapes, (2, 3, 6, 6))
    draw = np.random.default_rng(0).normal
    params = {k: np.abs(draw(size=s)) + 0.1 for k, s in shapes.items()}
    x = draw(size=(2, 3, 6, 6))
    tensors, t = {k: torch.from_numpy(v) for k, v in params.items()}, torch.from_numpy(x)
    module = sg.compile(graph, "torch")
    np.testing.assert_allclose(module(tensors, t).numpy(), graph(params, x), rtol=1e-12, atol=1e-12)
    assert any(n.target is batch_norm for n in module.graph_module.graph.nodes)
    owning = sg.compile(graph, "torch", parameters=params)
    assert sorted(dict(owning.named_parameters())) == sorted(shapes)
    owning(t).square().sum().backward()
    for mode, args in (("vjp", (torch.from_numpy(2 * graph(params, x)),)), ("jvp", (tensors, t))):
        derivative = sg.compile(graph, "torch", mode)
        found = derivative(tensors, t, *args)
        want = (sg.vjp if mode == "vjp" else sg.jvp)(graph)(params, x, *_numpy(args))
        for a, b in zip(sg.tree.leaves(found), sg.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-11, atol=1e-11)
        if mode == "vjp":
            for name, p in owning.named_parameters():
                np.testing.assert_allclose(p.grad.numpy(), found[1][name].numpy(), rtol=1e-9, atol=1e-10)
    new = functional_call(owning, {k: v * 0 for k, v in owning.named_parameters()}, (t,))
    assert (new == 0).all()


def _numpy(args: tuple) -> tuple:
    return tuple(sg.tree.transform(lambda _, a: a.numpy(), a) if isinstance(a, dict) else a.numpy() for a in args)


def test_compiled_loss_with_labels() -> None:
    graph = sg.trace(sg.cross_entropy, (4, 5), sg.Index((4,)))
    module = sg.compile(graph, "torch")
    x, labels = torch.randn(4, 5, dtype=torch.float64, requires_grad=True), torch.tensor([0, 4, 2, 2])
    loss = module(x, labels)
    torch.testing.assert_close(loss, F.cross_entropy(x, labels))
    loss.backward()
    found = sg.compile(graph, "torch", "grad", wrt=0)(x.detach(), labels)
    torch.testing.assert_close(found, x.grad)


def test_differs_infinite_weight_meets_padding() -> None:
    """docs/reference/differences.md: native convolutions multiply the padding, the specification leaves it out."""
    w, x = np.ones((1, 1, 2), np.float32), np.ones((1, 1, 2), np.float32)
    w[0, 0, 0] = np.inf
    np.testing.assert_array_equal(sg.conv(w, None, x, padding=1), [[[1, np.inf, np.inf]]])
    native = sg.conv(torch.from_numpy(w), None, torch.from_numpy(x), padding=1)
    np.testing.assert_array_equal(native, [[[np.nan, np.inf, np.inf]]])


GRADIENTS_IN_BATCHES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "avg_pool": lambda x: sg.avg_pool(x, (3, 3), stride=1, padding=1),
    "avg_pool strided": lambda x: sg.avg_pool(x, (2, 2)),
    "max_pool": lambda x: sg.max_pool(x, (4, 4), stride=1, padding=3),
    "lp_pool": lambda x: sg.lp_pool(x, (3, 3), p=3, stride=1),
    "smooth_max_pool": lambda x: sg.smooth_max_pool(x, (2, 2), beta=2),
    "smooth_max_pool stride 1": lambda x: sg.smooth_max_pool(x, (3, 3), beta=2, stride=1),
    "smooth_max_pool far": lambda x: sg.smooth_max_pool(x, (2, 2), beta=500, stride=1),
    "adaptive_avg_pool": lambda x: sg.adaptive_avg_pool(x, (4, 5)),
    "global_max_pool": lambda x: sg.global_max_pool(x, rank=2),
}


@pytest.mark.parametrize("name", GRADIENTS_IN_BATCHES)
@pytest.mark.parametrize("size", [6, 112])  # ours and PyTorch's own algorithms
def test_gradients_of_several_cotangents_at_once(name: str, size: int) -> None:
    """torch.autograd.grad(is_grads_batched=True) has a vmap of its own, older than torch.func's."""
    x = torch.rand(1, 8, size, size, dtype=torch.float64).add_(0.1).requires_grad_()
    y = GRADIENTS_IN_BATCHES[name](x)
    gys = torch.rand(3, *y.shape, dtype=torch.float64)
    one_by_one = [torch.autograd.grad(y, x, gy, retain_graph=True)[0] for gy in gys]
    (together,) = torch.autograd.grad(y, x, gys, is_grads_batched=True)
    torch.testing.assert_close(together, torch.stack(one_by_one))
