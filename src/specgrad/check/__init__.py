"""Rounding or bug? Conformance of operators, audit of models, and a test helper for authors of kernels."""
