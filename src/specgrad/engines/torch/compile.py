"""torch.compile sees the public calls as single operators."""

from __future__ import annotations

import torch

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

HOMES = (activation, avg_pool, composites, contract, conv, elementwise, layout, max_pool, smooth_pool, trigonometric)
PUBLIC = """
    adaptive_avg_pool adaptive_max_pool amax avg_pool batch_norm conv conv_transpose cross_entropy gelu global_avg_pool
    global_max_pool group_norm layer_norm linear log_softmax lp_pool matmul max_pool max_unpool mse_loss
    smooth_max_pool softmax upsample_nearest
    abs_ add broadcast clamp concat cos div equal exp fill flatten greater greater_equal hardswish leaky_relu log
    maximum mean minimum mul neg normal_cdf normal_pdf pad permute power relu relu6 reshape select sigmoid sign silu
    sin slice_ softplus sqrt stop_gradient sub sum_ tanh unpad
"""


def enable_torch_compile() -> None:
    """Let torch.compile take the public calls as single operators: no graph breaks, so fullgraph=True works.

    Without it torch.compile traces into our Python: right, but it breaks the graph at some calls and warns of caches.
    Once, before the first compiled call. It loads torch._dynamo (1.6 s of CPU), so it happens by itself only if that
    is loaded (by torch.compile, by an optimizer) when this engine meets its first tensor.
    """
    activation.relu(torch.zeros(1))  # the first call imports this engine, which a tracer cannot follow
    for name in PUBLIC.split():
        call = next(getattr(home, name) for home in HOMES if hasattr(home, name))
        torch.compiler.allow_in_graph(call)
