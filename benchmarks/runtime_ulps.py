"""The largest error of exp and its kin in every runtime that reads ONNX files: what specgrad.declared_errors declares.

    python benchmarks/runtime_ulps.py | tee benchmarks/runtime_ulps.txt                          # two minutes
    python benchmarks/runtime_ulps.py onnxruntime asinh                                          # one function
    pip install iree-base-compiler iree-base-runtime tract MNN ncnn onnx
    python benchmarks/runtime_ulps.py iree tract mnn ncnn | tee benchmarks/other_ulps.txt        # ten minutes

Over 4.2 million float32 arguments: 1024 per binade and sign; a million in [-120, 120], half a million in [-10, 10], a
quarter in [-1, 1], and an eighth each in [86, 89] and [-104, -86], where exp ends. In units of u = 2**-24 relative to
the result (y), to 1, to the argument (x), and to 1 + y; below the normal numbers nothing is asked. The exact value is
the float64 function, whose own error is under 1e-7 of a unit.

Declared bounds must be at least MARGIN times the measured error. Arguments where a runtime is wrong (`WRONG` in
specgrad.declared_errors) are listed apart and widen nothing, and so is overflow where the value is finite. "wrong"
in place of a bound: there is no entry, because no range of arguments is worth one; what was measured must then be
beyond LIMIT.
"""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from specgrad.check.runtimes import RUNTIMES, Runtime
from specgrad.declared_errors import LIMIT, MEASURED, ULPS, WORST_ULPS, WRONG, as_pair
from specgrad.op import REGISTRY, Op
from specgrad.process import Process

sys.path.insert(0, str(Path(__file__).parent))
from other_runtimes import OTHERS

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
    times_x: bool = False
    """Whether the node's result is multiplied by x: a file has no other word for silu before opset 24."""
    factor: float = 1.0
    """Its error in terms of that operator's: normal_cdf(x) = (1 + erf(x / sqrt(2))) / 2."""


def by_names(op: Op) -> Function:
    """A function that NumPy and ONNX have."""
    f = getattr(np, op.names.numpy)
    with np.errstate(invalid="ignore"):
        return Function(f, op.names.onnx, positive=bool(np.isnan(f(-0.5))))


FUNCTIONS = {op.name: by_names(op) for op in REGISTRY.values() if op.errors and op.names.numpy and op.names.onnx}
FUNCTIONS |= {
    "sigmoid": Function(lambda x: 1 / (1 + np.exp(-x)), "Sigmoid"),
    "silu": Function(lambda x: x / (1 + np.exp(-x)), "Sigmoid", times_x=True),
    "softplus": Function(lambda x: np.logaddexp(0, x), "Softplus"),
    "gelu": Function(lambda x: x * 0.5 * erfc(-x / math.sqrt(2)), "Gelu"),
    "erf": Function(erf, "Erf", declares="normal_cdf", factor=0.5),
    "hardswish": Function(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "HardSwish"),
    "x**0.75": Function(lambda x: x**0.75, "Pow", exponent=0.75, positive=True, declares="power"),
    "x**1.5": Function(lambda x: x**1.5, "Pow", exponent=1.5, positive=True, declares="power"),
    "x**-1.25": Function(lambda x: x**-1.25, "Pow", exponent=-1.25, positive=True, declares="power"),
}


def nowhere(x: Array) -> Array:
    return np.zeros(x.shape, bool)


# The arguments where a runtime is wrong, as specgrad.declared_errors.WRONG says in words; None: all of them, there
# is no entry.
WRONG_AT: dict[tuple[str, str], Callable[[Array], Array] | None] = {
    ("openvino-f32", "softplus"): lambda x: x < -6.0,
    ("openvino-f32", "exp"): lambda x: x > 88.37,
    ("iree", "sin"): lambda x: np.abs(x) > 8,
    ("iree", "cos"): lambda x: np.abs(x) > 8,
    ("iree", "power"): None,
    ("tract", "tanh"): lambda x: np.abs(x) < 2.5e-36,
    ("tract", "softplus"): lambda x: x > 88.72,
    ("mnn", "exp"): lambda x: np.abs(x) > 87,
    ("mnn", "tanh"): None,
    ("mnn", "softplus"): None,
    ("mnn", "gelu"): None,
    ("ncnn", "exp"): lambda x: x > 88.376,
    ("ncnn", "tanh"): None,
    ("ncnn", "sin"): lambda x: np.abs(x) > 8192,
    ("ncnn", "cos"): lambda x: np.abs(x) > 8192,
    ("ncnn", "softplus"): lambda x: x > 88.72,
    ("ncnn", "power"): None,
}


CLOSE = [(-120, 120, 2**20), (-10, 10, 2**19), (-1, 1, 2**18), (86, 89, 2**17), (-104, -86, 2**17)]


