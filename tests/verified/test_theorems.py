"""What is proven stands on the axioms of Coq's real numbers alone; the contract and the theorems name each other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from rocq import VERIFIED, make
from sources import Theorem, theorems
from specgrad.rulebook import PAGES, rules

LISTS = sorted((VERIFIED / "assumptions").glob("*.txt"))
REALS = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
"""What Coq's own library of real numbers assumes (exp and ln need the last)."""
WINDOWS = [
    "Window",
    "Sizes",
    "Readers",
    "Relation",
    "Conv",
    "AvgPool",
    "MaxPool",
    "GlobalPool",
    "SmoothMax",
    "SmoothDerivative",
    "MaxDerivative",
    "Dual",
    "Laws",
    "Graph",
    "GraphOperators",
    "GraphDerivative",
    "GraphSmooth",
    "GraphLayers",
]
"""Files about rules of the contract."""
LIMITS = ("Smooth", "MaxDerivative", "GraphDerivative", "GraphSmooth", "GraphLayers")
"""Those about real numbers alone: they speak of exp, or of limits."""
PROVEN = re.compile(r"`([A-Z]\w+\.[\w']+)`")
UNPROVEN = re.compile(r"\b(Admitted|admit|Axiom|Axioms|Conjecture|Parameter|Parameters|Unset Guard Checking)\b")

FILES = sorted(VERIFIED.glob("*.v"))
PATTERNS = {"None", "Some", "O", "S", "Empty"}
"""Constructors that begin a line of a match, not of a definition."""


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def without_comments(path: Path) -> str:
    return re.sub(r"\(\*.*?\*\)", "", text_of(path), flags=re.DOTALL)


def assumed() -> dict[str, set[str]]:
    """Theorems as File.theorem, with their axioms."""
    listed = {}
    for path in LISTS:
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, axioms = line.partition(":")
            listed[f"{path.stem}.{name}"] = set(axioms.split()) - {"none"}
    return listed


def test_nothing_is_assumed_but_the_reals() -> None:
    assert {name: axioms - REALS for name, axioms in assumed().items() if axioms - REALS} == {}
    ours = {n: a for n, a in assumed().items() if n.split(".")[0] in WINDOWS and not n.startswith(LIMITS)}
    assert not any(ours.values()), "what holds over any ring needs no axiom at all"


def test_nothing_is_admitted() -> None:
    for path in FILES:
        assert not UNPROVEN.search(without_comments(path)), path.name
    assert UNPROVEN.search("Proof. admit. Admitted.")


def test_lines_are_short() -> None:
    long = [f"{p.name}:{n}" for p in FILES for n, line in enumerate(text_of(p).splitlines(), 1) if len(line) > 120]
    assert long == []


LISTED = re.compile(r"^\| `(\w+)\.v` \|", re.MULTILINE)
IMPORTED = re.compile(r"^From Specgrad Require (?:Import )?(.*?)\.$", re.MULTILINE | re.DOTALL)


def too_early(order: list[str], needs: dict[str, set[str]]) -> list[str]:
    """Files that stand before one that they import."""
    return [name for n, name in enumerate(order) if needs[name] - set(order[:n])]


def test_files_can_be_read_in_the_order_of_the_readme() -> None:
    """Each once, behind all that it imports, with words at its head."""
    order = LISTED.findall(text_of(VERIFIED / "README.md"))
    needs = {p.stem: {name for line in IMPORTED.findall(without_comments(p)) for name in line.split()} for p in FILES}
    assert sorted(order) == sorted(needs)
    assert too_early(order, needs) == []
    assert too_early(["Graph", "Dual"], {"Graph": {"Dual"}, "Dual": set()}) == ["Graph"]
    assert [p.name for p in FILES if not text_of(p).startswith("(*")] == []


DEFINED = re.compile(r"^ *(?:Definition|Fixpoint|Inductive|Record|Theorem) ([\w']+)|^ *\| ([A-Z]\w*)", re.MULTILINE)


def defined(family: str) -> set[str]:
    """What files Family*.v define: definitions, theorems, and constructors that begin a line."""
    return {a or b for p in FILES if p.stem.startswith(family) for a, b in DEFINED.findall(without_comments(p))}


