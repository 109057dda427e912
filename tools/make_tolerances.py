"""docs/guide/tolerances.md from what benchmarks/kernel_tolerances.py and kernel_runs.py recorded: python tools/make_tolerances.py"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# ruff: noqa: E501 - rows of tables

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guide" / "tolerances.md"
RECORD = ROOT / "benchmarks" / "kernel_tolerances.jsonl"
RUNS = ROOT / "benchmarks" / "kernel_runs.txt"
JUDGES = {"specgrad": "`assert_conforms`", "KernelBench": "allclose, 1e-2", "torch.testing": "`torch.testing`"}
LETTERS = {
    "zeros": "Z", "gain of 1 + 2^-12": "G", "last term dropped": "D", "off by one in the last tile": "O",
    "stale last tile": "T", "one stale tile": "1", "mask one cell short": "M", "axes swapped": "S",
    "sums in bfloat16": "B",
}  # fmt: skip
MEANING = {
    "zeros": "nothing but zeros",
    "gain of 1 + 2^-12": "every cell times 1 + 2^-12",
    "last term dropped": "sums, windows and scans without their last term, tap, key or row",
    "off by one in the last tile": "the last 64 cells of the last axis hold their neighbours' values",
    "stale last tile": "the last 64 x 64 cells hold the tile before them",
    "one stale tile": "one of all tiles of 64 x 64 cells, drawn, holds the tile before it",
    "mask one cell short": "the last cell along the last axis is not written",
    "axes swapped": "two axes of one length change places",
    "sums in bfloat16": "partial sums are rounded to bfloat16 up to 32 (norms: 1,024) times; of convolutions in one item",
}
INTRO = """# Tolerances that are theorems

Made by `python tools/make_tolerances.py` from benchmarks/kernel_tolerances.jsonl and benchmarks/kernel_runs.txt; a test keeps it current.

Who tests a kernel with `allclose` guesses a tolerance. [`assert_conforms`](kernels.md) computes one for every cell: how far a correct
kernel can be from the exact value at these inputs, in any order of summation ([rounding](../reference/rounding.md)). Here both are
held against each other on the 100 operations of KernelBench, level 1, with PyTorch's kernels on a CPU.

**What is proven.** Of every cell that was judged: a result outside its allowance is no rounding, whatever the order of its sums, with or
without fused multiply-add. A correct kernel is never rejected. The bounds of functions such as exp and tanh rest on
[errors that were measured](../reference/executions.md).

**What is not.** A result inside its allowance may still be wrong by less than that. The worst order of a long sum is allowed for; real
kernels use a small part of it (column *used*). So a small fault of a long sum passes on usual numbers. On integers of few
digits a sum of products has no rounding in float32, so it is asked there, too.

