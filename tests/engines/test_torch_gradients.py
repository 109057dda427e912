"""Derivative graphs on PyTorch: its own backward operators in the place of the rules' nodes, and the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import specgrad as sg
from specgrad.engines.torch import rewrites

RNG = np.random.default_rng(3)


def numbers(*shape: int) -> np.ndarray:
    """Whole numbers: sums of their products are exact, and kinks are met."""
    return RNG.integers(-7, 8, shape).astype(float)


Call = tuple[Callable[..., Any], list[np.ndarray]]
EXACT: dict[str, Call] = {
    "relu": (lambda x: sg.relu(x), [numbers(2, 3, 5)]),
    "relu6": (lambda x: sg.relu6(x), [numbers(2, 3, 5)]),
    "leaky_relu": (lambda x: sg.leaky_relu(x, 0.25), [numbers(2, 3, 5)]),
    "two slopes": (lambda x: sg.leaky_relu(sg.leaky_relu(x, 2), 0.5), [numbers(2, 3, 5)]),
    "relu twice": (lambda x: sg.relu(sg.relu(x) - 2), [numbers(2, 3, 5)]),
    "conv": (lambda w, b, x: sg.conv(w, b, x, padding=1), [numbers(4, 3, 3, 3), numbers(4), numbers(2, 3, 6, 5)]),
    "conv without bias": (lambda w, x: sg.conv(w, None, x), [numbers(4, 3, 3), numbers(2, 3, 6)]),
    "strided": (
        lambda w, b, x: sg.conv(w, b, x, stride=(2, 3), padding=(1, 0), dilation=2),
        [numbers(4, 3, 2, 2), numbers(4), numbers(2, 3, 8, 9)],
    ),
    "uneven padding": (
        lambda w, b, x: sg.conv(w, b, x, padding=[(0, 1), (2, 0)]),
        [numbers(4, 3, 2, 2), numbers(4), numbers(2, 3, 4, 5)],
    ),
    "depthwise": (
        lambda w, b, x: sg.conv(w, b, x, padding=1, groups=4),
        [numbers(4, 1, 3, 3), numbers(4), numbers(2, 4, 5, 5)],
    ),
    "groups": (lambda w, x: sg.conv(w, None, x, groups=2), [numbers(6, 2, 2), numbers(2, 4, 5)]),
    "conv 3d": (
        lambda w, b, x: sg.conv(w, b, x, padding=1),
        [numbers(2, 2, 3, 2, 2), numbers(2), numbers(1, 2, 4, 3, 3)],
    ),
    "one sample": (lambda w, b, x: sg.conv(w, b, x), [numbers(4, 3, 3, 3), numbers(4), numbers(3, 6, 5)]),
    "a batch of one": (lambda w, b, x: sg.conv(w, b, x), [numbers(4, 3, 3, 3), numbers(4), numbers(1, 3, 6, 5)]),
    "one position": (lambda w, b, x: sg.conv(w, b, x), [numbers(4, 3, 3, 3), numbers(4), numbers(2, 3, 3, 3)]),
    "one column": (lambda w, b, x: sg.conv(w, b, x), [numbers(4, 3, 3, 3), numbers(4), numbers(1, 3, 5, 3)]),
    "transposed": (
        lambda w, b, x: sg.conv_transpose(w, b, x, stride=2, padding=1, output_padding=1),
        [numbers(4, 3, 3, 3), numbers(3), numbers(2, 4, 4, 5)],
    ),
    "transposed groups": (
        lambda w, b, x: sg.conv_transpose(w, b, x, stride=2, groups=2),
        [numbers(4, 3, 2), numbers(6), numbers(2, 4, 5)],
    ),
    "square kernels of equal shape": (
        lambda w, v, x: sg.conv(w, None, x) + sg.conv_transpose(v, None, x, padding=1),
        [numbers(3, 3, 1, 1), numbers(3, 3, 3, 3), numbers(2, 3, 4, 4)],
    ),
    "one kernel twice": (
        lambda w, x: sg.conv(w, None, sg.relu(sg.conv(w, None, x, padding=1)), padding=1),
        [numbers(3, 3, 3), numbers(2, 3, 6)],
    ),
    "two that meet": (
        lambda w, v, b, x: sg.relu(sg.conv(w, b, x, padding=1) + sg.conv(v, b, x, padding=1)),
        [numbers(3, 3, 3), numbers(3, 3, 3), numbers(3), numbers(2, 3, 6)],
    ),
}


def per_channel(n: int = 3) -> list[np.ndarray]:
    return [numbers(n), RNG.uniform(0.5, 2, n), numbers(n), numbers(n)]


def two_norms(x: Any, *vectors: Any) -> Any:
    """Both meet in one sum, so they share their cotangent, and its sum."""
    return sg.relu(sg.batch_norm(x, *vectors[:4]) + sg.batch_norm(x * 2, *vectors[4:]))


CLOSE: dict[str, Call] = {
    **{
        f.__name__: (lambda x, f=f: f(x), [RNG.normal(size=(2, 3, 5)) * 4])
        for f in (sg.sigmoid, sg.tanh, sg.silu, sg.hardswish, sg.gelu, sg.softplus)
    },
    "batch_norm": (sg.batch_norm, [numbers(2, 3, 4, 5), *per_channel()]),
    "batch_norm of rows": (sg.batch_norm, [numbers(4, 3), *per_channel()]),
    "batch_norm of a batch of one": (sg.batch_norm, [numbers(1, 3, 4, 5), *per_channel()]),
    "batch_norm of one column": (sg.batch_norm, [numbers(2, 3, 4, 1), *per_channel()]),
    "batch_norm of a pixel": (sg.batch_norm, [numbers(1, 3, 1, 1), *per_channel()]),
    "batch_norm without bias": (lambda x, m, v, w: sg.batch_norm(x, m, v, w), [numbers(2, 3, 4), *per_channel()[:3]]),
    "batch_norm bare": (lambda x, m, v: sg.batch_norm(x, m, v), [numbers(2, 3, 4), *per_channel()[:2]]),
    "batch_norm last": (
        lambda x, m, v, w, b: sg.batch_norm(x, m, v, w, b, channel=-1),
        [numbers(2, 4, 3), *per_channel()],
    ),
    "two norms": (two_norms, [numbers(2, 3, 4), *per_channel(), *per_channel()]),
}


def pulled_back(call: Call) -> tuple[sg.Graph, list[np.ndarray]]:
    f, arrays = call
    graph = sg.trace(f, *arrays)
    return sg.vjp(graph), [*arrays, numbers(*graph.nodes[graph.output_positions[0]].shape)]


def tensors(arrays: list[np.ndarray], **options: Any) -> list[torch.Tensor]:
    return [torch.tensor(a, **options) for a in arrays]


def worst(call: Call) -> float:
    """The largest difference between the compiled derivative and the specification of its graph."""
    derivative, arrays = pulled_back(call)
    given = sg.compile(derivative, "torch")(*tensors(arrays))
    return max(float(abs(g.numpy() - want).max()) for g, want in zip(given, derivative(*arrays), strict=True))


@pytest.mark.parametrize("name", list(EXACT))
def test_whole_numbers_give_exact_derivatives(name: str) -> None:
    derivative, arrays = pulled_back(EXACT[name])
    exactly = derivative(*(np.vectorize(Fraction, otypes=[object])(a) for a in arrays))
    for given, want in zip(sg.compile(derivative, "torch")(*tensors(arrays)), exactly, strict=True):
        np.testing.assert_array_equal(given.numpy(), np.asarray(want, dtype=float))


@pytest.mark.parametrize("name", list(CLOSE))
def test_rounded_derivatives(name: str) -> None:
    assert worst(CLOSE[name]) < 1e-11


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "hardswish", "sigmoid", "silu"])
def test_nan_and_infinities(name: str) -> None:
    x = np.array([np.nan, -np.inf, np.inf, -0.0, 0.0, 6.0, -3.0, 3.0, 1e-45])
    f = getattr(sg, name)
    derivative = sg.vjp(sg.trace(lambda x: f(x), x))
    with np.errstate(invalid="ignore"):
        want = derivative(x, np.arange(1.0, 10.0))[1]
    given = sg.compile(derivative, "torch")(*tensors([x, np.arange(1.0, 10.0)]))[1].numpy()
    usual = ~np.isinf(x) & (
        (name not in ("relu6", "hardswish")) | ~np.isnan(x)
    )  # there PyTorch has no answer of its own
    np.testing.assert_allclose(given[usual], want[usual], rtol=1e-15)


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_derivatives_of_derivatives(name: str) -> None:
    """On PyTorch's tape: what the graph of the graph says."""
    derivative, arrays = pulled_back((EXACT | CLOSE)[name])
    inputs = tensors(arrays, requires_grad=True)
    seeds = [numbers(*np.shape(y)) for y in derivative(*arrays)]
    wanted = sg.vjp(derivative)(*arrays, *seeds)[len(seeds) :]
    pairs = zip(sg.compile(derivative, "torch")(*inputs), tensors(seeds), strict=True)
    ys, gys = zip(*((y, g) for y, g in pairs if y.requires_grad), strict=True)
    for given, want in zip(torch.autograd.grad(ys, inputs, gys, materialize_grads=True), wanted, strict=True):
        np.testing.assert_allclose(given.numpy(), want, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_tangents_and_batches_of_derivatives(name: str) -> None:
    derivative, arrays = pulled_back((EXACT | CLOSE)[name])
    module, steps = sg.compile(derivative, "torch"), [numbers(*a.shape) for a in arrays]
    _, given = torch.func.jvp(module, tuple(tensors(arrays)), tuple(tensors(steps)))
    for d, want in zip(given, sg.jvp(derivative)(*arrays, *steps)[len(given) :], strict=True):
        np.testing.assert_allclose(d.numpy(), want, rtol=1e-9, atol=1e-8)
    both = torch.func.vmap(module)(*(torch.stack(pair) for pair in zip(tensors(arrays), tensors(steps), strict=True)))
    for k, given_arrays in enumerate((arrays, steps)):
        with np.errstate(invalid="ignore"):
            wanted = derivative(*given_arrays)
        for y, want in zip(both, wanted, strict=True):
            np.testing.assert_allclose(y[k].numpy(), want, rtol=1e-9, atol=1e-8)


# --- whole networks ---------------------------------------------------------------------------------------------------

SHAPES = {
    "w": (4, 3, 3, 3),
    "b": (4,),
    "mean": (4,),
    "var": (4,),
    "scale": (4,),
    "shift": (4,),
    "depthwise": (4, 1, 3, 3),
    "up": (4, 5, 2, 2),
    "ub": (5,),
    "fc": (7, 5),
    "fb": (7,),
}


def net(p: Any, x: Any, labels: Any) -> Any:
    x = sg.conv(p["w"], p["b"], x, padding=1)
    x = sg.relu6(sg.batch_norm(x, p["mean"], p["var"], p["scale"], p["shift"]))
    x = x + sg.relu(sg.conv(p["depthwise"], None, x, padding=1, groups=4))
    x = sg.silu(sg.conv_transpose(p["up"], p["ub"], sg.max_pool(x, (2, 2)), stride=2))
    x = sg.linear(p["fc"], p["fb"], sg.global_avg_pool(x, rank=2, keepdims=False))
    return sg.cross_entropy(x, labels)


def bare(p: Any, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    x = F.conv2d(x, p["w"], p["b"], padding=1)
    x = F.relu6(F.batch_norm(x, p["mean"], p["var"], p["scale"], p["shift"]))
    x = x + F.relu(F.conv2d(x, p["depthwise"], padding=1, groups=4))
    x = F.silu(F.conv_transpose2d(F.max_pool2d(x, 2), p["up"], p["ub"], stride=2))
    return F.cross_entropy(F.linear(x.mean((2, 3)), p["fc"], p["fb"]), labels)


LEARNT = [name for name in SHAPES if name not in ("mean", "var")]


def given(dtype: torch.dtype = torch.float64) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(5)
    values = {name: torch.tensor(rng.normal(size=shape), dtype=dtype) for name, shape in SHAPES.items()}
    values["var"] = values["var"].abs() + 0.5
    return values, torch.tensor(rng.normal(size=(2, 3, 8, 8)), dtype=dtype), torch.tensor([3, 0])


def step_graph() -> sg.Graph:
    loss = sg.trace(net, SHAPES, (2, 3, 8, 8), sg.Index((2,)))
    return sg.grad(loss, [f"p.{name}" for name in LEARNT], value=True)


def bare_step(p: Any, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
    learnt = {name: t.clone().requires_grad_(name in LEARNT) for name, t in p.items()}
    loss = bare(learnt, x, labels)
    return loss.detach(), torch.autograd.grad(loss, [learnt[name] for name in LEARNT])


def assert_same_step(module: Any, dtype: torch.dtype = torch.float64, **tolerance: float) -> None:
    (loss, gradients), (wanted_loss, wanted) = module(*given(dtype)), bare_step(*given(dtype))
    torch.testing.assert_close(loss, wanted_loss, **tolerance)
    for name, g, want in zip(LEARNT, gradients, wanted, strict=True):
        torch.testing.assert_close(g, want, **tolerance, msg=lambda text, name=name: f"{name}: {text}")


def test_a_step_is_that_of_the_bare_network() -> None:
    assert_same_step(sg.compile(step_graph(), "torch"), rtol=1e-10, atol=1e-12)
    assert_same_step(sg.compile(step_graph(), "torch"), torch.float32, rtol=1e-4, atol=1e-6)


def test_a_step_under_torch_compile() -> None:
    module = torch.compile(sg.compile(step_graph(), "torch"), backend="aot_eager")
    assert_same_step(module, rtol=1e-10, atol=1e-12)


def test_a_step_under_autocast() -> None:
    """The types of a rule's operands differ there, which PyTorch's operators refuse."""
    module = sg.compile(step_graph(), "torch")
    with torch.autocast("cpu", torch.bfloat16):
        loss, gradients = module(*given(torch.float32))
        theirs = bare_step(*given(torch.float32))[1]
    wanted_loss, wanted = bare_step(*given(torch.float32))
    torch.testing.assert_close(loss.float(), wanted_loss, rtol=0.05, atol=0.05)
    for g, their, want in zip(gradients, theirs, wanted, strict=True):
        assert (g.float() - want).norm() < 2 * (their - want).norm() + 0.02 * want.norm()


def test_the_native_operators_are_called() -> None:
    names = [
        str(n.target.__name__) for n in sg.compile(step_graph(), "torch").graph_module.graph.nodes if callable(n.target)
    ]
    count = Counter(names)
    assert count["convolution_backward"] == 2  # the first layer's input has no cotangent
    assert [count[f"{name}_backward"] for name in ("relu", "relu6", "silu", "batch_norm")] == [1, 1, 1, 1]
    assert not count["select"] + count["greater_equal"] + count["sigmoid"]


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 3, 4, 1), (4, 3)])
def test_sums_of_any_batch_go_to_the_native_operators(shape: tuple[int, ...]) -> None:
    """Rules do not sum along axes of size 1: a batch of one has other nodes, and the same operator."""
    derivative, _ = pulled_back((sg.batch_norm, [numbers(*shape), *per_channel()]))
    called = [getattr(n.target, "__name__", "") for n in sg.compile(derivative, "torch").graph_module.graph.nodes]
    assert called.count("batch_norm_backward") == 1


