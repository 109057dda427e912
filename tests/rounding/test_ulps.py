"""Declared errors of functions: against what was last measured, and stated by the records alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import specgrad as sg
from specgrad.declared_errors import LIMIT, MADE_OF, MEASURED, ULPS, WORST_ULPS, WRONG, Bound, as_pair, declared
from specgrad.rounding import Arithmetic
from structure import MODULES

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ENGINES = ("torch", "jax", "numpy")
SCALES = ("y", "1", "x", "1+y")

# --- what was measured ------------------------------------------------------------------------------------------------


def engine_rows() -> Iterator[tuple[str, str, float, tuple[float, str]]]:
    """(runtime, function, the largest measured error, what the text says is declared) of benchmarks/ulps.txt."""
    for line in (BENCHMARKS / "ulps.txt").read_text().splitlines()[3:]:
        name, backend, scale, *cells = line.split()
        *found, bound = (float(c) for c in cells if c != "-")
        yield backend, name, max(found), (bound, scale)


ROW = re.compile(r"(\S+) .* (\S+) at \S+ +(\S+) of (\S+)")
ENTRIES = {"erf": "normal_cdf", "x**0.75": "power", "x**1.5": "power", "x**-1.25": "power"}


def runtime_rows(file: str) -> Iterator[tuple[str, str, float, tuple[float, str] | None]]:
    """The same of benchmarks/runtime_ulps.py; None: the runtime has no entry, because it is wrong."""
    for block in (BENCHMARKS / file).read_text().split("\n\n")[1:]:
        for line in block.splitlines():
            if found := ROW.match(line):
                function, measured, bound, scale = found.groups()
                said = None if bound == "wrong" else (float(bound), scale)
                yield block.split(":")[0], ENTRIES.get(function, function), float(measured), said


RUNTIME_ROWS = [*runtime_rows("runtime_ulps.txt"), *runtime_rows("other_ulps.txt")]


def uncovered(tables: Mapping[str, Mapping[str, Bound]], margin: float = 1.1) -> list[tuple[str, str]]:
    """(runtime, function) whose entry is not what the texts say, or does not cover what was measured."""
    bad = []
    for runtime, function, found, said in [*engine_rows(), *RUNTIME_ROWS]:
        entry = MEASURED[runtime][1].get(function)
        if said is None:
            fine = found > LIMIT and entry is None and (runtime, function) in WRONG
        else:
            bound, scale = as_pair(tables[runtime][function])
            needed = found if runtime in ENGINES else found * margin - 0.01
            fine = (bound, scale) == said and (needed <= bound or found <= 1.0 <= bound)
        bad += [] if fine else [(runtime, function)]
    return bad


def test_declared_errors_cover_what_was_measured() -> None:
    assert uncovered(ULPS) == []


@pytest.mark.parametrize(
    ("runtime", "function", "bound"), [("onnxruntime", "sigmoid", (2.0, "1")), ("jax", "exp", 5.0)]
)
def test_an_error_declared_too_small_is_caught(runtime: str, function: str, bound: Bound) -> None:
    assert uncovered({**ULPS, runtime: {**ULPS[runtime], function: bound}}) == [(runtime, function)]


def test_every_entry_was_measured() -> None:
    rows = [*engine_rows(), *RUNTIME_ROWS]
    entries = {(runtime, function) for runtime, (_, table) in MEASURED.items() for function in table}
    assert entries <= {(runtime, function) for runtime, function, *_ in rows}
    assert {runtime for runtime, *_ in rows} == set(MEASURED)


def test_versions_are_those_that_were_measured() -> None:
    text = "".join((BENCHMARKS / f).read_text() for f in ("ulps.txt", "runtime_ulps.txt", "other_ulps.txt"))
    assert [name for name, (version, _) in MEASURED.items() if version not in text] == []


# --- the default ------------------------------------------------------------------------------------------------------


def test_the_default_is_the_widest_of_all_runtimes() -> None:
    for name, table in ULPS.items():
        for function, bound in table.items():
            (units, scale), (widest, of) = as_pair(bound), as_pair(WORST_ULPS[function])
            assert scale == of, f"{name} declares {function} on another scale"
            assert units <= widest <= LIMIT
    assert Arithmetic().ulps == WORST_ULPS == declared()


def test_functions_without_an_entry_follow_from_their_parts_or_are_the_default() -> None:
    for name, (_, table) in MEASURED.items():
        for function in WORST_ULPS.keys() - table.keys():
            parts, rule = MADE_OF.get(function, ((), None))
            made = rule(table) if rule is not None and table.keys() >= set(parts) else WORST_ULPS[function]
            assert declared(name)[function] == made
    assert declared("onnxruntime")["silu"] == (as_pair(declared("onnxruntime")["sigmoid"])[0] + 1, "x")


def test_what_is_wrong_is_named_of_known_runtimes_and_functions() -> None:
    assert {name for name, _ in WRONG} <= set(MEASURED)
    assert {function for _, function in WRONG} <= set(WORST_ULPS)


def test_every_record_that_states_an_error_is_in_the_tables() -> None:
    stated = {name: op.errors for name, op in sg.REGISTRY.items() if op.errors is not None}
    assert stated.keys() == WORST_ULPS.keys()
    assert {r for errors in stated.values() for r in (*errors.units, *errors.wrong)} <= MEASURED.keys()


def test_a_function_that_is_rounded_somehow_states_its_error() -> None:
    """What is forgotten is named: a function of one cell is exact, counts its roundings, or says what was measured."""
    functions = [op for op in sg.REGISTRY.values() if op.curve is not None and not op.exact]
    silent = [op.name for op in functions if op.errors is None and op.roundings is None and op.curve.ulps is None]
    assert silent == ["root"]  # which has power's


def test_a_bound_is_a_number_or_a_pair() -> None:
    arithmetic = Arithmetic(ulps={"exp": 2.0, "gelu": (2.5, "x")})
    assert arithmetic.ulp_bound("exp") == (2.0, "y")
    assert arithmetic.ulp_bound("gelu") == (2.5, "x")


# --- one table --------------------------------------------------------------------------------------------------------


def declares(text: str) -> list[str]:
    """Functions whose error a source text states: by name in a mapping, as `ulps=`, as `DeclaredErrors`."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            named = [(k.value, v) for k, v in pairs if isinstance(k, ast.Constant) and k.value in WORST_ULPS]
            found += [str(name) for name, value in named if _is_bound(value)]
        elif isinstance(node, ast.keyword) and node.arg == "ulps" and _is_bound(node.value):
            found.append("ulps=")
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DeclaredErrors":
            found.append("DeclaredErrors")
    return found


