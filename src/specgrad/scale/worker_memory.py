"""What a worker of `plan.run` takes beside the values of its tile: its constant, what kernels need, what glibc keeps.

The constants are stated, not measured while planning: a plan that is resumed must choose the tile that it chose before,
and who plans is often another machine. `benchmarks/tile_memory.py` measures them, and all the rest, in real workers.
"""

from __future__ import annotations

import ctypes
import math
from contextlib import suppress

from ..errors import ParameterError
from ..graph.ir.node import Node
from ..partition.cropped_graph import CroppedGraph
from ..window import Shape
from ..window.footprint import Footprint, lengths

WORKER_BYTES = {"numpy": 75_000_000, "torch": 280_000_000, "jax": 350_000_000}
"""Per engine: what a worker takes, with everything imported, for tiles of next to nothing (Linux, builds for CPUs)."""
WEIGHT_COPIES = 3
"""How often the weights are there while a worker reads them."""
FLOAT32_BYTES = 4
BLOCK = 16  # channels: oneDNN, and with it PyTorch in float32, computes on copies padded to a multiple
M_MMAP_THRESHOLD, MMAP_BYTES = -3, 1 << 20  # an option of glibc's mallopt; blocks from this size on


def return_freed_blocks() -> None:
    """Have glibc return blocks from MMAP_BYTES on when they are freed; does nothing with another C library.

    By default it raises that threshold up to 32 MB and keeps what is smaller: a worker with tiles of many sizes then
    takes twice of what they need.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)


def worker_bytes(engine: str, weights: int, values: int) -> int:
    """Return what a worker takes on an engine with so many bytes of weights, and of values of one tile.

    ParameterError for an unknown engine.
    """
    if engine not in WORKER_BYTES:
        raise ParameterError("tiles", f"engine must be one of {', '.join(WORKER_BYTES)}; got {engine!r}")
    return WORKER_BYTES[engine] + max(WEIGHT_COPIES * weights, weights + values)


def tile_cells(cut: CroppedGraph, engine: str, itemsize: int) -> int:
    """Return the cells that a worker holds at once for a tile: values, kernels, and twice the data that were read."""
    read = sum(math.prod(lengths(cut.needs[p])) for p in cut.inputs[0])
    return 2 * read + cut.peak_cells_beside(lambda node, at: workspace_cells(node, at, engine, itemsize))


def workspace_cells(node: Node, cut: Footprint, engine: str, itemsize: int) -> int:
    """Return the cells that the kernel of a node, cut to a tile, takes beside its arguments and its result.

    Convolutions take most. PyTorch's copies an argument to pad its ends differently; in float32 it copies argument and
    result into blocks of channels, in other types it writes out the window that each cell of the result reads. XLA and
    the specification copy both once; the specification computes other results in two steps.
    """
    if node.op.name not in ("conv", "conv_transpose"):
        return math.prod(lengths(cut.gives)) if engine == "numpy" else 0
    given, result, weight = lengths(cut.args[0]), lengths(cut.gives), lengths(cut.args[1])
    if engine != "torch":
        return math.prod(given) + math.prod(result)
    padded = 0 if node.op.name == "conv_transpose" or _pads_alike(cut) else math.prod(given)
    if itemsize == FLOAT32_BYTES:
        return padded + _blocked(given, weight) + _blocked(result, weight)
    windows, channels = (result, given) if node.op.name == "conv" else (given, result)
    channel = len(given) - len(weight) + 1
    return padded + math.prod(weight[2:]) * channels[channel] * math.prod(windows) // max(1, windows[channel])


def _pads_alike(cut: Footprint) -> bool:
    """Return whether a convolution is padded by as many cells at both ends of every axis."""
    native = cut.params["window"].native()
    return native is not None and native.padding is not None


def _blocked(shape: Shape, weight: Shape) -> int:
    """Return the cells of (*batch, channels, *spatial), its channels padded to a multiple of BLOCK.

    The rank is that of `weight`.
    """
    channel = len(shape) - len(weight) + 1
    padded = -(-shape[channel] // BLOCK) * BLOCK
    return math.prod(shape) // max(1, shape[channel]) * padded
