"""Sources that change, lack chunks or are flipped, and targets of another job: nothing is mixed, all is named."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.errors import FileError, ParameterError, UnsupportedError
from specgrad.scale import tile_job, tiles
from specgrad.scale.jobs import JobError, status
from specgrad.scale.record_store import Records
from specgrad.scale.run_plan import damaged
from specgrad.scale.stores import array_files
from specgrad.scale.stores.array_files import CLAIM, files_of, generations
from specgrad.scale.zarr_arrays import Store
from store_networks import classes, given, plan_at, read, stored

pytest.importorskip("tensorstore")
pytest.importorskip("zarr")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SIZE, TILE = 40, 16
FAST: dict[str, Any] = {"executor": "loop", "engine": "numpy"}


@pytest.fixture
def source(tmp_path: Path) -> str:
    return stored(tmp_path / "x.zarr", given(SIZE)[1], (1, 1, 8, 8), (1, 1, 16, 16))


def invert(source: str) -> Any:
    """Rewrite the whole source; return its new cells."""
    import zarr

    array = zarr.open_array(source)
    array[:] = 4 - array[:]
    return array[:]


def expected(x: Any) -> Any:
    """What no store took part in."""
    return plan_at(SIZE, TILE, classes).graph(given(SIZE)[0], x.astype(np.float32))


def run(source: str, target: Path, **options: Any) -> Any:
    return plan_at(SIZE, TILE, classes).run(given(SIZE)[0], source, target, **FAST, **options)


def stopped_after(count: int) -> Any:
    def stop(state: Any) -> None:
        if state.run == count:
            raise KeyboardInterrupt

    return stop


# --- a source that changes --------------------------------------------------------------------------------------------


def test_rewritten_between_kill_and_resume(source: str, tmp_path: Path) -> None:
    target = tmp_path / "c.zarr"
    with pytest.raises(KeyboardInterrupt):
        run(source, target, progress=stopped_after(4))
    x = invert(source)
    with pytest.raises(JobError, match=r"x at .*x\.zarr was changed after the job began: c/0/0/0/0 and 8 more files"):
        run(source, target)
    done = status(f"{target}.job").done
    assert len(done) == 4
    assert damaged(f"{target}.job") == dict.fromkeys(done, "x holds other cells than were read")
    state = run(source, target, repair=True)
    assert (state.before, state.run) == (0, 9)
    assert np.array_equal(read(target), expected(x))
    assert damaged(f"{target}.job") == {}


def test_rewritten_while_it_runs(source: str, tmp_path: Path) -> None:
    """No tile after it, and no crash is recorded: the run ends."""
    target = tmp_path / "c.zarr"

    def rewrite(state: Any) -> None:
        if state.run == 3:
            invert(source)

    with pytest.raises(JobError, match="was changed after the job began"):
        run(source, target, progress=rewrite)
    assert (len(status(f"{target}.job").done), len(status(f"{target}.job").crashed)) == (3, 0)


def test_rewritten_while_a_tile_reads_it(source: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Its cells may be of either: none of them is written."""
    right = Store.read

    def slow(self: Any, box: Any) -> Any:
        cells = right(self, box)
        cells.result()
        invert(source)
        return cells

    monkeypatch.setattr(Store, "read", slow)
    with pytest.raises(JobError, match="was changed after the job began"):
        run(source, tmp_path / "c.zarr")
    assert not (tmp_path / "c.zarr/c").exists()


def test_what_was_finished_is_told_too(source: str, tmp_path: Path) -> None:
    run(source, tmp_path / "c.zarr")
    assert run(source, tmp_path / "c.zarr").run == 0
    invert(source)
    with pytest.raises(JobError, match="was changed after the job began"):
        run(source, tmp_path / "c.zarr")


def test_an_element_of_an_array_looks_at_its_tiles(source: str, tmp_path: Path, monkeypatch: Any) -> None:
    """A thousand elements that list a hundred thousand files each would be a load."""
    options: dict[str, Any] = {"executor": "array", "workers": 9, "engine": "numpy"}
    plan, params = plan_at(SIZE, TILE, classes), given(SIZE)[0]
    for element, fails in ((0, False), (8, True)):
        monkeypatch.setenv("JOB_COMPLETION_INDEX", str(element))
        if fails:
            part = Path(source, "c/0/0/2/2")
            part.write_bytes(part.read_bytes())
            with pytest.raises(JobError, match=r"was changed after the job began: c/0/0/2/2\."):
                plan.run(params, source, tmp_path / "c.zarr", **options)
        else:
            plan.run(params, source, tmp_path / "c.zarr", **options)
    assert status(tmp_path / "c.zarr.job").done == {0}


