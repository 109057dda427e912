"""Work that outgrows one call: how far networks look, exact tiles of any size, parts on several processes."""

from ..partition.partition import Partition
from .halos import AxisMargin, Margin, margin
from .plan import Plan, tiles
from .tile import Tile
from .torch_shard import shard

__all__ = ["AxisMargin", "Margin", "Partition", "Plan", "Tile", "margin", "shard", "tiles"]
