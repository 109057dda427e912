"""specgrad campaign: many questions in shards. Exit codes: 0 all well, 1 findings, 2 unfinished, crashed or open."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.console import Column, print_table
from specgrad.cli.shared.exit_codes import CODES, print_verdict, warn_unlimited
from specgrad.cli.shared.logs import LogJson, LogLevel, start_logging
from specgrad.cli.shared.output_files import Force, Json, check_folder, writing

EXECUTORS = ("processes", "loop", "array", "dask", "ray")
BAR_CELLS = 60  # of the drawn progress
MAX_SHOWN = 40  # groups in a table, findings in a list
SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="A TOML file: kind, folder, and the keys of its kind.")]

commands = typer.Typer(
    rich_markup_mode=None,
    help="Many questions in shards, on any executor, that survive every kill: estimate, run, status, collect.",
    epilog="Example: specgrad campaign run spec.toml --workers 8",
)


@commands.command(epilog="Example: specgrad campaign estimate spec.toml --price 0.04")
def estimate(
    spec: SpecFile,
    price: Annotated[float | None, typer.Option(min=0, help="What one core costs per hour.")] = None,
    as_json: Json = False,
) -> None:
    """How many core-hours will it take? Three shards are run, and nothing is recorded."""
    from specgrad.scale import campaign

    asked = campaign.read_spec(spec)
    _use_one_thread()
    with screen.progress(as_json) as step:
        answer = campaign.estimate(asked, step)
    verdict = "crashed" if answer.crashed else "ok"
    data = {"kind": asked.kind, **answer.to_json(price)}
    print_verdict("campaign-estimate", verdict, data, as_json, lambda: show_estimate(Console(), spec, verdict, data))
    raise typer.Exit(CODES[verdict])


@commands.command(epilog="Example: specgrad campaign run spec.toml --workers 8 --metrics run.prom --log-level info")
def run(
    spec: SpecFile,
    executor: Annotated[
        str, typer.Option(help="processes, loop (here), dask, ray, or array: one element of a Slurm or Kubernetes job.")
    ] = "processes",
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many; array: elements in all. Default: one per core.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Of a Dask scheduler or a Ray cluster that runs; default: a local one.")
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a shard that fails is tried again.")] = 2,
    retry_crashed: Annotated[
        bool, typer.Option("--retry-crashed", help="Try shards again that an earlier run gave up.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Read all records, and compute again what was changed or has crashed.")
    ] = False,
    shard_seconds: Annotated[
        float | None, typer.Option(min=0.1, help="How long a shard may take before its worker ends. Default: an hour.")
    ] = None,
    store_seconds: Annotated[
        float, typer.Option(min=0, help="How long a store may fail (full, gone, slow) before the run ends.")
    ] = 600,
    metrics: Annotated[
        Path | None, typer.Option(help="Write metrics into this file while it runs: OpenMetrics text, always whole.")
    ] = None,
    log_level: LogLevel = None,
    log_json: LogJson = False,
    as_json: Json = False,
) -> None:
    """Run every shard that has no record yet. Stop it whenever you like, and run it again: it goes on."""
    from specgrad.scale import campaign

    asked = campaign.read_spec(spec)
    if executor not in EXECUTORS:
        raise typer.BadParameter(f"--executor must be one of {', '.join(EXECUTORS)}; got {executor!r}")
    if address is not None and executor not in ("dask", "ray"):
        raise typer.BadParameter("--address goes with --executor dask or ray")
    if metrics is not None and not metrics.absolute().parent.is_dir():
        raise typer.BadParameter(f"--metrics: no folder {metrics.absolute().parent}")
    start_logging(log_level, log_json)
    _use_one_thread()
    warn_unlimited()
    start = time.monotonic()
    options: dict[str, Any] = {"executor": executor, "workers": workers, "address": address}
    options |= {"retries": retries, "retry_crashed": retry_crashed, "repair": repair}
    options |= {"shard_seconds": shard_seconds, "store_seconds": store_seconds, "metrics": metrics}
    with _progress_bar(as_json or log_level is not None or log_json) as step:
        done = campaign.run(asked, progress=step, **options)
    verdict = "ok"  # every shard has a record; status and collect say what is in it
    counts = {"before": done.before, "run": done.run, "crashed": done.crashed, "deaths": done.deaths}
    data = {"kind": asked.kind, "folder": asked.folder, "shards": done.count, **counts}
    data["seconds"] = time.monotonic() - start
    print_verdict("campaign-run", verdict, data, as_json, lambda: show_run(Console(), spec, verdict, data))
    raise typer.Exit(CODES[verdict])


@commands.command(epilog="Example: specgrad campaign status spec.toml")
def status(spec: SpecFile, as_json: Json = False) -> None:
    """How far is it? Read from the records alone; the process that runs it is not asked."""
    from specgrad.scale import campaign

    there = campaign.standing(campaign.read_spec(spec).folder)
    data = there.to_json()
    print_verdict("campaign-status", there.verdict, data, as_json, lambda: show_status(Console(), there))
    raise typer.Exit(CODES[there.verdict])


@commands.command(epilog="Example: specgrad campaign collect spec.toml --scripts cases/")
def collect(
    spec: SpecFile,
    scripts: Annotated[Path | None, typer.Option(help="Write the script of every finding into this folder.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """What came out: verdicts counted, findings of one sort once, the smallest of each."""
    from specgrad.scale import campaign

    check_folder(scripts)
    asked = campaign.read_spec(spec)
    with screen.progress(as_json) as step:
        result = campaign.collect(asked, step)
    print_verdict(
        "campaign-collect", result.verdict, result.to_json(), as_json, lambda: show_collected(Console(), spec, result)
    )
    if scripts is not None:
        with writing(scripts):
            result.write(scripts, force=force)
    raise typer.Exit(CODES[result.verdict])


def _use_one_thread() -> None:
    """Limit engines to one thread per worker, unless the environment says otherwise."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@contextmanager
