"""Whole networks: graph and module agree, exactly on integers, else within the proven radius."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models import FULL, SMALL, exported_onnx, imported, overridden_divisor
from specgrad import Graph
from specgrad.interop import from_onnx, from_torch
from specgrad.rounding import Arithmetic, radius

TYPES = {"float32": torch.float32, "float64": torch.float64}


def used(graph: Graph, module: nn.Module, x: Tensor, dtype: str, backend: str = "numpy") -> float:
    """The largest share of its radius that the module's error takes; at most 1 if the graph is right."""
    report = radius(graph, x.numpy(), arithmetic=Arithmetic(dtype), backend=backend)
    assert report.unbounded == ()
    error = np.abs(module(x).detach().numpy().astype(np.float64) - report.outputs.value)
    return float(np.max(error / report.outputs.radius))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", SMALL)
def test_module_lies_within_the_radius(name: str, dtype: str) -> None:
    graph, module, x = imported(name, TYPES[dtype])
    assert used(graph, module, x, dtype) <= 1


@pytest.mark.parametrize("name", SMALL)
def test_a_changed_module_does_not(name: str) -> None:
    """Weights moved by a thousandth of a percent: the comparison above can fail, and in float64 it is sharp."""
    graph, module, x = imported(name, torch.float64)
    with torch.no_grad():
        next(module.parameters()).mul_(1 + 1e-5)
    assert used(graph, module, x, "float64") > 1


SLOW = pytest.mark.slow
LONG = ("resnet18", "mobilenetv2")  # batch normalisation goes through ONNX below


@pytest.mark.parametrize("name", [pytest.param(n, marks=SLOW) if n in LONG else n for n in SMALL])
def test_module_lies_within_the_radius_of_its_onnx_file(name: str) -> None:
    """Without torch.onnx's optimizer, which rounds the weights that it folds, and with an epsilon that ONNX can hold.

    ONNX keeps epsilon in float32: with PyTorch's 1e-5 the file is another function, and MobileNetV2 leaves its radius.
    """
    _, module, x = imported(name, torch.float64)
    for part in module.modules():
        if hasattr(part, "eps"):
            part.eps = 2.0**-17
    graph = from_onnx(exported_onnx(module, x, optimize=False))
    assert used(graph, module, x, "float64") <= 1


def test_the_dropped_divisor_is_caught() -> None:
    """torch.onnx writes AvgPool2d(2, divisor_override=1) as a mean; from_torch honours the divisor."""
    module, x = overridden_divisor()
    assert used(from_torch(module, x), module, x, "float32") <= 1
    assert used(from_onnx(exported_onnx(module, x)), module, x, "float32") > 1000


# --- integers: no rounding at all -------------------------------------------------------------------------------------


def with_sparse_integers(module: nn.Module) -> nn.Module:
    """Two weights of +-1 per output, powers of two in batch normalisation: float64 then computes without rounding."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.eps = 0.0
                part.running_mean.copy_(torch.randint(-2, 3, part.running_mean.shape, generator=draw))
                part.running_var.copy_(4.0 ** torch.randint(-1, 2, part.running_var.shape, generator=draw))
                part.weight.copy_(torch.randint(1, 3, part.weight.shape, generator=draw))
            elif getattr(part, "weight", None) is not None:
                rows = part.weight.zero_().view(len(part.weight), -1)
                at = torch.randint(rows.shape[1], (len(rows), 2), generator=draw)
                rows.scatter_(1, at, torch.randint(0, 2, at.shape, generator=draw).mul(2.0).sub(1))
            if getattr(part, "bias", None) is not None:
                part.bias.copy_(torch.randint(-2, 3, part.bias.shape, generator=draw))
    return module.double()


def exact_case(build) -> tuple[nn.Module, Tensor]:
    module, x = build()
    return with_sparse_integers(module), x.mul(4).round().double()


@pytest.mark.parametrize("name", ["lenet", "resnet18", pytest.param("mobilenetv2", marks=SLOW), "unet"])
def test_module_is_met_bit_for_bit_on_integers(name: str) -> None:
    module, x = exact_case(SMALL[name])
    expected = module(x).detach().numpy()
    assert 0 < np.abs(expected).max() < 2**40, "exactness would be in doubt"
    assert np.unique(expected).size >= 5, "a constant would show nothing"
    assert np.array_equal(from_torch(module, x)(x.numpy()), expected)


def test_folded_batch_normalisation_is_met_bit_for_bit() -> None:
    """The folded weights are exact here, so torch.onnx's optimizer changes nothing."""
    module, x = exact_case(SMALL["resnet18"])
    proto = exported_onnx(module, x)
    assert all(node.op_type != "BatchNormalization" for node in proto.graph.node)
    assert np.array_equal(from_onnx(proto)(x.numpy()), module(x).detach().numpy())


# --- at full size -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_full_size(name: str) -> None:
    """Within the radius in float32, and bit for bit on integers where no layer divides by an odd number."""
    module, x = FULL[name]()
    graph = from_torch(module, x)
    assert used(graph, module, x, "float32", "torch") <= 1
    if name in ("lenet", "unet"):
        module, x = exact_case(FULL[name])
        assert np.array_equal(from_torch(module, x)(x.numpy()), module(x).detach().numpy())
