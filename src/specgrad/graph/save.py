"""Graphs and parameters as files: JSON for structure, safetensors for arrays, no pickle.

`save(graph, "net.json")` writes net.json and, if the graph captured float or integer arrays, net.safetensors
(extra: `save`). Loading runs every shape rule again and refuses what it does not know.
"""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SpecgradError, UnsupportedError
from ..op import REGISTRY, Op
from ..scalar import Array, exact
from ..window import Adaptive, Strided, Window
from .graph import CONSTANT, INPUT, Graph, Node, NumberArg
from .tree import Tree, is_branch, leaves, transform

FORMAT, VERSION = "specgrad-graph", 1
MOST_CELLS = 1 << 40
FRACTION = re.compile("-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")


class FileError(SpecgradError, ValueError):
    """A file that is not what it should be."""

    def __init__(self, text: str) -> None:
        super().__init__("load", text)


# --- parameters of operators ------------------------------------------------------------------------------------


def _encode(value: Any) -> Any:
    if isinstance(value, Window):
        return {"window": [_encode_axis(a) for a in value.axes]}
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, tuple):
        return [_encode(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UnsupportedError("save", f"a parameter of type {type(value).__name__} cannot be written")


def _encode_axis(axis: Strided | Adaptive) -> dict[str, int]:
    return {name: getattr(axis, name) for name in type(axis).__dataclass_fields__}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, inner),) = value.items()
        if tag == "window":
            return Window(tuple(_decode_axis(a) for a in inner))
        if tag == "fraction":
            return _fraction(inner)
        if tag == "float" and inner in ("nan", "inf", "-inf"):
            return float(inner)
    raise FileError(f"unknown parameter {str(value)[:80]}")


def _fraction(text: Any) -> Fraction:
    """A fraction as `str` writes it; its digits are counted before any is read, and there is no exponent."""
    if not isinstance(text, str) or not FRACTION.fullmatch(text):
        raise FileError(f"a fraction must be whole numbers such as -7/3, of up to 4000 digits; got {str(text)[:40]!r}")
    return Fraction(text)


def _shape(data: Any, name: str) -> tuple[int, ...]:
    if not isinstance(data, list) or not all(type(n) is int and 0 <= n <= MOST_CELLS for n in data):
        raise FileError(f"the shape of node {name} must be a list of sizes up to {MOST_CELLS}; got {str(data)[:80]}")
    return tuple(data)


def _decode_axis(fields: dict[str, int]) -> Strided | Adaptive:
    kind = Strided if "kernel" in fields else Adaptive
    if not all(type(n) is int for n in fields.values()):
        raise FileError(f"window sizes must be integers; got {fields}")
    return kind(**fields)


# --- structures: lists are tuples, so a dict must say that it is one -------------------------------------------------


def _encode_tree(tree: Tree) -> Any:
    if isinstance(tree, dict):
        return {"dict": [[key, _encode_tree(child)] for key, child in tree.items()]}
    return [_encode_tree(child) for child in tree] if is_branch(tree) else tree


def _decode_tree(data: Any) -> Tree:
    if isinstance(data, dict):
        return {key: _decode_tree(child) for key, child in data["dict"]}
    return tuple(_decode_tree(child) for child in data) if isinstance(data, list) else data


# --- graphs -----------------------------------------------------------------------------------------------------


def to_json(graph: Graph) -> dict[str, Any]:
    """The graph as JSON data, without float constants; stable, so it can be hashed."""

    def node(i: int, n: Node) -> dict[str, Any]:
        row: dict[str, Any] = {"op": n.op.name, "name": n.name, "shape": list(n.shape)}
        if n.group != n.name:
            row["group"] = n.group
        if n.kind != "real":
            row["kind"] = n.kind
        if n.args:
            row["args"] = [{"number": _encode(a.value)} if isinstance(a, NumberArg) else a for a in n.args]
        if n.params:
            row["params"] = {name: _encode(v) for name, v in n.params.items()}
        if n.op is CONSTANT and graph.constants[i].dtype == object:
            row["exact"] = [str(Fraction(v)) for v in graph.constants[i].flat]
        return row

    return {
        "format": FORMAT,
        "version": VERSION,
        "names": list(graph.names),
        "inputs": _encode_tree(graph.inputs),
        "outputs": _encode_tree(graph.outputs),
        "single": graph.single,
        **({"trainable": sorted(graph.trainable)} if graph.trainable else {}),
        "nodes": [node(i, n) for i, n in enumerate(graph.nodes)],
    }


def _arg(data: Any, position: int) -> int | NumberArg:
    if isinstance(data, dict):
        return NumberArg(_decode(data["number"]))
    if type(data) is not int or not 0 <= data < position:
        raise FileError(f"node {position} refers to {data}, which does not come before it")
    return data


