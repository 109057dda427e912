"""How every command ends: the exit code, one line on stderr, strict JSON under --json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from forks import COMMAND
from slices import diagonals

pytest.importorskip("typer")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
cli = pytest.importorskip("specgrad.cli.main")

GOOD = {
    "show": "show net.onnx",
    "audit": "audit net.onnx --runtime onnxruntime",
    "conformance": "conformance --runtime onnxruntime --operator relu --count 8",
    "explain": "explain net.onnx --output 0,0",
    "runtimes": "conformance runtimes",
    "rule": "explain W2",
    "certify": "certify net.onnx p.vnnlib --seconds 10",
    "check-certificate": "check-certificate c.json net.onnx p.vnnlib",
    "verify": "verify p.vnnlib --network N=net.onnx --timeout 10",
    "supports": "supports --onnx-operators",
    "preserve": "preserve net.onnx data.npz --runtime none",
    "tolerance": "tolerance net.onnx --input x.npy",
    "accuracy": "tolerance accuracy net.onnx --box 0,1",
    "compare": "compare net.onnx net.onnx --input x.npy",
    "tiles": "tiles g.json --tile 1",
    "window": "show window --size 7 --kernel 3",
    "record": "audit record net.onnx --runtime onnxruntime --out rec",
    "evidence": "evidence net.onnx --recorded recorded.npz",
    "profile": "profile clean.onnx --sonnx",
    "vectors": "conformance vectors --operator Flatten --out pack --force",
    "campaign-estimate": "campaign estimate new.toml",
    "campaign-run": "campaign run c.toml --executor loop",
    "campaign-status": "campaign status c.toml",
    "campaign-collect": "campaign collect c.toml",
}
CAMPAIGN = ("estimate", "run", "status", "collect")
WRONG_FILES = {
    "show": ("show {}.onnx", "show {}.json", "show net.onnx --input {}.npy"),
    "audit": (
        "audit {}.onnx --runtime onnxruntime",
        "audit net.onnx --runtime onnxruntime --input {}.npy",
        "audit net.onnx --input x.npy --outputs {}.npy",
        "audit net.onnx --recorded {}.npz",
        "audit {}.onnx --recorded recorded.npz",
    ),
    "record": (
        "audit record {}.onnx --runtime onnxruntime --out rec",
        "audit record net.onnx --runtime onnxruntime --out rec --input {}.npy",
    ),
    "explain": ("explain {}.onnx --output 0,0", "explain {}.json --output 0"),
    "certify": (
        "certify {}.onnx p.vnnlib",
        "certify {}.json p.vnnlib",
        "certify net.onnx {}.vnnlib",
        "certify net.onnx --input {}.npy --label 0 --eps 0.1",
    ),
    "verify": ("verify {}.vnnlib --network N=net.onnx", "verify p.vnnlib --network N={}.onnx"),
    "check-certificate": ("check-certificate c.json {}.onnx p.vnnlib", "check-certificate c.json net.onnx {}.vnnlib"),
    "preserve": (
        "preserve {}.onnx data.npz",
        "preserve {}.json data.npz",
        "preserve net.onnx {}.npz",
        "preserve net.onnx {}.npy",
    ),
    "accuracy": ("tolerance accuracy {}.onnx --box 0,1", "tolerance accuracy {}.json --box 0,1"),
    "tolerance": ("tolerance {}.onnx --input x.npy", "tolerance {}.json", "tolerance net.onnx --input {}.npy"),
    "evidence": (
        "evidence {}.onnx --recorded recorded.npz",
        "evidence net.onnx --recorded {}.npz",
        "evidence net.onnx --recorded recorded.npz --data {}.npz",
        "evidence net.onnx --recorded recorded.npz --certificate c.json --property {}.vnnlib",
    ),
    "tiles": ("tiles {}.onnx --tile 1", "tiles {}.json"),
    "profile": ("profile {}.onnx", "profile net.onnx --digests {}.json"),
    "campaign": tuple(f"campaign {name} {{}}.toml" for name in CAMPAIGN),
    "compare": ("compare {}.onnx net.onnx", "compare net.onnx {}.json", "compare net.onnx net.onnx --input {}.npy"),
}
FILES = [command.format(name) for row in WRONG_FILES.values() for command in row for name in ("bad", "none")]
USAGE = [f"{command} --colour red" for command in GOOD.values()] + ["shwo", "audit net.onnx"]
USAGE += ["rule W9", "audit net.onnx --outputs x.npy", "audit net.onnx --runtime torch --input x.npy --outputs x.npy"]
USAGE += ["audit net.onnx --input x.npy --outputs x.npy --outputs x.npy"]
USAGE += ["check-certificate none.json net.onnx p.vnnlib", "check-certificate . net.onnx p.vnnlib"]
USAGE += ["show net.onnx --input x.npy --input x.npy", "show os:getcwd", "show sys:path", "certify sys:exit p.vnnlib"]
USAGE += ["audit g.json --runtime onnxruntime", "conformance --runtime onnxruntime --seed -1"]
USAGE += ["certify net.onnx p.vnnlib --certificate c.safetensors"]
USAGE += [
    f"verify p.vnnlib {option}"
    for option in (
        "",
        "--network N=net.onnx --network M=net.onnx",
        "--network N=net.onnx --network N=net.onnx",
        "--network net.onnx --timeout soon",
        "--network net.onnx --execution merged",
        "--network net.onnx --counterexample net.onnx",
        "--network net.onnx --serialise-assignments net.onnx",
    )
]
USAGE += ["verify", "supports --onnx-operators --vnnlib-versions", "supports --operators"]
USAGE += ["certify net.onnx --input x.npy --label 0 --largest --html new.html"]
USAGE += [f"{GOOD['preserve']} {option}" for option in ("--decision best", "--decision top-2", "--eps x", "--eps -1")]
USAGE += [f"{GOOD['preserve']} {option}" for option in ("--array z", "--dtype int8", "--operands tf16", "--output z")]
USAGE += ["preserve net.onnx data.npz --runtime cuda", "preserve net.onnx empty.npz", "preserve net.onnx words.npz"]
USAGE += ["preserve net.onnx data.npz --checkpoint bad.npy", "preserve net.onnx data.npz --html bad.npy"]
USAGE += [
    f"tolerance accuracy net.onnx {o}" for o in ("", "--box 1", "--box 1,0", "--box a,b", "--box y=0,1", "--box 0,1/0")
]
USAGE += [
    "tolerance accuracy net.onnx --box 0,inf",
    "tolerance accuracy net.onnx --box 0,1 --depth 0",
    "tolerance accuracy none.onnx --box 0,1",
]
USAGE += ["tolerance net.onnx --dtype float31", "tolerance net.onnx --depth 0", "tolerance net.onnx --stored h2"]
USAGE += ["tolerance net.onnx --input bad.npz", "tolerance net.onnx --input x.npy --input x.npy"]
USAGE += [
    "conformance vectors",
    "conformance vectors --out pack --list",
    "conformance vectors --list --operator Flat",
    "conformance vectors --out .",
    "conformance vectors --out net.onnx",
]
USAGE += [
    "rule",
    "explain Q9",
    "explain net.onnx",
    "explain g.json --layer x",
    "explain --output 0",
    "explain W2 --output 0",
]
USAGE += ["compare net.onnx", "compare net.onnx net.onnx --eps -1", "compare net.onnx net.onnx --eps few"]
USAGE += [
    f"tiles g.json {option}"
    for option in ("--tile x", "--tile 0", "--tile 1,1,1", "--memory 1", "--memory few", "--axes 7")
]
USAGE += ["tiles g.json --tile 1 --memory 1GB", "tiles g.json --dtype int8", "tiles g.json --shape y=1,2"]
USAGE += [
    f"show window --size 7 --kernel 3 {option}"
    for option in (
        "--stride 0",
        "--padding few",
        "--padding 1:2:3",
        "--dilation 9",
        "--values 1,2",
        "--values 1e999999999,2,3,4,5,6,7",
        "--values 1/0,2,3,4,5,6,7",
        "--weights 1,2,3",
        "--output 9",
        "--operator pool",
        "--operator conv --ceil",
        "--svg net.onnx",
        "--svg nowhere/w.svg",
    )
]
USAGE += [
    "show window --size 7",
    "show window --size 7,7,7 --kernel 3",
    "show window --size 999 --kernel 3",
    "show window --size x --kernel 3",
]
USAGE += [f"profile net.onnx {o}" for o in ("--box 1", "--box x,y", "--box 2,1", "--box 0,inf", "--shape y=1")]
USAGE += [f"profile net.onnx --normalise {f}" for f in ("net.onnx", "x.npy", "nowhere/n.onnx", "./net.onnx --force")]
USAGE += ["profile net.onnx --html net.onnx", "profile", "profile ."]
USAGE += ["show window --size 3 --kernel 7", "show window --size 7 --kernel 3 --padding 99999999"]
USAGE += [f"campaign {name} {spec}.toml" for name in CAMPAIGN for spec in ("kind", "place")]
USAGE += [f"campaign {name} {s}.toml" for name in CAMPAIGN if name != "status" for s in ("key", "value", "file")]
USAGE += ["campaign", "campaign stop c.toml", "campaign run other.toml --executor loop", "campaign collect other.toml"]
USAGE += [f"campaign {name} new.toml" for name in ("status", "collect")]
USAGE += [
    f"campaign run c.toml {o}" for o in ("--executor threads", "--workers 0", "--address tcp://x", "--retries -1")
]
USAGE += ["campaign estimate new.toml --price -1", "campaign collect c.toml --scripts net.onnx"]
USAGE += [
    f"{GOOD['evidence']} {o}" for o in ("--box 1", "--box 1,0", "--box few", "--decision best", "--html net.onnx")
]
USAGE += [
    f"{GOOD['evidence']} {o}"
    for o in ("--low 0", "--low 1 --high 0", "--box 0,1 --low 0 --high 1", "--low 0 --high 1e999")
]
USAGE += ["evidence net.onnx --recorded data.npz", f"{GOOD['evidence']} --certificate c.json", "evidence net.onnx"]
TIME_OUTS = ["audit net.onnx --runtime onnxruntime --seconds 0", "certify net.onnx hard.vnnlib --seconds 0"]
TIME_OUTS += ["verify hard.vnnlib --network net.onnx --timeout 0"]
INSIDE: dict[str, tuple[Any, str]] = {
    "show": (import_module("specgrad.graph.command"), "importable_graph"),
    "audit": (import_module("specgrad.check.auditing.command"), "run_audit"),
    "conformance": (import_module("specgrad.check.conform.command"), "run_conformance"),
    "explain": (import_module("specgrad.graph.command"), "run_explain"),
    "runtimes": (import_module("specgrad.check.conform.command"), "print_verdict"),
    "rule": (import_module("specgrad.graph.command"), "rule_text"),
    "certify": (import_module("specgrad.bounds.search.certify"), "certify"),
    "verify": (import_module("specgrad.bounds.search.query"), "certify_query"),
    "supports": (import_module("specgrad.properties.command"), "print_verdict"),
    "check-certificate": (import_module("specgrad.proof.files.certificate"), "check_file"),
    "preserve": (import_module("specgrad.check"), "preserve"),
    "tolerance": (import_module("specgrad.check.tolerances.labelled"), "tolerance_at"),
    "accuracy": (import_module("specgrad.safety.accuracy"), "accuracy"),
    "compare": (import_module("specgrad.check"), "compare"),
    "tiles": (import_module("specgrad.scale"), "halo"),
    "window": (sg, "show_window"),
    "record": (import_module("specgrad.check.models.command"), "run_record"),
    "evidence": (import_module("specgrad.safety.evidence"), "gather"),
    "profile": (import_module("specgrad.safety.profile"), "check_profile"),
    "vectors": (import_module("specgrad.safety.vectors"), "write_pack"),
    "campaign-estimate": (import_module("specgrad.scale.campaign"), "estimate"),
    "campaign-run": (import_module("specgrad.scale.campaign"), "run"),
    "campaign-status": (import_module("specgrad.scale.campaign"), "standing"),
    "campaign-collect": (import_module("specgrad.scale.campaign"), "collect"),
}


CLOSED = """import os, sys
os.close(int(sys.argv[1]))
os.execv(sys.executable, [sys.executable, "-m", "specgrad", *sys.argv[2:]])
"""
STREAMS = f"""import os, sys
if sys.argv[1] == "full":
    os.dup2(os.open("/dev/full", os.O_WRONLY), int(sys.argv[2]))
