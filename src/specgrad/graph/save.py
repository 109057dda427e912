"""Graphs and parameters as files: JSON for structure, safetensors for arrays, no pickle.

`save(graph, "net.json")` writes net.json and, if the graph captured float or integer arrays, net.safetensors
(extra: `save`). net.json carries the digest of its arrays. Loading runs every shape rule again and refuses what it does
not know, with one FileError whatever the bytes are. A file is complete or not there, and only our own are overwritten.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SpecgradError, UnsupportedError
from ..files import write_whole
from ..op import REGISTRY, Op
from ..scalar import Array, Number, exact
from ..window import Adaptive, Strided, Window
from .graph import CONSTANT, INPUT, Graph, Node, NumberArg
from .tree import Tree, is_branch, leaves, transform

FORMAT, VERSION = "specgrad-graph", 1
FILE_VERSION = 2  # of files: the graph of version 1, and the digest of its arrays
GRAPH_KEYS = frozenset({"format", "version", "names", "inputs", "outputs", "single", "trainable", "nodes"})
NODE_KEYS = frozenset({"op", "name", "shape", "group", "kind", "args", "params", "exact"})
MOST_CELLS = 1 << 40
FRACTION = re.compile("-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")


class FileError(SpecgradError, ValueError):
    """A file that is not what it should be."""

    def __init__(self, text: str, operator: str = "load") -> None:
        super().__init__(operator, text)


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


def _known(data: Any, keys: frozenset[str], what: str) -> None:
    if not isinstance(data, dict):
        raise FileError(f"{what} must be an object; got {type(data).__name__}")
    for key in data.keys() - keys:
        raise FileError(f"{what} has an unknown key {str(key)[:40]!r}; known are {', '.join(sorted(keys))}")


def _shape(data: Any, name: str) -> tuple[int, ...]:
    if not isinstance(data, list) or not all(type(n) is int and 0 <= n <= MOST_CELLS for n in data):
        raise FileError(f"the shape of node {name} must be a list of sizes up to {MOST_CELLS}; got {str(data)[:80]}")
    return tuple(data)


def _decode_axis(fields: dict[str, int]) -> Strided | Adaptive:
    kind = Strided if "kernel" in fields else Adaptive
    if not all(type(n) is int and abs(n) <= MOST_CELLS for n in fields.values()):
        raise FileError(f"window sizes must be integers up to {MOST_CELLS}; got {str(fields)[:80]}")
    return kind(**fields)


# --- structures: lists are tuples, so a dict must say that it is one -------------------------------------------------


def _encode_tree(tree: Tree) -> Any:
    if isinstance(tree, dict):
        return {"dict": [[key, _encode_tree(child)] for key, child in tree.items()]}
    return [_encode_tree(child) for child in tree] if is_branch(tree) else tree


def _decode_tree(data: Any) -> Tree:
    if isinstance(data, dict):
        _known(data, frozenset({"dict"}), "a structure")
        found = {key: _decode_tree(child) for key, child in data["dict"]}
        if len(found) != len(data["dict"]) or not all(isinstance(key, str | int) for key in found):
            raise FileError(f"the keys of a structure must be text and unique; got {str(list(found))[:80]}")
        return found
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
        _known(data, frozenset({"number"}), f"an argument of node {position}")
        value = _decode(data["number"])
        if isinstance(value, bool) or not isinstance(value, Number):
            raise FileError(f"an argument of node {position} must be a number; got {str(value)[:40]!r}")
        return NumberArg(value)
    if type(data) is not int or not 0 <= data < position:
        raise FileError(f"node {position} refers to {data}, which does not come before it")
    return data


def _node(row: dict[str, Any], position: int, nodes: list[Node]) -> Node:
    _known(row, NODE_KEYS, f"node {position}")
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
    elif args or params:
        raise FileError(f"node {name} is an {op.name} and takes no arguments and no parameters")
    if "exact" in row and op is not CONSTANT:
        raise FileError(f"node {name} is no constant and has no exact numbers")
    _check_kind(op, args, nodes, row.get("kind", "real"), name)
    return Node(op, args, params, shape, row.get("kind", "real"), name, row.get("group", name))


def _check_kind(op: Op, args: tuple[int | NumberArg, ...], nodes: list[Node], kind: str, name: str) -> None:
    """Indices stand where the operator wants them, and the output is what the operator makes."""
    if op in (INPUT, CONSTANT):
        return
    kinds = ["real" if isinstance(a, NumberArg) else nodes[a].kind for a in args]
    wanted = ["index" if i in op.index_args else "real" for i in range(len(args))]
    if op.kind != "same" and kinds != wanted:
        raise FileError(f"node {name} takes {', '.join(wanted)}; got {', '.join(kinds)}")
    made = kinds[0] if op.kind == "same" else op.kind
    if kind != made:
        raise FileError(f"node {name} says that it is {kind}; its operator makes {made}")


def _check_ends(nodes: list[Node], names: Any, inputs: Tree, outputs: Tree) -> None:
    """One name per argument, every input node in one argument, every output a node."""
    if not isinstance(inputs, tuple) or not isinstance(outputs, tuple):
        raise FileError("inputs and outputs must be lists")
    for p in leaves((inputs, outputs)):
        if type(p) is not int or not 0 <= p < len(nodes):
            raise FileError(f"an input or output refers to {str(p)[:40]}, which is no node")
    if not isinstance(names, list) or len(names) != len(inputs) or not all(isinstance(n, str) for n in names):
        raise FileError(f"names must be {len(inputs)} texts, one per argument; got {str(names)[:80]}")
    if sorted(leaves(inputs)) != [i for i, n in enumerate(nodes) if n.op is INPUT]:
        raise FileError("every input node must stand in the arguments once, and nothing else")


def from_json(data: dict[str, Any], arrays: dict[str, Array] | None = None) -> Graph:
    """The graph of `to_json`, with its float constants by name."""
    if data.get("format") != FORMAT:
        raise FileError(f"format must be {FORMAT!r}; got {data.get('format')!r}")
    if data.get("version") != VERSION:
        raise FileError(f"version {data.get('version')!r} is not readable here; this is version {VERSION}")
    _known(data, GRAPH_KEYS, "the graph")
    if type(data["single"]) is not bool or not isinstance(data["nodes"], list):
        raise FileError("is not a specgrad graph: single must be true or false, and nodes a list")
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
    _check_ends(nodes, data["names"], inputs, outputs)
    if data["single"] and len(outputs) != 1:
        raise FileError(f"a single result is one output; got {len(outputs)}")
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
    if (array.dtype.kind == "i") != (row.get("kind", "real") == "index"):
        raise FileError(f"the array of {row['name']} holds {array.dtype}, not what its node says")
    return array


# --- files ------------------------------------------------------------------------------------------------------

OURS = {"specgrad": "arrays"}  # stands in the header of a graph's arrays
LONGEST_HEADER = 100_000_000  # that of safetensors


def digest(arrays: dict[str, Array]) -> str:
    """SHA-256 of names, types, shapes and cells, in the order of the names."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        head = json.dumps([name, array.dtype.str, list(array.shape)]).encode()
        found.update(struct.pack("<Q", len(head)) + head + array.tobytes())
    return found.hexdigest()


