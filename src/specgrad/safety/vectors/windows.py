"""Equivalence classes of convolution and pooling, over generated shapes and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...window import Shape
from .case import FLOATS, Draw, EquivalenceClass, Kind, OperatorClasses, VectorCase
from .sample_values import Type, case_of, extreme_values, gaussian_with, generated_cases, numbers

INF, NAN = float("inf"), float("nan")
Accept = Callable[[Mapping[str, Any], Mapping[str, Shape]], bool]
NARROW = ("FLOAT",)
POOLED = (*FLOATS, "INT8", "UINT8")
NAN_SAYS = "NaN propagates [P1]; the profile's maxpool.md takes it for -inf, its newer text (EJ/ops/maxpool.md) for NaN"
EMPTY_SAYS = "no guard in the profile's texts excludes every such window (pads < kernel, pads <= kernel, extent > pads)"
CEIL_SAYS = "a last window that would start in the high padding is dropped [W3]"
SAME_SAYS = "the profile demands auto_pad=NOTSET (S28, S29)"


# --- which attributes -------------------------------------------------------------------------------------------


def _explicit_padding(a: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the explicit (low, high) padding per axis of attributes `a`; [] if there is none or it is automatic."""
    given = a["padding"]
    return [] if isinstance(given, str) or given == 0 else list(given)


def _is_plain(a: Mapping[str, Any], s: Mapping[str, Shape]) -> bool:
    """Return whether a case with attributes `a` and shapes s has explicit padding, no ceil and one group."""
    return not isinstance(a["padding"], str) and not _rounds_up(a, s) and _group_count(a) == 1


def _group_count(a: Mapping[str, Any]) -> int:
    """Return the number of groups of a convolution."""
    return int(a.get("groups", 1))


def _rounds_up(a: Mapping[str, Any], s: Mapping[str, Shape]) -> bool:
    """Return whether attributes `a` ask to round output sizes up; s are the shapes."""
    return bool(a.get("ceil"))


def _is_ceil_valid(a: Mapping[str, Any]) -> bool:
    """Return whether VALID meets ceil in attributes `a`, on which ONNX's text and shape inference disagree; it is not
    asked.
    """
    return bool(a.get("ceil")) and a["padding"] == "valid"


def _leaves_gaps(a: Mapping[str, Any], s: Mapping[str, Shape]) -> bool:
    """Return whether SAME windows may end before the last cell, on which runtimes disagree; it is not asked.

    `a` are the attributes, `s` the shapes by argument.
    """
    kernel = _kernel_sizes(a, s)
    steps = zip(kernel, a["stride"], a.get("dilation", (1,) * len(kernel)), strict=True)
    return str(a["padding"]).startswith("same") and any(e * (k - 1) + 1 < t for k, t, e in steps)


def _has_rank(rank: int) -> Accept:
    """Return a filter of (attributes, shapes): x has this many spatial axes, padding is given in numbers, and sizes are
    not rounded up.
    """
    return lambda a, s: len(s["x"]) == rank + 2 and not _rounds_up(a, s) and not isinstance(a["padding"], str)


def _kernel_sizes(a: Mapping[str, Any], s: Mapping[str, Shape]) -> Shape:
    """Return the kernel sizes of a pool or convolution with attributes `a` and shapes s."""
    return tuple(a["kernel"]) if "kernel" in a else s["w"][2:]


