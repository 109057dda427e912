"""All node tests of onnx with what is proven of them: counts, sentences and JSON data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specgrad.deadline import is_over
from specgrad.rounding import Arithmetic

from .judge import DTYPES, JudgedTest, TestOutput, judge_test
from .load import NodeTest

MEANING = (
    "every correct execution y passes numpy.testing.assert_allclose(y, stored, rtol=rtol, atol=atol): "
    "abs(y - stored) <= atol + rtol*abs(stored), NumPy's own rounding included"
)
COLUMNS = ("outputs", "proven", "unbounded", "not read", "enough", "open", "below", "outside")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class NodeTests:
    """What is proven of node tests.

    source    where they come from, in words
    tests     those that were judged; `left` names those that time did not reach
    arithmetic   the executions that are meant
    seconds   how long judging them took
    """

    source: str
    tests: tuple[JudgedTest, ...]
    left: tuple[str, ...]
    arithmetic: Arithmetic
    seconds: float

    @property
    def verdict(self) -> str:
        """ "unfinished" where time ran out, "findings" if a stored value lies outside what is correct, else "ok"."""
        return "unfinished" if self.left else "findings" if any(o.outside for _, o in self.outputs()) else "ok"

    def outputs(self) -> Iterator[tuple[JudgedTest, TestOutput]]:
        """Yield each test with each of its outputs."""
        return ((test, output) for test in self.tests for output in test.outputs)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return per floating format, and for "all" of them, the count of each of COLUMNS."""
        table = {dtype: dict.fromkeys(COLUMNS, 0) for dtype in (*DTYPES.values(), "all")}
        for _, output in self.outputs():
            if output.dtype in DTYPES.values():
                words = [
                    "outputs",
                    output.state,
                    *filter(None, [output.onnx]),
                    *(["outside"] if output.outside else []),
                ]
                for row in (table[output.dtype], table["all"]):
                    for word in words:
                        row[word] += 1
        return table

    def named(self, word: str) -> list[str]:
        """Return the names of tests with an output that counts under `word`, "outside" or a word on onnx's pair."""
        names = (t.name for t, o in self.outputs() if (o.outside if word == "outside" else o.onnx == word))
        return list(dict.fromkeys(names))

    def others(self) -> dict[str, int]:
        """Return how many outputs hold integers, booleans and other things: they are listed, and have no pair."""
        return dict(Counter(o.state for _, o in self.outputs() if o.dtype not in DTYPES.values()))

    def reasons(self) -> dict[str, int]:
        """Return why tests with a float output were not read, with how many tests that is, the most frequent first."""
        unread = [t for t in self.tests if t.reason and any(o.state == "not read" for o in t.outputs)]
        return dict(Counter(_without_names(test) for test in unread).most_common())

    def to_json(self, cells: bool) -> dict[str, Any]:
        """Return JSON data, with `cells` also exact values and radii cell by cell."""
        return {
            "source": self.source,
            "meaning": MEANING,
            "counts": self.counts(),
            "others": self.others(),
            "reasons": self.reasons(),
            "tests": [test.to_json(cells) for test in self.tests],
            "left": list(self.left),
            "deployment": self.arithmetic.deployment,
            "seconds": self.seconds,
        }


def _without_names(test: JudgedTest) -> str:
    """Return the reason why a test was not read without the name of its node, which no two tests share."""
    for node in (*(output.name for output in test.outputs), test.name):
        head, named, rest = test.reason.partition(f" {node!r}")
        if named:
            return head + rest
    return test.reason


def judge_tests(
    tests: Sequence[NodeTest], source: str, execution: str = "fused", progress: Progress | None = None
) -> NodeTests:
    """Return what is proven of each test, for the class of executions `execution`, within the time limit that holds
    here.

    `source` says where the tests come from; `progress` is told (name, done, total).
    """
    start, judged = time.monotonic(), []
    for done, test in enumerate(tests):
        if is_over():
            break
        if progress is not None:
            progress(test.name, done, len(tests))
        judged.append(judge_test(test, execution))
    left = tuple(test.name for test in tests[len(judged) :])
    arithmetic = Arithmetic(execution=execution)
    return NodeTests(source, tuple(judged), left, arithmetic, time.monotonic() - start)
