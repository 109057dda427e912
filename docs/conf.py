"""The site: python -m sphinx -W docs out (extra `docs`; needs no network)."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORGE = PROJECT["urls"]["Source"]

if shutil.which("specgrad") is None:  # tutorials run it; a page would show "command not found"
    raise RuntimeError("the command specgrad is not on PATH: activate the environment that it is installed in")

project = "specgrad"
author = copyright = "The specgrad maintainers"
release = version = PROJECT["version"]

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode", "myst_nb", "sphinx_copybutton"]
exclude_patterns = ["findings/runtimes/*.py", "sonnx/*.py"]
html_theme = "furo"
html_title = f"specgrad {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_style, pygments_dark_style = "a11y-light", "a11y-high-contrast-dark"
VERDICTS = {  # of what commands print in tutorials, on the ground of code; tests/test_site.py holds them to 4.5 : 1
    "light": {"good": "#1a7f37", "bad": "#cf222e", "open": "#8a5c00"},
    "dark": {"good": "#3fb950", "bad": "#ff7b72", "open": "#d29922"},
}
html_theme_options = {
    "source_repository": FORGE,
    "source_branch": "main",
    "source_directory": "docs/",
    **{f"{page}_css_variables": {f"verdict-{k}": v for k, v in inks.items()} for page, inks in VERDICTS.items()},
}
templates_path = ["_templates"]
autosummary_generate = True
autodoc_typehints = "none"  # the signature in the docstring's own words is shorter
autodoc_member_order = "bysource"
myst_enable_extensions = ["deflist", "attrs_block"]
myst_heading_anchors = 4
smartquotes = False  # a word between quotes is what one types
suppress_warnings = ["myst.header"]  # a page may begin with what is included
nb_execution_mode = "force"  # a cache would not see that the library has changed
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_execution_timeout = 600
nb_execution_in_temp = True  # what tutorials write stays nowhere
os.environ["TTY_INTERACTIVE"] = "0"  # a page shows what a command printed, not how its bar moved
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

NAMES = ("TRUST", "ERRATA", "CHANGELOG", "CONTRIBUTING", "ARCHITECTURE", "SECURITY")
PAGES = {"README.md": "index"} | {f"{name}.md": f"project/{name.lower()}" for name in NAMES}
RULE = r"\[([A-Z][0-9]+|same|first)\]"


def links(app: Any, name: str, source: list[str]) -> None:
    """Links to files beside docs/: to their page here if they have one, else to the forge."""

    def there(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        home = ROOT if include else (ROOT / "docs" / name).parent
        target = (home / path).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return f"](/{target.relative_to(ROOT / 'docs')}{anchor})"
        inside = str(target.relative_to(ROOT))
        return f"](/{PAGES[inside]}.md{anchor})" if inside in PAGES else f"]({FORGE}/blob/main/{inside})"

    text = source[0]
    include = re.fullmatch(r"```\{include\} (\S+)\n```\n?", text)
    if include:  # read here, so that its links are seen
        text = (ROOT / "docs" / name).parent.joinpath(include[1]).resolve().read_text()
    if name == "reference/contract":  # targets that pages can link to: of a rule, by its label
        text = re.sub(rf"^(#+ {RULE})", r"(\2)=\n\1", text, flags=re.MULTILINE)
    else:  # by its anchor
        text = re.sub(r'^<a id="([a-z0-9-]+)"></a>$', r"(\1)=", text, flags=re.MULTILINE)
    text = re.sub(r"\n\n```$", "\n```", text, flags=re.MULTILINE)  # the empty line that ends an example
    source[0] = re.sub(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)", there, text)


def docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: paragraphs, indented formulas, lists of arguments, NumPy's sections, examples.

    Indented lines are kept as they stand; `names` become code; other marks of reStructuredText mean themselves. Under a
    heading, a line and the text below it are an entry of a list.
    """
    out: list[str] = []
    columns = in_section = False
    for line, below in itertools.pairwise([*lines, ""]):
        plain = line.strip()
        if re.fullmatch("-{3,}", below) and plain:
            out += ["", f".. rubric:: {plain}", ""]
            in_section, columns = plain != "Examples", False
        elif re.fullmatch("-{3,}", line):
            continue
        elif in_section and not line.startswith(">>>"):
            out.append(_text(line))
        elif line.startswith((">>>", "...")) or (plain and _in_example(out)):
            out.append(line)
            columns = False
        elif line[:1] == " " or re.match(r"[\w*, ]{1,24}  +\S", line):  # a formula, or a name and what it means
            if not columns:
                out += ["", "::", ""] if out else ["::", ""]
            out.append("    " + line)
            columns = True
        else:
            if columns and plain:
                out.append("")
            columns = columns and not plain
            out.append(_text(line))
    lines[:] = out


def _in_example(out: list[str]) -> bool:
    """Whether the last lines without a gap began with >>>: what follows is printed by it."""
    for line in reversed(out):
        if not line.strip():
            return False
        if line.startswith(">>>"):
            return True
    return False


def _text(line: str) -> str:
    parts = re.split(r"(`[^`]+`)", line)
    escaped = (f"`{p}`" if p.startswith("`") else re.sub(r"([*_|\\])", r"\\\1", p) for p in parts)
    return re.sub(RULE, r":ref:`[\1] <\1>`", "".join(escaped))


def buttons(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """A page that is written while the site is built has no source to look at."""
    if not (ROOT / "docs" / f"{page}.md").is_file():
        context["theme_top_of_page_buttons"] = []


def navigation(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """The list beside a page opens the part that the page stands in: all pages beside each took half of the build."""
    if "toctree" in context:
        whole = context["toctree"]
        draw = lambda **options: whole(**{**options, "collapse": True})
        context["toctree"] = partial(_api_list, page, draw) if page.startswith("reference/api/") else draw


API_LIST: list[str] = []  # beside every public name, drawn for the first of them; no entry is marked as the page's


def _api_list(page: str, draw: Callable[..., str], **options: Any) -> str:
    own = '<li class="toctree-l3 current"><a class="current reference internal" href="#">'
    other = f'<li class="toctree-l3"><a class="reference internal" href="{page.rpartition("/")[2]}.html">'
    if not API_LIST:
        API_LIST.append(draw(**options).replace(own, other))
    if API_LIST[0].count(other) != 1:
        raise ValueError(f"the list beside {page} does not hold it once")
    return API_LIST[0].replace(other, own)


def setup(app: Any) -> None:
    app.connect("html-page-context", buttons)
    app.connect("html-page-context", navigation, priority=400)  # before the theme draws it
    app.connect("source-read", links)
    app.connect("autodoc-process-docstring", docstring)
