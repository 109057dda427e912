"""specgrad conformance, and its runtimes: does a runtime compute what the operators mean? Exit codes: 0 yes, 1 no."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from specgrad.atomic_files import write_whole
from specgrad.check import OPERATORS, RUNTIMES, kernel_signature
from specgrad.check import conformance as run_conformance
from specgrad.check.conform.conformance import Conformance
from specgrad.check.conform.findings_page import PAGE, is_page
from specgrad.check.conform.findings_page import write as write_page
from specgrad.check.conform.repro_script import write_scripts
from specgrad.check.runtimes import runtime as runtime_named
from specgrad.check.verdicts.judge import SEVERITY
from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.console import Column, print_table
from specgrad.cli.shared.exit_codes import (
    CODES,
    YES,
    print_verdict,
    warn_unlimited,
)
from specgrad.cli.shared.models import complete_runtime
from specgrad.cli.shared.output_files import Force, Html, Json, check_file, check_folder, is_report, writing

commands = typer.Typer(rich_markup_mode=None)


def _complete_operator(typed: str) -> list[str]:
    """Return the operators that begin with `typed`, for shell completion."""
    return [name for name in OPERATORS if name.startswith(typed)]


@commands.command(epilog="Example: specgrad conformance --runtime onnxruntime --operator max_pool --scripts cases/")
def conformance(
    runtime: Annotated[
        str | None,
        typer.Option(
            help="One of specgrad.check.RUNTIMES: torch, jax, onnxruntime, openvino, ...",
            autocompletion=complete_runtime,
        ),
    ] = None,
    operator: Annotated[
        list[str] | None,
        typer.Option(help="Only this operator; may be given again.", autocompletion=_complete_operator),
    ] = None,
    count: Annotated[int, typer.Option(min=8, help="Questions per operator.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Another seed asks other questions.")] = 0,
    gradients: Annotated[bool, typer.Option(help="Ask for gradients too, where the runtime has them.")] = True,
    scripts: Annotated[
        Path | None, typer.Option(help="Write the reproduction of every finding into this folder.")
    ] = None,
    html: Html = None,
    described: Annotated[
        bool, typer.Option("--describe", help="Ask nobody: print how assert_conforms calls a kernel of each operator.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Does this runtime compute what the operators mean, on generated shapes, attributes and data?"""
    if described:
        signatures = {name: kernel_signature(name) for name in operator or OPERATORS}
        data = {"operators": {name: signature.to_json() for name, signature in signatures.items()}}
        print_verdict("describe", "ok", data, as_json, lambda: print("\n\n".join(map(str, signatures.values()))))
        return
    if runtime is None:
        raise typer.BadParameter("give --runtime NAME, or --describe")
    check_file(html, is_report, force)
    check_folder(scripts)
    warn_unlimited()
    with screen.progress(as_json) as step:
        result = run_conformance(
            runtime, operators=operator, count=count, seed=seed, gradients=gradients, progress=step
        )
    print_verdict("conformance", result.verdict, result.to_json(), as_json, lambda: show_conformance(Console(), result))
    if scripts is not None:
        with writing(scripts):
            write_scripts(result.scripts(), scripts, force=force)
    if html is not None:
        from specgrad.check.pages import conformance_page

        with writing(html):
            write_whole(html, conformance_page(result))
    raise typer.Exit(CODES[result.verdict])


