"""Equivalence classes of matrix products, batch normalisation and softmax.

A class has a draw(rng, dtype) that yields its cases; one whose type is fixed reads only what it needs of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...scalar import Array
from .case import Draw, OperatorClasses, VectorCase, zone
from .sample_values import Type, gaussian_with, numbers

INF, NAN = float("inf"), float("nan")
PLANE = "the profile's text has two axes only, and no broadcasting"
CONTRADICTS = (
    "the profile's text contradicts itself here (0 or NaN; 1 or NaN); the contract, ONNX Runtime and PyTorch: NaN"
)


# --- matrices ---------------------------------------------------------------------------------------------------


def _matmul_case(a: Array, b: Array, note: str = "") -> VectorCase:
    """Return a case of MatMul of a and b, with a note."""
    return VectorCase("MatMul", {"a": a, "b": b}, note=note)


def _random_matmuls(kind: str, *shapes: tuple[tuple[int, ...], tuple[int, ...]], note: str = "") -> Any:
    """Return draw(rng, dtype): one MatMul case per pair of shapes, of a `kind` of data of `numbers`, with `note`."""

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        for a, b in shapes:
            yield _matmul_case(numbers(rng, kind, a, dtype), numbers(rng, kind, b, dtype), note)

    return draw


def _matmul_cancelling(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a MatMul case in which large terms of both signs cancel. Its numbers are of type `dtype`."""
    a = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0]])
    big = 2.0 ** (np.finfo(dtype).nmant + 2)
    yield _matmul_case(a.astype(dtype), np.array([[big], [-big], [1.0]], dtype))


