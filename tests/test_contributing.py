"""CONTRIBUTING's worked example: one record, and everything else picks it up."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import numpy as np
import pytest

import laws
import specgrad as sg
from specgrad.graph.save import from_json, to_json
from specgrad.op import REGISTRY, Op
from specgrad.window import strided

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def square_pool():
    """The operator of the page's code block, registered for one test."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    namespace: dict = {}
    exec(block, namespace)
    yield namespace["SQUARE_POOL"]
    del REGISTRY["square_pool"]


def net(op: Op):
    window = strided("square_pool", (6,), (3,), stride=(2,), padding=((1, 1),))
    return lambda x: sg.apply(op, x, window=window)


def test_laws(square_pool: Op) -> None:
    for seed in range(200):
        rng = Random(seed)
        laws.check_all(square_pool, square_pool.cases(rng), rng)


def test_values_and_derivatives(square_pool: Op) -> None:
    graph = sg.trace(net(square_pool), (6,))
    x = sg.exact([1, 2, 3, 4, 5, 6])
    assert graph(x).tolist() == [1 + 4, 4 + 9 + 16, 16 + 25 + 36]
    assert sg.jvp(graph)(x, sg.exact([1, 0, 0, 1, 0, 0]))[1].tolist() == [2, 8, 8]
    assert sg.vjp(graph)(x, sg.exact([1, 10, 100]))[1].tolist() == [2, 44, 60, 880, 1000, 1200]
    second = sg.jvp(sg.vjp(graph), "x")
    assert second(x, sg.exact([1, 1, 1]), sg.exact([1, 0, 0, 0, 0, 0]))[3].tolist() == [2, 0, 0, 0, 0, 0]


def test_printing_and_serialization(square_pool: Op) -> None:
    graph = sg.trace(net(square_pool), (6,))
    row = next(line for line in str(graph).splitlines() if "square_pool" in line)
    assert row.split() == ["square_pool", "square_pool", "k3", "s2", "p1", "3", "3"]
    again = from_json(to_json(graph))
    assert (again(np.arange(6.0)) == graph(np.arange(6.0))).all()
