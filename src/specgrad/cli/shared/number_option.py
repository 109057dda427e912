"""Numbers on the command line, at their exact values."""

from __future__ import annotations

from fractions import Fraction

import typer


def number_of(name: str, text: str | None) -> Fraction | None:
    """Return the exact value of an option such as 2/255 or 0.01; None for None. Its size is limited first."""
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
