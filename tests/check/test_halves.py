"""float16 and bfloat16 models: each layer in its own arithmetic, and in no other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from halves import BFLOAT16, DATA, HALF, HALF_RESULT, HALF_SUMS, SINGLE, model, numpy_runtime
from specgrad import ParameterError
from specgrad.check import audit
from specgrad.interop import from_onnx

pytestmark = pytest.mark.usefixtures("kept_workers")
BAD = ("differs", "other arithmetic")


def test_inputs_are_converted_and_said_so() -> None:
    found = audit(model(HALF, HALF), numpy_runtime(), DATA)
    assert found.verdict == "rounding"
    assert found.notes == ("input x was converted from float32 to float16",)
    assert {layer.dtype for layer in found.layers} == {"float16"}
    assert {row["dtype"] for row in found.to_json()["layers"]} == {"float16"}
    assert audit(model(HALF), numpy_runtime(), DATA.astype(np.float16)).notes == ()
    with pytest.raises(ParameterError, match="inputs must be float32; got int64"):
        audit(model(HALF), numpy_runtime(), np.ones(DATA.shape, np.int64))


def test_each_layer_has_its_own_format() -> None:
    graph = from_onnx(model(SINGLE, HALF, SINGLE))
    assert {n: graph.formats.get(n, "float32") for n in ("conv0", "cast1", "conv1", "relu1", "conv2")} == {
        "conv0": "float32", "cast1": "float16", "conv1": "float16", "relu1": "float16", "conv2": "float32",
    }  # fmt: skip
    assert graph.node("cast1").op.name == "cast"
    found = audit(model(SINGLE, HALF, SINGLE), numpy_runtime(), DATA)
    assert found.verdict == "rounding"
    types = {layer.name: layer.dtype for layer in found.layers if layer.name != "cast2"}  # wider: the same numbers
    assert list(types.values()) == ["float32"] * 2 + ["float16"] * 3 + ["float32"] * 2


def test_a_float32_layer_has_not_the_bound_of_a_half_layer() -> None:
    found = audit(model(SINGLE, HALF, SINGLE), numpy_runtime({"conv2": HALF_RESULT}), DATA)
    assert (found.verdict, found.first_divergent.name) == ("differs", "conv2")
    assert audit(model(SINGLE), numpy_runtime({"conv0": HALF_RESULT}), DATA).verdict in BAD


def test_a_half_layer_has_not_the_bound_of_another_half_format() -> None:
    found = audit(model(HALF, HALF), numpy_runtime({"conv1": BFLOAT16}), DATA)
    assert found.first_divergent.name == "conv1"
    assert found.verdict in BAD


def test_sums_in_half_are_named() -> None:
    found = audit(model(HALF, HALF), numpy_runtime({"conv1": HALF_SUMS}), DATA)
    assert (found.first_divergent.name, str(found.first_divergent.verdict)) == (
        "conv1",
        "other arithmetic: looks like float16 sums",
    )


def test_a_lost_bias_is_not_explained_away() -> None:
    found = audit(model(HALF, HALF), numpy_runtime(lost="bias"), DATA)
    assert (found.verdict, found.first_divergent.name) == ("differs", "conv0")


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino-f32"])
@pytest.mark.parametrize("types", [(HALF, HALF), (SINGLE, HALF, SINGLE)])
def test_runtimes(runtime: str, types: tuple[int, ...]) -> None:
    found = audit(model(*types), runtime, DATA)
    assert found.verdict == "rounding", str(found)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm, self.pool = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.MaxPool2d(2)
        self.conv2, self.gelu, self.fc = nn.Conv2d(8, 8, 3, padding=1), nn.GELU(), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.norm(self.conv1(x))))
        return self.fc(self.gelu(self.conv2(x) + x).mean((2, 3)))


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_modules_on_torch(half: str) -> None:
    torch.manual_seed(0)
    module = Net().eval().to(getattr(torch, half))
    found = audit(module, "torch", DATA)
    assert found.verdict == "rounding", str(found)
    assert found.notes == (f"input x was converted from float32 to {half}",)
    assert {layer.dtype for layer in found.layers} == {half}


def test_a_float16_module_that_computes_in_bfloat16_is_seen() -> None:
    class Coarse(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if torch.compiler.is_exporting() else _in_bfloat16(super().forward, x)

    def _in_bfloat16(forward, x: torch.Tensor) -> torch.Tensor:
        return forward(x).bfloat16().half()

    module = Net().eval()
    module.conv2 = Coarse(8, 8, 3, padding=1)
    found = audit(module.half(), "torch", DATA)
    assert (found.first_divergent.name, found.first_divergent.verdict.kind) == ("conv2", "other arithmetic")
    assert "bfloat16" in str(found.first_divergent.verdict)


def test_a_half_module_through_onnx() -> None:
    torch.manual_seed(0)
    found = audit(Net().eval().half(), "onnxruntime", DATA)
    assert found.verdict == "rounding", str(found)
    assert found.export is None
