"""Random single nodes of every operator that files are full of, at any opset from 7 to 25 that has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_fuzz import Case, Rng, reals, shape_of

NEWEST = 25
INTEGERS = [np.dtype(t) for t in ("int8", "uint8", "int16", "uint16", "int32", "int64")]
PLAIN = ("Abs", "Neg", "Relu", "Floor", "Ceil", "Round", "Sign", "Identity", "Dropout", "GlobalMaxPool")
PLAIN += ("Sigmoid", "Tanh", "Softplus", "Softsign", "Exp", "Erf", "Sin", "Cos", "Atan", "Asinh")
PLAIN += ("Mish", "HardSwish", "Gelu")
UNARY: dict[str, dict[str, tuple[float, float]]] = {
    **{name: {} for name in PLAIN},
    "LeakyRelu": {"alpha": (-0.5, 0.5)},
    "Elu": {"alpha": (0.1, 2)},
    "Celu": {"alpha": (0.5, 2)},
    "Selu": {"alpha": (1, 2), "gamma": (1, 2)},
    "ThresholdedRelu": {"alpha": (-1, 2)},
    "HardSigmoid": {"alpha": (0.05, 0.5), "beta": (0.1, 0.9)},
    "Swish": {"alpha": (0.5, 2)},
    "Shrink": {"lambd": (0, 1), "bias": (-1, 1)},
}
"""Operators on one tensor, with the ends of their attributes."""
POSITIVE = ("Sqrt", "Log", "Reciprocal")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Pow", "Mod", "PRelu")
COMPARISONS = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
LOGIC = ("And", "Or", "Xor", "Not")
REDUCTIONS = ("Mean", "Sum", "Max", "Min", "L1", "L2", "SumSquare", "Prod", "LogSumExp", "LogSum")


def opset_of(rng: Rng, op: str, least: int = 7, most: int = NEWEST) -> int:
    """An opset that has the operator; half of the time one in which its version has just changed."""
    since = sorted({s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == op and not s.domain})
    least = max(least, since[0])
    changes = [v for v in since if least <= v <= most] or [least]
    return int(rng.choice(changes)) if rng.random() < 0.5 else int(rng.integers(least, most + 1))


def floating(rng: Rng, ends: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Some of the attributes, between their ends."""
    return {k: float(np.float32(rng.uniform(*e))) for k, e in ends.items() if rng.random() < 0.7}


def whole(rng: Rng, dtype: Any, *shape: int, small: bool = False) -> np.ndarray:
    """Integers of a type, `small` ones so that products of a few do not wrap."""
    limits = np.iinfo(dtype)
    low, high = (max(limits.min, -5), 6) if small else (max(limits.min, -1000), min(limits.max, 1000) + 1)
    return np.asarray(rng.integers(low, high, size=shape)).astype(dtype)


