"""resize: exact coordinates against formulas written anew, and every runtime at hand inside the ball.

Sizes are odd and large, data are rough: coordinates that floats get wrong show there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import jax
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import specgrad as sg
from slices import slices
from specgrad import functional as F
from specgrad.bounds import Box, crown, ibp
from specgrad.check import audit
from specgrad.check.verdicts.judge import expected_balls, judge_array
from specgrad.errors import UnsupportedError
from specgrad.interop import from_onnx, from_torch, to_onnx
from specgrad.rounding import Arithmetic, local_radius, radius, slack_constants
from specgrad.rounding import resize as rules
from specgrad.window import resized

# --- the formulas, from the ONNX standard, over fractions -------------------------------------------------------------

ROUNDED: dict[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda v: math.floor(v) if v - math.floor(v) <= Fraction(1, 2) else math.floor(v) + 1,
    "round_prefer_ceil": lambda v: math.floor(v) if v - math.floor(v) < Fraction(1, 2) else math.floor(v) + 1,
}


def coordinate(o: int, n: int, m: int, scale: Fraction, where: str) -> Fraction:
    """x_original as the standard has it."""
    if where == "half_pixel":
        return (o + Fraction(1, 2)) / scale - Fraction(1, 2)
    if where == "pytorch_half_pixel":
        return (o + Fraction(1, 2)) / scale - Fraction(1, 2) if m > 1 else Fraction(0)
    if where == "align_corners":
        return Fraction(o * (n - 1), m - 1) if m > 1 else Fraction(0)
    if where == "asymmetric":
        return o / scale
    if where == "tf_half_pixel_for_nn":
        return (o + Fraction(1, 2)) / scale
    adjustment = m / (scale * n)
    return Fraction(n, 2) * (1 - adjustment) + (o + Fraction(1, 2)) / scale - Fraction(1, 2)


def interpolated(x: list[Fraction], m: int, scale: Fraction, where: str, how: str) -> list[Fraction]:
    n = len(x)
    at = lambda k: x[min(max(k, 0), n - 1)]
    found = []
    for o in range(m):
        s = coordinate(o, n, m, scale, where)
        low = math.floor(s)
        line = at(low) * (low + 1 - s) + at(low + 1) * (s - low)
        found.append(line if how == "linear" else at(ROUNDED[how](s)))
    return found


WHERE = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners")
HOW = ("linear", *ROUNDED)


@pytest.mark.parametrize(("where", "how"), list(itertools.product((*WHERE, "tf_half_pixel_for_nn"), HOW)))
def test_values_are_those_of_the_standard(where: str, how: str) -> None:
    rng = Random(f"{where}/{how}")
    for _ in range(40):
        n, m = rng.randint(1, 9), rng.randint(1, 14)
        x = [Fraction(rng.randint(-9, 9), rng.randint(1, 3)) for _ in range(n)]
        scale = rng.choice((Fraction(m, n), Fraction(rng.randint(1, 12), 5)))
        given = sg.exact(np.array(x, dtype=object))
        found = sg.resize(given, (m,), scales=(scale,), where=where, how=how)
        assert found.tolist() == interpolated(x, m, scale, where, how)


def test_axes_are_independent() -> None:
    x = sg.exact(np.random.default_rng(0).integers(-9, 9, (2, 3, 4, 5)))
    once = sg.resize(x, (7, 2), axes=(1, 3))
    twice = sg.resize(sg.resize(x, (7,), axes=(1,)), (2,), axes=(3,))
    assert (once == twice).all()
    assert sg.resize(x, (4, 5)) is x


# --- runtimes ---------------------------------------------------------------------------------------------------------


def model(shape: tuple[int, ...], given: dict[str, Any], attributes: dict[str, Any], opset: int = 19) -> bytes:
    names = {"scales": ["", "scales"], "sizes": ["", "", "sizes"]}[next(iter(given))]
    node = helper.make_node("Resize", ["x", *names], ["y"], name="node", **attributes)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None))]
    stored = [numpy_helper.from_array(v, k) for k, v in given.items()]
    graph = helper.make_graph([node], "g", info[:1], info[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()


def by_onnxruntime(proto: bytes, x: np.ndarray, name: str = "x") -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    return session.run(None, {name: x})[0]


def by_reference(proto: bytes, x: np.ndarray) -> np.ndarray:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(onnx.load_from_string(proto)).run(None, {"x": x})[0]


def by_openvino(proto: bytes, x: np.ndarray) -> np.ndarray:
    openvino = pytest.importorskip("openvino")
    core = openvino.Core()
    network = core.compile_model(core.read_model(proto), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return network([x])[0]


def drawn(seed: int, how: str, small: bool = False) -> tuple[tuple[int, ...], dict[str, Any], dict[str, Any]]:
    """Odd sizes, up to 4,001; by sizes, or by scales whose product with n no rounding moves over a whole number."""
    rng = Random(f"{seed}/{how}")
    axes = rng.choice((1, 2))
    n = [
        rng.choice((1, 2, 3, 7, 50, 101)) if axes == 2 or small else rng.choice((7, 333, 1000, 3001))
        for _ in range(axes)
    ]
    m = [
        rng.choice((1, 2, 5, 13, 64, 101)) if axes == 2 or small else rng.choice((5, 777, 3001, 4001))
        for _ in range(axes)
    ]
    shape = (1, 2, *n)
    where = rng.choice([w for w in WHERE if w != "half_pixel_symmetric"])
    attributes = {"mode": "linear"} if how == "linear" else {"mode": "nearest", "nearest_mode": how}
    attributes["coordinate_transformation_mode"] = where
    if rng.random() < 0.5 or where == "align_corners":
        return shape, {"sizes": np.array([1, 2, *m])}, attributes
    m = [k + (k == c) for k, c in zip(m, n, strict=True)]  # ONNX Runtime and OpenVINO copy an axis that keeps its size
    scales = np.float32([1, 1, *((k + 0.5) / c for k, c in zip(m, n, strict=True))])
    return shape, {"scales": scales}, attributes


def rough(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Signs that change from cell to cell, sizes over six decades."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 3, size=shape)).astype(np.float32)


RUNTIMES = {"onnxruntime": by_onnxruntime, "reference": by_reference, "openvino": by_openvino}


@pytest.mark.parametrize("seeds", slices(7, 40))
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_runtimes_lie_in_the_ball(runtime: str, how: str, seeds: range) -> None:
    seen = 0
    for seed in seeds:
        shape, given, attributes = drawn(seed, how, small=runtime == "reference")
        proto, x = model(shape, given, attributes), rough(shape, seed)
        graph = from_onnx(onnx.load_from_string(proto))
        if runtime == "reference" and attributes["coordinate_transformation_mode"] == "pytorch_half_pixel":
            continue  # it takes scale*n, before it is rounded down, for length_resized
        try:
            got = RUNTIMES[runtime](proto, x)
        except (RuntimeError, ValueError, IndexError, TypeError):
            continue
        ball = radius(graph, x, arithmetic=Arithmetic()).outputs
        assert got.shape == ball.shape, (seed, shape, given, attributes)
        assert ball.contains(got).all(), (seed, shape, given, attributes, np.abs(got - ball.value).max())
        seen += 1
    assert seen >= len(seeds) // 3


@pytest.mark.parametrize(("mode", "sizes"), [("linear", (1000, 3001)), ("linear", (3001, 1000)), ("linear", (4095, 7))])
@pytest.mark.parametrize("aligned", [False, True])
def test_pytorch_lies_in_the_ball(mode: str, sizes: tuple[int, int], aligned: bool) -> None:
    n, m = sizes
    x = rough((1, 3, n), 0)
    got = torch.nn.functional.interpolate(torch.from_numpy(x), size=m, mode=mode, align_corners=aligned).numpy()
    ball = radius(sg.trace(lambda v: F.interpolate(v, m, mode=mode, align_corners=aligned), x.shape), x).outputs
    assert ball.contains(got).all()
    assert np.isfinite(ball.radius).all()


PYTORCH = [
    ((1, 2, 9, 14), {"size": (23, 5), "mode": "bilinear"}),
    ((1, 2, 9, 14), {"size": (23, 5), "mode": "bilinear", "align_corners": True}),
    ((2, 1, 10, 7), {"scale_factor": (1.7, 0.6), "mode": "bilinear"}),
    ((2, 1, 10, 7), {"scale_factor": (0.7, 2.3), "mode": "nearest"}),
    ((2, 1, 10, 7), {"size": (17, 3), "mode": "nearest"}),
    ((2, 1, 10, 7), {"size": (17, 3), "mode": "nearest-exact"}),
    ((1, 1, 5, 4, 3), {"size": (7, 9, 2), "mode": "trilinear"}),
    ((1, 1, 513), {"size": 1, "mode": "linear"}),
    ((1, 1, 1, 1), {"size": (3, 4), "mode": "bilinear"}),
    ((1, 2, 33, 65), {"size": (520, 520), "mode": "bilinear"}),
    ((1, 2, 21, 2), {"scale_factor": (2.27, 1.244), "mode": "bilinear"}),  # the second axis keeps its size
    ((1, 2, 29, 5), {"scale_factor": (2.005, 1.13), "mode": "nearest-exact"}),
]


@pytest.mark.parametrize(("shape", "options"), PYTORCH)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_interpolate_is_pytorchs(shape: tuple[int, ...], options: dict[str, Any], dtype: str) -> None:
    x = torch.from_numpy(np.random.default_rng(1).normal(size=shape)).to(getattr(torch, dtype))
    got = torch.nn.functional.interpolate(x, **options).double().numpy()
    graph = sg.trace(lambda v: F.interpolate(v, **options), shape)
    ball = radius(graph, x.double().numpy(), arithmetic=Arithmetic(dtype)).outputs
    assert got.shape == ball.shape
    assert ball.contains(got).all()


def test_differs_gradient_of_nearest_by_a_factor_near_2() -> None:
    """29 cells by 2.005 are 58: PyTorch reads floor(o/2.005), and sends the gradient of o to o // 2 instead."""
    x = torch.zeros(1, 1, 29, requires_grad=True)
    y = torch.nn.functional.interpolate(x, scale_factor=2.005)
    gy = torch.zeros_like(y)
    gy[0, 0, 2] = 1
    (theirs,) = torch.autograd.grad(y, x, gy)
    read = torch.nn.functional.interpolate(torch.arange(29.0)[None, None], scale_factor=2.005)[0, 0, 2]
    graph = sg.vjp(sg.trace(lambda v: F.interpolate(v, scale_factor=2.005), (1, 1, 29)))
    ours = graph(np.zeros((1, 1, 29)), gy.numpy().astype(float))[1]
    assert (read.item(), ours.argmax(), theirs.argmax().item()) == (0, 0, 1)


