"""Converters of ONNX's recurrent layers, LSTM, GRU and RNN: one step of the graph per step of time. They refuse what
they do not honour, and raise ShapeError where shapes do not fit.

The nodes of a step are named after it and the gate: lstm.t3.forget.sigmoid, or lstm.reverse.t3.forget.sigmoid. The
products with all inputs are one node; a step adds the product with the hidden state of the step before.

The result Y shows every hidden state, so who has recorded Y knows what each step read: `Importer.states` says which
cells of Y these are, and each step can be judged from the states that it was given.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ....errors import ShapeError, UnsupportedError
from ....op import Value, scope
from ....ops.activation import clamp
from ....ops.contract import linear
from ....ops.elementwise import add, mul, sub
from ....ops.layout import concat, permute, reshape, slice_
from ....window import Shape
from .activations import ACTIVATIONS, activation_named
from .node import OnnxNode, operator

MAX_STEPS = 600  # of all directions; each is some 20 nodes
FUNCTIONS = tuple(name for name in ACTIVATIONS if name not in ("HardSwish", "Selu", "Clip"))
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
NOTE = (
    f"at most {MAX_STEPS} steps of all directions; sequence_lens are known, from 1 on; clip bounds what gates are "
    "computed from; Affine, ScaledTanh and ThresholdedRelu need their parameters"
)
Function = Callable[[Value], Value]
Place = Callable[[slice, int], tuple[Any, ...]]  # of a part of the batch and a step: its cells of Y
State = tuple[Value, ...]  # hidden, and the cell of an LSTM


# --- what a layer is given ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Sizes of a recurrent layer: steps, batch, inputs, hidden cells, directions, and gates per hidden cell."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    directions: int
    gates: int


@dataclass(frozen=True)
class Direction:
    """One direction of a recurrent layer.

    functions   the activations, in ONNX's order, after clipping where the node says so
    products    X W^T and its biases, for all steps: (steps, batch, gates*hidden)
    multiply    the product of a state with the weights of gates first..last, and their biases where `apart`
    peepholes   weights of the cell in the gates, input, output and forget; () if there are none
    sizes       steps, batch and hidden cells
    """

    sizes: Sizes
    functions: tuple[Function, ...]
    products: Value
    multiply: Callable[[Value, int, int], Value]
    peepholes: tuple[Value, ...] = ()

    def gate(self, rows: Value, i: int) -> Value:
        """Return the columns of gate i of `rows` (batch, gates * hidden)."""
        hidden = self.sizes.hidden
        return slice_(rows, None, slice(i * hidden, (i + 1) * hidden))


Step = Callable[[Direction, Value, State], State]


def read_sizes(c: OnnxNode, batch_first: bool, gates: int, hidden: int) -> Sizes:
    """Return the sizes of a layer with so many `gates` and `hidden` cells, by the shape of X, in which the batch comes
    first if `batch_first`; ShapeError if they contradict each other or are 0, UnsupportedError for more than MAX_STEPS
    steps.
    """
    x = c.shape(0)
    if len(x) != 3:
        c.refuse(f"X needs three axes; got shape {x}", "C1", ShapeError)
    steps, batch = (x[1], x[0]) if batch_first else x[:2]
    if c.integer("hidden_size", hidden) != hidden:
        c.refuse(f"hidden_size contradicts the recurrence weights, which have {hidden}", "C1", ShapeError)
    sizes = Sizes(steps, batch, x[2], hidden, len(_reversals(c)), gates)
    if steps * sizes.directions > MAX_STEPS:
        text = f"{steps} steps in {sizes.directions} directions; at most {MAX_STEPS} are unrolled"
        c.refuse(text, None, UnsupportedError)
    if not min(steps, batch, hidden, sizes.inputs):
        c.refuse(f"empty sequences are not supported; got X of shape {x}", "C1", ShapeError)
    return sizes


def _reversals(c: OnnxNode) -> tuple[bool, ...]:
    """Return, per direction, whether it goes backwards; the attribute is left for `finish`.

    Refused: other words than those of DIRECTIONS.
    """
    written = [a.s.decode("utf-8", "replace") for a in c.node.attribute if a.name == "direction"]
    name = written[0] if written else "forward"
    if name not in DIRECTIONS:
        c.refuse(f"direction={name[:50]!r} must be one of {', '.join(DIRECTIONS)}")
    return DIRECTIONS[name]


def check_shape(c: OnnxNode, i: int, name: str, wanted: Shape) -> None:
    """Raise ShapeError if input i, called `name`, is given and has another shape than `wanted`."""
    if c.has(i) and c.shape(i) != wanted:
        c.refuse(f"{name} must have shape {wanted}; got {c.shape(i)}", "C1", ShapeError)


def _activations_by_direction(c: OnnxNode, directions: int, default: Sequence[str]) -> list[tuple[Function, ...]]:
    """Return the activations per direction, `default` if none are named.

    Parameters are consumed in the order of the functions that have them. Refused: another number of names or
    parameters, and a clip that is not positive.
    """
    names = [s.decode("utf-8", "replace") for s in c.attribute("activations", "strings", [])]
    names = names or [*default] * directions
    if len(names) != directions * len(default):
        c.refuse(f"activations must be {directions * len(default)} names; got {names}")
    clip = c.floating("clip") if any(a.name == "clip" for a in c.node.attribute) else None
    if clip is not None and not clip > 0:
        c.refuse(f"clip={clip} must be positive")
    alphas, betas = (iter(c.attribute(f"activation_{p}", "floats", [])) for p in ("alpha", "beta"))
    made = [_next_activation(c, name, alphas, betas) for name in names]
    if next(alphas, None) is not None or next(betas, None) is not None:
        c.refuse("activation_alpha or activation_beta has more numbers than the activations take")
    bounded = [
        made[k] if clip is None or _is_of_cell(k, len(default)) else _clipped(made[k], clip) for k in range(len(made))
    ]
    return [tuple(bounded[k : k + len(default)]) for k in range(0, len(names), len(default))]


def _is_of_cell(k: int, count: int) -> bool:
    """Return whether activation k of `count` per direction is the third of an LSTM, which reads a cell and no sum of
    products: not clipped.
    """
    return count == 3 and k % 3 == 2


def _clipped(function: Function, clip: float) -> Function:
    """Return the function of x clipped to -clip..clip."""
    return lambda x: function(clamp(x, -clip, clip))


def _next_activation(c: OnnxNode, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    """Return the activation `name` with its parameters: the next of `alphas` and `betas`, else ONNX's defaults.

    Refused: an unknown name, and a parameter without a default that is missing.
    """
    activation = activation_named(c, name, FUNCTIONS)
    numbers = []
    for parameter, default in activation.defaults.items():
        number = next(alphas if parameter == "alpha" else betas, default)
        if number is None:
            c.refuse(f"activation {name} needs activation_{parameter}")
        numbers.append(float(np.float32(number)))
    return lambda x: activation.apply(x, *numbers)


def _sequence_lengths(c: OnnxNode, sizes: Sizes) -> list[int]:
    """Return the length of every sequence of the batch. Refused: lengths that are computed or lie outside 1..steps."""
    if not c.has(4):
        return [sizes.steps] * sizes.batch
    check_shape(c, 4, "sequence_lens", (sizes.batch,))
    lengths = c.known_ints(4, "sequence_lens")
    if any(not 1 <= n <= sizes.steps for n in lengths):
        c.refuse(f"sequence_lens={lengths[:10]} must lie in 1..{sizes.steps}", "C1", ShapeError)
    return lengths


def part_of(x: Value, d: int, *ranges: Any) -> Value:
    """Return x[d], and of its other axes these ranges."""
    part = slice_(x, slice(d, d + 1), *ranges)
    return reshape(part, tuple(part.shape[1:]))


def _float_direction(
    c: OnnxNode, sizes: Sizes, d: int, x: Value, functions: tuple[Function, ...], apart: bool
) -> Direction:
    """Return direction d of a layer in floats, with these activations (`functions`); `apart`: the last gate's recurrent
    bias goes with its product.
    """
    rows, hidden = sizes.gates * sizes.hidden, sizes.hidden
    w, r = part_of(c.real(1), d), part_of(c.real(2), d)
    products = linear(w, None, x)
    own = None
    if c.has(3):
        b = c.real(3)
        products = add(products, part_of(b, d, slice(0, rows)))
        shared = rows - hidden if apart else rows
        recurrent = part_of(b, d, slice(rows, rows + shared))
        if apart:
            own = part_of(b, d, slice(rows + shared, 2 * rows))
            zeros = c.importer.trace.constant(np.zeros(hidden, np.float32), "zeros")
            recurrent = concat([recurrent, zeros], 0)
        products = add(products, recurrent)

    def multiply(h: Value, first: int, last: int) -> Value:
        weights = r if last - first == sizes.gates else slice_(r, slice(first * hidden, last * hidden), None)
        return linear(weights, own if first == sizes.gates - 1 else None, h)

    peepholes: tuple[Value, ...] = ()
    if c.has(7):
        peepholes = tuple(part_of(c.real(7), d, slice(k * hidden, (k + 1) * hidden)) for k in range(3))
    return Direction(sizes, functions, products, multiply, peepholes)


# --- time -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unrolled:
    """A direction unrolled over time, of sequences of one length: the rows of Y by step, and the last state."""

    rows: list[Value]
    last: State


def _unroll(
    c: OnnxNode, way: Direction, step: Step, start: State, backwards: bool, place: Callable[[int], Any]
) -> Unrolled:
    """Return the hidden states of all steps, (batch, hidden) each, and the last state.

    The direction `way` begins in the state `start` and takes `step` after step, from the last one on if `backwards`.

    What a step reads of the one before is noted in the importer's `states`, by the cells of Y that hold it.

    place   which cells of Y the hidden state of a step is
    """
    steps, batch, _ = way.products.shape
    rows: dict[int, Value] = {}
    state = start
    for t in reversed(range(steps)) if backwards else range(steps):
        with scope(f"t{t}"):
            products = reshape(slice_(way.products, slice(t, t + 1), None, None), (batch, way.products.shape[2]))
            state = step(way, products, state)
            rows[t] = reshape(state[0], (1, 1, *state[0].shape))
            read = reshape(rows[t], tuple(state[0].shape))  # a node of its own: what the next step reads
        if c.node.output[0]:
            c.importer.states[read.id] = str(c.node.output[0]), place(t)
        last, state = state, (read, *state[1:])
    return Unrolled([rows[t] for t in range(steps)], last)


def _index_in_output(d: int, batch_first: bool, batch: slice, t: int) -> tuple[Any, ...]:
    """Return the index in Y of direction d at time t, for a part of the batch, which comes first if `batch_first`."""
    return (batch, t, d) if batch_first else (t, d, batch)


def _runs_of_length(lengths: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (first, last, length) of neighbouring sequences of one length."""
    at = 0
    for length, group in itertools.groupby(lengths):
        count = len(list(group))
        yield at, at + count, length
        at += count


