"""Tanh, introduced error: 1 / (1 + 2 exp(2x)) is printed where 1 / (1 + exp(2x)) belongs."""

import math
from fractions import Fraction

import numpy as np

u = 2.0**-24


def general(x, e):  # the page's formula before it is simplified; e: relative error of exp
    t = math.exp(-2 * abs(x))
    inner = (e * 2 * t * (1 + u) + 2 * u * (1 - t * t)) / ((1 + t) * ((1 + t) * (1 - u) - e * t * (1 + u)))
    return inner * (1 + u) + u * (1 - t) / (1 + t)


def simplified(x):  # for -1 <= x <= 0, with e = 4u
    t = math.exp(2 * x)
    inner = (2 + 8 * (1 + u) * t - 2 * t * t) / ((1 + t) * (1 - u) - 4 * u * (1 + u) * t)
    return u / (1 + 2 * t) * (inner * (1 + u) + 1 - t)


x = -(2.0**-10)
t = np.float32(math.exp(2 * x) * (1 - 3.9 * u))  # an exp that keeps the page's promise of 4u
assert abs(float(t) / math.exp(2 * x) - 1) < 4 * u
y = (t - np.float32(1)) / (t + np.float32(1))  # the page's algorithm, in float32
error = float(abs(Fraction(float(y)) - Fraction(math.tanh(x))))
print("text   :", f"simplified {simplified(x) / u:.2f}u; before it is simplified {general(x, 4 * u) / u:.2f}u")
print("runtime:", f"numpy float32, the page's algorithm with such an exp: error {error / u:.2f}u")
print("right  :", f"{general(x, 4 * u) / u:.2f}u")
print("verdict:", "wrong" if simplified(x) < error <= general(x, 4 * u) else "right")
