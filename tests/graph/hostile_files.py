"""Saved graphs and parameters to damage, and the damage."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np

import specgrad as sg
from laws import graph_of
from specgrad.graph.files.save import _decode
from specgrad.op import REGISTRY

HUGE = [10**9, 2**63, -(2**63), 10**40, 1e308, float("nan"), float("inf")]
WORDS = ["", "x", "relu", "conv", "input", "constant", "index", "a\nb", "\x1b[2J", "[/]", "\ud800"]
PARTS = [[], [[]], {}, [0], [-1], [10**12], {"dict": [["a", 0]]}, {"window": []}, {"number": "x"}, {"float": "x"}]
TAGS = [{"fraction": "1/0"}, {"fraction": "9" * 5000}, {"window": [{"size": 5, "out": 2}]}, {"number": 1}]
VALUES = [None, True, False, 0, -1, 1, 2, 0.5, *HUGE, *WORDS, *PARTS, *TAGS]


def places(data, path=()):
    yield path
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield from places(data[key], (*path, key))


def mutate(data, rng: Random):
    """One place of the JSON data changed: deleted, doubled, counted on, or replaced by a value or another part."""
    data = copy.deepcopy(data)
    found = list(places(data))[1:]
    if not found:
        return data
    *path, key = rng.choice(found)
    inside = data
    for k in path:
        inside = inside[k]
    what = rng.random()
    if what < 0.15:
        del inside[key]
    elif what < 0.3 and type(inside[key]) is int:
        inside[key] += rng.choice([-2, -1, 1, 2, 100])
    elif what < 0.4 and isinstance(inside, list):
        inside.insert(key, copy.deepcopy(inside[key]))
    elif what < 0.5 and isinstance(inside, dict):
        inside[rng.choice(["x", "kind", "group", "exact", "args", "params"])] = copy.deepcopy(rng.choice(VALUES))
    else:
        inside[key] = copy.deepcopy(rng.choice(VALUES))
    return data


def repaired(data):
    """The same with the shapes that its operators give, so that more of it loads."""
    with suppress(Exception):
        shapes: list = []
        for row in data["nodes"]:
            shapes.append(row["shape"])
            if row["op"] in REGISTRY:
                given = [() if isinstance(a, dict) else tuple(shapes[a]) for a in row["args"]]
                named = {key: _decode(value) for key, value in row.get("params", {}).items()}
                row["shape"] = shapes[-1] = list(REGISTRY[row["op"]].shape(*given, **named))
    return data


def grown(data, rng: Random):
    """One whole number of a node larger, most often one of its window."""
    data = copy.deepcopy(data)
    found = [p for p in places(data["nodes"]) if p and p[-1] != "out"]
    numbers = [p for p in found if type(inner(data["nodes"], p)) is int and "args" not in p]
    if numbers:
        path = rng.choice(numbers)
        inner(data["nodes"], path[:-1])[path[-1]] = rng.choice([0, 1, 2, 3, 5, 8, 10**3, 10**6, 10**9, 10**12, 2**40])
    return data


def inner(data, path):
    for key in path:
        data = data[key]
    return data


def damaged(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.3 else changed)


def network(x):
    w = np.ones((2, 1, 3, 3))
    y, i = sg.max_pool(sg.relu(sg.conv(w, None, x, stride=2, padding=1)), (2, 2), return_indices=True)
    return {"a": sg.softmax(y, 1) / 3, "b": (i, sg.avg_pool(y, (1, 1)) * np.arange(2))}


def open_graphs() -> list[sg.Graph]:
    def net(x):
        y = sg.max_pool(sg.conv(np.ones((2, 1, 3, 3)), None, x, padding="same_upper"), (2, 2), ceil=True)
        return sg.softmax(sg.flatten(y * np.arange(2)[:, None, None], 2)[..., 1:-1], 2) / x.shape[2]

    graph = sg.trace(net, ("N", 1, "H=5", "W=5"))
    return [graph, sg.jvp(graph), sg.trace(lambda x: sg.adaptive_avg_pool(x, (3,)), ("N", "H=5"))]


def documents(folder: Path) -> list[Path]:
    """Saved graphs to damage: a network, with open sizes too, its derivative, and one graph per operator."""
    first = sg.trace(network, (1, 1, 5, 5))
    graphs = [first, sg.trace(lambda x: sg.sum(x * np.arange(3.0)), (3,))]
    graphs.append(sg.vjp(graphs[1]))
    graphs += open_graphs() * 4  # as many as to be met often
    for name in sorted(REGISTRY):
        if REGISTRY[name].index_args != (0,):
            graphs.append(graph_of(REGISTRY[name], REGISTRY[name].cases(Random(1)))[0])
    for number, graph in enumerate(graphs):
        sg.save(graph, folder / f"{number}.json")
    return [folder / f"{number}.json" for number in range(len(graphs))]


def changed_params(folder: Path) -> Callable[[Random], Path]:
    """A function that writes a file of parameters with something changed: structure, header or bytes."""
    path = folder / "p.safetensors"
    sg.save_params({"a": (np.ones(3), np.zeros((2, 2))), "b": {"c": np.arange(3)}}, path)
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, cells = json.loads(raw[8 : 8 + length]), raw[8 + length :]

    def make(rng: Random) -> Path:
        changed = copy.deepcopy(header)
        structure = mutate({"s": json.loads(header["__metadata__"]["structure"])}, rng).get("s")
        changed["__metadata__"]["structure"] = json.dumps(structure)
        text = json.dumps(mutate(changed, rng) if rng.random() < 0.5 else changed).encode()
        data = struct.pack("<Q", len(text)) + text + cells
        path.write_bytes(damaged(data, rng) if rng.random() < 0.2 else data)
        return path

    return make
