"""Every accuracy sheet against executions: a million cells per operator on PyTorch, ONNX Runtime and JAX.

    python benchmarks/accuracy.py | tee benchmarks/accuracy.txt        # about ten minutes on one slow core
    python benchmarks/accuracy.py Conv Softmax                         # these alone

A case is one ONNX node. Half of the cells are given exact inputs (what is introduced), half inputs that are off by up
to 2**-12 of themselves, each by its own E (the total, of which most is propagated). Magnitudes: near 1; every exponent
from subnormal to near overflow; pairs that nearly cancel; numbers next to powers of two, whose sums and products are
ties. The value is a float64 run, whose own error stands in the bound (2**-29 of it). The bound is `rounding.radius`,
which tests/safety holds equal to the page's formula in rationals. Printed: the largest error over its bound, per
engine; `open`: cells where nothing is claimed (overflow is possible, a divisor may be 0); cells outside, of which one
would be a false proof, or a fault of the engine, and ends the program with 1.

Exact worst cases, in rationals, of executions that the class allows: the order is chosen, and the error over the
formula itself is printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import torch
from onnx import TensorProto

import specgrad as sg
from specgrad.declared_errors import declared
from specgrad.interop import from_onnx
from specgrad.rounding import Arithmetic, Ball, radius

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "safety"))
from sheet_cases import FORMAT, one_node
from specgrad.safety.accuracy import SHEETS, errors

Array = np.ndarray
CELLS = 1_000_000
F32, INT = np.float32, np.int64
OFF = 2.0**-12
OUT = dict.fromkeys(("ConvInteger", "MatMulInteger"), TensorProto.INT32) | {"QuantizeLinear": TensorProto.UINT8}
ENGINES = ("torch", "onnxruntime", "jax")
ULPS_OF = {name: declared(name) for name in ("torch", "jax", "onnxruntime")}


@dataclass(frozen=True)
class Node:
    """shapes: of the inputs, for about CELLS outputs; magnitudes: exponents that inputs have."""

    shapes: dict[str, tuple[int, ...]]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    exponents: tuple[int, int] = (-140, 120)
    whole: tuple[str, ...] = ()
    """Inputs of bytes: they have no error."""
    version: int = 22


FLAT = (CELLS // 2,)
ROWS = (CELLS // 20, 10)
MANY = (CELLS // 2, 5)
IMAGE = (CELLS // 2 // 4 // 196, 4, 16, 16)
MILD = (-20, 6)
NODES: dict[str, Node] = {
    **{name: Node({"A": FLAT, "B": FLAT}) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")},
    **{name: Node({"X": FLAT}) for name in ("Neg", "Abs", "Relu", "Reciprocal", "Identity", "Sigmoid", "Tanh")},
    **{name: Node({"X": FLAT}, exponents=(-140, 6)) for name in ("Exp", "Softplus", "HardSwish", "Gelu")},
    **{name: Node({"X": FLAT}, positive=("X",)) for name in ("Log", "Sqrt")},
    **{name: Node({"X": MANY}, constants={"axes": INT([1])}) for name in ("ReduceSum", "ReduceMean", "ReduceMax")},
    "LeakyRelu": Node({"X": FLAT}, {"alpha": 0.3}),
    "Clip": Node({"X": FLAT}, constants={"a": F32(-0.75), "b": F32(0.75)}),
    "Pow": Node({"X": FLAT}, constants={"p": F32(3)}, exponents=(-40, 40)),
    "Where": Node({"A": FLAT, "B": FLAT}, constants={"C": np.arange(FLAT[0]) % 2 == 0}, order=("C", "A", "B")),
    "Conv": Node({"X": IMAGE, "W": (4, 4, 3, 3), "B": (4,)}, exponents=(-60, 60)),
    "ConvTranspose": Node({"X": IMAGE, "W": (4, 4, 3, 3), "B": (4,)}, exponents=(-60, 60)),
    "MatMul": Node({"A": (707, 40), "B": (40, 707)}, exponents=(-60, 60)),
    "Gemm": Node({"A": (707, 40), "B": (707, 40), "C": (707,)}, {"transB": 1}, exponents=(-60, 50)),
    "Einsum": Node({"A": (100, 70, 8), "B": (100, 8, 70)}, {"equation": "abc,acd->abd"}, exponents=(-60, 60)),
    "MaxPool": Node({"X": IMAGE}, {"kernel_shape": [2, 2], "pads": [1, 0, 0, 0]}),
    "AveragePool": Node({"X": IMAGE}, {"kernel_shape": [3, 3], "pads": [1, 0, 0, 1]}),
    "GlobalMaxPool": Node({"X": (CELLS // 32, 16, 3, 3)}),
    "GlobalAveragePool": Node({"X": (CELLS // 32, 16, 3, 3)}, exponents=(-60, 60)),
    "Resize": Node(
        {"X": (1, CELLS // 14, 5)}, {"mode": "linear"}, {"sizes": INT([1, CELLS // 14, 7])}, ("X", "", "", "sizes")
    ),
    "Softmax": Node({"X": ROWS}, {"axis": 1}, exponents=MILD),
    "BatchNormalization": Node(
        {"X": (100, 50, 100), "S": (50,), "B": (50,), "M": (50,), "V": (50,)}, positive=("V",), exponents=MILD
    ),
    "LayerNormalization": Node({"X": ROWS, "S": (10,), "B": (10,)}, exponents=MILD),
    "CumSum": Node({"X": ROWS}, constants={"axis": INT(1)}),
    "Concat": Node({"A": (CELLS // 4,), "B": (CELLS // 4,)}, {"axis": 0}),
    "Reshape": Node({"X": ROWS}, constants={"s": INT([10, -1])}),
    "Flatten": Node({"X": (CELLS // 20, 2, 5)}),
    "Transpose": Node({"X": ROWS}),
    "Slice": Node({"X": ROWS}, constants={"a": INT([0, 0]), "b": INT([10**9, 9])}),
    "Pad": Node({"X": ROWS}, constants={"p": INT([1, 0, 0, 1])}),
    "ReduceMin": Node({"X": MANY}, constants={"axes": INT([1])}),
    "Squeeze": Node({"X": (1, *FLAT)}, constants={"axes": INT([0])}),
    "Unsqueeze": Node({"X": FLAT}, constants={"axes": INT([0])}),
    "Expand": Node({"X": (CELLS // 4,)}, constants={"s": INT([2, CELLS // 4])}),
    "Tile": Node({"X": (CELLS // 4,)}, constants={"s": INT([2])}),
    "Split": Node({"X": FLAT}, constants={"s": INT([FLAT[0]])}),
    "Gather": Node({"X": ROWS}, {"axis": 1}, {"i": INT([9, 0, 3, 3, 1, 2, 5, 8, 7, 6])}),
    "GatherElements": Node({"X": (10, 10)}, {"axis": 0}, {"i": np.resize(INT([3, 1, 9]), (CELLS // 20, 10))}),
    "GatherND": Node({"X": FLAT}, constants={"i": INT(np.arange(FLAT[0])[::-1, None])}),
    "DepthToSpace": Node({"X": (CELLS // 80, 4, 2, 5)}, {"blocksize": 2}),
    "SpaceToDepth": Node({"X": (CELLS // 80, 1, 4, 10)}, {"blocksize": 2}),
    "Dropout": Node({"X": FLAT}),
    "Trilu": Node({"X": (CELLS // 200, 10, 10)}),
    **{name: Node({"X": FLAT}, exponents=(-140, 6)) for name in ("Erf", "Softsign", "Mish", "Elu", "Celu", "Selu")},
    **{name: Node({"X": FLAT}, exponents=(-140, 6)) for name in ("HardSigmoid", "ThresholdedRelu")},
    "Swish": Node({"X": FLAT}, {"alpha": 1.5}, exponents=(-140, 6), version=24),
    "PRelu": Node({"X": FLAT, "S": FLAT}, exponents=(-60, 60)),
    "LogSoftmax": Node({"X": ROWS}, {"axis": 1}, exponents=MILD),
    "InstanceNormalization": Node({"X": (CELLS // 200, 10, 10), "S": (10,), "B": (10,)}, exponents=MILD),
    "GroupNormalization": Node(
        {"X": (CELLS // 200, 10, 10), "S": (10,), "B": (10,)}, {"num_groups": 5}, exponents=MILD
    ),
    "LRN": Node({"X": (CELLS // 200, 10, 5, 2)}, {"size": 3}, exponents=MILD),
    "LpPool": Node({"X": (CELLS // 24, 1, 13)}, {"kernel_shape": [2]}, exponents=(-20, 20)),
    "GlobalLpPool": Node({"X": (CELLS // 32, 16, 3, 3)}, exponents=(-20, 20), version=21),
    **{
        name: Node({"X": MANY}, constants={"axes": INT([1])}, exponents=MILD)
        for name in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
    },
    "Upsample": Node({"X": (1, CELLS // 14, 4)}, {"mode": "linear"}, {"s": F32([1, 1, 1.75])}, version=9),
    "ConvInteger": Node(
        {"X": IMAGE, "W": (4, 4, 3, 3)},
        {"pads": [1, 1, 0, 0]},
        {"x0": np.uint8(3), "w0": np.uint8(129)},
        whole=("X", "W"),
    ),
    "MatMulInteger": Node(
        {"X": (707, 40), "W": (40, 707)}, constants={"x0": np.uint8(3), "w0": np.uint8(129)}, whole=("X", "W")
    ),
    "DequantizeLinear": Node({"Q": FLAT, "S": ()}, constants={"z": np.uint8(7)}, whole=("Q",), exponents=MILD),
    "QuantizeLinear": Node({"X": FLAT}, constants={"s": F32(0.017), "z": np.uint8(7)}, exponents=MILD),
}


# --- numbers ----------------------------------------------------------------------------------------------------------


def numbers(rng: np.random.Generator, shape: tuple[int, ...], node: Node, positive: bool) -> Array:
    """A third near 1, a third of every exponent, a third next to powers of two; neighbours that nearly cancel."""
    low, high = node.exponents
    kind = rng.integers(0, 4, shape)
    near = rng.normal(size=shape)
    wide = np.ldexp(rng.uniform(1, 2, shape), rng.integers(low, high, shape)) * rng.choice((-1, 1), shape)
    ties = np.ldexp(1 + rng.integers(-3, 4, shape) * 2.0**-23, rng.integers(-12, 3, shape)) * rng.choice((-1, 1), shape)
    x = np.select([kind == 0, kind == 1, kind == 2], [near, wide, ties], 1 + near * 2.0**-12).astype(F32)
    flat = x.reshape(-1)
    flat[1::7] = -flat[: flat[1::7].size * 7 : 7] * (1 + F32(2.0**-23) * rng.integers(-2, 3, flat[1::7].size)).astype(
        F32
    )
    return np.abs(x) if positive else x


def moved(rng: np.random.Generator, x: Array) -> tuple[Array, Array]:
    """What an engine is given instead, and by how much that is off."""
    with np.errstate(over="ignore"):
        given = (x.astype(float) * (1 + rng.uniform(-OFF, OFF, x.shape))).astype(F32)
    given = np.where(np.isfinite(given), given, x)
    return given, np.abs(given.astype(float) - x.astype(float))


# --- engines ----------------------------------------------------------------------------------------------------------


def runners(file: bytes, graph: Any) -> dict[str, Callable[..., Array]]:
    """Those that have the operator."""
    try:
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as error:
        print(f"onnxruntime: {str(error)[:100]}", file=sys.stderr)
        session = None
    kinds = {i.name: np.uint8 if "uint8" in i.type else F32 for i in session.get_inputs()} if session else {}
    on_torch, on_jax = sg.compile(graph, "torch"), sg.compile(graph, "jax")
    known = {
        "torch": lambda *a: on_torch(*(torch.from_numpy(x) for x in a)).detach().numpy(),
        "onnxruntime": lambda *a: session.run(None, {n: x.astype(kinds[n]) for n, x in zip(kinds, a, strict=True)})[0],
        "jax": lambda *a: np.asarray(on_jax(*map(jnp.asarray, a))),
    }
    return {engine: run for engine, run in known.items() if session or engine != "onnxruntime"}


def used(ball: Ball, got: Array) -> tuple[float, int]:
    """The largest error over its bound; how many cells are outside."""
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(float) - ball.value)
        known = np.isfinite(ball.radius)
        ratio = np.where(known & (ball.radius > 0), error / ball.radius, 0.0)
    outside = int((~ball.contains(got)).sum())
    return float(np.nanmax(ratio, initial=0.0)), outside


def hunt(name: str, node: Node) -> bool:
    """One line; whether every cell lies inside."""
    rng = np.random.default_rng(len(name))
    shapes = {"B" if name == "Reciprocal" else n: s for n, s in node.shapes.items()}
    kinds = dict.fromkeys(node.whole, TensorProto.UINT8)
    out = OUT.get(name, TensorProto.FLOAT)
    order = node.order or None
    file = one_node(name, shapes, node.attributes, node.constants, order, kinds, version=node.version, out=out)
    graph = from_onnx(file)
    drawn = {n: rng.integers(0, 256, shapes[n]).astype(F32) for n in node.whole}
    values = [drawn[n] if n in drawn else numbers(rng, s, node, n in node.positive) for n, s in shapes.items()]
    off = [(v, v * 0.0) if n in drawn else moved(rng, v) for n, v in zip(shapes, values, strict=True)]
    engines = runners(file, graph)
    most, outside, count, open_ = [dict.fromkeys(ENGINES, np.nan) for _ in range(2)], 0, 0, 0
    for part, (given, own) in enumerate(((values, None), ([g for g, _ in off], [e for _, e in off]))):
        fed = values if own is None else [Ball(v.astype(float), e) for v, e in zip(values, own, strict=True)]
        for engine, run in engines.items():
            arithmetic = Arithmetic(execution="node", ulps=ULPS_OF[engine])
            ball = radius(graph, *fed, arithmetic=arithmetic, backend="torch", formats=graph.formats).outputs
            try:
                most[part][engine], lost = used(ball, run(*given))
            except Exception as error:  # an engine that refuses has no error to measure
                print(f"{name} on {engine}: {type(error).__name__} {str(error)[:100]}", file=sys.stderr)
                continue
            outside += lost
            if engine == ENGINES[0]:
                count, open_ = count + ball.value.size, open_ + int(np.isinf(ball.radius).sum())
    cells = "   ".join(" ".join(f"{part[e]:7.3f}" for e in ENGINES) for part in most)
    print(f"{name:20} {count:>10,} {cells}   {100 * open_ / count:5.1f} %   {outside}", flush=True)
    return outside == 0


# --- exact worst cases ------------------------------------------------------------------------------------------------


def exactly(operator: str, happens: Fraction, **env: Any) -> None:
    """The error of an execution that the class allows, over the sheet's own number."""
    held = errors(SHEETS[operator], {**FORMAT, **{k: v for k, v in env.items() if k != "why"}})
    total = np.ravel(held.total)[0]
    print(f"{operator:20} {env['why']:60} {float(happens / total):.4f}")
    assert happens <= total


