"""The operators, one file per family; importing this package registers them all, in this order."""

from . import layout
from . import elementwise, activation, contract, integer_rounding, avg_pool, max_pool, trigonometric, gather
from . import composites, conv, sorting, quantize, resize, smooth_pool
