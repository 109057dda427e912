"""docs/guide/what-works.md from committed records: `python tools/make_what_works.py`. It measures nothing.

The zoo's record gives audit and tolerance, benchmarks/tolerance.txt the proven tolerances, the families' record certify.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# ruff: noqa: E501 - rows of a table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guide" / "what-works.md"
BENCHMARKS = ROOT / "benchmarks"
Row = dict[str, Any]

INTRO = """# What works at which size

Models by command, with CPU seconds of one thread on two shared cores, gigabytes of the largest process, and what the answer is
worth. No figure was measured for this page: it is written from committed records by `python tools/make_what_works.py`.

| you ask | up to what was tried | what the answer is worth |
|---|---|---|
| `audit`: is each layer rounding? | {audited} | a proof per layer: a layer that differs is a bug |
| `tolerance` of small networks | [a ResNet-20, a U-Net of width 4](#proven-tolerances) | a proven number |
| `tolerance` of deployed models | {tolerated} | an estimate, labelled so: no proof |
| `certify`, `verify`: does it hold for a box of inputs? | [{families} families of the competition](#properties) | a proof for each float32 execution, or a counterexample |
| a decoder of half a billion weights, `audit` of its layers | 115 to 164 CPU s, 9.3 to 11.9 GB ([output](../../benchmarks/deployed_transformers.txt)) | a proof per layer; "cannot tell" for the whole model |

## Deployed models

By multiply-adds. *pip* models have trained weights and come out of a package; the others are torchvision's with random weights, and
some were rewritten (float16, another exporter, a tool). The commands had 120 s each, on ONNX Runtime
([all answers](../findings/zoo.md), `python benchmarks/zoo_table.py FOLDER`).

| model | parameters | multiply-adds | audit | CPU s, GB | atol, of the outputs' spread | CPU s, GB |
|---|--:|--:|---|--:|---|--:|
"""
PROVEN = """
## Proven tolerances

Fused: runtimes may merge nodes. *by node*: every layer's result is stored. *seen* is the largest distance of four runtimes from float64
([how, and what follows](../findings/tolerance.md), `python benchmarks/tolerance.py`).

| network | largest output | proven, fused | proven, by node | seen | CPU s |
|---|--:|--:|--:|--:|--:|
"""
FAMILIES = """
## Properties

Instances of the verification competition that `certify` and `verify` were asked, by family. *CPU s* is the median of those that were
settled ([each instance, and other tools](families.md), `python benchmarks/families.py`).

| family | asked | proven | counterexample | open or refused | limit, s | CPU s |
|---|--:|--:|--:|--:|--:|--:|
"""


def lines_of(name: str) -> list[Row]:
    return [json.loads(line) for line in (BENCHMARKS / name).read_text().splitlines()]


def count(text: str, what: str) -> int:
    """The number before a word: "11,684,712 parameters"; of what a tool passed over nothing is counted."""
    found = re.search(rf"([\d,]+) {what}", text)
    return int(found[1].replace(",", "")) if found else 0


def short(number: int) -> str:
    """Three digits, with k, M or G.

    >>> short(1814073344), short(133664), short(7)
    ('1.81 G', '134 k', '7')
    """
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def audit_words(row: Row) -> str:
    return str(row["verdict"]) if row["verdict"] != "partly examined" else "in part"


def tolerance_words(row: Row) -> str:
    """The number with its label and its share of the outputs' spread; else the verdict."""
    found = re.search(r"atol=(\S+?)\) +# (\w+); (\S+) of the outputs' spread(.*)", row["use"])
    if not found:
        return str(row["verdict"])
    return f"{found[1]} {found[2]}, {found[3]}{found[4].replace(':', ',')}"


def models() -> list[tuple[str, Row]]:
    """Rows of each model by command, the one with the fewest multiply-adds first."""
    asked: dict[str, Row] = {}
    for row in lines_of("zoo.jsonl"):
        asked.setdefault(row["model"], {})[row["command"]] = row
    sized = [(n, rows) for n, rows in asked.items() if {"show", "audit", "tolerance"} <= rows.keys()]
    return sorted(sized, key=lambda item: count(item[1]["show"]["use"], "multiply-adds"))


def model_row(name: str, rows: Row) -> str:
    shown = rows["show"]["use"]
    size = [short(count(shown, what)) for what in ("parameters", "multiply-adds")]
    size = size if shown.startswith("read whole") else ["read in part", ""]
    label = f"{name} (pip)" if rows["show"]["trained"] else name
    cost = [f"{rows[c]['cpu']:.0f}, {rows[c]['gb']:.1f}" for c in ("audit", "tolerance")]
    cells = [label, *size, audit_words(rows["audit"]), cost[0], tolerance_words(rows["tolerance"]), cost[1]]
    return f"| {' | '.join(cells)} |\n"


def largest(command: str, good: str) -> str:
    """The model with the most multiply-adds that a command answered so, with what it cost."""
    name, rows = [item for item in models() if item[1][command]["verdict"] == good][-1]
    size = short(count(rows["show"]["use"], "multiply-adds"))
    cost = rows[command]
    return f"{name}: {size} multiply-adds, {cost['cpu']:.0f} CPU s, {cost['gb']:.1f} GB"


def tolerances() -> Iterator[str]:
    """Rows of the table of benchmarks/tolerance.txt, as it stands there."""
    table = (BENCHMARKS / "tolerance.txt").read_text().partition("seen by\n")[2]
    for line in table.splitlines():
        name, cells = line[:32].strip(), line[32:].split()
        stopped = " (stopped)" if "stopped" in line else ""
        yield f"| {name} | {cells[0]} | {cells[2]} | {cells[3]} | {cells[4]} | {cells[7]}{stopped} |\n"


def families() -> dict[str, list[Row]]:
    """Instances that were asked, by family."""
    asked: dict[str, list[Row]] = {}
    for row in lines_of("families.jsonl"):
        if row["answer"] != "absent":
            asked.setdefault(row["family"], []).append(row)
    return dict(sorted(asked.items()))


def properties() -> Iterator[str]:
    for name, rows in families().items():
        answers = [row["answer"] for row in rows]
        proven, found = answers.count("unsat"), answers.count("sat")
        took = [row["cpu"] for row in rows if row["answer"] in ("sat", "unsat")]
        middle = f"{statistics.median(took):.2g}" if took else ""
        limit = "/".join(f"{x:g}" for x in sorted({row["limit"] for row in rows}))
        yield f"| {name} | {len(rows)} | {proven} | {found} | {len(rows) - proven - found} | {limit} | {middle} |\n"


def document() -> str:
    tried = {"audited": largest("audit", "rounding"), "tolerated": largest("tolerance", "estimated")}
    table = "".join(model_row(name, rows) for name, rows in models())
    intro = INTRO.format(**tried, families=len(families()))
    return intro + table + PROVEN + "".join(tolerances()) + FAMILIES + "".join(properties())


if __name__ == "__main__":
    PAGE.write_text(document())
