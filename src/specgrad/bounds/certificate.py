"""Certificates: a proof that somebody else can check, in exact arithmetic, without trusting whoever found it.

Two files: JSON (what is stated of which network, digests) and safetensors (boxes, slopes). The checker reads them,
compares the digests of the network and of every byte, and replays the bounds over rationals (specgrad.bounds.replay):
ranges of all layers, rounding of float32, linear bounds. It shares the specifications with the rest of the library, and
no float code.

    statement   for every input of a case's box, every float32 execution of the network, in any order of summation and
                with or without flushing of subnormal numbers, gives outputs outside every alternative of the case
    proof       per alternative: weights >= 0 and slopes such that weights.(rows.y - limits) > 0 by linear bounds
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..graph.graph import Graph
from ..graph.save import to_json
from ..scalar import Array
from .replay import Replay, Slopes
from .replay_numbers import ReplayError, rational, rationals
from .vnnlib import Case, Property

FORMAT, VERSION = "specgrad-certificate", 1
SCALE = 1 << 10  # slopes are whole numbers over this
MOST_BYTES = 1 << 30
KEYS = {"format", "version", "network", "cases", "arrays", "digest"}
CASE_KEYS = {"low", "high", "alternatives"}
ALTERNATIVE_KEYS = {"rows", "limits", "weights", "slopes", "tighten", "pieces"}


@dataclass(frozen=True, eq=False)
class Proof:
    """Why one alternative is excluded: weights of its rows, slopes per relu and max_pool, nodes to tighten.

    pieces   vectors of relus that are bounded together (specgrad.bounds.replay_pieces)
    """

    weights: tuple[int, ...]
    slopes: Mapping[str, Slopes]
    tighten: tuple[str, ...] = ()
    pieces: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CaseProof:
    """A box in float32, and a proof per alternative."""

    low: Array
    high: Array
    alternatives: tuple[tuple[Array, tuple[Fraction, ...], Proof], ...]


@dataclass(frozen=True)
class Checked:
    """A certificate that was found valid: what it proves, and by how much."""

    network: str
    cases: int
    margins: tuple[tuple[Fraction, ...], ...]


# --- digests ----------------------------------------------------------------------------------------------------------


def canonical(data: Any) -> bytes:
    """JSON that has one spelling only."""
    return (json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True) + "\n").encode()


def digest(*parts: bytes) -> str:
    """SHA-256 of some bytes, each behind its length."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()


def network_digest(graph: Graph) -> str:
    """The digest of a graph: its nodes, their names and parameters, and every bit of its constants."""
    parts = [canonical(to_json(graph))]
    for i in sorted(graph.constants):
        array = graph.constants[i]
        if array.dtype != object:  # exact constants stand in the JSON
            little = array.astype(array.dtype.newbyteorder("<"))
            parts += [str(i).encode(), little.dtype.str.encode(), little.tobytes()]
    return digest(*parts)


# --- files ------------------------------------------------------------------------------------------------------------


def write(path: str | Path, graph: Graph, cases: Sequence[CaseProof]) -> None:
    """Write a certificate: `path` (.json), and its arrays beside it (.safetensors)."""
    store(path, *encode(graph, cases))


def store(path: str | Path, text: bytes, packed: bytes) -> None:
    """Both files, given their bytes."""
    Path(path).write_bytes(text)
    Path(path).with_suffix(".safetensors").write_bytes(packed)


def encode(graph: Graph, cases: Sequence[CaseProof]) -> tuple[bytes, bytes]:
    """The bytes of both files."""
    from safetensors.numpy import save

    arrays: dict[str, Array] = {}

    def kept(name: str, array: Array) -> str:
        arrays[name] = np.ascontiguousarray(array)
        return name

    written = []
    for c, case in enumerate(cases):
        rows = []
        for a, (matrix, limits, proof) in enumerate(case.alternatives):
            slopes = {
                node: [kept(f"{c}.{a}.{node}.{side}", getattr(s, side).astype(np.int16)) for side in ("lower", "upper")]
                for node, s in proof.slopes.items()
            }
            together = {node: kept(f"{c}.{a}.{node}.pieces", m.astype(np.int32)) for node, m in proof.pieces.items()}
            exact = [[int(v) for v in row] for row in matrix.tolist()]
            rows.append({"rows": exact, "limits": [str(v) for v in limits], "weights": list(proof.weights),
                         "slopes": slopes, "tighten": list(proof.tighten), "pieces": together})  # fmt: skip
        ends = (kept(f"{c}.{side}", getattr(case, side).astype(np.float32)) for side in ("low", "high"))
        written.append({"low": next(ends), "high": next(ends), "alternatives": rows})
    packed = save(arrays)
    data = {"format": FORMAT, "version": VERSION, "network": network_digest(graph), "cases": written}
    data["arrays"] = digest(packed)
    data["digest"] = digest(canonical(data))
    return canonical(data), packed


