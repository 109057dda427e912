"""Decisions that no correct runtime can change: proven, not proven, or shown to differ (specgrad preserve)."""

from .decision import Decision
from .preserve import PreserveResult, Sample, preserve

__all__ = ["Decision", "PreserveResult", "Sample", "preserve"]
