"""Log, propagated error: the tangent is printed as a bound; it fails for every error below 0."""

import math

x, err = 1.0, -0.5
true = abs(math.log(x + err) - math.log(x))
text = abs(err / x)
right = abs(math.log1p(err / x))
print("text   :", f"at most {text} (x = 1, error -0.5)")
print("runtime:", f"none; log(1) - log(0.5) = {true:.4f}")
print("right  :", f"exactly |log(1 + err / x)| = {right:.4f}, at most |err| / min(x, x + err)")
print("verdict:", "right" if true <= text else "wrong")
