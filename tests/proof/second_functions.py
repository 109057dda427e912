"""Functions as the second checker of certificates knows them: enclosures by series over fractions, lines and planes by
docs/reference/certificate-curves.md. No line of ours. See second_checker.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from second_network import LARGEST, ONE, ZERO, Node, down, require, up

PLACES = 80  # binary places of results
ROOM, WRONG = 150, 1 << 10  # binary places of series, and units that they may be off by
Pair = tuple[Fraction, Fraction]
DECLARED = ("exp", "tanh", "sigmoid", "hardswish")


# --- enclosures -------------------------------------------------------------------------------------------------------


@cache
def exp(x: Fraction) -> Pair:
    """exp(x) = exp(x/2^k)^(2^k), where abs(x)/2^k <= 1/2, in whole numbers over 2^ROOM."""
    require(x < 1 << 12, "exp of a huge number")
    if x < -(1 << 12):
        return ZERO, Fraction(1, 1 << PLACES)
    k = math.ceil(abs(x)).bit_length() + 1
    low, high = math.floor(x * 2 ** (ROOM - k)), math.ceil(x * 2 ** (ROOM - k))
    least, most = _series(low) - WRONG, _series(high) + WRONG
    for _ in range(k):
        least, most = least * least >> ROOM, -(-most * most >> ROOM)
    return max(ZERO, down(Fraction(least, 1 << ROOM), PLACES)), up(Fraction(most, 1 << ROOM), PLACES)


def _series(x: int) -> int:
    """40 terms of exp; each is off by at most 2 units, and what follows is less than one."""
    term = total = 1 << ROOM
    for n in range(1, 40):
        term = (term * x >> ROOM) // n
        total += term
    return total


@cache
def log(x: Fraction) -> Pair:
    """log(m*2^e) = e*log(2) + 2*atanh((m - 1)/(m + 1)), m from 2/3 to 4/3."""
    require(x > 0, "log of what is not positive")
    e = x.numerator.bit_length() - x.denominator.bit_length()
    m = x / Fraction(2) ** e
    while m > Fraction(4, 3):
        m, e = m / 2, e + 1
    while m < Fraction(2, 3):
        m, e = m * 2, e - 1
    two, own = _atanh(Fraction(1, 3)), _atanh((m - 1) / (m + 1))  # log(2) = 2*atanh(1/3)
    whole = sorted((2 * e * two[0], 2 * e * two[1]))
    return down(whole[0] + 2 * own[0], PLACES), up(whole[1] + 2 * own[1], PLACES)


def _atanh(x: Fraction) -> Pair:
    """50 terms x^(2n+1)/(2n+1) for abs(x) <= 1/3: each off by at most 2 units, and what follows is less than one."""
    low, high = math.floor(x * 2**ROOM), math.ceil(x * 2**ROOM)

    def series(v: int) -> int:
        power, square, total = v, v * v >> ROOM, 0
        for n in range(50):
            total += power // (2 * n + 1)
            power = power * square >> ROOM
        return total

    return Fraction(series(low) - WRONG, 1 << ROOM), Fraction(series(high) + WRONG, 1 << ROOM)


def _shortened(low: Fraction, high: Fraction) -> Pair:
    return down(low, PLACES), up(high, PLACES)


@cache
def sigmoid(x: Fraction) -> Pair:
    low, high = exp(-abs(x))
    return _shortened(1 / (1 + high), 1 / (1 + low)) if x >= 0 else _shortened(low / (1 + low), high / (1 + high))


def tanh(x: Fraction) -> Pair:
    low, high = sigmoid(2 * x)
    return 2 * low - 1, 2 * high - 1


def sigmoid_slope(x: Fraction) -> Pair:
    """z/(1 + z)^2 with z = exp(-abs(x)), which rises with z up to 1."""
    low, high = (min(ONE, z) for z in exp(-abs(x)))
    return _shortened(low / (1 + low) ** 2, high / (1 + high) ** 2)


def tanh_slope(x: Fraction) -> Pair:
    low, high = sigmoid_slope(2 * x)
    return 4 * low, 4 * high


# --- functions of one cell --------------------------------------------------------------------------------------------


class Curve:
    """f, f' on piece k, where pieces end, and how they bend: 1 convex, -1 concave, 0 straight."""

    def __init__(self, node: Node) -> None:
        op, p = node.op, node.params
        self.breakpoints: list[Fraction] = []
        self.signs, same = [0], lambda v: (v, v)
        slopes: list[Fraction] = []
        if op == "exp":
            self.value, self.slope, self.signs = exp, lambda x, k: exp(x), [1]
        elif op in ("tanh", "sigmoid"):
            f, d = (tanh, tanh_slope) if op == "tanh" else (sigmoid, sigmoid_slope)
            self.value, self.slope, self.signs, self.breakpoints = f, lambda x, k: d(x), [1, -1], [ZERO]
        elif op == "hardswish":
            self.value = lambda x: same(x * min(max(x + 3, ZERO), Fraction(6)) / 6)
            self.slope = lambda x, k: same((ZERO, (2 * x + 3) / 6, ONE)[k])
            self.signs, self.breakpoints = [0, 1, 0], [Fraction(-3), Fraction(3)]
        elif op in ("leaky_relu", "abs"):
            steep = Fraction(p["slope"]) if op == "leaky_relu" else -ONE
            self.value, slopes, self.breakpoints = lambda x: same(x if x > 0 else x * steep), [steep, ONE], [ZERO]
        else:
            low, high = (0, 6) if op == "relu6" else (p["low"], p["high"])
            ends = [None if e is None else Fraction(e) for e in (low, high)]
            self.value = lambda x: same(_clamped(x, *ends))
            self.breakpoints = [e for e in ends if e is not None]
            require(self.breakpoints == sorted(self.breakpoints), "a clamp whose limits are in the wrong order")
            slopes = [ZERO] * (low is not None) + [ONE] + [ZERO] * (high is not None)
        if slopes:
            self.slope, self.signs = lambda x, k: same(slopes[k]), [0] * len(slopes)
        self.is_piecewise_linear = not any(self.signs)

    def pieces(self, low: Fraction, high: Fraction) -> list[tuple[Fraction, Fraction, int]]:
        borders = [low, *self.breakpoints, high]
        found = []
        for k in range(len(self.signs)):
            p, q = max(low, borders[k]), min(high, borders[k + 1] if k < len(self.breakpoints) else high)
            if p <= q and (k == 0 or borders[k] <= high):
                found.append((p, q, k))
        return found

    def least(self, low: Fraction, high: Fraction, s: Fraction, sign: int, first: Fraction | None = None) -> Fraction:
        """A lower bound of sign*f(x) - s*x on low..high; first: where a tangent may have this slope."""
        return min(self._least(p, q, k, s, sign, first) for p, q, k in self.pieces(low, high))

    def _at(self, x: Fraction, s: Fraction, sign: int) -> Fraction:
        low, high = self.value(x)
        return (low if sign > 0 else -high) - s * x

    def _least(self, p: Fraction, q: Fraction, k: int, s: Fraction, sign: int, first: Fraction | None) -> Fraction:
        if self.signs[k] * sign <= 0:
            return min(self._at(p, s, sign), self._at(q, s, sign))
        a, b, bounds = p, q, []
        tries = [first, p, q] if first is not None and p <= first <= q else [p, q]
        for n in range(24):
            t = tries[n] if n < len(tries) else min(max(down((a + b) / 2, 60), p), q)
            steep = sorted(sign * d for d in self.slope(t, k))
            least, most = steep[0] - s, steep[1] - s
            sunk = max(most * (t - a), -least * (b - t), ZERO)
            bounds.append(self._at(t, s, sign) - sunk)
            if sunk < Fraction(1, 1 << 40):
                break
            if least >= 0:
                b = min(b, t)
            elif most <= 0:
                a = max(a, t)
            else:
                break
            if a >= b:
                break
        return max(bounds)

    def image(self, low: Fraction, high: Fraction) -> Pair:
        return self.least(low, high, ZERO, 1), -self.least(low, high, ZERO, -1)

    def steepest(self, low: Fraction, high: Fraction) -> Fraction:
        return max(abs(d) for p, q, k in self.pieces(low, high) for x in (p, q) for d in self.slope(x, k))

    def line(self, low: Fraction, high: Fraction, side: int, given: int | None) -> Pair:
        """Slope and intercept below (-1) or above (1) f: as a file asks, or one of some that is best at the middle."""
        if given is not None:
            slopes = [self._asked(low, high, given)]
        else:
            points = [low + (high - low) * Fraction(n, 8) for n in range(9)]
            slopes = [(ZERO, None)] + [(_short(self.slope(x, self._piece(x))[0]), x) for x in points]
            slopes += [(_short((self.value(high)[0] - self.value(low)[0]) / (high - low)), None)] if low < high else []
        middle = (low + high) / 2
        lines = [(s, -side * self.least(low, high, -side * s, -side, x)) for s, x in dict.fromkeys(slopes)]
        return min(lines, key=lambda line: side * (line[0] * middle + line[1]))

    def _asked(self, low: Fraction, high: Fraction, k: int) -> tuple[Fraction, Fraction | None]:
        """The slope that a file asks for, and the point whose tangent has it."""
        if self.is_piecewise_linear:
            return Fraction(k, 1024), None
        require(-1 <= k <= 1024, "a point of a curve is not from -1 to 1024")
        if k == -1:
            chord = ZERO if low == high else _short((self.value(high)[0] - self.value(low)[0]) / (high - low))
            return chord, None
        x = low + (high - low) * Fraction(k, 1024)
        return _short(self.slope(x, self._piece(x))[0]), x

    def _piece(self, x: Fraction) -> int:
        return sum(b < x for b in self.breakpoints)


