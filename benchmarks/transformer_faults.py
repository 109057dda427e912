"""Faults planted in one decoder layer of transformers' Qwen2: what a port to another stack gets wrong, with the weights
left as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.models.qwen2.modeling_qwen2 import eager_attention_forward, rotate_half

Fault = Callable[[Any], None]
"""Changes the decoder layer that it is given."""


# --- attention --------------------------------------------------------------------------------------------------------


def _attention(name: str, change: Callable[[Any, dict[str, Any]], None]) -> Fault:
    """A fault of what the attention function of a layer is given: `change` of q, k, v, mask and scaling, by name."""

    def planted(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scaling: float, **rest: Any) -> Any:
        given = {"q": q, "k": k, "v": v, "mask": mask, "scaling": scaling}
        change(module, given)
        return eager_attention_forward(module, *given.values(), **rest)

    def plant(layer: Any) -> None:
        AttentionInterface.register(name, planted)
        layer.self_attn.config = copy.copy(layer.self_attn.config)
        layer.self_attn.config._attn_implementation_internal = name

    return plant


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    """Queries or keys, rotated by further angles, one per position and pair of channels."""
    both = torch.cat((angles, angles), -1)
    return x * both.cos().to(x.dtype) + rotate_half(x) * both.sin().to(x.dtype)


def _frequencies(module: Any, base: float) -> Tensor:
    return base ** -(torch.arange(0, module.head_dim, 2) / module.head_dim)


def rope_base(module: Any, given: dict[str, Any]) -> None:
    """A base of 500,000 in place of the config's, for queries and keys."""
    base = module.config.rope_parameters["rope_theta"]
    step = _frequencies(module, 5e5) - _frequencies(module, base)
    angles = torch.arange(given["q"].shape[2])[:, None] * step
    given |= {name: _turned(given[name], angles) for name in "qk"}


def table_off_by_one(module: Any, given: dict[str, Any]) -> None:
    """Keys are rotated as the next position's; if queries were too, nothing would change but rounding."""
    given["k"] = _turned(given["k"], _frequencies(module, module.config.rope_parameters["rope_theta"]))


def mask_off_by_one(module: Any, given: dict[str, Any]) -> None:
    """Every position sees the next one too."""
    mask = given["mask"]
    given["mask"] = torch.cat((mask[..., 1:, :], torch.zeros_like(mask[..., :1, :])), -2)


def head_order(module: Any, given: dict[str, Any]) -> None:
    """The last two heads of the queries are exchanged."""
    heads = given["q"].shape[1]
    given["q"] = given["q"][:, [*range(heads - 2), heads - 1, heads - 2]]


def scale(module: Any, given: dict[str, Any]) -> None:
    """1/d for 1/sqrt(d)."""
    given["scaling"] = 1 / module.head_dim


def key_value_heads(module: Any, given: dict[str, Any]) -> None:
    """Keys and values are repeated as 0 1 0 1 for 0 0 1 1: queries are put where the wrong repetition serves them."""
    groups = module.num_key_value_groups
    count = given["k"].shape[1]
    wrong = torch.arange(count).repeat(groups)
    given |= {name: given[name][:, wrong] for name in "kv"}
    module.num_key_value_groups = 1


# --- the rest of a layer ----------------------------------------------------------------------------------------------


def norm_eps(layer: Any) -> None:
    layer.input_layernorm.variance_epsilon = 1e-3


def gate_and_up(layer: Any) -> None:
    mlp = layer.mlp
    mlp.forward = lambda x: mlp.down_proj(mlp.act_fn(mlp.up_proj(x)) * mlp.gate_proj(x))


def half_residual(layer: Any) -> None:
    whole = layer.forward
    layer.forward = lambda hidden_states, **rest: whole(hidden_states.bfloat16().to(hidden_states.dtype), **rest)


def dropped_bias(layer: Any) -> None:
    projection = layer.self_attn.q_proj
    projection.forward = lambda x: nn.functional.linear(x, projection.weight)


FAULTS: dict[str, tuple[Fault, str]] = {
    "eps of a norm 1e-3": (norm_eps, "input_layernorm"),
    "base of the rotary table": (_attention("rope_base", rope_base), "self_attn.o_proj"),
    "rotary table off by one": (_attention("table_off_by_one", table_off_by_one), "self_attn.o_proj"),
    "mask off by one": (_attention("mask_off_by_one", mask_off_by_one), "self_attn.o_proj"),
    "order of heads": (_attention("head_order", head_order), "self_attn.o_proj"),
    "scale 1/d": (_attention("scale", scale), "self_attn.o_proj"),
    "order of key-value heads": (_attention("key_value_heads", key_value_heads), "self_attn.o_proj"),
    "gate and up swapped": (gate_and_up, "mlp.act_fn"),
    "one residual in bfloat16": (half_residual, "input_layernorm"),
    "dropped bias": (dropped_bias, "self_attn.q_proj"),
}
"""Name -> the fault, and the module that shows it: the first one after it whose value hooks see."""
