"""Mutants of certificates with splits, with digests that fit: trees with leaves missing, sides swapped, cuts moved.

As in certificate_mutants: a mutant must be refused, or state what nothing contradicts. The network has one hidden layer
and two inputs, so a linear function of its outputs is least at a corner of the box, or where lines on which hidden
cells have a kink meet each other or the border: every such point is tried, over rationals.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import save

import specgrad as sg
from certificate_mutants import (
    NONE,
    SECOND,
    B,
    Subject,
    Tally,
    V,
    W,
    added,
    contradicted,
    deleted,
    dense,
    dtype,
    junk,
    moved,
    product,
    rename,
    shape,
)
from specgrad.bounds.search.certificates.find_slopes import prove_by_trees
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.base.split_tree import Split, Tree
from specgrad.proof.files.certificate import Checked, check, encode, sealed
from specgrad.proof.files.entries import read_arrays, read_json
from specgrad.properties.property import Alternative, Case, Property

SECONDS = 60.0
KINKS = 0.0, -0.25, 0.5  # of relu; of clamp
P, C = [[1, -0.5], [0.75, 1], [-0.5, 0.25]], [0.25, -0.5, 0.125]
Q, D = [[-0.75, 0.5], [0.25, -1], [0.5, 0.5]], [0, 0.375, -0.25]
Data = dict[str, Any]


# --- subjects ---------------------------------------------------------------------------------------------------------


def clamped() -> tuple[sg.Graph, Any]:
    """linear - clamp - linear on 2 inputs."""
    w, b, v = np.float32(W), np.float32(B), np.float32(V)
    low, high = KINKS[1:]
    graph = sg.trace(lambda x: sg.linear(v, None, sg.clamp(sg.linear(w, b, x), low, high)), (2,))
    kept = lambda z, lift: min(max(z, lift(low)), lift(high))
    return graph, lambda x, lift: product(V, [kept(z, lift) for z in product(W, x, B, lift)], NONE, lift)


def largest() -> tuple[sg.Graph, Any]:
    """linear - max_pool - linear on 2 inputs: windows of two and of three cells, with padding."""
    w, b, v = np.float32(P), np.float32(C), np.float32(V)
    pool = lambda z: sg.max_pool(sg.reshape(z, (1, 3)), (3,), stride=1, padding=1)
    graph = sg.trace(lambda x: sg.linear(v, None, sg.reshape(pool(sg.linear(w, b, x)), (3,))), (2,))
    maxima = lambda z: [max(z[:2]), max(z), max(z[1:])]
    return graph, lambda x, lift: product(V, maxima(product(P, x, C, lift)), NONE, lift)


def uneven() -> tuple[sg.Graph, Any]:
    """linear - adaptive_max_pool - linear on 2 inputs: 2 channels of 3 cells, to 2 cells each."""
    w, b, v = np.float32(P + Q), np.float32(C + D), np.float32(SECOND)
    pool = lambda z: sg.adaptive_max_pool(sg.reshape(z, (2, 3)), (2,))
    graph = sg.trace(lambda x: sg.linear(v, None, sg.reshape(pool(sg.linear(w, b, x)), (4,))), (2,))
    maxima = lambda z: [max(z[i : i + 2]) for i in (0, 1, 3, 4)]
    return graph, lambda x, lift: product(SECOND, maxima(product(P + Q, x, C + D, lift)), NONE, lift)


SUBJECTS = {"c": clamped, "w": largest, "u": uneven}
TAPS = {"w": ((1, 2), (0, 1, 2), (0, 1)), "u": ((0, 1),) * 4}  # of every window


def tree_of(rng: Random, graph: Any, kinds: str) -> Tree:
    """A few cuts: of inputs at numbers of few digits inside (-1, 1), of hidden cells at kinks, of winners."""
    (x,) = graph.input_positions
    pool = next((i for i, n in enumerate(graph.nodes) if n.op.name == "max_pool"), -1)
    (z,) = next(n for n in graph.nodes if n.op.name in ("relu", "clamp", "max_pool")).operands()
    kinks = KINKS[:1] if any(n.op.name == "relu" for n in graph.nodes) else KINKS[1:]
    tree, boxes = Tree(), {0: [(-64, 64), (-64, 64)]}  # in 64ths
    hidden: dict[int, set[int]] = {0: set()}
    for _ in range(rng.randint(2, 5)):
        part = rng.choice(list(boxes))
        box, seen, kind = boxes.pop(part), hidden.pop(part), rng.choice(kinds)
        cell = rng.randrange(2)
        point = rng.randrange(*box[cell])
        taps = TAPS["u" if "u" in kinds else "w"]
        window = rng.randrange(len(taps))
        tap = rng.choice(taps[window])
        cuts = {
            "i": Split(x, cell, point / 64),
            "n": Split(z, cell, rng.choice(kinks)),
            "w": Split(pool, window, 0.0, tap),
        }
        cuts["u"] = cuts["w"]
        below, above = tree.divide(part, cuts[kind])
        boxes[below], boxes[above] = list(box), list(box)
        hidden[below], hidden[above] = {*seen, cell}, {*seen, cell}
        if kind == "i":
            boxes[below][cell], boxes[above][cell] = (box[cell][0], point), (point + 1, box[cell][1])
            if box[cell][0] == point or point + 1 == box[cell][1]:  # too narrow for one more
                break
    return tree


def subject(seed: int, kinds: str) -> Subject:
    """y0 - y1 and y0 are bounded from below on -1..1, barely, by one tree."""
    graph, run = SUBJECTS.get(kinds[-1], dense)()
    rng, limits = Random(seed), [Fraction(-1000)] * 2
    tree = tree_of(rng, graph, kinds.strip("c"))
    for _ in range(2):
        rows = ([[1.0, -1.0]], [[1.0, 0.0]])
        alternatives = tuple(Alternative(np.array(r), (v,)) for r, v in zip(rows, limits, strict=True))
        statement = Property(2, 2, (Case((Fraction(-1),) * 2, (Fraction(1),) * 2, alternatives),))
        ((proof, proven),) = prove_by_trees(graph, statement, ((((0, 1), tree),),), refine=False)
        margins = [a.margin for a in proven.alternatives]
        limits = [
            round(v + m - Fraction(1, 50 if kinds[-1] == "c" else 100), 6) for v, m in zip(limits, margins, strict=True)
        ]
    text, packed = encode(graph, [proof])
    return Subject(graph, run, statement, read_json(text), {name: a.copy() for name, a in read_arrays(packed).items()})


@cache
def subjects() -> list[Subject]:
    """Nobody changes them, and a planted mistake comes after them: their certificates are right."""
    kinds = ["i", "n", "in", "i", "n", "in", "nc", "inc", "w", "iw", "u", "iu"]
    return [subject(seed, of) for seed, of in enumerate(kinds)]


# --- what is true -----------------------------------------------------------------------------------------------------


def corners(low: list[Fraction], high: list[Fraction]) -> list[list[Fraction]]:
    """Where lines meet: a.x = c of hidden cells and of the border, inside the box."""
    cells = zip(W, B, strict=True)
    lines = [([Fraction(v) for v in row], Fraction(kink) - Fraction(b)) for row, b in cells for kink in KINKS]
    for rows, biases in ((P, C), (Q, D)):  # where two cells of a channel tie
        each = [[Fraction(v) for v in (*row, b)] for row, b in zip(rows, biases, strict=True)]
        for (a, b, c), (d, e, f) in itertools.combinations(each, 2):
            lines.append(([a - d, b - e], f - c))
    lines += [([Fraction(int(k == j)) for k in range(2)], end[j]) for end in (low, high) for j in range(2)]
    meets = []
    for ((a, b), c), ((d, e), f) in itertools.combinations(lines, 2):
        det = a * e - b * d
        if det:
            x = [(c * e - b * f) / det, (a * f - c * d) / det]
            if all(p <= v <= q for p, v, q in zip(low, x, high, strict=True)):
                meets.append(x)
    return meets


def is_false(checked: Checked, run: Any, rng: Random) -> bool:
    """Whether something contradicts what was accepted."""
    for case in checked.cases:
        low, high = ([Fraction(float(v)) for v in np.ravel(end)] for end in (case.low, case.high))
        for x, a in itertools.product(corners(low, high), case.alternatives):
            y = run(x, Fraction)
            sums = [sum(c * v for c, v in zip(row, y, strict=True)) for row in a.rows]
            if all(total <= limit for total, limit in zip(sums, a.limits, strict=True)):
                return True
    return contradicted(checked, run, rng)


# --- changes ----------------------------------------------------------------------------------------------------------


def tree_entry(rng: Random, data: Data) -> Data:
    return rng.choice(rng.choice(data["cases"])["trees"])


def array(rng: Random, data: Data, arrays: Data, key: str) -> Any:
    """A copy of a tree's array, in its place."""
    name = tree_entry(rng, data)[key]
    arrays[name] = arrays[name].copy()
    return arrays[name]


