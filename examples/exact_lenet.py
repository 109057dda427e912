"""One graph, three arithmetics: a tiny LeNet in float32, float64 and exact rationals.

Every float is a rational number, so the exact run takes the very same parameters and rounds nothing. What the floats
differ from it by is their whole rounding error, in the output and in the gradient alike.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import specgrad as sg
from common import Tree, each, flat, init, layer, timed


def shapes(classes: int = 10) -> Tree:
    return {"conv1": layer(4, 1, 3, 3), "conv2": layer(8, 4, 3, 3), "fc": layer(classes, 8 * 2 * 2)}


def net(params: Tree, x: Any) -> Any:
    """relu and pooling only: rationals have no tanh."""
    with sg.scope("conv1"):
        x = sg.relu(sg.conv(params["conv1"]["weight"], params["conv1"]["bias"], x))
        x = sg.max_pool(x, (2, 2))
    with sg.scope("conv2"):
        x = sg.relu(sg.conv(params["conv2"]["weight"], params["conv2"]["bias"], x))
        x = sg.avg_pool(x, (2, 2))
    with sg.scope("fc"):
        return sg.linear(params["fc"]["weight"], params["fc"]["bias"], sg.flatten(x, 1))


def loss(params: Tree, x: Any, target: Any) -> Any:
    return sg.mse_loss(net(params, x), target)


def error(found: Tree, exact: Tree) -> Fraction:
    """The largest absolute difference, itself without rounding."""
    truth = flat(exact)
    return max(abs(sg.exact(a) - truth[path]).max() for path, a in flat(found).items())


def main() -> None:
    rng = np.random.default_rng(0)
    x, target = rng.random((1, 1, 14, 14)), np.eye(1, 10)
    inputs = each(lambda _, a: a.astype(np.float32), (init(shapes()), x, target))  # numbers that all three can hold

    network = sg.trace(net, shapes(), x.shape)
    gradient = sg.grad(sg.trace(loss, shapes(), x.shape, target.shape), "params")
    print(f"{network}\n")

    def run(convert: Callable[[Any], Any]) -> tuple[Any, Tree]:
        params, x, target = each(lambda _, a: convert(a), inputs)
        return network(params, x), gradient(params, x, target)

    arithmetics = {"float32": np.float32, "float64": np.float64, "exact": sg.exact}
    runs = {name: timed(run, convert) for name, convert in arithmetics.items()}
    (y, g), _ = runs["exact"]
    print("arithmetic  output error  gradient error  seconds")
    for name, ((found_y, found_g), seconds) in runs.items():
        print(f"{name:10}  {float(error(found_y, y)):12.1e}  {float(error(found_g, g)):14.1e}  {seconds:7.3f}")

    first = g["conv1"]["bias"][0]
    print(f"\nd loss / d conv1.bias[0] = {first}\n{'':24} = {float(first)!r}, rounded once")


if __name__ == "__main__":
    main()
