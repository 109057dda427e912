"""Queries of PyTorch's current mode: tracing, function transforms, dual levels, gradient recording."""

from __future__ import annotations

import torch
from torch import Tensor


def dual_level_open() -> bool:
    return torch.autograd.forward_ad._current_level >= 0


def needs_grad(*ts: Tensor) -> bool:
    """Whether PyTorch takes a derivative through what is computed of these, backwards or forwards."""
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    for t in ts:
        if t.requires_grad:
            return torch.is_grad_enabled()
    return False


_compiling, _recording = torch.compiler.is_compiling, torch._C._is_tracing
_transformed, _modes = torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack
_included, _OLD_VMAP = torch._C._dispatch_tls_is_dispatch_key_included, torch._C._dispatch_key_parse("VmapMode")


def transformed() -> bool:
    """Inside torch.func, whose tensors need not say that a derivative is taken through them."""
    return bool(torch._C._are_functorch_transforms_active())  # by its whole name: torch.compile knows that one


def batched() -> bool:
    """Inside a vmap, or in a transform that may be inside one: nobody may ask how a tensor is laid out in memory."""
    return transformed() or (not _compiling() and _included(_OLD_VMAP))


def is_observed() -> bool:
    """Inside torch.compile, torch.jit.trace, torch.func or a dispatch mode: somebody sees every operator."""
    # torch.compile reads the first as a constant and cannot trace the others
    return _compiling() or _recording() or _transformed() or _modes() > 0


def is_tracing() -> bool:
    """Watched, or in autograd's own vmap of gradients: values cannot be looked at, nor memory be written."""
    return is_observed() or _included(_OLD_VMAP)


def is_plain_eager() -> bool:
    """Eager PyTorch outside of tracers and dual levels: in-place algorithms may run."""
    return not (is_tracing() or dual_level_open())
