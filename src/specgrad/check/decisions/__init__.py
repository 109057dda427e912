"""Decisions that no correct runtime can change: proven, not proven, or shown to differ (specgrad preserve)."""

from .decision import Decision
from .preserve import PreserveResult, preserve
from .sample_verdict import Sample

__all__ = ["Decision", "PreserveResult", "Sample", "preserve"]
