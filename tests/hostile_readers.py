"""Files of every reader to damage: `python tests/hostile.py plan 0 10000`, and the other names of READERS.

Digests that are no secret (of records, certificates, indices) are written anew after the damage: whoever sends a file
can do so, too.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
from hostile_files import damaged, mutate, network

Case = Callable[[Random], str]
NUMBER = re.compile(rb"-?\d+(\.\d+)?")
SPELLED = [
    b"NaN",
    b"-Infinity",
    b"1e9999",
    b"-1e999999999",
    b"9" * 5000,
    b"0." + b"1" * 5000,
    b"1e-400",
    b"2" + b"0" * 400,
]
SPELLED += [
    b"[" * 2000,
    b"[" * 99 + b"]" * 99,
    b'{"a":' * 150 + b"0" + b"}" * 150,
    b'"\\ud800"',
    b"\xff",
    b"00",
    b"0x10",
]
SIZES = [0, 1, 7, 2**16, 2**31, 2**32 - 1, 2**40, 2**62, 2**64 - 1]
TYPES = ["<f4", ">f8", "|b1", "|O", "|V8", "<U7", "|S0", "<M8[s]", "<c16", "<i9", [("a", "<f4")], "x" * 9000, 3, None]
SHAPES = [(), (0,), (-1,), (2**62, 4), (2**31, 0), (1,) * 40, (1,) * 400, (1.5,), "x", (True,), (4, 64), (2**65,)]


# --- damage -----------------------------------------------------------------------------------------------------------


def bent(data: bytes, rng: Random) -> bytes:
    """Bytes with bits flipped, an end cut off, a span doubled or left out, or a size that lies."""
    kind, i, n = rng.randrange(4), rng.randrange(len(data) + 1), rng.choice([1, 4, 8, 64, 512])
    if kind == 0 and data:
        return damaged(data, rng)
    if kind == 1:
        return data[:i] + data[i : i + n] * rng.choice([0, 2, 3, 40]) + data[i + n :]
    if kind == 2:
        return data[:i] + rng.choice(SIZES).to_bytes(8, rng.choice(["little", "big"])) + data[i + 8 :]
    return data[:i]


def respelled(text: bytes, rng: Random) -> bytes:
    """A text of JSON with one number spelled in another way, or one entry twice."""
    spots = [m.span() for m in NUMBER.finditer(text)]
    if spots and rng.random() < 0.7:
        low, high = rng.choice(spots)
        return text[:low] + rng.choice(SPELLED) + text[high:]
    keys = [m.span() for m in re.finditer(rb'"\w+": ?(null|true|false|-?\d+|"[^"]*"),', text)]
    low, high = rng.choice(keys) if keys else (0, 0)
    return text[:high] + text[low:]


def changed(data: Any, rng: Random) -> bytes:
    """The text of JSON data with places of it changed, respelled or bent."""
    kind = rng.random()
    if kind < 0.7:
        for _ in range(rng.choice([1, 1, 2, 3])):
            data = mutate(data, rng)
    text = json.dumps(data).encode()
    return text if kind < 0.7 else respelled(text, rng) if kind < 0.85 else bent(text, rng)


def still_json(text: bytes) -> Any:
    """The data of a text, None if it is none: who writes digests anew must read what he seals."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def changed_npy(array: Any, rng: Random) -> bytes:
    """An .npy file whose header lies, or whose bytes are bent."""
    file = io.BytesIO()
    np.save(file, array)
    data = file.getvalue()
    if rng.random() < 0.5:
        return bent(data, rng)
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    header[rng.choice([*header, "more"])] = rng.choice([*TYPES, *SHAPES, 1, "(" * 300])
    text = repr(header).encode() + b" " * rng.choice([0, 3, 70_000]) + b"\n"
    version = rng.choice([1, 1, 2, 3, 9])
    size = struct.pack("<H", len(text) % 2**16) if version == 1 else struct.pack("<I", rng.choice([len(text), 2**31]))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + array.tobytes()


