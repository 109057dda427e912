"""Certificates of what holds: seconds of search, of proving, of checking, and bytes.

    python benchmarks/certificates.py                          # families that are settled by splits
    python benchmarks/certificates.py acasxu --seconds 60

SPECGRAD_SHARED names the folder that has vnncomp/; default: ../shared. CPU seconds of one thread. A proof begins with
the tree of the search, so proving is both; the exit code is 1 if a certificate that was written is refused.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests")]

from families import Instance, instances  # noqa: E402 - the line above says where
from pace import slower  # noqa: E402

FAMILIES = ["acasxu", "acasxu_v2", "linearizenn", "cersyve", "reach_prob_density", "rl_benchmarks", "safenlp"]
FAMILIES += ["tllverify", "verivital"]


def measured(instance: Instance, seconds: float) -> dict[str, Any] | None:
    """What a certificate takes; None: the property was not found to hold."""
    from specgrad.bounds.search.certify import certify, graph_and_property
    from specgrad.bounds.search.prove import NoCertificateError, prove
    from specgrad.proof import ReplayError, check

    assert instance.files is not None
    graph, question = graph_and_property(*instance.files)
    start = time.process_time()
    verdict = certify(graph, question, seconds=seconds)
    search = time.process_time() - start
    if verdict.verdict != "holds":
        return None
    start = time.process_time()
    try:
        certificate = prove(graph, question, trees=verdict.trees, seconds=10 * seconds)
    except NoCertificateError as error:
        return {"search": search, "none": str(error)}
    proof = time.process_time() - start
    start = time.process_time()
    try:
        checked = check(certificate, graph, question, seconds=float("inf"))
    except ReplayError as error:
        return {"search": search, "proof": proof, "refused": str(error)}
    leaves = sum(a.leaves for case in checked.cases for a in case.alternatives)
    size = len(certificate.text) + len(certificate.packed)
    return {"search": search, "proof": proof, "check": time.process_time() - start, "bytes": size, "leaves": leaves}


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'family':<20}{'property':<34}{'leaves':>8}{'search':>8}{'proof':>8}{'check':>8}{'ratio':>7}{'bytes':>10}")
    wrong, made, holds = 0, 0, 0
    for instance in (i for i in instances(given.families) if i.files is not None):
        row = measured(instance, given.seconds)
        if row is None:
            continue
        holds += 1
        start = f"{instance.family:<20}{Path(instance.property).name[:32]:<34}"
        if "check" not in row:
            wrong += "refused" in row
            print(start, "REFUSED" if "refused" in row else "no certificate:", row.get("refused", row.get("none")))
            continue
        made += 1
        times = f"{row['search']:>8.1f}{row['proof']:>8.1f}{row['check']:>8.1f}"
        ratio = row["check"] / (row["search"] + row["proof"])
        print(f"{start}{row['leaves']:>8}{times}{ratio:>7.2f}{row['bytes']:>10}", flush=True)
    print(f"{made} certificates of {holds} properties that hold; the machine is {slower():.1f} times slower than idle")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
