"""What the examples share: parameter structures, random values for them, and a report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import specgrad as sg

Shape = tuple[int, ...]
Tree = Any  # dicts and tuples, nested, with shapes or arrays as leaves


# --- structures of shapes ---------------------------------------------------------------------------------------


def layer(outputs: int, *rest: int) -> Tree:
    """A convolution (out, in, *kernel) or a linear layer (out, in), with bias."""
    return {"weight": (outputs, *rest), "bias": (outputs,)}


def norm(channels: int) -> Tree:
    """A batch normalisation in inference form: two learnable vectors and two statistics."""
    return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (channels,))


def each(f: Callable[[str, Any], Any], tree: Tree) -> Tree:
    """The same structure with f(path, leaf) at every leaf; a tuple of ints is a shape, hence a leaf."""
    return sg.tree.transform(f, tree, leaf=sg.tree.is_shape)


def flat(tree: Tree) -> dict[str, Any]:
    """Every leaf by its dotted path, such as layer1.0.conv1.weight."""
    return dict(sg.tree.walk(tree, leaf=sg.tree.is_shape))


def learnable(path: str) -> bool:
    return "running_" not in path


def count(shapes: Tree) -> int:
    """How many numbers a training run would change."""
    return sum(math.prod(shape) for path, shape in flat(shapes).items() if learnable(path))


# --- values -----------------------------------------------------------------------------------------------------


def init(shapes: Tree, seed: int = 0) -> Tree:
    """Kernels normal with variance 2 / fan-in (He); biases and means 0, scales and variances 1."""
    rng = np.random.default_rng(seed)

    def values(path: str, shape: Shape) -> np.ndarray:
        if len(shape) > 1:
            return rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
        return np.ones(shape) if path.endswith(("weight", "running_var")) else np.zeros(shape)

    return each(values, shapes)


# --- report -----------------------------------------------------------------------------------------------------


def cross_entropy_of(net: Callable[[Tree, Any], Any]) -> Callable[[Tree, Any, Any], Any]:
    """The training loss of a classifier."""

    def loss(params: Tree, x: Any, labels: Any) -> Any:
        return sg.cross_entropy(net(params, x), labels)

    return loss


def timed(f: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = f(*args, **options)
    return result, time.perf_counter() - start


def report(net: Callable[[Tree, Any], Any], shapes: Tree, x: Shape, labels: Shape) -> None:
    """Trace a classifier from shapes alone, print it, differentiate its loss. No number is computed."""
    graph, seconds = timed(sg.trace, net, shapes, x)
    print(graph)
    print(f"{count(shapes):,} of the parameters are learnable\n")
    print(f"network   {len(graph):5,} nodes  {seconds:.3f} s")
    loss, seconds = timed(sg.trace, cross_entropy_of(net), shapes, x, sg.Index(labels))
    print(f"loss      {len(loss):5,} nodes  {seconds:.3f} s")
    gradient, seconds = timed(sg.grad, loss, "params")
    print(f"gradient  {len(gradient):5,} nodes  {seconds:.3f} s")
