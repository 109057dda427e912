"""Accuracy sheets of ONNX operators that are several steps (Gemm, means, normalisations, Softmax).

By a step's name D: D is exact, E_D how far an execution's may be, G_D how far errors of the inputs alone move it, C_D
how far what came into the region moves it (roundings of linear steps are counted once, at the end of their region),
S_D the sum of the absolute values of its terms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .expression import Expr, growth, lost, maximum, names
from .families import LAYERS
from .sheet import Quantity, Sheet

A, B, C, D, K, M, P, R, S, V, W, X, Y = names("A B C D K M P R S V W X Y")
E_A, E_B, E_C, E_D, E_S, E_V, E_X = names("E_A E_B E_C E_D E_S E_V E_X")
F, Mean, E_Mean, alpha, beta, e, eps, k, t, u = names("F Mean E_Mean alpha beta e eps k t u")
mean, total, rows, largest_of, sqrt, exp = names("mean total rows top sqrt exp")


def region_error(count: Expr, size: Expr, most: Expr) -> Expr:
    """Return the formula of the rounding error of a fused region: `count` roundings on terms of total size `size`.

    `most` is the largest partial result, which bounds what underflow loses.
    """
    return growth(count) * size + (2 * count + 1) * t * most * (1 + u) ** count


def _gemm_sheet() -> Sheet:
    """Return the accuracy sheet of ONNX's Gemm: formulas of propagated and introduced error."""
    product = F(abs(A), E_B) + F(E_A, abs(B)) + F(E_A, E_B)
    size = abs(alpha) * F(abs(A) + E_A, abs(B) + E_B) + abs(beta) * (abs(C) + E_C)
    steps = (
        Quantity("F", "the product of two matrices, transposed as transA and transB say"),
        Quantity("K", "the length of the sum"),
        Quantity("R", "K + 3 with C, K + 4 if alpha or beta is not 1; K alone, without C and with alpha = 1"),
        Quantity(
            "P", "the largest partial result, each factor f as max(1, abs(f)): at most 2*(K + 1) times their product"
        ),
        Quantity("M", "the terms in absolute value", size),
    )
    return Sheet(
        "Gemm",
        "Y = alpha*F(A, B) + beta*C",
        ("A", "B", "C"),
        abs(alpha) * product + abs(beta) * E_C,
        region_error(R, M, P),
        LAYERS,
        steps,
        P * (1 + u) ** R,
        notes=("Without C and with alpha = 1 it is MatMul: n = K, and underflow costs lost(K).",),
    )


def _mean_sheets() -> Iterable[Sheet]:
    """Yield the sheets of ReduceMean and GlobalAveragePool."""
    steps = (
        Quantity("k", "cells of one mean; 2 or more"),
        Quantity("R", "a sum, its quotient, and every way of merging them", k + 2),
        Quantity("P", "k times the largest of 1 and abs(X) + E_X over all cells"),
        Quantity("M", "the mean of absolute values", F(abs(X) + E_X)),
    )
    for name in ("ReduceMean", "GlobalAveragePool"):
        yield Sheet(
            name, "Y = F(X): the mean over axes", ("X",), F(E_X), region_error(R, M, P), LAYERS, steps, P * (1 + u) ** R
        )


def _sqrt_error(value: Expr, error: Expr, own: bool) -> Expr:
    """Return the formula of the error of sqrt(value), given that of value; `own` adds the error of sqrt itself."""
    moved = maximum(sqrt(value + error) - sqrt(value), sqrt(value) - sqrt(value - error))
    return moved + e * u * sqrt(value + error) + t if own else moved


def _quotient_change(c_a: Expr, a: Expr, b: Expr, e_b: Expr) -> Expr:
    """Return the formula of how far a/b changes at most if a changes by c_a and b, which is positive, by e_b < b."""
    return c_a / (b - e_b) + abs(a) * e_b / (b * (b - e_b))


