"""Masks brought near: which are, that nothing else is, and that causal attention is bounded backwards at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Box, crown, near_masks
from specgrad.check import tolerance
from specgrad.graph.ir.node import evaluate
from specgrad.graph.ir.tree import leaves
from specgrad.rounding import Arithmetic
from specgrad.safety.accuracy.per_layer import accuracy

NODE = Arithmetic(execution="node")
LOWEST = float(np.finfo(np.float32).min)
T, D = 5, 8
SEEN = np.tri(T, dtype=bool)


def added(far: float) -> Callable[[Any], Any]:
    return lambda s: s + np.where(SEEN, 0.0, far).astype(np.float32)


def chosen(far: float) -> Callable[[Any], Any]:
    return lambda s: sg.select(SEEN.astype(np.float32), s, far)


Q, K, V = ((np.random.default_rng(k).normal(size=(D, D)) / 3).astype(np.float32) for k in range(3))


def attention(hide: Callable[[Any], Any], scale: float = 1.0) -> sg.Graph:
    def net(x: Any) -> Any:
        scores = scale * sg.linear(Q, None, x) @ sg.permute(sg.linear(K, None, x), (1, 0))
        return sg.softmax(hide(scores), -1) @ sg.linear(V, None, x)

    return sg.trace(net, (T, D))


def product(rng: np.random.Generator, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b in float32, every cell's terms in an order of its own."""
    out = np.zeros((len(a), b.shape[1]), np.float32)
    for i, j in np.ndindex(out.shape):
        for term in rng.permutation(np.float32(a[i] * b[:, j])):
            out[i, j] += term
    return out


def by_hand(hide: Callable[[Any], Any], x: np.ndarray, seed: int) -> np.ndarray:
    """The attention in float32, node by node."""
    rng = np.random.default_rng(seed)
    s = np.asarray(hide(product(rng, product(rng, x, Q.T), product(rng, x, K.T).T)), np.float32)
    e = np.exp(s - s.max(-1, keepdims=True))
    total = product(rng, e, np.ones((T, 1), np.float32))
    return product(rng, e / total, product(rng, x, V.T))


X = np.random.default_rng(1).normal(size=(T, D)).astype(np.float32)
HIDDEN = {"lowest": added(LOWEST), "-inf": added(-np.inf), "-1e9": added(-1e9), "chosen": chosen(LOWEST)}


@pytest.mark.parametrize("name", HIDDEN)
def test_causal_attention_has_a_tolerance(name: str) -> None:
    """As narrow as with scores that are hidden by -1024 themselves, and no execution of the original is outside."""
    graph = attention(HIDDEN[name])
    proven = tolerance(graph, X, arithmetic=NODE)
    near = tolerance(attention(added(-1024.0)), X, arithmetic=NODE)
    assert proven.tolerance <= near.tolerance * 1.001 < 1e-4
    for k in range(6):
        assert (np.abs(by_hand(HIDDEN[name], X, k) - proven.exact[0]) <= proven.tolerances[0]).all()


@pytest.mark.parametrize("name", HIDDEN)
def test_layers_hold_for_the_original(name: str) -> None:
    graph = attention(HIDDEN[name])
    boxes = crown(graph, Box(X, X), arithmetic=NODE).layers
    values: dict[str, np.ndarray] = {}
    evaluate(
        graph,
        {graph.input_positions[0]: X.astype(float)},
        lambda node, value: values.__setitem__(node.name, np.asarray(value, float)),
    )
    assert len(values) > 10
    for name, value in values.items():
        assert (boxes[name].low <= value).all(), name
        assert (value <= boxes[name].high).all(), name


def row_without_cells(s: Any) -> Any:
    return s + np.where(SEEN & (np.arange(T) > 0)[:, None], 0.0, LOWEST).astype(np.float32)


def read_besides(s: Any) -> Any:
    hidden = added(LOWEST)(s)
    return hidden + sg.sum(hidden) * np.float32(0.0)


