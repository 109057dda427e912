"""docs/reference/traceability.md: rule -> code -> law -> hunter: `python tools/make_traceability.py`.

Rules and their tests are read from docs/reference/contract.md, the code that keeps them from labels in the source
(`rule="W2"`, or [W2] in a docstring), the rules of the safety profile from `@rule("S1", ...)` and the table of violations.
Claims on executions are named here; the functions and tests that they name must exist.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from specgrad.rulebook import rules

# ruff: noqa: E501 - rows of a table

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "specgrad", ROOT / "tests"
PAGE = ROOT / "docs" / "reference" / "traceability.md"
PROFILE, CASES = SOURCE / "safety" / "profile", TESTS / "safety" / "profile_cases.py"
FIRES = ("test_a_violation_is_found_and_nothing_else", "test_a_rule_that_sleeps_is_seen")
NAMED_ONLY = (
    "errors.py",
    "rulebook.py",
    "check/conform/broken_rule.py",
    "check/conform/findings_page.py",
    "check/cases/signature.py",
    "check/kernels/assert_conforms.py",
    "check/kernels/ask_operator.py",
)
"""Files that name rules and keep none; but for verdicts, which check/conform/broken_rule.py gives."""
ROOMS = ("window", "ops", "engines", "graph", "functional", "interop")
"""Where rules are kept at home: their functions are named first."""

CLAIMS = [
    (
        "No execution by node, or fused, is farther from the exact value than its radius",
        "rounding.propagate:radius",
        "test_every_operator_stays_in_its_ball, test_outputs_and_gradients_in_float32",
        "test_no_execution_leaves_a_bound, test_wrong_constants_are_caught",
    ),
    (
        "R counts the roundings of every way of merging nodes",
        "rounding.fusion_region:count_after_node",
        "test_no_way_of_merging_meets_more",
        "test_nobody_counts_fewer_roundings, test_one_rounding_less_is_caught",
    ),
    (
        "Interval bounds hold every execution",
        "bounds.interval_bounds:ibp",
        "test_intervals_of_a_layer_are_exact",
        "test_no_execution_leaves_a_bound, test_random_networks",
    ),
    (
        "Linear bounds hold every execution",
        "bounds.crown_bounds:crown",
        "test_two_affine_layers_are_bounded_exactly, test_relu_network_by_hand",
        "test_no_execution_leaves_a_bound, test_random_networks",
    ),
    (
        "What `certify` says of a property is so",
        "bounds.search.certify:certify",
        "test_verdicts_on_every_float32_input",
        "test_we_never_say_that_it_holds, test_bounds_that_are_too_high_are_seen",
    ),
    (
        "A valid certificate proves its statement",
        "proof.files.certificate:check",
        "test_replays_bound_what_float32_computes, test_a_certificate_is_valid",
        "test_mutants_are_refused_or_true, test_every_flipped_bit_is_refused, test_no_execution_leaves_a_replay",
    ),
    (
        "No two executions are farther apart than the tolerance",
        "check.tolerances.tolerance:tolerance",
        "test_the_exact_value_is_where_it_is_said_to_be",
        "test_no_execution_leaves_the_tolerance, test_mistakes_are_caught",
    ),
    (
        "A decision that is called preserved is",
        "check.decisions.preserve:preserve",
        "test_margins_are_those_of_exact_arithmetic",
        "test_what_is_proven_withstands_the_hunter, test_planted_margins_are_caught",
    ),
    (
        "Models that `compare` calls the same are one function over the reals",
        "check.comparison.compare:compare",
        "test_normal_forms_keep_the_values",
        "test_no_false_same, test_planted_rules_are_caught",
    ),
    (
        "A layer that is called a bug is outside every correct execution",
        "check.verdicts.judge:judge",
        "test_a_right_kernel_passes, test_every_layer_is_rounding",
        "test_no_alarm_where_the_rule_is_implemented, test_a_wrong_value_differs",
    ),
    (
        "Derivative rules that are called adjoint are",
        "graph.transforms.adjoint_proof:prove_adjoint",
        "test_linear_operators_are_proven",
        "test_wrong_cotangents_of_every_linear_operator_are_refuted",
    ),
]


@dataclass(frozen=True)
class Row:
    """One line: what is demanded, and where it is kept, stated and attacked."""

    label: str
    title: str
    code: list[str]
    laws: list[str]
    hunters: list[str]

    def gaps(self) -> list[str]:
        parts = {"code": self.code, "law": self.laws, "hunter": self.hunters}
        return [f"{self.label}: no {name}" for name, found in parts.items() if not found]


def module(path: Path) -> str:
    """window.axis, of src/specgrad/window/axis.py."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def _walk(node: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every node with the function or class that it stands in."""
    for child in ast.iter_child_nodes(node):
        inside = owner
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inside = f"{owner}.{child.name}".lstrip(".")
        yield inside, child
        yield from _walk(child, inside)


