"""docs/sonnx.md: every script prints what its section says, and shows what the section claims."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import runpy
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]
MAKE = runpy.run_path(str(ROOT / "tools" / "make_sonnx.py"))
PAGE = MAKE["PAGE"].read_text(encoding="utf-8")
BLOCKS = MAKE["blocks"](PAGE)
SCRIPTS = {p.stem: p for p in sorted(MAKE["FOLDER"].glob("*.py"))}
MEASURED = {name: re.search(rf"{name} (\d[\d.]*\d)", PAGE)[1] for name in ("onnxruntime", "onnx", "torch")}
OTHERS = {n for n, v in MEASURED.items() if version(n).split("+")[0] != v}
PARTS = ("**Text.** ", "**It says.** ", "**But.** ", "**Right.** ")


def sections(page: str) -> dict[str, str]:
    parts = re.split(r'<a id="([\w-]+)"></a>\n', page)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def verdict(printed: str) -> str:
    return printed.splitlines()[-1].removeprefix("verdict: ")


@pytest.mark.skipif(bool(OTHERS), reason=f"the page speaks of other versions of {', '.join(sorted(OTHERS))}")
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_what_the_page_says(name: str) -> None:
    printed = MAKE["printed"](name)
    assert printed == BLOCKS[name]
    assert printed.splitlines()[-1].startswith("verdict: ")
    assert verdict(printed) != "right"


def test_every_section_is_whole() -> None:
    found = sections(PAGE)
    assert set(found) == set(BLOCKS) == set(SCRIPTS)
    for name, text in found.items():
        assert f"[script](sonnx/{name}.py)" in text, name
        if not name.startswith("ort-"):
            assert [p for p in PARTS if text.count(p) != 1] == [], name
            assert verdict(BLOCKS[name]) in ("wrong", "ambiguous"), name
            assert [line.split(":")[0].strip() for line in BLOCKS[name].splitlines()[:3]] == [
                "text",
                "runtime",
                "right",
            ]
    assert {f"#{name}" for name in found} <= set(re.findall(r"\]\((#[\w-]+)\)", PAGE))


@pytest.mark.parametrize("path", SCRIPTS.values(), ids=list(SCRIPTS))
def test_scripts_are_short_and_need_nothing_of_ours(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert ast.get_docstring(tree)
    assert len(source.splitlines()) <= 65
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert {n.partition(".")[0] for n in names} <= {"numpy", "onnx", "onnxruntime", "torch", *sys.stdlib_module_names}


def test_a_mended_text_would_be_seen() -> None:
    """The verdict is computed: with the right formula in place of the text's, a script says so."""
    source = SCRIPTS["div-propagated"].read_text(encoding="utf-8")
    wrong, right = "(b**2 * (b + b_err))", "(b * (b + b_err))"
    assert wrong in source
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(source.replace(wrong, right), {})
    assert verdict(out.getvalue()) == "right"
