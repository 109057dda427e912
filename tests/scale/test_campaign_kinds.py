"""Every kind of campaign: verdicts by hand, findings once each and the smallest, tiles equal to the whole."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
import specgrad as sg  # noqa: E402
from campaigns import ASKING, rows_of, save_net, save_pool, written  # noqa: E402
from specgrad.check import conformance  # noqa: E402
from specgrad.errors import SpecgradError  # noqa: E402
from specgrad.scale import jobs  # noqa: E402
from specgrad.scale.campaign import KINDS, collect, estimate, read_spec, run  # noqa: E402
from specgrad.scale.campaign.collect import Collected  # noqa: E402
from specgrad.scale.campaign.kind import line_of  # noqa: E402
from specgrad.scale.job_status import write_record  # noqa: E402
from specgrad.scale.record_store import Records  # noqa: E402

# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_properties_times_models(proving: Path) -> None:
    """By hand: on the box, relu(x0 - x1) <= 3/4, and relu(x0 / 2) <= 1/2."""
    run(read_spec(proving), executor="loop")
    verdicts = {(r["model"], r["property"]): r["verdict"] for r in rows_of(proving)}
    right = {("a.onnx", "p.vnnlib"): "holds", ("a.onnx", "q.vnnlib"): "violated"}
    assert verdicts == {**right, ("b.onnx", "p.vnnlib"): "holds", ("b.onnx", "q.vnnlib"): "holds"}
    asked = {r["verdict"]: r["asked"] for r in rows_of(proving)}
    assert asked == {"holds": None, "violated": ["torch breaks it", "onnxruntime breaks it"]}
    result = collect(read_spec(proving))
    assert (result.verdict, [f.name for f in result.findings]) == ("findings", ["a-q.py"])
    result.write(proving.parent / "cases")
    shown = subprocess.run([sys.executable, "cases/a-q.py"], cwd=proving.parent, capture_output=True, text=True)
    y = json.loads(shown.stdout.splitlines()[1].removeprefix("gives "))
    assert y[1] >= 0.625, shown


def test_samples_and_lists_of_instances(proving: Path) -> None:
    """Around (1, 1/2) outputs are 3/2 and 1/2: they meet at x1 = 0, so 1/4 is safe and 3/4 is not."""
    folder = proving.parent
    np.savez(folder / "data.npz", x=np.array([[1, 0.5], [1, 0.6]], np.float32), label=np.array([0, 0]))
    around = 'kind = "certify"\nfolder = "{}"\nmodels = ["a.onnx"]\nsamples = "data.npz"\neps = "{}"\neach = 2\n'
    verdicts = {}
    for name, eps in (("near", "1/4"), ("far", "3/4")):
        spec = written(folder, around.format(name, eps))
        run(read_spec(spec), executor="loop")
        verdicts[name] = [r["verdict"] for r in rows_of(spec)]
    assert verdicts == {"near": ["holds"] * 2, "far": ["violated"] * 2}
    (found,) = collect(read_spec(spec)).findings  # two samples, one pair of classes: the nearer one is kept
    nearest = min(rows_of(spec), key=lambda r: r["distance"])
    assert (found.detail, found.times, found.row["property"]) == ("0 becomes 1", 2, nearest["property"])
    (folder / "i.csv").write_text("a.onnx,p.vnnlib,20\n./b.onnx, q.vnnlib\n")
    spec = written(folder, 'kind = "certify"\nfolder = "list"\ninstances = "i.csv"\n')
    run(read_spec(spec), executor="loop")
    assert [(r["model"], r["verdict"]) for r in rows_of(spec)] == [("a.onnx", "holds"), ("b.onnx", "holds")]
    for line in ("a.onnx", "a.onnx,p.vnnlib,soon", "a.onnx,p.vnnlib,-1", "a.onnx,p.vnnlib,1,2"):
        (folder / "i.csv").write_text(f"a.onnx,p.vnnlib\n{line}\n")
        with pytest.raises(SpecgradError, match=r"i.csv, line 2: must be model,property or model,property,seconds"):
            read_spec(spec).job()


def test_models_times_runtimes(tmp_path: Path) -> None:
    """A wrong layer is a finding; a file of no format, and an assumed size that does not fit, are open rows."""
    save_net(tmp_path / "net.onnx", [[1, 1], [1, -1]], "cells")
    save_pool(tmp_path / "pool.onnx", 5)
    save_pool(tmp_path / "long.onnx", 9)
    (tmp_path / "bad.onnx").write_bytes(b"\xff\x00")
    names = '["net.onnx", "pool.onnx", "long.onnx", "bad.onnx"]'
    text = f'kind = "audit"\nfolder = "run"\nmodels = {names}\nruntimes = ["onnxruntime", "onnx-reference"]\n'
    spec = written(tmp_path, text)
    run(read_spec(spec), executor="loop")
    result = collect(read_spec(spec))
    assert result.verdict == "findings"
    verdicts = {(r["model"], r["runtime"]): (r["verdict"], r["reason"]) for r in rows_of(spec)}
    assert verdicts["pool.onnx", "onnxruntime"][0] == verdicts["long.onnx", "onnxruntime"][0] == "differs"
    assert verdicts["pool.onnx", "onnx-reference"][0] == "exact"
    assert verdicts["net.onnx", "onnxruntime"] == ("refuses", None)  # 16 cells are assumed, and it takes 2
    assert verdicts["bad.onnx", "onnxruntime"][0] == "cannot tell"
    assert [(f.times, f.row["layer"]) for f in result.findings] == [(2, "pool")]  # one operator, one finding
    closed = written(tmp_path, text.replace('"run"', '"closed"').replace(names, '["net.onnx"]') + "shapes.x = [1, 2]")
    run(read_spec(closed), executor="loop")
    assert {r["verdict"] for r in rows_of(closed)} <= {"exact", "rounding"}
    assert collect(read_spec(closed)).verdict == "ok"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_open_rows_leave_the_whole_open(kind: Any) -> None:
    """However many are good; a finding decides all the same, and without a good row nothing is shown."""
    verdict = lambda *rows: Collected(kind, 1, 1, (), {"group": Counter(rows)}, ()).verdict
    for good in kind.GOOD:
        assert verdict(good) == "ok"
        assert [verdict(good, good, left) for left in kind.OPEN] == ["cannot tell"] * len(kind.OPEN)
        assert [verdict(good, *kind.OPEN, bad) for bad in kind.BAD] == ["findings"] * len(kind.BAD)
    assert verdict() == verdict(*kind.OPEN) == "cannot tell"


def test_findings_are_those_of_the_command(tmp_path: Path) -> None:
    """`specgrad conformance` with the same operators, seed and count, counted by itself."""
    spec = written(tmp_path, ASKING.format(seeds=1).replace("questions = 8", "questions = 16"))
    run(read_spec(spec), executor="loop")
    result = collect(read_spec(spec))
    single = conformance("onnxruntime", operators=["relu", "max_pool"], count=16)
    assert result.counts == {o: Counter({k: n for k, n in c.items() if n}) for o, c in single.counts.items()}
    assert {f.name for f in result.findings} == set(single.scripts())
    assert sum(f.times for f in result.findings) == single.counts["max_pool"]["differs"]
    result.write(tmp_path / "cases")
    for name in sorted(single.scripts())[:2]:
        shown = subprocess.run([sys.executable, str(tmp_path / "cases" / name)], capture_output=True, text=True).stdout
        must_be, got = (line.split(maxsplit=2)[-1] for line in shown.splitlines())
        assert must_be.removeprefix("be ") != got


def replace_rows(folder: Path, shard: int, row: dict[str, Any]) -> None:
    """Put one row in the place of a shard's, with the digest that belongs to it."""
    (folder / "results" / str(shard)).unlink()
    fingerprint = jobs.status(folder).about["fingerprint"]
    assert write_record(Records(folder), f"results/{shard}", line_of(row), fingerprint)


