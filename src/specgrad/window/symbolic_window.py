"""A window over symbolic sizes: it stores the call that made it, so that the call can be repeated at other sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..errors import UnsupportedError
from .sizes import Shape
from .symbolic_size import Sizes, SymbolicSize, open_key, quotient, size_at, smaller

Maker = Literal["strided", "adaptive", "transposed"]


@dataclass(frozen=True, slots=True, eq=False)
class OpenWindow:
    """A window over symbolic sizes; `made` and `asked` are the call of `window.arguments` that made it.

    sizes      the spatial sizes that the call got
    size       the sizes of its inputs
    out        the sizes of its outputs
    kernel     taps per axis; () of adaptive cells
    operator   name for messages
    """

    made: Maker
    operator: str
    sizes: tuple[SymbolicSize | int, ...]
    asked: tuple[tuple[str, Any], ...]
    size: tuple[SymbolicSize | int, ...]
    out: tuple[SymbolicSize | int, ...]

    @property
    def rank(self) -> int:
        """Return the number of spatial axes."""
        return len(self.sizes)

    @property
    def kernel(self) -> Shape:
        """Return the taps per axis; () for adaptive cells."""
        kernel: Shape = dict(self.asked).get("kernel", ())
        return kernel

    @property
    def has_empty(self) -> bool:
        """Raise UnsupportedError: whether a window is empty depends on the size."""
        text = (
            "whether a window is empty depends on the size; take the derivative of the whole graph, or close the size"
        )
        raise UnsupportedError(self.operator, text)

    @property
    def key(self) -> Any:
        """Return a hashable that is equal for windows of equal calls."""
        return self.made, self.operator, open_key(self.sizes), open_key(self.asked)

    def request(self, sizes: Sizes) -> tuple[Shape, dict[str, Any]]:
        """Return the spatial sizes and the arguments of the call that makes the window at these sizes."""
        asked = {name: tuple(size_at(v, sizes) for v in value) if name == "output" else value
                 for name, value in self.asked}  # fmt: skip
        return tuple(size_at(n, sizes) for n in self.sizes), asked


def strided_out(n: Any, k: int, s: int, e: int, padding: Any, axis: int, ceil: bool) -> Any:
    """Return the output size of a strided axis as `strided_axis` counts it, without deciding anything about n.

    k, s, e: kernel, stride, dilation; `padding` is a word, or pairs of which `axis` takes one. Rounded up if `ceil`.
    """
    if padding in ("same_upper", "same_lower"):
        return quotient(n + s - 1, s)
    lo, hi = (0, 0) if padding == "valid" else padding[axis]
    over = n + lo + hi - e * (k - 1) - 1
    if not ceil:
        return quotient(over, s) + 1
    most = quotient(over + s - 1, s) + 1
    inside = n + lo - 1 - (most - 1) * s  # [W3] below 0, and never below -(hi + s), where the last one must be dropped
    return most + smaller(0, quotient(inside, hi + s))


def transposed_size(n: Any, k: int, s: int, e: int, pads: tuple[int, int], more: int) -> Any:
    """Return the size of a transposed axis, symbolic if n is: (n - 1)*s + e*(k - 1) + 1 - lo - hi + more.

    k, s, e: kernel, stride, dilation; more: output_padding. pads: (lo, hi).
    """
    return (n - 1) * s - pads[0] - pads[1] + e * (k - 1) + 1 + more
