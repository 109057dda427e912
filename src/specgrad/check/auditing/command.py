"""specgrad audit: is every layer's output explained by rounding? Exit codes: 0 yes, 1 no, 2 cannot tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from specgrad.atomic_files import write_whole
from specgrad.bounded_files import read_npy
from specgrad.check import RUNTIMES, audit_recorded
from specgrad.check import audit as run_audit
from specgrad.check.auditing.attribution import Attribution
from specgrad.check.auditing.audit import Audit
from specgrad.check.models.recorded import name_ends, read_recorded
from specgrad.check.verdicts.arithmetic_classes import CLASSES, FLOAT32
from specgrad.check.verdicts.judge import SEVERITY, Verdict
from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.console import Column, print_table
from specgrad.cli.shared.exit_codes import (
    CODES,
    print_verdict,
    warn_unlimited,
)
from specgrad.cli.shared.models import (
    Fixed,
    GivenInputs,
    Inputs,
    ModelName,
    Preprocess,
    Shapes,
    at_fixed,
    complete_runtime,
    read_inputs,
)
from specgrad.cli.shared.output_files import Force, Html, Json, check_file, is_report, writing
from specgrad.deadline import time_limit
from specgrad.declared_errors import MEASURED
from specgrad.errors import ParameterError, SpecgradError
from specgrad.graph.graph import Graph
from specgrad.interop.model import Model, named_model
from specgrad.scalar import Array

Accept = Annotated[
    list[str] | None,
    typer.Option(
        help="Another arithmetic that may explain a layer: tf32, bfloat16, winograd-f4, ..., any; repeatable."
    ),
]
MAX_LAYERS_SHOWN, MIN_SHARE_SHOWN = 10, 0.001  # layers, and the least share of the output's difference
WIDE_WINDOW = 100  # columns from which on bars are long
commands = typer.Typer(rich_markup_mode=None)


def _complete_measured(typed: str) -> list[str]:
    """Return the runtimes with measured function errors that begin with `typed`, for shell completion."""
    return [name for name in dict.fromkeys((*RUNTIMES, *MEASURED)) if name.startswith(typed)]


@commands.command(epilog="Example: specgrad audit resnet18.onnx --runtime onnxruntime --input x.npy --html report.html")
def audit(
    model: ModelName,
    runtime: Annotated[
        str | None,
        typer.Option(
            help="onnxruntime, openvino, openvino-f32 or onnx-reference; of a module torch or torch-compile too; "
            "a device: onnxruntime:CUDAExecutionProvider, openvino:GPU.",
            autocompletion=complete_runtime,
        ),
    ] = None,
    inputs: Inputs = None,
    preprocess: Preprocess = None,
    shape: Shapes = None,
    fix: Fixed = None,
    recorded: Annotated[
        Path | None,
        typer.Option(help="What another device computed: a recording (audit record), or an .npz file by names."),
    ] = None,
    outputs: Annotated[
        list[Path] | None,
        typer.Option(help="A black box: an .npy file per output that it gave on --input; nothing else is known."),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            help="The runtime that computed what was recorded, for its errors of exp, tanh, ...: onnxruntime, iree, "
            "...; default: the largest of any runtime that was measured.",
            autocompletion=_complete_measured,
        ),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept that layers could not be examined; else that ends with 2.")
    ] = False,
    unusual: Annotated[
        str,
        typer.Option(
            help="Errors within the proof, and far beyond what float32 usually shows: open (exit code 2) or note (0).",
            autocompletion=lambda: ["open", "note"],
        ),
    ] = "open",
    accept: Accept = None,
    html: Html = None,
    seconds: Annotated[float, typer.Option(min=0, help="Time limit; layers that are not reached are not examined.")] = (
        600
    ),
    run_seconds: Annotated[float, typer.Option(min=0, help="Time limit for one run of the model.")] = 300,
    tolerance_seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Time for proven tolerances; default: 10, or 60 where outputs alone are known."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Is every layer's output on this runtime explained by rounding? If not, which is the first that is not?"""
    check_file(html, is_report, force)
    loaded = at_fixed(named_model(model), fix)
    if loaded.kind == "graph":
        raise ParameterError("audit", "runtimes run no saved graph; write it with specgrad.interop.to_onnx first")
    _check_one_source(runtime, recorded, inputs, outputs, shape)
    if runtime is not None and of is not None:
        raise typer.BadParameter("--of goes with --recorded and --outputs: --runtime names the runtime")
    if unusual not in ("open", "note"):
        raise typer.BadParameter(f"--unusual is open or note; got {unusual}")
    options: dict[str, Any] = {"accept": accept or (), "partial": partial, "unusual": unusual}
    options["tolerance_seconds"] = tolerance_seconds
    if runtime is None:
        if loaded.kind == "torch" and outputs:
            raise ParameterError("audit", "outputs alone are judged by an ONNX file; export the module, or record it")
        given = read_inputs(loaded, inputs, how=preprocess) if inputs else GivenInputs([])
        answers = [read_npy(file) for file in outputs or ()]
        values = read_recorded(recorded) if recorded else name_ends(loaded, given.arrays, answers)
        with time_limit(seconds), screen.progress(as_json) as step:
            audited = audit_recorded(loaded, values, of=of, **options, progress=step)
    else:
        given = read_inputs(loaded, inputs or [], shape or [], preprocess)
        warn_unlimited()
        with screen.progress(as_json) as step:
            options |= {"seconds": seconds, "run_seconds": run_seconds}
            audited = run_audit(loaded, runtime, given.arrays, **options, progress=step)
    audited = replace(audited, notes=(*given.notes, *audited.notes))
    print_verdict("audit", audited.verdict, audited.to_json(), as_json, lambda: show_audit(Console(), audited))
    if html is not None:
        from specgrad.check.pages import audit_page

        with writing(html):
            write_whole(html, audit_page(audited, _graph_for_report(loaded, given.arrays)))
    raise typer.Exit(CODES[audited.verdict])


