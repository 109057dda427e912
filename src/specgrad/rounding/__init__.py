"""Rigorous rounding error bounds: for a graph, inputs and an arithmetic, a radius that no correct execution can leave.

Arithmetic      what a runtime stores and accumulates in, whether it flushes, how exact its functions are
radius          a graph's values with their radii; derivative graphs are graphs
local_radius    the same for one operator call
ULPS            declared errors of exp, log, ... per runtime (specgrad.declared_errors)
WORST_ULPS      the largest of them over all runtimes
"""

from ..declared_errors import ULPS, WORST_ULPS
from .arithmetic import FORMATS, Arithmetic, Format
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
    "local_radius",
    "radius",
]
