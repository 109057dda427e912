"""Both engines compute compositions of operators, and their derivatives, as the specification does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain, islice
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import compositions as c
import specgrad as sg
from specgrad.engines.jax import jit_graph as jax_graph
from specgrad.engines.torch import rewrites
from specgrad.op import REGISTRY
from specgrad.ops import elementwise

TORCH, JAX = {"torch": c.on_torch}, {"jax": c.on_jax}
OFTEN = ["relu", "relu6", "hardswish", "silu", "gelu", "tanh", "sigmoid", "batch_norm", "conv", "max_pool"]
WINDOWS = ["two windows", "winners of another", "max_pool"]


def doubled(names: list[str]) -> Iterator[c.Composition]:
    """Each kind behind itself."""
    return (c.Composition((name, name), c.USUAL, 7_000_000 + k) for k, name in enumerate(names))


def narrow() -> Iterator[c.Composition]:
    """Norms of images with an axis of size 1, whose stride may be any."""
    return (c.Composition(("batch_norm",), (2, 2, 1, 3), 8_000_000 + k) for k in range(8))


def slice_for_torch() -> Iterator[c.Composition]:
    often = islice(c.pairs(OFTEN), 0, None, 3)
    return chain(narrow(), doubled(list(c.NEAR)), often, doubled(c.OPERATORS[::4]), c.drawn(1, 8))


def slice_for_jax() -> Iterator[c.Composition]:
    return chain(c.pairs(WINDOWS), doubled(["taken", *c.OPERATORS[::24]]))


def assert_none(count: c.Count) -> None:
    assert not count.differences, "\n".join(count.differences)
    assert count.undecided + count.undefined <= 0.02 * sum(count.graphs.values()), count


def test_pytorch_computes_what_graphs_say() -> None:
    assert_none(c.hunt(slice_for_torch(), TORCH))


def test_jax_computes_what_graphs_say() -> None:
    assert_none(c.hunt(slice_for_jax(), JAX, modes=("jvp", "vjp")))


def test_pytorch_computes_what_calls_say() -> None:
    assert_none(c.called_on_torch(chain(doubled(c.OPERATORS[1::2]), c.drawn(5, 12))))


def test_every_operator_is_composed() -> None:
    """In some composition or in a derivative of it; what a derivative adds is composed by being there."""
    met = set()
    for of in (c.Composition((name,), c.USUAL, 0) for name in c.KINDS):
        for _, graph, _ in c.Case(of).graphs():
            met |= {node.op.name for node in graph.nodes}
    assert REGISTRY.keys() - met == {"last_writer"}  # of max_unpool, where a position comes twice


# --- the long hunt ----------------------------------------------------------------------------------------------------

MOST = int(os.environ.get("SPECGRAD_COMPOSITIONS", "600"))  # 0: all of them, on the authors' machine once
TRIPLES = 2000


def everything(engine: str, seed: int) -> list[c.Composition]:
    """All ordered pairs and a draw of triples, in an order of their own; forms for PyTorch's rewrites on PyTorch."""
    names = list(c.KINDS) if engine == "torch" else [*c.OPERATORS, *WINDOWS[:2]]
    found = [*c.pairs(names, seed), *c.drawn(seed, TRIPLES, names=names)]
    Random(seed).shuffle(found)
    return found[: MOST or None]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_all_pairs_and_triples(engine: str) -> None:
    assert_none(c.hunt(everything(engine, 2), {engine: c.ENGINES[engine]}))


# --- what was wrong ---------------------------------------------------------------------------------------------------

TWICE: dict[str, Callable[[Any], Any]] = {
    "tanh of tanh": lambda x: sg.tanh(sg.tanh(x)),
    "sigmoid of sigmoid": lambda x: sg.sigmoid(sg.sigmoid(x)),
    "silu of sigmoid": lambda x: sg.silu(sg.sigmoid(x)),
}


@pytest.mark.parametrize("name", list(TWICE))
@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_an_activation_of_itself(name: str, engine: str) -> None:
    """By central differences of the specification, which no rule is part of."""
    x, f = np.array([0.3, -1.2]), TWICE[name]
    got = c.ENGINES[engine](sg.vjp(sg.trace(f, (2,))), [x, np.ones(2)])[1]
    np.testing.assert_allclose(got, (f(x + 1e-5) - f(x - 1e-5)) / 2e-5, rtol=1e-8)


@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_a_slope_written_out_beside_the_function(engine: str) -> None:
    g, y = np.array([2.0, -3.0]), np.array([1.9, 0.2])
    graph = sg.trace(lambda g, y: g * (1 - y * y) + sg.tanh(y), (2,), (2,))
    np.testing.assert_allclose(c.ENGINES[engine](graph, [g, y])[0], g * (1 - y * y) + np.tanh(y), rtol=1e-14)


def test_zeros_of_both_signs_are_two_numbers_in_derivatives() -> None:
    graph = sg.jvp(sg.trace(lambda x: (sg.fill(x, 0.0), sg.fill(x, -0.0)), (1,)))
    values = graph(np.ones(1), np.ones(1))[:2]
    assert [np.signbit(v).tolist() for v in values] == [[False], [True]]


