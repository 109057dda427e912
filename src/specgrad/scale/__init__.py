"""Work that outgrows one call: halos of networks, exact tiles of any size, networks split over processes."""

from ..partition.partition import Partition
from .halos import AxisMargin, Margin, margin
from .plan import Plan, tiles
from .tile import Tile
from .torch_shard import shard

__all__ = ["AxisMargin", "Margin", "Partition", "Plan", "Tile", "margin", "shard", "tiles"]
