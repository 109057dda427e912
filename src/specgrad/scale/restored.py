"""The module of which job files speak: specgrad.scale.worker_entry."""

from .worker_entry import plan_of, tile_job

__all__ = ["plan_of", "tile_job"]
