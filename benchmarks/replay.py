"""Random small boxes of an ACAS-Xu property in exact whole numbers, beside the search's float bounds of the same boxes.

    python benchmarks/replay.py > benchmarks/replay.txt

SPECGRAD_SHARED names the folder that has vnncomp/breadth; default: ../shared. One thread.
"""

from __future__ import annotations

import os
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from specgrad.bounds.search.certify import graph_and_property
from specgrad.bounds.search.input_split.search import Boxes
from specgrad.bounds.search.neuron_split.subproblems import root_forward
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.proof.batched.leaves import Leaves, Root

ROOT = Path(os.environ.get("SPECGRAD_SHARED", Path(__file__).parents[2] / "shared")) / "vnncomp" / "breadth" / "acasxu"
BOXES, PARTS = 512, 5  # boxes, and by how many halvings of every axis they are smaller than the whole


def main() -> None:
    torch.set_num_threads(1)
    network, question = graph_and_property(ROOT / "ACASXU_run2a_4_8_batch_2000.onnx", ROOT / "prop_1.vnnlib")
    graph, (case,) = deployed_graph(network), question.cases
    (alternative,) = case.alternatives
    shape = graph.nodes[graph.input_positions[0]].shape
    low, high = (np.asarray(end, dtype=np.float32).reshape(shape) for end in case.outer())
    rng, width = np.random.default_rng(0), (high - low) / 2**PARTS
    least = np.clip(low + rng.integers(0, 2**PARTS, (BOXES, *shape)) * width, low, high).astype(np.float32)
    most = np.clip(least + width, least, high).astype(np.float32)

    rows = torch.from_numpy(np.asarray(alternative.rows, dtype=float))
    targets = torch.tensor([float(v) for v in alternative.limits], dtype=torch.float64)
    boxes = Boxes(root_forward(graph, low, high), rows, targets, [0])
    start = time.process_time()
    ends = (torch.from_numpy(end.reshape(BOXES, -1)).double() for end in (least, most))
    floats = boxes.bounds(*ends)[0][:, 0].numpy()
    spent = time.process_time() - start
    print(f"float bounds:  {BOXES / spent:7.1f} boxes per CPU second, every layer narrowed again")

    start = time.process_time()
    root = Root(graph, low, high)
    print(f"root:          {time.process_time() - start:7.2f} CPU seconds")
    whole = [[int(v) for v in row] for row in alternative.rows.tolist()]
    start = time.process_time()
    found = root.margins(Leaves(least, most), [(whole, tuple(map(Fraction, alternative.limits)))])
    taken = time.process_time() - start
    exact = np.array([float(found.fraction(n, 0)) for n in range(BOXES)])
    print(f"whole numbers: {BOXES / taken:7.1f} leaves per CPU second, {taken / spent:.1f} times as long per box")
    print(f"proven: {int((floats > 0).sum())} by float bounds, {int(found.proven.sum())} in whole numbers")
    loss = floats - exact
    print(f"loss: median {np.median(loss):.2g}, largest {loss.max():.2g}; median margin {np.median(floats):.3g}")


if __name__ == "__main__":
    main()
