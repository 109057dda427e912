"""Trees of a certificate as the arrays and entries of its files: see docs/reference/certificate.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph
from specgrad.scalar import Array

from ..base.rationals import ReplayError
from ..batched.tree_replay import TreeProof
from .strict_json import entries, named, position, shown

TREE_KEYS = {"nodes", "cells", "points", "weights", "tighten", "narrow", "multipliers", "changed", "slopes", "anew"}
WINNERS = "taps", "pulls"  # of trees that cut by winners of windows, and of no others
NONE = np.zeros(0, np.int32)


def tree_entry(proof: TreeProof, name: str, kept: Callable[[str, Array], str]) -> dict[str, Any]:
    """What the JSON file says of a tree; `kept` takes an array and gives its name. Empty arrays are null."""

    def given(key: str, array: Array) -> str | None:
        return kept(f"{name}.{key}", array) if array.size else None

    entry: dict[str, Any] = {"tighten": sorted(set(proof.tighten)), "narrow": int(proof.narrow)}
    entry |= {key: given(key, getattr(proof, key).astype(np.int32)) for key in ("nodes", "cells", "weights")}
    entry |= {key: given(key, getattr(proof, key).astype(np.int32)) for key in ("multipliers", "changed", "anew")}
    entry["points"] = given("points", proof.points.astype(np.float32))
    if proof.taps.size:
        entry |= {key: given(key, getattr(proof, key).astype(np.int32)) for key in WINNERS}
    entry["slopes"] = {str(i): kept(f"{name}.slopes.{i}", s.astype(np.int16)) for i, s in proof.slopes.items()}
    return entry


def read_tree(data: Any, arrays: Mapping[str, Array], graph: Graph) -> TreeProof:
    """A tree whose arrays have the right types; whether they fit each other, `splits.replayed` says."""
    with_winners = isinstance(data, dict) and WINNERS[0] in data
    entries(data, TREE_KEYS | set(WINNERS) if with_winners else TREE_KEYS, "a tree")
    if type(data["narrow"]) is not int or data["narrow"] not in (0, 1):
        raise ReplayError(f"narrow must be 0 or 1; got {shown(data['narrow'])}")

    def flat(key: str, dtype: Any) -> Array:
        array = NONE.astype(dtype) if data[key] is None else named(arrays, data[key], dtype)
        if array.ndim != 1:
            raise ReplayError(f"{key} of a tree must be of rank 1; got rank {array.ndim}")
        return array

    slopes = {at(k, graph): named(arrays, name, np.int16) for k, name in by_node(data["slopes"], "slopes")}
    return TreeProof(
        flat("nodes", np.int32),
        flat("cells", np.int32),
        flat("points", np.float32),
        named(arrays, data["weights"], np.int32),
        computed(data["tighten"], graph),
        bool(data["narrow"]),
        flat("multipliers", np.int32),
        flat("changed", np.int32),
        slopes,
        flat("anew", np.int32),
        _taps(named(arrays, data["taps"], np.int32)) if with_winners else NONE,
        flat("pulls", np.int32) if with_winners else NONE,
    )


def _taps(array: Array) -> Array:
    if array.ndim != 1 or (array < 0).all() or (array < -1).any():
        raise ReplayError(
            "taps of a tree must be places in a kernel, and -1 for other cuts; without winners there are none"
        )
    return array


# --- nodes ------------------------------------------------------------------------------------------------------------


def by_node(data: Any, what: str) -> Any:
    if not isinstance(data, dict):
        raise ReplayError(f"{what} go by node; got {shown(data)}")
    return data.items()


def at(key: Any, graph: Graph) -> int:
    return position(key, len(graph.nodes))


def computed(data: Any, graph: Graph) -> tuple[int, ...]:
    """Nodes to tighten."""
    if not isinstance(data, list) or not all(type(i) is int for i in data) or data != sorted(set(data)):
        raise ReplayError("tighten must list positions of nodes, in order, each once")
    positions = tuple(at(str(i), graph) for i in data)
    if any(graph.nodes[i].op in (INPUT, CONSTANT) for i in positions):
        raise ReplayError("only what is computed can be tightened")
    return positions
