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
    arithmetic: Any = None,
    shape: Sequence[int] | None = None,
) -> Any:
    """A certificate of a property, which the checker has replayed; a NoCertificateError says why there is none.

    model, statement, low, high, arithmetic, shape   as for `certify`

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
    from .certify import graph_and_property
    from .positions import choice_of
    from .prover import certificate

    graph, question = graph_and_property(model, statement, low=low, high=high, shape=shape)
    if choice_of(graph) is not None:
        raise NoCertificateError("the output is a position (ArgMax); a certificate states inequalities of its scores")
    try:
        text, packed = certificate(graph, question, arithmetic)
        check(text, packed, graph, question, seconds=np.inf)
    except ExecutionError as error:
        raise NoCertificateError(str(error)) from None
    except ReplayError as error:
        raise NoCertificateError(f"linear bounds of the whole box do not prove it ({error})") from None
    return Certificate(text, packed)
