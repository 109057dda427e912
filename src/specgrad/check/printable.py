"""Names from a model are data: a terminal and a page show them, and never obey them."""

from __future__ import annotations


def printable(text: object) -> str:
    """Every control character, escape sequence and invisible mark as its code, so that the text is one visible line.

    >>> printable("conv\\x1b[2J\\n\\u202e")
    'conv\\\\x1b[2J\\\\n\\\\u202e'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))