def check_file(path: str | Path, graph: Graph, statement: Property | None = None) -> Checked:
    """Read a certificate and replay it for this network; a ReplayError says why it proves nothing."""
    path = Path(path)
    beside = path.with_suffix(".safetensors")
    for each in (path, beside):
        if not each.exists():
            raise ReplayError(f"no file {each.name}")
        if each.stat().st_size > MOST_BYTES:
            raise ReplayError(f"{each.name} has over {MOST_BYTES} bytes")
    return check(path.read_bytes(), beside.read_bytes(), graph, statement)


def check(text: bytes, packed: bytes, graph: Graph, statement: Property | None = None) -> Checked:
    """Replay a certificate given as the bytes of its files.

    statement   the property that it must be a certificate of; without one, of whatever it states
    """
    data = _read(text)
    if data["arrays"] != digest(packed):
        raise ReplayError("the arrays are not those that the certificate was written with")
    if data["network"] != network_digest(graph):
        raise ReplayError("the network is not the one that the certificate was written for")
    arrays = _arrays(packed)
    try:
        cases = [_case(case, arrays, graph) for case in data["cases"]]
    except (AttributeError, TypeError, KeyError, IndexError) as error:
        raise ReplayError(f"the certificate is not built as it should be: {error}") from None
    if statement is not None:
        _compare(cases, statement)
    margins = tuple(_replayed(graph, case) for case in cases)
    return Checked(data["network"], len(cases), margins)


# --- reading ----------------------------------------------------------------------------------------------------------


def _no_float(text: str) -> Any:
    raise ReplayError(f"a certificate has no decimal numbers; got {text[:20]}")


def _read(text: bytes) -> dict[str, Any]:
    """The JSON part, if every byte of it is as we write it and its digest is right."""
    try:
        data = json.loads(text.decode("ascii"), parse_float=_no_float, parse_constant=_no_float)
    except ReplayError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"the certificate is not JSON: {type(error).__name__}") from None
    if not isinstance(data, dict) or data.keys() != KEYS:
        raise ReplayError(f"a certificate has the entries {', '.join(sorted(KEYS))}")
    if canonical(data) != text:
        raise ReplayError("the certificate is not spelled as we write it")
    if data["format"] != FORMAT or data["version"] != VERSION:
        raise ReplayError(f"format and version must be {FORMAT} {VERSION}; got {data['format']} {data['version']}")
    if data["digest"] != digest(canonical({k: v for k, v in data.items() if k != "digest"})):
        raise ReplayError("the digest does not fit the certificate")
    return data


def _arrays(packed: bytes) -> dict[str, Array]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(packed)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ReplayError(f"the arrays are not readable: {error}") from None


def _case(data: Any, arrays: Mapping[str, Array], graph: Graph) -> CaseProof:
    _has(data, CASE_KEYS, "a case")
    shape = graph.nodes[graph.input_positions[0]].shape
    low, high = (_array(arrays, data[side], np.float32, shape) for side in ("low", "high"))
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ReplayError("a box must have finite ends, the lower one first")
    return CaseProof(low, high, tuple(_alternative(a, arrays) for a in data["alternatives"]))


