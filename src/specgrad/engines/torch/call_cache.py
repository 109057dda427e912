"""Public calls on plain eager tensors, found again by shapes, types and settings.

The types of a call's arguments say how it is described; that is written out once as a function of the arguments, so
that finding a call again is one tuple and one look into a dictionary.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from torch import Size, Tensor
from torch.nn import Parameter

from specgrad.call_cache import RECORDER, CallSignature, Program

from ..base import MAX_CACHED_KERNELS
from ..call_recorder import CallRecorder
from .modes import is_observed

Key = tuple[Any, ...]
_recorder = RECORDER.get
_programs: dict[Key, Program] = {}
_forms: dict[tuple[Any, ...], int] = {}


def call(form: CallSignature, values: tuple[Any, ...]) -> Any:
    """The first call of a form: the next ones are described by a function of their own."""
    if is_observed() or _recorder() is not None or any(k not in READABLE for k in form.kinds):
        return form.general(values)
    run = form.programs[form.kinds] = _reader(form)
    return run(*values)


# --- descriptions ---------------------------------------------------------------------------------------------------

PLAIN = frozenset({int, bool, str, type(None), Size})
INTS = frozenset((int,) * n for n in range(8))
ENDS = frozenset(product((int, type(None)), repeat=3))  # of a slice
TENSORS = frozenset({Tensor, Parameter})
CONTAINERS = frozenset({tuple, list, slice})
READABLE = PLAIN | TENSORS | CONTAINERS | {float}

SOURCE = """
def run({given}):
    if is_observed() or recorder() is not None:  # the outermost call is recorded
        return fn({spelled})
    {noted}
    try:
        key = ({words},)
    except TypeError:  # an argument that is no plain setting
        return fn({spelled})
    program = programs.get(key)
    y = first(form, key, [{tensors}], ({given},)) if program is None else program({tensors})
    return fn({spelled}) if y is None else y
"""


def _reader(form: CallSignature) -> Program:
    given = [f"a{i}" for i in range(len(form.kinds))]
    plain = len(given) - len(form.keywords)
    pairs = list(zip(given, form.kinds, strict=True))
    tensors = ", ".join(name for name, kind in pairs if kind in TENSORS)
    holds = any(kind in CONTAINERS for kind in form.kinds)  # they may hold tensors too
    source = SOURCE.format(
        given=", ".join(given),
        spelled=", ".join(given[:plain] + [f"{k}={a}" for k, a in zip(form.keywords, given[plain:], strict=True)]),
        noted=f"tensors = [{tensors}]" if holds else "",
        tensors="*tensors" if holds else tensors,
        words=", ".join(["number", *(_words(name, kind) for name, kind in pairs)]),
    )
    number = _forms.setdefault((form.fn, *form.kinds), len(_forms))
    scope: dict[str, Any] = {"form": form, "fn": form.fn, "number": number, "programs": _programs}
    scope |= {"is_observed": is_observed, "recorder": _recorder, "inside": _inside, "ends": _ends, "first": _first}
    exec(compile(source, f"{__file__} for {form.fn.__name__}", "exec"), scope)
    run: Program = scope["run"]
    return run


def _words(name: str, kind: type) -> str:
    """What tells this argument from every other of its type: 0.0 from -0.0, a tensor elsewhere from one on the CPU."""
    if kind in TENSORS:
        return f"{name}.shape, {name}.dtype, {name}.is_cpu"
    if kind in CONTAINERS:
        return f"ends({name}, tensors)" if kind is slice else f"inside({name}, tensors)"
    return f"{name} or str({name})" if kind is float else name


def _inside(value: Any, tensors: list[Tensor]) -> Any:
    """Words for what a container holds: 1 told from 1.0 and True, a list from a tuple; its tensors are noted."""
    kind = type(value)
    if kind is tuple or kind is list:
        whole = kind is tuple and tuple(map(type, value)) in INTS
        return value if whole else (kind, *[_inside(v, tensors) for v in value])
    if kind in PLAIN:
        return kind, value
    if kind is float:
        return kind, value or str(value)
    if kind is slice:
        return kind, *_ends(value, tensors)
    if kind not in TENSORS:
        raise TypeError(kind)
    tensors.append(value)
    return value.shape, value.dtype, value.is_cpu


def _ends(value: slice, tensors: list[Tensor]) -> tuple[Any, ...]:
    ends = value.start, value.stop, value.step
    return ends if tuple(map(type, ends)) in ENDS else tuple(_inside(v, tensors) for v in ends)


# --- the first call of a description --------------------------------------------------------------------------------


def _first(form: CallSignature, key: Key, tensors: list[Tensor], values: tuple[Any, ...]) -> Any:
    """A refusal leaves no entry; nor does a call with one tensor in two places, which looks like a call with two."""
    if len({id(t) for t in tensors}) < len(tensors):
        return form.general(values)
    recorder = CallRecorder(Tensor, tensors)
    token = RECORDER.set(recorder)
    try:
        y = form.general(values)
    finally:
        RECORDER.reset(token)
    if len(_programs) >= MAX_CACHED_KERNELS:
        _programs.clear()
    _programs[key] = recorder.program(y) or _nothing
    return y


def _nothing(*_: Tensor) -> None:
    """The program of a call that cannot be told in full."""
