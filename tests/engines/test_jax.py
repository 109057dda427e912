"""The JAX engine inside JAX: its transformations, corners, scalar types, graphs.

Agreement with the specification on generated cases stands in test_jax_agreement.py, shard_map in test_jax_mesh.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import flint  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.interpreters import ad  # noqa: E402

import specgrad as sg  # noqa: E402
from agreement import check_special, middle  # noqa: E402
from slices import counts, diagonals  # noqa: E402
from specgrad.engines.jax import custom_rules, pool  # noqa: E402
from specgrad.engines.jax import lowerings as engine  # noqa: E402
from specgrad.engines.jax.jit_graph import compile_graph  # noqa: E402
from specgrad.errors import ScalarError, UnsupportedError  # noqa: E402
from specgrad.op import REGISTRY, Op, apply, run_spec  # noqa: E402

U = 2.0**-24


@pytest.fixture(autouse=True)
def narrow_balls() -> Iterator[None]:
    before, flint.ctx.prec = flint.ctx.prec, 300
    yield
    flint.ctx.prec = before


@pytest.fixture
def x64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


class Noted:
    """Notes what it is asked; says what was given, or what the specification says: many questions, one program."""

    def __init__(self, answers: Iterator[np.ndarray] | None = None) -> None:
        self.values: list[np.ndarray] = []
        self.params: list[dict[str, Any]] = []
        self.answers = answers

    def value(self, op: Op, args: list[np.ndarray], params: dict[str, Any]) -> np.ndarray:
        self.values += args
        self.params.append(params)
        return run_spec(op, args, params) if self.answers is None else next(self.answers)


# --- smooth maxima and tails ------------------------------------------------------------------------------------


def smooth_bound(x: np.ndarray, y: float, taps: np.ndarray, beta: float, rank: int) -> float:
    """ROUNDING, shifted formula. We shift axis by axis: one more exp and one more product per axis but the first."""
    t = np.float64(beta) * (taps - (taps.max() if beta > 0 else taps.min()))
    s = np.exp(t).sum()
    e_exp, e_log = 1.5 * rank * U + (rank - 1) * U, 2.5 * U
    inner = 2 * U * (np.exp(t) * abs(t)).sum() / s + e_exp + (taps.size - 1) * U + (e_log + 2 * U) * math.log(s)
    return (inner / abs(beta) + U * abs(y)) * (1 + 1e-4) + 2.0**-126


@pytest.mark.parametrize("beta", [1.0, -3.0, 50.0, 1e4, -1e-3])
def test_smooth_max_within_its_proven_bound(beta: float) -> None:
    """Any beta*x: no overflow, and the error bound of the shifted formula."""
    draw = np.random.default_rng(0)
    for scale in (1.0, 1e3):
        x = (draw.standard_normal((2, 6, 7)) * scale).astype(np.float32)
        y = np.asarray(sg.smooth_max_pool(jnp.asarray(x), (3, 2), beta=beta, stride=1))
        want = sg.smooth_max_pool(sg.balls(x), (3, 2), beta=beta, stride=1)
        for p in np.ndindex(y.shape):
            taps = x[p[0], p[1] : p[1] + 3, p[2] : p[2] + 2].astype(float)
            exact = float(middle(want[p]))
            assert abs(float(y[p]) - exact) <= smooth_bound(x, exact, taps, beta, 2) + 1e-15 * abs(exact)


def test_smooth_max_with_infinities() -> None:
    x = np.array([[-np.inf, -np.inf, -100.0, 5.0], [-np.inf, -np.inf, -100.0, np.inf]], dtype=np.float32)
    y = sg.smooth_max_pool(jnp.asarray(x), (2, 2), beta=1.0, stride=1)
    np.testing.assert_allclose(y, sg.smooth_max_pool(x, (2, 2), beta=1.0, stride=1), rtol=1e-6)


# Relative error in units of 2**-24 over the range below. Measured (jax 0.10.2, CPU): exp 1.2, sigmoid 2.5, silu 3.3,
# tanh 3.8, pdf 2.2; XLA's erfc loses about x*x of them in its tail (131 at x = -12), and cdf and gelu with it.
TAILS: dict[str, Callable[[float], float]] = {
    "exp": lambda x: 2,
    "sigmoid": lambda x: 4,
    "silu": lambda x: 5,
    "tanh": lambda x: 5,
    "normal_pdf": lambda x: 4,
    "normal_cdf": lambda x: 20 + x * x,
    "gelu": lambda x: 20 + x * x,
}


@pytest.mark.parametrize("name", TAILS)
def test_relative_accuracy_far_from_zero(name: str) -> None:
    """Digits are kept in the lower tail, down to where float32 ends."""
    x = np.linspace(-12.5, 12.5, 801, dtype=np.float32)
    y = np.asarray(apply(REGISTRY[name], jnp.asarray(x)))
    want = [float(v) for v in run_spec(REGISTRY[name], [sg.balls(x)], {}).flat]
    for a, got, exact in zip(x, y, want, strict=True):
        assert abs(float(got) - exact) <= TAILS[name](float(a)) * U * abs(exact) + 2.0**-126, (a, got, exact)


# --- derivatives ------------------------------------------------------------------------------------------------


X = np.random.default_rng(3).standard_normal((2, 4, 5, 4))
W = np.random.default_rng(4).standard_normal((4, 2, 3, 3))
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "max_pool": lambda x: sg.max_pool(x, (3, 3), stride=2, padding=1),
    "max_pool dilated": lambda x: sg.max_pool(x, (2, 2), stride=1, dilation=2, padding=1),
    "adaptive_max_pool": lambda x: sg.adaptive_max_pool(x, (2, 3)),
    "smooth_max_pool": lambda x: sg.smooth_max_pool(x, (3, 2), beta=2.0, stride=2, padding=1),
    "conv": lambda x: sg.conv(jnp.asarray(W), None, x, stride=2, padding=1, groups=2),
    "conv_transpose": lambda x: sg.conv_transpose(jnp.asarray(W), None, x, stride=2, padding=1, groups=2),
    "avg_pool": lambda x: sg.avg_pool(x, (3, 2), stride=2, padding=1, count_include_pad=False),
    "amax all": lambda x: sg.amax(x * x, (-2, -1), ties="all"),
    "amax split": lambda x: sg.amax(x * x, (-2, -1), ties="split"),
    "maximum": lambda x: sg.maximum(x * x, 1.0),
    "relu": lambda x: sg.relu(x),
}


MANY_ROUTES = ("max_pool dilated", "adaptive_max_pool", "smooth_max_pool", "amax split")  # seconds of XLA each


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in MANY_ROUTES else []) for n in FUNCTIONS]
)
def test_every_transformation(name: str) -> None:
    """jit, grad, jvp, vmap and second derivatives in all four orders agree with each other and with differences."""
    f, x = FUNCTIONS[name], jnp.asarray(X)
    d = jnp.asarray(np.random.default_rng(5).standard_normal(X.shape))
    energy = lambda v: (f(v) ** 2).sum()

    @jax.jit
    def everything(x: Any) -> dict[str, Any]:
        grad = jax.grad(energy)
        h = 1e-6
        return {
            "slope": (
                (grad(x) * d).sum(),
                jax.jvp(energy, (x,), (d,))[1],
                (energy(x + h * d) - energy(x - h * d)) / (2 * h),
            ),
            "vmap": (f(x), jax.vmap(f)(x), jax.vmap(f, in_axes=2)(jnp.moveaxis(x, 0, 2))),
            "vmap grad": (grad(x), jax.vmap(grad)(x), jax.grad(lambda v: (jax.vmap(f)(v) ** 2).sum())(x)),
            "curvature": (
                jax.jvp(grad, (x,), (d,))[1],
                jax.grad(lambda v: (grad(v) * d).sum())(x),
                jax.grad(lambda v: jax.jvp(energy, (v,), (d,))[1])(x),
                (grad(x + h * d) - grad(x - h * d)) / (2 * h),
            ),
            "hessian": (jax.hessian(energy)(x[0]), jax.jacrev(jax.jacrev(energy))(x[0])),
        }  # fmt: skip

    for what, versions in everything(x).items():
        for other in versions[1:]:
            np.testing.assert_allclose(versions[0], other, rtol=1e-5, atol=1e-5, err_msg=what)
    np.testing.assert_allclose(jax.grad(energy)(x), everything(x)["vmap grad"][0], rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_mapping_over_weights_and_samples() -> None:
    """vmap where the mapped arguments are not the leading ones, and gradients through it."""
    ws, x = jnp.asarray(np.stack([W, 2 * W])), jnp.asarray(X)
    f = lambda w, x: sg.conv(w, None, x, padding=1, groups=2)
    nested = lambda ws, x: jax.vmap(jax.vmap(f, (None, 0)), (0, None))(ws, x)
    plain = lambda ws, x: jnp.stack([f(w, x) for w in ws])
    for g in (lambda h: h, lambda h: jax.grad(lambda *a: (h(*a) ** 2).sum(), (0, 1))):
        for p, q in zip(jax.tree.leaves(g(nested)(ws, x)), jax.tree.leaves(g(plain)(ws, x)), strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-10, atol=1e-10)


def test_numpy_arguments_of_jax_transformations() -> None:
    """JAX passes them on to our transposes in a type of its own."""
    w, x = W.astype(np.float32), X.astype(np.float32)
    f = lambda w, x: sg.conv(w, None, x, groups=2)
    y, pull = jax.vjp(f, w, x)
    _, pull_arrays = jax.vjp(f, jnp.asarray(w), jnp.asarray(x))
    for a, b in zip(pull(y), pull_arrays(y), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_tangent_that_is_zero_stays_symbolic() -> None:
    """JAX may ask a primitive for the tangent along nothing; the answer has a type and no cells."""
    window = sg.window.strided("avg_pool", (6,), (2,), stride=(1,))
    call = custom_rules.LinearPrimitive(REGISTRY["avg_pool"], pool.avg_pool, (("window", window), ("divisor", 2)), (0,))
    x = jnp.arange(6.0)
    y, dy = custom_rules._jvp([x], [ad.Zero(jax.typeof(x))], call=call)
    np.testing.assert_array_equal(y, [0.5, 1.5, 2.5, 3.5, 4.5])
    assert type(dy) is ad.Zero
    assert dy.aval == jax.typeof(y)


def test_conv_never_differentiates_its_lowering() -> None:
    """Reverse mode of a grouped convolution is our transposed one: no grouped or batch-grouped operator of XLA."""
    f = lambda w, x: sg.conv(w, None, x, groups=2).sum()
    text = str(jax.make_jaxpr(jax.grad(f, (0, 1)))(jnp.asarray(W), jnp.asarray(X)))
    assert "Op(conv_transpose)" in text
    assert "Op(conv_weight)" in text
    assert "conv_general_dilated" not in text


def test_the_reverse_of_max_pool_has_no_scatter() -> None:
    for how in ({"stride": 1}, {"stride": 2, "padding": 1}, {"stride": 1, "dilation": 2}):
        pool = lambda x, how=how: sg.max_pool(x, (2, 2), **how).sum()
        assert "scatter" not in str(jax.make_jaxpr(jax.grad(pool))(jnp.asarray(X)))


# --- corners ----------------------------------------------------------------------------------------------------


@pytest.fixture
def as_users_run() -> Iterator[None]:
    """XLA with all its optimisations, which this folder turns off for speed."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("count", counts(8, 40))
