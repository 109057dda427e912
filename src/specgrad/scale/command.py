"""specgrad tiles: how far a network looks, what exact tiles cost. Exit codes: 0 exact, 1 a layer reads everything."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from rich.console import Console

from specgrad.cli.shared import console as screen
from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.exit_codes import CODES, print_verdict
from specgrad.cli.shared.models import ModelName, Shapes, graph_of_shapes
from specgrad.cli.shared.output_files import Json
from specgrad.errors import ParameterError
from specgrad.interop.model import named_model

from .worker_memory import WORKER_BYTES

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30}
MAX_LAYERS_SHOWN = 12  # layers that read everything
Size = Annotated[
    str | None, typer.Option("--tile", help="Cells of the first output per tile: 1024, or one per axis: 512,1024.")
]
Memory = Annotated[
    str | None, typer.Option("--memory", help="Or what a worker of plan.run may take, 4GB: the largest tile.")
]
Engine = Annotated[str, typer.Option("--engine", help="Of the workers, for --memory: torch, jax, numpy.")]
Axes = Annotated[
    str | None, typer.Option("--axes", help="Spatial axes of the first input, 1,2 for NHWC; default: after the second.")
]
Passes = Annotated[
    bool, typer.Option("--passes", help="Sums and maxima over the image are computed in passes before: plan.measure.")
]
Format = Annotated[
    str, typer.Option("--dtype", help="The format of stored values: float32, float16, bfloat16, float64.")
]


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: specgrad tiles unet.onnx --shape x=1,3,100000,100000 --tile 1024")
def tiles(
    model: ModelName,
    shape: Shapes = None,
    tile: Size = None,
    memory: Memory = None,
    axes: Axes = None,
    passes: Passes = False,
    dtype: Format = "float32",
    engine: Engine = "torch",
    as_json: Json = False,
) -> None:
    """How far does the network look beyond a tile, which layers read everything, and what do exact tiles cost?"""
    from specgrad import scale

    if tile is not None and memory is not None:
        raise typer.BadParameter("give --tile or --memory, not both")
    if dtype not in ITEM_BYTES:
        raise typer.BadParameter(f"--dtype must be one of {', '.join(ITEM_BYTES)}; got {dtype!r}")
    if engine not in WORKER_BYTES:
        raise typer.BadParameter(f"--engine must be one of {', '.join(WORKER_BYTES)}; got {engine!r}")
    size, most = None if tile is None else numbers_of("--tile", tile, 1), None if memory is None else bytes_of(memory)
    graph = graph_of_shapes(named_model(model), shape or [])
    spatial = None if axes is None else numbers_of("--axes", axes)
    halo = scale.halo(graph, spatial)
    verdict = "reads everything" if halo.whole and not passes else "ok"
    data: dict[str, Any] = {**halo.to_json(), "plan": None}
    if (size or most) and verdict == "ok":
        sizes: Any = size if size is None or len(size) > 1 else size[0]
        cell: dict[str, Any] = {"itemsize": ITEM_BYTES[dtype], "engine": engine}
        plan = scale.tiles(graph, sizes, memory=most, axes=spatial, passes=passes, **cell)
        data["plan"] = plan.to_json(engine)
    print_verdict("tiles", verdict, data, as_json, lambda: show_tiles(Console(), model, verdict, halo, data["plan"]))
    raise typer.Exit(CODES[verdict])


def numbers_of(option: str, text: str, least: int = 0) -> tuple[int, ...]:
    """Return the integers of an option's text, separated by commas; ParameterError if one is below `least`.

    >>> numbers_of("--tile", "512,1024")
    (512, 1024)
    """
    parts = text.split(",")
    if not all(p.isascii() and p.isdigit() and least <= int(p) < 1 << 40 for p in parts):
        raise ParameterError(option, f"must be whole numbers with commas between, as 512,1024; got {text!r:.80}")
    return tuple(map(int, parts))


def bytes_of(text: str) -> int:
    """Return a memory size in bytes; ParameterError if the text is none; units are those of UNITS.

    >>> bytes_of("4GB"), bytes_of("1.5 GiB")
    (4000000000, 1610612736)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?", text.strip().upper(), re.ASCII)
    if match is None or match[2] not in UNITS or len(text) > 30 or float(match[1]) <= 0:
        raise ParameterError("--memory", f"must be a number of bytes, as 800MB or 4GB; got {text!r:.80}")
    return int(float(match[1]) * UNITS[match[2]])