def _graph_for_report(loaded: Model, inputs: list[Array]) -> Graph | None:
    """Return the graph of an ONNX file `loaded` at the shapes of `inputs`; None if it cannot be imported."""
    try:
        if loaded.kind != "onnx":
            return None
        loaded, inputs = loaded.at_scalars(inputs)
        shapes = {name: a.shape for name, a in zip(loaded.names, inputs, strict=True)} if inputs else {}
        part: Graph = loaded.part(shapes or loaded.closed_shapes({}))
        return part
    except SpecgradError:
        return None


def _check_one_source(
    runtime: str | None,
    recorded: Path | None,
    inputs: list[Path] | None,
    outputs: list[Path] | None,
    shape: list[str] | None,
) -> None:
    """Raise BadParameter unless exactly one of --runtime, --recorded and --outputs is given, with what goes with it.

    --recorded goes without --input and --shape, --outputs with --input and without --shape.
    """
    if sum((runtime is not None, recorded is not None, bool(outputs))) != 1:
        raise typer.BadParameter("give one of --runtime NAME, --recorded FILE, --outputs FILE")
    if recorded is not None and (inputs or shape):
        raise typer.BadParameter("--recorded FILE holds the inputs too")
    if outputs and (not inputs or shape):
        raise typer.BadParameter("--outputs needs --input, one file per input of the model, and no --shape")


def show_audit(console: Console, audit: Audit) -> None:
    """Print the verdict of the audit, then the layer to look at, what was left out, and all layers."""
    versions = ", ".join(f"{k} {v}" for k, v in audit.versions.items())
    screen.line(
        console,
        (audit.verdict, f"bold {screen.colour(audit.verdict)}"),
        f"  {audit.model} on {audit.runtime}{f' ({versions})' if versions else ''}",
    )
    if audit.export is not None:
        screen.line(console, "the export changes layer ", (audit.export.name, "bold"), f": {audit.export.verdict}")
    elif audit.first_divergent is not None:
        screen.line(console, "first layer that rounding does not explain: ", (audit.first_divergent.name, "bold"))
    if not audit.outputs_only:  # else the whole model is all that there is
        screen.line(console, str(audit.coverage))
    for what in audit.left_out:
        screen.line(console, f"not examined: {what}")
    if not audit.outputs_only:
        _show_layers(console, audit)
    screen.line(console, f"whole model, as it runs: {audit.whole}")
    if audit.run is not None:
        screen.line(console, f"whole model, estimated: {audit.run}")
    for sentence in audit.blind_spots.sentences() if audit.blind_spots is not None else ():
        screen.line(console, sentence)
    _show_attribution(console, None if audit.outputs_only else audit.attribution)
    judged = "the model was judged" if audit.outputs_only else "layers were judged by node, the whole model"
    screen.line(console, f"{judged} as fused (--json: deployment says what that includes)")
    for note in audit.notes:
        screen.line(console, f"note: {note}")
    if audit.script:
        screen.line(console)
        screen.line(console, ("minimal reproduction", "bold"), " (needs only the runtime and numpy)")
        for text in ("", *audit.script.splitlines()):
            screen.line(console, text, whole=True)


