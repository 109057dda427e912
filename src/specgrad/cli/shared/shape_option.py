"""--shape: sizes of a model's inputs, where the model leaves some open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from specgrad.errors import ParameterError
from specgrad.window import Shape

Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Sizes of an input that the model leaves open: x=8,3,224,224; "
        "8,3,224,224 of the only input. May be given again.",
    ),
]


def requested_shapes(texts: Sequence[str], names: Sequence[str]) -> dict[str, Shape]:
    """Return the shapes of --shape, by input, in the order of `names`.

    >>> requested_shapes(["x=1,3,8,8", "mask=1"], ["x", "mask"])
    {'x': (1, 3, 8, 8), 'mask': (1,)}
    >>> requested_shapes(["mask=1", "x=1,3,8,8"], ["x", "mask"])
    {'x': (1, 3, 8, 8), 'mask': (1,)}
    >>> requested_shapes(["1,3,8,8"], ["x"])
    {'x': (1, 3, 8, 8)}
    """
    shapes: dict[str, Shape] = {}
    if texts and not names:
        raise ParameterError("--shape", f"the model takes no inputs; got {texts[0]!r:.80}")
    for text in texts:
        name, _, sizes = text.rpartition("=")
        if not name and len(names) != 1:
            raise ParameterError("--shape", f"the model takes {', '.join(names)}; say which: {names[0]}={text}")
        name = name or names[0]
        if name not in names:
            raise ParameterError("--shape", f"there is no input {name!r}; the model takes {', '.join(names)}")
        if shapes.setdefault(name, _sizes(text, sizes)) != _sizes(text, sizes):
            raise ParameterError("--shape", f"input {name} is given twice")
    return {name: shapes[name] for name in names if name in shapes}


def _sizes(text: str, sizes: str) -> Shape:
    """Parse sizes separated by commas; ParameterError if one is no positive integer."""
    parts = sizes.split(",")
    if not all(p.isascii() and p.isdigit() and len(p) < 14 and 0 < int(p) < 1 << 40 for p in parts):
        raise ParameterError(
            "--shape", f"must be whole numbers with commas between, as x=1,3,224,224; got {text!r:.80}"
        )
    return tuple(map(int, parts))