ATTRIBUTE_CLASSES: dict[str, tuple[str, Kind, Accept]] = {
    "RANK1": ("one spatial axis", "shape", _has_rank(1)),
    "RANK2": ("two spatial axes", "shape", _has_rank(2)),
    "RANK3": ("three spatial axes", "shape", _has_rank(3)),
    "BATCH": ("several samples", "shape", lambda a, s: s["x"][0] > 1 and _is_plain(a, s)),
    "KERNEL1": ("kernels of one cell", "constraint", lambda a, s: set(_kernel_sizes(a, s)) == {1} and _is_plain(a, s)),
    "WHOLE": (
        "a kernel of the input's size, no padding",
        "constraint",
        lambda a, s: _kernel_sizes(a, s) == s["x"][2:] and not _explicit_padding(a) and _is_plain(a, s),
    ),
    "STRIDE": ("steps larger than 1", "constraint", lambda a, s: min(a["stride"]) > 1 and _is_plain(a, s)),
    "GAP": (
        "steps beyond the kernel: cells that no window reads",
        "constraint",
        lambda a, s: all(t > k for t, k in zip(a["stride"], _kernel_sizes(a, s), strict=True)) and _is_plain(a, s),
    ),
    "DILATION": (
        "taps that are not neighbours",
        "constraint",
        lambda a, s: max(a.get("dilation", (1,))) > 1 and max(_kernel_sizes(a, s)) > 1 and _is_plain(a, s),
    ),
    "SYMPAD": (
        "the same padding on both sides",
        "constraint",
        lambda a, s: (
            any(p for p, _ in _explicit_padding(a)) and all(p == q for p, q in _explicit_padding(a)) and _is_plain(a, s)
        ),
    ),
    "ASYMPAD": (
        "other padding on each side",
        "constraint",
        lambda a, s: any(p != q for p, q in _explicit_padding(a)) and _is_plain(a, s),
    ),
    "SAME": (
        "auto_pad",
        "constraint",
        lambda a, s: isinstance(a["padding"], str) and not _is_ceil_valid(a) and not _leaves_gaps(a, s),
    ),
    "CEIL": ("sizes rounded up", "constraint", lambda a, s: _rounds_up(a, s) and not isinstance(a["padding"], str)),
    "GROUP": (
        "groups of channels",
        "constraint",
        lambda a, s: _group_count(a) > 1 and not isinstance(a["padding"], str),
    ),
    "DEPTH": (
        "a group per channel, several filters each",
        "constraint",
        lambda a, s: _group_count(a) == s["x"][1] > 1 and s["w"][0] > s["x"][1] and not isinstance(a["padding"], str),
    ),
    "BIAS": ("with a bias", "function", lambda a, s: "b" in s and not isinstance(a["padding"], str)),
}
NOTES = {"SAME": SAME_SAYS, "CEIL": CEIL_SAYS}


def _class_by_attributes(operator: str, word: str, types: tuple[str, ...] = NARROW, count: int = 2) -> EquivalenceClass:
    """Return the class of `count` generated cases for each of `types` whose attributes match
    ATTRIBUTE_CLASSES[word].
    """
    text, kind, accept = ATTRIBUTE_CLASSES[word]

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        for q in generated_cases(rng, operator, "gaussian", count, dtype, accept):
            yield case_of(q, note=NOTES.get(word, ""))

    return EquivalenceClass(word, text, kind, types, draw)


def _class_by_data(
    operator: str, word: str, text: str, kind: Kind, data: str, types: tuple[str, ...] = FLOATS
) -> EquivalenceClass:
    """Return the class of generated cases with plain attributes and one kind of data.

    `word` and `text` name it, as in `EquivalenceClass`. Its cases are of the dtypes `types`.
    """

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        for q in generated_cases(rng, operator, data, 2, dtype, _is_plain if operator != "global_avg_pool" else None):
            yield case_of(q)

    return EquivalenceClass(word, text, kind, types, draw)


def _class_with_values(
    operator: str, word: str, text: str, values: tuple[float, ...], note: str = ""
) -> EquivalenceClass:
    """Return the class of generated cases with plain attributes and these values among the data.

    `word` and `text` name it, as in `EquivalenceClass`; `note` goes to its cases.
    """

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        for q in generated_cases(
            rng, operator, "gaussian", 3, dtype, _is_plain if operator != "global_avg_pool" else None
        ):
            yield case_of(
                replace(q, arrays={**q.arrays, "x": gaussian_with(rng, values, q.arrays["x"].shape, dtype)}), note=note
            )

    return EquivalenceClass(word, text, "type", FLOATS, draw)


