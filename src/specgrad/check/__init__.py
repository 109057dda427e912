"""Rounding or bug? Conformance of operators, audit of models, and a test helper for authors of kernels."""

from .audit import Audit, Layer, audit
from .conformance import Conformance, Finding, conformance
from .kernel import ConformanceError, assert_conforms
from .question import OPERATORS, Question
from .runtimes import RUNTIMES, runtime

__all__ = [
    "OPERATORS",
    "RUNTIMES",
    "Audit",
    "Conformance",
    "ConformanceError",
    "Finding",
    "Layer",
    "Question",
    "assert_conforms",
    "audit",
    "conformance",
    "runtime",
]
