"""specgrad certify: does a property hold for the deployed network? Exit codes: 0 holds, 1 violated, 2 unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from specgrad.atomic_files import write_whole
from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.exit_codes import CANNOT_TELL, CODES, print_and_flush, print_verdict
from specgrad.cli.shared.models import ModelName, Shapes, as_graph, only_shape, shapes_of
from specgrad.cli.shared.options import Eps, Execution, High, Label, Low, Operands, Statement, number_of, statement_of
from specgrad.cli.shared.output_files import (
    Counterexample,
    Force,
    Html,
    Json,
    check_certificate_files,
    check_counterexample,
    check_file,
    is_report,
    is_vnncomp,
    vnncomp_text,
    write_counterexample,
    writing,
)
from specgrad.errors import ContradictionError, need
from specgrad.execution_text import but
from specgrad.interop.model import Model, named_model
from specgrad.scalar import Array

SMALLER = "a smaller --eps may hold; --largest searches the largest one that does"
AroundEach = Annotated[
    list[Path] | None,
    typer.Option("--input", help="A .npy file: the input to stay around. One per input, in order, of several."),
]
Norm = Annotated[
    str, typer.Option(help="How --eps is measured: inf (cell by cell), 2 (root of the sum of squares) or 1 (sum).")
]


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: specgrad certify net.onnx robust.vnnlib --seconds 120 --html report.html")
def certify(
    model: ModelName,
    statement: Statement = None,
    x: AroundEach = None,
    label: Label = None,
    eps: Eps = None,
    norm: Norm = "inf",
    low: Low = None,
    high: High = None,
    shape: Shapes = None,
    execution: Execution = "fused",
    operands: Operands = None,
    largest: Annotated[
        bool, typer.Option("--largest", help="Search the largest eps; --eps is then the one to begin with.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit.")] = 60,
    vnncomp: Annotated[Path | None, typer.Option(help="Write the result here, as VNN-COMP asks for it.")] = None,
    counterexample: Counterexample = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Write a proof that check-certificate can check: this .json, and .safetensors.")
    ] = None,
    splits: Annotated[
        Path | None, typer.Option(help="Prove it by a tree of cuts that another tool found: a .json file. No search.")
    ] = None,
    html: Html = None,
    networks: Annotated[list[str] | None, typer.Option("--network", hidden=True)] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Prove a property for every float32 execution of a class, or find an input that breaks it."""
    from specgrad.rounding import Arithmetic

    if networks:
        raise typer.BadParameter(
            "certify takes one network, before the property: specgrad certify net.onnx query.vnnlib. A query about "
            "several goes to specgrad verify query.vnnlib --network NAME=FILE --network NAME=FILE"
        )
    if certificate is not None or splits is not None:
        need("flint", "certificates need")
        need("safetensors", "certificates need")
    check_file(vnncomp, is_vnncomp, force)
    check_counterexample(counterexample, force)
    check_certificate_files(certificate, force)
    check_file(html, is_report, force)
    if splits is not None and largest:
        raise typer.BadParameter("--splits proves one property; --largest tries many")
    if splits is not None and not splits.is_file():
        raise typer.BadParameter(f"no file {splits}")
    if largest and html is not None:
        raise typer.BadParameter("--html reports on one property; --largest tries many")
    if largest and (vnncomp or counterexample) is not None:
        raise typer.BadParameter("--vnncomp and --counterexample answer one property; --largest tries many")
    _check_norm(norm, {"--splits": splits, "--certificate": certificate, "--html": html})
    files = x or []
    asked = statement_of(statement, files, label, eps if eps is not None or not largest else "1/256")
    if largest and statement is not None:
        raise typer.BadParameter("--largest goes with --input and --label, not with a property file")
    loaded = named_model(model)
    is_file = loaded.kind == "onnx"
    network = loaded.source if is_file else as_graph(loaded, files, shape or [])
    source = loaded.source if loaded.kind == "torch" else None
    limits: dict[str, Any] = {"low": number_of("--low", low), "high": number_of("--high", high)}
    limits["shape"] = _input_shape(loaded, files, shape or []) if is_file else None
    options = {**limits, "arithmetic": Arithmetic(execution=execution, operands=operands)}
    if norm != "inf":
        options["norm"] = norm
    if largest:
        raise typer.Exit(_run_largest(model, network, asked, options, source, seconds, certificate, as_json))
    raise typer.Exit(
        _run_one(
            model, network, asked, options, source, seconds, vnncomp, counterexample, certificate, splits, html, as_json
        )
    )


