"""Certificates: a proof that somebody else can check, in exact arithmetic, without trusting whoever found it.

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
from specgrad.errors import SpecgradError, need
from specgrad.graph.files.save import to_json
from specgrad.graph.graph import Graph
from specgrad.properties.property import Case, Property, as_float, towards_zero
from specgrad.scalar import Array

from ..base.excluded_rewrites import exclusion
from ..base.executions import ExecutionError, Executions, assumed, deployment, executions, optimistic
from ..base.rationals import ReplayError, rational, rationals
from ..batched.tree_replay import Leaf, Roots, TreeProof, replayed
from ..batched.tree_replay import LeafResult as ProvenLeaf
from ..exact.replay import Model, Replay, Slopes
from .strict_json import (
    MOST_BYTES,
    MOST_JSON,
    canonical,
    entries,
    fraction,
    named,
    read_arrays,
    read_json,
    several,
    shown,
    whole,
)
from .tree_arrays import at, by_node, computed, read_tree, tree_entry

FORMAT, WITHOUT_TREES, VERSION = "specgrad-certificate", 2, 4
OLD = {
    1: "it counted rounding node by node, and runtimes merge nodes",
    3: "its trees do not say where rounding is counted anew, and a product that several nodes read was one value",
}
SCALE = 1 << 10  # slopes are whole numbers over this
SECONDS = 60.0
KEYS = {"format", "version", "network", "arithmetic", "cases", "arrays", "digest"}
CASE_KEYS = {"low", "high", "alternatives"}
ALTERNATIVE_KEYS = {"rows", "limits", "weights", "slopes", "tighten", "pieces"}
BY_TREE = {"rows", "limits", "tree"}


@dataclass(frozen=True, eq=False)
class Proof:
    """Why one alternative is excluded: weights of its rows, slopes per relu and max_pool, nodes to tighten.

    Nodes go by their position in the graph.

    pieces   vectors of relus that are bounded together (specgrad.proof.exact.multi_neuron)
    """

    weights: tuple[int, ...]
    slopes: Mapping[int, Slopes]
    tighten: tuple[int, ...] = ()
    pieces: Mapping[int, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CaseProof:
    """A box in float32, and a proof per alternative: of its own, or the number of a tree."""

    low: Array
    high: Array
    alternatives: tuple[tuple[Array, tuple[Fraction, ...], Proof | int], ...]
    trees: tuple[TreeProof, ...] = ()

    def by(self, tree: int) -> list[int]:
        """The alternatives that a tree excludes."""
        return [k for k, (_, _, proof) in enumerate(self.alternatives) if proof == tree]


# --- what was checked -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ExcludedAlternative:
    """Outputs that never happen, rows.y <= limits, and by how much: a lower bound of weights.(rows.y - limits).

    leaves   of the tree that proves it; its margin is the least of them, per unit of weight
    """

    rows: tuple[tuple[int, ...], ...]
    limits: tuple[Fraction, ...]
    margin: Fraction
    leaves: int = 1

    @property
    def by(self) -> str:
        return f", the least of {self.leaves} leaves" if self.leaves > 1 else ""

    def __str__(self) -> str:
        """As in: Y_0 - 2*Y_3 <= 1/2 never happens.

        >>> str(ExcludedAlternative(((1, 0, -2), (-1, 0, 0)), (Fraction(1, 2), Fraction(0)), Fraction(1)))
        'Y_0 - 2*Y_2 <= 1/2 and -Y_0 <= 0 never happen together'
        """
        parts = [f"{_sum(row)} <= {_short(limit)}" for row, limit in zip(self.rows, self.limits, strict=True)]
        return f"{' and '.join(parts)} never {'happens' if len(parts) == 1 else 'happen together'}"


def _sum(row: Sequence[int]) -> str:
    terms = [("-" if c < 0 else "+", f"{abs(c)}*" if abs(c) != 1 else "", j) for j, c in enumerate(row) if c]
    text = " ".join(f"{sign} {factor}Y_{j}" for sign, factor, j in terms)
    return f"-{text[2:]}" if text.startswith("-") else text[2:] or "0"


def _short(number: Fraction) -> str:
    short = max(abs(number.numerator), number.denominator) < 10**12
    return str(number) if short else f"about {as_float(number):.9g}"


@dataclass(frozen=True, eq=False)
class Proven:
    """One case: on this float32 box, these outputs never happen."""

    low: Array
    high: Array
    alternatives: tuple[ExcludedAlternative, ...]

    def box(self, cells: int = 3) -> str:
        """How many inputs, the widest, the first few."""
        low, high = (np.ravel(end).tolist() for end in (self.low, self.high))
        widest = max(range(len(low)), key=lambda i: high[i] - low[i])
        each = [f"X_{i} from {low[i]:.9g} to {high[i]:.9g}" for i in (widest, *range(min(cells, len(low))))]
        return f"{len(low)} inputs; the widest: {each[0]}; the first: {', '.join(each[1:])}"


@dataclass(frozen=True, eq=False)
class Checked:
    """A certificate that was found valid: what it proves, of which network, for which executions, and by how much.

    network   the digest of the network
    files     names of the files that were read, as the caller gave them
    excluded  which executions are excluded of this network in particular (specgrad.proof.base.excluded_rewrites), in
    a sentence
    """

    network: str
    cases: tuple[Proven, ...]
    arithmetic: Executions
    files: Mapping[str, str] = field(default_factory=dict)
    excluded: str = ""

    @cached_property
    def deployment(self) -> dict[str, str]:
        said = deployment(self.arithmetic)
        return {**said, "choices": self.excluded} if self.excluded else said

    @property
    def margins(self) -> tuple[tuple[Fraction, ...], ...]:
        return tuple(tuple(a.margin for a in case.alternatives) for case in self.cases)

    @property
    def margin(self) -> Fraction:
        """The least of all."""
        return min(m for case in self.margins for m in case)

    def to_json(self, notes: Sequence[str] = ()) -> dict[str, Any]:
        """What is proven, as data; margins are rounded towards 0."""
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
        lines = []
        for case in self.cases:
            lines.append(f"valid{f' ({self.excluded})' if self.excluded else ''}: on a box of {case.box()}")
            lines += [f"  {a}; margin {as_float(a.margin):.6g}{a.by}" for a in case.alternatives]
        lines.append(f"network: digest {self.network}")
        kind = f"{self.arithmetic.dtype}, {self.arithmetic.execution}"
        lines.append(f"executions: {kind}; `deployment` says what that includes")
        return "\n".join([*lines, assumed(self.arithmetic)] if self.arithmetic.functions else lines)


# --- digests ----------------------------------------------------------------------------------------------------------


def digest(*parts: bytes) -> str:
    """SHA-256 of some bytes, each behind its length."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(len(part).to_bytes(8, "little") + part)
    return sha.hexdigest()


