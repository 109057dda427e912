"""Proven tolerances of the node tests of the package onnx, for authors of backends."""

from specgrad.errors import need

need("onnx", "node tests need")
