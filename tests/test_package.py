"""What is uploaded: the files of the wheel and of the source archive, one version everywhere, links that work."""

from __future__ import annotations

import email
import hashlib
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
from typing import Any

import pytest

import specgrad as sg
from specgrad.errors import PACKAGES

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = runpy.run_path(str(ROOT / "tools" / "lowest.py"))["constraints"]
BUILD = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]), b.build_sdist(sys.argv[1]))"
HIDDEN = re.compile(
    r"__pycache__|\.(?:pyc|so|egg-info)\b|(?<!/keras/same|keras/depth|/keras/flat)\.onnx\b|/\.(?!ci/|github/|gitignore|pre-commit)|/(?:\.venv|dist|out)/"
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
        "--version": command.stdout.strip(),
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
    assert rest >= {"specgrad/py.typed", "specgrad/contract.md"}
    for data in rest - {"specgrad/py.typed", "specgrad/contract.md"}:  # read by the code beside it
        path = ROOT / "src" / data
        assert any(path.name in source.read_text() for source in path.parent.glob("*.py")), data
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


# --- .github/workflows, which run elsewhere ---------------------------------------------------------------------------


def workflow(name: str) -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
    return dict(pytest.importorskip("yaml").safe_load(text))


def loose(text: str) -> list[str]:
    """Actions that are not named by a commit, with its version beside it."""
    used = [line.split("uses:")[1].strip() for line in text.splitlines() if "uses:" in line]
    return [
        u
        for u in used
        if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", u) and not u.startswith("./")
    ]


def test_actions_are_pinned() -> None:
    texts = [p.read_text() for p in sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
    assert [loose(text) for text in texts] == [[], [], [], []]
    assert loose("- uses: actions/checkout@v7\n- uses: actions/attest@main # v4.2.2") == [
        "actions/checkout@v7",
        "actions/attest@main # v4.2.2",
    ]


def test_nothing_is_published_untried() -> None:
    jobs = workflow("release")["jobs"]
    assert set(jobs["publish"]["needs"]) == {"ci", "build", "try"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}  # trusted publishing, and no more
    assert jobs["build"]["permissions"]["attestations"] == "write"
    assert "password" not in (ROOT / ".github/workflows/release.yml").read_text().replace("holds a password", "")


def test_the_versions_of_python_that_are_promised_are_tried() -> None:
    """Classifiers, the matrix of the release, and what benchmarks/wheel.txt says of environments that were empty."""
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert workflow("release")["jobs"]["try"]["strategy"]["matrix"]["python"] == promised
    tried = re.findall(r"on Python (3\.\d+)", (ROOT / "benchmarks" / "wheel.txt").read_text())
    assert sorted(set(tried)) == promised


# --- .ci/lowest -------------------------------------------------------------------------------------------------------


def test_the_lowest_versions_are_those_of_pyproject() -> None:
    """Every package that a user may install with us, read by packaging's own parser; no lower bound is left out."""
    requirements = pytest.importorskip("packaging.requirements")
    texts = PROJECT["dependencies"] + [t for extra in PROJECT["optional-dependencies"].values() for t in extra]
    allowed = {r.name: r for r in map(requirements.Requirement, texts) if r.name != "specgrad"}
    lowest = dict(line.split("==") for line in CONSTRAINTS(PROJECT))
    assert lowest.keys() == allowed.keys()
    for name, requirement in allowed.items():
        (bound,) = requirement.specifier
        assert (bound.operator in (">=", "=="), bound.version) == (True, lowest[name]), name


@pytest.mark.parametrize("wrong", [["numpy"], ["numpy<3"], ["numpy>=2,<3"], ["numpy>=2", "numpy>=3"]])
def test_a_dependency_without_one_lowest_version_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit, match="one lowest version"):
        CONSTRAINTS({"name": "us", "dependencies": wrong, "optional-dependencies": {}})


def test_ci_runs_the_quick_tests_on_the_lowest_versions() -> None:
    script = (ROOT / ".ci" / "lowest").read_text()
    assert "python tools/lowest.py" in script
    assert script.splitlines()[-1] == "pytest -n 2 -q -m quick"
    assert any(step.get("run") == "bash .ci/lowest" for step in workflow("ci")["jobs"]["lowest"]["steps"])


def test_ci_is_the_script_of_every_machine_and_needs_the_theorems() -> None:
    everything = workflow("ci")["jobs"]["everything"]
    assert any(step.get("run") == "bash .ci/run" for step in everything["steps"])
    assert everything["env"]["SPECGRAD_NEEDS_COQ"] == 1
    assert "last-failed" not in (ROOT / ".ci" / "run").read_text()  # a second try would hide what fails now and then


def test_a_seventh_of_the_hunts_runs_every_night() -> None:
    night = workflow("nightly")
    assert night[True]["schedule"] == [{"cron": "17 1 * * *"}]  # YAML reads `on` as true
    assert any(
        '.ci/slow --minutes 300 --part "$(date +%u)/7"' in str(step.get("run"))
        for step in night["jobs"]["hunts"]["steps"]
    )


# --- tools/try_wheel.py and tools/follow_tutorials.py -----------------------------------------------------------------


def test_every_extra_is_tried(wheel: zipfile.ZipFile) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "try_wheel.py"))
    extras = tool["brought"](Path(str(wheel.filename)))
    assert set(extras) == set(PROJECT["optional-dependencies"]) == {*tool["PROOFS"], "all"} - {""}
    assert {"typer", "rich", "onnx", "python-flint", "safetensors"} == extras["cli"]
    assert {extra for _, extra in PACKAGES.values()} <= set(extras)  # what errors name can be installed