def network_digest(graph: Graph) -> str:
    """The digest of a graph: its nodes, their names and parameters, and every bit of its constants."""
    parts = [canonical(to_json(graph))]
    for i in sorted(graph.constants):
        array = graph.constants[i]
        if array.dtype != object:  # exact constants stand in the JSON
            little = array.astype(array.dtype.newbyteorder("<"))
            parts += [str(i).encode(), little.dtype.str.encode(), little.tobytes()]
    return digest(*parts)


# --- writing ----------------------------------------------------------------------------------------------------------


def write(path: str | Path, graph: Graph, cases: Sequence[CaseProof], arithmetic: Any = None) -> None:
    """Write a certificate: `path` (.json), and its arrays beside it (.safetensors)."""
    store(path, *encode(graph, cases, arithmetic))


def store(path: str | Path, text: bytes, packed: bytes) -> None:
    """Both files, given their bytes: the old pair or this one, whenever it is stopped."""
    write_pair(path, text, Path(path).with_suffix(".safetensors"), packed)


def encode(graph: Graph, cases: Sequence[CaseProof], arithmetic: Any = None) -> tuple[bytes, bytes]:
    """The bytes of both files; arithmetic: the executions that it is about, see specgrad.proof.base.executions."""
    need("safetensors", "certificates need")
    from safetensors.numpy import save

    arrays: dict[str, Array] = {}

    def kept(name: str, array: Array) -> str:
        arrays[name] = np.ascontiguousarray(array).reshape(array.shape)  # which makes an axis where there is none
        return name

    written: list[dict[str, Any]] = []
    with_trees = any(case.trees for case in cases)
    for c, case in enumerate(cases):
        rows = []
        for a, (matrix, limits, proof) in enumerate(case.alternatives):
            exact = [[_whole(v) for v in row] for row in matrix.tolist()]
            if isinstance(proof, int):
                rows.append({"rows": exact, "limits": [str(v) for v in limits], "tree": proof})
                continue
            slopes = {
                str(i): [kept(f"{c}.{a}.{i}.{side}", getattr(s, side).astype(np.int16)) for side in ("lower", "upper")]
                for i, s in proof.slopes.items()
            }
            together = {str(i): kept(f"{c}.{a}.{i}.pieces", m.astype(np.int32)) for i, m in proof.pieces.items()}
            rows.append({"rows": exact, "limits": [str(v) for v in limits], "weights": list(proof.weights),
                         "slopes": slopes, "tighten": sorted(set(proof.tighten)), "pieces": together})  # fmt: skip
        ends = (kept(f"{c}.{side}", getattr(case, side).astype(np.float32)) for side in ("low", "high"))
        written.append({"low": next(ends), "high": next(ends), "alternatives": rows})
        if with_trees:
            written[-1]["trees"] = [tree_entry(tree, f"{c}.tree.{k}", kept) for k, tree in enumerate(case.trees)]
    packed = save(arrays)
    version = VERSION if with_trees else WITHOUT_TREES
    data = {"format": FORMAT, "version": version, "network": network_digest(graph), "cases": written}
    data["arithmetic"] = executions(arithmetic).of({n.op.name for n in graph.nodes}).to_json()
    return sealed(data, packed), packed


