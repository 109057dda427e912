"""Evidence about one model and its target: every check, its result, its assumptions and what it may support."""

from .collect import gather
from .item import Evidence, Item

__all__ = ["Evidence", "Item", "gather"]
