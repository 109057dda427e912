"""Sums by tensor cores: exact products, added in steps to a common exponent; bits below are cut.

docs/reference/rounding.md, "Tensor cores", defines the class and derives its bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...errors import ParameterError
from ..slack_constants import GROWTH
from .number_format import FORMATS, Format

Below = Literal["cut", "nearest"]  # what becomes of bits that are not kept
WORDS: dict[Below, str] = {"cut": "cut off", "nearest": "rounded to nearest"}
EXACT_DIGITS = 11  # factors of so many digits have exact products in every tensor core that was described


@dataclass(frozen=True)
class TensorCore:
    """How a matrix unit adds the products of a convolution or a matrix product, in steps: to an accumulator, some
    products at a time.

    Parameters
    ----------
    fraction : int
        In a step every term, the accumulator's too, keeps so many binary places below the exponent of the largest;
        their sum is exact.
    digits : int, default 24
        Significant bits of the accumulator that is handed from step to step.
    terms : int, default 1
        Products of a step at least, but for one step of each sum; zeros that a kernel pads with do not count. 1:
        nothing is known of steps.
    chain : int, optional
        Products after which the accumulator is added to a sum outside, and a new one begins; None: one accumulator for
        the whole sum.
    align : {"cut", "nearest"}, default "cut"
        What becomes of bits below `fraction`: "cut" (toward zero or down) or "nearest".
    keep : {"cut", "nearest"}, default "cut"
        What becomes of bits below `digits`: "cut" or "nearest".
    exponents : str, default "float32"
        The format whose exponents the accumulator has: "float32" or "float16".

    Raises
    ------
    ParameterError
        For counts below 1 and other words.

    Examples
    --------
    >>> TensorCore(13, digits=14).accumulator.u, TensorCore(24, keep="nearest").accumulator.u == 2.0**-24
    (0.0001220703125, True)
    """

    fraction: int
    digits: int = 24
    terms: int = 1
    chain: int | None = None
    align: Below = "cut"
    keep: Below = "cut"
    exponents: str = "float32"

    def __post_init__(self) -> None:
        counts = {"fraction": self.fraction, "digits": self.digits, "terms": self.terms, "chain": self.chain}
        for name, given in counts.items():
            if not (given is None and name == "chain") and (type(given) is not int or given < 1):
                text = f"{name} must be a whole number from 1 on; got {given!r}"
                raise ParameterError("TensorCore", text, rule="P5")
        for name, word in (("align", self.align), ("keep", self.keep)):
            if word not in WORDS:
                raise ParameterError("TensorCore", f"{name} must be one of {', '.join(WORDS)}; got {word!r}", rule="P5")
        if self.exponents not in ("float32", "float16"):
            text = f"exponents must be float32 or float16; got {self.exponents!r}"
            raise ParameterError("TensorCore", text, rule="P5")

    @property
    def accumulator(self) -> Format:
        """Return the format of the accumulator between steps."""
        same = FORMATS[self.exponents]
        return Format("accumulator", self.digits, same.lowest, same.highest, directed=self.keep == "cut")

    @property
    def aligned(self) -> float:
        """Return what a term loses when it is aligned, relative to the largest term of its step."""
        return float(2.0 ** -(self.fraction + (self.align == "nearest")))

    @property
    def lost(self) -> float:
        """Return what one product and one step lose near the smallest numbers: a product and an accumulator that are
        aligned to the smallest exponent, and the accumulator's own store.
        """
        return 2 * self.aligned * self.accumulator.tiny + 2 * self.accumulator.smallest

    def growth(self, total: Any, sums: int, u: float) -> Any:
        """Return the largest relative change of a term that meets `total` operations, in `sums` sums by steps at most.

        Each operation is a product of a step, or one rounding of unit roundoff u outside.
        """
        products = total if self.chain is None else np.minimum(total, sums * self.chain)
        steps = -(-np.asarray(products) // self.terms) + sums - 1
        own, outside = np.log1p(self.aligned), np.log1p(u)
        change = np.multiply(total, outside) + np.multiply(products, max(own - outside, 0.0))
        change = change + steps * (own + np.log1p(self.accumulator.u))
        grown = np.expm1(change) * GROWTH
        return float(grown) if np.ndim(grown) == 0 else grown

    def __str__(self) -> str:
        step = "any number of products" if self.terms == 1 else f"{self.terms} products or more"
        text = f"steps of {step} and the accumulator, each term {WORDS[self.align]} below {self.fraction} binary "
        text += f"places of the largest exponent; an accumulator of {self.digits} digits, {WORDS[self.keep]}"
        return text if self.chain is None else f"{text}, which is added to a sum outside after {self.chain} products"
