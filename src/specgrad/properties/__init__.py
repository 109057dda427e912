"""What is to be proven: properties of a network, and VNN-LIB texts that state them."""

from .property import Alternative, Case, Property, PropertyError, robustness
from .vnnlib import read, read_text

__all__ = ["Alternative", "Case", "Property", "PropertyError", "read", "read_text", "robustness"]