@pytest.mark.parametrize("name", ["max_pool", "winner"])
def test_special_values(name: str, count: int) -> None:
    """NaN wins, -inf is ordinary, padding never wins, the first of equals is the winner."""
    op, asked, rngs = REGISTRY[name], Noted(), lambda: (Random(f"special/{seed}") for seed in range(count))
    for rng in rngs():
        check_special(asked, op, rng)
    run = lambda xs: [apply(op, x, **params) for x, params in zip(xs, asked.params, strict=True)]
    answers = Noted(map(np.asarray, jax.jit(run)(asked.values)))
    for rng in rngs():
        check_special(answers, op, rng)


def test_padding_never_wins_against_minus_infinity() -> None:
    x = jnp.full((3,), -jnp.inf)
    pool = lambda x: sg.max_pool(x, (2,), stride=1, padding=1)
    y, i = sg.max_pool(x, (2,), stride=1, padding=1, return_indices=True)
    np.testing.assert_array_equal(y, [-np.inf] * 4)
    np.testing.assert_array_equal(i, [0, 0, 1, 2])
    np.testing.assert_array_equal(jax.vjp(pool, x)[1](jnp.array([1.0, 2.0, 4.0, 8.0]))[0], [3.0, 4.0, 8.0])


def test_one_window_longer_than_its_cells() -> None:
    """With ceil, and further to the next window than to the last cell."""
    x = np.arange(2.0)[None, None]
    y, pull = jax.vjp(lambda v: sg.max_pool(v, (4,), stride=3, ceil=True), jnp.asarray(x))
    np.testing.assert_array_equal(y, sg.max_pool(x, (4,), stride=3, ceil=True))
    np.testing.assert_array_equal(pull(jnp.ones_like(y))[0], [[[0, 1]]])


