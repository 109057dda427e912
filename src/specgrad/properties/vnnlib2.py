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
from .vnnlib1 import MAX_DEPTH, Parsed, SExprReader, tokens

MAX_TENSOR_CELLS = 1 << 24  # of a tensor: a short text can declare any size
CELL_TYPES = {"F32", "Real"}
EQUALITY_TOKENS = {"Equal": ("and", "<=", ">="), "NotEqual": ("or", "<", ">")}
NON_INTEGER_INDEX = re.compile(r"\[[^\]]*[-.]")  # the package cuts the index 0.9 to 0, and lets -1 pass
KEYWORDS = {
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
    """Return the declarations and the disjunctive normal form of a VNN-LIB 2.0 text.

    PropertyError, with the line, for what is not understood.

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
        for token, line in _tokens_of_1_0(assertion, starts):
            try:
                reader.feed(token)
            except PropertyError as error:
                raise error.at(line) from None
    return reader.result()


# --- the package ------------------------------------------------------------------------------------------------------


def _refuse_unsafe_text(text: str) -> None:
    """Raise PropertyError, with the line, for a text that the package misreads or crashes on: it has a zero character,
    over MAX_DEPTH open parentheses, or a double quote (names of ONNX nodes are not honoured).
    """
    if "\0" in text:
        raise PropertyError("the text holds a zero character", text.count("\n", 0, text.index("\0")) + 1)
    depth = 0
    for token, position in tokens(text):
        depth += (token == "(") - (token == ")")
        if depth > MAX_DEPTH or '"' in token:  # quotes could also hide parentheses from this count
            deep = f"over {MAX_DEPTH} parentheses are open at once"
            named = "names of ONNX nodes, and so declare-hidden, are not honoured"
            raise PropertyError(deep if depth > MAX_DEPTH else named, text.count("\n", 0, position) + 1)


def checked_query(text: str) -> Any:
    """Return the query that the package `vnnlib` parses from a text, type-checked.

    PropertyError for what it refuses, and for an old package.
    """
    _refuse_unsafe_text(text)
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
        raise _one_line_error(str(error)) from None


def _one_line_error(message: str) -> PropertyError:
    """Return the first error of the type checker, which reports in JSON, or the parser's message, as PropertyError."""
    try:
        first = json.loads(message)["errors"][0]
        return PropertyError(f"{first['offendingSymbol']}: {first['message']}. {first['hint']}", first["line"])
    except (ValueError, LookupError, TypeError):
        return PropertyError(message)


# --- its tree ---------------------------------------------------------------------------------------------------------


def _tensors(query: Any) -> tuple[list[PropertyTensor], list[PropertyTensor]]:
    """Return all inputs and all outputs of a parsed query, network by network; PropertyError if one has hidden
    tensors.
    """
    inputs: list[PropertyTensor] = []
    outputs: list[PropertyTensor] = []
    for network in query.networks:
        if network.hidden:
            names = ", ".join(t.name for t in network.hidden)
            raise PropertyError(f"inputs and outputs are honoured; network {network.name} has hidden {names}")
        for known, tensors in ((inputs, network.inputs), (outputs, network.outputs)):
            for t in tensors:
                _check_tensor(t)
                known.append(PropertyTensor(t.name, tuple(t.shape), network.name))
    return inputs, outputs


def _check_tensor(tensor: Any) -> int:
    """Return the number of elements of a tensor; raise PropertyError for a bad type, size, or too many."""
    if tensor.dtype.name not in CELL_TYPES:
        raise PropertyError(f"tensor {tensor.name} must have cells of type float32 or real; got {str(tensor).strip()}")
    if NON_INTEGER_INDEX.search(str(tensor)):
        raise PropertyError(f"tensor {tensor.name} has a size that is no whole number: {str(tensor).strip()}")
    if math.prod(tensor.shape) > MAX_TENSOR_CELLS:
        raise PropertyError(f"tensor {tensor.name} has over {MAX_TENSOR_CELLS} cells: shape {tensor.shape}")
    return math.prod(tensor.shape)


def _tokens_of_1_0(assertion: Any, starts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield an assertion as tokens of VNN-LIB 1.0, each with the line of the last leaf. A stack replaces recursion.

    PropertyError for other parts of the language. `starts` are the first flat indices of tensors by name.
    """
    todo, line = [assertion], 1
    while todo:
        item = todo.pop()
        kind = type(item).__name__
        line = getattr(item, "line", line)
        if isinstance(item, str):
            yield item, line
        elif kind in ("Var", "Float", "Int"):
            yield (_variable(item, starts) if kind == "Var" else item.lexeme), line
        elif kind in EQUALITY_TOKENS:
            pair, (word, below, above) = item.children(), EQUALITY_TOKENS[kind]
            todo += reversed(["(", word, "(", below, *pair, ")", "(", above, *pair, ")", ")"])
        elif kind in KEYWORDS:
            todo += reversed(["(", KEYWORDS[kind], *item.children(), ")"])
        else:
            raise PropertyError(f"{kind} is not understood", line)


def _variable(cell: Any, starts: Mapping[str, int]) -> str:
    """Return the 1.0 name of the element `cell`, X_k or Y_k: k is its row-major index, behind the tensors before it
    (`starts`).

    PropertyError if an index is no whole number.
    """
    if NON_INTEGER_INDEX.search(str(cell)):
        raise PropertyError(f"{str(cell).strip()} has an index that is no whole number", cell.line)
    place = 0
    for index, size in zip(cell.indices, cell.shape, strict=True):
        place = place * size + index
    return f"{'X' if cell.kind.name == 'Input' else 'Y'}_{starts[cell.name] + place}"