def _clamped(x: Fraction, low: Fraction | None, high: Fraction | None) -> Fraction:
    x = x if low is None else max(x, low)
    return x if high is None else min(x, high)


def _short(x: Fraction) -> Fraction:
    return down(x, 48)


def curve_error(node: Node, arithmetic: Any, unit: Fraction, x: Fraction, y: Fraction) -> Fraction:
    """What a computed value is off by, for the largest absolute values x that it reads and y that it has."""
    lost = Fraction(1, 1 << 60)
    if node.op == "leaky_relu":
        slope = abs(Fraction(node.params["slope"]))
        return lost + (ZERO if slope in (0, 1) else slope * x * unit * (2 + unit))
    if node.op not in DECLARED:
        return lost + max([abs(Fraction(v)) * unit for v in node.params.values() if v is not None], default=ZERO)
    if node.op == "hardswish":
        require(6 * x <= LARGEST, "hardswish may overflow")
    units, kind = declared(arithmetic, node.op)
    return lost + units * unit * {"y": y, "1": ONE, "x": x, "1+y": 1 + y}[kind]


def declared(arithmetic: Any, name: str) -> tuple[Fraction, str]:
    require(name in arithmetic.get("functions", {}), f"the error of {name} is not declared")
    units, kind = arithmetic["functions"][name]
    return Fraction(units), kind


