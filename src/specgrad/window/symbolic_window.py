"""A window over sizes that are open: how it was asked for, so that it can be asked for again at other sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..errors import UnsupportedError
from .symbolic_size import Sizes, SymbolicSize, open_key, quotient, size_at, smaller
from .types import Shape

Maker = Literal["strided", "adaptive", "transposed"]


@dataclass(frozen=True, slots=True, eq=False)
class OpenWindow:
    """What a trace needs of a window: its sizes. `made` and `asked` say by which call of `window.arguments`.

    size    the sizes of its inputs, some of them open
    out     the sizes of its outputs
    kernel  taps per axis; of adaptive cells nobody asks while tracing
    """

    made: Maker
    operator: str
    sizes: tuple[SymbolicSize | int, ...]
    asked: tuple[tuple[str, Any], ...]
    size: tuple[SymbolicSize | int, ...]
    out: tuple[SymbolicSize | int, ...]

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def kernel(self) -> Shape:
        kernel: Shape = dict(self.asked).get("kernel", ())
        return kernel

    @property
    def has_empty(self) -> bool:
        text = (
            "whether a window is empty depends on the size; take the derivative of the whole graph, or close the size"
        )
        raise UnsupportedError(self.operator, text)

    @property
    def key(self) -> Any:
        """Equal for windows that were asked for alike."""
        return self.made, self.operator, open_key(self.sizes), open_key(self.asked)

    def request(self, sizes: Sizes) -> tuple[Shape, dict[str, Any]]:
        """The spatial sizes and the arguments with which to ask for the window at these sizes."""
        asked = {name: tuple(size_at(v, sizes) for v in value) if name == "output" else value
                 for name, value in self.asked}  # fmt: skip
        return tuple(size_at(n, sizes) for n in self.sizes), asked


def strided_out(n: Any, k: int, s: int, e: int, padding: Any, axis: int, ceil: bool) -> Any:
    """The outputs of a strided axis, as `strided_axis` counts them, without deciding anything about n."""
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
    return (n - 1) * s - pads[0] - pads[1] + e * (k - 1) + 1 + more
