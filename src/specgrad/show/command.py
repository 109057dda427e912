"""specgrad show window: which cells a window reads, forward and backward, drawn with letters or as SVG."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from specgrad.cli.shared import json_parts as j
from specgrad.cli.shared.exit_codes import YES, print_verdict
from specgrad.cli.shared.output_files import Force, Json, check_file, writing
from specgrad.errors import ParameterError
from specgrad.svg import is_picture

Size = Annotated[str, typer.Option("--size", help="Cells of the input: 7, or two numbers for a plane: 6,8.")]
Kernel = Annotated[str, typer.Option("--kernel", help="Cells of the window: 3, or one number per axis.")]
Stride = Annotated[
    str | None, typer.Option("--stride", help="Steps between windows; default: the kernel, 1 for a convolution.")
]
Padding = Annotated[
    str, typer.Option("--padding", help="1, per axis 1,2, low and high 0:1, or valid, same_upper, same_lower.")
]
Dilation = Annotated[str, typer.Option("--dilation", help="Cells from one tap to the next.")]
Ceil = Annotated[bool, typer.Option("--ceil", help="Let the last window hang over; pooling only.")]
Which = Annotated[str, typer.Option("--operator", help="max_pool, avg_pool or conv.")]
Values = Annotated[str | None, typer.Option("--values", help="Numbers of the input, with commas: 3,1/2,-4,0.25.")]
Weights = Annotated[str | None, typer.Option("--weights", help="Of a convolution, with commas; default: 1,2,3,...")]
Output = Annotated[str | None, typer.Option("--output", help="Of a plane: the output to look at, as 0,2.")]
Svg = Annotated[Path | None, typer.Option("--svg", help="Also write the picture to this file.")]


commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: specgrad show window --size 7 --kernel 3 --stride 2 --padding 1 --svg window.svg")
def window(
    size: Size,
    kernel: Kernel,
    stride: Stride = None,
    padding: Padding = "0",
    dilation: Dilation = "1",
    ceil: Ceil = False,
    operator: Which = "max_pool",
    values: Values = None,
    weights: Weights = None,
    output: Output = None,
    svg: Svg = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Which cells does a window read, what does it make of them, and what goes back to them?"""
    from specgrad import show_window

    check_file(svg, is_picture, force)
    picture = show_window(
        integers_of("--size", size),
        one_or_more("--kernel", kernel),
        stride=None if stride is None else one_or_more("--stride", stride),
        padding=padding_of(padding),
        dilation=one_or_more("--dilation", dilation),
        ceil=ceil,
        operator=operator,
        values=None if values is None else fractions_of("--values", values),
        weights=None if weights is None else fractions_of("--weights", weights),
        output=None if output is None else integers_of("--output", output),
    )
    data = {**picture.to_json(), "svg": None if svg is None else str(svg)}
    print_verdict("window", "ok", data, as_json, lambda: print(picture))
    if svg is not None:
        with writing(svg):
            picture.save(svg)
    raise typer.Exit(YES)


def integers_of(option: str, text: str) -> tuple[int, ...]:
    """Return the integers of an option's text, separated by commas; ParameterError, with the option, if they are none.

    >>> integers_of("--size", "6,8")
    (6, 8)
    """
    parts = text.split(",")
    if not all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):
        raise ParameterError(option, f"must be whole numbers with commas between, as 6,8; got {text!r:.80}")
    return tuple(map(int, parts))


def one_or_more(option: str, text: str) -> Any:
    """Return the one integer of an option's text, which stands for all axes, or a tuple of several; ParameterError if
    they are none.
    """
    numbers = integers_of(option, text)
    return numbers if len(numbers) > 1 else numbers[0]


def padding_of(text: str) -> Any:
    """Return the text of --padding as `show_window` takes it: a number, numbers or pairs per axis, or a word.

    >>> padding_of("1"), padding_of("0:1,2"), padding_of("same_upper")
    (1, ((0, 1), 2), 'same_upper')
    """
    if text[:1].isalpha():
        return text
    parts = [tuple(integers_of("--padding", p.replace(":", ","))) for p in text.split(",")]
    pads = tuple(p if len(p) > 1 else p[0] for p in parts)
    return pads[0] if len(pads) == 1 and isinstance(pads[0], int) else pads


def fractions_of(option: str, text: str) -> list[Fraction]:
    """Return the exact numbers of an option's text, separated by commas.

    ParameterError, with the option, if they are none or over 4000 characters.

    >>> fractions_of("--values", "3,1/2,0.25")
    [Fraction(3, 1), Fraction(1, 2), Fraction(1, 4)]
    """
    try:
        if len(text) > 4000:
            raise ValueError
        return [_fraction(part) for part in text.split(",")]
    except (ValueError, ZeroDivisionError):
        raise ParameterError(option, f"must be numbers with commas between, as 3,1/2,-4; got {text!r:.80}") from None


def _fraction(text: str) -> Fraction:
    """Return the number that `text` states exactly; ValueError if it is long or has an exponent, which could be
    huge.
    """
    if len(text) > 24 or "e" in text.lower():
        raise ValueError
    return Fraction(text)


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "window": j.command_schema(
        "window",
        "which cells a window reads, what it makes of them, what goes back; numbers are strings, as 7/3",
        j.choice("ok"),
        operator=j.choice("max_pool", "avg_pool", "conv"),
        window=j.text("kernel, stride, dilation and padding in short: k3 s2 p1"),
        size=j.SHAPE,
        out={**j.SHAPE, "description": "the sizes of the output"},
        weights=j.or_null(j.list_of(j.text("a number"), "in row-major order"), "of a convolution; null: none"),
        outputs=j.list_of(
            j.object_of(
                "one output",
                output=j.list_of(j.count("an index"), "where it stands"),
                taps=j.list_of(
                    j.object_of(
                        "one tap of its window",
                        tap=j.list_of(j.count("an index"), "its place in the kernel"),
                        position=j.list_of(j.integer("a position"), "what it reads; negative in the low padding"),
                        kind=j.choice("input", "padding", "beyond"),
                        share=j.or_null(j.text(""), "the derivative of the output by that cell; null: no cell"),
                    ),
                    "in row-major order",
                ),
                winner=j.or_null(j.list_of(j.count("an index"), "a cell"), "of a maximum: the cell that it took"),
                value=j.text("what it is"),
                formula=j.text("how it comes about, in numbers"),
                cotangent=j.text("what is sent back from it"),
            ),
            "in row-major order",
        ),
        cells=j.list_of(
            j.object_of(
                "one cell of the input",
                cell=j.list_of(j.count("an index"), "where it stands"),
                value=j.text("what it is"),
                cotangent=j.text("what it gets from all outputs"),
            ),
            "in row-major order",
        ),
        svg=j.or_null(j.text(""), "with --svg: the file"),
    ),
}
