"""Engines: PyTorch and JAX, one table each, imported only when their tensors are met or asked for."""
