"""One check of a model or its target with its answer, all of them together, and what they do not claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specgrad.html_page import tone_of

NOT_ASKED = "not asked"
SUPPORTS = {
    "semantics": "model description semantics: the file has one meaning, and it is written down",
    "replication": "replication criterion: the target computes what the model says, exactly or within a bound",
    "tolerance": "tolerance: how far an implementation may be from the model, and what stays true within it",
}
"""What an item may support. The words are those of ED-324/ARP6983; whether it does is for the applicant to argue."""

PURPOSE = (
    "This is supporting analysis. It is not a certificate of compliance with any standard.",
    "Certification credit needs qualification (DO-330) by the applicant of every output of this tool that nobody "
    "verifies by other means. specgrad is not qualified: no requirements base, no qualification plan, no independence.",
    "The checker of certificates (specgrad check-certificate, package specgrad.proof) is the part made to be "
    "qualified: it is small, and it computes with whole numbers and fractions only.",
)
ASSUMPTIONS = (
    "The file named here is the file that was deployed: compare its SHA-256.",
    "The recorded arrays are what the target computed from the recorded inputs. Nobody here saw it run.",
    "The target keeps one of the classes of executions that stand with each item. What holds for a class holds for "
    "every member of it, and of nothing else.",
    "Errors of exp, tanh and other functions of a mathematical library are bounds from measurement, not from proof. "
    "Where a model uses none of them, this does not matter.",
    "What was found at inputs holds at these inputs. Only statements about a box, and certificates, hold for others.",
)


@dataclass(frozen=True)
class Item:
    """One check with its verdict and answer.

    name        in one word: a section of the page, a key of the JSON
    verdict     a word of the command that answers it, or "not asked"
    answer      in sentences
    supports    a key of SUPPORTS
    schema      the command whose JSON `details` is; None: nothing was asked, or `details` has no schema of its own
    details     all that was found, as that command prints it
    result      the object behind it, for the page
    question    that the check answers
    deployment  the executions that the answer is about, in sentences by topic
    """

    name: str
    question: str
    verdict: str
    answer: str
    supports: str
    schema: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    deployment: Mapping[str, str] = field(default_factory=dict)
    result: Any = field(default=None, repr=False, compare=False)

    @property
    def tone(self) -> str:
        """Colour of the verdict: "good", "bad", "open", or "none" if it was not asked.

        >>> Item("x", "?", "rounding", "", "semantics").tone, Item("x", "?", NOT_ASKED, "", "semantics").tone
        ('good', 'none')
        """
        return "none" if self.verdict == NOT_ASKED else tone_of(self.verdict)


@dataclass(frozen=True)
class Evidence:
    """All checks (`items`) of one model, with digests of the files that were read, and versions; `notes` are what else
    to know.
    """

    model: str
    digests: Mapping[str, str]
    items: tuple[Item, ...]
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Verdict of the checks that were asked: "findings" if one is bad, "cannot tell" if one is open, else "ok"."""
        tones = {item.tone for item in self.items}
        return "findings" if "bad" in tones else "cannot tell" if "open" in tones else "ok"

    def __getitem__(self, name: str) -> Item:
        return next(item for item in self.items if item.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: verdict, model, digests of files, `items` with question, verdict, answer and details each,
        versions, purpose, assumptions, notes.
        """
        return {
            "verdict": self.verdict,
            "model": self.model,
            "digests": dict(self.digests),
            "items": [
                {
                    "name": item.name,
                    "question": item.question,
                    "verdict": item.verdict,
                    "answer": item.answer,
                    "supports": SUPPORTS[item.supports],
                    "deployment": dict(item.deployment),
                    "details": dict(item.details) or None,
                }
                for item in self.items
            ],
            "versions": dict(self.versions),
            "purpose": list(PURPOSE),
            "assumptions": list(ASSUMPTIONS),
            "notes": list(self.notes),
        }
