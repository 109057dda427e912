"""Source text of a program for `Process` that runs an ONNX file, given as an array of its bytes, with ONNX Runtime."""

PROGRAM = """import onnxruntime

def run(model, /, **inputs):
    session = onnxruntime.InferenceSession(model.tobytes(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)
"""
ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1"}
