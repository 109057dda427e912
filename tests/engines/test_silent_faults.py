"""Faults that were silent: each test is named after what was wrong."""

from __future__ import annotations

import copy
import io
import pickle
from fractions import Fraction
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.parametrizations
import torch.nn.utils.prune
from torch._subclasses import FakeTensorMode

import specgrad as sg
import specgrad.functional
from specgrad.engines.torch import enable_torch_compile
from specgrad.engines.torch import log_step_pool as torch_pool

# --- powers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [np.zeros(1), np.array([Fraction(0)], dtype=object)], ids=["float", "exact"])
def test_third_derivative_of_a_square_at_zero(x: Any) -> None:
    g = sg.trace(lambda x: sg.sum(sg.power(x, 2)), (1,))
    values = []
    for _ in range(3):
        derivative = sg.grad(g, "x")
        values.append(derivative(x)[0])
        g = sg.trace(lambda x, f=derivative: sg.sum(f(x)), (1,))
    assert values == [0, 2, 0]


@pytest.mark.parametrize("p", [2, 2.5, 3, 4])
def test_lp_pool_gradient_of_an_all_zero_window(p: Any) -> None:
    data = np.array([[[0.0, 0.0, 1.0, 2.0]]])
    x = torch.tensor(data, requires_grad=True)
    F.lp_pool1d(x, float(p), 2).sum().backward()
    expected, x.grad = x.grad.numpy(), None
    assert expected[0, 0, 0] == 0
    sg.lp_pool(x, (2,), p=p).sum().backward()
    g = sg.vjp(sg.trace(lambda x: sg.lp_pool(x, (2,), p=p), data.shape), "x")
    found = [x.grad.numpy(), g(data, np.ones((1, 1, 2)))[1], jax.grad(lambda x: sg.lp_pool(x, (2,), p=p).sum())(data)]
    for gradient in found:
        assert np.allclose(gradient, expected, rtol=1e-5)


def _windows_at_zero(p: Any) -> Any:
    """Windows over [0, 0], over [0, 3] and over nothing but padding."""
    return lambda x: sg.lp_pool(x, (2,), p=p, padding=((0, 2),))


def _jax_dual(f: Any, x: np.ndarray, v: np.ndarray) -> Any:
    return jax.jvp(f, (jax.numpy.asarray(x),), (jax.numpy.asarray(v),))[1]


def _torch_dual(f: Any, x: np.ndarray, v: np.ndarray) -> Any:
    with torch.autograd.forward_ad.dual_level():
        y = f(torch.autograd.forward_ad.make_dual(torch.from_numpy(x), torch.from_numpy(v)))
        return torch.autograd.forward_ad.unpack_dual(y).tangent


def with_powers(ways: Any) -> list[tuple[str, Any]]:
    """Every way with several p; rationals have square roots at most."""
    return [(way, p) for way in ways for p in (2, 2.0, 2.5, 3) if p == 2 or "exact" not in way]


TANGENTS = {
    "graph": lambda f, x, v: sg.jvp(sg.trace(f, x.shape))(x, v)[1],
    "graph, exact": lambda f, x, v: sg.jvp(sg.trace(f, x.shape))(sg.exact(x), sg.exact(v))[1],
    "torch.func": lambda f, x, v: torch.func.jvp(f, (torch.from_numpy(x),), (torch.from_numpy(v),))[1],
    "torch duals": _torch_dual,
    "compiled torch": lambda f, x, v: sg.compile(sg.trace(f, x.shape), "torch", "jvp")(
        torch.from_numpy(x), torch.from_numpy(v)
    )[1],
    "jax": _jax_dual,
    "jax.jit": lambda f, x, v: _jax_dual(jax.jit(f), x, v),
}
COTANGENTS = {
    "graph": lambda f, x, g: sg.vjp(sg.trace(f, x.shape))(x, g)[1],
    "graph, exact": lambda f, x, g: sg.vjp(sg.trace(f, x.shape))(sg.exact(x), sg.exact(g))[1],
    "torch": lambda f, x, g: torch.autograd.functional.vjp(f, torch.from_numpy(x), torch.from_numpy(g))[1],
    "torch.func": lambda f, x, g: torch.func.vjp(f, torch.from_numpy(x))[1](torch.from_numpy(g))[0],
    "jax": lambda f, x, g: jax.vjp(f, jax.numpy.asarray(x))[1](jax.numpy.asarray(g))[0],
}


