"""Public calls on plain eager tensors, found again by shapes, types and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ...settled import RECORDER, Program
from ..base import MOST_PLANS
from ..record import Recorder

_compiling, _tracing = torch.compiler.is_compiling, torch._C._is_tracing
_transformed, _modes = torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack
_recorder = RECORDER.get
_programs: dict[tuple[Any, ...], Program | None] = {}


def call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """fn(*args, **kwargs), by what an earlier call with these shapes, types and settings came to."""
    if (
        _compiling()  # first: torch.compile reads it as a constant and cannot trace the others
        or _tracing()
        or _transformed()
        or _modes()
        or _recorder() is not None  # the outermost call is recorded
    ):
        return fn(*args, **kwargs)
    words: list[Any] = [fn]
    tensors: list[Tensor] = []
    try:
        for a in args:
            kind = type(a)
            if kind is Tensor or kind is Parameter:  # written out: most arguments are tensors
                tensors.append(a)
                words += (a.shape, a.dtype)
            else:
                _describe(a, words, tensors)
        for name in kwargs:
            words.append(name)
            _describe(kwargs[name], words, tensors)
        key = tuple(words)
        program = _programs.get(key, _unseen)
    except TypeError:  # an argument that is no plain setting
        return fn(*args, **kwargs)
    if program is _unseen:  # not by KeyError: what is refused below would name it too
        return _first(key, fn, args, kwargs, tensors)
    y = None if program is None else program(*tensors)
    return fn(*args, **kwargs) if y is None else y


def _unseen(*_: Tensor) -> None:
    """Stands for the program of a call that has none yet."""


PLAIN = frozenset({int, bool, str, type(None)})
INTS = frozenset((int,) * n for n in range(8))


def _describe(value: Any, words: list[Any], tensors: list[Tensor]) -> None:
    """Words that tell this value from every other: 1 from 1.0 and True, 0.0 from -0.0, a list from a tuple."""
    kind = type(value)
    if kind in PLAIN:
        words += (kind, value)
    elif kind is tuple and (kinds := tuple(map(type, value))) in INTS:
        words += (kinds, value)
    elif kind is Tensor or kind is Parameter:
        tensors.append(value)
        words += (value.shape, value.dtype)
    elif kind is float:
        words += (kind, value or str(value))
    elif kind is tuple or kind is list:
        words += (kind, len(value))
        for v in value:
            _describe(v, words, tensors)
    elif kind is slice:
        words.append(kind)
        for v in (value.start, value.stop, value.step):
            _describe(v, words, tensors)
    else:
        raise TypeError(kind)


def _first(
    key: tuple[Any, ...], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
) -> Any:
    """A refusal leaves no entry; nor does a call with one tensor in two places, which looks like a call with two."""
    if len({id(t) for t in tensors}) < len(tensors):
        return fn(*args, **kwargs)
    recorder = Recorder(Tensor, tensors)
    token = RECORDER.set(recorder)
    try:
        y = fn(*args, **kwargs)
    finally:
        RECORDER.reset(token)
    if len(_programs) >= MOST_PLANS:
        _programs.clear()
    _programs[key] = recorder.program(y)
    return y
