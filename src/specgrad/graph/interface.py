"""Declared interface of a model: names, element types, sizes and optional inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .graph import Graph

Sizes = tuple[Any, ...]


@dataclass(frozen=True)
class End:
    """One input or output, as far as the model says what it is.

    name     None: it has none
    type     of its elements; None: not declared
    sizes    per axis: a number, or a text where the size is open; None: not declared
    default  whether a caller may leave it out, since the model has a value for it
    """

    name: str | None
    type: str | None = None
    sizes: Sizes | None = None
    default: bool = False


Ends = tuple[End, ...]


@dataclass(frozen=True)
class Interface:
    """The inputs and the outputs of a model, in order."""

    inputs: tuple[End, ...]
    outputs: tuple[End, ...]

    @property
    def demanded(self) -> tuple[End, ...]:
        """Return the inputs that every caller must give."""
        return tuple(e for e in self.inputs if not e.default)

    @property
    def defaults(self) -> dict[str | None, End]:
        """Return the inputs that a caller may leave out, by name."""
        return {e.name: e for e in self.inputs if e.default}


def interface_of(graph: Graph) -> Interface:
    """Return what the file of an imported graph declares; else the names and sizes of the graph's inputs.

    >>> import specgrad as sg
    >>> interface_of(sg.trace(sg.relu, ("N", 3))).inputs
    (End(name='x', type=None, sizes=('N', 3), default=False),)
    """
    declared: Interface | None = getattr(graph, "interface", None)
    if declared is not None:
        return declared
    program = graph if graph.open is None else graph.open.program
    nodes = [program.nodes[p] for p in program.input_positions]
    inputs = tuple(End(n.name, None, tuple(s if isinstance(s, int) else str(s) for s in n.shape)) for n in nodes)
    return Interface(inputs, tuple(End(None) for _ in graph.output_positions))


def only_one_takes(a: Interface, b: Interface) -> list[str]:
    """Return a sentence for each of the models a and b with optional inputs that the other one does not have."""
    said = []
    for which, mine, other in (("first", a, b), ("second", b, a)):
        others = {e.name for e in other.inputs}
        names = ", ".join(str(n) for n in mine.defaults if n not in others)
        said += [f"only the {which} lets its callers give {names}, which has a default"] if names else []
    return said


def interface_differences(a: Interface, b: Interface) -> tuple[str, ...]:
    """Return a sentence for each difference in what models a and b declare; undeclared facts do not differ."""
    said = [*only_one_takes(a, b)]
    mine, others = a.demanded, b.demanded
    others, order = _in_order_of(mine, others, "inputs")
    said += order
    pairs = [*zip(mine, others, strict=False), *((e, b.defaults[n]) for n, e in a.defaults.items() if n in b.defaults)]
    said += _declared_differences("input", pairs)
    if _size_pattern([p for p, _ in pairs]) != _size_pattern([q for _, q in pairs]) and not _has_undeclared_sizes(
        pairs
    ):
        sizes = [", ".join(_sizes_text(e) for e in ends) for ends in zip(*pairs, strict=True)]
        said.append(f"inputs are declared with sizes {sizes[0]} and {sizes[1]}")
    outputs, order = _in_order_of(a.outputs, b.outputs, "outputs")
    said += [*order, *_declared_differences("output", list(zip(a.outputs, outputs, strict=False)))]
    return tuple(said)


def _in_order_of(mine: Ends, others: Ends, what: str) -> tuple[Ends, list[str]]:
    """Return `others` in the order of the names of `mine`, and a sentence on it; as they are unless the names are the
    same in another order. `what` they are, in the plural.
    """
    names = [[e.name for e in ends] for ends in (mine, others)]
    if names[0] == names[1] or sorted(map(str, names[0])) != sorted(map(str, names[1])):
        return others, []
    first, second = (", ".join(map(str, each)) for each in names)
    text = f"{what} are declared in another order: {first} and {second}"
    return tuple(sorted(others, key=lambda e: names[0].index(e.name))), [text]


def _declared_differences(what: str, pairs: Sequence[tuple[End, End]]) -> Iterator[str]:
    """Yield a sentence for each pair of inputs or outputs (`what` says which) whose declared names or types differ."""
    for k, (one, other) in enumerate(pairs):
        if one.name is not None and other.name is not None and one.name != other.name:
            yield f"{what} {k} is called {one.name} and {other.name}"
        if one.type is not None and other.type is not None and one.type != other.type:
            yield f"{what} {one.name or k} is declared as {one.type} and {other.type}"


def _has_undeclared_sizes(pairs: Sequence[tuple[End, End]]) -> bool:
    """Return whether some input or output of the pairs declares no sizes."""
    return any(e.sizes is None for pair in pairs for e in pair)


def _size_pattern(ends: Sequence[End]) -> list[list[Any]]:
    """Return the sizes per input, those of `ends`, symbolic ones numbered by first occurrence instead of named."""
    seen: dict[str, str] = {}
    return [[s if isinstance(s, int) else seen.setdefault(s, f"open {len(seen)}") for s in e.sizes or ()] for e in ends]


def _sizes_text(end: End) -> str:
    """Return the declared sizes of an input or output as text, "(1, N)"; "()" if none are declared."""
    return f"({', '.join(map(str, end.sizes or ()))})"