LABEL = re.compile(r"\b[A-Z]\d\b")


@cache
def _texts() -> dict[str, list[tuple[str, str]]]:
    """Every string of the source, by file: (function, string); of files in which some label stands."""
    files = {p: p.read_text(encoding="utf-8") for p in sorted(SOURCE.rglob("*.py"))}
    trees = {p: ast.parse(text) for p, text in files.items() if LABEL.search(text)}
    return {
        str(p.relative_to(SOURCE)): [
            (owner, n.value) for owner, n in _walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
        for p, tree in trees.items()
    }


def code_of(label: str, texts: dict[str, list[tuple[str, str]]]) -> list[str]:
    """Functions that quote the label: it is an argument of theirs, or stands in a text in brackets."""
    if label in ("float32", "value"):
        return ["check.conform.broken_rule:rule"]
    found = {}
    for name, strings in texts.items():
        for owner, text in strings if name not in NAMED_ONLY else []:
            if f"[{label}]" in text or (text == label and label[0].isupper()):
                found[f"{module(SOURCE / name)}:{owner}".rstrip(":")] = None
    return sorted(found, key=lambda n: next((i for i, room in enumerate(ROOMS) if n.startswith(room)), len(ROOMS)))


@cache
def defined() -> dict[str, list[str]]:
    """Every test, by name, and the files that define it."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return found


@cache
def _source(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def tests_of(names: list[str], label: str, known: dict[str, list[str]]) -> list[str]:
    """The tests with their files; of several with one name, those whose file names the rule."""
    out = []
    for name in dict.fromkeys(names):
        files = known[name]
        speak = [f for f in files if f"[{label}]" in _source(f) or f'"{label}"' in _source(f)] if len(files) > 1 else []
        out += [f"{f}::{name}" for f in speak or files]
    return out


def contract_rows() -> list[Row]:
    texts, known, rows = _texts(), defined(), []
    for label, text in rules().items():
        before, _, after = text.partition("Hunted by")
        laws, hunters = (tests_of(re.findall(r"`(test_\w+)`", part), label, known) for part in (before, after))
        title = text.splitlines()[0].partition("] ")[2]
        rows.append(Row(label, title, code_of(label, texts), laws, hunters))
    return rows


def claim_rows() -> list[Row]:
    known = defined()
    return [
        Row("", title, [code], *(tests_of(names.split(", "), "?", known) for names in (laws, hunters)))
        for title, code, laws, hunters in CLAIMS
    ]


def _violations() -> dict[str, list[str]]:
    tree = ast.parse(CASES.read_text(encoding="utf-8"))
    (table,) = (n.value for n in tree.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "VIOLATIONS")
    assert isinstance(table, ast.Dict)
    rows = zip(table.keys, table.values, strict=True)
    return {ast.literal_eval(k): [str(getattr(n, "value", "more")) for n in v.keys] for k, v in rows}  # type: ignore[attr-defined, arg-type]


def _speaking(label: str) -> list[str]:
    """Tests of the profile that name the rule, where the table has no violation of it."""
    path = CASES.with_name("test_profile.py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    found = [n for n in body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    return [f"{path.relative_to(ROOT)}::{n.name}" for n in found if f"'{label}'" in ast.unparse(n)]


def profile_rows() -> list[Row]:
    """S1 to S31: the function that checks it, its violations, and the two tests that run over all of them."""
    known, violations, rows = defined(), _violations(), {}
    for path in sorted(PROFILE.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else []:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "rule" and mark.args:
                    label = ast.literal_eval(mark.args[0])
                    says = next(ast.literal_eval(k.value) for k in mark.keywords if k.arg == "says")
                    laws = [f"`{v}`" for v in violations.get(label, [])] or _speaking(label)
                    rows[label] = Row(
                        label, says, [f"{module(path)}:{node.name}"], laws, tests_of(list(FIRES), label, known)
                    )
    return [rows[f"S{i}"] for i in range(1, len(rows) + 1)]


def _cell(items: list[str], most: int = 6) -> str:
    shown = [i if i.startswith("`") else f"`{i}`" for i in items[:most]]
    more = ["and others"] if len(items) > most else []  # no count: it would change with every new error
    return ", ".join(shown + more) or "none"


def _table(rows: list[Row], first: str) -> str:
    head = f"| {first} | kept by | law | hunter | theorem |\n|---|---|---|---|---|\n"
    line = "| {} | {} | {} | {} | |"
    names = [f"{r.label} {r.title}".strip().replace("|", "\\|") for r in rows]
    cells = [map(_cell, (r.code, r.laws, r.hunters)) for r in rows]
    return head + "\n".join(line.format(n, *c) for n, c in zip(names, cells, strict=True))


def _profile_table(rows: list[Row]) -> str:
    head = "| rule | kept by | violations in the tests |\n|---|---|---|\n"
    return head + "\n".join(
        f"| {r.label} {r.title.replace('|', chr(92) + '|')} | {_cell(r.code)} | {_cell(r.laws, 9)} |" for r in rows
    )


def gaps() -> list[str]:
    """What has no code, no law or no hunter; each is said on the page."""
    return [g for row in [*contract_rows(), *claim_rows(), *profile_rows()] for g in row.gaps()]


TEXT = """# Traceability

From a rule to the code that keeps it, to the law that states it as a test, to the hunter that tries to break it. Written by
`tools/make_traceability.py` from labels in the source, the [contract](contract.md), and the names of tests;
`tests/test_traceability.py` holds that no rule is without code, law and hunter but those named at the end, and that this page is current.

- *kept by*: functions that enforce the rule, or whose docstring says that they follow it;
- *law*: a test that states the rule, over exact numbers, by hand or against another implementation;
- *hunter*: a test that searches for a case against it, among generated cases, other runtimes or planted mistakes;
- *theorem*: a machine-checked proof. There are none yet.

## Rules of the contract

{contract}

## Claims on executions

What [Executions](executions.md) and [Rounding](rounding.md) prove on paper. Hunters whose
names say what is caught, seen or refused plant mistakes.

{claims}

## Rules of the ONNX safety profile

Each rule of `specgrad profile --sonnx` is one function. `{fires}` runs every violation below and demands that this rule fires, and no other;
`{sleeps}` puts each rule to sleep and demands that the first test notices.

{profile}

## What is missing

{gaps}
"""


def document() -> str:
    missing = "\n".join(f"- {g}" for g in gaps()) or "Nothing."
    return TEXT.format(
        contract=_table(contract_rows(), "rule"),
        claims=_table(claim_rows(), "claim"),
        profile=_profile_table(profile_rows()),
        fires=FIRES[0],
        sleeps=FIRES[1],
        gaps=missing,
    )


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
