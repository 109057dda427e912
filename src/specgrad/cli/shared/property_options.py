"""Options that state a property: a file, or an input to stay around."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from specgrad.scalar import Array

from .models import read_array
from .number_option import number_of

Statement = Annotated[Path | None, typer.Argument(metavar="PROPERTY", help="A .vnnlib file, or .vnnlib.gz.")]
Around = Annotated[Path | None, typer.Option("--input", help="A .npy file: the input to stay around.")]
Label = Annotated[int | None, typer.Option(help="The output that must stay the largest.")]
Eps = Annotated[str | None, typer.Option(help="How far every cell may move: 0.01 or 2/255.")]
Low = Annotated[str | None, typer.Option(help="No cell moves below this.")]
High = Annotated[str | None, typer.Option(help="No cell moves above this.")]


def statement_of(file: Path | None, x: Sequence[Path], label: int | None, eps: str | None) -> Any:
    """Return the property file, or (x, label, eps) of the options; x is a tuple if there are several inputs."""
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
    """Read an .npy file of finite floats; BadParameter otherwise."""
    array = read_array(path)
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise typer.BadParameter(f"{path} must hold finite floats; got dtype {array.dtype}")
    return array
