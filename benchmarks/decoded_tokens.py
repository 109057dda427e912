"""Which greedy tokens are proven to stay, which are estimated to, and which do runtimes change?

    python benchmarks/decoded_tokens.py --tokens 128        changes, in seconds
    python benchmarks/decoded_tokens.py --labels            and what preserve says, of a shorter text

A network as in benchmarks/deep_transformers.py writes a text greedily, in float32. Every runtime then reads that text,
and each position's token is compared with that of the same weights in float64. `preserve` labels the positions.
"""

from __future__ import annotations

import argparse
import copy
import time
from typing import Any

import numpy as np
import torch

from deep_transformers import size_of
from deployed_transformers import network
from specgrad.check import preserve
from specgrad.check.decisions.runtime_pool import Runtimes
from specgrad.check.models.load import at_points
from specgrad.errors import SpecgradError
from specgrad.rounding import Arithmetic

torch.set_num_threads(1)
NODE = Arithmetic(execution="node")


def written(module: Any, count: int) -> np.ndarray:
    """The ids of a text of this length, of which the first four are drawn."""
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 500, (1, 4)))
    with torch.no_grad():
        while ids.shape[1] < count:
            ids = torch.cat((ids, module(ids)[:, -1:].argmax(-1)), 1)
    return ids.numpy()


def logits(module: Any, ids: np.ndarray, *, onnx: bool) -> dict[str, np.ndarray]:
    """The logits at all positions, by runtime."""
    given = torch.from_numpy(ids)
    with torch.no_grad():
        by_name = {"torch": module(given), "torch.compile": torch.compile(module)(given)}
    found = {name: y.float().numpy() for name, y in by_name.items()}
    if onnx:
        pool = Runtimes(("onnxruntime",), at_points(module, (ids,), "preserve", NODE, False).graph)
        found |= {name: outputs[0] for name, outputs in pool.run([ids]).items()}
        pool.close()
    return found


def measure(width: int, blocks: int, tokens: int, kind: torch.dtype, seconds: float | None) -> None:
    """Print what runtimes change of one text, and what `preserve` says of it."""
    whole = network(size_of(width, blocks), torch.float32)
    ids, module = written(whole, tokens), copy.deepcopy(whole).to(kind)
    with torch.no_grad():
        exact = copy.deepcopy(whole).double()(torch.from_numpy(ids)).numpy()
        own = copy.deepcopy(module).double()(torch.from_numpy(ids)).numpy()
    name = f"{width} wide, {blocks} blocks, {tokens} tokens, {str(kind).removeprefix('torch.')}"
    shares = [f"weights alone {int((own.argmax(-1) != exact.argmax(-1)).sum())}"] if kind != torch.float32 else []
    for runtime, y in logits(module, ids, onnx=kind == torch.float32).items():
        shares.append(f"{runtime} {int((y.argmax(-1) != own.argmax(-1)).sum())}")
    print(f"{name}: changed of {ids.size}: {', '.join(shares)}", flush=True)
    if seconds is None:
        return
    start = time.process_time()
    try:
        result = preserve(module, ids, axis=-1, arithmetic=NODE, runtimes=(), seconds=seconds)
        text = ", ".join(f"{n} {label}" for label, n in result.decisions.items())
    except SpecgradError as error:
        text = str(error)[:200]
    print(f"    preserve: {text}; {time.process_time() - start:.0f} CPU s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--blocks", type=int, nargs="*", default=[2])
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--dtype", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--labels", action="store_true", help="without them: what runtimes change, alone")
    o = parser.parse_args()
    for blocks in o.blocks:
        for kind in o.dtype:
            measure(o.width, blocks, o.tokens, getattr(torch, kind), o.seconds if o.labels else None)


if __name__ == "__main__":
    main()
