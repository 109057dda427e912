"""Options that several commands share, and what their texts mean: numbers, properties, boxes, executions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from specgrad.bounded_files import read_npy
from specgrad.scalar import Array, float_above, float_below

if TYPE_CHECKING:
    from specgrad.rounding import Arithmetic

# --- numbers ----------------------------------------------------------------------------------------------------------


def number_of(name: str, text: str | None) -> Fraction | None:
    """Return the exact value of the `text` of an option such as 2/255 or 0.01; None for None. Its size is limited
    first.

    BadParameter, with the option's name, for what is no number.
    """
    from specgrad.properties.property import PropertyError
    from specgrad.properties.vnnlib1 import parse_number

    if text is None:
        return None
    above, slash, below = text.partition("/")
    try:
        parts = parse_number(above), parse_number(below if slash else "1")
    except PropertyError as error:
        raise typer.BadParameter(f"{name}: {error.text}") from None
    if parts[0] is None or not parts[1]:
        raise typer.BadParameter(f"{name} must be a number such as 0.01 or 2/255; got {text[:40]!r}")
    return parts[0] / parts[1]


# --- properties -------------------------------------------------------------------------------------------------------

Statement = Annotated[Path | None, typer.Argument(metavar="PROPERTY", help="A .vnnlib file, or .vnnlib.gz.")]
Around = Annotated[Path | None, typer.Option("--input", help="A .npy file: the input to stay around.")]
Label = Annotated[int | None, typer.Option(help="The output that must stay the largest.")]
Eps = Annotated[str | None, typer.Option(help="How far every cell may move: 0.01 or 2/255.")]
Low = Annotated[str | None, typer.Option(help="No cell moves below this.")]
High = Annotated[str | None, typer.Option(help="No cell moves above this.")]


def statement_of(file: Path | None, x: Sequence[Path], label: int | None, eps: str | None) -> Any:
    """Return the property file, or (x, label, eps) of the options; x is a tuple if there are several inputs.

    BadParameter if both are given, or neither is complete.
    """
    around = {"--input": x or None, "--label": label, "--eps": eps}
    given = [name for name, value in around.items() if value is not None]
    if file is not None:
        if given:
            raise typer.BadParameter(f"give a property file or --input, --label, --eps; got both ({', '.join(given)})")
        if not file.exists():
            raise typer.BadParameter(f"no file {file}")
        return file
    if not x or label is None or eps is None:
        missing = ", ".join(name for name in around if name not in given)
        raise typer.BadParameter(f"give a property file, or --input, --label and --eps; missing: {missing}")
    arrays = tuple(map(_read_finite, x))
    return arrays[0] if len(arrays) == 1 else arrays, label, number_of("--eps", eps)


def _read_finite(path: Path) -> Array:
    """Read an .npy file of finite floats; BadParameter for integers, NaN, infinities; FileError: no .npy file."""
    array = read_npy(path)
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise typer.BadParameter(f"{path} must hold finite floats; got dtype {array.dtype}")
    return array


# --- boxes ------------------------------------------------------------------------------------------------------------


def box_limits(text: str) -> tuple[float, float]:
    """Return (low, high) of the text LO,HI of --box as floats that enclose the exact numbers.

    BadParameter unless they are two numbers in order.

    >>> from fractions import Fraction
    >>> box_limits("-1,1/4"), box_limits("0,0.1")[1] >= Fraction(1, 10)
    ((-1.0, 0.25), True)
    """
    low, comma, high = text.rpartition("=")[2].partition(",")
    ends = [number_of("--box", part) for part in (low, high)] if comma else []
    if len(ends) != 2 or ends[0] is None or ends[1] is None or not ends[0] <= ends[1]:
        raise typer.BadParameter(f"--box must be LO,HI with LO <= HI, as 0,1 or -1/2,1/2; got {text[:40]!r}")
    return _enclosing("--box must be two numbers", text, ends[0], ends[1])


def limits_of(box: str | None, low: str | None, high: str | None) -> tuple[float, float] | None:
    """Return (low, high) of --box, or of --low and --high, as floats that enclose them; None without these options.

    BadParameter if both ways are used, one limit is missing, or they are not in order.

    >>> limits_of(None, "0", "1/4"), limits_of("0,1", None, None), limits_of(None, None, None)
    ((0.0, 0.25), (0.0, 1.0), None)
    """
    if low is None and high is None:
        return None if box is None else box_limits(box)
    if box is not None:
        raise typer.BadParameter("give --box LO,HI, or --low LO and --high HI")
    ends = number_of("--low", low), number_of("--high", high)
    if ends[0] is None or ends[1] is None:
        raise typer.BadParameter("--low and --high go together: every cell lies between them")
    if ends[0] > ends[1]:
        raise typer.BadParameter(f"--low must not be above --high; got {str(low)[:40]!r} and {str(high)[:40]!r}")
    return _enclosing("--low and --high must be numbers", f"{low},{high}", ends[0], ends[1])


def _enclosing(words: str, text: str, low: Fraction, high: Fraction) -> tuple[float, float]:
    """Return the floats that enclose [low, high]; BadParameter, of `words` and the option's `text`, if one is
    infinite.
    """
    ends = float_below(low), float_above(high)
    if any(map(math.isinf, ends)):
        raise typer.BadParameter(f"{words} that floats can hold; got {text[:40]!r}")
    return ends


# --- executions -------------------------------------------------------------------------------------------------------

Dtype = Annotated[
    str, typer.Option("--dtype", help="The format of stored values: float32, float16, bfloat16, float64.")
]
Operands = Annotated[
    str | None, typer.Option("--operands", help="Factors are rounded first: tf32, float16 or bfloat16.")
]
Accumulate = Annotated[
    str | None, typer.Option("--accumulate", help="The format of sums, where it is wider than --dtype: float32.")
]
Execution = Annotated[
    str, typer.Option("--execution", help="fused: runtimes merge nodes; node: every layer is stored.")
]
Depth = Annotated[
    int | None,
    typer.Option("--depth", min=1, help="No term of a sum meets more roundings: your statement about the runtime."),
]
Stored = Annotated[
    list[str] | None,
    typer.Option("--stored", help="A node whose result the runtime is known to store. May be given again."),
]


def arithmetic_of(
    dtype: str, operands: str | None, accumulate: str | None, execution: str, depth: int | None
) -> Arithmetic:
    """Return the class of executions of these options; ParameterError if one is unknown.

    dtype         format of values; operands of factors, accumulate of sums, None: as dtype
    execution     "fused" or "node"
    depth         most roundings that a term of a sum meets, None: any
    """
    from specgrad.rounding import Arithmetic

    return Arithmetic(dtype, operands=operands, accumulate=accumulate, execution=execution, depth=depth)
