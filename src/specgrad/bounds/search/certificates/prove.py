"""Certificates from Python: bounds find a proof, the checker accepts it, or there is none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from specgrad.errors import SpecgradError, need


class NoCertificateError(SpecgradError, ValueError):
    """Raised if no certificate was found; the property may hold all the same.

    Parameters
    ----------
    text : str
        The reason.

    Examples
    --------
    >>> print(NoCertificateError("no cuts were found in 60 s"))
    prove: no cuts were found in 60 s
    """

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
    trees: Any = None,
    refine: bool = True,
    seconds: float = 60.0,
    progress: Any = None,
) -> Any:
    """Return a certificate of a property that the checker has replayed.

    Parameters
    ----------
    model : Graph, path, bytes, ModelProto or nn.Module
        A Graph (its weights are constants), an ONNX file, or a PyTorch module (with a property file, give its input's
        shape); of a property about several networks, one per name: {"f": "f.onnx", "g": "g.onnx"}.
    statement : Property, path or tuple
        A Property, the path of a VNN-LIB file, or (x, label, eps): no input within eps of x, cell by cell, has another
        output as large as the label's. Of a network with several inputs, x holds an array for each, by name or in
        order; outputs are counted one after the other.
    low : number or array_like, optional
        Lower limit of any input, for (x, label, eps).
    high : number or array_like, optional
        Upper limit of any input, for (x, label, eps).
    norm : str, default "inf"
        How far an input is from x: "inf" is cell by cell, "2" the root of the sum of squares, "1" the sum.
    arithmetic : Arithmetic, optional
        The executions to prove it for; float32, fused, if not given.
    shape : sequence of int, optional
        Shape of the input, where the model leaves sizes open; else that of x, or what the property's inputs fill, a
        batch being 1.
    trees : tuple, optional
        How to divide the executions: `CertifyResult.trees`. By default linear bounds of the whole box are tried first,
        and where they do not prove it, what a search of `certify` finds.
    refine : bool, default True
        Cut leaves further that are open in exact arithmetic; without it they are an error.
    seconds : float, default 60.0
        How long a search for cuts, and cutting, may take.
    progress : callable, optional
        Called along the way with (what, done, total).

    Returns
    -------
    Certificate
        `save(path)` writes it.

    Raises
    ------
    NoCertificateError
        If none is found, and for properties that certificates do not state: a ball, several inputs or outputs, a
        position.

    Examples
    --------
    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(sg.linear(np.float32([[1, 1], [1, -1]]), None, x)), (2,))
    >>> certificate = prove(graph, ([1.0, 0.5], 0, 0.25))
    >>> certificate.save("robust.json")  # doctest: +SKIP
    >>> prove(graph, ([1.0, 0.5], 0, 0.75))
    Traceback (most recent call last):
    specgrad.bounds.search.certificates.prove.NoCertificateError: prove: the property is broken: certify finds a
    counterexample
    """
    need("torch", "prove needs")
    need("flint", "certificates need")
    need("safetensors", "certificates need")
    from specgrad.proof.api import Certificate
    from specgrad.proof.base.deployed_graph import deployed_graph
    from specgrad.proof.base.executions import ExecutionError, executions
    from specgrad.proof.base.rationals import ReplayError
    from specgrad.proof.files.certificate import Deadline, encode
    from specgrad.rounding.arithmetic import Arithmetic

    from ..statement.argmax_property import choice_of
    from .find_slopes import prove_by_trees

    graph, question = _certifiable(model, statement, low=low, high=high, norm=norm, shape=shape)
    if choice_of(graph) is not None:
        raise NoCertificateError("the output is a position (ArgMax); a certificate states inequalities of its scores")
    try:
        executions(arithmetic)
        arithmetic = Arithmetic() if arithmetic is None else arithmetic  # whose errors of functions are declared
        if trees is None:
            try:
                whole = [()] * len(question.cases)
                cases = prove_by_trees(graph, question, whole, arithmetic, Deadline(np.inf), progress, refine=False)
                return Certificate(*encode(deployed_graph(graph), [proof for proof, _ in cases], arithmetic))
            except ReplayError as error:
                trees = _split_trees(graph, question, arithmetic, seconds, progress, error)
        cases = prove_by_trees(graph, question, trees, arithmetic, Deadline(seconds), progress, refine)
        return Certificate(*encode(deployed_graph(graph), [proof for proof, _ in cases], arithmetic))
    except (ExecutionError, ReplayError) as error:
        raise NoCertificateError(str(error)) from None


def _certifiable(model: Any, statement: Any, **limits: Any) -> tuple[Any, Any]:
    """Return graph and property for arguments of `certify`; raise NoCertificateError for properties that certificates
    cannot state.

    `model`, `statement` and `limits` are as for `certify`.
    """
    from ..statement.problem import question_of

    asked = question_of(model, statement, **limits)
    if any(case.ball for case in asked.stated.cases):
        raise NoCertificateError("certificates are about boxes; this property is about a ball (norm 1 or 2)")
    if asked.is_joined:
        several = "several inputs, outputs or networks, or inequalities that name inputs"
        raise NoCertificateError(f"certificates are about one input, one output and a box; this property has {several}")
    return asked.graph, asked.stated


def _split_trees(graph: Any, question: Any, arithmetic: Any, seconds: float, progress: Any, error: Exception) -> Any:
    """Return the split trees that `certify` finds.

    Raise NoCertificateError if it does not prove the property `question`. `error` says why linear bounds of the whole
    box did not; `progress` is told how far the search is, which may take `seconds`. `arithmetic` says the executions
    meant.
    """
    from ..certify import certify

    verdict = certify(graph, question, seconds=seconds, arithmetic=arithmetic, progress=progress)
    if verdict.verdict == "violated":
        raise NoCertificateError("the property is broken: certify finds a counterexample")
    if verdict.verdict != "holds":
        raise NoCertificateError(f"certify does not prove it, and linear bounds of the whole box do not ({error})")
    return verdict.trees


def second_opinion(
    model: Any,
    statement: Any,
    splits: Any,
    *,
    seconds: float = 60.0,
    arithmetic: Any = None,
    progress: Any = None,
    **limits: Any,
) -> tuple[Any, Any]:
    """Check a split tree that another tool found: return the verdict, and a certificate if the property holds, else
    None.

    model, statement, arithmetic, progress and limits are as for `certify`.

    splits   the path of a text (docs/reference/certificate.md)

    "unknown" names a leaf of the tree that our bounds leave open, also after cutting further. Nothing is searched, so
    there are no counterexamples. SplitsError for splits that do not fit the network, NoCertificateError for a property
    that certificates cannot state.
    """
    need("torch", "prove needs")
    need("flint", "certificates need")
    need("safetensors", "certificates need")
    from specgrad.proof.api import Certificate
    from specgrad.proof.base.deployed_graph import deployed_graph
    from specgrad.proof.base.executions import INPUTS, ExecutionError
    from specgrad.proof.base.rationals import ReplayError
    from specgrad.proof.files.certificate import Deadline, encode
    from specgrad.properties.property import towards_zero
    from specgrad.rounding.stated import deployment_of

    from ..certify import CertifyResult
    from ..statement.split_file import read_splits
    from .find_slopes import prove_by_trees

    start = time.monotonic()
    graph, question = _certifiable(model, statement, **limits)
    trees = read_splits(splits, graph, question)
    said = deployment_of(arithmetic, graph) | {"inputs": INPUTS}
    try:
        cases = prove_by_trees(graph, question, trees, arithmetic, Deadline(seconds), progress)
    except (ExecutionError, ReplayError) as error:
        stages = {"proof": time.monotonic() - start}
        return CertifyResult("unknown", None, ((),), stages, 0, str(error), said, trees=trees), None
    stages = {"proof": time.monotonic() - start}
    margins = tuple(tuple(towards_zero(a.margin) for a in proven.alternatives) for _, proven in cases)
    leaves = sum(len(proof.weights) for case, _ in cases for proof in case.trees)
    verdict = CertifyResult("holds", None, margins, stages, leaves, "", said, trees=trees)
    return verdict, Certificate(*encode(deployed_graph(graph), [proof for proof, _ in cases], arithmetic))
