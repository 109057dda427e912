"""Thresholds by size, lowered: the branches that large networks take are hunted on small ones.

Bounds, counts of roundings and engines choose among algorithms that must all be right; hunters' networks are too small
for most of them. Here every choice is forced, and the hunts are those that run without.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from agreement import Case, check_adjoint, check_derivatives, check_special, check_value
from claims import MODELS
from executor import Setting
from hunt import Drawn, hunted, hunted_gradient, hunted_two_sided
from lowered import lower
from slices import slices
from specgrad.op import REGISTRY
from test_counts import shortfalls

pytest.importorskip("torch")

LINEAR = {
    "one row at a time": {
        "intermediate.tighten:MAX_OBJECTIVE_CELLS": 1,
        "propagation.patches:MAX_OBJECTIVE_CELLS": 1,
        "propagation.patches:CACHE_CELLS": 1,
    },
    "phases of small arrays": {"propagation.patch_rules:MIN_CELLS_FOR_PHASES": 1},
    "one phase": {"propagation.patch_rules:MIN_CELLS_FOR_PHASES": 1, "propagation.patch_rules:MAX_PHASES_PER_AXIS": 1},
    "no matrices": {"relaxation.conv_operator:MAX_MATRIX_ENTRIES": 0},
    "matrices": {"relaxation.conv_operator:MATMUL_FLOPS": 1e30},
    "points": {"relaxation.conv_operator:SMALL_MATMUL_FLOPS": 1e30, "relaxation.conv_operator:MAX_MATRIX_ENTRIES": 0},
    "stripes": {"relaxation.conv_operator:MATMUL_FLOPS": 1e30, "relaxation.conv_operator:MAX_MATRIX_ENTRIES": 0},
    "float32": {"intermediate.forward_pass:SINGLE_BOXES": 0.0, "relaxation.conv_operator:MIN_FLOAT32_SPEEDUP": 0.0},
    "no twins, nothing thin": {"propagation.duplicate_relus:MAX_WEIGHTS": 1, "relaxation.sparse_matrix:MAX_WEIGHTS": 1},
    "short passes": {
        "intermediate.tighten:SHORT_PASS_DEPTHS": (1, 2),
        "intermediate.tighten:WIDE_SHARE": 0.0,
        "intermediate.tighten:MIN_CLOSED_SHARE": 0.0,
    },
}
BOUNDS = {name: {f"bounds.linear.{k}": v for k, v in values.items()} for name, values in LINEAR.items()}
BOUNDS |= {"few fronts": {"rounding.fusion_region:MAX_FRONTS": 1}}
BOUNDS |= {"cell by cell": {"rounding.context:CELLWISE_MAGNITUDE": 1e-30}}
LAYERS = ((), (Drawn.conv, Drawn.conv_transpose, Drawn.joined, Drawn.activation))


@pytest.mark.parametrize("seeds", slices(1, 40))
@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name: str, seeds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, BOUNDS[name])
    for seed in seeds:
        for layers in LAYERS:
            assert not hunted(5000 + seed, 2, 2, layers)
        assert not hunted_two_sided(5000 + seed, 2, 2)
        assert not hunted_gradient(5000 + seed, 2, 2)


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_counts_of_roundings(model: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fronts that are joined count at least as much as each of them."""
    pytest.importorskip("flint")
    lower(monkeypatch, {"rounding.fusion_region:MAX_FRONTS": most})
    problems, compared = shortfalls(range(28), replace(Setting(), model=model), 2)
    assert not problems
    assert compared > 100


# --- engines --------------------------------------------------------------------------------------------------------

