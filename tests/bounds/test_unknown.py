"""What is unknown says where the search ended, what its worst open part lacks, and what would help."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import specgrad as sg  # noqa: E402
from pace import ENDS  # noqa: E402
from specgrad.bounds import certify  # noqa: E402
from specgrad.bounds.search.input_split import explain_open, search  # noqa: E402
from specgrad.bounds.search.input_split.explain_open import losses  # noqa: E402
from specgrad.bounds.search.neuron_split.subproblems import root_forward  # noqa: E402
from specgrad.properties.property import Alternative, Case, Property  # noqa: E402

ULP = 2.0**-23


def above(low: list[float], high: list[float], limit: Fraction) -> Property:
    """The only output stays above a limit."""
    ends = (tuple(map(Fraction, end)) for end in (low, high))
    return Property(len(low), 1, (Case(*ends, (Alternative(np.eye(1), (limit,)),)),))


def threefold() -> Any:
    return sg.trace(lambda x: x * np.float32([3.0]), (1,))


def test_one_input_that_rounding_decides_is_set_aside_and_the_rest_is_settled() -> None:
    """3x > 3 - 2**-24.4 for x from 1 on: true, and at x = 1 the product may be rounded by more than that."""
    limit = 3 - Fraction(3, 2**26)
    verdict = certify(threefold(), above([1.0], [1.0 + 8 * ULP], limit), seconds=ENDS)
    assert (verdict.verdict, verdict.unknown.rounding, verdict.unknown.more) == ("unknown", True, None)
    assert verdict.open_part.low == verdict.open_part.high == [1.0]
    assert 0.5 < verdict.unknown.settled < 1
    assert "rounding decides there: more time will not help" in verdict.reason
    beyond = certify(threefold(), above([1.0 + ULP], [1.0 + 8 * ULP], limit), seconds=ENDS)
    assert beyond.verdict == "holds"


def test_a_search_that_drops_what_is_stuck_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake: what is set aside is forgotten. Then 3x > 3, which is false at x = 1, would hold."""
    asked = above([1.0], [1.0 + 8 * ULP], Fraction(3))
    monkeypatch.setattr(search.OpenBoxes, "run_candidates", lambda self, network, case: None)
    monkeypatch.setattr("specgrad.bounds.search.certify.attack", lambda *_: None)
    assert certify(threefold(), asked, seconds=ENDS).verdict == "unknown"
    monkeypatch.setattr(search.DeferredBoxes, "add", lambda self, *boxes: None)
    assert certify(threefold(), asked, seconds=ENDS).verdict == "holds"


def test_rounding_that_hides_an_exact_bound_is_named() -> None:
    """(x + 2**27) - 2**27 >= 0 > -1/2, and float32 has no digits left."""
    graph = sg.trace(lambda x: sg.relu(x + 2.0**27) - 2.0**27, (1,))
    verdict = certify(graph, above([0.0], [1.0], Fraction(-1, 2)), seconds=0.5)
    assert (verdict.verdict, verdict.unknown.rounding) == ("unknown", True)


def network() -> Any:
    rng = np.random.default_rng(0)
    w = [rng.normal(size=s).astype(np.float32) for s in ((6, 3), (5, 6), (1, 5))]
    return sg.trace(
        lambda x: sg.linear(w[2], None, sg.tanh(sg.linear(w[1], None, sg.relu(sg.linear(w[0], None, x))))), (3,)
    )


def test_the_time_that_is_left_is_guessed_from_what_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose clock stops it after a few batches."""
    graph = network()
    values = [float(np.ravel(graph(x))[0]) for x in np.random.default_rng(1).uniform(-1, 1, (4000, 3))]
    limit = min(values) - 0.05 * (max(values) - min(values))
    ticks = iter([*[0.0] * 7, *[np.inf] * 99])
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(search, "BATCH", 4)
    verdict = certify(graph, above([-1.0] * 3, [1.0] * 3, Fraction(limit)), seconds=1e6)
    why = verdict.unknown
    assert verdict.verdict == "unknown"
    assert 0 < why.settled < 1
    assert why.more is None or why.more == pytest.approx(why.seconds * (1 - why.settled) / why.settled)
    assert verdict.to_json()["unknown"]["margin"] == verdict.open_part.margin < 0
    assert [b["input"] for b in verdict.to_json()["unknown"]["box"]] == sorted(
        {cut.cell for cut, _ in verdict.open_part.cuts}
    )
    assert verdict.reason.startswith(f"{verdict.problems:,} subproblems were not enough")


def test_losses_of_the_layers_are_what_the_bound_is_away_from_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sum is row.y at the corner less the bound; the values are those of the graph over NumPy."""
    graph = network()
    root = root_forward(graph, -np.ones(3), np.ones(3))
    seen: list[Any] = []
    original = explain_open.backward
    monkeypatch.setattr(explain_open, "backward", lambda *a: (seen.append(original(*a)), seen[-1])[1])
    row = torch.ones(1, dtype=torch.float64)
    excluded, (name, share) = losses(root, root.state, row, -1e9)
    ops = {n.name: n.op.name for n in graph.nodes}
    assert excluded
    assert ops[name] in ("relu", "tanh")
    assert 0.3 < share <= 1
    assert float(seen[0]) <= min(float(np.ravel(graph(x))[0]) for x in np.random.default_rng(2).uniform(-1, 1, (99, 3)))
    assert losses(root, root.state, row, 1e9)[0] is False


def test_a_layer_that_is_the_only_bent_one_loses_all() -> None:
    w = np.random.default_rng(3).normal(size=(4, 2)).astype(np.float32)
    graph = sg.trace(lambda x: sg.sum(sg.relu(sg.linear(w, None, x))) * np.float32([1.0]), (2,))
    root = root_forward(graph, -np.ones(2), np.ones(2))
    name, share = losses(root, root.state, -torch.ones(1, dtype=torch.float64), 0.0)[1]
    assert {n.name: n.op.name for n in graph.nodes}[name] == "relu"
    assert share == pytest.approx(1, abs=1e-6)