def _whole(value: Any) -> int:
    if value != int(value):
        raise ReplayError(f"rows of a certificate hold whole numbers; got {value}: multiply rows and limits")
    return int(value)


def sealed(data: Mapping[str, Any], packed: bytes) -> bytes:
    """The JSON file: the data with the digests of the arrays and of itself."""
    stated = {**data, "arrays": digest(packed)}
    stated.pop("digest", None)
    return canonical({**stated, "digest": digest(canonical(stated))})


# --- checking ---------------------------------------------------------------------------------------------------------


class OutOfTimeError(ReplayError):
    """Neither valid nor refused: the time was over first."""


class OpenAlternativeError(ReplayError):
    """An alternative that is not excluded: on the whole box, or on a leaf."""

    def __init__(self, alternative: int, margin: Fraction, where: str = "") -> None:
        self.alternative, self.margin = alternative, margin
        text = f"alternative {alternative} is not excluded{where}"
        super().__init__(f"{text}: the proven margin is {as_float(margin):.3g}")


class OpenLeafError(OpenAlternativeError):
    """A leaf on which an alternative is not excluded."""

    def __init__(self, graph: Graph, leaf: Leaf, alternative: int, margin: Fraction) -> None:
        self.leaf = leaf
        super().__init__(alternative, margin, f" at the leaf {leaf.words(graph)} (part {leaf.part})")


class Deadline:
    """Called in every loop of a replay; refuses when the time is over."""

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
    seconds: float = SECONDS,
    files: Mapping[str, str] | None = None,
    assume: bool = False,
) -> Checked:
    """Read a certificate and replay it for this network; a ReplayError says why it proves nothing.

    A file that cannot be read is an OSError: nothing was refused then.
    """
    path = Path(path)
    checked = check(*read_files(path), graph, statement, seconds=seconds, assume=assume)
    return replace(checked, files={**(files or {}), "certificate": path.name})


def read_files(path: Path) -> tuple[bytes, bytes]:
    """The JSON text, and the arrays beside it."""
    text = _bytes(path, MOST_JSON)
    return text, _bytes(partner(text, path.with_suffix(".safetensors")), MOST_BYTES)