def changed_npz(arrays: dict[str, Any], rng: Random) -> bytes:
    """An .npz file with a member changed, a name doubled, other packing, a directory that lies, or bytes bent."""
    file = io.BytesIO()
    with ZipFile(file, "w", rng.choice([ZIP_STORED, ZIP_DEFLATED, 12])) as archive:
        for name, array in arrays.items():
            member = changed_npy(array, rng) if rng.random() < 0.4 else saved(array)
            archive.writestr(rng.choice([f"{name}.npy"] * 9 + ["x.npy", "../x", "\x1b[2J.npy", name]), member)
        if rng.random() < 0.02:
            archive.writestr("zeros.npy", saved(np.zeros(rng.choice([2**18, 2**21]))))
    data = file.getvalue()
    if rng.random() < 0.5:
        return data
    spots = [m.start() for m in re.finditer(b"PK\x01\x02|PK\x03\x04", data)]
    at = rng.choice(spots) + rng.randrange(4, 46)
    lie = struct.pack("<I", rng.choice(SIZES) % 2**32)
    return data[:at] + lie + data[at + 4 :] if rng.random() < 0.6 else bent(data, rng)


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def changed_safetensors(data: bytes, rng: Random) -> bytes:
    """A safetensors file whose header is changed, or whose bytes are bent."""
    length = int.from_bytes(data[:8], "little")
    if rng.random() < 0.3:
        return bent(data, rng)
    text = changed(json.loads(data[8 : 8 + length]), rng)
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


# --- readers ----------------------------------------------------------------------------------------------------------


def npy(folder: Path) -> Case:
    from specgrad.cli.shared.models import read_samples

    def case(rng: Random) -> str:
        (folder / "x.npy").write_bytes(changed_npy(np.arange(12, dtype=np.float32).reshape(3, 4), rng))
        np.sum(np.asarray(read_samples(folder / "x.npy", None)).size)
        return "used"

    return case


def npz(folder: Path) -> Case:
    from specgrad.cli.shared.models import read_samples

    arrays = {"x": np.zeros((4, 1, 8, 8), np.float32), "label": np.zeros(4, np.int64)}

    def case(rng: Random) -> str:
        (folder / "x.npz").write_bytes(changed_npz(arrays, rng))
        read_samples(folder / "x.npz", rng.choice([None, "x"]))
        return "used"

    return case


def arrays(folder: Path) -> Case:
    """The arrays beside a saved graph of version 1, which has no digest of them."""
    import specgrad as sg

    path = folder / "net.json"
    sg.save(sg.trace(network, (1, 1, 5, 5)), path)
    data = {k: v for k, v in json.loads(path.read_text()).items() if k != "arrays"}
    path.write_text(json.dumps(data | {"version": 1}))
    beside = path.with_suffix(".safetensors")
    raw = beside.read_bytes()

    def case(rng: Random) -> str:
        beside.write_bytes(changed_safetensors(raw, rng))
        str(sg.load(path))
        return "used"

    return case


def plan(folder: Path) -> Case:
    from specgrad.scale.job_status import write_record
    from specgrad.scale.plan_file import Blueprint
    from specgrad.scale.record_store import Records
    from specgrad.scale.worker_entry import plan_of
    from store_networks import given, plan_at, stored

    params, x = given(16)
    stores = [str(folder / f"{name}.zarr") for name in "yzc"]
    source = stored(folder / "x.zarr", x, (1, 1, 8, 8))
    plan_at(16, 8).run(params, source, *stores, executor="loop", engine="numpy", folder=str(folder / "job"))
    files = [folder / "job" / "plan" / name for name in ("about.json", "arrays.safetensors")]
    about, raw = (file.read_bytes().partition(b"\n")[2] for file in files)
    data, job = json.loads(about), json.loads((folder / "job" / "job.json").read_text())["fingerprint"]

    def case(rng: Random) -> str:
        first = rng.random() < 0.8
        given = (changed(data, rng), raw) if first else (about, changed_safetensors(raw, rng))
        for file, content in zip(files, given, strict=True):  # with the digest that belongs to it
            file.unlink()
            write_record(Records(folder / "job"), f"plan/{file.name}", content, job)
        blueprint = Blueprint.read(Records(folder / "job"))
        made = plan_of(blueprint)
        assert len(made) >= 0
        assert made[0] is not None
        assert blueprint.identity
        return "used"

    return case