def leaf_missing(rng: Random, data: Data, arrays: Data) -> None:
    """One or more leaves are not there, nor their weights; half of the time its cut stays, half of the time not."""
    entry = tree_entry(rng, data)
    nodes, weights = arrays[entry["nodes"]], arrays[entry["weights"]]
    at = [k for k, node in enumerate(nodes.tolist()) if node < 0]
    gone = rng.sample(range(len(at)), rng.randint(1, len(at) - 1))
    if rng.random() < 0.5:
        gone = list(range(min(gone), len(at)))  # a file that ends too early
    arrays[entry["nodes"]] = np.delete(nodes, [at[k] for k in gone])
    arrays[entry["weights"]] = np.delete(weights, gone, axis=0)
    _shorter(rng, entry, arrays, len(at), gone)


def _shorter(rng: Random, entry: Data, arrays: Data, leaves: int, gone: list[int]) -> None:
    """Multipliers of leaves that are gone, as if every leaf had the same number of them."""
    name = entry["multipliers"]
    if name is not None and arrays[name].size % leaves == 0 and rng.random() < 0.8:
        arrays[name] = np.delete(arrays[name].reshape(leaves, -1), gone, axis=0).ravel()


def pruned(rng: Random, data: Data, arrays: Data) -> None:
    """A part with its subtree becomes a leaf: it covers as much, and proves less."""
    entry = tree_entry(rng, data)
    nodes = arrays[entry["nodes"]].tolist()
    start = rng.choice([k for k, node in enumerate(nodes) if node >= 0])
    end, open_ = start, 1
    while open_:
        open_ += 1 if nodes[end] >= 0 else -1
        end += 1
    first_cut = sum(node >= 0 for node in nodes[:start])
    first_leaf = sum(node < 0 for node in nodes[:start])
    cuts = sum(node >= 0 for node in nodes[start:end])
    arrays[entry["nodes"]] = np.int32([*nodes[:start], -1, *nodes[end:]])
    for key in ("cells", "points"):
        arrays[entry[key]] = np.delete(arrays[entry[key]], range(first_cut, first_cut + cuts))
    gone = range(first_leaf + 1, first_leaf + cuts + 1)
    arrays[entry["weights"]] = np.delete(arrays[entry["weights"]], gone, axis=0)


