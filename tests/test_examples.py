"""The networks of examples/: their tables, their sizes, and their values and gradients against plain PyTorch."""

from __future__ import annotations

import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import cnn3d
import common
import exact_lenet
import lenet
import lipschitz
import mobilenetv2
import resnet18
import unet

torch: Any
try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

# --- the same networks in PyTorch: p is the state_dict, by dotted path ----------------------------------------------


def bn(p: Any, name: str, x: Any) -> Any:
    return F.batch_norm(x, *(p[f"{name}.{key}"] for key in ("running_mean", "running_var", "weight", "bias")))


def torch_lenet(p: Any, x: Any) -> Any:
    x = F.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=2 if x.shape[-1] == 28 else 0)
    x = F.avg_pool2d(torch.tanh(x), 2)
    x = F.avg_pool2d(torch.tanh(F.conv2d(x, p["conv2.weight"], p["conv2.bias"])), 2).flatten(1)
    x = torch.tanh(F.linear(x, p["fc1.weight"], p["fc1.bias"]))
    x = torch.tanh(F.linear(x, p["fc2.weight"], p["fc2.bias"]))
    return F.linear(x, p["fc3.weight"], p["fc3.bias"])


def torch_resnet18(p: Any, x: Any) -> Any:
    x = F.relu(bn(p, "bn1", F.conv2d(x, p["conv1.weight"], stride=2, padding=3)))
    x = F.max_pool2d(x, 3, stride=2, padding=1)
    for stage in (1, 2, 3, 4):
        for i in (0, 1):
            name, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
            y = F.conv2d(x, p[f"{name}.conv1.weight"], stride=stride, padding=1)
            y = F.conv2d(F.relu(bn(p, f"{name}.bn1", y)), p[f"{name}.conv2.weight"], padding=1)
            y = bn(p, f"{name}.bn2", y)
            if stride == 2:
                x = bn(p, f"{name}.downsample.1", F.conv2d(x, p[f"{name}.downsample.0.weight"], stride=2))
            x = F.relu(x + y)
    x = F.adaptive_avg_pool2d(x, 1).flatten(1)
    return F.linear(x, p["fc.weight"], p["fc.bias"])


def torch_unet(p: Any, x: Any) -> Any:
    def double(name: str, x: Any) -> Any:
        for i in (0, 1):
            x = F.relu(F.conv2d(x, p[f"{name}.{i}.weight"], p[f"{name}.{i}.bias"], padding=1))
        return x

    skips = []
    for i in range(4):
        skips.append(double(f"down.{i}", x))
        x = F.max_pool2d(skips[-1], 2)
    x = double("bottom", x)
    for i in range(4):
        x = F.conv_transpose2d(x, p[f"up.{i}.up.weight"], p[f"up.{i}.up.bias"], stride=2)
        x = double(f"up.{i}.merge", torch.cat([skips.pop(), x], dim=1))
    return F.conv2d(x, p["head.weight"], p["head.bias"])


def torch_mobilenetv2(p: Any, x: Any) -> Any:
    def conv(name: str, x: Any, stride: int = 1, groups: int = 1) -> Any:
        w = p[f"{name}.conv.weight"]
        x = F.conv2d(x, w, stride=stride, padding=1 if w.shape[-1] == 3 else 0, groups=groups)
        return bn(p, f"{name}.bn", x)

    x = F.relu6(conv("stem", x, stride=2))
    for i in range(17):
        y = F.relu6(conv(f"blocks.{i}.expand", x)) if i > 0 else x
        y = F.relu6(conv(f"blocks.{i}.depthwise", y, stride=2 if i in (1, 3, 6, 13) else 1, groups=y.shape[1]))
        y = conv(f"blocks.{i}.project", y)
        x = x + y if i in (2, 4, 5, 7, 8, 9, 11, 12, 14, 15) else y
    x = F.relu6(conv("head", x)).mean((2, 3))
    return F.linear(x, p["classifier.weight"], p["classifier.bias"])


def torch_cnn3d(p: Any, x: Any) -> Any:
    def conv(name: str, x: Any) -> Any:
        return F.relu(F.conv3d(x, p[f"stages.{name}.weight"], p[f"stages.{name}.bias"], padding=1))

    x = F.max_pool3d(conv("0.0", x), (1, 2, 2))
    x = F.max_pool3d(conv("1.0", x), 2)
    x = F.max_pool3d(conv("2.1", conv("2.0", x)), 2)
    x = F.max_pool3d(conv("3.1", conv("3.0", x)), 2)
    x = conv("4.1", conv("4.0", x)).mean((2, 3, 4))
    return F.linear(x, p["fc.weight"], p["fc.bias"])