def _progress_bar(quiet: bool) -> Iterator[Callable[[Any], None] | None]:
    """Yield a callback that shows progress on stderr, or None if nobody watches or `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting workers", total=None)

        def step(p: Any) -> None:
            text = rate_text(p.rate, p.seconds_left) or "starting workers"
            text += f", {p.crashed} crashed" if p.crashed else ""
            bar.update(task, description=text, completed=p.done + p.crashed, total=p.count)

        yield step


# --- what is shown ----------------------------------------------------------------------------------------------------


def time_text(seconds: float) -> str:
    """Return a time in seconds as text of two units.

    >>> time_text(0.25), time_text(75), time_text(7300), time_text(200_000)
    ('0.25 s', '1 min 15 s', '2 h 1 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    for size, name, smaller, other in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{seconds // size:.0f} {name} {seconds % size // smaller:.0f} {other}"
    raise AssertionError


def rate_text(rate: float | None, left: float | None) -> str:
    """Return a rate (shards per second) and the seconds left as text; "" if the rate is unknown.

    >>> rate_text(2.0, 75), rate_text(0.02, None), rate_text(None, None)
    ('2 shards/s, 1 min 15 s left', '72 shards/h', '')
    """
    if not rate:
        return ""
    text = f"{rate:.3g} shards/s" if rate >= 1 else f"{rate * 3600:.3g} shards/h"
    return f"{text}, {time_text(left)} left" if left else text


def _print_head(console: Console, verdict: str, text: str) -> None:
    """Print the first line of a command's answer: the verdict in its colour, and a text."""
    screen.line(console, (verdict, f"bold {screen.colour(verdict)}"), f"  {text}")


def _count_text(count: int, what: str) -> str:
    """Return a count with its noun `what`, in the plural unless it is 1."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def show_estimate(console: Console, spec: Path, verdict: str, data: Mapping[str, Any]) -> None:
    """Print the verdict and the estimated cost of the campaign in the file `spec`; `data` is what `estimate` prints as
    JSON.
    """
    _print_head(console, verdict, f"{spec}: {data['kind']}, {_count_text(data['shards'], 'shard')}")
    for tried in data["tried"]:
        screen.line(console, f"shard {tried['shard']}: {time_text(tried['seconds'])}")
    for crash in data["crashed"]:
        screen.line(console, f"shard {crash['shard']}: {crash['how']}")
    if data["tried"]:
        hours = data["core_hours"]
        text = f"{hours['mean']:.3g} core-hours ({time_text(3600 * hours['mean'])} of one core)"
        least, most = (f"{hours[k]:.3g}" for k in ("least", "most"))
        screen.line(console, f"{text}; {least} if all are like the fastest of these, {most} like the slowest")
        if data["cost"] is not None:
            cost = data["cost"]
            screen.line(console, f"cost {cost['mean']:.3g}; at least {cost['least']:.3g}, at most {cost['most']:.3g}")
        screen.line(console, f"and {time_text(data['start_seconds'])} to start each worker, by this machine's clock")


def show_run(console: Console, spec: Path, verdict: str, data: Mapping[str, Any]) -> None:
    """Print the verdict and what a run did: how many shards, in which time, where; `data` is what `run` prints as JSON.

    `spec` is the campaign's file.
    """
    _print_head(console, verdict, f"{spec}: {_count_text(data['shards'], 'shard')} of kind {data['kind']}")
    text = f"{data['run']:,} run in {time_text(data['seconds'])}"
    text += f", {data['before']:,} were done before" if data["before"] else ""
    left = data["shards"] - data["run"] - data["before"] - data["crashed"]
    screen.line(console, text + (f", {left:,} left for others" if left else ""))
    if data["deaths"]:
        screen.line(console, f"{_count_text(data['deaths'], 'worker')} died, and work went on")
    if data["crashed"]:
        screen.line(console, f"{_count_text(data['crashed'], 'shard')} crashed every time; campaign collect says how")
    screen.line(console, f"records: {data['folder']}")


def show_status(console: Console, status: Any) -> None:
    """Print the state of a campaign: verdict, counts, rate, and a bar of its shards in order, where x marks a crash."""
    _print_head(console, status.verdict, f"{status.kind}, {status.folder}")
    drawn = screen.has_bars(console)
    letters = "·░▒▓█" if drawn else ".:-+#"
    width = min(BAR_CELLS, max(10, console.width - 12))
    cells = ["x" if crashed else letters[int(share * 4)] for share, crashed in status.done_by_segment(width)]
    percent = 100 * len(status.done) / status.count
    screen.line(console, f"{''.join(cells)}  {int(percent * 10) / 10:.3g} %", whole=True)
    text = f"{len(status.done):,} of {_count_text(status.count, 'shard')} done, {len(status.crashed):,} crashed"
    screen.line(console, f"{text}, {status.left:,} left")
    if status.left:
        rate = rate_text(status.rate, status.seconds_left)
        idle = f"the last one {time_text(status.idle_seconds)} ago" if status.idle_seconds is not None else "none yet"
        idle_note = "nobody seems to be at work; when somebody was: " if status.is_idle and rate else ""
        screen.line(console, f"{idle_note}{rate}; {idle}" if rate else idle)


def show_collected(console: Console, spec: Path, result: Any) -> None:
    """Print the counts by group, the crashes and the findings of `result`; `spec` is the campaign's file."""
    head = f"{spec}: {result.kind.name}, {result.done:,} of {_count_text(result.shards, 'shard')}"
    _print_head(console, result.verdict, f"{head}, {_count_text(result.total.total(), 'verdict')}")
    kinds = sorted(result.total, key=lambda k: (k in result.kind.BAD, k not in result.kind.GOOD, k))
    shown = sorted(result.counts.items(), key=lambda item: not any(item[1][k] for k in result.kind.BAD))
    rows = []
    for name, counts in (*shown[:MAX_SHOWN], *([("all", result.total)] if len(shown) > 1 else [])):
        cells = [screen.cell(f"{counts[k]:,}" if counts[k] else "", _verdict_colour(result.kind, k)) for k in kinds]
        rows.append([screen.cell(name), *cells])
    print_table(console, [Column("", folds=True), *(Column(k, right=True) for k in kinds)], rows)
    if len(shown) > MAX_SHOWN:
        screen.line(console, f"and {len(shown) - MAX_SHOWN:,} more rows (--json lists all)")
    if result.summary is not None:
        _show_summary(console, result.summary.report())
    left = result.shards - result.done - len(result.crashes)
    if left:
        screen.line(console, ("unfinished", "yellow"), f" {_count_text(left, 'shard')} to be run")
    for crash in result.crashes[:MAX_SHOWN]:
        screen.line(console, ("crashed", "yellow"), f" shard {crash['shard']}: {crash['how']}")
    if len(result.crashes) > MAX_SHOWN:
        screen.line(console, f"and {len(result.crashes) - MAX_SHOWN:,} more shards crashed (--json lists all)")
    for finding in result.findings[:MAX_SHOWN]:
        screen.line(console, (finding.row["verdict"], "red"), f" {finding.what} ({_count_text(finding.times, 'time')})")
        screen.line(console, f"  {finding.detail}")
        if finding.name:
            screen.line(console, f"  {finding.name}")
    if len(result.findings) > MAX_SHOWN:
        screen.line(console, f"and {len(result.findings) - MAX_SHOWN:,} more findings (--json lists all)")


def _show_summary(console: Console, report: Mapping[str, Any]) -> None:
    """Print the percentiles of margin over tolerance and the worst samples of a `report` on many."""
    known = ", ".join(f"{p} %: {x:.3g}" for p, x in report["percentiles"].items() if x is not None)
    screen.line(console, f"margin over tolerance, proven above 1; below it are so many samples: {known}")
    columns = [Column("sample", right=True), Column("decision", folds=True), Column("verdict")]
    columns += [Column(name, right=True) for name in ("margin", "tolerance", "ratio")]
    rows = [
        [screen.cell(s["number"]), screen.cell(s["decision"]), screen.cell(s["verdict"])]
        + [screen.cell("unknown" if s[k] is None else f"{s[k]:.3g}") for k in ("margin", "tolerance", "ratio")]
        for s in report["worst"][:MAX_SHOWN]
    ]
    print_table(console, columns, rows)


def _verdict_colour(kind: Any, verdict: str) -> str:
    """Return the colour of a verdict in this kind of campaign: good, bad or open."""
    return "red" if verdict in kind.BAD else "green" if verdict in kind.GOOD else "yellow"


# --- JSON -------------------------------------------------------------------------------------------------------------

CAMPAIGN = j.text("the kind of campaign: conformance, audit, certify, tiles, preserve")
RANGE = {
    "least": j.number("if all shards are like the fastest of these"),
    "mean": j.number("if they are like these on average"),
    "most": j.number("if they are like the slowest of these"),
}
SCHEMAS = {
    "campaign-estimate": j.command_schema(
        "campaign-estimate",
        "what a campaign will cost, from three of its shards",
        j.choice("ok", "crashed"),
        kind=CAMPAIGN,
        shards=j.count("in all"),
        tried=j.list_of(
            j.object_of("one shard", shard=j.count("its number"), seconds=j.number("by the clock, on one core")),
            "those that were run; nothing of them is recorded",
        ),
        crashed=j.list_of(
            j.object_of("one shard", shard=j.count("its number"), how=j.text("in words")),
            "those that ended without a result",
        ),
        rows_per_shard=j.number("verdicts of one shard, on average"),
        start_seconds=j.number("until a worker begins with its first shard"),
        core_hours=j.object_of("of all shards, without the start of workers", **RANGE),
        cost=j.or_null(j.object_of("core-hours times --price", **RANGE), "null: no price was given"),
    ),
    "campaign-run": j.command_schema(
        "campaign-run",
        "what one run of a campaign did, when every shard of its own has a record",
        j.choice("ok"),
        kind=CAMPAIGN,
        folder=j.text("where the records lie: a folder, or the address of an object store"),
        shards=j.count("in all"),
        before=j.count("done before this run"),
        run=j.count("done by this run"),
        crashed=j.count("shards that were given up, by this run or before"),
        deaths=j.count("workers that died while this run went on; with Dask and Ray, those after the last retry"),
        seconds=j.number("how long it took"),
    ),
    "campaign-status": j.command_schema(
        "campaign-status",
        "how far a campaign is, from its records alone",
        j.choice("ok", "unfinished", "crashed"),
        kind=j.text("the kind of campaign that lies there"),
        folder=j.text("where the records lie"),
        shards=j.count("in all"),
        done=j.count("with a result"),
        crashed=j.list_of(j.count("a shard"), "given up"),
        left=j.count("without a record"),
        per_second=j.or_null(j.number(""), "shards per second when it was last at work; null: too few to say"),
        seconds_left=j.or_null(j.number(""), "at that rate; null: not known"),
        quiet_seconds=j.or_null(j.number(""), "since the last result was recorded; null: there is none"),
    ),
    "campaign-collect": j.command_schema(
        "campaign-collect",
        "what came out of a campaign so far",
        j.choice("ok", "findings", "unfinished", "crashed", "cannot tell"),
        kind=CAMPAIGN,
        shards=j.count("in all"),
        done=j.count("with a result"),
        crashed=j.list_of(
            j.object_of(
                "one shard",
                shard=j.count("its number"),
                how=j.text("in words"),
                attempts=j.count("how often it was tried"),
            ),
            "given up",
        ),
        rows=j.count("verdicts"),
        counts=j.map_of(
            j.map_of(j.count("rows"), "by verdict"), "by operator (conformance), model and runtime (audit), model"
        ),
        findings=j.list_of(
            j.object_of(
                "findings of one sort",
                verdict=j.text("of the rows"),
                what=j.text("the smallest case"),
                detail=j.text("what is wrong with it"),
                times=j.count("rows of this sort"),
                file=j.or_null(j.text(""), "the script's name in the folder of --scripts; null: there is none"),
                row=j.map_of({}, "the row of the campaign that it came from"),
            ),
            "each sort once",
        ),
        summary=j.or_null(
            j.object_of(
                "of all samples (preserve)",
                samples=j.count("in all"),
                verdicts=j.map_of(j.count("samples"), "by verdict"),
                percentiles=j.map_of(j.or_null(j.number(""), "of margin over tolerance, rounded down"), "by percent"),
                worst=j.list_of(j.map_of({}, "one sample, as specgrad preserve has it, and its ratio"), "worst first"),
            ),
            "null: rows stand for themselves",
        ),
    ),
}
