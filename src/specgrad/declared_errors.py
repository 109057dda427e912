"""Declared errors of functions that no standard rounds correctly: the one table, per runtime and function.

A bound is a number of units u relative to the result ("y"), or (number, scale) where the error is relative to
something else: "1" (absolute), "x" (the argument), "1+y". benchmarks/ulps.py and benchmarks/runtime_ulps.py measure
them; nothing here is proven. Radii, audits, recordings, tolerances and certificates all ask `declared`, and no other
module states an error of a function.

An entry covers every float32 argument but those in `WRONG`. An error of more than LIMIT units is no rounding: the
runtime is wrong there, by name, and neither its own entry nor the default absorbs it. A function that is wrong almost
everywhere, or that a runtime does not have, has no entry: it is then held to what its parts give (`MADE_OF`), and
without parts to the default.

It imports nothing: provers and checkers read the same numbers, and share no more than these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Bound = float | tuple[float, str]
Table = Mapping[str, Bound]

LIMIT = 32.0
"""Units of an entry at the most: five of the 24 binary digits of a float32. What loses more has lost its algorithm."""

_TORCH: Table = {
    "exp": 1.5,
    "log": 1.5,
    "sqrt": 1.2,  # MKL's, not the processor's
    "tanh": 1.5,
    "sin": (1.0, "1"),
    "cos": (1.0, "1"),
    "sigmoid": (2.0, "1"),
    "silu": (2.5, "x"),
    "softplus": (1.5, "1+y"),
    "normal_pdf": (1.5, "1"),
    "normal_cdf": (1.5, "1"),
    "gelu": (7.0, "x"),
    "hardswish": (3.0, "x"),
    "power": 2.0,
}
_JAX: Table = {
    "exp": 6.0,  # 1.4 up to 88.3, where float32 ends at 88.72
    "log": 2.5,
    "sqrt": 1.0,
    "tanh": 8.0,
    "sin": (1.0, "1"),
    "cos": (1.0, "1"),
    "sigmoid": (2.0, "1"),
    "silu": (3.0, "x"),
    "softplus": (2.0, "1+y"),
    "normal_pdf": (1.5, "1"),
    "normal_cdf": (2.5, "1"),
    "gelu": (3.0, "x"),
    "hardswish": (3.5, "x"),
    "power": 2.0,
}
_NUMPY: Table = {
    "exp": 4.0,
    "log": 5.0,
    "sqrt": 1.0,
    "tanh": 2.5,
    "sin": (2.0, "1"),
    "cos": (2.0, "1"),
    "sigmoid": (2.0, "1"),
    "silu": (3.0, "x"),
    "softplus": (2.5, "1+y"),
    "normal_pdf": (1.5, "1"),
    "normal_cdf": (1.5, "1"),
    "gelu": (2.0, "x"),
    "hardswish": (3.0, "x"),
    "power": 2.0,
}
_ONNXRUNTIME: Table = {
    "exp": 1.5,
    "log": 4.5,
    "sqrt": 1.0,
    "tanh": 6.0,
    "sin": (2.0, "1"),
    "cos": (2.0, "1"),
    "sigmoid": (3.5, "1"),
    "softplus": (1.5, "1+y"),
    "gelu": (2.0, "x"),
    "normal_cdf": (1.0, "1"),
    "hardswish": (2.0, "x"),
    "power": 1.5,
}
_OPENVINO: Table = {
    "exp": 7.5,
    "log": 1.5,
    "sqrt": 1.0,
    "tanh": 1.5,
    "sin": (1.0, "1"),
    "cos": (1.0, "1"),
    "sigmoid": (2.0, "1"),
    "softplus": (7.5, "1+y"),
    "gelu": (6.5, "x"),
    "normal_cdf": (5.0, "1"),
    "hardswish": (2.0, "x"),
    "power": 1.5,
}
_ONNX_REFERENCE: Table = {
    "exp": 4.0,
    "log": 5.0,
    "sqrt": 1.0,
    "tanh": 2.5,
    "sin": (1.5, "1"),
    "cos": (1.5, "1"),
    "sigmoid": (2.0, "1"),
    "softplus": (1.0, "1+y"),
    "gelu": (2.0, "x"),
    "normal_cdf": (0.5, "1"),
    "hardswish": (2.0, "x"),
    "power": 2.0,
}
_TRACT: Table = {
    "exp": 2.0,
    "log": 1.5,
    "sqrt": 1.0,
    "tanh": 11.0,
    "sin": (1.0, "1"),
    "cos": (1.0, "1"),
    "sigmoid": (9.0, "1"),
    "softplus": (1.5, "1+y"),
    "gelu": (18.0, "x"),
    "normal_cdf": (17.0, "1"),
    "hardswish": (3.0, "x"),
    "power": 1.5,
}
_MNN: Table = {
    "exp": 12.0,
    "log": 1.5,
    "sqrt": 1.0,
    "sin": (1.0, "1"),
    "cos": (1.0, "1"),
    "sigmoid": (3.0, "1"),
    "normal_cdf": (0.5, "1"),
    "hardswish": (2.5, "x"),
    "power": 1.5,
}
_NCNN: Table = {
    "exp": 2.0,
    "log": 1.5,
    "sqrt": 1.0,
    "sin": (1.5, "1"),
    "cos": (1.5, "1"),
    "sigmoid": (3.0, "1"),
    "softplus": (2.5, "1+y"),
    "gelu": (2.0, "x"),
    "normal_cdf": (1.0, "1"),
    "hardswish": (2.0, "x"),
}
_IREE: Table = {
    "exp": 6.0,
    "log": 1.5,
    "sqrt": 1.0,
    "tanh": 5.5,
    "sin": (5.5, "1"),
    "cos": (6.5, "1"),
    "sigmoid": (2.0, "1"),
    "softplus": (1.5, "1+y"),
    "gelu": (3.5, "x"),
    "normal_cdf": (2.5, "1"),
    "hardswish": (2.5, "x"),
}

MEASURED: Mapping[str, tuple[str, Table]] = {
    "torch": ("PyTorch 2.13.0", _TORCH),
    "jax": ("JAX 0.10.2", _JAX),
    "numpy": ("NumPy 2.4.6", _NUMPY),
    "onnxruntime": ("onnxruntime 1.31.1", _ONNXRUNTIME),
    "openvino-f32": ("openvino 2026.4.1", _OPENVINO),
    "onnx-reference": ("onnx 1.23.2", _ONNX_REFERENCE),
    "iree": ("iree-base-compiler 3.13.0", _IREE),
    "tract": ("tract 0.23.9", _TRACT),
    "mnn": ("mnn 3.6.1", _MNN),
    "ncnn": ("ncnn 1.0.20261020", _NCNN),
}
"""Per runtime the version that was measured and its entries, in at least 1.1 times the measured error."""

WRONG: Mapping[tuple[str, str], str] = {
    ("openvino-f32", "exp"): "infinite above 88.37",
    ("openvino-f32", "softplus"): "128 units of 1 below -6: softplus(-18) < 0",
    (
        "iree",
        "sin",
    ): "beyond 8 in size the error grows by half a unit per radian, as if the argument were reduced in float32",
    (
        "iree",
        "cos",
    ): "beyond 8 in size the error grows by half a unit per radian, as if the argument were reduced in float32",
    ("iree", "power"): "up to 149 units, as exp(e*log(x)) in float32 has",
    ("tract", "tanh"): "0 below 2.5e-36 in size",
    ("tract", "softplus"): "infinite above 88.72",
    ("mnn", "exp"): "exp(87) above 87, and exp(-87) below -87",
    ("mnn", "tanh"): "every digit is lost near 0: tanh(1e-9) = 0",
    ("mnn", "softplus"): "87 above 87",
    ("mnn", "gelu"): "near the tanh formula where erf is asked for: up to 3,007 units of x",
    ("ncnn", "exp"): "exp(88.376) above 88.376",
    ("ncnn", "tanh"): "every digit is lost near 0: tanh(1e-9) = 0",
    ("ncnn", "sin"): "beyond 8192 in size the error grows, and beyond 1.7e9 there is no number",
    ("ncnn", "cos"): "beyond 8192 in size the error grows, and beyond 1.7e9 there is no number",
    ("ncnn", "softplus"): "infinite above 88.72",
    ("ncnn", "power"): "up to 113 units, and x**2 of a negative x is no number",
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
    """Add what follows from the entries that there are; an entry stands for a kernel of the function's own."""
    made = {f: rule(table) for f, (parts, rule) in MADE_OF.items() if f not in table and table.keys() >= set(parts)}
    return {**table, **made}


ULPS: Mapping[str, Table] = {name: _with_composed(table) for name, (_, table) in MEASURED.items()}
"""Per runtime what is declared: entries, and what follows from them."""


def _widest(function: str) -> Bound:
    """Return the largest bound of all runtimes; they are on one scale (tests/rounding/test_ulps.py)."""
    return max((t[function] for t in ULPS.values() if function in t), key=lambda bound: as_pair(bound)[0])


WORST_ULPS: Table = {function: _widest(function) for function in _TORCH}
"""The default, for a runtime that nobody has measured or named: the largest bound of all runtimes in MEASURED."""


def whose(table: Table) -> str:
    """Say whose errors a table has, in words.

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
