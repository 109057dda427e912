"""Files that nobody vouches for: no pipe is waited for, nothing is taken that is not there, one error for all of it."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest

import specgrad as sg
from pace import stretched
from specgrad import bounded_files as bounded
from specgrad.errors import FileError

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
HUNT = Path(__file__).parent / "hostile.py"
READERS = ["npy", "npz", "arrays", "plan", "preserve", "zarr", "records", "recorded", "specs", "certificates", "splits"]

# --- mutants ----------------------------------------------------------------------------------------------------------


def hunt(kinds: str, count: int) -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, HUNT, kinds, "0", str(count)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found: dict[str, Any], count: int) -> None:
    """Every mutant read or refused by an error of ours, each within 10 s, all within 1 GB."""
    assert found["bad"] == [], found["kind"]
    assert sum(found["verdicts"].values()) == count
    used = found["verdicts"].get("used", 0)
    assert count < 200 or used > count / 100, "mutants should not all be refused at the door"
    assert found["verdicts"]["refused"] > count / 4
    assert found["seconds"][0] < stretched(10)
    assert found["peak_mb"] - found["start_mb"] < 1000


@linux
def test_mutants_of_every_reader_are_read_or_refused() -> None:
    for package in ("onnx", "onnxruntime", "safetensors", "tensorstore", "torch", "zarr"):
        pytest.importorskip(package)
    found = hunt("readers", 40)
    assert [one["kind"] for one in found] == READERS
    for one in found:
        check(one, 40)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_ten_thousand_mutants(kind: str) -> None:
    check(hunt(kind, 10_000)[0], 10_000)


# --- regular files ----------------------------------------------------------------------------------------------------


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


@linux
def test_pipes_devices_and_links_to_them_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pipe(tmp_path / "pipe"))
    for path in (tmp_path / "pipe", tmp_path / "link", "/dev/zero", "/dev/null"):
        for read in (bounded.read_json, bounded.read_npy, bounded.read_npz, bounded.read_arrays, bounded.file_digest):
            with pytest.raises(FileError, match="is not a regular file"):
                read(path)
    with pytest.raises(FileError, match="no file is called"):
        bounded.read_bytes("a\0b")


@linux
def test_files_that_never_end_say_that_they_are_empty(tmp_path: Path) -> None:
    assert bounded.read_bytes("/proc/self/status") == b""
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 41)
    with pytest.raises(FileError, match=f"has {1 << 41} bytes; at most {1 << 40} are read"):
        bounded.file_digest(tmp_path / "sparse")


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(2, 3).T)
    (tmp_path / "b.npy").symlink_to(tmp_path / "a.npy")
    got = bounded.read_npy(tmp_path / "b.npy")
    assert np.array_equal(got, np.load(tmp_path / "a.npy"))
    assert got.flags.writeable


# --- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "?", "<i8", "|u1", "<c16", "<U3", "|S5"])
def test_arrays_are_those_of_numpy(dtype: str, tmp_path: Path) -> None:
    arrays = {name: np.ones(shape, dtype) for name, shape in (("x", (2, 3)), ("none", (0, 2)), ("one", ()))}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        got = bounded.read_npz(tmp_path / "a.npz")
        assert list(got) == list(arrays)
        for name, array in arrays.items():
            assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape)
            assert np.array_equal(got[name], array)
    assert list(bounded.read_npz(tmp_path / "a.npz", ["one"])) == ["one"]


def test_safetensors_are_those_of_the_package(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    rng = np.random.default_rng(0)
    arrays = {str(t): rng.integers(0, 2, (2, 3)).astype(t) for t in bounded.TYPES.values()}
    arrays |= {"none": np.zeros((0, 3), np.float32), "one": np.array(7, np.float32)}
    numpy.save_file(arrays, tmp_path / "a.safetensors", {"a": "text"})
    got, texts = bounded.read_arrays(tmp_path / "a.safetensors")
    mapped = bounded.map_arrays(tmp_path / "a.safetensors")
    assert texts == {"a": "text"}
    for name, array in numpy.load_file(tmp_path / "a.safetensors").items():
        for one in (got[name], mapped[name]):
            assert (one.dtype, one.shape, one.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_safetensors_fill_their_file() -> None:
    """Two arrays of four bytes: side by side, one on the other, with a gap, and with bytes left over."""
    for offsets, size in (
        ([0, 4, 4, 8], 8),
        ([0, 4, 0, 4], 8),
        ([0, 4, 8, 12], 12),
        ([0, 4, 4, 8], 9),
        ([4, 8, 0, 4], 8),
    ):
        entries = {k: {"dtype": "F32", "shape": [1], "data_offsets": offsets[2 * i :][:2]} for i, k in enumerate("ab")}
        text = json.dumps(entries).encode()
        data = len(text).to_bytes(8, "little") + text + bytes(size)
        if sorted(offsets) == [0, 4, 4, 8] and size == 8:
            assert set(bounded.arrays_of(data, "it")[0]) == {"a", "b"}
        else:
            with pytest.raises(FileError, match=r"does not lie where|has bytes left over"):
                bounded.arrays_of(data, "it")


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("(4611686018427387904,)", "its header claims float32 of shape"),
        ("(-1,)", "its header claims"),
        ("(1, 3)", "8 bytes of cells; its header claims"),
        ("(1,)", "8 bytes of cells; its header claims"),
        ("(" + "1," * 40 + ")", "of rank 40, which is not read"),
    ],
)
def test_headers_that_lie_are_refused(shape: str, text: str, tmp_path: Path) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8))
    with pytest.raises(FileError, match=text.replace("(", r"\(")):
        bounded.read_npy(tmp_path / "x.npy")


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "a": 1}', "a key stands twice"),
        ("[NaN]", "NaN is no JSON number"),
        ("[1e999]", "holds a float that is not read: inf"),
        ("9" * 301, "holds a int that is not read: over 300 digits"),
        ("9" * 9999, "is no JSON"),
        ('"\\ud800"', "holds a str that is not read"),
        ('{"\\udfff": 1}', "holds a str that is not read"),
        ("[" * 102 + "]" * 102, "nested too deeply: over 100"),
        ("[" * 100_000, "nested too deeply"),
        ("", "is no JSON"),
        ("\ufeff1", "is no JSON"),
    ],
)
def test_texts_are_bounded(text: str, why: str) -> None:
    with pytest.raises(FileError, match=f"a.json.*{why}"):
        bounded.parse_json(text, "a.json")


def test_texts_within_the_limits_are_what_json_says() -> None:
    for text in ("[" * 100 + "]" * 100, "9" * 300, "-1.5e308", '{"a": [true, null, "\\u00e9"]}'):
        assert bounded.parse_json(text, "a.json") == json.loads(text)


@pytest.mark.parametrize(
    "text", ["a = 1e999", "a = nan", "a = 1979-05-27", "a = 0x" + "f" * 999, "a = " + "[" * 500, "a"]
)
def test_toml_is_bounded_too(text: str) -> None:
    with pytest.raises(FileError, match=r"a\.toml"):
        bounded.parse_toml(text.encode(), "a.toml")


def test_fractions_have_few_digits() -> None:
    assert bounded.fraction("2/255") == Fraction(2, 255)
    assert bounded.fraction("-1.5e-3") == Fraction(-3, 2000)
    for text in ("1e301", "1e99999", "1e-99999", "1/0", "few", "9" * 301, "", "nan", "1e"):
        with pytest.raises(FileError, match="is no number of at most 300 digits"):
            bounded.fraction(text)


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """relu(x @ w) of two inputs, and a recording of it."""
    for package in ("onnx", "onnxruntime", "safetensors", "torch", "typer"):
        pytest.importorskip(package)
    from campaigns import save_net

    save_net(tmp_path / "net.onnx", [[1, 1], [1, -1]])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(command: str, seconds: float = 60) -> str:
    """What the real command says when it refuses a file, with code 3, in time and within 2 GB."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, resource.RLIM_INFINITY))

    began = time.monotonic()
    program = [sys.executable, "-m", "specgrad", *command.split()]
    done = subprocess.run(program, capture_output=True, text=True, timeout=stretched(seconds), preexec_fn=limited)
    assert done.returncode == 3, (done.returncode, done.stdout, done.stderr, time.monotonic() - began)
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


