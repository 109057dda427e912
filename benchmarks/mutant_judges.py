"""What runtimes say of two ONNX files: float32 by ONNX Runtime, not optimised, and float64 by onnx's reference.

The reference evaluator is Python over NumPy and computes in the types that it is given; a file whose float32 numbers
are turned into float64 ones is computed in float64. Five operators, of which that is not so, are written here. Of a
file with operators of ONNX Runtime's own the float64 values are those of the file that the tool was given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

Array = np.ndarray
ROUGH, AGREE = 2e-3, 1e-9  # of the largest output: float32 beside float64; one function
SMALL, FOLDED = 1e-11, 1e-5  # what float64 is off itself; where it is that of the file that a tool was given
FOLDINGS, DRAWS, SLACK = 16, 6, 4  # constants are moved by so many 2**-24, so often; such a multiple is allowed
JUMPS = {"QuantizeLinear", "Round", "Floor", "Ceil", "Sign", "ArgMax"}
FIXED = {("Pow", 1), ("Resize", 1), ("Resize", 2)}
"""Exponents and scales of sizes, which no tool folds: moved, they are of NaN, and of another shape."""


@dataclass(frozen=True)
class File:
    """A file, and the one of standard operators that has its float64 values: itself, or what a tool was given."""

    model: ModelProto
    source: ModelProto

    @property
    def jumps(self) -> bool:
        return any(n.op_type in JUMPS for n in self.source.graph.node)


def file_of(model: ModelProto, source: File | None = None) -> File:
    plain = all(n.domain in ("", "ai.onnx") for n in model.graph.node)
    return File(model, model if plain or source is None else source.source)


# --- float32 ----------------------------------------------------------------------------------------------------------


def session(model: ModelProto) -> Any:
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def in_float32(model: ModelProto, inputs: list[dict[str, Array]]) -> list[list[Array]]:
    run = session(model)
    return [[np.asarray(y, float) for y in run.run(None, given)] for given in inputs]


# --- float64 ----------------------------------------------------------------------------------------------------------


def widened(model: ModelProto, moved: np.random.Generator | None = None) -> ModelProto:
    """The model with float64 in the place of float32; with `moved`, each number a little off, as folding would."""
    wide = ModelProto.FromString(model.SerializeToString())
    del wide.graph.value_info[:]
    for end in (*wide.graph.input, *wide.graph.output):
        end.type.tensor_type.elem_type = {1: 11}.get(end.type.tensor_type.elem_type, end.type.tensor_type.elem_type)
    fixed = {name for n in wide.graph.node for k, name in enumerate(n.input) if (n.op_type, k) in FIXED}
    constants = [(n.output[0], a.t) for n in wide.graph.node for a in n.attribute if a.type == a.TENSOR]
    for name, tensor in (*((t.name, t) for t in wide.graph.initializer), *constants):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(float)
            if moved is not None and name not in fixed:
                array = array * (1 + FOLDINGS * 2.0**-24 * moved.choice((-1, 1), array.shape))
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(array), tensor.name))
    for node in wide.graph.node:
        for a in node.attribute:
            if node.op_type == "Cast" and a.name == "to" and a.i == 1:
                a.i = 11
            if moved is not None and a.type == a.FLOAT:  # HardSwish's sixth is rounded as HardSigmoid's alpha
                a.f *= 1 + FOLDINGS * 2.0**-24 * float(moved.choice((-1, 1)))
    return wide


class Erf(OpRun):  # type: ignore[misc]
    """In float64: the reference's own rounds to float32."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.reshape([math.erf(v) for v in x.flat], x.shape),)


class HardSwish(OpRun):  # type: ignore[misc]
    """With a sixth in float64: the reference's own is a function with float32's."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (x * np.clip(x / 6 + 0.5, 0, 1),)


class Gelu(OpRun):  # type: ignore[misc]
    """By both formulas in float64: the reference's own are functions with float32's numbers."""

    op_domain = ""

    def _run(self, x: Array, approximate: Any = None) -> tuple[Array]:
        if approximate == "tanh":
            return (x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),)
        return (x / 2 * (1 + np.reshape([math.erf(v / math.sqrt(2)) for v in x.flat], x.shape)),)


class BatchNormalization(OpRun):  # type: ignore[misc]
    """With the statistics that it is given: the reference's own, of opset 9, takes those of its input."""

    op_domain = ""

    def _run(self, x: Array, scale: Array, bias: Array, mean: Array, var: Array, **given: Any) -> tuple[Array]:
        eps = given.get("epsilon")
        rate = scale / np.sqrt(var + (1e-5 if eps is None else eps))
        spread = lambda a: np.reshape(a, (-1, *[1] * (x.ndim - 2)))
        return ((x - spread(mean)) * spread(rate) + spread(bias),)


