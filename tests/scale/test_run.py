"""Plans from store to store: values, resume after any kill, what is refused, passes, dask."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
import store_networks
from specgrad.errors import ParameterError, ShapeError, SpecgradError, UnsupportedError
from specgrad.scale import tiles, zarr_arrays
from specgrad.scale.jobs import JobError, status
from specgrad.scale.record_store import Records
from specgrad.scale.run_plan import damaged
from specgrad.scale.zarr_arrays import cast
from store_networks import classes, given, plan_at, read, stored

pytest.importorskip("tensorstore")
pytest.importorskip("zarr")
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.usefixtures("little_optimised")]
SIZE = 40
FAST: dict[str, Any] = {"executor": "loop", "engine": "numpy"}


@pytest.fixture
def source(tmp_path: Path) -> str:
    return stored(tmp_path / "x.zarr", given(SIZE)[1], (1, 1, 8, 8), (1, 1, 16, 16))


def files(folder: Path | str) -> dict[str, bytes]:
    """The cells as they lie there; metadata have a number of their own, and locks are none."""
    paths = [p for p in Path(folder).rglob("*") if p.is_file() and "c" in p.relative_to(folder).parts]
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths if not p.name.endswith(".__lock")}


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize("engine", ["numpy", "torch", "jax"])
def test_the_outputs_are_those_of_the_graph(engine: str, source: str, tmp_path: Path) -> None:
    if engine != "numpy":
        pytest.importorskip(engine)
    params, x = given(SIZE)
    plan, targets = plan_at(SIZE, (16, 24)), [str(tmp_path / f"{name}.zarr") for name in "yzc"]
    state = plan.run(params, source, *targets, executor="loop", engine=engine)
    assert (state.count, state.run) == (6, 6)
    for path, whole in zip(targets, plan.graph(params, x.astype(np.float32)), strict=True):
        got = read(path)
        assert got.dtype == (np.int64 if "c.zarr" in path else np.float32)
        assert np.array_equal(got, whole)
    assert damaged(f"{targets[0]}.job") == {}


def test_whole_numbers_of_a_smaller_type(source: str, tmp_path: Path) -> None:
    params, x = given(SIZE)
    plan = plan_at(SIZE, 16, classes)
    plan.run(params, source, tmp_path / "c.zarr", dtype="uint8", **FAST)
    assert read(tmp_path / "c.zarr").dtype == np.uint8
    assert np.array_equal(read(tmp_path / "c.zarr"), plan.graph(params, x.astype(np.float32)))


def test_tensors_and_arrays_as_arguments(tmp_path: Path) -> None:
    """Weights may be anyone's tensors, and data may be an array: it is saved with them."""
    torch = pytest.importorskip("torch")
    params, x = given(SIZE)
    plan = plan_at(SIZE, 16, classes)
    tensors = {name: torch.from_numpy(a).requires_grad_() for name, a in params.items()}
    plan.run(tensors, x.astype(np.float32), tmp_path / "c.zarr", executor="loop")
    assert np.array_equal(read(tmp_path / "c.zarr"), plan.graph(params, x.astype(np.float32)))


def test_a_graph_of_open_sizes(tmp_path: Path) -> None:
    graph = sg.trace(lambda x: sg.max_pool(x, (3,), stride=1, padding=1), (1, "N"))
    x = np.arange(10, dtype=np.float32).reshape(1, 10) % 4
    plan = tiles(graph.at(N=10), 4)
    plan.run(stored(tmp_path / "x.zarr", x, (1, 5)), tmp_path / "y.zarr", **FAST)
    assert np.array_equal(read(tmp_path / "y.zarr"), graph(x))


def test_a_target_that_is_there(source: str, tmp_path: Path) -> None:
    """Tiles of several whole chunks, without shards; float64 holds every float32."""
    params, x = given(SIZE)
    plan = plan_at(SIZE, 16, lambda p, x: store_networks.net(p, x)[0])
    stored(tmp_path / "y.zarr", np.ones((1, 2, SIZE, SIZE)), (1, 1, 4, 8))
    plan.run(params, source, tmp_path / "y.zarr", **FAST)
    assert np.array_equal(read(tmp_path / "y.zarr"), plan.graph(params, x.astype(np.float32)))


