"""Runtimes by name: one record of some thirty lines each; runtime_spec.py says how to add another."""

from __future__ import annotations

from ...errors import MissingPackageError, ParameterError
from .jax import JAX, JAX_SHARDED
from .onnx import ONNX_REFERENCE, ONNXRUNTIME, OPENVINO, OPENVINO_F32
from .runtime_spec import NotOffered, Runtime
from .torch import TORCH, TORCH_COMPILE

RUNTIMES = {
    r.name: r for r in (TORCH, TORCH_COMPILE, JAX, JAX_SHARDED, ONNXRUNTIME, OPENVINO, OPENVINO_F32, ONNX_REFERENCE)
}

__all__ = ["RUNTIMES", "NotOffered", "Runtime", "base_and_device", "runtime"]


def runtime(name: str) -> Runtime:
    """Return the runtime of that name.

    name:device runs on another device, onnxruntime:CUDAExecutionProvider or openvino:GPU. Nobody has measured its
    functions, so they have the largest error that any backend has.

    Parameters
    ----------
    name : str
        Of an installed runtime, "onnxruntime", or with a device, "onnxruntime:CUDAExecutionProvider".

    Returns
    -------
    Runtime
        For `audit`, `record` and others.

    Raises
    ------
    ParameterError
        For an unknown name; it lists the names.
    MissingPackageError
        If it is not installed; it says what to install.

    Examples
    --------
    >>> runtime("onnxruntime").name
    'onnxruntime'
    """
    base, device = base_and_device(name)
    if base not in RUNTIMES:
        raise ParameterError("check", f"unknown runtime {base!r}; known are {', '.join(RUNTIMES)}")
    chosen = RUNTIMES[base]
    for package in chosen.missing():
        raise MissingPackageError("this runtime needs", package)
    return chosen.on(device) if device else chosen


def base_and_device(name: str) -> tuple[str, str]:
    """Return a runtime's name without its device, and the device ("" if none); ParameterError for a colon without one.

    >>> base_and_device("openvino:GPU"), base_and_device("openvino")
    (('openvino', 'GPU'), ('openvino', ''))
    """
    base, colon, device = name.partition(":")
    if base and colon and not device.strip():
        raise ParameterError("check", f"{name!r} names no device; write {base!r}, or the device behind the colon")
    return base, device