def test_empty_windows_give_zero_and_no_gradient() -> None:
    x = jnp.array([-5.0, -6.0])
    y, i = sg.max_pool(x, (2,), stride=1, padding=((3, 2),), return_indices=True)
    np.testing.assert_array_equal(y, sg.max_pool(np.asarray(x), (2,), stride=1, padding=((3, 2),)))
    np.testing.assert_array_equal(i, [-1, -1, 0, 0, 1, -1])
    np.testing.assert_array_equal(sg.take(x, i, rank=1), y)
    np.testing.assert_array_equal(sg.put(jnp.ones(6), i, size=(2,)), [2.0, 1.0])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_stays_low(dtype: Any) -> None:
    x = jnp.asarray(X, dtype)
    for name, f in FUNCTIONS.items():
        if name.startswith(("conv", "adaptive", "amax")):
            continue
        assert f(x).dtype == dtype, name
        assert jax.eval_shape(jax.grad(lambda v, f=f: f(v).sum()), x).dtype == dtype, name


LOWERINGS = {  # data, weight, stride, groups; on CPU each takes a way of its own
    "sums of slices": ((3, 12, 6, 5), (18, 2, 3, 3), 1, 6),
    "sums of slices with gaps": ((3, 6, 6, 5), (12, 1, 3, 3), 2, 6),
    "sums of slices of long rows": ((1, 12, 3, 33), (12, 6, 3, 3), 1, 2),
    "a convolution per group": ((2, 24, 6, 5), (8, 12, 3, 3), 2, 2),
    "a product per sample and group": ((2, 60, 6, 5), (10, 12, 3, 3), 1, 5),
    "a product per sample and group, for many filters of few inputs": ((2, 10, 6, 5), (30, 2, 3, 3), 1, 5),
    "a product per sample and group, with gaps": ((2, 10, 6, 5), (15, 2, 3, 3), 2, 5),
    "one tap, many cells": ((3, 2, 6, 5), (4, 2, 1, 1), 1, 1),
    "one tap, few cells": ((3, 16, 3, 3), (5, 16, 1, 1), 2, 1),
}