@pytest.mark.parametrize(
    ("says", "code", "missing", "right"),
    [
        ("Usage: specgrad", 0, "", True),
        ("the command needs typer: pip install 'specgrad[cli]'", 3, "cli", True),
        ("the command needs typer: pip install 'specgrad[cli]'", 3, "", False),
        ("ModuleNotFoundError: typer", 1, "cli", False),
        ("Usage: specgrad", 0, "cli", False),  # it must not work without what it says it needs
    ],
)
def test_what_counts_as_a_command_that_works(
    wheel: zipfile.ZipFile, tmp_path: Path, says: str, code: int, missing: str, right: bool
) -> None:
    tried = runpy.run_path(str(ROOT / "tools" / "try_wheel.py"))["Tried"]
    one = tried(sys.executable, Path(str(wheel.filename)), "", "", tmp_path)
    one.scratch.mkdir()
    script = tmp_path / "specgrad"
    script.write_text(f'#!/bin/sh\necho "{says}"\nexit {code}\n')
    script.chmod(0o755)
    assert (one.command(tmp_path / "python", ["--help"], missing) == []) is right


def test_a_release_is_built_by_tools_with_hashes() -> None:
    """Every tool, and what it needs, at one version whose files are known; the rehearsal installs the same file."""
    text = (ROOT / ".github" / "release-tools.txt").read_text()
    entries = [e for e in re.split(r"\n(?=[a-z])", text) if not e.startswith("#")]
    assert [e.splitlines()[0] for e in entries if "==" not in e or "--hash=sha256:" not in e] == []
    asked = (ROOT / ".github" / "release-tools.in").read_text().split()
    assert {"build", "twine", "hatchling"} <= set(asked) <= {e.partition("==")[0] for e in entries}
    steps = [str(step.get("run")) for step in workflow("release")["jobs"]["build"]["steps"]]
    assert "python -m pip install --require-hashes -r .github/release-tools.txt" in steps
    tool = runpy.run_path(str(ROOT / "tools" / "rehearse_release.py"))
    assert (tool["TOOLS"], set(tool["WAYS"])) == (ROOT / ".github" / "release-tools.txt", {"pip", "pipx", "uvx"})


def test_a_step_of_the_rehearsal_that_fails_is_counted(tmp_path: Path, capsys) -> None:
    rehearsal = runpy.run_path(str(ROOT / "tools" / "rehearse_release.py"))["Rehearsal"](tmp_path)
    (tmp_path / "specgrad-1.whl").write_bytes(b"wheel")
    page = (tmp_path / "simple" / "specgrad" / "index.html", rehearsal.index([tmp_path / "specgrad-1.whl"]))[0]
    assert f"specgrad-1.whl#sha256={hashlib.sha256(b'wheel').hexdigest()}" in page.read_text()
    assert rehearsal.step("good", sys.executable, "-c", "print('one'); print('two')") == "one\ntwo"
    assert rehearsal.failed == 0
    rehearsal.step("bad", sys.executable, "-c", "import sys; sys.exit('no')")
    assert rehearsal.failed == 1
    assert "exit 1: no" in capsys.readouterr().out


def test_the_front_page_has_the_commands_that_are_followed() -> None:
    commands = runpy.run_path(str(ROOT / "tools" / "first_verdict.py"))["commands_of"]((ROOT / "README.md").read_text())
    assert [c.split()[0] for c in commands[:3]] == ["git", "pip", "specgrad"]
    assert commands[2] == "specgrad audit model.onnx --runtime onnxruntime"


def test_every_tutorial_names_one_install() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "follow_tutorials.py"))
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        extras = re.search(r"\./specgrad(?:\[([\w,]+)\])?", tool["named_install"](page.read_text()))
        assert extras, page.name
        assert set((extras[1] or "cli").split(",")) <= set(PROJECT["optional-dependencies"])
