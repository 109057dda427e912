"""Operators that ONNX Runtime's optimiser writes, com.microsoft and com.microsoft.nchwc, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import specgrad as sg
from onnx_cases import info
from specgrad.check.auditing.audit import audit
from specgrad.check.verdicts.judge import judge_array
from specgrad.interop import from_onnx
from specgrad.interop.onnx.read.blocked import block_size, in_axis_order
from specgrad.rounding import Arithmetic, radius

DRAW = np.random.default_rng(0)
NCHWC = "com.microsoft.nchwc"
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid(NCHWC, 1)]


def normal(*shape: int) -> np.ndarray:
    return DRAW.normal(size=shape).astype(np.float32)


def fused(
    name: str, inputs: list[Any], outputs: list[str] | None = None, domain: str = "com.microsoft", **attributes: Any
) -> Any:
    """A model of one node; the first tensor is the input, everything else stands in the file."""
    names = ["" if a is None else f"i{k}" for k, a in enumerate(inputs)]
    results = outputs or ["y"]
    graph = helper.make_graph(
        [helper.make_node(name, names, results, name="node", domain=domain, **attributes)],
        "one",
        [info("i0", inputs[0].shape)],
        [info(o, None) for o in results if o],
        [numpy_helper.from_array(a, n) for a, n in list(zip(inputs, names, strict=True))[1:] if n],
    )
    opsets = OPSETS if domain else [helper.make_opsetid("", 15)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), inputs[0]


def session(model: onnx.ModelProto, level: str = "ORT_DISABLE_ALL", path: str = "") -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    options.optimized_model_filepath = path
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


CONVOLVED = {"Relu": [], "Tanh": [], "Sigmoid": [], "HardSwish": [], "LeakyRelu": [0.1], "Clip": [-0.5, 2.0]}
MULTIPLIED = {"Relu": {}, "Softplus": {}, "LeakyRelu": {"alpha": 0.1}, "Selu": {"alpha": 1.3, "gamma": 0.9}}
SKIPPED = [normal(2, 5, 32), normal(2, 5, 32), normal(32), normal(32), normal(32)]


def cases() -> dict[str, Any]:
    x, w, b, z = normal(2, 4, 9, 10), normal(8, 2, 3, 3), normal(8), normal(2, 8, 9, 10)
    made = {}
    for name, params in {**CONVOLVED, "HardSigmoid": [0.2, 0.4]}.items():
        given = {"activation": name, "pads": [1] * 4, "group": 2} | ({"activation_params": params} if params else {})
        made[f"FusedConv {name}"] = fused("FusedConv", [x, w, b], **given)
        made[f"FusedConv {name} of a sum"] = fused("FusedConv", [x, w, b, z], **given)
    for name, numbers in MULTIPLIED.items():
        given = {"activation": name, "alpha": 0.7, "transB": 1} | {f"activation_{k}": v for k, v in numbers.items()}
        made[f"FusedGemm {name}"] = fused("FusedGemm", [normal(5, 7), normal(6, 7), normal(6)], **given)
    for flags in range(16):
        a, m = normal(2, 3, 4, 5), normal(2, 3, 5, 6)
        turns = dict(zip(("transA", "transB", "transBatchA", "transBatchB"), map(int, f"{flags:04b}"), strict=True))
        a, m = (v.swapaxes(2, 3) if turns[f"trans{k}"] else v for v, k in ((a, "A"), (m, "B")))
        a, m = (np.moveaxis(v, 2, 0) if turns[f"transBatch{k}"] else v for v, k in ((a, "A"), (m, "B")))
        made[f"FusedMatMul {flags:04b}"] = fused("FusedMatMul", [a.copy(), m.copy()], alpha=0.5, **turns)
    made["FusedMatMul of a vector"] = fused("FusedMatMul", [normal(5), normal(3, 5, 6)], transA=1)
    for name, inputs in {"Gelu": 1, "BiasGelu": 2, "FastGelu": 1, "FastGelu with a bias": 2, "QuickGelu": 1}.items():
        made[name] = fused(name.split()[0], [normal(3, 200) * 3, normal(200)][:inputs])
    made["SkipLayerNormalization"] = fused("SkipLayerNormalization", SKIPPED, ["y", "", "", "sum"], epsilon=1e-5)
    made["SkipLayerNormalization, no bias"] = fused("SkipLayerNormalization", [SKIPPED[0], normal(5, 32), normal(32)])
    rows = [SKIPPED[0], SKIPPED[1], SKIPPED[2], SKIPPED[4]]
    made["SkipSimplifiedLayerNormalization"] = fused("SkipSimplifiedLayerNormalization", rows, ["y", "", "", "sum"])
    made["SkipSimplifiedLayerNormalization, no bias"] = fused("SkipSimplifiedLayerNormalization", rows[:3], epsilon=0.1)
    for bits, size, columns in ((4, 16, 48), (4, 32, 40), (8, 32, 64)):
        blocks = -(-columns // size)
        q = DRAW.integers(0, 256, (7, blocks, size * bits // 8)).astype(np.uint8)
        zero = DRAW.integers(0, 256, (7, -(-blocks * bits // 8))).astype(np.uint8)
        given = {"K": columns, "N": 7, "bits": bits, "block_size": size}
        for said, behind in {
            "": [], "zeros": [zero], "real zeros": [normal(7, blocks)], "a bias": [zero, None, normal(7)]
        }.items():  # fmt: skip
            if bits == 8 and said == "real zeros":
                continue  # ONNX Runtime does not run it
            inputs = [normal(3, 5, columns), q, np.abs(normal(7, blocks)), *behind]
            made[f"MatMulNBits {bits} {size} {columns} {said}"] = fused("MatMulNBits", inputs, **given)
    for name, inputs in (("LayerNormalization", 3), ("LayerNormalization", 2), ("SimplifiedLayerNormalization", 2)):
        for axis in (-1, 1):
            given = [normal(2, 5, 32), *(normal(*(2, 5, 32)[axis:]) for _ in range(inputs - 1))]
            made[f"{name} of opset 15, {inputs} inputs, axis {axis}"] = fused(name, given, domain="", axis=axis)
            made[f"{name} of opset 15, {inputs} inputs, {axis}, eps"] = fused(
                name, given, domain="", axis=axis, epsilon=0.5
            )
    return made


CASES = cases()


@pytest.mark.parametrize("case", CASES)
def test_onnx_runtime_stays_within_the_radius(case: str) -> None:
    model, x = CASES[case]
    graph = from_onnx(model)
    outputs = radius(graph, x.astype(float), arithmetic=Arithmetic(execution="node")).outputs
    balls = outputs if isinstance(outputs, tuple) else (outputs,)
    for actual, ball in zip(session(model).run(None, {"i0": x}), balls, strict=True):
        verdict = judge_array("y", actual, ball)
        assert verdict.kind in ("exact", "rounding"), str(verdict)
        assert ball.radius.max() < 1e-3 * np.abs(ball.value).max()


def test_channels_last_is_the_same_convolution() -> None:
    """ONNX Runtime's CPU has no kernel of NhwcFusedConv in float32: FusedConv is the other opinion."""
    x, w, b, z = normal(2, 4, 9, 7), normal(8, 2, 3, 3), normal(8), normal(2, 8, 5, 7)
    given: dict[str, Any] = {"activation": "Relu", "group": 2, "strides": [2, 1], "auto_pad": "SAME_UPPER"}
    last = [a.transpose(0, 2, 3, 1).copy() if a.ndim == 4 and a is not w else a for a in (x, w, b, z)]
    first, then = (fused(n, i, **given)[0] for n, i in (("FusedConv", [x, w, b, z]), ("NhwcFusedConv", last)))
    expected = session(first).run(None, {"i0": x})[0].transpose(0, 2, 3, 1)
    assert judge_array("y", expected, radius(from_onnx(then), last[0].astype(float)).outputs).kind == "rounding"


