"""Without each optional package: one line says what needs it and what to install, in Python as in the command."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg
from hidden import python_without, run_without
from specgrad.errors import PACKAGES, need
from structure import MODULES, ROOMS, is_command, nodes_of, texts

pytest.importorskip("torch")
pytest.importorskip("onnx")

COMMANDS = {
    "show net.onnx": "onnx",
    "show arrays.json": "",
    "show mine:net --input x.npy": "torch",
    "audit net.onnx --runtime onnxruntime": "onnx onnxruntime",
    "audit net.onnx --runtime openvino-f32": "onnx openvino",
    "audit record net.onnx --runtime onnxruntime --out rec": "onnx onnxruntime safetensors",
    "audit net.onnx --runtime onnx-reference": "onnx",
    "audit mine:net --runtime onnxruntime --input x.npy": "torch onnx onnxruntime onnxscript",
    "audit mine:net --runtime torch --input x.npy": "torch",
    "conformance --runtime torch --operator relu --count 8": "torch",
    "conformance --runtime jax --operator relu --count 8": "jax",
    "conformance --runtime onnxruntime --operator relu --count 8": "onnx onnxruntime",
    "conformance runtimes": "",
    "explain net.onnx --output 0,1": "onnx",
    "explain W2": "",
    "--version": "",
    "certify net.onnx p.vnnlib": "torch onnx",
    "certify arrays.json --input x.npy --label 0 --eps 0.1": "torch",
    "certify arrays.json --input x.npy --label 0 --eps 0.75": "torch",  # a counterexample
    "certify net.onnx two.vnnlib": "torch onnx vnnlib",
    "certify net.onnx p.vnnlib --certificate new.json --force": "torch onnx flint safetensors",
    "check-certificate new.json net.onnx p.vnnlib": "onnx flint",
    "verify p.vnnlib --network net.onnx": "torch onnx",
    "verify two.vnnlib --network N=net.onnx": "torch onnx vnnlib",
    "verify p.vnnlib --network net.onnx --serialise-assignments out": "torch onnx",
    "supports --onnx-operators": "onnx",
    "supports --vnnlib-versions": "",
    "tolerance net.onnx --input x.npy": "torch onnx",
    "tolerance accuracy net.onnx --box 0,1": "torch onnx",
    "tolerance arrays.json --input x.npy": "torch",
    "preserve net.onnx data.npz": "torch onnx",
    "preserve arrays.json data.npz --eps 1": "torch",  # two inputs that are decided differently
    "compare net.onnx net.onnx": "onnx",
    "profile net.onnx --box 0,1": "onnx",
    "show window --size 7 --kernel 3": "",
    "evidence net.onnx --recorded recorded.npz": "torch onnx",
    "conformance vectors --list": "onnx",
    "conformance vectors --operator Tanh --out pack --force": "onnx flint",
    "tiles net.onnx": "onnx",
    "tiles arrays.json --tile 1": "",
    "tiles mine:net --shape 1,2": "torch",
    "campaign estimate ask.toml": "onnx onnxruntime",
    "campaign run new.toml --executor loop": "torch onnx",
    "campaign collect new.toml": "torch onnx",
}
"""What each command cannot do without."""
TWO = """(vnnlib-version <2.0>)
(declare-network N (declare-input X float32 [1, 2]) (declare-output Y float32 [1, 2]))
(assert (>= X[0, 0] 0.0)) (assert (<= X[0, 0] 1.0)) (assert (>= X[0, 1] 0.25)) (assert (<= X[0, 1] 1.0))
(assert (>= Y[0, 1] 3.0))"""
MINE = "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).eval()\n"


@pytest.fixture
def place(folder: Path) -> Path:
    (folder / "two.vnnlib").write_text(TWO)
    (folder / "mine.py").write_text(MINE)
    weights = np.array([[1, 1], [1, -1]], np.float32)
    sg.save(sg.trace(lambda x: sg.relu(sg.linear(weights, None, x)), (1, 2)), folder / "arrays.json")
    np.save(folder / "x.npy", np.array([[1, 0.5]], np.float32))
    (folder / "new.json").write_text("{}")
    return folder


def lines_of(package: str) -> str:
    name, extra = PACKAGES[package]
    return rf"specgrad: [\w.\- ]+ needs? {name}: pip install 'specgrad\[{extra}\]'\n"


def judge(package: str, commands: list[str], answers: list[tuple[str, str]]) -> None:
    """Whoever needs it says so in one line and ends with 3; nobody else notices."""
    for command, (code, said) in zip(commands, answers, strict=True):
        if package in ("typer", "rich") or package in COMMANDS[command].split():
            assert (command, code, bool(re.fullmatch(lines_of(package), said))) == (command, "3", True), said
        else:
            assert (command, code in ("0", "1", "None"), said) == (command, True, "")


EXECUTORS = {
    "distributed": ("run ask.toml --executor dask", "run ask.toml --executor dask --address tcp://127.0.0.1:9"),
    "ray": ("run ask.toml --executor ray", "run ask.toml --executor ray --address auto"),
    "obstore": ("run store.toml --executor loop", "status store.toml"),
}
CALLS = {
    "PIL": (
        "from specgrad.check.models.input_files import *; "
        "read_media(Path('p.vnnlib'), ModelInput('x', [3, 8, 8]), 'raw')",
        "images need pillow: pip install 'specgrad[images]'",
    ),
    "flint": ("sg.balls([1])", "balls need python-flint: pip install 'specgrad[balls]'"),
    "torch": ("crown(graph, Box([0.0], [1.0]))", "crown needs torch: pip install 'specgrad[torch]'"),
    "jax": ("sg.compile(graph, 'jax')", "the JAX engine needs jax: pip install 'specgrad[jax]'"),
    "onnx": ("from_onnx('net.onnx')", "ONNX files need onnx: pip install 'specgrad[onnx]'"),
    "safetensors": (
        "sg.save_params({'w': np.ones(2)}, 'p.safetensors')",
        "arrays in files need safetensors: pip install 'specgrad[save]'",
    ),
}
PROGRAM = """
import numpy as np
import specgrad as sg
import specgrad.bounds, specgrad.check, specgrad.rounding, specgrad.interop
graph = sg.trace(lambda x: sg.relu(x), (1,))
try:
    from specgrad.bounds import Box, crown
    {imports}
    {call}