# --- values and gradients -------------------------------------------------------------------------------------------

SMALL = {
    "lenet-32": (lenet, lenet.shapes(), (2, 1, 32, 32), torch_lenet),
    "lenet-28": (lenet, lenet.shapes(), (2, 1, 28, 28), torch_lenet),
    "resnet18": (resnet18, resnet18.shapes(classes=10), (2, 3, 32, 32), torch_resnet18),
    "unet": (unet, unet.shapes(channels=3, classes=4, width=4), (2, 3, 32, 48), torch_unet),
    "mobilenetv2": (mobilenetv2, mobilenetv2.shapes(classes=10, width=8), (2, 3, 64, 64), torch_mobilenetv2),
    "cnn3d": (cnn3d, cnn3d.shapes(classes=5, width=4), (2, 3, 8, 32, 32), torch_cnn3d),
}


def noisy(shapes: Any, rng: np.random.Generator) -> Any:
    """Parameters without special values: a bias of 0 or a variance of 1 would hide mistakes."""

    def shaken(_: str, a: np.ndarray) -> np.ndarray:
        return a + rng.uniform(-0.3, 0.3, a.shape) if a.ndim == 1 else a

    return common.each(shaken, common.init(shapes))


def assert_close(found: Any, wanted: Any, what: str) -> None:
    wanted = wanted.detach().numpy()
    assert found.shape == wanted.shape
    scale = np.abs(wanted).max()
    assert scale > 0, f"{what} is all zero and tests nothing"
    assert np.abs(found - wanted).max() <= 1e-9 * scale, what


@pytest.mark.skipif(torch is None, reason="needs PyTorch")
@pytest.mark.parametrize("name", SMALL)
def test_values_and_gradients_equal_pytorch(name: str) -> None:
    module, shapes, size, reference = SMALL[name]
    rng = np.random.default_rng(0)
    params, x = noisy(shapes, rng), rng.standard_normal(size)
    network = sg.trace(module.net, shapes, size)
    y = network(params, x)
    labels = rng.integers(0, y.shape[1], (y.shape[0], *y.shape[2:]))
    loss = sg.trace(common.cross_entropy_of(module.net), params, x, labels)
    value, gradient = sg.grad(loss, "params", value=True)(params, x, labels)

    p = {path: torch.tensor(a, requires_grad=common.learnable(path)) for path, a in common.flat(params).items()}
    torch_y = reference(p, torch.tensor(x))
    torch_loss = F.cross_entropy(torch_y, torch.tensor(labels))
    torch_loss.backward()

    assert_close(y, torch_y, "output")
    assert_close(value, torch_loss, "loss")
    for path, found in common.flat(gradient).items():
        if common.learnable(path):
            assert_close(found, p[path].grad, path)


@pytest.mark.parametrize("name", SMALL)
def test_a_network_is_an_ordinary_function(name: str) -> None:
    """Called on arrays it computes at once, and gives what its graph gives."""
    module, shapes, size, _ = SMALL[name]
    params, x = common.init(shapes), np.random.default_rng(0).standard_normal(size)
    np.testing.assert_array_equal(module.net(params, x), sg.trace(module.net, shapes, size)(params, x))


# --- full size, shapes only -----------------------------------------------------------------------------------------

#       network, input, labels, learnable parameters, statistics, a row of the table
FULL: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], int, int, list[str]]] = {
    "lenet": (lenet, (1, 1, 28, 28), (1,), 61_706, 0, ["conv2.conv", "conv", "k5", "1x16x10x10", "2,416"]),
    "resnet18": (
        resnet18,
        (1, 3, 224, 224),
        (1,),
        11_689_512,
        9_600,
        ["layer3.0.downsample.conv", "conv", "k1", "s2", "1x256x14x14", "32,768"],
    ),
    "unet": (
        unet,
        (1, 1, 256, 256),
        (1, 256, 256),
        31_030_658,
        0,
        ["up.0.conv_transpose", "conv_transpose", "k2", "s2", "1x512x32x32", "2,097,664"],
    ),
    "mobilenetv2": (
        mobilenetv2,
        (1, 3, 224, 224),
        (1,),
        3_504_872,
        34_112,
        ["blocks.5.depthwise.conv", "conv", "k3", "p1", "groups=192", "1x192x28x28", "1,728"],
    ),
    "cnn3d": (
        cnn3d,
        (1, 3, 16, 112, 112),
        (1,),
        27_707_749,
        0,
        ["stages.1.max_pool", "max_pool", "k2", "s2", "1x128x8x28x28"],
    ),
}


