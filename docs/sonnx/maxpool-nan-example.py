"""MaxPool (float), Example 2 of the new text: the NaN lies in all four windows, not in two."""

import numpy as np
import torch

x = np.array([[1, np.inf, 3], [-np.inf, np.nan, 6], [7, 8, 0]], np.float32)
text = np.array([[np.inf, np.nan], [8, np.nan]], np.float32)
right = np.array([[np.max(x[i : i + 2, j : j + 2]) for j in range(2)] for i in range(2)])
runtime = torch.nn.functional.max_pool2d(torch.tensor(x)[None, None], 2, 1)[0, 0].numpy()
print("text   :", text.tolist())
print("runtime:", f"torch {runtime.tolist()}")
print("right  :", right.tolist())
print("verdict:", "right" if np.array_equal(text, right, equal_nan=True) else "wrong")
