"""Campaigns over datasets: every sample once, whichever file and shard it lies in; percentiles, and the worst."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")
from campaigns import save_net, save_pool, written
from specgrad.check import preserve
from specgrad.errors import FileError, SpecgradError
from specgrad.scale.campaign import CampaignError, collect, read_spec, run
from specgrad.scale.campaign.datasets import digest_of_samples, open_dataset
from specgrad.scale.campaign.sample_summary import PERCENTILES, SampleSummary
from specgrad.scale.jobs import crashes, results

SPEC = """kind = "preserve"
folder = "run"
model = "net.onnx"
data = "data"
each = 7
worst = 5
"""


def samples(count: int, cells: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.1, 1, (count, cells)).astype(np.float32)


def npy_folder(folder: Path, x: np.ndarray) -> None:
    folder.mkdir()
    for name, part in zip(("c", "a", "b"), (x[11:], x[:4], x[4:11]), strict=True):
        np.save(folder / f"{name}.npy", part)
    (folder / "labels.txt").write_text("not read")


def tar_folder(folder: Path, x: np.ndarray) -> None:
    folder.mkdir()
    for name, first, stop in (("shard-0.tar", 0, 5), ("shard-1.tar", 5, len(x))):
        members = [
            (f"{k:06}.{kind}", data) for k in range(first, stop) for kind, data in (("cls", b"3"), ("npy", npy(x[k])))
        ]
        archived(folder / name, members)


def archived(path: Path, members: Any) -> None:
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def npy(x: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, x)
    return out.getvalue()


def zarr_array(folder: Path, x: np.ndarray) -> None:
    zarr = pytest.importorskip("zarr")
    pytest.importorskip("tensorstore")
    zarr.create_array(str(folder), data=x, chunks=(4, *x.shape[1:]))


KINDS_OF_DATA = {"npy": npy_folder, "tar": tar_folder, "zarr": zarr_array}


@pytest.mark.parametrize("kind", KINDS_OF_DATA)
def test_every_range_of_every_dataset(kind: str, tmp_path: Path) -> None:
    """In the order of names, across the ends of files, cell by cell."""
    x = samples(17, 3)
    KINDS_OF_DATA[kind](tmp_path / "data", x)
    data = open_dataset("data", tmp_path)
    assert data.count == 17
    for first, stop in ((0, 17), (0, 1), (3, 6), (10, 12), (16, 17)):
        np.testing.assert_array_equal(data.read(first, stop), x[first:stop])
    assert json.loads(json.dumps(data.identity)) == data.identity


def damaged(what: str, folder: Path) -> None:
    folder.mkdir()
    x = samples(4)
    if what == "two shapes":
        np.save(folder / "a.npy", x)
        np.save(folder / "b.npy", x[:, :1])
    elif what == "a number":
        np.save(folder / "a.npy", np.float32(3))
    elif what == "objects":
        np.save(folder / "a.npy", np.array([{}, {}]), allow_pickle=True)
    elif what == "cut off":
        (folder / "a.npy").write_bytes(npy(x)[:-3])
    elif what == "no tar":
        (folder / "a.tar").write_bytes(b"x" * 2000)
    elif what == "pictures":
        with tarfile.open(folder / "a.tar", "w") as archive:
            archive.addfile(tarfile.TarInfo("0.png"), io.BytesIO())
    elif what == "compressed":
        with tarfile.open(folder / "a.tar", "w:gz") as archive:
            archive.addfile(tarfile.TarInfo("0.npy"), io.BytesIO())
    elif what == "a member cut off":
        tar_folder(folder / "whole", samples(6))
        (folder / "a.tar").write_bytes((folder / "whole" / "shard-0.tar").read_bytes()[:3000])
    elif what == "two arrays of a sample":
        archived(folder / "a.tar", [(f"{k}.{kind}.npy", npy(x[k])) for k in range(4) for kind in ("image", "mask")])
    elif what == "a sample twice":
        archived(folder / "a.tar", [("d/0.npy", npy(x[0])), ("d/1.npy", npy(x[1])), ("d/0.npy", npy(x[2]))])
    elif what in ARCHIVES:
        tar_folder(folder / "whole", samples(6))
        whole = (folder / "whole" / "shard-0.tar").read_bytes()
        (folder / "a.tar").write_bytes(ARCHIVES[what](whole))
    elif what == "a link":
        archived(folder / "a.tar", [("0.npy", npy(x[0]))])
        with tarfile.open(folder / "a.tar", "a") as archive:
            link = tarfile.TarInfo("1.npy")
            link.type, link.linkname = tarfile.LNKTYPE, "0.npy"
            archive.addfile(link)


ARCHIVES = {  # five samples, each with a label: 2,048 bytes a sample
    "cut off between members": lambda whole: whole[: 2 * 2048],
    "a header changed": lambda whole: whole[:4100] + b"?" + whole[4101:],
    "an archive behind the end": lambda whole: whole + whole,
}
DAMAGES = (
    *ARCHIVES, "a link",
    "two shapes", "a number", "objects", "cut off", "no tar", "pictures", "compressed", "a member cut off",
    "two arrays of a sample", "a sample twice",
)  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_damaged_datasets_are_refused_by_name(what: str, tmp_path: Path) -> None:
    damaged(what, tmp_path / "data")
    with pytest.raises(FileError):
        open_dataset("data", tmp_path)


def test_what_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("data", "none", "data.parquet"):
        with pytest.raises(CampaignError, match=name):
            open_dataset(name, tmp_path)


def test_every_sample_of_an_archive_has_the_shape_of_the_first(tmp_path: Path) -> None:
    """Also where a range holds another shape alone."""
    archived(tmp_path / "a.tar", [("0.npy", npy(samples(1)[0])), ("1.npy", npy(np.float32([1])))])
    data = open_dataset("a.tar", tmp_path)
    with pytest.raises(FileError, match="several shapes"):
        data.read(1, 2)


def test_a_zarr_array_that_lacks_a_chunk_is_refused(tmp_path: Path) -> None:
    """Its samples would be zeros, and proven."""
    zarr_array(tmp_path / "data", samples(17, 3))
    assert open_dataset("data", tmp_path).count == 17
    (tmp_path / "data" / "c" / "2" / "0").unlink()
    with pytest.raises(FileError, match=r"lacks a chunk: .*c/2/0, cells \(\(8, 12\), \(0, 3\)\)"):
        open_dataset("data", tmp_path)


def test_two_datasets_in_one_folder_are_refused(tmp_path: Path) -> None:
    """Neither is left out silently."""
    tar_folder(tmp_path / "data", samples(6))
    np.save(tmp_path / "data" / "more.npy", samples(3))
    with pytest.raises(CampaignError, match="which of them"):
        open_dataset("data", tmp_path)


# --- the campaign -----------------------------------------------------------------------------------------------------


def campaign(folder: Path, x: np.ndarray, kind: str = "npy", spec: str = SPEC, weights: Any = ((1, 2), (3, -1))) -> Any:
    save_net(folder / "net.onnx", weights)
    KINDS_OF_DATA[kind](folder / "data", x)
    spec = read_spec(written(folder, spec))
    state = run(spec, executor="loop")
    assert (state.run, state.crashed) == (state.count, 0)
    return spec


@pytest.mark.parametrize("kind", KINDS_OF_DATA)
def test_every_sample_is_judged_once(kind: str, tmp_path: Path) -> None:
    """Three shards, the last with three samples: each sample as preserve alone has it, and the worst of all."""
    x = samples(17)
    x[9] = [0.3, np.float32(0.2) + np.float32(0.0001)]  # 0.9 and 0.4999: clear; the nearest is below
    x[16] = [0.3, 0.1]  # x0 + 3*x1 = 0.6, 2*x0 - x1 = 0.5
    spec = campaign(tmp_path, x, kind)
    result = collect(spec)
    alone = preserve(str(tmp_path / "net.onnx"), x, runtimes=())
    assert result.counts == {"net.onnx": {"proven": 17}}
    assert result.verdict == "ok"
    assert (result.done, result.shards) == (3, 3)
    report = result.to_json()["summary"]
    ratios = np.sort([s.ratio for s in alone.samples])
    assert report["samples"] == 17
    worst = sorted(alone.samples, key=lambda s: s.ratio)[:5]
    assert {s["number"] for s in report["worst"]} == {s.number for s in worst}
    for told, s in zip(report["worst"], sorted(worst, key=lambda s: s.ratio), strict=True):
        assert told["margin"] == pytest.approx(s.margin)
        assert told["decision"] == s.decision
    for p in PERCENTILES:
        exact = ratios[int(np.floor(17 * p / 100))]
        assert exact / 1.2 <= report["percentiles"][str(p)] <= exact * 1.1


def test_records_say_what_was_read(tmp_path: Path) -> None:
    """Every range once and without a gap, each with a digest of its cells; a second run changes no byte."""
    spec = campaign(tmp_path, samples(17))
    records = sorted((tmp_path / "run" / "results").iterdir())
    rows = [json.loads(path.read_bytes().splitlines()[-1]) for path in records]
    assert [(r["data"]["first"], r["data"]["samples"]) for r in rows] == [(0, 7), (7, 7), (14, 3)]
    assert len({r["data"]["digest"] for r in rows}) == 3
    assert all(len(r["worst"]) == min(5, r["data"]["samples"]) for r in rows)
    before = [path.read_bytes() for path in records]
    records[1].unlink()
    assert run(spec, executor="loop").run == 1
    assert [path.read_bytes() for path in records] == before


def test_other_data_are_another_campaign(tmp_path: Path) -> None:
    spec = campaign(tmp_path, samples(17))
    np.save(tmp_path / "data" / "d.npy", samples(1))
    with pytest.raises(Exception, match="data"):
        run(spec, executor="loop")


def test_open_samples_are_among_the_worst(tmp_path: Path) -> None:
    """A tie that rounding decides is not proven, wherever it lies; the rest is."""
    x = samples(17)
    x[12] = [0.7, 0.1]
    weights = np.float32([[0.1, 0.3], [0.7, -0.7]])  # both outputs about 0.14
    spec = campaign(tmp_path, x, weights=weights, spec=SPEC + "samples = 15\n")
    result = collect(spec)
    assert sum(result.total.values()) == 15
    assert result.summary.worst[0]["number"] == 12
    assert result.total["proven"] == 14
    assert result.verdict in ("cannot tell", "findings")


@pytest.mark.parametrize(
    ("line", "why"),
    [('decision = "largest"', "decision"), ('execution = "fast"', "execution"), ("each = 0", "each"), ("k = 1", "k")],
)
def test_wrong_keys_are_refused(line: str, why: str, tmp_path: Path) -> None:
    save_net(tmp_path / "net.onnx", [[1, 2], [3, -1]])
    npy_folder(tmp_path / "data", samples(17))
    text = "".join(kept for kept in SPEC.splitlines(True) if kept.split()[0] != line.split()[0])
    with pytest.raises(SpecgradError, match=why):
        read_spec(written(tmp_path, text + line)).job()


def test_what_differs_is_kept_beside_any_number_of_worse_ratios() -> None:
    """Samples that are not finite have the ratio 0, and are no finding; the one that differs is."""
    summary, other = SampleSummary(3), SampleSummary(3)
    for k in range(8):
        summary.add("not proven", 0.0, {"number": k})
    summary.add("differs", 0.5, {"number": 8})
    other.add("differs", 0.25, {"number": 9})
    other.merge(summary.to_json())
    assert [s["number"] for s in summary.worst] == [8, 0, 1]
    assert [s["number"] for s in other.worst] == [9, 8, 0]


def test_percentiles_overstate_no_ratio() -> None:
    for ratio in (0.0, 5e-324, 2.0**-80, 2.0**-64, 1e-5, 1.0, 3.0, 2.0**64, 2.0**900, np.inf):
        summary = SampleSummary(1)
        summary.add("proven", ratio, {"number": 0})
        assert summary.percentile(50) <= ratio


def test_summaries_merge_to_that_of_all() -> None:
    """However samples are cut into shards, and through JSON."""
    rng = np.random.default_rng(0)
    ratios = [*np.exp(rng.normal(3, 4, 200)), 0.0, np.inf, 1e-300, 1e300]
    verdicts = ["proven" if r > 1 else "not proven" for r in ratios]
    whole, parts = SampleSummary(9), SampleSummary(9)
    for first in range(0, len(ratios), 23):
        part = SampleSummary(9)
        for k in range(first, min(first + 23, len(ratios))):
            part.add(verdicts[k], ratios[k], {"number": k})
            whole.add(verdicts[k], ratios[k], {"number": k})
        parts.merge(json.loads(json.dumps(part.to_json())))
    assert parts.to_json() == whole.to_json()
    order = sorted(range(len(ratios)), key=lambda k: (verdicts[k] == "proven", ratios[k], k))
    assert [s["number"] for s in whole.worst] == order[:9]
    inside = np.sort(ratios)
    for p in (5, 50, 90):
        exact = inside[int(len(ratios) * p / 100)]
        assert exact / 2 ** (1 / 16) <= whole.percentile(p) <= exact
    with pytest.raises(CampaignError, match="no summary"):
        parts.merge({"verdicts": {"proven": "many"}})


# --- audits of samples ------------------------------------------------------------------------------------------------

AUDIT = """kind = "audit"
folder = "run"
models = ["net.onnx"]
runtimes = ["onnxruntime"]
data = "data"
batch = 4
each = 3
"""


@pytest.mark.parametrize("kind", KINDS_OF_DATA)
def test_every_sample_is_audited_once(kind: str, tmp_path: Path) -> None:
    """Five audits in two shards, each of the samples that its row names, and none of others."""
    pytest.importorskip("onnxruntime")
    x = samples(17)
    save_net(tmp_path / "net.onnx", [[1, 2], [3, -1]], rows="n")
    KINDS_OF_DATA[kind](tmp_path / "data", x)
    spec = read_spec(written(tmp_path, AUDIT))
    assert run(spec, executor="loop").run == 2
    assert collect(spec).verdict == "ok"
    rows = [json.loads(line) for _, data in results(spec.folder) for line in data.splitlines()]
    read = [r["data"] for r in rows]
    assert [(d["first"], d["samples"]) for d in read] == [(0, 4), (4, 4), (8, 4), (12, 4), (16, 1)]
    assert [d["digest"] for d in read] == [digest_of_samples(x[k : k + 4]) for k in range(0, 17, 4)]
    assert {r["verdict"] for r in rows} <= {"exact", "rounding"}
    assert {r["seed"] for r in rows} == {None}


def test_a_finding_on_samples_has_a_script_that_reads_them(tmp_path: Path) -> None:
    """ONNX Runtime's pool with dilations is wrong on all samples, and so by the script."""
    pytest.importorskip("onnxruntime")
    save_pool(tmp_path / "pool.onnx", 5)
    np.save(tmp_path / "data.npy", samples(3, 5).reshape(3, 1, 5))
    text = AUDIT.replace("net.onnx", "pool.onnx").replace('"data"', '"data.npy"').replace("batch = 4", "samples = 2")
    spec = read_spec(written(tmp_path, text))
    run(spec, executor="loop")
    result = collect(spec)
    assert result.verdict == "findings"
    (finding,) = result.findings
    assert finding.times == 2
    (tmp_path / finding.name).write_text(finding.script)
    command = [sys.executable, finding.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("differs: layer pool"), done


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("batch = 4", "inputs = 3", "inputs goes without the key data"),
        ("batch = 4", "shapes.x = [1, 2]", "shapes goes without the key data"),
        ('data = "data"', "", "batch goes with the key data"),
        ('data = "data"', 'data = "other"', "other"),
    ],
)
def test_keys_of_drawn_inputs_and_of_samples_do_not_mix(old: str, new: str, why: str, tmp_path: Path) -> None:
    save_net(tmp_path / "net.onnx", [[1, 2], [3, -1]])
    npy_folder(tmp_path / "data", samples(17))
    with pytest.raises(SpecgradError, match=why):
        read_spec(written(tmp_path, AUDIT.replace(old, new))).job()


