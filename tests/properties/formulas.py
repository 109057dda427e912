"""Random VNN-LIB formulas over Y_0 and Y_1, and an evaluation that follows the text."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from specgrad.properties.property import Case, PropertyError
from specgrad.properties.vnnlib import read_text

Tree = tuple  # ("and" | "or" | "<=" | ">=" | "+" | "-" | "*", ...), a variable, or a number


def term(rng: Random, depth: int) -> Tree | str:
    kind = rng.choice("nvv+-*" if depth else "nv")
    if kind in "nv":
        return rng.choice(["Y_0", "Y_1"]) if kind == "v" else rng.choice(["2", "-0.5", "1e-1", ".25", "3."])
    if kind == "*":
        return ("*", rng.choice(["2", "-0.75"]), term(rng, depth - 1))
    return (kind, *(term(rng, depth - 1) for _ in range(rng.randint(1, 3))))


def formula(rng: Random, depth: int) -> Tree:
    kind = rng.choice(["and", "or", "<=", ">="] if depth else ["<=", ">="])
    if kind in ("and", "or"):
        return (kind, *(formula(rng, depth - 1) for _ in range(rng.randint(1, 3))))
    return (kind, term(rng, 2), term(rng, 2))


def written(tree: Tree | str) -> str:
    return tree if isinstance(tree, str) else "(" + " ".join(map(written, tree)) + ")"


def cases_of(text: str) -> tuple[Case, ...]:
    """The cases of a text; none where it is refused because nothing satisfies it."""
    try:
        return read_text(text).cases
    except PropertyError as error:
        if "nothing to prove" not in str(error):
            raise
        return ()


def value(tree: Tree | str, y: list[Fraction]) -> Fraction:
    if isinstance(tree, str):
        return y[int(tree[2:])] if tree[0] == "Y" else Fraction(tree)
    parts = [value(t, y) for t in tree[1:]]
    if tree[0] == "*":
        return parts[0] * parts[1]
    return sum(parts) if tree[0] == "+" else -parts[0] if len(parts) == 1 else parts[0] - sum(parts[1:])


def true(tree: Tree, y: list[Fraction]) -> bool:
    if tree[0] in ("and", "or"):
        return (all if tree[0] == "and" else any)(true(t, y) for t in tree[1:])
    left, right = value(tree[1], y), value(tree[2], y)
    return left <= right if tree[0] == "<=" else left >= right