def test_a_finding_that_passes_when_asked_again_is_said(tmp_path: Path) -> None:
    """As of a runtime that errs now and then: the row stays, there is no script."""
    spec = written(tmp_path, ASKING.format(seeds=1).replace('"relu", "max_pool"', '"relu"'))
    run(read_spec(spec), executor="loop")
    row = json.loads(next(jobs.results(tmp_path / "run"))[1].splitlines()[3])
    row |= {"verdict": "differs", "sort": ["differs", "value", "value", "False", "False"], "complexity": [1, 0, 0, 0]}
    replace_rows(tmp_path / "run", 0, {**row, "number": 0, "question": "relu(x)"})
    (found,) = collect(read_spec(spec)).findings
    assert (found.what, found.name) == ("relu(x)", "")
    assert found.detail.startswith("asked again: ")


@pytest.mark.parametrize("keep", [min, max])
def test_the_smallest_of_each_sort_is_kept(keep: Any, tmp_path: Path, monkeypatch) -> None:
    """Rows by hand; keeping the largest is a planted mistake that this sees."""
    save_net(tmp_path / "net.onnx", [[1, 1], [1, -1]])
    text = 'kind = "audit"\nfolder = "run"\nmodels = ["net.onnx"]\nruntimes = ["onnxruntime"]\ninputs = 4\n'
    spec = written(tmp_path, text)
    run(read_spec(spec), executor="loop")
    lengths = {0: 30, 1: 10, 2: 20, 3: 40}
    for i, length in lengths.items():
        row = json.loads(dict(jobs.results(tmp_path / "run"))[i])
        row |= {"verdict": "differs", "operator": "relu" if i < 3 else "linear", "script": "#" * length}
        replace_rows(tmp_path / "run", i, row)
    monkeypatch.setattr(sys.modules["specgrad.scale.campaign.collect"], "min", keep, raising=False)
    found = {f.row["operator"]: (f.times, len(f.script)) for f in collect(read_spec(spec)).findings}
    assert (found == {"relu": (3, 10), "linear": (1, 40)}) == (keep is min)


