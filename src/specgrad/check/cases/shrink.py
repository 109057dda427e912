"""Shrink a failing test case: one simplification at a time, kept as long as the same fault remains.

`q` is the case that is simplified.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from specgrad.errors import SpecgradError
from specgrad.scalar import Array

from .generate import has_empty_window
from .op_case import OpCase

DEFAULTS: dict[str, Any] = {
    "padding": 0,
    "ceil": False,
    "dilation": 1,
    "groups": 1,
    "stride": 1,
    "output_padding": 0,
    "count_include_pad": True,
    "divisor": None,
    "p": 1,
    "kernel": 1,
}
DROPPABLE = ("ceil", "divisor", "count_include_pad")  # plain values, dropped rather than set


def _with_changes(question: OpCase, arrays: Mapping[str, Array] | None = None, /, **attributes: Any) -> OpCase:
    """Return the case with other attributes or arrays; the cotangent is repeated or cut to the new shape."""
    changed = replace(question, attributes={**question.attributes, **attributes}, arrays=arrays or question.arrays)
    if question.gradient is not None:
        changed = replace(changed, gradient=np.resize(question.gradient, changed.output_shape()).astype(np.float32))
    return changed


def _simpler_attributes(q: OpCase) -> Iterator[OpCase]:
    """Yield cases like q with one attribute removed, set to its default, or one step closer to it."""
    for name, value in q.attributes.items():
        if name in DROPPABLE and value != DEFAULTS[name]:
            yield replace(_with_changes(q), attributes={k: v for k, v in q.attributes.items() if k != name})
        elif name in DEFAULTS and isinstance(value, tuple):
            yield from _simpler_tuple(q, name, value)
    if isinstance(q.attributes.get("padding"), str):
        yield _with_changes(q, padding=0)
    if q.spelling:
        yield replace(q, spelling="")


def _simpler_tuple(q: OpCase, name: str, value: tuple[Any, ...]) -> Iterator[OpCase]:
    """Yield cases like `q` with one axis of the attribute `name`, which is `value`, at its default, or one step closer
    to it.

    Each entry is an int, or of "padding" a pair.
    """
    plain = (0, 0) if name == "padding" else DEFAULTS[name]
    for i, v in enumerate(value):
        steps = [plain] if isinstance(v, tuple) else [plain, v - 1]
        if isinstance(v, tuple):
            steps += [(max(0, v[0] - 1), v[1]), (v[0], max(0, v[1] - 1))]
        for new in steps:
            if new != v and (isinstance(new, tuple) or new >= plain):
                yield _with_changes(q, **{name: (*value[:i], new, *value[i + 1 :])})


def _smaller_arrays(q: OpCase) -> Iterator[OpCase]:
    """Yield cases like q with arrays cropped along one axis, without bias, or with smaller weights."""
    x = q.arrays["x"]
    for axis in range(x.ndim):
        if x.shape[axis] > 1 and (axis != 1 or not set(q.arrays) - {"x", "z"}):
            half = x.shape[axis] // 2  # in large steps first; an even size may have to stay even
            for part in (slice(half), slice(half, None), slice(1, None), slice(None, -1)):
                yield _with_changes(
                    q, {k: _cut_axis(a, axis, part) if k in ("x", "z") else a for k, a in q.arrays.items()}
                )
    if "b" in q.arrays:
        yield _with_changes(q, {k: a for k, a in q.arrays.items() if k != "b"})
    if "w" in q.arrays:
        yield from _smaller_weights(q)


def _smaller_weights(q: OpCase) -> Iterator[OpCase]:
    """Yield cases like the convolution q with fewer groups, fewer channels per group, or smaller kernels."""
    w, groups = q.arrays["w"], q.attributes.get("groups", 1)
    here = (groups, q.arrays["x"].shape[1] // groups, _out_channels(q) // groups)
    for kept in ((1, *here[1:]), (max(1, groups - 1), *here[1:]), (groups, 1, here[2]), (*here[:2], 1)):
        if kept != here:
            yield _with_changes(
                q, _fewer_channels(q, *kept), **({"groups": kept[0]} if "groups" in q.attributes else {})
            )
    for axis in range(2, w.ndim):
        if w.shape[axis] > 1:
            yield _with_changes(q, {**q.arrays, "w": _cut_axis(w, axis, slice(None, -1))})


def _out_channels(q: OpCase) -> int:
    """Return the number of output channels of case q, a convolution."""
    w = q.arrays["w"]
    return int(w.shape[1] * q.attributes["groups"] if q.operator == "conv_transpose" else w.shape[0])


def _fewer_channels(q: OpCase, groups: int, cin: int, cout: int) -> dict[str, Array]:
    """Return x, w and b of the first `groups` groups of case q, and of each the first `cin` and `cout` channels."""
    split, x, w = q.attributes.get("groups", 1), q.arrays["x"], q.arrays["w"]
    first, second = (cin, cout) if q.operator == "conv_transpose" else (cout, cin)
    parts = x.reshape(len(x), split, -1, *x.shape[2:])[:, :groups, :cin]
    kernels = w.reshape(split, -1, *w.shape[1:])[:groups, :first, :second]
    kept = {"x": parts.reshape(len(x), -1, *x.shape[2:]), "w": kernels.reshape(groups * first, second, *w.shape[2:])}
    if "b" in q.arrays:
        kept["b"] = q.arrays["b"].reshape(split, -1)[:groups, :cout].reshape(-1)
    return {name: np.ascontiguousarray(a) for name, a in kept.items()}


def _cut_axis(a: Array, axis: int, part: slice) -> Array:
    """Return a copy, contiguous, of the slice `part` of the array a along `axis`."""
    return np.ascontiguousarray(a[(slice(None),) * axis + (part,)])


def _lower_rank(q: OpCase) -> Iterator[OpCase]:
    """Yield a case like q for each spatial axis of one cell of x: without it, if another spatial axis is left."""
    x = q.arrays["x"]
    for axis in range(2, x.ndim):
        if x.ndim > 3 and x.shape[axis] == 1:
            i = axis - 2
            drop: dict[str, Any] = {k: (*v[:i], *v[i + 1 :]) for k, v in q.attributes.items() if isinstance(v, tuple)}
            drop |= {"rank": q.attributes["rank"] - 1} if "rank" in q.attributes else {}
            arrays = {k: a.squeeze(axis) if a.ndim == x.ndim and a.shape[axis] == 1 else a for k, a in q.arrays.items()}
            yield _with_changes(q, arrays, **drop)


def _simpler_numbers(q: OpCase) -> Iterator[OpCase]:
    """Yield cases like q with small integers or zeros in place of finite numbers; NaN and infinities stay."""
    for make in (lambda a: np.arange(1, a.size + 1).reshape(a.shape), np.rint, np.zeros_like):
        for name, a in q.arrays.items():
            new = np.where(np.isfinite(a), make(a), a).astype(np.float32)
            if not np.array_equal(new, a, equal_nan=True):
                yield _with_changes(q, {**q.arrays, name: new})
    if q.gradient is not None and (q.gradient != 1).any():
        yield replace(q, gradient=np.ones_like(q.gradient))


STEPS = (_smaller_arrays, _simpler_attributes, _lower_rank, _simpler_numbers)


def _simplifications(question: OpCase) -> Iterator[OpCase]:
    """Yield valid simplifications of a case, those without an output cell or with empty windows left out."""
    for step in STEPS:
        simpler = step(question)
        while True:
            try:
                candidate = next(simpler)
                if min(candidate.output_shape(), default=1) > 0 and not has_empty_window(candidate):
                    yield candidate
            except StopIteration:
                break
            except SpecgradError:  # this simplification is no valid question; the generator behind it is spent
                continue


def complexity(question: OpCase) -> tuple[int, ...]:
    """Return what shrinking a case reduces, most important first: cells, attributes, their size, how plain the numbers
    are.
    """
    arrays = [*question.inputs().values()]
    numbers = [v for value in question.attributes.values() for v in np.ravel(_attribute_size(value)).tolist()]
    cells = np.concatenate([np.ravel(a) for a in arrays])
    with np.errstate(invalid="ignore"):
        plain = (cells != 0).astype(int) + (np.abs(cells) > cells.size) + 2 * (cells != np.rint(cells))
    parts = len(question.attributes) + bool(question.spelling)
    return sum(a.size for a in arrays), parts, int(sum(numbers)), int(plain.sum())


def _attribute_size(value: Any) -> Any:
    """Return an attribute's value as numbers to add up; a text counts 5, None 0."""
    return 5 if isinstance(value, str) else 0 if value is None else value


def shrink(question: OpCase, still_fails: Callable[[OpCase], bool], *, seconds: float = 20) -> OpCase:
    """Return the smallest case found in `seconds` for which `still_fails` holds.

    >>> from .generate import draw_case as generated
    >>> shrink(generated("relu", "gaussian", 3), lambda q: (q.arrays["x"] < 0).any()).arrays["x"].size
    1
    """
    deadline = time.monotonic() + seconds
    improved = True
    while improved and time.monotonic() < deadline:
        improved = False
        for candidate in _simplifications(question):
            if time.monotonic() > deadline:
                break
            if complexity(candidate) < complexity(question) and still_fails(candidate):
                question, improved = candidate, True
                break
    return question
