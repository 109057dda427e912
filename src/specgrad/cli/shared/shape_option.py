"""--shape: sizes of a model's inputs, where the model leaves some open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from specgrad.errors import ParameterError
from specgrad.window import Shape

Dims = Sequence[int | None] | None  # None: open; the rank itself may be

Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Sizes of an input that the model leaves open: x=8,3,224,224; "
        "8,3,224,224 of the only input. May be given again.",
    ),
]


def requested_shapes(texts: Sequence[str], names: Sequence[str]) -> dict[str, Shape]:
    """Return the shapes of --shape, by input.

    >>> requested_shapes(["x=1,3,8,8", "mask=1"], ["x", "mask"])
    {'x': (1, 3, 8, 8), 'mask': (1,)}
    >>> requested_shapes(["1,3,8,8"], ["x"])
    {'x': (1, 3, 8, 8)}
    """
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        if not name and len(names) != 1:
            raise ParameterError("--shape", f"the model takes {', '.join(names)}; say which: {names[0]}={text}")
        name = name or names[0]
        if name not in names:
            raise ParameterError("--shape", f"there is no input {name!r}; the model takes {', '.join(names)}")
        if shapes.setdefault(name, _sizes(text, sizes)) != _sizes(text, sizes):
            raise ParameterError("--shape", f"input {name} is given twice")
    return shapes


def _sizes(text: str, sizes: str) -> Shape:
    """Parse sizes separated by commas; ParameterError if one is no positive integer."""
    parts = sizes.split(",")
    if not all(p.isascii() and p.isdigit() and 0 < int(p) < 1 << 40 for p in parts):
        raise ParameterError(
            "--shape", f"must be whole numbers with commas between, as x=1,3,224,224; got {text!r:.80}"
        )
    return tuple(map(int, parts))


def complete_shapes(declared: Mapping[str, Dims], requested: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return one shape per input: requested, else declared with an open batch size as 1."""
    return {
        name: requested[name] if name in requested else _declared_or_error(name, dims)
        for name, dims in declared.items()
    }


def _declared_or_error(name: str, dims: Dims) -> Shape:
    """Return a declared shape with an open first size as 1; ParameterError if others are open."""
    if dims is None:
        raise ParameterError("--shape", f"the model does not say the shape of input {name}; give --shape {name}=1,...")
    axes = [axis for axis, n in enumerate(dims) if n is None and axis > 0]
    if axes:
        example = ",".join("1" if n is None and axis == 0 else str(n or "SIZE") for axis, n in enumerate(dims))
        open_axes = f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(map(str, axes))}"
        text = f"the model leaves {open_axes} of input {name} open; give --shape {name}={example}, or --input"
        raise ParameterError("--shape", text)
    return tuple(1 if n is None else n for n in dims)