# --- smooth maxima ----------------------------------------------------------------------------------------------------


def smooth_value(x: Sequence[Fraction], padded: int, beta: Fraction) -> Pair:
    """y for beta > 0."""
    if not x and not padded:
        return ZERO, ZERO
    top = max([*x, *([ZERO] * (padded > 0))])
    terms = [exp(down(beta * (v - top), 80)) for v in x], [exp(up(beta * (v - top), 80)) for v in x]
    rest = [padded * exp(end(-beta * top, 80))[n] if padded else ZERO for n, end in enumerate((down, up))]
    low, high = (sum((t[n] for t in terms[n]), rest[n]) for n in (0, 1))
    return top + log(down(low, 80))[0] / beta, top + log(up(high, 80))[1] / beta


Plane = tuple[list[Fraction], Fraction]  # slopes, intercept


def smooth_planes(
    low: Sequence[Fraction], high: Sequence[Fraction], padded: int, beta: Fraction
) -> tuple[Plane, Plane]:
    """Below and above."""
    if beta < 0:
        below, above = smooth_planes([-v for v in high], [-v for v in low], padded, -beta)
        return (above[0], -above[1]), (below[0], -below[1])
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    y = smooth_value(middle, padded, beta)[1]
    shares = [down(max(ZERO, exp(down(beta * (v - y), 80))[0]), 20) for v in middle]
    rest = 1 - sum(shares, ZERO)
    if shares and not padded:
        shares[shares.index(max(shares))] += rest
        rest = ZERO
    entropy = sum((-p * log(p)[1] for p in shares if p > 0), ZERO)
    entropy -= rest * log(rest / padded)[1] if padded and rest > 0 else ZERO
    above = [_from_corner(*ends, padded, beta, sign) for ends, sign in (((high, low), 1), ((low, high), -1))]
    height = lambda plane: sum((s * m for s, m in zip(plane[0], middle, strict=True)), plane[1])
    return (shares, entropy / beta), min(above, key=height)


