"""BatchNormalization: Example 2 (real) and Example 1 (float) take the batch for the channel."""

import numpy as np
import onnx.parser
import onnxruntime as ort


def run(x, scale, b, mean, var):
    dims = ",".join(map(str, x.shape))
    names = ",".join("klm"[: x.ndim])
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 15]>
g (float[{dims}] x, float[2] s, float[2] b, float[2] m, float[2] v) => (float[{names}] y)
{{ y = BatchNormalization(x, s, b, m, v) }}""")
    feeds = {"x": x, "s": scale, "b": b, "m": mean, "v": var}
    feeds = {name: np.array(value, np.float32) for name, value in feeds.items()}
    return np.round(ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0], 2).tolist()


x = np.arange(1.0, 9).reshape(2, 2, 2)
real = run(x, [2, 1], [0.5, -0.5], [2, 6], [1, 1])
real = [[sample[c] for sample in real] for c in range(2)]
small = run(np.array([[1.0, 2], [3, 4]]), [1, 2], [0, 1], [2, 3], [1, 1])
text = [[[-1.5, 0.5], [2.5, 4.5]], [[-1.5, -0.5], [0.5, 1.5]]], [[-1.0, 1.0], [-1.0, 3.0]]
right = [[[2 * (v - 2) + 0.5 for v in row] for row in x[:, 0].tolist()]]
right += [[[(v - 6) - 0.5 for v in row] for row in x[:, 1].tolist()]]
print("text   :", f"Y[., c, .] {text[0]}; float {text[1]}")
print("runtime:", f"onnxruntime {real}; float {small}")
print("right  :", f"{right}; float [[-1.0, -1.0], [1.0, 3.0]]")
print("verdict:", "right" if (right, small) == text else "wrong")
