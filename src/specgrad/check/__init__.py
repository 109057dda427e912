"""Rounding or bug? Conformance of operators, audit of models, and a test helper for authors of kernels."""

from .audit import Audit, Layer, audit, audit_recorded
from .conformance import Conformance, Finding, conformance
from .kernel import ConformanceError, Conforms, assert_conforms
from .question import OPERATORS, Question
from .runtimes import RUNTIMES, runtime
from .signature import Signature, describe

__all__ = [
    "OPERATORS",
    "RUNTIMES",
    "Audit",
    "Conformance",
    "ConformanceError",
    "Conforms",
    "Finding",
    "Layer",
    "Question",
    "Signature",
    "assert_conforms",
    "audit",
    "audit_recorded",
    "conformance",
    "describe",
    "runtime",
]
