"""Bound how much a correct runtime may differ: a proven tolerance for every output of a model at given inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from specgrad import html_page
from specgrad.deadline import check_time
from specgrad.errors import need
from specgrad.graph.graph import Graph
from specgrad.rounding import FORMATS, Arithmetic
from specgrad.rounding.stated import deployment_of
from specgrad.scalar import Array, upward

from ..models.load import ModelAtPoints, at_points
from ..verdicts.known_effects import describe_formats
from .allclose import allclose_pair
from .point_bounds import Point, bound_point

ROUNDING_SLACK = 2.0**-50  # roundings of ours in one difference
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class OutputCell:
    """One output cell, at `index`, with its exact value and tolerance, also in `ulps` of that value; `point` is the
    input's number if several were given.
    """

    output: str
    index: tuple[int, ...]
    exact: float
    tolerance: float
    ulps: float
    point: int | None = None

    def __str__(self) -> str:
        place = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return f"{self.output}{place}" + (f" of point {self.point}" if self.point is not None else "")


@dataclass(frozen=True, eq=False)
class Tolerance:
    """The result of `tolerance`: how far any execution of a class may be from the exact outputs.

    Proven at one input, or at several (one axis in front).

    Attributes
    ----------
    names : tuple of str
        Of the outputs that hold numbers.
    formats : tuple of str
        Of their values: that of the arithmetic, or what the model declares.
    exact : tuple of array
        Per output: float64 values next to the exact ones; what they lack is inside `tolerances`.
    tolerances : tuple of array
        Per output and cell: no execution is farther from the exact value, nor from `exact`; inf: unbounded.
    pairwise_tolerances : tuple of array
        Per output and cell: no two executions are farther apart; at most twice the tolerance.
    arithmetic : Arithmetic
        The executions that this holds for.
    layers : mapping of str to float
        How much each layer contributes to the largest distance, the most first; they sum to it.
    unbounded : tuple of str
        Names of layers about which nothing is proven: overflow is possible, a divisor may be 0, ...
    deployment : mapping of str to str
        The class of executions in sentences, by topic.
    points : int or None
        How many inputs; None: one, without an axis in front.
    notes : tuple of str
        What else a reader should know.
    seconds : float
        How long it took.

    Examples
    --------
    >>> import specgrad as sg
    >>> proven = sg.check.tolerance(sg.trace(lambda x: sg.sum(x) / 3, (3,)), np.float32([1, 2, 4]))
    >>> proven.formats, proven.unbounded, bool(proven.pairwise_tolerances[0] <= 2 * proven.tolerances[0])
    (('float32',), (), True)
    """

    names: tuple[str, ...]
    formats: tuple[str, ...]
    exact: tuple[Array, ...]
    tolerances: tuple[Array, ...]
    pairwise_tolerances: tuple[Array, ...]
    arithmetic: Arithmetic
    layers: Mapping[str, float] = field(default_factory=dict)
    unbounded: tuple[str, ...] = ()
    deployment: Mapping[str, str] = field(default_factory=dict)
    points: int | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def tolerance(self) -> float:
        """The largest proven distance from the exact result, over all outputs."""
        return max((float(d.max(initial=0.0)) for d in self.tolerances), default=0.0)

    @property
    def pairwise_tolerance(self) -> float:
        """The most that two executions can be apart, over all outputs."""
        return max((float(d.max(initial=0.0)) for d in self.pairwise_tolerances), default=0.0)

    @property
    def verdict(self) -> str:
        """ "bounded", or "unbounded" if some tolerance is infinite."""
        return "bounded" if math.isfinite(self.tolerance) else "unbounded"

    @cached_property
    def ulps(self) -> tuple[Array, ...]:
        """`tolerances` in units in the last place: of the output's format, at the exact value."""
        outputs = zip((FORMATS[name] for name in self.formats), self.exact, self.tolerances, strict=True)
        return tuple(
            np.ldexp(d, -(np.maximum(np.frexp(v)[1] - 1, form.lowest) - (form.digits - 1))) for form, v, d in outputs
        )

    @cached_property
    def largest(self) -> OutputCell | None:
        """The cell with the largest distance; None where no output has a cell."""
        sizes = [d.max() if d.size else -1.0 for d in self.tolerances]
        k = int(np.argmax(sizes))
        if sizes[k] < 0:
            return None
        where = np.unravel_index(int(np.argmax(self.tolerances[k])), self.tolerances[k].shape)
        place = tuple(int(i) for i in where)
        point = None if self.points is None else place[0]
        exact, distance, ulps = (float(a[k][place]) for a in (self.exact, self.tolerances, self.ulps))
        return OutputCell(self.names[k], place if point is None else place[1:], exact, distance, ulps, point)

    @cached_property
    def _allclose_pair(self) -> tuple[float, float]:
        """Return (rtol, atol) of an assert_allclose that every two executions pass."""
        sizes = [np.abs(v) for v in self.exact]
        with np.errstate(invalid="ignore"):
            least = [np.fmax((s - d) * (1 - ROUNDING_SLACK), 0.0) for s, d in zip(sizes, self.tolerances, strict=True)]
        coarsest = min((FORMATS[name] for name in self.formats), key=lambda form: form.digits)
        return allclose_pair(self.pairwise_tolerances, least, sizes, coarsest)

    @property
    def rtol(self) -> float:
        """Return the rtol with which, beside `atol`, numpy.testing.assert_allclose holds for any two executions."""
        return self._allclose_pair[0]

    @property
    def atol(self) -> float:
        """Absolute tolerance with which, beside `rtol`, numpy.testing.assert_allclose holds for any two executions."""
        return self._allclose_pair[1]

    @property
    def text(self) -> str:
        """`tolerance` with four digits, not below it."""
        return upward(self.tolerance)

    @property
    def assert_line(self) -> str:
        """Return the line of numpy.testing to paste into a test that compares two executions."""
        return f"numpy.testing.assert_allclose(a, b, rtol={self.rtol:g}, atol={self.atol:g})"

    @property
    def executions(self) -> str:
        """Return the class of executions in a few words; `deployment` says all of it."""
        others = ", ".join(sorted(set(self.formats) - {self.arithmetic.dtype}))
        declared = f", {others} where the model says so" if others else ""
        return f"{words_of(self.arithmetic)}{declared}"

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return what is proven, and the largest tolerance of every output, as HTML for notebooks."""
        rows = [
            (name, "x".join(map(str, d.shape)), form, upward(float(d.max(initial=0.0))))
            for name, form, d in zip(self.names, self.formats, self.tolerances, strict=True)
        ]
        return html_page.fragment(self.verdict, self.sentences(), ("output", "shape", "format", "tolerance"), rows)

    def sentences(self) -> list[str]:
        """Return what is proven in words, and the line to paste into a test."""
        where = "at this input" if self.points is None else f"at any of these {self.points} inputs"
        if self.verdict == "unbounded":
            names = ", ".join(self.unbounded[:3])
            return [f"unbounded {where}: {f'nothing is proven of {names}' if names else 'nothing is proven'}"]
        cell = self.largest
        farthest = f"; farthest at {cell}, {cell.exact:.6g}, by {cell.ulps:.3g} units in the last place" if cell else ""
        pairwise = upward(self.pairwise_tolerance)
        return [
            f"No execution ({self.executions}) is farther than {self.text} from the exact outputs {where}{farthest}.",
            f"No two are farther than {pairwise} from each other, so any two of them, a and b, pass",
            f"    {self.assert_line}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: tolerance, pairwise_tolerance, rtol, atol, the cell with the `largest`, each output,
        layers, unbounded, points, notes, deployment, seconds.

        null stands for what is unbounded.
        """
        cell = self.largest
        outputs = zip(self.names, self.formats, self.exact, self.tolerances, self.pairwise_tolerances, strict=True)
        return {
            "tolerance": _finite_or_none(self.tolerance),
            "pairwise_tolerance": _finite_or_none(self.pairwise_tolerance),
            "rtol": _finite_or_none(self.rtol),
            "atol": _finite_or_none(self.atol),
            "largest": None if cell is None else _cell_json(cell),
            "outputs": [
                {
                    "name": name,
                    "dtype": dtype,
                    "exact": _nested_list(exact),
                    "tolerance": _nested_list(tolerance),
                    "pairwise_tolerance": _nested_list(pairwise),
                }
                for name, dtype, exact, tolerance, pairwise in outputs
            ],
            "layers": dict(self.layers),
            "unbounded": list(self.unbounded),
            "points": self.points,
            "notes": list(self.notes),
            "deployment": dict(self.deployment),
            "seconds": self.seconds,
        }