def _input_shape(model: Model, files: Sequence[Path], texts: Sequence[str]) -> Any:
    """Return the shape of the only input, or shapes by name if there are several; None: the model decides.

    `files` are of --input, `texts` of --shape.
    """
    if len(files) > 1:
        return shapes_of(model, files, texts)
    return only_shape(model, files[0] if files else None, texts)


def _check_norm(norm: str, others: dict[str, Any]) -> None:
    """Raise BadParameter unless `norm` is "inf", "2" or "1", and "inf" if one of `others` is given.

    `others` are options by name that only work with boxes.
    """
    if norm not in ("inf", "2", "1"):
        raise typer.BadParameter(f"--norm must be inf, 2 or 1; got {norm}")
    given = [name for name, value in others.items() if value]
    if norm != "inf" and given:
        raise typer.BadParameter(f"{given[0]} knows boxes alone, --norm inf; got --norm {norm}")


def _run_one(
    model: str,
    network: Any,
    statement_: Any,
    options: dict[str, Any],
    source: Any,
    seconds: float,
    vnncomp: Path | None,
    counterexample: Path | None,
    certificate: Path | None,
    splits: Path | None,
    html: Path | None,
    as_json: bool,
) -> int:
    """Certify one property, print and write the results, and return the exit code.

    model   the file's name, network what was read from it, statement_ a property or (x, label, eps)
    options, source, seconds   of `certify`
    vnncomp ... html   where to write, None: nowhere; splits a tree to prove by
    as_json   print one JSON object
    counterexample   a file for the counterexample, if one is found

    A requested certificate that could not be made turns "holds" into "cannot tell".
    """
    verdict, made = _find_verdict(network, statement_, options, source, seconds, splits, as_json)
    if verdict.verdict == "unknown" and isinstance(statement_, tuple) and statement_[2] > 0:
        verdict = replace(verdict, reason="; ".join(filter(None, (verdict.reason, SMALLER))))
    if not as_json:
        print_and_flush(lambda: show_verdict(Console(), model, verdict))
    reason = None if certificate is None or made is not None else "only what holds has one"
    if certificate is not None and verdict.verdict == "holds" and made is None:
        with screen.progress(as_json) as step:
            made, reason = _find_certificate(network, statement_, {**options, "trees": verdict.trees}, seconds, step)
    shown = None if html is None else _figures(verdict, network, statement_, options)
    data = {
        **verdict.to_json(),
        **_certificate_json(certificate, reason),
        **({} if shown is None else {"report": shown.to_json()}),
    }
    print_verdict("certify", verdict.verdict, data, as_json, lambda: _show_certificate(certificate, reason))
    if vnncomp is not None:
        with writing(vnncomp):
            write_whole(vnncomp, vnncomp_text(verdict, statement_))
    write_counterexample(counterexample, verdict, statement_)
    _write_certificate(certificate, made)
    if html is not None and shown is not None:
        from specgrad.bounds.html import certify_page

        with writing(html):
            write_whole(html, certify_page(model, verdict, shown))
    return max(CODES[verdict.verdict], CANNOT_TELL) if reason and verdict.verdict == "holds" else CODES[verdict.verdict]


