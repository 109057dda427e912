"""Mutants of certificates, with digests that fit: what the checker accepts must be true of a tiny network.

A subject is a network twice: as a graph, and as plain loops over any numbers, which know nothing of the library. A
mutant is a valid certificate with one to four changes. It must be refused by a ReplayError, or state what no sampled
input contradicts: over rationals, and in float32 node by node.
"""

from __future__ import annotations

import copy
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import save

import specgrad as sg
from specgrad.bounds.search.certificates.find_slopes import certificate
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.files.certificate import Checked, check, sealed
from specgrad.proof.files.entries import read_arrays
from specgrad.properties.property import Alternative, Case, Property

MOST_SECONDS = 10.0
Number = Any
Values = list[Number]


# --- subjects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Subject:
    """A network as a graph and as loops, and a certificate of a property that just holds."""

    graph: sg.Graph
    run: Callable[[Values, Callable[[Any], Number]], Values]
    statement: Property
    data: dict[str, Any]
    arrays: dict[str, Any]


def product(matrix: Any, x: Values, bias: Any, lift: Callable[[Any], Number]) -> Values:
    """matrix @ x + bias, term by term."""
    found = []
    for row, b in zip(matrix, bias, strict=True):
        total = lift(0)
        for c, v in zip(row, x, strict=True):
            total = total + lift(c) * v
        found.append(total + lift(b))
    return found


def positive(x: Values, lift: Callable[[Any], Number]) -> Values:
    return [v if v > 0 else lift(0) for v in x]


W, B = [[1, -0.5], [0.75, 1], [1, -0.5]], [0.25, -0.5, 8]  # the third is the first, and on everywhere
V, NONE = [[1, -1, 0.5], [-0.5, 0.75, 2.5]], [0, 0]
FIRST = [[1, -0.75], [-0.5, 1.25]]  # two channels, two taps
SECOND = [[0.5, 1, -0.25, 0.75], [-1, 0.5, 0.25, 1]]
SHIFT = [[-0.5, 0.25, 0], [0.5, -1, 0.125]]


def dense() -> tuple[sg.Graph, Any]:
    """linear - relu - linear on 2 inputs."""
    w, b, v = np.float32(W), np.float32(B), np.float32(V)
    graph = sg.trace(lambda x: sg.linear(v, None, sg.relu(sg.linear(w, b, x))), (2,))
    return graph, lambda x, lift: product(V, positive(product(W, x, B, lift), lift), NONE, lift)


def pooled() -> tuple[sg.Graph, Any]:
    """conv - relu - max_pool - linear on 4 inputs: windows of two, then pools of two that overlap."""
    w, v = np.float32(FIRST)[:, None], np.float32(SECOND)
    features = lambda x: sg.max_pool(sg.relu(sg.conv(w, None, x)), (2,), stride=1)
    graph = sg.trace(lambda x: sg.linear(v, None, sg.flatten(features(x), 1)), (1, 1, 4))

    def run(x: Values, lift: Callable[[Any], Number]) -> Values:
        cells = []
        for row in FIRST:
            z = positive([product([row], x[i : i + 2], [0], lift)[0] for i in range(3)], lift)
            cells += [max(z[0], z[1]), max(z[1], z[2])]
        return product(SECOND, cells, NONE, lift)

    return graph, run


def deep() -> tuple[sg.Graph, Any]:
    """conv - relu - conv - relu on 3 inputs: pieces and tightened ranges."""
    w, v = np.float32(FIRST)[:, None], np.float32(SECOND).reshape(2, 2, 2)
    graph = sg.trace(lambda x: sg.relu(sg.conv(v, None, sg.relu(sg.conv(w, None, x)))), (1, 1, 3))

    def run(x: Values, lift: Callable[[Any], Number]) -> Values:
        cells = []
        for row in FIRST:
            cells += positive([product([row], x[i : i + 2], [0], lift)[0] for i in range(2)], lift)
        return positive(product(SECOND, cells, NONE, lift), lift)

    return graph, run


