"""Eager calls that are found again: only by what is the same, and with today's tensors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import torch

import specgrad as sg
import specgrad.functional as F
from specgrad.call_cache import CALLERS, cached_call, record_call
from specgrad.engines.torch import call_cache
from specgrad.ops import elementwise


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    sg.relu(torch.zeros(1))  # the engine is there
    call_cache._programs.clear()
    yield
    call_cache._programs.clear()


def whole(*shape: int) -> Any:
    return torch.randint(-4, 5, shape).float()


CALLS: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "conv": (lambda x, w, b: sg.conv(w, b, x, padding=((1, 1), (0, 1))), ((2, 2, 5, 5), (3, 2, 3, 3), (3,))),
    "conv2d": (lambda x, w: F.conv2d(x, w, stride=[2, 1], padding="valid"), ((2, 2, 5, 5), (3, 2, 3, 3))),
    "conv_transpose": (lambda x, w: sg.conv_transpose(w, None, x, stride=2), ((2, 2, 4), (2, 3, 3))),
    "max_pool with winners": (lambda x: sg.max_pool(x, (2, 2), return_indices=True)[1], ((2, 3, 6, 6),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), ((2, 3, 6, 6),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2, stride=None), ((2, 3, 6, 6),)),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (None, 2)), ((2, 3, 4, 4),)),
    "flatten": (lambda x: sg.flatten(x, 1), ((2, 3, 4),)),
    "reshape to itself": (lambda x: sg.reshape(x, (2, 3)), ((2, 3),)),
    "permute": (lambda x: sg.permute(x, [2, 0, 1]), ((2, 3, 4),)),
    "slice": (lambda x: sg.slice(x, None, slice(1, 3), slice(None, None, 2)), ((2, 4, 5),)),
    "slice whole axes": (lambda x: sg.slice(x, slice(0, 1)), ((2, 4, 5),)),
    "pad": (lambda x: sg.pad(x, [(1, 0), (2, 2)], value=7), ((2, 4, 5),)),
    "pad reflect": (lambda x: F.pad(x, (1, 2), mode="reflect"), ((2, 4, 5),)),
    "sum kept": (lambda x: sg.sum(x, (0, -1), keepdims=True), ((2, 4, 5),)),
    "mean": (lambda x: sg.mean(x, [0, 1]), ((2, 4, 5),)),
    "amax": (lambda x: sg.amax(x, 1), ((2, 4, 5),)),
    "argmax": (lambda x: sg.argmax(x, 1), ((2, 4, 5),)),
    "topk": (lambda x: sg.topk(x, 2)[0], ((2, 4, 5),)),
    "select": (lambda c, a: sg.select(c, a, 2), ((3, 1), (3, 4))),
    "mod": (lambda x, y: sg.mod(x, sg.add(sg.mul(y, y), 1)), ((3, 4), (3, 4))),
    "batch_norm": (lambda x, m, w: F.batch_norm(x, m, sg.fill(m, 3), w, eps=1), ((2, 3, 4), (3,), (3,))),
    "mse_loss": (lambda x, y: F.mse_loss(x, y, reduction="sum"), ((3, 4), (3, 4))),
    "matmul": (lambda x, y: sg.matmul(x, y), ((3, 4), (4, 2))),
    "linear": (lambda x, w, b: F.linear(x, w, b), ((3, 4), (2, 4), (2,))),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2), ((1, 2, 3),)),
    "upsample by 3": (lambda x: sg.upsample_nearest(x, (3,)), ((1, 2, 3),)),
    "roll": (lambda x: sg.roll(x, 2, axis=1), ((2, 5),)),
    "cumsum": (lambda x: sg.cumsum(x, 1, exclusive=True), ((2, 5),)),
    "clamp to one side": (lambda x: sg.clamp(x, low=-1), ((2, 5),)),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_second_call_is_right_about_other_values(name: str) -> None:
    """Against the specification, on new tensors each time, with and without a derivative."""
    call, shapes = CALLS[name]
    for turn in range(4):
        xs = [whole(*s) for s in shapes]
        expected = torch.from_numpy(call(*(x.numpy() for x in xs)))
        y = call(*(x.requires_grad_(turn % 2 == 1) for x in xs))
        torch.testing.assert_close(y.detach(), expected.to(y.dtype))


@pytest.mark.parametrize("name", ["conv2d", "max_pool2d", "mean", "batch_norm", "argmax", "select", "linear"])
def test_these_calls_are_remembered(name: str) -> None:
    call, shapes = CALLS[name]
    call(*(whole(*s) for s in shapes))
    assert all(program is not None for program in call_cache._programs.values())
    known = len(call_cache._programs)
    call(*(whole(*s) for s in shapes))
    assert len(call_cache._programs) == known > 0


@pytest.mark.parametrize("other", [True, 2.0, [2.0, 2], (2, True)])
def test_what_only_equals_a_setting_is_refused_as_ever(other: Any) -> None:
    x = whole(1, 2, 6, 6)
    for known in (2, (2, 2), [2, 2], 1, (1, 1)):
        F.max_pool2d(x, known)
    with pytest.raises(sg.ParameterError):
        F.max_pool2d(x, other)


def test_the_zeros_are_told_apart() -> None:
    for zero in (0.0, -0.0, 0.0):
        assert torch.signbit(sg.fill(torch.ones(2), zero)).any() == (str(zero) == "-0.0")


def test_a_refusal_is_refused_again_and_leaves_nothing() -> None:
    x = torch.zeros(2, 3, 4, 4, dtype=torch.int64)
    for _ in range(2):
        with pytest.raises(sg.ScalarError):
            F.avg_pool2d(x, 2)
        with pytest.raises(sg.ShapeError):
            sg.reshape(torch.zeros(6), (4,))
    assert not call_cache._programs


def test_a_list_may_change_after_the_call() -> None:
    x, axes = whole(2, 3, 4), [0, 1]
    sg.mean(x, axes)
    axes[1] = 2
    assert sg.mean(x, axes).shape == (3,)
    assert sg.mean(x, [0, 1]).shape == (4,)


def test_one_tensor_in_two_places_says_nothing_about_two() -> None:
    x, y = whole(3, 3), whole(3, 3)
    sg.matmul(x, x)
    assert torch.equal(sg.matmul(x, y), x @ y)
    assert torch.equal(sg.matmul(y, y), y @ y)


def test_what_was_found_without_a_derivative_serves_every_kind_of_derivative() -> None:
    shapes = ((2, 3, 4), (3,), (3,))
    x, m, v = (whole(*s).abs() + 1 for s in shapes)
    plain = F.batch_norm(x, m, v)
    m.requires_grad_()
    F.batch_norm(x, m, v).sum().backward()
    assert m.grad is not None
    assert m.grad.abs().sum() > 0
    tangent = torch.func.jvp(lambda t: F.batch_norm(t, m.detach(), v), (x,), (x,))[1]
    torch.testing.assert_close(tangent, x / torch.sqrt(v + 1e-5)[:, None])
    batched = torch.func.vmap(lambda t: F.batch_norm(t, m.detach(), v))(torch.stack([x, x]))
    torch.testing.assert_close(batched, torch.stack([plain, plain]))


def test_autocast_is_seen_at_each_call() -> None:
    x, labels = torch.randn(4, 5).bfloat16(), torch.tensor([0, 1, 2, 3])
    assert F.cross_entropy(x, labels).dtype == torch.bfloat16
    with torch.autocast("cpu"):
        assert F.cross_entropy(x, labels).dtype == torch.float32
    call_cache._programs.clear()
    with torch.autocast("cpu"):
        assert F.cross_entropy(x, labels).dtype == torch.float32
    assert F.cross_entropy(x, labels).dtype == torch.bfloat16


def test_a_step_that_has_no_answer_for_these_values_is_not_the_answer() -> None:
    """A native function may give up on some values; what was recorded is then not what the call comes to."""

    @cached_call
    def root(x: Any) -> Any:
        y = record_call(lambda t: torch.sqrt(t) if t.min() >= 0 else None, x)
        return torch.zeros_like(x) if y is None else record_call(lambda t: t + 0, y)

    for first in (4.0, -4.0):
        call_cache._programs.clear()
        for value in (first, 4.0, -4.0, 4.0):
            assert root(torch.full((2,), value)).tolist() == [2 * (value > 0)] * 2


def test_a_refusal_names_itself_alone() -> None:
    with pytest.raises(sg.ScalarError) as caught:
        sg.max_pool(torch.ones(3, dtype=torch.int32), (2,))
    assert caught.value.__context__ is None


def test_a_composition_of_the_user_is_not_taken_for_ours_of_that_name() -> None:
    @sg.composite
    def softmax(x: Any) -> Any:
        return sg.softmax(sg.mul(x, 3), -1)

    x = torch.tensor([1.0, 2.0, 3.0])
    for _ in range(2):
        torch.testing.assert_close(softmax(x), torch.softmax(3 * x, -1))


def test_names_and_places_of_arguments_are_one_call() -> None:
    x = whole(1, 2, 6, 6)
    expected = F.max_pool2d(x, 2, 2)
    known = len(call_cache._programs)
    for y in (F.max_pool2d(input=x, kernel_size=2, stride=2), F.max_pool2d(x, stride=2, kernel_size=2)):
        assert torch.equal(y, expected)
    assert len(call_cache._programs) == known > 0
    with pytest.raises(TypeError, match="unexpected keyword"):
        F.max_pool2d(x, 2, step=2)


def test_both_results_of_a_call_are_remembered() -> None:
    for _ in range(3):
        x = torch.randn(3, 5, dtype=torch.float64)
        values, index = sg.topk(x, 2)
        expected = sg.topk(x.numpy(), 2)
        assert (values.numpy() == expected[0]).all()
        assert (index.numpy() == expected[1]).all()
    tied = torch.tensor([[1.0, 7.0, 7.0, 7.0, 0.0]]).double().expand(3, 5)
    assert sg.topk(tied, 2)[1].tolist() == [[1, 2]] * 3
    assert call_cache._no_program not in call_cache._programs.values()


@pytest.mark.parametrize("threshold", [20, -3.0, 40, 1000.0])
@pytest.mark.parametrize("beta", [1, 0.5, 3.0])
def test_softplus_with_its_switch(beta: float, threshold: float) -> None:
    """Values of the composition over NumPy and its slope; above 40, where PyTorch's exp overflows, the composition."""
    values = [-90.0, -4.0, -0.0, 0.0, 1.5, 19.0, 21.0, 39.0, 41.0, 90.0, 800.0]
    for _ in range(2):
        x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        y = F.softplus(x, beta, threshold)
        expected = torch.from_numpy(F.softplus(x.detach().numpy(), beta, threshold))
        torch.testing.assert_close(y.detach(), expected, rtol=1e-12, atol=1e-15)
        (slope,) = torch.autograd.grad(y.sum(), x)
        above = x.detach() * beta > threshold
        torch.testing.assert_close(slope, torch.where(above, 1.0, torch.sigmoid(beta * x.detach())))
    assert F.softplus(torch.tensor([float("nan")]), beta, threshold).isnan().all()
    with pytest.raises(sg.ScalarError):
        F.softplus(torch.tensor([1]), beta, threshold)
    for refused in (0, -2.0):
        with pytest.raises(sg.ParameterError, match="beta must be positive"):
            F.softplus(torch.ones(1), refused, threshold)