def _cell_json(cell: OutputCell) -> dict[str, Any]:
    """Return one output cell as JSON data: output, index, point, exact, tolerance, ulps; null for numbers that are not
    finite.
    """
    numbers = {
        "exact": _finite_or_none(cell.exact),
        "tolerance": _finite_or_none(cell.tolerance),
        "ulps": _finite_or_none(cell.ulps),
    }
    return {"output": cell.output, "index": list(cell.index), "point": cell.point, **numbers}


def _finite_or_none(x: float) -> float | None:
    """Return x, or None if it is not finite."""
    return x if math.isfinite(x) else None


def _nested_list(array: Array) -> Any:
    """Return nested lists of an array's cells, None for those that are not finite."""
    cells = array.astype(object)
    cells[~np.isfinite(array)] = None
    return cells.tolist()


def words_of(a: Arithmetic) -> str:
    """Return the class of executions `a` in a few words.

    >>> words_of(Arithmetic(operands="tf32", depth=64))
    'float32 with tf32 operands, fused, sums at most 64 roundings deep'
    """
    operands = f" with {a.operands} operands" if a.operands else ""
    sums = f" with {a.accumulate} sums" if a.accumulate else ""
    more = f", sums at most {_roundings_text(a.depth)} deep" if a.depth else ""
    more += f", by tensor cores ({a.cores})" if a.cores else ""
    more += ", casts may be dropped" if a.casts == "dropped" else ""
    return f"{a.dtype}{operands}{sums}, {'fused' if a.fused else 'by node'}{more}"


