"""Graphs are copied, pickled and sent to other processes; operators go by name, and stay the same objects."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from random import Random

import numpy as np
import pytest

import specgrad as sg
from laws import graph_of, lift
from specgrad.graph.files.save import to_json
from specgrad.graph.graph import CONSTANT, INPUT
from specgrad.graph.ir.node import call
from specgrad.op import REGISTRY, Op

WAYS = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    **{f"pickle {p}": lambda g, p=p: pickle.loads(pickle.dumps(g, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)},
}


def network(p, x):
    with sg.scope("stem"):
        x = sg.relu(sg.conv(p["w"], None, x, stride=2, padding=1) + np.float32(0.5))
    return sg.linear(np.arange(4.0, dtype=np.float32).reshape(1, 4), None, sg.flatten(sg.max_pool(x, (2, 2)), 1))


def sample() -> tuple[sg.Graph, tuple]:
    graph = sg.trace(network, {"w": (1, 1, 3, 3)}, (1, 1, 8, 8))
    rng = np.random.default_rng(0)
    w, x = (rng.normal(size=s).astype(np.float32) for s in ((1, 1, 3, 3), (1, 1, 8, 8)))
    return graph, ({"w": w}, x)


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_is_the_same_graph(way: str) -> None:
    graph, args = sample()
    for g, inputs in ((graph, args), (sg.vjp(graph), (*args, np.ones((1, 1), np.float32)))):
        again = WAYS[way](g)
        assert again.nodes == g.nodes
        assert all(a.op is b.op for a, b in zip(again.nodes, g.nodes, strict=True))
        assert to_json(again) == to_json(g)
        for a, b in zip(sg.tree.leaves((again(*inputs),)), sg.tree.leaves((g(*inputs),)), strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(sg.jvp(WAYS[way](graph))) == len(sg.jvp(graph))


def test_a_deep_copy_has_arrays_of_its_own() -> None:
    graph, args = sample()
    expected = graph(*args)
    for array in copy.deepcopy(graph).constants.values():
        if array.flags.writeable:
            array[...] = 0
    np.testing.assert_array_equal(graph(*args), expected)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_operator_is_copied_and_pickled(name: str) -> None:
    op = REGISTRY[name]
    if op.index_args == (0,):
        assert pickle.loads(pickle.dumps(op)) is op
        return
    graph, args = graph_of(op, op.cases(Random(0)))
    expected = np.asarray(graph(*lift(op, args)))
    for again in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert again.nodes == graph.nodes
        assert [str(v) for v in np.asarray(again(*lift(op, args))).flat] == [str(v) for v in expected.flat]


def test_inputs_and_constants_keep_their_records() -> None:
    for op in (INPUT, CONSTANT):
        assert pickle.loads(pickle.dumps(op)) is copy.deepcopy(op) is op


def test_an_operator_that_nobody_registered_is_refused() -> None:
    stranger = Op(name="stranger", shape=lambda x: x, spec=lambda x: x, cases=lambda rng: ((), {}))
    with pytest.raises(sg.UnsupportedError, match="stranger: is not registered, so it cannot be pickled"):
        pickle.dumps(stranger)
    impostor = Op(name="relu", shape=lambda x: x, spec=lambda x: x, cases=lambda rng: ((), {}))
    with pytest.raises(sg.UnsupportedError, match="relu: is not registered"):
        pickle.dumps(impostor)
    assert copy.deepcopy(stranger) is stranger


def test_errors_reach_the_one_who_waits() -> None:
    with pytest.raises(sg.ShapeError) as caught:
        sg.max_pool(np.ones(2), (5,))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.operator, again.rule) == (sg.ShapeError, str(caught.value), "max_pool", "W2")


def test_spawned_workers_take_graphs_and_give_them_back() -> None:
    graph, args = sample()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(call, graph, args).result(timeout=60)
        again = pool.submit(copy.deepcopy, graph).result(timeout=60)
        with pytest.raises(sg.ShapeError, match="takes 2 arguments"):
            pool.submit(call, graph, args[:1]).result(timeout=60)
    np.testing.assert_array_equal(found, graph(*args))
    assert again.nodes == graph.nodes
