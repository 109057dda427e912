"""The runtimes by name. One record of some thirty lines each; see record.py to add another."""

from __future__ import annotations

from ...errors import ParameterError
from .jax import JAX, JAX_SHARDED
from .onnx import ONNX_REFERENCE, ONNXRUNTIME, OPENVINO, OPENVINO_F32
from .record import NotOffered, Runtime
from .torch import TORCH, TORCH_COMPILE

RUNTIMES = {
    r.name: r for r in (TORCH, TORCH_COMPILE, JAX, JAX_SHARDED, ONNXRUNTIME, OPENVINO, OPENVINO_F32, ONNX_REFERENCE)
}

__all__ = ["RUNTIMES", "NotOffered", "Runtime", "runtime"]


def runtime(name: str) -> Runtime:
    """The runtime of that name; an error lists the names, or says what to install."""
    if name not in RUNTIMES:
        raise ParameterError("check", f"unknown runtime {name!r}; known are {', '.join(RUNTIMES)}")
    found = RUNTIMES[name]
    if not found.installed():
        raise ParameterError(
            "check", f"runtime {name} needs the packages {', '.join(found.packages)}: pip install them"
        )
    return found
