"""Classes of matrix products, normalisation and softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...scalar import Array
from .case import FLOATS, Draw, EquivalenceClass, Kind, OperatorClasses, VectorCase
from .sample_values import Type, numbers, planted

INF, NAN = float("inf"), float("nan")
PLANE = "the profile's text has two axes only, and no broadcasting"
CONTRADICTS = (
    "the profile's text contradicts itself here (0 or NaN; 1 or NaN); the contract, ONNX Runtime and PyTorch: NaN"
)


def zone(word: str, text: str, kind: Kind, draw: Any, types: tuple[str, ...] = FLOATS) -> EquivalenceClass:
    return EquivalenceClass(word, text, kind, types, draw)


# --- matrices ---------------------------------------------------------------------------------------------------


def _product(a: Array, b: Array, note: str = "") -> VectorCase:
    return VectorCase("MatMul", {"a": a, "b": b}, note=note)


def _drawn(kind: str, *shapes: tuple[tuple[int, ...], tuple[int, ...]], note: str = "") -> Any:
    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        for a, b in shapes:
            yield _product(numbers(rng, kind, a, dtype), numbers(rng, kind, b, dtype), note)

    return draw


def _cancelling(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Large terms of both signs, and what is left of them."""
    a = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0]])
    big = 2.0 ** (np.finfo(dtype).nmant + 2)
    yield _product(a.astype(dtype), np.array([[big], [-big], [1.0]], dtype))


