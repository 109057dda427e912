"""Work that outgrows one call: how far networks look, exact tiles of any size, parts on several processes."""

from ..parts.parts import Parts
from .margin import AxisMargin, Margin, margin
from .plan import Plan, tiles
from .shard import shard
from .tile import Tile

__all__ = ["AxisMargin", "Margin", "Parts", "Plan", "Tile", "margin", "shard", "tiles"]