def arguments(positive: bool) -> Array:
    """Every exponent alike, then the numbers near 0; subnormal arguments are left out."""
    rng = np.random.default_rng(0)
    bits = np.arange(0, 2**32, 2**11) + rng.integers(0, 2**11, 2**21)
    spread = bits.astype(np.uint32).view(np.float32)
    x = np.concatenate([spread, *(rng.uniform(a, b, n).astype(np.float32) for a, b, n in CLOSE)])
    x = x[np.isfinite(x) & ((np.abs(x) >= TINY) | (x == 0))]
    return x[x > 0] if positive else x


def onnx_file(function: Function, size: int) -> Array:
    """One node, as the bytes of a file."""
    from onnx import TensorProto, helper, numpy_helper

    second = [] if function.exponent is None else [numpy_helper.from_array(np.float32(function.exponent), "e")]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (size,)) for n in "xy"]
    result = "f" if function.times_x else "y"
    nodes = [helper.make_node(function.node, ["x", *(t.name for t in second)], [result])]
    nodes += [helper.make_node("Mul", ["x", "f"], ["y"])] if function.times_x else []
    graph = helper.make_graph(nodes, "function", ends[:1], ends[1:], second)
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return np.frombuffer(file.SerializeToString(), np.uint8)


def computed(program: str, function: Function, x: Array, process: Process) -> Array:
    answer = process.run(program, {"x": x}, [onnx_file(function, x.size)])
    if answer.outcome != "answers":
        sys.exit(f"{function.node} {answer.outcome}: {answer.reason}")
    return answer.arrays[0].astype(np.float64).reshape(-1)


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


def line(found: str, name: str, m: Measured) -> tuple[str, bool]:
    """A row of the table, and whether the declared bound covers what was measured."""
    function = FUNCTIONS[name]
    entry = function.declares or name
    bound, scale = as_pair(ULPS[found].get(entry, WORST_ULPS[entry]))
    units, where = m.units[scale][0] * function.factor, m.units[scale][1]
    if WRONG_AT.get((found, entry), nowhere) is None:
        fine, said = units > LIMIT, "wrong"
    else:
        fine = bound >= MARGIN * units or units <= 1.0 <= bound  # correctly rounded: nothing can exceed 1
        said = f"{bound:.1f}"
    shown = "".join(f"{f'{v:.2f}' if v < 1e4 else f'{v:.0e}':>9}" for v, _ in m.units.values())
    used = f"{units:.2f}" if units < 1e5 else f"{units:.0e}"
    text = f"{name:10}{shown}{used:>10} at {where:<14.7g}{said:>5} of {scale:4}{'' if fine else ' NOT COVERED'}"
    if m.lost.size:
        text += f" not finite for {m.lost.min():.7g} <= x <= {m.lost.max():.7g}"
    return text.rstrip(), fine


def rows(found: str, program: str, process: Process, only: Sequence[str]) -> Iterator[tuple[str, bool]]:
    for name in only:
        function = FUNCTIONS[name]
        entry = function.declares or name
        x = arguments(function.positive)
        got, exact = computed(program, function, x, process), function.exact(x.astype(np.float64))
        wrong = (WRONG_AT.get((found, entry)) or nowhere)(x.astype(np.float64))
        yield line(found, name, measure(got[~wrong], exact[~wrong], x[~wrong]))
        if wrong.any():
            yield f"{'':10}wrong: {WRONG[found, entry]}; {beyond(measure(got[wrong], exact[wrong], x[wrong]))}", True


def beyond(m: Measured) -> str:
    """The largest error where a runtime is wrong: in words."""
    if m.lost.size:
        return f"not finite from {np.abs(m.lost).min():.7g} on in size"
    units, where = m.units["1+y"]
    return f"{units:.4g} units of 1+y at {where:.7g}"


HEAD = f"{'':10}" + "".join(f"{s:>9}" for s in SCALES) + "  measured on the scale declared"
NAMES = ("onnxruntime", "openvino-f32", "onnx-reference")


def asked(name: str) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
    """The program that runs a file, its environment, and versions."""
    if name in OTHERS:
        packages, program = OTHERS[name]
        return program, {}, {package: version(package) for package in packages}
    found: Runtime = RUNTIMES[name]
    return found.model, found.environment, found.versions()


def main() -> None:
    only = [a for a in sys.argv[1:] if a in FUNCTIONS] or list(FUNCTIONS)
    names = [a for a in sys.argv[1:] if a not in FUNCTIONS] or NAMES
    command = " ".join(["python benchmarks/runtime_ulps.py", *sys.argv[1:]])
    print(f"{command}; {platform.machine()}, NumPy {np.__version__}")
    print(f"{arguments(False).size:,} arguments; an error above {LIMIT:g} units has no entry")
    fine = True
    for name in names:
        program, environment, versions = asked(name)
        print(f"\n{name}: {', '.join(f'{k} {v}' for k, v in versions.items())}\n{HEAD}")
        if MEASURED[name][0] not in [f"{k} {v}" for k, v in versions.items()]:
            print(f"specgrad.declared_errors says {MEASURED[name][0]}")
            fine = False
        with Process(seconds=300, environment=environment) as process, np.errstate(all="ignore"):
            for text, covered in rows(name, program, process, only):
                print(text, flush=True)
                fine &= covered
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
