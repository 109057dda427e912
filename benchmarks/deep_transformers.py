"""How deep is a transformer's tolerance proven, and which tokens does no correct execution change? Beside real runs.

    python benchmarks/deep_transformers.py --tokens 4             the first lines of benchmarks/deep_transformers.txt
    python benchmarks/deep_transformers.py --tokens 4 --blocks 6 8 --class node --kept --seconds 2400

The network is transformers' Qwen2 as in benchmarks/deployed_transformers.py, at a smaller width, with random weights.
A line: what is proven of the logits, what is estimated, the largest difference from float64's logits that PyTorch,
torch.compile, our engine and ONNX Runtime show. With --kept the positions whose argmax is proven, estimated to stay,
and open.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from deployed_transformers import SIZES, network
from specgrad.check import preserve
from specgrad.check.decisions.runtime_pool import Runtimes
from specgrad.check.models.load import at_points
from specgrad.check.tolerances.estimate import estimate_at
from specgrad.check.tolerances.point_bounds import spread_of
from specgrad.check.tolerances.tolerance import tolerance_at
from specgrad.rounding import Arithmetic

torch.set_num_threads(1)
CLASSES = {
    "fused": Arithmetic(),
    "node": Arithmetic(execution="node"),
    "node-16": Arithmetic(execution="node", depth=16),
    "fused-16": Arithmetic(depth=16),
}


def size_of(width: int, blocks: int) -> str:
    """The name of a network of this width and depth, entered among those of deployed_transformers."""
    name = f"{width}x{blocks}"
    heads = {"num_attention_heads": width // 16, "num_key_value_heads": width // 32}
    wide = {"hidden_size": width, "intermediate_size": 5 * width // 2, "num_hidden_layers": blocks}
    SIZES[name] = SIZES["tiny"] | wide | heads
    return name


def runs(module: Any, ids: np.ndarray, graph: Any) -> dict[str, np.ndarray]:
    """The logits of real runtimes, by name."""
    with torch.no_grad():
        found = {"torch": module(torch.from_numpy(ids)).float().numpy()}
        try:
            found["torch.compile"] = torch.compile(module)(torch.from_numpy(ids)).float().numpy()
        except Exception as error:  # no compiler here
            print("torch.compile:", str(error)[:80])
    if graph is not None:
        pool = Runtimes(("torch", "onnxruntime"), graph)
        try:
            found |= {name: outputs[0] for name, outputs in pool.run([ids]).items()}
        finally:
            pool.close()
    return found


def line(width: int, blocks: int, tokens: int, name: str, seconds: float, kept: bool) -> None:
    """Measure one network in one class of executions, and print it."""
    module = network(size_of(width, blocks), torch.float32)
    ids = np.random.default_rng(0).integers(0, 500, (1, tokens))
    arithmetic = CLASSES[name]
    at = at_points(module, (ids,), "tolerance", arithmetic, False)
    estimated = estimate_at(at, arithmetic).tolerance
    start = time.process_time()
    proven = tolerance_at(at, arithmetic, seconds=seconds)
    took = time.process_time() - start
    with torch.no_grad():
        twice = network(size_of(width, blocks), torch.float64)(torch.from_numpy(ids)).numpy()
    apart = {who: float(np.abs(y - twice).max()) for who, y in runs(module, ids, at.graph).items()}
    seen = ", ".join(f"{who} {d:.1e}" for who, d in apart.items())
    text = f"{width:4} wide, {blocks:2} blocks, {tokens} tokens, {name:8} logits spread {spread_of(twice):.3g}: "
    text += f"proven {proven.tolerance:.2e} ({took:.0f} s), estimated {estimated:.1e}; seen {seen}"
    print(text, flush=True)
    if kept:
        result = preserve(module, ids, axis=-1, arithmetic=arithmetic, runtimes=(), seconds=seconds)
        print("    ", "; ".join(result.sentences()), f"{result.samples[0].seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--class", dest="name", nargs="*", default=["node", "node-16"])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kept", action="store_true")
    o = parser.parse_args()
    for blocks in o.blocks:
        for name in o.name:
            line(o.width, blocks, o.tokens, name, o.seconds, o.kept)


if __name__ == "__main__":
    main()