LEFT = {
    "a row that is shut out as a whole": lambda x: sg.softmax(row_without_cells(x), -1),
    "read by somebody else": lambda x: sg.softmax(read_besides(x), -1),
    "an output": lambda x: (lambda s: (s, sg.softmax(s, -1)))(added(LOWEST)(x)),
    "no softmax": lambda x: sg.exp(added(LOWEST)(x)),
    "not shifted by its maximum": lambda x: (lambda e: e / sg.sum(e, -1, keepdims=True))(sg.exp(added(-1e9)(x))),
    "near already": lambda x: sg.softmax(added(-100.0)(x), -1),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_masks_are_left(name: str) -> None:
    graph = sg.trace(LEFT[name], (T, T))
    found = near_masks.near_masks(graph)
    assert not found.shut
    assert all(found.graph.constants[i] is a for i, a in graph.constants.items())


def test_a_mask_that_several_share() -> None:
    """Brought near if all read it as a mask, and left if one adds it to something else."""
    mask = np.where(SEEN, 0.0, LOWEST).astype(np.float32)
    twice = sg.trace(lambda x, m: sg.softmax(sg.softmax(x + m, -1) + m, -1), (T, T), (T, T))
    shared = sg.trace(lambda x: twice(x, mask), (T, T))
    assert len(near_masks.near_masks(shared).shut) == 2
    one = sg.trace(lambda x: (lambda m: sg.softmax(x + m, -1) + sg.relu(m))(mask + 0 * x), (T, T))
    assert not near_masks.near_masks(one).shut


def test_scores_out_of_reach_prove_nothing() -> None:
    """A score that exceeds what is left of a near mask would count there: -1024 hides 700 from -400, and not more."""
    graph = attention(added(-1e4), 1500.0)
    forward: list[Any] = []
    crown(graph, Box(X, X), arithmetic=NODE, on_forward=forward.append)
    assert forward[0].graph is graph


def by_parts(use: Callable[[Any, Any], Any]) -> sg.Graph:
    """A masked softmax by hand, y = exp(z)/sum of exp(z), and use(y, z)."""

    def net(x: Any) -> Any:
        s = added(-1e4)(x)
        z = s - sg.amax(s, -1, keepdims=True)
        e = sg.exp(z)
        return use(e / sg.sum(e, -1, keepdims=True), z)

    return sg.trace(net, (T, T))


BESIDES = {
    "a share of it": by_parts(lambda y, z: y + np.float32(1e-3) * z),
    "a logarithm of shares": by_parts(lambda y, z: z - sg.log(sg.sum(sg.exp(z), -1, keepdims=True))),
    "an output": by_parts(lambda y, z: (y, z)),
}
SQUARE = np.random.default_rng(2).normal(size=(T, T)).astype(np.float32)


@pytest.mark.parametrize("name", BESIDES)
@pytest.mark.parametrize("deployed", [True, False])
def test_differences_that_others_read_are_those_of_far_masks(name: str, deployed: bool) -> None:
    """exp does not see whether z is -1e4 or -1024; whoever reads z itself does."""
    graph = BESIDES[name]
    bounds = leaves(crown(graph, Box(SQUARE, SQUARE), deployed=deployed).outputs)
    for box, y in zip(bounds, leaves(graph(SQUARE.astype(float))), strict=True):
        assert (box.low <= y).all()
        assert (y <= box.high).all()


def test_known_bounds_are_of_the_original() -> None:
    """True bounds of the layers contradict nothing, those of masked scores included."""
    graph, known = sg.trace(lambda x: sg.softmax(added(-1e4)(x), -1), (T, T)), {}
    evaluate(
        graph,
        {graph.input_positions[0]: SQUARE.astype(float)},
        lambda node, value: known.__setitem__(node.name, Box(value - 0.25, value + 0.25)),
    )
    box = Box.around(SQUARE, 1e-3)
    assert not crown(graph, box, arithmetic=NODE, interm_bounds=known).infeasible


def test_layers_of_far_masks_have_no_accuracy() -> None:
    """A score that is added to -1e9 in float32 is lost: of that layer nothing is said, but of the softmax."""
    graph = sg.trace(lambda x: sg.softmax(added(-1e9)(x), -1), (T, T))
    masked, softmax = accuracy(graph, Box(SQUARE, SQUARE)).layers
    lost = np.abs((SQUARE + np.float32(-1e9)) - (SQUARE.astype(float) - 1e9)).max()
    assert lost > 0.1
    assert masked.total >= lost
    assert masked.low <= -1e9
    assert softmax.total < 0.01


def _forgets_reach(self: Any, forward: Any) -> bool:
    return True


def test_a_mask_that_hides_too_little_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look at the scores, what is proven of far masks excludes what they do."""
    graph = sg.trace(lambda x: sg.softmax(added(-1e4)(x), -1), (T, T))
    x = np.where(SEEN, -2000.0, 0.0)

    def inside() -> bool:
        box = crown(graph, Box(x, x), arithmetic=NODE).outputs
        return bool((box.low <= graph(x)).all() and (graph(x) <= box.high).all())

    assert inside()
    monkeypatch.setattr(near_masks.NearMasks, "hold", _forgets_reach)
    assert not inside()
