"""Kernels of softmax and attention against what is proven of them, and which faults of softmax are caught.

    python benchmarks/softmaxes.py > benchmarks/softmaxes.txt

PyTorch, ONNX Runtime, OpenVINO and JAX (jit), rows of 64 to 200,704 cells, logits of deviation 1, 4 and 20, with masks
of -inf and of the lowest number or without. A run of softmax is *explained* if one total explains every row, and each
cell lies in its radius; one of attention if it lies in the radius by node. Then the smallest gain of a row and wrong
cell of a softmax that are refused, and how far off its exponentials must be allowed to be.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import openvino
import torch
from onnx import TensorProto, helper

import specgrad as sg
from norms import smallest
from specgrad.check.verdicts.shared_total import shared_total
from specgrad.ops.attention import attention
from specgrad.rounding import Arithmetic, radius

F = np.float32
NODE = Arithmetic(execution="node")
SIZES, SPREADS = (64, 768, 3136, 12544, 50176, 200704), (1.0, 4.0, 20.0)
MASKS = {"none": 0.0, "-inf": -np.inf, "lowest": float(np.finfo(F).min)}
SHAPES = ((16, 64, 64), (32, 128, 128), (64, 256, 64), (16, 512, 64), (16, 1024, 64), (16, 2048, 32), (8, 4096, 32))
"""Queries, keys, and their length."""
Run = Callable[..., np.ndarray]


def onnx_file(op: str, opset: int, *arrays: np.ndarray, **attributes: Any) -> bytes:
    """An ONNX file of one node."""
    names = [f"i{k}" for k in range(len(arrays))]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in zip(names, arrays, strict=True)]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", ends, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", opset)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def on_onnxruntime(op: str, opset: int, **attributes: Any) -> Run:
    """ONNX Runtime's kernel."""

    def run(*arrays: np.ndarray) -> np.ndarray:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        session = onnxruntime.InferenceSession(onnx_file(op, opset, *arrays, **attributes), options)
        return np.asarray(session.run(None, {f"i{k}": a for k, a in enumerate(arrays)})[0])

    return run


def on_openvino(op: str, opset: int, **attributes: Any) -> Run:
    """OpenVINO's kernel, in float32."""

    def run(*arrays: np.ndarray) -> np.ndarray:
        core = openvino.Core()
        model = core.read_model(onnx_file(op, opset, *arrays, **attributes))
        compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
        return np.asarray(compiled(list(arrays))[0]).copy()

    return run


def of_openvino() -> Run:
    """OpenVINO's own scaled dot products, of queries, keys and values and with a mask."""

    def run(*arrays: np.ndarray) -> np.ndarray:
        from openvino import opset13

        given = [opset13.parameter(a.shape, np.float32) for a in arrays]
        model = openvino.Model([opset13.scaled_dot_product_attention(*given, causal=False)], given)
        hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
        return np.asarray(openvino.Core().compile_model(model, "CPU", hints)(list(arrays))[0]).copy()

    return run


SOFTMAXES: dict[str, Run] = {
    "torch": lambda x: np.asarray(torch.softmax(torch.tensor(x), -1)),
    "onnxruntime": on_onnxruntime("Softmax", 21, axis=-1),
    "openvino": on_openvino("Softmax", 21, axis=-1),
    "jax": lambda x: np.asarray(jax.jit(jax.nn.softmax)(x)),
}
ATTENTIONS: dict[str, Run] = {
    "torch": lambda *a: np.asarray(torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, a))),
    "onnxruntime": on_onnxruntime("Attention", 23),
    "openvino": of_openvino(),
    "jax": jax.jit(lambda q, k, v, m: jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(
        jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(jnp.float32(q.shape[-1])) + m, -1), v)),
}  # fmt: skip