@pytest.mark.parametrize("name", FULL)
def test_table_at_full_size(name: str) -> None:
    module, size, _, learnable, statistics, row = FULL[name]
    lines = str(sg.trace(module.net, module.shapes(), size)).splitlines()
    assert common.count(module.shapes()) == learnable
    assert f"{learnable + statistics:,} parameters" in lines[-1]
    assert any(line.split()[: len(row)] == row for line in lines)


@pytest.mark.parametrize("name", FULL)
def test_gradient_at_full_size(name: str) -> None:
    """A gradient graph has one output per parameter, of its shape; it costs no arithmetic and little time."""
    module, size, labels, *_ = FULL[name]
    start = time.perf_counter()
    loss = sg.trace(common.cross_entropy_of(module.net), module.shapes(), size, sg.Index(labels))
    gradient = sg.grad(loss, "params")
    seconds = time.perf_counter() - start
    shapes = [gradient.nodes[p].shape for p in gradient.output_positions]
    assert shapes == list(common.flat(module.shapes()).values())
    assert seconds < 4  # far more than it takes; machines are shared


def test_resnet18_has_the_size_everyone_counts() -> None:
    lines = str(sg.trace(resnet18.net, resnet18.shapes(), (1, 3, 224, 224))).splitlines()
    assert lines[-1].endswith("1,814,073,344 multiply-adds")
    assert lines[-4].split()[0] == "layer4.1.relu_2"
    assert lines[-4].split()[-1] == "435x435"


# --- scripts --------------------------------------------------------------------------------------------------------


def test_example_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", lenet.__file__]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    assert "multiply-adds" in run.stdout
    assert "gradient" in run.stdout
    assert run.stderr == ""


@pytest.mark.parametrize("module", [lenet, resnet18, unet, mobilenetv2, cnn3d, exact_lenet, lipschitz])
def test_example_runs_as_a_script(module: Any, tmp_path: Path, monkeypatch, capsys) -> None:
    """In this process: a warning is an error here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [module.__file__])
    runpy.run_path(module.__file__, run_name="__main__")
    out, err = capsys.readouterr()
    assert "multiply-adds" in out
    assert "gradient" in out
    assert err == ""


def test_exact_lenet_measures_the_rounding_of_floats() -> None:
    rng = np.random.default_rng(2)
    x, target = rng.random((1, 1, 14, 14)).astype(np.float32), np.eye(1, 10, dtype=np.float32)
    params = common.each(lambda _, a: a.astype(np.float32), common.init(exact_lenet.shapes()))
    gradient = sg.grad(sg.trace(exact_lenet.loss, params, x, target), "params")

    def run(convert: Callable[[Any], Any]) -> Any:
        return gradient(*common.each(lambda _, a: convert(a), (params, x, target)))

    exact = run(sg.exact)
    single, double = (exact_lenet.error(run(kind), exact) for kind in (np.float32, np.float64))
    assert 0 < double < 1e-13 < single < 1e-4
    assert exact_lenet.error(exact, exact) == 0


@pytest.mark.skipif(torch is None, reason="needs PyTorch")
def test_lipschitz_constant_is_not_exceeded() -> None:
    """By gradients, by differences of outputs, and not far above the steepest gradient on a small box."""
    params, x = common.init(lipschitz.shapes(), 3), np.random.default_rng(3).random((1, *lipschitz.SIZE))
    graph, box = sg.trace(lipschitz.net, params, x), lipschitz.Box.around(x, 0.02)
    certified = lipschitz.lipschitz(graph, params, box).item()
    assert lipschitz.steepest(params, x, 0.02) <= certified <= 2 * lipschitz.steepest(params, x, 0.02)
    for a, b in np.random.default_rng(4).uniform(box.low, box.high, (20, 2, *x.shape)):
        assert abs(graph(params, a) - graph(params, b)).item() <= certified * np.linalg.norm(a - b)


def test_camera_is_proven_from_its_bytes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    program = Path(__file__).parents[1] / "examples" / "camera.py"
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("argmax: 20 of 20 proven"), done.stderr