def _find_verdict(
    network: Any,
    statement_: Any,
    options: dict[str, Any],
    source: Any,
    seconds: float,
    splits: Path | None,
    as_json: bool,
) -> tuple[Any, Any]:
    """Return the verdict, and the certificate if it was proven by a given split tree, else None.

    `statement_` is a property or (x, label, eps); `options`, `source` and `seconds` are of `certify`; progress is shown
    unless `as_json`. `network` is what was read from the model's file.
    """
    from specgrad.bounds.search.certificates.prove import second_opinion
    from specgrad.bounds.search.certify import certify as run_certify

    with screen.progress(as_json) as step:
        if splits is not None:
            return second_opinion(network, statement_, splits, seconds=seconds, progress=step, **options)
        return run_certify(network, statement_, seconds=seconds, progress=step, source=source, **options), None


def _figures(verdict: Any, network: Any, statement_: Any, options: dict[str, Any]) -> Any:
    """Return the figures of the report on a verdict; bounds are computed again over the whole box.

    `statement_` is a property or (x, label, eps), `options` are of `certify`. `network` is what was read from the
    model's file.
    """
    from specgrad.bounds.report.figures import figures_of
    from specgrad.bounds.search.certify import graph_and_property

    limits = {k: v for k, v in options.items() if k != "arithmetic"}
    graph, question = graph_and_property(network, statement_, **limits)
    original = cells_of(statement_[0]) if isinstance(statement_, tuple) else None
    return figures_of(verdict, graph, question, original=original, arithmetic=options["arithmetic"])


def _run_largest(
    model: str,
    network: Any,
    statement_: Any,
    options: dict[str, Any],
    source: Any,
    seconds: float,
    certificate: Path | None,
    as_json: bool,
) -> int:
    """Search the largest eps, print and write the results, and return the exit code.

    `statement_` is (x, label, first eps), `options` and `source` are of `certify`; `certificate` is where to write one,
    or None. `model` is the file's name; `as_json` prints one JSON object. `network` is what was read from it.
    """
    from specgrad.bounds.search.eps_search import largest_eps

    x, label, first = statement_
    with_proof = certificate is not None
    options = {**options, "source": source, "first": first, "certificates": with_proof}
    with screen.progress(as_json) as step:
        answer = largest_eps(network, x, label, seconds=seconds, progress=step, **options)
    reason = "nothing is proven" if with_proof and answer.certificate is None else None
    data = {**answer.to_json(), **_certificate_json(certificate, reason)}

    def show() -> None:
        show_largest(Console(), model, answer)
        _show_certificate(certificate, reason)

    print_verdict("largest", answer.kind, data, as_json, show)
    _write_certificate(certificate, answer.certificate)
    return CODES[answer.kind]


def _certificate_json(certificate: Path | None, reason: str | None) -> dict[str, Any]:
    """Return {"certificate": {"file": ...}} about a requested certificate; {} if none was requested.

    `reason` says why there is none, if so: then the file is null, and the reason stands beside it.
    """
    if certificate is None:
        return {}
    return {"certificate": {"file": None, "reason": reason} if reason else {"file": str(certificate)}}


def _show_certificate(certificate: Path | None, reason: str | None) -> None:
    """Print where the certificate is, or the `reason` why there is none; nothing if none was requested."""
    if certificate is not None:
        screen.line(Console(), f"no certificate: {reason}" if reason else f"certificate: {certificate}")


def _write_certificate(path: Path | None, certificate: Any) -> None:
    """Write the certificate to `path`; nothing if either is None."""
    if path is not None and certificate is not None:
        with writing(path):
            certificate.save(path)


