"""ONNX models in: one function per ONNX operator."""