def preserve(folder: Path) -> Case:
    """Records of a run of `preserve`, each line with its digest."""
    import specgrad as sg
    from specgrad.check import preserve as preserved
    from specgrad.check.decisions.html import preserved_page
    from specgrad.check.models.checkpoint import Checkpoint

    graph = sg.trace(lambda x: sg.linear(np.eye(3, 4, dtype=np.float32), None, sg.relu(x)), (1, 4))
    x, path = np.random.default_rng(0).normal(size=(4, 1, 4)).astype(np.float32), folder / "r.jsonl"
    ask = partial(preserved, graph, x, "argmax", checkpoint=path, runtimes=[], seconds=5)
    ask()
    raw = path.read_bytes()
    head, *rows = [{k: v for k, v in json.loads(line).items() if k != "chain"} for line in raw.splitlines()]

    def case(rng: Random) -> str:
        if rng.random() < 0.2:
            path.write_bytes(bent(raw, rng))
        else:
            place = rng.randrange(len(rows))
            texts = [json.dumps(row, separators=(",", ":")).encode() for row in rows]
            texts[place] = changed(rows[place], rng).replace(b"\n", b" ")
            writer = Checkpoint(None, "preserve", "")
            lines = [writer._line(head), *(writer._chained(t.removesuffix(b"}")) + b"\n" for t in texts)]
            path.write_bytes(b"".join(lines))
        result = ask()
        json.dumps(result.to_json())
        assert str(result)
        assert preserved_page(result)
        return "used"

    return case


def zarr(folder: Path) -> Case:
    from specgrad.scale.zarr_arrays import Store
    from store_networks import stored

    place = stored(folder / "z.zarr", np.full((1, 1, 64, 64), 3, np.uint8), (1, 1, 16, 16), (1, 1, 32, 32))
    metadata = Path(place) / "zarr.json"
    data = json.loads(metadata.read_text())
    chunks = {p: p.read_bytes() for p in (Path(place) / "c").rglob("*") if p.is_file()}

    def case(rng: Random) -> str:
        metadata.write_bytes(changed(data, rng) if rng.random() < 0.7 else json.dumps(data).encode())
        spoilt = rng.choice([*chunks])
        spoilt.write_bytes(bent(chunks[spoilt], rng) if rng.random() < 0.5 else chunks[spoilt])
        try:
            store = Store("x", place)
            assert store.identity
            if np.prod([float(n) for n in store.shape]) < 10**6:
                store.read(tuple((0, n) for n in store.shape)).result()
        finally:
            spoilt.write_bytes(chunks[spoilt])
        return "used"

    return case


def resealed(name: str, text: bytes, fingerprint: str) -> bytes:
    """A record of a job with the digest that its text should have."""
    from specgrad.scale.job_status import _digest_of_json, _with_digest

    if name != "job.json":
        return _with_digest(name, text, fingerprint)
    about = still_json(text)
    if not isinstance(about, dict):
        return text
    try:
        return json.dumps(
            {**about, "digest": _digest_of_json({k: v for k, v in about.items() if k != "digest"})}
        ).encode()
    except ValueError:
        return text


def records(folder: Path) -> Case:
    """job.json, results and crashes of campaigns of each kind that needs no runtime."""
    from campaigns import ASKING, PROPERTY, PROVING, save_net
    from specgrad.scale import campaign, job_status

    save_net(folder / "a.onnx", [[1, 1], [1, -1]])
    (folder / "p.vnnlib").write_text(PROPERTY.format(limit=3))
    (folder / "q.vnnlib").write_text(PROPERTY.format(limit=0.625))
    texts = [PROVING.replace('"run"', '"proving"'), ASKING.format(seeds=1).replace('"run"', '"asking"')]
    specs = []
    for number, text in enumerate(texts):
        (folder / f"{number}.toml").write_text(text)
        specs.append(campaign.read_spec(folder / f"{number}.toml"))
        campaign.run(specs[-1], executor="loop")
    kept = {s.folder: {p: p.read_bytes() for p in Path(s.folder).rglob("*") if p.is_file()} for s in specs}
    prints = {s.folder: job_status.status(s.folder).about["fingerprint"] for s in specs}

    def case(rng: Random) -> str:
        spec = rng.choice(specs)
        files = {p: raw for p, raw in kept[spec.folder].items() if p.name == "job.json" or p.parent.name == "results"}
        path = rng.choice([*files])
        name = path.relative_to(spec.folder).as_posix()
        lines = files[path].splitlines()[1:] if name != "job.json" else [files[path]]
        place = rng.randrange(len(lines))
        lines[place] = changed(json.loads(lines[place]), rng).replace(b"\n", b" ")
        text = b"\n".join(lines) + b"\n"
        path.write_bytes(resealed(name, text, prints[spec.folder]) if rng.random() < 0.9 else bent(files[path], rng))
        extra = (
            Path(spec.folder)
            / rng.choice(["results", "crashed"])
            / rng.choice(["99", "0007", "x", "1.5", "9" * 30, "1"])
        )
        new = rng.random() < 0.2 and not extra.exists()
        if new:
            extra.parent.mkdir(exist_ok=True)
            crash = changed({"shard": 1, "how": "it died", "attempts": 3}, rng)
            extra.write_bytes(resealed(f"{extra.parent.name}/{extra.name}", crash, prints[spec.folder]))
        try:
            json.dumps(campaign.standing(spec.folder).to_json())
            result = campaign.collect(spec)
            json.dumps(result.to_json())
            assert result.verdict
            return "used"
        finally:
            path.write_bytes(files[path])
            if new:
                extra.unlink()

    return case