class Conv(OpRun):  # type: ignore[misc]
    """By PyTorch, padded first: the reference's own pads SAME_UPPER and SAME_LOWER otherwise than ONNX says."""

    op_domain = ""

    def _run(self, x: Array, w: Array, b: Any = None, **given: Any) -> tuple[Array]:
        import torch

        ranks, known = w.ndim - 2, {k: v for k, v in given.items() if v is not None}
        strides, dilations = (known.get(name, [1] * ranks) for name in ("strides", "dilations"))
        pads, where = known.get("pads", [0] * 2 * ranks), known.get("auto_pad", "NOTSET")
        if where.startswith("SAME"):
            reach = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
            rows = zip(x.shape[2:], strides, reach, strict=True)
            total = [max(0, (-(-n // s) - 1) * s + r - n) for n, s, r in rows]
            low = [t // 2 if where == "SAME_UPPER" else t - t // 2 for t in total]
            pads = [*low, *(t - n for t, n in zip(total, low, strict=True))]
        wide = np.pad(x, [(0, 0), (0, 0), *zip(pads[:ranks], pads[ranks:], strict=True)])
        arrays = [None if a is None else torch.from_numpy(np.asarray(a, float)) for a in (wide, w, b)]
        conv = (torch.conv1d, torch.conv2d, torch.conv3d)[ranks - 1]
        y = conv(*arrays, stride=list(strides), dilation=list(dilations), groups=known.get("group", 1))
        return (y.numpy(),)


def in_float64(model: ModelProto, inputs: list[dict[str, Array]], moved: Any = None) -> list[list[Array]]:
    run = ReferenceEvaluator(widened(model, moved), new_ops=[Erf, HardSwish, Gelu, BatchNormalization, Conv])
    wide = [{k: v.astype(float) if v.dtype.kind == "f" else v for k, v in given.items()} for given in inputs]
    with np.errstate(all="ignore"):
        return [[np.asarray(y, float) for y in run.run(None, given)] for given in wide]


# --- inputs -----------------------------------------------------------------------------------------------------------


def drawn_inputs(shapes: dict[str, tuple[int, ...]], seed: int, structured: bool) -> list[dict[str, Array]]:
    """Normal numbers of three sizes; with `structured` also zeros, ones, a ramp and one cell alone."""
    rng = np.random.default_rng(seed)
    makers: list[Any] = [lambda s, size=size: size * rng.normal(size=s) for size in (1, 1, 6, 0.1)]
    if structured:
        makers += [np.zeros, np.ones, lambda s: np.linspace(-2, 3, int(np.prod(s))).reshape(s)]
        makers += [lambda s: 4.0 * (np.arange(np.prod(s)).reshape(s) == np.prod(s) // 2)]
    return [{name: make(s).astype(np.float32) for name, s in shapes.items()} for make in makers]


# --- the judgement ----------------------------------------------------------------------------------------------------


def size_of(*values: list[Array]) -> float:
    return max((float(np.nan_to_num(abs(y), posinf=0).max(initial=0)) for each in values for y in each), default=0.0)


def apart(a: list[Array], b: list[Array]) -> float:
    """The largest distance of cells that are numbers in both; inf for other shapes."""
    if [x.shape for x in a] != [y.shape for y in b]:
        return np.inf
    with np.errstate(invalid="ignore"):
        cells = [abs(x - y) for x, y in zip(a, b, strict=True)]
    return max((float(c[np.isfinite(c)].max(initial=0)) for c in cells), default=0.0)


@dataclass
class Evidence:
    """Both files' values at the inputs; `share` is the largest distance in float64, relative to the outputs."""

    a: File
    b: File
    inputs: list[dict[str, Array]]

    def __post_init__(self) -> None:
        self.wide = [in_float64(f.source, self.inputs) for f in (self.a, self.b)]
        self.narrow = [in_float32(f.model, self.inputs) for f in (self.a, self.b)]

    @property
    def share(self) -> float:
        return max(apart(p, q) / (size_of(p, q) + 1e-30) for p, q in zip(*self.wide, strict=True))

    def judges_disagree(self) -> bool:
        """Whether float32 and float64 of one file are farther apart than float32 explains in so small a network."""
        both = [(n, w) for k in (0, 1) for n, w in zip(self.narrow[k], self.wide[k], strict=True)]
        jumps = self.a.jumps or self.b.jumps
        return not jumps and any(apart(n, w) > ROUGH * (size_of(w) + 1e-3) for n, w in both)

    def same(self) -> bool:
        far = [apart(p, q) > AGREE * size_of(p, q) + 1e-12 for p, q in zip(*self.wide, strict=True)]
        rough = [apart(p, q) > ROUGH * (size_of(p, q) + 1e-3) for p, q in zip(*self.narrow, strict=True)]
        return not any(far) and (self.a.jumps or not any(rough))

    def within_rounding(self) -> bool:
        """Whether moving every constant by FOLDINGS roundings moves outputs as far as they are apart."""
        allowed = np.zeros(len(self.inputs))
        for wide, file in zip(self.wide, (self.a, self.b), strict=True):
            for k in range(DRAWS):
                moved = in_float64(file.source, self.inputs, np.random.default_rng(k))
                allowed = np.maximum(allowed, [apart(p, q) for p, q in zip(wide, moved, strict=True)])
        gaps = [apart(p, q) - AGREE * size_of(p, q) - 1e-12 for p, q in zip(*self.wide, strict=True)]
        return bool((np.array(gaps) <= SLACK * allowed).all())


def witnessed(a: File, b: File, point: Any, names: list[str]) -> str:
    """What float64 says of a point difference: "seen", "denied" or "beyond float64"."""
    given = [dict(zip(names, (np.asarray(x) for x in point.inputs), strict=True))]
    (p,), (q,) = (in_float64(f.source, given) for f in (a, b))
    folded = a.source is not a.model or b.source is not b.model
    slack = (FOLDED if folded else SMALL) * (size_of(p, q) + 1)
    if [x.shape for x in p] != [y.shape for y in q]:
        return "seen"
    there = float(abs(p[point.output] - q[point.output])[point.index])
    if point.lower <= slack:
        return "beyond float64" if there <= point.upper + slack else "denied"
    return "seen" if point.lower - slack <= there <= point.upper + slack else "denied"
