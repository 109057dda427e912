"""What --json prints, against the schemas that the package ships; the page that lists them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specgrad.scale import jobs
from specgrad.scale.job_status import write_record
from specgrad.scale.record_store import Records

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
schema_name = pytest.importorskip("specgrad.cli.shared.json_parts").schema_name
SCHEMAS = pytest.importorskip("specgrad.cli.schema_command").schemas()

ROOT = Path(__file__).parents[2]
EACH = {
    "show": ["show net.onnx", "show net.onnx --detail", "show g.json"],
    "audit": [
        "audit net.onnx --runtime onnxruntime",
        "audit net.onnx --runtime onnxruntime --input nan.npy",
        "audit net.onnx --input x.npy --outputs x.npy",
        "audit net.onnx --input one.npy --outputs x.npy",
    ],
    "record": ["audit record net.onnx --runtime onnxruntime --out rec"],
    "conformance": ["conformance --runtime onnxruntime --operator global_max_pool --operator relu --count 16"],
    "describe": ["conformance --describe", "conformance --operator conv --describe"],
    "runtimes": ["conformance runtimes"],
    "explain": ["explain net.onnx --output 0,0", "explain g.json --output 0,0"],
    "rule": ["explain", "explain W2"],
    "certify": [
        "certify net.onnx p.vnnlib",
        "certify net.onnx p.vnnlib --certificate new.json",
        "certify net.onnx hard.vnnlib --seconds 0",
        "certify net.onnx --input x.npy --label 0 --eps 0.5",
        "certify net.onnx --input x.npy --label 0 --eps 0.5 --html shown.html",
        "certify net.onnx hard.vnnlib --seconds 5 --html open.html",
    ],
    "verify": [
        "verify p.vnnlib --network N=net.onnx",
        "verify hard.vnnlib --network net.onnx --timeout 0",
        "verify broken.vnnlib --network net.onnx",
    ],
    "supports": ["supports", "supports --onnx-operators"],
    "largest": [
        "certify net.onnx --input x.npy --label 0 --largest --seconds 5",
        "certify net.onnx --input one.npy --label 0 --largest --seconds 5 --certificate l.json",
    ],
    "preserve": [
        "preserve net.onnx data.npz --runtime none",
        "preserve net.onnx ties.npz",
        "preserve net.onnx data.npz --decision threshold:0.5 --eps 1",
        "preserve net.onnx nan.npz",
    ],
    "check-certificate": ["check-certificate new.json net.onnx p.vnnlib", "check-certificate c.json net.onnx p.vnnlib"],
    "accuracy": [
        "tolerance accuracy net.onnx --box 0,1",
        "tolerance accuracy net.onnx --box=-1e38,3e38 --execution node",
        "tolerance accuracy g.json --box x=-1/2,1/2 --depth 2",
    ],
    "tolerance": [
        "tolerance net.onnx --input x.npy",
        "tolerance net.onnx --input large.npy",
        "tolerance net.onnx --input several.npy --points --depth 2 --execution node",
        "tolerance g.json --dtype float16",
    ],
    "node-tests": ["tolerance node --onnx-node-tests nodes.json"],
    "compare": [
        "compare net.onnx net.onnx",
        "compare net.onnx g.json --input x.npy --eps 1/8",
        "compare g.json net.onnx --seconds 0",
    ],
    "vectors": ["conformance vectors --operator Flatten --operator ConvInteger --out pack --seed 1"],
    "classes": ["conformance vectors --list", "conformance vectors --list --operator MaxPool"],
    "tiles": [
        "tiles g.json --tile 1",
        "tiles g.json --memory 1GB",
        "tiles g.json",
        "tiles net.onnx --tile 1",
        "tiles g.json --tile 1 --passes",
    ],
    "window": [
        "show window --size 7 --kernel 3 --stride 2 --padding 1 --dilation 2 --ceil",
        "show window --size 6,5 --kernel 3,2 --padding 0:1,1 --operator conv --svg w.svg",
        "show window --size 5 --kernel 1 --stride 3 --padding 3 --values 1/2,-3,0.1,4,5 --operator avg_pool",
        "show window --size 3 --kernel 1 --padding 1",
    ],
    "profile": [
        "profile net.onnx",
        "profile clean.onnx --sonnx --box 0,1",
        "profile net.onnx --box -1,1 --normalise n.onnx",
    ],
    "campaign-estimate": ["campaign estimate new.toml", "campaign estimate new.toml --price 0.04"],
    "campaign-run": ["campaign run c.toml", "campaign run new.toml --executor loop"],
    "campaign-status": ["campaign status c.toml", "campaign status begun.toml"],
    "campaign-collect": [
        "campaign collect c.toml",
        "campaign collect begun.toml",
        "campaign collect found.toml",
        "campaign collect crashed.toml",
    ],
    "evidence": [
        "evidence net.onnx --recorded recorded.npz",
        "evidence net.onnx --recorded recorded.npz --data data.npz --box 0,1 --certificate c.json --property p.vnnlib",
    ],
    "error": ["show none.onnx", "audit net.onnx", "certify net.onnx p.vnnlib --operands tf16"],
}


def problems(data: Any, name: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMAS[name])
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in validator.iter_errors(data)]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.fixture
def campaigns(folder: Path, run) -> None:
    """One that is not done, one with a finding, one with a shard that crashed."""
    for name, statements in {"begun": "p hard", "found": "hard", "crashed": "p hard"}.items():
        files = [f"{s}.vnnlib" for s in statements.split()]
        spec = f'kind = "certify"\nfolder = "{name}"\nmodels = ["net.onnx"]\nproperties = {files}'
        (folder / f"{name}.toml").write_text(spec.replace("hard", "broken" if name == "found" else "hard"))
    (folder / "broken.vnnlib").write_text((folder / "p.vnnlib").read_text().replace("(>= Y_1 3)", "(<= Y_1 3)"))
    for name in ("begun", "found", "crashed"):
        assert run(f"campaign run {name}.toml --executor loop")[0] == 0
    for name in ("begun", "crashed"):
        (folder / name / "results" / "1").unlink()
    record = {"shard": 1, "how": "its process died: SIGKILL", "attempts": 3}
    fingerprint = jobs.status(folder / "crashed").about["fingerprint"]
    assert write_record(Records(folder / "crashed"), "crashed/1", json.dumps(record).encode() + b"\n", fingerprint)


@pytest.mark.parametrize("name", EACH)
def test_what_commands_print_is_what_is_written_down(name: str, folder: Path, run, request, estimated_here) -> None:
    if name in ("campaign-status", "campaign-collect"):
        request.getfixturevalue("campaigns")
    if name == "node-tests":
        request.getfixturevalue("node_tests")
    np.save("one.npy", np.array([[1, 0.5]], np.float32))
    np.save("nan.npy", np.array([[np.nan, 1]], np.float32))
    np.save("large.npy", np.full((1, 2), 3e38, np.float32))
    (folder / "broken.vnnlib").write_text((folder / "p.vnnlib").read_text().replace("(>= Y_1 3)", "(<= Y_1 3)"))
    np.save("several.npy", np.float32([[1, 0.5], [0, 0.1], [-1, 3]]))
    commands = [*(EACH["certify"][1:2] if name == "check-certificate" else []), *EACH[name]]
    objects = [json.loads(run(f"{command} --json")[1]) for command in commands][-len(EACH[name]) :]
    assert {data["schema"] for data in objects} == {schema_name(name)}
    assert [problems(data, name) for data in objects] == [[]] * len(objects)
    for data in objects:  # a key that is gone, a key that nobody wrote down, a verdict that is none
        assert problems({k: v for k, v in data.items() if k != "verdict"}, name)
        assert problems({**data, "surprise": 1}, name)
        assert problems({**data, "verdict": "perhaps"}, name)


def test_every_command_has_a_schema() -> None:
    cli = pytest.importorskip("specgrad.cli.main")
    assert set(SCHEMAS) == set(EACH)
    names = {c.rpartition(" ")[2] for c in cli._command().commands if c not in ("explain schema", "campaign")}
    names |= {f"campaign-{c}" for c in cli._command().commands["campaign"].commands}
    assert names == set(EACH) - {"error", "describe", "largest", "rule", "classes", "node-tests"}


def test_inner_keys_are_fixed_too(folder: Path, run) -> None:
    data = json.loads(run("audit net.onnx --runtime onnxruntime --json")[1])
    data["layers"][0]["surprise"] = 1
    assert problems(data, "audit")


def test_a_schema_is_printed(run) -> None:
    assert json.loads(run("explain schema audit")[1]) == SCHEMAS["audit"]
    assert run("explain schema")[1].split() == list(SCHEMAS)
    assert run("explain schema audits")[0] == 3


def test_the_page_is_current() -> None:
    document = runpy.run_path(str(ROOT / "tools" / "make_json.py"))["document"]()
    assert (ROOT / "docs" / "reference" / "json.md").read_text() == document