TWO_RULES = [(4, 1.2085), (5, 1.1), (8, 1.1), (10, 1.05), (4, 2.2), (3, 2.3), (29, 2.005)]


@pytest.mark.parametrize(("n", "factor"), TWO_RULES)
def test_nearest_by_two_rules_is_refused(n: int, factor: float) -> None:
    """PyTorch itself reads two ways, so no graph is right, and no audit may call it wrong."""
    m = math.floor(n * factor)
    rows = torch.arange(float(n)).expand(1, 8, 2, n)
    read = [
        torch.nn.functional.interpolate(x, scale_factor=(1.0, factor), mode="nearest")[0, 0, 0].tolist()
        for x in (rows, rows.expand(1, 8, 2, n).repeat(1, 1, 100, 1))
    ]
    assert read == [[o * n // m for o in range(m)], [math.floor(o / factor) for o in range(m)]]
    with pytest.raises(UnsupportedError, match=rf"scale_factor={factor} makes {m} cells of {n}"):
        F.interpolate(np.zeros((1, 1, 1, n)), scale_factor=(1.0, factor), mode="nearest")
    module = torch.nn.Upsample(scale_factor=(1.0, factor), mode="nearest").eval()
    with pytest.raises(UnsupportedError, match="where PyTorch reads cell"):
        from_torch(module, rows)
    with pytest.raises(UnsupportedError, match="where PyTorch reads cell"):
        audit(module, "torch", rows.numpy())


def read_otherwise(seeds: range) -> list[tuple[int, float]]:
    """Drawn factors by which we read, and PyTorch, in a small or a large image, reads other cells."""
    wrong = []
    for seed in seeds:
        rng = Random(seed)
        n = rng.randint(2, 12)
        factor = rng.choice((1.0, 1.5, 2.0, 3.0, 1 + rng.random() / n, 2 + rng.random() / n, rng.uniform(0.5, 3)))
        rows = torch.arange(float(n)).expand(1, 8, 2, n)
        try:
            ours = F.interpolate(rows[:, :1, :1].numpy(), scale_factor=(1.0, factor), mode="nearest")[0, 0, 0].tolist()
        except UnsupportedError:
            continue
        for x in (rows, rows.repeat(1, 1, 100, 1)):
            theirs = torch.nn.functional.interpolate(x, scale_factor=(1.0, factor), mode="nearest")
            if theirs[0, 0, 0].tolist() != ours:
                wrong.append((n, factor))
    return wrong


def test_nearest_by_a_factor_is_read_as_pytorch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of PyTorch's two rules taken for both, as it was, is caught."""
    assert read_otherwise(range(150)) == []
    monkeypatch.setattr(F, "_refuse_two_rules", lambda *_: None)
    assert read_otherwise(range(150))


@pytest.mark.parametrize("options", [{"scale_factor": (1.0, 2.0)}, {"size": (1, 29)}, {"scale_factor": (1.0, 1.5)}])
def test_nearest_by_one_rule_is_pytorchs(options: dict[str, Any]) -> None:
    for n in (4, 29):
        x = torch.arange(float(n)).reshape(1, 1, 1, n)
        theirs = torch.nn.functional.interpolate(x, mode="nearest", **options)
        assert (F.interpolate(x.numpy(), mode="nearest", **options) == theirs.numpy()).all()


def test_gradients_of_pytorch_lie_in_the_ball() -> None:
    for shape, options in PYTORCH:
        if options["mode"] == "nearest-exact" and "scale_factor" in options:
            continue  # the same fault as above
        x = torch.from_numpy(rough(shape, 2)).requires_grad_()
        y = torch.nn.functional.interpolate(x, **options)
        gy = rough(tuple(y.shape), 3)
        (got,) = torch.autograd.grad(y, x, torch.from_numpy(gy))
        graph = sg.vjp(sg.trace(lambda v, options=options: F.interpolate(v, **options), shape))
        ball = radius(graph, x.detach().numpy(), gy).outputs[1]
        assert ball.contains(got.numpy()).all(), options


# --- what the ball says -----------------------------------------------------------------------------------------------


def test_a_power_of_two_has_no_error_of_coordinates() -> None:
    x = rough((1, 1, 64), 0)
    twice = local_radius(
        "resize", x, axes=(2,), sizes=(128,), steps=(Fraction(1, 2),), where="half_pixel", how="linear"
    )
    near = np.abs(x).max() * 2 * 10 * 2.0**-24
    assert (twice.radius <= near).all()
    half = local_radius("resize", x, axes=(2,), sizes=(32,), steps=(Fraction(2),), where="half_pixel", how="floor")
    assert half.is_exact


def test_a_border_that_floats_cross_is_open() -> None:
    """29 -> 30 cells: o*29/30 at o = 0, 30/30, ...: a whole number only at 0; 30 -> 10: every third is one."""
    x = np.arange(30, dtype=np.float32)[None, None] ** 2
    graph = sg.trace(lambda v: F.interpolate(v, 21, mode="nearest"), x.shape)  # step 10/7: whole at 7 and 14
    report = radius(graph, x)
    assert report.undecided == ("resize",)
    assert np.nonzero(report.outputs.radius[0, 0])[0].tolist() == [7, 14]
    assert report.outputs.contains(torch.nn.functional.interpolate(torch.from_numpy(x), size=21).numpy()).all()


def test_what_is_too_far_is_unknown() -> None:
    line = resized(2**22 + 1, 2**22, Fraction(2**22 + 1, 2**22), "half_pixel", "linear")
    assert line.misses(slack_constants.COORDINATE)[-1] > 0.5


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_what_is_no_number_stays_in_its_line(special: float) -> None:
    """A product with a matrix multiplies every cell of a line by zeros: jax.image.resize has none along it."""
    x = rough((2, 1, 9), 0)
    x[0, 0, 4] = special
    ball = radius(sg.trace(lambda v: F.interpolate(v, 23, mode="linear"), x.shape), x).outputs
    by_torch = torch.nn.functional.interpolate(torch.from_numpy(x), size=23, mode="linear").numpy()
    by_matrix = np.asarray(jax.image.resize(x, (2, 1, 23), "linear"))
    assert not np.isfinite(by_matrix[0]).any()
    for got in (by_torch, by_matrix):
        assert ball.contains(got).all()
    assert np.isfinite(ball.radius[1]).all()


def test_a_judge_does_not_ask_whether_a_weight_of_0_was_multiplied() -> None:
    """A NaN beside a whole coordinate may be met or not; one that is surely read must stay."""
    x = np.float32([[[1, np.nan, 2, 3, -np.inf, 5, 6]]])
    for how in ("linear", "round_prefer_ceil"):
        graph = sg.trace(
            lambda v, how=how: sg.resize(v, (4,), where="asymmetric", how=how), x.shape
        )  # 0, 7/4, 7/2, 21/4
        (ball,) = expected_balls(graph, [x], Arithmetic())
        assert np.isinf(ball.radius[0, 0]).tolist() == [how == "linear", False, True, False]
        surely = judge_array("y", np.float32([[[1, 0, 0, 5.25]]]), ball) if how == "linear" else None
        assert surely is None or surely.kind == "differs"


@pytest.mark.parametrize("centred", [False, True])
def test_boxes_hold_every_execution(centred: bool) -> None:
    """Corners of a box in float32, by PyTorch; and linear bounds no wider than intervals."""
    rng = np.random.default_rng(0)
    shape = (1, 1, 5, 4)
    low = rng.normal(size=shape).astype(np.float32)
    box = Box(low.astype(float), (low + np.float32(0.25)).astype(float))
    w = rng.normal(size=(2, 1, 2, 2)).astype(np.float32)

    def net(x: Any) -> Any:
        return sg.conv(w, None, F.interpolate(x, (7, 9), mode="bilinear")) if centred else F.interpolate(x, (7, 9))

    found = [method(sg.trace(net, shape), box).outputs for method in (ibp, crown)]
    assert ((found[1].high - found[1].low) <= (found[0].high - found[0].low) * (1 + 1e-6) + 1e-6).all()
    for _ in range(50):
        x = torch.from_numpy(low + np.float32(0.25) * rng.integers(0, 2, shape).astype(np.float32))
        mode = "bilinear" if centred else "nearest"
        y = torch.nn.functional.interpolate(x, size=(7, 9), mode=mode)
        y = torch.nn.functional.conv2d(y, torch.from_numpy(w)) if centred else y
        for bounds in found:
            assert ((bounds.low <= y.numpy()) & (y.numpy() <= bounds.high)).all()


def test_modules_come_in_and_are_judged() -> None:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.Upsample(size=(23, 17), mode="bilinear"), torch.nn.Upsample(scale_factor=1.5)
    ).eval()
    x = torch.randn(1, 2, 9, 8, generator=torch.Generator().manual_seed(0))
    graph = from_torch(net, x)
    ball = radius(graph, x.numpy(), backend="torch").outputs
    assert ball.contains(net(x).detach().numpy()).all()
    assert ball.contains(by_onnxruntime(to_onnx(graph).SerializeToString(), x.numpy(), "input")).all()
    assert np.isfinite(ball.radius).all()


# --- planted mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [0.0, 2.0**-28])
def test_coordinates_that_are_taken_for_exact_are_noticed(unit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "COORDINATE", unit)
    x = rough((1, 3, 1000), 0)
    got = torch.nn.functional.interpolate(torch.from_numpy(x), size=3001, mode="linear").numpy()
    ball = radius(sg.trace(lambda v: F.interpolate(v, 3001, mode="linear"), x.shape), x).outputs
    assert not ball.contains(got).all()


def test_another_formula_is_noticed() -> None:
    x = rough((1, 1, 50), 0)
    got = torch.nn.functional.interpolate(torch.from_numpy(x), size=77, mode="linear", align_corners=True).numpy()
    ball = radius(sg.trace(lambda v: F.interpolate(v, 77, mode="linear"), x.shape), x).outputs
    assert not ball.contains(got).all()


# --- files and refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
def test_written_and_read_again(how: str) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 5, 7))
    for where in WHERE:
        graph = sg.trace(lambda v, w=where: sg.resize(v, (8, 3), where=w, how=how), x.shape)
        assert np.array_equal(from_onnx(to_onnx(graph, dtype=np.float64))(x), graph(x))
    scaled = sg.trace(lambda v: sg.resize(v, scales=(1.5, 0.75), how=how), x.shape)
    assert np.array_equal(from_onnx(to_onnx(scaled, dtype=np.float64))(x), scaled(x))