@pytest.mark.parametrize(("way", "p"), with_powers(TANGENTS))
def test_lp_pool_tangent_at_zero(way: str, p: Any) -> None:
    """0 where all taps are 0 and where there is none; d (0 + 3**p)**(1/p) = d3 elsewhere."""
    x, v = np.array([[0.0, 0.0, 0.0, 3.0]]), np.array([[1.0, 2.0, 5.0, 7.0]])
    found = np.asarray(TANGENTS[way](_windows_at_zero(p), x, v), dtype=float)
    np.testing.assert_allclose(found, [[0.0, 7.0, 0.0]], rtol=1e-6)


@pytest.mark.parametrize(("way", "p"), with_powers(COTANGENTS))
def test_lp_pool_cotangent_at_zero(way: str, p: Any) -> None:
    x, g = np.array([[0.0, 0.0, 0.0, 3.0]]), np.array([[1.0, 2.0, 5.0]])
    found = np.asarray(COTANGENTS[way](_windows_at_zero(p), x, g), dtype=float)
    np.testing.assert_allclose(found, [[0.0, 0.0, 0.0, 2.0]], rtol=1e-6)


def test_lp_pool_of_a_negative_sum_stays_nan() -> None:
    assert np.isnan(sg.lp_pool(np.array([-1.0, -2.0]), (2,), p=3)).all()


# --- integers -----------------------------------------------------------------------------------------------------

MAKERS = {
    "torch": lambda values, kind: torch.tensor(values, dtype=getattr(torch, kind)),
    "jax": lambda values, kind: jax.numpy.asarray(values, dtype=kind),
}
CALLS = {
    "avg_pool": lambda x: sg.avg_pool(x, (3,)),
    "max_pool": lambda x: sg.max_pool(x, (3,)),
    "add": lambda x: sg.add(x, x),
    "add one": lambda x: sg.add(x, 1),
    "sum": sg.sum,
    "mean": sg.mean,
    "relu": sg.relu,
    "linear": lambda x: sg.linear(sg.reshape(x, (1, 3)), None, x),
    "conv": lambda x: sg.conv(sg.reshape(x, (1, 1, 3)), None, sg.reshape(x, (1, 3))),
}


