"""Every operator where there is no memory to read: on the meta device and under fake tensors.

A line that reads values, makes a tensor on the CPU, or takes an algorithm of the CPU for another device fails here.
(Fake tensors of a GPU need a build of PyTorch that knows GPUs.)
"""

from __future__ import annotations

from contextlib import nullcontext
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

import specgrad as sg
from specgrad.engines.base import Engine
from specgrad.engines.torch.lowerings import ENGINE
from specgrad.op import REGISTRY, Op

OPERATORS = sorted(REGISTRY)
CASES = {"meta": 4, "fake": 1}
WHERE = {"meta": ("meta", nullcontext), "fake": ("cpu", FakeTensorMode)}


def arrays(op: Op, rng: Random) -> tuple[list[Any], dict[str, Any]]:
    args, params = op.cases(rng)
    return [np.asarray(a, np.float32) if i not in op.index_args else a for i, a in enumerate(args)], params


def check(op: Op, where: str, engine: Engine) -> None:
    device, mode = WHERE[where]
    for seed in range(CASES[where]):
        args, params = arrays(op, Random(f"device/{op.name}/{seed}"))
        want = op.shape(*(np.shape(a) for a in args), **params)
        with mode():
            given = [torch.empty(np.shape(a), dtype=torch.tensor(a).dtype, device=device) for a in args]
            y = engine.run(op, given, params)
        assert tuple(y.shape) == tuple(want), (op.name, seed, params)
        assert y.device.type == device, (op.name, seed, y.device)


def gradient(op: Op, where: str) -> None:
    device, mode = WHERE[where]
    for seed in range(CASES[where]):
        args, params = arrays(op, Random(f"device/{op.name}/{seed}"))
        with mode():
            given = [torch.empty(np.shape(a), dtype=torch.tensor(a).dtype, device=device) for a in args]
            real = [t.requires_grad_() for i, t in enumerate(given) if i not in op.index_args]
            y = ENGINE.run(op, given, params)
            if not y.requires_grad:
                continue
            found = torch.autograd.grad(y.sum(), real, allow_unused=True)
        assert all(
            g is None or (g.device.type == device and g.shape == t.shape) for g, t in zip(found, real, strict=True)
        )


@pytest.mark.parametrize("where", list(WHERE))
@pytest.mark.parametrize("name", OPERATORS)
def test_shapes_and_devices(name: str, where: str) -> None:
    check(REGISTRY[name], where, ENGINE)


@pytest.mark.parametrize("where", list(WHERE))
@pytest.mark.parametrize("name", [n for n in OPERATORS if REGISTRY[n].kind != "index"])
def test_gradients_stay_on_the_device(name: str, where: str) -> None:
    gradient(REGISTRY[name], where)


LARGE = {
    "max_pool k3 s1": lambda x: sg.max_pool(x, (3, 3), stride=1, padding=1),
    "max_pool k3 s2": lambda x: sg.max_pool(x, (3, 3), stride=2, padding=1),
    "avg_pool k2 s2": lambda x: sg.avg_pool(x, (2, 2)),
    "avg_pool k5 s1": lambda x: sg.avg_pool(x, (5, 5), stride=1),
    "smooth_max_pool": lambda x: sg.smooth_max_pool(x, (3, 3), beta=2.0, stride=1),
    "global_max_pool": lambda x: sg.global_max_pool(x, rank=2),
    "upsample_nearest": lambda x: sg.upsample_nearest(x, (2, 2)),
    "batch_norm": lambda x: sg.batch_norm(x, x[0, :, 0, 0].detach(), x[0, :, 0, 0].detach()),
}


@pytest.mark.parametrize("name", list(LARGE))
@pytest.mark.parametrize("where", list(WHERE))
def test_sizes_that_take_our_algorithms_on_the_cpu(name: str, where: str) -> None:
    device, mode = WHERE[where]
    with mode():
        x = torch.empty(8, 64, 112, 112, device=device, requires_grad=True)
        y = LARGE[name](x)
        (gx,) = torch.autograd.grad(y.sum(), x)
    assert y.device.type == gx.device.type == device


BROKEN = {
    "a tensor of the CPU": ("relu", lambda x: lambda t: torch.zeros(x)),
    "reads a value": ("relu", lambda x: lambda t: t if float(t.sum()) > 0 else -t),
}


@pytest.mark.parametrize("fault", list(BROKEN))
def test_a_line_for_the_cpu_alone_is_noticed(fault: str) -> None:
    name, line = BROKEN[fault]
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)):
        check(REGISTRY[name], "meta", Engine("broken", torch.Tensor, {**ENGINE.table, name: line}))
