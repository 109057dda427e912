"""Work that outgrows one call: halos of networks, exact tiles of any size, networks split over processes."""

from ..partition.partition import Partition
from .halos import AxisHalo, Halo, halo
from .plan import Plan, tiles
from .sharding.torch_shard import shard
from .tile import Tile

__all__ = ["AxisHalo", "Halo", "Partition", "Plan", "Tile", "halo", "shard", "tiles"]