def _metadata(path: Path) -> dict[str, Any]:
    """The texts in the header of a safetensors file; {"foreign": ...} for anything else."""
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            found = json.loads(file.read(min(length, LONGEST_HEADER))).get("__metadata__", {})
        return found if isinstance(found, dict) else {"foreign": "yes"}
    except (ValueError, struct.error, AttributeError, RecursionError):
        return {"foreign": "yes"}


def _is_graph(path: Path) -> bool:
    """Whether a file begins as `save` begins it."""
    with open(path, "rb") as file:
        return FORMAT.encode() in file.read(80)


def _keep(path: Path, ours: bool, force: bool) -> None:
    """A file that we did not write is kept, unless it is empty or force says otherwise."""
    if not (ours or force or path.stat().st_size == 0):
        text = f"{path.name} exists and was not written by this function; choose another name, or pass force=True"
        raise FileError(text, "save")


def save(graph: Graph, path: str | Path, *, force: bool = False) -> None:
    """Write the graph to `path` (.json), its float constants beside it (.safetensors).

    Files of others are not overwritten unless force=True.
    """
    path = Path(path)
    beside = path.with_suffix(".safetensors")
    if path == beside:
        raise FileError(f"{path.name} is where the arrays go; name the graph {path.stem}.json", "save")
    arrays = {graph.nodes[i].name: np.asarray(a, order="C") for i, a in graph.constants.items() if a.dtype != object}
    data = {**to_json(graph), "version": FILE_VERSION, "arrays": digest(arrays)}
    text = json.dumps(data, indent=1, allow_nan=False).encode()
    known = path.exists() and _is_graph(path)
    if path.exists():
        _keep(path, known, force)
    if arrays:
        from safetensors.numpy import save as pack

        if beside.exists():
            found = _metadata(beside)
            _keep(beside, found == OURS or (known and not found), force)
        write_whole(beside, pack(arrays, metadata=OURS))
    write_whole(path, text)