def _unroll_sequences(
    c: OnnxNode, way: Direction, step: Step, start: State, lengths: Sequence[int], backwards: bool, place: Place
) -> tuple[Value, State]:
    """Return Y of one direction, (steps, 1, batch, hidden), and its last state; behind a sequence's end Y is 0.

    `lengths` are those of the batch's sequences; if `backwards`, each is read from its end. The direction `way` begins
    in `start`; `place` says which cells of Y a part of the batch fills at a step.
    """
    steps, hidden = way.sizes.steps, way.sizes.hidden
    ys, lasts = [], []
    for first, last, length in _runs_of_length(lengths):
        batch = slice(first, last)
        part = replace(way, products=slice_(way.products, slice(0, length), batch, None))
        begin = tuple(slice_(s, batch, None) for s in start)
        unrolled = _unroll(c, part, step, begin, backwards, partial(place, batch))
        rows = unrolled.rows
        if length < steps:
            blank = np.zeros((steps - length, 1, last - first, hidden), np.float32)
            rows = [*rows, c.importer.trace.constant(blank, "zeros")]
        ys.append(concat(rows, 0))
        lasts.append(unrolled.last)
    return concat(ys, 2), tuple(concat([state[k] for state in lasts], 0) for k in range(len(start)))


def _initial_states(c: OnnxNode, sizes: Sizes, batch_first: bool, count: int) -> list[State]:
    """Return the first state of every direction: initial_h and (`count` 2) initial_c, or zeros.

    In these the batch comes first if `batch_first`. ShapeError for other shapes.
    """
    shape = (sizes.directions, sizes.batch, sizes.hidden)
    wanted = (shape[1], shape[0], shape[2]) if batch_first else shape
    given = []
    for i, name in ((5, "initial_h"), (6, "initial_c"))[:count]:
        check_shape(c, i, name, wanted)
        if c.has(i):
            given.append(permute(c.real(i), (1, 0, 2)) if batch_first else c.real(i))
        else:
            given.append(c.importer.trace.constant(np.zeros(shape, np.float32), name))
    return [tuple(part_of(x, d) for x in given) for d in range(sizes.directions)]