def test_written_again_with_the_same_cells(source: str, tmp_path: Path) -> None:
    """A copy is another generation; repair reads it, and computes nothing again."""
    run(source, tmp_path / "c.zarr")
    shutil.copytree(source, tmp_path / "copy")
    shutil.rmtree(source)
    (tmp_path / "copy").rename(source)
    with pytest.raises(JobError, match="was changed after the job began"):
        run(source, tmp_path / "c.zarr")
    assert damaged(tmp_path / "c.zarr.job") == {}
    assert run(source, tmp_path / "c.zarr", repair=True).run == 0
    assert run(source, tmp_path / "c.zarr").run == 0


@pytest.mark.parametrize("kept", ["its dates", "nothing"])
def test_bytes_flipped_where_nothing_checks_them(kept: str, tmp_path: Path) -> None:
    """Stored as they are, without a checksum: the first read cannot know, every later look does.

    Who changes a file and sets its date back is seen by the second date that file systems keep.
    """
    import zarr

    x = given(SIZE)[1]
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=x.shape, chunks=(1, 1, 8, 8), dtype=x.dtype, compressors=None,
        config={"write_empty_chunks": True},
    )  # fmt: skip
    array[:] = x
    source, target = str(tmp_path / "x.zarr"), tmp_path / "c.zarr"
    run(source, target)
    path = tmp_path / "x.zarr/c/0/0/4/4"
    before, data = path.stat(), bytearray(path.read_bytes())
    data[-1] ^= 0x40
    with path.open("r+b") as file:
        file.write(data)
    if kept == "its dates":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(JobError, match=r"changed after the job began: c/0/0/4/4\."):
        run(source, target)
    assert set(damaged(f"{target}.job")) == {8}
    assert run(source, target, repair=True).run == 1
    assert np.array_equal(read(target), expected(read(source)))


def test_a_pass_that_read_other_cells(tmp_path: Path) -> None:
    """Everything after it is computed again: it was computed from its sum."""
    x = np.random.default_rng(0).normal(size=(1, 2, 24, 24)).astype(np.float32)
    plan = tiles(sg.trace(lambda x: sg.relu(sg.group_norm(x, 1)), x.shape), 8, passes=True)
    source, target = stored(tmp_path / "x.zarr", x, (1, 2, 8, 8)), tmp_path / "y.zarr"
    plan.run(source, target, **FAST)
    x[0, 0, 0, 0] += 100
    import zarr

    zarr.open_array(source)[:] = x
    folder = f"{target}.job"
    assert set(damaged(folder)) == set(damaged(f"{folder}/pass-0")) == {0}
    plan.run(source, target, repair=True, **FAST)
    fresh = tmp_path / "fresh.zarr"
    plan.run(source, fresh, **FAST)
    assert np.array_equal(read(target), read(fresh))
    assert np.allclose(read(target), plan.graph(x), atol=1e-5)


# --- chunks that are missing ------------------------------------------------------------------------------------------


def test_a_shard_that_was_not_uploaded(source: str, tmp_path: Path) -> None:
    os.remove(f"{source}/c/0/0/1/2")
    cells = r"c/0/0/1/2, cells \(\(0, 1\), \(0, 1\), \(16, 24\), \(32, 40\)\); an upload that is not finished\?"
    with pytest.raises(ParameterError, match=f"x lacks a chunk: {cells} fill_missing=True reads its fill value 0"):
        run(source, tmp_path / "c.zarr")
    assert not (tmp_path / "c.zarr/c").exists()
    run(source, tmp_path / "c.zarr", fill_missing=True)
    x = given(SIZE)[1]
    x[..., 16:32, 32:] = 0
    assert np.array_equal(read(tmp_path / "c.zarr"), expected(x))
    stored(tmp_path / "other.zarr", given(SIZE)[1], (1, 1, 8, 8), (1, 1, 16, 16))
    shutil.copy(tmp_path / "other.zarr/c/0/0/1/2", f"{source}/c/0/0/1/2")  # it arrives
    with pytest.raises(JobError, match=r"was changed after the job began: c/0/0/1/2\."):
        run(source, tmp_path / "c.zarr")