def masked(rng: np.random.Generator, shape: tuple[int, ...], low: float) -> np.ndarray:
    """Numbers that are added to logits: 0, and `low` in two of five cells, but not in a whole row."""
    shut = rng.random(shape) < 0.4
    shut[..., 0] = False
    return np.where(shut & (low != 0), F(low), F(0)).astype(F)


def logits(n: int, spread: float, mask: str) -> np.ndarray:
    """Four rows of logits with a mask."""
    rng = np.random.default_rng([n, int(spread), len(mask)])
    with np.errstate(over="ignore"):
        return (rng.normal(size=(4, n)) * spread + masked(rng, (4, n), MASKS[mask])).astype(F)


class Tally:
    """What runs of one kernel showed."""

    def __init__(self) -> None:
        self.runs = self.alarms = self.refused = 0
        self.error = self.share = self.total = 0.0

    def add(self, y: np.ndarray, ball: Any, explained: bool) -> None:
        """Count one run, off from the exact values by so much, and by so much of the radius."""
        with np.errstate(invalid="ignore"):
            error = np.abs(y - ball.value)
            share = np.nan_to_num(error / ball.radius)
        fine = explained and bool(ball.contains(y).all())
        self.runs, self.alarms = self.runs + 1, self.alarms + (not fine)
        self.error, self.share = max(self.error, float(error.max())), max(self.share, float(share.max()))


def line(kernel: str, what: str, tally: Tally) -> str:
    """One line of the table."""
    unknown = f"{tally.total:.1e}" if tally.total else "-"
    words = f", {tally.refused} refused by the kernel" if tally.refused else ""
    return (
        f"{kernel}: {what} | {tally.runs}{words} | {tally.runs - tally.alarms} | {tally.error:.2g} | {unknown} | "
        f"{tally.share:.2g}"
    )


def softmaxes() -> tuple[int, int]:
    """Print a line per kernel and size; return runs, and those that nothing explains."""
    runs = alarms = 0
    for n in SIZES:
        graph, tallies = sg.trace(sg.softmax, (4, n)), {kernel: Tally() for kernel in SOFTMAXES}
        for spread in SPREADS:
            for mask in MASKS:
                x = logits(n, spread, mask)
                ball = radius(graph, x, arithmetic=NODE).outputs
                for kernel, run in SOFTMAXES.items():
                    y, tally = run(x), tallies[kernel]
                    found = shared_total(graph, [x], y, NODE)
                    assert found is not None
                    middle = np.abs(found.low + found.high) / 2
                    tally.total = max(tally.total, float(middle[np.isfinite(middle)].max(initial=0.0)))
                    tally.add(y, ball, bool(found.explained.all()))
        for kernel, tally in tallies.items():
            print(line(kernel, f"softmax of {n}", tally), flush=True)
            runs, alarms = runs + tally.runs, alarms + tally.alarms
    return runs, alarms


def attentions() -> tuple[int, int]:
    """Print a line per kernel and size; return runs, and those outside their radius."""
    runs = alarms = 0
    for queries, keys, e in SHAPES:
        tallies = {kernel: Tally() for kernel in ATTENTIONS}
        graph = sg.trace(attention, *((1, 2, n, e) for n in (queries, keys, keys)), (queries, keys))
        for spread in (1.0, 2.0, 4.0):
            for mask in MASKS:
                rng = np.random.default_rng([keys, int(spread), len(mask)])
                q, k, v = (rng.normal(size=(1, 2, n, e)).astype(F) for n in (queries, keys, keys))
                given = [q * F(spread), k, v, masked(rng, (queries, keys), MASKS[mask])]
                ball = radius(graph, *given, arithmetic=NODE).outputs
                for kernel, run in ATTENTIONS.items():
                    try:
                        y = np.asarray(run(*given))
                    except Exception:
                        tallies[kernel].refused += 1
                        continue
                    tallies[kernel].add(y, ball, True)
        for kernel, tally in tallies.items():
            print(line(kernel, f"attention, {keys} keys of {e}", tally), flush=True)
            runs, alarms = runs + tally.runs, alarms + tally.alarms
    return runs, alarms


