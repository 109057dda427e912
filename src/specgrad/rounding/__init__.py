"""Rigorous rounding error bounds: for a graph, inputs and an arithmetic, a radius that no correct execution can leave.

Arithmetic      what a runtime stores and accumulates in, whether it flushes, how exact its functions are
TensorCore      how a matrix unit adds products, for Arithmetic(cores=)
radius          a graph's values with their radii; derivative graphs are graphs
local_radius    the same for one operator call
ULPS            declared errors of exp, log, ... per runtime (specgrad.declared_errors)
WORST_ULPS      the largest of them over all runtimes
"""

from ..declared_errors import ULPS, WORST_ULPS
from .arithmetic import FORMATS, Arithmetic, Format, TensorCore
from .ball import Ball, Candidates
from .propagate import RadiusReport, local_radius, radius

__all__ = [
    "FORMATS",
    "ULPS",
    "WORST_ULPS",
    "Arithmetic",
    "Ball",
    "Candidates",
    "Format",
    "RadiusReport",
    "TensorCore",
    "local_radius",
    "radius",
]
