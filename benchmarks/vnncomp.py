"""Verification benchmarks of VNN-COMP 2021: verivital (60 instances) and oval21 (30).

    python benchmarks/vnncomp.py verivital oval21 --seconds 60 > benchmarks/vnncomp.txt
    python benchmarks/vnncomp.py verivital --certificates      # one for whatever holds, checked
    python benchmarks/vnncomp.py verivital --execution node    # for runtimes that merge nothing; default: fused

SPECGRAD_SHARED names the folder that has vnncomp/<benchmark>/<benchmark>_instances.csv; default: ../shared. Files are
read outside the clock, which is the wall's, per instance, with the threads that PyTorch takes by itself.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import torch

from specgrad.bounds.search.certify import Verdict, certify, graph_and_property
from specgrad.rounding import Arithmetic

KNOWN = {"verivital": {"holds": 53, "counterexample": 7}}  # complete verifiers agree


def instances(name: str) -> list[tuple[Path, Path]]:
    shared = os.environ.get("SPECGRAD_SHARED", Path(__file__).parents[2] / "shared")
    root = Path(shared) / "vnncomp" / name
    table = root / f"{name}_instances.csv"
    if not table.exists():
        sys.exit(f"no {table}; set SPECGRAD_SHARED")
    with table.open() as file:
        return [(root / net, root / statement) for net, statement, _ in csv.reader(file)]


def run(name: str, seconds: float, arithmetic: Arithmetic) -> None:
    print(f"== {name}: {len(instances(name))} instances, {seconds:g} s each, float32 {arithmetic.execution}")
    found: list[tuple[Verdict, float]] = []
    for net, statement in instances(name):
        graph, question = graph_and_property(net, statement)
        start = time.perf_counter()
        verdict = certify(graph, question, seconds=seconds, arithmetic=arithmetic)
        spent = time.perf_counter() - start
        found.append((verdict, spent))
        print(line(net, statement, verdict, spent), flush=True)
    summary(name, found)


def check_all(name: str, arithmetic: Arithmetic) -> None:
    """Write a certificate for every instance, in memory; how many the checker accepts, and its time."""
    from specgrad.bounds.search.prover import certificate
    from specgrad.proof.certificate import check
    from specgrad.proof.numbers import ReplayError

    times, sizes = [], []
    for net, statement in instances(name):
        graph, question = graph_and_property(net, statement)
        text, arrays = certificate(graph, question, arithmetic)
        start = time.perf_counter()
        try:
            check(text, arrays, graph, question)
        except ReplayError as error:
            print(f"{net.stem:20s} {statement.stem:20s} no certificate: {error}", flush=True)
            continue
        times.append(time.perf_counter() - start)
        sizes.append(len(text) + len(arrays))
    count, model = len(instances(name)), f"float32 {arithmetic.execution}"
    print(f"{name}: {len(times)} certificates of {count} instances, {model}, {max(sizes) / 2**20:.1f} MiB at most")
    print(f"{name}: checked in {statistics.median(times):.2f} s (median), {max(times):.2f} s (most)")


def line(net: Path, statement: Path, verdict: Verdict, spent: float) -> str:
    stages = " ".join(f"{stage} {seconds * 1e3:.0f}" for stage, seconds in verdict.stages.items())
    margin = min((m for case in verdict.margins for m in case), default=float("nan"))
    shown = "" if verdict.verdict == "counterexample" else f"margin {margin:.4g}"
    if verdict.counterexample is not None:
        shown = f"confirmed by {'+'.join(verdict.counterexample.confirmed)}"
    count = f"{verdict.problems} subproblems" if verdict.problems else ""
    return f"{net.stem:20s} {statement.stem:44s} {verdict.verdict:15s} {spent:7.2f} s  (ms: {stages})  {shown}  {count}"


def summary(name: str, found: list[tuple[Verdict, float]]) -> None:
    kinds = [v.verdict for v, _ in found]
    counts = {kind: kinds.count(kind) for kind in ("holds", "counterexample", "unknown")}
    settled, seconds = len(found) - counts["unknown"], sum(s for _, s in found)
    print(f"{name}: {counts}, settled {settled} of {len(found)}, {seconds:.0f} s in all")
    later = ("pieces", "branch")
    by_crown = sum(v.verdict == "holds" and not any(v.stages.get(s) for s in later) for v, _ in found)
    times = [v.stages["crown"] for v, _ in found if v.stages.get("crown")]
    median, most = statistics.median(times) * 1e3, max(times) * 1e3
    print(f"{name}: linear bounds alone prove {by_crown}; median {median:.1f} ms, most {most:.0f} ms")
    for kind, count in KNOWN.get(name, {}).items():
        print(f"{name}: {kind} {counts[kind]}, known {count}{'' if counts[kind] <= count else '  WRONG'}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--certificates", action="store_true")
    parser.add_argument("--execution", choices=("fused", "node"), default="fused")
    options = parser.parse_args()
    arithmetic = Arithmetic(execution=options.execution)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.processor() or platform.machine()}")
    for name in options.names:
        if options.certificates:
            check_all(name, arithmetic)
        else:
            run(name, options.seconds, arithmetic)


if __name__ == "__main__":
    main()
