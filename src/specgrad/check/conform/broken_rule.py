"""Name the rule of the contract that a small failing test case breaks, from its attributes and data.

`question` is the case that was asked, `verdict` the one on its answer.
"""

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


def _is_set(attributes: Any, name: str) -> bool:
    """Return whether the attribute `name` of `attributes` has another value than its default, on some axis."""
    value = attributes.get(name)
    plain = {"ceil": (None, False), "padding": (None, 0), "output_padding": (None, 0)}.get(name, (None, 1))
    parts = np.ravel(np.asarray(value)).tolist() if isinstance(value, tuple) else [value]
    return any(p not in plain for p in parts)


def rule(question: OpCase, verdict: Verdict) -> str:
    """Return the label of the contract's rule that this verdict on a case breaks, a key of TEXT."""
    if verdict.kind == "other arithmetic":
        return "float32"
    if verdict.fault not in ("nan", "infinity"):
        return _rule_of_attributes(question, verdict)
    where = _rule_of_attributes(question, verdict) if np.isfinite(verdict.expected) else "value"
    return where if where not in ("W1", "value") else _rule_of_special_values(question)  # a NaN that must not be read


def _rule_of_attributes(question: OpCase, verdict: Verdict) -> str:
    """Return the rule, a key of TEXT, that the attributes of a shrunk case, and the fault in its verdict, point to.

    "value" if they point to none.
    """
    a = question.attributes
    if verdict.fault == "index" or (question.operator == "max_pool" and question.gradient is not None):
        return "first"
    if isinstance(a.get("padding"), str) and a["padding"] != "valid":
        return "same"
    if _is_set(a, "ceil"):
        return "A1" if question.operator == "avg_pool" and verdict.fault == "value" else "W3"
    if question.operator == "avg_pool":
        return "A1"
    stated = question.spelling == "output_shape" or _is_set(a, "output_padding")
    if question.operator == "conv_transpose" and (stated or verdict.fault == "shape"):
        return "C2"
    if _is_set(a, "groups"):
        return "C1"
    if "kernel" in a or "w" in question.arrays or verdict.fault == "shape":
        return "W1"
    return "value"


def failure_kind(question: OpCase, verdict: Verdict) -> tuple[Any, ...]:
    """Return a key that is equal for failing questions to be shown once: same rule, same fault, with or without
    dilation.
    """
    dilated = _is_set(question.attributes, "dilation")
    return verdict.kind, verdict.fault, rule(question, verdict), question.gradient is not None, dilated


def _rule_of_special_values(question: OpCase) -> str:
    """Return the rule of NaN or infinities, by which of them the case's data hold."""
    given = np.concatenate([a.ravel() for a in question.arrays.values()])
    if np.isnan(given).any():
        return "P1"
    return "P2" if np.isinf(given).any() else "value"
