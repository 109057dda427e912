"""The largest error of exp and its kin in every runtime: what the records in specgrad.check.runtimes declare.

    python benchmarks/runtime_ulps.py | tee benchmarks/runtime_ulps.txt      # a minute

Over 3 million float32 arguments (1024 per binade and sign, and a million more in [-120, 120]), in units of u = 2**-24
relative to the result (y), to 1, to the argument (x), and to 1 + y; below the normal numbers nothing is asked.
The exact value is the float64 function, whose own error is under 1e-7 of a unit.
Declared bounds must be at least MARGIN times the measured error. Arguments where a runtime is plainly wrong, overflow
where the value is finite, are listed apart and widen nothing.
"""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from specgrad.check.examine import arithmetic_of
from specgrad.check.runtimes import RUNTIMES, Runtime
from specgrad.process import Process

MARGIN = 1.1
U, TINY, LARGEST = 2.0**-24, 2.0**-126, float(np.finfo(np.float32).max)
Array = np.ndarray
erf, erfc = np.vectorize(math.erf, otypes=[float]), np.vectorize(math.erfc, otypes=[float])


@dataclass(frozen=True)
class Function:
    """The exact value, the ONNX node, a second input, and whether arguments must be positive."""

    exact: Callable[[Array], Array]
    node: str
    exponent: float | None = None
    positive: bool = False
    declares: str = ""
    """The operator whose entry covers it, if not its own."""
    factor: float = 1.0
    """Its error in terms of that operator's: normal_cdf(x) = (1 + erf(x / sqrt(2))) / 2."""


FUNCTIONS = {
    "exp": Function(np.exp, "Exp"),
    "log": Function(np.log, "Log", positive=True),
    "sqrt": Function(np.sqrt, "Sqrt", positive=True),
    "tanh": Function(np.tanh, "Tanh"),
    "sin": Function(np.sin, "Sin"),
    "cos": Function(np.cos, "Cos"),
    "sigmoid": Function(lambda x: 1 / (1 + np.exp(-x)), "Sigmoid"),
    "softplus": Function(lambda x: np.logaddexp(0, x), "Softplus"),
    "gelu": Function(lambda x: x * 0.5 * erfc(-x / math.sqrt(2)), "Gelu"),
    "erf": Function(erf, "Erf", declares="normal_cdf", factor=0.5),
    "hardswish": Function(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "HardSwish"),
    "x**0.75": Function(lambda x: x**0.75, "Pow", exponent=0.75, positive=True, declares="power"),
    "x**-1.25": Function(lambda x: x**-1.25, "Pow", exponent=-1.25, positive=True, declares="power"),
}
# Below these arguments a function is plainly wrong: the bound is not widened for them, conformance finds them.
WRONG_BELOW = {("openvino-f32", "softplus"): -6.0}  # log(1 + exp(x)) with an error of 128 u: softplus(-18) < 0


def arguments(positive: bool) -> Array:
    """Every exponent alike, then the numbers near 0; subnormal arguments are left out."""
    rng = np.random.default_rng(0)
    bits = np.arange(0, 2**32, 2**11) + rng.integers(0, 2**11, 2**21)
    spread = bits.astype(np.uint32).view(np.float32)
    x = np.concatenate([spread, rng.uniform(-120, 120, 2**20).astype(np.float32)])
    x = x[np.isfinite(x) & ((np.abs(x) >= TINY) | (x == 0))]
    return x[x > 0] if positive else x


def onnx_file(function: Function, size: int) -> Array:
    """One node, as the bytes of a file."""
    from onnx import TensorProto, helper, numpy_helper

    second = [] if function.exponent is None else [numpy_helper.from_array(np.float32(function.exponent), "e")]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (size,)) for n in "xy"]
    node = helper.make_node(function.node, ["x", *(t.name for t in second)], ["y"])
    graph = helper.make_graph([node], "function", ends[:1], ends[1:], second)
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return np.frombuffer(file.SerializeToString(), np.uint8)


