"""What deployed rounding costs in width: bounds for all executions of a class beside those for exact arithmetic.

python benchmarks/price.py            # prints and writes benchmarks/price.txt
python benchmarks/price.py --quick    # without ResNet-18

Mean width of the outputs by `crown`, as a ratio to the width for exact arithmetic, and the seconds of one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import specgrad as sg
from bounds import image, plain, pooled
from specgrad.bounds import Box, crown
from specgrad.interop import from_torch
from specgrad.rounding import Arithmetic

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import resnet18
import unet
from common import init

torch.set_num_threads(1)
CLASSES: dict[str, Arithmetic] = {
    "float32 by node": Arithmetic(execution="node"),
    "float32 fused": Arithmetic(),
    "float32 fused, depth 64": Arithmetic(depth=64),
    "float32 fused, any rounding": Arithmetic(rounding="any"),
    "TF32 operands, fused": Arithmetic(operands="tf32"),
    "bfloat16 operands, fused": Arithmetic(operands="bfloat16"),
    "bfloat16 stored, float32 sums": Arithmetic("bfloat16", accumulate="float32"),
}
SLOW = ("float32 by node", "float32 fused", "TF32 operands, fused", "bfloat16 operands, fused")  # minutes each at 64x64
HEAD = """What deployed rounding costs: mean width of the outputs for every execution of a class, over the width for
exact arithmetic (1.0000: nothing), the most roundings R that a term of one sum may meet, seconds of one thread.
"""


def constant(net: Callable[..., Any], shapes: Any, size: tuple[int, ...]) -> sg.Graph:
    """A network of the examples with its weights as constants, as a runtime loads it."""
    params = sg.tree.transform(lambda _, a: np.asarray(a, np.float32), init(shapes))
    return sg.trace(lambda x: net(params, x), size)


def networks(quick: bool) -> Iterator[tuple[str, sg.Graph, np.ndarray, float]]:
    x = image().numpy()
    for eps in (0.02, 0.1):
        yield f"conv-max-conv-avg-linear, 28x28, {eps}", from_torch(pooled(8).eval(), image()), x, eps
        yield f"conv-conv-linear-linear, 28x28, {eps}", from_torch(plain(8).eval(), image()), x, eps
    rng = np.random.default_rng(0)
    small = constant(unet.net, unet.shapes(width=3, depth=2), (1, 1, 16, 16))
    yield "U-Net (width 3, depth 2), 16x16, 0.001", small, rng.uniform(size=(1, 1, 16, 16)), 0.001
    for width, side in () if quick else ((8, 32), (4, 64)):
        deep = constant(resnet18.net, resnet18.shapes(classes=10, width=width), (1, 3, side, side))
        yield f"ResNet-18 (width {width}), {side}x{side}, 0.0001", deep, rng.uniform(size=(1, 3, side, side)), 1e-4


def measured(graph: sg.Graph, box: Box, **options: Any) -> tuple[float, int, float]:
    start = time.process_time()
    found = crown(graph, box, **options)
    return float(np.mean(found.outputs.width)), found.roundings, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without ResNet-18")
    lines = [HEAD]
    for name, graph, x, eps in networks(parser.parse_args().quick):
        box = Box.around(x, eps)
        real, _, seconds = measured(graph, box, deployed=False)
        lines += [f"{name}", f"  {'exact arithmetic':32} width {real:.4g}, {seconds:.1f} s"]
        print("\n".join(lines[-2:]), flush=True)
        chosen = CLASSES if "64x64" not in name else {k: CLASSES[k] for k in SLOW}
        for label, arithmetic in chosen.items():
            width, roundings, seconds = measured(graph, box, arithmetic=arithmetic)
            ratio = f"{width / real:.4f}" if width < 1000 * real else f"{width / real:.3g}"
            lines.append(f"  {label:32} {ratio:>10}x  R = {roundings:6,}  {seconds:6.1f} s")
            print(lines[-1], flush=True)
    (Path(__file__).parent / "price.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
