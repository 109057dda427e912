"""The ONNX safety profile (SONNX): checks a file against its rules, and rewrites it so that it keeps them."""

from ...errors import need

need("onnx", "the safety profile needs")

from .normaliser import Normalised, normalise
from .report import Profile, check_profile, in_order
from .rule import RULES, Finding, Rule

__all__ = ["RULES", "Finding", "Normalised", "Profile", "Rule", "check_profile", "in_order", "normalise"]