def test_floats_are_rounded_where_asked(tmp_path: Path) -> None:
    x = np.array([[[1 + 2.0**-20, 3.0, 0.0, 2.0**-30]]], np.float32)
    plan = tiles(sg.trace(lambda x: sg.mul(x, 1), x.shape), 2)
    source = stored(tmp_path / "x.zarr", x, (1, 1, 2))
    plan.run(source, tmp_path / "y.zarr", dtype="float16", **FAST)
    assert read(tmp_path / "y.zarr").tolist() == [[[1.0, 3.0, 0.0, 0.0]]]


# --- going on ---------------------------------------------------------------------------------------------------------


def test_only_the_output_whose_type_was_asked_for_is_rounded(tmp_path: Path) -> None:
    """NumPy computes the first in float64, since its constant is: nobody asked for float32."""
    x = np.float32([[[1, 2, 3, 4]]])
    graph = sg.trace(lambda x: (x * np.full((4,), 0.1), sg.argmax(x, axis=1)), x.shape)
    plan, source = tiles(graph, 2), stored(tmp_path / "x.zarr", x, (1, 1, 2))
    for types, fails in ((["float32", "uint8"], False), ([None, "uint8"], True)):
        targets = [tmp_path / f"{name}{fails}.zarr" for name in "yz"]
        if fails:
            with pytest.raises(JobError, match="give dtype='float32' to round"):
                plan.run(source, *targets, dtype=types, **FAST)
        else:
            plan.run(source, *targets, dtype=types, **FAST)


@pytest.mark.parametrize(
    ("cells", "dtype", "bad"),
    [
        (np.float64([2.0**63]), "int64", "9.22337"),
        (np.float64([np.nan]), "int64", "nan"),
        (np.float64([256.0]), "uint8", "256"),
        (np.float64([-1.0]), "uint8", "-1"),
        (np.int64([300]), "uint8", "300"),
    ],
)
def test_no_number_is_wrapped(cells: np.ndarray, dtype: str, bad: str) -> None:
    with pytest.raises(ParameterError, match=bad):
        cast(cells, np.dtype(dtype), True, "y")
    with pytest.raises(ParameterError, match="to round"):
        cast(np.int64([2**53 + 1]), np.dtype("float64"), False, "y")


def test_it_goes_on_where_it_was(source: str, tmp_path: Path) -> None:
    params, x = given(SIZE)
    plan, target = plan_at(SIZE, 8, classes), str(tmp_path / "c.zarr")

    def stop(state: Any) -> None:
        if state.run == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan.run(params, source, target, progress=stop, **FAST)
    state = plan.run(params, source, target, **FAST)
    assert (state.count, state.before, state.run) == (25, 7, 18)
    assert plan.run(params, source, target, **FAST).run == 0
    assert np.array_equal(read(target), plan.graph(params, x.astype(np.float32)))


def test_chunks_of_fill_values_have_a_record_and_no_file(tmp_path: Path) -> None:
    """So a chunk's existence is no record."""
    x = np.zeros((1, 1, 8), np.float32)
    x[..., 4:] = 1
    plan, source = tiles(sg.trace(lambda x: sg.mul(x, 2), x.shape), 4), stored(tmp_path / "x.zarr", x, (1, 1, 4))
    assert plan.run(source, tmp_path / "y.zarr", **FAST).run == 2
    assert list(files(tmp_path / "y.zarr")) == ["c/0/0/1"]
    assert plan.run(source, tmp_path / "y.zarr", **FAST).run == 0
    assert read(tmp_path / "y.zarr").tolist() == [[[0, 0, 0, 0, 2, 2, 2, 2]]]


def child(folder: Path, size: int, tile: int, executor: str) -> subprocess.Popen:
    words = [sys.executable, store_networks.__file__, str(folder), str(size), str(tile), executor]
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        words, env={**os.environ, **path}, start_new_session=True, stdout=subprocess.PIPE, text=True
    )


