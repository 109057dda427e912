"""A model with nothing left to defaults, inference or convention: it means the same, or it is not written."""

from .normalise import Normalised, is_normalised, normalise

__all__ = ["Normalised", "is_normalised", "normalise"]
