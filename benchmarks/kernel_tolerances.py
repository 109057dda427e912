"""The 100 operations of KernelBench, level 1: PyTorch's kernels judged by samples of their cells, and planted faults.

    python benchmarks/kernel_tolerances.py --gib 1.05 --gflop 140    # adds lines to kernel_tolerances.jsonl
    python benchmarks/kernel_tolerances.py --only 1 5 --dtype bfloat16

Every line is an operation in a format, at its full size or on a part of its batch, where arrays would pass --gib or the
kernel --gflop. The result is held against the exact operation by `assert_conforms`; then every fault is planted, and
judged on the same cells, by allclose at KernelBench's tolerances (1e-2) and at torch.testing's. Where the format is
float32, faults that usual numbers do not show are asked again of small integers. Operations that have a line already
are skipped.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # large pages: half of the time went into small ones

import numpy as np
import torch
from torch import Tensor

from kernel_faults import close, faults
from kernel_operations import Operation, operations
from specgrad.check import ConformanceError, assert_conforms
from specgrad.check.conform.cell_sample import Selection
from specgrad.check.conform.cropped_reference import read_cells
from specgrad.check.conform.sample_tally import JudgedPart, SampleTally
from specgrad.check.conform.sampled import SampledReference
from specgrad.check.kernels.reference import Reference
from specgrad.check.verdicts.judge import judge_array
from specgrad.rounding import Arithmetic, Ball

RECORD = Path(__file__).with_suffix(".jsonl")
ARITHMETIC = {"float32": Arithmetic(), "bfloat16": Arithmetic("bfloat16", accumulate="float32")}
KERNELBENCH = {"float32": (1e-2, 1e-2), "bfloat16": (1e-2, 1e-2)}
TESTING = {"float32": (1.3e-6, 1e-5), "bfloat16": (1.6e-2, 1e-5)}  # rtol, atol of torch.testing.assert_close
SUMS = ("product", "conv", "reduction", "scan", "pool")  # of integers, these are integers
SEED = 38


# --- sizes ------------------------------------------------------------------------------------------------------------


def gibibytes(op: Operation) -> float:
    """Return the size of inputs and result in float32."""
    return (sum(d.bytes for d in op.inputs) + 4 * op.result().numel()) / 2**30


def gigaflops(op: Operation) -> float:
    """Return the multiplications and additions of a product or a convolution, in 10^9; 0 of all else."""
    cells = op.result().numel()
    if op.taps is not None:
        of = np.prod(op.inputs[0].shape) * op.taps.cout if op.taps.transposed else cells * op.taps.cin
        return float(2 * of / op.taps.groups * np.prod(op.taps.kernel) / 1e9)
    if op.name == "attention":
        return 4e-9 * cells * op.inputs[0].shape[-2]
    if op.family != "product" or len(op.inputs) < 2:
        return 0.0
    a, b = (np.prod(d.shape) for d in op.inputs)
    batch = op.batch if op.name == "batches of matrices" else 1
    return float(2e-9 * np.sqrt(float(a) * float(b) * cells / batch))


def cut(op: Operation, gib: float, gflop: float) -> Operation:
    """Return the operation; where it passes a limit, on so much of its batch that it stays below a quarter of both."""
    if gibibytes(op) <= gib and gigaflops(op) <= gflop:
        return op
    share = min(1.0, gib / 4 / gibibytes(op), gflop / 4 / max(gigaflops(op), 1e-9))
    return op.with_batch(max(1, int(op.batch * share)))


# --- one check --------------------------------------------------------------------------------------------------------


class Usage:
    """CPU seconds and the largest memory of a block, beyond what was held before."""

    def __enter__(self) -> Usage:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        self.before, self.start = self._status("VmRSS"), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.process_time() - self.start
        self.peak = max(0.0, self._status("VmHWM") - self.before)

    @staticmethod
    def _status(key: str) -> float:
        text = Path("/proc/self/status").read_text()
        return float(text.split(f"{key}:")[1].split()[0]) * 1024 / 1e9


@dataclass(eq=False)
class Cells(SampleTally):
    """The cells that a sample judges, with what is allowed there."""

    parts: list[tuple[Selection, Ball]] = field(default_factory=list)

    def add(self, part: JudgedPart) -> None:
        """Keep a selection."""
        super().add(part)
        self.parts.append((part.selection, part.ball))

    def add_usual(self, *_: Any) -> None:
        """Estimate nothing."""

    def differs(self, got: Tensor) -> bool:
        """Return whether some cell of a result is further off than any rounding explains."""
        verdicts = (judge_array("y", read_cells(got, s.positions).astype(float), ball) for s, ball in self.parts)
        return any(v.kind == "differs" for v in verdicts)

    def rejected(self, got: Tensor, rtol: float, atol: float) -> float:
        """Return the share of the judged cells at which a tolerance rejects `got` beside exact values."""
        wrong = cells = 0
        for selection, ball in self.parts:
            y, e = read_cells(got, selection.positions).astype(float), ball.value
            wrong += int(np.count_nonzero(~(abs(y - e) <= atol + rtol * abs(e)) & (y != e)))
            cells += y.size
        return wrong / max(cells, 1)


def judged_cells(op: Operation, given: list[Tensor], y: Tensor, arithmetic: Arithmetic) -> Cells:
    """Return the cells that the check of this result judges."""
    reader = Reference(op.function)
    arrays = [t.float().numpy() if t.dtype == torch.bfloat16 else t.numpy() for t in given]
    reference = SampledReference(reader.graph(arrays), arithmetic, "torch")
    cells = Cells("y", y.numel())
    (one,) = reference.outputs
    reference._judge_output(cells, one, reference.arrays(arrays), y, 4096, SEED)
    return cells


def check(op: Operation, given: list[Tensor], y: Tensor, dtype: str) -> dict[str, Any]:
    """Return verdict, seconds and memory of one line of a test."""
    with Usage() as usage:
        try:
            done = assert_conforms(
                lambda *_: y, op.function, inputs=given, arithmetic=ARITHMETIC[dtype], layouts="contiguous", seed=SEED
            )
        except ConformanceError as error:
            return {"verdict": str(error.verdict), "text": str(error)[:600]}
        except Exception as error:
            return {"verdict": "refused", "text": f"{type(error).__name__}: {error}"[:600]}
    said: dict[str, Any] = {"verdict": "inside", "used": done.ratio, "seconds": usage.seconds, "peak_gb": usage.peak}
    for sample in done.samples:
        said |= {"judged": sample.judged, "cells": sample.cells, "draws": sample.draws, "open": sample.open_cells}
        said |= {"left_out": sample.left_out}
    return said


def small_integers(op: Operation) -> Operation:
    """Return the operation with inputs of which `draw` is rounded to small integers."""
    return replace(op, inputs=tuple(replace(d, how="normal") if d.how.startswith("weight") else d for d in op.inputs))


def planted(
    op: Operation, given: list[Tensor], y: Tensor, cells: Cells, dtype: str
) -> Iterator[tuple[str, dict[str, bool]]]:
    """Yield every fault with who catches it."""
    for fault in faults(op, given, y, SEED):
        if torch.equal(fault.cells, fault.right):
            continue  # nothing is wrong
        by = {"KernelBench": KERNELBENCH, "torch.testing": TESTING}
        caught = {name: not close(fault.cells, fault.right, *limits[dtype]) for name, limits in by.items()}
        yield fault.name, {"specgrad": cells.differs(fault.wrong), **caught}


def ask_integers(op: Operation, found: dict[str, dict[str, bool]]) -> None:
    """Ask again, of small integers, what usual numbers did not show."""
    missed = [name for name, by in found.items() if not by["specgrad"] and name != "one stale tile"]  # same cells again
    if not missed or op.family not in SUMS or op.name in ("attention", "cumprod"):
        return
    given = [t.clamp_(-3, 3).round_() if t.is_floating_point() else t for t in small_integers(op).draw(SEED + 1)]
    y = op.function(*given)
    cells = judged_cells(op, given, y, Arithmetic())
    if cells.verdict.kind == "differs":
        raise AssertionError(f"{op.name}: integers: {cells.verdict}")
    for fault in faults(op, given, y, SEED, missed):
        if not torch.equal(fault.cells, fault.right):
            found[fault.name]["integers"] = cells.differs(fault.wrong)


def run(op: Operation, dtype: str, gib: float, gflop: float) -> dict[str, Any]:
    """Return the line of one operation in one format."""
    part = cut(op, gib, gflop)
    given = part.draw(SEED, getattr(torch, dtype))
    line: dict[str, Any] = {
        "number": op.number, "name": op.name, "family": op.family, "dtype": dtype, "shape": list(part.result().shape),
        "batch": part.batch, "of": op.batch, "gib": gibibytes(op),
    }  # fmt: skip
    start = time.process_time()
    try:
        y = part.function(*given)
    except NotImplementedError as error:
        return line | {"verdict": "no kernel", "text": str(error)[:200]}
    line["kernel_seconds"] = time.process_time() - start
    line |= check(part, given, y, dtype)
    if line["verdict"] == "refused":
        return line
    cells = judged_cells(part, given, y, ARITHMETIC[dtype])
    rejected = {"KernelBench": KERNELBENCH, "torch.testing": TESTING}
    line["rejected"] = {name: cells.rejected(y, *limits[dtype]) for name, limits in rejected.items()}
    found = dict(planted(part, given, y, cells, dtype))
    del given, y
    if dtype == "float32":
        ask_integers(part, found)
    return line | {"faults": found}


def recorded() -> list[dict[str, Any]]:
    """Return the lines that are there."""
    return [json.loads(text) for text in RECORD.read_text().splitlines()] if RECORD.exists() else []


def machine() -> dict[str, str]:
    """Return what computed."""
    return {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of operations, in the order in which they run")
    parser.add_argument("--dtype", nargs="*", default=list(ARITHMETIC), choices=list(ARITHMETIC))
    parser.add_argument("--gib", type=float, default=1.05, help="inputs and result, in float32")
    parser.add_argument("--gflop", type=float, default=140.0, help="of one run of the kernel")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    here = {(line["number"], line["dtype"]) for line in recorded()}
    for dtype in asked.dtype:
        every = operations()
        for op in [every[k - 1] for k in asked.only or range(1, len(every) + 1)]:
            if (op.number, dtype) in here:
                continue
            try:
                line = run(op, dtype, asked.gib, asked.gflop) | machine()
            except Exception as error:
                print(op.number, op.name, dtype, f"{type(error).__name__}: {error}"[:500], flush=True)
                continue
            with RECORD.open("a") as record:
                record.write(json.dumps(line) + "\n")
            print(json.dumps({k: v for k, v in line.items() if k not in ("torch", "numpy", "python")}), flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
