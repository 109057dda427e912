"""to_torch: the module computes and trains as the one that was imported."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import specgrad as sg
from models import SMALL, LeNet, imported
from specgrad.interop import from_torch, to_torch


class Kinks(nn.Module):
    """Layers whose derivatives have cases, without a rounding operation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1)
        self.clip = nn.Hardtanh(-8, 8)
        self.scale = nn.Parameter(torch.zeros(2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu6(self.conv(x)), 3, 1, 1)
        x = F.avg_pool2d(F.leaky_relu(self.up(x), 0.25), 2, divisor_override=4)
        return self.clip(F.adaptive_max_pool2d(x, (2, 3)) * self.scale + x[..., :2, :3])


def with_integers(module: nn.Module, seed: int = 0) -> nn.Module:
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randint(-1, 2, p.shape, generator=torch.Generator().manual_seed(seed)))
    return module.double()


def sign_step(module: nn.Module, x: Tensor, target: Tensor) -> None:
    """One step against the sign of the gradient: parameters stay integers, so nothing ever rounds."""
    module.zero_grad()
    ((module(x) - target) ** 2).sum().backward()
    with torch.no_grad():
        for p in module.parameters():
            p -= p.grad.sign()


@pytest.mark.parametrize(("build", "shape"), [(lambda: LeNet(16), (2, 1, 16, 16)), (Kinks, (2, 2, 6, 6))])
def test_training_is_the_same_bit_for_bit_on_integers(build, shape: tuple[int, ...]) -> None:
    module = with_integers(build())
    x = torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(1)).double()
    ours = to_torch(from_torch(module, x))
    moved = set()
    for step in range(4):
        target = torch.randint(-3, 4, module(x).shape, generator=torch.Generator().manual_seed(step))
        sign_step(module, x, target)
        sign_step(ours, x, target)
        for name, p in ours.named_parameters():
            other = module.get_parameter(name)
            assert p.grad.abs().max() < 2**50, "exactness would be in doubt"
            assert torch.equal(p.grad, other.grad), name
            assert torch.equal(p, other), name
            moved |= {name} if p.grad.any() else set()
    assert moved == {name for name, _ in module.named_parameters()}


@pytest.mark.parametrize("name", SMALL)
def test_training_agrees_in_float64(name: str) -> None:
    """Three steps with momentum. 1e-9 of the largest change lies far above rounding, far below a wrong gradient."""
    graph, module, x = imported(name, torch.float64)
    ours = to_torch(graph).double()
    first = {k: p.detach().clone() for k, p in module.named_parameters()}
    assert [k for k, _ in ours.named_parameters()] == list(first)
    for net in (module, ours):
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    for key, p in ours.named_parameters():
        change = (module.get_parameter(key) - first[key]).abs().max()
        assert change > 0, key
        assert (p - module.get_parameter(key)).abs().max() <= 1e-9 * change, key


def test_state_dict_goes_both_ways() -> None:
    graph, module, x = imported("resnet18")
    ours = to_torch(graph)
    with torch.no_grad():
        ours.layer1.get_submodule("0").conv1.weight.mul_(2)
    assert module.load_state_dict(ours.state_dict()).missing_keys == []
    assert torch.equal(module.layer1[0].conv1.weight, ours.state_dict()["layer1.0.conv1.weight"])
    torch.testing.assert_close(ours(x), module(x))


def test_frozen_tensors_are_buffers() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    module[0].weight.requires_grad_(False)
    graph = from_torch(module, torch.zeros(1, 2))
    ours = to_torch(graph)
    assert {k for k, _ in ours.named_buffers()} == {"0.weight", "1.running_mean", "1.running_var"}
    assert {k for k, _ in ours.named_parameters()} == {"0.bias", "1.weight", "1.bias"}


def test_trainable_can_be_chosen() -> None:
    graph = from_torch(nn.Linear(2, 2), torch.zeros(2))
    assert [k for k, _ in to_torch(graph, trainable=["bias"]).named_parameters()] == ["bias"]
    assert [k for k, _ in to_torch(graph, trainable=lambda name: name == "weight").named_parameters()] == ["weight"]
    with pytest.raises(sg.ParameterError, match=r"to_torch \[P5\]: trainable 'wieght' is no constant of the graph"):
        to_torch(graph, trainable=["wieght"])


