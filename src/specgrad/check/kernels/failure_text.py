"""What a failed kernel test prints: how many cells, the worst one, the smallest input found, a script to repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specgrad.scalar import Array

from ..verdicts.judge import Verdict
from .arrays import MANY_CELLS
from .case import KernelCase
from .examine import Examination, JudgedResult

MOST_LITERAL_CELLS = 64  # numbers that a script holds as text


def failure_text(first: Examination, small: Examination, explained: Verdict, title: str, script: str) -> str:
    """Return the text of a failure: `first` as it was found, `small` after shrinking.

    explained  the verdict on the first, with the arithmetic that explains it, if one does
    title      what the reference is called
    script     that repeats the small one
    """
    lines = [f"the kernel and {title} {_head(explained)}", *_comparison(first), f"on {first.case}"]
    lines += ["", f"Smallest input found: {small.case}", *_cell_lines(small)]
    return "\n".join([*lines, "", "To repeat it:", "", *(f"    {line}" for line in script.splitlines())])


def _head(verdict: Verdict) -> str:
    """Return what went wrong, in a sentence after the names."""
    if verdict.kind == "crashes":
        return f"cannot be compared: the kernel raises {verdict.detail}"
    if verdict.kind == "refuses":
        return f"cannot be compared: the kernel refuses: {verdict.detail}"
    if verdict.kind == "other arithmetic":
        return f"differ: {verdict.detail}"
    return f"differ: {verdict.detail}" if verdict.detail else "differ, and no arithmetic that we know explains it"


def _comparison(failure: Examination) -> list[str]:
    """Return lines as torch.testing has them, per result of `failure` with wrong cells: cells that mismatch, and the
    greatest difference.
    """
    lines = []
    for result in failure.results:
        if result.got.shape != result.ball.value.shape:
            continue
        wrong = result.wrong
        if not wrong.any():
            continue
        lines.append(f"Mismatched cells of {result.name}: {_count(result, wrong)}")
        lines += _greatest(result, wrong)
    return lines


def _count(result: JudgedResult, wrong: Array) -> str:
    """Return how many cells of a result are wrong, of how many, and how many more a sample left out."""
    count, judged = int(np.count_nonzero(wrong)), wrong.size
    if (sample := result.sample) is not None:
        count, judged = sample.wrong, sample.judged
    text = f"{count:,} of {judged:,} ({100 * count / judged:.1f}%)"
    return text if sample is None or sample.complete else f"{text} that were judged, of {sample.cells:,}"


def _greatest(result: JudgedResult, wrong: Array) -> list[str]:
    """Return lines on the greatest difference among the wrong cells, and on the greatest part of what is allowed."""
    with np.errstate(all="ignore"):
        difference = np.abs(result.got.astype(np.float64) - result.ball.value)
        difference = np.where(wrong, np.where(np.isfinite(difference), difference, np.inf), -1.0)
        times = np.where(wrong, difference / result.ball.radius, -1.0)
    at = [np.unravel_index(np.argmax(d), d.shape) for d in (difference, times)]
    lines = [f"Greatest difference: {difference[at[0]]:.6g} at {_place(result, at[0])}"]
    lines[0] += f" (allowed {result.ball.radius[at[0]]:.3g})"
    if np.isfinite(times[at[1]]):
        lines.append(f"Greatest difference over what is allowed: {times[at[1]]:.3g} at {_place(result, at[1])}")
    return lines


def _place(result: JudgedResult, index: Sequence[Any]) -> str:
    """Return the cell `index` of a result as it is written: y[0, 3]; y if it has no axes."""
    return f"{result.name}[{', '.join(map(str, result.place(index)))}]" if len(index) else result.name


def _cell_lines(failure: Examination) -> list[str]:
    """Return lines on the worst cell: where it is, what the kernel gave, what is exact and allowed; of other faults
    what they are.
    """
    verdict = failure.verdict
    result = next((r for r in failure.results if r.name == verdict.result), None)
    if result is None or verdict.fault in ("shape", "type", "written"):
        return [f"  {verdict}"]
    place = f"{result.name}[{', '.join(map(str, verdict.index))}]" if verdict.index else result.name
    return [f"  {place} is {verdict.actual!r}, exact {verdict.expected!r}, allowed {verdict.allowed:.3g}"]


# --- the script -------------------------------------------------------------------------------------------------------


def repeat_script(failure: Examination, kernel: Any, arrays: str) -> str:
    """Return a program that asks the kernel once more and prints the worst cell beside its exact value.

    It needs the kernel, and NumPy, PyTorch or JAX, as `arrays` says; not this library.
    """
    case, verdict = failure.case, failure.verdict
    lines = ["import numpy as np", "from numpy import inf, nan"]
    lines += {"torch": ["import torch"], "jax": ["import jax.numpy as jnp"], "ml_dtypes": ["import ml_dtypes"]}.get(
        arrays, []
    )
    lines += [_import_of(kernel), ""]
    lines += [line for name in case.arrays for line in _input_lines(case, name, arrays)]
    result = next((k for k, r in enumerate(failure.results) if r.name == verdict.result), None)
    names = list(case.arrays)
    call = f"kernel({', '.join([names[-1], *names[:-1]] if case.gradient else names)})"
    if result is None or verdict.fault in ("shape", "type", "written"):
        return "\n".join([*lines, f"print({call})  # {verdict}"])
    index = "".join(f"{i}, " for i in verdict.index).rstrip(", ")
    cell = f"{call}{f'[{result}]' if len(failure.results) > 1 else ''}{f'[{index}]' if index else ''}"
    return "\n".join([*lines, f'print({cell}, "must be", {verdict.expected!r}, "within", {verdict.allowed!r})'])


def _import_of(kernel: Any) -> str:
    """Return the line that imports the kernel, or one to fill in where it has no name of its own."""
    module, name = getattr(kernel, "__module__", None), getattr(kernel, "__qualname__", "")
    if not module or module == "__main__" or not name.isidentifier():
        return "kernel = ...  # your kernel"
    return f"from {module} import {name} as kernel"


def _input_lines(case: KernelCase, name: str, arrays: str) -> list[str]:
    """Return lines of source text that make one input as the kernel got it: its numbers, its type, its layout.

    `arrays` is "numpy", "torch" or "jax".
    """
    a, dtype = case.arrays[name], case.formats[name]
    known = np.dtype(dtype) if hasattr(np, dtype) else None
    lines = _number_lines(a, name, f"np.{dtype if known is not None else a.dtype.name}")
    if arrays == "torch":
        lines.append(f"{name} = torch.from_numpy({name}){'' if known is not None else f'.to(torch.{dtype})'}")
    elif arrays == "jax":
        lines.append(f"{name} = jnp.asarray({name}){'' if known is not None else f'.astype({dtype!r})'}")
    elif known is None:
        lines.append(f"{name} = {name}.astype(ml_dtypes.{dtype})")
    if case.layout == "strided" and a.ndim:
        double = f"{name}.repeat_interleave(2, -1)" if arrays == "torch" else f"{name}.repeat(2, -1)"
        lines.append(f"{name} = {double}[..., ::2]")
    if case.layout == "transposed" and a.ndim > 1:
        turn = f"{'permute' if arrays == 'torch' else 'transpose'}{tuple(reversed(range(a.ndim)))}"
        lines.append(f"{name} = {name}.{turn}.{'contiguous' if arrays == 'torch' else 'copy'}().{turn}")
    return lines


def _number_lines(a: Array, name: str, dtype: str) -> list[str]:
    """Return lines of source text that make the array a, of type `dtype`, under `name`: constant, by its cells, by the
    few that are not 0, or read from a file.
    """
    if a.size > MANY_CELLS:
        return _read_lines(name)
    if a.size > 1 and (a == a.flat[0]).all():
        return [f"{name} = np.full({a.shape}, {_number(a.flat[0])}, {dtype})"]
    places = np.flatnonzero(a != 0)
    if a.size > 8 and places.size <= min(MOST_LITERAL_CELLS, a.size // 4):
        cells = ", ".join(_number(a.flat[p]) for p in places)
        return [f"{name} = np.zeros({a.shape}, {dtype})", f"{name}.flat[{places.tolist()}] = [{cells}]"]
    if a.size <= MOST_LITERAL_CELLS:
        cells = ", ".join(map(_number, a.flat))
        return [f"{name} = np.array([{cells}], {dtype}).reshape({a.shape})"]
    return _read_lines(name)


def _read_lines(name: str) -> list[str]:
    """Return lines that read an array of NumPy from a file."""
    return [f"# of the error that was caught: error.save_inputs()\n{name} = np.load({name + '.npy'!r})"]


def _number(value: Any) -> str:
    """Return `value`, a NumPy scalar, as source text that restores it: 3, 0.5, nan."""
    if value.dtype.kind != "f" or not np.isfinite(value):
        return str(value.item())
    number = float(value)  # 2**24 is no number of float16
    whole = number.is_integer() and abs(number) < 2**24 and not (number == 0 and np.signbit(value))
    return str(int(number)) if whole else str(value)
