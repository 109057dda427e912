"""Classes of arithmetic by name: the right one is named on ten networks, and no planted fault is explained away."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import kernels
import specgrad as sg
from emulated import ARITHMETICS, FAULTS, Layer, image, networks, run
from slices import diagonals
from specgrad.check import audit
from specgrad.check.cases.op_case import OpCase
from specgrad.check.verdicts import arithmetic_classes
from specgrad.check.verdicts.arithmetic_classes import CLASSES, accepted_classes, reclassify
from specgrad.check.verdicts.error_estimate import MAX_TYPICAL_RATIO, error_over_estimate
from specgrad.check.verdicts.judge import Verdict, expected_balls, judge_array
from specgrad.check.verdicts.observation import Observation
from specgrad.check.verdicts.probe import LayerProbe
from specgrad.errors import ParameterError
from specgrad.process import ProcessResult
from specgrad.rounding import FORMATS, Arithmetic, Ball
from specgrad.rounding.arithmetic_variants import Winograd
from specgrad.rounding.winograd import TILES

pytestmark = pytest.mark.usefixtures("kept_workers")
NODE = Arithmetic(execution="node")
NETWORKS = networks(np.random.default_rng(3))
HALF = {n: {"float32", n} for n in ("float16", "bfloat16")}
MAY_BE = {  # the right name, or a narrower one that explains the same numbers
    "float32": {"float32"},
    "tf32": {"float32", "tf32"},
    "tf32 cut off": {"float32", "tf32"},
    "float16-operands": {"float32", "tf32", "float16-operands"},
    "bfloat16-operands": {"float32", "bfloat16-operands"},
    **HALF,
    "winograd-f2": {"float32", "winograd-f2"},
    "winograd-f4": {"float32", "winograd-f2", "winograd-f4"},
    "winograd-f6": {"float32", "winograd-f2", "winograd-f4", "winograd-f6"},
    **{f"{n}-sums": names | {f"{n}-sums"} for n, names in HALF.items()},
}
HAS = {  # kinds of layers that a fault can be planted in
    "wrong pad": ("conv",), "lost divisor": ("avg_pool",), "lost bias": ("conv", "linear"), "wrong dilation": ("conv",),
    "wrong eps": ("batch_norm",), "some weights": ("conv", "linear"), "last row lost": ("conv", "avg_pool"),
}  # fmt: skip


def meaning(layer: Layer, *args: np.ndarray) -> sg.Graph:
    a = layer.arrays
    call = {
        "conv": lambda x: sg.conv(
            a["w"], a["b"], x, stride=layer.stride, padding=((layer.pad, layer.pad),) * 2, dilation=layer.dilation,
            groups=layer.groups
        ),
        "linear": lambda x: sg.linear(a["w"], a["b"], x),
        "avg_pool": lambda x: sg.avg_pool(x, (2, 2), divisor=3),
        "max_pool": lambda x: sg.max_pool(x, (2, 2)),
        "batch_norm": lambda x: sg.batch_norm(x, a["mean"], a["var"], a["weight"], a["bias"], eps=1e-5),
        "relu": sg.relu,
        "flatten": lambda x: sg.reshape(x, (x.shape[0], -1)),
        "add": sg.add,
    }  # fmt: skip
    return sg.trace(call[layer.kind], *args)


def judged(layer: Layer, args: list[np.ndarray], got: np.ndarray) -> Verdict:
    graph, given = meaning(layer, *args), [a.astype(np.float64) for a in args]
    (ball,) = expected_balls(graph, given, NODE)
    return reclassify(judge_array("y", got, ball), Observation(graph, given, [got]), NODE, accept=())


def layers_of(name: str, arithmetic: str, fault: str = "", at: int = -1) -> list[tuple[Layer, list, np.ndarray]]:
    network = NETWORKS[name]
    x = image(np.random.default_rng(5), arithmetic.startswith("winograd"))
    network = network if at < 0 else network[: at + 1]
    seen = run(network, x, arithmetic, fault, at)
    reads = [
        [seen[i], seen[i + 1 + layer.other]] if layer.kind == "add" else [seen[i]] for i, layer in enumerate(network)
    ]
    return list(zip(network, reads, seen[1:], strict=True))


def names(arithmetic: str, networks: Iterable[str]) -> Counter[str]:
    """Which class every layer of these networks is explained by."""
    found: Counter[str] = Counter()
    for network in networks:
        for layer, args, got in layers_of(network, arithmetic):
            verdict = judged(layer, args, got)
            found[verdict.arithmetic or ("float32" if verdict.kind in ("exact", "rounding") else str(verdict))] += 1
    return found


SOME = dict.fromkeys(ARITHMETICS, ("plain", "residual", "normed"))
SOME["winograd-f2"] = tuple(NETWORKS)  # it seldom shows


def named_right(arithmetic: str, networks: Iterable[str]) -> None:
    """The class is the right one or a narrower one, and it is named where it shows."""
    found = names(arithmetic, networks)
    assert set(found) <= MAY_BE[arithmetic], found
    shown = sum(n for name, n in found.items() if name != "float32" or arithmetic == "float32")
    assert shown >= 8, found


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_the_class_is_the_right_one_or_a_narrower_one(arithmetic: str) -> None:
    named_right(arithmetic, SOME[arithmetic])


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_the_class_is_the_right_one_in_every_network(arithmetic: str) -> None:
    named_right(arithmetic, NETWORKS)


def planted(fault: str) -> list[tuple[str, int]]:
    """The first and the last layer of every network that can have the fault."""
    found = []
    for name, network in NETWORKS.items():
        at = [i for i, layer in enumerate(network) if layer.kind in HAS[fault]]
        if fault in ("wrong pad", "wrong dilation"):
            at = [i for i in at if network[i].pad > 0]
        found += [(name, i) for i in sorted({*at[:1], *at[-1:]})]
    return found


def explained_away(fault: str, arithmetic: str, where: list[tuple[str, int]]) -> list[tuple[str, int, str]]:
    verdicts = [(name, at, judged(*layers_of(name, arithmetic, fault, at)[at])) for name, at in where]
    return [(name, at, str(v)) for name, at, v in verdicts if v.kind != "differs"]


@pytest.mark.parametrize(("fault", "arithmetic"), diagonals(FAULTS, ARITHMETICS, 3))
def test_a_fault_is_never_explained_away(fault: str, arithmetic: str) -> None:
    """In the faulty layer "differs", whatever arithmetic it is computed in; elsewhere for every arithmetic."""
    where = planted(fault)
    assert explained_away(fault, arithmetic, where[ARITHMETICS.index(arithmetic) % min(5, len(where)) :: 10]) == []


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_in_any_network_is_explained_away(fault: str, arithmetic: str) -> None:
    assert explained_away(fault, arithmetic, planted(fault)) == []


# --- what explanations rest on ----------------------------------------------------------------------------------------


def small_fault(arithmetic: str, **arrays: float) -> Verdict:
    """A layer of which one array is taken times a factor near 1, or lost."""
    right = networks(np.random.default_rng(3))["plain"][2]
    x = np.random.default_rng(1).normal(size=(1, 6, 16, 16)).astype(np.float32)
    right.arrays["b"] *= np.float32(2.0**-12)
    wrong = replace(right, arrays={k: a * np.float32(arrays.get(k, 1)) for k, a in right.arrays.items()})
    return judged(right, [x], run([wrong], x, arithmetic)[1])


def test_cells_beside_a_nan_are_explained_too() -> None:
    """NaN where it is read, and bfloat16 operands elsewhere; a NaN that is lost is a fault."""
    layer = NETWORKS["plain"][0]
    x = image(np.random.default_rng(5), False)
    x[0, 1, 4, 4], x[0, 2, 9, 9] = np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        y = run([layer], x, "bfloat16-operands")[1]
        assert judged(layer, [x], y).arithmetic == "bfloat16-operands"
        assert judged(layer, [x], np.nan_to_num(y)).kind == "differs"


def test_a_ball_alone_would_explain_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: a class explains whatever lies in its ball."""
    assert small_fault("winograd-f6", b=0.0).kind == small_fault("bfloat16-sums", b=0.0, w=0.9).kind == "differs"
    monkeypatch.setattr(arithmetic_classes, "faulty_outputs", lambda seen: ())
    monkeypatch.setattr(arithmetic_classes, "is_typical", lambda *_: True)
    assert small_fault("winograd-f6", b=0.0).arithmetic.startswith("winograd")
    assert small_fault("bfloat16-sums", b=0.0, w=0.9).arithmetic == "bfloat16-sums"


