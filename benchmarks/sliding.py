"""Exact tiles beside what people use: MONAI's sliding window, cropped margins, dask.map_overlap. Who changes classes?

pip install --no-deps monai                # beside specgrad[dev]; not a dependency
python benchmarks/sliding.py               # prints and writes benchmarks/sliding.txt; some minutes of one thread
python benchmarks/sliding.py --quick       # at 384x384, writes nothing

A U-Net of MONAI with residual units and batch norm is trained here on blobs in noise; one run over the whole image is
what every way of cutting it should give. CPU is the median of three interleaved rounds, relative to that run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dask
import dask.array as da
import monai
import numpy as np
import torch
from monai.inferers import SlidingWindowInferer
from monai.networks.nets import UNet

import specgrad as sg
from specgrad.interop import from_torch
from specgrad.scale import halo as halo_of
from specgrad.scale import tiles

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pace import slower

torch.set_num_threads(1)
ROUNDS = 3


def blobs(count: int, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Discs on an uneven background, in noise; the class of a pixel says whether it lies in a disc."""
    g = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    images, labels = [], []
    for _ in range(count):
        phase = 6 * torch.rand(2, generator=g)
        image, inside = torch.sin(columns / 37 + phase[0]) / 2 + torch.cos(rows / 53 + phase[1]) / 2, rows < 0
        for _ in range(size * size // 1200):
            (row, column), radius = torch.rand(2, generator=g) * size, 3 + 12 * torch.rand(1, generator=g)
            inside = inside | ((rows - row) ** 2 + (columns - column) ** 2 < radius**2)
        images.append(image + 0.6 * inside + 0.5 * torch.randn(size, size, generator=g))
        labels.append(inside.long())
    return torch.stack(images)[:, None], torch.stack(labels)


def trained(steps: int) -> torch.nn.Module:
    torch.manual_seed(0)
    net = UNet(2, 1, 2, (8, 16, 32, 64), (2, 2, 2), num_res_units=1, norm="batch")
    optimiser, (x, y) = torch.optim.Adam(net.parameters(), 3e-3), blobs(24, 128, 1)
    for _ in range(steps):
        some = torch.randint(0, len(x), (4,))
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x[some]), y[some]).backward()
        optimiser.step()
    return net.eval()


def exact(graph: sg.Graph, size: int, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    plan = tiles(graph, size)

    def run() -> torch.Tensor:
        out = torch.empty(1, 2, *x.shape[2:])
        for t in plan:
            out[t.box] = t(x[t.reads])
        return out

    return run


def cropped(net: torch.nn.Module, size: int, more: int, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The network itself on each tile and `more` cells around it, then the tile cut out."""

    def run() -> torch.Tensor:
        out, n = torch.empty(1, 2, *x.shape[2:]), x.shape[-1]
        for a in range(0, n, size):
            for b in range(0, n, size):
                top, left = max(0, a - more), max(0, b - more)
                y = net(x[..., top : a + size + more, left : b + size + more])
                y = y[..., a - top : a - top + size, b - left : b - left + size]
                out[..., a : a + size, b : b + size] = y
        return out

    return run


def overlapped(net: torch.nn.Module, size: int, depth: int, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """dask.map_overlap of the network, chunk by chunk in this process."""

    def on(block: np.ndarray) -> np.ndarray:
        return net(torch.from_numpy(np.ascontiguousarray(block))[None, None]).numpy()[0]

    def run() -> torch.Tensor:
        image = da.from_array(x[0, 0].numpy(), chunks=size)
        depths = {0: depth, 1: depth}
        padded = da.overlap.overlap(image, depth=depths, boundary="none")
        chunks = ((2,), *padded.chunks)
        y = padded.map_blocks(on, new_axis=0, chunks=chunks, dtype="float32", meta=np.zeros((0, 0, 0), "float32"))
        y = da.overlap.trim_internal(y, {1: depth, 2: depth}, boundary={1: "none", 2: "none"})
        with dask.config.set(scheduler="synchronous"):
            return torch.from_numpy(y.compute())[None]

    return run


def ways(net: torch.nn.Module, graph: sg.Graph, x: torch.Tensor, size: int) -> dict[str, Callable[[], torch.Tensor]]:
    halo, crop = halo_of(graph).axes[0], max(halo_of(graph).axes[0].crop)
    table = {"one run": lambda: net(x), f"exact tiles of {size}": exact(graph, size, x)}
    for overlap, mode in ((0.25, "constant"), (0.25, "gaussian"), (0.5, "gaussian"), (0.75, "gaussian")):
        inferer = SlidingWindowInferer((size, size), 4, overlap, mode)
        table[f"MONAI {size}, overlap {overlap}, {mode}"] = lambda inferer=inferer: inferer(x, net)
    for more in sorted({0, halo.align, 2 * halo.align, crop}):
        said = " (margin says so)" if more == crop else ""
        table[f"crops of {size} and {more} around{said}"] = cropped(net, size, more, x)
    table[f"dask overlap {size}, depth {crop} (margin says so)"] = overlapped(net, size, crop, x)
    return table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    side, size = (384, 128) if quick else (1536, 256)
    net, (x, label) = trained(40 if quick else 200), blobs(1, side, 7)
    graph = from_torch(net, x)
    text = [f"MONAI {monai.__version__} UNet, trained here, {side}x{side}, float32, one thread; pace {slower():.1f}"]
    text += [f"halo: {halo_of(graph).axes[0]}", f"{'':44s} classes changed   bits equal   largest difference   CPU"]
    print(*text, sep="\n", flush=True)
    table = ways(net, graph, x, size)
    results, seconds = {}, {name: [] for name in table}
    with torch.no_grad():
        for _ in range(1 if quick else ROUNDS):
            for name, way in table.items():
                start = time.process_time()
                results[name] = way()
                seconds[name].append(time.process_time() - start)
    one, base = results["one run"], statistics.median(seconds["one run"])
    for name, y in results.items():
        changed, equal = int((y.argmax(1) != one.argmax(1)).sum()), 100 * float((y == one).float().mean())
        cost = statistics.median(seconds[name]) / base
        text.append(f"{name:44s} {changed:15,d} {equal:10.2f} % {float((y - one).abs().max()):20.2g} {cost:5.2f}")
        print(text[-1], flush=True)
    accuracy = 100 * float((one.argmax(1) == label).float().mean())
    text.append(f"one run: {base:.1f} s CPU, {accuracy:.2f} % of pixels right; {side * side:,} pixels")
    print(text[-1])
    if not quick:
        Path(__file__).with_suffix(".txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
