"""Certificates of what holds, asked of the proven program: of the graph, which it compiles, and of cells, as before.

    make -C verified; python benchmarks/proven.py verivital acasxu --seconds 60     # goes on where it ended
    python benchmarks/proven.py --certificates FOLDER          # certificates found there are not made again
    python benchmarks/proven.py --table                        # benchmarks/proven.txt

SPECGRAD_SHARED names the folder that has vnncomp/. Of the instances that certificates.jsonl says hold; every one in a
process of its own (or all in this one: --here), into proven.jsonl. CPU seconds, one thread, both paths one after the
other: `python` is the replay; `words` and `compiled` are what Python needs to write the graph, and the program to
compile it and to check; `cells` and `proven` what Python needs to multiply the cells out, and the program to check
these. Without `compiled` the program has no words for the graph: `why`. With --graphs the replay and the cells are left
out where the graph is enough.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from certificates import FAMILIES, alone, print_one  # noqa: E402 - the line above says where
from certificates import RECORD as CERTIFICATES  # noqa: E402
from families import Instance, instances, recorded  # noqa: E402

RECORD, TABLE = HERE / "proven.jsonl", HERE / "proven.txt"
FOLDER = "SPECGRAD_CERTIFICATES"  # names the folder of --certificates for the processes of single instances
ALONE = "SPECGRAD_GRAPHS_ALONE"  # set by --graphs, for the same
BEFORE = 869  # CPU seconds of cells and check of the 84 certificates when Python multiplied all cells out


def certificate_of(instance: Instance, graph: Any, question: Any, seconds: float) -> Any:
    """The certificate, from the folder that is named or made now; a string that says why there is none."""
    from specgrad.bounds.search.certificates.prove import NoCertificateError, prove
    from specgrad.bounds.search.certify import certify
    from specgrad.proof.files.certificate import read_files, store

    folder = os.environ.get(FOLDER)
    path = Path(folder or ".") / f"{instance.family}-{Path(instance.network).stem}-{Path(instance.property).stem}.json"
    if folder and path.is_file():
        return read_files(path)
    verdict = certify(graph, question, seconds=seconds)
    if verdict.verdict != "holds":
        return verdict.verdict
    try:
        made = prove(graph, question, trees=verdict.trees, seconds=10 * seconds)
    except NoCertificateError as error:
        return str(error)
    if folder:
        store(path, made.text, made.packed)
    return made.text, made.packed


def asked(graph: Any, cases: Sequence[Any], arithmetic: Any, compiled: bool, names: tuple[str, str]) -> dict[str, Any]:
    """CPU seconds of writing the question and of the program, by these names, and `refused` or `why` with a reason."""
    from specgrad.proof import ReplayError
    from specgrad.proof.extracted.encode import CheckerInput
    from specgrad.proof.extracted.graph_text import NotDescribedError
    from specgrad.proof.extracted.run_checker import NoCheckerAnswerError, answers

    start, before = time.process_time(), os.times()
    try:
        questions = [CheckerInput(graph, case, arithmetic, compiled) for case in cases]
        row: dict[str, Any] = {names[0]: round(time.process_time() - start, 2)}
        each = answers(questions, float("inf"))
    except NotDescribedError as error:
        return {"why": str(error)}
    except (ReplayError, NoCheckerAnswerError) as error:
        return {"refused": str(error)}
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    if any(was != compiled for _, was in each):
        return {"why": "the program has no cells for the graph"}
    row |= {names[1]: round(spent, 2)}
    return row if all(accepted for accepted, _ in each) else row | {"refused": f"the program says no ({names[1]})"}


def measured(instance: Instance, seconds: float) -> dict[str, Any]:
    from specgrad.bounds.search.certify import graph_and_property
    from specgrad.proof import Certificate, check
    from specgrad.proof.base.deployed_graph import deployed_graph
    from specgrad.proof.files.certificate import read_certificate

    assert instance.files is not None
    graph, question = graph_and_property(*instance.files)
    graph = deployed_graph(graph)
    files = certificate_of(instance, graph, question, seconds)
    if isinstance(files, str):
        return {"none": files}
    arithmetic, cases = read_certificate(*files, graph, question)
    row = asked(graph, cases, arithmetic, True, NEW)
    if resource.getrlimit(resource.RLIMIT_STACK)[0] == resource.RLIM_INFINITY:
        row["stack"] = "unlimited (ulimit -s unlimited)"
    if os.environ.get(ALONE) and "why" not in row:
        return row
    start = time.process_time()
    checked = check(Certificate(*files), graph, question, seconds=float("inf"))
    row["python"] = round(time.process_time() - start, 2)
    row["leaves"] = sum(a.leaves for case in checked.cases for a in case.alternatives)
    return row | asked(graph, cases, arithmetic, False, OLD)


def run(families: list[str], seconds: float, here: bool) -> None:
    """Those that are cheapest to make and replay first."""
    known, holds = recorded(RECORD), {key: row for key, row in recorded(CERTIFICATES).items() if "check" in row}
    asked_now = [i for i in instances(families) if i.files is not None and i.key in holds and i.key not in known]
    cost = {key: row["search"] + row["proof"] + row["check"] for key, row in holds.items()}
    for instance in sorted(asked_now, key=lambda i: cost[i.key]):
        row = one_here(instance, seconds) if here else alone(__file__, RECORD, instance, seconds, "none")
        print(json.dumps(row), flush=True)


def one_here(instance: Instance, seconds: float) -> dict[str, Any]:
    """The row of an instance, measured in this process and recorded."""
    row = dict(zip(("family", "network", "property"), instance.key, strict=True)) | {"limit": seconds}
    row |= measured(instance, seconds)
    with RECORD.open("a") as file:
        file.write(json.dumps(row) + "\n")
    return row


NEW, OLD = ("words", "compiled"), ("cells", "proven")
COLUMNS = ("leaves", "python", *NEW, *OLD)


def numbers(row: dict[str, Any]) -> str:
    leaves = f"{row.get('leaves', '-'):>8}"
    return leaves + "".join(f"{row[k]:>9.1f}" if k in row else f"{'-':>9}" for k in COLUMNS[1:])


def summed(rows: list[dict[str, Any]], *columns: str) -> float:
    return sum(row[k] for row in rows for k in columns)


def table() -> str:
    """A line per family and of all, what the sums say, then one per certificate."""
    every = list(recorded(RECORD).values())
    rows = [row for row in every if "none" not in row]
    fine = [row for row in rows if "refused" not in row]
    covered = [row for row in fine if "compiled" in row]
    heads = f"{'leaves':>8}" + "".join(f"{k:>9}" for k in COLUMNS[1:])
    lines = [f"{'family':<20}{'asked':>7}{'accepted':>9}{'compiled':>9}{heads}"]
    for family in [*FAMILIES, "all"]:
        mine, ok, new = ([r for r in some if family in ("all", r["family"])] for some in (rows, fine, covered))
        known = [k for k in COLUMNS if new and all(k in row for row in new)]
        if mine:
            total = numbers({k: summed(new, k) for k in known})
            lines.append(f"{family:<20}{len(mine):>7}{len(ok):>9}{len(new):>9}{total}")
    both = [row for row in covered if "proven" in row]
    by_graph, old, as_old = (summed(*which) for which in ((covered, *NEW), (both, *OLD), (both, *NEW)))
    lines += [
        "",
        f"CPU seconds of the {len(covered)} that are compiled: {by_graph:.0f} by the graph (words and compiled).",
        f"Of {len(both)} both paths were measured: {as_old:.0f} by the graph, {old:.0f} by cells (cells and proven).",
        f"When Python multiplied all cells out, on another machine, cells and proven of 84 took {BEFORE}.",
        "",
        f"{'certificate':<92}{heads}",
    ]
    for row in every:
        name = f"{row['family']:<18}{Path(row['network']).stem[:36]:<38}{Path(row['property']).stem[-34:]:<36}"
        lines.append(f"{name}{'' if 'none' in row else numbers(row)}")
        lines += [f"    {k}: {row[k]}" for k in ("refused", "why", "none", "stack") if k in row]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--certificates", help="a folder: certificates there are used, others are put there")
    parser.add_argument("--graphs", action="store_true", help="ask about graphs alone, where the program has words")
    parser.add_argument("--here", action="store_true", help="all in this process, which loads the libraries once")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.certificates:
        Path(given.certificates).mkdir(parents=True, exist_ok=True)
        os.environ[FOLDER] = given.certificates
    if given.graphs:
        os.environ[ALONE] = "1"
    if given.one:
        print_one(given.one, given.seconds, measured)
        return 0
    if not given.table:
        run(given.families, given.seconds, given.here)
    TABLE.write_text(f"python benchmarks/proven.py --seconds {given.seconds:g}\n{table()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