def _find_certificate(
    network: Any, statement_: Any, options: dict[str, Any], seconds: float, step: Any
) -> tuple[Any, str | None]:
    """Return (certificate, None), or (None, the reason why there is none).

    It may take `seconds`, whatever was spent before. `statement_` is a property or (x, label, eps), `options` are of
    `prove`, `step` is told the progress. `network` is what was read from the model's file. ContradictionError passes;
    any other exception is a reason.
    """
    from specgrad.bounds.search.certificates.prove import NoCertificateError, prove

    try:
        return prove(network, statement_, seconds=seconds, progress=step, **options), None
    except NoCertificateError as error:
        return None, str(error)
    except ContradictionError:  # then the verdict itself is in doubt
        raise
    except Exception as error:  # the verdict stands, and must be printed
        return None, f"unexpected {type(error).__name__}: {error}"


def cells_of(x: Any) -> Array:
    """Return an array unchanged, or the cells of several arrays concatenated."""
    return np.concatenate([a.ravel() for a in x]) if isinstance(x, tuple) else x


def show_largest(console: Console, model: str, answer: Any) -> None:
    """Print the proven and the violated eps, and what they rest on.

    `model` is the file's name, `answer` a LargestEps.
    """
    from specgrad.bounds.search.eps_search import shown

    line = partial(screen.line, console)
    excluded = "" if answer.verdict is None else but(answer.verdict.deployment)
    line((answer.kind, f"bold {screen.colour(answer.kind)}"), f"  {model}{excluded}")
    line("proven eps: ", "none" if answer.proven is None else shown(answer.proven))
    line(
        "violated eps: ", "no counterexample was found" if answer.violated is None else shown(answer.violated, up=True)
    )
    if answer.gap is not None:
        line(f"gap: {shown(answer.gap, up=True)}")
    if answer.reason:
        line(f"why: {answer.reason}")
    if answer.counterexample is not None:
        line("who was asked at the counterexample (--json gives the input):")
        for said in answer.counterexample.said():
            line(f"  {said}")
    line(f"{len(answer.tried)} values of eps were tried")
    if answer.verdict is not None:
        screen.show_deployment(console, answer.verdict.deployment, answer.verdict.notes)


def show_verdict(console: Console, model: str, verdict: Any) -> None:
    """Print the verdict, then what it rests on.

    `model` is the file's name, `verdict` a CertifyResult.
    """
    line = partial(screen.line, console)
    excluded = but(verdict.deployment) if verdict.verdict == "holds" else ""
    line((verdict.verdict, f"bold {screen.colour(verdict.verdict)}"), f"  {model}{excluded}")
    if verdict.counterexample is not None:
        y = ", ".join(f"{v:.6g}" for v in verdict.counterexample.y[:20])
        line(f"outputs of the counterexample: {y}")
        line("who was asked there (--json or --vnncomp give the input):")
        for said in verdict.counterexample.said():
            line(f"  {said}")
    elif verdict.verdict == "holds":
        least = min((m for case in verdict.margins for m in case), default=np.inf)
        by_splitting = "proven by splitting: bounds over the whole box leave it open"
        line(f"least proven margin: {least:.6g}" if least > 0 else by_splitting)
    if verdict.reason:
        line(f"why: {verdict.reason}")
    times = ", ".join(f"{name} {spent:.2f} s" for name, spent in verdict.stages.items() if spent)
    line(f"{times}{f'; {verdict.problems} subproblems' if verdict.problems else ''}")
    screen.show_deployment(console, verdict.deployment, verdict.notes)


# --- JSON -------------------------------------------------------------------------------------------------------------

