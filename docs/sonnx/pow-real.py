"""Pow over real numbers: the domain of definition against its own examples."""

from fractions import Fraction

cases = [(0, Fraction(0), 1), (-25, Fraction(3, 5), -6.898648307), (-8, Fraction(1, 3), -2.0), (9, Fraction(2), 81)]


def undefined(a, b):  # the condition as it is printed, its alternatives joined by "or"
    return (a < 0 and b.denominator != 1) or b.numerator % 2 == 0 or (a == 0 and b <= 0)


excluded = [f"{a}**({b})" for a, b, _ in cases if undefined(a, b)]
print("text   :", "examples " + ", ".join(f"{a}**({b}) = {value}" for a, b, value in cases))
print("runtime:", f"none; undefined by the text's own condition: {', '.join(excluded)}")
print("right  :", "undefined if a < 0 and b is no integer, or a = 0 and b < 0; 0**0 = 1; so 81 stands, two examples go")
print("verdict:", "wrong" if excluded else "right")
