"""Every sentence of ARCHITECTURE.md, CONTRIBUTING.md and TRUST.md about the structure, held against the source."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
import tomllib
from functools import cache
from typing import Any

import pytest

import specgrad as sg
from specgrad.window import Tap
from structure import (
    MODULES,
    ROOMS,
    SOURCE,
    circles,
    coordinates,
    dependencies,
    imported,
    is_command,
    nodes_of,
    room_of,
    tap_indices,
)

edges = cache(dependencies)
PYTHON = re.compile(r"```python\n(.*?)```", re.S)

FLOORS = [
    "late_tables",
    "errors",
    "deadline",
    "rulebook",
    "atomic_files",
    "bounded_files",
    "execution_text",
    "curve",
    "facts",
    "svg",
    "html_page",
    "scalar",
    "window",
    "call_cache",
    "op",
    "ops",
    "declared_errors",
    "graph",
    "show",
    "equivalence",
    "properties",
    "proof",
]
FLOORS += [
    "partition",
    "engines",
    "public_names",
    "specgrad",
    "functional",
    "rounding",
    "process",
    "interop",
    "bounds",
    "check",
    "pytest_plugin",
    "safety",
    "scale",
    "cli",
]
FLOORS += ["__main__"]


def test_every_room_has_its_floor() -> None:
    assert {room_of(m) for m in MODULES} == set(FLOORS)


@pytest.mark.parametrize("room", ROOMS)
def test_dependencies_point_one_way(room: str) -> None:
    lower = FLOORS[: FLOORS.index(room) + 1]
    assert {(name, m) for name in ROOMS[room] for m in edges()[name] if room_of(m) not in lower} == set()


INNER = {
    "check": "cases runtimes models verdicts conform kernels tolerances comparison auditing decisions pages",
    "bounds.linear": "relaxation propagation intermediate",
    "bounds.search": "shared network statement input_split neuron_split certify query certificates eps_search",
    "proof": "base exact batched files api extracted",
    "cli": "shared main schema_command",
    "graph": "ir drawing graph interface var builder explain transforms files",
}
"""Floors inside a room, the lowest first: each imports from those before it. A package may name its own modules."""


def inner_floor(room: str, module: str) -> str:
    """The name behind the room: "specgrad.check.models.load" is on floor "models" of "check"; "" for others."""
    head = f"specgrad.{room}."
    inside = module.startswith(head) and not is_command(module)
    return module.removeprefix(head).partition(".")[0] if inside else ""


def above(room: str, floors: list[str], edges: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Imports from a later floor of the room, as (importer, imported)."""
    found = []
    for name, read in edges.items():
        here = inner_floor(room, name)
        later = floors[floors.index(here) + 1 :] if here else []
        found += [(name, m) for m in sorted(read) if inner_floor(room, m) in later]
    return found


def test_commands_are_named_by_one_table() -> None:
    """cli/ knows rooms by strings alone, each of which is there; what several commands share is in cli/shared."""
    from specgrad.cli.main import HOMES

    homes = {f"specgrad.{home}" for home in HOMES.values()}
    assert homes == {name for name in MODULES if is_command(name)} | {"specgrad.cli.schema_command"}
    assert [name for name in MODULES if edges()[name] & homes] == []
    front = [
        name for name in MODULES if name.startswith("specgrad.cli.") and not name.startswith("specgrad.cli.shared")
    ]
    assert {room_of(m) for name in front for m in edges()[name]} <= {"cli", "errors", "specgrad"}


@pytest.mark.parametrize("room", INNER)
def test_floors_inside_a_room(room: str) -> None:
    floors = INNER[room].split()
    assert {inner_floor(room, m) for m in MODULES} - {""} == set(floors)
    assert above(room, floors, edges()) == []


def test_an_import_from_above_is_seen() -> None:
    wrong = {"specgrad.proof.base.rationals": {"specgrad.proof.exact.replay", "specgrad.errors"}}
    found = [("specgrad.proof.base.rationals", "specgrad.proof.exact.replay")]
    assert above("proof", INNER["proof"].split(), wrong) == found


MOST_MODULES = 20


def test_no_folder_is_a_hall() -> None:
    folders = {path.parent for path in MODULES.values()}
    assert {f.name: n for f in folders if (n := len(list(f.glob("*.py")))) > MOST_MODULES} == {}


TWICE = {"Compiled", "Sharded", "Finding", "RegionPart", "RoundingCount"}
"""One meaning per engine or report; two modules that count roundings independently of each other."""


