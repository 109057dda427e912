"""Write docs/guide/performance.md and its plot from what has been measured.

python benchmarks/report.py                  # write the page from benchmarks/results
python benchmarks/report.py --measure torch  # measure first where an algorithm of ours is faster, about five minutes

The rows of single calls come from benchmarks/law.py, those of networks from benchmarks/law_networks.py and
law_networks_jax.py.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import law
from law_cases import CASES
from measure import Row, table

ROOT = Path(__file__).parents[1]
STORE = Path(__file__).parent / "results"
GUIDE = ROOT / "docs" / "guide"
NETWORKS = {"PyTorch": "law_networks.jsonl", "JAX": "law_networks_jax.jsonl"}
ENGINES = {"torch": "PyTorch", "jax": "JAX"}


# --- where an algorithm of ours is faster -------------------------------------------------------------------------


def measure_torch() -> dict[str, Any]:
    import torch

    import torch_ops

    faster = [vars(r) for r in torch_ops.faster(False)]
    return {"version": torch.__version__, "faster": faster, "windows": torch_ops.large_windows()}


def measure_jax() -> dict[str, Any]:
    import jax

    import jax_ops

    rows = []
    for row in jax_ops.ROWS:
        _, _, bare, ours = jax_ops.measure(row)
        target = "" if row.target is None else f"{row.target:g}x"
        rows.append(vars(Row(f"{row.name} forward + backward", bare / 1e3, ours / 1e3, target)))
    return {"version": jax.__version__, "faster": rows}


# --- single calls -------------------------------------------------------------------------------------------------


def cause(row: law.Row, rows: dict[tuple[str, ...], law.Row]) -> str:
    """The fixed cost of a call, if the tiny tensor pays most of the same; else the work on the cells."""
    tiny = rows.get(law.key(row | {"size": "tiny"}))
    more = row["ours"] - row["bare"]
    fixed = tiny is not None and "ours" in tiny and tiny["ours"] - tiny["bare"] > 0.6 * more
    return "fixed cost" if fixed else "the work"


def ratio(row: law.Row) -> float:
    return float(row["bare"] / row["ours"])


def markdown(head: str, lines: Iterable[Iterable[Any]]) -> str:
    names = head.split(" | ")
    body = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([f"| {head} |", "|---" * len(names) + "|", *body])


def by_size(rows: list[law.Row]) -> str:
    """One line per size of tensor: how many rows are as fast, nearly, slower."""
    lines = []
    for size in ("tiny", "medium", "large"):
        some = [r for r in rows if r["size"] == size and "ours" in r]
        par, slow = sum(map(law.at_par, some)), sum(map(law.over, some))
        found = sorted(map(ratio, some))
        middle, least = f"{median(found):.2f}x", f"{found[0]:.2f}x"
        lines.append((size, len(some), par, len(some) - par - slow, f"**{slow}**", middle, least))
    head = "tensors | rows | at 0.95x or above | below, within 5 us | slower | median | slowest"
    return markdown(head, lines)


def losing_calls(engine: str, rows: dict[tuple[str, ...], law.Row]) -> str:
    """One line per call with rows over the limit: how many, how much, where, and why."""
    price: dict[str, str] = getattr(importlib.import_module(f"law_{engine}"), "PRICE", {})
    slow: dict[str, list[law.Row]] = {}
    why: dict[str, list[str]] = {}
    for r in rows.values():
        if law.over(r):
            slow.setdefault(r["case"], []).append(r)
    lines = []
    for case, some in sorted(slow.items(), key=lambda item: median(map(ratio, item[1]))):
        of = sum(r["case"] == case and "ours" in r for r in rows.values())
        worst = min(some, key=ratio)
        where = ", ".join((worst["size"], worst["layout"], worst["dtype"], worst["direction"]))
        fixed = sum(cause(r, rows) == "fixed cost" for r in some)
        middle, least = f"{median(map(ratio, some)):.2f}x", f"{ratio(worst):.2f}x"
        lines.append((f"`{case}`", f"{len(some)} of {of}", fixed, middle, least, where))
        if case in CASES and (paid := price.get(CASES[case].function)):
            why.setdefault(paid, []).append(f"`{case}`")
    listed = markdown("call | slower rows | by fixed cost | median of these | slowest | which is", lines)
    asked = "The contract asks some for more than the bare call:\n\n"
    reasons = [f"- {', '.join(names)}: {paid}." for paid, names in why.items()]
    return "\n\n".join([listed, asked + "\n".join(reasons)] if reasons else [listed])


def possible(engine: str) -> int:
    """How many rows there are for this engine, measured or not."""
    bare = importlib.import_module(f"law_{engine}")
    return sum(len(bare.variants(case)) for name, case in CASES.items() if name in bare.BARE)


def calls_section(engine: str) -> str:
    rows = law.read(engine)
    if not rows:
        return f"None of {possible(engine)} rows has been measured: `python benchmarks/law.py --engine {engine}`."
    timed = [r for r in rows.values() if "ours" in r]
    apart = sum(not r["same_layout"] for r in timed)
    said = (
        f"{len({r['case'] for r in timed})} calls, {len(timed)} of {possible(engine)} rows measured; of {apart} the "
        "result or gradient has another layout than the bare one."
    )
    return "\n\n".join(
        [said, by_size(timed), "The calls with slower rows, the slowest first:", losing_calls(engine, rows)]
    )


# --- networks -----------------------------------------------------------------------------------------------------

KEYS = ("network", "size", "mode", "direction", "layout")


def network_rows(title: str) -> list[law.Row]:
    lines = map(json.loads, (STORE / NETWORKS[title]).read_text().splitlines())
    return [*{tuple(r.get(k, "") for k in KEYS): r for r in lines if "ours" in r}.values()]


def by_mode(rows: list[law.Row]) -> str:
    lines = []
    for kind in sorted({(r["mode"], r["direction"], r["layout"]) for r in rows}):
        some = sorted((r for r in rows if (r["mode"], r["direction"], r["layout"]) == kind), key=ratio)
        slow = sum(ratio(r) < law.RATIO for r in some)
        worst = f"{ratio(some[0]):.2f}x: {some[0]['network']}, {some[0]['size']}"
        best = f"{ratio(some[-1]):.2f}x: {some[-1]['network']}, {some[-1]['size']}"
        lines.append((*kind, len(some), f"**{slow}**", f"{median(map(ratio, some)):.2f}x", worst, best))
    return markdown("mode | | layout | rows | below 0.95x | median | slowest | fastest", lines)


def by_network(rows: list[law.Row]) -> str:
    """One line per network that loses anywhere, the slowest median first."""
    names = {r["network"] for r in rows if ratio(r) < law.RATIO}
    lines = []
    for name in names:
        some = [r for r in rows if r["network"] == name]
        slow = sum(ratio(r) < law.RATIO for r in some)
        memory = max((r["ours_mb"] / r["bare_mb"] for r in some if r.get("bare_mb", 0) > 1), default=None)
        used = "" if memory is None else f"{memory:.2f}x"
        lines.append((median(map(ratio, some)), name, f"{slow} of {len(some)}", f"{min(map(ratio, some)):.2f}x", used))
    told = [(name, some, f"{middle:.2f}x", least, used) for middle, name, some, least, used in sorted(lines)]
    return markdown("network | rows below 0.95x | median of all its rows | slowest | most memory, ours / bare", told)


def jax_stem(row: law.Row) -> bool:
    """Whether XLA takes a slow path for the bare side: maps of 2x2 behind an ImageNet stem, or three spatial axes."""
    return row["size"] in ("8x3x64x64", "4x3x64x64") or row["size"].count("x") > 3


def network_section(title: str) -> str:
    rows = network_rows(title)
    parts = [by_mode(rows), "Networks with rows below 0.95x:", by_network(rows)]
    if title == "JAX":
        plain = [r for r in rows if not jax_stem(r)]
        slow_path = [r for r in rows if jax_stem(r)]
        compiling = sorted(r["ours_compile"] / r["bare_compile"] for r in rows if "bare_compile" in r)
        left_out = f"""Compiling takes {compiling[0]:.1f} to {compiling[-1]:.1f} times as long as the bare network does,
