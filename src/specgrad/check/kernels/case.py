"""One question to a kernel: its input arrays, the formats they are handed out in, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from specgrad.graph.graph import Graph
from specgrad.scalar import Array


@dataclass(frozen=True, eq=False)
class KernelCase:
    """One question to a kernel, and how it came about.

    arrays   the inputs by name, in order; NumPy arrays that hold the numbers exactly
    formats  input -> the type it is handed out in ("float32", "bfloat16", "int64", "bool")
    layout   "contiguous", "strided" (every other cell of a larger array) or "transposed" (the first axis runs fastest)
    data     the kind of numbers: a key of `draw_inputs.KINDS`, or "given"
    sizes    the open sizes, by name, that the arrays have
    axes     input -> per axis the name of its open size, or None
    seed     which draw it is
    gradient  whether the last array is the cotangent of the result, and cotangents of the others are asked for
    """

    arrays: Mapping[str, Array]
    formats: Mapping[str, str]
    layout: str = "contiguous"
    data: str = "given"
    sizes: Mapping[str, int] = field(default_factory=dict)
    axes: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    seed: int = 0
    gradient: bool = False

    @property
    def cells(self) -> int:
        """Return the number of cells of all inputs."""
        return sum(a.size for a in self.arrays.values())

    def numbers(self, graph: Graph) -> list[Array]:
        """Return the inputs as the graph of the reference takes them: positions as int64, all else as float64, which
        holds every number of the formats (1 and 0 for truth values).
        """
        kinds = [graph.nodes[p].kind for p in graph.input_positions]
        pairs = zip(self.arrays.values(), kinds, strict=True)
        return [a.astype(np.int64 if kind == "index" else np.float64) for a, kind in pairs]

    def holds(self, test: Callable[[Array], Array]) -> bool:
        """Return whether some cell of a floating-point input passes the test, such as np.isnan."""
        return any(test(a).any() for a in self.arrays.values() if a.dtype.kind == "f")

    def with_arrays(self, arrays: Mapping[str, Array]) -> KernelCase:
        """Return the case with other numbers in some arrays."""
        return replace(self, arrays={**self.arrays, **arrays})

    def in_layout(self, layout: str) -> KernelCase:
        """Return the case with its inputs laid out in memory otherwise."""
        return replace(self, layout=layout)

    def cut_to(self, sizes: Mapping[str, int]) -> KernelCase:
        """Return the case with the first cells alone along the axes of open sizes; `sizes` are the new ones."""
        arrays = {
            name: np.ascontiguousarray(
                a[tuple(slice(sizes.get(n or "")) for n in self.axes.get(name, (None,) * a.ndim))]
            )
            for name, a in self.arrays.items()
        }
        return replace(self, arrays=arrays, sizes={**self.sizes, **sizes})

    def __str__(self) -> str:
        parts = [f"{name} {self.formats[name]}{tuple(a.shape)}" for name, a in self.arrays.items()]
        how = "" if self.layout == "contiguous" else f", {self.layout} in memory"
        return f"{', '.join(parts)}{how} ({self.data}{f', draw {self.seed}' if self.data != 'given' else ''})"
