"""Plugin of pytest: the fixture and the marker `conforms`, and a section with what was allowed against what was seen.

It loads nothing of specgrad before a test uses the fixture.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

PROPERTY = "specgrad_conforms"  # of a test's report, which xdist carries from its workers
MOST_ROWS = 20  # of the section, unless -v is given
MARKER = (
    "conforms(shapes=None, formats=None, **options): options of assert_conforms for the fixture `conforms`; of a "
    "list of shapes, or of formats, each makes a test of its own"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line."""
    group = parser.getgroup("specgrad", "kernels against what they must compute")
    group.addoption("--conforms-seed", type=int, metavar="N", help="draw other inputs in every test with `conforms`")
    group.addoption("--conforms-cells", metavar="N", help="judge about N drawn cells of large results; all: all cells")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Hide our frames in the report of a test that ended with an error of ours; --full-trace shows them.

    In a checkout of specgrad itself they stay.
    """
    raised, source = call.excinfo, Path(__file__).parent
    errors = sys.modules.get(f"{source.name}.errors")
    if raised is None or errors is None or source.is_relative_to(item.config.rootpath / "src"):
        return
    if isinstance(raised.value, errors.SpecgradError) and not item.config.getoption("fulltrace"):
        trace, _ = errors.outside(raised.tb)
        call.excinfo = pytest.ExceptionInfo.from_exc_info((raised.type, raised.value, trace))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each of several shapes and formats in the marker."""
    marker = metafunc.definition.get_closest_marker("conforms")
    if marker is None or "conforms" not in metafunc.fixturenames:
        return
    lists = {k: v for k, v in marker.kwargs.items() if k in ("shapes", "formats") and isinstance(v, list | tuple)}
    if lists:
        chosen = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
        names = ["-".join(map(_short, options.values())) for options in chosen]
        metafunc.parametrize("conforms", chosen, ids=names, indirect=True)


def _short(value: Any) -> str:
    """Return shapes, or a format, as they stand in the name of a test: 64x768, bfloat16."""
    if not isinstance(value, Mapping):
        return str(getattr(value, "dtype", value))
    return ",".join("x".join(map(str, shape)) if isinstance(shape, tuple) else str(shape) for shape in value.values())


@pytest.fixture
def conforms(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return `specgrad.check.assert_conforms` with the options of the marker and of the command line.

    What a call says itself wins over the marker, the command line over both.
    """
    marker = request.node.get_closest_marker("conforms")
    marked = {**(marker.kwargs if marker else {}), **getattr(request, "param", {})}
    typed = _typed_options(request.config)

    def check(kernel: Any, reference: Any, **options: Any) -> Any:
        """Call assert_conforms, and note what came of it for the section at the end."""
        from .check import ConformanceError, assert_conforms

        given = {**_as_options(marked), **options, **typed}
        try:
            done = assert_conforms(kernel, reference, **given)
        except ConformanceError as error:
            _note(request.node, str(error).partition("\n")[0], None)
            raise
        _note(request.node, repr(done), done)
        return done

    return check


def _typed_options(config: pytest.Config) -> dict[str, Any]:
    """Return the options of assert_conforms that the command line gives."""
    seed, cells = config.getoption("--conforms-seed"), config.getoption("--conforms-cells")
    typed = {} if seed is None else {"seed": seed}
    return typed if cells is None else {**typed, "cells": None if cells == "all" else int(cells)}


def _as_options(marked: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of the marker as those of assert_conforms: shapes are inputs, a format may be an Arithmetic."""
    from .rounding import Arithmetic

    options = dict(marked)
    if options.get("shapes") is not None:
        options["inputs"] = options.pop("shapes")
    if isinstance(form := options.get("formats"), Arithmetic):
        options |= {"arithmetic": form, "formats": None}
    return {name: value for name, value in options.items() if value is not None}


def _note(item: pytest.Item, text: str, done: Any) -> None:
    """Put what became of a call, `text`, into the report of the test `item`.

    `done` is its ConformanceSummary, None of a failure.
    """
    row: dict[str, Any] = {"text": text, "test": item.nodeid, "ratio": None}
    if done is not None:
        nearest = done.nearest_limit[0] if done.nearest_limit else None
        seen = abs(nearest.actual - nearest.expected) if nearest else 0.0
        row |= {"ratio": done.ratio, "seen": seen, "allowed": nearest.allowed if nearest else 0.0}
    item.user_properties.append((PROPERTY, json.dumps(row)))


def _rows(reporter: Any) -> Iterator[dict[str, Any]]:
    """Yield what became of each call, from the reports of this process or of xdist's workers."""
    for reports in reporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                yield from (json.loads(value) for name, value in report.user_properties if name == PROPERTY)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the section: per call the error nearest to what is allowed, the greatest part first."""
    rows = list(_rows(terminalreporter))
    if not rows:
        return
    rows.sort(key=lambda row: float("inf") if row["ratio"] is None else row["ratio"], reverse=True)
    shown = rows if terminalreporter.verbosity > 0 else rows[:MOST_ROWS]
    terminalreporter.write_sep("=", "conforms: seen against allowed")
    for row in shown:
        part = "FAILED" if row["ratio"] is None else f"{row['seen']:.2g} of {row['allowed']:.2g} ({row['ratio']:.2g})"
        terminalreporter.write_line(f"{part:<28} {row['test']}  {row['text']}")
    if len(shown) < len(rows):
        terminalreporter.write_line(f"and {len(rows) - len(shown)} more with smaller parts (-v shows them)")
