"""Whole models: rounding layer by layer on real runtimes; a planted fault is named, not its neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import models  # noqa: E402
from slices import diagonals  # noqa: E402
from specgrad.check import audit, runtime  # noqa: E402
from specgrad.check.models.run_torch import exported  # noqa: E402
from specgrad.errors import ParameterError  # noqa: E402

pytestmark = pytest.mark.usefixtures("kept_workers")
PLANTED = """import onnx
import onnxruntime

def run(model, **inputs):
    file = onnx.load_from_string(model.tobytes())
    node = next(n for n in file.graph.node if n.name == {name!r})
    {change}
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)
"""
SHIFT_PADDING = """pads = next(a for a in node.attribute if a.name == "pads")
    pads.ints[:] = [pads.ints[2], pads.ints[1], pads.ints[0], pads.ints[3]]
    pads.ints[0], pads.ints[2] = pads.ints[0] + 1, pads.ints[2] - 1"""
SOME_WEIGHTS = """weight = next(t for t in file.graph.initializer if t.name == node.input[1])
    array = onnx.numpy_helper.to_array(weight).copy()
    array.flat[::7] += 0.001
    weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))"""
RELU_TO_ABS = 'node.op_type = "Abs"'


@pytest.fixture(scope="module")
def unet() -> tuple[bytes, np.ndarray]:
    module, x = models.SMALL["unet"]()
    with exported(module, [x.numpy()]) as path:
        return path.read_bytes(), x.numpy()


def nodes(file: bytes, kind: str) -> list[str]:
    import onnx

    return [n.name for n in onnx.load_from_string(file).graph.node if n.op_type == kind]


@pytest.mark.parametrize(("model", "name"), diagonals(["lenet", "cnn3d"], ["torch", "onnxruntime", "openvino-f32"], 2))
def test_every_layer_is_rounding(model: str, name: str) -> None:
    pytest.importorskip(name.partition("-")[0])
    module, x = models.SMALL[model]()
    found = audit(module, name, x.numpy())
    assert found.verdict == "rounding", found
    assert found.first_divergent is None
    assert len(found.layers) >= 5
    assert {layer.verdict.kind for layer in found.layers} <= {"exact", "rounding"}
    assert found.whole.kind == "rounding"
    assert 0 < found.whole.ratio < 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "onnxruntime", "openvino-f32"])
@pytest.mark.parametrize("model", models.FULL)
def test_every_layer_is_rounding_at_full_size(model: str, name: str) -> None:
    module, x = models.FULL[model]()
    assert audit(module, name, x.numpy()).verdict == "rounding"


@pytest.mark.parametrize(
    ("kind", "change"),
    [("Conv", SHIFT_PADDING), ("Conv", SOME_WEIGHTS), ("ConvTranspose", SOME_WEIGHTS), ("Relu", RELU_TO_ABS)],
)
@pytest.mark.parametrize("which", [0, -1])
def test_a_planted_fault_is_named_and_not_its_neighbours(unet, kind: str, change: str, which: int) -> None:
    file, x = unet
    padded = {"Conv": slice(-1)}.get(kind, slice(None))  # the last convolution of a U-Net is 1 x 1, without padding
    name = nodes(file, kind)[padded][which]
    faulty = replace(runtime("onnxruntime"), model=PLANTED.format(name=name, change=change))
    found = audit(file, faulty, x)
    assert found.verdict == "differs"
    assert found.first_divergent is not None
    assert found.first_divergent.name == name
    assert [layer.name for layer in found.layers if layer.verdict.kind == "differs"] == [name]


def test_the_divisor_that_torch_onnx_drops_is_caught() -> None:
    module, x = models.overridden_divisor()
    assert audit(module, "torch", x.numpy()).verdict == "rounding"
    found = audit(module, "onnxruntime", x.numpy())
    assert found.verdict == "differs"
    assert found.export is not None
    assert found.export.name == "sums"
    assert all(layer.verdict.kind != "differs" for layer in found.layers)  # the runtime did what the file says


def test_a_fault_of_the_export_behind_many_layers_is_caught() -> None:
    """Radii start afresh at every layer, so depth hides nothing."""

    class Deep(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            layers = [m for _ in range(12) for m in (torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.ReLU())]
            self.body = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), *layers)
            self.pool = torch.nn.AvgPool2d(2, divisor_override=3)
            self.head = torch.nn.Conv2d(4, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.pool(self.body(x)))

    found = audit(Deep().eval(), "onnxruntime", np.random.default_rng(0).normal(size=(1, 1, 10, 10)).astype(np.float32))
    assert found.export is not None
    assert found.export.name == "pool"


def test_bfloat16_by_default_is_seen_where_the_machine_has_it(unet) -> None:
    """OpenVINO chooses bfloat16 on processors with AMX; elsewhere both hints are float32."""
    pytest.importorskip("openvino")
    file, x = unet
    default, hinted = audit(file, "openvino", x), audit(file, "openvino-f32", x)
    assert hinted.verdict == "rounding"
    with open("/proc/cpuinfo") as f:
        has_amx = "amx_bf16" in f.read()
    assert default.verdict == ("other arithmetic" if has_amx else "rounding")
    if has_amx:
        looks = [layer.verdict.arithmetic for layer in default.layers if layer.verdict.kind == "other arithmetic"]
        assert looks
        assert set(looks) <= {"bfloat16", "bfloat16-operands"}


def test_json_and_text(unet) -> None:
    file, x = unet
    found = audit(file, "onnxruntime", x)
    data = found.to_json()
    assert data["verdict"] == "rounding"
    assert data["first_divergent"] is None
    assert len(data["layers"]) == len(found.layers)
    assert str(found).startswith("rounding: ")


def test_what_cannot_be_audited_is_refused(unet) -> None:
    file, x = unet
    with pytest.raises(ParameterError, match="inputs must be float32; got float64"):
        audit(file, "onnxruntime", x.astype(np.float64))
    with pytest.raises(ParameterError, match=r"the model takes 1 inputs \(x\); got 2"):
        audit(file, "onnxruntime", [x, x])
    with pytest.raises(ParameterError, match="runtime jax runs no whole models"):
        audit(file, "jax", x)
