"""Formulas that kernels replace: where they stand, what the class holds of their kernels, and what it does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import specgrad as sg
from specgrad.declared_errors import declared
from specgrad.proof.base.executions import exclusion
from specgrad.proof.base.kernel_formulas import FORMULAS, Found, formulas
from specgrad.rounding import Arithmetic, radius

Net = Callable[[Any], Any]


def total(x: Any) -> Any:
    return sg.sum(x, -1, keepdims=True)


def mean(x: Any) -> Any:
    return sg.mean(x, -1, keepdims=True)


SPELT: list[tuple[str, Net]] = [
    ("softplus", lambda x: sg.log(1 + sg.exp(x))),
    ("softplus", lambda x: sg.log(sg.exp(x * 3) + 1)),
    ("sigmoid", lambda x: 1 / (sg.exp(-x) + 1)),
    ("sigmoid", lambda x: sg.power(1 + sg.exp(x * -1), -1)),
    ("silu", lambda x: x / (sg.exp(-x) + 1)),
    ("silu", lambda x: (1 / (1 + sg.exp(-x))) * x),
    ("silu", lambda x: sg.sigmoid(x) * x),
    ("silu", lambda x: x * sg.sigmoid(1.702 * x)),
    ("mish", lambda x: sg.tanh(sg.log(1 + sg.exp(x))) * x),
    ("mish", lambda x: sg.tanh(sg.softplus(x)) * x),
    ("gelu", lambda x: 0.5 * (x * (1 + (2 * sg.normal_cdf(x / math.sqrt(2) * math.sqrt(2)) - 1)))),
    ("gelu", lambda x: (x * np.float32(0.5)) * (2 * sg.normal_cdf(x / np.float32(2**0.5) * math.sqrt(2)))),
    ("gelu", lambda x: (1 + sg.tanh((x * x * x * 0.044715 + x) * 0.7978845608)) * x * 0.5),
    ("gelu", lambda x: 0.5 * x * (1 + sg.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x)))),
    ("softmax", lambda x: sg.exp(x) / total(sg.exp(x))),
    ("softmax", lambda x: sg.exp(x) * (1 / total(sg.exp(x)))),
    ("softmax", lambda x: sg.exp(x) / sg.sum(sg.exp(x))),
    ("softmax", sg.softmax),
    ("RMS norm", lambda x: x / sg.sqrt(1e-5 + mean(sg.power(x, 2)))),
    ("RMS norm", lambda x: x * sg.power(mean(x * x) + 1e-6, -0.5)),
    ("L2 norm", lambda x: x / sg.sqrt(total(x * x))),
    ("mean-variance norm", lambda x: (x - mean(x)) / sg.sqrt(mean(sg.power(x - mean(x), 2)) + 1e-5)),
]
OTHERS: list[Net] = [
    lambda x: sg.log(sg.exp(x) + 2),
    lambda x: sg.log(sg.exp(x) - 1),
    lambda x: x / (1 + sg.exp(x)),
    lambda x: x / (1 + sg.exp(-x * x)),
    lambda x: x * sg.tanh(sg.log(2 + sg.exp(x))),
    lambda x: x * sg.normal_cdf(x * 1.1),
    lambda x: x * (1 + sg.tanh(0.9 * (x + 0.044715 * x * x * x))) / 2,
    lambda x: sg.exp(x) / total(sg.exp(2 * x)),
    lambda x: sg.exp(x) / sg.broadcast(sg.reshape(sg.sum(sg.exp(x), 1), (1, 3)), (3, 3)),  # the other axis
    lambda x: x / sg.sqrt(mean(x * x * x) + 1e-5),
    lambda x: (x - mean(x)) / sg.sqrt(mean(x * x) + 1e-5),
    sg.softplus,
    sg.silu,
    sg.gelu,
]


def found(net: Net, shape: tuple[int, ...] = (3, 3)) -> list[Found]:
    graph = sg.trace(net, shape)
    return [f for f in formulas(graph) if f.position == graph.output_positions[0]]


# --- where they stand -----------------------------------------------------------------------------------------------


def test_formulas_are_found_in_every_spelling_and_nothing_else_is() -> None:
    for name, net in SPELT:
        (one,) = found(net)
        assert one.formula.name == name
        graph = sg.trace(net, (3, 3))
        assert graph.nodes[one.x].shape == (3, 3)
    assert {name for name, _ in SPELT} == {f.name for f in FORMULAS}
    for k, net in enumerate(OTHERS):
        assert found(net) == [], k


def test_a_kernel_computes_the_function_of_its_formula() -> None:
    x = np.random.default_rng(0).normal(size=(3, 3)) * 2
    for _, net in SPELT:
        (one,) = found(net)
        if one.formula.kernel is not None and one.x == 0:
            kernel = sg.trace(lambda v, one=one: one.formula.kernel(v, one.axes), (3, 3))
            np.testing.assert_allclose(kernel(x), sg.trace(net, (3, 3))(x), rtol=1e-6, atol=1e-9)


def test_a_statement_names_what_leaves_the_class_and_no_more() -> None:
    for name, net in SPELT:
        (one,) = found(net)
        said = exclusion(sg.trace(net, (3, 3)))
        assert (f"as a {name}" in said) == (not one.formula.held), one.formula.text
    for formula in FORMULAS:
        assert formula.held or formula.name in Arithmetic().deployment["rewriting"]


# --- what the class holds -------------------------------------------------------------------------------------------


def ratio(net: Net, kernel: Net, x: np.ndarray, runtime: str | None) -> float:
    """The kernel's error over the formula's radius, where both are as declared; the largest."""
    arithmetic = Arithmetic(ulps=declared(runtime))
    balls = [radius(sg.trace(f, x.shape), x, arithmetic=arithmetic).outputs for f in (kernel, net)]
    return float(np.max(balls[0].radius / balls[1].radius))


def test_kernels_that_the_table_says_are_held() -> None:
    """gelu: the declared error of the kernel is within the radius of the formula, for whom we know to replace it."""
    x = np.concatenate([np.linspace(-9, 9, 400), 10.0 ** np.linspace(-6, 1, 100), -(10.0 ** np.linspace(-6, 1, 100))])
    x = x.astype(np.float32)
    erf = next(net for name, net in SPELT if name == "gelu")  # with an erf
    written = [net for name, net in SPELT if name == "gelu"][2]
    for runtime in ("openvino-f32", "onnxruntime", None):
        assert ratio(erf, sg.gelu, x, runtime) <= 1
        assert ratio(written, lambda v: sg.gelu(v, "tanh"), x, runtime) <= 1.0001


def test_a_quotient_holds_a_product_with_the_reciprocal() -> None:
    """Norms and softmax: x*(1/r) in float32 for x/r, both computed."""
    rng = np.random.default_rng(1)
    x, r = (rng.uniform(1, 2, 100_000).astype(np.float32) for _ in range(2))
    ball = radius(sg.trace(lambda a, b: a / b, x.shape, r.shape), x, r).outputs
    assert ball.contains(x * (np.float32(1) / r)).all()
    assert not ball.contains(x * np.nextafter(np.float32(1) / r, np.float32(2))).all()


NEARLY = "x*(1 + tanh(s*x*(1 + k*x^2)))/2"  # within three millionths of the radius, and excluded all the same


def test_kernels_that_leave_the_class() -> None:
    """For each of them but one there is an x where its declared error is larger than the radius of the formula."""
    x, left = np.float32([[-9.0, -5.0], [-30.0, 30.0], [-3.0, 3.0]]), set()
    for _, net in SPELT:
        (one,) = found(net)
        kernel = one.formula.kernel
        if one.formula.held or kernel is None or one.x != 0:
            continue
        share = ratio(net, lambda v, k=kernel, one=one: k(v, one.axes), x, None)
        assert share > 1 if one.formula.text == NEARLY else share > 1.0001, one.formula.text
        left.add(one.formula.text)
    assert left == {f.text for f in FORMULAS if not f.held}
