"""Every public function against the bare framework's own, and the slower rows by name.

python benchmarks/law.py                     # PyTorch, every row that benchmarks/results/law_torch.jsonl lacks
python benchmarks/law.py --engine jax
python benchmarks/law.py --only max_pool     # measure these again
python benchmarks/law.py --redo              # measure everything again
python benchmarks/law.py --losing            # measure again what is over the limit

Sizes x layouts x types x directions; values and layouts are compared before the clock starts. One thread, CPU time,
both sides in turn, the smallest run of each. The limit is bare / 0.95 + 5 us; a row over it is measured again, up to
four times, and each side keeps its least. On JAX both sides are jitted.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from measure import compare

RESULTS = Path(__file__).parent / "results"
KEYS = ("case", "size", "layout", "dtype", "direction")
FIXED, RATIO = 5e-6, 0.95
AGAIN = 4

Row = dict[str, Any]


def over(row: Row) -> bool:
    """Slower than the limit allows."""
    return "ours" in row and row["ours"] > row["bare"] / RATIO + FIXED


def at_par(row: Row) -> bool:
    """At or above 0.95x without the help of the fixed cost."""
    return "ours" in row and row["ours"] <= row["bare"] / RATIO


def key(row: Row) -> tuple[str, ...]:
    return tuple(row[k] for k in KEYS)


def read(engine: str) -> dict[tuple[str, ...], Row]:
    path = RESULTS / f"law_{engine}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {key(row): row for row in map(json.loads, lines)}  # a later line replaces an earlier one


def measure(engine: Any, case: Any, variant: dict[str, str], budget: float) -> Row:
    row: Row = {"case": case.name, **variant}
    try:
        bare, ours, row["same_layout"] = engine.works(case, variant)
    except Exception as problem:  # a row that cannot be measured is a row of the page, not the end of the run
        return row | {"error": f"{type(problem).__name__}: {str(problem).strip().splitlines()[0][:200]}"}
    row["bare"], row["ours"] = _seconds(engine, bare, ours, budget)
    for _ in range(AGAIN):
        if over(row):
            again = _seconds(engine, bare, ours, 2 * budget)
            row["bare"], row["ours"] = min(row["bare"], again[0]), min(row["ours"], again[1])
    return row


def _seconds(engine: Any, bare: Any, ours: Any, budget: float) -> tuple[float, float]:
    return compare(bare, ours, budget=budget, least=3, sample=getattr(engine, "SAMPLE", 2e-3))


def one_thread(engine: str) -> None:
    """Before a framework computes anything."""
    if engine == "torch":
        import torch

        torch.set_num_threads(1)
    elif hasattr(os, "sched_setaffinity"):  # XLA starts as many threads as the process may use cores
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def line(row: Row) -> str:
    what = f"{row['case']} {row['size']} {row['layout']} {row['dtype']} {row['direction']}"
    if "error" in row:
        return f"{what}: {row['error']}"
    marks = (" SLOWER" if over(row) else "") + ("" if row["same_layout"] else " LAYOUT")
    more = (row["ours"] - row["bare"]) * 1e6
    return f"{what}: {row['bare'] / row['ours']:.2f}x ({row['bare'] * 1e6:.1f} us, {more:+.1f} us){marks}"


def write(engine: str, rows: dict[tuple[str, ...], Row]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows.values())
    (RESULTS / f"law_{engine}.jsonl").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("torch", "jax"), default="torch")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names; these rows are measured again")
    parser.add_argument("--where", nargs="*", default=[], help="sizes, layouts, types or directions, and no others")
    parser.add_argument("--redo", action="store_true", help="measure again what has been measured")
    parser.add_argument("--losing", action="store_true", help="measure again the rows over the limit, and no others")
    parser.add_argument("--budget", type=float, default=0.04, help="CPU seconds per row")
    parser.add_argument("--json", action="store_true", help="print rows as they are stored")
    parser.add_argument("--dry", action="store_true", help="store nothing")
    asked = parser.parse_args()
    one_thread(asked.engine)
    engine = importlib.import_module(f"law_{asked.engine}")
    from law_cases import CASES

    gc.collect()
    gc.freeze()  # a collection before each row must not walk two frameworks
    known = read(asked.engine)
    current = {}
    path = RESULTS / f"law_{asked.engine}.jsonl"
    RESULTS.mkdir(exist_ok=True)
    for case in CASES.values():
        for variant in engine.variants(case) if case.name in engine.BARE else ():
            k = key({"case": case.name, **variant})
            old = known.get(k)
            chosen = any(part in case.name for part in asked.only) if asked.only else True
            chosen = chosen and (not asked.where or all(part in variant.values() for part in asked.where))
            wanted = old is None or asked.redo or bool(asked.only)
            if asked.losing:
                wanted = old is not None and (over(old) or "error" in old or not old["same_layout"])
            if not chosen or not wanted:
                if old is not None:
                    current[k] = old
                continue
            row = current[k] = measure(engine, case, variant, asked.budget)
            print(json.dumps(row) if asked.json else line(row), flush=True)
            if not asked.dry:
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    if not asked.dry:
        write(asked.engine, current)  # without the rows that were replaced, or that no case makes any more
    rows = list(current.values())
    slow = [r for r in rows if over(r)]
    apart, broken = [r for r in rows if not r.get("same_layout", True)], [r for r in rows if "error" in r]
    par = sum(map(at_par, rows))
    print(f"{len(rows)} rows: {par} at or above {RATIO}x, {len(rows) - par - len(slow) - len(broken)} within 5 us,")
    print(f"{len(slow)} slower, {len(apart)} in another layout, {len(broken)} not measured", file=sys.stdout)


if __name__ == "__main__":
    main()
