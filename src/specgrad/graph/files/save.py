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
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.atomic_files import partner, write_pair, write_whole
from specgrad.bounded_files import (
    MAX_HEADER_BYTES,
    MAX_TEXT_BYTES,
    as_file_error,
    opened,
    parse_json,
    read_arrays,
    read_bytes,
    safetensors_header,
)
from specgrad.errors import FileError, UnsupportedError, need
from specgrad.op import REGISTRY, Op
from specgrad.scalar import Array, Number, exact
from specgrad.window import Adaptive, OpenWindow, Strided, SymbolicSize, Window, symbols_in

from ..graph import CONSTANT, INPUT, Graph, Node, NumberArg, closed
from ..ir.node import Program
from ..ir.symbolic import DERIVATIVES, SymbolicProgram, instantiate
from ..ir.tree import Tree, is_branch, leaves, transform
from .symbolic_sizes import SymbolicReader, encode_guard, encode_size, encode_window

FORMAT, VERSION = "specgrad-graph", 1
FILE_VERSION = 2  # of files: the graph of version 1, and the digest of its arrays
GRAPH_KEYS = frozenset({"format", "version", "names", "inputs", "outputs", "single", "trainable", "nodes", "open"})
OPEN_KEYS = frozenset({"sizes", "names", "inputs", "outputs", "single", "nodes", "guards", "steps"})
NODE_KEYS = frozenset({"op", "name", "shape", "group", "kind", "args", "params", "exact"})
REPEATED = " repeated"  # behind the name of an array that is broadcast to an open shape
MAX_CELLS = 1 << 40
BYTE_BUDGET = 1 << 31
MAX_EXPONENT = 1 << 10  # an exact power has as many times the digits
FRACTION = re.compile("-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")


# --- parameters of operators ------------------------------------------------------------------------------------


def _encode(value: Any) -> Any:
    """Return a parameter's value as JSON data; raise UnsupportedError for types that cannot be written."""
    if isinstance(value, Window):
        return {"window": [_encode_axis(a) for a in value.axes]}
    if isinstance(value, SymbolicSize | OpenWindow):
        return encode_size(value) if isinstance(value, SymbolicSize) else encode_window(value)
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
    """Return one axis of a window as JSON data."""
    return {name: getattr(axis, name) for name in type(axis).__dataclass_fields__}


def _decode(value: Any) -> Any:
    """Return the parameter that the JSON data `value` stand for; raise FileError for unknown data."""
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


def _is_integer(value: Any) -> bool:
    """Return whether a value, or every entry of a tuple, is an int of at most MAX_CELLS in size."""
    return all(map(_is_integer, value)) if isinstance(value, tuple) else type(value) is int and abs(value) <= MAX_CELLS


def _is_number(value: Any) -> bool:
    """Return whether a value is a number and no bool."""
    return isinstance(value, Number) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    """Return whether a parameter's value is a string."""
    return isinstance(value, str)


INTEGER_PARAMETERS = (
    "axes",
    "axis",
    "cells",
    "groups",
    "k",
    "order",
    "ranges",
    "rank",
    "shape",
    "size",
    "sizes",
    "widths",
)
PARAMETERS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(INTEGER_PARAMETERS, (f"whole numbers up to {MAX_CELLS}", _is_integer)),
    **dict.fromkeys(("slope", "value"), ("a number", _is_number)),
    **dict.fromkeys(("high", "low"), ("a number or null", lambda v: v is None or _is_number(v))),
    **dict.fromkeys(("how", "padded", "spec", "ties", "where"), ("text", _is_text)),
    "beta": ("a finite number other than 0", lambda v: _is_number(v) and math.isfinite(v) and v != 0),
    "divisor": ("a number or text", lambda v: _is_number(v) or _is_text(v)),
    **dict.fromkeys(("empty", "exclusive", "largest", "last", "reverse"), ("true or false", lambda v: type(v) is bool)),
    "exponent": (f"a number up to {MAX_EXPONENT}", lambda v: _is_number(v) and abs(v) <= MAX_EXPONENT),
    "steps": ("positive numbers", lambda v: type(v) is tuple and all(_is_number(s) and s > 0 for s in v)),
    "window": ("a window", lambda v: isinstance(v, Window)),
}
"""What stands in a file for a parameter of this name: rules of shape take types for granted that Python has checked."""


