"""The executions that a proof covers: their arithmetic as data, sentences that describe it, what it leaves out.

This module computes no bound and imports no module that does: a certificate states its executions in these words, and
its checker reads them here.

No class of executions covers a runtime that computes a network by other formulas; a statement names the places:

    choices    relu, clip, minimum, maximum and similar functions commute with a positive factor: clip(v, 0, 6)/6 is
               clip(v/6, 0, 1), exactly. Rounded they are two programs: v = x + 3 is exact near x = -3, and x/6 + 1/2 is
               not. So a choice beside a constant factor is named (docs/reference/executions.md)
    formulas   that a kernel replaces, with another error; and numbers that are taken for those of a formula: 0.79 for
               the sqrt(2/pi) of a gelu, another function (specgrad.proof.base.kernel_formulas)
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.declared_errors import as_pair, declared
from specgrad.errors import SpecgradError
from specgrad.execution_text import sentences
from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg

from .kernel_formulas import FORMULAS, formulas, near_numbers

Functions = Mapping[str, tuple[Fraction, str]]


class ExecutionError(SpecgradError, ValueError):
    """Raised for executions that a certificate cannot be about, as `text` says."""

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
        """Return the entries that a certificate stores, the fields by name; `functions` only if there are any."""
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
    """Return Executions from `given`, JSON data or an object with the same attributes (None: the default).

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
    for choice in fields(given) if is_dataclass(given) else ():
        if (
            choice.name not in REPLAYED
            and choice.default is not MISSING
            and getattr(given, choice.name) != choice.default
        ):
            raise ExecutionError(f"a certificate has no word for {choice.name}={getattr(given, choice.name)!r}")
    if not isinstance(given, Mapping):
        data["functions"] = _declared_functions(given)
    elif "functions" in given:
        data["functions"] = _validated_functions(given["functions"])
    for name, allowed in REPLAYED.items():
        if not any(type(data[name]) is type(value) and data[name] == value for value in allowed):
            words = " or ".join(map(repr, allowed))
            raise ExecutionError(f"{name} must be {words} in a certificate; got {str(data[name])[:20]!r}")
    return Executions(**data)


def _declared_functions(given: Any) -> Functions:
    """Return the `functions` of an arithmetic object `given`: as they are, or from its `ulps` for functions that
    certificates know.

    ExecutionError for entries of another form.
    """
    if hasattr(given, "functions"):
        return dict(given.functions)
    bounds = {name: given.ulp_bound(name) for name in FUNCTIONS if name in given.ulps}
    stated = {name: [str(Fraction(str(units))), kind] for name, (units, kind) in bounds.items()}
    return _validated_functions(stated) if stated else {}


def _validated_functions(data: Any) -> Functions:
    """Validate `data`, the functions of a JSON file (name -> [units, kind], units >= 1), and return them as exact
    numbers.

    ExecutionError if they are not of that form.
    """
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
    """Return a sentence about functions of the executions `meant` whose declared error is below the measured one.

    "" if there are none.

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

    `given` is as for `executions`, or says it itself. ExecutionError for what is no arithmetic.

    >>> deployment()["format"]
    'float32: weights, inputs and every stored value'
    """
    if hasattr(given, "deployment"):
        return {**given.deployment, "inputs": INPUTS}
    meant = executions(given)
    said = {**sentences(**{name: getattr(meant, name) for name in REPLAYED}), "inputs": INPUTS}
    return {**said, "functions": assumed(meant)} if meant.functions else said


def assumed(meant: Executions) -> str:
    """Return the sentence that states what the executions `meant` assume of functions such as tanh.

    >>> assumed(Executions(functions={"tanh": (Fraction(8), "y")}))
    'assumed, measured and not proven: a computed tanh is off by at most 8 u of the result, u = 2**-24'
    """
    each = [f"a computed {n} is off by at most {units} u of {RELATIVE[k]}" for n, (units, k) in meant.functions.items()]
    unit = 24 if meant.rounding == "nearest" else 23
    return f"assumed, measured and not proven: {', '.join(each)}, u = 2**-{unit}"


# --- what no class covers ---------------------------------------------------------------------------------------------

CHOICES = ("relu", "relu6", "clamp", "maximum", "minimum", "max_pool", "amax", "leaky_relu", "abs", "top", "select")
SHOWN = 3


