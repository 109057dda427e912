"""Python's and NumPy's operators on a graph variable: they record what NumPy would compute, or say what to write."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import specgrad as sg

X = np.array([[-1.0, 0.0, 2.0], [np.nan, 0.5, -0.0]])
Y = np.array([[0.0, 0.0, 2.0], [1.0, np.nan, 0.0]])
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda f: f.__name__)
def test_comparisons_record_masks(compare) -> None:
    graph = sg.trace(lambda x, y: (compare(x, y), compare(x, 0), compare(0.5, x), compare(Y, x)), X.shape, X.shape)
    expected = compare(X, Y), compare(X, 0), compare(0.5, X), compare(Y, X)
    for found, right in zip(graph(X, Y), expected, strict=True):
        assert found.tolist() == right.astype(float).tolist()


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda f: f.__name__)
def test_a_comparison_cannot_branch(compare) -> None:
    """`if s != 0:` was Python's identity, and silently took a branch."""
    with pytest.raises(sg.SpecgradError, match=r"cannot branch on it; write specgrad\.select"):
        sg.trace(lambda s: s / 2 if compare(s, 0) else s, ())


def test_a_comparison_with_no_number_is_refused() -> None:
    for other in (None, "x", True):
        with pytest.raises(sg.SpecgradError, match="cannot be compared with"):
            sg.trace(lambda x, o=other: x == o, (2,))


@pytest.mark.parametrize(
    ("use", "write"),
    [
        (int, "int"),
        (float, "float"),
        (len, r"x\.shape\[0\]"),
        (list, r"x\[0\]"),
        (lambda x: 1.0 in x, r"specgrad\.equal"),
        (lambda x: x in [1.0, 2.0], r"specgrad\.select"),
        (np.asarray, "specgrad's own functions"),
        (lambda x: np.array([x, x]), "concat"),
    ],
)
def test_what_needs_a_value_says_what_to_write(use, write: str) -> None:
    with pytest.raises(sg.SpecgradError, match=write):
        sg.trace(lambda x: use(x) and x, (2,))


def test_variables_are_found_by_identity() -> None:
    def net(x, y):
        names = {x: "x", y: "y"}
        assert names[x] == "x"
        assert len({x, y, x}) == 2
        return x + y

    assert len(sg.trace(net, (2,), (2,))) == 3


INDICES = [
    0,
    -1,
    np.int64(1),
    slice(1, None),
    (..., slice(1, 3)),
    (slice(None), 2),
    (0, ..., 1),
    (None, 1),
    (..., None),
    (slice(0, 0),),
    (0, None, slice(None, None, 2), 3),
    (..., slice(None, None, -1)),
    (slice(None, 0, -1), None, slice(1, None), slice(-1, 0, -2)),
    (0, slice(0, 2, -1)),
    ...,
    (),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_is_numpys(index) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    found = sg.trace(lambda v: v[index], x.shape)(x)
    assert found.shape == x[index].shape
    assert found.tolist() == x[index].tolist()
    gradient = sg.grad(sg.trace(lambda v: sg.sum(v[index] * 2), x.shape))(x)
    expected = np.zeros(x.shape)
    expected[index] = 2
    assert gradient.tolist() == expected.tolist()


def test_other_indices_are_refused() -> None:
    for index in ([0, 1], np.array([True, False]), True, 1.0, "a"):
        with pytest.raises(sg.ParameterError, match="indexed by whole numbers, slices"):
            sg.trace(lambda x, i=index: x[i], (2, 3))
    with pytest.raises(sg.ParameterError, match="does not fit 2 axes"):
        sg.trace(lambda x: x[0, 0, 0], (2, 3))
    for index in (2, -3):
        with pytest.raises(IndexError, match="out of range for an axis of 2 cells"):
            sg.trace(lambda x, i=index: x[i], (2, 3))


FUNCTIONS = [
    lambda x: x.sum(),
    lambda x: x.sum(1, keepdims=True),
    lambda x: x.mean(0),
    lambda x: x.reshape(3, 2),
    np.tanh,
    np.sqrt,
    np.square,
    np.negative,
    lambda x: np.power(x, 2),
    lambda x: np.maximum(np.ones(3), x),
    lambda x: np.less(x, 1.5).astype(float) if isinstance(x, np.ndarray) else np.less(x, 1.5),
    lambda x: np.sum(x, axis=1, keepdims=True),
    lambda x: np.mean(x),
    lambda x: np.max(x, axis=0),
    lambda x: np.transpose(x),
    lambda x: np.reshape(x, (6,)),
    lambda x: np.concatenate([x, np.ones((2, 3))], axis=0),
    lambda x: np.where(np.greater(x, 1), x, 0.0),
    lambda x: np.float64(2) * x + np.ones(3) - np.arange(2.0)[:, None],
    lambda x: np.ones((2, 2)) @ x,
]


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_methods_and_numpys_functions_compute_what_numpy_computes(number: int) -> None:
    f, x = FUNCTIONS[number], np.arange(1.0, 7.0).reshape(2, 3) / 4
    np.testing.assert_allclose(sg.trace(f, x.shape)(x), f(x), rtol=1e-15)


def test_unknown_functions_name_ours() -> None:
    cases = [
        (np.arcsin, sg.UnsupportedError, "numpy.arcsin does not record graph variables"),
        (lambda x: np.clip(x, 0, 1), sg.UnsupportedError, "specgrad.clamp"),
        (np.add.reduce, sg.UnsupportedError, "specgrad.sum"),
        (lambda x: np.add(x, 1, out=np.zeros(2)), sg.UnsupportedError, "takes no out"),
        (lambda x: np.sum(x, dtype=float), sg.ParameterError, "numpy.sum on a graph variable"),
        (lambda x: x.tanh(), AttributeError, "write specgrad.tanh"),
        (lambda x: x.T, AttributeError, "write specgrad.permute"),
        (lambda x: x.nothing, AttributeError, "has no attribute 'nothing'"),
    ]
    for use, kind, text in cases:
        with pytest.raises(kind, match=text.replace(".", r"\.")):
            sg.trace(use, (2,))


def test_an_array_is_not_changed_in_place_by_a_variable() -> None:
    def net(x):
        y = np.zeros(2)
        y += x
        return y

    with pytest.raises(sg.UnsupportedError, match="takes no out"):
        sg.trace(net, (2,))
