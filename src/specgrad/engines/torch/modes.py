"""PyTorch's current mode (tracing, transforms, gradient recording), and our functions under torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specgrad.op import REGISTRY
from specgrad.ops import (
    activation,
    avg_pool,
    composites,
    contract,
    conv,
    elementwise,
    layout,
    max_pool,
    smooth_pool,
    trigonometric,
)


def in_dual_level() -> bool:
    """Return whether a forward-mode AD level (torch.autograd.forward_ad.dual_level) is active."""
    return torch.autograd.forward_ad._current_level >= 0


def needs_grad(*ts: Tensor) -> bool:
    """Return whether PyTorch differentiates through results of the tensors `ts`, in reverse or forward mode."""
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    for t in ts:
        if t.requires_grad:
            return torch.is_grad_enabled()
    return False


_compiling, _recording = torch.compiler.is_compiling, torch._C._is_tracing
_transformed, _modes = torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack
_included, _OLD_VMAP = torch._C._dispatch_tls_is_dispatch_key_included, torch._C._dispatch_key_parse("VmapMode")


def in_torch_func() -> bool:
    """Return whether a torch.func transform is active; its tensors may hide requires_grad."""
    return bool(torch._C._are_functorch_transforms_active())  # by its whole name: torch.compile knows that one


def may_be_vmapped() -> bool:
    """Return whether a vmap may be active (any torch.func transform, or the old vmap): memory layout is unknown."""
    return in_torch_func() or (not _compiling() and _included(_OLD_VMAP))


def is_observed() -> bool:
    """Return whether torch.compile, torch.jit.trace, torch.func or a dispatch mode sees every operator."""
    # torch.compile reads the first as a constant and cannot trace the others
    return _compiling() or _recording() or _transformed() or _modes() > 0


def is_tracing() -> bool:
    """Return whether values cannot be read nor memory written: `is_observed`, or the old vmap of gradients."""
    return is_observed() or _included(_OLD_VMAP)


def is_plain_eager() -> bool:
    """Return whether in-place algorithms may run: eager PyTorch, no tracer, no forward-mode AD level."""
    return not (is_tracing() or in_dual_level())


# --- torch.compile ---------------------------------------------------------------------------------------------------

HOMES = (activation, avg_pool, composites, contract, conv, elementwise, layout, max_pool, smooth_pool, trigonometric)
PUBLIC = """
    adaptive_avg_pool adaptive_max_pool amax avg_pool batch_norm conv conv_transpose cross_entropy global_avg_pool
    global_max_pool group_norm layer_norm linear log_softmax lp_pool matmul max_pool max_unpool mse_loss
    smooth_max_pool softmax upsample_nearest
    add broadcast concat div equal fill flatten greater greater_equal maximum mean minimum mul neg pad permute reshape
    select sign slice_ stop_gradient sub sum_ unpad
"""


def enable_torch_compile() -> None:
    """Let torch.compile take the public calls as single operators: no graph breaks, so fullgraph=True works.

    Without it torch.compile traces into our Python: right, but it breaks the graph at some calls and warns of caches.
    Once, before the first compiled call. It loads torch._dynamo (1.6 s of CPU), so it happens by itself only if that
    is loaded (by torch.compile, by an optimizer) when this engine meets its first tensor.
    """
    activation.relu(torch.zeros(1))  # the first call imports this engine, which a tracer cannot follow
    for call in public_calls():
        torch.compiler.allow_in_graph(call)


def public_calls() -> list[Callable[..., Any]]:
    """Return the functions of PUBLIC and every function of one cell; that of abs is abs_."""
    functions = [op.name for op in REGISTRY.values() if op.curve is not None]
    written = [word for name in functions for word in (name, f"{name}_") if any(hasattr(h, word) for h in HOMES)]
    return [next(getattr(h, name) for h in HOMES if hasattr(h, name)) for name in (*PUBLIC.split(), *written)]