**What is sampled.** Of these large results about 4,096 drawn cells are judged, and corners, borders and edges of tiles, but for selections that cost too much (the sample counts them: `left_out`). A fault in a
share p of the cells is missed with probability at most (1-p)^n, n being the cells that were drawn independently: {missed}.
One stale tile among thousands is such a fault.
"""


def lines(dtype: str | None = None) -> list[dict[str, Any]]:
    """Return what was recorded, by number; of one format, or of all."""
    found = [json.loads(text) for text in RECORD.read_text().splitlines()]
    return sorted((one for one in found if dtype in (None, one["dtype"])), key=lambda one: int(one["number"]))


def _caught(by: dict[str, bool], judge: str) -> bool:
    return by[judge] or (judge == "specgrad" and by.get("integers", False))


def _faults_table(found: Sequence[dict[str, Any]], form: str) -> str:
    rows = [
        f"| planted in {form} | what | in | `assert_conforms`, usual numbers | and integers | allclose, 1e-2 | `torch.testing` |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    sums = [0] * 5
    for name, letter in LETTERS.items():
        here = [one["faults"][name] for one in found if name in one.get("faults", {})]
        counts = [len(here), sum(b["specgrad"] for b in here), sum(_caught(b, "specgrad") for b in here)]
        counts += [sum(b[judge] for b in here) for judge in ("KernelBench", "torch.testing")]
        sums = [a + b for a, b in zip(sums, counts, strict=True)]
        rows.append(f"| {name} ({letter}) | {MEANING[name]} | {' | '.join(map(str, counts))} |")
    return "\n".join([*rows, f"| all | | {' | '.join(f'{n:,}' for n in sums)} |"])


def _missed(one: dict[str, Any], judge: str) -> str:
    return "".join(LETTERS[name] for name, by in one.get("faults", {}).items() if not _caught(by, judge))


def _other_verdict(one: dict[str, Any]) -> list[str]:
    return ["no kernel" if one["verdict"] == "no kernel" else "open"]


def _row(one: dict[str, Any]) -> str:
    shape = "x".join(map(str, one["shape"])) or "a number"
    part = "" if one["batch"] == one["of"] else f"{one['batch']:,} of {one['of']:,}"
    cells = [str(one["number"]), one["name"], shape, part]
    if one["verdict"] != "inside":
        return "| " + " | ".join([*cells, *_other_verdict(one), *[""] * 7]) + " |"
    rejected = [
        f"{100 * one['rejected'][judge]:.2g} %" if one["rejected"][judge] else ""
        for judge in ("KernelBench", "torch.testing")
    ]
    cells += [f"{one['used']:.2g}", f"{one['seconds']:.1f}", f"{one['peak_gb']:.1f}"]
    cells += [_missed(one, judge) for judge in JUDGES]
    return "| " + " | ".join([*cells, *rejected]) + " |"


def _operations_table(found: Sequence[dict[str, Any]]) -> str:
    head = "| | operation | result | part of the batch | used | s | GB | missed by `assert_conforms` | by allclose, 1e-2 | by `torch.testing` | right cells rejected at 1e-2 | by `torch.testing` |"
    return "\n".join([head, "|--:|---|---|---|--:|--:|--:|---|---|---|--:|--:|", *map(_row, found)])


def _summary(found: Sequence[dict[str, Any]], form: str) -> str:
    inside = [one for one in found if one["verdict"] == "inside"]
    seconds, memory = [one["seconds"] for one in inside], [one["peak_gb"] for one in inside]
    rejected = [sum(one["rejected"][judge] > 0 for one in inside) for judge in ("KernelBench", "torch.testing")]
    cut = [one for one in inside if one["batch"] < one["of"]]
    lacking = [one["name"] for one in found if one["verdict"] == "no kernel"]
    outside = ", ".join(one["name"] for one in found if one["verdict"] not in ("inside", "no kernel"))
    absent = 100 - len(found)
    return (
        f"{form}: PyTorch lies inside in {len(inside)} of {len(found) - len(lacking)} operations"
        + (f", and has no kernel of {', '.join(lacking)}" if lacking else "")
        + (f", and {absent} of the 100 were not run at these sizes" if absent else "")
        + (
            f"; open is {outside}: of some cells nothing is proven, since so many terms may overflow in some order"
            if outside
            else ""
        )
        + f". A check took {statistics.median(seconds):.1f} CPU s beyond the kernel's own run (median; at most {max(seconds):.1f} s), and at most "
        f"{max(memory):.1f} GB beyond its arrays. Of {len(cut)} operations a part of the batch was run, mostly where arrays pass 0.2 to 1.05 GiB or a run "
        f"4 to 140 GFLOP. Tolerances reject cells of these right results, held against exact values, in {rejected[0]} operations (1e-2) and in "
        f"{rejected[1]} (`torch.testing`)."
    )


def _loose() -> str:
    def unseen(form: str) -> str:
        names = [f"{one['name']} ({one['number']})" for one in lines(form) if "Z" in _missed(one, "specgrad")]
        return f"{', '.join(names) or 'none'} in {form}"

    forms = " and ".join(unseen(form) for form in ("float32", "bfloat16"))
    return (
        f"Even zeros are not seen (Z) in {forms}: in the worst order so many terms may lose as much as their sum is; of cumprod most cells are open; and scores of "
        "attention with the 8 digits of bfloat16 stand in an exponential. At such sizes a theorem says little of them; fewer terms, as below, say more."
    )


def _whole_statistics() -> str:
    inside = [one for one in lines() if one["verdict"] == "inside"]
    wide = [one for one in inside if one["family"] in ("norm", "reduction", "loss")]
    slow = [one for one in inside if one["seconds"] > 60 or one["peak_gb"] > 4]
    most = max(wide, key=lambda one: one["seconds"])
    past = ", ".join(
        f"{one['name']} in {one['dtype']} ({one['seconds']:.0f} s, {one['peak_gb']:.1f} GB)" for one in slow
    )
    return (
        f"A cell of a norm, a softmax or a reduction depends on a whole row, group or channel, the one number of a loss on everything. These {len(wide)} checks took "
        f"{statistics.median(one['seconds'] for one in wide):.1f} s (median; at most {most['seconds']:.0f} s, {most['name']}) and at most "
        f"{max(one['peak_gb'] for one in wide):.1f} GB beyond the arrays. Sums over more than 2^24 cells of the reference are computed block by block, so that their memory "
        "does not grow with the batch; their time does, by about a minute per 10^8 numbers of a loss. "
        + (f"More than 60 s or 4 GB took {past}. " if past else "None took more than 60 s or 4 GB. ")
        + "Means and variances of a normalisation are not: at its full batch of 64, a channel of batch norm (16,777,216 numbers) needs 268,435,470 cells of the "
        "reference, 14 more than are held at once, and is refused. The groups of layer norm, 4,194,304 numbers, are judged at their full size."
    )


def _draws(found: Sequence[dict[str, Any]]) -> str:
    draws = sorted(int(one["draws"]) for one in found if one.get("draws") and one["shape"])
    least, median = draws[0], int(statistics.median(draws))
    return f"n is {median} (median; at least {least}), so p = 5 % is missed with {0.95**median:.1g} (at most {0.95**least:.2g})"


def document() -> str:
    """Return the text of the page."""
    forms = [form for form in ("float32", "bfloat16") if lines(form)]
    parts = [INTRO.format(missed=_draws(lines())), "## Faults caught\n"]
    parts += [_faults_table(lines(form), form) + "\n" for form in forms]
    parts.append(
        "Both tolerances were given the right result of the same kernel as what is expected, which a test of a new kernel never has: whole where "
        "nothing was planted. `torch.testing` finds most where it is narrower than rounding, and there it rejects right results, too (below). A "
        "gain of 2^-12 is less than the last digit of bfloat16.\n"
    )
    parts.append(_loose() + "\n")
    parts += ["## Results that are right\n", *(_summary(lines(form), form) + "\n" for form in forms)]
    parts.append(_whole_statistics() + "\n")
    if RUNS.exists():
        parts.append(
            "The same operations at reduced sizes, other numbers in every draw, all cells judged, by `python benchmarks/kernel_runs.py`. "
            "*open*: of some cell nothing is proven, in the class that takes float16 with numbers below its normal ones flushed; *sums in format*: runs that need the class of sums in "
            "the format itself; *used*: the largest part of an allowance; *rejected*: right results that a tolerance rejects, held against PyTorch's "
            "in the same format.\n"
        )
        parts.append(f"```text\n{RUNS.read_text().rstrip()}\n```\n")
    parts.append("## Operation by operation\n")
    parts.append(
        "`python benchmarks/kernel_tolerances.py --gib 1.05 --gflop 140` and below (`--gib 0.2 --gflop 4`), one thread. *used*: the largest error of a judged cell as a part of its allowance; "
        "*s* and *GB*: of the check alone; faults by the letters above.\n"
    )
    for form in forms:
        parts.append(f"### {form}\n\n{_operations_table(lines(form))}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(document())
