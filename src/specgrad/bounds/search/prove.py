"""Certificates from Python: bounds find a proof, the checker accepts it, or there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import SpecgradError, need


class NoCertificateError(SpecgradError, ValueError):
    """There is none, and why; the property may hold all the same."""

    def __init__(self, text: str) -> None:
        super().__init__("prove", text)


def prove(
    model: Any,
    statement: Any,
    *,
    low: Any = None,
    high: Any = None,
    norm: str = "inf",
    arithmetic: Any = None,
    shape: Sequence[int] | None = None,
) -> Any:
    """A certificate of a property, which the checker has replayed; a NoCertificateError says why there is none.

    model, statement, low, high, norm, arithmetic, shape   as for `certify`

    A certificate holds linear bounds of the whole box, without splits: `certify` proves more than that.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(sg.linear(np.float32([[1, 1], [1, -1]]), None, x)), (2,))
    >>> certificate = prove(graph, ([1.0, 0.5], 0, 0.25))
    >>> certificate.save("robust.json")  # doctest: +SKIP
    >>> prove(graph, ([1.0, 0.5], 0, 0.75))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    specgrad.bounds.search.prove.NoCertificateError: prove: linear bounds of the whole box do not prove it (...
    """
    need("torch", "prove needs")
    need("flint", "certificates need")
    need("safetensors", "certificates need")
    from ...proof.api import Certificate
    from ...proof.certificate import check
    from ...proof.execution import ExecutionError
    from ...proof.numbers import ReplayError
    from .prover import certificate
    from .question import question_of

    asked = question_of(model, statement, low=low, high=high, norm=norm, shape=shape)
    graph, question = asked.graph, asked.stated
    if any(case.ball for case in question.cases):
        raise NoCertificateError("certificates are about boxes; this property is about a ball (norm 1 or 2)")
    if asked.is_joined:
        several = "several inputs, outputs or networks, or inequalities that name inputs"
        raise NoCertificateError(f"certificates are about one input, one output and a box; this property has {several}")
    try:
        text, packed = certificate(graph, question, arithmetic)
        check(text, packed, graph, question, seconds=np.inf)
    except ExecutionError as error:
        raise NoCertificateError(str(error)) from None
    except ReplayError as error:
        raise NoCertificateError(f"linear bounds of the whole box do not prove it ({error})") from None
    return Certificate(text, packed)