def show_tiles(console: Console, model: str, verdict: str, halo: Any, plan: dict[str, Any] | None) -> None:
    """Print the verdict on a model of this name, its halo, the layers that read everything, and the plan, if there is
    one.

    Other verdicts than "ok" mean that such layers are there.
    """
    screen.line(console, (verdict, "bold green" if verdict == "ok" else "bold red"), f"  {model}")
    for axis in halo.axes:
        screen.line(console, str(axis))
    for layer in halo.whole[:MAX_LAYERS_SHOWN]:
        screen.line(console, str(layer))
    if len(halo.whole) > MAX_LAYERS_SHOWN:
        screen.line(console, f"and {len(halo.whole) - MAX_LAYERS_SHOWN} more layers (--json lists all)")
    if verdict != "ok":
        screen.line(console, "no tile alone has what these layers read; end the model before them, or try --passes")
    if plan is not None:
        size = "x".join(map(str, plan["size"]))
        screen.line(console, f"{plan['tiles']:,} tiles of {size} cells of the first output, {plan['kinds']} kinds")
        if plan["passes"]:
            screen.line(console, f"after {plan['passes']} passes over the image, one for each sum over everything")
        once = plan["multiply_adds_at_once"]
        ratio = f", {plan['multiply_adds'] / once:.4g} times those at once" if once else ""
        screen.line(console, f"{plan['multiply_adds']:,} multiply-adds{ratio}")
        at_once = _bytes_text(plan["peak_bytes_at_once"])
        worker = _bytes_text(plan["worker_bytes"])
        screen.line(console, f"about {worker} per worker; values {_bytes_text(plan['peak_bytes'])}, at once {at_once}")


def _bytes_text(count: int) -> str:
    """Return `count` bytes as text with three digits.

    >>> _bytes_text(304_059_776)
    '304 MB'
    """
    for letter in ("", "k", "M", "G"):
        if count < 1000:
            return f"{count:.3g} {letter}B"
        count /= 1000  # type: ignore[assignment]
    return f"{count:,.3g} TB"


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "tiles": j.command_schema(
        "tiles",
        "how far a network looks beyond a tile, and what exact tiles cost",
        j.choice("ok", "reads everything"),
        halo=j.list_of(
            j.object_of(
                "one spatial axis of an input; sizes are cells of it",
                input=j.text("the input's name"),
                axis=j.count("its axis"),
                before=j.integer("cells before a tile that it needs; negative: it begins later"),
                after=j.integer("cells after it"),
                align=j.count("tiles that begin and end at multiples of it need this halo, and are all alike"),
                crop=j.list_of(
                    j.integer("cells"),
                    "before and after, in multiples of align: for running the model itself on crops",
                ),
            ),
            "in the order of the inputs",
        ),
        reads_everything=j.list_of(
            j.object_of(
                "a layer that reads an axis from end to end; no tile alone has that",
                layer=j.text("its name"),
                operator=j.text("its operator"),
                axes=j.list_of(j.count("an axis"), "of its argument"),
                shape=j.SHAPE,
            ),
            "layers beyond any halo",
        ),
        plan=j.or_null(
            j.object_of(
                "tiles of the first output",
                size=j.SHAPE,
                tiles=j.count("how many"),
                kinds=j.count("compiled graphs that they share"),
                passes=j.count("with --passes: passes over the image before, one for each sum over everything"),
                multiply_adds=j.count("of all tiles and passes"),
                multiply_adds_at_once=j.count("of one run over everything"),
                peak_bytes=j.count("weights and the values of one tile, at most; not what kernels need for themselves"),
                peak_bytes_at_once=j.count("the same of one run over everything"),
                worker_bytes=j.count(
                    "about what a worker of plan.run takes on --engine: itself, weights, values, kernels"
                ),
            ),
            "with --tile or --memory; null: not asked for, or a layer reads everything",
        ),
    ),
}
