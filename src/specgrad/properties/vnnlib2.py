"""The text of a VNN-LIB 2.0 property, parsed and type-checked by the package `vnnlib`.

What the package has read is said again, token by token, to the reader of 1.0: one meaning, one place that refuses.

    X[i, j, ...]   becomes  X_k, whatever the input is called: k is its row-major place, behind the cells of all inputs
                            that are declared before it, of other networks too;  outputs become Y_k
    a number       becomes  its text: exact, where the package's own value is a float
    (== a b)       becomes  (and (<= a b) (>= a b))
    (!= a b)       becomes  (or (< a b) (> a b))

Inputs and outputs have float32 or real cells; hidden nodes are not honoured. A network that is `equal-to` another has
its model; one that is `isomorphic-to` another has a model of its own.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import need
from .interface import PropertyTensor
from .property import PropertyError
from .vnnlib1 import MOST_DEPTH, Parsed, SExprReader, tokens

MOST_CELLS = 1 << 24  # of a tensor: a short text can declare any size
CELLS = {"F32", "Real"}
PAIRS = {"Equal": ("and", "<=", ">="), "NotEqual": ("or", "<", ">")}
NO_WHOLE_NUMBER = re.compile(r"\[[^\]]*[-.]")  # the package cuts the index 0.9 to 0, and lets -1 pass
WORDS = {
    "Assertion": "assert",
    "And": "and",
    "Or": "or",
    "LessEqual": "<=",
    "GreaterEqual": ">=",
    "LessThan": "<",
    "GreaterThan": ">",
    "Plus": "+",
    "Minus": "-",
    "Negate": "-",
    "Multiply": "*",
}


def parse(text: str) -> Parsed:
    """The declarations and the disjunctive normal form of a VNN-LIB 2.0 text.

    >>> text = "(vnnlib-version <2.0>) (declare-network N (declare-input X real [2, 3]) (declare-output Y real []))"
    >>> parse(text + "(assert (>= (* 0.5 X[1, 0]) Y))").common[0].terms
    {'Y_0': Fraction(1, 1), 'X_3': Fraction(-1, 2)}
    """
    query = checked_query(text)
    reader = SExprReader()
    inputs, outputs = (tuple(tensors) for tensors in _tensors(query))
    parsed = reader.parsed
    starts: dict[str, int] = {}
    parsed.tensors = inputs, outputs
    parsed.models = {n.name: n.equal_to for n in query.networks if n.equal_to}
    for tensors in parsed.tensors:
        ends = itertools.accumulate(t.cells for t in tensors)
        starts |= {t.name: end - t.cells for t, end in zip(tensors, ends, strict=True)}
    parsed.inputs, parsed.outputs = (range(sum(t.cells for t in tensors)) for tensors in parsed.tensors)
    if len(parsed.inputs) > len(text):
        names = ", ".join(t.name for t in inputs)
        raise PropertyError(f"tensor {names} has {len(parsed.inputs)} cells; so short a text cannot bound each of them")
    for assertion in query.assertions:
        for token, line in _said_in_1_0(assertion, starts):
            try:
                reader.take(token)
            except PropertyError as error:
                raise error.at(line) from None
    return reader.finished()


# --- the package ------------------------------------------------------------------------------------------------------


def _refuse_what_harms_the_package(text: str) -> None:
    """It ends the text at a zero character, and the process at a depth of some 100,000 parentheses."""
    if "\0" in text:
        raise PropertyError("the text holds a zero character", text.count("\n", 0, text.index("\0")) + 1)
    depth = 0
    for token, position in tokens(text):
        depth += (token == "(") - (token == ")")
        if depth > MOST_DEPTH or '"' in token:  # quotes could also hide parentheses from this count
            deep = f"over {MOST_DEPTH} parentheses are open at once"
            named = "names of ONNX nodes, and so declare-hidden, are not honoured"
            raise PropertyError(deep if depth > MOST_DEPTH else named, text.count("\n", 0, position) + 1)


def checked_query(text: str) -> Any:
    """What the package makes of a text, its types checked."""
    _refuse_what_harms_the_package(text)
    need("vnnlib", "properties in VNN-LIB 2.0 need")
    try:
        from vnnlib import VNNLibException, parse_query_string
    except ImportError:
        old = "VNN-LIB 2.0 is read by the package vnnlib, version 1.0 or later"
        raise PropertyError(f"{old}: pip install --upgrade 'specgrad[vnnlib]'") from None
    try:
        return parse_query_string(text)
    except IndexError as error:  # a C++ out_of_range
        raise PropertyError(f"a number is too large or too small for the package vnnlib ({error})") from None
    except (VNNLibException, ValueError, RuntimeError) as error:
        raise _in_one_line(str(error)) from None


def _in_one_line(message: str) -> PropertyError:
    """The first error of the type checker, which reports in JSON; the parser reports in words."""
    try:
        first = json.loads(message)["errors"][0]
        return PropertyError(f"{first['offendingSymbol']}: {first['message']}. {first['hint']}", first["line"])
    except (ValueError, LookupError, TypeError):
        return PropertyError(message)


# --- its tree ---------------------------------------------------------------------------------------------------------


def _tensors(query: Any) -> tuple[list[PropertyTensor], list[PropertyTensor]]:
    """All inputs and all outputs, network by network."""
    inputs: list[PropertyTensor] = []
    outputs: list[PropertyTensor] = []
    for network in query.networks:
        if network.hidden:
            names = ", ".join(t.name for t in network.hidden)
            raise PropertyError(f"inputs and outputs are honoured; network {network.name} has hidden {names}")
        for known, tensors in ((inputs, network.inputs), (outputs, network.outputs)):
            for t in tensors:
                _cells(t)
                known.append(PropertyTensor(t.name, tuple(t.shape), network.name))
    return inputs, outputs


def _cells(tensor: Any) -> int:
    if tensor.dtype.name not in CELLS:
        raise PropertyError(f"tensor {tensor.name} must have cells of type float32 or real; got {str(tensor).strip()}")
    if NO_WHOLE_NUMBER.search(str(tensor)):
        raise PropertyError(f"tensor {tensor.name} has a size that is no whole number: {str(tensor).strip()}")
    if math.prod(tensor.shape) > MOST_CELLS:
        raise PropertyError(f"tensor {tensor.name} has over {MOST_CELLS} cells: shape {tensor.shape}")
    return math.prod(tensor.shape)


def _said_in_1_0(assertion: Any, starts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Its tokens, each with the line of the last leaf; a stack instead of recursion."""
    todo, line = [assertion], 1
    while todo:
        item = todo.pop()
        kind = type(item).__name__
        line = getattr(item, "line", line)
        if isinstance(item, str):
            yield item, line
        elif kind in ("Var", "Float", "Int"):
            yield (_variable(item, starts) if kind == "Var" else item.lexeme), line
        elif kind in PAIRS:
            pair, (word, below, above) = item.children(), PAIRS[kind]
            todo += reversed(["(", word, "(", below, *pair, ")", "(", above, *pair, ")", ")"])
        elif kind in WORDS:
            todo += reversed(["(", WORDS[kind], *item.children(), ")"])
        else:
            raise PropertyError(f"{kind} is not understood", line)


def _variable(cell: Any, starts: Mapping[str, int]) -> str:
    """Row-major: k = (i * columns + j) ..., behind the tensors before it."""
    if NO_WHOLE_NUMBER.search(str(cell)):
        raise PropertyError(f"{str(cell).strip()} has an index that is no whole number", cell.line)
    place = 0
    for index, size in zip(cell.indices, cell.shape, strict=True):
        place = place * size + index
    return f"{'X' if cell.kind.name == 'Input' else 'Y'}_{starts[cell.name] + place}"