def test_scripts_are_not_written_over_what_others_wrote(proving: Path) -> None:
    run(read_spec(proving), executor="loop")
    result, cases = collect(read_spec(proving)), proving.parent / "cases"
    result.write(cases)
    result.write(cases)
    (cases / "a-q.py").write_text("mine")
    with pytest.raises(FileExistsError):
        result.write(cases)
    result.write(cases, force=True)


# --- tiles ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiling(tmp_path: Path) -> Path:
    """A saved network on integers, in tiles of 8 x 16; its image lies in a zarr array."""
    pytest.importorskip("tensorstore")
    pytest.importorskip("zarr")
    from store_networks import given, net, stored

    params, x = given(40)
    sg.save(sg.trace(lambda x: net(params, x)[0], (1, 1, "H=40", "W=40")), tmp_path / "net.json")
    stored(tmp_path / "x.zarr", x, (1, 1, 8, 8))
    text = 'kind = "tiles"\nfolder = "run"\nmodel = "net.json"\nsource = "x.zarr"\ntargets = ["y.zarr"]\n'
    return written(tmp_path, text + 'tile = [8, 16]\ncompute = "float32"\nengine = "numpy"\n')


def test_tiles_from_store_to_store(tiling: Path) -> None:
    """Equal to the network on the whole image, over exact numbers."""
    from store_networks import given, net, read

    spec = read_spec(tiling)
    answer = estimate(spec)
    assert (answer.count, len(answer.seconds), answer.crashed) == (15, 3, {})
    assert not (tiling.parent / "y.zarr").exists()
    assert run(spec, executor="loop").run == 15
    params, x = given(40)
    exact = net({name: sg.exact(a) for name, a in params.items()}, sg.exact(x.astype(int)))[0]
    assert np.array_equal(read(tiling.parent / "y.zarr"), exact.astype(float))
    assert run(spec, executor="loop").before == 15
    result = collect(spec)
    assert (result.verdict, result.counts) == ("ok", {"net.json": Counter(written=15)})


