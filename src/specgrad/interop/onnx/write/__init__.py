"""ONNX models out: one function per operator of ours."""
