"""Certificates: proofs that can be checked in exact arithmetic, without trusting the program that found them.

Two files: JSON (what is stated of which network and of which executions, digests) and safetensors (boxes, slopes). The
checker reads them, compares the digests of the network and of every byte, and replays the bounds over rationals
(specgrad.proof.exact.replay): ranges of all layers, rounding of float32, linear bounds. It shares the specifications
with the rest of the library, and no float code.

    statement   for every float32 input of a case's box, every execution that `arithmetic` describes gives outputs
                outside every alternative of the case
    proof       per alternative: weights >= 0, not all 0, and slopes such that weights.(rows.y - limits) > 0 by linear
                bounds; or a tree of cuts with such weights at every leaf (specgrad.proof.batched.tree_replay)

docs/reference/certificate.md is the format. Version 4 has trees, version 2 none. Version 1 counted rounding node by
node, while runtimes merge nodes, and version 3 had trees without `anew`; both are refused.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.atomic_files import partner, write_pair
from specgrad.bounded_files import read_bytes
from specgrad.errors import SpecgradError, need
from specgrad.graph.files.save import to_json
from specgrad.graph.graph import Graph
from specgrad.properties.property import Case, Property, towards_zero
from specgrad.scalar import Array, nearest_float

from ..base.executions import ExecutionError, Executions, assumed, deployment, exclusion, executions, optimistic
from ..base.rationals import ReplayError, rational, rationals
from ..batched.tree_replay import Leaf, Roots, TreeProof, replay_tree
from ..batched.tree_replay import LeafResult as ProvenLeaf
from ..exact.replay import ExecutionModel, Replay, Slopes
from .entries import (
    MAX_ARRAY_BYTES,
    MAX_JSON_BYTES,
    array_named,
    bounded_int,
    canonical,
    excerpt,
    fraction,
    items_by_node,
    node_position,
    nonempty_list,
    object_with_keys,
    read_arrays,
    read_json,
    read_tree,
    tighten_positions,
    tree_entry,
)

FORMAT, WITHOUT_TREES, VERSION = "specgrad-certificate", 2, 4
REFUSED_VERSIONS = {
    1: "it counted rounding node by node, and runtimes merge nodes",
    3: "its trees do not say where rounding is counted again, and a product that several nodes read was one value",
}
SCALE = 1 << 10  # slopes are whole numbers over this
DEFAULT_SECONDS = 60.0
KEYS = {"format", "version", "network", "arithmetic", "cases", "arrays", "digest"}
CASE_KEYS = {"low", "high", "alternatives"}
ALTERNATIVE_KEYS = {"rows", "limits", "weights", "slopes", "tighten", "pieces"}
TREE_ALTERNATIVE_KEYS = {"rows", "limits", "tree"}


@dataclass(frozen=True, eq=False)
class Proof:
    """Hints that exclude one alternative on the whole box: weights of its rows, slopes per relu and max_pool, nodes to
    tighten.

    Nodes go by their position in the graph.

    pieces   vectors of relus that are bounded together (specgrad.proof.exact.multi_neuron)
    """

    weights: tuple[int, ...]
    slopes: Mapping[int, Slopes]
    tighten: tuple[int, ...] = ()
    pieces: Mapping[int, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CaseProof:
    """A float32 box with its alternatives (rows, limits, proof), proof being a Proof or the number of a tree.

    low and high are the box's ends; trees are numbered from 0.
    """

    low: Array
    high: Array
    alternatives: tuple[tuple[Array, tuple[Fraction, ...], Proof | int], ...]
    trees: tuple[TreeProof, ...] = ()

    def alternatives_of_tree(self, tree: int) -> list[int]:
        """Return the numbers of the alternatives that a tree excludes."""
        return [k for k, (_, _, proof) in enumerate(self.alternatives) if proof == tree]


# --- what was checked -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ExcludedAlternative:
    """Outputs that never happen, rows.y <= limits, and the margin: a lower bound of weights.(rows.y - limits).

    leaves   of the tree that proves it; its margin is the least of them, per unit of weight
    """

    rows: tuple[tuple[int, ...], ...]
    limits: tuple[Fraction, ...]
    margin: Fraction
    leaves: int = 1

    @property
    def leaves_text(self) -> str:
        """Return ", the least of n leaves" for a proof by a tree, else ""."""
        return f", the least of {self.leaves} leaves" if self.leaves > 1 else ""

    def __str__(self) -> str:
        """Return text such as: Y_0 - 2*Y_3 <= 1/2 never happens.

        >>> str(ExcludedAlternative(((1, 0, -2), (-1, 0, 0)), (Fraction(1, 2), Fraction(0)), Fraction(1)))
        'Y_0 - 2*Y_2 <= 1/2 and -Y_0 <= 0 never happen together'
        """
        parts = [
            f"{_row_text(row)} <= {_fraction_text(limit)}" for row, limit in zip(self.rows, self.limits, strict=True)
        ]
        return f"{' and '.join(parts)} never {'happens' if len(parts) == 1 else 'happen together'}"


def _row_text(row: Sequence[int]) -> str:
    """Return a row as text, such as Y_0 - 2*Y_3."""
    terms = [("-" if c < 0 else "+", f"{abs(c)}*" if abs(c) != 1 else "", j) for j, c in enumerate(row) if c]
    text = " ".join(f"{sign} {factor}Y_{j}" for sign, factor, j in terms)
    return f"-{text[2:]}" if text.startswith("-") else text[2:] or "0"


def _fraction_text(number: Fraction) -> str:
    """Return the fraction `number` as text, approximately if it is long."""
    short = max(abs(number.numerator), number.denominator) < 10**12
    return str(number) if short else f"about {nearest_float(number):.9g}"


@dataclass(frozen=True, eq=False)
class Proven:
    """One proven case: on this float32 box, these outputs never happen.

    low and high are the box's ends; alternatives describe the outputs.
    """

    low: Array
    high: Array
    alternatives: tuple[ExcludedAlternative, ...]

    def box(self, cells: int = 3) -> str:
        """Return text: how many inputs there are, the widest, and the first `cells`."""
        low, high = (np.ravel(end).tolist() for end in (self.low, self.high))
        widest = max(range(len(low)), key=lambda i: high[i] - low[i])
        each = [f"X_{i} from {low[i]:.9g} to {high[i]:.9g}" for i in (widest, *range(min(cells, len(low))))]
        return f"{len(low)} inputs; the widest: {each[0]}; the first: {', '.join(each[1:])}"


@dataclass(frozen=True, eq=False)
class Checked:
    """A certificate that was found valid: what it proves, of which network, for which executions, and by how much.

    network      the digest of the network
    files        names of the files that were read, as the caller gave them
    excluded     a sentence about excluded executions of this network (specgrad.proof.base.executions); "": none
    cases        per case of the property, what is proven
    arithmetic   of the executions
    """

    network: str
    cases: tuple[Proven, ...]
    arithmetic: Executions
    files: Mapping[str, str] = field(default_factory=dict)
    excluded: str = ""

    @cached_property
    def deployment(self) -> dict[str, str]:
        """Return sentences by topic that describe the executions and inputs which the statement covers."""
        said = deployment(self.arithmetic)
        return {**said, "choices": self.excluded} if self.excluded else said

    @property
    def margins(self) -> tuple[tuple[Fraction, ...], ...]:
        """Return the margin of every alternative, case by case."""
        return tuple(tuple(a.margin for a in case.alternatives) for case in self.cases)

    @property
    def margin(self) -> Fraction:
        """Return the least margin of all."""
        return min(m for case in self.margins for m in case)

    def to_json(self, notes: Sequence[str] = ()) -> dict[str, Any]:
        """Return what is proven as JSON data: verdict, network, property, cases (box and alternatives), margin,
        arithmetic, deployment.

        Margins are rounded towards 0. `notes` are added as they are, if there are any.
        """
        cases = [
            {
                "box": case.box(),
                "alternatives": [
                    {"excluded": str(a), "margin": towards_zero(a.margin), "leaves": a.leaves}
                    for a in case.alternatives
                ],
            }
            for case in self.cases
        ]
        network = {"file": self.files.get("network", ""), "digest": self.network}
        data: dict[str, Any] = {"verdict": "valid", "network": network}
        data |= {"property": self.files.get("property", ""), "cases": cases, "margin": towards_zero(self.margin)}
        data |= {"arithmetic": self.arithmetic.to_json(), "deployment": self.deployment}
        return {**data, "notes": list(notes)} if notes else data

    def __str__(self) -> str:
        """Return a report for people, one line per alternative."""
        lines = []
        for case in self.cases:
            lines.append(f"valid{f' ({self.excluded})' if self.excluded else ''}: on a box of {case.box()}")
            lines += [f"  {a}; margin {nearest_float(a.margin):.6g}{a.leaves_text}" for a in case.alternatives]
        lines.append(f"network: digest {self.network}")
        kind = f"{self.arithmetic.dtype}, {self.arithmetic.execution}"
        lines.append(f"executions: {kind}; `deployment` says what that includes")
        return "\n".join([*lines, assumed(self.arithmetic)] if self.arithmetic.functions else lines)


# --- digests ----------------------------------------------------------------------------------------------------------


def digest(*parts: bytes) -> str:
    """Return the SHA-256, in hex, of `parts`, byte strings, each preceded by its length."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(len(part).to_bytes(8, "little") + part)
    return sha.hexdigest()