except ImportError as error:
    assert isinstance(error, sg.SpecgradError)
    print(error)
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_who_needs_it_says_so(package: str, place: Path) -> None:
    """A command that needs little else, executors and stores, and a call in Python, in one process without it."""
    (place / "store.toml").write_text((place / "ask.toml").read_text().replace('"q"', '"memory:///run"'))
    who = [c for c, needs in COMMANDS.items() if package in needs.split()] or ["explain W2"]
    who = sorted(who, key=lambda command: len(COMMANDS[command].split()))[:1]
    more = [f"campaign {command}" for command in EXECUTORS.get(package, ())]
    call, line = CALLS.get(package, ("", ""))
    imports = "from specgrad.interop import from_onnx" if package == "onnx" else ""
    after = PROGRAM.format(call=call, imports=imports) if call else ""
    said, printed = run_without(package, [*who, *more], place, after)
    judge(package, who, said[:1])
    name, extra = PACKAGES[package]
    for code, words in said[1:]:
        assert (code, words.count("\n")) == ("3", 1)
        assert words.endswith(f" {name}: pip install 'specgrad[{extra}]'\n")
    assert not call or printed.splitlines()[-1] == line


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_every_command_without_every_package(package: str, place: Path) -> None:
    written = {"torch", "onnx", "flint", "safetensors"}  # without these, there is no certificate to check
    commands = [c for c in COMMANDS if package not in written or not c.startswith("check-")]
    judge(package, commands, run_without(package, commands, place)[0])