def _is_bound(node: ast.expr) -> bool:
    """A number, Fraction(...), or a pair of one and a scale."""
    if isinstance(node, ast.Tuple):
        return len(node.elts) == 2 and isinstance(node.elts[1], ast.Constant) and node.elts[1].value in SCALES
    is_fraction = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fraction"
    return is_fraction or (isinstance(node, ast.Constant) and isinstance(node.value, int | float))


def reads_table(text: str) -> bool:
    """Whether a source text takes entries from the table by another way than `declared`."""
    return any(
        isinstance(node, ast.ImportFrom) and {a.name for a in node.names} & {"WORST_ULPS", "ULPS"}
        for node in ast.walk(ast.parse(text))
    )


WORDS = [r"\bulps\b", r"\bDeclaredErrors\b", r"\bdeclared_errors\b", *(f'"{name}"' for name in WORST_ULPS)]
MENTIONS = re.compile("|".join(WORDS))


def test_no_other_place_declares_an_error_of_a_function() -> None:
    others = {name: path.read_text() for name, path in MODULES.items() if not name.startswith("specgrad.ops.")}
    others = {name: text for name, text in others.items() if MENTIONS.search(text)}  # parsing all takes long
    assert {name: found for name, text in others.items() if (found := declares(text))} == {}
    assert [name for name, text in others.items() if reads_table(text)] == ["specgrad.rounding"]  # which exports it


@pytest.mark.parametrize(
    "text",
    [
        'ORT_ULPS: Table = {"exp": 1.5, "sigmoid": (3.5, "1")}',
        'MEASURED = {"tanh": (Fraction(8), "y")}',
        'MEASURED = {"exp": Fraction(6)}',
        'Curve(ulps=(4.0, "y"))',
        'DeclaredErrors("y", {"torch": 1.5})',
    ],
)
def test_a_second_table_is_seen(text: str) -> None:
    assert declares(text)
    assert reads_table("from ..declared_errors import WORST_ULPS")
    assert not declares('CALLS = {"exp": "torch.exp", "log": torch.log}')
