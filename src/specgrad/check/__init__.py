"""Rounding or bug? Conformance of operators, audit of models, and a test helper for authors of kernels."""

from .conformance import Conformance, Finding, conformance
from .kernel import ConformanceError, assert_conforms
from .question import OPERATORS, Question
from .runtimes import RUNTIMES, runtime

__all__ = [
    "OPERATORS",
    "RUNTIMES",
    "Conformance",
    "ConformanceError",
    "Finding",
    "Question",
    "assert_conforms",
    "conformance",
    "runtime",
]
