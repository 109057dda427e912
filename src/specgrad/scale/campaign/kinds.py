"""The kinds of campaigns, by name: a new one is a class and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .audit import Audit
from .certify import Certify
from .conformance import Conformance
from .keys import CampaignError
from .kind import Kind
from .tiles import Tiles

KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Conformance, Audit, Certify, Tiles)}


def job(kind: str, options: Mapping[str, Any], home: str | Path) -> Kind:
    """The campaign, as a worker builds it again from JSON."""
    if kind not in KINDS:
        raise CampaignError(f"there is no kind {kind!r:.40}; kinds are {', '.join(KINDS)}")
    return KINDS[kind](options, home)
