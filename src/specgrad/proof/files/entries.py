"""Entries of a certificate's files, read as untrusted input: every number, name and size is bounded before it is used.

JSON must be spelled byte for byte as we write it. Of safetensors this reads the part that certificates use: arrays of
float32, int16 and int32 that fill the file without a gap or an overlap. Trees are entries and arrays:
docs/reference/certificate.md.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph
from specgrad.scalar import Array

from ..base.rationals import ReplayError
from ..batched.tree_replay import TreeProof

MAX_JSON_BYTES = 1 << 24  # bytes
MAX_ARRAY_BYTES = 1 << 28  # of arrays
MAX_INT = 1 << 53  # of rows and weights
MAX_RANK = 16
WHOLE = re.compile("-?(0|[1-9][0-9]{0,17})")
POSITION = re.compile("0|[1-9][0-9]{0,8}")
FRACTION = re.compile("-?(0|[1-9][0-9]{0,3999})(/[1-9][0-9]{0,3999})?")
TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "I16": np.dtype("<i2"), "I32": np.dtype("<i4")}


def excerpt(value: Any) -> str:
    """Return at most 40 characters of a value, in ASCII: it may be long, or control a terminal."""
    text = value if isinstance(value, str) else type(value).__name__ if isinstance(value, list | dict) else str(value)
    return ascii(text[:40])


# --- JSON -------------------------------------------------------------------------------------------------------------


def canonical(data: Any) -> bytes:
    """Return data as JSON bytes in its one allowed spelling: ASCII, keys sorted, no spaces, a line break at the end."""
    return (json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True) + "\n").encode()


def read_json(text: bytes) -> Any:
    """Return the data of a JSON text; raise ReplayError unless `canonical` gives exactly this text again.

    Refused too: over MAX_JSON_BYTES, floats, NaN and infinities, and integers of over 18 digits.
    """
    if len(text) > MAX_JSON_BYTES:
        raise ReplayError(f"the certificate has over {MAX_JSON_BYTES} bytes")
    try:
        data = json.loads(
            text.decode("ascii"), parse_int=_bounded_digits, parse_float=_refuse_float, parse_constant=_refuse_float
        )
        same = canonical(data) == text
    except ReplayError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"the certificate is not JSON: {type(error).__name__}") from None
    if not same:
        raise ReplayError("the certificate is not spelled as we write it")
    return data


def _bounded_digits(text: str) -> int:
    """Return the integer that `text` states, of at most 18 digits, else raise ReplayError."""
    if not WHOLE.fullmatch(text):
        raise ReplayError(f"a whole number has over 18 digits: {text[:20]}...")
    return int(text)


def _refuse_float(text: str) -> Any:
    """Raise ReplayError for `text`, a decimal number: a certificate has none."""
    raise ReplayError(f"a certificate has no decimal numbers; got {text[:20]}")


def object_with_keys(data: Any, keys: set[str], what: str) -> dict[str, Any]:
    """Return `data` if it is an object with exactly these keys, else raise ReplayError, which calls it `what`."""
    if not isinstance(data, dict) or data.keys() != keys:
        raise ReplayError(f"{what} has the entries {', '.join(sorted(keys))}")
    return data


def nonempty_list(data: Any, what: str) -> list[Any]:
    """Return `data` if it is a list that is not empty: an empty statement would be true and say nothing.

    ReplayError, with the name `what`, otherwise.
    """
    if not isinstance(data, list) or not data:
        raise ReplayError(f"{what} must be a list, and not empty; got {excerpt(data)}")
    return data


def bounded_int(value: Any, least: int, what: str) -> int:
    """Return `value` if it is an integer from `least` to MAX_INT, else raise ReplayError, which calls it `what`."""
    if type(value) is not int or not least <= value <= MAX_INT:
        raise ReplayError(f"{what} must be whole numbers from {least} to {MAX_INT}; got {excerpt(value)}")
    return value


def fraction(text: Any) -> Fraction:
    """Return a fraction from text in lowest terms, of at most 4000 digits each and never with an exponent.

    ReplayError otherwise.
    """
    if not isinstance(text, str) or not FRACTION.fullmatch(text):
        raise ReplayError(f"a limit must be a fraction of whole numbers; got {excerpt(text)}")
    value = Fraction(text)
    if str(value) != text:
        raise ReplayError(f"a limit must be in lowest terms; got {excerpt(text)}")
    return value


def position(text: Any, nodes: int) -> int:
    """Return a node's position from text, in the one spelling that a number has, if it is below `nodes`.

    ReplayError otherwise.
    """
    if not isinstance(text, str) or not POSITION.fullmatch(text) or int(text) >= nodes:
        raise ReplayError(f"a node goes by its position, 0 to {nodes - 1}; got {excerpt(text)}")
    return int(text)


# --- arrays -----------------------------------------------------------------------------------------------------------


def read_arrays(packed: bytes) -> dict[str, Array]:
    """Return the arrays of a safetensors file, its bytes being `packed`, by name; raise ReplayError for anything
    unusual.
    """
    if not 8 <= len(packed) <= MAX_ARRAY_BYTES:
        raise ReplayError(f"the arrays are not readable: {len(packed)} bytes, of 8 to {MAX_ARRAY_BYTES}")
    size = int.from_bytes(packed[:8], "little")
    if size > min(len(packed) - 8, MAX_JSON_BYTES):
        raise ReplayError("the arrays are not readable: their header is longer than the file, or too long")
    try:
        header = json.loads(
            packed[8 : 8 + size].decode("ascii"), object_pairs_hook=_unique_keys, parse_int=_bounded_digits
        )
    except ReplayError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"the arrays are not readable: {type(error).__name__}") from None
    if not isinstance(header, dict):
        raise ReplayError("the arrays are not readable: their header is no object")
    return _arrays_of_body(header, packed[8 + size :])


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's pairs as a dict; raise ReplayError if a name occurs twice."""
    if len(dict(pairs)) != len(pairs):
        raise ReplayError("the arrays are not readable: a name stands there twice")
    return dict(pairs)


