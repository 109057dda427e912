"""The JAX engine: a table of lowerings, the algorithms behind some of them, and graphs as functions."""

from ...errors import need

need("jax", "the JAX engine needs")

from .composites import COMPOSITES
from .lowerings import ENGINE, TABLE, run

__all__ = ["COMPOSITES", "ENGINE", "TABLE", "run"]
