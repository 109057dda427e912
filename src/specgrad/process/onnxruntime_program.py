"""How ONNX Runtime runs a whole file, given its bytes as an array: a program for a Process."""

PROGRAM = """import onnxruntime

def run(model, /, **inputs):
    session = onnxruntime.InferenceSession(model.tobytes(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)
"""
ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1"}
