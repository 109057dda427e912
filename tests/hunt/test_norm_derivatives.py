"""Derivatives of normalisations and of softmax, node by node in float32 along drawn trees, stay in their radius."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import specgrad as sg
from norm_kernels import NormKernel, rows
from specgrad.graph.graph import Graph
from specgrad.rounding import Arithmetic, Ball, linear, radius
from specgrad.rounding.ball import exact_ball
from specgrad.rounding.rules import RULES
from test_norms import EPS, layer, rms

F = np.float32
NODE = Arithmetic(execution="node")
SIZES, MEANS = (2, 5, 64, 768), (0.0, 1.0, 30.0, 300.0)
KINDS = ("layer", "layer, affine", "rms, affine", "group", "batch", "softmax")


def meant(kind: str, n: int) -> Graph:
    """A layer on two rows of n cells, with its factors as inputs."""
    if kind in ("layer", "layer, affine"):
        return layer(n, 2, kind != "layer")
    if kind == "rms, affine":
        return rms(n, 2, True)
    if kind == "group":
        return sg.trace(lambda x: sg.group_norm(x.reshape((1, 2, n)), 2, eps=EPS), (2, n))
    if kind == "softmax":
        return sg.trace(sg.softmax, (2, n))

    def batch(x: Any) -> Any:
        c = x - x.mean(0, keepdims=True)
        return c / sg.sqrt((c * c).mean(0, keepdims=True) + EPS)

    return sg.trace(batch, (2, n))


def run(graph: Graph, given: list[np.ndarray], kernel: NormKernel) -> list[np.ndarray]:
    """All outputs, every node rounded to float32, every sum along a tree of its own."""
    values: list[Any] = []
    inputs = iter(given)
    for i, node in enumerate(graph.nodes):
        args = [values[a] if isinstance(a, int) else F(a.value) for a in node.args]
        if node.op.name == "input":
            values.append(next(inputs))
        elif node.op.name == "constant":
            values.append(graph.constants[i])
        elif node.op.name == "sum":
            values.append(_sum(kernel, args[0], node.params["axes"]))
        else:
            y = sg.apply(node.op, *args, **node.params)
            values.append(np.asarray(y, F) if node.kind == "real" else np.asarray(y))
    return [np.asarray(values[p]) for p in graph.output_positions]


def _sum(kernel: NormKernel, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = tuple(x.shape[a] for a in kept)
    flat = x.transpose(*kept, *axes).reshape(int(np.prod(shape, dtype=int)), -1)
    return np.asarray(kernel.total(flat)).reshape(shape)


def escapes(seed: int) -> list[str]:
    """Derivatives, forward or reverse, of a drawn layer on drawn rows that leave their radius or have none."""
    rng = np.random.default_rng([seed, 7])
    n, k, kind = SIZES[seed % 4], MEANS[seed // 4 % 4], KINDS[seed // 16 % 6]
    graph = meant(kind, n)
    shapes = [graph.nodes[p].shape for p in graph.input_positions]
    x = rows(rng, n, 0.0 if kind == "softmax" else k, 2)
    given = [x, *(rng.normal(size=shape).astype(F) for shape in shapes[1:])]
    reverse = bool(rng.integers(2))
    turned = (sg.vjp if reverse else sg.jvp)(graph)
    apart = [graph.nodes[p].shape for p in (graph.output_positions if reverse else graph.input_positions)]
    given += [rng.normal(size=shape).astype(F) for shape in apart]
    balls: list[Ball] = [radius(turned, *given, arithmetic=NODE, keep=True).nodes[turned.nodes[p].name]
                         for p in turned.output_positions]  # fmt: skip
    with np.errstate(all="ignore"):
        got = run(turned, given, NormKernel(seed))
    bad = [not (np.isfinite(b.radius).all() and b.contains(y).all()) for b, y in zip(balls, got, strict=True)]
    return [f"{kind} of {n} at {k}, output {p}" for p, wrong in enumerate(bad) if wrong]


def test_no_derivative_leaves_its_radius() -> None:
    assert [e for seed in range(96) for e in escapes(seed)] == []


@pytest.mark.slow
def test_long_hunt_of_derivatives() -> None:
    assert [e for seed in range(1000, 2000) for e in escapes(seed)] == []


def test_divisors_without_an_error_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = RULES["div"]
    wrong: Any = lambda context, op, args, params: right(context, op, [args[0], exact_ball(args[1].value)], params)
    monkeypatch.setitem(RULES, "div", wrong)
    assert any(escapes(seed) for seed in (35, *range(96)))  # the first is known to show it


def test_sums_without_roundings_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "stored_error", lambda *_: 0.0)
    assert any(escapes(seed) for seed in range(96))
