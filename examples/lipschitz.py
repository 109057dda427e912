"""How fast can a network change? A certified local Lipschitz constant of conv - max_pool - conv - linear.

The gradient is a graph like any other, so bounds of it hold for every point of a box; the 2-norm of that box is an L
with abs(y(x) - y(z)) <= L * norm(x - z) for all x and z in it. The steepest gradient that a search finds shows how much
of L is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import specgrad as sg
from common import Tree, init, layer, timed
from specgrad.bounds import Box, lipschitz

SIZE = (1, 12, 12)


def shapes() -> Tree:
    return {"conv1": layer(4, 1, 3, 3), "conv2": layer(8, 4, 3, 3), "fc": layer(1, 8 * 3 * 3)}


def net(params: Tree, x: Any) -> Any:
    x = sg.max_pool(sg.conv(params["conv1"]["weight"], params["conv1"]["bias"], x), (2, 2))
    x = sg.conv(params["conv2"]["weight"], params["conv2"]["bias"], x)
    return sg.linear(params["fc"]["weight"], params["fc"]["bias"], sg.flatten(x, 1))


def steepest(params: Tree, x: np.ndarray, eps: float, seed: int = 0) -> float:
    """The largest 2-norm of a gradient: at random corners of the box, then by moving one cell at a time."""
    norms = gradient_norms(params, x.size)
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), (x.size, *x.shape[1:]))
    flips = 1 - 2 * np.eye(x.size).reshape(x.size, *x.shape[1:])
    best = 0.0
    while (found := norms(x + eps * signs)).max() > best:
        best = float(found.max())
        signs = signs[found.argmax()] * flips  # every neighbour of the best corner
    return best


def gradient_norms(params: Tree, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function from `count` inputs to the 2-norms of their gradients."""
    total = sg.trace(lambda p, x: sg.sum(net(p, x)), shapes(), (count, *SIZE))
    gradient = sg.grad(total, "x")
    return lambda x: np.linalg.norm(gradient(params, x).reshape(count, -1), axis=1)


def table(params: Tree, x: np.ndarray, radii: tuple[float, ...] = (0.01, 0.05, 0.2)) -> str:
    graph = sg.trace(net, shapes(), x.shape)
    lines = ["each cell of x +-  certified L  by intervals  steepest gradient found  ratio  seconds"]
    for eps in radii:
        box = (params, Box.around(x, eps))
        (certified, seconds), wide = timed(lipschitz, graph, *box), lipschitz(graph, *box, method="ibp")
        found = steepest(params, x, eps)
        lines.append(
            f"{eps:17}  {certified.item():11.4f}  {wide.item():12.4f}  {found:23.4f}  {certified.item() / found:5.3f}"
            f"  {seconds:7.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    x = np.random.default_rng(1).random((1, *SIZE))
    print(f"{sg.trace(net, shapes(), x.shape)}\n\n{table(init(shapes()), x)}")


if __name__ == "__main__":
    main()
