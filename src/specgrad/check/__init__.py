"""Rounding or bug? Conformance of runtimes, audit and comparison of models, and a test helper for kernels."""

from .auditing.audit import Audit, audit, audit_recorded
from .auditing.layer import LayerVerdict
from .cases.op_case import OPERATORS, OpCase
from .cases.signature import Signature, kernel_signature
from .comparison.compare import compare
from .comparison.result import Comparison
from .conform.conformance import Conformance, Finding, conformance
from .decisions import PreserveResult, preserve
from .kernels.assert_conforms import assert_conforms
from .kernels.result import ConformanceError, ConformanceSummary
from .models.drawn_inputs import DefaultInputs, default_inputs
from .models.make_recording import RecordResult, record
from .models.recording import ModelRecording, open_recording
from .runtimes import RUNTIMES, runtime
from .tolerances.tolerance import Tolerance, tolerance

__all__ = [
    "OPERATORS",
    "RUNTIMES",
    "Audit",
    "Comparison",
    "Conformance",
    "ConformanceError",
    "ConformanceSummary",
    "DefaultInputs",
    "Finding",
    "LayerVerdict",
    "ModelRecording",
    "OpCase",
    "PreserveResult",
    "RecordResult",
    "Signature",
    "Tolerance",
    "assert_conforms",
    "audit",
    "audit_recorded",
    "compare",
    "conformance",
    "default_inputs",
    "kernel_signature",
    "open_recording",
    "preserve",
    "record",
    "runtime",
    "tolerance",
]