def _matmul_near_one(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield the product (1 + eps)^2: the bound that the profile prints, with 1 + u^2, does not hold here.

    Its numbers are of type `dtype`.
    """
    one = np.array([[1 + np.finfo(dtype).eps]], dtype)
    yield _matmul_case(one, one, "matmul_acc.md prints (1+u^2) for (1+u)^2")


def _matmul_special(values: tuple[float, ...]) -> Any:
    """Return a draw of MatMul cases with these values among the data, and zeros beside them."""

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        a = numbers(rng, "gaussian", (3, 4), dtype)
        a[0, 1], a[2, 0] = values[0], values[-1]
        yield _matmul_case(a, numbers(rng, "gaussian", (4, 2), dtype))
        b = numbers(rng, "gaussian", (4, 2), dtype)
        b[1], b[0] = 0, 0
        yield _matmul_case(a, b, "0 times an infinity is NaN")

    return draw


SQUARE = (((3, 4), (4, 2)), ((1, 5), (5, 1)), ((4, 1), (1, 3)))
MATMUL = OperatorClasses(
    "MatMul",
    (
        zone("FUNC", "matrices of other sizes", "function", _random_matmuls("gaussian", *SQUARE)),
        zone("WIDE", "sizes from 2^-20 to 2^7", "function", _random_matmuls("wide", *SQUARE)),
        zone("WHOLENUM", "small whole numbers: sums that are exact", "function", _random_matmuls("integers", *SQUARE)),
        zone("CANCEL", "sums of large terms that cancel: the order of summation shows", "risk", _matmul_cancelling),
        zone("UNIT", "one product next to 1", "risk", _matmul_near_one),
        zone("SUBNORMAL", "subnormal numbers", "type", _random_matmuls("subnormal", *SQUARE)),
        zone("INF", "infinities, and zeros beside them", "type", _matmul_special((INF, -INF))),
        zone("NAN", "NaN reaches its row", "type", _matmul_special((NAN, NAN))),
        zone(
            "VECTOR",
            "rows and columns of rank 1",
            "shape",
            _random_matmuls("gaussian", ((4,), (4, 2)), ((2, 4), (4,)), ((3,), (3,)), note=PLANE),
        ),
        zone(
            "BATCH",
            "several matrices, stretched",
            "broadcasting",
            _random_matmuls(
                "gaussian", ((2, 3, 4), (2, 4, 2)), ((2, 1, 2, 3), (3, 3, 2)), ((2, 2, 3), (3, 2)), note=PLANE
            ),
        ),
        zone("NULL", "no term at all: zeros", "shape", _random_matmuls("gaussian", ((2, 0), (0, 3)))),
    ),
    {"INT32 .. UINT64": "integers: the importer reads none here, since they wrap"},
)


def _gemm_case(
    rng: Draw, dtype: Type, c: tuple[int, ...] | None, kind: str = "gaussian", note: str = "", **given: Any
) -> VectorCase:
    """Return a random case of Gemm; `c` is the shape of C, None leaves it out.

    `kind` is a kind of data of `numbers`; `given` are attributes in place of the defaults; `note` as in `VectorCase`.
    """
    a = numbers(rng, kind, (4, 3) if given.get("transA") else (3, 4), dtype)
    b = numbers(rng, kind, (2, 4) if given.get("transB") else (4, 2), dtype)
    arguments: dict[str, Array | None] = {"a": a, "b": b}
    if c is not None:
        arguments["c"] = numbers(rng, kind, c, dtype)
    return VectorCase("Gemm", arguments, {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **given}, note=note)


def _gemm_transposed(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a Gemm case for each pair (transA, transB): neither factor transposed, the second, the first, both.

    Its numbers are of type `dtype`.
    """
    for first in (0, 1):
        for second in (0, 1):
            note = "the profile refuses transA and transB" if first or second else ""
            yield _gemm_case(rng, dtype, (3, 2), transA=first, transB=second, note=note)


def _gemm_factors(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield Gemm cases with several alpha and beta. Their numbers are of type `dtype`."""
    for alpha, beta in ((0.5, 1.0), (1.0, 0.25), (0.1, -2.0), (0.0, 1.0)):
        yield _gemm_case(rng, dtype, (3, 2), alpha=alpha, beta=beta, note="the profile refuses alpha and beta")


GEMM = OperatorClasses(
    "Gemm",
    (
        zone("FUNC", "with a full C", "function", lambda rng, d: [_gemm_case(rng, d, (3, 2)) for _ in range(2)]),
        zone(
            "WHOLENUM",
            "small whole numbers: sums that are exact",
            "function",
            lambda rng, d: [_gemm_case(rng, d, (3, 2), "integers")],
        ),
        zone("TRANS", "every pair of transposed factors", "constraint", _gemm_transposed),
        zone("FACTOR", "alpha and beta", "function", _gemm_factors),
        zone("NOC", "without C", "function", lambda rng, d: [_gemm_case(rng, d, None)]),
        zone(
            "BCAST",
            "C that is stretched",
            "broadcasting",
            lambda rng, d: [
                _gemm_case(rng, d, c, note="the profile demands a full C") for c in ((2,), (1, 2), (3, 1), ())
            ],
        ),
        zone("SUBNORMAL", "subnormal numbers", "type", lambda rng, d: [_gemm_case(rng, d, (3, 2), "subnormal")]),
    ),
    {"INT32 .. UINT64": "integers: the importer reads none here, since they wrap"},
)


# --- normalisation ----------------------------------------------------------------------------------------------


def _batch_norm_case(
    rng: Draw, dtype: Type, shape: tuple[int, ...], epsilon: float = 1e-5, x: Array | None = None, var: float = 1.0
) -> VectorCase:
    """Return a case of BatchNormalization; variances are random, times `var`, and `epsilon` is added to them.

    x is random if it is None.
    """
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
            lambda rng, d: [_batch_norm_case(rng, d, s) for s in ((2, 3, 4), (1, 2, 3, 2), (1, 2, 2, 1, 2))],
        ),
        zone(
            "EPSILON",
            "epsilon from 1e-7 to 1",
            "function",
            lambda rng, d: [_batch_norm_case(rng, d, (1, 3, 4), e) for e in (1e-7, 1e-3, 1.0)],
        ),
        zone(
            "SMALL",
            "variances far below epsilon, and 0",
            "constraint",
            lambda rng, d: [_batch_norm_case(rng, d, (1, 3, 4), 1e-3, var=v) for v in (1e-6, 0.0)],
        ),
        zone("NOSPACE", "samples and channels alone", "shape", lambda rng, d: [_batch_norm_case(rng, d, (4, 3))]),
        zone(
            "NAN",
            "NaN among the data",
            "type",
            lambda rng, d: [_batch_norm_case(rng, d, (1, 2, 5), x=gaussian_with(rng, (NAN,), (1, 2, 5), d))],
        ),
        zone(
            "INF",
            "infinities among the data",
            "type",
            lambda rng, d: [_batch_norm_case(rng, d, (1, 2, 5), x=gaussian_with(rng, (INF, -INF), (1, 2, 5), d))],
        ),
    ),
    {"negative variances": "refused by the profile (S30)", "training": "refused by the profile (S4) and the importer"},
)


# --- softmax ----------------------------------------------------------------------------------------------------


def _softmax_case(x: Array, axis: int = -1, note: str = "") -> VectorCase:
    """Return a case of Softmax of x along an axis, with a note."""
    return VectorCase("Softmax", {"x": x}, {"axis": axis}, note=note)


def _softmax_axes(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield Softmax cases along every axis. Their numbers are of type `dtype`."""
    for axis in (0, 1, 2, -1):
        yield _softmax_case(numbers(rng, "gaussian", (2, 3, 4), dtype), axis)


def _softmax_large(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a Softmax case that overflows unless the largest cell is subtracted first. Its numbers are of type
    `dtype`.
    """
    step = 8.0 if dtype.itemsize == 2 else 1.0
    yield _softmax_case(np.array([[1000, 1001, 1002], [-1000, -1001, -1000], [0, 40, -40]], dtype) * dtype.type(step))


def _softmax_infinite(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield Softmax cases with infinities of both signs, some of which contradict the profile's text.

    Their numbers are of type `dtype`.
    """
    yield _softmax_case(np.array([[1, -INF, 2], [-INF, 0, -INF]], dtype))
    yield _softmax_case(np.array([[-INF, -INF, -INF]], dtype), note=CONTRADICTS)
    yield _softmax_case(np.array([[INF, 0, 1], [INF, INF, 1]], dtype), note=CONTRADICTS)


SOFTMAX = OperatorClasses(
    "Softmax",
    (
        zone("AXIS", "along every axis", "constraint", _softmax_axes),
        zone(
            "WIDE",
            "sizes from 2^-20 to 2^7",
            "function",
            lambda rng, d: [_softmax_case(numbers(rng, "wide", (3, 4), d))],
        ),
        zone("LARGE", "large arguments: the largest is subtracted first", "risk", _softmax_large),
        zone("TIES", "equal arguments", "function", lambda rng, d: [_softmax_case(numbers(rng, "ties", (3, 4), d))]),
        zone("ONE", "a single cell: 1", "shape", lambda rng, d: [_softmax_case(numbers(rng, "gaussian", (3, 1), d))]),
        zone("INF", "-inf among numbers; rows of -inf; +inf", "type", _softmax_infinite),
        zone(
            "NAN", "NaN reaches its row", "type", lambda rng, d: [_softmax_case(np.array([[1, NAN, 2], [0, 1, 2]], d))]
        ),
    ),
)

PRODUCTS = (MATMUL, GEMM, BATCH_NORM, SOFTMAX)
