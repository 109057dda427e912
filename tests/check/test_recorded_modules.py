"""Recordings of PyTorch modules: the verdicts of a live audit, and the layer of a fault in another module's code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from specgrad import ParameterError
from specgrad.check import audit, audit_recorded, open_recording, record
from specgrad.check.models.run_torch import observe_module
from specgrad.interop.model import open_model
from specgrad.interop.torch.formats import numbers_of

pytest.importorskip("safetensors")
X = np.random.default_rng(0).normal(size=(5, 24)).astype(np.float32)


def block(kind: torch.dtype = torch.float32) -> nn.Sequential:
    """Five layers, of which one overwrites the value of the layer before it."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(24, 32), nn.ReLU(inplace=True), nn.LayerNorm(32), nn.Linear(32, 8), nn.GELU()
    ).eval().to(kind)  # fmt: skip


class WithoutBias(nn.Linear):
    """A linear layer that has a bias and does not add it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight)


@pytest.mark.parametrize(
    ("kind", "runtime", "count"),
    [(torch.float32, "torch", 5), (torch.bfloat16, "torch", 5), (torch.float32, "torch-compile", 2)],
)
def test_a_recording_has_the_verdict_of_a_live_audit(
    kind: torch.dtype, runtime: str, count: int, tmp_path: Path
) -> None:
    module = block(kind)[:count]
    assert record(module, runtime, [[X]], tmp_path).verdict == "ok"
    recording = open_recording(tmp_path)
    assert {t["format"] for t in recording.index["tensors"]} <= {str(kind).removeprefix("torch."), "float32"}
    live, later = audit(module, runtime, X), audit_recorded(module, recording)
    assert live.verdict == later.verdict == "rounding"
    assert [layer.name for layer in live.layers] == [layer.name for layer in later.layers] == list("01234"[:count])
    assert live.coverage == later.coverage


def test_what_was_converted_is_told_at_once(tmp_path: Path) -> None:
    done = record(block(torch.bfloat16), "torch", [[X], [X[:2]]], tmp_path)
    assert done.notes == ("input input was converted from float32 to bfloat16",)


def test_several_points_are_several_runs(tmp_path: Path) -> None:
    done = record(block(), "torch", [[X], [X[:2]]], tmp_path)
    assert done.recording is not None
    assert audit_recorded(block(), done.recording).verdict == "rounding"


def test_a_layer_with_other_code_is_named(tmp_path: Path) -> None:
    faulty = block()
    faulty[3].__class__ = WithoutBias
    record(faulty, "torch", [[X]], tmp_path)
    found = audit_recorded(block(), open_recording(tmp_path))
    assert found.verdict == "differs"
    assert found.first_divergent is not None
    assert found.first_divergent.name == "3"


def test_other_weights_are_refused(tmp_path: Path) -> None:
    record(block(), "torch", [[X]], tmp_path)
    other = block()
    with torch.no_grad():
        other[3].bias[0] = torch.nextafter(other[3].bias[0], torch.tensor(9.0))
    for module in (other, block(torch.bfloat16)):
        with pytest.raises(ParameterError, match="was recorded of Sequential with SHA-256"):
            audit_recorded(module, open_recording(tmp_path))


def test_what_is_no_recording_of_a_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="judged by a recording of it"):
        audit_recorded(block(), {"x": X})
    with pytest.raises(ParameterError, match="recorded on torch or torch-compile; export it for onnxruntime"):
        record(block(), "onnxruntime", [[X]], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_layer_that_is_called_twice_is_no_single_value(tmp_path: Path) -> None:
    linear = nn.Linear(24, 24)
    twice = nn.Sequential(linear, nn.Tanh(), linear).eval()
    done = record(twice, "torch", [[X]], tmp_path)
    assert done.recording is not None
    assert set(done.recording.run(0).values("value")) == {"1", "output 0"}  # "0" was given the input, then what 1 gave
    assert audit_recorded(twice, done.recording).verdict == "rounding"


class Pair(nn.Module):
    """A layer and what depends on options: how many outputs there are, and a mask that may be read."""

    def __init__(self, kind: str = "both", *, masked: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.kind, self.masked = nn.Linear(24, 24), kind, masked

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> object:
        y = self.layer(x)
        y = y.masked_fill(mask, 0.0) if mask is not None and self.masked else y
        return {"one": y, "both": (y, 2 * y), "more": (y, 2 * y, x), "none": (y, None)}[self.kind]


@pytest.mark.parametrize(("kind", "count"), [("one", 1), ("more", 3)])
def test_another_number_of_outputs_is_refused(kind: str, count: int, tmp_path: Path) -> None:
    record(Pair(kind), "torch", [[X]], tmp_path)
    with pytest.raises(ParameterError, match=f"{count} outputs were recorded; Pair has 2 at these inputs"):
        audit_recorded(Pair(), open_recording(tmp_path))


def test_points_of_other_numbers_of_inputs_are_refused(tmp_path: Path) -> None:
    """The names of one point's inputs are those of all: a mask that was lost would not be judged."""
    points = [[X, X > 0], [X]]
    for each in (points, points[::-1]):
        with pytest.raises(ParameterError, match="points must be of one number of inputs; got 1 and 2"):
            record(Pair(masked=False), "torch", each, tmp_path)
    record(Pair(masked=False), "torch", points[:1], tmp_path)
    assert audit_recorded(Pair(), open_recording(tmp_path)).verdict == "differs"


