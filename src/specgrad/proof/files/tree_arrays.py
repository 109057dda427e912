"""Trees of a certificate as arrays and entries of its files: see docs/reference/certificate.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph
from specgrad.scalar import Array

from ..base.rationals import ReplayError
from ..batched.tree_replay import TreeProof
from .strict_json import array_named, excerpt, object_with_keys, position

TREE_KEYS = {"nodes", "cells", "points", "weights", "tighten", "narrow", "multipliers", "changed", "slopes", "anew"}
WINNERS = "taps", "pulls"  # of trees that cut by winners of windows, and of no others
NONE = np.zeros(0, np.int32)


def tree_entry(proof: TreeProof, name: str, add_array: Callable[[str, Array], str]) -> dict[str, Any]:
    """Return the JSON entry of a tree; `add_array` stores an array and returns its name. Empty arrays are null."""

    def given(key: str, array: Array) -> str | None:
        """Store an array and return its name; None if it is empty."""
        return add_array(f"{name}.{key}", array) if array.size else None

    entry: dict[str, Any] = {"tighten": sorted(set(proof.tighten)), "narrow": int(proof.narrow)}
    entry |= {key: given(key, getattr(proof, key).astype(np.int32)) for key in ("nodes", "cells", "weights")}
    entry |= {key: given(key, getattr(proof, key).astype(np.int32)) for key in ("multipliers", "changed", "anew")}
    entry["points"] = given("points", proof.points.astype(np.float32))
    if proof.taps.size:
        entry |= {key: given(key, getattr(proof, key).astype(np.int32)) for key in WINNERS}
    entry["slopes"] = {str(i): add_array(f"{name}.slopes.{i}", s.astype(np.int16)) for i, s in proof.slopes.items()}
    return entry


def read_tree(data: Any, arrays: Mapping[str, Array], graph: Graph) -> TreeProof:
    """Return a tree whose arrays have the right types; whether they fit each other, `replay_tree` checks."""
    with_winners = isinstance(data, dict) and WINNERS[0] in data
    object_with_keys(data, TREE_KEYS | set(WINNERS) if with_winners else TREE_KEYS, "a tree")
    if type(data["narrow"]) is not int or data["narrow"] not in (0, 1):
        raise ReplayError(f"narrow must be 0 or 1; got {excerpt(data['narrow'])}")

    def flat(key: str, dtype: Any) -> Array:
        """Return an array of rank 1 and the given type; null is an empty one."""
        array = NONE.astype(dtype) if data[key] is None else array_named(arrays, data[key], dtype)
        if array.ndim != 1:
            raise ReplayError(f"{key} of a tree must be of rank 1; got rank {array.ndim}")
        return array

    slopes = {
        node_position(k, graph): array_named(arrays, name, np.int16)
        for k, name in items_by_node(data["slopes"], "slopes")
    }
    return TreeProof(
        flat("nodes", np.int32),
        flat("cells", np.int32),
        flat("points", np.float32),
        array_named(arrays, data["weights"], np.int32),
        tighten_positions(data["tighten"], graph),
        bool(data["narrow"]),
        flat("multipliers", np.int32),
        flat("changed", np.int32),
        slopes,
        flat("anew", np.int32),
        _checked_taps(array_named(arrays, data["taps"], np.int32)) if with_winners else NONE,
        flat("pulls", np.int32) if with_winners else NONE,
    )


def _checked_taps(array: Array) -> Array:
    """Return the taps of a tree; raise ReplayError unless they are places in a kernel or -1, and not all -1."""
    if array.ndim != 1 or (array < 0).all() or (array < -1).any():
        raise ReplayError(
            "taps of a tree must be places in a kernel, and -1 for other cuts; without winners there are none"
        )
    return array


# --- nodes ------------------------------------------------------------------------------------------------------------


def items_by_node(data: Any, what: str) -> Any:
    """Return the items of an object that is keyed by node; raise ReplayError if it is no object."""
    if not isinstance(data, dict):
        raise ReplayError(f"{what} go by node; got {excerpt(data)}")
    return data.items()


def node_position(key: Any, graph: Graph) -> int:
    """Return a node's position from its key; raise ReplayError if there is no such node."""
    return position(key, len(graph.nodes))


def tighten_positions(data: Any, graph: Graph) -> tuple[int, ...]:
    """Return the positions of nodes to tighten; raise ReplayError unless they are computed nodes, in
    order, each once."""
    if not isinstance(data, list) or not all(type(i) is int for i in data) or data != sorted(set(data)):
        raise ReplayError("tighten must list positions of nodes, in order, each once")
    positions = tuple(node_position(str(i), graph) for i in data)
    if any(graph.nodes[i].op in (INPUT, CONSTANT) for i in positions):
        raise ReplayError("only what is computed can be tightened")
    return positions
