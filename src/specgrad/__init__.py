"""specgrad: one network, one meaning."""

from .errors import ParameterError, ScalarError, ShapeError, SpecgradError, UnsupportedError
from .graph.graph import Graph, Node
from .graph.save import load, load_params, save, save_params
from .graph.show import table
from .graph.trace import Index, trace
from .graph.transform import grad, jvp, vjp
from .op import REGISTRY, Op, apply, composite, register, scope
from .ops.activation import (
    clamp,
    gelu,
    hardswish,
    leaky_relu,
    normal_cdf,
    normal_pdf,
    relu,
    relu6,
    sigmoid,
    silu,
    softplus,
    tanh,
)
from .ops.avg_pool import adaptive_avg_pool, avg_pool, global_avg_pool, lp_pool
from .ops.compose import (
    batch_norm,
    cross_entropy,
    group_norm,
    layer_norm,
    log_softmax,
    mse_loss,
    pad,
    softmax,
    upsample_nearest,
)
from .ops.contract import contract, linear, matmul
from .ops.conv import conv, conv_transpose
from .ops.elementwise import (
    add,
    div,
    equal,
    exp,
    greater,
    greater_equal,
    log,
    maximum,
    mean,
    minimum,
    mul,
    neg,
    power,
    select,
    sign,
    sqrt,
    stop_gradient,
    sub,
)
from .ops.elementwise import abs_ as abs
from .ops.layout import broadcast, concat, fill, flatten, permute, reshape, unpad
from .ops.layout import slice_ as slice
from .ops.layout import sum_ as sum
from .ops.max_pool import adaptive_max_pool, amax, global_max_pool, max_pool, max_unpool, put, take
from .ops.smooth_pool import smooth_max_pool
from .scalar import Dual, balls, exact
from .graph import tree
from .engines import compile
