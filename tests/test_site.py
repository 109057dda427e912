"""The site: colours that can be read, and a crawler that sees links that lead nowhere."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from test_picture import contrast

ROOT = Path(__file__).parents[1]
MADE = runpy.run_path(str(ROOT / "tools" / "check_site.py"))
FORGE = MADE["FORGE"]


@pytest.fixture(scope="module")
def conf() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTY_INTERACTIVE", "1")  # restored afterwards: conf.py sets it for tutorials
        return runpy.run_path(str(ROOT / "docs" / "conf.py"))


@pytest.mark.parametrize(("page", "style", "ground"), [("light", "", "#f2f2f2"), ("dark", "_dark", "#2b2b2b")])
def test_code_and_verdicts_can_be_read(conf: dict[str, Any], page: str, style: str, ground: str) -> None:
    pytest.importorskip("a11y_pygments")
    from pygments.styles import get_style_by_name

    inks = get_style_by_name(conf[f"pygments{style}_style"])
    assert inks.background_color == ground
    texts = {str(token): f"#{about['color']}" for token, about in inks if about["color"] and not about["bgcolor"]}
    texts |= conf["VERDICTS"][page]
    assert {name: ink for name, ink in texts.items() if contrast(ink, ground) < 4.5} == {}
    assert set(conf["VERDICTS"][page]) == {"good", "bad", "open"}


def test_verdicts_in_tutorials_have_these_colours(conf: dict[str, Any]) -> None:
    sheet = (ROOT / "docs" / "_static" / "site.css").read_text()
    assert all(f"var(--verdict-{name})" in sheet for name in conf["VERDICTS"]["light"])
    assert conf["html_theme_options"]["dark_css_variables"]["verdict-bad"] == conf["VERDICTS"]["dark"]["bad"]


def test_sections_of_a_docstring_become_lists(conf: dict[str, Any]) -> None:
    lines = ["Return x.", "", "Parameters", "----------", "*x : array_like, shape (*n)", "    Numbers ([W1], [same])."]
    lines += ["", "Examples", "--------", ">>> 1", "1"]
    conf["docstring"](None, "function", "f", None, None, lines)
    assert lines == [
        *("Return x.", "", "", ".. rubric:: Parameters", ""),
        r"\*x : array\_like, shape (\*n)",
        "    Numbers (:ref:`[W1] <W1>`, :ref:`[same] <same>`).",
        *("", "", ".. rubric:: Examples", "", ">>> 1", "1"),
    ]


def site(folder: Path, **pages: str) -> Path:
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(body)
    return folder.resolve()


def test_a_site_without_faults(tmp_path: Path) -> None:
    whole = site(tmp_path, index='<a href="a.html#x">', a='<p id="x"><a href="#x"><a href="index.html">')
    assert list(MADE["faults"](whole)) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="gone.html">', "index.html: gone.html is no file"),
        ('<img src="_static/gone.svg">', "index.html: _static/gone.svg is no file"),
        ('<a href="a.html#gone">', "index.html: a.html#gone has no such anchor"),
        ('<a href="../elsewhere.html">', "index.html: ../elsewhere.html leads out of the site"),
        ('<a href="#gone">', "index.html: #gone has no such anchor"),
        (f'<a href="{FORGE}/blob/main/gone.py">', f"index.html: {FORGE}/blob/main/gone.py is no file of the project"),
    ],
)
def test_a_planted_fault_is_found(tmp_path: Path, body: str, fault: str) -> None:
    assert list(MADE["faults"](site(tmp_path, index=f'{body}<a href="a.html">', a=""))) == [fault]


def test_a_page_without_a_way_in_is_found(tmp_path: Path) -> None:
    lonely = site(tmp_path, index="", a='<a href="b.html">', b='<a href="a.html">')
    assert list(MADE["faults"](lonely)) == ["a.html: no page leads here", "b.html: no page leads here"]


def test_what_leads_elsewhere_is_listed(tmp_path: Path) -> None:
    whole = site(tmp_path, index=f'<a href="{FORGE}/blob/main/README.md"><a href="https://example.org/x#y">')
    assert list(MADE["faults"](whole)) == []
    assert MADE["elsewhere"](whole) == ["https://example.org/x", f"{FORGE}/blob/main/README.md"]


def test_without_the_command_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tutorials would print "command not found", and the site would be published so."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RuntimeError, match="not on PATH"):
        runpy.run_path(str(ROOT / "docs" / "conf.py"))