def test_what_a_rule_reads_is_kept_once() -> None:
    """relu's cotangent is asked of its output, which the next layer keeps anyway; the input is freed."""
    graph = sg.vjp(sg.trace(lambda w, x: sg.conv(w, None, sg.relu(x)), (2, 3, 1), (4, 3, 5)))
    nodes = sg.compile(graph, "torch").graph_module.graph.nodes
    (back,) = (n for n in nodes if getattr(n.target, "__name__", "") == "relu_backward")
    assert [a.target.__name__ for a in back.args[1:]] == ["relu"]


MISTAKES: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "another threshold": ("relu", "relu", lambda g, y: torch.ops.aten.threshold_backward(g, y, 1)),
    "passes at 6": ("relu6", "relu6", lambda g, y: torch.where((y <= 0) | (y > 6), 0, g)),
    "passes at 0": ("relu6", "relu6", lambda g, y: torch.where((y < 0) | (y >= 6), 0, g)),
    "slope of the other side": ("leaky_relu", "leaky_relu", lambda g, x, *, slope: torch.where(x < 0, g * slope, g)),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_wrong_operator_is_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, case, wrong = MISTAKES[mistake]
    assert worst(EXACT[case]) == 0
    monkeypatch.setitem(rewrites.ACTIVATIONS, name, wrong)
    assert worst(EXACT[case]) > 0


def test_cotangents_of_another_convolution_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that takes its padding, or its bias, from elsewhere."""
    right = rewrites.aten.convolution_backward.default
    wrong = lambda g, x, w, sizes, stride, padding, *rest: right(
        g, x, w, sizes, stride, [p + 1 for p in padding], *rest
    )
    monkeypatch.setattr(
        rewrites, "aten", type("aten", (), {"convolution_backward": type("op", (), {"default": wrong})})
    )
    with pytest.raises((RuntimeError, AssertionError)):
        assert worst(EXACT["conv"]) == 0