def recurrent(
    c: OnnxNode, sizes: Sizes, functions: Sequence[str], step: Step, states: int, direction: Callable[..., Direction]
) -> tuple[Value, ...]:
    """Return Y, Y_h and, of an LSTM, Y_c, after setting the node's `result_types`.

    sizes      of the layer
    functions  the activations that are meant if none are named
    step       the next state from one step's products and the state before
    states     1, or 2 with a cell
    direction  makes one direction of (number, X, activations)
    """
    batch_first = c.version >= 14 and c.flag("layout")
    c.string("direction", "forward")
    made = _activations_by_direction(c, sizes.directions, functions)
    lengths, starts = _sequence_lengths(c, sizes), _initial_states(c, sizes, batch_first, states)
    x = permute(c.real(0), (1, 0, 2)) if batch_first else c.real(0)
    ys, lasts = [], []
    for d, backwards in enumerate(_reversals(c)):
        with scope("reverse" if backwards else "forward") if sizes.directions > 1 else scope("steps"):
            way = direction(d, x, made[d])
            place = partial(_index_in_output, d, batch_first)
            y, last = _unroll_sequences(c, way, step, starts[d], lengths, backwards, place)
        ys.append(y)
        lasts.append(last)
    c.result_types = (c.elem_type(0),) * (1 + states)
    y = concat(ys, 1)
    ends = [concat([reshape(s[k], (1, *s[k].shape)) for s in lasts], 0) for k in range(states)]
    if batch_first:
        y, ends = permute(y, (2, 0, 1, 3)), [permute(e, (1, 0, 2)) for e in ends]
    return y, *ends


