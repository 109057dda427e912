"""Evidence about one model and its target: what was asked, what was found, what it rests on, what it may support."""

from .collect import gather
from .item import Evidence, Item

__all__ = ["Evidence", "Item", "gather"]
