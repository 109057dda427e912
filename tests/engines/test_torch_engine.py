"""The PyTorch engine: agreement with the specification, and composition with PyTorch's own machinery."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from agreement import Case, check_adjoint, check_derivatives, check_special, check_value

from specgrad.engines.base import Engine
from specgrad.engines.torch import ENGINE
from specgrad.op import REGISTRY, Op

CASES = 300
OPERATORS = sorted(REGISTRY)


class TorchSide:
    """Arrays in and out; derivatives by torch.autograd."""

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


def each(op: Op, label: str, count: int = CASES):
    for seed in range(count):
        yield seed, Random(f"{label}/{op.name}/{seed}")


@pytest.mark.parametrize("name", OPERATORS)
def test_values(name: str) -> None:
    op = REGISTRY[name]
    for seed, rng in each(op, "value"):
        case = Case.draw(op, rng, np.float32)
        try:
            check_value(SIDE, case)
        except Exception as error:
            error.add_note(f"{name}, seed {seed}, {[a.shape for a in case.args]}, {case.params}")
            raise


DIFFERENTIABLE = [n for n in OPERATORS if REGISTRY[n].kind != "index"]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_and_adjoint_law(name: str) -> None:
    op = REGISTRY[name]
    for seed, rng in each(op, "derivative"):
        dtype = np.float32 if seed % 3 == 0 and name in ("max_pool", "conv", "put", "take") else np.float64
        case = Case.draw(op, rng, dtype)
        try:
            check_derivatives(SIDE, case, rng)
            check_adjoint(SIDE, case, rng)
        except Exception as error:
            error.add_note(f"{name}, seed {seed}, {[a.shape for a in case.args]}, {case.params}")
            raise


@pytest.mark.parametrize("name", ["max_pool", "winner", "amax"])
def test_nan_infinities_and_ties(name: str) -> None:
    for _, rng in each(REGISTRY[name], "special"):
        check_special(SIDE, REGISTRY[name], rng)
