"""Random graphs for two judges: the reference extracted from Coq, as a line of text, and ours, as a traced function.

Of linear maps (reshape, sum, concat, ...) the reference is told which cells each cell adds up, found by NumPy on the
cells' numbers; of functions of one cell their straight pieces. All else it computes by the definitions of the theorems.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

import specgrad as sg
from questions import Array, numbers, text, transposed, windows

Shape = tuple[int, ...]
MOST_NODES, MOST_CELLS = 12, 200
MOST_PRODUCTS = 4  # of computed values with one another: numbers grow twice as long each time


@dataclass(frozen=True)
class Place:
    """An input, or a node: `text` is the reference's, with the places that it reads, and `call` is ours of `reads`.

    call   None: an input, or a part of the next node
    """

    shape: Shape
    text: tuple[str, tuple[int, ...], tuple[Any, ...]] | None = None
    call: Callable[..., Any] | None = None
    reads: tuple[int, ...] = ()


@dataclass
class Graph:
    """Places in the order of their drawing, and those that are outputs."""

    places: list[Place] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def add(self, place: Place) -> int:
        self.places.append(place)
        return len(self.places) - 1

    @property
    def nodes(self) -> list[int]:
        return [k for k, p in enumerate(self.places) if p.text]

    @property
    def inputs(self) -> list[int]:
        return [k for k, p in enumerate(self.places) if not p.text]

    def run(self, *xs: Any) -> tuple[Any, ...]:
        """Our own graph, as a function of its inputs."""
        values: dict[int, Any] = dict(zip(self.inputs, xs, strict=True))
        for k, place in enumerate(self.places):
            if place.call is not None:
                values[k] = place.call(*(values[a] for a in place.reads))
        return tuple(values[k] for k in self.outputs)

    def line(self, x: list[Array], dx: list[Array], gy: list[Array]) -> str:
        """As verified/programs/reference/main.ml reads it: inputs come first there."""
        number = {place: k for k, place in enumerate([*self.inputs, *self.nodes])}

        def node(place: Place) -> str:
            assert place.text is not None
            name, args, rest = place.text
            return "node=" + "|".join([name, ",".join(str(number[a]) for a in args), *map(str, rest)])

        each = {"x": x, "dx": dx, "gy": gy}
        tensors = [f"{k}={';'.join(f'{sizes(a.shape)}|{text(a)}' for a in arrays)}" for k, arrays in each.items()]
        outputs = "out=" + ",".join(str(number[k]) for k in self.outputs)
        return " ".join(["graph", *tensors, outputs, *(node(self.places[k]) for k in self.nodes)])


def sizes(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def shape_of(call: Callable[..., Any], *shapes: Shape) -> Shape | None:
    """The output's shape; None where it is refused, is no array, has no cells or too many."""
    try:
        traced = sg.trace(call, *shapes)
    except sg.ShapeError:
        return None
    shape = tuple(traced.nodes[traced.output_positions[0]].shape)
    return shape if shape and 0 < math.prod(shape) <= MOST_CELLS else None


