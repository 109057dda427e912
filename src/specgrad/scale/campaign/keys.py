"""The keys of a campaign's spec: their types and defaults. Unknown keys are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ...errors import SpecgradError, quoted

REQUIRED: Any = object()
"""The default of a key that must be there."""


class CampaignError(SpecgradError, ValueError):
    """Raised if a spec or its folder cannot be used; the text says which and why."""

    def __init__(self, text: str) -> None:
        super().__init__("campaign", quoted(text))


@dataclass(frozen=True)
class Key:
    """One key of a spec: `kind`, the name of its type in VALUE_TYPES; `about`, a description; and its default."""

    kind: str
    about: str
    default: Any = REQUIRED


def _is_text(value: Any) -> bool:
    """Return whether a value is a non-empty text."""
    return isinstance(value, str) and value != ""


def _is_integer(value: Any) -> bool:
    """Return whether a value is an integer and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_sizes(value: Any) -> bool:
    """Return whether a value is a non-empty list of positive integers."""
    return isinstance(value, list) and value != [] and all(_is_integer(n) and 0 < n < 1 << 40 for n in value)


VALUE_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", _is_text),
    "texts": (
        "a list of texts, each once",
        lambda v: isinstance(v, list) and v != [] and all(map(_is_text, v)) and len(set(v)) == len(v),
    ),
    "count": ("a whole number from 1", lambda v: _is_integer(v) and 1 <= v < 1 << 53),
    "seed": ("a whole number from 0", lambda v: _is_integer(v) and 0 <= v < 1 << 53),
    "seconds": (
        "a number of seconds above 0",
        lambda v: (_is_integer(v) or isinstance(v, float)) and 0 < v < float("inf"),
    ),
    "tile": (
        "a whole number from 1, or a list of them",
        lambda v: (_is_integer(v) and 0 < v < 1 << 40) or _is_sizes(v),
    ),
    "axes": (
        "a list of whole numbers from 0, each once",
        lambda v: isinstance(v, list) and all(_is_integer(n) and n >= 0 for n in v) and 0 < len(set(v)) == len(v),
    ),
    "flag": ("true or false", lambda v: isinstance(v, bool)),
    "shapes": (
        "a table of sizes by input, { x = [1, 3, 224, 224] }",
        lambda v: isinstance(v, dict) and all(map(_is_sizes, v.values())),
    ),
}


def options_of(kind: str, keys: Mapping[str, Key], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every key of a kind with its value in `given`, defaults included; CampaignError for unknown, missing or
    wrong ones.

    >>> keys = {"runtime": Key("text", "who is asked"), "seeds": Key("count", "how many", 1)}
    >>> options_of("conformance", keys, {"runtime": "torch"})
    {'runtime': 'torch', 'seeds': 1}
    >>> options_of("conformance", keys, {"runtim": "torch"})
    Traceback (most recent call last):
    specgrad.scale.campaign.keys.CampaignError: campaign: kind conformance has no key 'runtim' (runtime?); it has ...
    """
    for name in given:
        if name not in keys:
            suggestion = "".join(f" ({n}?)" for n in get_close_matches(name, keys, 1))
            raise CampaignError(f"kind {kind} has no key {name!r}{suggestion}; it has {', '.join(keys)}")
    options = {}
    for name, key in keys.items():
        if name not in given:
            if key.default is REQUIRED:
                raise CampaignError(f"kind {kind} needs the key {name}: {key.about}")
            options[name] = key.default
            continue
        words, fits = VALUE_TYPES[key.kind]
        if not fits(given[name]):
            raise CampaignError(f"{name} must be {words}; got {given[name]!r:.80}")
        options[name] = given[name]
    return options
