"""docs/guide/families.md from what benchmarks/families.py and price_families.py recorded: python tools/make_families.py"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

# ruff: noqa: E501 - rows of tables

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guide" / "families.md"
RECORD = ROOT / "benchmarks" / "families.jsonl"
PRICE = ROOT / "benchmarks" / "price.jsonl"
INTRO = """# Every family of the competition

Made by `python tools/make_families.py` from benchmarks/families.jsonl and benchmarks/price.jsonl; a test keeps it current.

`python benchmarks/families.py{here} --seconds S` runs instances of the verification competition (VNN-COMP, 2021 to 2026), {how}: one
thread, as many CPU seconds each as the column *limit* says, {cpu} CPU seconds in all. The other tools had the competition's machines
and its time, which is mostly longer. Their answers are those that the competition recorded.

- `unsat` is a proof for every fused float32 execution ([Executions](../reference/executions.md)). The other tools answer for real
  arithmetic, or for their own floats. What holds by less than rounding can be settled for them and open for us.
- `sat` comes with an input. A program that shares no code with specgrad (`benchmarks/vnncomp/check_counterexample.py`) reads the property,
  runs the input on ONNX Runtime and compares exact numbers: {checked} of {sat} are counterexamples.
- `refused` names what is not read or not bounded; `time` is a time-out; `-` is any other end, and an empty cell no run.

{older}{total} instances of {families} families have files here: {settled} settled ({unsat} unsat, {sat} sat), {unknown} open, {refused} refused. {wrong}

| family | year | limit, s | instances | unsat | sat | open | refused | settled | by the best tool | by any tool |
|---|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|
"""
TOOLS = {
    "alpha_beta_crown": "ab-CROWN",
    "cora": "CORA",
    "neuralsat": "NeuralSAT",
    "nnenum": "nnenum",
    "nnv": "NNV",
    "pyrat": "PyRAT",
    "rover": "ROVER",
    "sobolbox": "SobolBox",
    "marabou": "Marabou",
    "mn_bab": "MN-BaB",
    "verinet": "VeriNet",
    "peregrinn": "PeregriNN",
    "fastbatllnn": "FastBATLLNN",
    "eran": "ERAN",
    "oval": "OVAL",
}
OLDER = """Families with a limit of 12 s were last run before products in a row counted as multiplied out ([Errata](../project/errata.md)): an `unsat` there
was not asked again of today's code. Families with functions (dist_shift, eran, lsnc, ml4acopf, nn4sys, vit) were last run before the errors
declared for functions were widened to those of ten runtimes: their `unsat` hold for the smaller errors.

