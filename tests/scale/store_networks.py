"""A small network with three outputs, its weights and image, and a runner of its own process that can be killed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import specgrad as sg
from specgrad.scale import Plan, tiles

SHAPES = {"down": (3, 1, 3, 3), "deep": (4, 3, 3, 3), "head": (2, 7, 1, 1)}


def net(p: Any, x: Any) -> Any:
    """Two sizes, a skip; the values, what they are made of at half the size, and classes."""
    y = sg.relu(sg.conv(p["down"], None, x, padding=1))
    z = sg.relu(sg.conv(p["deep"], None, sg.max_pool(y, (2, 2)), padding=1))
    y = sg.conv(p["head"], None, sg.concat([y, sg.upsample_nearest(z, (2, 2))], axis=1))
    return y, z, sg.argmax(y, axis=1)


def classes(p: Any, x: Any) -> Any:
    return net(p, x)[2]


def given(size: int, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """Integers, so that every engine and every order of sums has one result; a part of the image is empty."""
    rng = np.random.default_rng(seed)
    params = {name: rng.integers(-1, 2, s).astype(np.float32) for name, s in SHAPES.items()}
    x = rng.integers(0, 5, (1, 1, size, size)).astype(np.uint8)
    x[..., : size // 2, : size // 2] = 0
    return params, x


def plan_at(size: int, tile: Any, function: Any = net) -> Plan:
    return tiles(sg.trace(function, SHAPES, (1, 1, size, size)), tile)


def stored(path: Path, x: Any, chunks: tuple[int, ...], shards: tuple[int, ...] | None = None) -> str:
    import zarr

    whole = {"write_empty_chunks": True}
    zarr.create_array(str(path), shape=x.shape, chunks=chunks, shards=shards, dtype=x.dtype, config=whole)[:] = x
    return str(path)


def read(path: Path | str) -> Any:
    """By zarr itself, not by what wrote it."""
    import zarr

    return zarr.open_array(str(path), mode="r")[:]


def main() -> None:
    """folder size tile executor: run from folder/x.zarr to folder/y.zarr, on the specification."""
    folder, size, tile, executor = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    params, _ = given(size)
    plan = plan_at(size, tile, classes)
    state = plan.run(
        params, f"{folder}/x.zarr", f"{folder}/y.zarr", executor=executor, workers=2, engine="numpy", dtype="uint8"
    )
    print(json.dumps({"run": state.run, "deaths": state.deaths}))


if __name__ == "__main__":
    main()
