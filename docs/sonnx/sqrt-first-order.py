"""Sqrt, propagated error: the tangent is printed as a bound; it fails for every error below 0."""

import math

x, err = 1.0, -1.0
true = abs(math.sqrt(x + err) - math.sqrt(x))
text = abs(err / (2 * math.sqrt(x)))
right = abs(err) / (math.sqrt(x) + math.sqrt(x + err))
print("text   :", f"at most {text} (x = 1, error -1)")
print("runtime:", f"none; sqrt(1) - sqrt(0) = {true}")
print("right  :", f"exactly |err| / (sqrt(x) + sqrt(x + err)) = {right}")
print("verdict:", "right" if true <= text else "wrong")