in the median {median(compiling):.1f} times.

Left out above are {len(slow_path)} rows in which XLA takes a slow path for the bare network (maps of 2x2 behind an
ImageNet stem at 64x64, three spatial axes). Medians with them would look better than JAX deserves:

{by_mode(slow_path)}"""
        parts = [by_mode(plain), left_out, *parts[1:]]
    return "\n\n".join(parts)


def expert_ratio(row: law.Row) -> float:
    """How many times faster we are than the faster of plain JAX and an expert's, in the same layout."""
    return float(min(row["plain"], row["expert"]) / row["ours"])


def expert_section() -> str:
    """Medians by direction and layout, then every row, the slowest first."""
    lines = (STORE / "expert_networks_jax.jsonl").read_text().splitlines()
    measured = sorted(map(json.loads, lines), key=expert_ratio)
    short = []
    for direction, layout in sorted({(r["direction"], r["layout"]) for r in measured}):
        some = [r for r in measured if (r["direction"], r["layout"]) == (direction, layout)]
        compiling = [r["ours_compile"] / min(r["plain_compile"], r["expert_compile"]) for r in some]
        lost, middle = sum(expert_ratio(r) < law.RATIO for r in some), f"{median(map(expert_ratio, some)):.2f}x"
        spent = f"{median(compiling):.1f}x, at most {max(compiling):.1f}x"
        short.append((direction, layout, len(some), f"**{lost}**", middle, f"{expert_ratio(some[0]):.2f}x", spent))
    every = []
    for r in measured:
        ms = [f"{1e3 * r[side]:.1f}" for side in ("plain", "expert", "ours")]
        every.append((r["network"], r["size"], r["direction"], r["layout"], *ms, f"{expert_ratio(r):.2f}x"))
    return "\n\n".join(
        [
            markdown(" | layout | rows | below 0.95x | median | slowest | compiling takes", short),
            markdown("network | size | | layout | plain, ms | expert, ms | ours, ms | against the faster", every),
        ]
    )


