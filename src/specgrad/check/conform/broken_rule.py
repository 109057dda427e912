"""Which rule of the contract a small failing question breaks, read off what is left of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cases.op_case import OpCase
from ..verdicts.judge import Verdict

TEXT = {
    "W1": "which cell a tap reads",
    "W3": "how many windows under ceil",
    "same": "SAME padding",
    "A1": "the divisor at the edge",
    "C1": "channels and groups",
    "C2": "the output of a transposed convolution",
    "P1": "NaN propagates",
    "P2": "-inf is an ordinary value",
    "first": "the first winner takes a tie",
    "K1": "derivative at a kink",
    "float32": "the arithmetic",
    "value": "the value",
}


def _present(attributes: Any, name: str) -> bool:
    value = attributes.get(name)
    plain = {"ceil": (None, False), "padding": (None, 0), "output_padding": (None, 0)}.get(name, (None, 1))
    parts = np.ravel(np.asarray(value)).tolist() if isinstance(value, tuple) else [value]
    return any(p not in plain for p in parts)


def rule(question: OpCase, verdict: Verdict) -> str:
    """A label of the contract, for the table; the reproduction shows the rest."""
    if verdict.kind == "other arithmetic":
        return "float32"
    if verdict.fault not in ("nan", "infinity"):
        return _of_attributes(question, verdict)
    where = _of_attributes(question, verdict) if np.isfinite(verdict.expected) else "value"
    return where if where not in ("W1", "value") else _of_special_numbers(question)  # NaN from a cell not to be read


def _of_attributes(question: OpCase, verdict: Verdict) -> str:
    a = question.attributes
    if verdict.fault == "index" or (question.operator == "max_pool" and question.gradient is not None):
        return "first"
    if isinstance(a.get("padding"), str) and a["padding"] != "valid":
        return "same"
    if _present(a, "ceil"):
        return "A1" if question.operator == "avg_pool" and verdict.fault == "value" else "W3"
    if question.operator == "avg_pool":
        return "A1"
    stated = question.spelling == "output_shape" or _present(a, "output_padding")
    if question.operator == "conv_transpose" and (stated or verdict.fault == "shape"):
        return "C2"
    if _present(a, "groups"):
        return "C1"
    if "kernel" in a or "w" in question.arrays or verdict.fault == "shape":
        return "W1"
    return "value"


def sort(question: OpCase, verdict: Verdict) -> tuple[Any, ...]:
    """Failures of one sort are shown once: the same rule broken in the same way, with or without dilation."""
    dilated = _present(question.attributes, "dilation")
    return verdict.kind, verdict.fault, rule(question, verdict), question.gradient is not None, dilated


def _of_special_numbers(question: OpCase) -> str:
    given = np.concatenate([a.ravel() for a in question.arrays.values()])
    if np.isnan(given).any():
        return "P1"
    return "P2" if np.isinf(given).any() else "value"
