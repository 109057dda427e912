"""What `compare` says of two models: the verdict, what it rests on, sentences and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specgrad import html_page
from specgrad.equivalence.matching import Weights
from specgrad.execution_text import but
from specgrad.rounding import Arithmetic
from specgrad.scalar import Array

from ..tolerances.tolerance import words_of
from .box_difference import BoxDifference

MAX_LISTED_CELLS = 100_000  # cells of an input that are listed
SAME, WITHIN_ROUNDING, DIFFERS, UNKNOWN = "same", "same within rounding", "differs", "cannot tell"


@dataclass(frozen=True, eq=False)
class PointDifference:
    """The difference at one input and output cell: between `lower` and `upper`; the first network has `value`.

    within_rounding  whether float32 executions of both could give equal outputs: their tolerances meet everywhere
                     (None: not known). It does not say that the functions are the same
    allowed          the sum of both tolerances at that cell
    inputs, about    the input, one array per input of the networks, and how it came about, in words
    output, index    number of the output, and the cell in it
    how              with what the difference was computed, in words
    """

    inputs: tuple[Array, ...]
    about: str
    lower: float
    upper: float
    output: int
    index: tuple[int, ...]
    value: float
    how: str
    within_rounding: bool | None = None
    allowed: float = math.nan

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: all fields by name but the inputs; `allowed` is null for a tolerance that is not known."""
        names = ("about", "lower", "upper", "output", "index", "value", "how", "within_rounding")
        return {
            **{name: getattr(self, name) for name in names},
            "allowed": None if math.isnan(self.allowed) else self.allowed,
        }


