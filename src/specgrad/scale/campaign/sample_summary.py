"""What a campaign keeps of many samples: how often each verdict came, how ratios are distributed, and the worst ones.

A ratio (margin over tolerance) is counted in a bin of the width 2**(1/16), by its lower end: 4 % at most are lost, and
nothing is overstated. Summaries of shards are added up, in any order, to that of all: counts by addition, and of all
worst samples the worst.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .keys import CampaignError

BINS = 16  # per factor of 2
LOWEST, HIGHEST = -1024, 1024  # bins: all ratios below 2**-64 are one, and all above 2**64
PERCENTILES = (1, 5, 10, 25, 50, 75, 90)


@dataclass
class SampleSummary:
    """Counts of `verdicts` and of `bins` of ratios, and the `worst` samples, at most `most` of them, worst first.

    What differs is worse than what is not proven, whatever the ratios.
    """

    most: int
    verdicts: Counter[str] = field(default_factory=Counter)
    bins: Counter[int] = field(default_factory=Counter)
    worst: list[dict[str, Any]] = field(default_factory=list)

    def add(self, verdict: str, ratio: float, sample: Mapping[str, Any]) -> None:
        """Count one sample, with its verdict, ratio, and `sample`, what is told of it if it is among the worst."""
        self.verdicts[verdict] += 1
        self.bins[bin_of(ratio)] += 1
        self._keep([{**sample, "verdict": verdict, "ratio": ratio if math.isfinite(ratio) else None}])

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add a summary that was written as JSON data; CampaignError for what is none."""
        try:
            self.verdicts.update({str(k): int(n) for k, n in data["verdicts"].items()})
            self.bins.update({int(k): int(n) for k, n in data["bins"].items()})
            self._keep(data["worst"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CampaignError(f"a row is no summary of samples: {type(error).__name__} {error}") from None

    def _keep(self, more: Sequence[dict[str, Any]]) -> None:
        """Keep the worst of those that are known and `more`; equal ones by their number."""
        self.worst = sorted([*self.worst, *more], key=_badness)[: self.most]

    def percentile(self, percent: float) -> float | None:
        """Return a ratio that at most so many percent of the samples lie below, rounded down; None without samples.

        >>> summary = SampleSummary(3)
        >>> for k in range(100): summary.add("proven", 2.0**k, {"number": k})
        >>> summary.percentile(0), summary.percentile(50), [s["number"] for s in summary.worst]
        (1.0, 1125899906842624.0, [0, 1, 2])
        """
        reached, total = 0, self.bins.total()
        for k in sorted(self.bins):
            reached += self.bins[k]
            if reached > total * percent / 100:
                return 0.0 if k == LOWEST else 2.0 ** (k / BINS)
        return None

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: verdicts, bins of ratios by number, worst samples."""
        bins = {str(k): self.bins[k] for k in sorted(self.bins)}
        return {"verdicts": dict(sorted(self.verdicts.items())), "bins": bins, "worst": self.worst}

    def report(self) -> dict[str, Any]:
        """Return JSON data for a reader: samples, verdicts, percentiles of the ratio, worst samples."""
        percentiles = {str(p): self.percentile(p) for p in PERCENTILES}
        verdicts = dict(sorted(self.verdicts.items()))
        total = self.verdicts.total()
        return {"samples": total, "verdicts": verdicts, "percentiles": percentiles, "worst": self.worst}


def bin_of(ratio: float) -> int:
    """Return the bin of a ratio: the first for 0, for what is negative and for NaN, the last for infinity.

    >>> bin_of(2.0**-70) == bin_of(0.0)
    True
    >>> bin_of(1.0), bin_of(0.0), bin_of(math.inf), 2 ** (bin_of(1.5) / BINS) <= 1.5 < 2 ** ((bin_of(1.5) + 1) / BINS)
    (0, -1024, 1024, True)
    """
    if not ratio > 0:
        return LOWEST
    if math.isinf(ratio):
        return HIGHEST
    k = math.floor(math.log2(ratio) * BINS)
    k = k - 1 if math.pow(2.0, k / BINS) > ratio else k  # our own logarithm may be rounded up
    return min(max(k, LOWEST), HIGHEST - 1)


def _badness(sample: Mapping[str, Any]) -> tuple[int, float, int]:
    """Return a sort key: what differs first, then what is not proven, then small ratios; None is infinite."""
    ratio = math.inf if sample["ratio"] is None else sample["ratio"]
    return {"differs": 0, "proven": 2}.get(sample["verdict"], 1), ratio, sample["number"]