def _roundings_text(count: int) -> str:
    """Return `count` as text: "1 rounding", "2 roundings", ..."""
    return f"{count} rounding{'s' if count > 1 else ''}"


def tolerance(
    model: Any,
    *inputs: Any,
    arithmetic: Arithmetic | None = None,
    stored: Collection[str] = (),
    points: bool = False,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Tolerance:
    """Return the largest distance of any execution's outputs from the exact ones, at the given inputs.

    Parameters
    ----------
    model : Graph, path, bytes, ModelProto or nn.Module
        A Graph, an ONNX file (path, bytes or ModelProto) or a PyTorch module.
    *inputs : array
        One per input of the model.
    arithmetic : Arithmetic, optional
        The executions that are meant; float32, fused, if not given (docs/reference/executions.md).
    stored : collection of str, optional
        Names of nodes whose results the runtime is known to round and store: nothing is merged across them.
    points : bool, default False
        The first axis of every input counts points, each of which is an input by itself.
    seconds : float, optional
        After which nothing more is carried backwards, and nothing is at all where it is guessed to take longer: bounds
        hold, and are wide.
    progress : callable, optional
        Called with (what is at work, how many points are done, how many there are).

    Returns
    -------
    Tolerance
        Per output and cell; it prints.

    Raises
    ------
    ParameterError
        If there is no point, or no output of numbers.

    Examples
    --------
    >>> import specgrad as sg
    >>> mean = sg.trace(lambda x: sg.sum(x) / 3, (3,))
    >>> proven = tolerance(mean, np.float32([1, 2, 4]))
    >>> bool(2e-7 < proven.tolerance < 2e-6), proven.rtol
    (True, 0.0)
    """
    need("torch", "tolerance needs")
    start = time.monotonic()
    arithmetic = arithmetic or Arithmetic()
    arithmetic.check_plain("tolerance")
    at = at_points(model, inputs, "tolerance", arithmetic, points)
    left = None if seconds is None else start + seconds - time.monotonic()
    proven = tolerance_at(at, arithmetic, stored, points, left, progress)
    return replace(proven, seconds=time.monotonic() - start)


def tolerance_at(
    at: ModelAtPoints,
    arithmetic: Arithmetic,
    stored: Collection[str] = (),
    points: bool = False,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Tolerance:
    """Return the tolerance of a model that was read already, `at` its points.

    TimeLimitError when the time is over.

    arithmetic, stored, points, seconds, progress   those of `tolerance`
    """
    check_time("tolerance")  # before PyTorch is imported
    start = time.monotonic()
    answers = []
    for k, one in enumerate(at.points):
        if progress is not None:
            progress("tolerance", k, len(at.points))
        left = None if seconds is None else start + seconds - time.monotonic()
        answers.append(bound_point(at.graph, one, arithmetic, stored, at.formats, left))
    return _merge_points(at.graph, at.formats, arithmetic, answers, points, time.monotonic() - start)


def _merge_points(
    graph: Graph,
    formats: Mapping[str, str],
    arithmetic: Arithmetic,
    answers: list[Point],
    points: bool,
    seconds: float,
) -> Tolerance:
    """Return the tolerance of one point, or of several (`points`) stacked along a first axis, from an answer per point.

    `formats` are those of nodes in other formats; it took `seconds`.
    """
    farthest = max(answers, key=lambda answer: answer.largest)
    exact, distance, between = (
        tuple(np.stack(arrays) if points else arrays[0] for arrays in zip(*per_answer, strict=True))
        for per_answer in ([a.values for a in answers], [a.distance for a in answers], [a.between for a in answers])
    )
    unbounded = tuple(dict.fromkeys(name for a in answers for name in a.unbounded))
    names = tuple(graph.nodes[p].name for p in graph.real_outputs)
    return Tolerance(
        names,
        tuple(formats[n] if formats.get(n) in FORMATS else arithmetic.dtype for n in names),
        exact,
        distance,
        between,
        arithmetic,
        farthest.layers,
        unbounded,
        describe_formats(deployment_of(arithmetic, graph), formats),
        len(answers) if points else None,
        (*_tolerance_notes(graph, formats, arithmetic), *(answer.note for answer in answers[:1] if answer.note)),
        seconds,
    )


def _tolerance_notes(graph: Graph, formats: Mapping[str, str], arithmetic: Arithmetic) -> tuple[str, ...]:
    """Return notes on what the tolerance in `arithmetic` rests on or leaves out.

    `formats` are those of nodes in other formats.
    """
    notes = []
    if arithmetic.depth is not None:
        text = f"that no term of a sum meets more than {_roundings_text(arithmetic.depth)}"
        notes.append(f"{text} is your statement about the runtime; nothing here examines it")
    if formats:
        kinds = ", ".join(sorted(set(formats.values())))
        notes.append(f"the model computes in {kinds} too: what is proven was carried forwards alone")
    if len(graph.real_outputs) < len(graph.output_positions):
        notes.append("outputs that hold positions have no tolerance, and are left out")
    return tuple(notes)