def network_digest(graph: Graph) -> str:
    """Return the digest of a graph: its nodes, their names and parameters, and every bit of its constants."""
    parts = [canonical(to_json(graph))]
    for i in sorted(graph.constants):
        array = graph.constants[i]
        if array.dtype != object:  # exact constants stand in the JSON
            little = array.astype(array.dtype.newbyteorder("<"))
            parts += [str(i).encode(), little.dtype.str.encode(), little.tobytes()]
    return digest(*parts)


# --- writing ----------------------------------------------------------------------------------------------------------


def write(path: str | Path, graph: Graph, cases: Sequence[CaseProof], arithmetic: Any = None) -> None:
    """Write a certificate: `path` (.json), and its arrays beside it (.safetensors).

    `cases` are the proofs, `arithmetic` the executions meant (None: the default).
    """
    store(path, *encode(graph, cases, arithmetic))


def store(path: str | Path, text: bytes, packed: bytes) -> None:
    """Write both files of a certificate, given their bytes: `text` to path, `packed` beside it; if it is stopped, the
    old pair or the new one remains.

    OSError if they cannot be written.
    """
    write_pair(path, text, Path(path).with_suffix(".safetensors"), packed)


def encode(graph: Graph, cases: Sequence[CaseProof], arithmetic: Any = None) -> tuple[bytes, bytes]:
    """Return the bytes of both files of a certificate: the JSON text, and the arrays as safetensors.

    ReplayError for numbers that a certificate cannot state, ExecutionError for such an arithmetic.

    arithmetic   the executions that the certificate is about, see specgrad.proof.base.executions; None: the default
    cases        their boxes, alternatives and proofs
    """
    need("safetensors", "certificates need")
    from safetensors.numpy import save

    arrays: dict[str, Array] = {}

    def add_array(name: str, array: Array) -> str:
        """Keep an array for the safetensors file and return its name."""
        arrays[name] = np.ascontiguousarray(array).reshape(array.shape)  # which makes an axis where there is none
        return name

    written: list[dict[str, Any]] = []
    with_trees = any(case.trees for case in cases)
    for c, case in enumerate(cases):
        rows = []
        for a, (matrix, limits, proof) in enumerate(case.alternatives):
            exact = [[_exact_int(v) for v in row] for row in matrix.tolist()]
            if isinstance(proof, int):
                rows.append({"rows": exact, "limits": [str(v) for v in limits], "tree": proof})
                continue
            slopes = {
                str(i): [
                    add_array(f"{c}.{a}.{i}.{side}", getattr(s, side).astype(np.int16)) for side in ("lower", "upper")
                ]
                for i, s in proof.slopes.items()
            }
            together = {str(i): add_array(f"{c}.{a}.{i}.pieces", m.astype(np.int32)) for i, m in proof.pieces.items()}
            rows.append({"rows": exact, "limits": [str(v) for v in limits], "weights": list(proof.weights),
                         "slopes": slopes, "tighten": sorted(set(proof.tighten)), "pieces": together})  # fmt: skip
        ends = (add_array(f"{c}.{side}", getattr(case, side).astype(np.float32)) for side in ("low", "high"))
        written.append({"low": next(ends), "high": next(ends), "alternatives": rows})
        if with_trees:
            written[-1]["trees"] = [tree_entry(tree, f"{c}.tree.{k}", add_array) for k, tree in enumerate(case.trees)]
    packed = save(arrays)
    version = VERSION if with_trees else WITHOUT_TREES
    data = {"format": FORMAT, "version": version, "network": network_digest(graph), "cases": written}
    data["arithmetic"] = executions(arithmetic).of({n.op.name for n in graph.nodes}).to_json()
    return sealed(data, packed), packed


