"""Equations of index letters against NumPy's einsum, exactly; what is refused; and roundings in every order."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

import specgrad as sg
from specgrad.ops.einsum import einsum
from specgrad.rounding import Arithmetic, radius

pytestmark = pytest.mark.quick


def exact(rng: Random, shape: tuple[int, ...]) -> np.ndarray:
    cells = [Fraction(rng.randint(-9, 9), rng.randint(1, 4)) for _ in range(int(np.prod(shape)))]
    return np.array(cells, dtype=object).reshape(shape)


def equation(rng: Random) -> str:
    """One or two values of up to four letters, some repeated, some alone; a result that names some of them."""
    terms = ["".join(rng.choice("abCdz") for _ in range(rng.randint(0, 4))) for _ in range(rng.randint(1, 2))]
    letters = sorted({c for t in terms for c in t})
    rng.shuffle(letters)
    out = "".join(letters[: rng.randint(0, len(letters))])
    return ",".join(terms) + ("" if rng.random() < 0.2 else "->" + out)


def test_equals_numpy_over_rationals() -> None:
    rng = Random(0)
    seen = set()
    for _ in range(300):
        text = equation(rng)
        sizes = {c: rng.randint(1, 3) for c in text}
        values = [exact(rng, tuple(sizes[c] for c in t)) for t in text.partition("->")[0].split(",")]
        found = einsum(text, *values)
        expected = np.asarray(np.einsum(text, *values))
        assert found.shape == expected.shape, text
        assert (found == expected).all(), text
        seen |= {("->" in text, len(values), len(set(t)) < len(t)) for t in text.split("->")[0].split(",")}
    assert len(seen) == 8  # written out or not, one or two values, diagonals or not


@pytest.mark.parametrize(
    ("text", "shapes", "message"),
    [
        (
            "...i->i",
            [(2, 3)],
            "einsum [P5]: an ellipsis is three dots, once in a term, and stands in the result; got '...i->i'",
        ),
        ("ij,jk,kl->il", [(2, 2)] * 3, "einsum [P5]: one or two values; of 3 the order of the products is open"),
        ("ij->k", [(2, 2)], "einsum [P5]: every letter of the result must stand once in it and in some value"),
        ("ij->ii", [(2, 2)], "einsum [P5]: every letter of the result must stand once in it and in some value"),
        ("i1->i", [(2, 2)], "einsum [P5]: the equation must name letters for 1 values; got 'i1->i'"),
        ("ij->i", [(2, 2)] * 2, "einsum [P5]: the equation must name letters for 2 values"),
        ("ij,jk->ik", [(2, 3), (4, 2)], "einsum: letter j of 'ij,jk->ik' is 3 and 4"),
        ("ij,jk->ik", [(2, 1), (4, 2)], "einsum: letter j of 'ij,jk->ik' is 1 and 4"),
        ("ijk->i", [(2, 3)], "einsum: 'ijk' of 'ijk->i' does not fit shape (2, 3)"),
    ],
)
def test_refused_by_name(text: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        einsum(text, *(np.ones(s) for s in shapes))
    assert str(caught.value).startswith(message)


def test_letters_that_stand_alone_may_be_summed_before_or_after() -> None:
    """sum_ij a[i,j] b[j] in float32: the rows first, the products first; both lie within the radius of one sum."""
    rng = np.random.default_rng(0)
    graph = sg.trace(lambda a, b: einsum("ij,j->", a, b), (6, 3), (3,))
    assert [n.op.name for n in graph.nodes if n.op.name in ("sum", "contract")] == ["contract"]
    for _ in range(50):
        a = rng.normal(size=(6, 3)).astype(np.float32)
        a[3:] = -a[:3] * np.float32(1 + 2**-20)
        b = rng.normal(size=3).astype(np.float32)
        (ball,) = [radius(graph, a.astype(float), b.astype(float), arithmetic=Arithmetic("float32")).outputs]
        for y in ((a.sum(0, dtype=np.float32) * b).sum(dtype=np.float32), (a * b).sum(dtype=np.float32)):
            assert abs(float(y) - float(ball.value)) <= float(ball.radius)
