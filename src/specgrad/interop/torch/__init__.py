"""PyTorch modules in and out."""

from ...errors import need

need("torch", "PyTorch modules need")