def recorded(folder: Path) -> Case:
    """What another device computed: an .npz file, or a folder with an index."""
    import onnx

    from campaigns import save_net
    from specgrad.check import audit_recorded, record
    from specgrad.check.models.recorded import read_recorded

    model, place, file = folder / "net.onnx", folder / "r", folder / "r.npz"
    save_net(model, [[1, 1], [1, -1]])
    assert onnx.load(model).graph.node
    x = np.float32([[1, -2]])
    values = {"x": x, "h": np.float32([[-1, 3]]), "y": np.float32([[0, 3]])}
    record(model, "onnxruntime", [(x,)], place, about="two numbers")
    kept = {p: p.read_bytes() for p in place.iterdir()}
    index = json.loads((place / "index.json").read_text())
    shard = next(p for p in kept if p.suffix == ".safetensors")

    def case(rng: Random) -> str:
        source = rng.choice([place, file])
        if source is file:
            file.write_bytes(changed_npz(values, rng))
        elif rng.random() < 0.6:
            (place / "index.json").write_bytes(changed(index, rng))
        else:
            shard.write_bytes(changed_safetensors(kept[shard], rng))
            digest = hashlib.sha256(shard.read_bytes()).hexdigest()
            shards = {shard.name: {"sha256": digest, "bytes": shard.stat().st_size}}
            (place / "index.json").write_text(json.dumps(index | {"shards": shards}))
        try:
            result = audit_recorded(model, read_recorded(source))
            assert str(result)
            return "used"
        finally:
            for path, raw in kept.items():
                path.write_bytes(raw)

    return case