@pytest.mark.parametrize("kind", ["uint8", "int32", "bool"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("engine", MAKERS)
def test_integers_are_exact_or_refused(engine: str, call: str, kind: str) -> None:
    values = np.array([1, 0, 1] if kind == "bool" else [100, 200, 201])
    text = rf"\[P6\]: .* has dtype .*{kind}, which wraps and truncates on {engine}; pass floats, or NumPy integers"
    with pytest.raises(sg.errors.ScalarError, match=text):
        CALLS[call](MAKERS[engine](values, kind))
    exact = CALLS[call](values.astype(kind))
    assert (exact == CALLS[call](sg.exact(values))).all()


@pytest.mark.parametrize("engine", MAKERS)
def test_compiled_graphs_refuse_integers(engine: str) -> None:
    f = sg.compile(sg.trace(lambda x: sg.avg_pool(x, (3,)), (3,)), engine)
    with pytest.raises(sg.errors.ScalarError, match=r"graph \[P6\]: input x has dtype"):
        f(MAKERS[engine]([1, 2, 4], "int32"))
    assert float(f(MAKERS[engine]([1, 2, 4], "float32"))[0]) == pytest.approx(7 / 3)


@pytest.mark.parametrize("engine", MAKERS)
def test_positions_labels_and_masks_stay_integers(engine: str) -> None:
    make = MAKERS[engine]
    x, labels = make([[1.0, 3.0, 2.0]], "float32"), make([1], "int32" if engine == "jax" else "int64")
    _, index = sg.max_pool(x, (2,), stride=1, return_indices=True)
    assert np.array_equal(np.asarray(sg.reshape(index, (2,))), [1, 1])
    assert np.array_equal(np.asarray(sg.select(make([[True, False, True]], "bool"), x, 7.0)), [[1, 7, 2]])
    assert float(sg.cross_entropy(x, labels)) == pytest.approx(np.log(np.exp([-2, 0, -1]).sum()), rel=1e-6)


# --- what counts as an int ----------------------------------------------------------------------------------------

X, W = np.ones((1, 1, 8)), np.ones((1, 1, 2))
TAKES_INTS = {
    "stride": lambda v: sg.max_pool(X, (2,), stride=v),
    "stride per axis": lambda v: sg.max_pool(X, (2,), stride=(v,)),
    "padding": lambda v: sg.max_pool(X, (2,), padding=v),
    "padding pair": lambda v: sg.max_pool(X, (2,), padding=((v, v),)),
    "dilation": lambda v: sg.max_pool(X, (2,), dilation=v),
    "kernel": lambda v: sg.max_pool(X, (v,)),
    "rank": lambda v: sg.max_pool(X, 2, rank=v),
    "groups": lambda v: sg.conv(W, None, X, groups=v),
    "conv stride": lambda v: sg.conv(W, None, X, stride=v),
    "conv_transpose stride": lambda v: sg.conv_transpose(W, None, X, stride=v),
    "axis": lambda v: sg.sum(X, v),
    "softmax axis": lambda v: sg.softmax(X, v),
    "shape": lambda v: sg.reshape(np.ones(1), (v,)),
    "width": lambda v: sg.pad(X, [(v, v)]),
    "unpad": lambda v: sg.unpad(X, v, rank=1),
    "functional": lambda v: sg.functional.max_pool1d(X, 2, padding=v),
    "upsample": lambda v: sg.upsample_nearest(X, (v,)),
    "adaptive": lambda v: sg.adaptive_avg_pool(X, (v,)),
}


@pytest.mark.parametrize("wrong", [1.0, True, np.float64(1)], ids=["float", "bool", "numpy"])
@pytest.mark.parametrize("name", TAKES_INTS)
def test_validation_does_not_depend_on_history(name: str, wrong: Any) -> None:
    """1 == 1.0 == True: what only equals an int is refused, before and after the int was seen."""
    call = TAKES_INTS[name]
    for _ in range(2):
        with pytest.raises(sg.SpecgradError):
            call(wrong)
        call(1)


def test_padding_true_is_named() -> None:
    text = r"max_pool \[P5\]: padding must be an int, an int or a \(lo, hi\) pair per axis; got True"
    with pytest.raises(sg.ParameterError, match=text):
        sg.max_pool(X, (2,), padding=True)


@pytest.mark.parametrize("factor", [2, 2.0, (2.0,)])
def test_interpolate_takes_whole_floats(factor: Any) -> None:
    x = torch.arange(3.0).view(1, 1, 3)
    assert torch.equal(sg.functional.interpolate(x, scale_factor=factor), F.interpolate(x, scale_factor=factor))
    assert torch.equal(sg.functional.interpolate(x, scale_factor=1.5), F.interpolate(x, scale_factor=1.5))


# --- compiled modules ---------------------------------------------------------------------------------------------


def test_compiled_functions_refuse_unknown_keys() -> None:
    graph = sg.trace(lambda p, x: sg.mul(p["a"]["w"], x), {"a": {"w": (2,)}}, (2,))
    good, x = {"a": {"w": torch.ones(2)}}, torch.ones(2)
    module = sg.compile(graph, "torch")
    assert torch.equal(module(good, x), x)
    for wrong, place in (({**good, "typo": x}, "p"), ({"a": {"w": x, "typo": x}}, "p.a")):
        for f in (graph, module, sg.compile(graph, "jax")):
            with pytest.raises(sg.ShapeError, match=f"graph: {place} has unknown typo"):
                f(jax.tree.map(lambda t: t.numpy(), wrong) if f is not module else wrong, x.numpy())


@pytest.mark.parametrize("order", [("a", "a__b"), ("a__b", "a")])
def test_parameter_names_do_not_collide(order: tuple[str, str]) -> None:
    values = {"a": {"b": np.array([2.0])}, "a__b": np.array([5.0])}
    params = {name: values[name] for name in order}
    shapes = {name: {"b": (1,)} if name == "a" else (1,) for name in order}
    graph = sg.trace(lambda p, x: sg.add(sg.mul(p["a"]["b"], x), p["a__b"]), shapes, (1,))
    module = sg.compile(graph, "torch", parameters=params)
    assert {k: v.item() for k, v in module.named_parameters()} == {"a__b": 5.0, "a__b_": 2.0}
    assert module(torch.tensor([10.0], dtype=torch.float64)).item() == 25


@pytest.mark.parametrize("name", ["graph", "forward", "training", "graph_module", "_own", "_bind", "parameter", "T"])
def test_any_parameter_name_works(name: str) -> None:
    graph = sg.trace(lambda p, x: sg.mul(p[name], x), {name: (1,)}, (1,))
    module = sg.compile(graph, "torch", parameters={name: np.array([3.0])})
    module.to(torch.float32)
    assert module(torch.ones(1)).item() == 3


def _two_layers() -> Any:
    def net(p: Any, x: Any) -> Any:
        return sg.linear(p["weight"], None, sg.relu(sg.add(x, np.array([0.5, -0.5]))))

    graph = sg.trace(net, {"weight": (2, 2)}, (2,))
    return sg.compile(graph, "torch", parameters={"weight": np.array([[1.0, 2.0], [3.0, 5.0]])})


def test_weight_norm_and_pruning_reach_the_module() -> None:
    x = torch.ones(2, dtype=torch.float64)
    module = torch.nn.utils.parametrizations.weight_norm(_two_layers(), "weight")
    expected = module(x)
    module.parametrizations.weight.original0.data *= 2
    assert torch.allclose(module(x), 2 * expected)
    pruned = torch.nn.utils.prune.custom_from_mask(_two_layers(), "weight", torch.tensor([[1, 0], [0, 1]]))
    assert pruned(x).tolist() == [1.5, 2.5]


def _pickles() -> bool:
    try:
        pickle.dumps(_two_layers().graph)
    except Exception:
        return False
    return True


def _by_torch_save(module: Any) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), _by_torch_save])
def test_compiled_modules_are_copied_and_saved(copied: Any) -> None:
    if copied is not copy.deepcopy and not _pickles():
        pytest.skip("graphs do not pickle")
    module, x = _two_layers().to(torch.float32), torch.ones(2)
    with torch.no_grad():
        module.weight *= 2
    twin = copied(module)
    assert torch.equal(twin(x), module(x))
    assert [(k, v.dtype) for k, v in twin.state_dict().items()] == [
        (k, v.dtype) for k, v in module.state_dict().items()
    ]
    with torch.no_grad():
        twin.weight.zero_()
    assert module(x).tolist() == [5.0, 14.0]