# --- the page -----------------------------------------------------------------------------------------------------


def rows(data: list[dict[str, Any]]) -> list[Row]:
    return [Row(**r) for r in data]


def compiled_kernels() -> str:
    lines = (Path(__file__).parent / "compiled_kernels.txt").read_text().splitlines()
    found = [line.removesuffix("  |") for line in lines if line.startswith(("| ours", "| compiled"))]
    return "\n".join(["| max_pool | bare, ms | this, ms | speed-up |", "|---" * 4 + "|", *found])


def page(torch: dict[str, Any], jax: dict[str, Any]) -> str:
    windows = "\n".join(f"| {k}x{k} | {ns:.2f} |" for k, ns in torch["windows"])
    growth = torch["windows"][-1][1] / torch["windows"][0][1]
    return f"""# Performance

Written by `python benchmarks/report.py` on {platform.machine()}, PyTorch {torch["version"]} and JAX {jax["version"]}:
one thread, CPU time; both sides interleaved in one process, the smallest run of each. "Bare" is the framework's own
best single call for the same work, or its plainest spelling.

What follows is ordered by the question, losses first. Every row is in
[benchmarks/results](../../benchmarks/results), one JSON line each.

## Which single calls are slower?

`python benchmarks/law.py` holds every public function that the framework also has against the framework's own, values
and layouts compared before the clock starts. Slower is what takes more than bare / 0.95 + 5 us; such a row is measured
again, up to four times. "By fixed cost" says that a tiny tensor pays most of the same: arguments read in Python, or
several operators where the framework has one. A function with neither a row nor a reason fails a test
(`tests/engines/test_law.py`).

### PyTorch, eager

{calls_section("torch")}

### JAX, both sides jitted

{calls_section("jax")}

## Which whole networks are slower, and which faster?

`python benchmarks/law_networks.py`, `law_networks_jax.py`: value, or value and all gradients (step).

### PyTorch

{network_section("PyTorch")}

### JAX, against an expert

`python benchmarks/expert_networks_jax.py`: the same networks as an expert of XLA's CPU writes them, depthwise
convolutions as shifted sums and kernels of one cell as matrix products, beside plain JAX. What counts is ours against
the faster of the two in the same layout. The expert's weights lie as the layout wants them; ours are always OIHW, and
large ones of 3x3 are turned in every call: about 1 ms for 256 x 256 x 9, which XLA copies at 2 GB/s. Steps, and
most networks at 8x3x128x128, are not measured against an expert yet.

{expert_section()}

### JAX, against plain JAX

Measured before compiled graphs held their images with the channels last.

{network_section("JAX")}

## Where is an algorithm of ours faster?

![Speed-up over the bare framework](performance.png)

### PyTorch

{table(rows(torch["faster"]))}

Large windows, `max_pool` at stride 1 on 4x16x256x256; from the smallest to the largest the cost grows {growth:.1f}x:

| window | ns per element |
|---|---|
{windows}

Of equal zeros the first in its window wins, -0 or +0; `torch.maximum` may return either. So every chunk is
looked through once for a -0 (`python benchmarks/pools_torch.py --zeros`): at stride 1 that is most of what the rule
costs, and why a window of 3x3 is at 11 to 13 times, not at 13 to 15. The integer minimum that looks is the cheapest
of those tried (`any`, `count_nonzero`, minima by row). At k2 s2 it looks only where a result is 0.

{(Path(__file__).parent / "pools_zeros.txt").read_text().strip()}

The table above this one was measured before that rule.

### JAX

{table(rows(jax["faster"]))}

### Compiled kernels, tried and dropped

`python benchmarks/compiled_kernels.py`: `max_pool` with its winners as bytes, written as plain tensor expressions and
compiled by torch.compile (inductor), against the bare operator; beside it ours, on the same windows. Values
and gradients agree bit for bit. An option would have had to beat ours 1.3 times in both directions. In every row it is
slower than ours, with a gradient mostly slower than the bare operator; and the first result of a shape takes 20 to 80
seconds. So there is no such option.

{compiled_kernels()}

Which algorithm stands behind a line, and where it is chosen: `src/specgrad/engines/`.
"""


