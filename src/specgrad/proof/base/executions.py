"""The executions that a proof covers: their arithmetic as plain data, and sentences that describe it.

This module computes no bound and imports no module that does: a certificate states its executions in these words, and
its checker reads them here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

from specgrad.declared_errors import as_pair, declared
from specgrad.errors import SpecgradError
from specgrad.execution_text import sentences

Functions = Mapping[str, tuple[Fraction, str]]


class ExecutionError(SpecgradError, ValueError):
    """Raised for executions that a certificate cannot be about."""

    def __init__(self, text: str) -> None:
        super().__init__("arithmetic", text)


@dataclass(frozen=True)
class Executions:
    """A class of executions: what is stored, what operands are rounded to, what sums are made in, what may be merged.

    dtype       the format of stored values
    operands    the format that factors of products are rounded to; None: they are not
    accumulate  the format of sums; None: dtype or wider
    execution   "fused": neighbouring linear nodes may be merged; "node": every node's result is stored
    depth       the most roundings that one term of a sum meets; None: any order
    rounding    "nearest", or "any": each result is one of the two numbers around the exact one
    flush       subnormal operands and results may count as zero
    functions   what is assumed of exp, tanh, ...: a computed y is off by at most (units, kind) units of u times abs(y)
                ("y"), 1 ("1"), abs(x) ("x") or 1 + abs(y) ("1+y")
    """

    dtype: str = "float32"
    operands: str | None = None
    accumulate: str | None = None
    execution: str = "fused"
    depth: int | None = None
    rounding: str = "nearest"
    flush: bool = True
    functions: Functions = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the entries that a certificate stores; `functions` only if there are any."""
        data = {name: value for name, value in asdict(self).items() if name != "functions"}
        functions = {name: [str(units), kind] for name, (units, kind) in self.functions.items()}
        return {**data, "functions": functions} if functions else data

    def of(self, operators: Collection[str]) -> Executions:
        """Return the same executions with only those `functions` that `operators` (names) compute."""
        used = {f for name in operators for f in COMPUTES.get(name, (name,))}
        return replace(self, functions={n: self.functions[n] for n in sorted(used & self.functions.keys())})


REPLAYED: dict[str, tuple[Any, ...]] = {
    "dtype": ("float32",),
    "operands": (None,),
    "accumulate": (None,),
    "execution": ("fused", "node"),
    "depth": (None,),
    "rounding": ("nearest", "any"),
    "flush": (True,),
}
"""What a certificate can be about."""

COMPUTES = {"smooth_max_pool": ("exp", "log")}  # operators made of other functions
FUNCTIONS = ("exp", "log", "sqrt", "tanh", "sigmoid", "hardswish")
MEASURED = {n: (Fraction(str(units)), kind) for n in FUNCTIONS for units, kind in [as_pair(declared()[n])]}
"""The largest errors that were measured of any runtime: the default of `specgrad.declared_errors`."""
REFUSED = {
    "log": "its argument would have to be shown to be positive",
    "sqrt": "its argument would have to be shown to be positive; of constants it is computed",
    "power": "how it bends depends on its exponent",
    "root": "how it bends depends on its exponent",
    "silu": "it bends the other way at points that are no rational numbers",
    "gelu": "it bends the other way at points that are no rational numbers",
    "softplus": "a certificate has no word for the error of what runtimes compute",
    "normal_pdf": "it has two convex pieces",
    "normal_cdf": "a certificate has no word for the error of what runtimes compute",
    "sin": "it has more pieces than can be named",
    "cos": "it has more pieces than can be named",
    "atan": "a certificate has no word for the error of what runtimes compute",
    "asinh": "a certificate has no word for the error of what runtimes compute",
}
"""Registered functions of one cell of which a certificate has no lines (specgrad.proof.exact.activations), and why."""
RELATIVE = {"y": "the result", "1": "1", "x": "the argument", "1+y": "1 + the result"}
UNITS = re.compile("[1-9][0-9]{0,5}(/[1-9][0-9]{0,5})?")


