"""Work that outgrows one call: how far networks look, and exact tiles of any size."""

from .margin import AxisMargin, Margin, margin
from .plan import Plan, tiles
from .tile import Tile

__all__ = ["AxisMargin", "Margin", "Plan", "Tile", "margin", "tiles"]