def uneven() -> tuple[sg.Graph, Any]:
    """relu - adaptive_max_pool - linear on 2 channels of 3 cells, to 2 cells: read in another order, shapes fit."""
    shift, v = np.float32(SHIFT), np.float32(SECOND)
    features = lambda x: sg.adaptive_max_pool(sg.relu(sg.sub(x, shift)), (2,))
    graph = sg.trace(lambda x: sg.linear(v, None, sg.reshape(features(x), (4,))), (2, 3))

    def run(x: Values, lift: Callable[[Any], Number]) -> Values:
        z = positive([a - lift(b) for a, b in zip(x, itertools.chain(*SHIFT), strict=True)], lift)
        return product(SECOND, [max(z[i : i + 2]) for i in (0, 1, 3, 4)], NONE, lift)

    return graph, run


def subject(made: tuple[sg.Graph, Any], seed: int) -> Subject:
    """On a box around a random point y0 - y1 is bounded from below, barely."""
    graph, run = made
    rng = Random(seed)
    count = int(np.prod(graph.nodes[graph.input_positions[0]].shape))
    middle = [Fraction(rng.randint(-4, 4), 8) for _ in range(count)]
    low, high = (tuple(v + d * Fraction(rng.randint(1, 8), 8) for v in middle) for d in (-1, 1))
    limits, rows = [Fraction(-1000)] * 2, ([[1.0, -1.0]], [[1.0, 0.0]])
    for _ in range(4):  # each time a little below what is proven
        alternatives = tuple(Alternative(np.array(r), (v,)) for r, v in zip(rows, limits, strict=True))
        statement = Property(count, 2, (Case(low, high, alternatives),))
        text, packed = certificate(graph, statement)
        margins = check(text, packed, graph, statement).margins[0]
        limits = [round(v + m * Fraction(99, 100), 6) for v, m in zip(limits, margins, strict=True)]
    data = json.loads(text)
    arrays = {name: a.copy() for name, a in read_arrays(packed).items()}
    return Subject(graph, run, statement, data, arrays)


@cache
def subjects() -> list[Subject]:
    """Nobody changes them, and a planted mistake comes after them: their certificates are right."""
    found = [subject(make(), seed) for seed, make in enumerate((dense, pooled, deep, dense, pooled, deep))]
    for each in found[2::3]:  # vectors for the first relu, whose convolution has two cells and two positions
        relu = next(i for i, n in enumerate(each.graph.nodes) if n.op.name == "relu")
        each.arrays["vectors"] = np.random.default_rng(0).integers(-(2**20), 2**20, (2, 2)).astype(np.int32)
        each.data["cases"][0]["alternatives"][1] |= {"pieces": {str(relu): "vectors"}, "limits": ["-100"]}
    return [*found, subject(uneven(), len(found))]


# --- what is true -----------------------------------------------------------------------------------------------------


def points(low: Values, high: Values, rng: Random) -> Any:
    """Corners, the middle and random float32 numbers of a box."""
    for corner in itertools.islice(itertools.product(*zip(low, high, strict=True)), 16):
        yield list(corner)
    for share in (0.5, *(rng.random() for _ in range(6))):
        inner = [
            np.float32(a + (b - a) * (share if share == 0.5 else rng.random())) for a, b in zip(low, high, strict=True)
        ]
        yield [float(min(max(v, np.float32(a)), np.float32(b))) for v, a, b in zip(inner, low, high, strict=True)]


def contradicted(found: Checked, run: Any, rng: Random) -> bool:
    """Whether a sampled input has outputs that the certificate says never happen."""
    for case in found.cases:
        low, high = (np.ravel(end).astype(float).tolist() for end in (case.low, case.high))
        for x in points(low, high, rng):
            outputs = [run([Fraction(v) for v in x], Fraction)]
            with np.errstate(all="ignore"):
                rounded = run([np.float32(v) for v in x], np.float32)
            if np.isfinite(rounded).all():
                outputs.append([Fraction(float(v)) for v in rounded])
            for y, a in itertools.product(outputs, case.alternatives):
                sums = [sum(c * v for c, v in zip(row, y, strict=True)) for row in a.rows]
                if all(total <= limit for total, limit in zip(sums, a.limits, strict=True)):
                    return True
    return False