def _alternative(data: Any, arrays: Mapping[str, Array]) -> tuple[Array, tuple[Fraction, ...], Proof]:
    _has(data, ALTERNATIVE_KEYS, "an alternative")
    rows, weights = data["rows"], data["weights"]
    limits = tuple(_fraction(v) for v in data["limits"])
    if not all(isinstance(row, list) and all(type(v) is int for v in row) for row in rows):
        raise ReplayError("rows must hold whole numbers")
    if len(rows) != len(limits) or len(rows) != len(weights) or not all(type(w) is int and w >= 0 for w in weights):
        raise ReplayError("an alternative needs a limit and a weight, not negative, per row")
    slopes = {}
    for node, names in data["slopes"].items():
        lower, upper = (_array(arrays, name, np.int16, None) for name in names)
        slopes[node] = Slopes(lower, upper, SCALE)
    exact = np.array(rows, dtype=object).reshape(len(rows), -1)
    pieces = {node: _array(arrays, name, np.int32, None) for node, name in data["pieces"].items()}
    return exact, limits, Proof(tuple(weights), slopes, tuple(data["tighten"]), pieces)


def _has(data: Any, keys: set[str], what: str) -> None:
    if not isinstance(data, dict) or data.keys() != keys:
        raise ReplayError(f"{what} has the entries {', '.join(sorted(keys))}")


def _fraction(text: Any) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, TypeError, ZeroDivisionError):
        raise ReplayError(f"a limit must be a fraction; got {str(text)[:20]}") from None


def _array(arrays: Mapping[str, Array], name: Any, dtype: Any, shape: tuple[int, ...] | None) -> Array:
    found = arrays.get(name) if isinstance(name, str) else None
    if found is None or found.dtype != dtype or (shape is not None and found.shape != shape):
        raise ReplayError(f"array {name!r} is missing, or not of {np.dtype(dtype)} and shape {shape}")
    return found


# --- what is proven ---------------------------------------------------------------------------------------------------


def _replayed(graph: Graph, case: CaseProof) -> tuple[Fraction, ...]:
    """The proven margin of every alternative; one that is not positive is refused."""
    found = []
    replays: dict[Any, Replay] = {}
    for k, (rows, limits, proof) in enumerate(case.alternatives):
        key = (proof.tighten, tuple(sorted((n, s.lower.tobytes(), s.upper.tobytes()) for n, s in proof.slopes.items())))
        if key not in replays:
            replays[key] = Replay(graph, case.low, case.high, proof.slopes, proof.tighten)
        combined = sum((rationals_of(row) * w for row, w in zip(rows, proof.weights, strict=True)), start=rational(0))
        if np.ndim(combined) == 0:
            raise ReplayError(f"alternative {k} has no weights, so nothing excludes it")
        limit = sum((Fraction(w) * v for w, v in zip(proof.weights, limits, strict=True)), Fraction(0))
        bound = replays[key].lower(combined, vectors=proof.pieces)
        margin = Fraction(int(bound.p), int(bound.q)) - limit
        if margin <= 0:
            raise ReplayError(f"alternative {k} is not excluded: the proven margin is {float(margin):.3g}")
        found.append(margin)
    return tuple(found)


def rationals_of(row: Array) -> Array:
    return rationals(np.array([int(v) for v in row], dtype=object))


def _compare(cases: Sequence[CaseProof], statement: Property) -> None:
    """Every case of the property must be a case of the certificate, on a box that holds its own."""
    if len(cases) != len(statement.cases):
        raise ReplayError(f"the property has {len(statement.cases)} cases, the certificate {len(cases)}")
    for proof, case in zip(cases, statement.cases, strict=True):
        _compare_case(proof, case)


def _compare_case(proof: CaseProof, case: Case) -> None:
    lows, highs = (end.ravel().tolist() for end in (proof.low, proof.high))
    ends = zip(lows, case.low, case.high, highs, strict=True) if len(lows) == len(case.low) else ()
    inside = len(lows) == len(case.low) and all(Fraction(a) <= x and y <= Fraction(b) for a, x, y, b in ends)
    if not inside:
        raise ReplayError("the certificate's box does not hold the property's")
    stated = [(a.rows.astype(int).tolist(), a.limits) for a in case.alternatives]
    proven = [([[int(v) for v in row] for row in rows], limits) for rows, limits, _ in proof.alternatives]
    for rows, limits in stated:
        if (rows, limits) not in proven:
            raise ReplayError("an alternative of the property is not among the certificate's")
