"""Campaigns of kind conformance: generated operator test cases on one runtime, by operator and seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from specgrad.check.cases.generate import SHAPES
from specgrad.check.cases.op_case import OpCase, check_operator
from specgrad.check.cases.shrink import complexity
from specgrad.check.conform.broken_rule import failure_kind, rule
from specgrad.check.conform.conformance import BAD, cases_for, keep_smallest, shrink_to_finding
from specgrad.check.verdicts.judge import Verdict
from specgrad.check.verdicts.run_case import RuntimeExaminer

from ...check import Conformance as ConformanceResult
from ...check.runtimes import runtime
from ...process import Process
from .keys import Key
from .kind import Finding, Kind, Progress, Row, finite_or_none, one_line


class ConformanceKind(Kind):
    """Campaign of conformance checks: a shard is one operator with the test cases of one seed, without shrinking."""

    name = "conformance"
    BAD = BAD
    GOOD = ("exact", "rounding")
    KEYS = {  # noqa: RUF012
        "runtime": Key("text", "who is asked: torch, jax, onnxruntime, openvino, ..."),
        "operators": Key("texts", "which operators; all by default", None),
        "seeds": Key("count", "how many seeds, each a shard per operator", 1),
        "first_seed": Key("seed", "the first of them", 0),
        "questions": Key("count", "questions per shard", 64),
        "gradients": Key("flag", "ask for gradients too, where the runtime has them", True),
        "seconds": Key("seconds", "time limit for one answer", 60),
    }

    def __init__(self, given: Mapping[str, Any], home: str | Path) -> None:
        super().__init__(given, home)
        self.runtime = runtime(self.options["runtime"])
        self.operators = [check_operator(name) for name in self.options["operators"] or SHAPES]
        self.options["operators"] = self.operators

    @property
    def count(self) -> int:
        """Return the number of shards: one per operator and seed."""
        return len(self.operators) * int(self.options["seeds"])

    def fingerprint_inputs(self) -> dict[str, Any]:
        """Return the versions of the runtime, which decide the results."""
        return {"runtime": self.runtime.versions()}

    @cached_property
    def examiner(self) -> RuntimeExaminer:
        """Runs test cases on the runtime, in a process that is started once."""
        process = Process(seconds=self.options["seconds"], environment=self.runtime.environment)
        return RuntimeExaminer(self.runtime, process)

    def start(self) -> None:
        """Ask the runtime one case, so that it is loaded before the first shard."""
        self.examiner.ask(next(self._generated_cases("relu", 0)))

    def close(self) -> None:
        """End the runtime's process, if it was started."""
        if "examiner" in self.__dict__:
            self.examiner.process.close()

    def _generated_cases(self, operator: str, seed: int) -> Iterator[OpCase]:
        """Return the generated test cases of one operator and seed."""
        return cases_for(operator, self.runtime, self.options["questions"], seed, self.options["gradients"])

    def rows(self, shard: int) -> Iterator[Row]:
        """Yield the verdict on each case of a shard, one operator and seed, as JSON data."""
        turn, place = divmod(shard, len(self.operators))
        operator, seed = self.operators[place], self.options["first_seed"] + turn
        for case in self._generated_cases(operator, seed):
            yield _case_row(case, seed, self.examiner.ask(case))

    def group_of(self, row: Row) -> str:
        """Return the operator, under which verdicts are counted."""
        return str(row["operator"])

    def dedup_key(self, row: Row) -> tuple[Any, ...]:
        """Return (operator, kind of failure): of bad rows with one key the smallest is reported."""
        return row["operator"], *row["sort"]

    def size_key(self, row: Row) -> tuple[Any, ...]:
        """Return a sort key: simple cases first."""
        return *row["complexity"], row["shard"], row["number"]

    def findings(self, smallest: Sequence[tuple[Row, int]], progress: Progress) -> list[Finding]:
        """Generate each smallest case again, shrink it on the runtime, and return findings with scripts.

        A case that now passes becomes a finding without a script.
        """
        result = ConformanceResult(self.runtime.name, self.runtime.versions(), self.options["first_seed"])
        rows: dict[tuple[Any, ...], tuple[Row, int]] = {}
        passed = []
        for done, (row, times) in enumerate(smallest):
            progress(f"shrinking {row['operator']}", done, len(smallest))
            case = next(itertools.islice(self._generated_cases(row["operator"], row["seed"]), row["number"], None))
            verdict = self.examiner.ask(case)
            if verdict.kind not in BAD:
                passed.append(Finding(row["question"], f"asked again: {verdict}", row, times))
                continue
            finding = shrink_to_finding(case, verdict, self.examiner, self.runtime)
            keep_smallest(result.findings, finding)
            known, before = rows.get(finding.sort(), (row, 0))
            rows[finding.sort()] = known, before + times
        reported = []
        for finding, (name, script) in zip(result.findings, result.scripts().items(), strict=True):
            row, times = rows[finding.sort()]
            detail = str(finding.verdict).removeprefix(f"{finding.verdict.kind}: ")
            reported.append(Finding(str(finding.question), f"[{finding.rule}] {detail}", row, times, name, script))
        return reported + passed


def _case_row(case: OpCase, seed: int, verdict: Verdict) -> Row:
    """Return the JSON row of one test case of a seed with its verdict; all rows have one set of keys."""
    bad = verdict.kind in BAD
    reason = str(verdict) if bad else verdict.detail
    return {
        "operator": case.operator,
        "seed": seed,
        "gradient": case.gradient is not None,
        "data": case.data,
        "verdict": verdict.kind,
        "ratio": finite_or_none(verdict.ratio),
        "reason": one_line(reason) if reason else None,
        "question": str(case) if bad else None,
        "rule": rule(case, verdict) if bad else None,
        "sort": [str(part) for part in failure_kind(case, verdict)] if bad else None,
        "complexity": list(complexity(case)) if bad else None,
    }
