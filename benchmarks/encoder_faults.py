"""Faults planted in one layer of transformers' encoders: what a port to another stack gets wrong, with the weights left
as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from torch import nn

Fault = Callable[[Any], None]
"""Changes the layer that it is given."""


def layers_of(encoder: Any) -> Any:
    """The list of layers of an encoder."""
    return encoder.encoder.layer if hasattr(encoder, "encoder") else encoder.layers


def norm_eps(name: str) -> Fault:
    """An eps of 1e-3 in the norm of this name."""

    def plant(layer: Any) -> None:
        attrgetter(name)(layer).eps = 1e-3

    return plant


def tanh_gelu(name: str) -> Fault:
    """The approximation of gelu by tanh in the activation of this name."""

    def plant(layer: Any) -> None:
        attrgetter(name)(layer).forward = lambda x: nn.functional.gelu(x, approximate="tanh")

    return plant


def scale(name: str) -> Fault:
    """1/d for 1/sqrt(d) in the attention of this name."""

    def plant(layer: Any) -> None:
        attrgetter(name)(layer).scaling **= 2

    return plant


def unmasked(layer: Any) -> None:
    """Attention reads padding too."""
    attention = layer.attention.self
    whole = attention.forward
    attention.forward = lambda x, attention_mask=None, *rest, **named: whole(x, None, *rest, **named)


FAULTS: dict[str, dict[str, tuple[Fault, str]]] = {
    "bert": {
        "mask off": (unmasked, "attention.output.dense"),
        "eps of a norm 1e-3": (norm_eps("attention.output.LayerNorm"), "attention.output.LayerNorm"),
        "gelu by tanh": (tanh_gelu("intermediate.intermediate_act_fn"), "intermediate.intermediate_act_fn"),
        "scale 1/d": (scale("attention.self"), "attention.output.dense"),
    },
    "vit": {
        "gelu by tanh": (tanh_gelu("mlp.activation_fn"), "mlp.activation_fn"),
        "eps of a norm 1e-3": (norm_eps("layernorm_before"), "layernorm_before"),
        "scale 1/d": (scale("attention"), "attention.o_proj"),
    },
    "whisper": {
        "scale 1/d": (scale("self_attn"), "self_attn.out_proj"),
        "gelu by tanh": (tanh_gelu("activation_fn"), "activation_fn"),
        "eps of a norm 1e-3": (norm_eps("final_layer_norm"), "final_layer_norm"),
    },
}
"""Network -> name -> the fault, and the module that shows it: the first one after it whose value hooks see."""