@dataclass(frozen=True)
class ExecutedApart:
    """Executions of two equal functions that differ by more than one of the two may be off from exact values.

    values          what an execution of the first model gives at an output cell, and one of the second
    tolerances      no execution of the first, of the second, is farther from the exact value there
    about           which input was executed, in words
    output, index   number of the output, and the cell in it
    """

    about: str
    output: int
    index: tuple[int, ...]
    values: tuple[float, float]
    tolerances: tuple[float, float]

    def sentence(self, words: str) -> str:
        """Return the difference as a sentence; `words` names the class of executions."""
        (a, b), (p, q) = self.values, self.tolerances
        place = f"output {self.output}[{', '.join(map(str, self.index))}]"
        ran = f"at {self.about} an execution of the first has {a:.6g} as {place}, one of the second {b:.6g}"
        return f"not alike as programs ({words}): {ran}; they may be off by {p:.2g} and {q:.2g} there"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: about (which input), output, index (which cell), values and tolerances (two each); null for
        numbers that are not finite.
        """
        values, tolerances = ([x if math.isfinite(x) else None for x in xs] for xs in (self.values, self.tolerances))
        where = {"about": self.about, "output": self.output, "index": self.index}
        return {**where, "values": values, "tolerances": tolerances}


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of `compare`: what is proven of two models.

    Attributes
    ----------
    verdict : {"same", "same within rounding", "differs", "cannot tell"}
        "same": one function over real numbers, at these shapes; "same within rounding": one structure, whose constants
        differ by no more than folding them in float32 explains; "differs": shown at an input, or the models take or
        give different things; "cannot tell": none of these was shown.
    method : str
        How: "node for node" or "by rewriting over exact numbers"; of a difference, in words.
    interface : tuple of str
        What the models declare differently: names, element types, open sizes, inputs with a default. Where there is
        anything they are not the same node for node.
    executed : ExecutedApart or None
        Where the same function was shown by rewriting: executions that are farther apart than the tolerance of one of
        the two models; None: none were seen, or none were looked for.
    weights : Weights or None
        Where the structures agree: the constants that differ the most; None: they do not agree.
    points : tuple of PointDifference
        The inputs that were looked at.
    box : BoxDifference or None
        Where asked for: how far apart on the whole box, exact outputs and executions of `arithmetic`.
    divergent_layers : (str, str) or None
        The first layers, of both, that compute what the other model computes nowhere.
    first_divergent_value : str or None
        The first layer of the first model whose values, up to float32, the other model has nowhere; None: every layer's
        values are there, or nothing was looked at.
    shapes : mapping of str to shape
        The shapes of the inputs at which the models were compared, by name.
    arithmetic : Arithmetic
        The executions whose rounding the difference is held against.
    deployment : mapping of str to str
        The class of executions in sentences, by topic.
    notes : tuple of str
        What else to know.
    seconds : float
        How long the comparison took.

    Examples
    --------
    >>> import specgrad as sg
    >>> a, b = (sg.trace(lambda x, k=k: x * k, (2,)) for k in (2.0, 3.0))
    >>> found = sg.check.compare(a, b, np.float32([1, 1]))
    >>> found.verdict, round(found.max_difference, 6)
    ('differs', 1.0)
    """

    verdict: str
    method: str
    interface: tuple[str, ...] = ()
    executed: ExecutedApart | None = None
    weights: Weights | None = None
    points: tuple[PointDifference, ...] = ()
    box: BoxDifference | None = None
    divergent_layers: tuple[str, str] | None = None
    first_divergent_value: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    deployment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def witness(self) -> PointDifference | None:
        """The input that shows the difference."""
        return next((p for p in self.points if p.lower > 0), None)

    @property
    def max_difference(self) -> float | None:
        """The proven largest distance: over the box, else at the inputs given; None: none is proven."""
        ends = [self.box.max_difference] if self.box is not None else [p.upper for p in self.points]
        return max(ends) if ends and math.isfinite(max(ends)) else None

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the comparison as HTML for notebooks."""
        return html_page.fragment(self.verdict, [*self.sentences(), *self.notes], (), ())

    def sentences(self) -> list[str]:
        """Return the comparison as lines of text, the first "verdict: method"."""
        lines = [f"{self.verdict}: {self.method}", *(f"interface: {text}" for text in self.interface)]
        if self.executed is not None:
            lines.append(self.executed.sentence(words_of(self.arithmetic)))
        if self.weights is not None and self.verdict != SAME:
            lines += _weight_sentences(self.weights)
        for p in self.points:
            place = f"[{', '.join(map(str, p.index))}]"
            lines.append(f"{p.about}: output {p.output}{place} is {p.value:.6g}, apart by {_bound_text(p)} ({p.how})")
            if p.within_rounding is not None:
                lines.append(f"  {_rounding_text(p)}")
        if self.box is not None:
            lines += self.box.sentences(words_of(self.arithmetic), but(self.deployment))
        if self.divergent_layers is not None and any(self.divergent_layers):
            lines.append(
                f"they part, in form, at {self.divergent_layers[0] or '-'} and {self.divergent_layers[1] or '-'}"
            )
        if self.first_divergent_value is not None:
            lines.append(f"they part, in value up to float32, at {self.first_divergent_value}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return JSON data of what the verdict rests on, without the verdict: method, interface, executed, weights,
        points, box, inputs (shapes), witness, notes, ...

        Keys as in the schema of `specgrad compare --json`; null for what was not asked or found.
        """
        weights: dict[str, Any] | None = None
        if self.weights is not None:
            weights = {"max_difference": self.weights.max_difference, "largest": self.weights.largest}
            weights |= {"layers": list(self.weights.layers), "roundings": self.weights.roundings}
            weights |= {"units": self.weights.units if math.isfinite(self.weights.units) else None}
            weights |= {"within_rounding": self.weights.within_rounding}
        witness = self.witness
        small = witness is not None and sum(x.size for x in witness.inputs) <= MAX_LISTED_CELLS
        return {
            "method": self.method,
            "interface": list(self.interface),
            "executed": None if self.executed is None else self.executed.to_json(),
            "weights": weights,
            "points": [p.to_json() for p in self.points],
            "max_difference": self.max_difference,
            "box": None if self.box is None else self.box.to_json(),
            "divergent_layers": None if self.divergent_layers is None else list(self.divergent_layers),
            "first_divergent_value": self.first_divergent_value,
            "inputs": {name: list(shape) for name, shape in self.shapes.items()},
            "witness": [x.tolist() for x in witness.inputs] if witness is not None and small else None,
            "deployment": dict(self.deployment),
            "notes": list(self.notes),
            "seconds": self.seconds,
        }


def _weight_sentences(w: Weights) -> list[str]:
    """Return how constants differ, and what of it folding in float32 explains, as lines of text."""
    size = f"{w.max_difference:.3g} ({w.relative:.2g} of the largest there)"
    first = f"same structure; weights differ by at most {size}, the most in {w.layers[0] or 'a constant'}"
    units = f"at most {w.units:.3g} * 2**-24 of what each was folded from"
    if w.within_rounding:
        return [first, f"{units}: a float32 program that folds them may round one {w.roundings} times"]
    folded = "" if w.roundings else "; neither model leaves anything to fold"
    return [first, f"{units}, more than folding in float32 explains{folded}"]


def _bound_text(p: PointDifference) -> str:
    """Return the bound of the difference as text."""
    return f"{p.upper:.3g} at most" if p.lower == 0 else f"{p.lower:.6g} at least"


def _rounding_text(p: PointDifference) -> str:
    """Return whether rounding could explain the difference, as text."""
    if p.within_rounding:
        return f"within rounding of float32 ({p.allowed:.2g} there): outputs alone cannot tell them apart"
    return f"beyond rounding of float32 ({p.allowed:.2g} there)"
