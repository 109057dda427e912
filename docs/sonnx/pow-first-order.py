"""Pow, propagated error: the tangent is printed as a bound."""

a, b, a_err = 1.0, 2.0, 1.0
true = abs((a + a_err) ** b - a**b)
text = abs(b * a ** (b - 1) * a_err)
right = abs(b) * max(a ** (b - 1), (a + a_err) ** (b - 1)) * abs(a_err)
print("text   :", f"at most {text} (1 ** 2, error 1 in the base)")
print("runtime:", f"none; 2 ** 2 - 1 ** 2 = {true}")
print("right  :", f"at most {right}: the larger slope of the two ends, for a base that stays above 0")
print("verdict:", "right" if true <= text else "wrong")
