"""Exp, propagated error: the tangent is printed as a bound."""

import math

x, err = 0.0, 1.0
true = abs(math.exp(x + err) - math.exp(x))
text = math.exp(x) * abs(err)
right = math.exp(x) * abs(math.expm1(err))
print("text   :", f"at most {text:.4f} (x = 0, error 1)")
print("runtime:", f"none; exp(1) - exp(0) = {true:.4f}")
print("right  :", f"exactly exp(x) * |exp(err) - 1| = {right:.4f}")
print("verdict:", "right" if true <= text else "wrong")