def _show_attribution(console: Console, a: Attribution | None) -> None:
    """Print the difference at the output, and the layers whose own errors explain most of it; nothing if `a` is
    None.
    """
    if a is None:
        return
    screen.line(console, f"largest difference at the output: {a.output}")
    if a.is_first_order:
        parts = ", ".join(f"{name} {100 * share:.3g} %" for name, share in a.largest() if abs(share) >= MIN_SHARE_SHOWN)
        all_layers = f"all layers {100 * a.explained:.3g} %"
        screen.line(console, f"layers whose own error explains it, to first order: {parts}; {all_layers}")
    else:
        screen.line(console, "which layers explain it cannot be said: the first order does not hold here")
    if a.estimate is not None:
        screen.line(console, f"a correct runtime differs there by about {a.estimate:.2g} (an estimate, not a bound)")


def _show_layers(console: Console, audit: Audit) -> None:
    """Print the table of the layers of an audit to look at first, at most MAX_LAYERS_SHOWN."""
    bars, width = screen.has_bars(console), 12 if console.width >= WIDE_WINDOW else 5
    columns = [Column("layer", folds=True), Column("operator", folds=True), Column("shape"), Column("verdict")]
    columns += [Column("error / bound", folds=True), Column("times usual")]
    body = []
    shown = audit.worst_layers(MAX_LAYERS_SHOWN)
    for layer in shown:
        v, shape = layer.verdict, "x".join(map(str, layer.shape))
        text = "; ".join((_used_text(v), *layer.remarks))
        has_bar = bars and not layer.is_one_rounding  # whose share is near 1 wherever it rounds at all
        used = screen.cell(f"{screen.bar(v.ratio, width)} {text}" if has_bar else text)
        body.append(
            [
                screen.cell(layer.name),
                screen.cell(_short_operator(layer.operator)),
                screen.cell(shape),
                screen.cell(v.kind, screen.colour(v.kind)),
                used,
                screen.cell("" if layer.usual is None else f"{layer.usual.times:.2g}"),
            ]
        )
    print_table(console, columns, body)
    if rest := [layer.verdict.kind for layer in audit.layers if layer not in shown]:
        counts = ", ".join(f"{rest.count(kind)} {kind}" for kind in SEVERITY if kind in rest)
        screen.line(console, f"and {len(rest)} more layers: {counts} (--html and --json have all of them)")
    if any(layer.usual is not None for layer in shown):
        screen.line(console, "error / bound: proven; times usual: beside what float32 usually shows, estimated")


def _short_operator(text: str) -> str:
    """Return an operator with its windows, for a column: without settings that are long words.

    >>> _short_operator("conv k3 s2 p1"), _short_operator("softmax: amax ties=split")
    ('conv k3 s2 p1', 'softmax')
    >>> _short_operator("contract spec=deb,bc->dec"), _short_operator("contract, add, sigmoid")
    ('contract', 'contract, add, sigmoid')
    """
    return " ".join(word for word in text.partition(":")[0].split() if "=" not in word)


def _used_text(v: Verdict) -> str:
    """Return, as a table cell, the share of the allowance that verdict v used, or what differs."""
    if v.kind in ("exact", "rounding"):
        return f"{v.ratio:.2g}"
    if v.kind == "unusual":
        return f"{v.ratio:.2g}; {v.detail}"
    return v.detail or f"{v.actual:.6g} must be {v.expected:.6g} within {v.allowed:.2g}"


# --- JSON -------------------------------------------------------------------------------------------------------------

