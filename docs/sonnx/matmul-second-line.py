"""MatMul, introduced error, last formula: the second line is to bound the first, and is negative."""

from fractions import Fraction

u = Fraction(1, 2**24)


def first(n):
    return ((1 + u) ** n - 1) / u * (1 + u) ** 2 - n


def second(n, sign):
    return (((1 + u) ** n - 1 - n * u) / u**2 * (1 + u) ** 2 + sign * n * (2 + u)) * u


text, right = [float(second(n, -1) / u) for n in (1, 2, 8)], [float(second(n, +1) / u) for n in (1, 2, 8)]
print("text   :", f"with - n(2 + u), in u*a*b, for n = 1, 2, 8: {text}")
print("runtime:", f"none; the line above it: {[float(first(n) / u) for n in (1, 2, 8)]}")
print("right  :", f"with + n(2 + u): {right}")
assert all(second(n, +1) == first(n) for n in range(1, 50))
print("verdict:", "wrong" if second(1, -1) < first(1) else "right")