class Draw:
    """One graph, drawn node by node."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.graph, self.products = rng, Graph(), 0
        rank, channels = rng.randint(1, 3), rng.choice((1, 2, 2, 4))
        for _ in range(rng.randint(1, 2)):
            most = (8, 4, 3)[rank - 1]
            while True:
                shape = (rng.randint(1, 2), channels, *(rng.randint(1, most) for _ in range(rank)))
                if rng.random() < 0.2:
                    shape = (shape[0], channels, *(n + rng.randint(1, most) for n in shape[2:]))
                if math.prod(shape) <= MOST_CELLS:
                    break
            self.graph.add(Place(shape))
        count = rng.randint(1, MOST_NODES)
        for _ in range(10 * count):
            if len(self.graph.nodes) >= count:
                break
            kind = rng.choice(KINDS)
            place = self.recent(*(k for k, p in enumerate(self.graph.places) if p.call or not p.text))
            kind(self, place, self.graph.places[place].shape)
        if not self.graph.nodes:
            self.node("pieces", (0,), (0, 0, "0:1:0"), sg.relu)
        complete = [k for k in self.graph.nodes if self.graph.places[k].call]
        self.graph.outputs = [complete[-1], *(rng.choice(complete) for _ in range(rng.choice((0, 0, 1, 2))))]

    def recent(self, *places: int) -> int:
        return self.rng.choice(places[-4:] if self.rng.random() < 0.7 else places)

    def node(
        self,
        name: str,
        args: tuple[int, ...],
        rest: tuple[Any, ...],
        call: Callable[..., Any],
        weights: tuple[Shape, ...] = (),
    ) -> Shape | None:
        """Add a node that reads places and new inputs, `weights`; None, and nothing is added, where it is refused."""
        given = [self.graph.places[a].shape for a in args]
        shape = shape_of(call, *given, *weights)
        if shape is None or any(math.prod(w) > MOST_CELLS for w in weights):
            return None
        args += tuple(self.graph.add(Place(w)) for w in weights)
        full = tuple(shape if part is SHAPE else part for part in rest)
        full = tuple(sizes(part) if isinstance(part, tuple) else part for part in full)
        self.graph.add(Place(shape, (name, args, full), call, args))
        return shape

    # --- operators ----------------------------------------------------------------------------------------------------

    def conv(self, x: int, shape: Shape) -> None:
        if len(shape) < 3:
            return
        batch, cin, *spatial = shape
        name = self.rng.choice(("conv", "conv", "conv_transpose"))
        backwards = name == "conv_transpose"
        axes = (
            transposed(self.rng, tuple(spatial))
            if backwards
            else windows(self.rng, dilated=True, ceil=False, sizes=tuple(spatial))
        )
        options = dict(axes.options)
        kernel = options.pop("kernel")
        groups = self.rng.choice([g for g in (1, 1, 2, 3) if cin % g == 0])
        cout = groups * self.rng.randint(1, 2)
        first, second = (cin, cout // groups) if backwards else (cout, cin // groups)
        call = getattr(sg, name)
        self.node(
            name,
            (x,),
            (batch, groups, cin, cout, axes.line),
            lambda x, w, b: call(w, b, x, groups=groups, **options),
            ((first, second, *kernel), (cout,)),
        )

    def pool(self, x: int, shape: Shape) -> None:
        rank = self.rng.randint(1, min(3, len(shape)))
        leads, spatial = shape[: len(shape) - rank], shape[len(shape) - rank :]
        name = self.rng.choice(("max_pool", "max_pool", "avg_pool"))
        if self.rng.random() < 0.25:
            outs = tuple(self.rng.randint(1, n + 1) for n in spatial)
            line = ",".join(f"a:{n}:{m}" for n, m in zip(spatial, outs, strict=True))
            options, divisor, call = {"output": outs}, "inside", getattr(sg, f"adaptive_{name}")
        else:
            axes = windows(self.rng, dilated=name == "max_pool", ceil=True, sizes=spatial)
            options, line, call = dict(axes.options), axes.line, getattr(sg, name)
            if name == "avg_pool":
                divisor = self.rng.choice(("padded", "inside", Fraction(-2), Fraction(5, 7)))
                options |= (
                    {"divisor": divisor}
                    if isinstance(divisor, Fraction)
                    else {"count_include_pad": divisor == "padded"}
                )
        rest = (leads, line, divisor) if name == "avg_pool" else (leads, line)
        self.node(name, (x,), rest, lambda x: call(x, **options))

    def pieces(self, x: int, shape: Shape) -> None:
        """A function of one cell, with its slope at kinks as the contract has it."""
        c = self.rng.choice((Fraction(2), Fraction(-1, 2), Fraction(1, 3)))
        low, high = Fraction(self.rng.randint(-2, 0)), Fraction(self.rng.randint(1, 2))
        rest, call = self.rng.choice(
            (
                ((0, 0, "0:1:0"), sg.relu),
                ((0, 0, "0:1:0"), sg.relu),
                ((0, -1, "0:2:1/2"), sg.abs),
                ((0, c, f"0:{1 - c}:0"), lambda x: sg.leaky_relu(x, c)),
                ((low, 0, f"{low}:1:1,{high}:-1:0"), lambda x: sg.clamp(x, low, high)),
                ((0, c, ""), lambda x: x * c),
                ((c, 1, ""), lambda x: x + c),
                ((0, -1, ""), sg.neg),
            )
        )
        self.node("pieces", (x,), rest, call)

    def cellwise(self, x: int, shape: Shape) -> None:
        """Two places of one shape, or one place twice."""
        same = [k for k, p in enumerate(self.graph.places) if p.shape == shape and (p.call or not p.text)]
        args = (x, self.rng.choice(same))
        name = self.rng.choice(("add", "add", "sub", "mul"))
        if name == "mul" and not self.may_multiply():
            return
        self.node(name, args if self.rng.random() < 0.5 else args[::-1], (), getattr(sg, name))

    def may_multiply(self) -> bool:
        self.products += 1
        return self.products <= MOST_PRODUCTS

    def linear(self, x: int, shape: Shape) -> None:
        """A map that moves, repeats, leaves out or adds up cells."""
        axis, rng = self.rng.randrange(len(shape)), self.rng
        order = tuple(rng.sample(range(len(shape)), len(shape)))
        start, step = rng.randrange(shape[axis]), rng.choice((1, 1, 2))
        cut = (*[slice(None)] * axis, slice(start, None, step))
        widths = [(rng.randint(0, 1), rng.randint(0, 1)) for _ in shape]
        split = tuple(n for n in shape for n in ((n // 2, 2) if n % 2 == 0 and rng.random() < 0.5 else (n,)))
        call, cells = rng.choice(
            (
                (lambda x: sg.reshape(x, split), lambda i: i.reshape(split)),
                (lambda x: sg.permute(x, order), lambda i: i.transpose(order)),
                (lambda x: x[cut], lambda i: i[cut]),
                (lambda x: sg.pad(x, widths), lambda i: np.pad(i, widths, constant_values=NO_CELL)),
                (lambda x: sg.broadcast(x, (2, *shape)), lambda i: np.broadcast_to(i, (2, *shape))),
                (lambda x: sg.sum(x, axis), lambda i: np.moveaxis(i, axis, -1)),
                (lambda x: sg.sum(x, axis, keepdims=True), lambda i: np.moveaxis(i, axis, -1)),
            )
        )
        out = shape_of(call, shape)
        if out is not None:
            self.node("linear", (x,), (SHAPE, rows(cells, shape, math.prod(out))), call)

    def concat(self, x: int, shape: Shape) -> None:
        """Of two places: the sum of two linear maps."""
        axis = self.rng.randrange(len(shape))
        fits = [
            k
            for k, p in enumerate(self.graph.places)
            if (p.call or not p.text)
            and len(p.shape) == len(shape)
            and all(a == axis or m == n for a, (m, n) in enumerate(zip(p.shape, shape, strict=True)))
        ]
        args = (x, self.rng.choice(fits))
        out = shape_of(lambda x, y: sg.concat([x, y], axis), *(self.graph.places[a].shape for a in args))
        if out is None or len(self.graph.nodes) + 3 > MOST_NODES:
            return
        parts = []
        for k, a in enumerate(args):
            own = self.graph.places[a].shape
            before = 0 if k == 0 else shape[axis]
            widths = [(before, out[axis] - before - own[axis]) if b == axis else (0, 0) for b in range(len(shape))]
            cells = rows(lambda i, w=widths: np.pad(i, w, constant_values=NO_CELL), own, math.prod(out))
            parts.append(self.graph.add(Place(out, ("linear", (a,), (sizes(out), cells)))))
        self.graph.add(Place(out, ("add", tuple(parts), ()), lambda x, y: sg.concat([x, y], axis), args))

    def contract(self, x: int, shape: Shape) -> None:
        """With weights along one axis, as of a linear layer; or of a place with itself, as scores of attention."""
        letters = "abcdefgh"[: len(shape)]
        axis = self.rng.randrange(len(shape))
        summed, rest = letters[axis], letters.replace(letters[axis], "")
        if self.rng.random() < 0.6:
            n = self.rng.randint(1, 4)
            left, right, out = letters, self.rng.choice((summed + "z", "z" + summed)), rest + "z"
            args, weights = (x,), ((shape[axis], n) if right[0] == summed else (n, shape[axis]),)
        else:
            if not self.may_multiply():
                return
            left, right = letters, letters.replace(rest[-1:], "z") if rest else letters
            out = rest + ("z" if rest else "")
            args, weights = (x, x), ()
        every = out + summed

        def at(word: str) -> str:
            return ",".join(str(every.index(c)) for c in word)

        self.node(
            "contract",
            args,
            (SHAPE, shape[axis], at(left), at(right)),
            lambda x, z: sg.contract(x, z, f"{left},{right}->{out}"),
            weights,
        )


SHAPE = object()  # stands for the node's own shape in the text
NO_CELL = -1
KINDS = [Draw.conv, Draw.conv, Draw.pool, Draw.pool, Draw.pieces, Draw.cellwise, Draw.cellwise]
KINDS += [Draw.linear, Draw.linear, Draw.concat, Draw.contract]


def rows(cells: Callable[[Array], Array], shape: Shape, count: int) -> str:
    """Which cells each of `count` cells adds up: what `cells` makes of the cells' own numbers, each one's last."""
    read = np.asarray(cells(np.arange(math.prod(shape)).reshape(shape))).reshape(count, -1)
    return ";".join(",".join(f"{c}:1" for c in row if c != NO_CELL) for row in read.tolist())


@dataclass(frozen=True)
class Asked:
    """A graph at random numbers: the reference's line, and all arrays that ours is given."""

    graph: Graph
    x: list[Array]
    dx: list[Array]
    gy: list[Array]

    @property
    def line(self) -> str:
        return self.graph.line(self.x, self.dx, self.gy)

    def ours(self) -> list[Array]:
        """Values of the outputs, their tangents, cotangents of all inputs."""
        traced = sg.trace(self.graph.run, *(a.shape for a in self.x))
        both = sg.jvp(traced)(*self.x, *self.dx)
        swept = sg.vjp(traced)(*self.x, *self.gy)
        assert all(map(np.array_equal, swept[: len(self.gy)], both[: len(self.gy)]))
        return [*both, *swept[len(self.gy) :]]


def question(seed: int) -> Asked:
    rng = Random(f"graph/{seed}")
    graph = Draw(rng).graph

    def drawn(places: Iterator[int] | list[int]) -> list[Array]:
        return [numbers(rng, graph.places[k].shape) for k in places]

    return Asked(graph, drawn(graph.inputs), drawn(graph.inputs), drawn(graph.outputs))
