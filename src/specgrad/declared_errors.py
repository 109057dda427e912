"""Declared errors of functions that no standard rounds correctly, by runtime and function: tables of the records'.

A bound is a number of units u relative to the result ("y"), or (number, scale) where the error is relative to
something else: "1" (absolute), "x" (the argument), "1+y". benchmarks/ulps.py and benchmarks/runtime_ulps.py measure
them; nothing here is proven. Radii, audits, recordings, tolerances and certificates all ask `declared`; only the record
of a function states its error.

An entry covers every float32 argument but those in `WRONG`. An error of more than LIMIT units is no rounding: the
runtime is wrong there, by name, and neither its own entry nor the default absorbs it. A function that is wrong almost
everywhere, or that a runtime does not have, has no entry: it is then held to what its parts give (`MADE_OF`), and
without parts to the default.

It imports nothing but the records: provers and checkers read the same numbers, and share no more than these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .facts import DeclaredErrors
from .op import REGISTRY

Bound = float | tuple[float, str]
Table = Mapping[str, Bound]

LIMIT = 32.0
"""Units of an entry at the most: five of the 24 binary digits of a float32. What loses more has lost its algorithm."""

VERSIONS: Mapping[str, str] = {
    "torch": "PyTorch 2.13.0",
    "jax": "JAX 0.10.2",
    "numpy": "NumPy 2.4.6",
    "onnxruntime": "onnxruntime 1.31.1",
    "openvino-f32": "openvino 2026.4.1",
    "onnx-reference": "onnx 1.23.2",
    "iree": "iree-base-compiler 3.13.0",
    "tract": "tract 0.23.9",
    "mnn": "mnn 3.6.1",
    "ncnn": "ncnn 1.0.20261020",
}
"""Per runtime the version that was measured."""

FUNCTIONS: Mapping[str, DeclaredErrors] = {op.name: op.errors for op in REGISTRY.values() if op.errors is not None}


def _entries(runtime: str) -> Table:
    """Return the errors that the records declare of one runtime, by function; {} for a runtime that none names."""
    of_runtime = ((f, errors.units[runtime], errors) for f, errors in FUNCTIONS.items() if runtime in errors.units)
    return {f: units if errors.relative_to == "y" else (units, errors.relative_to) for f, units, errors in of_runtime}


MEASURED: Mapping[str, tuple[str, Table]] = {name: (version, _entries(name)) for name, version in VERSIONS.items()}
"""Per runtime the version that was measured and its entries, in at least 1.1 times the measured error."""

WRONG: Mapping[tuple[str, str], str] = {
    (name, f): errors.wrong[name] for name in VERSIONS for f, errors in FUNCTIONS.items() if name in errors.wrong
}
"""Where a runtime is wrong: findings, which no entry and no default covers."""


def as_pair(bound: Bound) -> tuple[float, str]:
    """Return the bound as (units of u, what they are relative to)."""
    return bound if isinstance(bound, tuple) else (float(bound), "y")


MADE_OF: Mapping[str, tuple[tuple[str, ...], Callable[[Table], Bound]]] = {
    # x * sigmoid(x): its error times x, and the product's rounding
    "silu": (("sigmoid",), lambda parts: (as_pair(parts["sigmoid"])[0] + 1.0, "x")),
    # x * (1 + erf(x/sqrt(2))) / 2: two roundings of the argument (0.25 each at the most), the sum's and the product's
    "gelu": (("normal_cdf",), lambda parts: (as_pair(parts["normal_cdf"])[0] + 2.5, "x")),
    # exp(-x*x/2) * c, c = 1/sqrt(2*pi) < 0.4: with t = x*x/2 the error is c*exp(-t)*(e + 3 + t), largest at t = 0
    "normal_pdf": (("exp",), lambda parts: (0.4 * (as_pair(parts["exp"])[0] + 3.0), "1")),
}
"""Functions that a runtime computes from others where it has no kernel of them: the parts, and the error they give."""


def _with_composed(table: Table) -> Table:
    """Return the table with errors of functions that are made of others in it; a function with an entry keeps that
    one.
    """
    made = {f: rule(table) for f, (parts, rule) in MADE_OF.items() if f not in table and table.keys() >= set(parts)}
    return {**table, **made}


ULPS: Mapping[str, Table] = {name: _with_composed(table) for name, (_, table) in MEASURED.items()}
"""Per runtime what is declared: entries, and what follows from them."""


def _widest(function: str) -> Bound:
    """Return the largest bound of all runtimes for a function's name; they are on one scale
    (tests/rounding/test_ulps.py).
    """
    return max((t[function] for t in ULPS.values() if function in t), key=lambda bound: as_pair(bound)[0])


WORST_ULPS: Table = {function: _widest(function) for function in FUNCTIONS}
"""The default, for a runtime that nobody has measured or named: the largest bound of all runtimes in MEASURED."""


def whose(table: Table) -> str:
    """Return in words whose errors a table has: a runtime's, the widest of all, or the caller's.

    >>> whose(declared()), whose(declared("tract")), whose({**declared(), "exp": 1.0})
    ('the widest of 10 runtimes', 'of tract 0.23.9', 'as given by the caller')
    """
    if table == WORST_ULPS:
        return f"the widest of {len(MEASURED)} runtimes"
    for name, (version, _) in MEASURED.items():
        if table == declared(name):
            return f"of {version}"
    return "as given by the caller"


def declared(runtime: str | None = None) -> Table:
    """Return the declared errors of a runtime by its name in MEASURED; None, or a function without entry: the default.

    >>> declared("onnxruntime")["sigmoid"], declared("onnxruntime")["silu"], declared() == WORST_ULPS
    ((3.5, '1'), (4.5, 'x'), True)
    """
    return WORST_ULPS if runtime is None else {**WORST_ULPS, **ULPS[runtime]}
