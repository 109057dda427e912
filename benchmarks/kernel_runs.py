"""No false alarm: kernels of PyTorch, JAX and ONNX Runtime for KernelBench's 100 operations, at reduced sizes.

    python benchmarks/kernel_runs.py --draws 10 > benchmarks/kernel_runs.txt

Per operation, runtime and format: so many draws, each of other numbers, all cells judged by `assert_conforms`. JAX and
ONNX Runtime run the graph that is read from PyTorch; ONNX Runtime's CPU has no bfloat16. The first class of sums that
holds all draws is said: sums in float32, or in the format itself. Beside stands how many of these correct results
KernelBench's and torch.testing's tolerances reject, with PyTorch's result in the same format as what is expected.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import torch

import specgrad as sg
from kernel_faults import close
from kernel_operations import Operation, operations
from specgrad.check import ConformanceError, assert_conforms
from specgrad.check.kernels.reference import Reference
from specgrad.graph.graph import Graph
from specgrad.interop import to_onnx
from specgrad.rounding import Arithmetic

RUNTIMES = ("torch", "jax", "onnxruntime")
FORMATS = ("float32", "bfloat16", "float16")
TESTING = {"float32": (1.3e-6, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float16": (1e-3, 1e-5)}  # rtol, atol
TITLES = ("runtime", "format", "runs", "alarms", "open", "refused operations", "sums in format", "used",
          "rejected at 1e-2", "by torch.testing")  # fmt: skip
ROW = "{:12} {:9} {:>6} {:>7} {:>5} {:>19} {:>15} {:>6} {:>17} {:>17}"
Kernel = Callable[..., Any]


class NotOfferedError(Exception):
    """The runtime does not offer this operation in this format."""


def classes(form: str) -> list[Arithmetic]:
    """Return the classes of sums that are asked, the narrowest first."""
    return [Arithmetic()] if form == "float32" else [Arithmetic(form, accumulate="float32"), Arithmetic(form)]


def as_torch(array: Any) -> torch.Tensor:
    """Return a result as a tensor; bfloat16 from float32, which holds it."""
    if isinstance(array, torch.Tensor):
        return array
    short = str(array.dtype) == "bfloat16"
    tensor = torch.from_numpy(np.array(array.astype("float32") if short else array))
    return tensor.bfloat16() if short else tensor


def in_jax(graph: Graph, form: str) -> Kernel:
    """Return the graph as a function of tensors that JAX computes."""
    compiled = sg.compile(graph, "jax")

    def kernel(*given: torch.Tensor) -> torch.Tensor:
        kinds = [graph.nodes[p].kind for p in graph.input_positions]
        arrays = [
            jnp.asarray(t.float().numpy()).astype(form) if k == "real" else jnp.asarray(t.numpy())
            for t, k in zip(given, kinds, strict=True)
        ]
        y = as_torch(np.asarray(compiled(*arrays)))
        return y.to(getattr(torch, form)) if y.is_floating_point() else y

    return kernel


def in_onnxruntime(graph: Graph, form: str) -> Kernel:
    """Return the graph as a function of tensors that ONNX Runtime computes."""
    if form == "bfloat16":
        raise NotOfferedError("ONNX Runtime's CPU has no bfloat16")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(to_onnx(graph, dtype=form).SerializeToString(), options)
    except Exception as error:
        raise NotOfferedError(f"{type(error).__name__}: {error}"[:200]) from error
    wanted = [(i.name, {"tensor(int64)": np.int64, "tensor(float16)": np.float16}.get(i.type, np.float32))
              for i in session.get_inputs()]  # fmt: skip

    def kernel(*given: torch.Tensor) -> torch.Tensor:
        named = {
            name: np.ascontiguousarray(t.numpy().astype(kind)) for (name, kind), t in zip(wanted, given, strict=True)
        }
        return as_torch(session.run(None, named)[0])

    return kernel


def kernel_of(op: Operation, runtime: str, graph: Graph, form: str) -> Kernel:
    """Return the runtime's kernel of an operation."""
    if runtime == "torch":
        return op.function
    return in_jax(graph, form) if runtime == "jax" else in_onnxruntime(graph, form)