def _params(row: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the decoded parameters in `row`, the JSON data of the node `name`; raise FileError for values of a wrong
    type.
    """
    params = {key: _decode(value) for key, value in row.get("params", {}).items()}
    for key, value in params.items():
        what, right = PARAMETERS.get(key, ("", lambda _: True))
        if not right(value):
            raise FileError(f"{key} of node {name} must be {what}; got {str(value)[:80]!r}")
    return params


def _fraction(text: Any) -> Fraction:
    """Return the fraction that a text such as -7/3 stands for; raise FileError for others.

    Its digits are counted before any is read, and there is no exponent.
    """
    if not isinstance(text, str) or not FRACTION.fullmatch(text):
        raise FileError(f"a fraction must be whole numbers such as -7/3, of up to 4000 digits; got {str(text)[:40]!r}")
    return Fraction(text)


def _check_keys(data: Any, keys: frozenset[str], what: str) -> None:
    """Raise FileError, which calls it `what`, if `data` is no object or has keys outside `keys`."""
    if not isinstance(data, dict):
        raise FileError(f"{what} must be an object; got {type(data).__name__}")
    for key in data.keys() - keys:
        raise FileError(f"{what} has an unknown key {str(key)[:40]!r}; known are {', '.join(sorted(keys))}")


def _shape(data: Any, name: str) -> tuple[int, ...]:
    """Return the shape that JSON `data` state for the node `name`; raise FileError if it is no list of sizes up to
    MAX_CELLS.
    """
    if not isinstance(data, list) or not all(type(n) is int and 0 <= n <= MAX_CELLS for n in data):
        raise FileError(f"the shape of node {name} must be a list of sizes up to {MAX_CELLS}; got {str(data)[:80]}")
    return tuple(data)


def _decode_axis(fields: dict[str, int]) -> Strided | Adaptive:
    """Return one axis of a window; raise FileError for fields that are no integers up to MAX_CELLS."""
    kind = Strided if "kernel" in fields else Adaptive
    if not all(type(n) is int and abs(n) <= MAX_CELLS for n in fields.values()):
        raise FileError(f"window sizes must be integers up to {MAX_CELLS}; got {str(fields)[:80]}")
    return kind(**fields)


# --- structures: lists are tuples, so a dict must say that it is one -------------------------------------------------


def _encode_tree(tree: Tree) -> Any:
    """Return a structure as JSON data: lists for tuples, tagged objects for dicts."""
    if isinstance(tree, dict):
        return {"dict": [[key, _encode_tree(child)] for key, child in tree.items()]}
    return [_encode_tree(child) for child in tree] if is_branch(tree) else tree


def _decode_tree(data: Any) -> Tree:
    """Return the structure that `_encode_tree` wrote as `data`; raise FileError for repeated keys."""
    if isinstance(data, dict):
        _check_keys(data, frozenset({"dict"}), "a structure")
        tree = {key: _decode_tree(child) for key, child in data["dict"]}
        if len(tree) != len(data["dict"]) or not all(isinstance(key, str | int) for key in tree):
            raise FileError(f"the keys of a structure must be text and unique; got {str(list(tree))[:80]}")
        return tree
    return tuple(_decode_tree(child) for child in data) if isinstance(data, list) else data


# --- graphs -----------------------------------------------------------------------------------------------------


def _row(graph: Program, i: int, n: Node) -> dict[str, Any]:
    """Return node n at position i as JSON data; exact constants stand in it, others beside the file.

    UnsupportedError for a parameter that JSON cannot state.
    """
    row: dict[str, Any] = {"op": n.op.name, "name": n.name, "shape": [_encode(size) for size in n.shape]}
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
    if n.op is CONSTANT and graph.constants[i].shape != n.shape:
        row["of"] = list(graph.constants[i].shape)  # broadcast to an open shape
    return row


def to_json(graph: Graph) -> dict[str, Any]:
    """Return the graph as JSON data, without float constants; stable, so it can be hashed.

    UnsupportedError for a graph over symbolic sizes that imports a file again at other sizes.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "names": list(graph.names),
        "inputs": _encode_tree(graph.inputs),
        "outputs": _encode_tree(graph.outputs),
        "single": graph.single,
        **({"trainable": sorted(graph.trainable)} if graph.trainable else {}),
        "nodes": [_row(graph, i, n) for i, n in enumerate(graph.nodes)],
        **({} if graph.open is None else {"open": _open_to_json(graph.open)}),
    }


