"""Div, propagated error: B**2 (B + B_err) is printed where B (B + B_err) belongs."""

from fractions import Fraction

a, b, a_err, b_err = Fraction(3), Fraction(2), Fraction(1, 10), Fraction(0)
true = (a + a_err) / (b + b_err) - a / b
formula = (a_err * b - b_err * a) / (b**2 * (b + b_err))
bound = (abs(a_err) + abs(a * b_err / b)) / (abs(b) * abs(b + b_err))
right = (a_err * b - b_err * a) / (b * (b + b_err))
right_bound = (abs(a_err) + abs(a * b_err / b)) / abs(b + b_err)
print("text   :", f"first formula {float(formula)}, bound {float(bound)}")
print("runtime:", f"none; 3.1 / 2 - 3 / 2 = {float(true)}")
print("right  :", f"formula {float(right)}, bound {float(right_bound)}")
print("verdict:", "wrong" if right == true <= right_bound and bound < true != formula else "right")