def swapped(rng: Random, data: Data, arrays: Data) -> None:
    """Two parts, cuts, points or leaves take each other's place."""
    given = array(rng, data, arrays, rng.choice(["nodes", "cells", "points", "weights", "multipliers"]))
    a, b = rng.randrange(len(given)), rng.randrange(len(given))
    given[[a, b]] = given[[b, a]]


def point(rng: Random, data: Data, arrays: Data) -> None:
    given = array(rng, data, arrays, "points")
    k = rng.randrange(len(given))
    near = [np.nextafter(given[k], np.float32(s)) for s in (-9, 9)]
    given[k] = rng.choice([*near, -1, 1, 0, -given[k], 2, -2, np.nan, np.inf, 1e-45, np.float32(rng.uniform(-1, 1))])


def place_of_cut(rng: Random, data: Data, arrays: Data) -> None:
    given = array(rng, data, arrays, rng.choice(["nodes", "cells"]))
    given[rng.randrange(len(given))] = rng.choice([-2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 99, 2**31 - 1])


def winner(rng: Random, data: Data, arrays: Data) -> None:
    """Another tap, a cut that is none of a winner, or no taps at all."""
    entry = tree_entry(rng, data)
    given = arrays[entry["taps"]] = arrays[entry["taps"]].copy()
    if rng.random() < 0.1:
        del entry["taps"]
    elif rng.random() < 0.8:
        given[rng.randrange(len(given))] = rng.choice([-2, -1, 0, 1, 2, 3, 9])
    else:
        arrays[entry["taps"]] = given[: rng.randrange(len(given))]


def weight(rng: Random, data: Data, arrays: Data) -> None:
    given = array(rng, data, arrays, "weights")
    given.reshape(-1)[rng.randrange(given.size)] = rng.choice([0, 1, 2, 7, 2**30, -1, -7])


def multiplier(rng: Random, data: Data, arrays: Data) -> None:
    given = array(rng, data, arrays, rng.choice(["multipliers", "pulls"]))
    usual = [0, 1, 2**10, 2**18, 2**20, 2**21, 2**25, 2**31 - 1]
    value = rng.choice([*usual, *(-v for v in usual)])
    if rng.random() < 0.5:
        given[:] = value
    else:
        given[rng.randrange(len(given))] = value


def slope(rng: Random, data: Data, arrays: Data) -> None:
    name = rng.choice(list(tree_entry(rng, data)["slopes"].values()))
    given = arrays[name] = arrays[name].copy()
    value = rng.choice([0, 1, 512, 1024, 1025, 2048, -1, 32767])
    if rng.random() < 0.5:
        given[...] = value
    else:
        given.reshape(-1)[rng.randrange(given.size)] = value


def changed_part(rng: Random, data: Data, arrays: Data) -> None:
    given = array(rng, data, arrays, "changed")
    given[rng.randrange(len(given))] = rng.choice([-1, 0, 1, 2, 5, 99])