@linux
@pytest.mark.parametrize("piped", ["index", "shard"])
def test_a_pipe_in_a_recorded_folder(piped: str, place: Path) -> None:
    from specgrad.check import record

    record(place / "net.onnx", "onnxruntime", [(np.float32([[1, -2]]),)], place / "r", about="two numbers")
    path = next((place / "r").glob("index.json" if piped == "index" else "*.safetensors"))
    path.unlink()
    pipe(path)
    assert "is not a regular file" in refused("audit net.onnx --recorded r")


@linux
def test_endless_external_data_of_a_campaigns_model(place: Path) -> None:
    """Its shards say what is wrong with it; nobody reads what lies outside the model's folder."""
    import onnx

    from specgrad.scale.campaign import read_spec

    model = onnx.load("net.onnx")
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="/proc/kmsg")
    (place / "net.onnx").write_bytes(model.SerializeToString())
    (place / "c.toml").write_text('kind = "audit"\nfolder = "r"\nmodels = ["net.onnx"]\nruntimes = ["onnxruntime"]')
    program = [sys.executable, "-m", "specgrad", "campaign"]
    for command in ("run", "collect"):
        done = subprocess.run([*program, command, "c.toml"], capture_output=True, text=True, timeout=stretched(120))
        assert done.returncode in (0, 2), done.stderr
    (row,) = map(json.loads, b"".join(data for _, data in sg.scale.jobs.results(place / "r")).splitlines())
    assert (row["verdict"], "must be a relative path" in row["reason"]) == ("cannot tell", True)
    assert read_spec(place / "c.toml").job().identity["models"]["net.onnx"]


