"""Bounds that hold for the deployed network on a box of inputs, and the verdicts that rest on them.

Box, Bounds    a low and a high end per cell; what is proven about outputs and layers
ibp            interval bounds of every operator, derivatives included
crown          backward linear bounds: narrower, for linear objectives of the outputs
lipschitz      certified Lipschitz constants, from bounds on gradients (gradient_box)
certify        does a property hold for every float32 execution?
prove          a certificate of a property, for specgrad.proof.check
largest_eps    how far every cell of an input may move: what is proven, and what is broken

PyTorch is imported by the first call that computes with it, not here: a checker of certificates does without.
"""

from .box import Bounds, Box
from .crown_bounds import crown
from .gradient import gradient_box, lipschitz
from .interval_bounds import ibp
from .search.certificates.prove import NoCertificateError, prove
from .search.certify import CertifyResult, certify
from .search.eps_search import LargestEps, largest_eps

__all__ = [
    "Bounds",
    "Box",
    "CertifyResult",
    "LargestEps",
    "NoCertificateError",
    "certify",
    "crown",
    "gradient_box",
    "ibp",
]
__all__ += ["largest_eps", "lipschitz", "prove"]
