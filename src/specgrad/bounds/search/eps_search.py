"""The largest eps: what is proven, what a counterexample breaks, and the gap between them.

What holds within eps holds within less, and what is broken within eps is broken within more, so two ends close in on
each other: one moves up where `certify` proves, the other down to where a counterexample lies. Neither is an estimate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, ROUND_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.errors import ContradictionError, ParameterError
from specgrad.properties.ball import norm_upper_bound
from specgrad.properties.property import exactly, limit
from specgrad.scalar import float_above, float_below

from .certify import CertifyResult, certify
from .network.pgd_attack import Counterexample

CLOSE = Fraction(1, 100)  # the ends are close enough when their gap is this share of the larger
PARTS = 6  # one verdict may take this part of the time that is left
DIGITS = 4  # of every eps that is tried, so that what is printed is what was proven
FIRST = Fraction(1, 256)
LARGEST = Fraction(2) ** 20


@dataclass(frozen=True, eq=False)
class LargestEps:
    """Result of the search for the largest eps: what is proven, and what is violated.

    Attributes
    ----------
    proven : Fraction or None
        No input within this eps breaks the property, for every execution; None: not even x is proven.
    violated : Fraction or None
        The distance of the nearest counterexample that was found (a root is rounded up, by 2**-64 of it at most); None:
        none was.
    verdict : CertifyResult or None
        What `certify` said at `proven`.
    counterexample : Counterexample or None
        The one at `violated`, run in float32.
    certificate : Certificate or None
        With certificates=True: the proof at `proven`.
    tried : tuple of (Fraction, str)
        Every eps that was tried, and what came out.
    reason : str
        Why the ends are not closer.

    Examples
    --------
    >>> import specgrad as sg
    >>> from specgrad.bounds import largest_eps
    >>> graph = sg.trace(lambda x: sg.linear(np.float32([[1, 1], [1, -1]]), None, x), (2,))
    >>> found = largest_eps(graph, np.float32([1.0, 0.5]), 0)
    >>> found.proven < Fraction(1, 2) <= found.violated, found.verdict.verdict
    (True, 'holds')
    """

    proven: Fraction | None
    violated: Fraction | None
    verdict: CertifyResult | None
    counterexample: Counterexample | None
    certificate: Any = None
    tried: tuple[tuple[Fraction, str], ...] = ()
    reason: str = ""

    @property
    def kind(self) -> str:
        """ "holds" if some eps above 0 is proven, "violated" if x itself is a counterexample, else "unknown"."""
        if self.violated == 0:
            return "violated"
        return "holds" if self.proven else "unknown"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `proven` (rounded down), `violated` (up), `gap`, `reason`, `tried` with the verdict on each
        eps, `deployment`, `notes`, and `counterexample` if there is one.
        """
        data: dict[str, Any] = {"proven": _float_toward(self.proven), "violated": _float_toward(self.violated, up=True)}
        data |= {"gap": _float_toward(self.gap, up=True), "reason": self.reason}
        data["tried"] = [{"eps": _float_toward(eps), "verdict": verdict} for eps, verdict in self.tried]
        data["deployment"] = {} if self.verdict is None else self.verdict.deployment
        data["notes"] = [] if self.verdict is None else list(self.verdict.notes)
        if self.counterexample is not None:
            data["counterexample"] = self.counterexample.to_json()
        return data

    @property
    def gap(self) -> Fraction | None:
        """Difference of both ends; None if one is missing."""
        return None if self.proven is None or self.violated is None else self.violated - self.proven

    def __str__(self) -> str:
        proven = "nothing is proven" if self.proven is None else f"proven within {shown(self.proven)}"
        violated = (
            "no counterexample was found"
            if self.violated is None
            else f"violated within {shown(self.violated, up=True)}"
        )
        gap = f"; gap {shown(self.gap, up=True)}" if self.gap is not None else ""
        return f"{proven}; {violated}{gap}{f' ({self.reason})' if self.reason else ''}"