REFUSED = [
    ({"sizes": [1, 2, 8, 3]}, {"mode": "lanczos"}, "Resize 'node' [P5]: mode='lanczos' is not supported"),
    (
        {"sizes": [1, 2, 8, 3]},
        {"mode": "cubic", "coordinate_transformation_mode": "half_pixel_symmetric"},
        "Resize 'node' [P5]: coordinate_transformation_mode='half_pixel_symmetric' is not supported with mode='cubic'",
    ),
    ({"sizes": [1, 2, 8, 3]}, {"mode": "cubic", "antialias": 1}, "Resize 'node' [P5]: antialias=1 is not supported"),
    ({"sizes": [1, 2, 8, 3]}, {"antialias": 1, "mode": "linear"}, "Resize 'node' [P5]: antialias=1 is not supported"),
    ({"sizes": [1, 2, 8, 3]}, {"exclude_outside": 1}, "Resize 'node' [P5]: exclude_outside=1 is not supported"),
    (
        {"sizes": [1, 2, 8, 3]},
        {"keep_aspect_ratio_policy": "not_larger"},
        "Resize 'node' [P5]: keep_aspect_ratio_policy='not_larger' is not supported",
    ),
    (
        {"sizes": [1, 2, 8, 3]},
        {"coordinate_transformation_mode": "tf_crop_and_resize"},
        "Resize 'node' [P5]: coordinate_transformation_mode='tf_crop_and_resize' with",
    ),
    ({"sizes": [1, 2, 0, 3]}, {}, "Resize 'node': scales=[1, 2, 0, 3] must be positive"),
    ({"sizes": [8, 3]}, {}, "Resize 'node': scales or sizes must have 4 entries"),
    ({"scales": [1, 1, 0.7, 1]}, {}, "Resize 'node': scale 0.699999988079071 of 10 cells is 6 cells, and 7 in float32"),
]