def _batch_norm_sheet() -> Sheet:
    """Return the accuracy sheet of ONNX's BatchNormalization: formulas of propagated and introduced error."""
    variance = V + eps
    c_x = E_X + E_Mean
    least_divisor = D - E_D

    def propagated_by(e_d: Expr) -> Expr:
        """Return the error of Y due to errors of the inputs, if the divisor D has the error `e_d`."""
        c_k = _quotient_change(E_S, S, D, e_d)
        return c_x * abs(S) / D + (abs(X - Mean) + c_x) * c_k + E_B

    g_d, q, size = names("G_D Q M")
    steps = (
        Quantity("V", "input_var; eps = epsilon, S = scale, Mean = input_mean"),
        Quantity("e", "the declared error of sqrt, in units of u"),
        Quantity("D", "sqrt(V + eps), exact", sqrt(variance)),
        Quantity("G_D", "how far E_V moves D", _sqrt_error(variance, E_V, own=False)),
        Quantity("Q", "the error of V + eps", E_V + u * (variance + E_V) + lost(1)),
        Quantity("E_D", "the error of D", _sqrt_error(variance, q, own=True)),
        Quantity("R", "a difference, a product, a quotient in the factor, a sum", Expr("number", (5,))),
        Quantity(
            "P", "the largest partial result, each factor f as max(1, abs(f)), each divisor c as max(1, 1/abs(c))"
        ),
        Quantity(
            "M",
            "the terms in absolute value",
            (abs(X) + E_X + abs(Mean) + E_Mean) * (abs(S) + E_S) / least_divisor + abs(B) + E_B,
        ),
    )
    propagated = propagated_by(g_d)
    return Sheet(
        "BatchNormalization",
        "Y = (X - Mean)*S/sqrt(V + eps) + B, per channel (inference)",
        ("X", "S", "B", "Mean", "V"),
        propagated,
        propagated_by(E_D) - Expr("name", ("propagated",)) + region_error(R, size, P),
        LAYERS,
        steps,
        P * (1 + u) ** R,
        declared="sqrt",
        divisor=least_divisor,
        conditions=(("domain", "V + eps - its error > 0; S30: epsilon > 0, input_var >= 0"),),
        notes=(
            "M has abs(X) + abs(Mean), not abs(X - Mean): runtimes fold S/sqrt(V + eps) into a convolution before, or "
            "compute X*a + b, and both lose digits where X is near a large mean.",
        ),
    )


def _softmax_sheet() -> Sheet:
    """Return the accuracy sheet of ONNX's Softmax: formulas of propagated and introduced error."""
    Xm, E_m, d, E_d, G_d, z, E_z, G_z, s, E_s, G_s = names("m E_m d E_d G_d z E_z G_z s E_s G_s")  # noqa: N806
    shift_error = E_X + E_m

    def exp_change(error: Expr) -> Expr:
        """Return the formula of how far exp(d) changes if d changes by `error`."""
        return maximum(exp(d + error) - exp(d), exp(d) - exp(d - error))

    steps = (
        Quantity("k", "cells along the axis; 2 or more"),
        Quantity("m", "the largest cell along the axis", largest_of(X)),
        Quantity("E_m", "its error", maximum(largest_of(X + E_X) - Xm, Xm - largest_of(X - E_X))),
        Quantity("d", "X - m, exact", X - Xm),
        Quantity("G_d", "how far errors of X move it", shift_error),
        Quantity("E_d", "its error: that of Sub", shift_error + u * (abs(d) + shift_error) + lost(1)),
        Quantity("e", "the declared error of exp, in units of u"),
        Quantity("z", "exp(d), exact", exp(d)),
        Quantity("G_z", "how far errors of X move it", exp_change(G_d)),
        Quantity("E_z", "its error: that of Exp", exp_change(E_d) + e * u * exp(d + E_d) + t),
        Quantity("s", "the sum of z along the axis, exact", total(z)),
        Quantity("G_s", "how far errors of X move it", total(G_z)),
        Quantity("E_s", "its error: that of ReduceSum", total(E_z) + growth(k - 1) * total(z + E_z) + lost(k - 1)),
        Quantity("R", "of a quotient; E_s holds what the sum met", Expr("number", (2,))),
        Quantity(
            "P", "the largest partial result, each factor f as max(1, abs(f)), each divisor c as max(1, 1/abs(c))"
        ),
        Quantity("M", "the largest quotient", (z + E_z) / (s - E_s)),
    )
    return Sheet(
        "Softmax",
        "Y = exp(X - m)/sum(exp(X - m)), m the largest cell along the axis",
        ("X",),
        _quotient_change(G_z, z, s, G_s),
        _quotient_change(E_z, z, s, E_s) - Expr("name", ("propagated",)) + region_error(R, M, P),
        LAYERS,
        steps,
        declared="exp",
        divisor=s - E_s,
        conditions=(
            ("infinities", "a slice with +inf, or of -inf alone, is outside: NaN in ONNX Runtime and PyTorch"),
            ("shift", "without the shift by m, exp overflows from 88.8 on: such an algorithm is outside"),
            ("wider", "radii by node, which know that cells are shares of one sum, are narrower"),
        ),
        promises=("exponents are shifted by the largest cell",),
    )


