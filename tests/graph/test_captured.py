"""Arrays that a traced function captures: each is bound to its own value, and stays what it was."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import specgrad as sg

KINDS: dict[str, Callable[[list[float]], object]] = {
    "array": np.array,
    "float32": np.float32,
    "list": list,
    "torch": torch.tensor,
    "jax": jnp.array,
    "exact": sg.exact,
}


def test_freed_temporaries_bind_their_own_values() -> None:
    """[1, 10] * [1, 2] + [3, 4] = [4, 24]; the ids of freed tensors are used again."""
    w, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    graph = sg.trace(lambda v: v * w.detach() + b.detach(), (2,))
    assert graph(np.array([1.0, 10.0], dtype=np.float32)).tolist() == [4.0, 24.0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_temporaries_of_every_kind(kind: str) -> None:
    """The sum of k * x for k < 100, each k in a temporary of its own, is 4950 x."""
    make = KINDS[kind]

    def net(x):
        y = x * 0
        for k in range(100):
            y = y + x * make([float(k), 2.0 * k])
        return y

    graph = sg.trace(net, (2,))
    one = sg.exact([1, 10]) if kind == "exact" else np.array([1.0, 10.0], dtype=np.asarray(make([1.0])).dtype)
    assert [float(v) for v in graph(one)] == [4950, 99000]


def test_numpy_scalars_bind_their_own_values() -> None:
    graph = sg.trace(lambda x: sum((x * np.float64(k) for k in range(50)), x * 0), (1,))
    assert graph(np.array([2.0])).tolist() == [2.0 * 1225]


@pytest.mark.parametrize("kind", ["array", "list", "torch", "exact"])
def test_a_change_after_tracing_does_not_change_the_graph(kind: str) -> None:
    w = KINDS[kind]([1.0, 2.0])
    graph = sg.trace(lambda x: x * w, (2,))
    gradient = sg.grad(sg.trace(lambda x: sg.sum(x * w), (2,)))
    x = sg.exact([3, 3]) if kind == "exact" else np.array([3.0, 3.0], dtype=np.float32 if kind == "torch" else float)
    w[0] = 100.0
    assert graph(x).tolist() == [3, 6]
    assert gradient(x).tolist() == [1, 2]


def test_a_change_while_tracing_is_seen_by_what_follows() -> None:
    w = np.array([1.0, 2.0])

    def net(x):
        y = x * w
        w[0] = 10.0
        return y + x * w

    assert sg.trace(net, (2,))(np.ones(2)).tolist() == [11.0, 4.0]


def test_the_same_array_is_recorded_once() -> None:
    whole, exact = np.arange(3), sg.exact([1, 2, 3])
    assert len(sg.trace(lambda x: x * whole + whole, (3,)).constants) == 1
    assert len(sg.trace(lambda x: x * exact + exact, (3,)).constants) == 1


def test_a_changed_result_does_not_change_the_graph() -> None:
    w = np.array([1.0, 2.0])
    inner = sg.trace(lambda x: (x, w), (2,))
    outer = sg.trace(lambda x: sg.reshape(inner(x)[1], (2, 1)), (2,))
    inner(np.ones(2))[1][:] = 7.0
    outer(np.ones(2))[:] = 7.0
    assert inner(np.ones(2))[1].tolist() == [1.0, 2.0]
    assert outer(np.ones(2)).tolist() == [[1.0], [2.0]]


def test_broadcast_constants_stay_small() -> None:
    """A bias spread over an image is one cell per channel, not one per pixel."""
    graph = sg.trace(lambda x: x + np.ones((4, 1, 1)), (4, 64, 64))
    (constant,) = graph.constants.values()
    base = constant if constant.base is None else constant.base
    assert base.size <= 4 or constant.size == 4


def test_a_tensor_on_the_left_is_captured() -> None:
    """`tensor * x` was refused where `x * tensor` was recorded."""
    w = torch.tensor([2.0, 3.0])
    for net in (lambda x: w.detach() * x, lambda x: sg.mul(w.detach(), x), lambda x: sg.mul(jnp.array([2.0, 3.0]), x)):
        assert sg.trace(net, (2,))(np.array([5.0, 7.0], dtype=np.float32)).tolist() == [10.0, 21.0]


ENGINES = {"numpy": np.asarray, "torch": torch.from_numpy, "jax": jnp.asarray}
FIRST = {
    "linear": lambda w, x: sg.linear(w, None, x),
    "linear by keywords": lambda w, x: sg.linear(x=x, b=None, w=w),
    "matmul": lambda w, x: sg.matmul(w, sg.permute(x, (1, 0))),
    "mse_loss": lambda w, x: sg.mse_loss(w, x),
    "layer_norm": lambda w, x: sg.layer_norm(w, (3,), x[0], x[1]),
    "group_norm": lambda w, x: sg.group_norm(w, 3, x[0], x[1]),
}


@pytest.mark.parametrize("call", FIRST)
@pytest.mark.parametrize("engine", ENGINES)
def test_compositions_record_wherever_the_variable_stands(call: str, engine: str) -> None:
    """A tensor of an engine before it, or a keyword, changes neither the layer nor the value."""
    w, x = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([[2, -1, 0], [1, 3, 5]])
    graph = sg.trace(lambda x: FIRST[call](ENGINES[engine](w), x), x)
    assert graph.nodes[-1].group == call.partition(" ")[0]
    np.testing.assert_array_equal(graph(x), FIRST[call](w, x))
