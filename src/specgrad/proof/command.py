"""specgrad check-certificate: replay it in exact arithmetic. Exit codes: 0 valid, 1 refused, 2 out of time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.exit_codes import CODES, print_verdict
from specgrad.cli.shared.models import Shapes, as_graph, only_shape
from specgrad.cli.shared.options import Around, Eps, High, Label, Low, Statement, number_of, statement_of
from specgrad.cli.shared.output_files import Json
from specgrad.execution_text import but
from specgrad.interop.model import named_model

MAX_ALTERNATIVES_SHOWN = 20  # alternatives of a case
commands = typer.Typer(rich_markup_mode=None)


@commands.command(
    "check-certificate", epilog="Example: specgrad check-certificate net.cert.json net.onnx robust.vnnlib"
)
def check_certificate(
    certificate: Annotated[Path, typer.Argument(help="The .json file; its .safetensors file must stand beside it.")],
    model: Annotated[str, typer.Argument(help="The network that it is about: an .onnx file or a saved graph (.json).")],
    statement: Statement = None,
    x: Around = None,
    label: Label = None,
    eps: Eps = None,
    low: Low = None,
    high: High = None,
    shape: Shapes = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit.")] = 60,
    assume_functions: Annotated[
        bool, typer.Option(help="Accept errors of exp, tanh, ... below the measured ones; your runtime must keep them.")
    ] = False,
    proven: Annotated[
        bool, typer.Option("--proven", help="Also ask the checker that is proven in Coq (make -C verified builds it).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Replay a certificate of a property in exact arithmetic. Exit codes: 0 valid, 1 refused, 2 out of time."""
    from specgrad.proof.base.rationals import ReplayError
    from specgrad.proof.files.certificate import OutOfTimeError, check_file, read_files

    asked = statement_of(statement, [] if x is None else [x], label, eps)
    if not certificate.is_file():
        raise typer.BadParameter(f"no file {certificate}")
    graph, notes = _deployed_network(model, asked, x, shape or [])
    question = _property_of(asked, graph, {"low": number_of("--low", low), "high": number_of("--high", high)})
    files = {
        "network": model,
        "property": str(statement or f"within {eps} of {x}, cell by cell, output {label} stays the largest"),
    }
    if proven:
        _require_proven_checker()
    checkers, program = ["specgrad's replay, in Python"], {}
    try:
        checked = check_file(certificate, graph, question, seconds=seconds, files=files, assume=assume_functions)
        if proven:
            from specgrad.proof.extracted.run_checker import check_proven

            who = check_proven(*read_files(certificate), graph, question, seconds=seconds)
            checkers, program = [*checkers, str(who)], {"program": who.to_json()}
    except ReplayError as error:
        verdict = "unknown" if isinstance(error, OutOfTimeError) else "refused"
        colour, reason = "yellow" if verdict == "unknown" else "red", str(error)
        said = (verdict, f"bold {colour}"), f"  {reason}"
        print_verdict("check-certificate", verdict, {"reason": reason}, as_json, lambda: screen.line(Console(), *said))
        raise typer.Exit(CODES[verdict]) from None
    print_verdict(
        "check-certificate",
        "valid",
        checked.to_json(notes) | {"checkers": checkers, **program},
        as_json,
        lambda: show_checked(Console(), checked, notes, checkers),
    )


def _require_proven_checker() -> None:
    """Raise BadParameter if the extracted checker is not built."""
    from specgrad.proof.extracted.run_checker import NoCheckerError, program

    try:
        program()
    except NoCheckerError as error:
        raise typer.BadParameter(str(error)) from None


def _deployed_network(model: str, statement_: Any, x: Path | None, texts: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """Return the deployed graph of the file `model` and what deployment changed, without using the prover's code.

    `statement_` is a property's file or (x, label, eps), `x` the file of the input, `texts` are of --shape.
    ParameterError for models that declare floats other than float32.
    """
    from specgrad.interop.model import refuse_other_formats
    from specgrad.proof.base.deployed_graph import at_the_property, deployed_graph, rounded_constants

    loaded = named_model(model)
    if loaded.kind == "onnx":
        refuse_other_formats(loaded)
        shape = only_shape(loaded, x, texts)
        texts = [] if shape is None else [",".join(map(str, shape))]
    graph = at_the_property(as_graph(loaded, [], texts), statement_)
    return deployed_graph(graph), rounded_constants(graph)


def _property_of(statement_: Any, graph: Any, limits: Any) -> Any:
    """Return the property that `statement_` names: of a file, or robustness of (x, label, eps) within `limits`."""
    from specgrad.properties.property import robustness
    from specgrad.properties.vnnlib import read

    if not isinstance(statement_, tuple):
        return read(statement_)
    x, label, eps = statement_
    outputs = int(np.prod(graph.nodes[graph.output_positions[0]].shape))
    return robustness(x, label, eps, outputs, **limits)


def show_checked(console: Console, checked: Any, notes: Sequence[str], checkers: Sequence[str]) -> None:
    """Print what a checked certificate proves: network, property, cases and executions, then the notes; `checkers`
    accepted it.
    """
    from specgrad.properties.property import towards_zero

    line = partial(screen.line, console)
    line(
        ("valid", "bold green"), f"  least margin {towards_zero(checked.margin):.6g}, exactly{but(checked.deployment)}"
    )
    for checker in checkers:
        line(f"accepted by {checker}")
    line(f"network: {checked.files['network']}, digest {checked.network}")
    line(f"property: {checked.files['property']}")
    for k, case in enumerate(checked.cases):
        line(f"case {k + 1} of {len(checked.cases)}: {case.box()}")
        for a in case.alternatives[:MAX_ALTERNATIVES_SHOWN]:
            line(f"  {a}; margin {towards_zero(a.margin):.6g}{a.leaves_text}")
        if len(case.alternatives) > MAX_ALTERNATIVES_SHOWN:
            line(f"  and {len(case.alternatives) - MAX_ALTERNATIVES_SHOWN} more; --json lists all")
    screen.show_deployment(console, checked.deployment, notes)


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "check-certificate": j.command_schema(
        "check-certificate",
        "what a certificate proves",
        j.choice("valid", "refused", "unknown"),
        {
            "reason": j.text("refused, unknown: why"),
            "network": j.object_of(
                "the network", file=j.text("as it was given"), digest=j.text("of its graph and weights")
            ),
            "property": j.text("the property, as it was given"),
            "cases": j.list_of(
                j.object_of(
                    "one box",
                    box=j.text("in words"),
                    alternatives=j.list_of(
                        j.object_of(
                            "one",
                            excluded=j.text("what cannot happen"),
                            margin=j.number("by how much"),
                            leaves=j.count("of the tree of cuts that proves it; 1 without cuts"),
                        ),
                        "",
                    ),
                ),
                "all boxes of the property",
            ),
            "margin": j.number("the least margin, rounded towards 0"),
            "checkers": j.list_of(
                j.text("which one"), "those that accepted it; with --proven also the one proven in Coq"
            ),
            "program": j.object_of(
                "with --proven: the program that accepted it",
                path=j.text("where it is"),
                sha256=j.text("its digest"),
                is_built=j.or_null(
                    {"type": "boolean"}, "it is the one that make -C verified has built; null: none is here to compare"
                ),
            ),
            "arithmetic": j.map_of({}, "the executions, as the certificate states them"),
            "deployment": j.DEPLOYMENT,
            "notes": j.NOTES,
        },
    ),
}
