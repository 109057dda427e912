"""The metrics file of a run, read by an independent parser, and its log lines."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from specgrad.cli.shared.logs import JsonLines, start_logging
from specgrad.scale.jobs import run
from specgrad.scale.metrics import METRICS, MetricsFile, metrics_text

CUBES = "shard_jobs:Cubes"
SAMPLE = re.compile(r'(?P<name>[a-z_]+)\{job="(?P<job>(?:[^"\\\n]|\\[\\"n])*)"\} (?P<value>[0-9.e+-]+)')


def samples(text: str) -> dict[str, float]:
    """Name and value of every sample, by a grammar of our own; the last line ends the text."""
    lines = text.splitlines()
    assert (lines[-1], text[-1]) == ("# EOF", "\n")
    found = [SAMPLE.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(found)
    return {m["name"]: float(m["value"]) for m in found if m}


def faulty(tmp_path: Path, **faults: Any) -> dict[str, Any]:
    (tmp_path / "log").mkdir()
    return {"count": 6, "log": str(tmp_path / "log"), **faults}


def test_a_failure_that_passes_is_retried_and_not_failed(tmp_path: Path) -> None:
    """Shards 2 and 4 raise once each."""
    file = tmp_path / "run.prom"
    run(CUBES, faulty(tmp_path, raises=[2, 4], lives=1), tmp_path / "job", executor="loop", metrics=file)
    got = samples(file.read_text())
    assert (got["specgrad_shards"], got["specgrad_shards_done"], got["specgrad_shards_failed"]) == (6, 6, 0)
    assert (got["specgrad_shards_run_total"], got["specgrad_shards_retried_total"]) == (6, 2)
    assert got["specgrad_result_bytes_total"] == sum(len(f"{i**3}\n") for i in range(6))
    assert 0 < got["specgrad_shard_seconds_total"] <= got["specgrad_run_seconds"]
    run(CUBES, {"count": 6, "log": str(tmp_path / "log")}, tmp_path / "job", executor="loop", metrics=file)
    again = samples(file.read_text())
    assert (again["specgrad_shards_done"], again["specgrad_shards_run_total"]) == (6, 0)


def test_a_shard_that_is_given_up_has_failed(tmp_path: Path) -> None:
    file = tmp_path / "run.prom"
    options = faulty(tmp_path, raises=[2])
    run(CUBES, options, tmp_path / "job", executor="processes", workers=1, retries=1, metrics=file)
    got = samples(file.read_text())
    assert (got["specgrad_shards_done"], got["specgrad_shards_failed"]) == (5, 1)
    assert got["specgrad_shards_retried_total"] == 1
    assert got["specgrad_result_bytes_total"] == sum(len(f"{i**3}\n") for i in range(6) if i != 2)


def test_another_parser_reads_it(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    file, where = tmp_path / "run.prom", tmp_path / 'a "job" \\ of ours'
    state = run(CUBES, {"count": 3}, where, executor="loop", metrics=file)
    families = list(parser.text_string_to_metric_families(file.read_text()))
    assert [(f.name, f.type, f.documentation) for f in families] == [(n, kind, about) for n, kind, about, _ in METRICS]
    assert {s.labels["job"] for f in families for s in f.samples} == {str(where)}
    values = {s.name: s.value for f in families for s in f.samples}
    assert values == samples(metrics_text(state, str(where)))


def test_whoever_reads_finds_a_whole_file(tmp_path: Path) -> None:
    file, state = tmp_path / "run.prom", run(CUBES, {"count": 1}, tmp_path / "job", executor="loop")
    metrics = MetricsFile(file, "x" * 100_000)
    metrics.write(state)
    stop, lengths = threading.Event(), set[int]()

    def read() -> None:
        while not stop.is_set():
            lengths.add(len(samples(file.read_text())))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        metrics.write(state)
    stop.set()
    reader.join()
    assert lengths == {len(METRICS)}
    assert sorted(os.listdir(tmp_path)) == ["job", "run.prom"]


def test_log_lines_name_the_shard(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "specgrad.scale")
    run(CUBES, faulty(tmp_path, raises=[2]), tmp_path / "job", executor="loop", retries=1)
    lines = [json.loads(JsonLines().format(r)) for r in caplog.records if r.name == "specgrad.scale"]
    said = [(line["level"], line["shard"]) for line in lines if "shard" in line]
    assert said.count(("info", 2)) == 2  # tried again, given up
    assert [shard for level, shard in said if level == "debug"] == [0, 1, 3, 4, 5]
    assert lines[0]["message"] == "6 shards to run of 6, on loop"
    assert re.fullmatch(r"5 run in [\d.]+ s, 1 tried again, 1 crashed", lines[-1]["message"])
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", line["time"]) for line in lines)


def test_the_level_is_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("specgrad")
    for name in ("handlers", "propagate", "level"):
        monkeypatch.setattr(logger, name, getattr(logger, name))
    start_logging("info", True)
    logging.getLogger("specgrad.scale").info("a line\nwith two")
    logging.getLogger("specgrad.scale").debug("nobody hears it")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "a line\nwith two"
    with pytest.raises(Exception, match="--log-level must be one of debug, info, warning, error; got 'loud'"):
        start_logging("loud", False)
