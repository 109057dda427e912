"""Several values of one node: what compilers compute anew for every reader need not cancel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Box, crown, ibp
from specgrad.rounding import Arithmetic, radius

NODE = Arithmetic(execution="node")
RNG = np.random.default_rng(0)
W = (RNG.normal(size=(4, 2, 3)) * 1000).astype(np.float32)
SCALE, SHIFT = (RNG.uniform(1, 2, (1, 4, 1)).astype(np.float32) for _ in range(2))
X = RNG.uniform(1, 2, (1, 2, 6))
BOX = Box(X - 1e-3, X + 1e-3)


def normed(x: Any) -> Any:
    """A convolution, and what follows it: cheap, so it may be computed for each reader."""
    return sg.conv(W, None, x) * np.broadcast_to(SCALE, (1, 4, 4)) + np.broadcast_to(SHIFT, (1, 4, 4))


def width(net: Any, **options: Any) -> float:
    return float(np.max(crown(sg.trace(net, X.shape), BOX, **options).outputs.width))


def less_itself(f: Any) -> Any:
    """r - r: 0 for one r, but for the subtraction's own rounding, u*(abs(r) + abs(r)) as bounds count it."""

    def net(x: Any) -> Any:
        r = sg.relu(f(x))
        return r - r

    return net


def own_rounding(f: Any) -> float:
    values = crown(sg.trace(f, X.shape), BOX).outputs
    return 2 * 2.0**-24 * 2 * float(max(np.max(values.high), 0.0))


def test_a_difference_of_two_computations_is_not_0() -> None:
    """Fused it is what two roundings of the region can differ by, and no more; by node it is 0."""
    own = own_rounding(normed)
    ball = radius(sg.trace(normed, X.shape), X.astype(np.float32)).outputs
    assert width(less_itself(normed), arithmetic=NODE) <= 1.01 * own
    assert own + 3 * np.max(ball.radius) < width(less_itself(normed)) < own + 8 * np.max(ball.radius)


def test_a_convolution_by_itself_is_computed_once() -> None:
    conv = lambda x: sg.conv(W, None, x)
    assert width(less_itself(conv)) <= 1.01 * own_rounding(conv)


def test_what_the_runtime_stores_has_one_value() -> None:
    graph = sg.trace(less_itself(normed), X.shape)
    last = [n.name for n in graph.nodes if n.op.name == "add"][-1]
    assert np.max(crown(graph, BOX, stored=[last]).outputs.width) <= 1.01 * own_rounding(normed)
    with pytest.raises(sg.ParameterError, match="stored names 'nothing', which is no node of the graph"):
        crown(graph, BOX, stored=["nothing"])


def test_two_heads_may_read_two_values() -> None:
    """Rows over both outputs, which are one node: by node they cancel, fused they need not."""
    graph = sg.trace(lambda x: (normed(x), normed(x) * 1), X.shape)
    both = sg.trace(lambda x: (lambda v: (v, v))(sg.abs(normed(x))), X.shape)
    rows = np.zeros((1, 32))
    rows[0, 0], rows[0, 16] = 1, -1
    assert crown(both, BOX, objective=rows, arithmetic=NODE).objective.width < 1e-9
    assert crown(both, BOX, objective=rows).objective.width > 1e-9
    assert crown(graph, BOX, objective=rows).objective.width > 1e-9


def test_deviations_end_at_the_next_convolution() -> None:
    """Through ten residual blocks the rounding that is added stays small: it does not multiply up."""
    v = (RNG.normal(size=(4, 4, 1)) / 8).astype(np.float32)

    def net(x: Any) -> Any:
        y = sg.relu(normed(x))
        for _ in range(10):
            y = sg.relu(sg.conv(v, None, y) * np.float32(1.5) + y)
        return y

    real, by_node, fused = (width(net, **o) for o in ({"deployed": False}, {"arithmetic": NODE}, {}))
    assert real <= by_node <= fused < 1.5 * real


def test_answers_name_their_executions() -> None:
    graph = sg.trace(normed, X.shape)
    assert radius(graph, X.astype(np.float32)).deployment["execution"] == "fused"
    assert crown(graph, BOX).deployment == ibp(graph, BOX).deployment == Arithmetic().deployment
    assert crown(graph, BOX, arithmetic=NODE).deployment["execution"] == "node"
    assert crown(graph, BOX, deployed=False).deployment == {"execution": "exact arithmetic alone"}
    by_node, fused = (ibp(graph, BOX, arithmetic=a).roundings for a in (NODE, Arithmetic()))
    assert by_node == 6  # two channels, three taps
    assert fused > by_node