def computed(found: Runtime, function: Function, x: Array, process: Process) -> Array:
    answer = process.run(found.model, {"x": x}, [onnx_file(function, x.size)])
    if answer.outcome != "answers":
        sys.exit(f"{found.name} {answer.outcome}: {answer.reason}")
    return answer.arrays[0].astype(np.float64)


SCALES: dict[str, Callable[[Array, Array], Array]] = {
    "y": lambda x, y: np.abs(y),
    "1": lambda x, y: np.ones(y.shape),
    "x": lambda x, y: np.abs(x),
    "1+y": lambda x, y: 1 + np.abs(y),
}


@dataclass(frozen=True)
class Measured:
    """Per scale the largest error in units of u and where; `lost`: arguments whose finite value did not come out."""

    units: dict[str, tuple[float, float]]
    lost: Array


def measure(got: Array, exact: Array, x: Array) -> Measured:
    asked = np.isfinite(exact) & (np.abs(exact) <= LARGEST * (1 - 16 * U))
    finite = np.isfinite(got)
    got, y, at = got[asked & finite], exact[asked & finite], x[asked & finite].astype(np.float64)
    error = np.maximum(np.abs(got - y) - TINY, 0) / U
    units = {}
    for name, scale in SCALES.items():
        ratio = np.where(error == 0, 0, error / np.maximum(scale(at, y), 1e-300))
        i = int(np.argmax(ratio))
        units[name] = float(ratio[i]), float(at[i])
    return Measured(units, x[asked & ~finite])


def line(found: Runtime, name: str, m: Measured) -> tuple[str, bool]:
    """A row of the table, and whether the declared bound covers what was measured."""
    function = FUNCTIONS[name]
    bound, scale = arithmetic_of(found).ulp_bound(function.declares or name)
    units, where = m.units[scale][0] * function.factor, m.units[scale][1]
    fine = bound >= MARGIN * units or units <= 1.0 <= bound  # correctly rounded: nothing can exceed 1
    shown = "".join(f"{f'{v:.2f}' if v < 1e4 else f'{v:.0e}':>9}" for v, _ in m.units.values())
    text = f"{name:10}{shown}{units:10.2f} at {where:<13.7g}{bound:4.1f} of {scale:4}{'' if fine else ' NOT COVERED'}"
    if m.lost.size:
        text += f" not finite for {m.lost.min():.7g} <= x <= {m.lost.max():.7g}"
    return text.rstrip(), fine


def rows(found: Runtime, process: Process) -> Iterator[tuple[str, bool]]:
    for name, function in FUNCTIONS.items():
        x = arguments(function.positive)
        got, exact = computed(found, function, x, process), function.exact(x.astype(np.float64))
        right = x >= WRONG_BELOW.get((found.name, name), -np.inf)
        yield line(found, name, measure(got[right], exact[right], x[right]))
        if not right.all():
            wrong = measure(got[~right], exact[~right], x[~right]).units["1"]
            yield f"{'':10}plainly wrong below {x[right].min():g}: {wrong[0]:.0f} units of 1 at {wrong[1]:.7g}", True


HEAD = f"{'':10}" + "".join(f"{s:>9}" for s in SCALES) + "  measured on the scale declared"
NAMES = ("onnxruntime", "openvino-f32", "onnx-reference")


def main() -> None:
    print(f"python benchmarks/runtime_ulps.py; {platform.machine()}, NumPy {np.__version__}")
    fine = True
    for found in (RUNTIMES[name] for name in sys.argv[1:] or NAMES):
        print(f"\n{found.name}: {', '.join(f'{k} {v}' for k, v in found.versions().items())}\n{HEAD}")
        with Process(seconds=300, environment=found.environment) as process, np.errstate(all="ignore"):
            for text, covered in rows(found, process):
                print(text, flush=True)
                fine &= covered
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
