"""Queries in VNN-LIB about networks by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds.search.query import certify_query
from specgrad.errors import ParameterError

DOUBLE = sg.trace(lambda x: x * np.float32(2), (1,))
ABOVE = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= Y_0 {}))"


def test_one_network(tmp_path: Path) -> None:
    """Y = 2X reaches 2, and no more."""
    stated = tmp_path / "p.vnnlib"
    stated.write_text(ABOVE.format("2.5"))
    assert certify_query(stated, {"N": DOUBLE}).verdict == "holds"
    stated.write_text(ABOVE.format("1.5"))
    assert certify_query(stated, {"N": DOUBLE}).verdict == "counterexample"


def test_no_network_is_refused(tmp_path: Path) -> None:
    stated = tmp_path / "p.vnnlib"
    stated.write_text(ABOVE.format("2.5"))
    with pytest.raises(ParameterError, match="is about one network; got none"):
        certify_query(stated, {})
