"""Search an input at which two networks differ, and prove the difference there.

Many inputs are cheap in float64; the ones that set the networks farthest apart are evaluated rigorously.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specgrad.bounds.exact_outputs import WORK, work
from specgrad.deadline import check_time, is_over, time_left, time_limit
from specgrad.engines import compile
from specgrad.errors import SpecgradError, TimeLimitError, need
from specgrad.graph.graph import Graph, NumberArg
from specgrad.graph.ir.tree import leaves
from specgrad.rounding import Arithmetic
from specgrad.scalar import Array

from ..models.emulate import MAX_MULTIPLY_ADDS, Executor, multiply_adds
from ..tolerances.tolerance import tolerance
from ..verdicts.first_divergence import first_difference
from .box_difference import BoxDifference
from .difference_bounds import DifferenceBounds, difference, difference_at
from .result import DIFFERS, UNKNOWN, Comparison, ExecutedApart, PointDifference

Progress = Callable[[str, int, int], None]
Candidate = tuple[str, tuple[Array, ...]]
INPUT_SCALES = (1.0, 16.0, 1 / 16)  # normal numbers times these are tried where the inputs given show nothing
MAX_SPECIAL_NUMBERS = 12  # constants of the graphs that are tried as inputs
MAX_PROVEN = 2  # further candidates that are evaluated rigorously
RANKING_SHARE, RANKING_SECONDS = 0.25, 20.0  # of the time that is left, and at most
ROUNDING_SECONDS = 5.0  # for a tolerance that is said beside the verdict
SHOWN = "their outputs differ over real numbers, shown at an input"


@dataclass(frozen=True, eq=False)
class WitnessSearch:
    """Searches an input at which two networks differ.

    given        the input of the call, or one that was drawn
    about        which input was given, in words; None: none
    a, b         the two networks
    arithmetic   the executions that tolerances are about
    report       is told how far the search has come
    """

    a: Graph
    b: Graph
    given: tuple[Array, ...]
    about: str | None
    arithmetic: Arithmetic
    report: Progress

    @property
    def is_small(self) -> bool:
        """Whether both networks are evaluated over balls of many bits."""
        return work(self.a) + work(self.b) <= WORK

    def points(self, so_far: Comparison) -> Comparison:
        """Return the comparison `so_far` with the inputs that were tried, and "differs" if one shows a difference."""
        points: list[PointDifference] = []
        notes: tuple[str, ...] = ()
        if not self.a.real_outputs:
            return replace(so_far, method=f"{so_far.method}, and no output holds numbers")
        try:
            for about, inputs in self._worth_proving():
                check_time("inputs to try")
                self.report(f"at {about}", 2, 4)
                points.append(self._point_difference(about, inputs, difference_at(self.a, self.b, inputs)))
                if points[-1].lower > 0:
                    return replace(so_far, verdict=DIFFERS, method=SHOWN, points=tuple(points))
        except TimeLimitError:
            notes = ("out of time while inputs were tried",)
        except SpecgradError as error:
            notes = (f"nothing was evaluated: {error}",) if not points else (f"no further input: {error}",)
        text = f"{so_far.method}, and no input that was tried shows a difference"
        return replace(so_far, method=text, points=tuple(points), notes=(*so_far.notes, *notes))

    def with_box(self, so_far: Comparison, far: BoxDifference) -> Comparison:
        """Return the comparison `so_far` with what is known over the box, `far`.

        "differs" if an input of the box shows it.
        """
        if so_far.verdict != UNKNOWN or not far.witness_difference:
            return replace(so_far, box=far)
        point = self._point_difference("an input of the box", far.inputs, difference_at(self.a, self.b, far.inputs))
        return replace(so_far, verdict=DIFFERS, method=SHOWN, points=(*so_far.points, point), box=far)

    # --- which inputs -------------------------------------------------------------------------------------------------

    def _worth_proving(self) -> Iterator[Candidate]:
        """Yield inputs to evaluate rigorously: small networks at the usual ones, all at those that differ the most."""
        usual = self.usual_inputs()
        if self.is_small:
            yield from usual
            yield from self._rank_by_difference(special_inputs(self.a, self.b, self.given))[:MAX_PROVEN]
        else:
            yield from (
                self._rank_by_difference([*usual, *special_inputs(self.a, self.b, self.given)])[:MAX_PROVEN]
                or usual[:1]
            )

    def usual_inputs(self) -> list[Candidate]:
        """Return (words, inputs) to try: those given, then normal numbers of several sizes."""
        tried = [] if self.about is None else [(self.about, self.given)]
        rng = np.random.default_rng(0)
        for size in INPUT_SCALES:
            drawn = tuple(_of_type(x, size * rng.normal(size=x.shape)) for x in self.given)
            tried.append((f"normal numbers{f' times {size:g}' if size != 1 else ''}", drawn))
        return tried

    def _rank_by_difference(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates at which float64 differs, the largest difference first, beside the outputs' size."""
        self.report("inputs in float64", 1, 4)
        far: list[tuple[float, Candidate]] = []
        try:
            check_time("a ranking")  # before PyTorch is imported, and a graph of both is compiled
            need("torch", "a search in float64 needs")
            with time_limit(min(RANKING_SECONDS, RANKING_SHARE * time_left())):
                both = compile(difference(self.a, self.b), "torch").double()
                for candidate in candidates:
                    far.append((_float_distance(both, candidate[1]), candidate))
                    check_time("a ranking")
        except SpecgradError:
            pass  # what was ranked so far
        return [each for size, each in sorted(far, key=lambda pair: -pair[0]) if size > 0]

    # --- what is known at one input -----------------------------------------------------------------------------------

    def _point_difference(self, about: str, inputs: tuple[Array, ...], apart: DifferenceBounds) -> PointDifference:
        """Return the difference at one input, and whether rounding could explain it.

        `about` says in words which input it is; `apart` bounds the difference of the outputs there.
        """
        k, place = apart.farthest
        least, most = (float(e[k][place]) for e in (apart.least, apart.most))
        value = float(apart.values[k][place]) if apart.values else math.nan
        point = PointDifference(inputs, about, least, max(most, apart.largest), k, place, value, apart.how)
        both = self._tolerances(inputs) if least > 0 or self.is_small else None
        if both is None:
            return point
        allowed = [p + q for p, q in zip(*both, strict=True)]
        within = all(bool((m <= x).all()) for m, x in zip(apart.most, allowed, strict=True))
        beyond = any(bool((m > x).any()) for m, x in zip(apart.least, allowed, strict=True))
        return replace(point, within_rounding=within if within or beyond else None, allowed=float(allowed[k][place]))

    def _tolerances(self, inputs: tuple[Array, ...]) -> list[Sequence[Array]] | None:
        """Return how far executions of each network may be off at `inputs`, per output.

        None: not known, or not in the time.
        """
        if is_over() or multiply_adds(self.a) + multiply_adds(self.b) > MAX_MULTIPLY_ADDS:
            return None
        seconds = min(ROUNDING_SECONDS, time_left())
        try:
            return [
                tolerance(g, *inputs, arithmetic=self.arithmetic, seconds=seconds).tolerances for g in (self.a, self.b)
            ]
        except SpecgradError:
            return None

    def executed(self) -> ExecutedApart | None:
        """Return executions at the given input that differ by more than one of the tolerances; or None."""
        if self.arithmetic.dtype not in ("float32", "float64") or not self.a.real_outputs or is_over():
            return None
        if multiply_adds(self.a) + multiply_adds(self.b) > MAX_MULTIPLY_ADDS:
            return None
        about, drawn = self.usual_inputs()[0]
        inputs = tuple(x if x.dtype.kind in "iu" else x.astype(self.arithmetic.dtype) for x in drawn)
        try:
            values = [self._emulated_outputs(g, inputs) for g in (self.a, self.b)]
        except SpecgradError:
            return None
        if all(np.array_equal(p, q) for p, q in zip(*values, strict=True)):
            return None
        both = self._tolerances(inputs)
        return None if both is None else _largest_beyond_tolerance(about, values, both)

    def _emulated_outputs(self, graph: Graph, inputs: tuple[Array, ...]) -> list[Array]:
        """Return the real outputs of one emulated execution of the graph on `inputs`."""
        outputs = Executor(graph, self.arithmetic).run(inputs, {})
        return [y for p, y in zip(graph.output_positions, outputs, strict=True) if p in graph.real_outputs]

    def by_value(self, done: Comparison) -> str | None:
        """Return the first layer of a whose values b has nowhere, at the input that `done` shows a difference at.

        None if there is none.
        """
        witness = done.witness
        if witness is None or is_over() or multiply_adds(self.a) + multiply_adds(self.b) > MAX_MULTIPLY_ADDS:
            return None
        try:
            parted = first_difference(self.a, self.b, witness.inputs, "torch")
        except SpecgradError:
            return None
        return None if parted is None else self.a.nodes[parted[0]].group


