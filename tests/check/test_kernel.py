"""assert_conforms as an author meets it: what it passes, what it refuses, what it says."""

from __future__ import annotations

import traceback
from collections import Counter

import numpy as np
import pytest

import kernels
import specgrad as sg
from specgrad.check import OPERATORS, ConformanceError, assert_conforms, kernel_signature
from specgrad.check.cases.generate import SHAPES, draw_cases
from specgrad.check.cases.signature import MEANING, attribute_names
from specgrad.check.kernels.ask_operator import KernelExaminer, attributes_of
from specgrad.rounding import FORMATS, Arithmetic

HALF = Arithmetic("float16")


@pytest.mark.parametrize("operator", OPERATORS)
def test_normalised_attributes_mean_the_same(operator: str) -> None:
    for question in draw_cases(operator, 40, seed=3):
        given = attributes_of(question)
        assert tuple(given) == attribute_names(operator)
        assert not any(isinstance(v, str) for name, v in given.items() if name not in ("padded", "where", "how"))
        rank = question.arrays["x"].ndim - 2
        for name in {"stride", "dilation", "padding", "kernel", "output_padding"} & set(given):
            assert len(given[name]) == rank
        one, other = (OPERATORS[operator](*question.arguments(), **a) for a in (question.attributes, given))
        for a, b in zip(*((y if isinstance(y, tuple) else (y,)) for y in (one, other)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_same_padding_is_handed_out_as_numbers() -> None:
    """By hand, from the contract: 5 cells, kernel 2, stride 2 need one more, behind (upper) or before (lower)."""
    found = {}
    for question in draw_cases("max_pool", 2000):
        a = question.attributes
        if (question.arrays["x"].shape[2:], a["kernel"], a["stride"], a.get("dilation", (1,))) == (
            (5,),
            (2,),
            (2,),
            (1,),
        ):
            found[a["padding"]] = attributes_of(question)["padding"]
    assert found["same_upper"] == ((0, 1),)
    assert found["same_lower"] == ((1, 0),)


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_attribute_is_described(operator: str) -> None:
    said = kernel_signature(operator)
    assert list(said.attributes) == list(attribute_names(operator))
    assert all(name in str(said) for name in said.attributes)
    assert set(attribute_names(operator)) <= set(MEANING)


def refusing(*args, **attributes):
    raise NotImplementedError("not yet")


def test_a_kernel_that_answers_nothing_fails() -> None:
    with pytest.raises(
        ConformanceError, match=r"0 of 50 questions answered \(50 refused\): nothing was judged; .*not yet"
    ):
        assert_conforms(refusing, "conv", count=50)


def test_what_was_answered_is_counted() -> None:
    def relu(x):
        if x.ndim != 3:
            raise NotImplementedError("rank 1 only")
        return np.maximum(x, 0)

    done = assert_conforms(relu, "relu", count=200)
    ranks = Counter(q.arrays["x"].ndim for q in draw_cases("relu", 200))
    assert (done.asked, done.answered) == (200, ranks[3])
    assert str(done).startswith(f"relu: {ranks[3]} of 200 questions answered (")
    assert done.counts == {"exact": ranks[3], "refuses": ranks[4]}
    assert assert_conforms(relu, "relu", count=50, ranks=(1,)).answered == 50
    with pytest.raises(ConformanceError, match="refuses"):
        assert_conforms(relu, "relu", count=50, may_refuse=False)


def test_filters_by_rank_and_attributes() -> None:
    seen = []

    def conv(x, w, b=None, **attributes):
        seen.append((x.ndim - 2, attributes))
        return kernels.conv(x, w, b, **attributes)

    done = assert_conforms(conv, "conv", ranks=(2,), where={"stride": 1, "groups": 1, "padding": 0}, count=40)
    assert done.answered == 40
    assert {rank for rank, _ in seen} == {2}
    assert {(a["stride"], a["groups"], a["padding"]) for _, a in seen} == {((1, 1), 1, ((0, 0), (0, 0)))}
    assert len({a["dilation"] for _, a in seen}) > 1
    seen.clear()
    assert_conforms(conv, "conv", where=lambda a: a["groups"] == 3 and len(a["stride"]) == 1, count=10)
    assert {(rank, a["groups"]) for rank, a in seen} == {(1, 3)}


@pytest.mark.parametrize(
    ("where", "ranks", "words"),
    [
        ({"strides": 1}, None, "where [P5]: conv has no attribute 'strides'; it has stride, padding, dilation, groups"),
        ({"stride": 17}, None, "conv: none of 20000 generated questions is of this kind (ranks=, where=)"),
        (None, (7,), "conv: none of 20000 generated questions is of this kind (ranks=, where=)"),
    ],
)
def test_filters_that_let_nothing_pass_are_refused(where, ranks, words: str) -> None:
    with pytest.raises(sg.ParameterError) as caught:
        assert_conforms(kernels.conv, "conv", where=where, ranks=ranks, count=4)
    assert words in str(caught.value)


def broken(x):
    return helper_of_the_author(x)


def helper_of_the_author(x):
    return np.maximum(x, 0) if x.size > 4 else x[17]


def test_a_crash_chains_the_authors_own_traceback_and_has_no_rule() -> None:
    with pytest.raises(ConformanceError) as caught:
        assert_conforms(broken, "relu")
    text = str(caught.value)
    assert text.startswith("relu: the kernel raises IndexError: index 17 is out of bounds")
    assert "rule" not in text
    assert isinstance(caught.value.__cause__, IndexError)
    assert "helper_of_the_author" in "".join(traceback.format_exception(caught.value))


def test_two_crashes_are_not_taken_for_one() -> None:
    def kernel(x):
        if x.shape[-1] == 1:
            raise KeyError("another")
        raise IndexError("this one")

    with pytest.raises(ConformanceError) as caught:
        assert_conforms(kernel, "relu", where=None)
    assert type(caught.value.__cause__).__name__ in str(caught.value).partition("\n")[0]


# --- other formats ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["conv", "max_pool", "relu", "add", "avg_pool", "clamp", "linear"])
def test_float16_kernels_are_handed_float16(operator: str) -> None:
    """A right kernel in float64, rounded once, passes; it sees float16 alone."""
    seen = set()

    def kernel(*arrays, **attributes):
        seen.update(a.dtype for a in arrays)
        wide = [a.astype(np.float64) for a in arrays]
        return np.asarray(OPERATORS[operator](*wide, **attributes)).astype(np.float16)

    done = assert_conforms(kernel, operator, arithmetic=HALF, count=90)
    assert seen == {np.dtype(np.float16)}
    assert done.counts["exact"] + done.counts["rounding"] > 60


def test_float16_questions_are_numbers_of_the_format_and_of_every_size() -> None:
    examiner = KernelExaminer(lambda x: x, None, "numpy", HALF)
    sizes = []
    for question in draw_cases("relu", 180):
        rounded, x = examiner.rounded(question), question.arrays["x"]
        y = rounded.arrays["x"]
        assert FORMATS["float16"].holds(y.astype(np.float64)).all()
        np.testing.assert_array_equal(np.isfinite(x), np.isfinite(y))
        np.testing.assert_array_equal(np.sign(x[np.isfinite(x)]), np.sign(y[np.isfinite(x)]))
        usual = np.isfinite(x) & (np.abs(x) < 2**8) & (np.abs(x) > 2.0**-10)
        np.testing.assert_array_equal(y[usual], x[usual].astype(np.float16))
        sizes += np.abs(y[np.isfinite(y) & (y != 0)]).tolist()
    assert min(sizes) < FORMATS["float16"].tiny
    assert max(sizes) > 2**10


def test_a_wrong_float16_kernel_is_caught() -> None:
    with pytest.raises(ConformanceError, match="rule"):
        assert_conforms(lambda x: np.maximum(x * np.float16(1.002), 0), "relu", arithmetic=HALF)


def test_float16_sums_in_float16_are_rounding_and_in_bfloat16_are_not() -> None:
    def linear(x, w, b=None, cut=lambda a: a):
        y = np.zeros((x.shape[0], w.shape[0]), np.float16)
        for i in range(x.shape[1]):
            y = cut(y + x[:, i : i + 1] * w[:, i])
        return y if b is None else y + b

    def to_eight_bits(a):
        mantissa, exponent = np.frexp(a.astype(np.float64))
        return np.ldexp(np.rint(mantissa * 2**8), exponent - 8).astype(np.float16)

    assert_conforms(linear, "linear", arithmetic=HALF, count=60)
    with pytest.raises(ConformanceError, match="differs"):
        assert_conforms(lambda *a: linear(*a, cut=to_eight_bits), "linear", arithmetic=HALF, count=200)


def test_bfloat16_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    seen = set()

    def relu(x):
        seen.add(x.dtype)
        return torch.relu(x)

    done = assert_conforms(relu, "relu", arrays="torch", arithmetic=Arithmetic("bfloat16"), count=60)
    assert (seen, done.answered) == ({torch.bfloat16}, 60)
    with pytest.raises(sg.ParameterError, match="NumPy has no bfloat16"):
        assert_conforms(relu, "relu", arithmetic=Arithmetic("bfloat16"))


def test_bfloat16_arrays_of_ml_dtypes() -> None:
    pytest.importorskip("ml_dtypes")
    done = assert_conforms(lambda x: np.maximum(x, 0), "relu", arrays="ml_dtypes", arithmetic=Arithmetic("bfloat16"))
    assert done.counts == {"exact": 400}


def test_shapes_of_all_operators_are_known() -> None:
    assert set(SHAPES) == set(OPERATORS)