def test_a_chunk_that_a_shard_has_not(tmp_path: Path) -> None:
    """The file is there, and its index says of one chunk that there is none."""
    import zarr

    x = np.ones((1, 1, SIZE, SIZE), np.uint8)
    x[..., 8:16, 24:32] = 0
    zarr.create_array(tmp_path / "x.zarr", shape=x.shape, chunks=(1, 1, 8, 8), shards=(1, 1, 16, 16), dtype=x.dtype)[
        :
    ] = x
    with pytest.raises(ParameterError, match=r"c/0/0/0/1, cells \(\(0, 1\), \(0, 1\), \(8, 16\), \(24, 32\)\)"):
        run(str(tmp_path / "x.zarr"), tmp_path / "c.zarr")
    run(str(tmp_path / "x.zarr"), tmp_path / "c.zarr", fill_missing=True)
    assert np.array_equal(read(tmp_path / "c.zarr"), expected(x))


# --- targets ----------------------------------------------------------------------------------------------------------


def test_another_job_on_the_same_target(source: str, tmp_path: Path) -> None:
    """Another folder, another source with the same metadata: the attack overwrote all tiles of the first."""
    target, other = tmp_path / "c.zarr", str(tmp_path / "other.zarr")
    run(source, target, folder=tmp_path / "one")
    shutil.copytree(source, other)
    invert(other)
    before = read(target)
    with pytest.raises(JobError, match=r"reshape at .*c\.zarr holds tiles of another job .*choose another target"):
        run(other, target, folder=tmp_path / "two")
    assert not (tmp_path / "two/job.json").exists()
    assert np.array_equal(read(target), before)
    assert run(source, target, folder=tmp_path / "one").run == 0
    assert run(source, target, folder=tmp_path / "three").run == 9  # the same job has the same cells
    assert damaged(tmp_path / "one") == {}


def test_a_name_that_comes_between_look_and_claim_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other writes its name after this one has looked."""
    place = stored(tmp_path / "y.zarr", np.ones((1, SIZE, SIZE), np.int64), (1, 16, 16))
    store, looked = Store("y", place), array_files.refuse_other_job

    def late(there: Store, fingerprint: str) -> None:
        looked(there, fingerprint)
        if not Path(place, CLAIM).exists():
            Path(place, CLAIM).write_text(json.dumps({"job": "other", "sources": {}}))

    monkeypatch.setattr(array_files, "refuse_other_job", late)
    with pytest.raises(JobError, match="holds tiles of another job"):
        array_files.write_claim(store, {"job": "mine", "sources": {}})
    assert json.loads(Path(place, CLAIM).read_text())["job"] == "other"


def test_an_array_that_was_there_is_claimed_once(source: str, tmp_path: Path) -> None:
    target = stored(tmp_path / "y.zarr", np.ones((1, SIZE, SIZE), np.int64), (1, 16, 16))
    run(source, Path(target), folder=tmp_path / "one")
    assert json.loads(Path(target, CLAIM).read_text())["job"] == status(tmp_path / "one").about["fingerprint"]
    with pytest.raises(JobError, match="holds tiles of another job"):
        run(source, Path(target), folder=tmp_path / "two", compute="float64")


def test_of_two_jobs_that_begin_at_once_one_has_the_target(source: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Both have looked before either writes."""
    right = tile_job.present_generations

    def other_first(store: Any) -> Any:
        monkeypatch.setattr(tile_job, "present_generations", right)
        run(source, tmp_path / "c.zarr", folder=tmp_path / "one")
        return right(store)

    monkeypatch.setattr(tile_job, "present_generations", other_first)
    with pytest.raises(JobError, match="holds tiles of another job"):
        run(source, tmp_path / "c.zarr", folder=tmp_path / "two", compute="float64")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"job": 1, "sources": 2}', "\xff", "[" * 100_000])
def test_a_file_of_a_target_that_says_nothing(text: str, source: str, tmp_path: Path) -> None:
    run(source, tmp_path / "c.zarr")
    (tmp_path / "c.zarr" / CLAIM).write_bytes(text.encode("latin-1"))
    with pytest.raises(FileError, match=CLAIM):
        run(source, tmp_path / "c.zarr")