# --- edges of windows, labels and zeros ---------------------------------------------------------------------------

EMPTY = {"stride": 3, "padding": ((2, 0),)}  # the only window reads the cell before the first
ON_EMPTY = {
    "max_pool": lambda x: sg.max_pool(x, (1,), **EMPTY),
    "avg_pool": lambda x: sg.avg_pool(x, (1,), **EMPTY),
    "avg_pool inside": lambda x: sg.avg_pool(x, (1,), count_include_pad=False, **EMPTY),
    "smooth_max_pool": lambda x: sg.smooth_max_pool(x, (1,), beta=2, **EMPTY),
    "smooth ignore": lambda x: sg.smooth_max_pool(x, (1,), beta=2, padded="ignore", **EMPTY),
    "conv": lambda x: sg.conv(x * 0 + 1, None, x, **EMPTY),
    "rank 2": lambda x: sg.max_pool(x, (1, 1), stride=3, padding=((2, 0), (2, 0))),
    "conv_transpose": lambda x: sg.conv_transpose(x * 0 + 1, None, x, stride=3, padding=((2, 0),), output_padding=2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ON_EMPTY)
def test_windows_with_no_tap_inside(name: str, dtype: Any) -> None:
    call = ON_EMPTY[name]
    x = torch.full((1, 1, 1), 3.0, dtype=dtype, requires_grad=True)
    y = call(x)
    assert y.tolist() == call(np.full((1, 1, 1), 3.0)).tolist() == [[[0.0]]]
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [[[0.0]]]
    assert torch.func.grad(lambda t: call(t).sum())(x.detach()).tolist() == [[[0.0]]]
    assert torch.func.jvp(call, (x.detach(),), (torch.ones_like(x),))[1].tolist() == [[[0.0]]]


@pytest.mark.parametrize("label", [-1, -2, -100, 3])
def test_labels_outside_are_refused_or_nan(label: int) -> None:
    x, labels = jax.numpy.zeros((2, 3)), jax.numpy.array([1, label])
    loss = lambda x, labels: sg.cross_entropy(x, labels, reduction="sum")
    graph = sg.trace(loss, (2, 3), sg.Index((2,)))
    with pytest.raises(sg.ShapeError, match=r"indices must lie in 0\.\.2"):
        loss(x, labels)
    gradients = [jax.jit(jax.grad(loss)), sg.compile(graph, "jax", "grad", wrt="x")]
    assert np.isnan(jax.jit(loss)(x, labels))
    for gradient in gradients:
        found = np.asarray(gradient(x, labels))
        assert np.isnan(found[1]).any()
        assert np.allclose(found[0], [1 / 3, -2 / 3, 1 / 3])


def _signs(y: Any) -> list[bool]:
    return np.signbit(np.asarray(y)).ravel().tolist()


def _same_signs(a: Any, b: Any) -> bool:
    """In one word: pytest would explain two long lists by their difference, for minutes where `CI` is set."""
    return _signs(a) == _signs(b)


@pytest.mark.parametrize("cells", [8, 40_000])
@pytest.mark.parametrize("kernel", [2, 5, 9])
def test_negative_zero_does_not_tell_whether_gradients_are_wanted(kernel: int, cells: int) -> None:
    """torch: the zero that comes first; JAX: always +0."""
    kernel = min(kernel, cells)
    x = np.random.default_rng(0).choice(np.array([0.0, -0.0, -1.0], dtype=np.float32), (1, 4, cells))
    _, index = F.max_pool1d(torch.tensor(x), kernel, 1, return_indices=True)
    first = np.take_along_axis(x, index.numpy(), -1)
    call = lambda t: sg.max_pool(t, (kernel,), stride=1)
    for wanted in (False, True):
        assert _same_signs(call(torch.tensor(x, requires_grad=wanted)).detach(), first)
    for y in (call(jax.numpy.asarray(x)), jax.vjp(call, x)[0], jax.jit(lambda x: jax.vjp(call, x)[0])(x)):
        assert not any(a and b == 0 for a, b in zip(_signs(y), np.asarray(y).ravel(), strict=True))


def _zeros_2d(dtype: Any) -> np.ndarray:
    return np.random.default_rng(1).choice(
        np.array([0.0, -0.0, -1.0], dtype=dtype), (3, 16, 33, 65), p=[0.05, 0.05, 0.9]
    )


def _check_first_zero(dtype: Any, kernel: int, wanted: bool) -> None:
    """Against the positions that PyTorch's own kernel reports."""
    x = _zeros_2d(dtype)
    _, index = F.max_pool2d(torch.tensor(x), kernel, 1, kernel // 2, return_indices=True)
    first = np.take_along_axis(x.reshape(3, 16, -1), index.numpy().reshape(3, 16, -1), -1)
    y = sg.max_pool(torch.tensor(x, requires_grad=wanted), (kernel, kernel), stride=1, padding=kernel // 2)
    assert _same_signs(y.detach(), first)


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_first_zero_in_two_dimensions(dtype: Any, kernel: int, wanted: bool) -> None:
    """By doubling too: rows one after the other, and in each row from the left."""
    _check_first_zero(dtype, kernel, wanted)


@pytest.mark.parametrize("fault", ["either zero", "columns before rows"])
def test_a_wrong_zero_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "either zero":
        monkeypatch.setattr(torch_pool, "first_maximum", torch.maximum)
    else:
        shifts = torch_pool.tap_schedule.doubling_shifts
        monkeypatch.setattr(torch_pool.tap_schedule, "doubling_shifts", lambda *args: shifts(*args)[::-1])
    with pytest.raises(AssertionError):
        _check_first_zero(np.float32, 3, False)


def test_relu_of_negative_zero_does_not_tell_whether_gradients_are_wanted() -> None:
    """torch keeps it, JAX gives +0: each whatever is asked."""
    x = np.random.default_rng(0).choice(np.array([0.0, -0.0, -1.0, 1.0], dtype=np.float32), 1003)
    kept, tensor, array = _signs(np.where(x < 0, 0, x)), torch.tensor(x), jax.numpy.asarray(x)
    on_torch = [
        sg.relu(tensor),
        sg.relu(torch.tensor(x, requires_grad=True)).detach(),
        torch.func.vjp(sg.relu, tensor)[0],
    ]
    on_jax = [sg.relu(array), jax.vjp(sg.relu, array)[0], jax.jit(lambda x: jax.vjp(sg.relu, x)[0])(array)]
    assert all(_signs(y) == kept for y in on_torch)
    assert not any(any(_signs(y)) for y in on_jax)


# --- short floats -------------------------------------------------------------------------------------------------


def test_bfloat16_depthwise_sums_in_float32() -> None:
    """Not worse than lax.conv, in units of the last place of the exact result."""
    rng = np.random.default_rng(0)
    x, w = (jax.numpy.asarray(rng.normal(size=s), jax.numpy.bfloat16) for s in ((2, 8, 24, 24), (8, 1, 9, 9)))
    wide = [np.asarray(a, np.float64) for a in (w, x)]
    exact = sg.conv(torch.tensor(wide[0]), None, torch.tensor(wide[1]), groups=8).numpy()
    theirs = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", feature_group_count=8)
    ours, scale = sg.conv(w, None, x, groups=8), np.abs(exact).mean()
    errors = [np.abs(np.asarray(y, np.float64) - exact).mean() / scale for y in (ours, theirs)]
    assert ours.dtype == jax.numpy.bfloat16
    assert errors[0] <= errors[1] * 1.01


def test_bfloat16_averages_sum_in_float32() -> None:
    x = jax.numpy.asarray(np.random.default_rng(0).uniform(1, 2, (4, 32, 32)), jax.numpy.bfloat16)
    exact = sg.avg_pool(np.asarray(x, np.float64), (9, 9), stride=1)
    error = np.abs(np.asarray(sg.avg_pool(x, (9, 9), stride=1), np.float64) / exact - 1).max()
    assert error <= 2**-8  # one rounding to 8 bits


# --- inside the frameworks' own tools -----------------------------------------------------------------------------

STRIDE_ONE = {
    "max_pool": lambda x: sg.max_pool(x, (5, 5), stride=1, padding=2),
    "avg_pool": lambda x: sg.avg_pool(x, (7, 7), stride=1, padding=3),
    "smooth_max_pool": lambda x: sg.smooth_max_pool(x, (5, 5), stride=1, beta=2),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", STRIDE_ONE)
def test_jit_trace_records_what_holds_for_every_input(name: str) -> None:
    call, x = STRIDE_ONE[name], torch.linspace(-1, 1, 2 * 16 * 64 * 64).view(2, 16, 64, 64)
    traced = torch.jit.trace(call, x)
    other = 50 * x.flip(-1).sin()  # far from x: what was only right for x would show
    other[0, 0, 0, 0] = torch.nan
    assert torch.allclose(traced(other), call(other), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", STRIDE_ONE)
def test_fake_tensors_outside_their_mode(name: str) -> None:
    with FakeTensorMode():
        x = torch.empty(2, 64, 64, 64)
    assert STRIDE_ONE[name](x).shape == STRIDE_ONE[name](torch.zeros(2, 64, 64, 64)).shape


def _loss() -> Any:
    net = lambda w, x, y: sg.cross_entropy(sg.flatten(sg.conv(w, None, x, padding=1), 1), y)
    return sg.trace(net, (4, 3, 3, 3), (2, 3, 8, 8), sg.Index((2,)))


def test_autocast_reaches_compiled_gradients() -> None:
    torch.manual_seed(0)
    w, x, y = torch.randn(4, 3, 3, 3), torch.randn(2, 3, 8, 8), torch.tensor([1, 2])
    gradient = sg.compile(_loss(), "torch", "grad", wrt="w")
    with torch.autocast("cpu", torch.bfloat16):
        found = gradient(w, x, y)
    assert torch.allclose(found.float(), gradient(w, x, y), atol=2e-2)


def test_cross_entropy_under_autocast_is_float32() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(8, 10).bfloat16(), torch.arange(8)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = sg.cross_entropy(x, y), F.cross_entropy(x, y)
    assert ours.dtype == theirs.dtype == torch.float32
    assert torch.allclose(ours, theirs)


@pytest.mark.parametrize("through", [lambda module: module, lambda module: torch.compile(module, backend="aot_eager")])
def test_compiled_cross_entropy_under_autocast_is_float32(through: Any) -> None:
    """Value and gradient as of PyTorch's own on the same bfloat16 scores, to the last digits of float32."""
    torch.manual_seed(0)
    x, y = (4 * torch.randn(8, 10)).bfloat16(), torch.arange(8)
    graph = sg.trace(sg.cross_entropy, (8, 10), sg.Index((8,)))
    leaf = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = through(sg.compile(graph, "torch"))(x, y), F.cross_entropy(leaf, y)
        gradient = through(sg.compile(graph, "torch", "grad", wrt=0))(x, y)
    theirs.backward()
    assert ours.dtype == theirs.dtype == torch.float32
    assert torch.allclose(ours, theirs, rtol=1e-6)
    assert torch.allclose(gradient.bfloat16(), leaf.grad, rtol=2**-8, atol=0)


@pytest.mark.parametrize(("ours", "theirs"), [(sg.softmax, F.softmax), (sg.log_softmax, F.log_softmax)])
def test_compiled_softmax_under_autocast_is_float32(ours: Any, theirs: Any) -> None:
    """As PyTorch's on CUDA; on the CPU its autocast leaves softmax in bfloat16, where it rounds once."""
    x = (4 * torch.randn(8, 10)).bfloat16()
    module = sg.compile(sg.trace(ours, (8, 10)), "torch")
    with torch.autocast("cpu", torch.bfloat16):
        found = module(x)
    assert found.dtype == torch.float32
    assert torch.allclose(found, theirs(x.float(), -1), rtol=1e-5)
    assert module(x).dtype == torch.bfloat16  # without autocast: as given


def test_compiled_jax_functions_lower() -> None:
    args = (jax.numpy.ones((4, 3, 3, 3)), jax.numpy.ones((2, 3, 8, 8)), jax.numpy.array([1, 2]))
    f = sg.compile(_loss(), "jax", "grad", wrt="w")
    (found,) = f.lower(*args).compile()(*args)
    assert np.array_equal(found, f(*args))


POOL_LAST = sg.channels_last(sg.max_pool, rank=2, data=0)
WHOLE = {
    "mean": lambda x: sg.mean(x, 1),
    "reshape": lambda x: sg.reshape(x, (2, -1)),
    "channels_last": lambda x: POOL_LAST(x, (2, 2)),
    "channels_last inside": lambda x: sg.channels_last(sg.max_pool, rank=2, data=0)(x, (2, 2)),
    "relu": lambda x: sg.add(sg.relu(x), 1),
    "slice": lambda x: sg.slice(x, None, slice(0, 2)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_torch_compile_takes_calls_whole(name: str) -> None:
    enable_torch_compile()
    torch._dynamo.reset()
    x = torch.randn(2, 4, 6, 8)
    compiled = torch.compile(WHOLE[name], fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), WHOLE[name](x))