def test_the_core_needs_numpy_alone(tmp_path: Path) -> None:
    """Every package hidden at once: the core, rounding, interval bounds and the records of runtimes are there."""
    code = PROGRAM.format(imports="", call="print(specgrad.bounds.ibp(graph, Box([-1.0], [1.0])).outputs.high)")
    done = python_without(",".join(PACKAGES), code, tmp_path)
    assert done.stderr == ""
    assert done.stdout.startswith("[1.")


def test_a_broken_package_is_named_with_its_own_words(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "vnnlib.py").write_text("import no_such_part")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vnnlib", raising=False)
    with pytest.raises(sg.MissingPackageError) as caught:
        need("vnnlib", "properties need")
    text = (
        "properties need vnnlib, which is installed but does not import (ModuleNotFoundError: No module named 'no_such_"
    )
    assert str(caught.value).startswith(text)


# --- nobody forgets to ask --------------------------------------------------------------------------------------------

ASKED_BEFORE = {
    "specgrad.bounds.box": {"torch", "jax"},  # the caller's own tensor is of one of them
    "specgrad.bounds.search": {"torch", "onnx"},  # certify and prove ask first, and interop.model for ONNX files
    "specgrad.check.conform.cropped_reference": {"torch"},  # for a tensor that was handed over
    "specgrad.check.models": {"torch", "onnx"},  # interop.model asks first
    "specgrad.check.decisions": {"torch", "jax"},  # preserve asks first; JAX is run where it is installed
    "specgrad.scale.tile": {"torch", "jax"},  # the caller's own tensor is of one of them
    "specgrad.scale.plan_file": {"torch"},  # blueprint_of asks for its engine first
    "specgrad.scale.tile_job": {"torch", "jax"},
    "specgrad.scale.torch_devices": {"torch"},
    "specgrad.scale.sharding.torch_exchange": {"torch"},  # shard asks first
    "specgrad.scale.sharding.sharded_graph": {"torch"},
    "specgrad.scale.executors": {"dask"},  # distributed, which it asks for, needs it
    "specgrad.window.tap": {"torch"},  # for a tensor that was handed over
    "specgrad.safety.vectors.run_vectors": {"onnxruntime"},  # a program that a pack carries, and nobody imports
    "specgrad.cli": {"typer", "rich", "torch"},  # main asks first; for torch, whoever loads the module
}


def optional_imports(text: str) -> set[str]:
    names = set()
    for node in nodes_of(text):
        if isinstance(node, ast.Import):
            names |= {a.name.partition(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names & set(PACKAGES)


def unasked(name: str, text: str) -> set[str]:
    """Optional packages that a module imports though neither it nor a package around it calls `need`."""
    parts = name.split(".")
    around = [MODULES[".".join(parts[:k])] for k in range(1, len(parts)) if ".".join(parts[:k]) in MODULES]
    asked = "".join([text, *(p.read_text() for p in around)])
    asked += 'need("typer" need("rich"' if is_command(name) else ""  # cli/main.py asks, before it loads a command
    return {package for package in optional_imports(text) if f'need("{package}"' not in asked}


def asked_before(name: str) -> set[str]:
    return set().union(*(packages for known, packages in ASKED_BEFORE.items() if f"{name}.".startswith(f"{known}.")))


@pytest.mark.parametrize("room", ROOMS)
def test_who_imports_an_optional_package_asks_first(room: str) -> None:
    found = {name: unasked(name, text) - asked_before(name) for name, text in texts(room).items()}
    assert {name: packages for name, packages in found.items() if packages} == {}


def test_a_forgotten_question_is_found() -> None:
    assert unasked("specgrad.scalar", "def balls(x):\n    from flint import arb\n") == {"flint"}
    assert unasked("specgrad.engines.torch.lowerings", "import torch\nimport jax") == {"jax"}


def test_every_package_is_in_an_extra() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for package, extra in PACKAGES.values():
        assert any(re.match(rf"{package}\W", line) for line in extras[extra]), package
    assert set(extras["all"][0].removeprefix("specgrad[").removesuffix("]").split(",")) == set(extras) - {
        "all",
        "docs",
        "examples",
        "dev",
    }
