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
    trees: Any = None,
    refine: bool = True,
    seconds: float = 60.0,
    progress: Any = None,
) -> Any:
    """A certificate of a property, which the checker has replayed; a NoCertificateError says why there is none.

    model, statement, low, high, arithmetic, shape, progress   as for `certify`
    trees     how to divide the executions: `Verdict.trees`, or None: linear bounds of the whole box are tried first,
              and where they do not prove it, what a search of `certify` finds
    refine    leaves that are open in exact arithmetic are cut further; without it they are an error
    seconds   how long a search for cuts, and cutting, may take

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(sg.linear(np.float32([[1, 1], [1, -1]]), None, x)), (2,))
    >>> certificate = prove(graph, ([1.0, 0.5], 0, 0.25))
    >>> certificate.save("robust.json")  # doctest: +SKIP
    >>> prove(graph, ([1.0, 0.5], 0, 0.75))
    Traceback (most recent call last):
    specgrad.bounds.search.prove.NoCertificateError: prove: the property is broken: certify finds a counterexample
    """
    need("torch", "prove needs")
    need("flint", "certificates need")
    need("safetensors", "certificates need")
    from ...proof.api import Certificate
    from ...proof.certificate import Deadline, check, encode
    from ...proof.execution import ExecutionError, executions
    from ...proof.numbers import ReplayError
    from ...rounding.arithmetic import Arithmetic
    from .certify import graph_and_property
    from .positions import choice_of
    from .prover import certificate, prove_by_trees

    graph, question = graph_and_property(model, statement, low=low, high=high, shape=shape)
    if choice_of(graph) is not None:
        raise NoCertificateError("the output is a position (ArgMax); a certificate states inequalities of its scores")
    try:
        arithmetic = Arithmetic() if arithmetic is None else arithmetic
        executions(arithmetic)
        if trees is None:
            text, packed = certificate(graph, question, arithmetic)
            try:
                check(text, packed, graph, question, seconds=np.inf)
                return Certificate(text, packed)
            except ReplayError as error:
                trees = _searched(graph, question, arithmetic, seconds, progress, error)
        cases = prove_by_trees(graph, question, trees, arithmetic, Deadline(seconds), progress, refine)
        return Certificate(*encode(graph, cases, arithmetic))
    except (ExecutionError, ReplayError) as error:
        raise NoCertificateError(str(error)) from None


def _searched(graph: Any, question: Any, arithmetic: Any, seconds: float, progress: Any, error: Exception) -> Any:
    """How a search divides the executions, where the whole box is not enough."""
    from .certify import certify

    verdict = certify(graph, question, seconds=seconds, arithmetic=arithmetic, progress=progress)
    if verdict.verdict == "counterexample":
        raise NoCertificateError("the property is broken: certify finds a counterexample")
    if verdict.verdict != "holds":
        raise NoCertificateError(f"certify does not prove it, and linear bounds of the whole box do not ({error})")
    return verdict.trees