def test_a_class_name_stands_once() -> None:
    texts = [path.read_text(encoding="utf-8") for path in MODULES.values()]
    names = [n.name for text in texts for n in nodes_of(text) if isinstance(n, ast.ClassDef)]
    assert {name for name in names if names.count(name) > 1} == TWICE


def test_no_import_circle() -> None:
    assert circles(edges()) == []


def test_circles_of_every_kind_are_seen() -> None:
    known = frozenset({"specgrad", "specgrad.a", "specgrad.b", "specgrad.c"})
    for text in (
        "from . import b",
        "from .b import f",
        "from specgrad.b import f",
        "import specgrad.b",
        "def f():\n    from .b import g",
        "from importlib import import_module\nimport_module('specgrad.b')",
        "from importlib import import_module\nimport_module(f'.{x}', __name__)",
    ):
        found = imported("specgrad.a", text, False, known)
        assert "specgrad.b" in found, text
        assert circles({"specgrad.a": found, "specgrad.b": {"specgrad.c"}, "specgrad.c": {"specgrad.a"}})
        assert not circles({"specgrad.a": found, "specgrad.b": {"specgrad.c"}, "specgrad.c": set()})


# --- the rooms --------------------------------------------------------------------------------------------------------


def rooms_read_by(room: str) -> set[str]:
    return {room_of(m) for name in MODULES if room_of(name) == room for m in edges()[name]} - {room}


def test_properties_imports_files_errors_and_scalar_only() -> None:
    assert rooms_read_by("properties") <= {"errors", "bounded_files", "scalar"}


def test_proof_imports_nothing_above_graph() -> None:
    """What must be trusted stands alone: no engine, no rounding, no bound."""
    allowed = {
        "errors",
        "atomic_files",
        "bounded_files",
        "execution_text",
        "declared_errors",
        "scalar",
        "window",
        "op",
        "graph",
        "properties",
    }
    assert rooms_read_by("proof") <= allowed


LOADED = """
import sys
import specgrad.proof.files.certificate
print([m for m in sys.modules if m.partition(".")[0] == "specgrad"])
"""


READS_FILES = {
    "specgrad.safety.vectors.expected",  # a file that was written a line before
    "specgrad.safety.profile.normaliser.normalise",  # its subject is the file
}


def test_models_come_through_one_gate() -> None:
    """`interop.model` alone turns what a user gave into a graph; others ask it."""
    readers = {"from_onnx", "from_torch", "input_dims", "meaning_of"}
    outside = {m: p for m, p in MODULES.items() if room_of(m) not in ("interop", "specgrad") and m not in READS_FILES}
    assert [m for m, p in outside.items() if readers & imported_names(p.read_text(encoding="utf-8"))] == []
    assert imported_names("def f():\n    from .interop import from_onnx as read") == {"from_onnx"}


def imported_names(source: str) -> set[str]:
    """Names that a source text imports from anywhere, as they are called there."""
    return {a.name for n in nodes_of(source) if isinstance(n, ast.ImportFrom) for a in n.names}


def test_equivalence_imports_nothing_above_graph() -> None:
    """That two graphs are one function rests on exact numbers alone."""
    assert rooms_read_by("equivalence") <= {"errors", "deadline", "scalar", "window", "op", "ops", "graph"}


def test_what_is_loaded_to_check_a_certificate() -> None:
    """tests/test_trust.py counts it."""
    out = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True).stdout
    loaded = set(ast.literal_eval(out))
    assert not {m for m in loaded if room_of(m) in ("rounding", "bounds", "check", "interop", "cli")}


def test_graph_knows_no_operator_by_name() -> None:
    """Except where the operators of Python and NumPy are given their meaning."""
    for name, path in MODULES.items():
        if room_of(name) != "graph" or name == "specgrad.graph.var":
            continue
        words = {n.value for n in nodes_of(path.read_text()) if isinstance(n, ast.Constant)}
        assert not words & sg.REGISTRY.keys(), name


def test_coordinates_are_computed_in_one_room() -> None:
    """Others may hand stride, dilation and padding on, and compare them; they compute nothing with them."""
    found = {m: coordinates(p.read_text()) for m, p in MODULES.items() if room_of(m) != "window"}
    assert {m: lines for m, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "def f(axis, o, t):\n    return axis.stride * o + axis.dilation * t - axis.lo",
        "def f(window, o):\n    s, e, *_ = window.native()\n    return [s * o]",
        "def f(window, n):\n    return [n + hi for lo, hi in window.pads]",
        "def f(axis, n):\n    s = axis.stride\n    more = s\n    return n // more",
        "def f(w, o):\n    return [k + a * b for k, a, b in zip(w.kernel, w.steps().stride, o)]",
    ],
)
def test_a_planted_coordinate_is_found(text: str) -> None:
    assert coordinates(text)