@pytest.mark.skipif(sys.platform == "win32", reason="no file has such a name")
def test_a_name_of_a_file_is_no_line_of_a_script(tmp_path: Path) -> None:
    """The line behind the end of the comment was a statement."""
    pytest.importorskip("onnxruntime")
    name = "a\nraise SystemExit('ran')#.onnx"
    save_pool(tmp_path / name, 5)
    np.save(tmp_path / "data.npy", samples(1, 5).reshape(1, 1, 5))
    text = AUDIT.replace("net.onnx", "*.onnx").replace('"data"', '"data.npy"')
    spec = read_spec(written(tmp_path, text))
    run(spec, executor="loop")
    (finding,) = collect(spec).findings
    (tmp_path / "found.py").write_text(finding.script)
    done = subprocess.run([sys.executable, "found.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("differs: layer pool"), done


def stopped_after_one(state: Any) -> None:
    if state.run == 1:
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["preserve", "audit"])
def test_repair_has_samples_that_changed_judged_again(kind: str, tmp_path: Path) -> None:
    """Of the same size: no name and no shape differs, and a plain run goes on with other samples."""
    x = samples(9)
    save_net(tmp_path / "net.onnx", [[1, 2], [3, -1]], rows="n")
    npy_folder(tmp_path / "data", x)
    text = SPEC.replace("each = 7", "each = 3") if kind == "preserve" else AUDIT.replace("each = 3", "each = 1")
    spec = read_spec(written(tmp_path, text))
    with pytest.raises(KeyboardInterrupt):
        run(spec, executor="loop", progress=stopped_after_one)
    np.save(tmp_path / "data" / "a.npy", -x[:4])
    run(spec, executor="loop")
    assert run(spec, executor="loop", repair=True).run == 1
    mended = list(results(spec.folder))
    (tmp_path / "run").rename(tmp_path / "mixed")
    run(spec, executor="loop")
    assert list(results(spec.folder)) == mended


@pytest.mark.parametrize("kind", ["npy", "tar"])
@pytest.mark.parametrize("change", ["cut off", "written anew"])
def test_a_file_that_changes_while_it_is_open(kind: str, change: str, tmp_path: Path) -> None:
    """Of a mapped file that was cut off the rest of a page is zeros, and no error."""
    KINDS_OF_DATA[kind](tmp_path / "data", samples(17))
    data = open_dataset("data", tmp_path)
    path = sorted(p for p in (tmp_path / "data").iterdir() if p.suffix == f".{kind}")[-1]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 40] if change == "cut off" else whole)
    np.testing.assert_array_equal(data.read(0, 4), samples(17)[:4])
    with pytest.raises(FileError, match=f"{path.name} was changed since it was opened"):
        data.read(3, 17)


def test_a_chunk_that_goes_while_a_campaign_runs(tmp_path: Path) -> None:
    """Its samples were zeros, and counted."""
    x = samples(17)
    save_net(tmp_path / "net.onnx", [[1, 2], [3, -1]], rows="n")
    zarr_array(tmp_path / "data", x)
    spec = read_spec(written(tmp_path, SPEC))

    def remove(state: Any) -> None:
        if state.run == 1:
            (tmp_path / "data/c/2/0").unlink(missing_ok=True)

    state = run(spec, executor="loop", retries=0, progress=remove)
    assert (state.run, state.crashed) == (2, 1)
    assert ["lacks a chunk" in crash["how"] for crash in crashes(spec.folder)] == [True]
