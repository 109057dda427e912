"""A rule of the profile: its text in plain words, and a check that yields the places that break it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import printable
from .model_view import FILE, Location, ModelView
from .sources import SourceText

Severity = Literal["broken", "undecided"]


class NotCheckedError(Exception):
    """Raised by a check that cannot run; the text is the reason."""


@dataclass(frozen=True)
class Spot:
    """One place that breaks a rule, as a check yields it.

    undecided   the texts contradict each other here, or nothing is known of what they ask for
    cure        what to do, where it is not what the rule says
    """

    what: str
    place: Location = FILE
    undecided: bool = False
    cure: str | None = None


@dataclass(frozen=True)
class Finding:
    """One place that breaks a rule, together with the rule's data.

    what is wrong at `place` and its `cure` in words; severity, tag, source and version are the rule's.
    """

    rule: str
    severity: Severity
    tag: str
    source: str
    version: str
    place: Location
    what: str
    cure: str

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: rule, severity, tag, source, version; node, index, operator and value of the place; `what`
        is wrong, and its `cure`.
        """
        data = {k: getattr(self, k) for k in ("rule", "severity", "tag", "source", "version")}
        where = {k: getattr(self.place, k) for k in ("node", "index", "operator", "value")}
        return {**data, **where, "what": self.what, "cure": self.cure}


@dataclass(frozen=True)
class Rule:
    """One rule of the profile.

    level   E: breaking it is an error; W: the working group itself is undecided
    tag     their own labels
    texts   where it stands
    check   yields the spots that break it
    cure    what to do about them; sentence says the rule
    id      short name in reports
    """

    id: str
    level: Literal["E", "W"]
    tag: str
    texts: tuple[SourceText, ...]
    sentence: str
    check: Callable[[ModelView], Iterator[Spot]]
    cure: str = ""

    @property
    def source(self) -> str:
        """Names of the texts that the rule comes from."""
        return "; ".join(t.name for t in self.texts)

    @property
    def version(self) -> str:
        """Return the versions of the texts where the rule stands."""
        return "; ".join(t.version for t in self.texts)

    def findings(self, view: ModelView) -> list[Finding]:
        """Return the findings of this rule in one model."""
        return [self._finding(spot) for spot in self.check(view)]

    def failed_check(self, what: str) -> Finding:
        """Return an undecided finding that says in `what` how the check itself failed."""
        return self._finding(Spot(printable(what)[:400], undecided=True, cure=""))

    def _finding(self, spot: Spot) -> Finding:
        """Return a spot as a finding of this rule; undecided if the rule or the spot is."""
        severity: Severity = "undecided" if self.level == "W" or spot.undecided else "broken"
        cure = self.cure if spot.cure is None else spot.cure
        return Finding(self.id, severity, self.tag, self.source, self.version, spot.place, spot.what, cure)


Check = Callable[[ModelView], Iterator[Spot]]
RULES: dict[str, Rule] = {}


def rule(
    name: str, level: Literal["E", "W"], tag: str, *texts: SourceText, says: str, cure: str = ""
) -> Callable[[Check], Check]:
    """Return a decorator that registers a check as the rule of this name.

    Its level, tag, texts and cure are those of `Rule`; `says` is its sentence.
    """

    def add(check: Check) -> Check:
        RULES[name] = Rule(name, level, tag, texts, says, check, cure)
        return check

    return add
