"""Imports ONNX models: one converter function per ONNX operator."""
