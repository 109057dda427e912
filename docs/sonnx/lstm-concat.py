"""LSTM: the two directions of a bidirectional layer are laid along the sequence axis."""

import numpy as np
import onnx.parser
import onnxruntime as ort

steps, directions, batch, inputs, hidden = 3, 2, 1, 1, 1
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[3,1,1] x, float[2,4,1] w, float[2,4,1] r) => (float[a,b,c,d] y)
{ y = LSTM<hidden_size=1, direction="bidirectional">(x, w, r) }""")
feeds = {"x": np.ones((3, 1, 1)), "w": np.ones((2, 4, 1)), "r": np.ones((2, 4, 1))}
feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].shape
text, right = (2 * steps, 1, batch, hidden), (steps, directions, batch, hidden)
print("text   :", f"joined along seq_length: {text}")
print("runtime:", f"onnxruntime {seen}")
print("right  :", f"{right}: joined along num_directions, as the text's own shape of Y says")
print("verdict:", "right" if text == right else "wrong")
