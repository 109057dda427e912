"""Bounds that hold for the deployed network on a box of inputs, and the verdicts that rest on them.

Box, Bounds    a low and a high end per cell; what is proven about outputs and layers
crown          backward linear bounds: narrower, for linear objectives of the outputs
ibp            interval bounds of every operator, derivatives included
"""

from .box import Bounds, Box
from .crown import crown
from .ibp import ibp

__all__ = ["Bounds", "Box", "crown", "ibp"]
