"""Measure both engines and write docs/guide/performance.md with its plot.

python benchmarks/report.py               # everything, about a quarter of an hour on a quiet machine
python benchmarks/report.py --engine torch
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

from measure import Row, table

ROOT = Path(__file__).parents[1]
STORE = Path(__file__).parent / "results"


def measure_torch() -> dict[str, Any]:
    import torch

    import torch_ops

    grid = torch_ops.never_slower()
    return {
        "version": torch.__version__,
        "faster": _progress(torch_ops.faster(False)),
        "windows": torch_ops.large_windows(),
        "grid": len(grid),
        "slow": [vars(r) for r in torch_ops.too_slow(grid)],
        "networks": [vars(r) for r in torch_ops.networks()],
    }


def measure_jax() -> dict[str, Any]:
    import jax

    import bare_networks_jax
    import jax_ops

    rows = []
    for row in jax_ops.ROWS:
        _, _, bare, ours = jax_ops.measure(row)
        target = "" if row.target is None else f"{row.target:g}x"
        rows.append(Row(f"{row.name} forward + backward", bare / 1e3, ours / 1e3, target))
        print(f"{row.name}: {rows[-1].speedup:.2f}x", flush=True)
    name, bare, ours = bare_networks_jax.steps()
    seconds = jax_ops.smallest([(bare, ()), (ours, ())])
    rows.append(Row(name, *seconds, "4x"))
    return {"version": jax.__version__, "faster": [vars(r) for r in rows]}


def _progress(rows: Any) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        found.append(vars(row))
        print(f"{row.name}: {row.speedup:.2f}x (demanded {row.target})", flush=True)
    return found


# --- the page -----------------------------------------------------------------------------------------------------


def rows(data: list[dict[str, Any]]) -> list[Row]:
    return [Row(**r) for r in data]


def page(torch: dict[str, Any], jax: dict[str, Any]) -> str:
    windows = "\n".join(f"| {k}x{k} | {ns:.2f} |" for k, ns in torch["windows"])
    growth = torch["windows"][-1][1] / torch["windows"][0][1]
    slow = table(rows(torch["slow"])) if torch["slow"] else "None."
    return f"""# Performance

Measured by `python benchmarks/report.py` on {platform.machine()}, PyTorch {torch["version"]} and JAX
{jax["version"]}: one thread, CPU time; both sides interleaved in one process, the smallest run of each. "Bare" is the
framework's own best single call for the same work.

![Speed-up over the bare framework](performance.png)

## PyTorch

{table(rows(torch["faster"]))}

Large windows, `max_pool` at stride 1 on 4x16x256x256; from the smallest to the largest the cost grows {growth:.1f}x:

| window | ns per element |
|---|---|
{windows}

Never slower: {torch["grid"]} ordinary calls (ResNet-50, U-Net and MobileNet shapes). Over the limit (5 us more below
250 us, 2 % above; a row over it is measured again, up to four times): {len(torch["slow"])}.

{slow}

Whole networks, compiled graph against bare PyTorch:

{table(rows(torch["networks"]))}

## JAX

{table(rows(jax["faster"]))}

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
    fig.savefig(ROOT / "docs" / "guide" / "performance.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--engine", choices=("torch", "jax", "none"), help="measure one engine, keep the other's last figures"
    )
    engine = parser.parse_args().engine
    STORE.mkdir(exist_ok=True)
    for name, measure in (("torch", measure_torch), ("jax", measure_jax)):
        if engine in (None, name):
            (STORE / f"{name}.json").write_text(json.dumps(measure(), indent=1) + "\n")
    torch, jax = (json.loads((STORE / f"{n}.json").read_text()) for n in ("torch", "jax"))
    (ROOT / "docs" / "guide" / "performance.md").write_text(page(torch, jax))
    plot(torch, jax)


if __name__ == "__main__":
    main()
