"""Exports graphs to ONNX: one function per operator of the graph."""
