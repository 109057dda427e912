"""Faults planted in ONNX files, seen through outputs alone; and right files on all runtimes, none of them called wrong.

ONNX Runtime, with all its optimisations, runs the faulty file; its outputs are judged against the right file, at four
points (the deep networks: one), by the proven tolerance of the whole model in float32, any order, nodes merged or not.

python benchmarks/outputs.py > benchmarks/outputs.txt     (about three minutes)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / folder) for folder in ("check", "interop", "hunt")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402

import models  # noqa: E402
import optimisers  # noqa: E402
import planted_files as planted  # noqa: E402
from specgrad.check.models.recorded import RECORDED  # noqa: E402
from specgrad.check.models.run_torch import exported  # noqa: E402
from specgrad.check.tolerances.allowance import Clock, allowance  # noqa: E402
from specgrad.check.verdicts.run_case import fused_arithmetic_of  # noqa: E402
from specgrad.engines import compile  # noqa: E402
from specgrad.interop import from_onnx  # noqa: E402
from specgrad.rounding import Ball  # noqa: E402

RUNTIMES = {name: optimisers.OPTIMISERS[name] for name in ("torch", "jax.jit", "openvino")}
RUNTIMES |= {f"ort {k}": optimisers.OPTIMISERS[f"onnxruntime ORT_{k}"] for k in ("DISABLE_ALL", "ENABLE_ALL")}
RUNTIMES |= {"inductor": optimisers.torch_inductor}
DEEP = ("resnet18", "mobilenetv2")
NOTHING = 2.0**-40  # of the outputs: rounding of float64
Change = Callable[[onnx.ModelProto], onnx.ModelProto]


class Judge:
    """A right file, its inputs, and what its outputs may be off by."""

    def __init__(self, name: str, model: onnx.ModelProto, xs: Sequence[np.ndarray]) -> None:
        self.name, self.model, self.xs = name, model, xs
        self.graph = from_onnx(model)
        arithmetic = fused_arithmetic_of(RECORDED)
        start = time.perf_counter()
        self.balls = [self._ball(x, arithmetic, 600.0) for x in xs]
        self.seconds = (time.perf_counter() - start) / len(xs)
        self.forward = max(float(self._ball(x, arithmetic, 0.0).radius.max()) for x in xs)

    def _ball(self, x: np.ndarray, arithmetic: Any, seconds: float) -> Ball:
        return allowance(self.graph, [x.astype(float)], arithmetic, Clock(seconds), "torch", tight=0).balls[0]

    @property
    def largest(self) -> float:
        return max(float(b.radius.max()) for b in self.balls)

    @property
    def value(self) -> float:
        return max(float(np.abs(b.value).max()) for b in self.balls)

    def against(self, run: Callable[[Sequence[np.ndarray]], list[np.ndarray]]) -> tuple[float, float, float]:
        """The cell that used most of its allowance: how far off it is, what it may be off by, and their ratio."""
        cells = []
        for x, ball in zip(self.xs, self.balls, strict=True):
            off = np.abs(run([x])[0].reshape(ball.value.shape).astype(float) - ball.value)
            i = np.unravel_index(np.argmax(off / ball.radius), off.shape)
            cells.append((float(off[i]), float(ball.radius[i]), float(off[i] / ball.radius[i])))
        return max(cells, key=lambda cell: cell[2])

    def effect(self, faulty: onnx.ModelProto) -> float:
        """What the fault itself changes: both files in float64."""
        runs = [compile(graph, "torch").double() for graph in (self.graph, from_onnx(faulty))]
        with torch.no_grad():
            given = [torch.from_numpy(x.astype(float)) for x in self.xs]
            return max(float((runs[0](x) - runs[1](x)).abs().max()) for x in given)


def deep_faults(model: onnx.ModelProto) -> Iterator[tuple[str, Change]]:
    """The same mistakes in the first, a middle and the last convolution that pads."""
    padded = [
        n
        for n in model.graph.node
        if n.op_type == "Conv" and any(a.name == "pads" and any(a.ints) for a in n.attribute)
    ]
    for place, node in (("first", padded[0]), ("middle", padded[len(padded) // 2]), ("last", padded[-1])):
        pads = next(list(a.ints) for a in node.attribute if a.name == "pads")
        half = len(pads) // 2
        moved = [p - 1 for p in pads[:half]] + [p + 1 for p in pads[half:]]
        yield f"{place} conv: pads on one side", planted._set(node.name, pads=moved)
        yield f"{place} conv: bias dropped", planted._array(node.input[2], np.zeros_like)
        yield f"{place} conv: kernel transposed", planted._array(node.input[1], lambda w: np.swapaxes(w, 2, 3))
        yield f"{place} conv: weights as float16", planted._array(node.input[1], lambda w: w.astype(np.float16))


def by_he(module: torch.nn.Module) -> None:
    """Weights of He: with PyTorch's own, signals die out, and outputs hardly depend on the first layers."""
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, torch.nn.Conv2d | torch.nn.Linear):
            torch.nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(part.bias, std=0.1)


