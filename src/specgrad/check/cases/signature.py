"""How a kernel is called: all attributes of its operator, one number or pair per axis; and which cases it gets.

Names, defaults and order are those of the public function, values those of the generator: nothing is written twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import specgrad as sg
from specgrad import window
from specgrad.errors import ParameterError
from specgrad.window import Shape

from .generate import SHAPES
from .op_case import check_operator

PER_AXIS = ("kernel", "stride", "dilation", "output_padding", "output", "factor", "sizes")
MEANING = {
    "kernel": "cells of the window",
    "stride": "how far the window moves",
    "padding": "cells before and behind the input; names such as same_upper are already numbers",
    "dilation": "distance of two taps",
    "output_padding": "cells added to the output, behind",
    "groups": "of channels, convolved apart",
    "ceil": "the last window may reach beyond the padding, if it starts before its end ([W3])",
    "count_include_pad": "whether padded cells count in the divisor ([A1])",
    "divisor": "instead of the count; None: the count",
    "p": "of the norm",
    "beta": "of the smooth maximum; negative: of the minimum",
    "padded": "what a padded tap is",
    "output": "cells of the output",
    "factor": "how often a cell is repeated",
    "sizes": "cells of the output",
    "where": "the formula of a coordinate (specgrad.window.resize)",
    "how": "linear, or how a coordinate is rounded to a cell",
    "exclusive": "without the cell itself",
    "reverse": "from the other end",
    "rank": "how many of the last axes are pooled",
    "eps": "added to the variance",
    "slope": "below 0",
    "low": "the lower end",
    "high": "the upper end",
    "axis": "along which",
}
SAMPLED_CASES = 400
Where = Mapping[str, Any] | Callable[[Mapping[str, Any]], bool]


def _public_function(operator: str) -> Any:
    """Return the public function of an operator."""
    return getattr(sg, operator.removesuffix("_indices"))


@cache
def _sample_shapes(operator: str) -> tuple[tuple[dict[str, Any], dict[str, Shape]], ...]:
    """Return attributes and array shapes of SAMPLED_CASES generated cases of an operator."""
    return tuple(SHAPES[operator](Random(i)) for i in range(SAMPLED_CASES))


@cache
def attribute_names(operator: str) -> tuple[str, ...]:
    """Return every attribute that some generated case of an operator has, in the order of the public function.

    ParameterError for an unknown operator.

    >>> attribute_names("conv")
    ('stride', 'padding', 'dilation', 'groups')
    """
    asked = {name for attributes, _ in _sample_shapes(check_operator(operator)) for name in attributes}
    return tuple(name for name in inspect.signature(_public_function(operator)).parameters if name in asked)


def normalise_attributes(operator: str, attributes: Mapping[str, Any], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return all attributes of an operator, defaults filled in: a tuple of numbers, or of (low, high), per axis.

    `shapes` are those of the case's arrays by name, from which named paddings follow. ParameterError for an unknown
    operator or a word that is no padding.

    >>> normalise_attributes("max_pool", {"kernel": (3,), "padding": "same_upper"}, {"x": (1, 1, 6)})
    {'kernel': (3,), 'stride': (3,), 'padding': ((0, 0),), 'dilation': (1,), 'ceil': False}
    """
    parameters = inspect.signature(_public_function(operator)).parameters
    names = attribute_names(operator)
    full = {name: attributes.get(name, parameters[name].default) for name in names}
    if "stride" in names and full["stride"] is None:
        full["stride"] = full["kernel"]
    kernel = full.get("kernel", shapes.get("w", ())[2:])
    for name in PER_AXIS:
        if name in full:
            full[name] = _per_axis(full[name], len(kernel or full[name]))
    if "padding" in names:
        sizes = shapes["x"][len(shapes["x"]) - len(kernel) :]
        dilation = full.get("dilation", (1,) * len(kernel))
        full["padding"] = window.resolve_padding(operator, full["padding"], sizes, kernel, full["stride"], dilation)
    return full


def _per_axis(value: Any, rank: int) -> tuple[int, ...]:
    """Return an attribute's value as one number per axis; a single number is repeated `rank` times."""
    return (value,) * rank if isinstance(value, int) else tuple(value)


# --- which questions --------------------------------------------------------------------------------------------------


def case_filter(
    operator: str, ranks: Any = None, where: Where | None = None
) -> Callable[[Mapping[str, Any], Mapping[str, Shape]], bool]:
    """Return accepts(attributes, shapes): whether a kernel gets this case; ParameterError if `where` names no attribute
    of the operator.

    ranks   numbers of spatial axes to accept; None: any
    where   attributes with their values, the same on every axis or per axis ({"stride": 1}); or a function of them all
    """
    if isinstance(where, Mapping):
        for name in where:
            if name not in attribute_names(operator):
                known = ", ".join(attribute_names(operator)) or "none"
                raise ParameterError("where", f"{operator} has no attribute {name!r}; it has {known}", rule="P5")

    def accepts(attributes: Mapping[str, Any], shapes: Mapping[str, Shape]) -> bool:
        if ranks is not None and len(shapes["x"]) - 2 not in ranks:
            return False
        full = normalise_attributes(operator, attributes, shapes) if where is not None else {}
        if isinstance(where, Mapping):
            return all(_equals_everywhere(full[name], value) for name, value in where.items())
        return where is None or bool(where(full))

    return accepts


