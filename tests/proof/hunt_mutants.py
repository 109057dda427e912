"""Mutants of certificates, given to both checkers: how often they agree, and how often the program compiled the graph.

    make -C verified; python tests/proof/hunt_mutants.py boxes 100000 5000        # seeds 100000 to 104999
    python tests/proof/hunt_mutants.py trees 200000 2500

Ends with an error at the first mutant that a checker accepts and an execution contradicts.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

import certificate_mutants  # noqa: E402 - the line above says where
import tree_mutants  # noqa: E402
from specgrad.proof.extracted import run_checker  # noqa: E402
from specgrad.proof.extracted.encode import CheckerInput  # noqa: E402
from test_proven import compared  # noqa: E402

MAKERS = {"boxes": certificate_mutants, "trees": tree_mutants}


def counted(kind: str, seeds: range) -> str:
    """Return the counts in words, after all of them."""
    asked: Counter[bool] = Counter()
    answers = run_checker.answers

    def counting(questions: Sequence[CheckerInput], seconds: float = 60.0) -> list[tuple[bool, bool]]:
        found = answers(questions, seconds)
        asked.update(compiled for _, compiled in found)
        return found

    run_checker.answers = counting
    try:
        ends, _ = compared(MAKERS[kind].subjects(), MAKERS[kind].mutant, seeds)
    finally:
        run_checker.answers = answers
    both, ours, proven = (ends[e] for e in (("valid", "valid"), ("valid", "refused"), ("refused", "valid")))
    ends_text = f"both accept {both}, Python alone {ours}, the program alone {proven}; nothing is contradicted"
    return f"{len(seeds)} mutants of {kind}: {ends_text}; cases asked: {asked[True]} compiled, {asked[False]} as cells"


if __name__ == "__main__":
    which, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    print(counted(which, range(first, first + count)))
