"""certify --splits: a tree of cuts that another tool found, proven or refused with the leaf that is open.

The network is y = relu(x_0 + x_1), relu(x_0 - x_1); while x_1 > 0 the first is larger.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("flint")
pytest.importorskip("torch")
pytest.importorskip("onnx")

NEAR = "--input one.npy --label 0 --eps 49/100"  # x_0 in 0.51..1.49, x_1 in 0.01..0.99
SIGN = {"relu": 0, "cell": 1, "below": None, "above": None}
HALVES = {"input": 1, "at": 0.5, "below": None, "above": None}


@pytest.fixture
def place(folder: Path) -> Path:
    np.save("one.npy", np.array([[1, 0.5]], np.float32))
    return folder


def written(place: Path, tree: Any, **changed: Any) -> str:
    data = {"format": "specgrad-splits", "version": 1, "cases": [[{"alternatives": [0], "tree": tree}]], **changed}
    (place / "tree.json").write_text(json.dumps(data))
    return f"certify net.onnx {NEAR} --splits tree.json"


@pytest.mark.parametrize("tree", [SIGN, {**HALVES, "below": SIGN}], ids=["relu", "both"])
def test_a_tree_is_proven_and_its_certificate_is_valid(place: Path, run, tree: Any) -> None:
    code, out, _ = run(f"{written(place, tree)} --certificate new.json --json")
    data = json.loads(out)
    assert (code, data["verdict"], data["certificate"]) == (0, "holds", {"file": "new.json"})
    assert 0 < data["margins"][0][0] <= 0.02
    code, out, _ = run(f"check-certificate new.json net.onnx {NEAR} --json")
    (alternative,) = json.loads(out)["cases"][0]["alternatives"]
    assert (code, alternative["leaves"]) == (0, 3 if "input" in tree else 2)
    code, out, _ = run(f"check-certificate new.json net.onnx {NEAR.replace('49/100', '1/2')}")
    assert (code, "box does not hold" in out) == (1, True)


def test_an_open_leaf_is_named(place: Path, run) -> None:
    """With x_1 down to -1/4 it is false where x_1 < 0."""
    near = NEAR.replace("49/100", "3/4")
    command = written(place, {**HALVES, "at": 0.25}).replace(NEAR, near)
    code, out, _ = run(f"{command} --seconds 0.5 --json")
    data = json.loads(out)
    assert (code, data["verdict"], data["problems"]) == (2, "unknown", 0)
    assert "alternative 0 is not excluded at the leaf X_1 <= 0.25 (part 1): the proven margin is -" in data["reason"]
    code, out, _ = run(f"{command} --seconds 0.5 --certificate new.json")
    assert (code, "X_1 <= 0.25" in out, "no certificate" in out) == (2, True, True)


@pytest.mark.parametrize(
    ("tree", "changed", "why"),
    [
        ({"input": 2, "at": 0, "below": None, "above": None}, {}, "input must be a number from 0 to 1; got 2"),
        ({"input": 0, "at": 9, "below": None, "above": None}, {}, "part 0 is cut at 9.0 of input 0"),
        ({"input": 0, "at": "x", "below": None, "above": None}, {}, "at must be a number that float32 holds"),
        ({"input": 0, "below": None, "above": None}, {}, "at must be a number that float32 holds; got None"),
        ({"input": 0, "at": 1, "below": None}, {}, "a tree is null, or has below, above and one of"),
        ({"relu": 1, "cell": 0, "below": None, "above": None}, {}, "relu must be a number from 0 to 0"),
        ({"node": "none", "cell": 0, "below": None, "above": None}, {}, "node must be the name of one node"),
        ([], {}, "a tree is null, or has below"),
        (SIGN, {"version": 2}, "format and version must be specgrad-splits 1"),
        (SIGN, {"cases": []}, "cases must be a list of 1"),
        (SIGN, {"cases": [[{"alternatives": [1], "tree": None}]]}, "numbers from 0 to 0"),
        (SIGN, {"cases": [[{"alternatives": [0], "tree": None}] * 2]}, "stands there twice"),
        (SIGN, {"more": 1}, "an object with format, version and cases"),
    ],
)
def test_what_is_no_tree_is_refused(place: Path, run, tree: Any, changed: dict, why: str) -> None:
    code, out, err = run(written(place, tree, **changed))
    assert (code, why in (err or out)) == (2 if "part 0" in why else 3, True), (out, err)


def test_files_that_are_no_text(place: Path, run) -> None:
    assert run(f"certify net.onnx {NEAR} --splits none.json")[0] == 3
    (place / "tree.json").write_text("[" * 100_000)
    code, _, err = run(f"certify net.onnx {NEAR} --splits tree.json")
    assert (code, "nested too deeply" in err) == (3, True)
    (place / "tree.json").write_bytes(b"\xff\x00")
    assert run(f"certify net.onnx {NEAR} --splits tree.json")[0] == 3
    for number in ("1e9999", "-1e999999999", "1" * 2000):  # gigabytes as fractions
        command = written(place, {"input": 0, "at": 0.5, "below": None, "above": None})
        (place / "tree.json").write_text((place / "tree.json").read_text().replace("0.5", number))
        code, _, err = run(command)
        assert (code, "that is not read" in err) == (3, True)
    command = written(place, SIGN).replace(" --eps 49/100", " --largest")
    code, _, err = run(command)
    assert (code, "--splits proves one property" in err) == (3, True)


# --- winners of windows -----------------------------------------------------------------------------------------------

POOLED = "--input two.npy --label 0 --eps 1/4"
TAP = {"max_pool": "pool", "cell": 0, "tap": 0, "below": None, "above": None}


@pytest.fixture
def pooled(place: Path) -> Path:
    """y = max(x_0, x_1), (x_0 + x_1)/2 - 1/2: the maximum is larger, whoever wins."""
    import specgrad as sg

    half = np.full((1, 2), 0.5, np.float32)

    def net(x: Any) -> Any:
        pool = sg.max_pool(sg.reshape(x, (1, 2)), (2,))
        return sg.concat([pool, sg.sub(sg.linear(half, None, x), np.float32([[0.5]]))], 1)

    graph = sg.trace(net, (1, 2))
    sg.save(graph, place / "pooled.json")
    np.save("two.npy", np.array([[1, 0.75]], np.float32))
    return place


def by_winner(pooled: Path, **changed: Any) -> str:
    position = next(
        i
        for i, node in enumerate(json.loads((pooled / "pooled.json").read_text())["nodes"])
        if node["op"] == "max_pool"
    )
    tree = {**TAP, "max_pool": position, **changed}
    return written(pooled, tree).replace(f"net.onnx {NEAR}", f"pooled.json {POOLED}")


def test_a_tree_of_winners_is_proven(pooled: Path, run) -> None:
    code, out, _ = run(f"{by_winner(pooled)} --certificate new.json --json")
    assert (code, json.loads(out)["verdict"]) == (0, "holds")
    code, out, _ = run(f"check-certificate new.json pooled.json {POOLED} --json")
    assert (code, json.loads(out)["cases"][0]["alternatives"][0]["leaves"]) == (0, 2)
    assert "taps" in json.loads((pooled / "new.json").read_text())["cases"][0]["trees"][0]


@pytest.mark.parametrize(
    ("changed", "code", "why"),
    [
        ({"tap": 2}, 3, "tap must be one of 0, 1, which window 0 reads; got 2"),
        ({"tap": "x"}, 3, "tap"),
        ({"cell": 7}, 3, "cell"),
        ({"max_pool": 0}, 3, "max_pool"),
        ({"max_pool": "none"}, 3, "must be the name of one node"),
    ],
)
def test_what_is_no_winner_is_refused(pooled: Path, run, changed: dict, code: int, why: str) -> None:
    got, out, err = run(by_winner(pooled, **changed))
    assert (got, why in (err or out)) == (code, True), (got, out, err)