def graph_of(op: Operation) -> Graph:
    """Return the operation as a graph."""
    return Reference(op.function).graph([t.numpy() for t in op.draw(0)])


class Tally:
    """What became of the runs of one runtime in one format."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.used = 0.0

    def add(self, op: Operation, kernel: Kernel, graph: Graph, form: str, seeds: Sequence[int]) -> None:
        """Run all seeds in the narrowest class that holds them; count an alarm where none does."""
        given = [op.draw(seed, getattr(torch, form)) for seed in seeds]
        try:
            expected = [op.function(*arrays) for arrays in given]
            got = [kernel(*arrays) for arrays in given]
        except Exception as error:
            self.counts["refused"] += 1
            print(f"  refused: {op.number} {op.name} {form}: {type(error).__name__}: {error}"[:160], file=sys.stderr)
            return
        text = ""
        for arithmetic in classes(form):
            try:
                for arrays, y in zip(given, got, strict=True):
                    done = assert_conforms(
                        lambda *_, y=y: y, graph, inputs=arrays, arithmetic=arithmetic, layouts="contiguous"
                    )
                    self.used = max(self.used, done.ratio)
                self.counts["runs"] += len(given)
                self.counts["wide"] += len(given) * (arithmetic != classes(form)[0])
                text = ""
                break
            except ConformanceError as error:
                if error.verdict.kind == "cannot tell":
                    self.counts["open"] += len(given)
                    text = ""
                    break
                text = str(error)
        if text:
            self.counts["alarms"] += 1
            print(f"  ALARM: {op.number} {op.name} {form}: {text[:700]}", flush=True)
        for y, right in zip(got, expected, strict=True):
            self.counts["KernelBench"] += not close(y, right, 1e-2, 1e-2)
            self.counts["torch.testing"] += not close(y, right, *TESTING[form])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line per runtime and format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--runtime", nargs="*", default=list(RUNTIMES), choices=RUNTIMES)
    parser.add_argument("--dtype", nargs="*", default=list(FORMATS), choices=FORMATS)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start, chosen = time.process_time(), [o for o in operations(True) if not asked.only or o.number in asked.only]
    graphs: dict[int, Graph] = {}
    for op in chosen:
        try:
            graphs[op.number] = graph_of(op)
        except Exception as error:
            print(f"  no reference: {op.number} {op.name}: {error}"[-200:], file=sys.stderr)
    chosen = [op for op in chosen if op.number in graphs]
    versions = f"torch {torch.__version__}, jax {jax.__version__}, onnxruntime {onnxruntime.__version__}"
    print(f"{versions}; {asked.draws} draws of {len(chosen)} operations, from seed {asked.first} on")
    print(ROW.format(*TITLES))
    for runtime in asked.runtime:
        for form in asked.dtype:
            if (runtime, form) == ("onnxruntime", "bfloat16"):
                continue
            tally = Tally()
            for op in chosen:
                try:
                    kernel = kernel_of(op, runtime, graphs[op.number], form)
                except Exception as error:
                    tally.counts["refused"] += 1
                    print(f"  refused: {op.number} {op.name} {form}: {error}"[:160], file=sys.stderr)
                    continue
                seeds = range(asked.first, asked.first + asked.draws)
                tally.add(op, kernel, graphs[op.number], form, seeds)
            counts = (tally.counts[key] for key in ("runs", "alarms", "open", "refused", "wide"))
            rejected = (tally.counts[key] for key in ("KernelBench", "torch.testing"))
            print(ROW.format(runtime, form, *counts, f"{tally.used:.2f}", *rejected), flush=True)
    print(f"{time.process_time() - start:.0f} CPU seconds")


if __name__ == "__main__":
    with torch.no_grad():
        main()