def _bytes(path: Path, most: int) -> bytes:
    """A file's bytes, if there are not too many."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ReplayError(f"{path.name} has over {most} bytes")
    return content


def check(
    text: bytes,
    packed: bytes,
    graph: Graph,
    statement: Property | None = None,
    *,
    seconds: float = SECONDS,
    assume: bool = False,
) -> Checked:
    """Replay a certificate given as the bytes of its files.

    statement   the property that it must be a certificate of; without one, of whatever it states
    seconds     how long the replay may take
    assume      functions (exp, tanh, ...) may be declared more accurate than they were measured: what is proven is then
                proven of such runtimes alone
    """
    deadline = Deadline(seconds)
    arithmetic, cases = stated(text, packed, graph, statement, assume=assume)
    proven = tuple(check_case(graph, case, arithmetic, deadline) for case in cases)
    return Checked(network_digest(graph), proven, arithmetic, excluded=exclusion(graph))


def stated(
    text: bytes, packed: bytes, graph: Graph, statement: Property | None = None, *, assume: bool = False
) -> tuple[Executions, list[CaseProof]]:
    """What it says, and of which executions, if it is about this network and property; nothing is proven yet."""
    data = _read(text)
    if data["arrays"] != digest(packed):
        raise ReplayError("the arrays are not those that the certificate was written with")
    if data["network"] != network_digest(graph):
        raise ReplayError("the network is not the one that the certificate was written for")
    arithmetic = _arithmetic(data["arithmetic"], graph)
    if not assume and (said := optimistic(arithmetic)):
        raise ReplayError(f"{said}; if your runtime is that accurate, say so (`assume`, --assume-functions)")
    arrays = read_arrays(packed)
    trees = data["version"] == VERSION
    cases = [_case(case, arrays, graph, trees) for case in several(data["cases"], "the cases")]
    if statement is not None:
        _compare(cases, statement)
    return arithmetic, cases


def _read(text: bytes) -> dict[str, Any]:
    """The JSON part, if every byte of it is as we write it and its digest is right."""
    data = read_json(text)
    old = data.get("version") if isinstance(data, dict) and data.get("format") == FORMAT else None
    if isinstance(old, int) and old in OLD:
        raise ReplayError(f"version {int(old)} is no longer accepted: {OLD[old]}; certify again")
    entries(data, KEYS, "a certificate")
    known = type(data["version"]) is int and data["version"] in (WITHOUT_TREES, VERSION)
    if data["format"] != FORMAT or not known:
        given = f"{shown(data['format'])} {shown(data['version'])}"
        raise ReplayError(f"format and version must be {FORMAT} {WITHOUT_TREES} or {VERSION}; got {given}")
    if data["digest"] != digest(canonical({k: v for k, v in data.items() if k != "digest"})):
        raise ReplayError("the digest does not fit the certificate")
    return dict(data)


def _arithmetic(data: Any, graph: Graph) -> Executions:
    stated = set(Executions().to_json()) | ({"functions"} & data.keys() if isinstance(data, dict) else set())
    try:
        meant = executions(entries(data, stated, "the arithmetic"))
    except ExecutionError as error:
        raise ReplayError(str(error)) from None
    if meant.of({n.op.name for n in graph.nodes}) != meant:
        raise ReplayError("the arithmetic says something of functions that the network does not compute")
    return meant


def _case(data: Any, arrays: Mapping[str, Array], graph: Graph, with_trees: bool) -> CaseProof:
    entries(data, CASE_KEYS | {"trees"} if with_trees else CASE_KEYS, "a case")
    shape = graph.nodes[graph.input_positions[0]].shape
    low, high = (named(arrays, data[side], np.float32, shape) for side in ("low", "high"))
    if not (low.size and np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise ReplayError("a box must have finite ends, the lower one first")
    trees: list[Any] = data["trees"] if with_trees else []
    if not isinstance(trees, list):
        raise ReplayError(f"the trees of a case must be a list; got {shown(trees)}")
    given = several(data["alternatives"], "the alternatives of a case")
    alternatives = tuple(_alternative(a, arrays, graph, len(trees)) for a in given)
    return CaseProof(low, high, alternatives, tuple(read_tree(tree, arrays, graph) for tree in trees))


def _alternative(
    data: Any, arrays: Mapping[str, Array], graph: Graph, trees: int
) -> tuple[Array, tuple[Fraction, ...], Proof | int]:
    by_tree = isinstance(data, dict) and "tree" in data
    entries(data, BY_TREE if by_tree else ALTERNATIVE_KEYS, "an alternative")
    rows, limits = (several(data[k], f"the {k} of an alternative") for k in ("rows", "limits"))
    weights = [] if by_tree else several(data["weights"], "the weights of an alternative")
    if not len(rows) == len(limits) or (not by_tree and len(weights) != len(rows)):
        raise ReplayError("an alternative needs a limit and a weight per row")
    exact = np.array([_row(row, graph) for row in rows], dtype=object)
    if by_tree:
        if whole(data["tree"], 0, "numbers of trees") >= trees:
            raise ReplayError(f"an alternative has tree {data['tree']} of {trees}")
        return exact, tuple(map(fraction, limits)), data["tree"]
    weights = [whole(w, 0, "weights") for w in weights]
    if not any(weights):
        raise ReplayError("the weights of an alternative are all 0, so nothing excludes it")
    slopes = {at(k, graph): Slopes(*_pair(arrays, names), SCALE) for k, names in by_node(data["slopes"], "slopes")}
    pieces = {at(k, graph): named(arrays, name, np.int32) for k, name in by_node(data["pieces"], "pieces")}
    proof = Proof(tuple(weights), slopes, computed(data["tighten"], graph), pieces)
    return exact, tuple(map(fraction, limits)), proof


def _row(row: Any, graph: Graph) -> list[int]:
    outputs = int(np.prod(graph.nodes[graph.output_positions[0]].shape))
    if len(several(row, "a row")) != outputs:
        raise ReplayError(f"a row needs {outputs} numbers, one per output; got {len(row)}")
    return [whole(v, -(1 << 53), "rows") for v in row]


def _pair(arrays: Mapping[str, Array], names: Any) -> tuple[Array, Array]:
    if not isinstance(names, list) or len(names) != 2:
        raise ReplayError(f"slopes are two arrays, lower and upper; got {shown(names)}")
    return named(arrays, names[0], np.int16), named(arrays, names[1], np.int16)


# --- what is proven ---------------------------------------------------------------------------------------------------


def check_case(graph: Graph, case: CaseProof, arithmetic: Executions, deadline: Callable[[], None]) -> Proven:
    """The proven margin of every alternative; one that is not positive is refused."""
    excluded: dict[int, ExcludedAlternative] = {}
    replays: dict[Any, Replay] = {}
    for number, tree in enumerate(case.trees):
        excluded |= _by_tree(graph, case, number, tree, arithmetic, deadline)
    for k, (rows, limits, proof) in enumerate(case.alternatives):
        deadline()
        if isinstance(proof, int):
            continue
        key = (proof.tighten, tuple(sorted((i, s.lower.tobytes(), s.upper.tobytes()) for i, s in proof.slopes.items())))
        if key not in replays:
            replays[key] = _replay(graph, case, proof, arithmetic, deadline)
        combined = sum((rationals(row) * w for row, w in zip(rows, proof.weights, strict=True)), start=rational(0))
        limit = sum((Fraction(w) * v for w, v in zip(proof.weights, limits, strict=True)), Fraction(0))
        bound = _bound(replays[key], combined, proof)
        margin = Fraction(int(bound.p), int(bound.q)) - limit
        if margin <= 0:
            raise OpenAlternativeError(k, margin)
        excluded[k] = ExcludedAlternative(tuple(map(tuple, rows.tolist())), limits, margin)
    return Proven(case.low, case.high, tuple(excluded[k] for k in range(len(case.alternatives))))


def _by_tree(
    graph: Graph, case: CaseProof, number: int, tree: TreeProof, arithmetic: Executions, deadline: Callable[[], None]
) -> dict[int, ExcludedAlternative]:
    """The alternatives that every leaf of a tree excludes, with the least margin of any leaf."""
    mine = case.by(number)
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
    """What a prover keeps from one call of `proven_leaves` to the next."""
    return Roots(graph, box, _model(arithmetic), deadline)


def _model(arithmetic: Executions) -> Model:
    return Model.of(arithmetic.execution, arithmetic.rounding, arithmetic.functions)


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
    """What every leaf of a tree proves, or only some parts; whatever is wrong with it is a ReplayError."""
    try:
        yield from replayed(graph, _model(arithmetic), box, tree, rows, deadline, only, roots)
    except SpecgradError as error:
        raise error if isinstance(error, ReplayError) else ReplayError(str(error)) from None


def _replay(
    graph: Graph, case: CaseProof, proof: Proof, arithmetic: Executions, deadline: Callable[[], None]
) -> Replay:
    try:
        return Replay(graph, case.low, case.high, proof.slopes, proof.tighten, _model(arithmetic), deadline)
    except SpecgradError as error:
        raise error if isinstance(error, ReplayError) else ReplayError(str(error)) from None


def _bound(replay: Replay, row: Any, proof: Proof) -> Any:
    try:
        return replay.lower(row, vectors=proof.pieces)
    except SpecgradError as error:
        raise error if isinstance(error, ReplayError) else ReplayError(str(error)) from None


def _compare(cases: Sequence[CaseProof], statement: Property) -> None:
    """Every case of the property must be a case of the certificate, on a box that holds its own."""
    if statement.interface is not None:  # whose cells are not those of one input, in order
        raise ReplayError("certificates are about one input and one output; the property names several, or joins cells")
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
    if not case.alternatives:
        raise ReplayError("the property has a case without alternatives, so there is nothing to prove")
    stated = [(a.rows.tolist(), a.limits) for a in case.alternatives]  # compared as numbers: 1.9 is no 1
    proven = [(rows.tolist(), limits) for rows, limits, _ in proof.alternatives]
    for rows, limits in stated:
        if (rows, limits) not in proven:
            raise ReplayError("an alternative of the property is not among the certificate's")
