"""Integers of a PyTorch module that are numbers and no positions: masks that callers give as 0 and 1 in int64."""

from __future__ import annotations

from typing import Any

import torch

from ...op import Value
from ...ops.elementwise import equal
from ...ops.quantize import cast
from .constant_folding import LAYOUT

MOVES = LAYOUT - {"pad", "constant_pad_nd"} | {"getitem"}  # what pads may be no whole number
PICKS = LAYOUT | {"index", "index_select", "gather"}
CONVERSIONS = {"_to_copy", "to"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
CHECKS = {"_assert_tensor_metadata", "sym_size"}
HELD = (torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def number_inputs(program: Any) -> set[str]:
    """Return the placeholders of int64 of an exported program that calls compare with integers or convert, and do
    nothing else with.

    Cells that are only moved are followed to where they are read; others are positions.
    """
    return {node.name for node in program.graph.nodes if node.op == "placeholder" and _are_numbers(node)}


def _are_numbers(placeholder: Any) -> bool:
    """Return whether the cells of a placeholder of int64 are read as numbers, and only so."""
    todo, seen, computed = [placeholder], {placeholder}, False
    if getattr(placeholder.meta.get("val"), "dtype", None) is not torch.int64:
        return False
    while todo:
        for reader in todo.pop().users:
            name = _name(reader)
            if _is_whole(reader) and name in MOVES | CONVERSIONS:
                todo += [reader] if reader not in seen else []
                seen.add(reader)
            elif not (name in CHECKS or _is_read_as_number(name, reader)):
                return False
            else:
                computed = computed or name not in CHECKS
    return computed


def _is_read_as_number(name: str, reader: Any) -> bool:
    """Return whether a call of the operator `name` converts its argument to a type of numbers, or compares integers."""
    if name in CONVERSIONS:
        return reader.meta["val"].dtype in HELD
    whole = all(_is_whole(a) if isinstance(a, torch.fx.Node) else isinstance(a, int) for a in reader.args)
    return name in COMPARISONS and whole


def _is_whole(node: Any) -> bool:
    """Return whether the value of a node, or every one of them, is a tensor of int64."""
    values = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    return bool(values) and all(getattr(v, "dtype", None) is torch.int64 for v in values)


def _name(node: Any) -> str:
    """Return the operator of a call, without its overload: "_to_copy", "getitem"."""
    target = node.target
    return str(getattr(target, "__name__", target)).removeprefix("aten.").partition(".")[0]


def kept_types(name: str, source: torch.dtype | None) -> tuple[torch.dtype, ...]:
    """Return the types beside floats that a call of the operator `name` may give numbers of the graph in, where its
    first argument is of the type `source`: what moves or picks keeps it.
    """
    if name in CONVERSIONS:
        return (torch.bool, torch.int64) if source is torch.int64 else (torch.bool,)
    return (torch.bool, torch.int64) if name in MOVES else (torch.bool,) if name in PICKS else ()


def converted(value: Value, source: torch.dtype, target: torch.dtype) -> Value:
    """Return numbers of the type `source` as the type `target` has them: 1 where they are not 0, of booleans; int64
    rounded to a float type, of which radii know the rounding.
    """
    if target is torch.bool and source is not torch.bool:
        return equal(equal(value, 0), 0)
    if source is torch.int64 and target.is_floating_point:
        return cast(value, str(target).removeprefix("torch."))
    return value
