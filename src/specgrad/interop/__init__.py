"""Models in and out: PyTorch (`from_torch`, `to_torch`) and ONNX; each framework is imported only when used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

HOME = {
    "from_onnx": "onnx",
    "from_torch": "torch.read",
    "to_onnx": "onnx",
    "to_torch": "torch.write",
}


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(HOME)
