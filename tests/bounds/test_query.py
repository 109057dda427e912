"""Queries in VNN-LIB about networks by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds.search.query import certify_query
from specgrad.errors import ParameterError, ShapeError

DOUBLE = sg.trace(lambda x: x * np.float32(2), (1,))
ABOVE = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= Y_0 {}))"


def test_one_network(tmp_path: Path) -> None:
    """Y = 2X reaches 2, and no more."""
    stated = tmp_path / "p.vnnlib"
    stated.write_text(ABOVE.format("2.5"))
    assert certify_query(stated, {"N": DOUBLE}).verdict == "holds"
    stated.write_text(ABOVE.format("1.5"))
    assert certify_query(stated, {"N": DOUBLE}).verdict == "violated"


def test_no_network_is_refused(tmp_path: Path) -> None:
    stated = tmp_path / "p.vnnlib"
    stated.write_text(ABOVE.format("2.5"))
    with pytest.raises(ParameterError, match="is about one network; got none"):
        certify_query(stated, {})


SIZES = """(vnnlib-version <2.0>)
(declare-network N (declare-input {} float32 [{}]) (declare-input {} float32 [{}]) (declare-output Y float32 [1]))
(assert (and (<= 5.0 {a}[0]) (<= {a}[0] 6.0) {rest} (>= Y[0] 5.0)))
"""


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [(("A", 2), ("B", 3), "declares inputs A"), (("a", 3), ("b", 3), "the same names in another order")],
)
def test_tensors_of_another_size_or_order_are_refused(
    first: tuple[str, int], second: tuple[str, int], words: str, tmp_path: Path
) -> None:
    """y = a[0], where a is the model's second input: cells taken one after the other would be those of b."""
    size = first[1]
    graph = sg.trace(lambda b, a: a[0:1] + np.float32(0) * b[0:1], (3,), (size,))
    cells = [f"{n}[{k}]" for n, count in (first, second) for k in range(count) if (n, k) != (first[0], 0)]
    rest = " ".join(f"(== {c} 0.0)" for c in cells)
    stated = tmp_path / "p.vnnlib"
    stated.write_text(SIZES.format(*first, *second, a=first[0], rest=rest))
    with pytest.raises(ShapeError, match=words):
        certify_query(stated, {"N": graph})
