"""The window relation: which input cell does tap t of output position o read?

Everything windowed in this library (conv, conv_transpose, every pooling, receptive fields, halos) is this
relation, and nothing outside this room computes an input coordinate. Per spatial axis

    strided:   tap t of output o reads input  i = s*o + e*t - lo ;  i outside [0, n) is a padded tap
               out = floor((n + lo + hi - e*(k-1) - 1) / s) + 1
    adaptive:  output o reads the cells  [floor(o*n/out), ceil((o+1)*n/out))

A window over d axes is the product of its axes; taps are visited in row-major order.

Rules: [W1] k, s, e, n >= 1 and lo, hi >= 0. [W2] e*(k-1)+1 <= n + lo + hi. [W3] `ceil` rounds the output size
up, then drops a last window that would start in the high padding; so under `ceil` the last window may hang over the
padded input by up to s-1 cells, and [W2] allows as much (PyTorch's max_pool1d(2 cells, 3, 2, ceil) is one window).
"""

from .arguments import (
    adaptive,
    int_of,
    kernel_of,
    mapped,
    per_axis,
    pooling,
    refuse_adaptive,
    resolve_padding,
    same_total,
    size_of,
    strided,
    transposed,
    transposed_padding,
    window_at,
    window_over,
)
from .axis import Adaptive, Axis, Strided
from .padding_modes import border
from .patch import Patch
from .receptive_field import ReceptiveField
from .resize import Resized, resized
from .sizes import OPEN_SIZES, Padding, PerAxis, Shape, remembered, whole
from .symbolic_size import (
    Guard,
    Repeated,
    SymbolicSize,
    any_open,
    identical,
    indices,
    is_one,
    open_key,
    size_at,
    symbolic,
    symbols_in,
    without_guards,
)
from .symbolic_window import OpenWindow
from .tap import Tap
from .window import Native, Window

__all__ = [
    "OPEN_SIZES",
    "Adaptive",
    "Axis",
    "Guard",
    "Native",
    "OpenWindow",
    "Padding",
    "Patch",
    "PerAxis",
    "ReceptiveField",
    "Repeated",
    "Resized",
    "Shape",
    "Strided",
    "SymbolicSize",
    "Tap",
    "Window",
    "adaptive",
    "any_open",
    "border",
    "identical",
    "indices",
    "int_of",
    "is_one",
    "kernel_of",
    "mapped",
    "open_key",
    "per_axis",
    "pooling",
    "refuse_adaptive",
    "remembered",
    "resized",
    "resolve_padding",
    "same_total",
    "size_at",
    "size_of",
    "strided",
    "symbolic",
    "symbols_in",
    "transposed",
    "transposed_padding",
    "whole",
    "window_at",
    "window_over",
    "without_guards",
]