def _arrays_of_body(header: Mapping[str, Any], body: bytes) -> dict[str, Array]:
    """Return the arrays that `header` describes, of a body that they must fill one behind the other; else raise
    ReplayError.
    """
    arrays, at = {}, 0
    described = [(_array_entry(name, entry), name) for name, entry in header.items()]
    for (start, end, dtype, shape), name in sorted(described, key=lambda item: (item[0][0], item[0][1], item[1])):
        if start != at or end > len(body) or end - start != dtype.itemsize * math.prod(shape):
            raise ReplayError(f"the arrays are not readable: {excerpt(name)} does not lie where it should")
        arrays[name] = np.frombuffer(body[start:end], dtype).reshape(shape)
        at = end
    if at != len(body):
        raise ReplayError("the arrays are not readable: bytes are left over")
    return arrays


def _array_entry(name: str, entry: Any) -> tuple[int, int, np.dtype[Any], tuple[int, ...]]:
    """Return (start, end, dtype, shape) of the header entry of the array `name`, validated; ReplayError if it is
    none.
    """
    data = object_with_keys(entry, {"dtype", "shape", "data_offsets"}, f"array {excerpt(name)}")
    kind, shape, offsets = data["dtype"], data["shape"], data["data_offsets"]
    if not (_are_sizes(shape, 1) and _are_sizes(offsets, 0) and len(offsets) == 2 and len(shape) <= MAX_RANK):
        raise ReplayError(f"array {excerpt(name)} must have a shape and two offsets of sizes up to {MAX_ARRAY_BYTES}")
    if not isinstance(kind, str) or kind not in TYPES:
        raise ReplayError(f"array {excerpt(name)} must be of {', '.join(TYPES)}; got {excerpt(kind)}")
    return offsets[0], offsets[1], TYPES[kind], tuple(shape)


def _are_sizes(data: Any, least: int) -> bool:
    """Return whether `data` is a list of integers from `least` to MAX_ARRAY_BYTES."""
    return isinstance(data, list) and all(type(n) is int and least <= n <= MAX_ARRAY_BYTES for n in data)


def array_named(arrays: Mapping[str, Array], name: Any, dtype: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Return the array of that name; raise ReplayError unless it has exactly `dtype` and `shape` (None: any shape)."""
    array = arrays.get(name) if isinstance(name, str) else None
    if array is None or array.dtype != dtype or (shape is not None and array.shape != shape):
        raise ReplayError(f"array {excerpt(name)} is missing, or not of {np.dtype(dtype)} and shape {shape}")
    return array


# --- trees ------------------------------------------------------------------------------------------------------------

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
    """Return the tree that JSON `data` states, its arrays of the right types, else raise ReplayError; whether they fit
    each other, `replay_tree` checks.
    """
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
    """Return `array`, the taps of a tree; raise ReplayError unless they are places in a kernel or -1, and not all
    -1.
    """
    if array.ndim != 1 or (array < 0).all() or (array < -1).any():
        raise ReplayError(
            "taps of a tree must be places in a kernel, and -1 for other cuts; without winners there are none"
        )
    return array


# --- nodes ------------------------------------------------------------------------------------------------------------


def items_by_node(data: Any, what: str) -> Any:
    """Return the items of `data`, an object keyed by node; raise ReplayError, with the name `what`, if it is no
    object.
    """
    if not isinstance(data, dict):
        raise ReplayError(f"{what} go by node; got {excerpt(data)}")
    return data.items()


def node_position(key: Any, graph: Graph) -> int:
    """Return a node's position from its key; raise ReplayError if there is no such node."""
    return position(key, len(graph.nodes))


def tighten_positions(data: Any, graph: Graph) -> tuple[int, ...]:
    """Return the positions of nodes to tighten that JSON `data` lists; raise ReplayError unless they are computed
    nodes, in order, each once.
    """
    if not isinstance(data, list) or not all(type(i) is int for i in data) or data != sorted(set(data)):
        raise ReplayError("tighten must list positions of nodes, in order, each once")
    positions = tuple(node_position(str(i), graph) for i in data)
    if any(graph.nodes[i].op in (INPUT, CONSTANT) for i in positions):
        raise ReplayError("only what is computed can be tightened")
    return positions
