"""Files: what is written is read back; what is wrong is refused."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from fractions import Fraction
from random import Random

import numpy as np
import pytest

import specgrad as sg
from laws import graph_of, lift
from slices import counts
from specgrad.graph.files.save import from_json, to_json
from specgrad.op import REGISTRY

pytestmark = pytest.mark.quick  # of `pytest -m quick`, under a minute in all


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_operator_survives(name: str, tmp_path) -> None:
    op = REGISTRY[name]
    for seed in range(20):
        case = op.cases(Random(seed))
        if op.index_args == (0,):
            return
        graph, args = graph_of(op, case)
        data = json.loads(json.dumps(to_json(graph)))
        again = from_json(data, {graph.nodes[i].name: a for i, a in graph.constants.items()})
        assert again.nodes == graph.nodes
        before, after = (np.asarray(g(*lift(op, args))) for g in (graph, again))
        assert [str(v) for v in before.flat] == [str(v) for v in after.flat]


def test_files_with_float_and_exact_constants(tmp_path) -> None:
    floats, exact = np.arange(6, dtype=np.float32).reshape(2, 3), sg.exact([Fraction(1, 3), 2])
    for constant, x in ((floats, np.ones((2, 3), dtype=np.float32)), (exact, sg.exact([1, 1]))):
        graph = sg.grad(sg.trace(lambda v, c=constant: sg.sum(v * v * c), x.shape))
        sg.save(graph, tmp_path / "net.json")
        found = sg.load(tmp_path / "net.json")(x)
        assert (found == 2 * constant).all()
        assert found.dtype == constant.dtype


def test_params_keep_their_structure(tmp_path) -> None:
    params = {
        "conv.1": {"w": np.ones((2, 3)), "b": np.zeros(2, dtype=np.float32)},
        "rest": (np.arange(3.0), np.ones(())),
    }
    sg.save_params(params, tmp_path / "p.safetensors")
    found = sg.load_params(tmp_path / "p.safetensors")
    assert list(found) == ["conv.1", "rest"]
    assert isinstance(found["rest"], tuple)
    for (path, a), (other, b) in zip(sg.tree.walk(params), sg.tree.walk(found), strict=True):
        assert path == other
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


def document() -> dict:
    return json.loads(json.dumps(to_json(sg.trace(lambda x: sg.max_pool(x, (2,)) + 1, (4,)))))


def broken(change) -> dict:
    data = document()
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="pickle"), "format must be 'specgrad-graph'; got 'pickle'"),
        (lambda d: d.update(version=99), "version 99 is not readable here; this is version 2"),
        (lambda d: d["nodes"][1].update(op="evil"), "operator 'evil' of node max_pool is unknown"),
        (lambda d: d["nodes"][1].update(shape=[3]), "node max_pool says shape (3,); its operator gives (2,)"),
        (lambda d: d["nodes"][1].update(args=[1]), "node 1 refers to 1, which does not come before it"),
        (lambda d: d["nodes"][1]["params"].update(alpha=1), "max_pool [P5]: attribute alpha is unknown"),
        (lambda d: d["nodes"][1].update(params={}), "max_pool [P5]: attribute window is missing"),
        (lambda d: d["nodes"][1]["params"]["window"]["window"][0].update(stride=0), "[W1]"),
        (lambda d: d["nodes"][1]["params"]["window"]["window"][0].update(out=9), "[W2]"),
        (lambda d: d["nodes"][1]["params"]["window"]["window"][0].update(lo=1.5), "window sizes must be integers"),
        (lambda d: d["nodes"][2].update(name="max_pool"), "two nodes are called 'max_pool'; names must be unique"),
        (lambda d: d["nodes"][2].update(name=["add"]), "the name of node 2 must be text; got list"),
        (lambda d: d["nodes"][1].update(kind="complex"), "must hold real numbers or an index; got 'complex'"),
        (lambda d: d["nodes"][0].update(shape=[10**30]), "must be a list of sizes up to"),
        (lambda d: d["nodes"][0].update(shape=["4"]), "must be a list of sizes up to"),
        (
            lambda d: d["nodes"][2]["args"].append({"number": {"fraction": "1e999999999"}}),
            "up to 4000 digits; got '1e9",
        ),
        (lambda d: d["nodes"][2]["args"].append({"number": {"fraction": "1/0"}}), "a fraction must be whole numbers"),
        (
            lambda d: d["nodes"][2]["args"].append({"number": {"fraction": "\u0661"}}),
            "a fraction must be whole numbers",
        ),
        (lambda d: d.update(outputs=[7]), "an input or output refers to 7, which is no node"),
        (lambda d: d.pop("names"), "is not a specgrad graph"),
        (lambda d: d.update(nodes=3), "is not a specgrad graph"),
    ],
)
def test_broken_files_are_refused(change, message: str, tmp_path) -> None:
    path = tmp_path / "net.json"
    path.write_text(json.dumps(broken(change)))
    with pytest.raises(sg.SpecgradError) as caught:
        sg.load(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("count", counts(600, 20_000))
def test_random_damage_never_escapes_as_another_error(count: int, tmp_path) -> None:
    """Bytes of a good file changed at random: it loads, or is refused with one of our errors."""
    text = json.dumps(document())
    rng = Random(0)
    path = tmp_path / "net.json"
    for _ in range(count):
        letters = list(text)
        for _ in range(rng.randint(1, 3)):
            letters[rng.randrange(len(letters))] = rng.choice('0129{}[]",:-ex ')
        path.write_text("".join(letters))
        with suppress(sg.SpecgradError):
            sg.load(path)


def test_missing_arrays_are_named(tmp_path) -> None:
    graph = sg.trace(lambda x: x * np.ones(3), (3,))
    sg.save(graph, tmp_path / "net.json")
    (tmp_path / "net.safetensors").unlink()
    with pytest.raises(sg.SpecgradError, match="the array of constant is missing"):
        sg.load(tmp_path / "net.json")


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_disk_or_a_folder_that_nobody_may_write_leaves_the_old_pair(
    number: int, step: int, tmp_path, monkeypatch
) -> None:
    """Whichever of the four steps fails (two flushes, two exchanges), the error is the system's own."""
    old, new = (sg.trace(lambda x, w=w: x * w, (2,)) for w in (np.ones(2), np.full(2, 3.0)))
    path = tmp_path / "graph.json"
    sg.save(old, path)
    before = sorted(p.name for p in tmp_path.iterdir())
    count = iter(range(4))

    def failing(original):
        def call(*args):
            if next(count) == step:
                raise OSError(number, "no")
            return original(*args)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(os.fsync))
        patch.setattr(os, "replace", failing(os.replace))
        with pytest.raises(OSError, match="no") as caught:
            sg.save(new, path)
    assert caught.value.errno == number
    assert sg.load(path)(np.ones(2)).tolist() in ([1.0, 1.0], [3.0, 3.0])
    left = {p.name for p in tmp_path.iterdir()} - set(before)
    assert not [name for name in left if name.endswith(".tmp")]
    sg.save(new, path)
    assert sg.load(path)(np.ones(2)).tolist() == [3.0, 3.0]
    assert sorted(p.name for p in tmp_path.iterdir()) == before
