"""Campaigns: many checks of one kind (conformance, audit, certify, tiles) in shards, resumable after any kill.

`specgrad campaign estimate|run|status|collect spec.toml`; docs/guide/campaigns.md has a spec of every kind.
"""

from .collect import Collected, collect
from .estimate import Estimate, estimate
from .keys import CampaignError
from .kind import Finding, Kind
from .kinds import KINDS
from .run import run
from .spec import Spec, read_spec
from .status import CampaignStatus, standing

__all__ = [
    "KINDS",
    "CampaignError",
    "CampaignStatus",
    "Collected",
    "Estimate",
    "Finding",
    "Kind",
    "Spec",
    "collect",
    "estimate",
    "read_spec",
    "run",
    "standing",
]
