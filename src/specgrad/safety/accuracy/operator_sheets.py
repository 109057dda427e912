"""Accuracy sheets of ONNX operators by name; tests/safety compares them with `rounding.radius`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from specgrad.facts import SheetText
from specgrad.op import REGISTRY, Op

from .composite_sheets import LAYER_SHEETS
from .expression import Expr, growth, lost, maximum, names, where_negative
from .families import CHOICES, COPIES, FUNCTIONS, INTEGERS, QUANTISED, QUOTIENTS, SUMS
from .sheet import Quantity, Sheet

A, B, C, Q, S, W, X, Y = names("A B C Q S W X Y")
E_A, E_B, E_C, E_S, E_W, E_X = names("E_A E_B E_C E_S E_W E_X")
F, LOW, HIGH, K, M, N, e, u, t, propagated = names("F LOW HIGH K M n e u t propagated")
ZERO = Expr("number", (0,))


def range_change(low: Expr, high: Expr) -> Expr:
    """Return the formula of the largest distance of Y from the ends `low` and `high` of its exact range."""
    return maximum(high - Y, Y - low)


# --- nothing is rounded -----------------------------------------------------------------------------------------------

COPY_OPERATORS = {
    "Reshape": "the cells of X in another shape",
    "Flatten": "the cells of X as a matrix",
    "Transpose": "the cells of X, axes permuted",
    "Squeeze": "X without axes of size 1",
    "Unsqueeze": "X with axes of size 1",
    "Expand": "X repeated along axes",
    "Tile": "X repeated",
    "Slice": "some cells of X",
    "Split": "some cells of X, per output",
    "Gather": "the cells of X at known positions",
    "GatherElements": "the cells of X at known positions",
    "GatherND": "the cells of X at known positions",
    "DepthToSpace": "the cells of X, permuted",
    "SpaceToDepth": "the cells of X, permuted",
    "Identity": "X",
    "Dropout": "X (inference)",
    "Trilu": "X, 0 beyond a diagonal",
    "Pad": "X with cells around it: of a constant, or of X itself",
}


def _copy_sheet(name: str, meaning: str) -> Sheet:
    """Return the sheet of the operator `name`, which only copies cells of X; `meaning` says which.

    Those of Pad and Trilu note that constants are written.
    """
    notes = ("A constant that is written, by Pad or Trilu, has no error: F(E_X) is 0 there.",) * (
        name in ("Pad", "Trilu")
    )
    return Sheet(name, f"Y = F(X): {meaning}", ("X",), F(E_X), ZERO, COPIES, notes=notes)


def _copy_sheets() -> Iterable[Sheet]:
    """Yield the sheets of operators that round nothing: copies, Neg and Concat."""
    yield from (_copy_sheet(name, meaning) for name, meaning in COPY_OPERATORS.items())
    yield Sheet("Neg", "Y = -X", ("X",), E_X, ZERO, COPIES)
    yield Sheet("Concat", "Y = F(A, B): the cells of A, then those of B", ("A", "B"), F(E_A, E_B), ZERO, COPIES)


SELECTIONS = {
    "Relu": "max(X, 0)",
    "MaxPool": "the largest cell of a window",
    "GlobalMaxPool": "the largest cell of a plane",
    "ReduceMax": "the largest cell along axes",
    "ReduceMin": "the smallest cell along axes",
    "Clip": "min(max(X, low), high)",
}


def _choice_sheets() -> Iterable[Sheet]:
    """Yield the sheets of operators whose result is one of their inputs: maxima, minima, Abs, Where."""
    for name, meaning in SELECTIONS.items():
        yield Sheet(
            name,
            f"Y = F(X) = {meaning}",
            ("X",),
            range_change(F(X - E_X), F(X + E_X)),
            ZERO,
            CHOICES,
            conditions=EXTRA_CONDITIONS.get(name, ()),
            notes=("It is at most the largest E_X of the cells that are compared.",),
        )
    for name, word in (("Max", "larger"), ("Min", "smaller")):
        ends = range_change(F(A - E_A, B - E_B), F(A + E_A, B + E_B))
        yield Sheet(name, f"Y = F(A, B) = the {word} of A and B", ("A", "B"), ends, ZERO, CHOICES)
    range_ = (
        Quantity("LOW", "the smallest of abs over X - E_X .. X + E_X: 0 if 0 lies there"),
        Quantity("HIGH", "the largest of abs there"),
    )
    yield Sheet("Abs", "Y = abs(X)", ("X",), range_change(LOW, HIGH), ZERO, CHOICES, range_)
    chosen = Quantity("C", "the condition: 0 or 1, known (a comparison whose sides may cross is undecided)")
    yield Sheet(
        "Where",
        "Y = A where C, else B",
        ("A", "B"),
        C * E_A + (1 - C) * E_B,
        ZERO,
        CHOICES,
        (chosen,),
        notes=(
            "Where the condition itself is undecided the bound covers both: max(abs(A - Y) + E_A, abs(B - Y) + E_B).",
        ),
    )


EXTRA_CONDITIONS = {
    "MaxPool": (
        ("empty windows", "a window that reads padding alone: 0 in our contract, -inf or the lowest number elsewhere"),
        ("positions", "the output Indices is undecided where two cells of a window are nearer than their errors"),
    ),
    "Clip": (("limits", "min and max are numbers of the format; min <= max; NaN limits are refused"),),
}

# --- sums -------------------------------------------------------------------------------------------------------------


def _sum_sheet(
    name: str,
    meaning: str,
    inputs: str,
    propagated_: Expr,
    size: Expr,
    count: tuple[str, Expr],
    widening: Expr | None = None,
) -> Sheet:
    """Return the sheet of one sum of n roundings along its longest path: introduced error growth(n)*M + lost(n).

    inputs        names, with spaces between them
    propagated_   the error that comes from the inputs' errors
    size          M: F on absolute values, errors included
    count         n: in words, and as a term
    widening      factor of what must fit the format, where an intermediate result is larger
    name, meaning  of the operator, whose result is Y = F(inputs)
    """
    steps = (Quantity("n", count[0], count[1]), Quantity("M", "F on absolute values, errors included", size))
    fits = M * (1 + growth(N))
    return Sheet(
        name,
        meaning,
        tuple(inputs.split()),
        propagated_,
        growth(N) * M + lost(N),
        SUMS,
        steps,
        fits if widening is None else widening * fits,
    )


def _bilinear_error(a: Expr, e_a: Expr, b: Expr, e_b: Expr) -> Expr:
    """Return the formula of the error of F(a, b), linear in each, if a has the error e_a and b has e_b."""
    return F(abs(a), e_b) + F(e_a, abs(b)) + F(e_a, e_b)


def _sum_sheets() -> Iterable[Sheet]:
    """Yield the sheets of sums and products: Add, Mul, Conv, MatMul, pools, Resize, DequantizeLinear, ..."""
    for name, sign in (("Add", "+"), ("Sub", "-"), ("Sum", "+")):
        yield Sheet(
            name,
            f"Y = A {sign} B",
            ("A", "B"),
            E_A + E_B,
            u * (abs(Y) + propagated) + lost(1),
            SUMS,
            fits=(abs(A) + E_A + abs(B) + E_B) * (1 + u),
            notes=(
                "One rounding, relative to the result itself: a sum of two numbers that cancels loses nothing. Merged "
                "with others it is a sum of the region, and relative to abs(A) + abs(B).",
            ),
        )
    size = (abs(A) + E_A) * (abs(B) + E_B)
    yield Sheet(
        "Mul",
        "Y = A*B",
        ("A", "B"),
        abs(A) * E_B + E_A * abs(B) + E_A * E_B,
        u * size + lost(1),
        SUMS,
        fits=size * (1 + u),
        conditions=(
            (
                "powers of 2",
                "A factor 2**k, abs(k) <= 42, beside a factor without error gives a normal product exactly: 0",
            ),
        ),
    )
    taps = Quantity("k", "cells of the kernel: its sizes multiplied")
    c, group, k, b = names("c group k b")
    bias = Quantity("b", "1 with a bias, else 0")
    both = _bilinear_error(X, E_X, W, E_W) + b * E_B
    size = F(abs(X) + E_X, abs(W) + E_W) + b * (abs(B) + E_B)
    conv = _sum_sheet(
        "Conv", "Y = F(X, W) + B", "X W B", both, size, ("products of one sum, and the bias", c * k / group + b)
    )
    channels = Quantity("c", "channels of X"), Quantity("group", "the attribute group")
    yield _with_quantities(conv, (*channels, taps, bias))
    back = _sum_sheet(
        "ConvTranspose",
        "Y = F(X, W) + B",
        "X W B",
        both,
        size,
        ("products of one sum, and the bias", c * k / group + b),
    )
    yield _with_quantities(back, (*channels, taps, bias))
    inner = Quantity("K", "the length of the sum: columns of A")
    product = _sum_sheet(
        "MatMul",
        "Y = F(A, B) = A B",
        "A B",
        _bilinear_error(A, E_A, B, E_B),
        F(abs(A) + E_A, abs(B) + E_B),
        ("products of one sum", K),
    )
    yield _with_quantities(product, (inner,))
    mean = _sum_sheet(
        "AveragePool",
        "Y = F(X): the mean over a window",
        "X",
        F(E_X),
        F(abs(X) + E_X),
        ("a sum of k cells and its quotient", k + 1),
        k,
    )
    yield _with_quantities(mean, (Quantity("k", "cells of the window, padding included"),))
    total = _sum_sheet("ReduceSum", "Y = F(X): the sum over axes", "X", F(E_X), F(abs(X) + E_X), ("additions", k - 1))
    yield _with_quantities(
        total, (Quantity("k", "cells that are added; 2 or more: a sum of one cell is that cell, and exact"),)
    )
    running = _sum_sheet("CumSum", "Y = F(X): sums up to each cell", "X", F(E_X), F(abs(X) + E_X), ("additions", k - 1))
    yield _with_quantities(running, (Quantity("k", "cells along the axis; 2 or more"),))
    einsum = replace(product, operator="Einsum", meaning="Y = F(A, B): the equation, as one sum of products")
    yield _with_quantities(einsum, (Quantity("K", "the sizes of all axes that are summed, multiplied"),))
    yield _resize_sheet()
    scaled = (
        Quantity("Q", "x - x_zero_point: exact, in integers"),
        Quantity("n", "1; 2 where abs(Q) may exceed 1/u, as of int32: its conversion to the format rounds too"),
    )
    yield Sheet(
        "DequantizeLinear",
        "Y = Q*S, Q = x - x_zero_point, S = x_scale",
        ("S",),
        abs(Q) * E_S,
        growth(N) * abs(Q) * (abs(S) + E_S) + lost(N),
        SUMS,
        scaled,
        abs(Q) * (abs(S) + E_S) * (1 + growth(N)),
        conditions=(("powers of 2", "A scale 2**k, abs(k) <= 42, without error gives a normal product exactly: 0"),),
    )


def _resize_sheet() -> Sheet:
    """Return the accuracy sheet of Resize along one axis.

    Several axes are taken one after the other, each with the error of the one before.
    """
    d, G, taps = names("d G T")  # noqa: N806
    steps = (
        Quantity(
            "d",
            "what a coordinate may be off by: 2**-20*(slope*(o + 1) + abs(offset) + 1), src = slope*o + offset; "
            "0 if slope is a power of 2 and n*out <= 2**20",
        ),
        Quantity(
            "G", "the largest abs(X[i+1] - X[i]) + E_X[i+1] + E_X[i] of the pieces that src - d .. src + d touches"
        ),
        Quantity("T", "the sum over both cells that are read, unweighted"),
        Quantity("n", "weights, products and sums: 2*axes + 2 + 2**axes", Expr("number", (6,))),
        Quantity("M", "the terms in absolute value", taps(abs(X) + E_X) + d * G),
    )
    return Sheet(
        "Resize",
        "Y = F(X): mode linear, one axis, weights 1 - l and l of the cells beside src",
        ("X",),
        F(E_X),
        d * G + growth(N) * M + lost(N),
        SUMS,
        steps,
        M * (1 + growth(N)),
        conditions=(
            ("nearest", "one cell is copied: 0 where no coordinate within d rounds to another cell; else any of them"),
            ("coordinates", "where d reaches 1/2 nothing is claimed"),
        ),
        promises=("coordinates in float32 or wider, by the programs of rounding.md, Resizing",),
        notes=("Several axes are taken one after the other: the second reads numbers within the error of the first.",),
    )


def _with_quantities(sheet: Sheet, quantities: tuple[Quantity, ...]) -> Sheet:
    """Return the sheet with more quantities before its own."""
    return replace(sheet, steps=(*quantities, *sheet.steps))


def _quotient_sheets() -> Iterable[Sheet]:
    """Yield the sheets of Div and Reciprocal."""
    (largest_divisor,) = names("largest_divisor")
    least = abs(B) - E_B
    size = (abs(A) + E_A) / least
    beyond = where_negative(largest_divisor - abs(B) - E_B, (abs(A) + E_A) * t)
    steps = (
        Quantity("n", "a/b, or a times the rounded 1/b", Expr("number", (2,))),
        Quantity("largest_divisor", "1/(2*t): a larger divisor has a reciprocal that may be subnormal"),
        Quantity("M", "the largest quotient", size),
    )
    yield Sheet(
        "Div",
        "Y = A/B",
        ("A", "B"),
        E_A / least + abs(A) * E_B / (abs(B) * least),
        growth(N) * M + lost(N) + beyond,
        QUOTIENTS,
        steps,
        maximum(abs(A) + E_A, M) * (1 + growth(N)),
        least,
        conditions=(("integers", "of known integers only, truncated towards 0: abs(Y - a/b) < 1, and not < 1/2"),),
    )
    yield Sheet(
        "Reciprocal",
        "Y = 1/B",
        ("B",),
        E_B / (abs(B) * least),
        growth(N) / least + lost(N) + where_negative(largest_divisor - abs(B) - E_B, t),
        QUOTIENTS,
        steps[:2],
        maximum(1, 1 / least) * (1 + growth(N)),
        least,
    )


# --- functions --------------------------------------------------------------------------------------------------------

SCALES = {
    "y": maximum(abs(LOW), abs(HIGH)),
    "1": Expr("number", (1,)),
    "x": abs(X) + E_X,
    "1+y": 1 + maximum(abs(LOW), abs(HIGH)),
}


def _function_sheet(op: Op, text: SheetText, scale: str) -> Sheet:
    """Return the sheet of the function of one cell `op`, with the words `text`.

    Its declared error has this `scale`, a key of SCALES.
    """
    ends = (F(X - E_X), F(X + E_X)) if not text.turning else (None, None)
    at = f" or at its turning point {text.turning}" if text.turning else ""
    steps = (
        Quantity("e", f"the declared error of {op.name}, in units of u"),
        Quantity("LOW", f"the smallest exact value over X - E_X .. X + E_X: at an end{at}", ends[0]),
        Quantity("HIGH", f"the largest exact value there: at an end{at}", ends[1]),
        Quantity("S", f"the scale of e: {_SCALE_WORDS[scale]}", SCALES[scale]),
    )
    own = e * u * S + t
    return Sheet(
        op.names.onnx,
        f"Y = F(X) = {text.formula}",
        ("X",),
        range_change(LOW, HIGH),
        own,
        FUNCTIONS,
        steps,
        declared=op.name,
        conditions=text.conditions,
    )


_SCALE_WORDS = {"y": "the result", "1": "1 (absolute)", "x": "the argument", "1+y": "1 + the result"}


def _function_sheets() -> Iterable[Sheet]:
    """Yield the sheets of functions of one cell: Exp, Log, Gelu, Sin, Pow, LeakyRelu, ..."""
    for op in REGISTRY.values():
        if op.sheet is not None and op.errors is not None:
            yield _function_sheet(op, op.sheet, op.errors.relative_to)
    k, far = names("k L")
    steps = (
        Quantity("e", "the declared error of pow, in units of u"),
        Quantity(
            "k", "abs(p) + 2 for whole p (a chain of products, a reciprocal); else 2*abs(p)*(1 + r) + 2, r that of sqrt"
        ),
        Quantity(
            "L", "0 if 2*p is whole; else abs(p) times the largest abs(log(X)), times 1 + u: the exponent is rounded"
        ),
        Quantity("n", "roundings, or as many units", maximum(e, k) + far),
        Quantity("LOW", "the smallest exact value over X - E_X .. X + E_X: at an end, or 0 at 0"),
        Quantity("HIGH", "the largest exact value there"),
        Quantity("S", "the largest result", maximum(abs(LOW), abs(HIGH))),
    )
    yield Sheet(
        "Pow",
        "Y = X**p, p one known number",
        ("X",),
        range_change(LOW, HIGH),
        growth(N) * S + t,
        FUNCTIONS,
        steps,
        declared="power",
        conditions=(
            ("domain", "X - E_X > 0, or p whole and, if negative, abs(X) - E_X > 0; 0**p = 0 for p > 0 without error"),
            ("excluded", "(1/x)**n for x**-n; 1/x**n where x**n may be below 2*t"),
        ),
    )
    slope = where_negative(X - E_X, u * S + lost(1) + t)
    yield Sheet(
        "LeakyRelu",
        "Y = X if X >= 0, else alpha*X",
        ("X",),
        range_change(LOW, HIGH),
        slope,
        CHOICES,
        (
            Quantity(
                "alpha", "the slope, a number of the format other than 0, 1 and -1 (for those nothing is rounded)"
            ),
            Quantity("LOW", "the smallest exact value over X - E_X .. X + E_X"),
            Quantity("HIGH", "the largest exact value there"),
            Quantity("S", "the largest result", maximum(abs(LOW), abs(HIGH))),
        ),
        notes=('alpha*X is a product and is rounded: "no error" is false.',),
        promises=("one product",),
    )


# --- whole numbers ----------------------------------------------------------------------------------------------------


def _integer_sheets() -> Iterable[Sheet]:
    """Yield the sheets of ConvInteger, MatMulInteger and QuantizeLinear."""
    for name, inputs in (("ConvInteger", "conv"), ("MatMulInteger", "matmul")):
        what = (
            "Y = F(x - x_zero_point, w - w_zero_point), exact" if inputs == "conv" else "Y = F(A - a0, B - b0), exact"
        )
        yield Sheet(name, what, (), ZERO, ZERO, INTEGERS)
    least = abs(S) - E_S
    steps = (
        Quantity("Z", "y_zero_point, whole"),
        Quantity("V", "the exact quotient X/S, S = y_scale", X / S),
        Quantity(
            "E_V",
            "its error: that of Div",
            E_X / least
            + abs(X) * E_S / (abs(S) * least)
            + growth(2) * (abs(X) + E_X) / least
            + lost(2)
            + where_negative(1 / (2 * t) - abs(S) - E_S, (abs(X) + E_X) * t),
        ),
        Quantity("R_LOW", "saturate(round(V - E_V) + Z), ties to even"),
        Quantity("R_HIGH", "saturate(round(V + E_V) + Z)"),
    )
    low, high = names("R_LOW R_HIGH")
    yield Sheet(
        "QuantizeLinear",
        "Y = saturate(round(X/S) + Z), ties to even",
        ("X", "S"),
        range_change(low, high),
        ZERO,
        QUANTISED,
        steps,
        conditions=(
            ("ties", "to even; where V + E_V and V - E_V round to different numbers the cell may be any of them"),
            ("scale", "abs(S) - E_S >= t; a scale 2**k, abs(k) <= 42, makes the quotient exact: E_V = 0"),
        ),
        promises=(
            "round(x/scale) or round(x*(1/scale)), to nearest even, then the zero point, then saturation",
            "no zero point added before rounding, no ties away from 0, no fixed-point multiplier",
        ),
        notes=("Propagated and introduced error cannot be parted: both move the quotient, and round() decides.",),
    )


SHEETS: dict[str, Sheet] = {
    s.operator: s
    for part in (_copy_sheets, _choice_sheets, _sum_sheets, _quotient_sheets, _function_sheets, _integer_sheets)
    for s in part()
} | LAYER_SHEETS
"""By ONNX's name."""
