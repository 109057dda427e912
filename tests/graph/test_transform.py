"""Derivatives of graphs: signatures, wrt, sharing, higher orders."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest

import specgrad as sg
from pace import slower, stretched
from slices import counts
from specgrad.scalar import Dual


def test_signatures_are_flat_and_positional() -> None:
    graph = sg.trace(lambda p, x: (sg.sum(p["a"] * x), x + p["b"]), {"a": (2,), "b": (2,)}, (2,))
    forward, reverse = sg.jvp(graph), sg.vjp(graph)
    assert forward.names == ("p", "x", "d_p", "d_x")
    assert reverse.names == ("p", "x", "g0", "g1")
    p, x = {"a": sg.exact([1, 2]), "b": sg.exact([3, 4])}, sg.exact([5, 6])
    s, y, ds, dy = forward(p, x, {"a": sg.exact([1, 0]), "b": sg.exact([0, 1])}, sg.exact([0, 1]))
    assert (s.item(), y.tolist(), ds.item(), dy.tolist()) == (17, [8, 10], 7, [0, 2])
    s, y, gp, gx = reverse(p, x, sg.exact(1), sg.exact([10, 20]))
    assert gp["a"].tolist() == [5, 6]
    assert gp["b"].tolist() == [10, 20]
    assert gx.tolist() == [11, 22]


def test_a_layer_called_like_a_tangent_stays_a_layer_of_its_own() -> None:
    """The tangent of x is an input d_x; layers d_x and d_x_2 of the network are neither it nor each other."""

    def net(x):
        with sg.scope("d_x", composite=True):
            x = sg.tanh(sg.relu(x) + 1)
        with sg.scope("d_x_2", composite=True):
            return sg.relu(x) * 2

    forward = sg.jvp(sg.trace(net, (3,)))
    layers = {}
    for node in forward.nodes:
        layers.setdefault(node.group, []).append(node.op.name)
    assert layers["d_x"] == ["input"]
    assert [ops for ops in layers.values() if "tanh" in ops] == [["relu", "add", "tanh"]]
    assert ["relu", "mul"] in layers.values()
    assert str(forward).splitlines()[3].split() == ["d_x", "input", "3"]


def test_wrt_by_position_name_and_path() -> None:
    graph = sg.trace(lambda p, x: sg.sum(p["a"] * x * x), {"a": (2,), "unused": (3,)}, (2,))
    p, x = {"a": np.array([1.0, 2.0]), "unused": np.zeros(3)}, np.array([3.0, 4.0])
    assert sg.grad(graph, 1)(p, x).tolist() == [6.0, 16.0]
    assert sg.grad(graph, "x")(p, x).tolist() == [6.0, 16.0]
    assert sg.grad(graph, "p.a")(p, x).tolist() == [9.0, 16.0]
    by_argument = sg.grad(graph, "p")(p, x)
    assert by_argument["unused"].tolist() == [0.0, 0.0, 0.0]
    both = sg.grad(graph, ("x", "p.a"))(p, x)
    assert [g.tolist() for g in both] == [[6.0, 16.0], [9.0, 16.0]]
    value, gradient = sg.grad(graph, "x", value=True)(p, x)
    assert (value, gradient.tolist()) == (41.0, [6.0, 16.0])
    assert sg.vjp(graph, "x").names == ("p", "x", "g")
    assert sg.jvp(graph, "p.a").names == ("p", "x", "d_p.a")
    for wrong in (2, "y", "p.c"):
        with pytest.raises(sg.ShapeError, match="there is no argument"):
            sg.grad(graph, wrong)


def test_indices_have_no_derivative() -> None:
    graph = sg.trace(lambda x: sg.max_pool(x, (2,), return_indices=True), (4,))
    y, i, gx = sg.vjp(graph)(np.array([1.0, 2.0, 5.0, 4.0]), np.array([10.0, 20.0]))
    assert (y.tolist(), i.tolist(), gx.tolist()) == ([2.0, 5.0], [1, 2], [0.0, 10.0, 20.0, 0.0])
    loss = sg.trace(sg.cross_entropy, (2, 3), sg.Index((2,)))
    assert sg.grad(loss, 0)(np.zeros((2, 3)), np.array([0, 2])).shape == (2, 3)
    assert len(sg.grad(loss)(np.zeros((2, 3)), np.array([0, 2]))) == 1
    with pytest.raises(sg.ShapeError, match="holds integers"):
        sg.grad(loss, 1)


def test_grad_needs_a_scalar() -> None:
    with pytest.raises(sg.ShapeError, match=r"needs one output of shape \(\); got \[\(2,\)\]"):
        sg.grad(sg.trace(lambda x: x * x, (2,)))


def test_stop_gradient_and_unused_inputs() -> None:
    graph = sg.trace(lambda x, y: sg.sum(sg.stop_gradient(x) * x), (2,), (3,))
    gx, gy = sg.grad(graph)(np.array([2.0, 3.0]), np.ones(3))
    assert (gx.tolist(), gy.tolist()) == ([2.0, 3.0], [0.0, 0.0, 0.0])
    constant = sg.trace(lambda x: np.ones(2), (3,))
    assert sg.jvp(constant)(np.ones(3), np.ones(3))[1].tolist() == [0.0, 0.0]


def test_winner_is_computed_once() -> None:
    """An index is an ordinary value: forward and reverse share it, twice differentiated too."""
    graph = sg.trace(lambda x: sg.sum(sg.max_pool(x * x, (2, 2))), (4, 4))
    twice = sg.jvp(sg.vjp(graph))
    assert sum(n.op.name == "winner" for n in twice.nodes) == 1


def test_differentiating_twice_stays_small() -> None:
    def net(x):
        for _ in range(50):
            x = sg.relu(x * 2 + 1)
        return sg.sum(x)

    once = sg.grad(sg.trace(net, (4,)))
    twice = sg.jvp(once)
    assert len(once) < 600
    assert len(twice) < 3 * len(once)


@pytest.mark.parametrize("depth", counts(2_000, 20_000))
def test_thousands_of_nodes_without_recursion(depth: int) -> None:
    def chain(x):
        for _ in range(depth):
            x = sg.relu(x) * 2
        return sg.sum(x)

    pace, start = slower(), time.process_time()
    graph = sg.trace(chain, (3,))
    derivative = sg.grad(graph)
    seconds = time.process_time() - start
    assert len(graph) > 2 * depth
    assert len(derivative) > 4 * depth
    assert seconds < stretched(depth / 500, pace), seconds
    tangent = sg.jvp(graph)
    x = np.array([1.0, -1.0, 0.0])
    assert tangent(x, np.zeros(3))[1] == 0


def network(p, x):
    """conv - smooth pool - conv - max pool - linear."""
    x = sg.conv(p["w1"], p["b1"], x, padding=1)
    x = sg.smooth_max_pool(x, (2, 2), beta=2, stride=1)
    x = sg.conv(p["w2"], None, x, stride=(1, 2))
    x = sg.max_pool(x, (2, 2), stride=1, padding=1)
    return sg.sum(sg.linear(p["w3"], None, sg.flatten(x)) ** 2)


NETWORK = {"w1": (2, 1, 2, 2), "b1": (2,), "w2": (2, 2, 2, 2), "w3": (2, 2 * 4 * 3)}


def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return sg.exact(rng.integers(-40, 41, shape)) / 16


def overlap(a, b) -> None:
    for p, q in zip(np.asarray(a).flat, np.asarray(b).flat, strict=True):
        assert p.overlaps(q), (p, q)
        assert max(p.rad(), q.rad()) < 1e-6 * (1 + abs(float(p.mid()))), (p, q)


def test_second_derivatives_agree_with_dual_numbers() -> None:
    """jvp of vjp, and vjp of vjp, against d/ds d/dt f(x + s*v + t*w) by nested duals over balls."""
    rng = np.random.default_rng(7)
    graph = sg.trace(network, NETWORK, (1, 4, 5))
    leaves = [n.shape for n in graph.nodes if n.op.name == "input"]
    x, v, w = ([numbers(rng, s) for s in leaves] for _ in range(3))

    def tree(values):
        return dict(zip(NETWORK, values[:-1], strict=True)), values[-1]

    def ball_tree(values):
        return tree([sg.balls(a) for a in values])

    one = sg.balls(np.array(Fraction(1)))
    reverse = sg.vjp(graph)
    hv = sg.jvp(reverse, ("p", "x"))(*ball_tree(x), one, *ball_tree(v))[3:]
    bilinear = sum(a * b for g, c in zip([*hv[1].values(), hv[2]], w, strict=True)
                   for a, b in zip(g.flat, sg.balls(c).flat, strict=True))  # fmt: skip

    def nested(a, b, c):
        out = np.empty(a.shape, dtype=object)
        for k in np.ndindex(a.shape):
            p, q, r = (sg.balls(t[k]).item() for t in (a, b, c))
            out[k] = Dual(Dual(p, q), Dual(r, q * 0))
        return out

    result = graph(*tree([nested(a, b, c) for a, b, c in zip(x, v, w, strict=True)])).item()
    overlap(bilinear, result.tangent.tangent)

    # The gradient of <cotangents, v> with respect to the inputs is H v again, since H is symmetric.
    zero = sg.balls(np.array(Fraction(0)))
    again = sg.vjp(reverse, ("p", "x"))(*ball_tree(x), one, zero, *ball_tree(v))[3:]
    for name in NETWORK:
        overlap(again[0][name], hv[1][name])
    overlap(again[1], hv[2])
    first = reverse(*ball_tree(x), one)
    gradient_v = sum(a * b for g, c in zip([*first[1].values(), first[2]], v, strict=True)
                     for a, b in zip(g.flat, sg.balls(c).flat, strict=True))  # fmt: skip
    overlap(gradient_v, result.value.tangent)


def test_third_derivative() -> None:
    graph = sg.trace(lambda x: sg.sum(x**4), (1,))
    third = sg.grad(sg.trace(lambda x: sg.sum(sg.grad(sg.trace(lambda y: sg.sum(sg.grad(graph)(y)), (1,)))(x)), (1,)))
    assert third(sg.exact([2])).tolist() == [48]


def test_repeated_jvp_keeps_every_argument() -> None:
    """f(x) = x**3 at 2 with unit tangents: the eight outputs of the third jvp end in f''' and its lower orders."""
    graph = sg.trace(lambda x: x * x * x, (1,))
    for order in (1, 2, 3):
        graph = sg.jvp(graph)
        assert len(graph.names) == len(set(graph.names)) == len(graph.inputs) == 2**order
    assert graph.names == ("x", "d_x", "d_x_2", "d_d_x", "d_x_3", "d_d_x_2", "d_d_x_2_2", "d_d_d_x")
    tangents = [sg.exact([v]) for v in (2, 1, 1, 0, 1, 0, 0, 0)]
    assert [y.item() for y in graph(*tangents)] == [8, 12, 12, 12, 12, 12, 12, 6]


def test_repeated_vjp_keeps_every_argument() -> None:
    """f(x, g) = x*g: vjp(vjp(f)) takes x, g, c and the cotangents of x*g, c*g, c*x; it returns three and three."""
    graph = sg.vjp(sg.vjp(sg.trace(lambda x, g: x * g, (1,), (1,))))
    assert len(set(graph.names)) == len(graph.names) == 6
    found = graph(*(sg.exact([v]) for v in (2, 3, 5, 7, 11, 13)))
    # <(7, 11, 13), (x g, c g, c x)> has the gradient (7 g + 13 c, 7 x + 11 c, 11 g + 13 x) in (x, g, c).
    assert [y.item() for y in found] == [6, 15, 10, 7 * 3 + 13 * 5, 7 * 2 + 11 * 5, 11 * 3 + 13 * 2]


def test_arguments_after_a_star_have_names_of_their_own() -> None:
    graph = sg.trace(lambda arg1, *rest: arg1 * rest[0], (1,), (1,))
    assert graph.names == ("arg1", "arg1_2")
    assert [g.item() for g in sg.vjp(graph)(*(sg.exact([v]) for v in (2, 3, 1)))] == [6, 3, 2]


def test_wrt_that_names_a_thing_twice() -> None:
    graph = sg.trace(lambda p: sg.sum(p["a"] * p["a"]), {"a": (1,)})
    p = {"a": sg.exact([3])}
    whole, part = sg.grad(graph, ("p", "p.a"))(p)
    assert (whole["a"].item(), part.item()) == (6, 6)
    with pytest.raises(sg.ShapeError, match=r"p\.a is named 2 times; jvp takes it once"):
        sg.jvp(graph, ("p", "p.a"))


def test_wrt_takes_the_names_that_jvp_gives() -> None:
    """jvp(graph, "p.a") takes an argument called "d_p.a"; it is an argument, not a path."""
    forward = sg.jvp(sg.trace(lambda p: p["a"] * p["a"], {"a": (1,)}), "p.a")
    p, one = {"a": sg.exact([3])}, sg.exact([1])
    assert [y.item() for y in sg.jvp(forward, "d_p.a")(p, one, one)] == [9, 6, 0, 6]