def masks(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    """Booleans."""
    return np.asarray(rng.random(shape) < 0.5)


def stretched(rng: Rng, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts with another: some sizes 1, some leading axes left out."""
    part = shape[rng.integers(0, len(shape) + 1) :]
    return tuple(1 if rng.random() < 0.3 else n for n in part)


# --- cell by cell ---------------------------------------------------------------------------------------------------


def _one_tensor(rng: Rng) -> Case:
    op = str(rng.choice([*UNARY, *POSITIVE]))
    given = floating(rng, UNARY.get(op, {}))
    if op == "Gelu" and rng.random() < 0.5:
        given["approximate"] = "tanh"
    shape = shape_of(rng, 3, 5) if op == "GlobalMaxPool" else shape_of(rng, 0)
    x = reals(rng, *shape)
    x = np.abs(x) + np.float32(0.25) if op in POSITIVE else x
    return op, [x], given, 99, opset_of(rng, op)


def _two_tensors(rng: Rng) -> Case:
    op, shape = str(rng.choice(BINARY)), shape_of(rng)
    opset = opset_of(rng, op, 8 if op in ("Max", "Min", "Sum", "Mean") else 7)
    a, b = reals(rng, *shape), reals(rng, *(shape if op == "PRelu" else stretched(rng, shape)))
    if op in ("Div", "Mod"):
        b = np.where(b == 0, np.float32(1.5), b)
    if op == "Pow":
        exponent = rng.choice([-2, -0.5, 0.5, 1, 2, 3, 2.5])
        b = np.full(rng.choice([0, 1]) * (1,), exponent, np.float32)
        a = np.abs(a) + np.float32(0.25) if exponent != int(exponent) or exponent < 0 else a
    if op == "PRelu":
        b = b[..., :1] if rng.random() < 0.5 else b
    values = [a, b]
    if op not in ("Pow", "Mod", "PRelu", "Div") and rng.random() < 0.4:
        values.reverse()
    if op in ("Max", "Min", "Sum", "Mean") and rng.random() < 0.5:
        values.append(reals(rng, *stretched(rng, shape)))
    return op, values, {"fmod": 1} if op == "Mod" else {}, int(rng.integers(1, 3)), opset


def _integers(rng: Rng) -> Case:
    op = str(rng.choice([*BINARY[:6], "Mod", "Abs", "Neg", "Sign", "Clip", "CumSum", "MatMul"]))
    dtype, shape = rng.choice(["int32", "int64"]), shape_of(rng)
    least = {"Max": 12, "Min": 12, "Clip": 12, "MatMul": 9}.get(op, 7)
    a, known = whole(rng, dtype, *shape), int(rng.integers(0, 3))
    opset = opset_of(rng, op, least)
    if op == "MatMul":
        return op, [a, whole(rng, dtype, shape[-1], 2)], {}, known, opset
    if op in ("Abs", "Neg", "Sign"):
        return op, [a], {}, 99 if known else 0, opset
    if op == "Clip":
        ends = [np.array(v, dtype) for v in sorted(rng.integers(-500, 500, size=2))]
        return op, [a, *ends], {}, min(known, 1), opset
    if op == "CumSum":
        given = {"exclusive": int(rng.integers(2)), "reverse": int(rng.integers(2))}
        return op, [a, np.array(rng.integers(-len(shape), len(shape)))], given, min(known, 1), opset
    b = whole(rng, dtype, *stretched(rng, shape))
    if op in ("Div", "Mod"):
        b = np.where(b == 0, 7, b).astype(dtype)
    return op, [a, b], {"fmod": int(rng.integers(2))} if op == "Mod" else {}, known, opset


def _comparison(rng: Rng) -> Case:
    op, shape = str(rng.choice(COMPARISONS)), shape_of(rng)
    other = stretched(rng, shape)
    if rng.random() < 0.5:
        values = [reals(rng, *shape), reals(rng, *other)]
        return op, values, {}, int(rng.integers(0, 3)), opset_of(rng, op, 11 if op == "Equal" else 7)
    dtype = rng.choice(["int32", "int64"])
    values = [whole(rng, dtype, *s, small=True) for s in (shape, other)]
    return op, values, {}, int(rng.integers(0, 3)), opset_of(rng, op, 9)


def _logic(rng: Rng) -> Case:
    op, shape = str(rng.choice(LOGIC)), shape_of(rng)
    values = [masks(rng, shape), masks(rng, stretched(rng, shape))][: 1 if op == "Not" else 2]
    return op, values, {}, int(rng.integers(0, 3)), opset_of(rng, op)


def _is_nan(rng: Rng) -> Case:
    return "IsNaN", [reals(rng, *shape_of(rng, 0))], {}, 99, opset_of(rng, "IsNaN")


def _where(rng: Rng) -> Case:
    shape = shape_of(rng)
    dtype = rng.choice(["float32", "int32", "int64", "bool"])
    parts = [stretched(rng, shape), shape]
    if dtype == "bool":
        yes, no = (masks(rng, p) for p in parts)
    else:
        yes, no = (reals(rng, *p) if dtype == "float32" else whole(rng, dtype, *p) for p in parts)
    chosen = masks(rng, stretched(rng, shape))
    return "Where", [chosen, yes, no], {}, int(rng.integers(0, 4)), opset_of(rng, "Where")


def _clip(rng: Rng) -> Case:
    x, ends = reals(rng, *shape_of(rng, 0)), np.sort(reals(rng, 2))
    opset = opset_of(rng, "Clip")
    if opset < 11:
        return (
            "Clip",
            [x],
            {k: float(v) for k, v in zip(("min", "max"), ends, strict=True) if rng.random() < 0.7},
            99,
            opset,
        )
    limits = [np.array(v) if rng.random() < 0.7 else None for v in ends]
    return "Clip", [x, *limits], {}, 1, opset


def _cast(rng: Rng) -> Case:
    """Between all types that are read, of numbers that the target holds."""
    names = ["float32", "float64", "float16", "bool", *map(str, INTEGERS), "uint32", "uint64"]
    source, target = rng.choice(names, size=2)
    x = rng.normal(size=shape_of(rng, 0)) * 2.0 ** rng.integers(0, 6)
    x = np.abs(x) if "u" in source or "u" in target else x
    value = (x > 0) if source == "bool" else x.astype(source)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    return "Cast", [value], {"to": int(to)}, 99 if rng.random() < 0.7 else 0, opset_of(rng, "Cast", 9)


# --- along axes -----------------------------------------------------------------------------------------------------


def _reduction(rng: Rng) -> Case:
    op, shape = f"Reduce{rng.choice(REDUCTIONS)}", shape_of(rng)
    axes = rng.permutation(len(shape))[: rng.integers(0, len(shape) + 1)]
    opset = opset_of(rng, op)
    if opset >= 11:
        axes = np.where(rng.random(len(axes)) < 0.5, axes - len(shape), axes)
    x = np.abs(reals(rng, *shape)) + np.float32(0.5) if op == "ReduceLogSum" else reals(rng, *shape)
    if op in ("ReduceSum", "ReduceMax", "ReduceMin") and opset >= 12 and rng.random() < 0.3:
        x = whole(rng, rng.choice(["int32", "int64"]), *shape)
    given: dict[str, Any] = {"keepdims": int(rng.integers(2))}
    if opset >= (13 if op == "ReduceSum" else 18):
        return op, [x, axes.astype(np.int64)] if len(axes) else [x], given, int(rng.random() < 0.9), opset
    return op, [x], given | ({"axes": axes.tolist()} if len(axes) else {}), int(rng.random() < 0.9) * 99, opset


def _extreme(rng: Rng) -> Case:
    op, shape = str(rng.choice(["ArgMax", "ArgMin"])), shape_of(rng)
    opset = opset_of(rng, op)
    axis = int(rng.integers(-len(shape) * (opset >= 11), len(shape)))
    given = {"axis": axis, "keepdims": int(rng.integers(2))}
    if opset >= 12:
        given["select_last_index"] = int(rng.integers(2))
    return op, [reals(rng, *shape)], given, 99, opset


def _top(rng: Rng) -> Case:
    shape, opset = shape_of(rng), opset_of(rng, "TopK")
    axis = int(rng.integers(len(shape)))
    k = int(rng.integers(1, shape[axis] + 1))
    x = rng.permutation(int(np.prod(shape))).astype(np.float32).reshape(shape)  # ties: the text says which, before 24
    if opset < 10:
        return "TopK", [x], {"axis": axis, "k": k}, 99, opset
    given = {"axis": axis} | ({"largest": int(rng.integers(2))} if opset >= 11 else {})
    return "TopK", [x, np.array([k])], given, 1, opset


def _soft(rng: Rng) -> Case:
    op, shape = str(rng.choice(["Softmax", "LogSoftmax"])), shape_of(rng)
    opset = opset_of(rng, op)
    axis = int(rng.integers(-len(shape) * (opset >= 11), len(shape)))
    default = rng.random() < 0.2 and (opset >= 13 or len(shape) > 1)
    return op, [reals(rng, *shape)], {} if default else {"axis": axis}, 99, opset


def _cumulative(rng: Rng) -> Case:
    shape = shape_of(rng)
    given = {"exclusive": int(rng.integers(2)), "reverse": int(rng.integers(2))}
    axis = np.array(rng.integers(-len(shape), len(shape)), rng.choice(["int32", "int64"]))
    return "CumSum", [reals(rng, *shape), axis], given, 1, opset_of(rng, "CumSum")


# --- products and windows -------------------------------------------------------------------------------------------


def _product(rng: Rng) -> Case:
    m, n, k = (int(v) for v in rng.integers(1, 6, size=3))
    if rng.random() < 0.5:
        given = {"transA": int(rng.integers(2)), "transB": int(rng.integers(2))}
        given |= floating(rng, {"alpha": (0.5, 2), "beta": (-2, 2)})
        a, b = (
            reals(rng, *((k, m) if given["transA"] else (m, k))),
            reals(rng, *((n, k) if given["transB"] else (k, n))),
        )
        opset = opset_of(rng, "Gemm")
        bias = [(), (1,), (n,), (1, n), (m, 1), (m, n)][rng.integers(6)]
        values = [a, b] if opset >= 11 and rng.random() < 0.2 else [a, b, reals(rng, *bias)]
        return "Gemm", values, given, int(rng.integers(1, 4)), opset
    lead = shape_of(rng, 0, 2)
    a, b = reals(rng, *lead, m, k), reals(rng, *stretched(rng, lead), k, n)
    if rng.random() < 0.2:
        a = reals(rng, k)
    if rng.random() < 0.2:
        b = reals(rng, k)
    return "MatMul", [a, b], {}, int(rng.integers(1, 3)), opset_of(rng, "MatMul")


def _window(rng: Rng, rank: int, dilated: bool = True) -> dict[str, Any]:
    kernel = [int(n) for n in rng.integers(1, 4, size=rank)]
    given: dict[str, Any] = {"kernel_shape": kernel}
    kind = rng.choice(["pads", "auto", "none"])
    if rng.random() < 0.7 or kind == "auto":
        given["strides"] = [int(rng.integers(1, (k if kind == "auto" else 3) + 1)) for k in kernel]
    if kind == "pads":
        given["pads"] = [int(rng.integers(0, k)) for k in kernel * 2]
    if kind == "auto":
        given["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    elif dilated and rng.random() < 0.5:
        given["dilations"] = [int(n) for n in rng.integers(1, 3, size=rank)]
    return given


def _convolution(rng: Rng) -> Case:
    rank, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2]))
    given, opset = _window(rng, rank) | {"group": groups}, opset_of(rng, "Conv")
    x = reals(rng, int(rng.integers(1, 3)), 2 * groups, *rng.integers(6, 9, size=rank))
    w = reals(rng, groups * int(rng.integers(1, 3)), 2, *given["kernel_shape"])
    if rng.random() < 0.3:
        del given["kernel_shape"]
    bias = [reals(rng, w.shape[0])] if rng.random() < 0.5 else []
    return "Conv", [x, w, *bias], given, int(rng.integers(1, 3)), opset


def _transposed(rng: Rng) -> Case:
    rank, groups = int(rng.integers(1, 3)), int(rng.choice([1, 2]))
    given, opset = _window(rng, rank) | {"group": groups}, opset_of(rng, "ConvTranspose", 11)
    strides = given.setdefault("strides", [1] * rank)
    if "auto_pad" not in given and rng.random() < 0.5:
        given["output_padding"] = [int(rng.integers(0, s)) for s in strides]
    x = reals(rng, 1, 2 * groups, *rng.integers(3, 6, size=rank))
    w = reals(rng, 2 * groups, int(rng.integers(1, 3)), *given["kernel_shape"])
    bias = [reals(rng, w.shape[1] * groups)] if rng.random() < 0.5 else []
    return "ConvTranspose", [x, w, *bias], given, int(rng.integers(1, 3)), opset


def _pool(rng: Rng) -> Case:
    op, rank = str(rng.choice(["MaxPool", "AveragePool", "LpPool"])), int(rng.integers(1, 4))
    opset = opset_of(rng, op)
    given = _window(rng, rank, opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op])
    if opset >= 10 and op != "LpPool" and "auto_pad" not in given:
        given["ceil_mode"] = int(rng.integers(2))
    if op == "AveragePool" and not given.get("ceil_mode"):
        given["count_include_pad"] = int(rng.integers(2))
    if op == "LpPool":
        given["p"] = int(rng.integers(1, 4))
    return op, [reals(rng, 1, 2, *rng.integers(6, 9, size=rank))], given, 99, opset


def _norm(rng: Rng) -> Case:
    op = str(
        rng.choice(["BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "LRN"])
    )
    opset = opset_of(rng, op, 21 if op == "GroupNormalization" else 7)
    channels = int(rng.choice([2, 4, 6]))
    shape = (int(rng.integers(1, 3)), channels, *shape_of(rng, 1, 3))
    x, eps = reals(rng, *shape), {"epsilon": float(np.float32(rng.choice([1e-5, 1e-2, 0.5])))}
    if op == "LRN":
        return (
            op,
            [reals(rng, *shape[:2], 3, 4)],
            floating(rng, {"alpha": (0.1, 1), "beta": (0.5, 1), "bias": (0.5, 2)})
            | {"size": int(rng.choice([1, 3, 5]))},
            99,
            opset,
        )
    rows = [reals(rng, channels) for _ in range(2)]
    if op == "BatchNormalization":
        return op, [x, *rows, reals(rng, channels), np.abs(reals(rng, channels)) + np.float32(0.1)], eps, 1, opset
    if op == "LayerNormalization":
        axis = int(rng.integers(1, len(shape)))
        part = shape[axis:]
        return op, [x, reals(rng, *part), reals(rng, *part)][: int(rng.integers(2, 4))], eps | {"axis": axis}, 1, opset
    return op, [x, *rows], eps | ({"num_groups": 2} if op == "GroupNormalization" else {}), 1, opset


# --- cells moved ----------------------------------------------------------------------------------------------------


def _shape(rng: Rng) -> Case:
    op = str(rng.choice(["Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Concat", "Tile"]))
    shape, opset = shape_of(rng), opset_of(rng, op)
    x = reals(rng, *shape) if rng.random() < 0.7 else whole(rng, "int64", *shape)
    if op == "Reshape":
        wanted = [int(n) for n in rng.permutation([*shape, 1])]
        wanted[rng.integers(len(wanted))] = -1
        return op, [x, np.array(wanted)], {}, 1, opset
    if op == "Flatten":
        return op, [x], {"axis": int(rng.integers(-len(shape) * (opset >= 11), len(shape) + 1))}, 99, max(opset, 9)
    if op == "Transpose":
        return op, [x], {"perm": [int(a) for a in rng.permutation(len(shape))]} if rng.random() < 0.8 else {}, 99, opset
    if op == "Expand":
        lead = [int(n) for n in rng.integers(1, 3, size=rng.integers(0, 2))]
        wanted = [int(rng.integers(1, 4)) if n == 1 or rng.random() < 0.3 else n for n in shape]
        x = x[tuple(slice(0, 1) if n != m else slice(None) for n, m in zip(shape, wanted, strict=True))]
        return op, [x, np.array([*lead, *wanted])], {}, 1, opset
    if op == "Tile":
        return op, [x, rng.integers(1, 4, size=len(shape))], {}, 1, opset
    if op == "Concat":
        axis = int(rng.integers(len(shape)))
        parts = [(*shape[:axis], int(rng.integers(1, 4)), *shape[axis + 1 :]) for _ in range(rng.integers(1, 4))]
        make = (lambda s: reals(rng, *s)) if x.dtype == np.float32 else (lambda s: whole(rng, "int64", *s))
        return (
            op,
            [make(p) for p in parts],
            {"axis": axis - len(shape) * int(opset >= 11 and rng.random() < 0.5)},
            99,
            opset,
        )
    places = sorted(int(a) for a in rng.permutation(len(shape) + 2)[:2])
    if op == "Squeeze":
        for a in places:
            x = np.expand_dims(x, a)
        places = places if rng.random() < 0.8 else None
    if places is None:
        return op, [x], {}, 99, opset
    return (op, [x, np.array(places)], {}, 1, opset) if opset >= 13 else (op, [x], {"axes": places}, 99, opset)


def _parts(rng: Rng) -> Case:
    shape, opset = shape_of(rng), opset_of(rng, "Split")
    axis = int(rng.integers(len(shape)))
    x = np.repeat(reals(rng, *shape), 3, axis=axis)
    sizes = [int(n) for n in rng.multinomial(x.shape[axis] - 2, [0.5, 0.5]) + 1]
    given: dict[str, Any] = {"axis": axis, "outputs": 2}
    if opset < 13:
        return "Split", [x], given | {"split": sizes}, 99, opset
    if opset >= 18 and rng.random() < 0.3:
        return "Split", [x], given | {"num_outputs": 2}, 99, opset
    return "Split", [x, np.array(sizes)], given, 1, opset


def _gather(rng: Rng) -> Case:
    shape, opset = shape_of(rng), opset_of(rng, "Gather")
    axis = int(rng.integers(len(shape)))
    known, n = int(rng.integers(0, 3)), shape[axis]
    where = rng.integers(-n if opset >= 11 and known == 1 else 0, n, size=shape_of(rng, 0, 2))
    where = np.asarray(where, rng.choice(["int32", "int64"]))
    return "Gather", [reals(rng, *shape), where], {"axis": axis}, known, opset


def _pad(rng: Rng) -> Case:
    shape, opset = tuple(n + 2 for n in shape_of(rng, 1, 3)), opset_of(rng, "Pad")
    modes = ["constant", "reflect", "edge", *(["wrap"] if opset >= 19 else [])]
    mode = str(rng.choice(modes))
    low = -1 if mode == "constant" else 0
    pads = rng.integers(low, 3, size=2 * len(shape))
    if opset < 11:
        return "Pad", [reals(rng, *shape)], {"pads": pads.tolist(), "mode": mode, "value": 1.5}, 99, opset
    value = np.float32(rng.normal()) if rng.random() < 0.5 else None
    return "Pad", [reals(rng, *shape), pads, None if value is None else np.array(value)], {"mode": mode}, 1, opset


def _blocks(rng: Rng) -> Case:
    op, block = str(rng.choice(["DepthToSpace", "SpaceToDepth"])), int(rng.choice([2, 3]))
    opset = opset_of(rng, op)
    n, c, h, w = shape_of(rng, 4, 4)
    shape = (n, c * block**2, h, w) if op == "DepthToSpace" else (n, c, h * block, w * block)
    given: dict[str, Any] = {"blocksize": block}
    if op == "DepthToSpace" and opset >= 11:
        given["mode"] = str(rng.choice(["DCR", "CRD"]))
    return op, [reals(rng, *shape)], given, 99, opset


def _resize(rng: Rng) -> Case:
    x, opset = reals(rng, *shape_of(rng, 2, 2), *rng.integers(1, 7, size=2)), opset_of(rng, "Resize", 11)
    given: dict[str, Any] = {"mode": str(rng.choice(["nearest", "linear"]))}
    modes = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
    given["coordinate_transformation_mode"] = str(rng.choice(modes))
    if given["mode"] == "nearest":
        given["nearest_mode"] = str(rng.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    roi = np.zeros(0, np.float32) if opset < 13 else None
    if rng.random() < 0.5:
        scales = np.float32([1, 1, *rng.choice([0.5, 1, 2, 1.5, 3, 0.75, 0.6], size=2)])
        return "Resize", [x, roi, scales], given, 1, opset
    sizes = np.array([*x.shape[:2], *rng.integers(1, 10, size=2)])
    return "Resize", [x, roi, np.zeros(0, np.float32) if opset < 13 else None, sizes], given, 1, opset


# --- whole numbers of quantised networks, recurrent layers ------------------------------------------------------------


def _quantised(rng: Rng) -> Case:
    op = str(rng.choice(["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"]))
    dtype, shape, opset = str(rng.choice(["int8", "uint8"])), shape_of(rng, 2, 4), opset_of(rng, op, 10)
    if op == "DynamicQuantizeLinear":
        return op, [reals(rng, *shape)], {"outputs": 3}, 99, opset
    axis = int(rng.integers(len(shape)))
    each = (shape[axis],) if opset >= 13 and rng.random() < 0.5 else ()
    scale = np.asarray(rng.uniform(0.01, 0.5, size=each)).astype(np.float32)
    zero = np.asarray(rng.integers(-20, 20, size=each) + 128 * (dtype == "uint8")).astype(dtype)
    x = reals(rng, *shape) if op == "QuantizeLinear" else whole(rng, dtype, *shape)
    return op, [x, scale, zero], {"axis": axis} if opset >= 13 else {}, 1, opset


def _integer_products(rng: Rng) -> Case:
    """Sums of products of quantised numbers, and the same quantised again."""
    op = str(rng.choice(["MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"]))
    a, b = str(rng.choice(["uint8", "int8"])) if "MatMul" in op else "uint8", str(rng.choice(["uint8", "int8"]))
    m, n, k = (int(v) for v in rng.integers(1, 6, size=3))
    zeros = [np.array(rng.integers(100, 140) if t == "uint8" else rng.integers(-9, 9)).astype(t) for t in (a, b, a)]
    scales = [np.array(v, np.float32) for v in (*rng.uniform(0.01, 0.1, size=2), rng.uniform(0.2, 2))]
    given: dict[str, Any] = {}
    if "Conv" in op:
        x, w = whole(rng, a, 1, 2, 6, 5), whole(rng, b, m, 2, 3, 2)
        given = {k: v for k, v in _window(rng, 2).items() if k in ("pads", "strides")}
    else:
        x, w = whole(rng, a, m, k), whole(rng, b, k, n)
    if "Integer" in op:
        return op, [x, w, *zeros[:2]], given, 1, opset_of(rng, op, 10)
    values = [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2]]
    if op == "QLinearConv" and rng.random() < 0.5:
        values.append(whole(rng, "int32", m))
    return op, values, given, 1, opset_of(rng, op, 10)


def _fused(rng: Rng) -> Case:
    """What ONNX Runtime's optimiser writes."""
    op = str(rng.choice(["FusedConv", "FusedMatMul", "FusedGemm", "BiasGelu", "FastGelu", "QuickGelu", "Gelu"]))
    opset, given = int(rng.integers(11, NEWEST + 1)), {"domain": "com.microsoft"}
    shape = shape_of(rng, 2, 4)
    if op == "FusedConv":
        x, w = reals(rng, 1, 2, 6, 7), reals(rng, 3, 2, 2, 3)
        name, params = [("Relu", []), ("Tanh", []), ("LeakyRelu", [0.25]), ("Clip", [-1.0, 2.0])][rng.integers(4)]
        given |= {"activation": name} | ({"activation_params": params} if params else {})
        return op, [x, w, reals(rng, 3)], given, 1, opset
    if op == "FusedMatMul":
        m, n, k = (int(v) for v in rng.integers(1, 5, size=3))
        given |= {
            "transA": int(rng.integers(2)),
            "transB": int(rng.integers(2)),
            "alpha": float(rng.choice([1, 0.5, 3])),
        }
        a, b = ((k, m) if given["transA"] else (m, k)), ((n, k) if given["transB"] else (k, n))
        lead = shape_of(rng, 1, 2)
        return op, [reals(rng, *lead, *a), reals(rng, *lead, *b)], given, int(rng.integers(1, 3)), opset
    if op == "FusedGemm":
        name = str(rng.choice(["Relu", "Sigmoid", "Tanh"]))
        a, b = reals(rng, 3, 4), reals(rng, 2, 4)
        return op, [a, b, reals(rng, 2)], given | {"transB": 1, "activation": name}, 1, opset
    if op == "QuickGelu":
        return op, [reals(rng, *shape)], given | floating(rng, {"alpha": (0.5, 2)}), 99, opset
    bias = [reals(rng, shape[-1])] if op == "BiasGelu" or (op == "FastGelu" and rng.random() < 0.5) else []
    return op, [reals(rng, *shape), *bias], given, 1, opset


def _bodies(rng: Rng) -> Case:
    """Operators that are read by the nodes with which ONNX defines them."""
    op = str(rng.choice(["MeanVarianceNormalization", "Attention", "RotaryEmbedding", "CenterCropPad", "AffineGrid",
                         "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]))  # fmt: skip
    opset = opset_of(rng, op)
    n, h, s, d = (int(v) for v in (*rng.integers(1, 3, size=2), rng.integers(1, 5), 2 * rng.integers(1, 4)))
    if op == "MeanVarianceNormalization":
        axes = [int(a) for a in sorted(rng.permutation(4)[: rng.integers(1, 4)])]
        return op, [reals(rng, 2, 3, 3, 4)], {"axes": axes} if rng.random() < 0.7 else {}, 99, opset
    if op == "Attention":
        keys = s + int(rng.integers(0, 3))
        values = [reals(rng, n, h, s, d), reals(rng, n, h, keys, d), reals(rng, n, h, keys, d)]
        if rng.random() < 0.5:
            values.append(
                reals(rng, s, keys) if rng.random() < 0.5 else masks(rng, (s, keys)) | np.eye(s, keys, dtype=bool)
            )
        given = {"is_causal": int(rng.integers(2))} if len(values) == 3 else {}
        return op, values, given | floating(rng, {"scale": (0.1, 1)}), int(rng.choice([3, 99])), opset
    if op == "RotaryEmbedding":
        tables = [reals(rng, n, s, d // 2) for _ in range(2)]
        return (
            op,
            [reals(rng, n, h, s, d), *tables],
            {"interleaved": int(rng.integers(2))},
            int(rng.integers(1, 4)),
            opset,
        )
    if op == "CenterCropPad":
        shape = shape_of(rng, 2, 3)
        return op, [reals(rng, *shape), rng.integers(1, 7, size=len(shape))], {}, 1, opset
    if op == "AffineGrid":
        size = [2, 1, *(int(v) for v in rng.integers(2, 5, size=rng.integers(2, 4)))]
        rank = len(size) - 2
        return op, [reals(rng, 2, rank, rank + 1), np.array(size)], {"align_corners": int(rng.integers(2))}, 1, opset
    shape = (3, 4, *shape_of(rng, 0, 2))
    classes = np.asarray(rng.integers(0, 4, size=(3, *shape[2:])))
    given = {"reduction": str(rng.choice(["none", "sum", "mean"]))}
    weights = [np.abs(reals(rng, 4)) + np.float32(0.5)] if rng.random() < 0.5 else []
    x = reals(rng, *shape)
    return op, [x, classes, *weights], given, int(rng.integers(1, 3)), opset


def _recurrent(rng: Rng) -> Case:
    op, gates = [("LSTM", 4), ("GRU", 3), ("RNN", 1)][rng.integers(3)]
    steps, batch, inputs, hidden = (int(n) for n in rng.integers(1, 4, size=4))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    d = 1 + (direction == "bidirectional")
    small = lambda *shape: (reals(rng, *shape) / 8).astype(np.float32)
    values: list[Any] = [
        small(steps, batch, inputs),
        small(d, gates * hidden, inputs),
        small(d, gates * hidden, hidden),
    ]
    values += [small(d, 2 * gates * hidden) if rng.random() < 0.7 else None]
    values += [rng.integers(1, steps + 1, size=batch).astype(np.int32) if rng.random() < 0.4 else None]
    values += [small(d, batch, hidden) if rng.random() < 0.5 else None]
    given: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "outputs": 2 + (op == "LSTM")}
    if op == "LSTM":
        values += [small(d, batch, hidden) if rng.random() < 0.5 else None]
        values += [small(d, 3 * hidden) if rng.random() < 0.5 else None]
    if op == "GRU":
        given["linear_before_reset"] = int(rng.integers(2))
    return op, values, given, 1, opset_of(rng, op)


def _counted(rng: Rng) -> Case:
    """Range of whole numbers, and of others that float32 steps exactly."""
    kind = str(rng.choice(["int32", "int64", "float32"]))
    start, delta = rng.integers(-10, 10), rng.choice([-3, -1, 1, 2, 5])
    limit = start + delta * rng.integers(0, 9) + rng.integers(0, 2)
    scale = np.array(rng.choice([1, 0.25]), kind) if kind == "float32" else 1
    return "Range", [np.array(v * scale, kind) for v in (start, limit, delta)], {}, 0, opset_of(rng, "Range")


def _subgraph(rng: Rng) -> Case:
    """An If, a Loop or a Scan whose course is known; the tensor is all that is not."""
    op = str(rng.choice(["If", "Loop", "Scan"]))
    x = reals(rng, int(rng.integers(1, 4)), 3)
    opset = opset_of(rng, op, 9 if op == "Scan" else 7)
    if op == "If":
        made = {
            name: _body([helper.make_node(kind, ["i0", "i0"], ["r"])], [], ["r"])
            for name, kind in (("then_branch", str(rng.choice(["Add", "Mul"]))), ("else_branch", "Sub"))
        }
        return "Identity", [x], {"around": ("If", ["c"], made, {"c": rng.random() < 0.5})}, 99, opset
    if op == "Loop":
        nodes = [helper.make_node("Add", ["s", "i0"], ["t"]), helper.make_node("Identity", ["go"], ["on"])]
        body = _body(nodes, [("k", (), TensorProto.INT64), ("go", (), TensorProto.BOOL), ("s", None, 1)], ["on", "t"])
        count = int(rng.integers(0, 5))
        return (
            "Identity",
            [x],
            {"around": ("Loop", ["n", "c", "i0"], {"body": body}, {"n": count, "c": True})},
            99,
            opset,
        )
    nodes = [helper.make_node("Add", ["s", "p"], ["t"]), helper.make_node("Identity", ["t"], ["u"])]
    body = _body(nodes, [("s", (3,), 1), ("p", (3,), 1)], ["t", "u"])
    given = {"body": body, "num_scan_inputs": 1, "scan_input_directions": [int(rng.integers(2))]}
    start = {"z": np.zeros(3, np.float32)}
    return "Identity", [x], {"around": ("Scan", ["z", "i0"], given, start)}, 99, opset


def _body(nodes: list[Any], inputs: list[Any], outputs: list[str]) -> onnx.GraphProto:
    kinds = {"on": TensorProto.BOOL}
    shapes: dict[str, Any] = {"on": ()}
    return helper.make_graph(
        nodes, "inner", [helper.make_tensor_value_info(n, t, s) for n, s, t in inputs],
        [helper.make_tensor_value_info(o, kinds.get(o, 1), shapes.get(o)) for o in outputs],
    )  # fmt: skip


def around(model: onnx.ModelProto, what: tuple[str, list[str], dict[str, Any], dict[str, Any]]) -> None:
    """Put a node with subgraphs in place of the model's only node; its last output is the model's."""
    op, names, given, constants = what
    outputs = ["last", "y0"] if op == "Scan" else ["y0"]
    model.graph.node[0].CopyFrom(helper.make_node(op, names, outputs, name="node", **given))
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items())


OPERATORS: dict[str, Callable[[Rng], Case]] = {
    f.__name__.strip("_"): f
    for f in (
        _one_tensor, _two_tensors, _integers, _comparison, _logic, _is_nan, _where, _clip, _cast, _reduction, _extreme,
        _top, _soft, _cumulative, _product, _convolution, _transposed, _pool, _norm, _shape, _parts, _gather, _pad,
        _blocks, _resize, _quantised, _integer_products, _fused, _bodies, _recurrent, _counted, _subgraph,
    )
}  # fmt: skip
