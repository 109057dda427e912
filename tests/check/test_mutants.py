"""No miss: planted faults in correct kernels are all rejected, each as the right kind, each within 60 seconds."""

from __future__ import annotations

import time
from functools import partial

import pytest

import kernels
from pace import stretched
from specgrad.check import ConformanceError, assert_conforms
from specgrad.check.kernels import ask_operator as conform

RIGHT = [
    "conv", "conv_transpose", "max_pool", "max_pool_indices", "avg_pool", "lp_pool", "adaptive_avg_pool",
    "adaptive_max_pool", "global_max_pool", "global_avg_pool", "relu", "leaky_relu", "clamp", "softmax", "sigmoid",
    "batch_norm", "upsample_nearest", "linear",
]  # fmt: skip
WITH_GRADIENT = ("conv", "max_pool", "avg_pool", "linear", "relu")

FAULTS = {
    "conv": [
        "padding sides swapped", "padding ignored", "first stride for every axis",
        "kernel flipped", "groups interleaved", "last tap dropped", "last channel dropped", "bias dropped",
        "bias added twice", "last row uninitialised", "relative error of 2**-16",
    ],
    "conv_transpose": [
        "padding sides swapped", "output_padding on the low side", "kernel flipped", "groups interleaved",
        "dilation ignored", "overlap overwritten", "bias dropped",
    ],
    "max_pool": [
        "padding sides swapped", "ceil ignored", "ceil keeps windows in the padding", "dilation ignored",
        "stride is the kernel", "padding counts as zero", "NaN dropped",
        "NaN kept only in the last place", "-inf becomes -FLT_MAX", "maximum starts at zero", "last row uninitialised",
    ],
    "max_pool_indices": ["ties to the last", "indices counted over channels"],
    "avg_pool": [
        "always the kernel", "count_include_pad ignored", "padding never counted", "divisor ignored",
        "whole kernel under ceil", "ceil ignored", "padding sides swapped",
    ],
    "lp_pool": ["no absolute values", "p is always 2", "dilation ignored"],
    "adaptive_avg_pool": ["cell ends rounded down", "cell starts rounded up"],
    "adaptive_max_pool": ["cell ends rounded down"],
    "global_max_pool": ["channels reduced too", "maximum starts at zero"],
    "global_avg_pool": ["divisor off by one"],
    "relu": ["NaN dropped"],
    "leaky_relu": ["slope is always 0.01"],
    "clamp": ["NaN dropped"],
    "softmax": ["no shift by the maximum", "always the last axis"],
    "sigmoid": ["fast approximation"],
    "batch_norm": ["eps ignored", "variance taken for deviation"],
    "upsample_nearest": ["rounded to the nearest centre"],
    "linear": ["last term dropped", "bias dropped"],
}  # fmt: skip
GRADIENT_FAULTS = {
    "conv": ["gradient of padded cells leaked", "weight gradient flipped", "bias gradient of the last sample"],
    "max_pool": ["ties to the last", "every tie receives it", "overlapping windows overwrite"],
    "avg_pool": ["always the kernel", "count_include_pad ignored", "divisor ignored"],
    "linear": ["only the first sample", "mean over the batch"],
    "relu": ["passes at zero"],
}
OTHER_ARITHMETIC = {
    "conv": {
        "operands in bfloat16": "bfloat16 operands",
        "operands in TF32": "TF32 operands",
        "Winograd F(4x4,3x3)": "Winograd F(4,3)",
        "accumulation in bfloat16": "float16 sums",  # or bfloat16's: one cell has room for both
        "one accumulation in bfloat16": "float16 sums",
    },
    "linear": {"operands in bfloat16": "bfloat16 operands"},
}


def planted(table: dict) -> list[tuple[str, str]]:
    return [(operator, fault) for operator, faults in table.items() for fault in faults]


def test_there_are_enough_mutants() -> None:
    assert sum(len(planted(t)) for t in (FAULTS, GRADIENT_FAULTS, OTHER_ARITHMETIC)) >= 40


def passes(operator: str, count: int) -> None:
    gradient = getattr(kernels, f"{operator}_gradient", None)
    assert (gradient is not None) == (operator in WITH_GRADIENT)
    assert_conforms(getattr(kernels, operator), operator, gradient=gradient, count=count, may_refuse=False)


@pytest.mark.parametrize("operator", RIGHT)
def test_a_right_kernel_passes(operator: str) -> None:
    passes(operator, 24)


@pytest.mark.slow
@pytest.mark.parametrize("operator", RIGHT)
def test_a_right_kernel_passes_many_questions(operator: str) -> None:
    passes(operator, 640)


@pytest.fixture
def smaller(operator: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions of an operator's first fault alone are made smaller: that takes longer than to find them."""
    tables = (FAULTS, GRADIENT_FAULTS, OTHER_ARITHMETIC)
    if fault not in [next(iter(table[operator])) for table in tables if operator in table]:
        monkeypatch.setattr(conform, "shrink", lambda question, *_, **__: question)


def rejected(operator: str, **given: object) -> ConformanceError:
    start = time.monotonic()
    with pytest.raises(ConformanceError) as caught:
        assert_conforms(reference=operator, **given)
    seconds = time.monotonic() - start
    assert seconds < 60 or seconds < stretched(60)
    return caught.value


@pytest.mark.usefixtures("smaller")
@pytest.mark.parametrize(("operator", "fault"), planted(FAULTS))
def test_a_wrong_value_differs(operator: str, fault: str) -> None:
    error = rejected(operator, kernel=partial(getattr(kernels, operator), fault=fault))
    assert error.verdict.kind == "differs", error
    assert error.question.gradient is None


@pytest.mark.usefixtures("smaller")
@pytest.mark.parametrize(("operator", "fault"), planted(GRADIENT_FAULTS))
def test_a_wrong_gradient_differs(operator: str, fault: str) -> None:
    gradient = partial(getattr(kernels, f"{operator}_gradient"), fault=fault)
    error = rejected(operator, kernel=getattr(kernels, operator), gradient=gradient)
    assert error.verdict.kind == "differs", error
    assert error.question.gradient is not None


@pytest.mark.usefixtures("smaller")
@pytest.mark.parametrize(("operator", "fault"), planted(OTHER_ARITHMETIC))
def test_another_arithmetic_is_recognised(operator: str, fault: str) -> None:
    error = rejected(operator, kernel=partial(getattr(kernels, operator), fault=fault))
    assert error.verdict.kind == "other arithmetic", error
    assert OTHER_ARITHMETIC[operator][fault] in error.verdict.detail