KINDS = j.choice(*SEVERITY)
USUAL = j.object_of(
    "how a layer's errors compare with what float32 usually shows: an estimate, not a proof",
    estimated={"type": "boolean", "description": "true: nothing of this is proven"},
    scale=j.number("root mean square of the errors that are usual here"),
    seen=j.number("root mean square of the errors that were seen"),
    rms=j.number("root mean square of error over usual size, cell by cell; unusual above 2"),
    channel=j.number("the largest of one output channel; unusual above 4"),
    peak=j.number("the largest of one cell; unusual above 16"),
    gain=j.number("all values are too large by this factor, less 1; unusual above 4 units of rounding"),
    cells=j.count("how many cells were compared"),
    unusual=j.list_of(j.text("a sentence"), "what is unusual; empty: nothing"),
)
DIFFERENCE = j.object_of(
    "the largest difference from the exact values",
    absolute=j.number("its size"),
    relative=j.number("over the exact value there"),
    ulps=j.number("in units of the last place of the exact value there"),
    index=j.INDEX,
)
CLASS = j.text(f"a class of --accept ({FLOAT32}, {', '.join(c.name for c in CLASSES)}), or the layer's own type")
LAYER = j.object_of(
    "one layer, by its own name in the model",
    layer=j.text("its name"),
    operator=j.text("its operator, with the attributes that shape it"),
    shape=j.SHAPE,
    dtype=j.text("the format of its values: float32, float16, bfloat16, uint8, int32, ..."),
    verdict=KINDS,
    ratio=j.or_null(
        j.number("a share"), "the largest share of its allowance that any cell used; null: infinitely much"
    ),
    detail=j.text("the verdict in words"),
    arithmetic=j.or_null(CLASS, "the narrowest arithmetic that explains it; null: none, or not judged"),
    usual=j.or_null(USUAL, "null: nothing is estimated here"),
    allowed_share=j.or_null(j.number("a share"), "the largest allowance over the largest value; null: not known"),
    optional={
        "worst_index": j.INDEX,
        "actual": j.number("what the worst cell holds"),
        "expected": j.number("the exact value there"),
        "allowed": j.number("the proven bound on rounding there"),
        "difference": {**DIFFERENCE, "description": "the largest difference from the whole model's exact values"},
        "own_error": {**DIFFERENCE, "description": "the largest error that the layer itself made"},
        "share": j.number("the part of the output's difference that its own error explains, to first order"),
    },
)
RUN = j.object_of(
    "how far the run as it is, layers merged, was off at the output: an estimate, not a proof",
    estimated={"type": "boolean", "description": "true: nothing of this is proven"},
    difference=j.number("the largest difference from the exact outputs"),
    usual=j.number("the estimated standard deviation of a correct runtime there"),
    factor=j.number("how many times `usual` counts as usual"),
    unusual={"type": "boolean", "description": "whether the difference is beyond that"},
)
ATTRIBUTION = j.object_of(
    "which layers explain the difference at the output",
    output={**DIFFERENCE, "description": "at the output"},
    shares=j.map_of(j.number("a share"), "by layer, the largest first; they sum to `explained`"),
    explained=j.number("1 as far as the first order holds"),
    estimate=j.or_null(
        j.number("a deviation"),
        "an estimate, not a bound: the standard deviation of a correct runtime's error there; null: not known",
    ),
    order=j.choice("first"),
)
COVERAGE = j.object_of(
    "how much of the model was judged",
    layers=j.count("layers that were judged"),
    of_layers=j.count("all layers"),
    multiply_adds=j.count("their multiply-adds"),
    of_multiply_adds=j.count("all multiply-adds that could be counted"),
    uncounted=j.list_of(j.text("a layer"), "layers whose multiply-adds are not known"),
)
BLIND_SPOTS = j.object_of(
    "how small a fault a verdict on outputs alone detects",
    points=j.count("inputs that the model ran on"),
    cells=j.count("output cells that were judged, of all points"),
    smallest=j.number("what is allowed in the narrowest cell"),
    largest=j.number("what is allowed in the widest cell"),
    tried=j.count("usual faults that were planted in the model, one at a time, and computed exactly"),
    detected=j.count("those whose effect is more than twice what is allowed"),
    undetected=j.list_of(j.text("a layer and a fault"), "the others: they could be taken for rounding"),
)
SCHEMAS = {
    "audit": j.command_schema(
        "audit",
        "a model on a runtime, layer by layer",
        j.choice(*SEVERITY, "partly examined"),
        model=j.text("the file, or the module's class"),
        runtime=j.text("the runtime"),
        versions=j.VERSIONS_USED,
        first_divergent=j.or_null(LAYER, "the first layer that rounding does not explain"),
        export=j.or_null(LAYER, "a layer that the exported file no longer computes as the module does"),
        layers=j.list_of(LAYER, "in the order of the model"),
        attribution=j.or_null(ATTRIBUTION, "null: no difference, or none that can be followed"),
        run=j.or_null(RUN, "null: nothing is estimated of the run as it is"),
        coverage=COVERAGE,
        whole={**LAYER, "description": "the outputs of the model as it is, as if they were those of one layer"},
        blind_spots=j.or_null(
            BLIND_SPOTS, "what could not be seen, where outputs alone were judged and explained; else null"
        ),
        notes=j.NOTES,
        script=j.text("a program that reproduces the first layer's fault; empty if there is none"),
        deployment=j.map_of(j.DEPLOYMENT, 'what a correct execution is, for "layers" and for the "whole" model'),
    ),
}
