"""What deployed soundness costs on the competition's instances: settled, and widths of bounds, under three models.

    python benchmarks/price_families.py --seconds 10            # all, into price.jsonl; goes on where it ended
    python benchmarks/price_families.py acasxu verivital
    python tools/make_families.py                               # the table in docs/guide/families.md

real     exact arithmetic on the file's weights: bounds count our own rounding and none of the network's, so what they
         prove is about no program that runs. Counterexamples are float32 runs here too.
node     every float32 execution that stores every layer
fused    every float32 execution that may merge layers: what `certify` answers for

One process, one thread; CPU seconds for each search, and again for each width: load does not decide them. A width is
that of the outputs' linear bounds on the box of the first case, over the width for real arithmetic; the median of the
outputs.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from families import Instance, instances
from specgrad.bounds import Box, crown
from specgrad.bounds.interval_bounds import box_context
from specgrad.bounds.search.certify import certify, graph_and_property
from specgrad.errors import SpecgradError
from specgrad.rounding import Arithmetic

RECORD = Path(__file__).parent / "price.jsonl"
MODELS = {"real": None, "node": Arithmetic(execution="node"), "fused": Arithmetic()}


def settled(files: tuple[Path, Path], model: str, seconds: float) -> str:
    """The verdict; over real numbers the search is the same, and its bounds count no rounding of the network."""
    if MODELS[model] is not None:
        return str(certify(str(files[0]), files[1], seconds=seconds, arithmetic=MODELS[model]).verdict)
    with mock.patch("specgrad.bounds.search.neuron_split.subproblems.box_context", _exact):
        return str(certify(str(files[0]), files[1], seconds=seconds).verdict)


def _exact(graph: Any, deployed: bool, *rest: Any) -> Any:
    return box_context(graph, False, *rest)


def widths(files: tuple[Path, Path], model: str, seconds: float) -> np.ndarray:
    graph, question = graph_and_property(str(files[0]), files[1])
    box = Box(*(end.reshape(graph.nodes[graph.input_positions[0]].shape) for end in question.cases[0].outer()))
    bounds = crown(graph, box, deployed=MODELS[model] is not None, arithmetic=MODELS[model], seconds=seconds)
    return np.ravel(bounds.outputs.width)


def measured(instance: Instance, seconds: float) -> dict[str, Any] | None:
    """None where the network or the property is refused."""
    assert instance.files is not None
    row: dict[str, Any] = {"family": instance.family, "network": instance.network, "property": instance.property}
    row |= {"limit": seconds, "verdicts": {}, "ratios": {}}
    try:
        for model in MODELS:
            row["verdicts"][model] = settled(instance.files, model, seconds)
        real = widths(instance.files, "real", seconds)
        for model in ("node", "fused"):
            ratios = (widths(instance.files, model, seconds) / real)[real > 0]
            row["ratios"][model] = float(np.median(ratios)) if ratios.size else None
    except SpecgradError as error:
        print(f"{instance.family:20} {instance.network}: {error}", flush=True)
        return row if len(row["verdicts"]) == len(MODELS) else None
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="default: all")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = options.record.read_text().splitlines() if options.record.exists() else []
    done = {(row["family"], row["network"], row["property"]) for row in map(json.loads, lines)}
    for instance in instances(options.families):
        if instance.files is None or instance.key in done:
            continue
        start = time.process_time()
        with mock.patch("time.monotonic", time.process_time):  # the clock that searches read
            row = measured(instance, options.seconds)
        if row is not None:
            with options.record.open("a") as file:
                file.write(json.dumps(row) + "\n")
            spent = time.process_time() - start
            print(f"{instance.family:20} {row['verdicts']} {row['ratios']} {spent:.1f} s", flush=True)


if __name__ == "__main__":
    main()
