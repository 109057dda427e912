"""Convolutions and contractions of rationals by integers over one denominator: cell by cell the specification's."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad import scalar
from specgrad.op import REGISTRY, Op, run_spec
from specgrad.ops.einsum import einsum

KERNELS = [op for op in REGISTRY.values() if op.kernel]
DENOMINATORS = {
    "powers of two": lambda rng: 2 ** rng.randint(0, 40),
    "any": lambda rng: rng.randint(1, 10**6),
    "of one only": lambda rng: rng.choice((1, 1, 3)),
}


def rationals(a: Any, rng: Random, kind: str) -> np.ndarray:
    """Fractions in the shape of an array, with zeros among them."""
    one = lambda: Fraction(rng.randint(-(10**9), 10**9) if rng.random() < 0.9 else 0, DENOMINATORS[kind](rng))
    cells = np.empty(np.shape(a), object)
    for at in np.ndindex(*cells.shape):
        cells[at] = one()
    return cells


@pytest.fixture(params=["flint", "numpy"])
def _matrices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product by python-flint, or none."""
    monkeypatch.setattr(scalar, "FLINT_PRODUCTS_PER_CELL", 0 if request.param == "flint" else 1 << 60)


@pytest.mark.usefixtures("_matrices")
@pytest.mark.parametrize("kind", DENOMINATORS)
@pytest.mark.parametrize("op", KERNELS, ids=lambda op: op.name)
def test_integers_over_one_denominator_give_the_specification(op: Op, kind: str) -> None:
    """Fraction by Fraction, which the formula itself adds and multiplies."""
    for seed in range(30):
        rng = Random(f"{op.name}/{kind}/{seed}")
        args, params = op.cases(rng)
        given = [rationals(a, rng, kind) for a in args]
        y = run_spec(op, given, params)
        must = op.spec(*given, **params)
        assert y.shape == must.shape
        assert all(type(v) is Fraction for v in y.flat)
        assert y.tolist() == must.tolist(), (given, params)


def test_contractions_of_every_order_of_letters() -> None:
    """By NumPy's einsum, which loops over the letters; three sizes, so that no axes can be exchanged."""
    orders = ["".join(p) for k in range(1, 4) for p in permutations("abc", k)]
    tried = 0
    for x, z, out in product(orders, orders, ["", *orders]):
        spec = f"{x},{z}->{out}"
        if any((x + z + out).count(c) < 2 for c in x + z + out):
            continue
        rng, extent, tried = Random(spec), {"a": 2, "b": 3, "c": 4}, tried + 1
        given = [rationals(np.zeros([extent[c] for c in part]), rng, "any") for part in (x, z)]
        assert np.array_equal(run_spec(REGISTRY["contract"], given, {"spec": spec}), np.einsum(spec, *given)), spec
    assert tried > 300


def test_long_denominators_and_other_scalars_go_by_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar, "MAX_DENOMINATOR_BITS", 40)
    x = np.array([Fraction(1, p) for p in (101, 103, 107, 109, 113, 127, 131)], object)
    assert scalar.over_one_denominator(x) is None
    w = np.array([Fraction(k, 3) for k in range(7)], object)
    assert einsum("a,a->", x, w).item() == sum(p * q for p, q in zip(x, w, strict=True))
    mixed = np.array([1, Fraction(1, 2), sg.Dual(Fraction(1), Fraction(2))], object)
    assert scalar.over_one_denominator(mixed) is None
    assert scalar.matmul(mixed[None], mixed[:, None]).item().tangent == 4


@pytest.mark.parametrize("lead", [(), (2,), (3, 1)])
def test_products_of_matrices_of_any_integers(lead: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are broadcast as NumPy's are; bool is no integer here."""
    pytest.importorskip("flint")
    monkeypatch.setattr(scalar, "FLINT_PRODUCTS_PER_CELL", 0)
    rng = Random(f"{lead}")
    draw = lambda *s: np.array([rng.getrandbits(200) - 2**199 for _ in range(int(np.prod(s)))], object).reshape(s)
    a, b = draw(*lead, 4, 5), draw(1, 5, 3)
    assert scalar.matmul(a, b).tolist() == (a @ b).tolist()
    flags = np.array([[True, False]], object)
    assert scalar.matmul(flags, flags.T).item() == 1
