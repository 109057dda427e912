"""Judge several layers of which only the last was observed: a part of a model, or all of it.

The values between were not observed, so the allowance is all that there is: the verdict says what is consistent with
it, in which arithmetic, and how much is allowed. A fault whose effect stays below that is not detected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from specgrad.rounding import Arithmetic

from ..tolerances.allowance import TIGHT_SHARE, Allowance, Clock, allowance
from ..verdicts.arithmetic_classes import CLASSES, FLOAT32, ArithmeticClass, Probe, reclassify
from ..verdicts.judge import Verdict, judge_array, worst
from ..verdicts.observation import Observation

MAX_NAMED_SHARE = 1 / 8  # of the largest value: a class that allows more would explain most faults too


@dataclass(frozen=True)
class MergedLayersJudge:
    """Judges results of several layers of which only the last was observed.

    accept         classes of arithmetic that may explain them beside float32; None: no class is looked for
    formats        name of a node -> what it is computed in, where that is not float32
    outputs_only   nothing else is known of these layers: the allowance is to be as narrow as can be
    name           of the arithmetic, in words
    clock          seconds that tolerances may still take
    """

    arithmetic: Arithmetic
    clock: Clock
    accept: Collection[str] | None = ()
    formats: Mapping[str, str] = field(default_factory=dict)
    outputs_only: bool = False
    name: str = FLOAT32

    def judge(self, observed: Observation, probe: Probe | None = None) -> tuple[Verdict, Allowance]:
        """Return the verdict on the results in `observed`, and their allowance in float32; `probe` can confirm a class
        of arithmetic.
        """
        allowed = self._allowance_of(observed, self.arithmetic)
        verdict = _judge_outputs(observed, allowed)
        if verdict.kind == "rounding":
            return self._rounding_or_open(verdict, allowed), allowed
        if (verdict.kind, verdict.fault == "shape") != ("differs", False) or self.accept is None or self.formats:
            return verdict, allowed
        if allowed.is_forward_tight:  # then classes are narrow too, by the short forms of factors that are nearly known
            other = reclassify(verdict, observed, self.arithmetic, probe, self.accept)
            return (other if other.kind != "differs" else _differs_verdict(verdict, ())), allowed
        return self._explain_by_class(observed, verdict), allowed

    def _rounding_or_open(self, verdict: Verdict, allowed: Allowance) -> Verdict:
        """Return `verdict`, which is "rounding", in words.

        "cannot tell" instead if `allowed` is larger than the values.
        """
        if allowed.is_useful:
            return replace(verdict, detail=f"consistent with {self.name} in any order: {_error_of_allowed(verdict)}")
        why = f" ({allowed.why})" if allowed.why else ""
        text = f"within what {self.name} in any order allows, but that is larger than the values{why}"
        return Verdict("cannot tell", verdict.ratio, detail=text)

    def _allowance_of(self, observed: Observation, arithmetic: Arithmetic) -> Allowance:
        """Return the allowance of the observed results in an arithmetic."""
        tight = 0.0 if self.outputs_only else TIGHT_SHARE
        return allowance(observed.graph, observed.inputs, arithmetic, self.clock, observed.backend, self.formats, tight)

    def _explain_by_class(self, observed: Observation, verdict: Verdict) -> Verdict:
        """Return the verdict on `observed` by the first arithmetic class that explains what float32 does not; else
        `verdict`.
        """
        accept, too_wide = self.accept or (), []
        for c in CLASSES if observed.multiplies else ():
            if c.whole is None or c.evidence == "probe":  # nobody can be asked
                continue
            arithmetic = replace(c.whole, execution=self.arithmetic.execution, ulps=self.arithmetic.ulps)
            allowed = self._allowance_of(observed, arithmetic)
            other = _judge_outputs(observed, allowed)
            if other.kind in ("exact", "rounding") and allowed.is_within(MAX_NAMED_SHARE):
                return _explained_by(c, verdict, other, c.name in accept)
            if other.kind != "differs":
                too_wide.append(c)
        if any(c.name in accept for c in too_wide):
            return replace(_differs_verdict(verdict, too_wide), kind="cannot tell")
        return _differs_verdict(verdict, too_wide)


def _explained_by(c: ArithmeticClass, verdict: Verdict, other: Verdict, accepted: bool) -> Verdict:
    """Return the verdict for results that class `c` explains: "rounding" if accepted, else "other arithmetic"."""
    failed = f"not explained by {FLOAT32} ({_error_of_allowed(verdict)})"
    if accepted:
        text = f"{c.text}, accepted: {_error_of_allowed(other)}; {failed}"
        return replace(other, kind="rounding", arithmetic=c.name, detail=text)
    text = f"{failed}; by {c.text} yes ({_error_of_allowed(other)}); --accept {c.name} would allow it"
    return replace(verdict, kind="other arithmetic", arithmetic=c.name, detail=text)


def _differs_verdict(verdict: Verdict, too_wide: Collection[ArithmeticClass]) -> Verdict:
    """Return the verdict "differs" in words; classes that are too wide are named and explain nothing."""
    where = f"{verdict.result}[{', '.join(map(str, verdict.index))}]"
    place = f"{where} is {verdict.actual!r}, must be {verdict.expected!r} within {verdict.allowed:.3g}"
    names = ", ".join(c.text for c in too_wide)
    rest = f"; {names} would allow too much to mean anything" if too_wide else " or another arithmetic"
    return replace(verdict, detail=f"not explained by {FLOAT32} in any order{rest}: {place}")


def _judge_outputs(observed: Observation, allowed: Allowance) -> Verdict:
    """Return the worst verdict over all results in `observed`, each against its ball of `allowed`."""
    pairs = zip(observed.names, observed.outputs, allowed.balls, strict=True)
    return worst([judge_array(name, got, ball) for name, got, ball in pairs])


def _error_of_allowed(v: Verdict) -> str:
    """Return the error and its allowance at verdict v's worst cell, as in "3e-06 of 0.023 allowed"."""
    return v.detail or f"{abs(v.actual - v.expected):.2g} of {v.allowed:.2g} allowed"