def plot(torch: dict[str, Any], jax: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(15, 8.5), layout="constrained")
    for axis, title, data in ((axes[0], "PyTorch", torch["faster"]), (axes[1], "JAX", jax["faster"])):
        found = rows(data)[::-1]
        names = [r.name.split(", against")[0].replace("forward + backward", "fwd+bwd") for r in found]
        axis.barh(names, [r.speedup for r in found], color="#3b6ea5")
        for i, r in enumerate(found):
            demanded = float(r.target.rstrip("x")) if r.target else 0.0
            axis.text(max(r.speedup, demanded) * 1.06, i, f"{r.speedup:.1f}x", va="center", fontsize=8)
            if demanded:
                axis.plot([demanded] * 2, [i - 0.4, i + 0.4], color="#d1495b", linewidth=2)
        axis.set_xscale("log")
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_xlim(0.5, max(r.speedup for r in found) * 2.5)
        axis.set_title(f"{title}: speed-up over the bare framework (red: demanded)", fontsize=11)
        axis.tick_params(axis="y", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    fig.savefig(GUIDE / "performance.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=("torch", "jax"), default=[], help="what to measure first")
    asked = parser.parse_args().measure
    STORE.mkdir(exist_ok=True)
    for name, measure in (("torch", measure_torch), ("jax", measure_jax)):
        if name in asked:
            (STORE / f"{name}.json").write_text(json.dumps(measure(), indent=1) + "\n")
    torch, jax = (json.loads((STORE / f"{n}.json").read_text()) for n in ("torch", "jax"))
    (GUIDE / "performance.md").write_text(page(torch, jax))
    if asked:
        plot(torch, jax)


if __name__ == "__main__":
    main()
