"""Kernels of normalisations against their classes: which explains them, and which faults are caught.

    python benchmarks/norms.py > benchmarks/norms.txt

PyTorch, ONNX Runtime, OpenVINO and JAX (jit) on groups of 64 to 200,704 cells with mean/std 0 to 300, random factors
and summands. A run is *explained* by the first class that leaves one mean and one deviation to every group; the plain
radius must hold it too, unless it is of one pass. Then, for LayerNorm, the smallest gain, shift and wrong cell that are
refused.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import openvino
import torch
from onnx import TensorProto, helper, numpy_helper

import specgrad as sg
from specgrad.check.verdicts.shared_unknowns import shared_unknowns
from specgrad.rounding import Arithmetic, radius

EPS = 1e-5
SIZES, MEANS = (64, 768, 3136, 12544, 50176, 200704), (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
LARGEST = 50176  # of kernels beside LayerNorm, and of faults: beyond, radii take minutes
F = torch.nn.functional
NODE = Arithmetic(execution="node")
Run = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def onnx_file(op: str, x: np.ndarray, g: np.ndarray, b: np.ndarray | None, **attributes: Any) -> bytes:
    """An ONNX file of one normalisation, its factors as constants."""
    given = {"s": g, "b": b}
    node = helper.make_node(op, ["x", *(k for k, v in given.items() if v is not None)], ["y"], **attributes)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "xy"]
    numbers = [numpy_helper.from_array(v, k) for k, v in given.items() if v is not None]
    graph = helper.make_graph([node], "norm", ends[:1], ends[1:], numbers)
    return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10).SerializeToString()


def on_onnxruntime(op: str, **attributes: Any) -> Run:
    """ONNX Runtime's kernel."""

    def run(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        given = None if op == "RMSNormalization" else b
        session = onnxruntime.InferenceSession(onnx_file(op, x, g, given, **attributes), options)
        return np.asarray(session.run(None, {"x": x})[0])

    return run


def on_openvino(op: str, **attributes: Any) -> Run:
    """OpenVINO's kernel, in float32."""

    def run(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
        core = openvino.Core()
        given = None if op == "RMSNormalization" else b
        model = core.read_model(onnx_file(op, x, g, given, **attributes))
        compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
        return np.asarray(compiled(x)[0]).copy()

    return run


def on_torch(function: Callable[..., Any]) -> Run:
    """PyTorch's kernel."""
    return lambda x, g, b: np.asarray(function(*map(torch.tensor, (x, g, b))))


def on_jax(variance: Callable[..., Any]) -> Run:
    """A formula that XLA compiles, by its variance."""

    @jax.jit
    def norm(x: Any, g: Any, b: Any) -> Any:
        m = jnp.mean(x, -1, keepdims=True)
        return (x - m) * jax.lax.rsqrt(variance(x, m) + EPS) * g + b

    return lambda x, g, b: np.asarray(norm(x, g, b))


def two_passes(x: Any, m: Any) -> Any:
    return jnp.mean((x - m) ** 2, -1, keepdims=True)


def one_pass(x: Any, m: Any) -> Any:
    return jnp.mean(x * x, -1, keepdims=True) - m * m


Layer = tuple[str, tuple[int, ...], Callable[..., Any], tuple[int, ...], dict[str, Run]]


def layers(n: int) -> Iterator[Layer]:
    """Each layer with groups of n cells: its name, shape of x, meaning, shape of its factors, and kernels."""
    onnx_runs = {"onnxruntime": on_onnxruntime, "openvino": on_openvino}

    def both(op: str, **attributes: Any) -> dict[str, Run]:
        return {name: make(op, **attributes) for name, make in onnx_runs.items()}

    kernels: dict[str, Run] = {
        "torch": on_torch(lambda x, g, b: F.layer_norm(x, (n,), g, b, EPS)),
        **both("LayerNormalization", axis=-1, epsilon=EPS),
        "jax, two passes": on_jax(two_passes),
        "jax, one pass": on_jax(one_pass),
    }
    yield "LayerNorm", (4, n), lambda x, g, b: sg.layer_norm(x, (n,), g, b, eps=EPS), (n,), kernels
    if n > LARGEST:
        return
    kernels = {
        "torch": on_torch(lambda x, g, b: F.instance_norm(x, weight=g, bias=b, eps=EPS)),
        **both("InstanceNormalization", epsilon=EPS),
    }
    yield "InstanceNorm", (2, 4, n), lambda x, g, b: sg.group_norm(x, 4, g, b, eps=EPS), (4,), kernels
    kernels = {
        "torch": on_torch(lambda x, g, b: F.group_norm(x, 2, g, b, EPS)),
        **both("GroupNormalization", num_groups=2, epsilon=EPS),
    }
    yield "GroupNorm", (2, 4, n // 2), lambda x, g, b: sg.group_norm(x, 2, g, b, eps=EPS), (4,), kernels
    kernels = {"torch": on_torch(lambda x, g, b: F.batch_norm(x, None, None, g, b, True, 0.1, EPS))}
    yield "BatchNorm, training", (4, 4, n // 4), batch_norm, (4,), kernels
    kernels = {"torch": on_torch(lambda x, g, b: F.rms_norm(x, (n,), g, EPS))}
    kernels |= both("RMSNormalization", axis=-1, epsilon=EPS)
    yield "RMSNorm", (4, n), rms_norm, (n,), kernels


def batch_norm(x: Any, g: Any, b: Any) -> Any:
    """Batch normalisation by the batch's own statistics."""
    c = x - x.mean((0, 2), keepdims=True)
    y = c / sg.sqrt((c * c).mean((0, 2), keepdims=True) + EPS)
    return y * g.reshape((1, 4, 1)) + b.reshape((1, 4, 1))


def rms_norm(x: Any, g: Any, b: Any) -> Any:
    """RMS normalisation; b is not read."""
    return x / sg.sqrt((x * x).mean(-1, keepdims=True) + EPS) * g


def numbers(shape: tuple[int, ...], factors: tuple[int, ...], k: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normal numbers of mean k, factors and summands."""
    rng = np.random.default_rng([len(shape), shape[-1], int(k)])
    x = (rng.normal(size=shape) + k).astype(np.float32)
    return x, rng.normal(size=factors).astype(np.float32), rng.normal(size=factors).astype(np.float32)


def class_of(graph: Any, given: list[np.ndarray], y: np.ndarray, within: bool) -> str:
    """The first class that explains y."""
    found = shared_unknowns(graph, given, y, ("two passes", "one pass"))
    if not found[-1].explained.all():
        return "NONE"
    last = found[-1]
    if last.passes == "two passes":
        return f"two passes, {last.form}" if within else "NONE: outside the radius"
    return "one pass" if np.isfinite(last.room) else "one pass, open"


def kernels() -> int:
    """Print one line per kernel and size; return how many runs no class explains."""
    alarms = runs = 0
    print("kernel | n | runs | explained by | largest error | of the radius, at most")
    for n in SIZES:
        for name, shape, meaning, factors, each in layers(n):
            graph = sg.trace(meaning, shape, factors, factors)
            tally = {kernel: [Counter(), 0.0, 0.0] for kernel in each}
            for k in MEANS:
                given = list(numbers(shape, factors, k))
                ball = radius(graph, *given, arithmetic=NODE).outputs
                for kernel, run in each.items():
                    try:
                        y = run(*given)
                    except Exception as error:
                        tally[kernel][0][f"refused: {type(error).__name__}"] += 1
                        continue
                    error = np.abs(y - ball.value)
                    share = float(np.max(error / ball.radius))
                    said = class_of(graph, given, y, share <= 1)
                    alarms, runs = alarms + said.startswith("NONE"), runs + 1
                    tally[kernel][0][said] += 1
                    tally[kernel][1:] = [max(tally[kernel][1], float(error.max())), max(tally[kernel][2], share)]
            for kernel, (said, error, share) in tally.items():
                words = ", ".join(f"{count} {what}" for what, count in said.items())
                print(f"{kernel}: {name} | {n} | {len(MEANS)} | {words} | {error:.2g} | {share:.2g}", flush=True)
    print(f"{runs} runs, {alarms} that no class explains", flush=True)
    return alarms


# --- faults -----------------------------------------------------------------------------------------------------------

Fault = Callable[[np.ndarray, float], np.ndarray]


def one_cell(y: np.ndarray, by: float) -> np.ndarray:
    """One cell off by so much."""
    y = y.copy()
    y[0, y.shape[1] // 3] += by
    return y


SIZED: dict[str, Fault] = {"gain": lambda y, by: y * (1 + by), "shift": lambda y, by: y + by, "one cell": one_cell}


def faults() -> None:
    """Print the smallest faults that are refused, of LayerNorm without factors, by bisection; and others, yes or no."""
    print(
        "\nLayerNorm | mean/std | gain | shift | one cell | ddof 1 | eps 1e-6 for 1e-5 | one pass | stored as float16"
    )
    for n in (n for n in SIZES if n <= LARGEST):
        graph = sg.trace(lambda x, n=n: sg.layer_norm(x, (n,), eps=EPS), (4, n))
        for k in (0.0, 3.0, 30.0, 300.0):
            x, _, _ = numbers((4, n), (1,), k)
            c = x.astype(float) - x.mean(1, keepdims=True, dtype=float)
            v = (c * c).mean(1, keepdims=True)
            right = c / np.sqrt(v + EPS)

            def refused(y: np.ndarray, graph: Any = graph, x: np.ndarray = x) -> bool:
                return not shared_unknowns(graph, [x], y.astype(np.float32))[-1].explained.all()

            least = [smallest(lambda by, f=f, y=right: refused(f(y, by))) for f in SIZED.values()]
            r = {"ddof": c / np.sqrt(v * n / (n - 1) + EPS), "eps": c / np.sqrt(v + 1e-6)}
            w, ones = x[:, :, None][:, :, 0], np.ones(n, np.float32)
            r |= {"one": on_jax(one_pass)(w, ones, 0 * ones), "half": right.astype(np.float16)}
            said = ["yes" if refused(y) else "no" for y in r.values()]
            print(f"{n} | {k:g} | {' | '.join([f'{v:.1e}' for v in least] + said)}", flush=True)


def smallest(refused: Callable[[float], bool]) -> float:
    """The size of a fault from which on it is refused, to a tenth; looked for between 1e-8 and 10."""
    low, high = 1e-8, 10.0
    while high / low > 1.1:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if refused(middle) else (middle, high)
    return high


if __name__ == "__main__":
    versions = {m.__name__: m.__version__ for m in (torch, onnxruntime, openvino, jax)}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    found = kernels()
    faults()
    sys.exit(bool(found))
