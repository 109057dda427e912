"""Relus that read one number twice, or a number and its negative: no execution leaves what is proven of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import specgrad as sg  # noqa: E402
from claims import MODELS, SETTINGS, hunt  # noqa: E402
from networks import network  # noqa: E402
from specgrad.bounds import Box, crown  # noqa: E402
from specgrad.bounds.linear.propagation import backward, duplicate_relus  # noqa: E402
from specgrad.bounds.linear.relaxation.sparse_matrix import sparse_of  # noqa: E402
from specgrad.bounds.search.input_split.search import Boxes  # noqa: E402
from specgrad.bounds.search.neuron_split.subproblems import root_forward  # noqa: E402

CASES = [(name, model) for name in ("float32", "bfloat16", "float32 either way") for model in MODELS]


def escapes(name: str, model: str, seeds: Any, executions: int = 4) -> Any:
    setting = replace(SETTINGS[name], model=model)
    return hunt(((seed, network(seed, setting.form, "mirrored")) for seed in seeds), setting, executions)


@pytest.mark.parametrize(("name", "model"), CASES)
def test_no_execution_leaves_a_bound(name: str, model: str) -> None:
    start = 3 * CASES.index((name, model))
    found = escapes(name, model, range(start, start + 3))
    assert not found.escapes, str(found)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model"), CASES)
def test_long_hunt(name: str, model: str) -> None:
    """1,020 networks over all cases."""
    found = escapes(name, model, range(1000, 1170), 8)
    assert not found.escapes, str(found)


def test_most_of_these_networks_have_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    original = duplicate_relus._match_rows
    monkeypatch.setattr(duplicate_relus, "_match_rows", lambda rows: (seen.append(original(rows)), seen[-1])[1])
    escapes("float32", "fused", range(20), 0)
    assert len([t for t in seen if t is not None]) > 15


# --- planted mistakes -------------------------------------------------------------------------------------------------


def _free(state: Any, i: int, pairs: Any) -> Any:
    """The mistake: cells that are computed apart are taken for the same number."""
    fold = FOLD(state, i, pairs)
    return fold._replace(pair_deviation=0 * fold.pair_deviation, fold_cost=0 * fold.fold_cost)


def _without_constants(state: Any, i: int) -> Any:
    """The mistake: rows are compared, what is added to them is not."""
    rows = ROWS(state, i)
    return None if rows is None else rows[:, :-1]


def _equal(rows: Any) -> Any:
    """The mistake: the negative of a number is taken for the number."""
    pairs = PAIRED(rows)
    return None if pairs is None else pairs._replace(sign=pairs.sign.abs())


FOLD, ROWS, PAIRED = duplicate_relus.make_fold, duplicate_relus._affine_rows, duplicate_relus._match_rows


@pytest.mark.parametrize(("model", "soon"), [("node", 2), ("fused", 9)])
def test_errors_of_both_cells_count(model: str, soon: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward, "make_fold", _free)
    assert any(escapes("float32", model, [seed], 12).escapes for seed in (soon, *range(60)))


def test_rows_that_differ_in_their_constants_are_no_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    w, b, v = np.float32([[1, 2], [-1, -2]]), np.float32([1, 1]), np.float32([[1, -1]])
    graph = sg.trace(lambda x: sg.linear(v, None, sg.relu(sg.linear(w, b, x))), (2,))
    exact = -4.0  # at (-1, -1): relu(-2) - relu(4)

    def holds() -> bool:
        box = crown(graph, Box(-np.ones(2), np.ones(2)), deployed=False).outputs
        return bool(box.low[0] <= exact)

    assert holds()
    monkeypatch.setattr(duplicate_relus, "_affine_rows", _without_constants)
    assert not holds()


def test_a_sign_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_relus, "_match_rows", _equal)
    assert any(escapes("float32", "fused", [seed]).escapes for seed in range(10))


# --- what it is for ---------------------------------------------------------------------------------------------------


def larger(a: int, b: int, count: int) -> np.ndarray:
    """max(a, b) = (relu(s) - relu(-s) + relu(d) + relu(-d))/2 with s = a + b, d = a - b: the rows s, -s, d, -d."""
    rows = np.zeros((4, count), dtype=np.float32)
    rows[:, a], rows[:, b] = (1, -1, 1, -1), (1, -1, -1, 1)
    return rows


def tree() -> tuple[Any, Any]:
    """The largest of four lines, by two levels of pairs; and the same by its definition."""
    w, b = np.float32([[1, 0.5], [-1, 0.25], [0.5, -1], [0.25, 1]]), np.float32([0, 0.5, -0.5, 0.25])
    half = np.float32([[0.5, -0.5, 0.5, 0.5]])
    first = np.concatenate([larger(0, 1, 4), larger(2, 3, 4)])
    both = np.kron(np.eye(2, dtype=np.float32), half)

    def net(x: Any) -> Any:
        y = sg.linear(both, None, sg.relu(sg.linear(first, None, sg.linear(w, b, x))))
        return sg.linear(half, None, sg.relu(sg.linear(larger(0, 1, 2), None, y)))

    return sg.trace(net, (2,)), lambda x: (x @ w.T + b).max(-1)


def widths(graph: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, float]:
    """The box of the output, and how much wider it is where every relu has its own lines."""
    box = crown(graph, Box(-np.ones(2), np.ones(2))).outputs
    monkeypatch.setattr(backward, "find_duplicates", lambda state, i: None)
    apart = crown(graph, Box(-np.ones(2), np.ones(2))).outputs
    return box, float((apart.high[0] - apart.low[0]) / (box.high[0] - box.low[0]))


def test_a_number_that_is_written_with_two_relus_is_that_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """relu(z) - relu(-z) - relu(z + 10) = -10, where z > -10."""
    w, b, v = np.float32([[1, 2], [-1, -2], [1, 2]]), np.float32([0, 0, 10]), np.float32([[1, -1, -1]])
    graph = sg.trace(lambda x: sg.linear(v, None, sg.relu(sg.linear(w, b, x))), (2,))
    box, wider = widths(graph, monkeypatch)
    assert (float(box.low[0]), float(box.high[0])) == (pytest.approx(-10, rel=1e-5), pytest.approx(-10, rel=1e-5))
    assert wider > 1e4


def test_a_maximum_that_is_written_with_pairs_of_relus_is_bounded_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, largest = tree()
    box, wider = widths(graph, monkeypatch)
    values = largest(np.stack(np.meshgrid(*[np.linspace(-1, 1, 41)] * 2), -1).reshape(-1, 2))
    assert box.low[0] <= values.min()
    assert values.max() <= box.high[0]
    assert wider > 1.05


def test_cells_that_cancel_are_not_narrowed() -> None:
    """Of eight cells in the first level two are left, of four in the second one."""
    graph, _ = tree()
    root = root_forward(graph, -np.ones(2), np.ones(2))
    boxes = Boxes(root, torch.ones((1, 1), dtype=torch.float64), torch.zeros(1, dtype=torch.float64), [0])
    assert [len(n.cells) for n in boxes.narrowed] == [2, 1]


@pytest.mark.parametrize("seed", range(5))
def test_a_matrix_of_few_weights_is_that_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = torch.from_numpy(rng.integers(-3, 4, (40, 30)) * (rng.random((40, 30)) < 0.05) * 1.0)
    thin, a = sparse_of(matrix, share=1), torch.from_numpy(rng.integers(-9, 10, (2, 3, 40)) * 1.0)
    assert torch.equal(thin.adjoint(a), a @ matrix)
    assert sparse_of(torch.ones((40, 30))) is None


def test_sums_of_two_rows_have_no_weights() -> None:
    """x + y of two shapes: linear, of two sources, and no matrix."""
    graph = sg.trace(lambda x: sg.relu(sg.reshape(x, (2, 1)) + sg.reshape(x, (1, 2))), (2,))
    box = crown(graph, Box(np.zeros(2), np.ones(2))).outputs
    assert float(box.high.max()) == pytest.approx(2, rel=1e-6)
