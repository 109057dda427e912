"""Sigmoid, propagated error: the slope at x is printed as a bound; the slope grows towards 0."""

import math


def sigmoid(v):
    return 1 / (1 + math.exp(-v))


x, err = 2.0, -2.0
true = abs(sigmoid(x + err) - sigmoid(x))
text = sigmoid(x) * (1 - sigmoid(x)) * abs(err)
right = abs(err) / 4
print("text   :", f"at most {text:.4f} (x = 2, error -2)")
print("runtime:", f"none; sigmoid(2) - sigmoid(0) = {true:.4f}")
print("right  :", f"at most |err| / 4 = {right:.4f}, or the slope at the end nearer to 0 if 0 is not crossed")
print("verdict:", "right" if true <= text else "wrong")