def descendants(pid: int) -> list[int]:
    import psutil

    try:
        return [c.pid for c in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_it_is_the_same_bytes(kills: int, tmp_path: Path) -> None:
    """kill -9 of the parent, of a worker or of all; then to the end; beside a run that nobody disturbed."""
    pytest.importorskip("psutil")
    rng, size, tile = random.Random(kills), 64, 8
    params, x = given(size)
    plan = plan_at(size, tile, classes)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        stored(tmp_path / name / "x.zarr", x, (1, 1, 16, 16))
    plan.run(params, tmp_path / "one/x.zarr", tmp_path / "one/y.zarr", dtype="uint8", **FAST)
    done = tmp_path / "two/y.zarr.job/results"
    for _ in range(kills):
        runner, wanted = child(tmp_path / "two", size, tile, "processes"), rng.randrange(1, 64 // kills + 1)
        before = len(os.listdir(done)) if done.is_dir() else 0
        while runner.poll() is None and (len(os.listdir(done)) if done.is_dir() else 0) < before + wanted:
            time.sleep(0.01)
        workers = descendants(runner.pid)
        how = rng.choice(("parent", "worker", "all"))
        for pid in {"parent": [], "worker": workers[-1:], "all": workers}[how]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if how != "worker":
            runner.kill()
        runner.communicate()
    last = child(tmp_path / "two", size, tile, "loop")
    last.communicate()
    assert last.returncode == 0
    assert files(tmp_path / "two/y.zarr") == files(tmp_path / "one/y.zarr") != {}
    assert np.array_equal(read(tmp_path / "two/y.zarr"), plan.graph(params, x.astype(np.float32)))
    assert damaged(tmp_path / "two/y.zarr.job") == {}


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_folder_of_another_plan(source: str, tmp_path: Path) -> None:
    params, _ = given(SIZE)
    target = str(tmp_path / "c.zarr")
    plan_at(SIZE, 16, classes).run(params, source, target, **FAST)
    others: list[tuple[Any, Any, dict[str, Any], str]] = [
        (plan_at(SIZE, 16, classes), given(SIZE, seed=1)[0], {}, r"identity.plan.weights is "),
        (
            plan_at(SIZE, (16, 32), classes),
            params,
            {},
            r"count is 9 there, 6 here; identity.plan.size.* \[16, 32\] here",
        ),
        (plan_at(SIZE, 16, lambda p, x: classes(p, sg.mul(x, 2))), params, {}, r"identity.plan.graph is "),
        (plan_at(SIZE, 16, classes), params, {"compute": "float64"}, 'identity.plan.compute is "float32" there'),
    ]
    for plan, weights, options, text in others:
        with pytest.raises(JobError, match=f"holds another job: {text}"):
            plan.run(weights, source, target, **FAST, **options)
    other = stored(tmp_path / "x2.zarr", given(SIZE)[1], (1, 1, 8, 8))
    with pytest.raises(JobError, match=r"identity.sources.x.address is .*x.zarr"):
        plan_at(SIZE, 16, classes).run(params, other, target, **FAST)
    assert sorted(os.listdir(f"{target}.job")) == ["job.json", "plan", "probe", "results"]  # nothing of theirs


def test_a_target_that_was_made_anew(source: str, tmp_path: Path) -> None:
    """Its records say that all is done, and nothing is there."""
    params, _ = given(SIZE)
    target = str(tmp_path / "c.zarr")
    plan_at(SIZE, 16, classes).run(params, source, target, **FAST)
    shutil.rmtree(target)
    with pytest.raises(JobError, match=r"identity.targets.\w+.metadata is"):
        plan_at(SIZE, 16, classes).run(params, source, target, **FAST)


def test_stores_that_do_not_fit(source: str, tmp_path: Path) -> None:
    params, x = given(SIZE)
    plan = plan_at(SIZE, 16, classes)
    small = stored(tmp_path / "small.zarr", x[..., :39], (1, 1, 8, 8))
    chunked = stored(tmp_path / "chunked.zarr", np.zeros((1, SIZE, SIZE), np.int64), (1, 12, 16))
    narrow = stored(tmp_path / "narrow.zarr", np.zeros((1, SIZE, SIZE), np.uint8), (1, 16, 16))
    wide = stored(tmp_path / "wide.zarr", x.astype(np.float64), (1, 1, 8, 8))
    new = tmp_path / "new.zarr"
    cases: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
        (small, new, {}, ShapeError, r"x has shape \(1, 1, 40, 39\); the graph takes \(1, 1, 40, 40\)"),
        (source, small, {}, ShapeError, r"has shape \(1, 1, 40, 39\); the graph gives \(1, 40, 40\)"),
        (source, chunked, {}, ShapeError, "shards of 12 cells along axis 1; tiles begin at multiples of 16"),
        (source, narrow, {}, ParameterError, "is int64 and its store uint8: give dtype='uint8'"),
        (source, narrow, {"dtype": "int16"}, ParameterError, "holds uint8; dtype='int16' was asked for"),
        (wide, new, {}, ParameterError, "x is float64 and would be rounded to float32: give compute='float32'"),
        (source, new, {"engine": "tf"}, ParameterError, "engine must be one of torch, jax, numpy; got 'tf'"),
        (source, new, {"dtype": ["uint8"] * 2}, ParameterError, "one for each of 1 outputs"),
        (source, np.zeros(3), {}, ParameterError, "target 0 must be an address; got ndarray"),
        (tmp_path / "none.zarr", new, {}, FileNotFoundError, "x: .*none.zarr"),
    ]
    for where, target, options, kind, text in cases:
        with pytest.raises(kind, match=text):
            plan.run(params, where, target, **{**FAST, "retries": 0, **options})
    with pytest.raises(ShapeError, match=r"takes 2 arguments \(p, x\), then 1 targets; got 2 in all"):
        plan.run(params, source, **FAST)
    with pytest.raises(ShapeError, match=r"p\.down must have shape"):
        plan.run({**params, "down": np.zeros(3)}, source, new, **FAST)


def test_float64_does_not_hold_every_int64(tmp_path: Path) -> None:
    source = stored(tmp_path / "x.zarr", np.array([[[2**53 + 1, 1]]]), (1, 1, 2))
    plan = tiles(sg.trace(lambda p, x: p["w"] * x, {"w": (1,)}, (1, 1, 2)), 2)
    with pytest.raises(ParameterError, match="x is int64 and would be rounded to float64"):
        plan.run({"w": np.float64([2])}, source, tmp_path / "y.zarr", **FAST)


def test_a_cell_that_does_not_fit(tmp_path: Path) -> None:
    x = np.array([[[1.0, 2.0, 300.0, 4.0]]], np.float32)
    plan, source = tiles(sg.trace(lambda x: sg.mul(x, 1), x.shape), 2), stored(tmp_path / "x.zarr", x, (1, 1, 2))
    with pytest.raises(
        JobError, match=r"1 of 2 tiles have no result: tile 1: ParameterError.* has 300.0, which is no uint8"
    ):
        plan.run(source, tmp_path / "y.zarr", dtype="uint8", **FAST)


def test_a_source_that_cannot_be_read_here_and_there(source: str, tmp_path: Path) -> None:
    """The tile is named; when the cause is gone, it is tried again where asked: the file was written since."""
    params, x = given(SIZE)
    plan, target = plan_at(SIZE, 16, classes), tmp_path / "c.zarr"
    part = next(p for p in sorted(Path(source, "c").rglob("*")) if p.is_file() and p.parts[-2:] == ("2", "2"))
    whole = part.read_bytes()
    part.write_bytes(whole[:-4] + b"torn")
    with pytest.raises(ParameterError, match=r"x cannot be read: .*c/0/0/2/2"):
        plan.run(params, source, target, **FAST)
    part.write_bytes(b"torn" + whole[4:])
    with pytest.raises(JobError, match=r"of 9 tiles have no result: tile \d: .*retry_crashed=True"):
        plan.run(params, source, target, **FAST)
    part.write_bytes(whole)
    with pytest.raises(JobError, match=r"x at .*x.zarr was changed after the job began: c/0/0/2/2\. With repair=True"):
        plan.run(params, source, target, retry_crashed=True, **FAST)
    plan.run(params, source, target, repair=True, **FAST)
    assert np.array_equal(read(target), plan.graph(params, x.astype(np.float32)))


# --- passes -----------------------------------------------------------------------------------------------------------


def normalised(x: Any) -> Any:
    with sg.scope("norm"):
        return sg.relu(sg.group_norm(x, 1))


def test_statistics_are_records_too(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 24, 24)).astype(np.float32)
    plan, source = tiles(sg.trace(normalised, x.shape), 8, passes=True), stored(tmp_path / "x.zarr", x, (1, 2, 8, 8))

    def stop(state: Any) -> None:
        if state.run == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # in the first pass
        plan.run(source, tmp_path / "y.zarr", progress=stop, **FAST)
    assert status(tmp_path / "y.zarr.job/pass-0").left == 4
    plan.run(source, tmp_path / "y.zarr", **FAST)
    expected = np.empty_like(x)
    for t in plan.measure(x):
        expected[t.box] = t(x[t.reads])
    assert np.array_equal(read(tmp_path / "y.zarr"), expected)
    assert np.allclose(expected, plan.graph(x), atol=1e-6)


