"""What `specgrad` exports, loaded at once when somebody asks it for the first of these names."""

from typing import TYPE_CHECKING, Any

from .errors import MissingPackageError, ParameterError, ScalarError, ShapeError, SpecgradError, UnsupportedError
from .graph.transforms.nhwc import channels_last
from .graph.graph import Graph, Node
from .graph.transforms.operator_rules import rule_graphs
from .graph.files.save import load, load_params, save, save_params
from .graph.drawing.summary import table
from .graph.transforms.adjoint_proof import prove_adjoint
from .graph.builder import GraphBuilder, Index
from .graph.builder import trace
from .graph.transforms.autodiff import grad, jvp, vjp
from .graph.var import Var
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
from .ops.composites import (
    batch_norm,
    cross_entropy,
    fold,
    global_pool,
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
from .ops.gather import gather, roll, scatter, take_along
from .ops.layout import broadcast, concat, fill, flatten, permute, reshape, unpad
from .ops.layout import slice_ as slice
from .ops.layout import sum_ as sum
from .ops.max_pool import adaptive_max_pool, amax, amin, global_max_pool, max_pool, max_unpool, put, take
from .ops.sorting import argmax, argmin, cumprod, cumsum, median_pool, prod, topk
from .ops.quantize import cast, dequantize, quantize
from .ops.resize import resize
from .ops.smooth_pool import smooth_max_pool
from .ops.trigonometric import asinh, atan, cos, sin
from .ops.integer_rounding import ceil, floor, fmod, mod, trunc
from .ops.integer_rounding import round_ as round
from .rulebook import rule
from .scalar import Dual, balls, exact
from .graph.ir import tree
from .ops import shapes
from .engines import compile

if TYPE_CHECKING:
    from .show.window import show_window
else:

    def __getattr__(name: str) -> Any:
        """Pictures, which most do without."""
        if name != "show_window":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .show.window import show_window

        return show_window


# Static, so that a type checker accepts `specgrad.conv` in code of others.
__all__ = [
    "REGISTRY",
    "Dual",
    "Graph",
    "GraphBuilder",
    "Index",
    "MissingPackageError",
    "Node",
    "Op",
    "ParameterError",
    "ScalarError",
    "ShapeError",
    "SpecgradError",
    "UnsupportedError",
    "Var",
    "abs",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "add",
    "amax",
    "amin",
    "apply",
    "argmax",
    "argmin",
    "asinh",
    "atan",
    "avg_pool",
    "balls",
    "batch_norm",
    "broadcast",
    "cast",
    "ceil",
    "channels_last",
    "clamp",
    "compile",
    "composite",
    "concat",
    "contract",
    "conv",
    "conv_transpose",
    "cos",
    "cross_entropy",
    "cumprod",
    "cumsum",
    "dequantize",
    "div",
    "equal",
    "exact",
    "exp",
    "fill",
    "flatten",
    "floor",
    "fmod",
    "fold",
    "gather",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "global_pool",
    "grad",
    "greater",
    "greater_equal",
    "group_norm",
    "hardswish",
    "jvp",
    "layer_norm",
    "leaky_relu",
    "linear",
    "load",
    "load_params",
    "log",
    "log_softmax",
    "lp_pool",
    "matmul",
    "max_pool",
    "max_unpool",
    "maximum",
    "mean",
    "median_pool",
    "minimum",
    "mod",
    "mse_loss",
    "mul",
    "neg",
    "normal_cdf",
    "normal_pdf",
    "pad",
    "permute",
    "power",
    "prod",
    "prove_adjoint",
    "put",
    "quantize",
    "register",
    "relu",
    "relu6",
    "reshape",
    "resize",
    "roll",
    "round",
    "rule",
    "rule_graphs",
    "save",
    "save_params",
    "scatter",
    "scope",
    "select",
    "shapes",
    "show_window",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "slice",
    "smooth_max_pool",
    "softmax",
    "softplus",
    "sqrt",
    "stop_gradient",
    "sub",
    "sum",
    "table",
    "take",
    "take_along",
    "tanh",
    "topk",
    "trace",
    "tree",
    "trunc",
    "unpad",
    "upsample_nearest",
    "vjp",
]
