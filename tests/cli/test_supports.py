"""specgrad verify supports --onnx-operators: each of them, in a network of its own, has finite proven bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from functions import FUNCTIONS  # noqa: E402
from onnx_cases import network  # noqa: E402
from specgrad.bounds import Box, crown  # noqa: E402
from specgrad.errors import SpecgradError  # noqa: E402
from specgrad.interop import from_onnx  # noqa: E402
from specgrad.interop.model import refuse_other_formats  # noqa: E402
from specgrad.interop.onnx.read.convert_node import all_operators  # noqa: E402
from specgrad.proof.base.deployed_graph import deployed_graph  # noqa: E402
from specgrad.properties.command import OTHER_FORMATS, REFUSED, onnx_operators  # noqa: E402

F, WHOLE = np.float32, np.int64
X = np.linspace(0.25, 1.5, 12, dtype=F)
IMAGE = X.reshape(1, 1, 3, 4)
ROW = X.reshape(3, 4)
Y = "y"


def node(op: str, *others: Any, x: np.ndarray = ROW, then: Any = None, **attributes: Any) -> onnx.ModelProto:
    """x, and constants beside it; `then` are operators that make a float32 output of what is none."""
    constants = {f"c{i}": np.asarray(c) for i, c in enumerate(others) if c is not None}
    names = ["x", *("" if c is None else f"c{i}" for i, c in enumerate(others))]
    nodes = [onnx.helper.make_node(op, names, ["h" if then else Y], **attributes)]
    return network([*nodes, *(then or [])], {"x": x}, [Y], constants)


def chosen() -> list[Any]:
    return [onnx.helper.make_node("Where", ["h", "x", "x"], [Y])]


def around(op: str, *inputs: str, constants: dict[str, Any] | None = None, **attributes: Any) -> onnx.ModelProto:
    """A value that is known while importing, added to x."""
    stored = {k: np.asarray(v) for k, v in (constants or {}).items()}
    nodes = [
        onnx.helper.make_node(op, inputs, ["h"], **attributes),
        onnx.helper.make_node("Cast", ["h"], ["f"], to=1),
        onnx.helper.make_node("Add", ["x", "f"], [Y]),
    ]
    return network(nodes, {"x": ROW}, [Y], stored)


def masked(op: str) -> onnx.ModelProto:
    """A mask of masks, where a choice reads it."""
    nodes = [onnx.helper.make_node("Less", ["x", "c"], ["m"])]
    nodes += [onnx.helper.make_node(op, ["m"] if op == "Not" else ["m", "m"], ["h"])]
    return network([*nodes, *chosen()], {"x": ROW}, [Y], {"c": F([[1]])})


def split() -> onnx.ModelProto:
    nodes = [onnx.helper.make_node("Split", ["x"], [Y, "z"], axis=1, num_outputs=2)]
    return network([*nodes, onnx.helper.make_node("Add", [Y, "z"], ["s"])], {"x": ROW}, ["s"])


def top() -> onnx.ModelProto:
    return network([onnx.helper.make_node("TopK", ["x", "k"], [Y, "i"])], {"x": ROW}, [Y], {"k": WHOLE([2])})


def recurrent(op: str, gates: int) -> onnx.ModelProto:
    weights = [np.full((1, gates * 2, n), 0.25, F) for n in (2, 2)]
    return node(op, *weights, x=X.reshape(3, 2, 2), hidden_size=2)


def body(ins: list[tuple[str, int, list[int]]], nodes: list[Any], outs: list[tuple[str, int, list[int]]]) -> Any:
    infos = [[onnx.helper.make_tensor_value_info(*end) for end in ends] for ends in (ins, outs)]
    return onnx.helper.make_graph(nodes, "body", *infos)


def branch() -> onnx.ModelProto:
    taken = body([], [onnx.helper.make_node("Relu", ["x"], ["r"])], [("r", 1, [3, 4])])
    other = body([], [onnx.helper.make_node("Neg", ["x"], ["n"])], [("n", 1, [3, 4])])
    nodes = [onnx.helper.make_node("If", ["c"], [Y], then_branch=taken, else_branch=other)]
    return network(nodes, {"x": ROW}, [Y], {"c": np.asarray(True)})


def loop() -> onnx.ModelProto:
    steps = [onnx.helper.make_node("Add", ["a", "x"], ["b"]), onnx.helper.make_node("Identity", ["go"], ["on"])]
    ins, outs = [("i", 7, []), ("go", 9, []), ("a", 1, [3, 4])], [("on", 9, []), ("b", 1, [3, 4])]
    nodes = [onnx.helper.make_node("Loop", ["n", "c", "x"], [Y], body=body(ins, steps, outs))]
    return network(nodes, {"x": ROW}, [Y], {"n": WHOLE(2), "c": np.asarray(True)})


def scan() -> onnx.ModelProto:
    steps = [onnx.helper.make_node("Add", ["a", "row"], ["b"]), onnx.helper.make_node("Identity", ["b"], ["out"])]
    ins, outs = [("a", 1, [4]), ("row", 1, [4])], [("b", 1, [4]), ("out", 1, [4])]
    nodes = [onnx.helper.make_node("Scan", ["s", "x"], ["last", Y], body=body(ins, steps, outs), num_scan_inputs=1)]
    return network(nodes, {"x": ROW}, [Y], {"s": np.zeros(4, F)})


PLAIN = [
    *(op.names.onnx for op in FUNCTIONS.values() if op.names.onnx),
    *("Ceil", "Floor", "Round", "Sign", "Neg", "Identity", "Transpose", "Dropout", "Flatten"),
    *("Celu", "Elu", "Erf", "HardSigmoid", "LeakyRelu", "Mish", "Reciprocal", "Selu", "Softsign", "ThresholdedRelu"),
    *("LogSoftmax", "Softmax", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
    *("ReduceSum", "ReduceSumSquare", "ReduceLogSum", "Shrink"),
]
TWO = ["Add", "Div", "Max", "Mean", "Min", "Mul", "PRelu", "Sub", "Sum"]
MODELS: dict[str, Any] = {
    **{op: lambda op=op: node(op) for op in PLAIN},
    **{op: lambda op=op: node(op, ROW * F(2)) for op in TWO},
    **{
        op: lambda op=op: node(op, F([[1]]), then=chosen())
        for op in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **{op: lambda op=op: masked(op) for op in ("And", "Or", "Not", "Xor")},
    "IsNaN": lambda: node("IsNaN", then=chosen()),
    **{op: lambda op=op: node(op, x=IMAGE) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")},
    **{op: lambda op=op: node(op, x=IMAGE, kernel_shape=[2, 2]) for op in ("AveragePool", "MaxPool", "LpPool")},
    **{op: lambda op=op: node(op, F(np.ones((1, 1, 2, 2))), x=IMAGE) for op in ("Conv", "ConvTranspose")},
    "AffineGrid": lambda: node("AffineGrid", WHOLE([2, 1, 2, 2]), x=X.reshape(2, 2, 3)),
    "CenterCropPad": lambda: node("CenterCropPad", WHOLE([2, 6])),
    "MeanVarianceNormalization": lambda: node("MeanVarianceNormalization", x=IMAGE),
    "NegativeLogLikelihoodLoss": lambda: node("NegativeLogLikelihoodLoss", WHOLE([0, 3, 1])),
    "SoftmaxCrossEntropyLoss": lambda: node("SoftmaxCrossEntropyLoss", WHOLE([0, 3, 1])),
    "ArgMax": lambda: around("ArgMax", "c", constants={"c": ROW}, axis=1),
    "ArgMin": lambda: around("ArgMin", "c", constants={"c": ROW}, axis=1),
    "BatchNormalization": lambda: node("BatchNormalization", *(F([1]),) * 4, x=IMAGE),
    "Cast": lambda: node("Cast", to=1),
    "CastLike": lambda: node("CastLike", F([1])),
    "Clip": lambda: node("Clip", F(0.5), F(1)),
    "Concat": lambda: node("Concat", ROW, axis=0),
    "Constant": lambda: network(
        [onnx.helper.make_node("Constant", [], ["c"], value_float=2.0), onnx.helper.make_node("Mul", ["x", "c"], [Y])],
        {"x": ROW},
        [Y],
    ),
    "ConstantOfShape": lambda: around("ConstantOfShape", "c", constants={"c": WHOLE([3, 4])}),
    "CumSum": lambda: node("CumSum", WHOLE(1)),
    "DepthToSpace": lambda: node("DepthToSpace", x=X.reshape(1, 4, 1, 3), blocksize=2),
    "Einsum": lambda: node("Einsum", ROW.T, equation="ij,jk->ik"),
    "Equal": lambda: node("Equal", F([[9]]), then=chosen()),
    "Expand": lambda: node("Expand", WHOLE([2, 3, 4])),
    "GridSample": lambda: node("GridSample", np.zeros((1, 2, 2, 2), F), x=IMAGE, align_corners=1),
    "GRU": lambda: recurrent("GRU", 3),
    "If": branch,
    "Loop": loop,
    "LSTM": lambda: recurrent("LSTM", 4),
    "OneHot": lambda: around("OneHot", "c", "d", "v", constants={"c": WHOLE([0, 1, 2]), "d": WHOLE(4), "v": F([0, 1])}),
    "RNN": lambda: recurrent("RNN", 1),
    "RoiAlign": lambda: node(
        "RoiAlign", F([[0, 0, 2, 2]]), WHOLE([0]), x=IMAGE, sampling_ratio=1, output_height=2, output_width=2
    ),
    "Scan": scan,
    "Gather": lambda: node("Gather", WHOLE([0, 2])),
    "GatherElements": lambda: node("GatherElements", np.zeros((3, 4), WHOLE)),
    "GatherND": lambda: node("GatherND", WHOLE([[0], [1]])),
    "Gemm": lambda: node("Gemm", ROW.T),
    "GroupNormalization": lambda: node(
        "GroupNormalization", F([1, 1]), F([0, 0]), x=X.reshape(1, 2, 6), num_groups=1, epsilon=0.1
    ),
    "InstanceNormalization": lambda: node("InstanceNormalization", F([1]), F([0]), x=IMAGE, epsilon=0.1),
    "LayerNormalization": lambda: node("LayerNormalization", np.ones(4, F), epsilon=0.1),
    "LRN": lambda: node("LRN", x=IMAGE, size=1),
    "MatMul": lambda: node("MatMul", ROW.T),
    "MaxUnpool": lambda: node("MaxUnpool", WHOLE([[[[0, 2]]]]), x=IMAGE[:, :, :1, :2], kernel_shape=[1, 2]),
    "Mod": lambda: around("Mod", "c", "d", constants={"c": WHOLE([[7]]), "d": WHOLE([[4]])}),
    "Pad": lambda: node("Pad", WHOLE([0, 1, 0, 1])),
    "Pow": lambda: node("Pow", F(2)),
    "Range": lambda: around("Range", "a", "b", "c", constants={"a": WHOLE(0), "b": WHOLE(4), "c": WHOLE(1)}),
    "Reshape": lambda: node("Reshape", WHOLE([4, 3])),
    "Resize": lambda: node("Resize", None, F([1, 1, 2, 2]), x=IMAGE),
    "ScatterElements": lambda: node("ScatterElements", np.zeros((1, 4), WHOLE), np.ones((1, 4), F), reduction="add"),
    "ScatterND": lambda: node("ScatterND", WHOLE([[0]]), np.ones((1, 4), F)),
    "Shape": lambda: around("Shape", "x", start=1),
    "Size": lambda: around("Size", "x"),
    "Slice": lambda: node("Slice", WHOLE([1]), WHOLE([3])),
    "SpaceToDepth": lambda: node("SpaceToDepth", x=X.reshape(1, 3, 2, 2), blocksize=2),
    "Split": split,
    "Squeeze": lambda: node("Squeeze", WHOLE([0]), x=IMAGE),
    "Tile": lambda: node("Tile", WHOLE([2, 1])),
    "TopK": top,
    "Trilu": lambda: node("Trilu"),
    "Unsqueeze": lambda: node("Unsqueeze", WHOLE([0])),
    "Where": lambda: network(
        [onnx.helper.make_node("Where", ["m", "x", "c"], [Y])], {"x": ROW}, [Y], {"m": ROW > 1, "c": ROW}
    ),
}
NEWER = {
    "Attention",
    "CausalConvWithState",
    "LinearAttention",
    "RMSNormalization",
    "RotaryEmbedding",
    "SwiGLU",
    "Scatter",
    "Swish",
    "Upsample",
}  # of opsets that these models do not have


@pytest.mark.parametrize("op", sorted(onnx_operators()))
def test_a_supported_operator_is_bounded(op: str) -> None:
    if op in NEWER:
        pytest.skip("no model of opset 22 has it")
    model = MODELS[op]().SerializeToString()
    refuse_other_formats(model)
    graph = deployed_graph(from_onnx(model))
    x = next(iter(graph.nodes[p] for p in graph.input_positions)).shape
    bounds = crown(graph, Box.around(X[: int(np.prod(x))].reshape(x).astype(float), 2.0**-10)).outputs
    assert np.isfinite(bounds.low).all()
    assert np.isfinite(bounds.high).all()


def test_what_is_left_out_is_known_and_refused() -> None:
    assert set(all_operators()) >= REFUSED | OTHER_FORMATS
    assert not (REFUSED | OTHER_FORMATS) & set(onnx_operators())
    offsets = (np.ones((1, 1, 2, 2), F), np.zeros((1, 8, 2, 3), F))
    with pytest.raises(SpecgradError):
        from_onnx(node("DeformConv", *offsets, x=IMAGE).SerializeToString())
