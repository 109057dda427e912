"""Families of VNN-COMP 2021 to 2026, a few instances each, beside the answers of the tools that competed.

    python benchmarks/breadth.py acasxu acasxu_v2 linearizenn --seconds 60 > benchmarks/breadth.txt
    python benchmarks/breadth.py --speed           # boxes per second: one by one, and in batches

SPECGRAD_SHARED names the folder that has vnncomp/breadth/manifest.csv; default: ../shared. One thread. An answer that
no tool of the competition gave, while another was given, is marked WRONG, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

import torch

from specgrad.bounds.search.certify import _Run, certify, graph_and_property
from specgrad.bounds.search.inputs import split_inputs
from specgrad.errors import SpecgradError

ROOT = Path(os.environ.get("SPECGRAD_SHARED", Path(__file__).parents[2] / "shared")) / "vnncomp" / "breadth"
WORDS = {"holds": "unsat", "counterexample": "sat"}


def located(family: str, name: str) -> Path | None:
    return next(iter(sorted((ROOT / family).rglob(f"{Path(name).name}*"))), None)


def run(families: list[str], seconds: float) -> bool:
    """A row per instance, a line per family; whether no answer is wrong."""
    counts: dict[str, Counter[str]] = {}
    print(f"{seconds:g} s each by the clock, one thread, float32 fused; seconds are CPU seconds")
    with (ROOT / "manifest.csv").open() as file:
        rows = [row for row in csv.reader(file) if row[0] in families]
    for family, _, net, statement, _, answers in (row[:6] for row in rows):
        paths = located(family, net), located(family, statement)
        known = {answer[0] for answer in json.loads(answers).values()} & {"sat", "unsat"}
        start = time.process_time()
        try:
            if None in paths:
                kind, problems, reason = "absent", 0, ""
            else:
                verdict = certify(str(paths[0]), paths[1], seconds=seconds)
                kind, problems, reason = verdict.verdict, verdict.problems, verdict.reason
        except SpecgradError as error:
            kind, problems, reason = "refused", 0, str(error)
        wrong = kind in WORDS and bool(known) and WORDS[kind] not in known
        counts.setdefault(family, Counter())["WRONG" if wrong else kind] += 1
        told = f"{Path(net).stem[:36]:36} {Path(statement).stem[:32]:32} {kind:14} {problems:8,}"
        spent = time.process_time() - start
        print(
            f"{family:20} {told} {spent:6.1f} s  {'/'.join(sorted(known))} {'WRONG' * wrong} {reason[:90]}".rstrip(),
            flush=True,
        )
    print()
    for family, count in counts.items():
        print(f"{family:20} {', '.join(f'{n} {kind}' for kind, n in sorted(count.items()))}")
    return not any(count["WRONG"] for count in counts.values())


def speed(seconds: float = 10.0) -> None:
    """The same search with batches of one box."""
    net, statement = located("acasxu", "ACASXU_run2a_4_8_batch_2000.onnx"), located("acasxu", "prop_1.vnnlib")
    graph, question = graph_and_property(net, statement)
    (case,) = question.cases
    for size in (1, 8, 64, 512):
        searching = _Run(graph, None, time.monotonic() + 600, None)
        root = searching._crown(case)[2]
        boxes = searching._boxes(case, root)
        boxes.batch = min(boxes.batch, size)
        start = time.process_time()
        outcome = split_inputs(searching.network, case, boxes, time.monotonic() + seconds)
        spent = time.process_time() - start
        print(f"batches of {boxes.batch:3}: {outcome.problems / spent:8.1f} boxes per CPU second", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args()
    if given.speed:
        speed()
    elif not run(given.families, given.seconds):
        sys.exit(1)