"""
COUNTS = {
    "verivital": "Complete verifiers agree on 53 unsat and 7 sat.",
    "oval21": "In 2021, with some 720 s each: alpha-beta-CROWN, VeriNet and OVAL 12 unsat and 3 sat, ERAN 7 and 3, Marabou 6 and 2, nnenum 2 and 2.",
}
SETTLED = ("unsat", "sat")
WORDS = {"unsat": "unsat", "sat": "sat", "unknown": "unknown", "timeout": "time", "run_instance_timeout": "time"}
MODELS = {"real": "real arithmetic", "node": "float32 by node", "fused": "float32 fused"}

Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def known(row: Row) -> set[str]:
    return {answer[0] for answer in row["tools"].values()} & set(SETTLED)


def is_wrong(row: Row) -> bool:
    """As benchmarks/families.py has it."""
    if row["answer"] == "sat":
        return not row["check"].startswith("correct")
    return row["answer"] == "unsat" and known(row) == {"sat"}


def by_family(rows: list[Row]) -> dict[str, list[Row]]:
    ordered = sorted(rows, key=lambda r: r["family"])
    return {family: list(group) for family, group in groupby(ordered, key=lambda r: r["family"])}


def tool(name: str) -> str:
    return TOOLS.get(name, name)


def overview(families: dict[str, list[Row]]) -> list[str]:
    """A row per family; absent ones have their counts of others alone."""
    lines = []
    for family, rows in families.items():
        count = Counter(r["answer"] for r in rows)
        there = len(rows) - count["absent"]
        settled = Counter(name for r in rows for name, answer in r["tools"].items() if answer[0] in SETTLED)
        best = settled.most_common(1)
        most = f"{best[0][1]} ({tool(best[0][0])})" if best else "see below" if family in COUNTS else "not recorded"
        any_tool = sum(bool(known(r)) for r in rows) if best else ""
        solved = count["unsat"] + count["sat"]
        cells = [count["unsat"], count["sat"], there - solved - count["refused"], count["refused"], solved]
        shown = [str(c) for c in cells] if there else ["no files"] + [""] * 4
        name = f"[{family}](#{family})" if there else family
        limit = f"{min(r['limit'] for r in rows):g}" if there else ""
        lines.append(
            f"| {name} | {rows[0]['year']} | {limit} | {len(rows)} | {' | '.join(shown)} | {most} | {any_tool} |"
        )
    return lines


def detail(family: str, rows: list[Row]) -> list[str]:
    """Every instance and every tool; below it why the others are open."""
    lines = [f"## {family}", ""]
    if family in COUNTS:
        lines += [COUNTS[family], ""]
    tools = sorted({name for r in rows for name in r["tools"]}, key=lambda n: tool(n).lower())
    if tools:
        lines.append(f"| network | property | specgrad | s | {' | '.join(map(tool, tools))} |")
        lines.append(f"|---|---|---|--:|{'---|' * len(tools)}")
        lines += [instance(r, tools) for r in rows]
        lines.append("")
    return lines + reasons(rows)


def instance(row: Row, tools: list[str]) -> str:
    net, statement = (Path(row[k]).stem for k in ("network", "property"))
    answer = f"**{row['answer']}**" if row["answer"] in SETTLED else WORDS.get(row["answer"], row["answer"])
    others = [WORDS.get(row["tools"][t][0], "-") if t in row["tools"] else "" for t in tools]
    return f"| {short(net)} | {short(statement)} | {answer} | {row.get('cpu', 0):.0f} | {' | '.join(others)} |"


def short(name: str, most: int = 40) -> str:
    name = name if len(name) <= most else f"{name[: most // 2 - 1]}...{name[-most // 2 + 2 :]}"
    return name.replace("_", "\\_").replace("|", "/")


def reasons(rows: list[Row]) -> list[str]:
    """Equal ones once."""
    why: dict[str, list[str]] = {}
    for r in rows:
        if r["answer"] not in (*SETTLED, "absent"):
            word = "refused" if r["answer"] == "refused" else "open"
            text = f"{word}: {r.get('reason', 'no reason was given')}".replace("_", "\\_").replace("*", "\\*")
            why.setdefault(text, []).append(f"{short(Path(r['network']).stem)}, {short(Path(r['property']).stem)}")
    if not why:
        return []
    return [
        f"- {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}; {text}" for text, names in why.items()
    ] + [""]


def price(rows: list[Row]) -> list[str]:
    """By family: settled under each model, and how much wider the outputs' bounds are than in real arithmetic."""
    if not rows:
        return []
    lines = [
        "## The price of deployed soundness",
        "",
        f"`python benchmarks/price_families.py` asks the same questions three times, {rows[0]['limit']:g} CPU s each: over real numbers, for",
        "every float32 execution by node, and for every fused one. *Real* is no claim about any program: bounds for exact arithmetic on the",
        "file's weights, with our own rounding counted, and nothing for the network's. Counterexamples are float32 runs in all three.",
        "Widths are those of the outputs' linear bounds on the whole box of the first case, over the width in real arithmetic: the median",
        f"of a family's instances, and the largest. {len({r['family'] for r in rows})} families were run so.",
        "",
        "| family | instances | settled: real | by node | fused | width: by node, median | most | fused, median | most |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    families = by_family(rows)
    for family, group in families.items():
        lines.append(f"| {family} | {len(group)} | {priced(group)} |")
    return [*lines, f"| **all** | {len(rows)} | {priced(rows)} |", ""]


def priced(rows: list[Row]) -> str:
    counts = [str(sum(r["verdicts"][m] in ("holds", "violated") for r in rows)) for m in MODELS]
    widths = []
    for model in ("node", "fused"):
        ratios = [r["ratios"][model] for r in rows if r["ratios"].get(model)]
        widths += [wide(statistics.median(ratios)), wide(max(ratios))] if ratios else ["", ""]
    return " | ".join([*counts, *widths])


def wide(ratio: float) -> str:
    return f"{ratio:.4f}" if ratio < 10 else f"{ratio:.3g}"


def document() -> str:
    rows = read(RECORD)
    families = by_family(rows)
    there = [r for r in rows if r["answer"] != "absent"]
    count = Counter(r["answer"] for r in there)
    wrong, by_hand = sum(map(is_wrong, there)), any(r.get("by") != "scripts" for r in there)
    numbers = {
        "total": len(there),
        "families": len({r["family"] for r in there}),
        "settled": count["unsat"] + count["sat"],
        "unsat": count["unsat"],
        "sat": count["sat"],
        "refused": count["refused"],
        "unknown": len(there) - count["unsat"] - count["sat"] - count["refused"],
        "checked": sum(r["answer"] == "sat" and r["check"].startswith("correct") for r in there),
        "cpu": f"{sum(r['cpu'] for r in there):,.0f}",
        "here": " --here" if by_hand else "",
        "how": "in one process" if by_hand else "by its own three scripts (`benchmarks/vnncomp`)",
        "older": OLDER if any(r["limit"] < 60 for r in there) else "",
        "wrong": "None of our answers is wrong." if not wrong else f"{wrong} of our answers are WRONG.",
    }
    lines = [*overview(families), "", *price(read(PRICE))]
    for family, group in families.items():
        if any(r["answer"] != "absent" for r in group):
            lines += detail(family, group)
    return INTRO.format(**numbers) + "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(document())
