"""Values of an exported program that no input decides: positions, masks, grids. PyTorch computes them while importing.

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

CELLS = 2**22  # of one value computed while importing
MADE = {
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
MOVED = {"view", "_unsafe_view", "reshape", "flatten", "permute", "transpose", "t", "squeeze", "unsqueeze", "expand"}
MOVED |= {"slice", "select", "split", "split_with_sizes", "chunk", "cat", "stack", "roll", "flip", "unbind", "repeat"}
MOVED |= {"clone", "contiguous", "alias", "lift_fresh_copy", "detach", "detach_", "constant_pad_nd", "pad", "meshgrid"}
PICKED = {"index", "index_select", "gather", "where", "masked_fill", "slice_scatter", "select_scatter", "copy"}
PICKED |= {"index_put", "tril", "triu"}
EXACT = MADE | MOVED | PICKED
CONVERSIONS = {"_to_copy", "to", "arange"}
INDEXED = {"index.Tensor", "scaled_dot_product_attention.default", "gather.default", "index_select.default"}
INDEXED |= {"embedding.default", "max_unpool2d.default", "max_unpool3d.default"}  # these tell integers from numbers


def is_known(args: Any) -> bool:
    """Whether no argument is a variable of the graph."""
    return not any(isinstance(a, Var) for a in pytree.tree_leaves(args))


def without_values(name: str, args: Sequence[Any], wanted: Any) -> Sequence[Any]:
    """x.new_zeros(...) asks x for its type alone."""
    return (torch.empty((), dtype=wanted.dtype), *args[1:]) if name.startswith("new_") else args


def foldable(calls: Sequence[Any], given: Collection[Any]) -> set[Any]:
    """Calls of a program whose values are known while importing, as far as their operators tell; `given` are known."""
    nodes = set(given)
    for node in calls:
        name = str(node.target).removeprefix("aten.").partition(".")[0]
        reads = node.all_input_nodes[1:] if name.startswith("new_") else node.all_input_nodes
        leaves = pytree.tree_leaves(node.meta.get("val"))
        whole = not any(isinstance(t, Tensor) and t.is_floating_point() for t in leaves)
        exact = node.target is operator.getitem or whole or name in EXACT | CONVERSIONS
        if exact and all(n in nodes for n in reads):
            nodes.add(node)
    return nodes


def fold(target: Any, args: Sequence[Any], kwargs: dict[str, Any], wanted: Any) -> Any:
    """The call's value as tensors, or None where its result is a float that PyTorch would round."""
    name = str(target).removeprefix("aten.").partition(".")[0]
    floats = any(isinstance(t, Tensor) and t.is_floating_point() for t in pytree.tree_leaves(wanted))
    if floats and (name not in EXACT | CONVERSIONS or _adds(name, args, kwargs)):
        return None
    if torch.Tag.nondeterministic_seeded in target.tags or "empty" in name:
        raise UnsupportedError("from_torch", f"aten.{name} draws random numbers, or leaves them open")
    _check_size(name, wanted)
    with torch.no_grad():
        value = target(*args, **kwargs)
    if floats and name in CONVERSIONS and not _is_whole(value):
        return None
    return value


def _adds(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """index_put may add up where positions are equal."""
    return name == "index_put" and bool(kwargs.get("accumulate", args[3:4] == (True,)))


def _check_size(name: str, wanted: Any) -> None:
    for tensor in pytree.tree_leaves(wanted):
        if isinstance(tensor, Tensor) and isinstance(tensor.numel(), int) and tensor.numel() > CELLS:
            text = f"a constant of {tensor.numel()} cells is too large; at most {CELLS}"
            raise ParameterError(f"aten.{name}", text, rule="P5")


def _is_whole(value: Any) -> bool:
    """Whole numbers of moderate size are the same in every type."""
    numbers = [t.double() for t in pytree.tree_leaves(value) if isinstance(t, Tensor) and t.is_floating_point()]
    return all(bool(((t == t.round()) & (t.abs() <= 2048)).all()) for t in numbers)


def whole_array(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Array:
    """Integers and booleans as a line takes them: positions as they are, numbers if the floats around can hold them."""
    array = tensor.cpu().numpy()
    if name in INDEXED:
        return array if tensor.dtype == torch.bool else array.astype(np.int64)
    dtype = dtype or torch.float32
    largest = 2 / torch.finfo(dtype).eps
    if array.size and abs(array.astype(object)).max() > largest:
        text = f"integers beyond {largest:.0f} would be rounded to {dtype}"
        raise ParameterError(f"aten.{name}", text, rule="P5")
    return np.asarray(array, str(dtype).removeprefix("torch."))
