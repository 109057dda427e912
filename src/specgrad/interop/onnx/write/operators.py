"""Writes operators without windows as ONNX nodes.

All functions of the table have one signature: the writer, the node, the names of its arguments and their shapes; they
add nodes to the writer and return the name of the result.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from specgrad.graph.graph import Node
from specgrad.op import REGISTRY
from specgrad.window import Shape

from .writer import Emitter, Writer, emit_named, emits

# --- one operator each --------------------------------------------------------------------------------------------

COMPARISONS = {"greater": "Greater", "greater_equal": "GreaterOrEqual", "less": "Less", "equal": "Equal"}


def _comparison(op: str) -> Emitter:
    """Return the emitter of the comparison `op`, an ONNX operator, whose booleans are cast to the model's type."""
    return lambda w, node, args, shapes: w.emit("Cast", w.emit(op, *args), to=w.elem_type)


for _record in REGISTRY.values():
    if (_emitter := emit_named(_record)) is not None:
        emits(_record.name)(_emitter)
for _name, _op in COMPARISONS.items():
    emits(_name)(_comparison(_op))


# --- elementwise --------------------------------------------------------------------------------------------------


@emits("fmod")
def _fmod(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `fmod` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.emit("Mod", *args, fmod=1)


@emits("select")
def _select(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `select` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.emit("Where", w.emit("Equal", args[0], w.number(0)), args[2], args[1])


@emits("fill")
def _fill(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `fill` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.emit("Expand", w.number(node.params["value"]), w.ints(node.shape))


@emits("power", "root")
def _power(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `power`, `root` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    A third is no float: x ** (1/p) is exp(log(x) / p) where 1/p is not a binary fraction.
    """
    exponent = node.params["exponent"]
    if exponent == Fraction(1, 2):
        return w.emit("Sqrt", args[0])
    if isinstance(exponent, Fraction) and exponent.denominator & (exponent.denominator - 1):
        scaled = w.emit("Mul", w.emit("Log", args[0]), w.number(exponent.numerator))
        return w.emit("Exp", w.emit("Div", scaled, w.number(exponent.denominator)))
    return w.emit("Pow", args[0], w.number(exponent))


@emits("leaky_relu")
def _leaky_relu(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `leaky_relu` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.emit("PRelu", args[0], w.number(node.params["slope"]))


@emits("relu6")
def _relu6(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `relu6` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.emit("Clip", args[0], w.number(0), w.number(6))


@emits("clamp")
def _clamp(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `clamp` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    low, high = (node.params[k] for k in ("low", "high"))
    return w.emit("Clip", args[0], "" if low is None else w.number(low), "" if high is None else w.number(high))


@emits("quantize")
def _quantize(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `quantize` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    As numbers of the model's type; QuantizeLinear wants a zero point of the integers' own.
    """
    low, high = (node.params[k] for k in ("low", "high"))
    y = w.emit("Add", w.emit("Round", w.emit("Div", args[0], args[1])), args[2])
    if low is None and high is None:
        return y
    return w.emit("Clip", y, "" if low is None else w.number(low), "" if high is None else w.number(high))


@emits("cast")
def _cast(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `cast` of the values `args`, of these shapes, as ONNX nodes: through the format and back to the model's.

    UnsupportedError for 8-bit formats. Returns the name of the result.
    """
    types = {"float16": 10, "bfloat16": 16, "float32": 1, "float64": 11}
    to = types.get(node.params["dtype"])
    if to is None:
        return w.refuse(node, "to 8 bits is not written: ONNX saturates there by default")
    return w.emit("Cast", w.emit("Cast", args[0], to=to), to=w.elem_type)


@emits("silu")
def _silu(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `silu` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.emit("Mul", args[0], w.emit("Sigmoid", args[0]))


@emits("softplus")
def _softplus(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `softplus` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    beta = node.params["beta"]
    if beta == 1:
        return w.emit("Softplus", args[0])
    return w.emit("Div", w.emit("Softplus", w.emit("Mul", args[0], w.number(beta))), w.number(beta))


@emits("normal_cdf")
def _normal_cdf(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `normal_cdf` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    y = w.emit("Erf", w.emit("Div", args[0], w.number(math.sqrt(2))))
    return w.emit("Mul", w.emit("Add", y, w.number(1)), w.number(0.5))


@emits("normal_pdf")
def _normal_pdf(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `normal_pdf` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    square = w.emit("Mul", w.emit("Mul", args[0], args[0]), w.number(-0.5))
    return w.emit("Div", w.emit("Exp", square), w.number(math.sqrt(2 * math.pi)))


# --- layout -------------------------------------------------------------------------------------------------------


@emits("reshape")
def _reshape(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `reshape` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.reshape(args[0], shapes[0], node.shape)


@emits("permute")
def _permute(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `permute` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.emit("Transpose", args[0], perm=list(node.params["order"]))


@emits("slice")
def _slice(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `slice` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    ranges = node.params["ranges"]
    if not ranges:
        return args[0]
    starts, stops, steps = zip(*ranges, strict=True)
    return w.emit("Slice", args[0], *map(w.ints, (starts, stops, range(len(ranges)), steps)))


@emits("pad")
def _pad(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `pad` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    Gaps first: a new axis behind each gapped one is padded and merged, its last gap cut off.
    """
    widths, x, shape = node.params["widths"], args[0], shapes[0]
    for axis, (_, _, gap) in enumerate(widths):
        if gap and shape[axis] > 1:
            x, shape = _insert_gaps(w, x, shape, axis, gap)
    return w.pad(x, [(lo, hi) for lo, hi, _ in widths], len(shape))


def _insert_gaps(w: Writer, x: str, shape: Shape, axis: int, gap: int) -> tuple[str, Shape]:
    """Write nodes that insert `gap` zeros between the cells of one axis of x; return the name and shape of the
    result.
    """
    n = shape[axis]
    split = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    x = w.pad(w.reshape(x, shape, split), [(0, gap), *[(0, 0)] * (len(shape) - axis - 1)], len(split))
    merged = (*shape[:axis], n * (gap + 1), *shape[axis + 1 :])
    x = w.emit("Reshape", x, w.ints(merged), allowzero=int(0 in merged))
    return w.slice(x, axis, 0, n * (gap + 1) - gap), (*shape[:axis], n * (gap + 1) - gap, *shape[axis + 1 :])


@emits("concat")
def _concat(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `concat` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.concat(args, node.params["axis"])


@emits("broadcast")
def _broadcast(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `broadcast` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.emit("Expand", args[0], w.ints(node.shape))


def _reduction(op: str) -> Emitter:
    """Return the emitter of the reduction `op`, an ONNX operator, over the node's axes."""

    def write(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
        axes = node.params["axes"]
        return w.emit(op, args[0], w.ints(axes), keepdims=0) if axes else args[0]

    return write


emits("sum")(_reduction("ReduceSum"))
emits("amax")(_reduction("ReduceMax"))


# --- products and indices -----------------------------------------------------------------------------------------


@emits("contract")
def _contract(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `contract` of the values `args`, of these shapes, as ONNX nodes: a matrix product as Gemm, anything else as
    Einsum.

    Returns the name of the result.
    """
    spec = node.params["spec"]
    given, _, out = spec.partition("->")
    x, z = given.split(",")
    inner = set(x) & set(z) - set(out)
    if len(x) == len(z) == len(out) == 2 and len(inner) == 1 and out[0] in x and out[1] in z:
        letter = inner.pop()
        return w.emit("Gemm", *args, transA=int(x[0] == letter), transB=int(z[1] == letter))
    return w.emit("Einsum", *args, equation=spec)


def _flatten_spatial(w: Writer, x: str, shape: Shape, rank: int) -> tuple[str, Shape]:
    """Write a Reshape of x, of this shape, that merges the last `rank` axes; return the name and shape of the
    result.
    """
    new = (*shape[: len(shape) - rank], math.prod(shape[len(shape) - rank :]))
    return w.reshape(x, shape, new), new


@emits("take")
def _take(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `take` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    GatherElements along the flat spatial axes; where the index is -1 the value is 0. UnsupportedError: taking from no
    cells.
    """
    rank, empty = node.params["rank"], node.params["empty"]
    if math.prod(shapes[0][len(shapes[0]) - rank :]) == 0:
        return w.refuse(node, "from no cells is not written")
    x, _ = _flatten_spatial(w, args[0], shapes[0], rank)
    index, shape = _flatten_spatial(w, args[1], shapes[1], rank)
    zero = w.ints([0])
    y = w.emit("GatherElements", x, w.emit("Max", index, zero) if empty else index, axis=len(shape) - 1)
    if empty:
        y = w.emit("Where", w.emit("Less", index, zero), w.number(0), y)
    return w.reshape(y, shape, node.shape)


@emits("resize")
def _resize(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `resize` of the values `args`, of these shapes, as ONNX nodes: by sizes where they say the step, else by
    scales, which are float32 numbers.

    UnsupportedError: steps that no scale in float32 says. Returns the name of the result.
    """
    p = node.params
    where, how = _coordinates(w, node)
    cells = [shapes[0][a] for a in p["axes"]]
    scales = [1 / Fraction(s) for s in p["steps"]]
    given = ["", "", "", w.ints(p["sizes"])]
    if any(s * n != m for s, n, m in zip(scales, cells, p["sizes"], strict=True)):
        stored = np.array([float(s) for s in scales], np.float32)
        if [Fraction(float(s)) for s in stored] != scales or p["sizes"] != tuple(
            math.floor(n * s) for n, s in zip(cells, scales, strict=True)
        ):
            return w.refuse(node, "has a step that no scale in float32 says")
        given = ["", "", w.store(stored)]
    mode = {"mode": "linear"} if how == "linear" else {"mode": "nearest", "nearest_mode": how}
    x, axes, rank = args[0], list(p["axes"]), len(shapes[0])
    if axes == list(range(rank - len(axes), rank)):  # (N, C, *spatial), which runtimes know best
        x, axes = w.planes(x, shapes[0], len(axes))[0], list(range(2, 2 + len(axes)))
    y = w.emit("Resize", x, *given[1:], axes=axes, coordinate_transformation_mode=where, **mode)
    return y if x == args[0] else w.emit("Reshape", y, w.ints(node.shape), allowzero=int(0 in node.shape))


def _coordinates(w: Writer, node: Node) -> tuple[str, str]:
    """Return ONNX's coordinate and rounding modes for a resize node.

    Floor((o + 1/2)*step) is half_pixel rounded, halves up. UnsupportedError: other roundings of these.
    """
    where, how = node.params["where"], node.params["how"]
    if where != "tf_half_pixel_for_nn":
        return where, how
    return ("half_pixel", "round_prefer_ceil") if how == "floor" else w.refuse(node, f"by {where} is not written")


@emits("cumsum")
def _cumsum(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `cumsum` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    p = node.params
    axis = w.store(np.array(p["axis"], np.int64))
    return w.emit("CumSum", args[0], axis, exclusive=int(p["exclusive"]), reverse=int(p["reverse"]))


@emits("top", "top_index")
def _top(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `top`, `top_index` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    TopK, whose second output are the positions; the last of equal cells is ArgMax alone. UnsupportedError: no cells,
    and the last of equal ones but for one position of the largest.
    """
    p, index = node.params, node.op.name == "top_index"
    if p["k"] == 0 or (p.get("last") and (p["k"] > 1 or not p["largest"])):
        return w.refuse(node, "of no cells, or of the last of equal ones, is not written")
    if index and p["k"] == 1 and p["largest"]:
        return w.emit("ArgMax", args[0], axis=p["axis"], keepdims=1, select_last_index=int(p["last"]))
    given = {"axis": p["axis"], "largest": int(p["largest"]), "sorted": 1}
    return w.emit_many("TopK", [args[0], w.ints([p["k"]])], 2, given)[int(index)]


@emits("gather")
def _gather(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `gather` of the values `args`, of these shapes, as ONNX nodes; return the name of the result."""
    return w.emit("Gather", *args, axis=node.params["axis"])


@emits("scatter")
def _scatter(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `scatter` of the values `args`, of these shapes, as ONNX nodes: ScatterElements that adds, onto zeros.

    It wants one position per cell. Returns the name of the result.
    """
    axis, (shape, index) = node.params["axis"], shapes
    flat = (*shape[:axis], math.prod(index), *shape[axis + len(index) :])
    column = (math.prod(index), *(1,) * (len(flat) - axis - 1))
    where = w.emit("Expand", w.reshape(args[1], index, column), w.ints(flat))
    zeros = w.emit("Expand", w.number(0), w.ints(node.shape))
    return w.emit("ScatterElements", zeros, where, w.reshape(args[0], shape, flat), axis=axis, reduction="add")


@emits("put")
def _put(w: Writer, node: Node, args: list[str], shapes: list[Shape]) -> str:
    """Write `put` of the values `args`, of these shapes, as ONNX nodes; return the name of the result.

    ScatterElements that adds, onto zeros; where the index is -1 a zero is added to cell 0.
    """
    size, empty = node.params["size"], node.params["empty"]
    values, shape = _flatten_spatial(w, args[0], shapes[0], len(size))
    index, _ = _flatten_spatial(w, args[1], shapes[1], len(size))
    if empty:
        zero = w.ints([0])
        values = w.emit("Where", w.emit("Less", index, zero), w.number(0), values)
        index = w.emit("Max", index, zero)
    target = (*shape[:-1], math.prod(size))
    zeros = w.emit("Expand", w.number(0), w.ints(target))
    y = w.emit("ScatterElements", zeros, index, values, axis=len(shape) - 1, reduction="add")
    return w.reshape(y, target, node.shape)