def specs(folder: Path) -> Case:
    from campaigns import ASKING, PROPERTY, PROVING, save_net
    from specgrad.scale.campaign import read_spec
    from store_networks import stored

    save_net(folder / "a.onnx", [[1, 1], [1, -1]])
    (folder / "p.vnnlib").write_text(PROPERTY.format(limit=3))
    (folder / "i.csv").write_text("a.onnx,p.vnnlib,5\n")
    np.savez(folder / "d.npz", x=np.zeros((4, 1, 2), np.float32), label=np.zeros(4, np.int64))
    stored(folder / "s.zarr", np.zeros((1, 2), np.float32), (1, 2))
    around = (
        'kind = "certify"\nfolder = "r"\nmodels = ["a.onnx"]\nsamples = "d.npz"\neps = "2/255"\nlow = "0"\nhigh = "1"\n'
    )
    listed = 'kind = "certify"\nfolder = "r"\ninstances = "i.csv"\nseconds = 3\n'
    tiled = 'kind = "tiles"\nfolder = "r"\nmodel = "a.onnx"\nsource = "s.zarr"\ntargets = ["t.zarr"]\ntile = [1]\n'
    audit = 'kind = "audit"\nfolder = "r"\nmodels = ["*.onnx"]\nruntimes = ["onnxruntime"]\ninputs = 2\neach = 1\n'
    texts = [ASKING.format(seeds=2), PROVING, around, listed, tiled, audit]
    words = [
        '"1e9999999"',
        '"-1e-9999999"',
        '"1/0"',
        '"nan"',
        '"' + "9" * 400 + '"',
        "9" * 5000,
        "0x" + "f" * 5000,
        "nan",
        "inf",
    ]
    words += [
        "-1",
        "0",
        "1e400",
        "true",
        '""',
        '"../../etc"',
        '"**/*"',
        '"/"',
        "[]",
        "{}",
        "[[1]]",
        "1979-05-27",
        "[1, 1]",
        '"["',
    ]
    words += [
        '"\\u0000"',
        '"x\\u001b[2J"',
        "[" * 500,
        "[" * 99 + "]" * 99,
        '"***"',
        '"s.zarr"',
        '"d.npz"',
        '["a.onnx", "a.onnx"]',
    ]

    def case(rng: Random) -> str:
        lines = rng.choice(texts).splitlines()
        for _ in range(rng.choice([1, 1, 2])):
            k = rng.randrange(len(lines))
            key, kind = lines[k].partition("=")[0].strip(), rng.random()
            new = {0: f"{key} = {rng.choice(words)}", 1: lines[k] + "\n" + lines[k], 2: ""}.get(
                int(kind * 4), f"x{lines[k]}"
            )
            lines[k] = new if kind < 0.75 or rng.random() < 0.5 else rng.choice(rng.choice(texts).splitlines())
        text = "\n".join(lines).encode()
        (folder / "spec.toml").write_bytes(bent(text, rng) if rng.random() < 0.15 else text)
        if rng.random() < 0.1:
            (folder / "d.npz").write_bytes(
                changed_npz({"x": np.zeros((4, 1, 2), np.float32), "label": np.zeros(4, int)}, rng)
            )
        spec = read_spec(folder / "spec.toml")
        if "://" not in str(spec):
            assert spec.job().count >= 0
        shutil.rmtree(folder / "t.zarr", ignore_errors=True)
        return "used"

    return case


def certificates(folder: Path) -> Case:
    import specgrad as sg
    from specgrad.bounds.search.certificates.find_slopes import certificate
    from specgrad.proof.files.certificate import check, sealed
    from specgrad.properties.property import robustness

    w = np.float32([[1, 2], [-1, 0.5]])
    graph = sg.trace(lambda x: sg.linear(w, None, sg.relu(sg.linear(w, None, x))), (1, 2))
    text, packed = certificate(graph, robustness([[1.0, 0.5]], 0, 2**-6, 2))
    data = {k: v for k, v in json.loads(text).items() if k != "digest"}

    def case(rng: Random) -> str:
        if rng.random() < 0.2:
            check(bent(text, rng), packed, graph, seconds=5)
            return "used"
        arrays = changed_safetensors(packed, rng) if rng.random() < 0.4 else packed
        made = still_json(changed(data, rng)) if arrays is packed else data
        try:
            written = sealed(made, arrays)
        except (TypeError, ValueError, AttributeError):
            written = json.dumps(made).encode()
        check(written, arrays, graph, seconds=5)
        return "used"

    return case


def splits(folder: Path) -> Case:
    import specgrad as sg
    from specgrad.bounds.search.statement.split_file import read_splits
    from specgrad.properties.property import robustness

    graph = sg.trace(lambda x: sg.relu(sg.mul(x, 2)), (2,))
    question = robustness([1.0, 0.0], 0, 0.25, 2)
    cut = {
        "relu": 0,
        "cell": 1,
        "below": None,
        "above": {"node": "relu", "cell": 0, "at": 1, "below": None, "above": None},
    }
    tree = {"input": 1, "at": 0.25, "below": cut, "above": None}
    data = {"format": "specgrad-splits", "version": 1, "cases": [[{"alternatives": [0], "tree": tree}]]}

    def case(rng: Random) -> str:
        (folder / "t.json").write_bytes(changed(data, rng))
        read_splits(folder / "t.json", graph, question)
        return "used"

    return case


READERS: dict[str, Callable[[Path], Case]] = {
    "npy": npy,
    "npz": npz,
    "arrays": arrays,
    "plan": plan,
    "preserve": preserve,
    "zarr": zarr,
    "records": records,
    "recorded": recorded,
    "specs": specs,
    "certificates": certificates,
    "splits": splits,
}
