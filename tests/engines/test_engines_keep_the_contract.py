"""What the specification refuses, or keeps accurate, and an engine's own operators did not: each was silent."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.engines.torch.composites import IGNORED_LABEL


@pytest.mark.parametrize("wrong", [[0, 5], [0, -1], [10**6, 0]], ids=str)
@pytest.mark.parametrize("size", [(4,), (2, 2), (1, 2, 2)], ids=str)
def test_put_wrote_wherever_it_was_told(wrong: list[int], size: tuple[int, ...]) -> None:
    """PyTorch's adaptive backward, which checks no position, wrote outside the result: heap corruption."""
    index = np.array(wrong).reshape(*(1,) * (len(size) - 1), 2)
    for make in (np.asarray, torch.tensor, jax.numpy.asarray):
        with pytest.raises(sg.ShapeError, match=r"put: indices must lie in 0\.\.3"):
            sg.put(make(np.ones(index.shape, np.float32)), make(index), size=size, empty=False)


def test_gradients_of_a_graph_put_at_its_own_winners_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sg.trace(lambda x: sg.max_pool(x, (2, 2)), (1, 2, 4, 4))
    derivative = sg.compile(sg.vjp(graph, "x"), engine="torch")
    monkeypatch.setattr(torch, "aminmax", None)
    x = torch.arange(32.0).view(1, 2, 4, 4)
    _, gx = derivative(x, torch.ones(1, 2, 2, 2))
    assert gx.sum() == 8


def test_a_position_below_the_one_that_means_none() -> None:
    for make in (np.asarray, torch.tensor, jax.numpy.asarray):
        with pytest.raises(sg.ShapeError, match=r"last_writer: indices must lie in -1\.\.3; got -3\.\.0"):
            sg.max_unpool(make(np.ones((1, 2), np.float32)), make(np.array([[0, -3]])), (2,))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_label_that_pytorch_is_told_to_ignore(reduction: Any) -> None:
    with pytest.raises(sg.ShapeError, match="is no class"):
        sg.cross_entropy(torch.zeros(2, 3), torch.tensor([1, IGNORED_LABEL]), reduction=reduction)


REFUSED: dict[str, Any] = {
    "linear: a vector for w": lambda a: sg.linear(a((3,)), None, a((4, 3))),
    "linear: b of the shape of y": lambda a: sg.linear(a((2, 3)), a((4, 2)), a((4, 3))),
    "linear: one cell for b": lambda a: sg.linear(a((2, 3)), a((1,)), a((4, 3))),
    "softmax: no axis": lambda a: sg.softmax(a(())),
    "softmax: no cells": lambda a: sg.softmax(a((2, 0))),
    "log_softmax: no cells": lambda a: sg.log_softmax(a((2, 0))),
    "mse_loss: no cells": lambda a: sg.mse_loss(a((0,)), a((0,))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_shapes_that_only_pytorch_took(name: str) -> None:
    for ones in (np.ones, torch.ones, jax.numpy.ones):
        with pytest.raises(sg.ShapeError):
            REFUSED[name](ones)


COMPLEX: dict[str, Any] = {
    "mul": lambda x: sg.mul(x, x),
    "mul by a number": lambda x: sg.mul(x, 2),
    "mse_loss": lambda x: sg.mse_loss(x, x),
    "linear": lambda x: sg.linear(x, None, x),
    "softmax": sg.softmax,
    "conv": lambda x: sg.conv(x.reshape(1, 1, 4), None, x.reshape(1, 1, 4)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_none_of_ours(name: str) -> None:
    """mse_loss of 1j and 0 was -1."""
    array = np.full((2, 2), 1j, np.complex64)
    for make in (np.asarray, torch.tensor, jax.numpy.asarray):
        with pytest.raises(sg.ScalarError, match="complex64"):
            COMPLEX[name](make(array))


def test_complex_inputs_of_compiled_graphs() -> None:
    graph = sg.trace(lambda x: sg.mul(x, x), (2,))
    for make, engine in ((torch.tensor, "torch"), (jax.numpy.asarray, "jax")):
        with pytest.raises(sg.ScalarError, match="complex64"):
            sg.compile(graph, engine=engine)(make(np.full(2, 1j, np.complex64)))


# --- group_norm on channels_last ------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [0, 100, 10_000])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("how", ["eager", "tape", "func"])
def test_group_norm_of_channels_last_far_from_zero(far: float, rank: int, how: str) -> None:
    """PyTorch's kernel subtracts E[x]**2 from E[x*x]: at mean 100, deviation 0.1 it was off by 9, of values up to 4."""
    layout = {2: torch.channels_last, 3: torch.channels_last_3d}[rank]
    generator = torch.Generator().manual_seed(0)
    x = far + 0.1 * torch.randn(2, 8, *(16,) * rank, generator=generator)
    k = torch.randn(x.shape, generator=generator)
    call = lambda t: sg.group_norm(t, 2, eps=1e-5)
    want, given = sg.group_norm(x.double().numpy(), 2), x.to(memory_format=layout)
    u = 2.0**-24 * (1 + 10 * far)  # a cell's own rounding, in deviations
    if how == "eager":
        y = call(given)
        assert y.is_contiguous(memory_format=layout)
    else:
        loss = lambda t: ((call(t) * k).sum(), call(t))
        if how == "tape":
            given = given.requires_grad_()
            value, y = loss(given)
            (gx,) = torch.autograd.grad(value, given)
        else:
            gx, y = torch.func.grad(loss, has_aux=True)(given)
        exact = x.double().requires_grad_()
        (wanted,) = torch.autograd.grad((call(exact) * k).sum(), exact)
        np.testing.assert_allclose(gx.numpy(), wanted.numpy(), atol=100 * 50 * u)
    np.testing.assert_allclose(y.detach().numpy(), want, atol=50 * u)


# --- statistics of a batch, written out -------------------------------------------------------------------------------


def test_gradients_of_a_compiled_batch_norm_under_vmap() -> None:
    """F.batch_norm has no derivative in the mean and variance that the graph computes, and refused."""

    def net(x: Any) -> Any:
        m = sg.mean(x, (0, 2))
        c = sg.sub(x, sg.reshape(m, (1, 3, 1)))
        return sg.batch_norm(x, m, sg.mean(sg.mul(c, c), (0, 2)), np.ones(3), np.zeros(3))

    module = sg.compile(sg.trace(net, (4, 3, 5)), "torch")
    x, k = torch.randn(2, 2, 4, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    own = lambda t: torch.nn.functional.batch_norm(t, None, None, torch.ones(3).double(), None, True)
    found, wanted = (
        torch.func.grad(lambda t, f=f: (torch.vmap(f)(t) * k).sum())(x) for f in (module, lambda t: own(t))
    )
    torch.testing.assert_close(found, wanted)