def _from_corner(start: Sequence[Fraction], other: Sequence[Fraction], padded: int, beta: Fraction, sign: int) -> Plane:
    base, slopes, rest = smooth_value(start, padded, beta), [], ZERO
    intercept = base[1]
    for t, (a, b) in enumerate(zip(start, other, strict=True)):
        moved = smooth_value([*start[:t], b, *start[t + 1 :]], padded, beta)
        change = base[0] - moved[1] if sign > 0 else moved[1] - base[0]
        width = sign * (a - b)
        s = min(max(down(change / width, 20), ZERO), ONE) if width > 0 else ZERO
        slopes.append(s)
        rest += max(sign * (s * width - change), ZERO)
        intercept -= s * a
    return slopes, intercept + rest


def smooth_error(node: Node, arithmetic: Any, unit: Fraction, cell: int, read: Sequence[Pair], y: Fraction) -> Fraction:
    """Of one window, for ends of all values that are read and the largest abs(y)."""
    (e_exp, kind), (e_log, other) = declared(arithmetic, "exp"), declared(arithmetic, "log")
    require(kind == other == "y", "errors of exp and log must be relative to their results")
    beta, k = Fraction(node.params["beta"]), node.all_taps
    b, taps, zero = abs(beta), node.taps[cell], node.params["padded"] == "zero" and node.pads
    turned = [pair if beta > 0 else (-pair[1], -pair[0]) for pair in read]
    plane = math.prod(node.plane)
    first = cell // math.prod(node.shape[-len(node.plane) :]) * plane
    top = max([hi for _, hi in turned[first : first + plane]] + [ZERO] * bool(zero))
    lowest = [turned[c][0] for _, c in taps] + [ZERO] * (node.params["padded"] == "zero" and len(taps) < k)
    if not lowest:
        return Fraction(1, 1 << 60) + 2 * unit
    z = b * max([max(abs(lo), abs(hi)) for lo, hi in (read[c] for _, c in taps)], default=ZERO)
    deep = min(max(b * (top - max(lowest)), ZERO), Fraction(65))
    few = log(Fraction(k))[1] if k > 1 else ZERO
    n = 2 * z + 2 * (deep + few) + len(node.plane) * (e_exp + 1) + k - 1 + (e_log + 2) * (deep + few)
    n += (k - 1) * (z + few + 1 + e_exp + e_log) + 4 * b * y
    require(2 * max(z, y) <= LARGEST, "a smooth maximum may overflow")
    v = unit / (1 - max(Fraction(8), e_exp, e_log) * unit)
    s, worst = v * (n + e_log + 2), v * (n + 4 * z + 2 * deep) * (1 + (e_log + 6) * v)
    error = min(worst, s * exp(up(4 * s, 80))[1]) if s < 1 else worst
    return (error + k * exp(up(deep, 60))[1] / 2**126) / b + Fraction(1, 1 << 60)