def test_the_graph_keeps_its_weights() -> None:
    graph = from_torch(nn.Linear(2, 1, bias=False), torch.zeros(2))
    before = graph(np.ones(2))
    with torch.no_grad():
        to_torch(graph).weight.zero_()
    assert graph(np.ones(2)) == before


def test_a_traced_graph_with_captured_arrays() -> None:
    w = np.array([[1.0, 2.0]])
    ours = to_torch(sg.trace(lambda x: {"y": sg.linear(w, None, x), "x": x}, (2,)), trainable=["constant"])
    found = ours(torch.tensor([3.0, 5.0]).double())
    assert found["y"].item() == 13
    assert found["x"].tolist() == [3, 5]
    found["y"].sum().backward()
    assert ours.constant.grad.tolist() == [[3, 5]]


def test_wrong_shapes_are_refused() -> None:
    ours = to_torch(from_torch(nn.ReLU(), torch.zeros(2)))
    with pytest.raises(sg.ShapeError, match=r"graph: input input must have shape \(2,\); got \(3,\)"):
        ours(torch.zeros(3))


def test_structured_arguments_are_refused() -> None:
    graph = sg.trace(lambda p, x: p["w"] * x, {"w": (2,)}, (2,))
    with pytest.raises(sg.ParameterError, match=r"to_torch \[P5\]: argument p is a structure; compile\(graph, "):
        to_torch(graph)


@pytest.mark.parametrize("name", ["graph", "forward.weight", "a..b", "type"])
def test_names_that_pytorch_forbids_are_refused(name: str) -> None:
    t = sg.GraphBuilder()
    x = t.input("x", (1,))
    y = x + t.constant(np.ones(1), name)
    with pytest.raises(sg.ParameterError, match=rf"to_torch: '{name}' cannot name a tensor of a module: "):
        to_torch(t.build(y))


def test_modules_copy_and_reload() -> None:
    graph, _, x = imported("lenet")
    ours, other = to_torch(graph), copy.deepcopy(to_torch(graph))
    with torch.no_grad():
        other.fc3.bias.add_(1)
    torch.testing.assert_close(other(x), ours(x) + 1)
    ours.load_state_dict(other.state_dict())
    assert torch.equal(ours(x), other(x))


def test_modules_go_through_torch_compile_as_one_graph() -> None:
    graph, _, x = imported("cnn3d")
    module = to_torch(graph)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), module(x))


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "cnn3d"])
def test_files_keep_names_flags_and_weights(name: str, tmp_path: Path) -> None:
    graph, module, x = imported(name)
    sg.save(graph, tmp_path / "net.json")
    again = sg.load(tmp_path / "net.json")
    assert again.nodes == graph.nodes
    assert again.trainable == graph.trainable == {key for key, _ in module.named_parameters()}
    assert all(np.array_equal(again.constants[p], a) for p, a in graph.constants.items())
    assert all(again.constants[p].dtype == a.dtype for p, a in graph.constants.items())
    assert torch.equal(to_torch(again)(x), to_torch(graph)(x))


def test_the_weights_file_is_a_state_dict(tmp_path: Path) -> None:
    """What save writes beside the graph loads into the original class, without specgrad."""
    graph, module, x = imported("resnet18")
    sg.save(graph, tmp_path / "net.json")
    expected = module(x)
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
    module.load_state_dict(load_file(tmp_path / "net.safetensors"))
    assert torch.equal(module(x), expected)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["weigth"], "load: trainable 'weigth' is no constant of the graph"),
        (3, "load: net.json is not a specgrad graph"),
    ],
)
def test_wrong_flags_in_a_file_are_refused(flags: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    sg.save(from_torch(nn.Linear(2, 2), torch.zeros(2)), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"trainable": flags}))
    with pytest.raises(sg.SpecgradError, match=message):
        sg.load(path)
