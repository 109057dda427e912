"""The number formats of a PyTorch module, and its graph as it is deployed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...scalar import Array
from .deployed import HALVES, TorchGraph, as_deployed


def _float_types(module: torch.nn.Module) -> list[torch.dtype]:
    """Types of the module's floating-point parameters and buffers, in order."""
    return [p.dtype for p in itertools.chain(module.parameters(), module.buffers()) if p.is_floating_point()]


def half_type(module: torch.nn.Module) -> torch.dtype | None:
    """Return the half type of all the module's parameters, or of its buffers if it has none; None: there is none."""
    types = {p.dtype for p in module.parameters() if p.is_floating_point()} or set(_float_types(module))
    return next((t for t in HALVES if types == {t}), None)


def float_type(module: torch.nn.Module) -> str:
    """NumPy's name of the type that tracing asks of inputs: float32 of a half module, or where there are no numbers."""
    types = [] if half_type(module) is not None else _float_types(module)
    return {torch.float64: "float64", torch.float16: "float16"}.get(types[0], "float32") if types else "float32"


def tensors_of(inputs: Sequence[Any], dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    """Return arrays or tensors, `inputs`, as tensors; floats in the type `dtype`, unless it is None."""
    tensors = [a if isinstance(a, torch.Tensor) else torch.from_numpy(np.array(a)) for a in inputs]
    return [t.to(dtype) if dtype is not None and t.is_floating_point() else t for t in tensors]


def numbers_of(tensors: Sequence[torch.Tensor]) -> list[Array]:
    """Return NumPy arrays of the numbers of `tensors`, on any device; halves as float32: NumPy has no bfloat16."""
    return [(t.float() if t.dtype in HALVES else t).detach().cpu().resolve_neg().numpy().copy() for t in tensors]


def meaning_of(module: torch.nn.Module, inputs: Sequence[Any]) -> TorchGraph:
    """Return the module as a graph at the sizes of these inputs (arrays or tensors), whose values play no role.

    Refused: what `as_deployed` refuses.
    """
    half = half_type(module)
    example = tensors_of(inputs)
    if half is not None:
        example = [torch.zeros((), dtype=half).expand(t.shape) if t.is_floating_point() else t for t in example]
    return as_deployed(module, *example)
