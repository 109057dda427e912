"""One test case (an ONNX node with its arrays), and the equivalence classes from which cases are drawn.

The test guide of the ONNX safety profile asks for equivalence classes of six kinds (guidelines/test.md @0eddfae, "Test
completeness"); a record per operator lists ours, so that what is covered can be counted, and what is not is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ...scalar import Array

Draw = np.random.Generator
Kind = Literal["type", "shape", "broadcasting", "constraint", "function", "risk"]
"""What a class is built upon: the six kinds of the guide."""
OPSET = 22
TYPES: dict[str, np.dtype[Any]] = {
    "FLOAT": np.dtype("float32"),
    "DOUBLE": np.dtype("float64"),
    "FLOAT16": np.dtype("float16"),
    "INT8": np.dtype("int8"),
    "UINT8": np.dtype("uint8"),
    "INT16": np.dtype("int16"),
    "UINT16": np.dtype("uint16"),
    "INT32": np.dtype("int32"),
}
FLOATS = ("FLOAT", "DOUBLE", "FLOAT16")


@dataclass(frozen=True)
class VectorCase:
    """One test case: a node of one ONNX operator with its arrays.

    arguments   its inputs in ONNX's order; None: an optional one that is left out
    attributes  as ONNX names them
    stored      names of arguments that stand in the file; the others are fed
    outputs     name -> element type
    note        what is disputed or left open, for a reader who meets a difference here
    signs       whether the sign of a zero is part of the answer
    """

    operator: str
    arguments: Mapping[str, Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    stored: tuple[str, ...] = ()
    outputs: Mapping[str, np.dtype[Any]] = field(default_factory=dict)
    note: str = ""
    signs: bool = False

    def __post_init__(self) -> None:
        if not self.outputs:
            first = next(a for a in self.arguments.values() if a is not None)
            object.__setattr__(self, "outputs", {"y": first.dtype})

    @property
    def fed(self) -> dict[str, Array]:
        """Inputs that are given when the model runs, by name."""
        return {k: a for k, a in self.arguments.items() if a is not None and k not in self.stored}

    def with_note(self, note: str) -> VectorCase:
        """Return the case with this note."""
        return replace(self, note=note)


@dataclass(frozen=True)
class EquivalenceClass:
    """A class of cases of one operator: the word in its tag, a description, and how its cases are drawn per type.

    word and text are these; kind says what is varied, types are dtype names, draw(rng, dtype) gives cases.
    """

    word: str
    text: str
    kind: Kind
    types: tuple[str, ...]
    draw: Callable[[Draw, np.dtype[Any]], Iterable[VectorCase]]


def zone(word: str, text: str, kind: Kind, draw: Any, types: tuple[str, ...] = FLOATS) -> EquivalenceClass:
    """Return the class of cases called `word`, described by `text`, of floats unless `types` says else; `draw(rng,
    dtype)` gives its cases.
    """
    return EquivalenceClass(word, text, kind, types, draw)


@dataclass(frozen=True)
class OperatorClasses:
    """The equivalence classes of one operator, and the known classes that are not drawn, with the reason.

    `zones` are drawn; `missing` maps the others to the reason.
    """

    operator: str
    zones: tuple[EquivalenceClass, ...]
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def listed(self) -> list[tuple[str, str]]:
        """Return (type, class word) of every class that is drawn, a pair per type."""
        return [(kind, zone.word) for zone in self.zones for kind in zone.types]


def tag(operator: str, kind: str, word: str, number: int) -> str:
    """Return the tag of case `number` of a class, in the form of the profile's test guide; `kind` is the element type,
    `word` the class's.

    >>> tag("MaxPool", "FLOAT", "NAN", 1)
    'E_MAXPOOL_FLOAT_NAN_0001'
    """
    return f"E_{operator.upper()}_{kind}_{word}_{number:04d}"