def test_what_does_not_run_or_gives_no_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="the module must return tensors; got None among them"):
        record(Pair("none"), "torch", [[X]], tmp_path)
    with pytest.raises(ParameterError, match="Pair does not run on these inputs: RuntimeError: mat1"):
        record(Pair().double(), "torch", [[X]], tmp_path)


class Keeping(nn.Module):
    """A layer that gives one value and keeps another of the same shape for others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = 2 * x
        self.kept = torch.tanh(y)
        return y


class Kept(nn.Module):
    """A network that reads both values of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.behind = Keeping(), nn.Linear(24, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(self.layer(x)) + self.layer.kept


@pytest.mark.filterwarnings("ignore:The tensor attribute")
def test_a_layer_with_two_values_is_judged_with_the_next(tmp_path: Path) -> None:
    module = Kept().eval()
    record(module, "torch", [[X]], tmp_path)
    found = audit_recorded(module, open_recording(tmp_path))
    assert found.verdict == "rounding"
    assert [layer.name for layer in found.layers] == ["behind", "output 0"]


class Residual(nn.Module):
    """A norm behind a sum that no layer gives: the sum is a new tensor, or written over what a layer gave."""

    def __init__(self, *, scale: float = 1.0, eps: float = 1e-5, inplace: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dense, self.norm = nn.Linear(24, 24), nn.LayerNorm(24, eps=eps)
        self.scale, self.inplace = scale, inplace

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.dense(x)
        if self.inplace:
            y += x * self.scale
        else:
            y = y + x * self.scale
        z: torch.Tensor = self.norm(input=y)
        return z


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(("fault", "where"), [({}, None), ({"scale": 1 + 3e-6}, "norm input"), ({"eps": 3e-5}, "norm")])
def test_what_a_layer_is_given_is_a_value(fault: dict, where: str | None, inplace: bool, tmp_path: Path) -> None:
    record(Residual(inplace=inplace, **fault), "torch", [[X]], tmp_path)
    found = audit_recorded(Residual(inplace=inplace), open_recording(tmp_path))
    assert [layer.name for layer in found.layers] == ["dense", "norm input", "norm"]
    assert (found.first_divergent and found.first_divergent.name) == where
    kinds = {layer.name: layer.verdict.kind for layer in found.layers}
    assert {name for name, kind in kinds.items() if kind not in ("exact", "rounding")} == {where} - {None}


def test_a_compiled_layer_may_read_more_digits_than_are_stored() -> None:
    found = audit(Residual(), "torch-compile", X)
    assert [layer.name for layer in found.layers] == ["dense", "norm"]


class Second(nn.Module):
    """A layer that reads what it keeps, not what it is given."""

    kept: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.kept


class Kinds(nn.Module):
    """Layers of which the input is not shown: of two tensors, of a kept one, of one that was shown before."""

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.first, self.second, self.last = nn.Bilinear(24, 24, 24), nn.Tanh(), Second(), nn.Sigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            y = self.first(self.pair(x + 1, x))
            self.second.kept = y - 1
            return self.last(self.second(y + 1))


def test_inputs_that_are_not_shown() -> None:
    seen = observe_module(open_model(Kinds().eval()), [X])
    assert set(seen.values) == {"pair", "first", "first input", "second", "last", "last input", "output 0"}
    with torch.no_grad():
        assert set(observe_module(open_model(block()), [X]).values) == {*"01234", "0 input", "output 0"}
    assert set(observe_module(open_model(Again()), [X]).values) == {"dense", "dense input", "output 0"}


class Again(nn.Module):
    """A layer that is called twice: with what was shown, and with what was not."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.act = nn.Linear(24, 24), nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.act(self.act(self.dense(x)) + 1)
        return y


class Sum(nn.Module):
    """A layer that reads its argument, and others in a list."""

    def forward(self, x: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
        return x + others[0]


class Listed(nn.Module):
    """A network whose layer reads a tensor, which is shown, and an earlier one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Sum()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        early = 2 * x
        y: torch.Tensor = self.layer(x + 1, [early])
        return y


def test_a_layer_that_reads_several_has_no_one_input() -> None:
    assert "layer input" in observe_module(open_model(Listed()), [X]).values
    found = audit(Listed(), "torch", X)
    assert (found.verdict, [layer.name for layer in found.layers]) == ("rounding", ["layer"])


class FarTensor(torch.Tensor):
    """A tensor as on another device: NumPy cannot read it before `cpu`."""

    def numpy(self, *, force: bool = False) -> np.ndarray:
        raise TypeError(f"can't convert device type tensor to numpy (force={force})")

    def cpu(self) -> torch.Tensor:  # type: ignore[override]
        return self.as_subclass(torch.Tensor)


def test_numbers_are_read_from_other_devices() -> None:
    far = torch.from_numpy(X).as_subclass(FarTensor)
    for tensor in (far, far.bfloat16()):
        (numbers,) = numbers_of([tensor])
        assert (numbers == tensor.cpu().float().numpy()).all()


class Scaled(nn.Module):
    """Logits that are scaled behind the last layer."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.layers, self.scale = block(), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * self.scale


def test_what_stands_behind_the_last_layer_is_judged(tmp_path: Path) -> None:
    live = audit(Scaled(3.0), "torch", X)
    assert (live.verdict, live.layers[-1].name) == ("rounding", "output 0")
    record(Scaled(3.0 * (1 + 1e-5)), "torch", [[X]], tmp_path)
    found = audit_recorded(Scaled(3.0), open_recording(tmp_path))
    assert found.verdict == "differs"
    assert found.first_divergent is not None
    assert found.first_divergent.name == "output 0"
