"""Options that name a model, its inputs and a runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelName = Annotated[str, typer.Argument(help="An .onnx file, a saved graph (.json), or module:attribute (PyTorch).")]
Inputs = Annotated[
    list[Path] | None, typer.Option("--input", help="A float32 .npy file per input; default: normal numbers, seed 0.")
]
NamedInputs = Annotated[
    list[Path] | None,
    typer.Option("--input", help="A .npy file per input, or one .npz file by names; default: normal numbers, seed 0."),
]


def complete_runtime(typed: str) -> list[str]:
    """Return the runtimes that begin with `typed`, for shell completion."""
    from specgrad.check import RUNTIMES

    return [name for name in RUNTIMES if name.startswith(typed)]