def _float_layer(
    c: OnnxNode, gates: int, functions: Sequence[str], step: Step, states: int = 1, apart: bool = False
) -> tuple[Value, ...]:
    """Return Y, Y_h and, with two states, Y_c of a layer in floats, of which `step` computes one step.

    `apart`: the last gate's recurrent bias goes with its product.

    `gates` is their number, `functions` are the default activations, `states` is 1, or 2 with a cell. ShapeError for
    weights whose shapes do not fit.
    """
    r = c.shape(2)
    if len(r) != 3:
        c.refuse(f"R needs three axes; got shape {r}", "C1", ShapeError)
    batch_first = c.version >= 14 and any(a.name == "layout" and a.i == 1 for a in c.node.attribute)
    sizes = read_sizes(c, batch_first, gates, r[2])
    d, rows = sizes.directions, gates * sizes.hidden
    for i, name, wanted in (
        (1, "W", (d, rows, sizes.inputs)), (2, "R", (d, rows, sizes.hidden)), (3, "B", (d, 2 * rows)),
        (7, "P", (d, 3 * sizes.hidden)),
    ):  # fmt: skip
        check_shape(c, i, name, wanted)
    return recurrent(
        c, sizes, functions, step, states, lambda k, x, made: _float_direction(c, sizes, k, x, made, apart)
    )