FEW = [normal(2, 32), np.zeros((3, 2, 8), np.uint8), normal(3, 2)]
REFUSED = {
    "operands in int8": (
        fused("MatMulNBits", FEW, K=32, N=3, block_size=16, accuracy_level=4),
        "accuracy_level=4 is not supported; only 0 or 1",
    ),
    "another order of columns": (
        fused("MatMulNBits", [*FEW, None, np.zeros(32, np.int32)], K=32, N=3, block_size=16),
        "g_idx, columns in another order, is not honoured",
    ),
    "too few bytes": (
        fused("MatMulNBits", FEW, K=64, N=3, block_size=16),
        "input 1 must be 3 x 32 bytes",
    ),
    "scales that lack": (
        fused("MatMulNBits", [*FEW[:2], normal(3, 1)], K=32, N=3, block_size=16),
        "input 2 must have 3 x 2 numbers",
    ),
    "an unknown activation": (
        fused("FusedConv", [normal(1, 2, 4, 4), normal(2, 2, 1, 1)], activation="Mish"),
        "activation='Mish' must be one of Relu, Tanh",
    ),
    "parameters that lack": (
        fused("FusedConv", [normal(1, 2, 4, 4), normal(2, 2, 1, 1)], activation="LeakyRelu"),
        "activation LeakyRelu needs 1 activation_params; got []",
    ),
    "a summand that would be stretched": (
        fused("FusedConv", [normal(1, 2, 4, 4), normal(2, 2, 1, 1), None, normal(1, 2, 1, 1)]),
        "the summand must have the shape of the result, (1, 2, 4, 4); got (1, 2, 1, 1)",
    ),
    "a slope that lacks": (
        fused("FusedGemm", [normal(2, 3), normal(3, 2)], activation="Elu"),
        "attribute activation_alpha is missing",
    ),
    "outputs of training": (
        fused("SkipLayerNormalization", SKIPPED, ["y", "mean"]),
        "output 1 (mean) is of training",
    ),
    "a scale that would be stretched": (
        fused("SimplifiedLayerNormalization", [normal(2, 3), normal(1)], domain=""),
        "the scale must have shape (3,)",
    ),
    "no operator of ONNX before opset 17": (
        fused("GroupNormalization", [normal(1, 2, 3)], domain=""),
        "opset 15 has no such",
    ),
    "an attribute": (fused("Gelu", [normal(2)], approximate="tanh"), "attribute 'approximate' is not honoured"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case: str) -> None:
    (model, _), message = REFUSED[case]
    with pytest.raises(sg.SpecgradError) as caught:
        from_onnx(model)
    assert message in str(caught.value)


# --- blocks of channels -----------------------------------------------------------------------------------------------


def network(open_sizes: bool = False) -> onnx.ModelProto:
    """Channels that fill no block, a depthwise and a grouped convolution, pools, a residual, a concatenation."""
    weights = {
        "w0": normal(12, 3, 3, 3), "b0": normal(12), "w1": normal(12, 1, 3, 3), "w2": normal(32, 12, 1, 1) / 4,
        "b2": normal(32), "w3": normal(32, 16, 3, 3) / 12, "w4": normal(32, 32, 1, 1) / 6,
        "s": np.float32([1, 1, 2, 2]),
    }  # fmt: skip
    make, same = helper.make_node, {"pads": [1, 1, 1, 1]}
    nodes = [
        make("Conv", ["x", "w0", "b0"], ["a0"], strides=[2, 2], **same), make("Relu", ["a0"], ["r0"]),
        make("Conv", ["r0", "w1"], ["a1"], group=12, **same), make("HardSigmoid", ["a1"], ["r1"], alpha=0.3),
        make("Conv", ["r1", "w2", "b2"], ["a2"]), make("MaxPool", ["a2"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        make("Conv", ["m", "w3"], ["a3"], group=2, **same), make("Add", ["a3", "m"], ["sum"]),
        make("Tanh", ["sum"], ["t"]), make("AveragePool", ["t"], ["v"], kernel_shape=[3, 3], **same),
        make("Concat", ["t", "v"], ["c"], axis=1), make("Resize", ["t", "", "s"], ["u"], mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor"), make("Conv", ["u", "w4"], ["big"]),
        make("GlobalAveragePool", ["c"], ["y"]),
    ]  # fmt: skip
    size = ["h", "w"] if open_sizes else [16, 20]
    outputs = [info(name, None) for name in ("y", "r1", "big")]
    stored = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "net", [info("x", [1, 3, *size])], outputs, stored)
    return helper.make_model(graph, opset_imports=OPSETS[:1], ir_version=9)


@pytest.mark.parametrize("open_sizes", [False, True])
def test_blocked_channels_keep_the_meaning(tmp_path: Any, open_sizes: bool) -> None:
    """With open sizes ONNX Runtime adds tensors as they are stored, in five axes."""
    model, path = network(open_sizes), tmp_path / "blocked.onnx"
    try:
        session(model, "ORT_ENABLE_ALL", str(path))
    except Exception:
        pytest.skip("this processor's ONNX Runtime has no blocked channels")
    file = onnx.load(path)
    kinds = [n.op_type for n in file.graph.node if n.domain == NCHWC]
    if not kinds:
        pytest.skip("this processor's ONNX Runtime has no blocked channels")
    assert {"Conv", "ReorderOutput", "MaxPool", "AveragePool"} <= set(kinds)
    x = normal(1, 3, 16, 20)
    shapes = {"x": x.shape} if open_sizes else {}
    exact = [from_onnx(m, input_shapes=shapes)(x.astype(float)) for m in (model, file)]
    for a, b in zip(*exact, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)  # batch norms and scales are folded in float32
    audited = audit(file, "onnxruntime", x)
    assert audited.verdict == "rounding"
    assert audited.coverage.is_whole


def filled(c: int, block: int) -> onnx.ModelProto:
    """One convolution of 3 channels to c, in blocks, as ONNX Runtime writes it."""
    w = np.zeros((-(-c // block) * block, 3, 1, 1), np.float32)
    w[:c, :, 0, 0] = np.arange(1, 3 * c + 1).reshape(c, 3)
    stored = np.moveaxis(w.reshape(-1, block, 3, 1, 1), 1, -1).reshape(w.shape)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["b"], name="conv", domain=NCHWC),
        helper.make_node("ReorderOutput", ["b"], ["y"], name="out", domain=NCHWC, channels=c),
    ]
    graph = helper.make_graph(
        nodes, "one", [info("x", [1, 3, 2, 2])], [info("y", None)], [numpy_helper.from_array(stored, "w")]
    )
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=9)


@pytest.mark.parametrize(("c", "block"), [(4, 16), (20, 8), (24, 16), (16, None), (7, 16)])
def test_the_size_of_blocks_follows_from_the_file(c: int, block: int | None) -> None:
    """24 channels that were filled up to 32 are two blocks of 16; four of 8 would have been one too many."""
    model = filled(c, block or 16)
    assert block_size(model.graph) == block
    if block is None:
        with pytest.raises(sg.UnsupportedError, match="whether blocks have 8 or 16 channels"):
            from_onnx(model)
        return
    x = normal(1, 3, 2, 2).astype(float)
    weights = np.arange(1, 3 * c + 1).reshape(c, 3)
    np.testing.assert_allclose(from_onnx(model)(x), np.einsum("oc,nchw->nohw", weights, x), rtol=1e-12)


def test_stored_blocks_are_read_in_the_order_of_axes() -> None:
    cells = np.arange(2 * 16 * 3 * 5).reshape(2, 16, 3, 5)
    stored = np.zeros((2, 2, 3, 5, 8), int)
    for n, c, h, w in np.ndindex(cells.shape):
        stored[n, c // 8, h, w, c % 8] = cells[n, c, h, w]
    assert (in_axis_order(stored.reshape(cells.shape), 8) == cells).all()
