"""Slack factors of the rounding rules and of bounds for our own float64 errors, each with what it covers and why it
suffices.

docs/reference/rounding.md derives them in context, and lists the constants that are facts of functions or declared
errors. A slack that stands anywhere else is a mistake that tests/rounding/test_ledger.py finds.
"""

from __future__ import annotations

from typing import Any

U = 2.0**-53
"""The unit roundoff of float64, which all of our own numbers are computed in."""

LEAST = 5e-324
"""The smallest float64: one step where numbers are subnormal, and a product with OUTWARD would vanish."""

OUTWARD = 2.0**-52
"""abs(x)*OUTWARD + LEAST is at least one step at x: x lies in [2**e, 2**(e+1)) with steps of 2**(e-52), so it is one to
two of them. A sum that was rounded to x differs from it by half a step at most."""

GROWTH = 1 + 1e-12
"""expm1(t), t = n*log1p(u), in float64: log1p within 8 units and a product move t by 9 units, and the result by t + 1
times as much; expm1 itself by 8: (9*t + 17)*U, and t < 710, so 6,400 units. 1e-12 is 9,007."""

SLACK = 1 + 2.0**-40
"""8,192 roundings, down, of a number >= 0 that is made by sums, products and quotients of such numbers. It stands
behind expressions of a few dozen operations; where sums may be long, `long_slack` or SUMS stands."""

NEAR = 2.0**-40
"""What a fixed-point number's float may be off by, relative to the number: Horner's rule meets 2 roundings per digit,
of partial results that are at most 3 times the number, since digits are balanced: 200 digits, 1,200 units of 8,192."""

SUMS = 1 + 1e-6
"""9e9 roundings of a sum of errors >= 0: more terms than a machine holds."""

REFERENCE_ULPS = 8
"""Units of U that NumPy's and PyTorch's float64 functions are assumed to err by, on the scale of the declared bound.
Measured, not proven: see benchmarks/ulps.txt, column float64."""

SPREAD = 64
"""Units of U, times the units of error of a weighted sum, that the difference of two such sums may lose: each term has
one exponential (8), an exponent with 3 roundings, a product, and the sum; twice, for two sums."""

DEEPEST = 65.0
"""How far below its plane's maximum, times beta, a window may lie for an algorithm that shifts by that maximum: then
exp(-65) = 6e-29 is normal in float32, with room for 2**30 taps. An algorithm that shifts further is not correct here;
formats with less range than float32 must shift by the window's own maximum."""

ALL_ORDERS = 4
"""Smooth maxima: with s the error of first order, s*exp(4*s) covers all orders; see docs/reference/rounding.md."""

OWN = 128
"""Roundings of ours that a term of a layer meets besides sums over its cells, twice, and over nodes: slopes, offsets,
middles and products, fewer than 30 in any layer."""

UNDERFLOW = 1e-250
"""What our own underflow can cost a linear bound: 2**-1074 per operation, times a value of the network: for 1e10
operations and values up to MOST, 8e-254."""

MOST = 2.0**200
"""1.6e60: of networks with larger values linear bounds claim nothing. Float32 values are below 4e38."""

COORDINATE = 2.0**-20
"""16 units of float32, times the terms of a resized axis' coordinate. Its step meets two roundings at most (a quotient,
a reciprocal), then a product or quotient and a sum; centring adds two roundings and a sum, of terms up to n: 7 units at
most, and 14 where results are rounded either way."""

MIDDLE = 1 + 8 * U
"""A radius (high - low)/2, or the larger distance from a rounded middle: 3 roundings."""

PHASE = 16 * U
"""Times 1 + abs(t), t = (x - point)/(2*pi) turns: of a point up to 3*pi/2, whose float is off by 2 units, and of 2*pi,
off by one, a difference, a quotient and the sum with this slack: 6 units of 1 + abs(t) at most."""

LINE = 16 * U
"""Offsets of lines and of gaps, relative to the sizes that they are made of: 6 roundings per term at most, and 8 units
of a function's value."""

GRID_GAP = 1 + 1e-9
"""Two neighbours of a grid low + share*(high - low), beside 4*U*size for the last sum: 6 roundings of the width."""

RANGE = 64 * U
"""The ends of a deployed and of an exact range, computed alike and subtracted, so that what is left is the runtime's
error: four ends, each moved outward by up to 4 units of its size."""

SMOOTH_LINE = 64 * U
"""Times (1 + taps)**2: a plane of a smooth maximum evaluates it once per tap, each time within (taps + 20)*U."""

SOFTMAX = 32 * U
"""Times (taps + 8): lines of a softmax are sums over its taps of exponentials (8 units), their chords and offsets, each
of a few operations, relative to the sizes that are added: (taps + 24) units at most, twice where a slope is rounded."""

SHARES = 4 * U
"""Times (taps + 8): sums of shares and of p*log(p), with log within REFERENCE_ULPS units."""

CORNER = 1 + 1e-9
"""The product of two radii, a sum of up to 9e6 terms."""

PIECES = 8 * U
"""Times (positions + channels + cells + 32): the sums over each of them, and what a piece's lines are made of."""

WEIGHTED = 8 * U
"""Times (rows + 4): rows of an alternative summed with weights, and their targets likewise: a product and a sum per
row, once each, and the two differences behind them."""


FAR_BELOW = 2.0**-40
"""What is added to an infinity is at most this share of the largest number, so that in a region of 2**40 nodes nothing
else overflows, and the sum is that infinity in any order."""

SINGLE = 2.0**-24
"""The unit roundoff of float32, in which objectives of hidden cells may go back through a large convolution. What they
lose by it is charged as our float64 roundings are, by SINGLE for U."""

SINGLE_OWN = 8
"""Roundings of ours beside the sum of a float32 convolution: the objective and the weights are rounded to float32, and
multiplied; back in float64, OWN and the sums over cells are far below one more."""

SINGLE_FLUSH = 2.0**-125
"""Twice what a float32 operation can lose below its normal numbers, where runtimes may count those as zero."""


def long_slack(count: Any) -> Any:
    """Return SLACK for a number >= 0 whose terms have met `count` roundings, each of 4 expressions of that length.

    >>> long_slack(0) > SLACK
    True
    """
    return SLACK * (1 + 4 * (count + 8) * U)
