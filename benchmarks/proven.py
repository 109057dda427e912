"""Both checkers on certificates of what holds: CPU seconds of the replay in Python, and of the proven program.

    make -C verified; python benchmarks/proven.py verivital acasxu --seconds 60     # goes on where it ended
    python benchmarks/proven.py --table                                              # benchmarks/proven.txt

SPECGRAD_SHARED names the folder that has vnncomp/. Of the instances that certificates.jsonl says hold; every one in a
process of its own, into proven.jsonl. `cells` is what Python needs to write the question. In committed rows it
multiplied the network's cells out; where the program has words for the graph, it compiles them itself now.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from certificates import FAMILIES, alone, print_one  # noqa: E402 - the line above says where
from certificates import RECORD as CERTIFICATES  # noqa: E402
from families import Instance, instances, recorded  # noqa: E402

RECORD, TABLE = HERE / "proven.jsonl", HERE / "proven.txt"


def measured(instance: Instance, seconds: float) -> dict[str, Any]:
    from specgrad.bounds.search.certificates.prove import NoCertificateError, prove
    from specgrad.bounds.search.certify import certify, graph_and_property
    from specgrad.proof import ReplayError, check
    from specgrad.proof.base.deployed_graph import deployed_graph
    from specgrad.proof.extracted.encode import CheckerInput
    from specgrad.proof.extracted.run_checker import ask
    from specgrad.proof.files.certificate import read_certificate

    assert instance.files is not None
    graph, question = graph_and_property(*instance.files)
    graph = deployed_graph(graph)
    verdict = certify(graph, question, seconds=seconds)
    if verdict.verdict != "holds":
        return {"none": verdict.verdict}
    try:
        certificate = prove(graph, question, trees=verdict.trees, seconds=10 * seconds)
    except NoCertificateError as error:
        return {"none": str(error)}
    start = time.process_time()
    checked = check(certificate, graph, question, seconds=float("inf"))
    row: dict[str, Any] = {"python": round(time.process_time() - start, 2)}
    row["leaves"] = sum(a.leaves for case in checked.cases for a in case.alternatives)
    arithmetic, cases = read_certificate(certificate.text, certificate.packed, graph, question)
    start, before = time.process_time(), os.times()
    try:
        questions = [CheckerInput(graph, case, arithmetic) for case in cases]
        row["cells"] = round(time.process_time() - start, 2)
        accepted = all(ask(questions, 10 * seconds))
    except ReplayError as error:
        return row | {"refused": str(error)}
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return row | {"proven": round(spent, 2)} | ({} if accepted else {"refused": "no"})


def run(families: list[str], seconds: float) -> None:
    known, holds = recorded(RECORD), recorded(CERTIFICATES)
    for instance in instances(families):
        if instance.files is None or instance.key in known or "check" not in holds.get(instance.key, {}):
            continue
        print(json.dumps(alone(__file__, RECORD, instance, seconds, "none")), flush=True)


def table() -> str:
    rows = list(recorded(RECORD).values())
    lines = [f"{'family':<20}{'asked':>6}{'both':>6}{'leaves':>8}{'Python':>9}{'cells':>9}{'proven':>9}"]
    for family in FAMILIES:
        mine = [row for row in rows if row["family"] == family and "python" in row]
        both = [row for row in mine if "refused" not in row]
        if mine:
            sums = [sum(row[k] for row in both) for k in ("leaves", "python", "cells", "proven")]
            times = "".join(f"{v:>9.1f}" for v in sums[1:])
            lines.append(f"{family:<20}{len(mine):>6}{len(both):>6}{sums[0]:>8}{times}")
    lines += [
        "",
        "CPU seconds, of those that both accept. Not accepted by the proven checker, or no certificate in time:",
    ]
    for row in rows:
        if "refused" in row or "none" in row:
            name = f"{row['family']} {Path(row['network']).stem[:30]} {Path(row['property']).stem[-34:]}"
            lines.append(f"{name}: {row.get('refused', row.get('none'))}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print_one(given.one, given.seconds, measured)
        return 0
    if not given.table:
        run(given.families, given.seconds)
    TABLE.write_text(f"python benchmarks/proven.py --seconds {given.seconds:g}\n{table()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