def bomb(path: Path, cells: int) -> None:
    """Zeros, a thousand to a byte."""
    head = BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (cells // 4, 1, 4)})
    with ZipFile(path, "w", ZIP_DEFLATED) as archive, archive.open("x.npy", "w", force_zip64=True) as file:
        file.write(head.getvalue())
        for _ in range(cells * 4 // (1 << 20)):
            file.write(bytes(1 << 20))


def test_an_archive_that_inflates(place: Path) -> None:
    bomb(place / "bomb.npz", 1 << 30)
    assert (place / "bomb.npz").stat().st_size < 5_000_000
    assert "inflates to 4294967" in refused("preserve net.onnx bomb.npz")


def test_an_archive_whose_directory_lies(place: Path) -> None:
    """It says that all is small; its members give no more than it says."""
    bomb(place / "bomb.npz", 1 << 28)
    data = bytearray((place / "bomb.npz").read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (4096).to_bytes(4, "little")
    (place / "bomb.npz").write_bytes(data)
    assert re.search(r"its header claims|is not an \.npz file", refused("preserve net.onnx bomb.npz"))


def test_a_header_that_lies(place: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 2)}\n"
    (place / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8))
    with ZipFile(place / "x.npz", "w") as archive:
        archive.write("x.npy")
    for command in ("audit net.onnx --runtime onnxruntime --input x.npy", "audit net.onnx --recorded x.npz"):
        assert "8 bytes of cells; its header claims float32 of shape" in refused(command)
    assert "8 bytes of cells" in refused("preserve net.onnx x.npz")


def test_a_number_of_ten_million_digits(place: Path) -> None:
    np.savez(place / "x.npz", x=np.zeros((1, 1, 2), np.float32), label=[0])
    (place / "c.toml").write_text(
        'kind = "certify"\nfolder = "r"\nmodels = ["net.onnx"]\nsamples = "x.npz"\neps = "0.1"\nhigh = "1e9999999"'
    )
    assert "high must be a number" in refused("campaign run c.toml")