def shown(value: Fraction, *, up: bool = False) -> str:
    """Return a value as text with 6 digits, never beyond what is known: rounded down, or up if `up`.

    >>> shown(Fraction(1, 3)), shown(Fraction(1, 3), up=True), shown(Fraction(1, 4))
    ('0.333333', '0.333334', '0.25')
    """
    context = Context(prec=6, rounding=ROUND_UP if up else ROUND_DOWN)
    return format(context.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(context), "f")


def _float_toward(value: Fraction | None, *, up: bool = False) -> float | None:
    """Nearest float64 not above the value, or not below it if `up`; None stays None."""
    if value is None:
        return None
    return float_above(value) if up else float_below(value)


def _few_digits(value: Fraction) -> Fraction:
    """Return `value` rounded down to DIGITS significant digits, as a fraction."""
    context = Context(prec=DIGITS, rounding=ROUND_DOWN)
    return Fraction(context.divide(Decimal(value.numerator), Decimal(value.denominator)))


def largest_eps(
    model: Any,
    x: Any,
    label: int,
    *,
    seconds: float = 300.0,
    low: Any = None,
    high: Any = None,
    norm: str = "inf",
    arithmetic: Any = None,
    shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    source: Any = None,
    certificates: bool = False,
    first: Any = FIRST,
    progress: Callable[[str, int, int], None] | None = None,
) -> LargestEps:
    """Return how far x may move while the label's output stays the largest: a proven eps and a violated one.

    Parameters
    ----------
    model : Graph, path, bytes, ModelProto or nn.Module
        A Graph (its weights are constants), an ONNX file, or a PyTorch module (with a property file, give its input's
        shape); of a property about several networks, one per name: {"f": "f.onnx", "g": "g.onnx"}.
    x : array_like
        The input; of several inputs, an array for each.
    label : int
        Number of the output that must stay the largest.
    seconds : float, default 300.0
        For everything.
    low : number or array_like, optional
        Lower limit of every input cell.
    high : number or array_like, optional
        Upper limit of every input cell.
    norm : str, default "inf"
        How far an input is from x: "inf" is cell by cell, "2" the root of the sum of squares, "1" the sum.
    arithmetic : Arithmetic, optional
        The executions to prove it for; float32, fused, if not given.
    shape : sequence of int, or mapping, optional
        Shape of the input, where the model leaves sizes open; else that of x, or what the property's inputs fill, a
        batch being 1. Of several inputs: a shape per name.
    source : path, bytes, ModelProto or nn.Module, optional
        The model that a Graph was read from: counterexamples are run on it too.
    certificates : bool, default False
        Count as proven only what has a certificate, and give it.
    first : number, default 1/256
        The eps to begin with.
    progress : callable, optional
        Called along the way with (what, done, total).

    Returns
    -------
    LargestEps
        A proven eps and a violated one.

    Raises
    ------
    ParameterError
        If `first` is not larger than 0 ([P5]).
    PropertyError
        For a label that is no output, and another norm.

    Examples
    --------
    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.linear(np.float32([[1, 1], [1, -1]]), None, x), (2,))
    >>> answer = largest_eps(graph, np.float32([1.0, 0.5]), 0)      # y_0 - y_1 = 2*x_1 > 0 for eps < 0.5
    >>> 0.49 < answer.proven < 0.5 <= answer.violated < 0.51
    True
    >>> both = sg.trace(lambda x, z: sg.linear(np.float32([[1, 1], [0, 0]]), None, sg.concat([x, z], 0)), (1,), (1,))
    >>> answer = largest_eps(both, {"x": [0.5], "z": [0.5]}, 0, norm="1")      # x + z > 0 for eps < 1
    >>> 0.99 < answer.proven < 1 <= answer.violated < 1.01
    True
    """
    begin = exactly("largest_eps", "first", first)
    if begin <= 0:
        raise ParameterError("largest_eps", f"first must be larger than 0; got {first}", rule="P5")
    search = _EpsSearch(model, x, label, time.monotonic() + seconds, certificates, progress)
    least, most = limit("largest_eps", "low", low, -1), limit("largest_eps", "high", high, 1)
    search.options = {"low": least, "high": most, "norm": norm, "arithmetic": arithmetic, "shape": shape}
    search.source = source
    search.run(_few_digits(begin) or FIRST)
    return search.answer()