def bounded_anew(rng: Random, data: Data, arrays: Data) -> None:
    """Parts whose own boxes roundings are counted on: any of them, in order or not."""
    entry = tree_entry(rng, data)
    count = len(arrays[entry["nodes"]])
    parts = sorted(rng.sample(range(count), rng.randint(1, min(4, count))))
    if rng.random() < 0.1:
        parts.append(rng.choice([-1, 0, count - 1, count]))
    entry["anew"], arrays["anew"] = "anew", np.int32(parts)


def flags(rng: Random, data: Data, arrays: Data) -> None:
    entry = tree_entry(rng, data)
    if rng.random() < 0.5:
        entry["narrow"] = 1 - entry["narrow"]
    else:
        entry["tighten"] = sorted({rng.randrange(-1, 8) for _ in range(rng.randint(0, 3))})


def limit(rng: Random, data: Data, arrays: Data) -> None:
    chosen = rng.choice(rng.choice(data["cases"])["alternatives"])
    by = rng.choice([Fraction(1, 50), Fraction(1, 10), Fraction(1, 2), 1, 4, -1])
    chosen["limits"] = [str(Fraction(v) + by) for v in chosen["limits"]]


def box(rng: Random, data: Data, arrays: Data) -> None:
    name = rng.choice(["0.low", "0.high"])
    given = arrays[name] = arrays[name].copy()
    given[rng.randrange(2)] += np.float32(rng.choice([-0.25, 0.25, -0.01, 0.01]))


def numbers(rng: Random, data: Data, arrays: Data) -> None:
    """Alternatives or trees fewer, doubled, or by another number."""
    case = rng.choice(data["cases"])
    kind = rng.randrange(4)
    if kind == 0:
        rng.choice(case["alternatives"])["tree"] = rng.choice([-1, 0, 1, 2, "0", None, True])
    elif kind == 1:
        case["trees"].append(copy.deepcopy(case["trees"][0]))
    elif kind == 2:
        case["alternatives"].pop()
    else:
        case["trees"].clear()


Change = Callable[[Random, Data, Data], None]
OFTEN: list[Change] = [leaf_missing, point, place_of_cut, swapped, multiplier, winner]
PROVE: list[Change] = [*OFTEN * 3, pruned, weight, slope, changed_part, bounded_anew, flags, limit, box]  # too much
BREAK: list[Change] = [dtype, shape, rename, junk, junk, moved, deleted, added, numbers]


def mutant(rng: Random, chosen: Subject) -> tuple[bytes, bytes]:
    data, arrays = copy.deepcopy(chosen.data), dict(chosen.arrays)
    proving = rng.random() < 0.75
    kinds = PROVE if proving else [*PROVE, *BREAK, *BREAK]
    for change in rng.choices(kinds, k=rng.choice([1, 1, 2, 3])):
        with suppress(TypeError, AttributeError, LookupError, ValueError, OverflowError):
            change(rng, data, arrays)
    if proving and rng.random() < 0.8:
        greedy(chosen, data, arrays)
    packed = save({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    return sealed(data, packed), packed


def greedy(chosen: Subject, data: Data, arrays: Data) -> None:
    """State as much as the checker grants: margins are per unit of weight."""
    packed, start = save({name: np.ascontiguousarray(a) for name, a in arrays.items()}), Fraction(-1000)
    with suppress(ReplayError, TypeError, KeyError, AttributeError, ValueError):
        for case in data["cases"]:
            for each in case["alternatives"]:
                each["limits"] = [str(start)] * len(each["limits"])
        margins = check(sealed(data, packed), packed, chosen.graph, seconds=SECONDS).margins
        for case, margin in zip(data["cases"], margins, strict=True):
            for each, m in zip(case["alternatives"], margin, strict=True):
                each["limits"] = [str(start + m - Fraction(1, 10**9))] * len(each["limits"])


def hunt(known: list[Subject], seeds: range, until: str = "") -> Tally:
    """Check a mutant per seed; until one ends in this way, if a way is given."""
    tally = Tally(Counter(), [])
    for seed in seeds:
        rng = Random(seed)
        chosen = known[seed % len(known)]
        end = ending(*mutant(rng, chosen), chosen, rng)
        tally.ends[end] += 1
        if end not in ("refused", "valid"):
            tally.wrong.append((end, seed))
            if until and until in end:
                break
    return tally


def ending(text: bytes, packed: bytes, chosen: Subject, rng: Random) -> str:
    statement = chosen.statement if rng.random() < 0.2 else None
    try:
        checked = check(text, packed, chosen.graph, statement, seconds=SECONDS)
    except ReplayError as error:
        return "refused" if str(error).isprintable() and len(str(error)) < 400 else f"refused in odd words: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return "false" if is_false(checked, chosen.run, rng) else "valid"
