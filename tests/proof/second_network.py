"""Saved graphs and arrays as the second checker of certificates reads them: no line of ours. See second_checker.py."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

ZERO, ONE = Fraction(0), Fraction(1)
TINY, CHOICE = Fraction(1, 2**126), Fraction(1, 2**60)  # lost to underflow; by a choice
LARGEST = (2 - Fraction(1, 2**23)) * 2**127
CURVES = ("exp", "tanh", "sigmoid", "hardswish", "leaky_relu", "abs", "clamp", "relu6")
LAYOUT = ("reshape", "permute", "slice", "broadcast", "pad", "concat", "neg")


class RefusedError(Exception):
    """Why a certificate proves nothing."""


def require(condition: bool, why: str) -> None:
    if not condition:
        raise RefusedError(why)


def down(x: Fraction, places: int = 80) -> Fraction:
    return Fraction(math.floor(x * 2**places), 2**places)


def up(x: Fraction, places: int = 80) -> Fraction:
    return -down(-x, places)


# --- files ------------------------------------------------------------------------------------------------------------


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(len(p).to_bytes(8, "little") + p for p in parts)).hexdigest()


def canonical(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")


def read_arrays(packed: bytes, most: int = 1 << 28) -> dict[str, np.ndarray]:
    """Arrays of a safetensors file, which fill it without gap or overlap."""
    require(8 <= len(packed) <= most, "the arrays' file is too long or too short")
    size = int.from_bytes(packed[:8], "little")
    require(8 + size <= len(packed), "the header of the arrays ends behind the file")
    header, body = json.loads(packed[8 : 8 + size]), packed[8 + size :]
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "I16": "<i2", "I32": "<i4", "F64": "<f8", "I64": "<i8"}
    arrays, at = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = entry["data_offsets"]
        require(
            entry["dtype"] in types and start == at and end > start, f"array {name} leaves a gap, overlaps, or is empty"
        )
        dtype, shape = np.dtype(types[entry["dtype"]]), tuple(entry["shape"])
        require(len(shape) <= 16 and math.prod(shape) * dtype.itemsize == end - start, f"array {name} has another size")
        arrays[name], at = np.frombuffer(body[start:end], dtype).reshape(shape), end
    require(at == len(body), "bytes are left over behind the arrays")
    return arrays


def entries(data: Any, keys: str, what: str) -> None:
    require(isinstance(data, dict) and set(data) == set(keys.split()), f"{what} must have the entries {keys}")


def fraction(text: Any) -> Fraction:
    require(isinstance(text, str) and len(text) < 8002, "a limit must be a fraction as text")
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise RefusedError("a limit must be a fraction as text") from None
    require(str(value) == text, "a fraction is not in lowest terms")
    return value


def _meet(a: Any, b: Any) -> bool:
    """Whether two slices may have a cell in common; None is all."""
    apart = a is not None and b is not None and any(p[1] <= q[0] or q[1] <= p[0] for p, q in zip(a, b, strict=True))
    return not apart


# --- the network ------------------------------------------------------------------------------------------------------


@dataclass
class Node:
    """kind: input, constant, linear, relu, max, curve, smooth. Sums: (argument, cell, factor, widest) per cell."""

    kind: str
    op: str
    shape: tuple[int, ...]
    sums: list[list[tuple[int, int, Fraction, Fraction]]] = field(default_factory=list)
    constants: list[Fraction] = field(default_factory=list)
    taps: list[list[tuple[int, int]]] = field(default_factory=list)  # of max: (number of the tap, cell read)
    values: Any = None
    argument: int = -1
    params: Any = field(default_factory=dict)
    plane: tuple[int, ...] = ()  # of smooth: the axes that windows run over, in the argument
    all_taps: int = 0  # padded ones too
    pads: bool = False
    own: int = 0  # roundings of a linear node
    alone: int = 0  # of these, of its constants by themselves: of a reciprocal and a divisor
    spread: int = 1  # the most of its cells that read one cell
    copies: int = 1  # how often a concatenation has the same argument
    reads: tuple[int, ...] = ()  # arguments of a linear node that are no constants
    adds_constants: bool = False  # one that is a term: of add, sub, concat, a bias
    patches: list[tuple[list[int | None], list[list[Fraction]], list[int]]] = field(default_factory=list)
    """of conv: per position the cells that it reads (None: padding), weights per channel, its own cells per channel"""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def stored(self) -> bool:
        return self.op in ("conv", "contract")


def windows(params: Any, shape: tuple[int, ...], inner: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int, Any]]:
    """(output position, number of the tap, input position or None where it is padding), over the last axes."""
    axes = [axis_reads(a) for a in params["window"]["window"]]
    require(tuple(a["size"] for a in params["window"]["window"]) == inner, "a window over other sizes")
    require(tuple(map(len, axes)) == shape[len(shape) - len(inner) :], "a window with other outputs")
    for out in itertools.product(*(range(len(a)) for a in axes)):
        each = [a[o] for a, o in zip(axes, out, strict=True)]
        for t, at in enumerate(itertools.product(*each)):
            inside = all(i is not None and 0 <= i < n for i, n in zip(at, inner, strict=True))
            yield out, t, at if inside else None


def axis_reads(axis: Any) -> list[list[int | None]]:
    """Per output, the cell of every tap; None where an adaptive one has fewer taps than the longest."""
    if set(axis) == {"size", "out"}:
        n, out = axis["size"], axis["out"]
        cells = [range(math.floor(Fraction(o * n, out)), math.ceil(Fraction((o + 1) * n, out))) for o in range(out)]
        most = max(map(len, cells))
        return [[*each, *[None] * (most - len(each))] for each in cells]
    require(set(axis) == {"size", "kernel", "stride", "dilation", "lo", "hi", "out"}, "unknown window")
    s, e, lo = axis["stride"], axis["dilation"], axis["lo"]
    return [[s * o + e * t - lo for t in range(axis["kernel"])] for o in range(axis["out"])]


def extents(params: Any) -> list[int]:
    """Per output, how many taps read the input or its padding, not what hangs over that."""
    axes = []
    for a in params["window"]["window"]:
        first, stop = -a.get("lo", 0), a["size"] + a.get("hi", 0)
        axes.append([sum(i is not None and first <= i < stop for i in each) for each in axis_reads(a)])
    return [math.prod(counts) for counts in itertools.product(*axes)]


def taps_of(params: Any) -> int:
    """Of the whole kernel."""
    return math.prod(len(axis_reads(a)[0]) for a in params["window"]["window"])


class Network:
    def __init__(self, text: bytes, packed: bytes) -> None:
        graph = json.loads(text)
        graph.pop("arrays", None)
        graph["version"] = 1
        arrays = read_arrays(packed, 1 << 40) if packed else {}
        self.rows, self.nodes, parts = graph["nodes"], [], [canonical(graph) + b"\n"]
        for i, row in enumerate(self.rows):
            if row["op"] == "constant":
                value = arrays[row["name"]]
                parts += [str(i).encode(), value.dtype.str.encode(), value.tobytes()]
                require(value.dtype == np.float32, "constants must be float32")
            self.nodes.append(self.node(i, row, arrays))
        self.digest = digest(*parts)
        self.input, self.output = self.only(graph["inputs"]), self.only(graph["outputs"])

    def only(self, ends: Any) -> int:
        require(
            isinstance(ends, list) and len(ends) == 1 and isinstance(ends[0], int), "one input and one output, please"
        )
        return ends[0]

    def node(self, i: int, row: Any, arrays: Any) -> Node:
        op, shape, params = row["op"], tuple(row["shape"]), row.get("params", {})
        require(row.get("kind", "real") == "real" and "exact" not in row, f"node {i} is no array of floats")
        if op == "input":
            return Node("input", op, shape)
        if op == "constant":
            values = np.array([Fraction(float(v)) for v in arrays[row["name"]].flat] + [None])[:-1]
            require(values.size == math.prod(shape), f"constant {i} has another shape")
            return Node("constant", op, shape, values=values.reshape(shape))
        arguments = [a if isinstance(a, int) else self.number(a) for a in row["args"]]
        read = [self.nodes[a] for a in arguments if isinstance(a, int)]
        if op in LAYOUT and op not in ("concat", "neg"):
            cells = self.layout(op, read[0].shape, params)
            require(cells.shape == shape, f"layout of node {i} is not understood")
            if read[0].kind == "constant":
                values = np.append(read[0].values.ravel(), ZERO)[cells]
                return Node("constant", op, shape, values=values)
            sums = [[(arguments[0], int(c), ONE, ONE)] if c >= 0 else [] for c in cells.flat]
            spread = len(sums) if op == "broadcast" else 1
            return Node("linear", op, shape, sums, [ZERO] * len(sums), spread=spread, reads=(arguments[0],))
        if op == "relu":
            return Node("relu", op, shape, argument=arguments[0])
        if op == "max_pool":
            return Node("max", op, shape, argument=arguments[0], taps=self.taps(params, read[0].shape, shape))
        if op in CURVES:
            return Node("curve", op, shape, argument=arguments[0], params=params)
        if op == "smooth_max_pool":
            taps, axes = self.taps(params, read[0].shape, shape), params["window"]["window"]
            count, inner = taps_of(params), read[0].shape[-len(axes) :]
            pads = any(len(t) < count for t in taps)
            return Node("smooth", op, shape, argument=arguments[0], taps=taps, params=params, plane=inner,
                        all_taps=count, pads=pads)  # fmt: skip
        require(
            op in ("add", "sub", "neg", "mul", "contract", "conv", "avg_pool", "concat", "sum"),
            f"no rule for operator {op}",
        )
        sums, constants = getattr(self, op)(arguments, params, shape)
        patches = self.patches(arguments, params, shape) if op == "conv" else []
        reads = tuple(dict.fromkeys(a for a in arguments if not self.is_constant(a)))
        own, spread = self.own(op, arguments, params), self.spread(op, params, len(sums))
        terms = arguments if op in ("add", "sub", "concat") else arguments[2:] if op == "conv" else []
        adds = any(map(self.is_constant, terms))
        copies = max(map(arguments.count, reads), default=1) if op == "concat" else 1
        alone = own - taps_of(params) if op == "avg_pool" else 0
        return Node("linear", op, shape, sums, constants, own=own, alone=alone, spread=spread, reads=reads,
                    adds_constants=adds, patches=patches, copies=copies)  # fmt: skip

    def own(self, op: str, arguments: Any, params: Any) -> int:
        """The most roundings that a term meets in a node, in any order."""
        shapes = [() if isinstance(a, Fraction) else self.nodes[a].shape for a in arguments]
        if op == "contract":
            reads, written = params["spec"].split("->")
            sizes = {
                k: n for text, s in zip(reads.split(","), shapes, strict=True) for k, n in zip(text, s, strict=True)
            }
            return math.prod(n for k, n in sizes.items() if k not in written)
        if op == "conv":
            return math.prod(shapes[1][1:]) + len(shapes) - 2
        if op == "avg_pool":
            taps = taps_of(params)
            divisor = abs(taps if isinstance(params["divisor"], str) else params["divisor"])
            return taps + (1 if divisor <= 256 and divisor == int(divisor) else 2)
        if op == "sum":
            return max(0, math.prod(shapes[0][k] for k in params["axes"]) - 1)
        return int(op in ("add", "sub", "mul"))

    def spread(self, op: str, params: Any, cells: int) -> int:
        if op in ("conv", "contract"):
            return cells
        if op != "avg_pool":
            return 1
        most = 1
        for a in params["window"]["window"]:
            read = list(itertools.chain.from_iterable(axis_reads(a)))
            most *= max(read.count(c) for c in range(a["size"]))
        return most

    def number(self, data: Any) -> Fraction:
        value = data["number"]
        require(
            isinstance(value, int | float) and Fraction(float(np.float32(value))) == value,
            "a number that float32 lacks",
        )
        return Fraction(value)

    def layout(self, op: str, inner: tuple[int, ...], params: Any) -> Any:
        """The cell that each cell reads, -1 for padding."""
        cells = np.arange(math.prod(inner)).reshape(inner)
        if op == "permute":
            return cells.transpose(params["order"])
        if op == "slice":
            return (
                cells[tuple(np.arange(a, b, s) for a, b, s in params["ranges"])]
                if len(inner) == 1
                else self.sliced(cells, params)
            )
        if op == "pad":
            require(all(len(w) < 3 or w[2] == 0 for w in params["widths"]), "padding between cells")
            return np.pad(cells, [tuple(w[:2]) for w in params["widths"]], constant_values=-1)
        require("shape" in params, f"{op} without a shape")
        shape = tuple(params["shape"])
        return cells.reshape(shape) if op == "reshape" else np.broadcast_to(cells, shape)

    def sliced(self, cells: Any, params: Any) -> Any:
        for axis, (start, end, step) in enumerate(params["ranges"]):
            cells = np.take(cells, np.arange(start, end, step), axis=axis)
        return cells

    def is_constant(self, argument: Any) -> bool:
        return isinstance(argument, Fraction) or self.nodes[argument].kind == "constant"

    def value(self, argument: Any, cell: int) -> Fraction:
        return argument if isinstance(argument, Fraction) else self.nodes[argument].values.flat[cell]

    def add(self, arguments: Any, params: Any, shape: Any, signs: tuple[int, int] = (1, 1)) -> Any:
        size, sums, constants = math.prod(shape), [], []
        for a in arguments:
            require(isinstance(a, Fraction) or self.nodes[a].shape == shape, "sums of two shapes")
        for c in range(size):
            computed = [(a, s) for a, s in zip(arguments, signs, strict=False) if not self.is_constant(a)]
            fixed = [s * self.value(a, c) for a, s in zip(arguments, signs, strict=False) if self.is_constant(a)]
            sums.append([(a, c, Fraction(s), ONE) for a, s in computed])
            constants.append(sum(fixed, ZERO))
        return sums, constants

    def sub(self, arguments: Any, params: Any, shape: Any) -> Any:
        return self.add(arguments, params, shape, (1, -1))

    def neg(self, arguments: Any, params: Any, shape: Any) -> Any:
        return self.add(arguments, params, shape, (-1, -1))

    def concat(self, arguments: Any, params: Any, shape: Any) -> Any:
        require(all(isinstance(a, int) for a in arguments), "numbers side by side")
        read = [
            np.array([*((a, c) for c in range(self.nodes[a].size)), None], dtype=object)[:-1].reshape(
                self.nodes[a].shape
            )
            for a in arguments
        ]
        cells = np.concatenate(read, axis=params["axis"])
        require(cells.shape == shape, "concat is not understood")
        fixed = [self.is_constant(a) for a, _ in cells.flat]
        sums = [[] if f else [(a, c, ONE, ONE)] for f, (a, c) in zip(fixed, cells.flat, strict=True)]
        return sums, [self.value(a, c) if f else ZERO for f, (a, c) in zip(fixed, cells.flat, strict=True)]

    def sum(self, arguments: Any, params: Any, shape: Any) -> Any:
        (x,) = arguments
        inner, axes = self.nodes[x].shape, tuple(params["axes"])
        kept = [k for k in range(len(inner)) if k not in axes]
        cells = np.arange(math.prod(inner)).reshape(inner).transpose(*kept, *axes).reshape(math.prod(shape), -1)
        return [[(x, int(c), ONE, ONE) for c in row] for row in cells], [ZERO] * len(cells)

    def mul(self, arguments: Any, params: Any, shape: Any) -> Any:
        (a,) = (
            (x for x in arguments if not self.is_constant(x)) if sum(map(self.is_constant, arguments)) == 1 else (None,)
        )
        require(a is not None and self.nodes[a].shape == shape, "a product of computed values")
        (b,) = (x for x in arguments if self.is_constant(x))
        require(isinstance(b, Fraction) or self.nodes[b].shape == shape, "products of two shapes")
        factors = [self.value(b, c) for c in range(math.prod(shape))]
        return [[(a, c, f, max(ONE, abs(f)))] for c, f in enumerate(factors)], [ZERO] * len(factors)

    def contract(self, arguments: Any, params: Any, shape: Any) -> Any:
        reads, written = params["spec"].split("->")
        letters = reads.split(",")
        require(
            len(letters) == 2 and len({self.is_constant(a) for a in arguments}) == 2, "a product of computed values"
        )
        sizes = {
            k: n
            for a, text in zip(arguments, letters, strict=True)
            for k, n in zip(text, self.nodes[a].shape, strict=True)
        }
        sums: list[list[Any]] = [[] for _ in range(math.prod(shape))]
        for at in itertools.product(*map(range, sizes.values())):
            where = dict(zip(sizes, at, strict=True))
            cells = [
                np.ravel_multi_index([where[k] for k in text], self.nodes[a].shape) if text else 0
                for a, text in zip(arguments, letters, strict=True)
            ]
            out = int(np.ravel_multi_index([where[k] for k in written], shape)) if written else 0
            w, x = (0, 1) if self.is_constant(arguments[0]) else (1, 0)
            f = self.value(arguments[w], int(cells[w]))
            sums[out].append((arguments[x], int(cells[x]), f, max(ONE, abs(f))))
        return sums, [ZERO] * len(sums)

    def conv(self, arguments: Any, params: Any, shape: Any) -> Any:
        x, w, *b = arguments
        require(not self.is_constant(x) and all(map(self.is_constant, [w, *b])), "a convolution with computed weights")
        inner, weights, groups = self.nodes[x].shape, self.nodes[w].values, params["groups"]
        d = len(params["window"]["window"])
        read, kernels = (
            np.arange(math.prod(inner)).reshape(-1, *inner[-d - 1 :]),
            weights.reshape(*weights.shape[:2], -1),
        )
        each, own = shape[-d - 1] // groups, weights.shape[1]
        numbers = np.arange(math.prod(shape)).reshape(-1, *shape[-d - 1 :])
        sums: list[list[Any]] = [[] for _ in range(math.prod(shape))]
        for out, t, at in windows(params, shape, inner[-d:]):
            inside = at is not None
            for n, o, k in itertools.product(range(len(read)), range(shape[-d - 1]), range(own)) if read.size else ():
                f, cell = kernels[o, k, t], at if inside else (0,) * d  # padding is 0 times a weight, as large as it is
                sums[int(numbers[(n, o, *out)])].append(
                    (x, int(read[(n, o // each * own + k, *cell)]), f if inside else ZERO, max(ONE, abs(f)))
                )
        biases = [self.value(b[0], int(o)) for o in np.indices(numbers.shape)[1].ravel()] if b else [ZERO] * len(sums)
        return sums, biases

    def patches(self, arguments: Any, params: Any, shape: tuple[int, ...]) -> Any:
        """What every position of a convolution in one group reads, in the order of channels and taps."""
        x, w, *_ = arguments
        inner, weights, d = self.nodes[x].shape, self.nodes[w].values, len(params["window"]["window"])
        if params["groups"] != 1 or weights[0].size > 6 or len(inner) != d + 2:
            return []
        read, numbers = (np.arange(math.prod(s)).reshape(s) for s in (inner, shape))
        each: dict[Any, dict[int, Any]] = {}
        for out, t, at in windows(params, shape, inner[-d:]):
            each.setdefault(out, {})[t] = at
        rows, found = [list(row) for row in weights.reshape(len(weights), -1)], []
        for n in range(shape[0]):
            for out, taps in each.items():
                cells = [
                    None if at is None else int(read[(n, k, *at)]) for k in range(inner[1]) for at in taps.values()
                ]
                found.append((cells, rows, [int(numbers[(n, o, *out)]) for o in range(shape[1])]))
        return found

    def read_apart(self) -> set[int]:
        """Nodes with a cell that is read more than once, by a linear node among others; and what only they read."""
        reads: dict[int, list[Any]] = {self.output: [None]}
        for row in self.rows:
            for a in row.get("args", ()):
                if isinstance(a, int):
                    reads.setdefault(a, []).append(row["params"]["ranges"] if row["op"] == "slice" else None)
        linear = {
            a
            for row, node in zip(self.rows, self.nodes, strict=True)
            if node.kind == "linear"
            for a in row["args"]
            if isinstance(a, int)
        }
        apart: set[int] = set()
        for i in sorted(linear, reverse=True):
            users = [j for j, row in enumerate(self.rows) if i in row.get("args", ())]
            twice = any(_meet(p, q) for p, q in itertools.combinations(reads[i], 2))
            if twice or all(j in apart or (self.nodes[j].kind == "linear" and self.nodes[j].spread > 1) for j in users):
                apart.add(i)
        return apart

    def taps(self, params: Any, inner: tuple[int, ...], shape: tuple[int, ...]) -> Any:
        d = len(params["window"]["window"])
        read, numbers = (
            np.arange(math.prod(inner)).reshape(-1, *inner[-d:]),
            np.arange(math.prod(shape)).reshape(-1, *shape[-d:]),
        )
        taps: list[list[tuple[int, int]]] = [[] for _ in range(math.prod(shape))]
        for out, t, at in windows(params, shape, inner[-d:]):
            for n in range(len(read)) if at is not None else ():
                taps[int(numbers[(n, *out)])].append((t, int(read[(n, *at)])))
        return taps

    def avg_pool(self, arguments: Any, params: Any, shape: Any) -> Any:
        divisor, sums = params["divisor"], []
        require(divisor in ("inside", "padded") or isinstance(divisor, int), "no rule for this divisor")
        counts = itertools.cycle(extents(params))
        for taps, count in zip(self.taps(params, self.nodes[arguments[0]].shape, shape), counts, strict=False):
            by = Fraction({"inside": len(taps), "padded": count}.get(divisor, divisor))
            sums.append([(arguments[0], c, 1 / by, max(abs(by), abs(1 / by))) for _, c in taps])
        return sums, [ZERO] * len(sums)
