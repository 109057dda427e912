"""Mutants of ONNX files: bits flipped, pieces moved, and messages that parse but say something else."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from specgrad.interop.onnx.read.convert_node import all_operators

NUMBERS = (0, 1, -1, 2, 3, 7, 255, 2**16, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
OPERATOR_NAMES = sorted(all_operators())


# --- bytes -----------------------------------------------------------------------------------------------------------


def flip_bits(rng: Random, data: bytearray, models: list[bytes]) -> None:
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def splice(rng: Random, data: bytearray, models: list[bytes]) -> None:
    """A piece of some model, over or between the bytes of this one."""
    other = rng.choice(models)
    start = rng.randrange(len(other))
    piece = other[start : start + rng.choice((1, 4, 16, 64, 256))]
    at = rng.randrange(len(data))
    data[at : at + rng.choice((0, len(piece)))] = piece


def cut(rng: Random, data: bytearray, models: list[bytes]) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 8, 64, len(data)))]


def long_number(rng: Random, data: bytearray, models: list[bytes]) -> None:
    at = rng.randrange(len(data))
    data[at : at + 1] = b"\xff" * rng.randint(1, 9) + b"\x01"


# --- messages --------------------------------------------------------------------------------------------------------


def change_attribute(rng: Random, model: Any) -> None:
    node = rng.choice(model.graph.node)
    if not node.attribute:
        node.attribute.append(onnx.helper.make_attribute(rng.choice(("axis", "pads", "p", "group")), 3))
    a = rng.choice(node.attribute)
    if a.ints and rng.random() < 0.8:
        a.ints[rng.randrange(len(a.ints))] = rng.choice(NUMBERS)
    elif rng.random() < 0.3:
        a.type = rng.choice((1, 2, 3, 4, 6, 7))
    else:
        a.i, a.f = rng.choice(NUMBERS), rng.choice((0.0, -1.0, 1e38, float("inf"), float("nan")))


def change_operator(rng: Random, model: Any) -> None:
    rng.choice(model.graph.node).op_type = rng.choice(OPERATOR_NAMES)


def change_wire(rng: Random, model: Any) -> None:
    """Another value at an input or output: cycles, wrong types, names computed twice."""
    node = rng.choice(model.graph.node)
    names = [n for other in model.graph.node for n in (*other.input, *other.output)] + ["", "nowhere"]
    side = node.input if node.input and rng.random() < 0.7 else node.output
    if side:
        side[rng.randrange(len(side))] = rng.choice(names)
    if rng.random() < 0.3:
        node.input.append(rng.choice(names))


def change_size(rng: Random, model: Any) -> None:
    tensors = [t for t in model.graph.initializer if t.dims]
    dims = [d for i in model.graph.input for d in i.type.tensor_type.shape.dim]
    if tensors and (not dims or rng.random() < 0.6):
        t = rng.choice(tensors)
        t.dims[rng.randrange(len(t.dims))] = rng.choice(NUMBERS)
    elif dims:
        rng.choice(dims).dim_value = rng.choice(NUMBERS)


def change_type(rng: Random, model: Any) -> None:
    if model.graph.initializer and rng.random() < 0.5:
        rng.choice(model.graph.initializer).data_type = rng.randrange(20)
    else:
        rng.choice(model.graph.input).type.tensor_type.elem_type = rng.randrange(20)


def change_integers(rng: Random, model: Any) -> None:
    """Shapes, axes and pads that stand in tensors."""
    found = [t for t in model.graph.initializer if t.data_type == 7]
    found += [a.t for n in model.graph.node for a in n.attribute if a.type == 4 and a.t.data_type == 7]
    if found:
        t = rng.choice(found)
        numbers = onnx.numpy_helper.to_array(t).copy().reshape(-1)
        if numbers.size:
            numbers[rng.randrange(numbers.size)] = rng.choice(NUMBERS)
        t.CopyFrom(onnx.numpy_helper.from_array(numbers.reshape(tuple(t.dims)), t.name))


def change_opset(rng: Random, model: Any) -> None:
    model.opset_import[0].version = rng.randrange(1, 30)


def shuffle(rng: Random, model: Any) -> None:
    nodes = list(model.graph.node)
    i, j = rng.randrange(len(nodes)), rng.randrange(len(nodes))
    nodes[i], nodes[j] = nodes[j], nodes[i]
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)


BYTES: tuple[Callable[..., None], ...] = (flip_bits, flip_bits, splice, cut, long_number)
MESSAGES: tuple[Callable[..., None], ...] = (
    change_attribute,
    change_attribute,
    change_operator,
    change_wire,
    change_size,
    change_type,
    change_integers,
    change_opset,
    shuffle,
)


def mutant(rng: Random, models: list[bytes]) -> bytes:
    """One to three changes of one kind to one of the models."""
    data = bytearray(rng.choice(models))
    if rng.random() < 0.5:
        for _ in range(rng.randint(1, 3)):
            rng.choice(BYTES)(rng, data, models)
            if not data:
                return b""
        return bytes(data)
    model = onnx.ModelProto.FromString(bytes(data))
    for _ in range(rng.randint(1, 3)):
        try:
            rng.choice(MESSAGES)(rng, model)
        except (IndexError, ValueError, KeyError, DecodeError):  # nothing of that kind to change
            continue
    return model.SerializeToString()
