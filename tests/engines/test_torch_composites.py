"""Compositions that are one PyTorch operator: values and derivatives of the composition over NumPy, refusals kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.engines.torch import composites

RNG = np.random.default_rng(7)
X, Y = RNG.normal(size=(2, 3, 4, 5)), RNG.normal(size=(2, 3, 4, 5))
PER_CHANNEL = [RNG.normal(size=3), RNG.uniform(0.5, 2, size=3), RNG.normal(size=3), RNG.normal(size=3)]
LABELS = RNG.integers(0, 3, (2, 4, 5))

CALLS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "batch_norm": (lambda x, m, v, w, b: sg.batch_norm(x, m, v, w, b), [X, *PER_CHANNEL]),
    "batch_norm bare": (lambda x, m, v: sg.batch_norm(x, m, v), [X, *PER_CHANNEL[:2]]),
    "batch_norm last": (lambda x, m, v: sg.batch_norm(x, m, v, channel=-1), [X[..., :3], *PER_CHANNEL[:2]]),
    "mse_loss": (lambda x, y: sg.mse_loss(x, y), [X, Y]),
    "mse_loss sum": (lambda x, y: sg.mse_loss(x, y, reduction="sum"), [X, Y]),
    "gelu tanh": (lambda x: sg.gelu(x, "tanh"), [X]),
    "upsample 2": (lambda x: sg.upsample_nearest(x, (2, 4)), [X]),
    "upsample 3": (lambda x: sg.upsample_nearest(x, (3, 3)), [X]),
    "upsample one axis": (lambda x: sg.upsample_nearest(x, 2, rank=1), [X]),
    "add": (lambda x, v: sg.add(x, v), [X, X[0, :, :1, :1]]),
    "mul": (lambda x, v: sg.mul(x, v), [X, X[0, 0]]),
    "div": (lambda x, v: sg.div(x, v), [X, 2 + abs(X[:1])]),
    "sub": (lambda v, x: sg.sub(v, x), [X[0, :1], X]),
    "add number": (lambda x: sg.add(3, x), [X]),
    "div number": (lambda x: sg.div(0.7, x), [2 + abs(X)]),
    "sub long number": (lambda x: sg.sub(x, 2**31 + 1), [X]),
    "maximum": (lambda x, v: sg.maximum(x, v), [X, X[0, :, :1, :1]]),
    "maximum ties": (lambda x: sg.maximum(x, 1), [np.array([0.0, 1.0, 2.0])]),
    "minimum number": (lambda x: sg.minimum(0.5, x), [X]),
    "greater": (lambda x, v: sg.add(sg.greater(x, v), sg.mul(v, x)), [X, X[0, :, :1, :1]]),
    "greater_equal number": (lambda x: sg.mul(sg.greater_equal(0, x), x), [X]),
    "equal": (lambda x, v: sg.add(sg.equal(x, v), sg.mul(v, x)), [X, X[0, :, :1, :1]]),
    "fmod": (lambda x, v: sg.fmod(x, v), [X, 0.3 + abs(X[0])]),
    "mean": (lambda x: sg.mean(x), [X]),
    "mean axes": (lambda x: sg.mean(x, (-1, 1), keepdims=True), [X]),
    "mean of no axes": (lambda x: sg.mean(x, ()), [X]),
    "global_avg_pool": (lambda x: sg.global_avg_pool(x, rank=2), [X]),
    "matmul": (lambda x, z: sg.matmul(x, z), [X, RNG.normal(size=(5, 2))]),
    "matmul broadcast": (lambda x, z: sg.matmul(x, z), [X, RNG.normal(size=(3, 5, 2))]),
    "matmul of a vector": (lambda v, x: sg.matmul(v, x), [X[0, 0, :, 0], X]),
    "matmul by a vector": (lambda x, v: sg.matmul(x, v), [X, X[0, 0, 0]]),
}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: sg.mean(torch.zeros(0, 3)), "no cells to average"),
        (lambda: sg.mean(torch.ones(2, 3), (0, 0)), "named twice"),
        (lambda: sg.mean(torch.ones(2, 3), (1, -1)), "named twice"),
        (lambda: sg.mean(torch.ones(2, 3), 2), "axis"),
        (lambda: sg.mean(torch.ones(2, 3, dtype=torch.int64)), "int64"),
        (lambda: sg.matmul(torch.ones(2, 3), torch.ones(2, 3)), "inner sizes differ"),
        (lambda: sg.matmul(torch.ones(()), torch.ones(3)), "at least one axis"),
        (lambda: sg.matmul(torch.ones(2, 2, dtype=torch.int32), torch.ones(2, 2, dtype=torch.int32)), "int32"),
        (lambda: sg.add(torch.ones(2, dtype=torch.int64), 0.5), "int64"),
        (lambda: sg.maximum(1, torch.ones(2, dtype=torch.bool)), "bool"),
        (lambda: sg.maximum(torch.ones(2, 3), torch.ones(2)), "do not broadcast"),
    ],
)
def test_what_is_wrong_is_still_said(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(sg.SpecgradError, match=says):
        call()


@pytest.mark.parametrize("name", list(CALLS))
@pytest.mark.parametrize("grads", ["all", "first"])
def test_values_and_gradients(name: str, grads: str) -> None:
    """`first`: batch_norm's own kernel, which has no derivative in mean and var."""
    call, arrays = CALLS[name]
    graph = sg.trace(call, *arrays)
    tensors = [torch.tensor(a, requires_grad=grads == "all" or i == 0) for i, a in enumerate(arrays)]
    y = call(*tensors)
    np.testing.assert_allclose(y.detach().numpy(), graph(*arrays), rtol=1e-12, atol=1e-13)
    gy = np.random.default_rng(1).normal(size=y.shape)
    _, *wanted = sg.vjp(graph)(*arrays, gy)
    given = [t for t in tensors if t.requires_grad]
    for g, want in zip(torch.autograd.grad(y, given, torch.tensor(gy)), wanted, strict=False):
        np.testing.assert_allclose(g.numpy(), want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction: Any) -> None:
    graph = sg.trace(lambda x, n: sg.cross_entropy(x, n, reduction=reduction), X, LABELS)
    x = torch.tensor(X, requires_grad=True)
    y = sg.cross_entropy(x, torch.tensor(LABELS), reduction=reduction)
    np.testing.assert_allclose(y.detach().numpy(), graph(X, LABELS), rtol=1e-12)
    (gx,) = torch.autograd.grad(y.sum(), x)
    (_, want, *_) = sg.vjp(graph, "x")(X, LABELS, np.ones(y.shape))
    np.testing.assert_allclose(gx.numpy(), want, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("label", [-1, -100, 3])
@pytest.mark.parametrize("shape", [(2,), (2, 4)])
def test_labels_outside_are_refused(label: int, shape: tuple[int, ...]) -> None:
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        sg.cross_entropy(torch.zeros(2, 3, *shape[1:]), torch.full(shape, label))


def test_refusals_are_those_of_the_compositions() -> None:
    x = torch.zeros(2, 3, 4)
    with pytest.raises(sg.ShapeError, match=r"batch_norm \[C1\]: mean must have shape \(3,\)"):
        sg.batch_norm(x, torch.zeros(2), torch.ones(3))
    for x_, zero in ((x, torch.zeros(3)), (x.numpy(), torch.zeros(3).numpy())):
        with pytest.raises(sg.ShapeError, match=r"mean must have shape \(3,\); got None"):
            sg.batch_norm(x_, None, None)
        with pytest.raises(sg.ShapeError, match=r"var must have shape \(3,\); got None"):
            sg.batch_norm(x_, zero, None)
    with pytest.raises(sg.ShapeError, match="mse_loss: shapes must be equal"):
        sg.mse_loss(x, torch.zeros(3, 4))
    with pytest.raises(sg.ParameterError, match="reduction must be"):
        sg.mse_loss(x, x, reduction="batchmean")
    with pytest.raises(sg.ParameterError, match="approximate must be"):
        sg.gelu(x, "erf")
    with pytest.raises(sg.ShapeError, match="upsample_nearest"):
        sg.upsample_nearest(x, (0, 2))
    with pytest.raises(sg.ShapeError):
        sg.mul(x, torch.zeros(5))
    with pytest.raises(sg.ScalarError, match="int64"):
        sg.mul(x, torch.zeros(4, dtype=torch.int64))


def test_the_native_operators_run(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    functions = [(composites.F, name) for name in ("cross_entropy", "mse_loss", "gelu", "interpolate")]
    for home, name in [(torch, "batch_norm"), *functions]:
        real = getattr(home, name)
        note = lambda *a, real=real, name=name, **k: (taken.append(name), real(*a, **k))[1]
        monkeypatch.setattr(home, name, note)
    for name in ("batch_norm", "mse_loss", "gelu tanh", "upsample 2"):
        call, arrays = CALLS[name]
        call(*map(torch.tensor, arrays))
    sg.cross_entropy(torch.tensor(X), torch.tensor(LABELS))
    assert set(taken) == {"batch_norm", "cross_entropy", "mse_loss", "gelu", "interpolate"}


def test_a_kernel_that_passes_over_labels_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """F.cross_entropy's own default: -100 counts nothing."""
    monkeypatch.setattr(composites, "IGNORED_LABEL", -100)
    monkeypatch.setattr(composites, "_refuse_ignored", lambda labels: None)
    assert torch.isfinite(sg.cross_entropy(torch.zeros(2, 3), torch.tensor([1, -100])))


@pytest.mark.parametrize("setting", ["stride", "padding", "dilation"])
@pytest.mark.parametrize("value", [True, 1.0, (1, True), (1.0, 1)])
def test_a_remembered_convolution_is_not_found_by_what_only_equals_its_settings(setting: str, value: Any) -> None:
    x, w = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    for known in (1, (1, 1)):
        sg.conv(w, None, x, **{setting: known})
    with pytest.raises(sg.ParameterError):
        sg.conv(w, None, x, **{setting: value})


def test_a_remembered_convolution_refuses_integers_and_takes_other_types() -> None:
    x, w = torch.randint(-4, 5, (1, 2, 5, 5)).float(), torch.randint(-4, 5, (3, 2, 3, 3)).float()
    expected = sg.conv(w.numpy(), None, x.numpy(), padding=1)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):  # small whole numbers: exact in all of them
        assert (sg.conv(w.to(dtype), None, x.to(dtype), padding=1).double().numpy() == expected).all()
    with pytest.raises(sg.ScalarError):
        sg.conv(w.long(), None, x.long(), padding=1)