def one(x: Any) -> Array:
    return np.array([Fraction(float(x)) if not isinstance(x, Fraction | int) else Fraction(x)], dtype=object)


def worst_cases() -> None:
    a = F32(1 + 2.0**-12)
    exact = Fraction(float(a)) ** 2
    off = abs(Fraction(float(a * a)) - exact)
    exactly("Mul", off, A=one(a), B=one(a), E_A=one(0), E_B=one(0), Y=one(exact), why="(1 + 2^-12)^2, a tie")
    exact = 1 + Fraction(1, 2**24)
    nothing = {"E_A": one(0), "E_B": one(0)}
    exactly("Add", Fraction(1, 2**24), A=one(1), B=one(2.0**-24), Y=one(exact), **nothing, why="1 + 2^-24, a tie")
    a = one(F32(1 + 2.0**-12))
    exactly("MatMul", off, A=a, B=a, Y=a * a, **nothing, K=1, F=lambda x, y: x * y, why="(1 + 2^-12)^2, one product")
    for k in (10, 1000):
        x = [F32(1)] + [F32(2.0**-24)] * (k - 1)
        exact = sum(Fraction(float(v)) for v in x)
        off = abs(Fraction(float(np.cumsum(np.array(x, F32), dtype=F32)[-1])) - exact)
        exactly(
            "ReduceSum",
            off,
            X=one(exact),
            E_X=one(0),
            Y=one(exact),
            k=k,
            F=lambda v: v,
            why=f"1 + {k - 1} times 2^-24, from the left",
        )
    worst = max(
        (abs(Fraction(float(F32(1) / F32(d))) * d - 1) for d in range(2**23 + 1, 2**23 + 4000)), default=Fraction(0)
    )
    d = max(range(2**23 + 1, 2**23 + 4000), key=lambda d: abs(Fraction(float(F32(1) / F32(d))) * d - 1))
    exactly(
        "Div",
        worst / d,
        A=one(1),
        B=one(d),
        Y=one(Fraction(1, d)),
        **nothing,
        largest_divisor=FORMAT["largest_divisor"],
        why="1/d, one rounding of the two that are allowed",
    )


if __name__ == "__main__":
    start = time.process_time()
    wanted = sys.argv[1:] or list(NODES)
    versions = f"PyTorch {torch.__version__}, ONNX Runtime {onnxruntime.__version__}, JAX {jax.__version__}"
    print(f"{versions}; float32, by node; largest error over its bound\n")
    print(f"{'':31}  introduced                total, inputs off")
    print(f"{'operator':20} {'cells':>10}   torch     ort     jax     torch     ort     jax     open   outside")
    good = [hunt(name, NODES[name]) for name in wanted]
    print("\nexact worst cases: error over the sheet's number, in rationals")
    worst_cases()
    print(f"\n{sum(good)} of {len(good)} operators without a cell outside; {time.process_time() - start:.0f} CPU s")
    sys.exit(0 if all(good) else 1)
