"""Folds values of an exported program that no input decides (positions, masks, grids) with PyTorch itself.

Only what is exact there: integers, booleans, and floats that are made, moved or picked, never rounded. A float that
arithmetic would round stays in the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from specgrad.errors import ParameterError, UnsupportedError
from specgrad.graph.builder import Var
from specgrad.scalar import Array

MAX_CONSTANT_CELLS = 2**22  # of one value computed while importing
CREATING = {
    "scalar_tensor",
    "zeros",
    "ones",
    "full",
    "new_zeros",
    "new_ones",
    "new_full",
    "zeros_like",
    "ones_like",
    "full_like",
    "fill",
}
LAYOUT = {"view", "_unsafe_view", "reshape", "flatten", "permute", "transpose", "t", "squeeze", "unsqueeze", "expand"}
LAYOUT |= {"slice", "select", "split", "split_with_sizes", "chunk", "cat", "stack", "roll", "flip", "unbind", "repeat"}
LAYOUT |= {"clone", "contiguous", "alias", "lift_fresh_copy", "detach", "detach_", "constant_pad_nd", "pad", "meshgrid"}
SELECTING = {"index", "index_select", "gather", "where", "masked_fill", "slice_scatter", "select_scatter", "copy"}
SELECTING |= {"index_put", "tril", "triu", "diag", "diagonal", "diag_embed", "repeat_interleave", "broadcast_tensors"}
EXACT = CREATING | LAYOUT | SELECTING
CONVERSIONS = {"_to_copy", "to", "arange"}
INDEXED = {"index.Tensor", "scaled_dot_product_attention.default", "gather.default", "index_select.default"}
INDEXED |= {"embedding.default", "max_unpool2d.default", "max_unpool3d.default", "repeat_interleave.self_Tensor"}
INDEXED |= {"cross_entropy_loss.default", "nll_loss_nd.default"}  # these tell integers from numbers


def is_known(args: Any) -> bool:
    """Return whether nothing in `args`, nested tuples, lists and dicts of a call, is a variable of the graph."""
    return not any(isinstance(a, Var) for a in pytree.tree_leaves(args))


def with_placeholder_self(name: str, args: Sequence[Any], result_meta: Any) -> Sequence[Any]:
    """Return the arguments of the operator `name`, with an uninitialised scalar for x in x.new_zeros(...) and similar.

    They use the type of x only, which `result_meta`, the call's result, has.
    """
    return (torch.empty((), dtype=result_meta.dtype), *args[1:]) if name.startswith("new_") else args


def foldable(calls: Sequence[Any], known: Collection[Any]) -> set[Any]:
    """Return the calls whose values are known while importing, as far as their operators tell, and `known`."""
    nodes = set(known)
    for node in calls:
        name = str(node.target).removeprefix("aten.").partition(".")[0]
        reads = node.all_input_nodes[1:] if name.startswith("new_") else node.all_input_nodes
        leaves = pytree.tree_leaves(node.meta.get("val"))
        whole = not any(isinstance(t, Tensor) and t.is_floating_point() for t in leaves)
        exact = node.target is operator.getitem or whole or name in EXACT | CONVERSIONS
        if exact and all(n in nodes for n in reads):
            nodes.add(node)
    return nodes


def fold(target: Any, args: Sequence[Any], kwargs: dict[str, Any], result_meta: Any) -> Any:
    """Return the value of a call of `target` as tensors, or None if its result is a float that PyTorch would round.

    UnsupportedError for random numbers; `result_meta` describes the result.
    """
    name = str(target).removeprefix("aten.").partition(".")[0]
    floats = any(isinstance(t, Tensor) and t.is_floating_point() for t in pytree.tree_leaves(result_meta))
    if floats and (name not in EXACT | CONVERSIONS or _accumulates(name, args, kwargs)):
        return None
    if torch.Tag.nondeterministic_seeded in target.tags or "empty" in name:
        raise UnsupportedError("from_torch", f"aten.{name} draws random numbers, or leaves them open")
    _check_size(name, result_meta)
    with torch.no_grad():
        value = target(*args, **kwargs)
    if floats and name in CONVERSIONS and not _is_integer_valued(value):
        return None
    return value


def _accumulates(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a call of the operator `name` is an index_put that adds at equal positions."""
    return name == "index_put" and bool(kwargs.get("accumulate", args[3:4] == (True,)))


def _check_size(name: str, result_meta: Any) -> None:
    """Raise ParameterError, with the operator's `name`, if a constant described by `result_meta` would have too many
    cells.
    """
    for tensor in pytree.tree_leaves(result_meta):
        if isinstance(tensor, Tensor) and isinstance(tensor.numel(), int) and tensor.numel() > MAX_CONSTANT_CELLS:
            text = f"a constant of {tensor.numel()} cells is too large; at most {MAX_CONSTANT_CELLS}"
            raise ParameterError(f"aten.{name}", text, rule="P5")


def _is_integer_valued(value: Any) -> bool:
    """Return whether all floats in `value`, a structure of tensors, are integers up to 2048 in size, which are exact in
    every type.
    """
    numbers = [t.double() for t in pytree.tree_leaves(value) if isinstance(t, Tensor) and t.is_floating_point()]
    return all(bool(((t == t.round()) & (t.abs() <= 2048)).all()) for t in numbers)


def integer_array(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Array:
    """Return `tensor`, integers or booleans, as the converter of the operator `name` takes it: positions as int64,
    numbers as exact floats of `dtype`, which NumPy has but for bfloat16: float32 holds those.

    ParameterError for integers that would be rounded.
    """
    array = tensor.cpu().numpy()
    if name in INDEXED:
        return array if tensor.dtype == torch.bool else array.astype(np.int64)
    dtype = dtype or torch.float32
    largest = 2 / torch.finfo(dtype).eps
    if array.size and abs(array.astype(object)).max() > largest:
        text = f"integers beyond {largest:.0f} would be rounded to {dtype}"
        raise ParameterError(f"aten.{name}", text, rule="P5")
    return np.asarray(array, "float32" if dtype == torch.bfloat16 else str(dtype).removeprefix("torch."))