def _arg(data: Any, position: int) -> int | NumberArg:
    """Return the argument of the node at `position` that JSON `data` state; raise FileError if it does not refer to an
    earlier node.
    """
    if isinstance(data, dict):
        _check_keys(data, frozenset({"number"}), f"an argument of node {position}")
        value = _decode(data["number"])
        if isinstance(value, bool) or not isinstance(value, Number):
            raise FileError(f"an argument of node {position} must be a number; got {str(value)[:40]!r}")
        return NumberArg(value)
    if type(data) is not int or not 0 <= data < position:
        raise FileError(f"node {position} refers to {data}, which does not come before it")
    return data


def _node(row: dict[str, Any], position: int, nodes: list[Node]) -> Node:
    """Return the node that a row of the file stands for, at `position`, after `nodes`; FileError if it is inconsistent.

    UnsupportedError for an unknown operator, and the operator's own errors for its shapes and parameters: `load` makes
    one FileError of them.
    """
    _check_keys(row, NODE_KEYS, f"node {position}")
    name = row["name"]
    if not isinstance(name, str) or not isinstance(row.get("group", name), str):
        raise FileError(f"the name of node {position} must be text; got {type(name).__name__}")
    if row.get("kind", "real") not in ("real", "index"):
        raise FileError(f"node {name} must hold real numbers or an index; got {str(row['kind'])[:40]!r}")
    shape = _shape(row["shape"], name)
    args = tuple(_arg(a, position) for a in row.get("args", ()))
    params = _params(row, name)
    op: Op | None = {"input": INPUT, "constant": CONSTANT}.get(row["op"]) or REGISTRY.get(row["op"])
    if op is None:
        raise UnsupportedError("load", f"operator {row['op']!r} of node {name} is unknown")
    if op not in (INPUT, CONSTANT):
        op.check_params(params)
        computed = op.shape(*(() if isinstance(a, NumberArg) else nodes[a].shape for a in args), **params)
        if computed != shape:
            raise FileError(f"node {name} says shape {shape}; its operator gives {computed}")
    elif args or params:
        raise FileError(f"node {name} is an {op.name} and takes no arguments and no parameters")
    if "exact" in row and op is not CONSTANT:
        raise FileError(f"node {name} is no constant and has no exact numbers")
    _check_kind(op, args, nodes, row.get("kind", "real"), name)
    return Node(op, args, params, shape, row.get("kind", "real"), name, row.get("group", name))


def _check_kind(op: Op, args: tuple[int | NumberArg, ...], nodes: list[Node], kind: str, name: str) -> None:
    """Raise FileError unless indices stand where the operator of the node `name` takes them, and the output's kind is
    its own.

    `nodes` are those before it.
    """
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
    """Raise FileError unless arguments have one of `names` each, inputs occur once, and outputs are nodes."""
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
    """Return the graph that `to_json` wrote as `data`, with its float constants by name in `arrays`.

    FileError for another format or version, and for anything that does not fit.
    """
    if data.get("format") != FORMAT:
        raise FileError(f"format must be {FORMAT!r}; got {data.get('format')!r}")
    if data.get("version") != VERSION:
        raise FileError(f"version {data.get('version')!r} is not readable here; this is version {VERSION}")
    _check_keys(data, GRAPH_KEYS, "the graph")
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
    graph = Graph(tuple(nodes), tuple(data["names"]), inputs, outputs, bool(data["single"]), constants, trainable)
    return replace(graph, open=_open(data["open"], graph, arrays or {})) if "open" in data else graph


def _open_to_json(opened: SymbolicProgram) -> dict[str, Any]:
    """Return the program over symbolic sizes as JSON data; its float constants stand with the graph's, by name.

    UnsupportedError if it imports a file again at other sizes.
    """
    if opened.reimport is not None:
        text = "the graph reads its model again for other sizes, which this file could not; save graph.at(...) instead"
        raise UnsupportedError("save", text)
    program = opened.program
    inputs = (program.nodes[p].shape for p in program.input_positions)
    symbols = {s.name: [s.hint, s.default] for shape in inputs for n in shape for s in symbols_in(n)}
    return {
        "sizes": symbols,
        "names": list(program.names),
        "inputs": _encode_tree(program.inputs),
        "outputs": _encode_tree(program.outputs),
        "single": program.single,
        "nodes": [_row(program, i, n) for i, n in enumerate(program.nodes)],
        "guards": [encode_guard(g) for g in opened.guards],
        "steps": [
            [name, list(wrt) if isinstance(wrt, tuple) else wrt, dict(options)] for name, wrt, options in opened.steps
        ],
    }