@dataclass
class _EpsSearch:
    """Search for the largest eps of one model and input: the proven end rises, the violated end falls.

    label         the output that must stay the largest
    certificates  count as proven only what has one
    options       of `certify`; source its model file
    tried         verdicts by eps; reason why the search ended
    x             the input around which the box lies: an array, or several
    deadline      when the search ends, by time.monotonic
    progress      is told how far the search has come; None: nobody is
    low_end       the largest proven eps, its verdict and its certificate; None: none yet
    high_end      the smallest eps with a counterexample, and that; None: none yet
    """

    model: Any
    x: Any
    label: int
    deadline: float
    certificates: bool
    progress: Callable[[str, int, int], None] | None
    options: dict[str, Any] = field(default_factory=dict)
    source: Any = None
    low_end: tuple[Fraction, CertifyResult, Any] | None = None
    high_end: tuple[Fraction, Counterexample] | None = None
    tried: dict[Fraction, str] = field(default_factory=dict)
    reason: str = ""

    def run(self, first: Fraction) -> None:
        """Double eps from `first` while it is proven, bisect the proven end, then the violated one."""
        if self._certify_at(Fraction(0)) != "holds":
            self.reason = self.reason or "not even the input itself is proven"
            return
        eps = first
        while (
            self._certify_at(eps) == "holds"
            and not self._is_over()
            and eps < LARGEST
            and not self._covers_all_inputs(eps)
        ):
            eps *= 2
        self._bisect_proven()
        if self.high_end is None and not self._is_over() and not self._covers_all_inputs(self._proven_eps()):
            self._find_violated()
        self._bisect_violated()
        if self._is_over() and not self._is_close():
            self.reason = "the time was over"

    def _proven_eps(self) -> Fraction:
        """Largest proven eps, 0 if none is."""
        return Fraction(0) if self.low_end is None else self.low_end[0]

    def _ceiling(self) -> Fraction | None:
        """Least eps that was tried and not proven, or has a counterexample; None if there is none."""
        open_ = [eps for eps, verdict in self.tried.items() if verdict != "holds"]
        return min([*open_, *([self.high_end[0]] if self.high_end else [])], default=None)

    def _bisect_proven(self) -> None:
        """Raise the largest proven eps by bisection, until it is close to its ceiling or the time is over."""
        while not self._is_over() and (ceiling := self._ceiling()) is not None:
            middle = _few_digits((self._proven_eps() + ceiling) / 2)
            if ceiling - self._proven_eps() <= CLOSE * ceiling or middle in self.tried:
                return
            self._certify_at(middle)

    def _find_violated(self) -> None:
        """Look for a counterexample at eps that doubles each time, until one is found or the time is over."""
        eps = max(self.tried) * 2
        while self.high_end is None and eps < LARGEST and not self._is_over():
            self._certify_at(eps)
            if self._covers_all_inputs(eps):
                return
            eps *= 2

    def _bisect_violated(self) -> None:
        """Lower the violated end by bisection, down to the largest eps that is not violated."""
        while not self._is_over() and self.high_end is not None and not self._is_close():
            open_ = [e for e, v in self.tried.items() if e < self.high_end[0]]
            middle = _few_digits((max(open_) + self.high_end[0]) / 2)
            if self.high_end[0] - max(open_) <= CLOSE * self.high_end[0] or middle in self.tried:
                return
            self._certify_at(middle)

    def _certify_at(self, eps: Fraction) -> str:
        """Certify one eps, move the proven or the violated end accordingly, and return the verdict; `tried` records it.

        ContradictionError if an eps is proven above one that a counterexample breaks.
        """
        left = max(0.0, self.deadline - time.monotonic())
        if self.progress is not None:
            self.progress(f"eps {shown(eps)}", len(self.tried), 0)
        about = {**self.options, "source": self.source}
        verdict = certify(self.model, (self.x, self.label, eps), seconds=left / PARTS, **about)
        outcome: str = verdict.verdict
        if verdict.counterexample is not None:
            self._lower_violated_end(verdict)
        elif outcome == "holds":
            outcome = self._raise_proven_end(eps, verdict)
        elif verdict.reason:
            self.reason = f"at {shown(eps)}: {verdict.reason}"
        self.tried[eps] = outcome
        return outcome

    def _lower_violated_end(self, verdict: CertifyResult) -> None:
        """Move the violated end to the counterexample's own distance, which may be less than the eps that was tried.

        ContradictionError if that is proven. `verdict` is "violated".
        """
        point = verdict.counterexample
        assert point is not None
        distance = norm_upper_bound([at - cell for at, cell in self._cell_pairs(point)], self.options["norm"])
        if self.low_end is not None and distance <= self.low_end[0]:
            where = f"a counterexample at {shown(distance)}, where {shown(self.low_end[0])} is proven"
            raise ContradictionError(f"largest_eps: {where}")
        if self.high_end is None or distance < self.high_end[0]:
            self.high_end = distance, point
        if verdict.reason:
            self.reason = verdict.reason

    def _raise_proven_end(self, eps: Fraction, verdict: CertifyResult) -> str:
        """Move the proven end to eps, with a certificate if asked for; return the verdict.

        ContradictionError if a counterexample is no further away.
        """
        certificate = None
        if self.certificates:
            from .certificates.prove import NoCertificateError, prove

            try:
                seconds = max(1.0, (self.deadline - time.monotonic()) / PARTS)
                options = {**self.options, "trees": verdict.trees, "seconds": seconds}
                certificate = prove(self.model, (self.x, self.label, eps), **options)
            except NoCertificateError as error:
                self.reason = f"at {shown(eps)}: {error}"
                return "holds without a certificate"
        if self.high_end is not None and eps >= self.high_end[0]:
            where = f"{shown(eps)} is proven, and there is a counterexample at {shown(self.high_end[0])}"
            raise ContradictionError(f"largest_eps: {where}")
        if self.low_end is None or eps > self.low_end[0]:
            self.low_end = eps, verdict, certificate
        return "holds"

    def _is_over(self) -> bool:
        """Return whether the deadline has passed by now."""
        return time.monotonic() >= self.deadline

    def _is_close(self) -> bool:
        """Whether both ends are within CLOSE of each other."""
        high = self.high_end
        return high is not None and high[0] - self._proven_eps() <= CLOSE * high[0]

    def _covers_all_inputs(self, eps: Fraction) -> bool:
        """Whether eps already covers all inputs between low and high."""
        low, high = self.options["low"], self.options["high"]
        if low is None or high is None:
            return False
        arrays = self.x.values() if isinstance(self.x, Mapping) else _as_list(self.x)
        cells = [Fraction(v) for a in arrays for v in np.ravel(a).tolist()]
        farthest = [max(c - low, high - c) for c in cells]
        return norm_upper_bound(farthest, self.options["norm"]) <= eps

    def _cell_pairs(self, point: Counterexample) -> Iterator[tuple[Fraction, Fraction]]:
        """Yield (cell of the counterexample `point`, cell of x), exact numbers, for every cell of every input."""
        if isinstance(self.x, Mapping):
            pairs = [(point.exact[name], array) for name, array in self.x.items()] if point.exact else []
            pairs = pairs or [(np.array(point.point, dtype=object), array) for array in self.x.values()]
        else:
            pairs = [(np.array(point.point, dtype=object), np.concatenate([np.ravel(a) for a in _as_list(self.x)]))]
        for exact, array in pairs:
            for at, cell in zip(np.ravel(exact), np.ravel(array).tolist(), strict=True):
                yield at, Fraction(cell)

    def answer(self) -> LargestEps:
        """Return both ends with their evidence, all eps tried, and why the search ended."""
        proven, verdict, certificate = self.low_end or (None, None, None)
        broken, point = self.high_end or (None, None)
        reason = "" if self.low_end is not None and self._is_close() else self.reason
        if self.low_end is not None and self._covers_all_inputs(self._proven_eps()):
            reason = "that is every input between low and high"
        return LargestEps(proven, broken, verdict, point, certificate, tuple(self.tried.items()), reason)


def _as_list(x: Any) -> Sequence[Any]:
    """Return the arrays of several inputs (a tuple) as a list; anything else is one input, alone in a list."""
    return list(x) if isinstance(x, tuple) else [x]
