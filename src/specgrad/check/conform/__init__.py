"""Conformance of runtimes and kernels to the contract."""