@contextmanager
def _one_error(path: Path, what: str) -> Iterator[None]:
    """Whatever the bytes of a file bring about is a FileError; a file that cannot be opened stays an OSError."""
    try:
        yield
    except (FileError, OSError, ImportError):
        raise
    except SpecgradError as error:
        raise FileError(str(error)) from error
    except (Exception, MemoryError) as error:
        raise FileError(f"{path.name} is not {what}: {type(error).__name__}: {str(error)[:200]}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FileError(f"a key stands twice in one object; got {str([key for key, _ in pairs])[:80]}")
    return found


def _no_constant(text: str) -> Any:
    raise FileError(f"{text} is no JSON number")


def _strict_json(text: str | bytes) -> Any:
    return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)


def load(path: str | Path) -> Graph:
    """Read what `save` wrote; arrays of another graph are refused (files before version 2 carry no digest)."""
    path = Path(path)
    with _one_error(path, "a specgrad graph"):
        data = _strict_json(path.read_bytes())
        if not isinstance(data, dict):
            raise FileError(f"{path.name} is not a specgrad graph: it holds a {type(data).__name__}")
        version = data.get("version")
        if data.get("format") == FORMAT and (type(version) is not int or version not in (VERSION, FILE_VERSION)):
            raise FileError(f"version {str(version)[:40]} is not readable here; this is version {FILE_VERSION}")
        wanted = data.pop("arrays") if version == FILE_VERSION else None
        arrays = _arrays(path.with_suffix(".safetensors"), data["nodes"])
        graph = from_json({**data, "version": VERSION}, arrays)
        if wanted is not None and digest(arrays) != wanted:
            raise FileError(f"the arrays beside {path.name} are not those it was saved with: the digests differ")
        return graph


def _arrays(path: Path, rows: Any) -> dict[str, Array]:
    if not path.exists() or not any(row["op"] == "constant" and "exact" not in row for row in rows):
        return {}
    from safetensors.numpy import load_file

    found: dict[str, Array] = load_file(path)
    return found


def save_params(params: Tree, path: str | Path, *, force: bool = False) -> None:
    """Write a structure of arrays as one safetensors file; the structure stands in its header.

    Files of others are not overwritten unless force=True.
    """
    from safetensors.numpy import save as pack

    arrays: dict[str, Array] = {}

    def place(_: str, leaf: Any) -> int:
        arrays[str(len(arrays))] = np.asarray(leaf, order="C")
        return len(arrays) - 1

    path, structure = Path(path), _encode_tree(transform(place, params))
    if path.exists():
        _keep(path, "structure" in _metadata(path), force)
    write_whole(path, pack(arrays, metadata={"structure": json.dumps(structure)}))


def load_params(path: str | Path) -> Tree:
    """Read what `save_params` wrote."""
    from safetensors import safe_open

    path = Path(path)
    with _one_error(path, "a file of parameters"), safe_open(path, framework="np") as file:
        structure = (file.metadata() or {}).get("structure")
        if structure is None:
            raise FileError(f"{path.name} has no structure; it was not written by save_params")
        tree = _decode_tree(_strict_json(structure))
        if sorted(map(str, leaves(tree))) != sorted(file.keys()) or not all(type(i) is int for i in leaves(tree)):
            raise FileError(f"{path.name} must name each of its arrays once in its structure")
        return transform(lambda _, i: file.get_tensor(str(i)), tree)
