"""Results in a notebook: their verdict, sentences and a table, and no arrays; the same words in a terminal."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Box, crown, ibp
from specgrad.check import audit, compare, preserve, tolerance
from specgrad.html_page import MAX_NOTEBOOK_ROWS, fragment
from specgrad.rounding import radius

torch = pytest.importorskip("torch")
WEIGHTS = np.random.default_rng(0).normal(size=(4, 1, 3, 3)).astype(np.float32)
GRAPH = sg.trace(lambda x: sg.flatten(sg.relu(sg.conv(WEIGHTS, None, x)), 1), (1, 1, 6, 6))
X = np.random.default_rng(1).normal(size=(1, 1, 6, 6)).astype(np.float32)
RESULTS: dict[str, Any] = {
    "audit": lambda: audit(torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU()).eval(), "torch", X),
    "tolerance": lambda: tolerance(GRAPH, X),
    "compare": lambda: compare(GRAPH, GRAPH),
    "preserve": lambda: preserve(GRAPH, np.concatenate([X, 0 * X]), runtimes=()),
    "crown": lambda: crown(GRAPH, Box.around(X, 0.1)),
    "ibp": lambda: ibp(sg.trace(lambda x: (x, sg.sum(x)), (3,)), Box([0.0] * 3, [1.0] * 3)),
    "radius": lambda: radius(GRAPH, X, keep=["relu"]),
    "radius, unbounded": lambda: radius(sg.trace(lambda x: 1 / x, (2,)), np.float32([0, 1])),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_read_at_a_glance(name: str) -> None:
    result = RESULTS[name]()
    html, text = result._repr_html_(), repr(result)
    assert "array(" not in html + text
    assert len(text) < 1000
    assert re.match(r"<p><b>(&#10003;|\?|&#10007;) [a-z ]+</b></p>", html)
    verdict = getattr(result, "verdict", "unbounded" if "unbounded" in name else "bounded")
    assert f" {verdict}</b>" in html
    assert html.count("<tr>") == html.count("</tr>")


def test_ranges_are_rounded_outward() -> None:
    box = crown(sg.trace(lambda x: x * 1.0, (2,)), Box([0.123456789, -1.00001], [2.0, 3.123456789]))
    low, high = map(float, re.search(r"(-?[\d.e-]+) to (-?[\d.e-]+)\)", repr(box)).groups())
    assert low <= -1.00001
    assert high >= 3.123456789


def test_names_are_text_and_long_tables_end() -> None:
    html = fragment("differs", ["a < b"], ["layer"], [["<script>"]] * (MAX_NOTEBOOK_ROWS + 2))
    assert "<script>" not in html
    assert html.count("&lt;script&gt;") == MAX_NOTEBOOK_ROWS
    assert html.endswith("<p>and 2 more</p>")
    assert "&#10007; differs" in html
