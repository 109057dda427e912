"""Write docs/guide/performance.md, its page of all rows and its plot, from what has been measured.

python benchmarks/report.py                  # write the pages from benchmarks/results
python benchmarks/report.py --measure torch  # measure first where an algorithm of ours is faster, about five minutes

The rows of the law come from benchmarks/law.py, those of networks from benchmarks/law_networks.py and
law_networks_jax.py.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
from collections import Counter
from pathlib import Path
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


# --- the law ------------------------------------------------------------------------------------------------------


def cause(row: law.Row, rows: dict[tuple[str, ...], law.Row]) -> str:
    """The fixed cost of a call, if the tiny tensor pays most of the same; else the work on the cells."""
    tiny = rows.get(law.key(row | {"size": "tiny"}))
    more = row["ours"] - row["bare"]
    fixed = tiny is not None and "ours" in tiny and tiny["ours"] - tiny["bare"] > 0.6 * more
    return "fixed cost" if fixed else "the work"


def prices(engine: str, slow: list[law.Row]) -> str:
    """What the contract asks for beyond the bare call, of the functions that lose."""
    known: dict[str, str] = getattr(importlib.import_module(f"law_{engine}"), "PRICE", {})
    losing = {CASES[r["case"]].function for r in slow if r["case"] in CASES}
    who: dict[str, list[str]] = {}
    for name in (n for n in known if n in losing):
        who.setdefault(known[name], []).append(f"`{name}`")
    lines = [f"- {', '.join(names)}: {why}." for why, names in who.items()]
    return (
        "\n".join(["The contract asks for more than the bare call, and these pay for it:\n", *lines]) if lines else ""
    )


def counts(rows: list[law.Row]) -> str:
    timed = [r for r in rows if "ours" in r]
    slow, par = [r for r in timed if law.over(r)], sum(map(law.at_par, timed))
    apart = sum(not r["same_layout"] for r in timed)
    return (
        f"{len(timed)} rows: {par} at or above 0.95x, {len(timed) - par - len(slow)} below it within 5 us, "
        f"{len(slow)} over the limit; {apart} whose result or gradient has another layout than the bare one; "
        f"{len(rows) - len(timed)} that could not be measured."
    )


def law_table(rows: list[law.Row], causes: dict[tuple[str, ...], law.Row] | None = None) -> str:
    """The ratio stands beside the name: a page cuts wide tables at their right end."""
    head = "| call | ratio | bare, us | ours, us | with |" + (" cause |" if causes else "")
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for r in rows:
        if "error" in r:
            numbers = ["", "", f"`{r['error']}`"]
        else:
            numbers = [f"{r['bare'] / r['ours']:.2f}x", f"{r['bare'] * 1e6:.1f}", f"{r['ours'] * 1e6:.1f}"]
        cells = [r["case"], *numbers, ", ".join((r["size"], r["layout"], r["dtype"], r["direction"]))]
        lines.append(f"| {' | '.join(cells)} |" + (f" {cause(r, causes)} |" if causes else ""))
    return "\n".join(lines)


def covered(rows: list[law.Row]) -> str:
    parts = [sorted({r[k] for r in rows}) for k in ("size", "layout", "dtype", "direction")]
    return f"{len({r['case'] for r in rows})} calls; " + "; ".join(", ".join(p) for p in parts)


def possible(engine: str) -> int:
    """How many rows the law has for this engine, measured or not."""
    bare = importlib.import_module(f"law_{engine}")
    return sum(len(bare.variants(case)) for name, case in CASES.items() if name in bare.BARE)


def law_section(engine: str) -> str:
    rows = law.read(engine)
    if not rows:
        return f"None of {possible(engine)} rows has been measured: `python benchmarks/law.py --engine {engine}`."
    listed = list(rows.values())
    slow = sorted((r for r in listed if law.over(r)), key=lambda r: r["bare"] / r["ours"])
    why = Counter(cause(r, rows) for r in slow)
    said = "; ".join(f"{n} by {w}" for w, n in why.most_common())
    worst = f"The slowest first, of {len(slow)} ({said}):\n\n{law_table(slow[:30], rows)}" if slow else ""
    known = f"Measured are {len(rows)} of {possible(engine)} rows: {covered(listed)}."
    paid = prices(engine, slow)
    parts = [counts(listed), known, worst, paid, "All rows: [every call](performance_rows.md)."]
    return "\n\n".join(part for part in parts if part)


def rows_page() -> str:
    parts = [
        "# Every call against the bare framework\n\nWritten by `python benchmarks/report.py` from what "
        "`python benchmarks/law.py`\nmeasured; see [Performance](performance.md). The losing rows first."
    ]
    for engine, title in ENGINES.items():
        rows = law.read(engine)
        losing = sorted((r for r in rows.values() if law.over(r)), key=lambda r: r["bare"] / r["ours"])
        broken = [r for r in rows.values() if "error" in r]
        rest = [r for r in rows.values() if not law.over(r) and "error" not in r]
        parts.append(f"## {title}\n\n{counts(list(rows.values()))}")
        parts += [f"### {title}: over the limit\n\n{law_table(losing, rows)}"] if losing else []
        parts += [f"### {title}: not measured\n\n{law_table(broken)}"] if broken else []
        parts += [f"### {title}: within it\n\n{law_table(rest)}"] if rest else []
    return "\n\n".join(parts) + "\n"


# --- networks -----------------------------------------------------------------------------------------------------


def network_section(title: str) -> str:
    path = STORE / NETWORKS[title]
    if not path.exists():
        return "Not measured."
    keys = ("network", "size", "mode", "direction", "layout")
    found = {
        tuple(r.get(k, "") for k in keys): r for r in map(json.loads, path.read_text().splitlines()) if "ours" in r
    }
    rows = sorted(found.values(), key=lambda r: r["bare"] / r["ours"])
    good = sum(r["bare"] / r["ours"] >= law.RATIO for r in rows)
    lines = [f"{len(rows)} rows, {good} at or above 0.95x; the slowest first.", ""]
    lines += [
        "| network | ratio | bare, ms | ours, ms | with | memory, ours / bare, MB |",
        "|---" * 6 + "|",
    ]
    for r in rows:
        words = ", ".join(str(r[k]) for k in keys[1:] if r.get(k))
        memory = f"{r['ours_mb']:.0f} / {r['bare_mb']:.0f}" if r.get("bare_mb") else ""
        ratio = f"{r['bare'] / r['ours']:.2f}x"
        cells = [r["network"], ratio, f"{r['bare'] * 1e3:.3g}", f"{r['ours'] * 1e3:.3g}", words, memory]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


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

## Never slower: every public call

`python benchmarks/law.py` holds every public function that the framework also has against the framework's own, values
and layouts compared before the clock starts. The limit is bare / 0.95 + 5 us; a row over it is measured again, up to
four times. The cause "fixed cost" says that a tiny tensor pays most of the same: arguments read in Python, or several
operators where the framework has one. A function with neither a row nor a reason fails a test
(`tests/engines/test_law.py`).

### PyTorch, eager

{law_section("torch")}

### JAX, both sides jitted

{law_section("jax")}

## Whole networks

### PyTorch

{network_section("PyTorch")}

### JAX

{network_section("JAX")}

## Where an algorithm of ours is faster

![Speed-up over the bare framework](performance.png)

### PyTorch

{table(rows(torch["faster"]))}

Large windows, `max_pool` at stride 1 on 4x16x256x256; from the smallest to the largest the cost grows {growth:.1f}x:

| window | ns per element |
|---|---|
{windows}

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
    (GUIDE / "performance_rows.md").write_text(rows_page())
    if asked:
        plot(torch, jax)


if __name__ == "__main__":
    main()