def _same_padding_class(operator: str, asks: str, types: tuple[str, ...]) -> EquivalenceClass:
    """Return the class of auto_pad of `operator` (ONNX's name; `asks` is ours): generated cases, and a dilated one that
    runtimes are known to get wrong.

    Its cases are of the dtypes `types`.
    """
    text, kind, accept = ATTRIBUTE_CLASSES["SAME"]

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        x = np.arange(1, 7).astype(dtype).reshape(1, 1, 6)
        dilated = {"auto_pad": "SAME_UPPER", "kernel_shape": [2], "dilations": [2]}
        yield VectorCase(operator, {"x": x}, dilated, note=SAME_SAYS)
        for q in generated_cases(rng, asks, "gaussian", 4, dtype, lambda a, s: "divisor" not in a and accept(a, s)):
            yield case_of(q, note=SAME_SAYS)

    return EquivalenceClass("SAME", text, kind, types, draw)


# --- convolution ------------------------------------------------------------------------------------------------


def _conv_one_hot(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield convolutions whose filters have a single 1, over distinct cells: outputs tell which cell was read.

    Their numbers are of type `dtype`.
    """
    for q in generated_cases(
        rng, "conv", "gaussian", 4, dtype, lambda a, s: "b" not in s and not isinstance(a["padding"], str)
    ):
        w = np.zeros_like(q.arrays["w"])
        w.reshape(len(w), -1)[np.arange(len(w)), rng.integers(0, w[0].size, len(w))] = 1
        x = np.arange(1, q.arrays["x"].size + 1).reshape(q.arrays["x"].shape).astype(dtype)
        yield case_of(replace(q, arrays={"x": x, "w": w}))


def _conv_overflow(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield convolutions in which the order of the sum decides whether it overflows. Their numbers are of type
    `dtype`.
    """
    x = np.full((1, 1, 4), np.finfo(dtype).max / 2, dtype)
    yield VectorCase("Conv", {"x": x, "w": np.array([[[1, 1, 1, -1]]], dtype)}, {"kernel_shape": [4]})
    yield VectorCase("Conv", {"x": x, "w": np.array([[[1, 1, 1, 1]]], dtype)}, {"kernel_shape": [4]})


CONV = OperatorClasses(
    "Conv",
    (
        *(
            _class_by_attributes("conv", w)
            for w in ("RANK1", "RANK2", "RANK3", "BATCH", "KERNEL1", "WHOLE", "STRIDE", "GAP")
        ),
        *(_class_by_attributes("conv", w) for w in ("DILATION", "SYMPAD", "ASYMPAD", "SAME", "GROUP", "DEPTH", "BIAS")),
        _class_by_data("conv", "FUNC", "numbers of everyday size", "function", "gaussian"),
        EquivalenceClass("TAP", "filters of a single 1: which cell each tap reads", "function", FLOATS, _conv_one_hot),
        _class_by_data("conv", "WHOLENUM", "small whole numbers: sums that are exact", "function", "integers"),
        _class_by_data(
            "conv", "SPIKES", "few large cells: fast algorithms cancel", "risk", "spikes", ("FLOAT", "DOUBLE")
        ),
        _class_by_data("conv", "SUBNORMAL", "subnormal numbers", "type", "subnormal"),
        _class_with_values("conv", "INF", "infinities among the data", (INF, -INF)),
        _class_with_values("conv", "NAN", "NaN among the data", (NAN,)),
        EquivalenceClass(
            "OVERFLOW", "sums beyond the largest number: open, since the order decides", "type", FLOATS, _conv_overflow
        ),
    ),
    {
        "infinite weights beside padding": "undecided: 0 times infinity is NaN by the contract, absent by others",
        "tensors without cells": "refused: [W1], and empty batches are of no class in the texts",
    },
)


# --- pooling ----------------------------------------------------------------------------------------------------


def _max_ties(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield max pools with equal cells, with indices. Their numbers are of type `dtype`."""
    for q in generated_cases(rng, "max_pool_indices", "ties", 3, dtype, _is_plain):
        yield case_of(q, outputs={"y": dtype, "indices": np.dtype(np.int64)}, note="the first of equal cells wins")


def _max_indices(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield max pools with indices, row and column major. Their numbers are of type `dtype`."""
    for q in generated_cases(rng, "max_pool_indices", "gaussian", 2, dtype, _is_plain):
        both = case_of(q, outputs={"y": dtype, "indices": np.dtype(np.int64)})
        note = "indices count batch and channel too; the profile's text gives h*W+w"
        yield both.with_note(note)
        yield replace(both, attributes={**both.attributes, "storage_order": 1}).with_note(f"{note}; column major")


EMPTY = (
    ((1, 1, 1), {"kernel_shape": [2], "dilations": [2], "pads": [1, 1], "strides": [1]}),
    ((1, 1, 1), {"kernel_shape": [3], "dilations": [3], "pads": [2, 5], "strides": [1]}),
    ((1, 1, 2, 2), {"kernel_shape": [2, 2], "dilations": [3, 1], "pads": [2, 0, 2, 0], "strides": [1, 1]}),
)


def _max_empty_windows(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield max pools with windows that read only padding. Their numbers are of type `dtype`."""
    for shape, attributes in EMPTY:
        x = numbers(rng, "gaussian", shape, dtype)
        yield VectorCase("MaxPool", {"x": x}, attributes, note=EMPTY_SAYS)


def _max_extremes(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield max pools of the extreme values of a type. Their numbers are of type `dtype`."""
    row = extreme_values(dtype)
    yield VectorCase("MaxPool", {"x": row.reshape(1, 1, -1)}, {"kernel_shape": [2], "strides": [1]})
    least = np.full((1, 1, 3), np.iinfo(dtype).min if dtype.kind in "iu" else -np.finfo(dtype).max, dtype)
    yield VectorCase("MaxPool", {"x": least}, {"kernel_shape": [2], "strides": [1], "pads": [1, 1]})


def _max_zeros(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a max pool of zeros of both signs. Its numbers are of type `dtype`."""
    x = np.array([0.0, -0.0, -0.0, 0.0, -1.0, -0.0], dtype).reshape(1, 1, 6)
    yield VectorCase("MaxPool", {"x": x}, {"kernel_shape": [2], "strides": [1]}, note="the sign of a zero is free")


MAX_POOL = OperatorClasses(
    "MaxPool",
    (
        *(_class_by_attributes("max_pool", w, POOLED) for w in ("RANK1", "RANK2", "RANK3")),
        *(_class_by_attributes("max_pool", w) for w in ("BATCH", "KERNEL1", "WHOLE", "STRIDE", "GAP", "DILATION")),
        *(_class_by_attributes("max_pool", w, POOLED) for w in ("SYMPAD", "ASYMPAD")),
        _same_padding_class("MaxPool", "max_pool", POOLED),
        _class_by_attributes("max_pool", "CEIL", count=4),
        _class_by_data("max_pool", "FUNC", "numbers of everyday size", "function", "gaussian", POOLED),
        EquivalenceClass("TIES", "equal cells, with indices", "function", POOLED, _max_ties),
        EquivalenceClass("INDEX", "indices, row and column major", "function", FLOATS, _max_indices),
        EquivalenceClass(
            "BOUND", "where the type ends; windows of its least number, beside padding", "type", POOLED, _max_extremes
        ),
        EquivalenceClass("ZERO", "zeros of both signs", "type", FLOATS, _max_zeros),
        _class_by_data("max_pool", "SUBNORMAL", "subnormal numbers", "type", "subnormal"),
        _class_with_values("max_pool", "INF", "+inf absorbs, -inf is neutral", (INF, -INF)),
        EquivalenceClass(
            "NEGINF",
            "windows of -inf alone give -inf [P2]",
            "type",
            FLOATS,
            lambda rng, d: [
                VectorCase(
                    "MaxPool",
                    {"x": np.full((1, 1, *[3] * r), -INF, d)},
                    {"kernel_shape": [2] * r, "strides": [1] * r, "pads": [p] * 2 * r},
                )
                for r in (1, 2, 3)
                for p in (0, 1)
            ],
        ),
        _class_with_values("max_pool", "NAN", "NaN among the data", (NAN,), NAN_SAYS),
        EquivalenceClass("EMPTY", "windows that read only padding: open", "constraint", POOLED, _max_empty_windows),
    ),
    {
        "auto_pad=VALID with ceil_mode=1": "not asked: ONNX's text and its shape inference contradict each other",
        "spatial axes of size 0": "refused [W1]: the profile's formula gives sizes of 1 and of -2 there",
    },
)


def _padded_average(include: bool) -> Accept:
    """Return a filter for padded average pools whose divisor does (or does not) include padding."""
    return lambda a, s: (
        bool(_explicit_padding(a)) and a.get("count_include_pad", True) is include and "divisor" not in a
    )


def _average_class(word: str, text: str, accept: Accept, types: tuple[str, ...] = FLOATS) -> EquivalenceClass:
    """Return the class of generated average pools that `accept` admits.

    `word` and `text` name it, as in `EquivalenceClass`. Its cases are of the dtypes `types`.
    """

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        for q in generated_cases(rng, "avg_pool", "gaussian", 2, dtype, accept):
            yield case_of(q, note=NOTES.get(word, ""))

    return EquivalenceClass(word, text, "constraint", types, draw)


def _average_by_attributes(word: str) -> EquivalenceClass:
    """Return the class of average pools whose attributes match ATTRIBUTE_CLASSES[word]."""
    text, _, accept = ATTRIBUTE_CLASSES[word]
    return _average_class(word, text, lambda a, s: "divisor" not in a and accept(a, s), NARROW)


def _average_by_data(word: str, text: str, kind: Kind, data: str) -> EquivalenceClass:
    """Return the class of plain average pools with one kind of data.

    `word` and `text` name it, as in `EquivalenceClass`.
    """

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        for q in generated_cases(rng, "avg_pool", data, 2, dtype, lambda a, s: "divisor" not in a and _is_plain(a, s)):
            yield case_of(q)

    return EquivalenceClass(word, text, kind, FLOATS, draw)


def _average_with_values(word: str, values: tuple[float, ...], text: str) -> EquivalenceClass:
    """Return the class of plain average pools with these values among the data.

    `word` and `text` name it, as in `EquivalenceClass`.
    """

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        for q in generated_cases(
            rng, "avg_pool", "gaussian", 2, dtype, lambda a, s: "divisor" not in a and _is_plain(a, s)
        ):
            yield case_of(replace(q, arrays={"x": gaussian_with(rng, values, q.arrays["x"].shape, dtype)}))

    return EquivalenceClass(word, text, "type", FLOATS, draw)


AVERAGE = OperatorClasses(
    "AveragePool",
    (
        *map(
            _average_by_attributes,
            ("RANK1", "RANK2", "RANK3", "BATCH", "KERNEL1", "WHOLE", "STRIDE", "GAP", "SYMPAD", "ASYMPAD"),
        ),
        _same_padding_class("AveragePool", "avg_pool", FLOATS),
        _average_by_attributes("CEIL"),
        _average_class("COUNTPAD", "padding counts in the divisor", _padded_average(True)),
        _average_class("INSIDE", "padding does not count in the divisor", _padded_average(False)),
        _average_by_data("FUNC", "numbers of everyday size", "function", "gaussian"),
        _average_by_data("WIDE", "sizes from 2^-20 to 2^7", "function", "wide"),
        _average_by_data("SUBNORMAL", "subnormal numbers", "type", "subnormal"),
        _average_with_values("INF", (INF, -INF), "infinities among the data"),
        _average_with_values("NAN", (NAN,), "NaN among the data"),
    ),
    {
        "dilations": "ONNX has them from version 19 on; the generator asks none",
        "no text": "the profile has no AveragePool",
    },
)
GLOBAL = OperatorClasses(
    "GlobalAveragePool",
    (
        _class_by_data("global_avg_pool", "FUNC", "one to three spatial axes", "function", "gaussian"),
        _class_by_data("global_avg_pool", "WIDE", "sizes from 2^-20 to 2^7", "function", "wide"),
        _class_by_data("global_avg_pool", "SUBNORMAL", "subnormal numbers", "type", "subnormal"),
        _class_with_values("global_avg_pool", "INF", "infinities among the data", (INF,)),
        _class_with_values("global_avg_pool", "NAN", "NaN among the data", (NAN,)),
    ),
    {"no text": "listed by the profile, without a text"},
)

WINDOWS = (CONV, MAX_POOL, AVERAGE, GLOBAL)