def _exact_int(value: Any) -> int:
    """Return `value`, a number of a row, as an integer; raise ReplayError if it is none."""
    if value != int(value):
        raise ReplayError(f"rows of a certificate hold whole numbers; got {value}: multiply rows and limits")
    return int(value)


def sealed(data: Mapping[str, Any], packed: bytes) -> bytes:
    """Return the bytes of the JSON file: `data` with the digests of the arrays' bytes, `packed`, and of itself."""
    stated = {**data, "arrays": digest(packed)}
    stated.pop("digest", None)
    return canonical({**stated, "digest": digest(canonical(stated))})


# --- checking ---------------------------------------------------------------------------------------------------------


class OutOfTimeError(ReplayError):
    """Raised if the time was over before the certificate was found valid or refused."""


class OpenAlternativeError(ReplayError):
    """Raised for an alternative that is not excluded, on the whole box or on a leaf.

    It has the number of the `alternative` and the `margin` that was proven, which is not positive; `where` goes to the
    text.
    """

    def __init__(self, alternative: int, margin: Fraction, where: str = "") -> None:
        self.alternative, self.margin = alternative, margin
        text = f"alternative {alternative} is not excluded{where}"
        super().__init__(f"{text}: the proven margin is {nearest_float(margin):.3g}")


class OpenLeafError(OpenAlternativeError):
    """Raised for a `leaf`, of a tree of splits of `graph`, on which an alternative is not excluded."""

    def __init__(self, graph: Graph, leaf: Leaf, alternative: int, margin: Fraction) -> None:
        self.leaf = leaf
        super().__init__(alternative, margin, f" at the leaf {leaf.words(graph)} (part {leaf.part})")


