"""What is uploaded: the files of the wheel and of the source archive, one version everywhere, links that work."""

from __future__ import annotations

import email
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.message import Message
from pathlib import Path

import pytest

import specgrad as sg

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]), b.build_sdist(sys.argv[1]))"
HIDDEN = re.compile(
    r"__pycache__|\.(?:pyc|so|onnx|egg-info)\b|/\.(?!ci/|github/|gitignore|pre-commit)|/(?:\.venv|dist|out)/"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    return email.message_from_string(wheel.read(name).decode())


def relative(text: str) -> list[str]:
    """Links of a Markdown text that lead nowhere without the files beside it; another parser than the build's."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark")
    leaves = [leaf for token in markdown.parse(text) for leaf in token.children or ()]
    targets = [str(leaf.attrs.get("href") or leaf.attrs.get("src") or "https:") for leaf in leaves]
    return [t for t in targets if not t.startswith(("https:", "mailto:", "#"))]


def test_one_version(metadata: Message) -> None:
    """pyproject.toml says it; whatever else names a version says the same."""
    site = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    command = subprocess.run(
        [sys.executable, "-m", "specgrad", "--version"], capture_output=True, text=True, check=True
    )
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited
    said = {
        "wheel": metadata["Version"],
        "__version__": sg.__version__,
        "--version": command.stdout.split()[1],
        "site": site["release"],
        "CITATION.cff": cited[1],
    }
    assert said == dict.fromkeys(said, PROJECT["version"]), "pip install -e . tells an environment of a new version"


def test_no_second_place_for_the_version() -> None:
    """The code asks the installed package."""
    places = [p for p in (ROOT / "src").rglob("*.py") if f'"{PROJECT["version"]}"' in p.read_text()]
    assert places == []


def test_the_long_description_leads_somewhere(metadata: Message) -> None:
    text = metadata.get_payload()
    assert text.startswith("# specgrad")
    assert relative(text) == []
    assert relative("see [here](docs/a.md) and ![there](b.svg) or [x](https://x.org)") == ["docs/a.md", "b.svg"]
    assert len(relative((ROOT / "README.md").read_text())) > 20  # it is the build that makes them absolute


def test_its_links_are_files_of_this_version(metadata: Message) -> None:
    text = metadata.get_payload()
    ours = re.findall(rf"{PROJECT['urls']['Source']}/(?:blob|raw)/(v[^/]+)/([^)#]+)", text)
    assert len(ours) > 20
    assert [name for tag, name in ours if tag != f"v{PROJECT['version']}" or not (ROOT / name).is_file()] == []


def test_who_and_where(metadata: Message) -> None:
    assert metadata["Author"] == "The specgrad maintainers"
    assert metadata["License-Expression"] == "Apache-2.0"
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert set(urls) == {"Source", "Documentation", "Issues", "Changelog"}
    assert all(url.startswith("https://") for url in urls.values())


def strays(names: Iterable[str]) -> list[str]:
    return [n for n in names if HIDDEN.search(f"/{n}")]


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    source = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("*.py")}
    rest = {n for n in names if ".dist-info/" not in n} - source
    assert source <= names
    assert rest == {"specgrad/py.typed", "specgrad/contract.md"}
    assert strays(names) == []


def test_the_source_archive_runs_its_own_tests(built: Path) -> None:
    """It holds what the tests read: pages, examples, tools, figures; nothing that git does not know."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    assert strays(names) == []
    for folder in ("src", "tests", "docs", "examples", "tools", "benchmarks"):
        here = {str(p.relative_to(ROOT)) for p in (ROOT / folder).rglob("*.py")}
        assert {n for n in here if "docs/reference/api/" not in n} <= names, folder
    assert {"README.md", "TRUST.md", "pyproject.toml", "conftest.py", ".ci/run", "src/specgrad/py.typed"} <= names
    if (ROOT / ".git").exists():
        known = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
        )
        assert names - set(known.stdout.splitlines()) <= {"PKG-INFO"}


def test_planted_strays_are_found() -> None:
    planted = ["a/__pycache__/b.pyc", ".env", "dist/a.whl", "specgrad/x.so", ".venv/pyvenv.cfg", "net.onnx"]
    assert strays([*planted, ".gitignore", ".ci/run", "src/specgrad/op.py"]) == planted


def test_an_installed_package_has_the_rules(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """The wheel holds the page beside the code, where `rule` looks first."""
    wheel.extractall(tmp_path)
    code = "import specgrad as sg; print(sg.__file__, sg.__version__); print(sg.rule('W2'))"
    run = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, check=True, capture_output=True, text=True
    )
    assert str(tmp_path) in run.stdout
    assert "[W2] The window fits" in run.stdout
