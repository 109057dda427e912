"""ONNX Runtime: what it refuses of ONNX, one node each, by type."""

import numpy as np
import onnx.parser
import onnxruntime as ort

NODES = {
    "Conv": "y = Conv<kernel_shape=[1]>(x, x)",
    "AveragePool": "y = AveragePool<kernel_shape=[1]>(x)",
    "GlobalAveragePool": "y = GlobalAveragePool(x)",
    "GlobalMaxPool": "y = GlobalMaxPool(x)",
    "MaxPool": "y = MaxPool<kernel_shape=[1]>(x)",
    "LeakyRelu": "y = LeakyRelu(x)",
    "Relu": "y = Relu(x)",
    "Erf": "y = Erf(x)",
    "Resize": 'y = Resize<mode="nearest">(x, , s)',
    "Sigmoid": "y = Sigmoid(x)",
    "Softmax": "y = Softmax(x)",
}


def known(kind, node):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 22]>
g ({kind}[1,1,1] x) => ({kind}[a,b,c] y) <float[3] s = {{1, 1, 1}}> {{ {node} }}""")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        return bool(ort.InferenceSession(model.SerializeToString(), options))
    except Exception:
        return False


print("right  : every type that ONNX gives the operator")
missing = {kind: [n for n, node in NODES.items() if not known(kind, node)] for kind in ("float16", "float", "double")}
for kind, names in missing.items():
    print(f"{kind:7}: {'no ' + ', '.join(names) if names else 'all of them'}")

channels = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
g (uint8[1,1,1,1] x, uint8[2,1,1,1] w, uint8 p, uint8[2] q) => (int32[a,b,c,d] y)
{ y = ConvInteger<kernel_shape=[1,1]>(x, w, p, q) }""")
feeds = {"x": np.ones((1, 1, 1, 1)), "w": np.ones((2, 1, 1, 1)), "p": np.array(0), "q": np.zeros(2)}
options = ort.SessionOptions()
options.log_severity_level = 4
try:
    session = ort.InferenceSession(channels.SerializeToString(), options)
    session.run(None, {name: value.astype(np.uint8) for name, value in feeds.items()})
    print("uint8  : ConvInteger with a zero point per output channel runs")
except Exception:
    print("uint8  : no ConvInteger with a zero point per output channel")
print("verdict:", "refused in " + ", ".join(kind for kind, names in missing.items() if names))
