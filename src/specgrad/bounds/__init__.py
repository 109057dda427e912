"""Bounds that hold for the deployed network on a box of inputs, and the verdicts that rest on them.

Box, Bounds    a low and a high end per cell; what is proven about outputs and layers
crown          backward linear bounds: narrower, for linear objectives of the outputs
lipschitz      certified Lipschitz constants, from bounds on gradients (gradient_box)
ibp            interval bounds of every operator, derivatives included
"""

from .box import Bounds, Box
from .crown import crown
from .gradient import gradient_box, lipschitz
from .ibp import ibp

__all__ = ["Bounds", "Box", "crown", "gradient_box", "ibp", "lipschitz"]