def test_an_array_has_no_passes(tmp_path: Path, monkeypatch) -> None:
    x = np.ones((1, 2, 8, 8), np.float32)
    plan, source = tiles(sg.trace(normalised, x.shape), 4, passes=True), stored(tmp_path / "x.zarr", x, (1, 2, 8, 8))
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    with pytest.raises(UnsupportedError, match="every pass needs all tiles of the one before"):
        plan.run(source, tmp_path / "y.zarr", executor="array", workers=2, engine="numpy")
    plan.measure(x).run(source, tmp_path / "y.zarr", executor="array", workers=1, engine="numpy")
    assert np.array_equal(read(tmp_path / "y.zarr"), np.zeros_like(x))


# --- dask -------------------------------------------------------------------------------------------------------------


def test_lazy_arrays(source: str) -> None:
    da = pytest.importorskip("dask.array")
    params, x = given(SIZE)
    plan = plan_at(SIZE, (16, 24))
    whole = plan.graph(params, x.astype(np.float32))
    for data in (source, x, da.from_array(x, chunks=(1, 1, 7, 40))):
        arrays = plan.dask(params, data, engine="numpy")
        assert [a.chunks[-2:] for a in arrays[:2]] == [((16, 16, 8), (24, 16)), ((8, 8, 4), (12, 8))]
        for array, expected in zip(arrays, whole, strict=True):
            assert array.shape == expected.shape
            assert np.array_equal(array.compute(scheduler="synchronous"), expected)
    part = plan.dask(params, source, engine="numpy")[0][..., 3:9, 20:30]
    assert np.array_equal(part.compute(scheduler="threads"), whole[0][..., 3:9, 20:30])


