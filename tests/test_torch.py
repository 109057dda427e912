"""Values and gradients equal PyTorch's wherever PyTorch defines them: 4,200 generated configurations.

1,050 of them by default, the rest with `-m slow`.

Both sides compute in float64 on small integers. Convolutions, maxima and their gradients are then exact in any order
of summation and must agree to the last bit; averages divide, so they may differ by the rounding of that division.
Where we differ on purpose: docs/reference/differences.md, and the last tests of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as T

import specgrad as sg
import specgrad.functional as F

FEW, CONFIGURATIONS = 50, 200
Config = tuple[list[np.ndarray], dict[str, Any]]  # array arguments by position, the rest by name


def integers(rng: Random, *shape: int) -> np.ndarray:
    """Few different values: ties are the rule."""
    draw = np.random.default_rng(rng.getrandbits(32))
    return draw.integers(-3, 4, shape).astype(float)


def per_axis(rng: Random, rank: int, choices: tuple[int, ...]) -> Any:
    """Sometimes one int for all axes, sometimes one per axis."""
    values = tuple(rng.choice(choices) for _ in range(rank))
    return values[0] if rng.random() < 0.3 else values


def batch(rng: Random) -> tuple[int, ...]:
    return rng.choice(((), (1,), (2,)))


def spatial(rng: Random, rank: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.randint(low, high) for _ in range(rank))


def conv_config(rng: Random, rank: int) -> Config:
    groups = rng.choice((1, 1, 2, 3))
    c_in, c_out = groups * rng.randint(1, 2), groups * rng.randint(1, 2)
    x = integers(rng, *batch(rng), c_in, *spatial(rng, rank, 3, 7))
    w = integers(rng, c_out, c_in // groups, *spatial(rng, rank, 1, 3))
    b = [integers(rng, c_out)] if rng.random() < 0.5 else []
    options = {
        "stride": per_axis(rng, rank, (1, 2, 3)),
        "padding": per_axis(rng, rank, (0, 1, 2, 3)),
        "dilation": per_axis(rng, rank, (1, 1, 2)),
        "groups": groups,
    }
    if rng.random() < 0.1:
        options |= {"stride": 1, "padding": rng.choice(("same", "valid"))}
    return [x, w, *b], options


def conv_transpose_config(rng: Random, rank: int) -> Config:
    groups = rng.choice((1, 1, 2, 3))
    c_in, c_out = groups * rng.randint(1, 2), groups * rng.randint(1, 2)
    x = integers(rng, *batch(rng), c_in, *spatial(rng, rank, 1, 4))
    w = integers(rng, c_in, c_out // groups, *spatial(rng, rank, 1, 3))
    b = [integers(rng, c_out)] if rng.random() < 0.5 else []
    return [x, w, *b], {
        "stride": per_axis(rng, rank, (1, 2, 3)),
        "padding": per_axis(rng, rank, (0, 0, 1, 2)),
        "output_padding": per_axis(rng, rank, (0, 0, 1, 2)),
        "groups": groups,
        "dilation": per_axis(rng, rank, (1, 1, 2, 3)),
    }


def pool_config(rng: Random, rank: int) -> Config:
    kernel = spatial(rng, rank, 1, 4)
    options: dict[str, Any] = {
        "kernel_size": kernel if rng.random() < 0.7 else kernel[0],
        "padding": per_axis(rng, rank, (0, 0, 1, 2)),
        "ceil_mode": rng.random() < 0.5,
    }
    if rng.random() < 0.7:
        options["stride"] = per_axis(rng, rank, (1, 2, 3, 4))
    return [integers(rng, *batch(rng), 2, *spatial(rng, rank, 1, 8))], options


def max_config(rng: Random, rank: int) -> Config:
    """No empty windows: PyTorch answers them with an index outside the input, and its gradient writes there."""
    while True:
        args, options = pool_config(rng, rank)
        options["dilation"] = per_axis(rng, rank, (1, 1, 2, 3))
        try:
            indices = getattr(F, f"max_pool{rank}d")(args[0], return_indices=True, **options)[1]
        except sg.ShapeError:
            return args, options  # PyTorch will refuse it too
        if indices.size == 0 or indices.min() >= 0:
            return args, options


def avg_config(rng: Random, rank: int) -> Config:
    args, options = pool_config(rng, rank)
    options["count_include_pad"] = rng.random() < 0.5
    if rank > 1 and rng.random() < 0.3:
        options["divisor_override"] = rng.choice((1, 2, 3, 7, -5))
    return args, options


def adaptive_config(rng: Random, rank: int) -> Config:
    x = integers(rng, *batch(rng), 2, *spatial(rng, rank, 1, 9))
    return [x], {"output_size": per_axis(rng, rank, (1, 2, 3, 4, 5, 7, 10))}


def lp_config(rng: Random, rank: int) -> Config:
    (x,), options = pool_config(rng, rank)
    del options["padding"]
    if rank == 1 and isinstance(options["kernel_size"], tuple):
        options["kernel_size"] = options["kernel_size"][0]  # lp_pool1d takes an int only
    options["ceil_mode"] = False  # under ceil PyTorch scales clipped windows: docs/reference/differences.md
    return [np.abs(x) + 1], options | {"norm_type": rng.choice((1, 2, 3, 2.5))}


FAMILIES: dict[str, tuple[Callable[[Random, int], Config], float]] = {
    "conv": (conv_config, 0.0),
    "conv_transpose": (conv_transpose_config, 0.0),
    "max_pool": (max_config, 0.0),
    "avg_pool": (avg_config, 1e-14),
    "adaptive_avg_pool": (adaptive_config, 1e-14),
    "adaptive_max_pool": (adaptive_config, 0.0),
    "lp_pool": (lp_config, 1e-13),
}


def torch_side(name: str, arrays: list[np.ndarray], options: dict[str, Any], rng: Random) -> Any:
    """Value, cotangent and gradients by PyTorch; None where PyTorch refuses the configuration."""
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    try:
        y = getattr(T, name)(*tensors, **options)
    except (RuntimeError, ValueError):
        return None
    gy = integers(rng, *y.shape)
    gradients = torch.autograd.grad(y, tensors, torch.tensor(gy))
    return y.detach().numpy(), gy, [g.numpy() for g in gradients]


def agree(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("count", [FEW, pytest.param(CONFIGURATIONS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_values_and_gradients(family: str, rank: int, count: int) -> None:
    config, tolerance = FAMILIES[family]
    name = f"{family}{rank}d"
    agreed = seed = 0
    while agreed < count:
        rng = Random(f"{name}/{seed}")
        seed += 1
        assert seed < 20 * count, "PyTorch refuses nearly every configuration"
        arrays, options = config(rng, rank)
        expected = torch_side(name, arrays, options, rng)
        if expected is None:
            continue
        y, gy, gradients = expected
        try:
            graph = sg.trace(lambda *a, o=options: getattr(F, name)(*a, **o), *arrays)
            found, *cotangents = sg.vjp(graph)(*arrays, gy)
            agree(found, y, tolerance)
            for ours, theirs in zip(cotangents, gradients, strict=True):
                agree(ours, theirs, tolerance)
        except Exception as error:
            error.add_note(f"{name}, seed {seed - 1}: shapes {[a.shape for a in arrays]}, {options}")
            raise
        agreed += 1


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_indices_and_unpool(rank: int) -> None:
    """The winner is PyTorch's index, ties included; unpooling puts it back."""
    agreed = 0
    for seed in range(300):
        rng = Random(seed)
        (x,), options = max_config(rng, rank)
        try:
            y, i = getattr(T, f"max_pool{rank}d")(torch.tensor(x), return_indices=True, **options)
        except RuntimeError:
            continue
        ours_y, ours_i = getattr(F, f"max_pool{rank}d")(x, return_indices=True, **options)
        agree(ours_y, y.numpy(), 0.0)
        agree(ours_i, i.numpy(), 0.0)
        agreed += 1
        if options.get("stride") is not None or options["ceil_mode"] or np.any(np.asarray(options["dilation"]) != 1):
            continue
        kernel, pads = options["kernel_size"], options["padding"]
        size = list(x.shape[-rank:])
        try:
            back = getattr(T, f"max_unpool{rank}d")(y, i, kernel, padding=pads, output_size=size)
        except ValueError:
            continue
        agree(
            getattr(F, f"max_unpool{rank}d")(ours_y, ours_i, kernel, padding=pads, output_size=size), back.numpy(), 0.0
        )
    assert agreed >= 50