def _node(row: dict[str, Any], position: int, nodes: list[Node]) -> Node:
    name = row["name"]
    if not isinstance(name, str) or not isinstance(row.get("group", name), str):
        raise FileError(f"the name of node {position} must be text; got {type(name).__name__}")
    if row.get("kind", "real") not in ("real", "index"):
        raise FileError(f"node {name} must hold real numbers or an index; got {str(row['kind'])[:40]!r}")
    shape = _shape(row["shape"], name)
    args = tuple(_arg(a, position) for a in row.get("args", ()))
    params = {key: _decode(v) for key, v in row.get("params", {}).items()}
    op: Op | None = {"input": INPUT, "constant": CONSTANT}.get(row["op"]) or REGISTRY.get(row["op"])
    if op is None:
        raise UnsupportedError("load", f"operator {row['op']!r} of node {name} is unknown")
    if op not in (INPUT, CONSTANT):
        op.check_params(params)
        found = op.shape(*(() if isinstance(a, NumberArg) else nodes[a].shape for a in args), **params)
        if found != shape:
            raise FileError(f"node {name} says shape {shape}; its operator gives {found}")
    return Node(op, args, params, shape, row.get("kind", "real"), name, row.get("group", name))


def from_json(data: dict[str, Any], arrays: dict[str, Array] | None = None) -> Graph:
    """The graph of `to_json`, with its float constants by name."""
    if data.get("format") != FORMAT:
        raise FileError(f"format must be {FORMAT!r}; got {data.get('format')!r}")
    if data.get("version") != VERSION:
        raise FileError(f"version {data.get('version')!r} is not readable here; this is version {VERSION}")
    nodes: list[Node] = []
    constants: dict[int, Array] = {}
    seen: set[str] = set()
    for i, row in enumerate(data["nodes"]):
        nodes.append(_node(row, i, nodes))
        if nodes[i].name in seen:
            raise FileError(f"two nodes are called {nodes[i].name!r}; names must be unique")
        seen.add(nodes[i].name)
        if nodes[i].op is CONSTANT:
            constants[i] = _constant(row, arrays or {})
    inputs, outputs = _decode_tree(data["inputs"]), _decode_tree(data["outputs"])
    for p in leaves((inputs, outputs)):
        if type(p) is not int or not 0 <= p < len(nodes):
            raise FileError(f"an input or output refers to {p}, which is no node")
    trainable = frozenset(data.get("trainable", ()))
    for name in trainable - {nodes[i].name for i in constants}:
        raise FileError(f"trainable {name!r} is no constant of the graph")
    return Graph(tuple(nodes), tuple(data["names"]), inputs, outputs, bool(data["single"]), constants, trainable)


def _constant(row: dict[str, Any], arrays: dict[str, Array]) -> Array:
    if "exact" in row:
        values = np.empty(len(row["exact"]), dtype=object)
        values[:] = [_fraction(v) for v in row["exact"]]
        array: Array = exact(values).reshape(tuple(row["shape"]))
    elif row["name"] in arrays:
        array = arrays[row["name"]]
    else:
        raise FileError(f"the array of {row['name']} is missing")
    if array.shape != tuple(row["shape"]):
        raise FileError(f"the array of {row['name']} has shape {array.shape}, not {row['shape']}")
    return array


# --- files ------------------------------------------------------------------------------------------------------


def save(graph: Graph, path: str | Path) -> None:
    """Write the graph to `path` (.json), its float constants beside it (.safetensors)."""
    path = Path(path)
    path.write_text(json.dumps(to_json(graph), indent=1), encoding="utf-8")
    arrays = {graph.nodes[i].name: a for i, a in graph.constants.items() if a.dtype != object}
    if arrays:
        from safetensors.numpy import save_file

        save_file({name: np.asarray(a, order="C") for name, a in arrays.items()}, path.with_suffix(".safetensors"))


def load(path: str | Path) -> Graph:
    """Read what `save` wrote."""
    path = Path(path)
    beside = path.with_suffix(".safetensors")
    arrays: dict[str, Array] = {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if any(row["op"] == "constant" and "exact" not in row for row in data["nodes"]) and beside.exists():
            from safetensors.numpy import load_file

            arrays = load_file(beside)
        return from_json(data, arrays)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError, OverflowError) as error:
        if isinstance(error, SpecgradError):
            raise
        raise FileError(f"{path.name} is not a specgrad graph: {error}") from error


def save_params(params: Tree, path: str | Path) -> None:
    """Write a structure of arrays as one safetensors file; the structure stands in its header."""
    from safetensors.numpy import save_file

    arrays: dict[str, Array] = {}

    def place(_: str, leaf: Any) -> int:
        arrays[str(len(arrays))] = np.asarray(leaf, order="C")
        return len(arrays) - 1

    structure = _encode_tree(transform(place, params))
    save_file(arrays, path, metadata={"structure": json.dumps(structure)})


def load_params(path: str | Path) -> Tree:
    """Read what `save_params` wrote."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        structure = (file.metadata() or {}).get("structure")
        if structure is None:
            raise FileError(f"{Path(path).name} has no structure; it was not written by save_params")
        return transform(lambda _, i: file.get_tensor(str(i)), _decode_tree(json.loads(structure)))