def test_a_target_that_lost_its_file(source: str, tmp_path: Path) -> None:
    """Which generation of the source its tiles are of is not known then."""
    target = tmp_path / "c.zarr"
    run(source, target)
    os.remove(target / CLAIM)
    os.remove(tmp_path / "c.zarr.job/results/3")
    x = invert(source)
    with pytest.raises(JobError, match=r"reshape at .*c\.zarr does not say whose it is, though tiles are done"):
        run(source, target)
    assert run(source, target, repair=True).run == 9
    assert np.array_equal(read(target), expected(x))


@pytest.mark.parametrize("anew", [[1], [0, 1, 2]])
def test_targets_that_were_made_anew(anew: list[int], source: str, tmp_path: Path) -> None:
    """By a program that begins with them, whose job was done long ago: zeros, and no tile was computed."""
    import zarr

    plan, (params, x) = plan_at(SIZE, TILE), given(SIZE)
    values = plan.graph(params, x.astype(np.float32))
    targets = [str(tmp_path / f"{k}.zarr") for k in range(3)]

    def make(k: int) -> None:
        v, dtype = values[k], ["float32", "float32", "int64"][k]
        chunks = (*v.shape[:-2], *[[16, 8, 16][k]] * 2)
        zarr.create_array(targets[k], shape=v.shape, chunks=chunks, dtype=dtype, overwrite=True)

    def right() -> list[bool]:
        return [bool(np.array_equal(read(t), v)) for t, v in zip(targets, values, strict=True)]

    for k in range(3):
        make(k)
    plan.run(params, source, *targets, **FAST)
    assert right() == [True] * 3
    for k in anew:
        make(k)
    with pytest.raises(JobError, match="does not say whose it is, though tiles are done: another array"):
        plan.run(params, source, *targets, **FAST)
    plan.run(params, source, *targets, **FAST, repair=True)
    assert right() == [True] * 3


def test_a_target_that_who_began_did_not_come_to_is_claimed(source: str, tmp_path: Path) -> None:
    """Killed between two targets, before the first tile: else the second would be anybody's."""
    plan, params = plan_at(SIZE, TILE), given(SIZE)[0]
    targets = [str(tmp_path / f"{k}.zarr") for k in range(3)]
    with pytest.raises(KeyboardInterrupt):
        plan.run(params, source, *targets, **FAST, progress=stopped_after(1))
    shutil.rmtree(targets[0] + ".job/results")
    os.remove(Path(targets[1], CLAIM))
    plan.run(params, source, *targets, **FAST)
    assert Path(targets[1], CLAIM).read_bytes() == Path(targets[0], CLAIM).read_bytes()


# --- repair -----------------------------------------------------------------------------------------------------------


def test_repair_computes_what_damaged_names(source: str, tmp_path: Path) -> None:
    """A deleted file of the target, an edited record, a record that is gone, a tile that was overwritten."""
    target, folder = tmp_path / "c.zarr", tmp_path / "c.zarr.job"
    run(source, target)
    right = read(target)
    os.remove(target / "c/0/0/1")
    record = folder / "results/4"
    record.write_bytes(record.read_bytes().replace(b'"crc32": ', b'"crc32": 1'))
    os.remove(folder / "results/6")
    store = Store("c", str(target))
    last = ((0, 1), (32, 40), (32, 40))
    store.write(last, 1 - store.read(last).result())
    said = damaged(folder)
    assert set(said) == {1, 4, 8}
    assert said[1] == said[8] == "reshape holds other cells than were written"
    assert "the record results/4 of" in said[4]
    assert run(source, target).run == 1  # what has a record is not looked at
    assert set(damaged(folder)) == {1, 4, 8}
    state = run(source, target, repair=True)
    assert (state.before, state.run) == (6, 3)
    assert damaged(folder) == {}
    assert np.array_equal(read(target), right)
    assert np.array_equal(right, expected(given(SIZE)[1]))
    assert len(os.listdir(folder / "aside/results")) == 3