else:
    read, write = os.pipe()
    os.dup2(write, int(sys.argv[2]))
    os.close(read), os.close(write)
del sys.argv[1:3]
{COMMAND}
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(("command", "right"), [(GOOD["show"], 0), ("show none.onnx --json", 3)])
@pytest.mark.parametrize("state", ["closed", "full", "unread"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_stream_that_cannot_be_written_costs_no_exit_code(
    number: int, state: str, command: str, right: int, folder, forks
) -> None:
    """What should have been said, and could not be, is unexpected (4), unless nobody wants to read it; never 1."""
    if state == "closed":  # Python looks when it starts
        text = [sys.executable, "-c", CLOSED, str(number), *command.split()]
        done = subprocess.run(text, capture_output=True, text=True)
    else:
        done = forks.python(STREAMS, state, str(number), *command.split())
    lost = number == 1 and state == "full" and right == 0
    assert done.returncode == (4 if lost else right), done.stderr
    assert lost or right or done.stderr == ""
    assert "Traceback" not in done.stderr
    assert number == 2 or right == 0 or one_line(done.stderr)


def test_a_pipe_without_our_letters_shows_their_codes(folder) -> None:
    sg.save(sg.trace(lambda größe: sg.relu(größe), (1,)), folder / "letters.json")
    done = subprocess.run(
        [sys.executable, "-m", "specgrad", "show", "letters.json"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfe" in done.stdout


def one_line(err: str) -> bool:
    return err.startswith("specgrad: ") and err.count("\n") == 1 and err.endswith("\n")


@pytest.mark.parametrize(("command", "json_too"), diagonals(FILES + USAGE, ["", " --json"], 2))
def test_usage_and_unreadable_files_are_3(command: str, json_too: str, folder, run, monkeypatch) -> None:
    code, out, err = run(command + json_too)
    assert (code, one_line(err)) == (3, True), (out, err)
    assert not json_too or json.loads(out)["verdict"] == "error"


@pytest.mark.parametrize("json_too", ["", " --json"])
@pytest.mark.parametrize("command", TIME_OUTS)
def test_a_time_out_is_2(command: str, json_too: str, folder, run, monkeypatch) -> None:
    assert run(command + json_too)[0] == 2


@pytest.mark.parametrize("json_too", ["", " --json"])
@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(("error", "code", "verdict"), [(RuntimeError("lost\n\x1b[2J"), 4, "error"),
                                                        (KeyboardInterrupt(), 2, "cannot tell")])  # fmt: skip
def test_a_crash_inside_is_4_and_an_interrupt_is_2(
    name: str, error: BaseException, code: int, verdict: str, json_too: str, folder, run, monkeypatch
) -> None:
    def fail(*args: Any, **named: Any) -> None:
        raise error

    monkeypatch.setattr(*INSIDE[name], fail)
    found, out, err = run(GOOD[name] + json_too)
    assert (found, one_line(err), "\x1b" in err) == (code, True, False), (out, err)
    assert not json_too or json.loads(out)["verdict"] == verdict


def test_debug_shows_the_traceback_wherever_it_stands(folder, run, monkeypatch) -> None:
    monkeypatch.setattr("specgrad.graph.command.importable_graph", lambda *_: 1 // 0)
    for command in ("--debug show net.onnx", "show net.onnx --debug"):
        code, _, err = run(command)
        assert code == 4
        assert "Traceback" in err
        assert err.splitlines()[-1].startswith("specgrad: unexpected ZeroDivisionError")
    assert "Traceback" not in run("show net.onnx")[2]


RIGHT = [n for n in GOOD if n not in ("check-certificate", "evidence")]  # these answer no


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_0_and_strict_json(name: str, folder, run, estimated_here) -> None:
    code, out, err = run(f"{GOOD[name]} --json")
    assert code == 0, (out, err)


BY_TORCH = ("certify", "verify", "preserve", "tolerance", "accuracy", "evidence", "campaign-run", "campaign-collect")


@pytest.mark.parametrize("name", GOOD)
def test_each_command_is_whole_in_a_process_of_its_own(name: str, folder, request) -> None:
    """None leans on a module that another one has imported."""
    started = request.getfixturevalue("torch_forks" if name in BY_TORCH else "forks")
    done = started.specgrad(*GOOD[name].split())
    assert done.returncode == (0 if name in RIGHT else 1), done
    assert (done.stderr, bool(done.stdout)) == ("", True)


def test_a_verdict_has_the_colour_of_its_exit_code() -> None:
    from specgrad.cli.shared.console import colour
    from specgrad.cli.shared.exit_codes import CODES

    assert {kind: colour(kind) for kind in CODES} == {k: ("green", "red", "yellow")[code] for k, code in CODES.items()}


def test_rules_are_printed_and_listed(folder, run) -> None:
    assert run("explain W2")[1].startswith("[W2] The window fits\n")
    assert json.loads(run("explain [W2] --json")[1])["text"] == run("explain W2")[1].rstrip("\n")
    assert "P6" in run("explain")[1]
    assert "W3" in json.loads(run("explain --json")[1])["rules"]


@pytest.mark.parametrize("json_too", ["", " --json"])
def test_a_command_that_moved_says_where_it_went(folder, run, json_too: str) -> None:
    code, out, err = run(f"rule W2{json_too}")
    assert code == 3
    assert "specgrad explain W2 prints a rule" in out + err


def test_an_error_ends_with_its_label(folder, run) -> None:
    assert run("certify net.onnx p.vnnlib --execution merged")[2].endswith(" (specgrad explain P5)\n")


@pytest.mark.parametrize("json_too", ["", " --json"])
def test_audit_of_a_wrong_exact_operator_is_a_verdict(json_too: str, folder, run, monkeypatch) -> None:
    """A maximum allows no error at all, so a wrong one uses infinitely much of it; ONNX Runtime drops NaN there."""
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2])
    ends = [info("x", 1, [1, 1, 4])], [info("y", 1, None)]
    opset = [onnx.helper.make_opsetid("", 22)]
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph([node], "g", *ends), opset_imports=opset, ir_version=10), "m.onnx"
    )
    np.save("x.npy", np.array([[[1, np.nan, 3, 2]]], np.float32))
    command = f"audit m.onnx --runtime onnxruntime --input x.npy{json_too}"
    code, out, err = run(command)
    assert code == 1, err
    assert "differs" in out
    from specgrad.cli.shared.console import bar

    assert bar(np.inf) == bar(2.0) == bar(1.0) == "█" * 12
