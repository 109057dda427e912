"""What an operator's page says it raises, it raises: each error by a call, and with a rule that the page names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import specgrad as sg

RAISES = re.compile(r"\nRaises\n-+\n(.*?)(?=\n\n|\Z)", re.DOTALL)
ENTRY = re.compile(r"^(\w+)\n((?: {4}.*\n?)+)", re.MULTILINE)
SPACE: dict[str, Any] = {**{name: getattr(sg, name) for name in sg.__all__}, "slices": slice, "np": np}
SPACE |= {"o": lambda *shape: np.ones(shape), "e": lambda *numbers: sg.exact(list(numbers)), "i": np.array}
CALLS = """
ShapeError add sub mul div maximum minimum equal greater greater_equal fmod mod: (o(2), o(3))
ScalarError add sub mul div maximum minimum equal greater greater_equal fmod mod: (o(2), e(1, 2))
ZeroDivisionError div fmod mod: (e(1), e(0))
ScalarError sin cos atan asinh exp log tanh sigmoid silu: (e(1, 2))
ScalarError normal_cdf normal_pdf gelu softplus softmax log_softmax: (e(1, 2))
ScalarError sqrt: (e(2))
ScalarError power: (e(2), 0.5)
ShapeError power: (o(2), float("inf"))
ShapeError select: (o(2), o(3), o(3))
ScalarError select: (o(2), o(2), e(1, 2))
ShapeError clamp: (o(2), 3, 1)
ParameterError softplus: (o(2), -1)
ParameterError gelu: (o(2), "erf")
ParameterError cast: (o(2), "float12")
ShapeError quantize dequantize: (o(3), o(2))
ShapeError quantize dequantize: (o(3), o(3), axis=3)
ShapeError contract: (o(2, 3), o(4, 5), "ab,bc->ac")
ParameterError contract: (o(2, 3), o(3, 5), "ab,bd->a")
ScalarError contract: (o(1, 1), e(1).reshape(1, 1), "ab,bc->ac")
ShapeError matmul: (o(2, 3), o(4, 5))
ScalarError matmul: (o(1, 2), e(1, 2))
ShapeError linear: (o(2, 3), None, o(4))
ScalarError linear: (o(1, 2), None, e(1, 2))
ShapeError max_pool avg_pool median_pool lp_pool: (o(3), (5,))
ShapeError max_pool avg_pool median_pool lp_pool: (o(3), (2,), stride=0)
ParameterError max_pool avg_pool median_pool lp_pool: (o(3), 2)
ParameterError max_pool avg_pool median_pool lp_pool: (o(3), (2,), padding="full")
ParameterError avg_pool: (o(3), (2,), divisor=0)
ParameterError lp_pool: (o(3), (2,), p=0)
ScalarError lp_pool: (e(1, 2), (2,))
ShapeError smooth_max_pool: (o(3), (5,), beta=1)
ParameterError smooth_max_pool: (o(3), (2,), beta=0)
ParameterError smooth_max_pool: (o(3), (2,), beta=1, padded="mean")
ScalarError smooth_max_pool: (e(1, 2), (2,), beta=1)
ShapeError adaptive_avg_pool adaptive_max_pool: (o(0), (2,))
ShapeError adaptive_avg_pool adaptive_max_pool: (o(5), (2, 2))
ParameterError adaptive_avg_pool adaptive_max_pool: (o(5), 2)
ShapeError global_avg_pool global_max_pool: (o(2), rank=2)
ShapeError global_avg_pool global_max_pool: (o(2, 0), rank=1)
ParameterError global_max_pool: (o(2), rank=1, ties="last")
ShapeError max_unpool: (o(1), i([3]), (1, 1))
ShapeError max_unpool: (o(1), i([3]), (2,))
ShapeError max_unpool: (o(1), i([0]), (1,), padding=3)
ParameterError max_unpool: (o(1), i([0]), 1)
ShapeError take: (o(2), i([5]), rank=1)
ShapeError take: (o(2), i([-1]), rank=1, empty=False)
ShapeError put: (o(1), i([5]), size=(2,))
ShapeError amax amin: (o(0))
ShapeError amax amin sum mean prod: (o(3), 4)
ParameterError amax amin: (o(3), ties="first")
ShapeError mean: (o(0))
ShapeError sum prod: (o(3, 3), (1, 1))
ShapeError conv: (o(1, 2, 2), None, o(1, 2))
ShapeError conv_transpose: (o(2, 1, 2), None, o(1, 2))
ShapeError conv: (o(1, 1, 3), None, o(1, 2))
ShapeError conv: (o(1, 1, 2), None, o(1, 2), stride=0)
ShapeError conv_transpose: (o(1, 1, 2), None, o(1, 3), output_padding=3)
ParameterError conv conv_transpose: (o(1, 1, 2), None, o(1, 2), groups=1.0)
ScalarError conv conv_transpose: (o(1, 1, 2), None, e(1, 2).reshape(1, 2))
ShapeError batch_norm: (o(1, 2, 3), o(3), o(2))
ShapeError group_norm: (o(1, 3, 2), 2)
ShapeError group_norm: (o(1, 2, 3), 2, o(3))
ShapeError layer_norm: (o(2, 3), (4,))
ShapeError layer_norm: (o(2, 3), (3,), o(2))
ShapeError softmax log_softmax: (o(3), 4)
ShapeError softmax log_softmax: (o(2, 0))
ShapeError cross_entropy: (o(1, 4), i([4]))
ParameterError cross_entropy: (o(1, 4), i([1]), reduction="max")
ScalarError cross_entropy: (e(1, 2), 0)
ShapeError mse_loss: (o(2), o(3))
ParameterError mse_loss: (o(2), o(2), reduction="max")
ShapeError pad: (o(3), [(1, 1), (1, 1)])
ParameterError pad: (o(3), [(1, 1)], mode="mirror")
ShapeError fold: (lambda a, c: broadcast(a, (2,)), 0, o(3), rank=1)
ShapeError global_pool: (lambda image: image, o(2, 2), rank=1)
ShapeError upsample_nearest: (o(3), 0, rank=1)
ParameterError upsample_nearest: (o(3), 2)
ShapeError broadcast: (o(2), (3,))
ShapeError concat: ([], 0)
ShapeError concat: ([o(2)], 3)
ShapeError flatten: (o(2, 3), 1, 0)
ShapeError permute: (o(2, 3), (0, 0))
ShapeError reshape: (o(6), (4,))
ShapeError slice: (o(3), None, None)
ParameterError slice: (o(3), slices(0, 3, -1))
ShapeError unpad: (o(5), 3, rank=1)
ParameterError unpad: (o(5), 3)
ShapeError gather: (o(3), i([5]))
ShapeError gather: (o(3), o(1))
ShapeError scatter: (o(1), i([5]), size=3)
ShapeError take_along: (o(2, 2), i([[5], [0]]), axis=1)
ShapeError roll: (o(3), 1, axis=4)
ParameterError resize: (o(3))
ParameterError resize: (o(3), (4,), where="corner")
ShapeError resize: (o(3), (0,))
ShapeError argmax argmin: (o(0))
ShapeError argmax argmin cumsum cumprod: (o(3), 3)
ShapeError topk: (o(3), 4)
ParameterError topk: (o(3), 1.0)
"""


def calls() -> Iterator[tuple[str, str, str]]:
    """Error, operator and arguments."""
    for line in CALLS.strip().splitlines():
        heads, _, given = line.partition(": ")
        error, *names = heads.split()
        yield from ((error, name, given) for name in names)


def said(name: str) -> dict[str, str]:
    """What the page of an operator says under Raises: of each error, when."""
    section = RAISES.search(inspect.getdoc(getattr(sg, name)) or "")
    return dict(ENTRY.findall(section[1] + "\n")) if section else {}


@pytest.mark.parametrize(("error", "name", "given"), list(calls()))
def test_an_error_that_is_said_is_raised(error: str, name: str, given: str) -> None:
    text = said(name)[error]
    with pytest.raises((sg.SpecgradError, ZeroDivisionError)) as caught:
        eval(f"{name}{given}", dict(SPACE))
    assert type(caught.value).__name__ == error
    rule = getattr(caught.value, "rule", None)
    assert rule is None or f"[{rule}]" in text


def test_every_error_that_is_said_has_a_call() -> None:
    operators = [n for n in sg.__all__ if getattr(getattr(sg, n), "__module__", "").startswith("specgrad.ops.")]
    assert len(operators) > 80
    pairs = {(error, name) for name in operators for error in said(name)}
    assert pairs == {(error, name) for error, name, _ in calls()}
