"""Records are created once, whole or not at all: folders, obstore's own stores, and S3 over HTTP."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from specgrad.errors import ParameterError, UnsupportedError
from specgrad.scale.jobs import results, run
from specgrad.scale.record_store import Records


@pytest.fixture(params=["folder", "file", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "folder":
        return tmp_path / "new" / "folder"
    pytest.importorskip("obstore")
    if request.param == "file":
        return f"file://{tmp_path}/new/store"
    if request.param == "memory":
        from obstore.store import MemoryStore

        return MemoryStore()
    return f"{request.getfixturevalue('s3')}/{tmp_path.name}"


def test_created_once(place: Any) -> None:
    mine, yours = Records(place), Records(place)
    assert mine.get("results/3") is None
    assert (mine.has("results/3"), mine.names("results")) == (False, set())
    assert mine.create("results/3", b"mine")
    assert not yours.create("results/3", b"yours")
    assert mine.create("results/14", b"")
    assert (yours.get("results/3"), yours.get("results/14"), yours.has("results/3")) == (b"mine", b"", True)
    assert mine.create("crashed/3", b"x")
    assert yours.names("results") == {"3", "14"}
    mine.set_aside("results/3")
    mine.set_aside("results/3")
    assert yours.names("results") == {"14"}
    (aside,) = yours.names("aside/results")
    assert yours.get(f"aside/results/{aside}") == b"mine"
    mine.check()
    yours.check()


def test_one_of_many_creates_it(place: Any) -> None:
    said: list[tuple[int, int]] = []

    def all_of_them(k: int) -> None:
        here = Records(place)
        said.extend((i, k) for i in range(20) if here.create(f"results/{i}", b"%d" % k * 1000))

    threads = [threading.Thread(target=all_of_them, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(i for i, _ in said) == list(range(20))
    assert dict(said) == {i: int(Records(place).get(f"results/{i}")[:1]) for i in range(20)}


def test_a_job_on_it(place: Any) -> None:
    assert run("shard_jobs:Cubes", {"count": 6}, place, executor="loop").run == 6
    assert dict(results(place)) == {i: b"%d\n" % i**3 for i in range(6)}


def test_what_was_begun_is_no_record(tmp_path: Path) -> None:
    """What kill -9 leaves of a folder's file, of obstore's, and of an editor's."""
    folder = tmp_path / "results"
    folder.mkdir()
    for name in (".3.0123456789abcdef.tmp", "4#1", "5~", "#6#"):
        (folder / name).write_bytes(b"half")
    assert Records(tmp_path).names("results") == set()
    assert Records(f"file://{tmp_path}").names("results") == set()
    assert Records(tmp_path).create("results/3", b"whole")


def test_names_stay_inside(tmp_path: Path) -> None:
    for name in ("../x", "/x", "a//b", "", ".hidden", "a/.b", "a b"):
        with pytest.raises(ParameterError, match="names are made of"):
            Records(tmp_path).create(name, b"")


def test_a_store_of_this_process_alone(tmp_path: Path) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    with pytest.raises(UnsupportedError, match="known to this process alone: give a folder or an address"):
        run("shard_jobs:Cubes", {"count": 6}, store, executor="processes")


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UnsupportedError, match="a file system without hard links"):
        Records(tmp_path).create("x", b"")
    assert os.listdir(tmp_path) == []


@pytest.mark.filterwarnings("ignore")
def test_a_store_that_overwrites_is_refused(monkeypatch) -> None:
    obstore = pytest.importorskip("obstore")
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda *a, mode, **k: put(*a, **k))
    with pytest.raises(UnsupportedError, match="overwrites what is to be created only if absent"):
        run("shard_jobs:Cubes", {"count": 6}, obstore.store.MemoryStore(), executor="loop")