# --- the layers -----------------------------------------------------------------------------------------------------


@operator("RNN", 7, 14, 22, note=NOTE)
def _rnn(c: OnnxNode) -> tuple[Value, ...]:
    """Convert ONNX RNN to (Y, Y_h): each step is H = f(X W^T + H R^T + Wb + Rb).

    Refused: shapes that contradict each other (ShapeError), and what `NOTE` rules out.
    """
    return _float_layer(
        c, 1, ("Tanh",), lambda way, x, state: (way.functions[0](add(x, way.multiply(state[0], 0, 1))),)
    )


@operator("GRU", 7, 14, 22, note=NOTE)
def _gru(c: OnnxNode) -> tuple[Value, ...]:
    """Convert ONNX GRU to (Y, Y_h); its gates are update, reset and hidden.

    Refused: shapes that contradict each other (ShapeError), and what `NOTE` rules out.
    """
    linear_first = c.flag("linear_before_reset")

    def step(way: Direction, x: Value, state: State) -> State:
        (h,), (f, g), hidden = state, way.functions, way.sizes.hidden
        sums = add(slice_(x, None, slice(0, 2 * hidden)), way.multiply(h, 0, 2))
        with scope("update"):
            z = f(way.gate(sums, 0))
        with scope("reset"):
            r = f(way.gate(sums, 1))
        with scope("hidden"):
            product = mul(r, way.multiply(h, 2, 3)) if linear_first else way.multiply(mul(r, h), 2, 3)
            candidate = g(add(way.gate(x, 2), product))
        return (add(mul(sub(1, z), candidate), mul(z, h)),)

    return _float_layer(c, 3, ("Sigmoid", "Tanh"), step, apart=linear_first)


def lstm_step(coupled: bool) -> Step:
    """Return the function (direction, products, state) -> state (h, cell) of one step of an LSTM.

    `coupled`: the forget gate is 1 minus the input gate.
    """

    def step(way: Direction, x: Value, state: State) -> State:
        (h, cell), (f, g, last) = state, way.functions
        sums = add(x, way.multiply(h, 0, 4))
        with scope("input"):
            i = f(_with_peephole(way.gate(sums, 0), way.peepholes[:1], cell))
        with scope("forget"):
            forget = sub(1, i) if coupled else f(_with_peephole(way.gate(sums, 2), way.peepholes[2:], cell))
        with scope("cell"):
            cell = add(mul(forget, cell), mul(i, g(way.gate(sums, 3))))
        with scope("output"):
            o = f(_with_peephole(way.gate(sums, 1), way.peepholes[1:2], cell))
        return mul(o, last(cell)), cell

    return step


def _with_peephole(x: Value, weights: Sequence[Value], cell: Value) -> Value:
    """Return x plus the cell times its weights, if there are any."""
    return add(x, mul(cell, weights[0])) if weights else x


@operator("LSTM", 7, 14, 22, note=f"input_forget=1 makes the forget gate 1 minus the input gate; {NOTE}")
def _lstm(c: OnnxNode) -> tuple[Value, ...]:
    """Convert ONNX LSTM to (Y, Y_h, Y_c); its gates are input, output, forget and cell.

    Refused: shapes that contradict each other (ShapeError), and what `NOTE` rules out.
    """
    return _float_layer(c, 4, ("Sigmoid", "Tanh", "Tanh"), lstm_step(c.flag("input_forget")), states=2)