class Deadline:
    """Callable that raises OutOfTimeError after `seconds`; every loop of a replay calls it."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end = seconds, time.monotonic() + seconds

    def __call__(self) -> None:
        if time.monotonic() > self.end:
            raise OutOfTimeError(f"the replay took over {self.seconds:g} s; give it more with `seconds`")


def check_file(
    path: str | Path,
    graph: Graph,
    statement: Property | None = None,
    *,
    seconds: float = DEFAULT_SECONDS,
    files: Mapping[str, str] | None = None,
    assume: bool = False,
) -> Checked:
    """Return what a certificate in a file proves for this network, after its replay; a ReplayError says why it proves
    nothing.

    A file that cannot be read is an OSError: nothing was refused then. `statement`, `seconds` and `assume` are as for
    `check`; `files` are names to report by role.
    """
    path = Path(path)
    checked = check(*read_files(path), graph, statement, seconds=seconds, assume=assume)
    return replace(checked, files={**(files or {}), "certificate": path.name})


def read_files(path: Path) -> tuple[bytes, bytes]:
    """Return the bytes of the JSON file, and of the arrays beside it.

    FileError if one is too large, or no regular file.
    """
    text = bytes(read_bytes(path, MAX_JSON_BYTES))
    return text, bytes(read_bytes(partner(text, path.with_suffix(".safetensors")), MAX_ARRAY_BYTES))


def check(
    text: bytes,
    packed: bytes,
    graph: Graph,
    statement: Property | None = None,
    *,
    seconds: float = DEFAULT_SECONDS,
    assume: bool = False,
) -> Checked:
    """Replay a certificate given as the bytes of its files, and return what it proves; else raise ReplayError.

    statement   the property that it must be a certificate of; without one, of whatever it states
    seconds     how long the replay may take
    assume      functions (exp, tanh, ...) may be declared more accurate than they were measured: what is proven is then
                proven of such runtimes alone
    text, packed   the .json and the .safetensors file
    """
    deadline = Deadline(seconds)
    arithmetic, cases = read_certificate(text, packed, graph, statement, assume=assume)
    proven = tuple(check_case(graph, case, arithmetic, deadline) for case in cases)
    return Checked(network_digest(graph), proven, arithmetic, excluded=exclusion(graph))


def read_certificate(
    text: bytes, packed: bytes, graph: Graph, statement: Property | None = None, *, assume: bool = False
) -> tuple[Executions, list[CaseProof]]:
    """Return the executions and cases of a certificate, if it is about this network and property; nothing is proven
    yet.

    ReplayError if it is about another, or is no certificate. `text` and `packed` are its files; `statement` and
    `assume` are as for `check`.
    """
    data = _read_text(text)
    if data["arrays"] != digest(packed):
        raise ReplayError("the arrays are not those that the certificate was written with")
    if data["network"] != network_digest(graph):
        raise ReplayError("the network is not the one that the certificate was written for")
    arithmetic = _read_executions(data["arithmetic"], graph)
    if not assume and (said := optimistic(arithmetic)):
        raise ReplayError(f"{said}; if your runtime is that accurate, say so (`assume`, --assume-functions)")
    arrays = read_arrays(packed)
    trees = data["version"] == VERSION
    cases = [_read_case(case, arrays, graph, trees) for case in nonempty_list(data["cases"], "the cases")]
    if statement is not None:
        _compare_with_property(cases, statement)
    return arithmetic, cases


def _read_text(text: bytes) -> dict[str, Any]:
    """Return the JSON data of a certificate's `text`, if its spelling, version and digest are right, else raise
    ReplayError.
    """
    data = read_json(text)
    old = data.get("version") if isinstance(data, dict) and data.get("format") == FORMAT else None
    if isinstance(old, int) and old in REFUSED_VERSIONS:
        raise ReplayError(f"version {int(old)} is no longer accepted: {REFUSED_VERSIONS[old]}; certify again")
    object_with_keys(data, KEYS, "a certificate")
    known = type(data["version"]) is int and data["version"] in (WITHOUT_TREES, VERSION)
    if data["format"] != FORMAT or not known:
        given = f"{excerpt(data['format'])} {excerpt(data['version'])}"
        raise ReplayError(f"format and version must be {FORMAT} {WITHOUT_TREES} or {VERSION}; got {given}")
    if data["digest"] != digest(canonical({k: v for k, v in data.items() if k != "digest"})):
        raise ReplayError("the digest does not fit the certificate")
    return dict(data)


def _read_executions(data: Any, graph: Graph) -> Executions:
    """Return the executions that JSON `data` states; raise ReplayError for functions that the network does not
    compute.
    """
    stated = set(Executions().to_json()) | ({"functions"} & data.keys() if isinstance(data, dict) else set())
    try:
        meant = executions(object_with_keys(data, stated, "the arithmetic"))
    except ExecutionError as error:
        raise ReplayError(str(error)) from None
    if meant.of({n.op.name for n in graph.nodes}) != meant:
        raise ReplayError("the arithmetic says something of functions that the network does not compute")
    return meant


def _read_case(data: Any, arrays: Mapping[str, Array], graph: Graph, with_trees: bool) -> CaseProof:
    """Return one case from its JSON data, validated; ReplayError if it is none. `with_trees` is False for older
    versions, which have none.

    `arrays` are those of the file by name; older versions are without trees.
    """
    object_with_keys(data, CASE_KEYS | {"trees"} if with_trees else CASE_KEYS, "a case")
    shape = graph.nodes[graph.input_positions[0]].shape
    low, high = (array_named(arrays, data[side], np.float32, shape) for side in ("low", "high"))
    if not (low.size and np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ReplayError("a box must have finite ends, the lower one first")
    trees: list[Any] = data["trees"] if with_trees else []
    if not isinstance(trees, list):
        raise ReplayError(f"the trees of a case must be a list; got {excerpt(trees)}")
    given = nonempty_list(data["alternatives"], "the alternatives of a case")
    alternatives = tuple(_read_alternative(a, arrays, graph, len(trees)) for a in given)
    return CaseProof(low, high, alternatives, tuple(read_tree(tree, arrays, graph) for tree in trees))


def _read_alternative(
    data: Any, arrays: Mapping[str, Array], graph: Graph, trees: int
) -> tuple[Array, tuple[Fraction, ...], Proof | int]:
    """Return (rows, limits, proof or number of a tree) from JSON data, validated.

    ReplayError if they do not fit each other. `arrays` are those of the file by name, `trees` is the number of trees of
    the case.
    """
    by_tree = isinstance(data, dict) and "tree" in data
    object_with_keys(data, TREE_ALTERNATIVE_KEYS if by_tree else ALTERNATIVE_KEYS, "an alternative")
    rows, limits = (nonempty_list(data[k], f"the {k} of an alternative") for k in ("rows", "limits"))
    weights = [] if by_tree else nonempty_list(data["weights"], "the weights of an alternative")
    if not len(rows) == len(limits) or (not by_tree and len(weights) != len(rows)):
        raise ReplayError("an alternative needs a limit and a weight per row")
    exact = np.array([_read_row(row, graph) for row in rows], dtype=object)
    if by_tree:
        if bounded_int(data["tree"], 0, "numbers of trees") >= trees:
            raise ReplayError(f"an alternative has tree {data['tree']} of {trees}")
        return exact, tuple(map(fraction, limits)), data["tree"]
    weights = [bounded_int(w, 0, "weights") for w in weights]
    if not any(weights):
        raise ReplayError("the weights of an alternative are all 0, so nothing excludes it")
    slopes = {
        node_position(k, graph): Slopes(*_read_slope_pair(arrays, names), SCALE)
        for k, names in items_by_node(data["slopes"], "slopes")
    }
    pieces = {
        node_position(k, graph): array_named(arrays, name, np.int32)
        for k, name in items_by_node(data["pieces"], "pieces")
    }
    proof = Proof(tuple(weights), slopes, tighten_positions(data["tighten"], graph), pieces)
    return exact, tuple(map(fraction, limits)), proof


def _read_row(row: Any, graph: Graph) -> list[int]:
    """Return a row of integers, one per output, validated; ReplayError if it is none."""
    outputs = int(np.prod(graph.nodes[graph.output_positions[0]].shape))
    if len(nonempty_list(row, "a row")) != outputs:
        raise ReplayError(f"a row needs {outputs} numbers, one per output; got {len(row)}")
    return [bounded_int(v, -(1 << 53), "rows") for v in row]


def _read_slope_pair(arrays: Mapping[str, Array], names: Any) -> tuple[Array, Array]:
    """Return the arrays of lower and upper slopes, validated; ReplayError if `names` are not two."""
    if not isinstance(names, list) or len(names) != 2:
        raise ReplayError(f"slopes are two arrays, lower and upper; got {excerpt(names)}")
    return array_named(arrays, names[0], np.int16), array_named(arrays, names[1], np.int16)


# --- what is proven ---------------------------------------------------------------------------------------------------


def check_case(graph: Graph, case: CaseProof, arithmetic: Executions, deadline: Callable[[], None]) -> Proven:
    """Return the proven margins of a case for the executions `arithmetic`; raise OpenAlternativeError if one is not
    positive.

    `deadline` is called now and then and may raise.
    """
    excluded: dict[int, ExcludedAlternative] = {}
    replays: dict[Any, Replay] = {}
    for number, tree in enumerate(case.trees):
        excluded |= _excluded_by_tree(graph, case, number, tree, arithmetic, deadline)
    for k, (rows, limits, proof) in enumerate(case.alternatives):
        deadline()
        if isinstance(proof, int):
            continue
        key = (proof.tighten, tuple(sorted((i, s.lower.tobytes(), s.upper.tobytes()) for i, s in proof.slopes.items())))
        if key not in replays:
            replays[key] = _replay_case(graph, case, proof, arithmetic, deadline)
        combined = sum((rationals(row) * w for row, w in zip(rows, proof.weights, strict=True)), start=rational(0))
        limit = sum((Fraction(w) * v for w, v in zip(proof.weights, limits, strict=True)), Fraction(0))
        bound = _row_bound(replays[key], combined, proof)
        margin = Fraction(int(bound.p), int(bound.q)) - limit
        if margin <= 0:
            raise OpenAlternativeError(k, margin)
        excluded[k] = ExcludedAlternative(tuple(map(tuple, rows.tolist())), limits, margin)
    return Proven(case.low, case.high, tuple(excluded[k] for k in range(len(case.alternatives))))


def _excluded_by_tree(
    graph: Graph, case: CaseProof, number: int, tree: TreeProof, arithmetic: Executions, deadline: Callable[[], None]
) -> dict[int, ExcludedAlternative]:
    """Return the alternatives that every leaf of tree `number` of a case excludes, each with the least margin of any
    leaf.

    ReplayError if there is none; OpenLeafError if a leaf leaves one open. `arithmetic` says the executions; `deadline`
    is called now and then and may raise.
    """
    mine = case.alternatives_of_tree(number)
    if not mine:
        raise ReplayError(f"tree {number} excludes no alternative")
    rows = [case.alternatives[k][:2] for k in mine]
    least: dict[int, Fraction] = {}
    count = 0
    for proven in proven_leaves(graph, (case.low, case.high), tree, rows, arithmetic, deadline):
        count += 1
        for k, margin in zip(mine, proven.margins or (), strict=proven.margins is not None):
            if margin <= 0:
                raise OpenLeafError(graph, proven.leaf, k, margin)
            least[k] = min(margin, least.get(k, margin))
    if least.keys() != set(mine):
        raise ReplayError(f"tree {number} has no leaf with an execution, and some input is executed")
    stated = ((k, case.alternatives[k]) for k in mine)
    return {
        k: ExcludedAlternative(tuple(map(tuple, a.tolist())), limits, least[k], count) for k, (a, limits, _) in stated
    }


def roots_of(graph: Graph, box: tuple[Array, Array], arithmetic: Executions, deadline: Callable[[], None]) -> Roots:
    """Return the cache that a prover keeps from one call of `proven_leaves` to the next, for one graph, box and
    executions (`arithmetic`); `deadline` is called now and then and raises when time is over.
    """
    return Roots(graph, box, _execution_model(arithmetic), deadline)


def _execution_model(arithmetic: Executions) -> ExecutionModel:
    """Return what the replay assumes of the executions `arithmetic`, as an ExecutionModel."""
    return ExecutionModel.of(arithmetic.execution, arithmetic.rounding, arithmetic.functions)


def proven_leaves(
    graph: Graph,
    box: tuple[Array, Array],
    tree: TreeProof,
    rows: Sequence[tuple[Array, Sequence[Fraction]]],
    arithmetic: Executions,
    deadline: Callable[[], None],
    only: Collection[int] | None = None,
    roots: Roots | None = None,
) -> Iterator[ProvenLeaf]:
    """Yield what every leaf of a tree proves (`only`: some parts alone); all that is wrong with it is a ReplayError.

    box         (low, high) in float32
    rows        the alternatives, (rows, limits)
    arithmetic  the executions; deadline is called now and then and may raise
    roots       what a prover keeps from one call to the next
    """
    try:
        yield from replay_tree(graph, _execution_model(arithmetic), box, tree, rows, deadline, only, roots)
    except SpecgradError as error:
        raise error if isinstance(error, ReplayError) else ReplayError(str(error)) from None


def _replay_case(
    graph: Graph, case: CaseProof, proof: Proof, arithmetic: Executions, deadline: Callable[[], None]
) -> Replay:
    """Return the replay of a proof on a case's whole box for the executions `arithmetic`.

    All that is wrong with it is a ReplayError. `deadline` is called now and then and raises when time is over.
    """
    try:
        return Replay(graph, case.low, case.high, proof.slopes, proof.tighten, _execution_model(arithmetic), deadline)
    except SpecgradError as error:
        raise error if isinstance(error, ReplayError) else ReplayError(str(error)) from None


def _row_bound(replay: Replay, row: Any, proof: Proof) -> Any:
    """Return the lower bound of `row` times the outputs; all that is wrong with the proof is a ReplayError."""
    try:
        return replay.lower(row, vectors=proof.pieces)
    except SpecgradError as error:
        raise error if isinstance(error, ReplayError) else ReplayError(str(error)) from None


def _compare_with_property(cases: Sequence[CaseProof], statement: Property) -> None:
    """Raise ReplayError unless every case of the property is, in order, a case of the certificate, on a box that holds
    its own; `cases` are the certificate's.
    """
    if statement.interface is not None:  # whose cells are not those of one input, in order
        raise ReplayError("certificates are about one input and one output; the property names several, or joins cells")
    if len(cases) != len(statement.cases):
        raise ReplayError(f"the property has {len(statement.cases)} cases, the certificate {len(cases)}")
    for proof, case in zip(cases, statement.cases, strict=True):
        _compare_case(proof, case)


def _compare_case(proof: CaseProof, case: Case) -> None:
    """Raise ReplayError unless the certificate's case has the property's box and all its alternatives."""
    lows, highs = (end.ravel().tolist() for end in (proof.low, proof.high))
    ends = zip(lows, case.low, case.high, highs, strict=True) if len(lows) == len(case.low) else ()
    inside = len(lows) == len(case.low) and all(Fraction(a) <= x and y <= Fraction(b) for a, x, y, b in ends)
    if not inside:
        raise ReplayError("the certificate's box does not hold the property's")
    if not case.alternatives:
        raise ReplayError("the property has a case without alternatives, so there is nothing to prove")
    stated = [(a.rows.tolist(), a.limits) for a in case.alternatives]  # compared as numbers: 1.9 is no 1
    proven = [(rows.tolist(), limits) for rows, limits, _ in proof.alternatives]
    for rows, limits in stated:
        if (rows, limits) not in proven:
            raise ReplayError("an alternative of the property is not among the certificate's")