def _equals_everywhere(value: Any, wanted: Any) -> bool:
    """Return whether `value` equals `wanted`, or does on every axis and side."""
    if isinstance(value, tuple) and not isinstance(wanted, tuple):
        return all(_equals_everywhere(v, wanted) for v in value)
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


# --- in words ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signature:
    """How a kernel of one operator is called: its arrays and attributes.

    Attributes
    ----------
    operator : str
        Its name.
    meaning : str
        What the operator computes, in words.
    arrays : dict of str to shape
        Its arrays in order, each with a shape for instance.
    optional : tuple of str
        Names of arrays that may be left out.
    attributes : dict of str to dict
        Type, values and meaning of every attribute.

    Examples
    --------
    >>> print(kernel_signature("relu"))
    relu: max(x, 0); relu'(0) = 0 ([K1]), and a NaN passes its cotangent, as in PyTorch.
    kernel(x)
    arrays, for instance: x (1, 1, 2, 8)
    """

    operator: str
    meaning: str
    arrays: dict[str, Shape]
    optional: tuple[str, ...]
    attributes: dict[str, dict[str, str]]

    def __str__(self) -> str:
        arrays = [f"{name}=None" if name in self.optional else name for name in self.arrays]
        call = ", ".join([*arrays, *(["*"] if self.attributes else []), *self.attributes])
        lines = [f"{self.operator}: {self.meaning}", f"kernel({call})"]
        lines += [f"arrays, for instance: {', '.join(f'{name} {shape}' for name, shape in self.arrays.items())}"]
        width = max(map(len, self.attributes), default=0)
        for name, said in self.attributes.items():
            lines.append(f"  {name:<{width}}  {said['type']} ({said['asked']}): {said['meaning']}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `meaning`, `arrays` (their shapes by name), `left_out` (those that may be), and
        `attributes` in words.
        """
        arrays = {name: list(shape) for name, shape in self.arrays.items()}
        return {
            "meaning": self.meaning,
            "arrays": arrays,
            "left_out": list(self.optional),
            "attributes": self.attributes,
        }


def kernel_signature(operator: str) -> Signature:
    """Return the arrays and attributes that `assert_conforms` calls a kernel of this operator with.

    Parameters
    ----------
    operator : str
        A key of OPERATORS, such as "conv".

    Returns
    -------
    Signature
        It prints.

    Raises
    ------
    ParameterError
        For an unknown operator.

    Examples
    --------
    >>> print(kernel_signature("add"))
    add: x + y, broadcast as NumPy does.
    kernel(x, z)
    arrays, for instance: x (1, 1, 2, 8), z (1, 1, 2, 8)
    """
    drawn = _sample_shapes(check_operator(operator))
    arrays = max((shapes for _, shapes in drawn), key=lambda shapes: (len(shapes), len(shapes["x"]) == 4))
    optional = tuple(name for name in arrays if any(name not in shapes for _, shapes in drawn))
    full = [normalise_attributes(operator, attributes, shapes) for attributes, shapes in drawn]
    attributes = {name: _describe_attribute(name, [f[name] for f in full]) for name in attribute_names(operator)}
    text = (inspect.getdoc(_public_function(operator)) or "").partition("\nParameters\n---")[0].strip()
    return Signature(operator, text, dict(arrays), optional, attributes)


def _describe_attribute(name: str, values: list[Any]) -> dict[str, str]:
    """Return {"type", "asked", "meaning"} of the attribute `name`: its type ("padding" is a pair of ints per axis), the
    `values` that cases have, in words.
    """
    kind = (
        "a pair of ints per axis"
        if name == "padding"
        else "an int per axis"
        if name in PER_AXIS
        else _type_names(values)
    )
    flat = {v for value in values for v in _leaves(value)}
    asked = sorted(flat, key=lambda v: (v is not None, isinstance(v, str), v if v is not None else 0))
    few = (
        f"{asked[0]} to {asked[-1]}"
        if all(type(v) is int for v in asked) and len(asked) > 3
        else ", ".join(map(str, asked))
    )
    return {"type": kind, "asked": few, "meaning": MEANING[name]}


def _type_names(values: list[Any]) -> str:
    """Return the names of the types of the values, such as "int or None"."""
    return " or ".join(sorted({type(v).__name__ for v in values}, key=lambda n: n == "NoneType")).replace(
        "NoneType", "None"
    )


def _leaves(value: Any) -> list[Any]:
    """Return the leaves of a nested tuple, or the value itself, in a list."""
    return [v for part in value for v in _leaves(part)] if isinstance(value, tuple) else [value]