def scaled_choices(graph: Graph) -> tuple[str, ...]:
    """Return the names of choices (relu, clamp, max_pool, ...) that have a constant factor or divisor before or after
    them in their chain.

    Between them may be whatever is linear in what it reads, other choices, and products and quotients with computed
    values; not a convolution or a matrix product with weights, which take the factor in.

    >>> import specgrad as sg
    >>> gate = sg.trace(lambda x: x * sg.clamp(x + 3, 0, 6) / 6, (2,))
    >>> layers = sg.trace(lambda x: sg.linear(np.ones((2, 2)), None, sg.relu(sg.linear(np.eye(2), None, x))), (2,))
    >>> scaled_choices(gate), scaled_choices(layers)
    (('clamp',), ())
    """
    fixed = _constants(graph)
    before: set[int] = set()  # the node's value has a constant factor, as far as it can be followed
    for i, node in enumerate(graph.nodes):
        if _is_scaling(graph, node, fixed) or not before.isdisjoint(_operands_with_factor(node, fixed)):
            before.add(i)
    after: set[int] = set()  # some reader multiplies the node's value by a constant
    for i in reversed(range(len(graph.nodes))):
        node = graph.nodes[i]
        if i in after or _is_scaling(graph, node, fixed):
            after.update(_operands_with_factor(node, fixed))
    names = []
    for i, node in enumerate(graph.nodes):
        if i in fixed or node.op.name not in CHOICES or node.kind != "real":
            continue
        if i in after or not before.isdisjoint(_operands_with_factor(node, fixed)):
            names.append(node.name)
    return tuple(names)


def exclusion(graph: Graph) -> str:
    """Return a sentence that says which rewrites of this network are excluded, or "" if none is possible.

    >>> import specgrad as sg
    >>> exclusion(sg.trace(lambda x: sg.relu(x) * 0.1, (2,)))
    'executions that move a constant factor through relu, or take another number for it, are excluded'
    >>> exclusion(sg.trace(lambda x: sg.log(sg.exp(x) + 1), (2,)))
    'executions that compute log(exp(x) + 1) at log as a softplus are excluded'
    >>> exclusion(sg.trace(lambda x: x * (1 + sg.tanh(0.8 * x)), (2,)))
    "executions that take a gelu's number for 0.8 are excluded"
    """
    said = []
    if names := scaled_choices(graph):
        said.append(f"move a constant factor through {_names_text(names)}, or take another number for it,")
    leaving = [(f.formula, graph.nodes[f.position].name) for f in formulas(graph) if not f.formula.held]
    for formula in (f for f in FORMULAS if any(f is g for g, _ in leaving)):
        names = tuple(name for g, name in leaving if g is formula)
        said.append(f"compute {formula.text} at {_names_text(names)} as a {formula.name}")
    if numbers := [f"{c:.8g}" for c in near_numbers(graph)]:
        said.append(f"take a gelu's number for {_names_text(numbers)}")
    return f"executions that {' or '.join(said)} are excluded" if said else ""


def _names_text(names: Sequence[str]) -> str:
    """Return names joined by commas, at most SHOWN of them, and how many more there are."""
    return f"{', '.join(names[:SHOWN])}{f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''}"


def _constants(graph: Graph) -> set[int]:
    """Return the positions of nodes that are constants, or computed from constants alone."""
    fixed: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if node.op is CONSTANT or (node.op is not INPUT and all(a in fixed for a in node.operands())):
            fixed.add(i)
    return fixed


def _operands_with_factor(node: Node, fixed: set[int]) -> list[int]:
    """Return the varying operands of `node` whose constant factors are factors of the node's value too, as of max(2*x,
    2*y).

    Limits and constant terms would be scaled along. Kernels with weights have none: their weights take the factor in.
    `fixed` are the positions of constant nodes.
    """
    varying = [a for a in node.operands() if a not in fixed]
    if node.op.kernel and len(varying) < len(node.operands()):
        return []
    if node.op.name in (*CHOICES, "div", "stop_gradient"):
        return varying
    linear = {k for group in node.op.linear_groups(len(node.args)) for k in group}
    return [a for k, a in enumerate(node.args) if k in linear and isinstance(a, int) and a in varying]


def _is_scaling(graph: Graph, node: Node, fixed: set[int]) -> bool:
    """Return whether `node` is a product with a constant, or a quotient by one, that is not 1 or -1 in all cells.

    The divisor of a mean is none: it belongs to the mean, as that of avg_pool does. A computed constant counts as
    one that is not 1.

    fixed   the positions of constants, and of what is computed from them alone
    """
    if node.op.name not in ("mul", "div") or _is_mean(graph, node):
        return False
    args = node.args[1:] if node.op.name == "div" else node.args
    return any(_is_factor(graph, a) for a in args if isinstance(a, NumberArg) or a in fixed)


def _is_mean(graph: Graph, node: Node) -> bool:
    """Return whether `node` divides a sum (perhaps reshaped) by the number of its terms, a Python number."""
    total, count = node.args
    if node.op.name != "div" or not isinstance(total, int) or not isinstance(count, NumberArg):
        return False
    while graph.nodes[total].op.name == "reshape":
        (total,) = graph.nodes[total].operands()
    if graph.nodes[total].op.name != "sum":
        return False
    (summed,) = graph.nodes[total].operands()
    return bool(count.value * math.prod(node.shape) == math.prod(graph.nodes[summed].shape))


def _is_factor(graph: Graph, arg: Any) -> bool:
    """Return whether `arg`, a number or a constant node's position, changes magnitudes: some absolute value is not 1,
    or it is computed.
    """
    if isinstance(arg, NumberArg):
        return abs(arg.value) != 1
    value = graph.constants.get(arg)
    return value is None or bool((np.abs(value) != 1).any())