def _open(data: Any, graph: Graph, arrays: dict[str, Array]) -> SymbolicProgram:
    """Return the program over symbolic sizes that JSON `data` state, with constants from `arrays`; raise FileError
    unless it is, at the defaults, the graph beside it.
    """
    _check_keys(data, OPEN_KEYS, "open")
    reader = SymbolicReader(data["sizes"], FileError)
    nodes = [_open_node(row, i, reader) for i, row in enumerate(data["nodes"])]
    constants = {i: _open_constant(row, arrays) for i, row in enumerate(data["nodes"]) if nodes[i].op is CONSTANT}
    inputs, outputs = _decode_tree(data["inputs"]), _decode_tree(data["outputs"])
    _check_ends(nodes, data["names"], inputs, outputs)
    names = tuple(data["names"])
    program = Program(tuple(nodes), names, inputs, outputs, data["single"] is True, constants, graph.trainable)
    opened = SymbolicProgram(program, tuple(reader.guard(g) for g in data["guards"]), tuple(map(_step, data["steps"])))
    at_defaults: Graph = closed(instantiate(opened, opened.defaults))
    for name, wrt, options in opened.steps:
        at_defaults = DERIVATIVES[name](at_defaults, wrt, **dict(options))
    same = (at_defaults.nodes, at_defaults.names, at_defaults.inputs, at_defaults.outputs, at_defaults.single)
    if same != (graph.nodes, graph.names, graph.inputs, graph.outputs, graph.single):
        raise FileError("the graph over open sizes is another one than the graph at their defaults")
    return opened


def _open_constant(row: dict[str, Any], arrays: dict[str, Array]) -> Array:
    """Return the array that `row` states, or one that is broadcast to a symbolic shape and has a name of its own in the
    file.

    FileError if `row` or the file's array is not as it should be.
    """
    if "of" not in row:
        return _constant(row, arrays)
    return _constant({**row, "name": row["name"] + REPEATED, "shape": _shape(row["of"], row["name"])}, arrays)


def _open_node(row: dict[str, Any], position: int, reader: SymbolicReader) -> Node:
    """Return the node over symbolic sizes, at `position`, that a row stands for; UnsupportedError for an operator that
    is not known.
    """
    _check_keys(row, NODE_KEYS | {"of"}, f"open node {position}")
    op = {"input": INPUT, "constant": CONSTANT}.get(row["op"]) or REGISTRY.get(row["op"])
    if op is None:
        raise UnsupportedError("load", f"operator {row['op']!r} of open node {position} is unknown")
    params = {key: reader.value(value, _decode) for key, value in row.get("params", {}).items()}
    if op not in (INPUT, CONSTANT):
        op.check_params(params)
    args = tuple(_open_arg(a, position, reader) for a in row.get("args", ()))
    shape = tuple(reader.size(n) for n in row["shape"])
    kind: Any = row.get("kind", "real")
    return Node(op, args, params, shape, kind, row["name"], row.get("group", row["name"]))


def _open_arg(data: Any, position: int, reader: SymbolicReader) -> int | NumberArg:
    """Return the argument of the node at `position` over symbolic sizes that JSON `data` state, symbolic sizes read by
    `reader`; FileError if it refers to no earlier node.
    """
    if isinstance(data, dict) and isinstance(data.get("number"), dict) and "size" in data["number"]:
        return NumberArg(reader.size(data["number"]))
    return _arg(data, position)


def _step(data: Any) -> tuple[str, Any, tuple[tuple[str, Any], ...]]:
    """Return the derivative step that JSON `data` state as (name, wrt, options); raise FileError for an unknown
    derivative.
    """
    name, wrt, options = data
    if name not in DERIVATIVES or not set(options) <= {"value"}:
        raise FileError(f"{str(name)[:40]!r} is no derivative; known are {', '.join(DERIVATIVES)}")
    return name, tuple(wrt) if isinstance(wrt, list) else wrt, tuple(options.items())


def _constant(row: dict[str, Any], arrays: dict[str, Array]) -> Array:
    """Return the array of the constant that `row` states; raise FileError if it is missing or has another shape or
    type.
    """
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


