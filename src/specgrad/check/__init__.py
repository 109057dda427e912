"""Rounding or bug? Conformance of operators, audit of models, and a test helper for authors of kernels."""

from .audit import Audit, audit, audit_recorded
from .compare import Comparison, compare
from .conformance import Conformance, Finding, conformance
from .decisions import Preserved, preserve
from .kernel import ConformanceError, Conforms, assert_conforms
from .layer import Layer
from .question import OPERATORS, Question
from .runtimes import RUNTIMES, runtime
from .signature import Signature, describe
from .tolerance import Tolerance, tolerance

__all__ = [
    "OPERATORS",
    "RUNTIMES",
    "Audit",
    "Comparison",
    "Conformance",
    "ConformanceError",
    "Conforms",
    "Finding",
    "Layer",
    "Preserved",
    "Question",
    "Signature",
    "Tolerance",
    "assert_conforms",
    "audit",
    "audit_recorded",
    "compare",
    "conformance",
    "describe",
    "preserve",
    "runtime",
    "tolerance",
]