def judges() -> Iterator[tuple[Judge, list[tuple[str, Change]]]]:
    for name, make in planted.NETWORKS.items():
        faults = [(f.text, f.change) for f in planted.FAULTS if f.network == name]
        yield Judge(name, make(), planted.points(name)), faults
    for name in DEEP:
        module, x = models.SMALL[name]()
        by_he(module)
        with exported(module, [x.numpy()]) as path:
            model = onnx.load(path)
        yield Judge(name, model, [x.numpy()]), list(deep_faults(model))


def _of_itself(effect: float, value: float) -> str:
    """A kernel of which only the middle meets a map of one cell may be transposed, and nothing is wrong."""
    if effect <= NOTHING * value:
        return "changes nothing in float64: at these sizes the file is not wrong"
    return f"changes outputs by {effect:.2g} in float64"


def main() -> None:
    packages = ("onnxruntime", "openvino", "torch", "jax")
    print(__doc__.split("\n\n")[1] + "\n")
    print(", ".join(f"{p} {version(p)}" for p in packages) + "\n")
    everyone, seen, hidden = [], 0, []
    for judge, faults in judges():
        everyone.append(judge)
        print(f"{judge.name}: outputs up to {judge.value:.2g}, tolerance {judge.largest:.2g}, forward radius "
              f"{judge.forward:.2g}, {judge.seconds:.1f} s a point")  # fmt: skip
        print(f"  {'fault':<42} {'difference':>10} {'allowed':>9} {'used':>9}  verdict")
        for text, change in faults:
            off, allowed, used = judge.against(optimisers.onnxruntime_session(change(judge.model).SerializeToString()))
            verdict = "seen" if used > 1 else "hidden"
            seen += used > 1
            if used <= 1:
                effect = judge.effect(change(judge.model))
                hidden.append(f"{judge.name}, {text}: {_of_itself(effect, judge.value)}")
            print(f"  {text:<42} {off:>10.2g} {allowed:>9.2g} {used:>9.2g}  {verdict}", flush=True)
        print()
    print(f"{seen} of {seen + len(hidden)} faults are seen. Hidden, each with an effect below what rounding may do:")
    print("\n".join(f"  {text}" for text in hidden))
    print("A wrong tie rule of a maximum changes no value, and cannot be seen; in gradients of exact ties it can")
    print("(tests/check/test_outputs.py).\n")
    print("Right files, largest share of the allowance that any cell used (1 would be a false alarm):")
    print(f"  {'network':<14}" + "".join(f"{name:>16}" for name in RUNTIMES))
    for judge in everyone:
        used = [judge.against(make(judge.graph))[2] for make in RUNTIMES.values()]
        print(f"  {judge.name:<14}" + "".join(f"{u:>16.2g}" for u in used), flush=True)


if __name__ == "__main__":
    main()