def test_operands_by_their_wide_ball_would_explain_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: operands that nobody rounds, but Arithmetic(operands="bfloat16")."""

    def wide(way: object, seen: Observation, arithmetic: Arithmetic) -> Iterator[list[Ball]]:
        yield expected_balls(seen.graph, seen.inputs, Arithmetic(operands="bfloat16", execution="node"))

    assert small_fault("float32", w=1 + 2.0**-9).kind == "differs"
    monkeypatch.setattr(arithmetic_classes, "class_balls", wide)
    monkeypatch.setattr(arithmetic_classes, "_same_values", lambda *_: False)
    assert small_fault("float32", w=1 + 2.0**-9).arithmetic == "tf32"


@pytest.mark.parametrize("arithmetic", ["winograd-f2", "winograd-f4", "winograd-f6", "float16-sums", "bfloat16-sums"])
def test_errors_of_right_executions_are_usual(arithmetic: str) -> None:
    """The estimate behind MAX_TYPICAL_RATIO, on every layer that has one; half of what is allowed at most."""
    way = {c.name: c.ways[0][1] for c in CLASSES}[arithmetic]
    form = None if isinstance(way, Winograd) else FORMATS[arithmetic.removesuffix("-sums")]
    shares = []
    for network in NETWORKS:
        for layer, args, got in layers_of(network, arithmetic):
            seen = Observation(meaning(layer, *args), [a.astype(np.float64) for a in args], [got])
            shares.append(error_over_estimate(seen, seen.values()[0], way if isinstance(way, Winograd) else None, form))
    finite = [s for s in shares if np.isfinite(s)]
    assert len(finite) >= 8
    assert max(finite) <= MAX_TYPICAL_RATIO / 2


def test_names_are_checked() -> None:
    assert accepted_classes(["tf32", "winograd-f4"]) == {"tf32", "winograd-f4"}
    rewritten = {"moved-constants", "formula-kernel", "tanh-by-sigmoid", "one-pass-variance"}
    assert accepted_classes(["any"]) == {"float32", *(c.name for c in CLASSES), *rewritten}
    assert accepted_classes(["any", "replaced-constants"]) == accepted_classes(["any"]) | {"replaced-constants"}
    assert [c.name for c in CLASSES if c.name.startswith("winograd")] == [
        f"winograd-f{t[0].outputs}" for t in TILES.values()
    ]
    with pytest.raises(ParameterError, match=r"accept must be among float32, tf32, .* or any; got 'fp8'"):
        accepted_classes(["fp8"])


# --- runtimes ---------------------------------------------------------------------------------------------------------

FLAGS = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""


def net(*channels: int) -> torch.nn.Sequential:
    torch.manual_seed(0)
    pairs = itertools.pairwise(channels)
    return torch.nn.Sequential(
        *(m for a, b in pairs for m in (torch.nn.Conv2d(a, b, 3, padding=1), torch.nn.ReLU()))
    ).eval()


@pytest.fixture
def bfloat16_products() -> Iterator[None]:
    setting = torch.backends.mkldnn.conv
    before, setting.fp32_precision = setting.fp32_precision, "bf16"
    yield
    setting.fp32_precision = before


@pytest.mark.skipif("avx512_bf16" not in FLAGS and "amx_bf16" not in FLAGS, reason="needs products of bfloat16")
def test_torch_with_bfloat16_products_is_named(bfloat16_products: None) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 16, 16)).astype(np.float32)
    plain = audit(net(3, 16, 32), "torch", x)
    assert plain.verdict == "other arithmetic"
    assert plain.first_divergent is not None
    assert "--accept bfloat16-operands would allow it" in plain.first_divergent.verdict.detail
    allowed = audit(net(3, 16, 32), "torch", x, accept=["bfloat16-operands"])
    assert allowed.verdict == "rounding"
    assert [row["arithmetic"] for row in allowed.to_json()["layers"]] == ["bfloat16-operands", "float32"] * 2
    assert audit(net(3, 16, 32), "torch", x, accept=["tf32"]).verdict == "other arithmetic"


def test_nnpack_is_named_by_its_tiles_and_points() -> None:
    """Without oneDNN, from 16 samples on, torch takes NNPACK: F(6,3). A model of it has no radius, which is said."""
    x = np.random.default_rng(0).normal(size=(16, 4, 18, 18))
    x[:, :, 5, 7] *= 2.0**20
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
        y = net(4, 8)[0](torch.from_numpy(x.astype(np.float32))).detach().numpy()
        if (np.abs(y - net(4, 8)[0].double()(torch.from_numpy(x)).detach().numpy())[:, :, 6, 15] < 1e-6).all():
            pytest.skip("this build has no NNPACK")
        found = audit(net(4, 8), "torch", x.astype(np.float32), accept=["winograd-f6"])
    assert found.verdict == "rounding"
    assert found.layers[0].verdict.arithmetic == "winograd-f6"
    assert "points 0, 1, -1, 2, -2, 1/2, -1/2, infinity; bound only" in found.layers[0].verdict.detail
    assert "for winograd-f6 no radius" in str(found.whole)


# --- probes -----------------------------------------------------------------------------------------------------------

USUAL_CONV = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}


def probed(fault: str, met: float = 0.0, **asked: str) -> str | None:
    """What a probe for F(4,3) says of a kernel, faulty or not, asked alone; `met`: how far off the model was."""
    rng = np.random.default_rng(0)
    shapes = {"x": (1, 4, 12, 12), "w": (4, 4, 3, 3), "b": (4,)}
    question = OpCase("conv", USUAL_CONV, {k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()})

    def ask(again: OpCase) -> ProcessResult:
        kind = "itself" if again is question else "spikes" if np.abs(again.arrays["x"]).max() > 100 else "integers"
        return ProcessResult(
            "answers", (kernels.conv(*again.arrays.values(), **USUAL_CONV, fault=asked.get(kind, fault)),)
        )

    seen = ask(question).arrays[0] + np.float32(met)
    return LayerProbe(question, ask, NODE, seen)(Winograd(TILES["F(4,3)"][0]))


def test_probes_see_tiles_and_what_is_wrong() -> None:
    tiles = "Winograd F(4x4,3x3)"
    assert probed(tiles) == ""
    assert probed("") == "a large cell is felt only where it is read"
    assert probed(tiles, met=1e-3) == "the layer alone gives other numbers"
    for fault in ("bias dropped", "kernel flipped", "last tap dropped", "last row uninitialised"):
        assert probed(tiles, integers=fault) == "wrong on small integers", fault
    assert probed(tiles, spikes="bias dropped") == "a large cell is felt only where it is read"
