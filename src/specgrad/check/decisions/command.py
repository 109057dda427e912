"""specgrad preserve: which decisions can no correct runtime change? Exit codes: 0 all proven, 1 some differ, 2 open."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from specgrad.atomic_files import write_whole
from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.console import Column, print_table
from specgrad.cli.shared.exit_codes import CODES, print_verdict
from specgrad.cli.shared.models import ModelName, read_samples
from specgrad.cli.shared.options import (
    Accumulate,
    Depth,
    Dtype,
    Execution,
    High,
    Low,
    Operands,
    Stored,
    arithmetic_of,
    number_of,
)
from specgrad.cli.shared.output_files import Force, Html, Json, check_file, is_report, writing
from specgrad.deadline import time_limit
from specgrad.execution_text import but
from specgrad.interop.model import named_model

if TYPE_CHECKING:
    from specgrad.check.decisions.sample_verdict import Sample

MAX_SAMPLES_SHOWN = 20  # samples that are not proven
EXAMPLE = "Example: specgrad preserve net.onnx data.npz --decision argmax --checkpoint run.jsonl --html report.html"


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog=EXAMPLE)
def preserve(
    model: ModelName,
    data: Annotated[Path, typer.Argument(help="An .npz file with an array of samples per input, or one .npy file.")],
    decision: Annotated[str, typer.Option(help="argmax, top-5, threshold:0.5, mask (per pixel) or mask:0.5.")] = (
        "argmax"
    ),
    axis: Annotated[int | None, typer.Option(help="The axis of the classes; default: the second.")] = None,
    array: Annotated[str | None, typer.Option(help="The array of the samples, where no name fits the input.")] = None,
    output: Annotated[str | None, typer.Option(help="The output that is decided, where there are several.")] = None,
    eps: Annotated[str | None, typer.Option(help="Every cell may also move so far: 0.01 or 2/255.")] = None,
    low: Low = None,
    high: High = None,
    execution: Execution = "fused",
    operands: Operands = None,
    dtype: Dtype = "float32",
    accumulate: Accumulate = None,
    depth: Depth = None,
    stored: Stored = None,
    runtime: Annotated[
        list[str] | None, typer.Option(help="Ask only this one about open samples; repeatable. none: ask nobody.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit; samples that are not reached are not proven.")] = (
        3600
    ),
    sample_seconds: Annotated[float, typer.Option(min=0, help="Time limit for one sample.")] = 60,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A file of JSON lines, written along the way; a stopped run goes on from it.")
    ] = None,
    html: Html = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """For every sample: does each execution of a class decide the same? If not, show two that differ."""
    from specgrad.check import preserve as run_preserve
    from specgrad.check.models.checkpoint import is_record

    check_file(html, is_report, force)
    check_file(checkpoint, is_record, False)
    arithmetic = arithmetic_of(dtype, operands, accumulate, execution, depth)
    options: dict[str, Any] = {"arithmetic": arithmetic, "output": output, "checkpoint": checkpoint}
    options["seconds"] = sample_seconds
    options |= {"eps": number_of("--eps", eps), "low": number_of("--low", low), "high": number_of("--high", high)}
    options |= {"stored": stored or (), "axis": axis}
    options["runtimes"] = None if runtime is None else [name for name in runtime if name != "none"]
    samples = read_samples(data, array)
    loaded = named_model(model)
    with time_limit(seconds), screen.progress(as_json) as step:
        result = run_preserve(loaded, samples, decision, progress=step, **options)
    print_verdict("preserve", result.verdict, result.to_json(), as_json, lambda: show_preserved(Console(), result))
    if html is not None:
        from specgrad.check.decisions.html import preserved_page

        with writing(html):
            write_whole(html, preserved_page(result))
    raise typer.Exit(CODES[result.verdict])


def show_preserved(console: Console, result: Any) -> None:
    """Print the counts of `result`, the samples that are not proven, and two executions of the first that differ."""
    line = partial(screen.line, console)
    excluded = but(result.deployment) if any(s.verdict == "proven" for s in result.samples) else ""
    line((result.verdict, f"bold {screen.colour(result.verdict)}"), f"  {result.model}{excluded}")
    first, *rest = result.sentences()
    line(f"{first}: {result.decision.said()}")
    for sentence in rest:
        line(sentence)
    if result.eps is not None:
        line(f"on every input within {result.eps} of the sample, cell by cell")
    proven = [s for s in result.samples if s.verdict == "proven"]
    if proven:
        nearest = min(proven, key=lambda s: s.ratio)
        line(f"nearest of the proven: sample {nearest.number}, {_margin_text(nearest)}")
    open_ = [s for s in result.samples if s.verdict != "proven"]
    if open_:
        columns = [Column("sample", right=True), Column("decision", folds=True), Column("verdict")]
        columns += [Column("margin", right=True), Column("tolerance", right=True), Column("between", folds=True)]
        print_table(console, columns, [_sample_row(s) for s in open_[:MAX_SAMPLES_SHOWN]])
    if len(open_) > MAX_SAMPLES_SHOWN:
        line(f"and {len(open_) - MAX_SAMPLES_SHOWN} more; --json lists all")
    for sample in [s for s in open_ if s.executions][:1]:
        _show_executions(console, sample)
    outside = sorted({name for s in result.samples for name in s.outside})
    if outside:
        line(f"outside the proven bounds, so not of this class: {', '.join(outside)}; audit says more")
    screen.show_deployment(console, result.deployment, result.notes)


def _margin_text(sample: Any) -> str:
    """Return margin and tolerance of a sample as text."""
    return f"margin {_number_or_unknown(sample.margin)}, tolerance {_number_or_unknown(sample.tolerance)}"


def _number_or_unknown(x: float | None) -> str:
    """Return a number to three digits, or "unknown" for None."""
    return "unknown" if x is None else f"{x:.3g}"


def _sample_row(s: Sample) -> list[Any]:
    """Return the cells of sample s in the table: number, decision, verdict, margin, tolerance, and the two outputs
    whose comparison is nearest to turning, or the reason if there are none.
    """
    decided = f"{s.unproven} of {s.decisions} open" if s.decision is None else s.decision
    between = " and ".join(map(str, s.between)) if s.between else s.reason
    cells = [s.number, decided, s.verdict, _number_or_unknown(s.margin), _number_or_unknown(s.tolerance), between]
    return [screen.cell(c, screen.colour(s.verdict) if k == 2 else "") for k, c in enumerate(cells)]


def _show_executions(console: Console, sample: Any) -> None:
    """Print two executions of a sample that decide differently, with the outputs that are compared."""
    screen.line(console, f"sample {sample.number}: two executions that differ")
    for run in sample.executions:
        shown = {k: v for k, v in run["outputs"].items() if int(k) in sample.between} or run["outputs"]
        values = ", ".join(f"y[{k}] = {v!r}" for k, v in list(shown.items())[:MAX_SAMPLES_SHOWN])
        asked = "".join(f"; {one['who']} {one['outcome']}" for one in run.get("asked", ()))
        screen.line(console, f"  {run['name']}: decides {run['decision']}; {values}{asked}")


# --- JSON -------------------------------------------------------------------------------------------------------------

ANY_DECISION = {"description": "a class, a list of classes, or 0 and 1 for no and yes"}
SAMPLE = j.object_of(
    "one sample",
    number=j.count("its place in the data"),
    verdict=j.choice("proven", "not proven", "differs"),
    decision=j.or_null(ANY_DECISION, "what is decided; null where there are many decisions"),
    decisions=j.count("how many decisions there are: one, or one per pixel"),
    unproven=j.count("how many of them are not proven"),
    estimated=j.count("how many of those not proven are estimated to stay: no proof"),
    margin=j.or_null(j.number(""), "of the comparison nearest to turning, at exact values; null: not known"),
    tolerance=j.or_null(j.number(""), "what executions may take from it; null: nothing is proven"),
    between=j.list_of(j.count("a flat number"), "the outputs that are compared there; one for a threshold"),
    seconds=j.number("spent on it"),
    optional={
        "reason": j.text("why nothing is known"),
        "executions": j.list_of(
            j.object_of(
                "a concrete execution",
                name=j.text("the runtime with its version, or the order of its sums"),
                decision={**ANY_DECISION, "description": "what it decides"},
                outputs=j.map_of(j.number("an output"), "by flat number; all, or those that decide"),
                optional={
                    "input": j.list_of(j.number("a cell"), "with --eps: the input, flat"),
                    "asked": j.list_of(
                        j.object_of(
                            "who was asked at that input",
                            who=j.text("torch: our engine; module: the one that was given; onnxruntime, on the file"),
                            outcome=j.choice("breaks it", "does not break it", "does not count", "no answer"),
                        ),
                        "with --eps: whether it is decided differently there",
                    ),
                },
            ),
            "two that decide differently",
        ),
        "outside": j.list_of(j.text("a runtime"), "outputs outside the proven bounds: it executes something else"),
    },
)
SCHEMAS = {
    "preserve": j.command_schema(
        "preserve",
        "which decisions no execution of the class can change",
        j.choice("proven", "not proven", "differs"),
        model=j.text("the file, or the module's class"),
        decision=j.text("argmax, top-K, threshold:T, mask or mask:T"),
        eps=j.or_null(j.text("a rational"), "how far every cell of a sample may move; null: not at all"),
        samples=j.count("how many samples"),
        proven=j.count("samples whose decisions are all proven"),
        not_proven=j.count("samples with a decision that is neither proven nor shown to differ"),
        differ=j.count("samples with two executions that decide differently"),
        decisions=j.object_of(
            "the decisions of all samples about which something is known",
            proven=j.count("that no execution of the class changes"),
            estimated=j.count("not proven, and estimated to stay: an estimate, no proof"),
            open=j.count("neither"),
        ),
        records=j.list_of(SAMPLE, "one per sample, in order; a line of the file of --checkpoint has the same keys"),
        deployment=j.DEPLOYMENT,
        notes=j.NOTES,
    ),
}
