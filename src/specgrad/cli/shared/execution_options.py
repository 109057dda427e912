"""Options that name a class of executions: the arithmetic of specgrad.rounding, word for word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from specgrad.rounding import Arithmetic

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
    """Return the class of executions of these options; an error if one is unknown."""
    from specgrad.rounding import Arithmetic

    return Arithmetic(dtype, operands=operands, accumulate=accumulate, execution=execution, depth=depth)
