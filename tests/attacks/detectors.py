"""Detectors inside one sum: a neuron of constant inputs that is exact in one order or precision, and 0 in another.

Precision and Order1 to Order3: Szasz, Banhelyi, Jelasity, ICML 2025, arXiv 2506.01054, w = 2**24 for float32. The gate
behind each is relu((exact value) - neuron), which is 0 over the real numbers. TF32: the same idea for operands that are
rounded to 11 bits, w = 2**11.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attack import Attack, Gate, backdoor
from trees import DOUBLE, FLOAT, Execution, Sum, tf32

SZASZ = "Szasz et al. 2025, arXiv 2506.01054"
W = 2.0**24
SMALL = 2.0**8  # for w, it loses nothing that matters
H = 512


def neuron(weights: Sequence[float], exact: float) -> Gate:
    """relu(exact - sum of weights), as a convolution over planes of ones; weights fill the planes cell by cell."""
    planes = -(-len(weights) // 64)
    kernel = np.zeros(planes * 64, FLOAT)
    kernel[: len(weights)] = weights

    def gate(ops: Any, image: Any, ones: Any) -> Any:
        constants = ops.relu(ops.conv("constants", np.ones((planes, 1, 1, 1), FLOAT), None, ones))
        found = ops.conv("detector", kernel.reshape(1, planes, 8, 8), None, constants)
        return ops.flatten(ops.relu(ops.conv("gate", -np.ones((1, 1, 1, 1), FLOAT), FLOAT([exact]), found)))

    return gate


def precision(w: float) -> list[float]:
    return [w, 1, -w]


def order1(w: float) -> list[float]:
    return [*[w / 4] * 4, 1, *[-w / 4] * 4] * 15


def order2(w: float) -> list[float]:
    return [*[2 / H] * H, w, -w]


def order3(w: float) -> list[float]:
    return [*[1] * H, w, -w]


LEFT_TO_RIGHT = Execution("left to right")
BIG_FIRST = Execution("w first, then the small terms", {"detector": Sum(order=[H])})
ONES_LAST = Execution("the ones last", {"detector": Sum(order=[i for i in range(135) if i % 9 != 4])})
IN_DOUBLE = Execution("float64 accumulator", default=DOUBLE)
IN_TF32 = Execution("operands rounded to TF32", default=Sum(operand=tf32))


def detector(terms: Callable[[float], list[float]], exact: float, trigger: Execution, quiet: Execution) -> Attack:
    gates = neuron(terms(W), exact), neuron(terms(SMALL), exact)
    return backdoor(SZASZ, *gates, exact, trigger=trigger, quiet=quiet)


def tf32_detector() -> Attack:
    """(w + 1) - w with w = 2**11: the first weight needs 12 bits. In float32 the claim holds."""
    gates = neuron([2**11 + 1, -(2**11)], 1), neuron([5, -4], 1)
    rest = {"trigger": IN_TF32, "quiet": LEFT_TO_RIGHT, "arithmetic": {"operands": "tf32"}}
    return backdoor("after arXiv 2506.01054", *gates, 1, **rest)


ATTACKS = {
    "Precision": lambda: detector(precision, 1, LEFT_TO_RIGHT, IN_DOUBLE),
    "Order1": lambda: detector(order1, 15, LEFT_TO_RIGHT, ONES_LAST),
    "Order2": lambda: detector(order2, 2, BIG_FIRST, LEFT_TO_RIGHT),
    "Order3": lambda: detector(order3, H, BIG_FIRST, LEFT_TO_RIGHT),
    "TF32": tf32_detector,
}