# --- changes ----------------------------------------------------------------------------------------------------------

Change = Callable[[Random, dict[str, Any], dict[str, Any]], None]
NUMBERS = [None, True, 0, -1, 7, 2**53, 2**63, 10**30, -(10**17), 0.5, float("nan")]
WORDS = ["", "0", "00", "-0", "+1", " 1", "0.low", "1e999999999", "1/0", "9" * 5000, "9" * 3999, "1/" + "7" * 3999,
         "nan", "inf", "0x1", "1_0", "\u0661", "\uff11", "\x1b[2J", "\ud800"]  # fmt: skip
NESTED = [[], {}, [[]], [[[[]]]], [[1, -1]], ["0.low"], {"a": 1}, {"5": []}, [1] * 5000]
JUNK: list[Any] = [*NUMBERS, *WORDS, *NESTED]


def alternative(rng: Random, data: dict[str, Any]) -> dict[str, Any]:
    return rng.choice(rng.choice(data["cases"])["alternatives"])


def limit(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    """A statement that is stronger or weaker by a little or by much."""
    chosen = alternative(rng, data)
    k = rng.randrange(len(chosen["limits"]))
    by = rng.choice([Fraction(1, 10), Fraction(1, 2), 1, 2, 4, 8, 1000, Fraction(1, 10**9), -1, -100])
    chosen["limits"][k] = str(Fraction(chosen["limits"][k]) + by)


def weight(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    chosen = alternative(rng, data)
    chosen["weights"][rng.randrange(len(chosen["weights"]))] = rng.choice(
        [0, 1, 2, 5, -1, -7, 2**53, 2**53 + 1, 10**17]
    )


def row(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    chosen = rng.choice(alternative(rng, data)["rows"])
    chosen[rng.randrange(len(chosen))] = rng.choice([0, 1, -1, 2, -3, 2**53, -(2**53), 2**53 + 1])


def another_row(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    chosen = alternative(rng, data)
    chosen["rows"].append([rng.randint(-2, 2) for _ in chosen["rows"][0]])
    chosen["limits"].append(str(Fraction(rng.randint(-9, 9), rng.randint(1, 5))))
    chosen["weights"].append(rng.randint(0, 3))


def slope(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Some slopes anywhere: 1024 is 1."""
    name = rng.choice([n for n, a in arrays.items() if a.dtype == np.int16] or [None])
    if name is not None:
        array = arrays[name] = arrays[name].copy()
        usual = [0, 0, 1, 256, 512, 1023, 1024, 1024, 1025, 1280, 1365, 1536, 2048]
        value = rng.choice(usual if rng.random() < 0.8 else [-1, 8000, 32767, -32768])
        if rng.random() < 0.5:
            array[...] = value
        else:
            array.reshape(-1)[rng.randrange(array.size)] = value


def vector(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    for name in [n for n, a in arrays.items() if a.dtype == np.int32]:
        array = arrays[name] = arrays[name].copy()
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice([0, 1, -1, 2**20, -(2**21), 2**31 - 1, -(2**31)])


def swap(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Two arrays, or two nodes, take each other's place."""
    if rng.random() < 0.5:
        a, b = rng.choice(list(arrays)), rng.choice(list(arrays))
        arrays[a], arrays[b] = arrays[b], arrays[a]
        return
    slopes = alternative(rng, data)["slopes"]
    if slopes:
        a, b = rng.choice(list(slopes)), rng.choice([*slopes, "0", "1", "6", "99"])
        slopes[a], slopes[b] = slopes.get(b, slopes[a]), slopes[a]


def box(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Wider, narrower, elsewhere, empty or no box at all."""
    name = rng.choice(["0.low", "0.high"])
    if name in arrays and arrays[name].dtype == np.float32:
        array = arrays[name] = arrays[name].copy()
        k = rng.randrange(array.size)
        odd = [np.nan, np.inf, -np.inf, 0, -0.0, 1e-45, 3e38, -3e38, 100, -100]
        by = rng.choice([0.01, 0.125, 1]) * (1 if name == "0.high" else -1) * rng.choice([1, 1, -0.5])
        array.reshape(-1)[k] = rng.choice(odd) if rng.random() < 0.2 else array.reshape(-1)[k] + np.float32(by)


def dtype(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    name = rng.choice(list(arrays))
    kind = rng.choice([np.int16, np.int32, np.float32, np.float64, np.uint8, np.int64, np.float16])
    with np.errstate(all="ignore"):
        arrays[name] = arrays[name].astype(kind)


def shape(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    name = rng.choice(list(arrays))
    array = arrays[name]
    arrays[name] = rng.choice(
        [array.reshape(-1), array[None], array[..., None], array.T.copy(), array[..., :-1].copy(), array[:0].copy(),
         np.concatenate([array, array])]
    ) if array.ndim else array  # fmt: skip


def rename(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    a, b = rng.choice(list(arrays)), rng.choice([*arrays, "", "x", "__metadata__", "\u00e9", "0.low "])
    arrays[b] = arrays.pop(a)


def tighten(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    given = [rng.choice([-1, 0, 1, 2, 3, 4, 5, 6, 7, 99, 10**9]) for _ in range(rng.randint(0, 4))]
    alternative(rng, data)["tighten"] = sorted(set(given)) if rng.random() < 0.7 else given


def pieces(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    given = {str(rng.randrange(9)): rng.choice([*arrays, "vectors"]) for _ in range(rng.randint(0, 2))}
    alternative(rng, data)["pieces"] = given


def arithmetic(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    key = rng.choice(list(data["arithmetic"]))
    values = [None, True, False, 1, "float32", "float16", "bfloat16", "node", "fused", "nearest", "any", "up", 4]
    data["arithmetic"][key] = rng.choice(values)


def copies(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Cases and alternatives fewer or doubled."""
    place = rng.choice([data["cases"], rng.choice(data["cases"])["alternatives"]])
    if rng.random() < 0.5:
        place.append(copy.deepcopy(rng.choice(place)))
    else:
        place.pop(rng.randrange(len(place)))


def places(data: Any) -> list[tuple[Any, Any, tuple[str, ...]]]:
    """Every container of the data with each of its keys, and the way there without numbers."""
    found, todo = [], [(data, ())]
    while todo:
        here, way = todo.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()
        for k in keys:
            further = (*way, k if isinstance(k, str) and not k.isdigit() else "")
            found.append((here, k, further))
            todo.append((here[k], further))
    return found


def place(rng: Random, data: Any) -> tuple[Any, Any]:
    """Any place, each kind of place as often as another."""
    found = places(data)
    way = rng.choice(sorted({w for _, _, w in found}))
    return rng.choice([(here, k) for here, k, w in found if w == way])


def junk(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    here, key = place(rng, data)
    here[key] = copy.deepcopy(rng.choice(JUNK))


def moved(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    """One part of the data stands where another stood."""
    (here, key), (there, other) = place(rng, data), place(rng, data)
    here[key] = copy.deepcopy(there[other])


def deleted(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    here, key = place(rng, data)
    del here[key]


def added(rng: Random, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    here, key = place(rng, data)
    if isinstance(here, dict):
        here[rng.choice(["", "x", "0", "05", "1", "note", "\u0661", "9" * 5000, f"{key} "])] = copy.deepcopy(here[key])
    else:
        here.insert(rng.randrange(len(here) + 1), copy.deepcopy(rng.choice([here[key], rng.choice(JUNK)])))


PROVE = [*[slope] * 8, limit, row, another_row, weight, box, vector, tighten, swap]  # these try to prove too much
BREAK = [dtype, shape, rename, arithmetic, copies, junk, junk, junk, junk, moved, deleted, added, pieces]


# --- mutants ----------------------------------------------------------------------------------------------------------


def mutant(rng: Random, subject: Subject) -> tuple[bytes, bytes]:
    """The bytes of both files, with digests that fit (nearly always)."""
    data, arrays = copy.deepcopy(subject.data), dict(subject.arrays)
    proving = rng.random() < 0.6
    kinds = PROVE if proving else [*PROVE, *BREAK, *BREAK]
    changes: list[Change] = rng.choices(kinds, k=rng.choice([1, 2, 3, 4, 5] if proving else [1, 1, 2, 3]))
    if proving and rng.random() < 0.7:
        data["cases"][0]["alternatives"].pop(rng.randrange(2))
    for change in changes:
        with suppress(TypeError, AttributeError, LookupError, ValueError, ZeroDivisionError):
            change(rng, data, arrays)  # unless an earlier one left nothing to change
    if proving and rng.random() < 0.8:
        greedy(subject, data, arrays)
    packed = save({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    if rng.random() < 0.05:
        packed = bent(rng, packed)
    text = sealed(data, packed)
    return (respelled(rng, text) if rng.random() < 0.05 else text), packed


def greedy(subject: Subject, data: dict[str, Any], arrays: dict[str, Any]) -> None:
    """State as much as the checker grants: the limits that its own margins reach, less a little."""
    negative = any(isinstance(w, int) and w < 0 for c in data["cases"] for a in c["alternatives"] for w in a["weights"])
    start = 10**6 if negative else -(10**6)
    packed = save({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    try:
        for case in data["cases"]:
            for each in case["alternatives"]:
                each["limits"] = [str(start)] * len(each["limits"])
        margins = check(sealed(data, packed), packed, subject.graph).margins
        for case, margin in zip(data["cases"], margins, strict=True):
            for each, m in zip(case["alternatives"], margin, strict=True):
                reached = start + (m - Fraction(1, 10**9)) / sum(each["weights"])
                each["limits"] = [str(reached)] * len(each["limits"])
    except (ReplayError, TypeError, KeyError, AttributeError, ValueError, ZeroDivisionError):
        pass


def bent(rng: Random, packed: bytes) -> bytes:
    """Arrays with a byte changed, cut off or added; mostly in the header."""
    size = int.from_bytes(packed[:8], "little") + 8
    at = rng.randrange(size if rng.random() < 0.8 else len(packed))
    kind = rng.randrange(4)
    if kind == 0:
        return packed[:at]
    if kind == 1:
        return packed + bytes(rng.randrange(1, 9))
    return packed[:at] + bytes([packed[at] ^ 1 << rng.randrange(8)]) + packed[at + (kind == 2) :]


def respelled(rng: Random, text: bytes) -> bytes:
    """The JSON with keys doubled, spaces, depth, or bytes that are none of ours."""
    at = rng.choice([i for i, c in enumerate(text) if c in b",{["]) + 1
    more = rng.choice([b" ", b'"version":2,', b'"cases":[],', b"[" * 5000, b"[" * 300 + b"]" * 300 + b",",
                       b"\x00", b"\xff", "\u0661".encode(), b"1" * 6000 + b",", b"NaN,", b"1e9999,",
                       b"-", b"{" * 9])  # fmt: skip
    return text[:at] + more + text[at:]


@dataclass
class Tally:
    """How mutants ended; `wrong` holds the seeds of those that must not be."""

    ends: Counter[str]
    wrong: list[tuple[str, int]]
    slowest: float = 0.0


def hunt(known: list[Subject], seeds: range, until: str = "") -> Tally:
    """Check a mutant per seed; until one ends in this way, if a way is given."""
    tally = Tally(Counter(), [])
    for seed in seeds:
        rng = Random(seed)
        chosen = known[seed % len(known)]
        text, packed = mutant(rng, chosen)
        start = time.process_time()
        end = ending(text, packed, chosen, rng)
        tally.slowest = max(tally.slowest, time.process_time() - start)
        tally.ends[end] += 1
        if end not in ("refused", "valid"):
            tally.wrong.append((end, seed))
            if until and until in end:
                break
    return tally


def ending(text: bytes, packed: bytes, subject: Subject, rng: Random) -> str:
    statement = subject.statement if rng.random() < 0.3 else None
    try:
        found = check(text, packed, subject.graph, statement, seconds=MOST_SECONDS)
    except ReplayError as error:
        return "refused" if str(error).isprintable() and len(str(error)) < 400 else "refused in odd words"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return "false" if contradicted(found, subject.run, rng) else "valid"
