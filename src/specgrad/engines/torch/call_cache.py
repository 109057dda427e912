"""Cache of public calls on plain eager tensors, by shapes, types and settings.

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
_signature_numbers: dict[tuple[Any, ...], int] = {}


def call(form: CallSignature, values: tuple[Any, ...]) -> Any:
    """Run the first call with arguments `values` of these types, and install a function in `form` for the next ones."""
    if is_observed() or _recorder() is not None or any(k not in KEYABLE_TYPES for k in form.kinds):
        return form.general(values)
    run = form.programs[form.kinds] = _make_caller(form)
    return run(*values)


# --- descriptions ---------------------------------------------------------------------------------------------------

SETTING_TYPES = frozenset({int, bool, str, type(None), Size})
INT_TUPLE_TYPES = frozenset((int,) * n for n in range(8))
SLICE_TYPES = frozenset(product((int, type(None)), repeat=3))  # of a slice
TENSORS = frozenset({Tensor, Parameter})
CONTAINERS = frozenset({tuple, list, slice})
KEYABLE_TYPES = SETTING_TYPES | TENSORS | CONTAINERS | {float}

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


def _make_caller(form: CallSignature) -> Program:
    """Return the function that builds a call's key and runs the program cached under it, or records one."""
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
        words=", ".join(["number", *(_key_source(name, kind) for name, kind in pairs)]),
    )
    number = _signature_numbers.setdefault((form.fn, *form.kinds), len(_signature_numbers))
    scope: dict[str, Any] = {"form": form, "fn": form.fn, "number": number, "programs": _programs}
    scope |= {
        "is_observed": is_observed,
        "recorder": _recorder,
        "inside": _container_key,
        "ends": _slice_key,
        "first": _record_first_call,
    }
    exec(compile(source, f"{__file__} for {form.fn.__name__}", "exec"), scope)
    run: Program = scope["run"]
    return run


def _key_source(name: str, kind: type) -> str:
    """Return the source text of the key of the argument `name` of type `kind`: 0.0 and -0.0, or CPU and other devices,
    differ.
    """
    if kind in TENSORS:
        return f"{name}.shape, {name}.dtype, {name}.is_cpu"
    if kind in CONTAINERS:
        return f"ends({name}, tensors)" if kind is slice else f"inside({name}, tensors)"
    return f"{name} or str({name})" if kind is float else name


def _container_key(value: Any, tensors: list[Tensor]) -> Any:
    """Return a hashable key of `value` (a setting, a tensor, or a tuple, list or slice of these); append its tensors to
    `tensors`.

    TypeError for types that are no settings.

    1, 1.0 and True have distinct keys, and so have a list and a tuple.
    """
    kind = type(value)
    if kind is tuple or kind is list:
        whole = kind is tuple and tuple(map(type, value)) in INT_TUPLE_TYPES
        return value if whole else (kind, *[_container_key(v, tensors) for v in value])
    if kind in SETTING_TYPES:
        return kind, value
    if kind is float:
        return kind, value or str(value)
    if kind is slice:
        return kind, *_slice_key(value, tensors)
    if kind not in TENSORS:
        raise TypeError(kind)
    tensors.append(value)
    return value.shape, value.dtype, value.is_cpu


def _slice_key(value: slice, tensors: list[Tensor]) -> tuple[Any, ...]:
    """Return a hashable key of the slice `value`; tensors in it are appended to `tensors`.

    TypeError for ends of other types.
    """
    ends = value.start, value.stop, value.step
    return ends if tuple(map(type, ends)) in SLICE_TYPES else tuple(_container_key(v, tensors) for v in ends)


# --- the first call of a description --------------------------------------------------------------------------------


def _record_first_call(form: CallSignature, key: Key, tensors: list[Tensor], values: tuple[Any, ...]) -> Any:
    """Run a call of the form `form` with these argument values, and store the program that it came to under `key`.

    An error leaves no entry; nor does a call with one tensor in two places, which looks like a call with two.
    """
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
    _programs[key] = recorder.program(y) or _no_program
    return y


def _no_program(*_: Tensor) -> None:
    """Stand for the program of a call that cannot be recorded in full: None means that the function runs."""
