"""Time proven radii at real sizes, and compare them with what PyTorch's float32 really does.

    python benchmarks/rounding.py | tee benchmarks/rounding.txt

Seconds are CPU seconds of all threads, which a busy machine stretches least. A radius is a worst case over all orders
of summation and all its inputs' errors at once. One layer uses a fair part of its allowance; through many layers the
worst case multiplies by the absolute row sums of every layer, which chance never reaches. So audits judge layers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import specgrad as sg
from specgrad.rounding import ULPS, Arithmetic, Ball, local_radius, radius

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

TORCH = Arithmetic(ulps=ULPS["torch"])


def tensors(tree: Any) -> Any:
    return sg.tree.transform(lambda _, a: torch.from_numpy(np.array(a)), tree)


def arguments(shapes: Any, size: tuple[int, ...]) -> tuple[Any, np.ndarray]:
    from common import init

    params = sg.tree.transform(lambda _, a: a.astype(np.float32), init(shapes))
    return params, np.random.default_rng(0).normal(size=size).astype(np.float32)


def ratio(ball: Ball, got: np.ndarray) -> float:
    """The largest error over its radius; 0 where there is no error."""
    error = np.abs(ball.value - got)
    with np.errstate(all="ignore"):
        return float(np.where(error == 0, 0.0, error / ball.radius).max(initial=0.0))


def whole(name: str, size: tuple[int, ...], gradient: bool) -> None:
    """Seconds of the radius, and the largest error over its radius, over all outputs."""
    example = __import__(name)
    graph = sg.trace(example.net, example.shapes(), size)
    args: tuple[Any, ...] = arguments(example.shapes(), size)
    if gradient:
        args = (*args, np.ones(graph.nodes[graph.output_positions[0]].shape, np.float32))
        graph = sg.vjp(graph)
    start = time.process_time()
    report = radius(graph, *args, arithmetic=TORCH, backend="torch")
    seconds = time.process_time() - start
    got = sg.tree.leaves(sg.compile(graph, "torch")(*tensors(args)))
    y = sg.tree.leaves(report.outputs)[0]
    used = max(map(ratio, sg.tree.leaves(report.outputs), (g.detach().numpy() for g in got)))
    what = "outputs and gradients" if gradient else "outputs"
    relative = float(np.median(y.radius) / np.abs(y.value).max())
    size = f"{len(graph):5} nodes {seconds:7.2f} CPU s"
    print(f"{name:10} {what:22} {size}   radius/output {relative:8.1e}   used {used:8.1e}")


def layers(name: str, size: tuple[int, ...]) -> None:
    """Every node on PyTorch's own float32 inputs to it: the largest error over its radius, per operator."""
    example = __import__(name)
    graph = sg.trace(example.net, example.shapes(), size)
    params, x = arguments(example.shapes(), size)
    given = iter([*sg.tree.leaves(params), x])
    values: list[Any] = []
    used: dict[str, float] = {}
    start = time.process_time()
    for node in graph.nodes:
        if node.op.name == "input":
            values.append(next(given))
            continue
        args = [a.value if not isinstance(a, int) else values[a] for a in node.args]
        y = sg.apply(node.op, *(a if np.isscalar(a) else torch.from_numpy(a) for a in args), **node.params).numpy()
        ball = local_radius(node.op, *args, arithmetic=TORCH, backend="torch", **node.params)
        used[node.op.name] = max(used.get(node.op.name, 0.0), ratio(ball, y))
        values.append(np.ascontiguousarray(y))
    seconds = time.process_time() - start
    print(
        f"{name:10} layer by layer, {seconds:.1f} CPU s; used: "
        + ", ".join(f"{k} {v:.2g}" for k, v in used.items() if v)
    )


def main() -> None:
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; error over radius, float32")
    with torch.no_grad():
        whole("lenet", (1, 1, 28, 28), gradient=False)
        whole("lenet", (1, 1, 28, 28), gradient=True)
        whole("resnet18", (1, 3, 224, 224), gradient=False)
        whole("resnet18", (1, 3, 224, 224), gradient=True)
        layers("resnet18", (1, 3, 224, 224))


if __name__ == "__main__":
    main()
