"""Families of operators that follow one rounding rule: fused executions, conditions, promises, sources."""

from __future__ import annotations

from .sheet import Family

RULES = "[rounding.md](../reference/rounding.md)"
CLASSES = "[executions.md](../reference/executions.md)"
REGION = (
    "it joins the region of linear operators around it. The region has one error, at its outputs: "
    "`growth(R)*M + (2*R + 1)*t*P*(1 + u)**R` behind what comes in, with M the region on absolute values, R the most "
    "roundings that one term can meet, P the region with every factor f as max(1, abs(f)). An operator whose inputs "
    f"and result are stored is a region of its own: R = n, and the formula above holds. Proof: {CLASSES}."
)
CUT = (
    "it ends a region: the formula is the same in both classes. What it reads may have been recomputed for this "
    f"reader, within the error of the value that is read ({CLASSES})."
)
NAN = ("NaN, infinities", "nothing is claimed of a cell that reads a NaN or an infinity; formulas are for numbers")
ANY_ORDER = "any order of the sum, any blocking, with or without fused multiply-add"
WIDE = "accumulators of the format or wider: no float16 or bfloat16 sums, no TF32 or half-precision factors for float32"
DIRECT = "direct sums: Winograd, FFT and Strassen cancel, and are outside"
NEAREST = "every operation rounds to nearest; other modes double u"
FLUSH = "subnormal operands and results may be kept or taken as 0"

COPIES = Family(
    "copies",
    "it is layout: it belongs to the region around it and adds no rounding to it (R does not grow).",
    (
        ("overflow", "cannot happen"),
        ("underflow", "a subnormal number may be stored as 0, which the loss `stored` covers"),
        ("NaN, infinities", "are copied"),
        ("ties", "there are none"),
    ),
    ("cells are copied bit for bit, up to the sign of zero", FLUSH),
    f"Nothing is computed. {RULES}, One operation.",
)
CHOICES = Family(
    "choices",
    CUT,
    (
        ("overflow", "cannot happen"),
        ("underflow", "a subnormal number may be stored as 0, which the loss `stored` covers"),
        NAN,
        ("ties", "of equal cells either may be taken: the number is the same, and so is the bound"),
    ),
    ("the result is one of the numbers compared, up to the sign of zero", FLUSH),
    f"The result is one of its inputs, and never decreases in any: so it lies between those of both ends. {RULES}.",
)
SUMS = Family(
    "sums",
    REGION,
    (
        ("overflow", "nothing is claimed where the number under *fits* exceeds the largest of the format"),
        ("underflow", "counted: lost(n) covers gradual underflow and flushing of every product and partial sum"),
        NAN,
        ("ties", "any rule of ties; roundings are bounded by u either way"),
    ),
    (ANY_ORDER, WIDE, DIRECT, NEAREST, FLUSH),
    f"Proven: {CLASSES}, Theorem, and {RULES}, Sums. No constant is measured.",
)
QUOTIENTS = Family(
    "quotients",
    "by a computed B it ends a region, and the formula is the same; by a constant, " + REGION,
    (
        ("overflow", "nothing is claimed where the number under *fits* exceeds the largest of the format"),
        ("underflow", "counted; a reciprocal of abs(B) above 1/(2*t) may be subnormal, which costs (abs(A) + E_A)*t"),
        ("division by 0", "nothing is claimed unless abs(B) - E_B >= t"),
        NAN,
        ("ties", "any rule of ties"),
    ),
    ("a/b correctly rounded, or a times the rounded 1/b", NEAREST, FLUSH),
    f"Proven: two roundings. {RULES}, Sums.",
)
FUNCTIONS = Family(
    "functions",
    CUT,
    (
        ("overflow", "nothing is claimed where abs(Y) + total exceeds the largest of the format"),
        ("underflow", "below t nothing is asked of the library: the term t"),
        NAN,
        ("ties", "any rule of ties: e bounds the whole error of the library"),
    ),
    ("an error of at most e units of u, on the scale that the table names", "below t, an error of at most t", FLUSH),
    "e is declared, from measurement (`benchmarks/ulps.txt`, `benchmarks/runtime_ulps.txt`), not proven: no standard "
    f"rounds these functions. The propagated error is proven: the range over X - E_X .. X + E_X. {RULES}, Functions.",
)
INTEGERS = Family(
    "integers",
    "the same: nothing is merged across a change of format.",
    (
        ("overflow", "nothing is claimed where the sum of absolute values reaches 2**31: sums may be wrapped"),
        ("underflow", "cannot happen"),
        ("NaN, infinities", "there are none"),
        ("ties", "there are none"),
    ),
    ("sums in int32 or wider, in any order", "padding counts as the zero point: it adds 0 to the sum"),
    f"Proven: partial sums are whole and below 2**31. {RULES}, Whole numbers.",
)
LAYERS = Family(
    "layers",
    "the same, for a layer whose inputs are stored. It is one node of the file and several steps: by node they are "
    "merged and only the result is stored; fused, its linear steps join the regions of the linear operators around it, "
    f"whose error is that of the region: `growth(R)*M + (2*R + 1)*t*P*(1 + u)**R`. Proof: {CLASSES}.",
    (
        ("overflow", "nothing is claimed where a partial result of any step may exceed the largest of the format"),
        ("underflow", "counted, (2*R + 1)*t*P*(1 + u)**R per region; of no weight beside the rest for numbers near 1"),
        NAN,
        ("ties", "any rule of ties"),
    ),
    (ANY_ORDER, WIDE, NEAREST, FLUSH),
    f"Proven from its steps: {CLASSES}, Theorem, and {RULES}; errors of functions among them are declared.",
)
QUANTISED = Family(
    "quantised numbers",
    "the same: nothing is merged across a change of format.",
    (
        ("overflow", "saturated: no result leaves the range of its type"),
        ("underflow", "a quotient that is lost rounds to 0 as it would have"),
        ("NaN, infinities", "nothing is claimed; the texts leave them to implementations"),
    ),
    (NEAREST,),
    f"Proven: rounding is monotone, so the cell lies between those of the quotient's ends. {RULES}, Whole numbers.",
)
