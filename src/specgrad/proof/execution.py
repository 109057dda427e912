"""Which executions a proof speaks of: their arithmetic as plain data, and the sentences that say it.

Nothing here computes a bound, and nothing is imported from those who do: a certificate states its executions in these
words, and its checker reads them here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..deployment import sentences
from ..errors import SpecgradError


class ExecutionError(SpecgradError, ValueError):
    """Executions of which nothing is proven here."""

    def __init__(self, text: str) -> None:
        super().__init__("arithmetic", text)


@dataclass(frozen=True)
class Executions:
    """A class of executions: what is stored, what operands are rounded to, what sums are made in, what may be merged.

    dtype       the format of stored values
    operands    the format that factors of products are rounded to; None: they are not
    accumulate  the format of sums; None: dtype or wider
    execution   "fused": neighbouring linear nodes may be merged; "node": every node's result is stored
    depth       the most roundings that one term of a sum meets; None: any order
    rounding    "nearest", or "any": each result is one of the two numbers around the exact one
    flush       subnormal operands and results may count as zero
    """

    dtype: str = "float32"
    operands: str | None = None
    accumulate: str | None = None
    execution: str = "fused"
    depth: int | None = None
    rounding: str = "nearest"
    flush: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


REPLAYED: dict[str, tuple[Any, ...]] = {
    "dtype": ("float32",),
    "operands": (None,),
    "accumulate": (None,),
    "execution": ("fused", "node"),
    "depth": (None,),
    "rounding": ("nearest", "any"),
    "flush": (True,),
}
"""What a certificate can be about."""


def executions(given: Any = None) -> Executions:
    """From JSON data, from an object with these attributes, or the default; other values are refused by name.

    >>> executions({**Executions().to_json(), "dtype": "float16"})
    Traceback (most recent call last):
    specgrad.proof.execution.ExecutionError: arithmetic: dtype must be 'float32' in a certificate; got 'float16'
    """
    if given is None:
        return Executions()
    if isinstance(given, Mapping) and given.keys() != REPLAYED.keys():
        raise ExecutionError(f"the entries must be {', '.join(REPLAYED)}")
    data = dict(given) if isinstance(given, Mapping) else {name: getattr(given, name) for name in REPLAYED}
    for name, allowed in REPLAYED.items():
        if not any(type(data[name]) is type(value) and data[name] == value for value in allowed):
            words = " or ".join(map(repr, allowed))
            raise ExecutionError(f"{name} must be {words} in a certificate; got {str(data[name])[:20]!r}")
    return Executions(**data)


INPUTS = (
    "a proof covers every float32 number of the smallest float32 box that holds the stated box; a counterexample lies "
    "in the stated box itself"
)


def deployment(given: Any = None) -> dict[str, str]:
    """The executions that a statement holds for, in sentences, and the inputs that are meant.

    >>> deployment()["format"]
    'float32: weights, inputs and every stored value'
    """
    said = given.deployment if hasattr(given, "deployment") else sentences(**executions(given).to_json())
    return {**said, "inputs": INPUTS}