def test_two_plans_in_many_threads(source: str) -> None:
    dask = pytest.importorskip("dask")
    params, x = given(SIZE)
    plans = [plan_at(SIZE, tile, classes) for tile in (8, 20)]
    arrays = [plan.dask(params, source, engine="numpy") for plan in plans]
    whole = plans[0].graph(params, x.astype(np.float32))
    for got in dask.compute(*arrays, *arrays, scheduler="threads", num_workers=8):
        assert np.array_equal(got, whole)


def test_lazy_arrays_after_passes() -> None:
    pytest.importorskip("dask.array")
    x = np.random.default_rng(0).normal(size=(1, 2, 24, 24))
    plan = tiles(sg.trace(normalised, x.shape), 8, passes=True)
    with pytest.raises(UnsupportedError, match=r"call plan\.measure with the same arguments first"):
        plan.dask(x, engine="numpy")
    array = plan.measure(x).dask(x, engine="numpy")
    assert np.allclose(array.compute(scheduler="synchronous"), plan.graph(x))


def test_lazy_arrays_are_not_rounded() -> None:
    """NumPy computes in float64 where a constant is, and dask was told float32."""
    pytest.importorskip("dask.array")
    x = np.float32([[[1, 2, 3, 4]]])
    plan = tiles(sg.trace(lambda x: x * np.full((4,), 0.1), x.shape), 2)
    with pytest.raises(ParameterError, match="is computed in float64: give compute='float64'"):
        plan.dask(x, engine="numpy").compute(scheduler="synchronous")
    array = plan.dask(x, engine="numpy", compute="float64")
    assert np.array_equal(array.compute(scheduler="synchronous"), x.astype(float) * 0.1)


# --- an object store --------------------------------------------------------------------------------------------------


