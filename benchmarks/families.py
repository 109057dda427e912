"""Families of VNN-COMP 2021 to 2026 by the competition's own scripts, beside the answers of the tools that competed.

    python benchmarks/families.py --seconds 60                  # all, into families.jsonl; goes on where it ended
    python benchmarks/families.py acasxu cersyve --seconds 60 --again
    python benchmarks/families.py --here --seconds 10           # in this process, seconds of CPU: on a shared machine
    python benchmarks/families.py --speed                       # boxes per second one by one and in batches: splits.py
    python tools/make_families.py                               # docs/guide/families.md from the record

SPECGRAD_SHARED names the folder that has vnncomp/; default: ../shared. Every instance runs in a process of its own
(vnncomp/prepare_instance.sh, run_instance.sh), on one thread; loading the program is no part of its time. A
counterexample is checked without specgrad (vnncomp/check_counterexample.py). A counterexample that is none, or a proof
of what others have counterexamples for and none a proof, is WRONG, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = HERE / "vnncomp"
SHARED = Path(os.environ.get("SPECGRAD_SHARED", HERE.parents[1] / "shared")) / "vnncomp"
RECORD = HERE / "families.jsonl"
OLDER = ("verivital", "oval21")  # of 2021: instances in a table of their own, answers of tools as counts
SETTLED = ("sat", "unsat")


@dataclass(frozen=True)
class Instance:
    """A network, a property, and what the tools of the competition answered."""

    family: str
    year: int
    network: str
    property: str
    files: tuple[Path, Path] | None
    tools: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.family, self.network, self.property


def instances(families: list[str]) -> list[Instance]:
    """Of these families, or of all; files is None where they are not there."""
    with (SHARED / "breadth" / "manifest.csv").open() as file:
        rows = [row for row in csv.reader(file) if not families or row[0] in families]
    result = []
    for family, year, net, statement, _, answers in (row[:6] for row in rows):
        files = _located(family, net), _located(family, statement)
        there = None if files[0] is None or files[1] is None else (files[0], files[1])
        result.append(Instance(family, int(year), net, statement, there, json.loads(answers)))
    for family in OLDER:
        if not families or family in families:
            root = SHARED / family
            with (root / f"{family}_instances.csv").open() as file:
                pairs = [(root / net, root / statement) for net, statement, _ in csv.reader(file)]
            result += [Instance(family, 2021, a.name, b.name, (a, b)) for a, b in pairs]
    return result


def _located(family: str, name: str) -> Path | None:
    return next(iter(sorted((SHARED / "breadth" / family).rglob(f"{Path(name).name}*"))), None)


# --- one instance -----------------------------------------------------------------------------------------------------


def run_one(instance: Instance, seconds: float) -> dict[str, Any]:
    """By the scripts, as the competition runs them; refused: nothing was answered, and stderr says why."""
    row: dict[str, Any] = {"family": instance.family, "year": instance.year, "network": instance.network}
    row |= {"property": instance.property, "limit": seconds, "by": "scripts", "tools": instance.tools}
    if instance.files is None:
        return {**row, "answer": "absent"}
    net, statement = map(str, instance.files)
    environment = {"SPECGRAD": f"{sys.executable} -m specgrad", "OMP_NUM_THREADS": "1", **os.environ}
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.txt"
        subprocess.run([SCRIPTS / "prepare_instance.sh", "v1", instance.family, net, statement], env=environment)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [SCRIPTS / "run_instance.sh", "v1", instance.family, net, statement, results, f"{seconds:g}"]
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = results.read_text()
        row |= {"seconds": round(time.monotonic() - start, 1)}
    row |= {"cpu": round(sum(getattr(after, k) - getattr(before, k) for k in ("ru_utime", "ru_stime")), 1)}
    answer, reason = text.split("\n", 1)[0], done.stderr.strip().removeprefix("specgrad: ")[:300]
    row |= {"answer": "refused" if answer in ("unknown", "error") and _is_refusal(reason) else answer}
    if reason:
        row["reason"] = reason.replace(str(SHARED), "")
    return row | ({"check": checked(instance, text)} if answer == "sat" else {})


def run_here(instance: Instance, seconds: float) -> dict[str, Any]:
    """The same answer from this process: no program is loaded per instance, and time is this process's CPU time.

    One thread computes, so on a machine of its own both clocks agree; on a shared one the searches get what they ask.
    """
    from specgrad.bounds.search.query import certify_query
    from specgrad.cli.shared.output_files import vnncomp_text
    from specgrad.errors import SpecgradError
    from specgrad.properties.command import TimeIsUpError

    row: dict[str, Any] = {"family": instance.family, "year": instance.year, "network": instance.network}
    row |= {"property": instance.property, "limit": seconds, "by": "here", "tools": instance.tools}
    if instance.files is None:
        return {**row, "answer": "absent"}
    start, cpu = time.perf_counter(), time.process_time()

    def ring(*_: Any) -> None:
        raise TimeIsUpError

    signal.signal(signal.SIGPROF, ring)
    clock, time.monotonic = time.monotonic, time.process_time
    try:
        signal.setitimer(signal.ITIMER_PROF, 5 + 1.1 * seconds)
        verdict = certify_query(instance.files[1], {"N": str(instance.files[0])}, seconds=seconds)
        text, reason = vnncomp_text(verdict, instance.files[1]), verdict.reason
    except SpecgradError as error:
        text, reason = "refused\n", str(error)
    except TimeIsUpError:
        text, reason = "timeout\n", "the time ended before the search did"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        time.monotonic = clock
    row |= {"seconds": round(time.perf_counter() - start, 1), "cpu": round(time.process_time() - cpu, 1)}
    row["answer"] = text.split("\n", 1)[0]
    if reason:
        row["reason"] = reason.replace(str(SHARED), "")[:300]
    return row | ({"check": checked(instance, text)} if row["answer"] == "sat" else {})


def _is_refusal(reason: str) -> bool:
    """An unknown comes from a search, whose words these are; what is refused names an operator, a rule or a line."""
    return not any(word in reason for word in ("subproblem", "not enough", "time ended", "rounding decides", "open"))


def checked(instance: Instance, text: str) -> str:
    """correct, or why the counterexample is none; by a program that shares no code with us."""
    assert instance.files is not None
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        command = [sys.executable, SCRIPTS / "check_counterexample.py", instance.files[1], file.name, instance.files[0]]
        done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or f"no check: {done.stderr.strip()[-200:]}"


def is_wrong(row: dict[str, Any]) -> bool:
    """A counterexample that is none; a proof of what others have a counterexample for, and none of them a proof."""
    known = {answer[0] for answer in row["tools"].values()} & set(SETTLED)
    if row["answer"] == "sat":
        return not row["check"].startswith("correct")
    return row["answer"] == "unsat" and known == {"sat"}


# --- all of them ------------------------------------------------------------------------------------------------------


def recorded(path: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The last row of every instance."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["family"], row["network"], row["property"]): row for row in rows}


def run(families: list[str], seconds: float, path: Path, again: bool, here: bool = False) -> bool:
    """Whatever is not recorded with at least as much time; whether no answer is wrong."""
    known, by = recorded(path), "here" if here else "scripts"
    chosen = instances(families)
    for k, instance in enumerate(chosen):
        row = known.get(instance.key)
        if row is None or again or row["limit"] < seconds or row["by"] == "here" != by:
            row = known[instance.key] = (run_here if here else run_one)(instance, seconds)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            mark = "WRONG" if is_wrong(row) else row.get("reason", row.get("check", ""))[:80]
            names = f"{instance.family:20} {Path(instance.network).stem[:30]:30} {Path(instance.property).stem[:30]:30}"
            print(f"{k + 1:3}/{len(chosen)} {names} {row['answer']:8} {row.get('cpu', 0):6.1f} s  {mark}", flush=True)
    order = [known[i.key] for i in instances([]) if i.key in known]
    path.write_text("".join(json.dumps(row) + "\n" for row in order))
    rows = [known[i.key] for i in chosen]
    for family in dict.fromkeys(i.family for i in chosen):
        count = Counter(row["answer"] for row in rows if row["family"] == family)
        print(f"{family:20} {', '.join(f'{n} {answer}' for answer, n in sorted(count.items()))}")
    return not any(map(is_wrong, rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="default: all")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--again", action="store_true", help="run what is recorded too")
    parser.add_argument("--here", action="store_true", help="in this process, by its CPU time")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    if options.speed:
        import splits

        splits.main()
    elif not run(options.families, options.seconds, options.record, options.again, options.here):
        sys.exit(1)


if __name__ == "__main__":
    main()
