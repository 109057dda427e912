"""Proven tolerances of a whole model."""