@pytest.mark.parametrize(("name", "way"), diagonals(LOWERINGS, [(1, False), (2, True), (1, True), (2, False)], 4))
def test_every_lowering_of_conv_equals_the_specification(name: str, way: tuple[int, bool]) -> None:
    """Integers: bit for bit, values and both gradients, against graphs that NumPy runs; `way`: dilation, transposed."""
    dilation, transposed = way
    data, weight, stride, groups = LOWERINGS[name]
    w, pad = integers(weight, 1), weight[-1] // 2 * dilation
    if transposed:
        data = (data[0], weight[0], 4, 3)
    f = sg.conv_transpose if transposed else sg.conv
    x = integers(data, 0)
    net = lambda w, x: (f(w, None, x, stride=stride, padding=pad, dilation=dilation, groups=groups) ** 2).sum()
    graph = sg.grad(sg.trace(net, w.shape, x.shape), (0, 1), value=True)
    want = sg.tree.leaves(graph(w.astype(np.int64).astype(object), x.astype(np.int64).astype(object)))
    got = sg.tree.leaves(compile_graph(graph)(jnp.asarray(w), jnp.asarray(x)))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64))


def test_programs_of_grouped_convolutions_stay_short() -> None:
    """XLA's time grows with the program: no line per tap in gradients of weights, none per channel in wide groups."""

    def lines(channels: int, groups: int, k: int, wanted: int) -> int:
        w, x = jnp.ones((channels, channels // groups, k, k)), jnp.ones((1, channels, 14, 14))
        loss = lambda w, x: sg.conv(w, None, x, padding=k // 2, groups=groups).sum()
        return len(jax.jit(jax.grad(loss, wanted)).lower(w, x).as_text().splitlines())

    assert lines(16, 16, 7, 0) == lines(16, 16, 3, 0)
    assert lines(64, 8, 3, 1) < lines(16, 8, 3, 1)


def test_empty_batches_and_rank_five() -> None:
    assert sg.max_pool(jnp.zeros((0, 4, 4)), (2, 2)).shape == (0, 2, 2)
    assert sg.conv(jnp.zeros((2, 3, 1, 1)), None, jnp.zeros((0, 3, 4, 4))).shape == (0, 2, 4, 4)
    x = np.arange(2.0**5, dtype=np.float32).reshape((1,) + (2,) * 5)
    w = np.arange(2.0**5, dtype=np.float32).reshape((1, 1) + (2,) * 5)
    np.testing.assert_array_equal(sg.conv(jnp.asarray(w), None, jnp.asarray(x)), sg.conv(w, None, x))
    np.testing.assert_array_equal(sg.max_pool(jnp.asarray(x), (2,) * 5), sg.max_pool(x, (2,) * 5))


def test_select_does_not_touch_the_other_side() -> None:
    f = lambda x: sg.select(sg.greater(x, 0), x, sg.log(x)).sum()
    g = lambda x: sg.select(sg.greater(x, 0), sg.log(sg.select(sg.greater(x, 0), x, 1)), 0).sum()
    assert float(f(jnp.array([1.0, 2.0]))) == 3.0
    np.testing.assert_array_equal(jax.grad(g)(jnp.array([-1.0, 2.0])), [0.0, 0.5])


def test_refusals() -> None:
    with pytest.raises(ScalarError, match="cannot mix jax tensors with numpy"):
        sg.add(jnp.zeros(2), np.zeros(2))
    bare = engine.JaxEngine("jax", jax.Array, {})
    with pytest.raises(UnsupportedError, match="relu: the jax engine has no line for it"):
        bare.run(REGISTRY["relu"], [jnp.zeros(2)], {})


# --- graphs -----------------------------------------------------------------------------------------------------


def network(params: dict[str, Any], x: Any) -> Any:
    h = sg.max_pool(sg.relu(sg.conv(params["w"], params["b"], x, padding=1)), (2, 2))
    return {"pooled": h, "mean": sg.mul(sg.global_avg_pool(h, rank=2, keepdims=False), Fraction(1, 2))}


def integers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("jit", [True, False])
def test_graphs_run_as_one_function(jit: bool) -> None:
    graph = sg.trace(network, {"w": (4, 3, 3, 3), "b": (4,)}, (2, 3, 6, 6))
    params, x = {"w": integers((4, 3, 3, 3), 0), "b": integers((4,), 1)}, integers((2, 3, 6, 6), 2)
    got = compile_graph(graph, jit=jit)(jax.tree.map(jnp.asarray, params), jnp.asarray(x))
    want = graph(params, x)
    assert list(got) == ["pooled", "mean"]
    for name, y in want.items():
        np.testing.assert_array_equal(got[name], y)


def test_jit_of_a_compiled_graph_lowers_itself() -> None:
    """jax.jit copies the attributes of a function, and so our `lower` in place of its own."""
    f = sg.compile(sg.trace(lambda x: {"b": sg.relu(x), "a": x + 1}, (2,)), "jax")
    x = jnp.ones(2)
    assert set(jax.jit(f).lower(x).compile()(x)) == {"a", "b"}
    assert len(f.lower(x).compile()(x)) == 2


def test_derivative_graphs_share_their_winners() -> None:
    """vjp and jvp graphs hold winner, take and put; compiled they search once and scatter nothing."""
    graph = sg.trace(lambda x: sg.max_pool(x, (3, 2), stride=(2, 1), padding=1), (2, 6, 6))
    x, t = integers((2, 6, 6), 0), integers((2, 6, 6), 1)
    gy = integers(graph.nodes[graph.output_positions[0]].shape, 2)
    for derived, args in ((sg.vjp(graph), (x, gy)), (sg.jvp(graph), (x, t)), (sg.vjp(sg.vjp(graph)), (x, gy, x))):
        given = [jnp.asarray(a) for a in args[: len(derived.inputs)]]
        if len(given) < len(derived.inputs):
            continue
        fast = compile_graph(derived)
        for p, q in zip(jax.tree.leaves(fast(*given)), jax.tree.leaves(derived(*args)), strict=True):
            np.testing.assert_array_equal(p, q)
        assert "scatter" not in str(jax.make_jaxpr(fast)(*given))
        assert "gather" not in str(jax.make_jaxpr(fast)(*given))


def test_compiled_graphs_differentiate() -> None:
    graph = sg.trace(lambda x: sg.sum(sg.max_pool(sg.relu(x), (2, 2))), (2, 4, 4))
    x = jnp.asarray(integers((2, 4, 4), 0))
    want = jax.grad(lambda v: sg.max_pool(sg.relu(v), (2, 2)).sum())(x)
    np.testing.assert_array_equal(jax.grad(compile_graph(graph))(x), want)


def test_known_positions_inside_jit() -> None:
    """Positions that are constants of the graph are examined as constants; the last of them would be outside."""
    at = np.array([[2, 0, 1]])
    graph = sg.trace(lambda x: sg.apply(sg.REGISTRY["take"], x, at, rank=1, empty=False), (1, 3))
    assert np.asarray(sg.compile(graph, "jax")(jnp.asarray([[1.0, 2.0, 3.0]]))).tolist() == [[3.0, 1.0, 2.0]]
    outside = sg.trace(lambda x: sg.apply(sg.REGISTRY["take"], x, at + 1, rank=1, empty=False), (1, 3))
    with pytest.raises(sg.ShapeError, match=r"indices must lie in 0\.\.2; got 1\.\.3"):
        sg.compile(outside, "jax")(jnp.asarray([[1.0, 2.0, 3.0]]))