@pytest.mark.parametrize(("given", "attributes", "text"), REFUSED)
def test_refused_by_name(given: dict[str, Any], attributes: dict[str, Any], text: str) -> None:
    arrays = {k: np.array(v, np.int64 if k == "sizes" else np.float32) for k, v in given.items()}
    with pytest.raises(sg.SpecgradError) as caught:
        from_onnx(onnx.load_from_string(model((1, 2, 10, 7), arrays, attributes)))
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: sg.resize(x), "resize [P5]: needs sizes or scales, one per axis"),
        (lambda x: sg.resize(x, (3,), where="centre"), "resize [P5]: where must be one of half_pixel,"),
        (lambda x: sg.resize(x, (3,), how="cubic"), "resize [P5]: how must be one of linear, round_prefer_floor"),
        (
            lambda x: sg.resize(x, (0,)),
            "resize [W1]: needs cells, 1 to 4194304 output cells and a positive step; got 7, 0",
        ),
        (lambda x: sg.resize(x, scales=(-1.0,)), "resize [P5]: scales must be positive, one per axis"),
        (lambda x: sg.resize(x[:, :, :0], (3,)), "resize [W1]: needs cells, 1 to 4194304 output cells"),
        (lambda x: F.interpolate(x, 3, mode="bicubic"), "interpolate [P5]: mode='bicubic' of 1 axes is not one of"),
        (lambda x: F.interpolate(x, 3, mode="bilinear"), "interpolate [P5]: mode='bilinear' of 1 axes is not one of"),
        (lambda x: F.interpolate(x, 3, align_corners=True), "interpolate [P5]: align_corners has no meaning with"),
        (lambda x: F.interpolate(x), "interpolate [P5]: give size or scale_factor"),
    ],
)
def test_calls_refused_by_name(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        call(np.zeros((1, 1, 7)))
    assert str(caught.value).startswith(text)
