"""Alias of specgrad.scale.worker_entry under the name that existing job files hold."""

from .worker_entry import plan_of, tile_job

__all__ = ["plan_of", "tile_job"]