def test_from_bucket_to_bucket(s3: str, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("obstore")
    params, x = given(SIZE)
    plan, key = plan_at(SIZE, 16, classes), tmp_path.name

    def spec(name: str) -> dict[str, Any]:
        bucket = {"driver": "s3", "bucket": "shards", "endpoint": os.environ["AWS_ENDPOINT_URL"]}
        return {"driver": "zarr3", "kvstore": {**bucket, "aws_region": "us-east-1", "path": f"{key}/{name}/"}}

    import tensorstore

    array = tensorstore.open(
        spec("x"),
        dtype="uint8",
        shape=x.shape,
        chunk_layout=tensorstore.ChunkLayout(chunk_shape=(1, 1, 8, 8)),
        create=True,
    ).result()
    array.write(x).result()
    with pytest.raises(ParameterError, match="a target that is a spec has no folder beside it: give folder="):
        plan.run(params, spec("x"), spec("y"), **FAST)
    with pytest.raises(ParameterError, match=r"x lacks a chunk: c/0/0/0/0, cells .* fill_missing=True reads its fill"):
        plan.run(params, spec("x"), spec("y"), folder=f"{s3}/{key}/job", **FAST)
    state = plan.run(params, spec("x"), spec("y"), folder=f"{s3}/{key}/job", fill_missing=True, **FAST)
    assert state.run == 9
    assert plan.run(params, spec("x"), spec("y"), folder=f"{s3}/{key}/job", **FAST).run == 0
    got = tensorstore.open(spec("y")).result().read().result()
    assert np.array_equal(got, plan.graph(params, x.astype(np.float32)))
    x[..., 30:, 30:] += 1
    array.write(x).result()  # other ETags
    with pytest.raises(JobError, match=r"x at .* was changed after the job began: c/0/0/3/3 and 3 more files"):
        plan.run(params, spec("x"), spec("y"), folder=f"{s3}/{key}/job", **FAST)
    assert set(damaged(f"{s3}/{key}/job")) == {4, 5, 7, 8}
    assert (
        plan.run(params, spec("x"), spec("y"), folder=f"{s3}/{key}/job", repair=True, fill_missing=True, **FAST).run
        == 4
    )
    got = tensorstore.open(spec("y")).result().read().result()
    assert np.array_equal(got, plan.graph(params, x.astype(np.float32)))
    with pytest.raises(JobError, match=r"reshape at .* holds tiles of another job .* choose another target"):
        plan.run(given(SIZE, seed=1)[0], spec("x"), spec("y"), folder=f"{s3}/{key}/other", **FAST)
    assert not Records(f"{s3}/{key}/other").has("job.json")


# --- planted mistakes -------------------------------------------------------------------------------------------------


def test_cells_that_changed_are_named(source: str, tmp_path: Path) -> None:
    params, _ = given(SIZE)
    plan, target = plan_at(SIZE, 16, classes), tmp_path / "c.zarr"
    plan.run(params, source, target, **FAST)
    array = zarr_arrays.Store("c", str(target))
    box = plan[5].boxes[plan.outputs[0]]
    array.write(box, 1 - array.read(box).result())
    assert damaged(f"{target}.job") == {5: "reshape holds other cells than were written"}


def test_a_record_before_its_cells_would_be_seen(source: str, tmp_path: Path, monkeypatch) -> None:
    """Whoever writes the record first and is killed in between leaves a tile without cells."""
    params, x = given(SIZE)
    plan, target, right = plan_at(SIZE, 16, classes), tmp_path / "c.zarr", zarr_arrays.Store.write

    def killed(self: Any, box: Any, cells: Any) -> None:
        if box[-1][0] != 32:
            right(self, box, cells)

    monkeypatch.setattr(zarr_arrays.Store, "write", killed)
    plan.run(params, source, target, **FAST)
    monkeypatch.undo()
    assert plan.run(params, source, target, **FAST).run == 0
    assert [*damaged(f"{target}.job")] == [k for k in range(9) if k % 3 == 2]
    assert not np.array_equal(read(target), plan.graph(params, x.astype(np.float32)))


def test_errors_are_ours(source: str, tmp_path: Path) -> None:
    with pytest.raises(SpecgradError, match="weights and sources are uint8: say compute"):
        tiles(sg.trace(lambda x: sg.mul(x, 1), (1, 1, SIZE, SIZE)), 8).run(source, tmp_path / "y.zarr", **FAST)
