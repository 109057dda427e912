"""The verdict on several layers of which only the last was read: a part of a model, or all of it.

Nobody saw what stands between, so the allowance is all that there is: the verdict says what is consistent with it, in
which arithmetic, and how much is allowed. A fault whose effect stays below that is not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from specgrad.rounding import Arithmetic

from ..tolerances.allowance import TIGHT_SHARE, Allowance, Clock, allowance
from ..verdicts.arithmetic_classes import CLASSES, FLOAT32, ArithmeticClass, Probe, reclassify
from ..verdicts.judge import Verdict, judge_array, worst
from ..verdicts.observation import Observation

NAMED = 1 / 8  # of the largest value: an arithmetic that allows more would explain most faults too, and is not named


@dataclass(frozen=True)
class MergedLayersJudge:
    """How results of several layers are judged.

    accept     classes of arithmetic that may explain them beside float32; None: no class is looked for
    formats    name of a node -> what it is computed in, where that is not float32
    outputs_only   nothing else is known of these layers: the allowance is to be as narrow as can be
    name       of the arithmetic, in words
    """

    arithmetic: Arithmetic
    clock: Clock
    accept: Collection[str] | None = ()
    formats: Mapping[str, str] = field(default_factory=dict)
    outputs_only: bool = False
    name: str = FLOAT32

    def judge(self, observed: Observation, probe: Probe | None = None) -> tuple[Verdict, Allowance]:
        """The verdict, and what float32 allows."""
        allowed = self._allowed(observed, self.arithmetic)
        verdict = _compared(observed, allowed)
        if verdict.kind == "rounding":
            return self._consistent(verdict, allowed), allowed
        if (verdict.kind, verdict.fault == "shape") != ("differs", False) or self.accept is None or self.formats:
            return verdict, allowed
        if allowed.is_forward_tight:  # then classes are narrow too, by the short forms of factors that are nearly known
            other = reclassify(verdict, observed, self.arithmetic, probe, self.accept)
            return (other if other.kind != "differs" else _unexplained(verdict, ())), allowed
        return self._by_class(observed, verdict), allowed

    def _consistent(self, verdict: Verdict, allowed: Allowance) -> Verdict:
        if allowed.is_useful:
            return replace(verdict, detail=f"consistent with {self.name} in any order: {_share(verdict)}")
        why = f" ({allowed.why})" if allowed.why else ""
        text = f"within what {self.name} in any order allows, but that is larger than the values{why}"
        return Verdict("cannot tell" if self.outputs_only else "rounding", verdict.ratio, detail=text)

    def _allowed(self, observed: Observation, arithmetic: Arithmetic) -> Allowance:
        tight = 0.0 if self.outputs_only else TIGHT_SHARE
        return allowance(observed.graph, observed.inputs, arithmetic, self.clock, observed.backend, self.formats, tight)

    def _by_class(self, observed: Observation, verdict: Verdict) -> Verdict:
        """What float32 does not explain, by the first class that does."""
        accept, too_wide = self.accept or (), []
        for c in CLASSES if observed.multiplies else ():
            if c.whole is None or c.evidence == "probe":  # nobody can be asked
                continue
            arithmetic = replace(c.whole, execution=self.arithmetic.execution, ulps=self.arithmetic.ulps)
            allowed = self._allowed(observed, arithmetic)
            other = _compared(observed, allowed)
            if other.kind in ("exact", "rounding") and allowed.is_within(NAMED):
                return _named(c, verdict, other, c.name in accept)
            if other.kind != "differs":
                too_wide.append(c)
        if any(c.name in accept for c in too_wide):
            return replace(_unexplained(verdict, too_wide), kind="cannot tell")
        return _unexplained(verdict, too_wide)


def _named(c: ArithmeticClass, verdict: Verdict, other: Verdict, accepted: bool) -> Verdict:
    failed = f"not explained by {FLOAT32} ({_share(verdict)})"
    if accepted:
        text = f"{c.text}, accepted: {_share(other)}; {failed}"
        return replace(other, kind="rounding", arithmetic=c.name, detail=text)
    text = f"{failed}; by {c.text} yes ({_share(other)}); --accept {c.name} would allow it"
    return replace(verdict, kind="other arithmetic", arithmetic=c.name, detail=text)


def _unexplained(verdict: Verdict, too_wide: Collection[ArithmeticClass]) -> Verdict:
    """The verdict in words; what allows nearly everything has shown nothing."""
    where = f"{verdict.result}[{', '.join(map(str, verdict.index))}]"
    place = f"{where} is {verdict.actual!r}, must be {verdict.expected!r} within {verdict.allowed:.3g}"
    names = ", ".join(c.text for c in too_wide)
    rest = f"; {names} would allow too much to mean anything" if too_wide else " or another arithmetic"
    return replace(verdict, detail=f"not explained by {FLOAT32} in any order{rest}: {place}")


def _compared(observed: Observation, allowed: Allowance) -> Verdict:
    pairs = zip(observed.names, observed.outputs, allowed.balls, strict=True)
    return worst([judge_array(name, got, ball) for name, got, ball in pairs])


def _share(v: Verdict) -> str:
    """As in "3e-06 of 0.023 allowed", at the worst cell."""
    return v.detail or f"{abs(v.actual - v.expected):.2g} of {v.allowed:.2g} allowed"
