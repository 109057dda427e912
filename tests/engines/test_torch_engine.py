"""The PyTorch engine: agreement with the specification, and composition with PyTorch's own machinery."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from agreement import Case, check_adjoint, check_derivatives, check_special, check_value
from slices import slices
from specgrad.engines.base import Engine
from specgrad.engines.torch.lowerings import ENGINE
from specgrad.op import REGISTRY, Op
from specgrad.rounding import ULPS

FEW, CASES = 8, 300  # by default, and with -m slow
OPERATORS = sorted(REGISTRY)


class TorchSide:
    """Arrays in and out; derivatives by torch.autograd."""

    ulps = ULPS["torch"]

    def __init__(self, engine: Engine = ENGINE) -> None:
        self.engine = engine

    def tensors(self, op: Op, args: list, grad: bool = False) -> list[torch.Tensor]:
        return [torch.tensor(a, requires_grad=grad and i not in op.index_args) for i, a in enumerate(args)]

    def value(self, op: Op, args: list, params: dict[str, Any]) -> np.ndarray:
        return self.engine.run(op, self.tensors(op, args), params).detach().numpy()

    def vjp(self, op: Op, args: list, gy: np.ndarray, params: dict[str, Any]) -> list:
        tensors = self.tensors(op, args, grad=True)
        y = self.engine.run(op, tensors, params)
        real = [t for t in tensors if t.requires_grad]
        if not y.requires_grad:
            return [None] * len(args)
        grads = iter(torch.autograd.grad(y, real, torch.tensor(gy), allow_unused=True))
        found = [next(grads) if t.requires_grad else None for t in tensors]
        return [None if g is None else g.numpy() for g in found]

    def jvp(self, op: Op, args: list, dargs: list, params: dict[str, Any]) -> np.ndarray | None:
        """Forward mode by the double-backward trick would hide our rules: use dual tensors."""
        import torch.autograd.forward_ad as fwd

        with fwd.dual_level():
            duals = [
                t if d is None else fwd.make_dual(t, torch.tensor(d))
                for t, d in zip(self.tensors(op, args), dargs, strict=True)
            ]
            tangent = fwd.unpack_dual(self.engine.run(op, duals, params)).tangent
            return None if tangent is None else tangent.numpy()


SIDE = TorchSide()


def each(op: Op, label: str, seeds: Iterable[int] = range(CASES)):
    for seed in seeds:
        yield seed, Random(f"{label}/{op.name}/{seed}")


@pytest.mark.parametrize("seeds", slices(FEW, CASES))
@pytest.mark.parametrize("name", OPERATORS)
def test_values(name: str, seeds: Iterable[int]) -> None:
    op = REGISTRY[name]
    for seed, rng in each(op, "value", seeds):
        case = Case.draw(op, rng, np.float32)
        try:
            check_value(SIDE, case)
        except Exception as error:
            error.add_note(f"{name}, seed {seed}, {[a.shape for a in case.args]}, {case.params}")
            raise


DIFFERENTIABLE = [n for n in OPERATORS if REGISTRY[n].kind != "index"]


@pytest.mark.parametrize("seeds", slices(FEW, CASES))
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_and_adjoint_law(name: str, seeds: Iterable[int]) -> None:
    op = REGISTRY[name]
    for seed, rng in each(op, "derivative", seeds):
        dtype = np.float32 if seed % 3 == 0 and name in ("max_pool", "conv", "put", "take") else np.float64
        case = Case.draw(op, rng, dtype)
        try:
            check_derivatives(SIDE, case, rng)
            check_adjoint(SIDE, case, rng)
        except Exception as error:
            error.add_note(f"{name}, seed {seed}, {[a.shape for a in case.args]}, {case.params}")
            raise


@pytest.mark.parametrize("seeds", slices(60, CASES))
@pytest.mark.parametrize("name", ["max_pool", "winner", "amax"])
def test_nan_infinities_and_ties(name: str, seeds: Iterable[int]) -> None:
    for _, rng in each(REGISTRY[name], "special", seeds):
        check_special(SIDE, REGISTRY[name], rng)


# --- a broken table is rejected ---------------------------------------------------------------------------------------


def shifted_max(x: Any, *, window: Any) -> Any:
    plan = ENGINE.table["max_pool"](x, window=window)
    return lambda t: plan(t).roll(1, -1)


def wrong_divisor(x: Any, *, window: Any, divisor: Any) -> Any:
    return ENGINE.table["avg_pool"](x, window=window, divisor="padded")


def leaking_gradient(x: Any, *, window: Any) -> Any:
    plan = ENGINE.table["max_pool"](x, window=window)
    return lambda t: plan(t) + (t - t.detach()).sum()


def bfloat16_conv(x: Any, w: Any, *b: Any, window: Any, groups: int) -> Any:
    plan = ENGINE.table["conv"](x, w, *b, window=window, groups=groups)
    return lambda *ts: plan(ts[0].bfloat16().to(ts[0]), *ts[1:])


def overwriting_put(gy: Any, i: Any, *, size: Any, empty: bool) -> Any:
    plan = ENGINE.table["put"](gy, i, size=size, empty=empty)
    return lambda g, j: plan(g, j).clamp(max=2)


def padding_take(x: Any, i: Any, *, rank: int, empty: bool) -> Any:
    """Reads a cell where the window is empty."""
    plan = ENGINE.table["take"](x, i, rank=rank, empty=False)
    return lambda t, j: plan(t, j.clamp(min=0))


BROKEN = {
    "max_pool shifted": ("max_pool", shifted_max),
    "divisor ignored": ("avg_pool", wrong_divisor),
    "gradient leaks to every cell": ("max_pool", leaking_gradient),
    "operands rounded to bfloat16": ("conv", bfloat16_conv),
    "relu'(0) = 1": ("relu", lambda x: lambda t: torch.where(t >= 0, t, 0)),
    "maximum gives ties to the first": ("maximum", lambda a, b: lambda p, q: torch.where(p >= q, p, q)),
    "put overwrites": ("put", overwriting_put),
    "take reads padding": ("take", padding_take),
}


@pytest.mark.parametrize("fault", list(BROKEN))
def test_a_broken_table_is_rejected(fault: str) -> None:
    name, line = BROKEN[fault]
    side = TorchSide(Engine("broken", torch.Tensor, {**ENGINE.table, name: line}))
    op = REGISTRY[name]
    for _, rng in each(op, "broken"):
        try:
            check_value(side, Case.draw(op, rng, np.float32))
            check_derivatives(side, Case.draw(op, rng, np.float64), rng)
        except (AssertionError, RuntimeError):
            return
    pytest.fail("nothing noticed")


def test_a_missing_line_is_an_error() -> None:
    engine = Engine("empty", torch.Tensor, {})
    with pytest.raises(sg.UnsupportedError, match="relu: the empty engine has no line for it"):
        engine.run(REGISTRY["relu"], [torch.ones(2)], {})


def test_tensors_and_arrays_do_not_mix() -> None:
    with pytest.raises(sg.ScalarError, match=r"cannot mix torch tensors with numpy\.ndarray"):
        sg.conv(np.ones((1, 1, 1)), None, torch.ones(1, 3))


def test_average_of_a_window_larger_than_its_volume() -> None:
    """PyTorch's avg_pool3d refuses a kernel beyond the bare input, padding or not."""
    x = np.arange(1.0, 3.0).reshape(1, 1, 1, 2, 1)
    expected = sg.avg_pool(x, (2, 2, 3), padding=1, stride=2)
    found = sg.avg_pool(torch.tensor(x), (2, 2, 3), padding=1, stride=2)
    np.testing.assert_allclose(found.numpy(), expected)