def test_no_word_has_two_meanings() -> None:
    """The checker's files and those of rounding speak of the same things by other definitions: so by other names."""
    assert defined("Check") & defined("Rounding") - PATTERNS == set()
    assert {"formula", "Reasons", "check_sound"} <= defined("Check")
    assert {"tree", "Leaf", "executed"} <= defined("Rounding")


def test_every_theorem_is_listed() -> None:
    """`make -C verified assumptions` lists them."""
    assert assumed().keys() ^ {t.name for t in theorems()} == set()


def need_built(name: str) -> None:
    """Skip where a file of theorems is not compiled, or was changed since."""
    source, built = VERIFIED / f"{name}.v", VERIFIED / f"{name}.vo"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        pytest.skip("the theorems are not built: make -C verified")


FREE = [p.stem for p in LISTS if p.stem in WINDOWS and not p.stem.startswith(LIMITS)]
"""Files whose theorems need no axiom at all."""


@pytest.mark.parametrize(("more", "said"), [("I", "Closed under the global context"), ("planted", "planted : True")])
def test_what_holds_over_any_ring_needs_no_axiom(more: str, said: str, tmp_path: Path) -> None:
    """All of these theorems as one tuple: Coq walks through what they stand on once. A planted axiom is named."""
    for name in FREE:
        need_built(name)
    names = [f"@Specgrad.{name}" for name in assumed() if name.split(".")[0] in FREE]
    assert len(names) >= 50
    text = "".join(f"Require Specgrad.{name}.\n" for name in FREE) + "Axiom planted : True.\n"
    text += f"Definition proven := ({', '.join([*names, more])}).\nPrint Assumptions proven.\n"
    (tmp_path / "asked.v").write_text(text, encoding="utf-8")
    command = ["coqc", "-R", str(VERIFIED), "Specgrad", str(tmp_path / "asked.v")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == said


@pytest.mark.slow
@pytest.mark.parametrize("path", LISTS, ids=lambda p: p.stem)
def test_the_list_is_what_coq_says(path: Path, tmp_path: Path) -> None:
    """Of theorems about reals and floats Coq walks through their whole libraries, each time: seconds per theorem."""
    need_built(path.stem)
    make(f"ASSUMPTIONS={tmp_path}", f"{tmp_path}/{path.name}")
    assert (tmp_path / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8")


# --- the contract and the theorems --------------------------------------------------------------------------------


def page() -> str:
    return next(p for p in PAGES if p.exists()).read_text(encoding="utf-8")


def named_by_contract(page: str, texts: dict[str, str]) -> dict[str, set[str]]:
    """Rules and laws with the theorems that they name; "" for the text before the rules."""
    laws = re.findall(r"^(\d)\. (.*?)(?=^\d\. |\Z)", page.partition("## Laws")[2], re.DOTALL | re.MULTILINE)
    parts = {**texts, **{f"Law {n}": text for n, text in laws}, "": page.partition('<a id="W1"></a>')[0]}
    return {label: set(PROVEN.findall(text)) for label, text in parts.items() if PROVEN.search(text)}


def mismatches(named: dict[str, set[str]], proven: list[Theorem]) -> set[tuple[str, str]]:
    """(rule, theorem) that only one of the two sides knows."""
    theirs = {(rule, t.name) for t in proven for rule in t.rules or {""}}
    return theirs ^ {(rule, name) for rule, names in named.items() for name in names}


def ours() -> list[Theorem]:
    return [t for t in theorems() if t.name.split(".")[0] in WINDOWS]


def test_contract_and_theorems_name_each_other() -> None:
    assert mismatches(named_by_contract(page(), rules()), ours()) == set()


def test_a_name_that_is_missing_on_one_side_is_seen() -> None:
    named = named_by_contract(page(), rules())
    assert mismatches(named | {"W2": named["W2"] - {"Sizes.floor_out_counts"}}, ours()) == {
        ("W2", "Sizes.floor_out_counts")
    }
    assert ("W3", "Sizes.gone") in mismatches(named | {"W3": {*named["W3"], "Sizes.gone"}}, ours())
    moved = [t._replace(rules=frozenset({"A1"})) if t.name == "Sizes.same_out" else t for t in ours()]
    assert mismatches(named, moved) == {("A1", "Sizes.same_out"), ("same", "Sizes.same_out")}
