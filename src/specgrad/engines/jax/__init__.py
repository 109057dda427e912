"""The JAX engine: a table of lines, the algorithms behind some of them, and whole graphs as functions."""

from ...errors import need

need("jax", "the JAX engine needs")

from .table import ENGINE, TABLE, run

__all__ = ["ENGINE", "TABLE", "run"]