SLOW = (1e15, 1e15)  # what the native operator is said to take
POOL = dict.fromkeys(
    ("NATIVE_STRIDED_NS", "NATIVE_AVG_STRIDED_NS", "NATIVE_MAX_NS", "NATIVE_AVG_NS", "CHANNELS_MAX_NS"), SLOW
)
POOL |= {
    "CHANNELS_AVG_NS": SLOW,
    "CHANNELS_DOUBLED_NS": 0.0,
    "MIN_KERNEL_DOUBLED_1D": 1,
    "MAX_CELLS_SCATTERED": 0,
    "MIN_TAPS_ADAPTIVE": 0,
}
POOL |= dict.fromkeys(
    ("WORTH_INDEX_NS", "WORTH_INDEX_GRAD_NS", "WORTH_MAX_NS", "WORTH_MAX_GRAD_NS", "WORTH_AVG_NS"), 0.0
)
OURS: dict[str, Any] = {f"max_pool:{k}": v for k, v in POOL.items()}
OURS |= {"avg_pool:TAPE_OVERHEAD_NS": 0.0} | {
    f"strided_pool:{k}": 0.0 for k in ("SET_UP_NS", "ROW_NS", "COLUMN_NS", "BACKWARD_FACTOR")
}
CHUNKS = {f"{module}:CHUNK_BYTES": 1 for module in ("log_step_pool", "strided_pool", "planes_as_channels")}
TORCH: dict[str, dict[str, Any]] = {
    "ours": OURS,
    "in chunks": {**OURS, **CHUNKS, "planes_as_channels:CHANNELS_PER_VECTOR": 2},
    "as channels": {
        **OURS,
        **CHUNKS,
        "planes_as_channels:CHANNELS_PER_VECTOR": 1,
        "max_pool:MAX_TAPS_BY_CHANNELS": 10**6,
    },
    "by slices": {**OURS, "max_pool:MAX_TAPS_BY_CHANNELS": 0, "strided_pool:MAX_TAPS_BY_SLICES": 10**6},
    "few taps": {**OURS, "strided_pool:MAX_TAPS_PER_AXIS": 1, "strided_pool:MAX_TAPS_BY_SLICES": 0},
    "far": {
        "native_functions:MAX_BYTES_PER_SUM": 2,
        "native_functions:MAX_MARKS_COUNTED": 0,
        "native_functions:MAX_SOFTPLUS_THRESHOLD": 0,
        "logsumexp_pool:MAX_SCALED_OUTPUT": 0.0,
    },
    "near": {"logsumexp_pool:MAX_SCALED_OUTPUT": 1e9},
}
WINDOWED = ("sum", "avg_pool", "winner", "max_pool", "amax", "conv", "conv_transpose", "smooth_max_pool")


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from specgrad.engines.torch.lowerings import ENGINE

    lower(monkeypatch, {f"engines.torch.{k}": v for k, v in TORCH[name].items()})
    monkeypatch.setattr(ENGINE, "_kernels", {})
    side = torch_side(layout)
    for operator in WINDOWED:
        for seed in range(2):
            rng = Random(f"lowered/{operator}/{seed}")
            op, case = REGISTRY[operator], Case.draw(REGISTRY[operator], rng, np.float32)
            check_value(side, case)
            if op.kind != "index":
                case = Case.draw(op, rng, np.float32 if seed % 2 else np.float64)
                check_derivatives(side, case, rng)
                check_adjoint(side, case, rng)
            if operator in ("max_pool", "winner", "amax"):
                check_special(side, op, rng)


def torch_side(layout: str) -> Any:
    import torch

    from test_torch_engine import TorchSide

    class ChannelsLast(TorchSide):
        def tensors(self, op: Any, args: list, grad: bool = False) -> list[torch.Tensor]:
            formats = {4: torch.channels_last, 5: torch.channels_last_3d}
            found = [torch.tensor(a) for a in args]
            found = [t.contiguous(memory_format=formats[t.ndim]) if t.ndim in formats else t for t in found]
            return [t.requires_grad_(grad and i not in op.index_args) for i, t in enumerate(found)]

    return ChannelsLast() if layout == "channels_last" else TorchSide()


# --- the lowering can be seen ---------------------------------------------------------------------------------------


def test_a_constant_is_lowered_wherever_it_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    homes = [importlib.import_module(f"specgrad.engines.torch.{name}") for name in ("max_pool", "avg_pool")]
    lower(monkeypatch, {"engines.torch.max_pool:WORTH_AVG_NS": 0.5})
    assert [home.WORTH_AVG_NS for home in homes] == [0.5, 0.5]


@pytest.mark.parametrize("name", ["stripes", "matrices"])
def test_the_way_is_the_one_that_was_forced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a mistake in it is caught: half of what goes through a convolution."""
    from specgrad.bounds.linear.relaxation.conv_operator import Convolution

    lower(monkeypatch, BOUNDS[name])
    ways, through = set(), Convolution._apply_fastest

    def planted(self: Any, a: Any, single: bool, back: bool) -> Any:
        ways.add(self.way(single))
        y = through(self, a, single, back)
        return y / 2 if self.way(single) == name.replace("matrices", "matrix") else y

    monkeypatch.setattr(Convolution, "_apply_fastest", planted)
    assert any(hunted(seed, 8, 8, [Drawn.conv, Drawn.activation]) for seed in (5, *range(12)))
    assert name.replace("matrices", "matrix") in ways