def test_a_slice_is_told_from_three_numbers() -> None:
    words = [
        call_cache._container_key([v], [])
        for v in (slice(1, 2, 3), (1, 2, 3), slice(True, 2, 3), slice(1.0, 2, 3), slice(2))
    ]
    assert len(set(words)) == len(words)


def test_a_parameter_beside_a_tensor_runs_the_operator_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = torch.ones(2, 3), torch.nn.Parameter(torch.ones(3))
    sg.relu(w)
    monkeypatch.setattr(elementwise, "broadcast_together", None)
    assert torch.equal(sg.add(x, w), x + w)
    assert torch.equal(sg.mul(w, x), w * x)


def test_a_call_that_is_found_again_runs_four_files() -> None:
    """The generated call, what finds it, whether somebody observes, the kernel: tools/walk.py prints them."""
    x, files = whole(1, 1, 8, 8).requires_grad_(), set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(os.path.dirname(sg.__file__)):
            files.add(frame.f_code.co_filename.partition(" for ")[0])

    run = lambda: sg.max_pool(x, (3, 3), stride=2, padding=1).sum().backward()
    run()
    sys.setprofile(note)
    run()
    sys.setprofile(None)
    assert len(files) <= 4, files


def test_a_shape_of_the_engine_is_no_tensor() -> None:
    """It reshapes what the specification computes with, and enters nobody who remembers such calls."""
    assert sg.reshape([1, 2], torch.Size([2, 1])).tolist() == [[1], [2]]
    assert torch.Size not in CALLERS
