"""Data parallelism: many processes and devices give the gradient of one, within a bound that can refuse."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import common
import data_parallel_torch as example

RUNS = {
    "torch": ["DistributedDataParallel, 2 processes"],
    "jax": ["jit, 4 devices", "shard_map, 4 devices", "jit, 2 processes", "shard_map, 2 processes"],
}


@pytest.mark.parametrize("engine", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_parallel_gradient_equals_the_single_one(engine: str) -> None:
    missing = [p for p in (engine, "safetensors") if find_spec(p) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    command = [sys.executable, "-W", "error", str(Path(example.__file__).with_name(f"data_parallel_{engine}.py"))]
    env = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # each program runs once
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert run.returncode == 0, run.stderr
    found = re.findall(r"^(.*): largest difference \S+; nearest .*: difference (\S+), bound (\S+)$", run.stdout, re.M)
    assert [what for what, *_ in found] == RUNS[engine]
    for what, difference, bound in found:
        assert 0 <= float(difference) <= float(bound), what


# --- the check itself -----------------------------------------------------------------------------------------------


def specified(share: slice) -> common.Tree:
    params, x, labels = example.double(example.problem())
    graph = sg.grad(example.loss_graph(len(x[share])), "params")
    return graph(params, x[share], labels[share])


def test_bound_refuses_a_share_that_was_never_added() -> None:
    bounds = {path: 2 * b for path, b in example.summation().items()}
    whole, half = specified(slice(None)), specified(slice(example.IMAGES // 2))
    refused = {p: abs(common.flat(half)[p] - common.flat(whole)[p]) > bounds[p] for p in bounds}
    assert all(cells.mean() > 0.9 for cells in refused.values())
    with pytest.raises(SystemExit, match="half: the gradients differ by more than rounding"):
        example.report("half", half, whole, bounds)


@pytest.mark.parametrize("bound", [0.0, 1e-6])
def test_one_cell_above_its_bound_is_refused(bound: float, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = {"a": np.full(3, bound), "b": np.full(2, bound)}
    single = {"a": np.zeros(3), "b": np.zeros(2)}
    example.report("equal", single, single, bounds)
    example.report("at the bound", {"a": np.zeros(3), "b": np.array([0, bound])}, single, bounds)
    assert "at the bound: largest difference" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="above"):
        example.report("above", {"a": np.zeros(3), "b": np.array([0, 1.01 * bound + 1e-30])}, single, bounds)


def test_terms_are_counted_and_added_without_signs() -> None:
    """By hand for the last bias: its terms are (softmax - one-hot) / N, one per image."""
    params, x, labels = example.double(example.problem())
    scores = example.net(params, x)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    terms = (p / p.sum(axis=1, keepdims=True) - np.eye(10)[labels]) / example.IMAGES
    nu = example.IMAGES * 2.0**-24
    np.testing.assert_allclose(example.summation()["fc3.bias"], nu / (1 - nu) * abs(terms).sum(axis=0), rtol=1e-9)


def test_a_gradient_that_is_no_sum_of_products_is_not_bounded() -> None:
    graph = sg.grad(sg.trace(lambda x: sg.sum(sg.tanh(x)), (2,)))
    with pytest.raises(NotImplementedError, match="is no sum of products"):
        example.adder(graph, graph.output_positions[0])
