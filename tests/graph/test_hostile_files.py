"""Files that others wrote, or that broke: one FileError for any bytes; nothing overwritten, nothing half-written."""

from __future__ import annotations

import copy
import json
import os
import struct
from pathlib import Path
from random import Random

import numpy as np
import pytest

import specgrad as sg
from laws import graph_of
from specgrad.graph.save import FileError, from_json, to_json
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


def damaged(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.3 else changed)


def network(x):
    w = np.ones((2, 1, 3, 3))
    y, i = sg.max_pool(sg.relu(sg.conv(w, None, x, stride=2, padding=1)), (2, 2), return_indices=True)
    return {"a": sg.softmax(y, 1) / 3, "b": (i, sg.avg_pool(y, (1, 1)) * np.arange(2))}


def documents(folder: Path) -> list[Path]:
    """Saved graphs to damage: a network, its derivative, and one graph per operator."""
    first = sg.trace(network, (1, 1, 5, 5))
    graphs = [first, sg.trace(lambda x: sg.sum(x * np.arange(3.0)), (3,))]
    graphs.append(sg.vjp(graphs[1]))
    for name in sorted(REGISTRY):
        if REGISTRY[name].index_args != (0,):
            graphs.append(graph_of(REGISTRY[name], REGISTRY[name].cases(Random(1)))[0])
    for number, graph in enumerate(graphs):
        sg.save(graph, folder / f"{number}.json")
    return [folder / f"{number}.json" for number in range(len(graphs))]


def fuzz_graphs(folder: Path, count: int) -> int:
    """How many mutants loaded; every other one ended in a FileError, and what loads is written as it was read."""
    rng, paths, loaded = Random(0), documents(folder), 0
    for _ in range(count):
        path = rng.choice(paths)
        original = path.read_bytes()
        data = json.loads(original)
        for _ in range(rng.choice([1, 1, 2, 4])):
            data = mutate(data, rng)
        text = json.dumps(data).encode()
        path.write_bytes(damaged(text, rng) if rng.random() < 0.1 else text)
        try:
            graph = sg.load(path)
            assert str(graph)
            constants = {graph.nodes[i].name: a for i, a in graph.constants.items()}
            assert to_json(from_json(to_json(graph), constants)) == to_json(graph)
            loaded += 1
        except FileError:
            pass
        finally:
            path.write_bytes(original)
    return loaded


def fuzz_params(folder: Path, count: int) -> int:
    rng, path, loaded = Random(0), folder / "p.safetensors", 0
    sg.save_params({"a": (np.ones(3), np.zeros((2, 2))), "b": {"c": np.arange(3)}}, path)
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, cells = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    for _ in range(count):
        changed = copy.deepcopy(header)
        structure = mutate({"s": json.loads(header["__metadata__"]["structure"])}, rng).get("s")
        changed["__metadata__"]["structure"] = json.dumps(structure)
        text = json.dumps(mutate(changed, rng) if rng.random() < 0.5 else changed).encode()
        data = struct.pack("<Q", len(text)) + text + cells
        path.write_bytes(damaged(data, rng) if rng.random() < 0.2 else data)
        try:
            sg.load_params(path)
            loaded += 1
        except FileError:
            pass
    return loaded


def test_mutants_of_graphs_are_refused_with_one_error(tmp_path: Path) -> None:
    assert 0 < fuzz_graphs(tmp_path, 400) < 400


def test_mutants_of_parameters_are_refused_with_one_error(tmp_path: Path) -> None:
    assert 0 < fuzz_params(tmp_path, 300) < 300


@pytest.mark.slow
def test_many_mutants_are_refused_with_one_error(tmp_path: Path) -> None:
    assert fuzz_graphs(tmp_path, 20_000) < 20_000
    assert fuzz_params(tmp_path, 10_000) < 10_000


def pair(folder: Path) -> None:
    for name, w in (("a", np.ones(2)), ("b", np.full(2, 5.0))):
        sg.save(sg.trace(lambda x, w=w: x * w, (2,)), folder / f"{name}.json")


def test_weights_of_another_graph_are_refused(tmp_path: Path) -> None:
    pair(tmp_path)
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.raises(FileError, match=r"the arrays beside a\.json are not those it was saved with"):
        sg.load(tmp_path / "a.json")


def test_files_of_version_1_still_load(tmp_path: Path) -> None:
    pair(tmp_path)
    data = json.loads((tmp_path / "a.json").read_text())
    assert (data["version"], len(data.pop("arrays"))) == (2, 64)
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(FileError, match="arrays"):
        sg.load(tmp_path / "a.json")  # a digest taken away is not an older file
    (tmp_path / "a.json").write_text(json.dumps({**data, "version": 1}))
    assert sg.load(tmp_path / "a.json")(np.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("where", [(), ("nodes", 0), ("nodes", 2, "args", 0), ("inputs", 0)])
def test_unknown_keys_are_refused(where: tuple, tmp_path: Path) -> None:
    sg.save(sg.trace(lambda p: 2 * (p["x"] + 1), {"x": (2,)}), tmp_path / "a.json")
    data = json.loads((tmp_path / "a.json").read_text())
    inside = data
    for key in where:
        inside = inside[key]
    inside["surprise"] = 1
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(FileError, match="unknown key 'surprise'"):
        sg.load(tmp_path / "a.json")


@pytest.mark.parametrize("name", ["a.json", "a.safetensors"])
@pytest.mark.parametrize("content", [b"my notes", b'{"format": "mine"}', struct.pack("<Q", 2) + b"{}"])
def test_foreign_files_are_kept(name: str, content: bytes, tmp_path: Path) -> None:
    graph = sg.trace(lambda x: x * np.ones(2), (2,))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match="exists and was not written by this function"):
        sg.save(graph, tmp_path / "a.json")
    with pytest.raises(FileError, match="exists and was not written by this function"):
        sg.save_params({"w": np.ones(2)}, tmp_path / name)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(name, content)]
    sg.save(graph, tmp_path / "a.json", force=True)
    sg.save(graph, tmp_path / "a.json")
    assert sg.load(tmp_path / "a.json")(np.ones(2)).tolist() == [1.0, 1.0]


def test_a_graph_does_not_overwrite_parameters(tmp_path: Path) -> None:
    sg.save_params({"w": np.ones(2)}, tmp_path / "net.safetensors")
    with pytest.raises(FileError, match=r"net\.safetensors exists"):
        sg.save(sg.trace(lambda x: x * np.ones(2), (2,)), tmp_path / "net.json")
    assert sg.load_params(tmp_path / "net.safetensors")["w"].tolist() == [1.0, 1.0]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        sg.save(sg.trace(lambda x: x * np.zeros(2), (2,)), tmp_path / "a.json")
    with pytest.raises(OSError, match="No space left"):
        sg.save_params({"w": np.ones(2)}, tmp_path / "p.safetensors")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
