"""500 generated networks against their tolerance: executions of our own choice, and real runtimes.

python benchmarks/tolerance_hunt.py                    # all that is missing; prints, writes tolerance_hunt.txt
python benchmarks/tolerance_hunt.py --networks 0 50    # some of them; the rest stays as it was

Each network (tests/hunt: ten kinds of several layers, two of derivatives, 29 that runtimes merge, copy or reorder) is
run in float32, fused: half of the executions at random and half aimed at one output, and as ONNX Runtime (no and all
optimisations), OpenVINO, jax.jit and PyTorch (inductor for every 100th) compute it. Every second is run by node too;
for the others one more network in another arithmetic, in turn. Exact values are fractions, or balls; "ratio" is the
largest error seen over the proven. What has been done is kept in the folder for temporary files, to go on from.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / room) for room in ("hunt", "bounds", ".")]

from claims import MODELS, SETTINGS  # noqa: E402
from optimisers import OPTIMISERS, is_misread_by_openvino, torch_inductor  # noqa: E402
from specgrad import SpecgradError  # noqa: E402
from tolerances import Hunt, mixed_network  # noqa: E402

RESULTS, PAGE = Path(gettempdir()) / "specgrad_tolerance_hunt.json", Path(__file__).with_suffix(".txt")
COUNT, EXECUTIONS = 500, 4
RUNTIMES = ("onnxruntime ORT_DISABLE_ALL", "onnxruntime ORT_ENABLE_ALL", "openvino", "jax.jit", "torch")
OTHERS = [(name, model) for name in SETTINGS if name != "float32" for model in MODELS]


def hunted(seed: int, name: str, model: str) -> Hunt:
    setting = replace(SETTINGS[name], model=model)
    found = mixed_network(seed, setting.form)
    hunt = Hunt(found, setting, f"{found.kind}/{seed}/{name}/{model}")
    hunt.run(EXECUTIONS)
    return hunt


def on_runtimes(hunt: Hunt, seed: int) -> int:
    """How many runtimes took it; what one does not take is refused by name."""
    graph, taken = hunt.network.graph, 0
    inputs = [np.ascontiguousarray(x, dtype=np.float32) for x in hunt.network.inputs]
    for name in (*RUNTIMES, *(["inductor"] if seed % 100 == 0 else [])):
        if name == "openvino" and is_misread_by_openvino(graph):  # shown in tests/hunt/test_optimisers.py
            continue
        try:
            run = torch_inductor(graph) if name == "inductor" else OPTIMISERS[name](graph)
        except SpecgradError:
            continue
        hunt.against(name, run(inputs))
        taken += 1
    return taken


def rows(seed: int) -> Iterator[dict[str, Any]]:
    other = OTHERS[seed // 2 % len(OTHERS)] if seed % 2 else ("float32", "node")
    for name, model in (("float32", "fused"), other):
        start = time.process_time()
        hunt = hunted(seed, name, model)
        runtimes = on_runtimes(hunt, seed) if (name, model) == ("float32", "fused") else 0
        s = hunt.sighting
        yield {
            "seed": seed, "kind": hunt.network.kind, "arithmetic": name, "model": model, "proven": s.proven,
            "seen": s.seen, "ratio": s.ratio, "by": s.closest, "values": s.values, "unbounded": s.unbounded,
            "runtimes": runtimes, "escapes": s.escapes[:5], "seconds": round(time.process_time() - start, 2),
        }  # fmt: skip


# --- the page ---------------------------------------------------------------------------------------------------------


def _line(r: dict[str, Any]) -> str:
    what = f"{r['seed']:4} {r['kind']:25} {r['arithmetic']:20} {r['model']:6}"
    if r["values"] == r["unbounded"]:
        return f"{what} unbounded"
    return f"{what} {r['proven']:10.3g} {r['seen']:10.3g} {r['ratio']:7.3f}  {r['by']}"


def _summary(found: list[dict[str, Any]]) -> Iterator[str]:
    values, unbounded = (sum(r[key] for r in found) for key in ("values", "unbounded"))
    escapes, runtimes = (sum(len(r["escapes"]) for r in found), sum(r["runtimes"] for r in found))
    yield f"{len({r['seed'] for r in found})} seeds, {len(found)} networks with an arithmetic, {values:,} output values"
    yield f"({unbounded:,} of them unbounded: nothing is claimed), {runtimes:,} runs of runtimes: {escapes} escapes."
    yield f"{sum(r['seconds'] for r in found) / 60:.0f} minutes of one thread.\n"
    yield f"{'arithmetic':20} {'model':6} networks   ratio: median     largest"
    for name, model in (("float32", "node"), ("float32", "fused"), *OTHERS):
        ratios = [r["ratio"] for r in found if (r["arithmetic"], r["model"]) == (name, model)]
        if ratios:
            yield f"{name:20} {model:6} {len(ratios):8} {np.median(ratios):15.3f} {max(ratios):11.3f}"


def write(results: dict[str, Any]) -> None:
    found = [r for seed in sorted(results, key=int) for r in results[seed]]
    head = [
        *_summary(found),
        "",
        f"seed {'kind':25} {'arithmetic':20} {'model':6} {'proven':>10} {'seen':>10}   ratio  by",
    ]
    PAGE.write_text("\n".join([__doc__ or "", *head, *map(_line, found)]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, nargs=2, default=(0, COUNT), metavar=("FROM", "TO"))
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after the network at which this is over")
    options = parser.parse_args()
    start = time.monotonic()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for seed in range(*options.networks):
        if str(seed) in results:
            continue
        results[str(seed)] = list(rows(seed))
        for r in results[str(seed)]:
            print(_line(r), *r["escapes"], flush=True)
        RESULTS.write_text(json.dumps(results))
        if time.monotonic() - start > options.seconds:
            break
    write(results)


if __name__ == "__main__":
    main()