def _layer_norm_sheet() -> Sheet:
    """Return the accuracy sheet of ONNX's LayerNormalization: formulas of propagated and introduced error."""
    c, C_c, S_c, Q, E_Q, G_Q, G_D, y, C_y, G_y = names("c C_c S_c Q E_Q G_Q G_D y C_y G_y")  # noqa: N806

    def square_change(reach: Expr) -> Expr:
        """Return the formula of how far mean(c*c) changes if every c changes by `reach`."""
        return mean(abs(c) * reach + (abs(c) + reach) * reach)

    def scale_and_shift(reach: Expr) -> Expr:
        """Return the formula of the error of y*S + B if y changes by `reach`."""
        return reach * abs(S) + (abs(y) + reach) * E_S + E_B

    steps = (
        Quantity("k", "cells that are normalised together; 2 or more. mean(..) is the exact mean over them"),
        Quantity("c", "X - mean(X), exact", X - mean(X)),
        Quantity("C_c", "how far errors of X move it", E_X + mean(E_X)),
        Quantity("S_c", "its terms in absolute value: k + 4 roundings", abs(X) + E_X + mean(abs(X) + E_X)),
        Quantity("Q", "mean(c*c) + eps, exact", mean(c * c) + eps),
        Quantity("G_Q", "how far errors of X move it", square_change(C_c)),
        Quantity(
            "P", "the largest partial result, each factor f as max(1, abs(f)), each divisor c as max(1, 1/abs(c))"
        ),
        Quantity("E_Q", "its error: 3*k + 13 roundings", G_Q + region_error(3 * k + 13, mean(S_c * S_c) + eps, P)),
        Quantity("e", "the declared error of sqrt, in units of u"),
        Quantity("D", "sqrt(Q), exact", sqrt(Q)),
        Quantity("G_D", "how far errors of X move it", _sqrt_error(Q, G_Q, own=False)),
        Quantity("E_D", "its error: that of Sqrt", _sqrt_error(Q, E_Q, own=True)),
        Quantity("y", "c/D, exact", c / D),
        Quantity("G_y", "how far errors of X move it", _quotient_change(C_c, c, D, G_D)),
        Quantity("C_y", "how far errors of X and of D move it", _quotient_change(C_c, c, D, E_D)),
        Quantity("R", "of c, a quotient, a product, a sum", k + 8),
        Quantity("M", "the terms in absolute value", S_c / (D - E_D) * (abs(S) + E_S) + abs(B) + E_B),
    )
    return Sheet(
        "LayerNormalization",
        "Y = (X - mean(X))/sqrt(mean((X - mean(X))**2) + eps)*S + B, S = Scale",
        ("X", "S", "B"),
        scale_and_shift(G_y),
        scale_and_shift(C_y) - Expr("name", ("propagated",)) + region_error(R, M, P),
        LAYERS,
        steps,
        declared="sqrt",
        divisor=D - E_D,
        conditions=(
            ("domain", "Q - E_Q > 0: where a large mean hides the variance nothing is claimed"),
            ("wider", "radii, which know that all cells share one mean and that no square is negative, are narrower"),
        ),
        promises=("two passes: one-pass variances E[x^2] - E[x]^2 and running (Welford) ones are outside",),
    )


def _mean_sheet() -> Sheet:
    """Return the accuracy sheet of ONNX's Mean, for two inputs A and B."""
    steps = (
        Quantity("R", "a sum of two, its quotient, and every way of merging them", Expr("number", (4,))),
        Quantity("P", "2 times the largest of 1, abs(A) + E_A and abs(B) + E_B"),
        Quantity("M", "the terms in absolute value", (abs(A) + E_A + abs(B) + E_B) / 2),
    )
    made = Sheet(
        "Mean", "Y = (A + B)/2", ("A", "B"), (E_A + E_B) / 2, region_error(R, M, P), LAYERS, steps, P * (1 + u) ** R
    )
    return replace(made, notes=("Of k inputs, k for 2: R is k + 2.",))


LAYER_SHEETS: dict[str, Sheet] = {
    s.operator: s
    for s in (_gemm_sheet(), *_mean_sheets(), _mean_sheet(), _batch_norm_sheet(), _softmax_sheet(), _layer_norm_sheet())
}
"""By ONNX's name."""