def special_inputs(a: Graph, b: Graph, given: tuple[Array, ...]) -> list[Candidate]:
    """Return (words, inputs) to try, like those `given`: filled with numbers of the graphs, ends of clamps, and their
    neighbours, where functions turn or jump.

    >>> import specgrad as sg
    >>> graphs = [sg.trace(lambda x: sg.clamp(x, 0, high), (2,)) for high in (6, 99)]
    >>> ["99" in words for words, _ in special_inputs(*graphs, (np.zeros(2, np.float32),))].count(True) > 2
    True
    """
    tried: list[Candidate] = []
    for number in dict.fromkeys([0.0, *_numbers_of(a), *_numbers_of(b)]):
        near = np.float32(number)
        for each in (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))):
            tried.append((f"every cell {each:.9g}", _filled_with(given, each)))
        for each in (near + 1, near - 1):
            tried.append((f"every cell {each:.9g}, next to {number:g}", _filled_with(given, each)))
    rng = np.random.default_rng(1)
    tried.append(("whole numbers", tuple(_of_type(x, rng.integers(-3, 4, size=x.shape)) for x in given)))
    for share in (0.0, 0.5, 1.0):
        tried.append((f"zeros but for one cell, at {share:g} of its array", tuple(_one_hot(x, share) for x in given)))
    return [(words, inputs) for words, inputs in tried if all(np.isfinite(x).all() for x in inputs)]