@commands.command(epilog="Example: specgrad conformance runtimes --write docs/findings --count 256")
def runtimes(
    write: Annotated[Path | None, typer.Option(help="Examine them all and write runtimes.md and scripts here.")] = None,
    count: Annotated[int, typer.Option(min=8, help="Questions per operator.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Another seed asks other questions.")] = 0,
    only: Annotated[list[str] | None, typer.Option(help="Only this runtime; may be given again.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Which runtimes are known, which are installed; with --write, the page of all their findings."""
    names = [runtime_named(n).name for n in only] if only else [n for n, r in RUNTIMES.items() if r.installed()]
    data: dict[str, Any] = {"runtimes": {n: r.versions() if r.installed() else None for n, r in RUNTIMES.items()}}
    if write is None:
        print_verdict("runtimes", "ok", data, as_json, lambda: show_runtimes(Console(), data["runtimes"]))
        raise typer.Exit(YES)
    check_folder(write)
    check_file(write / PAGE if write.exists() else None, is_page, force)
    warn_unlimited()
    results = []
    for name in names:
        with screen.progress(as_json) as step:
            results.append(run_conformance(name, count=count, seed=seed, progress=step))
    data |= {"page": str(write / PAGE)}
    print_verdict("runtimes", "ok", data, as_json, lambda: show_runtimes(Console(), data["runtimes"]))
    with writing(write):
        write_page(results, write, force=force)
    raise typer.Exit(YES)


def show_conformance(console: Console, result: Conformance) -> None:
    """Print the counts per operator of `result`, then every finding."""
    versions = ", ".join(f"{k} {v}" for k, v in result.versions.items())
    said = f"  {result.runtime} ({versions}), seed {result.seed}"
    screen.line(console, (result.verdict, f"bold {screen.colour(result.verdict)}"), said)
    kinds = [k for k in SEVERITY if any(c[k] for c in result.counts.values())]
    columns = [Column("operator"), *(Column(k, right=True) for k in (*kinds, "worst used/allowed"))]
    body = []
    for operator, counts in result.counts.items():
        worst = f"{result.ratios[operator]:.2f}" if result.ratios[operator] else ""
        body.append(
            [
                screen.cell(operator),
                *(screen.cell(counts[k] or "", screen.colour(k)) for k in kinds),
                screen.cell(worst),
            ]
        )
    print_table(console, columns, body)
    for finding in result.findings:
        about = f" {finding.operator} [{finding.rule}] {finding.question}"
        screen.line(console)
        screen.line(console, (finding.verdict.kind, "red"), about)
        screen.line(console, f"  {finding.verdict}")


def show_runtimes(console: Console, installed: Mapping[str, Mapping[str, str] | None]) -> None:
    """Print every known runtime with its installed versions; `installed` has None for those that are not."""
    body = []
    for name, versions in installed.items():
        text = "no" if versions is None else ", ".join(f"{k} {v}" for k, v in versions.items())
        body.append([screen.cell(name), screen.cell(text)])
    print_table(console, [Column("runtime"), Column("installed", folds=True)], body)


# --- JSON -------------------------------------------------------------------------------------------------------------

KINDS = j.choice(*SEVERITY)
SCHEMAS = {
    "conformance": j.command_schema(
        "conformance",
        "a runtime against the contract, operator by operator",
        j.choice("ok", "differs", "times out", "cannot tell"),
        runtime=j.text("the runtime"),
        versions=j.VERSIONS_USED,
        seed=j.count("the seed of the questions"),
        operators=j.map_of(
            j.object_of(
                "how many questions ended how",
                {kind: j.count(f"questions: {kind}") for kind in SEVERITY},
                ratio=j.number("the largest share of its allowance that any answer used"),
            ),
            "by operator",
        ),
        refusals=j.map_of(j.map_of(j.count("how often"), "by the runtime's own words"), "by operator"),
        findings=j.list_of(
            j.object_of(
                "one fault, shrunk",
                operator=j.text("the operator"),
                gradient={"type": "boolean", "description": "whether its gradient was asked"},
                rule=j.text("the label of the rule that is broken"),
                about=j.text("the rule in words"),
                question=j.text("the smallest question that shows it"),
                verdict=KINDS,
                detail=j.text("the verdict in words"),
                script=j.text("a program that shows it"),
            ),
            "one of each sort",
        ),
        deployment=j.DEPLOYMENT,
    ),
    "describe": j.command_schema(
        "describe",
        "conformance --describe: how a kernel is called",
        j.choice("ok"),
        operators=j.map_of(
            j.object_of(
                "one operator",
                meaning=j.text("its formula and its rules"),
                arrays=j.map_of(j.SHAPE, "its arrays in order, with the shapes of one question"),
                left_out=j.list_of(j.text("an array"), "arrays that some questions leave out"),
                attributes=j.map_of(
                    j.object_of(
                        "one attribute",
                        type=j.text("of its values"),
                        asked=j.text("which values questions have"),
                        meaning=j.text("in words"),
                    ),
                    "all are passed, always, by name",
                ),
            ),
            "by operator",
        ),
    ),
    "runtimes": j.command_schema(
        "runtimes",
        "the runtimes that are known",
        j.choice("ok"),
        runtimes=j.map_of(j.or_null(j.VERSIONS_USED, "null: not installed"), "by name"),
        optional={"page": j.text("with --write: the page that was written")},
    ),
}
