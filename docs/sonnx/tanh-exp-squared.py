"""Tanh: exp(2x) = exp(x)**2 doubles the relative error of exp; the page adds half an epsilon."""

import math
from fractions import Fraction

import numpy as np

epsilon = 2.0**-23
root = np.float32(math.exp(-1) * (1 + 1.9 * epsilon))  # on [-1, 0] the page supposes 2 epsilon
promised = abs(float(root) / math.exp(-1) - 1) / epsilon
square = root * root
error = abs(float(Fraction(float(square)) / Fraction(math.exp(-2)) - 1)) / epsilon
text, right = 2 + 1 / 2, 2 * 2 + 1 / 2
print("text   :", f"exp on [-2, -1] within {text} epsilon")
print("runtime:", f"numpy float32: exp(-1) off by {promised:.2f} epsilon, its square by {error:.2f} epsilon")
print("right  :", f"within {right} epsilon (and terms of second order); after n squarings 2**n * 2.5 - 0.5")
print("verdict:", "wrong" if promised <= 2 and text < error <= right * (1 + 1e-6) else "right")