def _units(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """(1 + eps)^2 in one product: the bound that the profile prints, with 1 + u^2, does not hold here."""
    one = np.array([[1 + np.finfo(dtype).eps]], dtype)
    yield _product(one, one, "matmul_acc.md prints (1+u^2) for (1+u)^2")


def _special(values: tuple[float, ...]) -> Any:
    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        a = numbers(rng, "gaussian", (3, 4), dtype)
        a[0, 1], a[2, 0] = values[0], values[-1]
        yield _product(a, numbers(rng, "gaussian", (4, 2), dtype))
        b = numbers(rng, "gaussian", (4, 2), dtype)
        b[1], b[0] = 0, 0
        yield _product(a, b, "0 times an infinity is NaN")

    return draw


SQUARE = (((3, 4), (4, 2)), ((1, 5), (5, 1)), ((4, 1), (1, 3)))
MATMUL = OperatorClasses(
    "MatMul",
    (
        zone("FUNC", "matrices of other sizes", "function", _drawn("gaussian", *SQUARE)),
        zone("WIDE", "sizes from 2^-20 to 2^7", "function", _drawn("wide", *SQUARE)),
        zone("WHOLENUM", "small whole numbers: sums that are exact", "function", _drawn("integers", *SQUARE)),
        zone("CANCEL", "sums of large terms that cancel: the order of summation shows", "risk", _cancelling),
        zone("UNIT", "one product next to 1", "risk", _units),
        zone("SUBNORMAL", "subnormal numbers", "type", _drawn("subnormal", *SQUARE)),
        zone("INF", "infinities, and zeros beside them", "type", _special((INF, -INF))),
        zone("NAN", "NaN reaches its row", "type", _special((NAN, NAN))),
        zone(
            "VECTOR",
            "rows and columns of rank 1",
            "shape",
            _drawn("gaussian", ((4,), (4, 2)), ((2, 4), (4,)), ((3,), (3,)), note=PLANE),
        ),
        zone(
            "BATCH",
            "several matrices, stretched",
            "broadcasting",
            _drawn("gaussian", ((2, 3, 4), (2, 4, 2)), ((2, 1, 2, 3), (3, 3, 2)), ((2, 2, 3), (3, 2)), note=PLANE),
        ),
        zone("NULL", "no term at all: zeros", "shape", _drawn("gaussian", ((2, 0), (0, 3)))),
    ),
    {"INT32 .. UINT64": "integers: the importer reads none here, since they wrap"},
)


def _gemm(
    rng: Draw, dtype: Type, c: tuple[int, ...] | None, kind: str = "gaussian", note: str = "", **given: Any
) -> VectorCase:
    a = numbers(rng, kind, (4, 3) if given.get("transA") else (3, 4), dtype)
    b = numbers(rng, kind, (2, 4) if given.get("transB") else (4, 2), dtype)
    arguments: dict[str, Array | None] = {"a": a, "b": b}
    if c is not None:
        arguments["c"] = numbers(rng, kind, c, dtype)
    return VectorCase("Gemm", arguments, {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **given}, note=note)


def _flags(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    for first in (0, 1):
        for second in (0, 1):
            yield _gemm(rng, dtype, (3, 2), transA=first, transB=second, note="the profile refuses transA and transB")


def _factors(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    for alpha, beta in ((0.5, 1.0), (1.0, 0.25), (0.1, -2.0), (0.0, 1.0)):
        yield _gemm(rng, dtype, (3, 2), alpha=alpha, beta=beta, note="the profile refuses alpha and beta")


GEMM = OperatorClasses(
    "Gemm",
    (
        zone("FUNC", "with a full C", "function", lambda rng, d: [_gemm(rng, d, (3, 2)) for _ in range(2)]),
        zone(
            "WHOLENUM",
            "small whole numbers: sums that are exact",
            "function",
            lambda rng, d: [_gemm(rng, d, (3, 2), "integers")],
        ),
        zone("TRANS", "every pair of transposed factors", "constraint", _flags),
        zone("FACTOR", "alpha and beta", "function", _factors),
        zone("NOC", "without C", "function", lambda rng, d: [_gemm(rng, d, None)]),
        zone(
            "BCAST",
            "C that is stretched",
            "broadcasting",
            lambda rng, d: [_gemm(rng, d, c, note="the profile demands a full C") for c in ((2,), (1, 2), (3, 1), ())],
        ),
        zone("SUBNORMAL", "subnormal numbers", "type", lambda rng, d: [_gemm(rng, d, (3, 2), "subnormal")]),
    ),
    {"INT32 .. UINT64": "integers: the importer reads none here, since they wrap"},
)


# --- normalisation ----------------------------------------------------------------------------------------------


def _normed(
    rng: Draw, dtype: Type, shape: tuple[int, ...], epsilon: float = 1e-5, x: Array | None = None, var: float = 1.0
) -> VectorCase:
    c = shape[1]
    arguments = {
        "x": numbers(rng, "gaussian", shape, dtype) if x is None else x,
        "scale": numbers(rng, "gaussian", (c,), dtype),
        "bias": numbers(rng, "gaussian", (c,), dtype),
        "mean": numbers(rng, "gaussian", (c,), dtype),
        "var": (rng.uniform(0.5, 2, (c,)) * var).astype(dtype),
    }
    return VectorCase("BatchNormalization", arguments, {"epsilon": epsilon, "momentum": 0.9, "training_mode": 0})


BATCH_NORM = OperatorClasses(
    "BatchNormalization",
    (
        zone(
            "FUNC",
            "one to three spatial axes",
            "function",
            lambda rng, d: [_normed(rng, d, s) for s in ((2, 3, 4), (1, 2, 3, 2), (1, 2, 2, 1, 2))],
        ),
        zone(
            "EPSILON",
            "epsilon from 1e-7 to 1",
            "function",
            lambda rng, d: [_normed(rng, d, (1, 3, 4), e) for e in (1e-7, 1e-3, 1.0)],
        ),
        zone(
            "SMALL",
            "variances far below epsilon, and 0",
            "constraint",
            lambda rng, d: [_normed(rng, d, (1, 3, 4), 1e-3, var=v) for v in (1e-6, 0.0)],
        ),
        zone("NOSPACE", "samples and channels alone", "shape", lambda rng, d: [_normed(rng, d, (4, 3))]),
        zone(
            "NAN",
            "NaN among the data",
            "type",
            lambda rng, d: [_normed(rng, d, (1, 2, 5), x=planted(rng, (NAN,), (1, 2, 5), d))],
        ),
        zone(
            "INF",
            "infinities among the data",
            "type",
            lambda rng, d: [_normed(rng, d, (1, 2, 5), x=planted(rng, (INF, -INF), (1, 2, 5), d))],
        ),
    ),
    {"negative variances": "refused by the profile (S30)", "training": "refused by the profile (S4) and the importer"},
)


# --- softmax ----------------------------------------------------------------------------------------------------


def _softmax(x: Array, axis: int = -1, note: str = "") -> VectorCase:
    return VectorCase("Softmax", {"x": x}, {"axis": axis}, note=note)


def _axes(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    for axis in (0, 1, 2, -1):
        yield _softmax(numbers(rng, "gaussian", (2, 3, 4), dtype), axis)


def _large(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Whoever does not subtract the largest first overflows."""
    step = 8.0 if dtype.itemsize == 2 else 1.0
    yield _softmax(np.array([[1000, 1001, 1002], [-1000, -1001, -1000], [0, 40, -40]], dtype) * dtype.type(step))


def _infinite(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    yield _softmax(np.array([[1, -INF, 2], [-INF, 0, -INF]], dtype))
    yield _softmax(np.array([[-INF, -INF, -INF]], dtype), note=CONTRADICTS)
    yield _softmax(np.array([[INF, 0, 1], [INF, INF, 1]], dtype), note=CONTRADICTS)


SOFTMAX = OperatorClasses(
    "Softmax",
    (
        zone("AXIS", "along every axis", "constraint", _axes),
        zone("WIDE", "sizes from 2^-20 to 2^7", "function", lambda rng, d: [_softmax(numbers(rng, "wide", (3, 4), d))]),
        zone("LARGE", "large arguments: the largest is subtracted first", "risk", _large),
        zone("TIES", "equal arguments", "function", lambda rng, d: [_softmax(numbers(rng, "ties", (3, 4), d))]),
        zone("ONE", "a single cell: 1", "shape", lambda rng, d: [_softmax(numbers(rng, "gaussian", (3, 1), d))]),
        zone("INF", "-inf among numbers; rows of -inf; +inf", "type", _infinite),
        zone("NAN", "NaN reaches its row", "type", lambda rng, d: [_softmax(np.array([[1, NAN, 2], [0, 1, 2]], d))]),
    ),
)

PRODUCTS = (MATMUL, GEMM, BATCH_NORM, SOFTMAX)