@pytest.mark.parametrize("engine", ["specification", "torch", "jax"])
def test_positions_of_empty_windows_are_refused_where_none_may_be(engine: str) -> None:
    def put(x: Any, v: Any) -> Any:
        _, i = sg.max_pool(x, (1,), stride=1, padding=[(1, 0)], return_indices=True)
        return sg.put(v, i, size=(3,), empty=False)

    run = c.ENGINES.get(engine, lambda graph, args: graph(*args))
    with pytest.raises(sg.ShapeError, match=r"indices must lie in 0\.\.2"):
        run(sg.trace(put, (1, 3), (1, 4)), [np.arange(3.0)[None], np.arange(4.0)[None]])


# --- planted mistakes -------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def as_it_was(m: pytest.MonkeyPatch) -> None:
    """What stands for y is taken for x, and the node that computes its function is read."""
    for name in ("tanh", "sigmoid"):
        m.setitem(rewrites.ACTIVATIONS, name, getattr(torch.ops.aten, f"{name}_backward").default)

    def read(settings: Any, found: Any, outputs: Any) -> int:
        x = found.get("y", found.get("x0"))
        return outputs.get((settings, (x,)), x)

    m.setattr(rewrites, "_saved_value", read)


def swapped(first: str, second: str) -> Plant:
    """Two inputs of a claim exchanged, where nodes have one shape."""

    def plant(m: pytest.MonkeyPatch) -> None:
        right = rewrites.match_claim

        def match_claim(*args: Any) -> Any:
            found = right(*args)
            return found if found is None or args[4] else {**found, **_exchanged(found, first, second)}

        m.setattr(rewrites, "match_claim", match_claim)

    return plant


def _exchanged(found: dict[str, int], first: str, second: str) -> dict[str, int]:
    return {first: found[second], second: found[first]} if {first, second} <= found.keys() else {}


def nearly(a: Any, b: Any) -> bool:
    both = type(a) is type(b) is rewrites.NumberArg
    return both and abs(a.value - b.value) <= 1e-4 * (1 + abs(a.value))


def negative(name: str) -> Plant:
    native = rewrites.ACTIVATIONS[name]
    return lambda m: m.setitem(rewrites.ACTIVATIONS, name, lambda *args: -native(*args))


def one_search(m: pytest.MonkeyPatch) -> None:
    """The winners of one value, whatever the window."""
    right = jax_graph._search_winners

    def search(values: Any, routes: Any, *, node: Any) -> Any:
        mine = jax_graph._search_of(node)
        routes.setdefault(mine, next((r for s, r in routes.items() if s[0] == mine[0]), None))
        if routes[mine] is None:
            del routes[mine]
        return right(values, routes, node=node)

    m.setattr(jax_graph, "_search_winners", search)


def any_route(m: pytest.MonkeyPatch) -> None:
    """A position follows the winners that were searched first."""
    right = jax_graph._follow_route
    follow = lambda values, routes, *, search, **rest: right(
        values, {search: next(iter(routes.values()))}, search=search, **rest
    )
    m.setattr(jax_graph, "_follow_route", follow)


ON_TORCH: dict[str, Plant] = {
    "what stands for y is read one function later": as_it_was,
    "gy and x exchanged": swapped("gy", "x0"),
    "weight and bias exchanged": swapped("weight", "bias"),
    "one input stands for two nodes": lambda m: m.setattr(rewrites, "same_node", lambda a, b: True),
    "numbers compared loosely": lambda m: m.setattr(rewrites, "same_number", nearly),
    "windows not compared": lambda m: m.setattr(rewrites, "same_call", lambda a, b: a.op is b.op),
    "a sign in the rewrite of silu": negative("silu"),
    "a sign in the rewrite of relu": negative("relu"),
    "vectors not packed": lambda m: m.setattr(rewrites, "packed", lambda *vectors: list(vectors)),
    "axes of size 1 told by their strides": lambda m: m.setattr(
        rewrites, "flatten_spatial", lambda *images: list(images)
    ),
}
SOONEST = {
    "what stands for y is read one function later": 26,
    "gy and x exchanged": 30,
    "numbers compared loosely": 36,
    "windows not compared": 21,
    "a sign in the rewrite of silu": 30,
    "a sign in the rewrite of relu": 38,
}
"""How many compositions show nothing of a mistake: those after them come first."""
ON_JAX: dict[str, Plant] = {"one search for all windows": one_search, "any route is followed": any_route}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Claims are kept, and those that a mistake has recorded must not be."""
    caches = rewrites._cotangent_claim, rewrites._batch_norm_claim, rewrites._norm_cotangent_claim
    for cache in caches:
        cache.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize("mistake", list(ON_TORCH))
def test_a_wrong_rewrite_is_found_on_pytorch(mistake: str, planted: pytest.MonkeyPatch) -> None:
    ON_TORCH[mistake](planted)
    soon = islice(slice_for_torch(), SOONEST.get(mistake, 0), None)
    assert c.hunt(chain(soon, slice_for_torch()), TORCH, most=1).differences


@pytest.mark.parametrize("mistake", list(ON_JAX))
def test_a_wrong_rewrite_is_found_on_jax(mistake: str, planted: pytest.MonkeyPatch) -> None:
    ON_JAX[mistake](planted)
    assert c.hunt(slice_for_jax(), JAX, modes=("jvp", "vjp"), most=1).differences


def test_a_sign_in_one_rule_is_found(planted: pytest.MonkeyPatch) -> None:
    """Both engines follow the rule, so no engine differs: jvp and vjp do."""
    planted.setitem(vars(elementwise.SUB), "vjp", lambda gy, y, args: (gy, gy))
    assert "adjoint" in c.hunt(slice_for_torch(), {}, most=1).differences[0]