def test_a_repair_that_is_killed_leaves_no_mix(source: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Half of the old tiles are set aside, and the other half would pass for tiles of the new source."""
    target, calls = tmp_path / "c.zarr", itertools.count()
    run(source, target)
    x, right = invert(source), Records.set_aside

    def killed(self: Any, name: str) -> None:
        if next(calls) == 4:
            raise KeyboardInterrupt
        right(self, name)

    monkeypatch.setattr(Records, "set_aside", killed)
    with pytest.raises(KeyboardInterrupt):
        run(source, target, repair=True)
    monkeypatch.undo()
    assert len(status(f"{target}.job").done) == 5
    with pytest.raises(JobError, match="was changed after the job began"):
        run(source, target)
    run(source, target, repair=True)
    assert np.array_equal(read(target), expected(x))


def test_a_plan_that_was_edited(source: str, tmp_path: Path) -> None:
    run(source, tmp_path / "c.zarr")
    about = tmp_path / "c.zarr.job/plan/about.json"
    about.write_bytes(about.read_bytes().replace(b'"relu"', b'"silu"'))
    os.remove(tmp_path / "c.zarr.job/results/3")
    with pytest.raises(JobError, match=r"the record plan/about\.json of .* was changed"):
        run(source, tmp_path / "c.zarr")


# --- files and generations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["default", "v2"])
@pytest.mark.parametrize("separator", ["/", "."])
def test_the_files_of_a_box_are_those_that_are_read(encoding: str, separator: str, tmp_path: Path) -> None:
    """Every other file is taken away, and the cells are those that were."""
    import zarr

    x = np.arange(1, 12 * 10 + 1, dtype=np.int16).reshape(12, 10)
    path = tmp_path / "x.zarr"
    zarr.create_array(
        path, shape=x.shape, chunks=(2, 3), shards=(4, 3), dtype=x.dtype,
        chunk_key_encoding={"name": encoding, "separator": separator},
    )[:] = x  # fmt: skip
    for box in (((0, 12), (0, 10)), ((3, 5), (2, 3)), ((4, 8), (9, 10)), ((11, 12), (0, 1))):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        store = Store("x", str(copy))
        names = files_of(store, box)
        stored_ones = [p for p in copy.rglob("*") if p.is_file() and p.name != "zarr.json"]
        assert set(names) <= {str(p.relative_to(copy)) for p in stored_ones}
        for p in stored_ones:
            if str(p.relative_to(copy)) not in names:
                p.unlink()
        (a, b), (c, d) = box
        assert np.array_equal(store.read(box).result(), x[a:b, c:d])
        for name in names:  # and none of them is too many
            (copy / name).rename(tmp_path / "held")
            assert not np.array_equal(store.read(box).result(), x[a:b, c:d])
            (tmp_path / "held").rename(copy / name)
        shutil.rmtree(copy)
    assert len(files_of(Store("x", str(path)))) == 12


def test_a_view_has_all_files(tmp_path: Path) -> None:
    """Where the names do not follow from the box, every file is looked at."""
    source = stored(tmp_path / "x.zarr", np.ones((4, 4), np.int16), (2, 2))
    kvstore = {"driver": "file", "path": f"{source}/"}
    view = {"driver": "zarr3", "kvstore": kvstore, "transform": {"input_inclusive_min": [0, 0]}}
    store = Store("x", view)
    assert files_of(store, ((0, 1), (0, 1))) == ["c/0/0", "c/0/1", "c/1/0", "c/1/1", "zarr.json"]
    half = {"driver": "downsample", "downsample_factors": [2, 2], "downsample_method": "stride"}
    store = Store("x", {**half, "base": {"driver": "zarr3", "kvstore": kvstore}})
    assert files_of(store, ((0, 1), (0, 1))) == ["c/0/0", "c/0/1", "c/1/0", "c/1/1", "zarr.json"]
    several = {"driver": "stack", "dtype": "int16", "layers": [view]}
    with pytest.raises(UnsupportedError, match="x is a view of other arrays: name the one that is stored"):
        files_of(Store("x", several))


def test_a_generation_is_another_after_every_way_to_write(source: str, tmp_path: Path) -> None:
    path, store = Path(source, "c/0/0/0/0"), Store("x", source)
    data, seen = path.read_bytes(), set()

    def in_place() -> None:
        with path.open("r+b") as file:
            file.write(data)

    def replaced() -> None:
        (tmp_path / "new").write_bytes(data)
        os.utime(tmp_path / "new", (1, 1))
        os.replace(tmp_path / "new", path)

    for write in (lambda: None, in_place, replaced, in_place, lambda: os.utime(path, (5, 5)), path.unlink):
        write()
        seen.add(generations(store, ["c/0/0/0/0"])["c/0/0/0/0"])
        __import__("time").sleep(0.02)
    assert len(seen) == 6
    assert "" in seen
    assert len({g for _, g in itertools.chain(generations(store, ["c/0/0/0/1"]).items())}) == 1