COUNTEREXAMPLE = j.object_of(
    "an input in the property's box that breaks it",
    x={"type": "array", "description": "the input in float32, as the network was run on it: nested lists of its shape"},
    y=j.list_of(j.number("an output"), "the outputs there"),
    confirmed=j.list_of(j.text("an engine"), "where it was run, and broke the property"),
    asked=j.ASKED,
    exact_outputs_break_it=j.or_null(
        {"type": "boolean"}, "whether the exact outputs break it; null: not known well enough"
    ),
    optional={
        "point": j.list_of(j.text("a decimal"), "where x is rounded: the point of the property, flat and exact"),
        "named": {"type": "object", "description": "of several inputs, outputs or networks: each by its name"},
    },
)
REPORT = j.object_of(
    "with --html: what the page shows",
    layers=j.list_of(
        j.object_of(
            "one operator",
            name=j.text("of its node"),
            operator=j.text("with its parameters"),
            shape=j.SHAPE,
            widest=j.number("its widest box over the inputs of the first case; inf: unbounded"),
            mean=j.number("of the widths of its cells, about"),
            bending=j.count("cells of a function that bends"),
            unstable=j.count("those whose box has a bend inside"),
            optional={"growth": j.number("its widest box over the widest one that it reads")},
        ),
        "in order; empty: no boxes were computed",
    ),
    optional={
        "trees": j.list_of(
            j.list_of(
                j.object_of(
                    "one tree of cuts",
                    leaves=j.count("parts that are not cut"),
                    depth=j.count("the most cuts above a leaf"),
                    cuts=j.map_of(j.count("how many"), "by kind: input, node, winner"),
                    most_cut=j.list_of(
                        j.object_of("one cell", cell=j.text("of an input or a layer"), cuts=j.count("how many")),
                        "the cells that were cut most",
                    ),
                ),
                "of one case",
            ),
            "how the question was divided, by case",
        ),
        "open_part": j.object_of(
            "unknown: the part that is farthest from proven",
            margin=j.number("not above 0"),
            cuts=j.list_of(j.text("a cell of a layer and its side"), "cuts that are none of inputs"),
            box=j.list_of(
                j.object_of(
                    "one input",
                    cell=j.text("its name"),
                    low=j.number("its ends in this part"),
                    high=j.number(""),
                    whole_low=j.number("its ends in the question"),
                    whole_high=j.number(""),
                ),
                "inputs that were cut",
            ),
        ),
        "original": j.object_of(
            "what the counterexample was moved from",
            about=j.text("the given input, or the middle of the box"),
            x={"type": "array", "description": "the input, as nested lists of its shape"},
            y=j.list_of(j.number("an output"), "the outputs there"),
            moved=j.count("cells in which both differ"),
            farthest=j.number("the largest difference of a cell"),
        ),
    },
)
CERTIFICATE = j.object_of(
    "with --certificate: what was written",
    file=j.or_null(j.text(""), "the file; null: none was written, and the exit code is 2 at least"),
    optional={"reason": j.text("why there is none")},
)
SCHEMAS = {
    "certify": j.command_schema(
        "certify",
        "whether a property holds for every execution",
        j.choice("holds", "violated", "unknown"),
        margins=j.list_of(
            j.list_of(j.number("a margin"), "by alternative"),
            "by case: how far each alternative of the property is away",
        ),
        seconds=j.map_of(j.number("seconds"), "by stage of the search"),
        problems=j.count("subproblems of the branch and bound"),
        deployment=j.DEPLOYMENT,
        optional={
            "notes": j.NOTES,
            "reason": j.text("why nothing was proven, or where the input stands"),
            "unknown": j.UNKNOWN,
            "counterexample": COUNTEREXAMPLE,
            "certificate": CERTIFICATE,
            "report": REPORT,
        },
    ),
    "largest": j.command_schema(
        "largest",
        "certify --largest: how far every cell of an input may move",
        j.choice("holds", "violated", "unknown"),
        proven=j.or_null(j.number(""), "this eps is proven; null: not even the input itself"),
        violated=j.or_null(j.number(""), "the distance of the nearest counterexample that was found; null: none was"),
        gap=j.or_null(j.number(""), "between both"),
        reason=j.text("why they are not closer; empty: they are close"),
        tried=j.list_of(
            j.object_of("one eps", eps=j.number("how far"), verdict=j.text("what came out")),
            "in the order of the search",
        ),
        deployment=j.DEPLOYMENT,
        notes=j.NOTES,
        optional={"counterexample": COUNTEREXAMPLE, "certificate": CERTIFICATE},
    ),
}
