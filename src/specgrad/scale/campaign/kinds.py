"""Registry of the kinds of campaigns by name: a new kind is a class and an entry in KINDS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .audit import AuditKind
from .certify import CertifyKind
from .conformance import ConformanceKind
from .keys import CampaignError
from .kind import Kind
from .preserve import PreserveKind
from .tiles import TilesKind

KINDS: dict[str, type[Kind]] = {
    kind.name: kind for kind in (ConformanceKind, AuditKind, CertifyKind, TilesKind, PreserveKind)
}


def job(kind: str, options: Mapping[str, Any], home: str | Path) -> Kind:
    """Return the campaign of a kind from JSON options, as every worker does; CampaignError if there is no such kind.

    Files in options are relative to the folder `home`.
    """
    if kind not in KINDS:
        raise CampaignError(f"there is no kind {kind!r:.40}; kinds are {', '.join(KINDS)}")
    return KINDS[kind](options, home)
