"""from_torch: values, names, and everything that it must refuse."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import specgrad as sg
from models import SMALL, imported, overridden_divisor
from specgrad.interop import from_torch
from specgrad.interop.torch.deployed import as_deployed


class Wrap(nn.Module):
    """A function as a module."""

    def __init__(self, f) -> None:
        super().__init__()
        self.f = f

    def forward(self, x, *rest):
        return self.f(x, *rest)


@pytest.mark.parametrize("name", SMALL)
def test_names_are_the_modules_own(name: str) -> None:
    graph, module, _ = imported(name)
    state = {k for k in module.state_dict() if not k.endswith("num_batches_tracked")}
    assert {graph.nodes[p].name for p in graph.constants} == state
    assert graph.trainable == {k for k, _ in module.named_parameters()}
    layers = {n.group for n in graph.nodes if n.op.name not in ("input", "constant")}
    weighted = {k for k, m in module.named_modules() if m._parameters}
    assert weighted <= layers
    assert len({n.name for n in graph.nodes}) == len(graph.nodes)


def test_layers_of_a_residual_block() -> None:
    graph, _, _ = imported("resnet18")
    block = [n.group for n in graph.nodes if n.group.startswith("layer2.0.") and n.op.name != "constant"]
    names = ["downsample.0", "downsample.1", "conv1", "bn1", "relu", "conv2", "bn2", "add", "relu_2"]
    assert list(dict.fromkeys(block)) == [f"layer2.0.{name}" for name in names]
    assert graph.node("layer2.0.conv1").op.name == "conv"
    file, _ = graph.node("layer2.0.add").where
    assert file.endswith("models.py")
    assert "layer2.0.bn1           batch_norm " in str(graph)


def test_one_layer_per_call_of_a_childless_module() -> None:
    class Swish(nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    graph = from_torch(nn.Sequential(Swish(), nn.ELU()), torch.zeros(3))
    groups = [n.group for n in graph.nodes if n.op.name != "input"]
    assert list(dict.fromkeys(groups)) == ["0", "1"]
    assert groups.count("0") == 2


def test_the_divisor_is_honoured() -> None:
    module, x = overridden_divisor()
    graph = from_torch(module.double(), x.double())
    assert graph.node("sums").params["divisor"] == 1
    np.testing.assert_allclose(graph(x.double().numpy()), module(x.double()).detach().numpy(), rtol=0, atol=1e-12)


def test_frozen_parameters_are_not_trainable() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[0].weight.requires_grad_(False)
    assert from_torch(module, torch.zeros(1, 2)).trainable == {"0.bias", "1.weight", "1.bias"}


def test_the_graph_owns_its_weights() -> None:
    module = nn.Linear(2, 1, bias=False)
    graph = from_torch(module, torch.zeros(2))
    before = graph(np.ones(2))
    with torch.no_grad():
        module.weight.zero_()
    assert graph(np.ones(2)) == before != 0


def test_a_shared_module_keeps_one_weight_and_two_layers() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            return self.fc(self.fc(x))

    module = Twice().double()
    graph = from_torch(module, torch.zeros(1, 2).double())
    assert {"fc", "fc_2"} <= {n.group for n in graph.nodes}
    assert {graph.nodes[p].name for p in graph.constants} == {"fc.weight", "fc.bias"}
    x = np.array([[1.0, -2.0]])
    np.testing.assert_allclose(graph(x), module(torch.tensor(x)).detach().numpy(), rtol=1e-14)


def test_a_shared_parameter_has_its_first_name() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    module[1].weight = module[0].weight
    graph = from_torch(module, torch.zeros(1, 2).double())
    assert graph.trainable == {"0.weight"} == {graph.nodes[p].name for p in graph.constants}
    x = np.array([[1.0, -2.0]])
    np.testing.assert_allclose(graph(x), module(torch.tensor(x)).detach().numpy(), rtol=1e-14)


def test_tensors_made_inside_the_module_are_constants() -> None:
    module = Wrap(lambda x: (torch.cat([x, torch.zeros(1)]) * torch.tensor([2.0, 3.0]), torch.ones(1)))
    graph = from_torch(module, torch.zeros(1))
    assert graph.trainable == set()
    first, second = graph(np.array([5.0], dtype=np.float32))
    assert first.tolist() == [10, 0]
    assert second.tolist() == [1]


def test_structures_of_results_and_several_inputs() -> None:
    module = Wrap(lambda x, y: ({"sum": x + y, "parts": [x, y * 2]}, x - y))
    graph = from_torch(module, torch.zeros(2), torch.zeros(2))
    first, second = graph(np.array([1.0, 2.0]), np.array([3.0, 5.0]))
    assert first["sum"].tolist() == [4, 7]
    assert [p.tolist() for p in first["parts"]] == [[1, 2], [6, 10]]
    assert second.tolist() == [-2, -3]


def test_integer_inputs_are_indices() -> None:
    module = Wrap(lambda x, i: F.max_unpool2d(x, i, 2))
    graph = from_torch(module, torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.int64))
    assert graph(np.full((1, 1, 1, 1), 7.0), np.full((1, 1, 1, 1), 2)).tolist() == [[[[0, 0], [7, 0]]]]


def test_exact_weights_give_exact_results() -> None:
    graph, module, x = imported("lenet")
    graph = dataclasses.replace(graph, constants={p: sg.exact(a) for p, a in graph.constants.items()})
    found = graph(sg.exact(x.numpy()))
    expected = module.double()(x.double()).detach().numpy()
    np.testing.assert_allclose(found.astype(float), expected, rtol=1e-12)


def refused(f, example: torch.Tensor, message: str | None):
    return pytest.param(f if isinstance(f, nn.Module) else Wrap(f), example, message, id=message or "by PyTorch")


x = torch.zeros(1, 2, 2)


@pytest.mark.parametrize(
    ("module", "example", "message"),
    [
        refused(
            nn.BatchNorm1d(2).train(), x, "[P5]: the call changes running_mean (buffer mutation); call module.eval()"
        ),
        refused(nn.Dropout(0.5).train(), x, "dropout [P5]: train=True draws random numbers; call module.eval() first"),
        refused(lambda x: x.add_(1) * 2, x, "[P5]: the call changes x (user input mutation); a graph changes nothing"),
        refused(lambda x: torch.special.i0(x), x, "from_torch: aten.special_i0.default is not known"),
        refused(lambda x: torch.div(x, 2, rounding_mode="floor"), x, "from_torch: aten.div.Tensor_mode is not known"),
        refused(
            lambda x: x.mean(0, dtype=torch.double), x, "mean.dim [P5]: dtype=torch.float64 is not supported; only"
        ),
        refused(lambda x: x.double() * 2, x, "has type torch.float64 where others have torch.float32; convert the"),
        refused(lambda x: x + x, x.bfloat16(), "from_torch [P5]: x has type torch.bfloat16; convert the module to"),
        refused(lambda x: x + x, x.cfloat(), "from_torch [P5]: x has type torch.complex64; convert the module to"),
        refused(
            lambda x: (x > 0) + (x > 1), x, "the result of aten.add.Tensor has type torch.bool; convert the module"
        ),
        refused(lambda x: x.int() * 1.0, x, "the result of aten._to_copy.default has type torch.int32; convert the"),
        refused(lambda x: F.pad(x, (-1, 1)), x, "pad [P5]: pad must be pairs of sizes >= 0; got (-1, 1)"),
        refused(nn.Linear(2, 2).double(), x, "[P5]: input has type torch.float32 where others have torch.float64;"),
        refused(lambda x: (x * 2, None), x, "[P5]: the module must return tensors; got None among them"),
        refused(nn.Linear(3, 2), x, None),
    ],
)
def test_refused_by_name(module: nn.Module, example: torch.Tensor, message: str | None) -> None:
    """Where PyTorch itself refuses (message None), its own error comes through."""
    with pytest.raises(sg.SpecgradError if message else RuntimeError) as caught:
        from_torch(module, example)
    assert (message or "") in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_result_may_ask_for_the_type_that_it_has(dtype: torch.dtype) -> None:
    """The error of a sum is that of its terms, of whatever size they leave it: bounded by their sum without signs."""
    x = torch.randn(3, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    graph = from_torch(Wrap(lambda x: F.softmax(x, -1, dtype=dtype) + x.sum(-1, keepdim=True, dtype=dtype)), x)
    expected = torch.softmax(x, -1) + x.sum(-1, keepdim=True)
    terms = 1 + x.abs().sum(-1, keepdim=True)
    assert (abs(graph(x.numpy()) - expected.numpy()) <= 8 * torch.finfo(dtype).eps * terms.numpy()).all()


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float32])
def test_type_as_rounds_where_to_does(half: torch.dtype) -> None:
    class Norm(torch.nn.Module):
        def __init__(self, named: bool) -> None:
            super().__init__()
            self.named = named

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.float() * 3
            return (y.type_as(x) if self.named else y.to(x.dtype)) + 1

    a, b = (as_deployed(Norm(named), torch.ones(2, 3, dtype=half)) for named in (True, False))
    assert str(a) == str(b)
    assert [*a.formats.values()] == [*b.formats.values()]


def test_the_error_names_the_layer_and_the_line() -> None:
    module = nn.Sequential(nn.ReLU(), nn.LogSigmoid())
    with pytest.raises(sg.UnsupportedError, match=r"aten\.log_sigmoid\.default is not known") as caught:
        from_torch(module, torch.zeros(2))
    assert "in layer 1, " in "".join(caught.value.__notes__)


def test_all_unknown_operators_are_named_at_once() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.LogSigmoid(), torch.nn.Softsign()

        def forward(self, x):
            return torch.special.erfcx(self.first(x)) + torch.special.i0(self.second(x))

    with pytest.raises(sg.UnsupportedError) as error:
        from_torch(Net().eval(), torch.zeros(2, 3))
    for part in ("aten.log_sigmoid", "(in first)", "aten.special_erfcx", "aten.special_i0", "(in the module itself)"):
        assert part in str(error.value)