def executions(given: Any = None) -> Executions:
    """Return Executions from JSON data or from an object with the same attributes (None: the default); raise
    ExecutionError for values that no certificate can have.

    >>> executions({**Executions().to_json(), "dtype": "float16"})
    Traceback (most recent call last):
    specgrad.proof.base.executions.ExecutionError: arithmetic: dtype must be 'float32' in a certificate; got 'float16'
    """
    if given is None:
        return Executions()
    if isinstance(given, Mapping) and given.keys() - {"functions"} != REPLAYED.keys():
        raise ExecutionError(f"the entries must be {', '.join(REPLAYED)}; and functions where some are computed")
    data = dict(given) if isinstance(given, Mapping) else {name: getattr(given, name) for name in REPLAYED}
    if not isinstance(given, Mapping):
        data["functions"] = _declared(given)
    elif "functions" in given:
        data["functions"] = _functions(given["functions"])
    for name, allowed in REPLAYED.items():
        if not any(type(data[name]) is type(value) and data[name] == value for value in allowed):
            words = " or ".join(map(repr, allowed))
            raise ExecutionError(f"{name} must be {words} in a certificate; got {str(data[name])[:20]!r}")
    return Executions(**data)


def _declared(given: Any) -> Functions:
    """Return the `functions` of an arithmetic object: as they are, or from its `ulps` for functions that certificates
    know."""
    if hasattr(given, "functions"):
        return dict(given.functions)
    bounds = {name: given.ulp_bound(name) for name in FUNCTIONS if name in given.ulps}
    stated = {name: [str(Fraction(str(units))), kind] for name, (units, kind) in bounds.items()}
    return _functions(stated) if stated else {}


def _functions(data: Any) -> Functions:
    """Validate `functions` of a JSON file (name -> [units, kind], units >= 1) and return them as exact numbers."""
    if not isinstance(data, Mapping) or not data or not data.keys() <= set(FUNCTIONS):
        raise ExecutionError(f"functions go by name: {', '.join(FUNCTIONS)}")
    for name, entry in data.items():
        if not isinstance(entry, list) or len(entry) != 2 or not all(isinstance(part, str) for part in entry):
            raise ExecutionError(f"{name} needs its units and what they are relative to")
        units, kind = entry
        if not UNITS.fullmatch(units) or str(Fraction(units)) != units or Fraction(units) < 1 or kind not in RELATIVE:
            raise ExecutionError(f"{name} must be off by 1 unit or more of {', '.join(RELATIVE)}")
    return {name: (Fraction(units), kind) for name, (units, kind) in data.items()}


def optimistic(meant: Executions) -> str:
    """Return a sentence about functions whose declared error is below the measured one; "" if there are none.

    >>> optimistic(Executions(functions={"tanh": (Fraction(5, 2), "y"), "exp": (Fraction(12), "y")}))
    'tanh is declared off by at most 5/2 u of the result, and was measured with 11 u of the result'
    """
    each = []
    for name, (units, kind) in meant.functions.items():
        most, of = MEASURED[name]
        covers = kind == of or (kind == "1+y" and of in ("y", "1"))
        if not covers or units < most:
            words = f"{name} is declared off by at most {units} u of {RELATIVE[kind]}"
            each.append(f"{words}, and was measured with {most} u of {RELATIVE[of]}")
    return "; ".join(each)


def no_rule(node: Any) -> str:
    """Return the sentence that says why a certificate cannot contain `node`."""
    text = f"a certificate has no rule for node {node.name}; it has for linear operators, relu and max_pool"
    return f"{text} ({node.op.name}: {REFUSED[node.op.name]})" if node.op.name in REFUSED else text


INPUTS = (
    "a proof covers every float32 number of the smallest float32 box that holds the stated box (of the stated set, "
    "what its points become when they are rounded to float32); a counterexample is a point of the stated box or set, "
    "and the network was run on the nearest float32 numbers"
)


def deployment(given: Any = None) -> dict[str, str]:
    """Return sentences by topic that describe the executions and inputs which a statement covers.

    >>> deployment()["format"]
    'float32: weights, inputs and every stored value'
    """
    if hasattr(given, "deployment"):
        return {**given.deployment, "inputs": INPUTS}
    meant = executions(given)
    said = {**sentences(**{name: getattr(meant, name) for name in REPLAYED}), "inputs": INPUTS}
    return {**said, "functions": assumed(meant)} if meant.functions else said


def assumed(meant: Executions) -> str:
    """Return the sentence that states what is assumed of functions such as tanh.

    >>> assumed(Executions(functions={"tanh": (Fraction(8), "y")}))
    'assumed, measured and not proven: a computed tanh is off by at most 8 u of the result, u = 2**-24'
    """
    each = [f"a computed {n} is off by at most {units} u of {RELATIVE[k]}" for n, (units, k) in meant.functions.items()]
    unit = 24 if meant.rounding == "nearest" else 23
    return f"assumed, measured and not proven: {', '.join(each)}, u = 2**-{unit}"