def _numbers_of(graph: Graph) -> list[float]:
    """Return the first few single numbers of a graph: arguments, constants of one cell, and parameters."""
    numbers: dict[float, None] = {}
    for i, node in enumerate(graph.nodes):
        single: list[Any] = [x.value for x in node.args if isinstance(x, NumberArg)]
        single += [p for p in node.params.values() if isinstance(p, int | float) and not isinstance(p, bool)]
        constant = graph.constants.get(i)
        if constant is not None and constant.size == 1 and constant.dtype.kind in "fiu":
            single.append(constant.item())
        numbers |= {float(x): None for x in single if math.isfinite(x) and abs(x) < np.finfo(np.float32).max}
    return list(numbers)[:MAX_SPECIAL_NUMBERS]


def _of_type(given: Array, numbers: Array) -> Array:
    """Return numbers as an input of the type given: floats, or of booleans whether they are positive; integers stay."""
    if given.dtype.kind in "iu":
        return given
    return np.asarray(numbers > 0 if given.dtype.kind == "b" else numbers, dtype=np.float32)


def _filled_with(given: tuple[Array, ...], number: Any) -> tuple[Array, ...]:
    """Return inputs like those given with one number in every cell; positions stay."""
    return tuple(_of_type(x, np.full(x.shape, number, np.float32)) for x in given)


def _one_hot(x: Array, share: float) -> Array:
    """Return zeros like x with one cell 1, the share `share` (0..1) of the way through all cells; positions stay."""
    if x.dtype.kind in "iu" or not x.size:
        return x
    cells = np.zeros(x.size, np.float32)
    cells[int(share * (x.size - 1))] = 1
    return cells.reshape(x.shape)


def _float_distance(both: Any, inputs: tuple[Array, ...]) -> float:
    """Return the largest absolute output of `both`, a compiled a - b, in float64, over 1 plus the size of the inputs; 0
    where none is a number.
    """
    import torch

    with torch.no_grad():
        given = [torch.from_numpy(x if x.dtype.kind in "iu" else x.astype(np.float64)) for x in inputs]
        cells = [y.reshape(-1) for y in leaves(both(*given))]
    sizes = [float(y.abs().nan_to_num(0.0, 0.0, 0.0).max()) for y in cells if y.numel()]
    reach = max((float(abs(x).max(initial=0)) for x in inputs if x.dtype.kind == "f"), default=0.0)
    return max(sizes, default=0.0) / (1 + reach)


def _largest_beyond_tolerance(
    about: str, values: Sequence[Sequence[Array]], tolerances: Sequence[Sequence[Array]]
) -> ExecutedApart | None:
    """Return the cell of the largest difference of executions among those above a tolerance; or None.

    values, tolerances   of both networks, per output
    about                which input they were run on, in words
    """
    cells = []
    for k, (p, q, r, s) in enumerate(zip(*values, *tolerances, strict=True)):
        with np.errstate(invalid="ignore"):
            gap = np.where(p == q, 0.0, np.nan_to_num(abs(p - q), nan=np.inf, posinf=np.inf))
        beyond = np.where(gap > np.minimum(r, s), gap, -1.0)
        if beyond.max(initial=-1.0) > 0:
            place = tuple(int(i) for i in np.unravel_index(int(np.argmax(beyond)), beyond.shape))
            both = ((float(x[place]), float(y[place])) for x, y in ((p, q), (r, s)))
            cells.append((float(beyond[place]), ExecutedApart(about, k, place, *both)))
    return max(cells, key=lambda pair: pair[0])[1] if cells else None
