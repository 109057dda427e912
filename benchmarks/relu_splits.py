"""Relu splits: sub-problems per CPU second one by one and in batches, and layer by layer in place of folded.

    python benchmarks/relu_splits.py > benchmarks/relu_splits.txt

A sub-problem is the choice of its split, steps on slopes and multipliers in float32, and a rigorous bound if float32
takes it for closed. Each search begins with the whole box and ends after so many sub-problems.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

from specgrad.bounds.search.certify import _tensors
from specgrad.bounds.search.neuron_split.branch_and_bound import branch, narrowed
from specgrad.bounds.search.neuron_split.reduced_search import _ReducedSearch
from splits import prepared

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from pace import slower

CHOSEN = (("oval21", "wide_kw-img4720"), ("oval21", "deep_kw-img5533"), ("safenlp", "hyperrectangle_3902"))
SIZES = ((1, 60), (8, 300), (64, 1000), (4096, 2000))  # problems at once, and of each search


def narrow(family: str, statement: str) -> tuple[Any, Any, Any]:
    """What relu splits begin with: narrowed boxes, open rows and their targets."""
    _, _, margins, nearest, root = prepared(family, "", statement)
    rows, targets = _tensors([nearest[k] for k, margin in enumerate(margins) if not margin > 0])
    return narrowed(root, time.monotonic() + 3600), rows, targets


def main() -> None:
    torch.set_num_threads(1)
    for name in CHOSEN:
        bounder, rows, targets = narrow(*name)
        with torch.no_grad():
            folded = _ReducedSearch(bounder, rows, targets).folded
        cells = sum(bounder.state.intervals[z][0].numel() for _, z, _ in folded.relus)
        print(f"{' '.join(name)}: {folded.count} open relus of {cells}; pace {slower():.1f}", flush=True)
        alone = 0.0
        for size, most in SIZES:
            start = time.process_time()
            with torch.no_grad():
                search = _ReducedSearch(bounder, rows, targets)
                search.size = min(search.size, size)
                outcome = search.run(time.monotonic() + 3600, most, None)
            rate = outcome.problems / (time.process_time() - start)
            alone = alone or rate
            print(
                f"    batches of {search.size:4}: {rate:8.1f} per CPU second ({rate / alone:.1f}x), {outcome.problems}"
            )
        start = time.process_time()
        outcome = branch(bounder, rows, targets, seconds=3600, most=300)
        rate = outcome.problems / (time.process_time() - start)
        print(f"    layer by layer, in batches: {rate:8.1f} per CPU second, {outcome.problems}", flush=True)


if __name__ == "__main__":
    main()
