"""Certificates of what holds: leaves, bytes, CPU seconds of search, of proving, of checking.

    python benchmarks/certificates.py --seconds 60             # all families below; goes on where it ended
    python benchmarks/certificates.py acasxu verivital --again
    python benchmarks/certificates.py --table                  # benchmarks/certificates.txt from the record

SPECGRAD_SHARED names the folder that has vnncomp/; default: ../shared. Every instance runs in a process of its own, on
one thread, into certificates.jsonl. A proof begins with the tree of the search, so proving is both. The exit code is 1
if a certificate that was written is refused.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from families import Instance, instances, recorded  # noqa: E402 - the line above says where
from pace import slower  # noqa: E402

RECORD, TABLE = HERE / "certificates.jsonl", HERE / "certificates.txt"
FAMILIES = ["acasxu", "acasxu_v2", "linearizenn", "reach_prob_density", "cersyve", "tllverify", "rl_benchmarks"]
FAMILIES += ["collins_rul_cnn", "malbeware", "safenlp", "verivital", "oval21"]


def measured(instance: Instance, seconds: float) -> dict[str, Any]:
    """What a certificate takes; "verdict" is that of the search."""
    from specgrad.bounds.search.certificates.prove import NoCertificateError, prove
    from specgrad.bounds.search.certify import certify, graph_and_property
    from specgrad.proof import ReplayError, check

    assert instance.files is not None
    graph, question = graph_and_property(*instance.files)
    start = time.process_time()
    verdict = certify(graph, question, seconds=seconds)
    row: dict[str, Any] = {"verdict": verdict.verdict, "search": _since(start)}
    if verdict.verdict != "holds":
        return row
    start = time.process_time()
    try:
        certificate = prove(graph, question, trees=verdict.trees, seconds=10 * seconds)
    except NoCertificateError as error:
        return row | {"proof": _since(start), "none": str(error)}
    row |= {"proof": _since(start), "bytes": len(certificate.text) + len(certificate.packed)}
    start = time.process_time()
    try:
        checked = check(certificate, graph, question, seconds=float("inf"))
    except ReplayError as error:
        return row | {"refused": str(error)}
    leaves = sum(a.leaves for case in checked.cases for a in case.alternatives)
    return row | {"check": _since(start), "leaves": leaves}


def _since(start: float) -> float:
    return round(time.process_time() - start, 2)


def alone(script: str, record: Path, instance: Instance, seconds: float, ended: str) -> dict[str, Any]:
    """The row of an instance that a script measures in a process of its own (`--one`), as it was recorded.

    ended   the field that says how a process died
    """
    command = [sys.executable, script, "--one", json.dumps(instance.key), "--seconds", str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    row = dict(zip(("family", "network", "property"), instance.key, strict=True)) | {"limit": seconds}
    row |= json.loads(done.stdout) if done.returncode == 0 else {ended: f"ended by {done.returncode}"}
    row["pace"] = round(slower(), 1)
    with record.open("a") as file:
        file.write(json.dumps(row) + "\n")
    return row


def print_one(key: str, seconds: float, measured: Callable[[Instance, float], dict[str, Any]]) -> None:
    """What `alone` reads."""
    import torch

    torch.set_num_threads(1)
    chosen = tuple(json.loads(key))
    print(json.dumps(measured(next(i for i in instances([chosen[0]]) if i.key == chosen), seconds)))


def run(families: list[str], seconds: float, again: bool) -> None:
    """Whatever is not recorded with at least as much time, or has no certificate yet, if asked for again."""
    known = recorded(RECORD)
    chosen = [i for i in instances(families) if i.files is not None]
    for k, instance in enumerate(chosen):
        row = known.get(instance.key)
        if row is not None and not again and row["limit"] >= seconds:
            continue
        row = alone(__file__, RECORD, instance, seconds, "verdict")
        short = {name: value for name, value in row.items() if name not in ("family", "network", "property", "limit")}
        print(f"{k + 1}/{len(chosen)} {row['family']} {row['network']} {row['property']} {short}", flush=True)


def table() -> str:
    """A line per family, then one per property that holds."""
    rows = [row for row in recorded(RECORD).values() if row["verdict"] == "holds"]
    heads = ("family", "holds", "made", "leaves", "most bytes", "search", "proof", "check", "ratio", "most", "pace")
    lines = ["{:<20}{:>6}{:>6}{:>8}{:>11}{:>8}{:>8}{:>8}{:>7}{:>7}{:>6}".format(*heads)]
    totals = [0, 0]
    for family in FAMILIES:
        mine = [row for row in rows if row["family"] == family]
        made = [row for row in mine if "check" in row]
        totals = [totals[0] + len(mine), totals[1] + len(made)]
        if made:
            search, proof, check, leaves = (sum(row[k] for row in made) for k in ("search", "proof", "check", "leaves"))
            most, pace = max(row["bytes"] for row in made), statistics.median(row["pace"] for row in made)
            ratios = f"{check / (search + proof):>7.2f}{max(map(ratio, made)):>7.2f}{pace:>6.1f}"
            times = f"{search:>8.1f}{proof:>8.1f}{check:>8.1f}"
            lines.append(f"{family:<20}{len(mine):>6}{len(made):>6}{leaves:>8}{most:>11}{times}{ratios}")
    lines += [f"{'all':<20}{totals[0]:>6}{totals[1]:>6}", ""]
    lines += [
        "CPU seconds, sums over the certificates of a family; ratio: check over search and proof, of the family, and",
        "the most of any; pace: how many times slower than idle the machine was when they were measured (median).",
        "",
    ]
    for row in rows:
        name = f"{row['family']:<20}{Path(row['network']).stem[:30]:<32}{Path(row['property']).stem[-34:]:<36}"
        if "check" in row:
            times = f"{row['search']:>8.1f}{row['proof']:>8.1f}{row['check']:>8.1f}{ratio(row):>7.2f}"
            lines.append(f"{name}{row['leaves']:>8}{times}{row['bytes']:>10}")
        else:
            lines.append(f"{name} {'REFUSED' if 'refused' in row else 'none'}: {row.get('refused', row.get('none'))}")
    return "\n".join(lines) + "\n"


def ratio(row: dict[str, Any]) -> float:
    return float(row["check"] / (row["search"] + row["proof"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--again", action="store_true", help="run what is recorded too")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print_one(given.one, given.seconds, measured)
        return 0
    if not given.table:
        run(given.families, given.seconds, given.again)
    TABLE.write_text(f"python benchmarks/certificates.py --seconds {given.seconds:g}\n{table()}")
    return int(any("refused" in row for row in recorded(RECORD).values()))


if __name__ == "__main__":
    sys.exit(main())
