"""Rewrites a model with nothing left to defaults, inference or convention; proven equal, or not written."""

from .normalise import Normalised, is_normalised, normalise

__all__ = ["Normalised", "is_normalised", "normalise"]