UNITS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 6.0, 12.0)


def units() -> None:
    """Print the least declared error of exp, in u, with which all rows of a kernel are explained: it may have an
    exponential of its own.
    """
    most = dict.fromkeys(SOFTMAXES, 0.0)
    for n in (16, 64, 197, 1000, 3136):
        graph = sg.trace(sg.softmax, (4, n))
        for spread in (0.1, 1.0, 4.0, 20.0, 60.0):
            for mask in MASKS:
                x = logits(n, spread, mask)
                for kernel, run in SOFTMAXES.items():
                    y = run(x)
                    most[kernel] = max(most[kernel], next((e for e in UNITS if explains(graph, x, y, e)), np.inf))
    print(f"\nunits of exp that are needed, of {5 * 5 * len(MASKS)} runs each: ", end="")
    print(", ".join(f"{kernel} {most[kernel]:g}" for kernel in SOFTMAXES), flush=True)


def explains(graph: Any, x: np.ndarray, y: np.ndarray, units_of_exp: float) -> bool:
    """Whether one total explains every row, with a declared error of exp."""
    meant = Arithmetic(execution="node", ulps={**NODE.ulps, "exp": units_of_exp})
    found = shared_total(graph, [x], y, meant)
    return found is not None and bool(found.explained.all())


# --- faults -----------------------------------------------------------------------------------------------------------


def exact(x: np.ndarray) -> np.ndarray:
    """Softmax in float64."""
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def short_exp(x: np.ndarray) -> np.ndarray:
    """Softmax with exponentials in float16."""
    e = np.exp((x - x.max(1, keepdims=True)).astype(np.float16)).astype(float)
    return np.asarray(e / e.sum(1, keepdims=True))


def lost_mask(x: np.ndarray) -> np.ndarray:
    """Softmax that shows one cell of those that are shut out."""
    shown = x.copy()
    shown[0, int(np.argmax(np.isneginf(x[0])))] = 0.0
    return exact(shown)


def one_cell(x: np.ndarray, by: float) -> np.ndarray:
    """Softmax with the largest share of a row off by so much of itself."""
    y = exact(x)
    y[0, int(y[0].argmax())] *= 1 + by
    return y


def faults() -> None:
    """Print the smallest faults of softmax that are refused, by bisection; and others, yes or no."""
    print("\nsoftmax | logits | gain | scale | one cell | exp in float16 | stored as float16 | a lost mask")
    for n in SIZES:
        graph = sg.trace(sg.softmax, (4, n))
        for spread in SPREADS:
            x = logits(n, spread, "-inf")

            def refused(y: np.ndarray, graph: Any = graph, x: np.ndarray = x) -> bool:
                found = shared_total(graph, [x], y.astype(F), NODE)
                return found is not None and not found.explained.all()

            sized: list[Callable[[float], np.ndarray]] = [
                lambda by, x=x: exact(x) * (1 + by),
                lambda by, x=x: exact(x.astype(float) * (1 + by)),
                lambda by, x=x: one_cell(x, by),
            ]
            least = [smallest(lambda by, f=f: refused(f(by))) for f in sized]
            said = ["yes" if refused(y) else "no" for y in (short_exp(x), exact(x).astype(np.float16), lost_mask(x))]
            print(f"{n} | {spread:g} | {' | '.join([f'{v:.1e}' for v in least] + said)}", flush=True)


if __name__ == "__main__":
    versions = {m.__name__: m.__version__ for m in (torch, onnxruntime, openvino, jax)}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    print("kernel | runs | explained | largest error | total off by, at most | of the radius, at most")
    counts = [softmaxes(), attentions()]
    print(f"{sum(n for n, _ in counts)} runs, {sum(bad for _, bad in counts)} that nothing explains", flush=True)
    faults()
    units()
    sys.exit(any(bad for _, bad in counts))
