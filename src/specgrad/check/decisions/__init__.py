"""Decisions that no correct runtime can change: proven, not proven, or shown to differ (specgrad preserve)."""

from .decision import Decision
from .preserve import Preserved, Sample, preserve

__all__ = ["Decision", "Preserved", "Sample", "preserve"]