def test_what_is_handed_on_is_no_coordinate() -> None:
    text = "def f(x, axis, at):\n    x = pad(x, *axis.pads)\n"
    text += "    if axis.stride > 1:\n        return conv(x[at + 1], axis.stride)"
    assert coordinates(text) == []


def test_a_tap_has_no_index() -> None:
    """Whoever reads or writes what a tap reads asks the tap: `tap.read_inputs(x)`, `tap.write_outputs(y[t], value)`."""
    assert [f.name for f in dataclasses.fields(Tap) if not f.name.startswith("_")] == ["position"]


def test_nobody_indexes_by_a_tap() -> None:
    root = SOURCE.parents[1]
    files = [p for folder in ("src", "tests", "benchmarks", "examples") for p in (root / folder).rglob("*.py")]
    texts = {str(p.relative_to(root)): p.read_text() for p in files if p.parent != SOURCE / "window"}
    texts |= {f"CONTRIBUTING {k}": t for k, t in enumerate(re.findall(PYTHON, (root / "CONTRIBUTING.md").read_text()))}
    assert len(texts) > 700
    assert {name: lines for name, text in texts.items() if (lines := tap_indices(text))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "y[(..., *tap.outs)] += x",
        "for t in window.taps():\n    y = x[t.ins]",
        "y = x[(..., *tap._ins)]",
        "outs = [tap.outs for tap in window.taps()]",
        "a[(t, ..., *where)] = x",
        "a[k, ..., cells] = x",
    ],
)
def test_a_planted_index_is_found(text: str) -> None:
    assert tap_indices(text)


def test_what_is_no_tap_may_be_indexed() -> None:
    assert tap_indices("x[..., cells] = candidates.outs\ny[t][(..., *cells)] = x\nz: tuple[int, ..., str]") == []


# --- types ------------------------------------------------------------------------------------------------------------


def untyped(mypy: dict[str, Any], texts: dict[str, str]) -> list[str]:
    """Our modules that a configuration keeps from mypy's strict reading, or that keep themselves from it."""
    everything = mypy["strict"] and mypy["files"] == ["src"] and not mypy.keys() & {"exclude", "disable_error_code"}
    named = [m for o in mypy.get("overrides", []) for m in o["module"] if m.partition(".")[0] in ("specgrad", "*")]
    return ([] if everything else ["src"]) + named + [name for name, text in texts.items() if "# mypy:" in text]


def mypy_configuration() -> dict[str, Any]:
    return tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["tool"]["mypy"]


def test_mypy_is_strict_everywhere() -> None:
    assert untyped(mypy_configuration(), {name: path.read_text() for name, path in MODULES.items()}) == []


def test_exclusions_from_mypy_are_seen() -> None:
    given = mypy_configuration()
    engines = [*given["overrides"], {"module": ["specgrad.engines.*"], "ignore_errors": True}]
    assert untyped(given | {"overrides": engines}, {}) == ["specgrad.engines.*"]
    assert untyped(given | {"exclude": "engines"}, {}) == untyped(given | {"strict": False}, {}) == ["src"]
    assert untyped(given, {"specgrad.op": "# mypy: ignore-errors"}) == ["specgrad.op"]


def names_in(source: str) -> set[str]:
    """Variables, parameters and attributes."""
    names = set()
    for node in nodes_of(source):
        names |= {getattr(node, "id", None), getattr(node, "arg", None), getattr(node, "attr", None)}
    return names - {None}


def test_results_are_named_by_what_they_are() -> None:
    """`found` says nothing of what was found."""
    assert [m for m, p in MODULES.items() if "found" in names_in(p.read_text())] == []
    assert "found" in names_in("def f(found):\n    return found.x")


MOST_LISTS = 59


def lists_operators(source: str) -> bool:
    """Whether three or more operators are named in strings: a fact that a record might state."""
    strings = (n.value for n in nodes_of(source) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return len({s for s in strings if s in sg.REGISTRY}) >= 3


def test_few_modules_list_operators_by_name() -> None:
    """A table that needs a line per operator is one more place to forget; the bar is what stands today."""
    found = [name for name, path in MODULES.items() if room_of(name) != "ops" and lists_operators(path.read_text())]
    assert len(found) <= MOST_LISTS, found
    assert lists_operators('PLAIN = ("relu", "tanh", "exp")')
    assert not lists_operators('"""relu, tanh and exp."""')