def digest(arrays: dict[str, Array]) -> str:
    """Return the SHA-256 of names, types, shapes and cells of `arrays`, in the order of the names."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        head = json.dumps([name, array.dtype.str, list(array.shape)]).encode()
        sha.update(struct.pack("<Q", len(head)) + head + array.tobytes())
    return sha.hexdigest()


def _metadata(path: Path) -> dict[str, Any]:
    """Return the texts in the header of a safetensors file, {} if it has none; {"foreign": "yes"} for any other file.

    Only the header is read. OSError if there is no file.
    """
    try:
        with opened(path) as (file, size):
            head = file.read(8)
            head += file.read(min(int.from_bytes(head, "little"), MAX_HEADER_BYTES))
        metadata = safetensors_header(head, size, path).get("__metadata__", {})
    except FileError:
        return {"foreign": "yes"}
    return metadata if isinstance(metadata, dict) else {"foreign": "yes"}


def _is_graph(path: Path) -> bool:
    """Return whether a file begins as `save` begins it."""
    with opened(path) as (file, _):
        return FORMAT.encode() in file.read(80)


def _refuse_foreign(path: Path, ours: bool, force: bool) -> None:
    """Raise FileError for a file that is not `ours`, unless it is empty or `force` is set."""
    if not (ours or force or path.stat().st_size == 0):
        text = f"{path.name} exists and was not written by this function; choose another name, or pass force=True"
        raise FileError(text, "save")


def named_arrays(graph: Graph) -> dict[str, Array]:
    """Return the constants by name, with those of the program over symbolic sizes.

    A derivative may have dropped some of the latter. UnsupportedError if two have one name.
    """
    programs: list[Program] = [graph] if graph.open is None else [graph.open.program, graph]
    arrays: dict[str, Array] = {}
    for program in programs:
        for i, array in program.constants.items():
            name = program.nodes[i].name + (REPEATED if array.shape != program.nodes[i].shape else "")
            if arrays.setdefault(name, array) is not array:
                raise UnsupportedError("save", f"two constants are called {name!r}")
    return arrays


def save(graph: Graph, path: str | Path, *, force: bool = False) -> None:
    """Write the graph to `path` (.json), its float and integer constants beside it (.safetensors).

    Parameters
    ----------
    graph : Graph
        The network.
    path : str or Path
        A .json file; float and integer constants go to the .safetensors file beside it (extra: `save`).
    force : bool, default False
        Overwrite a file that `save` did not write.

    Raises
    ------
    FileError
        If a file of others is in the way, or the arrays would have the same path.
    UnsupportedError
        For a parameter of an operator that cannot be written.

    Examples
    --------
    >>> import tempfile, specgrad as sg
    >>> path = tempfile.mkdtemp() + "/net.json"
    >>> save(sg.trace(lambda x: sg.relu(x), (2,)), path)
    >>> sg.load(path)
    Graph(x; 2 nodes)
    """
    path = Path(path)
    beside = path.with_suffix(".safetensors")
    if path == beside:
        raise FileError(f"{path.name} is where the arrays go; name the graph {path.stem}.json", "save")
    arrays = {name: np.asarray(a, order="C") for name, a in named_arrays(graph).items() if a.dtype != object}
    data = {**to_json(graph), "version": FILE_VERSION, "arrays": digest(arrays)}
    text = json.dumps(data, indent=1, allow_nan=False).encode()
    known = path.exists() and _is_graph(path)
    if path.exists():
        _refuse_foreign(path, known, force)
    if arrays:
        need("safetensors", "arrays in files need")
        from safetensors.numpy import save as pack

        if beside.exists():
            metadata = _metadata(beside)
            _refuse_foreign(beside, metadata == OURS or (known and not metadata), force)
        write_pair(path, text, beside, pack(arrays, metadata=OURS))
    else:
        write_whole(path, text)


def load(path: str | Path, *, byte_budget: int = BYTE_BUDGET) -> Graph:
    """Return the graph that `save` wrote to `path` and to the .safetensors file beside it.

    Parameters
    ----------
    path : str or Path
        The .json file; its arrays lie beside it.
    byte_budget : int, default 2147483648
        No single value, at 8 bytes a cell, and no padded input of a window may need more.

    Returns
    -------
    Graph
        Every shape rule has run again.

    Raises
    ------
    FileError
        For other files, and for arrays of another graph (version 1 carries no digest).
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> import tempfile, specgrad as sg
    >>> path = tempfile.mkdtemp() + "/net.json"
    >>> sg.save(sg.trace(lambda x: sg.relu(x), (2,)), path)
    >>> load(path)(np.array([-1.0, 1.0]))
    array([0., 1.])
    """
    path = Path(path)
    with as_file_error(path.name, "a specgrad graph"):
        raw = bytes(read_bytes(path, MAX_TEXT_BYTES))
        data = parse_json(raw, path.name)
        if not isinstance(data, dict):
            raise FileError(f"{path.name} is not a specgrad graph: it holds a {type(data).__name__}")
        version = data.get("version")
        if data.get("format") == FORMAT and (type(version) is not int or version not in (VERSION, FILE_VERSION)):
            raise FileError(f"version {str(version)[:40]} is not readable here; this is version {FILE_VERSION}")
        wanted = data.pop("arrays") if version == FILE_VERSION else None
        arrays = _arrays(partner(raw, path.with_suffix(".safetensors")), data["nodes"])
        graph = from_json({**data, "version": VERSION}, arrays)
        if wanted is not None and digest(arrays) != wanted:
            raise FileError(f"the arrays beside {path.name} are not those it was saved with: the digests differ")
        for node in graph.nodes:
            _check_budget(node, byte_budget)
        return graph


def _check_budget(node: Node, byte_budget: int) -> None:
    """Raise FileError if a node needs more than `byte_budget` bytes; sizes of a file are not trusted."""
    sizes, window = [node.shape], node.params.get("window")
    if isinstance(window, Window):
        sizes.append((*node.shape[: len(node.shape) - window.rank], *window.padded))
    needed = 8 * max(math.prod(n for n in shape if n) for shape in sizes)  # NumPy counts an empty axis as one cell, too
    if needed > byte_budget:
        raise FileError(f"node {node.name} needs {needed} bytes; byte_budget={byte_budget} allows less")


def _arrays(path: Path, rows: Any) -> dict[str, Array]:
    """Return the arrays of a safetensors file by name; {} if the graph, whose nodes are the JSON data `rows`, needs
    none.
    """
    if not path.exists() or not any(row["op"] == "constant" and "exact" not in row for row in rows):
        return {}
    return read_arrays(path)[0]


def save_params(params: Tree, path: str | Path, *, force: bool = False) -> None:
    """Write a structure of arrays as one safetensors file; the structure stands in its header.

    Parameters
    ----------
    params : structure of arrays
        Tuples, lists and dicts of arrays.
    path : str or Path
        The file, usually .safetensors.
    force : bool, default False
        Overwrite a file that `save_params` did not write.

    Raises
    ------
    FileError
        If a file of others is in the way.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/params.safetensors"
    >>> save_params({"w": np.ones((2, 3), np.float32)}, path)
    >>> load_params(path)["w"].shape
    (2, 3)
    """
    need("safetensors", "arrays in files need")
    from safetensors.numpy import save as pack

    arrays: dict[str, Array] = {}

    def place(_: str, leaf: Any) -> int:
        arrays[str(len(arrays))] = np.asarray(leaf, order="C")
        return len(arrays) - 1

    path, structure = Path(path), _encode_tree(transform(place, params))
    if path.exists():
        _refuse_foreign(path, "structure" in _metadata(path), force)
    write_whole(path, pack(arrays, metadata={"structure": json.dumps(structure)}))


def load_params(path: str | Path) -> Tree:
    """Return the structure of arrays that `save_params` wrote.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    structure of arrays
        As it was saved; lists are tuples.

    Raises
    ------
    FileError
        For a file that `save_params` did not write.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/params.safetensors"
    >>> save_params({"conv": (np.zeros(2), np.ones(2))}, path)
    >>> load_params(path)
    {'conv': (array([0., 0.]), array([1., 1.]))}
    """
    path = Path(path)
    with as_file_error(path.name, "a file of parameters"):
        arrays, texts = read_arrays(path)
        if "structure" not in texts:
            raise FileError(f"{path.name} has no structure; it was not written by save_params")
        tree = _decode_tree(parse_json(texts["structure"], path.name))
        if sorted(map(str, leaves(tree))) != sorted(arrays) or not all(type(i) is int for i in leaves(tree)):
            raise FileError(f"{path.name} must name each of its arrays once in its structure")
        return transform(lambda _, i: arrays[str(i)], tree)