def test_a_target_of_another_type_is_refused(tiling: Path) -> None:
    """As `plan.run` refuses it: float16 would round what nobody asked to be rounded."""
    from store_networks import stored

    stored(tiling.parent / "y.zarr", np.zeros((1, 2, 40, 40), np.float16), (1, 2, 8, 16))
    with pytest.raises(SpecgradError, match="is float32 and its store float16"):
        run(read_spec(tiling), executor="loop")
    with pytest.raises(SpecgradError, match="holds float16; dtype='float64' was asked for"):
        run(read_spec(written(tiling.parent, tiling.read_text() + 'dtype = "float64"\n')), executor="loop")


def test_a_damaged_tile_is_found(tiling: Path) -> None:
    zarr = pytest.importorskip("zarr")
    run(read_spec(tiling), executor="loop")
    zarr.open_array(str(tiling.parent / "y.zarr"), mode="r+")[0, 1, 20, 20] += 1
    result = collect(read_spec(tiling))
    assert result.verdict == "findings"
    assert [f.what for f in result.findings] == ["tile 7"]  # row 2, column 1 of 5 x 3
    assert result.total == Counter(written=14, damaged=1)
    assert run(read_spec(tiling), executor="loop", repair=True).run == 1
    assert collect(read_spec(tiling)).verdict == "ok"
    zarr.open_array(str(tiling.parent / "x.zarr"), mode="r+")[0, 0, 20, 20] += 1
    (finding, *_) = collect(read_spec(tiling)).findings
    assert finding.detail.startswith("x holds other cells than were read; run the campaign with --repair")
    with pytest.raises(SpecgradError, match="was changed after the job began: c/0/0/2/2"):
        run(read_spec(tiling), executor="loop")
    assert run(read_spec(tiling), executor="loop", repair=True).run > 0
    assert collect(read_spec(tiling)).verdict == "ok"


def test_a_row_that_was_edited_is_refused(tiling: Path) -> None:
    run(read_spec(tiling), executor="loop")
    record = tiling.parent / "run/results/3"
    record.write_bytes(record.read_bytes().replace(b"written", b"certain"))
    with pytest.raises(SpecgradError, match=r"the record results/3 of .*run was changed"):
        collect(read_spec(tiling))
    assert run(read_spec(tiling), executor="loop", repair=True).run == 1
    assert collect(read_spec(tiling)).verdict == "ok"


def test_a_campaign_takes_no_target_of_another(tiling: Path) -> None:
    run(read_spec(tiling), executor="loop")
    other = written(tiling.parent, tiling.read_text().replace('folder = "run"', 'folder = "two"') + "axes = [2, 3]\n")
    with pytest.raises(SpecgradError, match="holds tiles of another job"):
        run(read_spec(other), executor="loop")


def test_a_campaign_takes_no_source_that_lacks_a_chunk(tiling: Path) -> None:
    (tiling.parent / "x.zarr/c/0/0/3/1").unlink()
    with pytest.raises(SpecgradError, match=r"x lacks a chunk: c/0/0/3/1, cells .* fill_missing"):
        run(read_spec(tiling), executor="loop")
    spec = written(tiling.parent, tiling.read_text().replace('"run"', '"two"') + "fill_missing = true\n")
    assert run(read_spec(spec), executor="loop").run == 15


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("x.zarr", "z.zarr", "no zarr array z.zarr"),
        ("net.json", "none.json", "no file none.json"),
        ('["y.zarr"]', '["y.zarr", "z.zarr"]', "the model has 1 outputs, and targets names 2"),
        ("[8, 16]", "[8, -16]", "tile must be a whole number from 1, or a list of them"),
        ('"float32"', '"int128"', "compute must be one of float32"),
        ('compute = "float32"', "", "say compute='float32' or another"),
        ('"numpy"', '"mxnet"', "engine must be one of torch, jax, numpy"),
    ],
)
def test_tiles_are_refused_by_name(old: str, new: str, words: str, tiling: Path) -> None:
    with pytest.raises(SpecgradError) as caught:
        _ = read_spec(written(tiling.parent, tiling.read_text().replace(old, new))).job().identity
    assert words in str(caught.value)