ELEMENTWISE = [
    ("relu", {}),
    ("relu6", {}),
    ("leaky_relu", {"negative_slope": 0.25}),
    ("hardswish", {}),
    ("silu", {}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("softplus", {}),
    ("softplus", {"beta": 2, "threshold": 3}),
    ("sigmoid", {}),
    ("tanh", {}),
    ("softmax", {"dim": 1}),
    ("log_softmax", {"dim": 0}),
]


@pytest.mark.parametrize(("name", "options"), ELEMENTWISE)
def test_elementwise_first_and_second_derivative(name: str, options: dict[str, Any]) -> None:
    """At kinks too ([K1]): the grid holds 0, 3, 6 and their neighbours. The second derivative by torch.autograd."""
    x = np.concatenate([np.arange(-8.0, 9.0), np.linspace(-5, 7, 55)]).reshape(8, 9)
    rng = Random(name)
    gy, hx = integers(rng, 8, 9), integers(rng, 8, 9)
    t = torch.tensor(x, requires_grad=True)
    seed = torch.tensor(gy, requires_grad=True)
    y = getattr(T if hasattr(T, name) else torch, name)(t, **options)
    (gx,) = torch.autograd.grad(y, t, seed, create_graph=True)
    reverse = sg.vjp(sg.trace(lambda v: getattr(F, name)(v, **options), x))
    ours = reverse(x, gy)
    np.testing.assert_allclose(ours[0], y.detach().numpy(), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(ours[1], gx.detach().numpy(), rtol=1e-12, atol=1e-14)
    second = torch.autograd.grad(gx, (t, seed), torch.tensor(hx), allow_unused=True)
    again = sg.vjp(reverse)(x, gy, np.zeros_like(gy), hx)[2:]
    for mine, theirs in zip(again, second, strict=True):
        expected = np.zeros_like(x) if theirs is None else theirs.numpy()
        np.testing.assert_allclose(mine, expected, rtol=1e-11, atol=1e-13)


BINARY = ["add", "sub", "mul", "div", "maximum", "minimum"]


@pytest.mark.parametrize("name", BINARY)
def test_binary_with_broadcasting_and_ties(name: str) -> None:
    rng = Random(name)
    a, b = integers(rng, 3, 1, 4), integers(rng, 5, 1)
    b[b == 0] = 2
    gy = integers(rng, 3, 5, 4)
    ta, tb = (torch.tensor(v, requires_grad=True) for v in (a, b))
    y = getattr(torch, name)(ta, tb)
    expected = torch.autograd.grad(y, (ta, tb), torch.tensor(gy))
    found = sg.vjp(sg.trace(getattr(sg, name), a, b))(a, b, gy)
    for mine, theirs in zip(found, (y.detach(), *expected), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-14, atol=1e-14)


def compare(fn_name: str, arrays: list[np.ndarray], *rest: Any, **options: Any) -> None:
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    extra = [torch.tensor(r) if isinstance(r, np.ndarray) else r for r in rest]
    y = getattr(T, fn_name)(*tensors, *extra, **options)
    gy = integers(Random(fn_name), *y.shape)
    expected = torch.autograd.grad(y, tensors, torch.tensor(gy))
    graph = sg.trace(lambda *a: getattr(F, fn_name)(*a, *rest, **options), *arrays)
    found, *cotangents = sg.vjp(graph)(*arrays, gy)
    np.testing.assert_allclose(found, y.detach().numpy(), rtol=1e-12, atol=1e-12)
    for mine, theirs in zip(cotangents, expected, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-10, atol=1e-11)


def test_layers_and_losses() -> None:
    draw = np.random.default_rng(0).normal
    x = draw(size=(2, 6, 4, 5))
    c, tail = [draw(size=6) for _ in range(3)], [draw(size=(4, 5)) for _ in range(2)]
    compare("batch_norm", [x], c[0], np.abs(c[1]) + 0.1, c[2], c[0])
    compare("linear", [draw(size=(3, 7)), draw(size=(2, 7)), draw(size=2)])
    compare("mse_loss", [x, draw(size=x.shape)])
    compare("mse_loss", [x, draw(size=x.shape)], reduction="sum")
    labels = np.random.default_rng(1).integers(0, 6, (2, 4, 5))
    for reduction in ("mean", "sum", "none"):
        compare("cross_entropy", [x], labels, reduction=reduction)
    compare("cross_entropy", [draw(size=(3, 5))], np.array([0, 4, 2]))
    compare("cross_entropy", [draw(size=5)], np.array(3))
    compare("pad", [x], (1, 2, 0, 3))
    compare("pad", [x], (1, 2), value=2.5)
    compare("interpolate", [x], scale_factor=3)
    compare("interpolate", [x], (8, 10))
    w, b = tail
    for ours, theirs in (
        (lambda v, p, q: F.layer_norm(v, (4, 5), p, q), lambda v, p, q: T.layer_norm(v, (4, 5), p, q)),
        (lambda v, p, q: F.group_norm(v, 3, p, q), lambda v, p, q: T.group_norm(v, 3, p, q)),
    ):
        arrays = [x, w, b] if "layer" in str(theirs.__code__.co_names) else [x, c[0], c[1]]
        tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
        y = theirs(*tensors)
        expected = torch.autograd.grad(y, tensors, torch.ones_like(y) * torch.tensor(x))
        found = sg.vjp(sg.trace(ours, *arrays))(*arrays, x)
        for mine, want in zip(found, (y.detach(), *expected), strict=True):
            np.testing.assert_allclose(mine, want.numpy(), rtol=1e-9, atol=1e-10)


def test_matmul_and_reductions() -> None:
    draw = np.random.default_rng(3).normal
    for a, b in (
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((3,), (2, 3, 4)),
    ):
        x, z = draw(size=a), draw(size=b)
        np.testing.assert_allclose(sg.matmul(x, z), x @ z, rtol=1e-13)
        assert sg.trace(sg.matmul, x, z)(x, z).shape == (x @ z).shape
    x = integers(Random(0), 3, 4, 5)
    t = torch.tensor(x, requires_grad=True)
    (expected,) = torch.autograd.grad(torch.amax(t, (0, 2)).sum(), t)
    found = sg.grad(sg.trace(lambda v: sg.sum(sg.amax(v, (0, 2))), x))(x)
    np.testing.assert_array_equal(found, expected.numpy())


# --- where we differ on purpose (docs/reference/differences.md) -----------------------------------------------------


def test_differs_padding_over_half_the_kernel() -> None:
    """[P3] PyTorch refuses; the relation does not."""
    x = np.array([[[1.0, 2.0]]])
    with pytest.raises(RuntimeError):
        T.max_pool1d(torch.tensor(x), 2, padding=2)
    np.testing.assert_array_equal(F.max_pool1d(x, 2, stride=1, padding=2), [[[0, 1, 2, 2, 0]]])


def test_differs_lp_pool_under_ceil() -> None:
    """PyTorch multiplies the mean of a clipped window by the whole kernel."""
    x = np.ones((1, 1, 3))
    theirs = T.lp_pool1d(torch.tensor(x), 2, 2, stride=2, ceil_mode=True).numpy()
    np.testing.assert_allclose(theirs, [[[2**0.5, 2**0.5]]])
    np.testing.assert_allclose(F.lp_pool1d(x, 2, 2, stride=2, ceil_mode=True), [[[2**0.5, 1.0]]])


def test_differs_empty_window() -> None:
    """A dilated window can have no tap inside: ours is 0, PyTorch's -inf with an index outside the input."""
    x = np.array([[[1.0, 2.0]]])
    y, i = T.max_pool1d(torch.tensor(x), 2, stride=1, padding=1, dilation=3, return_indices=True)
    assert (y.item(), i.item()) == (-np.inf, 2)
    ours, index = F.max_pool1d(x, 2, stride=1, padding=1, dilation=3, return_indices=True)
    assert (ours.item(), index.item()) == (0.0, -1)


def test_differs_gradient_of_overwritten_unpool() -> None:
    """PyTorch's cotangent is not the adjoint of what it computes when an index comes twice; ours is."""
    y, i = np.array([[[4.0, 7.0]]]), np.array([[[1, 1]]])
    t = torch.tensor(y, requires_grad=True)
    out = T.max_unpool1d(t, torch.tensor(i), 2)
    np.testing.assert_array_equal(out.detach().numpy(), [[[0, 7, 0, 0]]])
    (theirs,) = torch.autograd.grad(out.sum(), t)
    np.testing.assert_array_equal(theirs.numpy(), [[[1, 1]]])
    graph = sg.trace(lambda v: sg.sum(F.max_unpool1d(v, i, 2)), y)
    np.testing.assert_array_equal(sg.grad(graph)(y), [[[0, 1]]])


def test_differs_output_padding_with_dilation() -> None:
    """Both accept output_padding up to max(stride, dilation); values agree there too."""
    x, w = integers(Random(1), 1, 1, 3), integers(Random(2), 1, 1, 2)
    theirs = T.conv_transpose1d(torch.tensor(x), torch.tensor(w), output_padding=2, dilation=3).numpy()
    np.testing.assert_array_equal(F.conv_transpose1d(x, w, output_padding=2, dilation=3), theirs)
