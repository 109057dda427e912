"""Generated questions: valid, reproducible, and wide enough to meet the known faults."""

from __future__ import annotations

import numpy as np
import pytest

from specgrad.check.cases.generate import DATA, SHAPES, draw_case, draw_cases
from specgrad.check.cases.op_case import OPERATORS
from specgrad.check.cases.shrink import shrink

pytestmark = pytest.mark.quick  # of `pytest -m quick`, under a minute in all


def test_every_operator_has_a_generator() -> None:
    assert set(SHAPES) == set(OPERATORS)


@pytest.mark.parametrize("operator", OPERATORS)
def test_questions_have_a_meaning_and_come_again(operator: str) -> None:
    for first, again in zip(draw_cases(operator, 24, seed=3), draw_cases(operator, 24, seed=3), strict=True):
        assert str(first) == str(again)
        for a, b in zip(first.arrays.values(), again.arrays.values(), strict=True):
            np.testing.assert_array_equal(a, b)
        results = first.meaning()(*first.arguments())
        assert (results[0] if isinstance(results, tuple) else results).shape == first.output_shape()


def test_all_kinds_of_data_and_all_styles_of_windows_occur() -> None:
    found = list(draw_cases("max_pool", 200))
    assert {q.data for q in found} == set(DATA)
    paddings = [q.attributes["padding"] for q in found]
    assert {"same_upper", "same_lower", "valid"} <= {p for p in paddings if isinstance(p, str)}
    assert any(isinstance(p, tuple) and any(lo != hi for lo, hi in p) for p in paddings)
    assert any(q.attributes.get("ceil") for q in found)
    assert any(max(q.attributes.get("dilation", (1,))) > 1 for q in found)
    assert {q.arrays["x"].ndim for q in found} == {3, 4, 5}


def test_the_shapes_do_not_depend_on_the_kind_of_data() -> None:
    shown = {str(draw_case("conv", kind, 5)) for kind in DATA}
    assert len(shown) == 1


def test_weights_may_stand_in_the_file() -> None:
    """Runtimes choose other kernels for constant weights, so both spellings occur; the meaning is the same."""
    assert {q.spelling for q in draw_cases("conv", 40)} == {"", "constant weights"}
    assert {q.spelling for q in draw_cases("conv_transpose", 60)} == {"", "constant weights", "output_shape"}
    assert {q.spelling for q in draw_cases("max_pool", 20)} == {""}


@pytest.mark.parametrize("operator", ["conv", "conv_transpose"])
def test_shrinking_cuts_groups_and_channels(operator: str) -> None:
    found = next(q for q in draw_cases(operator, 200) if q.attributes["groups"] == 3 and "b" in q.arrays)
    grouped = shrink(found, lambda q: q.attributes["groups"] > 1)
    assert (grouped.attributes["groups"], grouped.arrays["x"].shape[:2], grouped.arrays["w"].shape[:2]) == (
        2,
        (1, 2),
        (2, 1),
    )
    alone = shrink(found, lambda q: True)
    assert sum(a.size for a in alone.arrays.values()) == 2
