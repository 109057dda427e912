"""One ONNX node per case: the model, its inputs with their errors, and what the sheet's formulas are given.

Exact values come from fractions and mpmath (60 digits), never from the rules under test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from functions import FUNCTIONS
from specgrad.declared_errors import WORST_ULPS, as_pair
from specgrad.interop import from_onnx
from specgrad.rounding import FORMATS, Arithmetic
from specgrad.safety.accuracy import SHEETS

Array = np.ndarray
Rng = np.random.Generator
mpmath.mp.dps = 60
FLOAT32 = FORMATS["float32"]
FORMAT = {
    "u": Fraction(FLOAT32.u),
    "t": Fraction(FLOAT32.tiny),
    "largest": Fraction(FLOAT32.largest),
    "largest_divisor": Fraction(FLOAT32.largest_divisor),
}


def exact(x: Any) -> Array:
    """An array of Fractions."""
    array = np.asarray(x)
    out = np.empty(array.shape, dtype=object)
    for i in np.ndindex(array.shape):
        out[i] = Fraction(array[i].item()) if not isinstance(array[i], Fraction) else array[i]
    return out


def cellwise(f: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """A function of mpmath on arrays of Fractions, to 60 digits."""

    def one(x: Fraction) -> Fraction:
        y = f(mpmath.mpf(x.numerator) / x.denominator)
        sign, mantissa, exponent, _ = y._mpf_
        return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent

    return lambda x: np.array([one(Fraction(v)) for v in np.ravel(x)], dtype=object).reshape(np.shape(x))


def one_node(
    op: str,
    inputs: Mapping[str, tuple[int, ...]],
    attributes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Array] | None = None,
    order: Sequence[str] | None = None,
    types: Mapping[str, int] | None = None,
    version: int = 22,
    out: int = TensorProto.FLOAT,
) -> bytes:
    """A file of one node; `order` names inputs and constants as the node reads them, "" for one left out."""
    constants, types = constants or {}, types or {}
    order = list(order or [*inputs, *constants])
    values = [helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), s) for n, s in inputs.items()]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    node = helper.make_node(op, order, ["y"], **(attributes or {}))
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", out, None)], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


@dataclass(frozen=True)
class Case:
    """values and radii by the sheet's names; `feeds`: those that the graph takes, in order (a name, or an array)."""

    operator: str
    model: bytes
    values: dict[str, Array]
    radii: dict[str, Array]
    env: dict[str, Any]
    feeds: tuple[Any, ...]
    ulps: dict[str, float] = field(default_factory=dict)

    @property
    def graph(self) -> Any:
        return from_onnx(self.model)

    def surroundings(self) -> dict[str, Any]:
        """What the formulas read: inputs, errors, the operator, the format."""
        errors = {f"E_{n}": exact(r) for n, r in self.radii.items()}
        return {**FORMAT, **{n: exact(v) for n, v in self.values.items()}, **errors, **self.env}


def numbers(rng: Rng, shape: tuple[int, ...], spread: int, positive: bool = False) -> Array:
    """float32 numbers with full significands, exponents within `spread` of 0 or near the smallest normal number."""
    low, high = (-132, -120) if spread < 0 else (-spread, spread + 1)
    exponents = rng.integers(low, high, shape)
    signs = 1.0 if positive else rng.choice((-1.0, 1.0), shape)
    return (np.ldexp(rng.uniform(1, 2, shape), exponents) * signs).astype(np.float32)


def radii(rng: Rng, x: Array, share: float) -> Array:
    """Errors of inputs: none, or up to a share of the cell, in float64."""
    if share == 0:
        return np.zeros(x.shape)
    return np.ldexp(np.round(np.ldexp(np.abs(x.astype(float)) * rng.uniform(0, share, x.shape), 40 + 130)), -170)


Maker = Callable[[Rng, int, float], Case]
CASES: dict[str, Maker] = {}


def case(*operators: str) -> Callable[[Callable[[str, Rng, int, float], Case]], None]:
    def add(make: Callable[[str, Rng, int, float], Case]) -> None:
        for name in operators:
            CASES[name] = lambda rng, spread, share, name=name: make(name, rng, spread, share)

    return add


def simple(
    name: str,
    rng: Rng,
    spread: int,
    share: float,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    attributes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Array] | None = None,
    order: Sequence[str] | None = None,
    positive: Sequence[str] = (),
    env: Mapping[str, Any] | None = None,
    function: Callable[..., Any] | None = None,
    version: int = 22,
) -> Case:
    """Float inputs alone; F is the imported graph on rationals unless a function is given."""
    values = {n: numbers(rng, s, spread, n in positive) for n, s in shapes.items()}
    errors = {n: radii(rng, v, share) for n, v in values.items()}
    model = one_node(name, shapes, attributes, constants, order, version=version)
    graph = from_onnx(model)
    f = function or (lambda *args: graph(*args))
    y = f(*(exact(v) for v in values.values()))
    return Case(name, model, values, errors, {"F": f, "Y": y, **(env or {})}, tuple(values))


# --- copies -----------------------------------------------------------------------------------------------------------

INT = np.int64
COPIED: dict[str, dict[str, Any]] = {
    "Reshape": {"constants": {"s": INT([3, 2])}},
    "Flatten": {"attributes": {"axis": 1}},
    "Transpose": {"attributes": {"perm": [1, 0]}},
    "Squeeze": {"constants": {"s": INT([0])}, "shape": (1, 2, 3)},
    "Unsqueeze": {"constants": {"s": INT([0])}},
    "Expand": {"constants": {"s": INT([2, 2, 3])}},
    "Tile": {"constants": {"s": INT([1, 2])}},
    "Slice": {"constants": {"a": INT([0]), "b": INT([2]), "c": INT([1])}},
    "Split": {"constants": {"s": INT([3])}, "attributes": {"axis": 1}},
    "Gather": {"constants": {"s": INT([1, 0])}},
    "GatherElements": {"constants": {"s": INT([[1, 0, 1]])}},
    "GatherND": {"constants": {"s": INT([[1, 0]])}},
    "DepthToSpace": {"attributes": {"blocksize": 2}, "shape": (1, 4, 1, 2)},
    "SpaceToDepth": {"attributes": {"blocksize": 2}, "shape": (1, 1, 2, 4)},
    "Identity": {},
    "Dropout": {},
    "Trilu": {"function": lambda x: np.where(np.triu(np.ones((2, 3))) > 0, x, Fraction(0))},
    "Pad": {"constants": {"s": INT([0, 1, 1, 0])}},
}


@case(*COPIED)
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    how = dict(COPIED[name])
    return simple(name, rng, spread, share, {"X": how.pop("shape", (2, 3))}, **how)


@case("Neg", "Relu")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    return simple(name, rng, spread, share, {"X": (7,)})


@case("Concat")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    return simple(name, rng, spread, share, {"A": (2, 3), "B": (1, 3)}, attributes={"axis": 0})


@case("Clip")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    return simple(name, rng, spread, share, {"X": (9,)}, constants={"a": np.float32(-0.75), "b": np.float32(0.75)})


@case("MaxPool")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    how = {"kernel_shape": [2, 2], "pads": [0, 1, 0, 0], "strides": [1, 2]}
    return simple(name, rng, spread, share, {"X": (1, 2, 3, 4)}, attributes=how)


@case("GlobalMaxPool")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    return simple(name, rng, spread, share, {"X": (1, 2, 3, 2)})


@case("ReduceMax", "ReduceMin")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    return simple(name, rng, spread, share, {"X": (3, 4)}, constants={"axes": INT([1])}, version=20)


@case("Max", "Min", "Add", "Sub", "Sum", "Mul")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    return simple(name, rng, spread, share, {"A": (5,), "B": (5,)})


@case("Where")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    c = np.array([1, 0, 1, 0, 1], dtype=bool)
    return simple(
        name,
        rng,
        spread,
        share,
        {"A": (5,), "B": (5,)},
        constants={"C": c},
        order=["C", "A", "B"],
        env={"C": exact(c * 1)},
        function=lambda a, b: np.where(c, a, b),
    )


def ends(f: Callable[[Array], Array], x: Array, r: Array, *turning: float) -> dict[str, Array]:
    """The exact range over x - r .. x + r, errors of reading included."""
    from specgrad.safety.accuracy.sheet import flush_loss

    x, r = exact(x), exact(r)
    r = r + flush_loss(x, r, FORMAT["t"])
    points = [f(x - r), f(x + r)]
    points += [f(np.clip(Fraction(point), x - r, x + r)) for point in turning]
    return {"LOW": np.minimum.reduce(points), "HIGH": np.maximum.reduce(points)}


@case("Abs")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    made = simple(name, rng, spread, share * 3, {"X": (9,)})
    made.env.update(ends(np.abs, made.values["X"], made.radii["X"], 0.0))
    return made


@case("LeakyRelu")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    alpha = Fraction(float(np.float32(0.3)))
    f = lambda x: np.where(x >= 0, x, alpha * x)
    made = simple(name, rng, spread, share, {"X": (9,)}, attributes={"alpha": float(alpha)}, function=f)
    made.env.update(ends(f, made.values["X"], made.radii["X"]))
    return made


# --- sums -------------------------------------------------------------------------------------------------------------


@case("Conv", "ConvTranspose")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    group, bias = int(rng.choice((1, 2))), bool(rng.integers(2))
    shapes = {"X": (1, 4, 3, 3), "W": (4, 4 // group, 2, 2)}
    how = {"group": group, "pads": [1, 0, 0, 0]}
    plain = from_onnx(one_node(name, shapes, how))
    if bias:
        shapes["B"] = (4,) if name == "Conv" else (4 // group * group,)
    made = simple(name, rng, spread, share, shapes, attributes=how)
    sizes = {"c": Fraction(4), "group": group, "k": 4, "b": int(bias)}
    nothing = {} if bias else {"B": exact(np.zeros(4)), "E_B": exact(np.zeros(4))}
    column = {n: made.surroundings().get(n, nothing.get(n)).reshape(-1, 1, 1) for n in ("B", "E_B")}
    made.env.update(sizes | column | {"F": lambda x, w: plain(x, w)})
    return made


@case("MatMul")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    k = int(rng.integers(1, 6))
    return simple(name, rng, spread, share, {"A": (2, k), "B": (k, 3)}, env={"K": k})


@case("Einsum")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    shapes, how = {"A": (2, 3, 2), "B": (3, 2, 2)}, {"equation": "abc,bcd->ad"}
    return simple(name, rng, spread, share, shapes, attributes=how, env={"K": 6})


@case("CumSum")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    return simple(name, rng, spread, share, {"X": (2, 5)}, constants={"a": INT(1)}, env={"k": 5})


@case("Resize")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    """half_pixel: src = (o + 1/2)*n/out - 1/2, written down again."""
    n, out = (4, 8) if rng.integers(2) else (5, 7)
    step, order = Fraction(n, out), ["X", "", "", "sizes"]
    sources = [(o + Fraction(1, 2)) * step - Fraction(1, 2) for o in range(out)]
    off = [Fraction(0) if n == 4 else (step * (o + 1) + abs(step - 1) / 2 + 1) / 2**20 for o in range(out)]
    kept = [min(max(s, Fraction(0)), Fraction(n - 1)) for s in sources]
    cells = [(math.floor(s), min(math.floor(s) + 1, n - 1)) for s in kept]

    def read(x: Array) -> Array:
        return np.array([x[i] * (1 - (s - i)) + x[j] * (s - i) for s, (i, j) in zip(kept, cells, strict=True)])

    made = simple(
        name,
        rng,
        spread,
        share,
        {"X": (n,)},
        attributes={"mode": "linear"},
        constants={"sizes": INT([out])},
        order=order,
        function=read,
    )
    x, r = exact(made.values["X"]), exact(made.radii["X"])
    from specgrad.safety.accuracy.sheet import flush_loss

    r = r + flush_loss(x, r, FORMAT["t"])
    gaps = [abs(x[i + 1] - x[i]) + r[i + 1] + r[i] for i in range(n - 1)] + [Fraction(0)]
    reached = [
        max((gaps[i] for i in range(max(math.floor(s - d), 0), min(math.floor(s + d) + 1, n - 1))), default=Fraction(0))
        for s, d in zip(sources, off, strict=True)
    ]
    both = lambda v: np.array([v[i] + v[j] for i, j in cells])
    made.env.update({"d": np.array(off), "G": np.array(reached), "T": both})
    return made


@case("AveragePool")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    how = {"kernel_shape": [2, 3], "pads": [0, 1, 0, 0], "count_include_pad": int(rng.integers(2))}
    return simple(name, rng, spread, share, {"X": (1, 2, 3, 4)}, attributes=how, env={"k": 6})


def top(*made: Array) -> Fraction:
    """max(1, the largest size)."""
    return max(Fraction(1), *(Fraction(v) for a in made for v in np.ravel(a)))


def sizes(made: Case, *which: str) -> list[Array]:
    return [np.abs(exact(made.values[n])) + exact(made.radii[n]) for n in which]


@case("GlobalAveragePool", "ReduceMean")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    k = 9 if name == "GlobalAveragePool" else int(rng.integers(2, 7))
    how = {"shapes": {"X": (1, 2, 3, 3)}} if k == 9 else {"shapes": {"X": (3, k)}, "constants": {"axes": INT([1])}}
    made = simple(name, rng, spread, share, **how)
    made.env.update({"k": k, "P": top(*sizes(made, "X")) * k})
    return made


@case("Mean")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    made = simple(name, rng, spread, share, {"A": (5,), "B": (5,)}, function=lambda a, b: (a + b) / 2)
    made.env["P"] = top(*sizes(made, "A", "B")) * 2
    return made


@case("Gemm")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    k, plain = int(rng.integers(1, 6)), bool(rng.integers(2))
    a, b = (1.0, 1.0) if plain else (float(np.float32(0.3)), float(np.float32(-0.7)))
    shapes = {"A": (2, k), "B": (k, 3), "C": (2, 3)}
    function = lambda x, y, z: Fraction(a) * (x @ y) + Fraction(b) * z
    made = simple(name, rng, spread, share, shapes, attributes={"alpha": a, "beta": b}, function=function)
    x, y, z = (top(s) for s in sizes(made, "A", "B", "C"))
    largest = max(x * y * (k + 1), z) if plain else max(x * y * (k + 1) * 2, z * 2)
    numbers_ = {"K": k, "R": k + (3 if plain else 4), "alpha": Fraction(a), "beta": Fraction(b), "P": largest * 2}
    made.env.update(numbers_ | {"F": lambda p, q: p @ q})
    return made


ROOT, EXP = cellwise(mpmath.sqrt), cellwise(mpmath.exp)
INVISIBLE = 2**20  # P: underflow of these layers is far below what is asked here, and Gemm's is held above


@case("BatchNormalization")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    shapes = {"X": (1, 2, 3), "S": (2,), "B": (2,), "Mean": (2,), "V": (2,)}
    eps = Fraction(float(np.float32(1e-3)))
    column = lambda v: np.reshape(v, (1, 2, 1))

    def function(x: Array, s: Array, b: Array, m: Array, v: Array) -> Array:
        return (x - column(m)) * column(s) / column(ROOT(v + eps)) + column(b)

    made = simple(name, rng, 2, share, shapes, attributes={"epsilon": float(eps)}, positive=("V",), function=function)
    wide = {n: column(v) for n, v in made.surroundings().items() if n.removeprefix("E_") in ("S", "B", "Mean", "V")}
    made.env.update({**wide, "eps": eps, "sqrt": ROOT, "e": Fraction(ULPS["sqrt"]), "P": INVISIBLE})
    return made


@case("Softmax")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    k = int(rng.integers(2, 6))
    along = lambda f: lambda x: f(x, axis=1, keepdims=True)
    total, largest = along(np.sum), along(np.max)

    def function(x: Array) -> Array:
        z = EXP(x - largest(x))
        return z / total(z)

    made = simple(name, rng, 2, share, {"X": (2, k)}, attributes={"axis": 1}, function=function)
    e = Fraction(ULPS["exp"])
    made.env.update({"k": k, "total": total, "top": largest, "exp": EXP, "e": e, "P": INVISIBLE})
    return made


@case("LayerNormalization")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    k = int(rng.integers(2, 6))
    eps = Fraction(float(np.float32(1e-3)))
    mean = lambda x: np.mean(x, axis=1, keepdims=True)

    def function(x: Array, s: Array, b: Array) -> Array:
        c = x - mean(x)
        return c / ROOT(mean(c * c) + eps) * s + b

    shapes = {"X": (2, k), "S": (k,), "B": (k,)}
    made = simple(name, rng, 2, share / 64, shapes, attributes={"epsilon": float(eps)}, function=function)
    made.env.update({"k": k, "mean": mean, "sqrt": ROOT, "eps": eps, "e": Fraction(ULPS["sqrt"]), "P": INVISIBLE})
    return made


@case("ReduceSum")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    k = int(rng.integers(2, 7))
    axes, how = {"axes": INT([1])}, {"keepdims": 0}
    return simple(name, rng, spread, share, {"X": (3, k)}, constants=axes, attributes=how, env={"k": k})


@case("Div")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    made = simple(name, rng, spread, share, {"A": (6,), "B": (6,)})
    return made if spread > 0 else _over(made, numbers(rng, (6,), 3))


def _over(made: Case, divisor: Array) -> Case:
    """The same with a normal divisor."""
    made.values["B"], made.radii["B"] = divisor, np.zeros(6)
    made.env["Y"] = exact(made.values["A"]) / exact(divisor)
    return made


@case("Reciprocal")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    return simple(name, rng, spread if spread > 0 else 120, share, {"B": (6,)}, function=lambda b: 1 / b)


# --- functions --------------------------------------------------------------------------------------------------------

ULPS = {name: as_pair(bound)[0] for name, bound in WORST_ULPS.items()}
OF = {
    "Sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "Softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "Gelu": lambda x: x * mpmath.ncdf(x),
    "HardSwish": lambda x: x * min(max(x / 6 + mpmath.mpf(1) / 2, 0), 1),
}
SHEETED = dict.fromkeys(op.names.onnx for op in FUNCTIONS.values() if op.sheet is not None)  # in one order everywhere
OF |= {name: getattr(mpmath, name.lower()) for name in SHEETED if name not in OF}  # Exp is mpmath.exp
WAVES = [k * math.pi for k in range(-40, 41)]  # arguments lie within 100
TURNING = {"Gelu": [-0.7517915246935645], "HardSwish": [-1.5], "Sin": [k + math.pi / 2 for k in WAVES], "Cos": WAVES}


def _near(spread: int, positive: bool) -> int:
    """Arguments that a function has values for."""
    return 5 if positive and spread < 0 else min(spread, 5)


@case(*OF)
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    f = cellwise(OF[name])
    positive = ("X",) if name in ("Log", "Sqrt") else ()
    made = simple(name, rng, _near(spread, bool(positive)), share, {"X": (8,)}, positive=positive, function=f)
    made.env["e"] = Fraction(ULPS[SHEETS[name].declared])
    if name in TURNING:
        made.env.update(ends(f, made.values["X"], made.radii["X"], *TURNING[name]))
    return made


@case("Pow")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    p = float(rng.choice((2.0, 3.0, 0.5, 0.75, -1.0, -2.0)))
    f = cellwise(lambda x: x ** mpmath.mpf(p))
    made = simple(
        name, rng, _near(spread, True), share, {"X": (8,)}, positive=("X",), constants={"p": np.float32(p)}, function=f
    )
    made.env.update(ends(f, made.values["X"], made.radii["X"]))
    steps = abs(p) + 2 if p == int(p) else 2 * abs(p) * (1 + ULPS["sqrt"]) + 2
    far = exact(np.zeros(8))
    if 2 * p != int(2 * p):
        log, r = cellwise(lambda x: abs(mpmath.log(x))), exact(made.radii["X"])
        x = exact(made.values["X"])
        far = Fraction(abs(p)) * np.maximum(log(x - r), log(x + r)) * (1 + FORMAT["u"])
    made.env.update({"e": Fraction(ULPS["power"]), "k": Fraction(steps), "L": far})
    return made


# --- whole numbers ----------------------------------------------------------------------------------------------------


@case("ConvInteger", "MatMulInteger")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    shapes = {"X": (1, 2, 3, 3), "W": (2, 2, 2, 2)} if name == "ConvInteger" else {"X": (2, 3), "W": (3, 2)}
    kinds = dict.fromkeys(shapes, TensorProto.UINT8)
    zeros = {"xz": np.uint8(3), "wz": np.uint8(129)}
    model = one_node(name, shapes, {}, zeros, types=kinds, out=TensorProto.INT32)
    arrays = [rng.integers(0, 256, s).astype(float) for s in shapes.values()]
    x, w = (exact(a - z) for a, z in zip(arrays, (3, 129), strict=True))
    y = x @ w if name == "MatMulInteger" else _convolved(x, w)
    return Case(name, model, {}, {}, {"Y": y}, tuple(arrays))


def _convolved(x: Array, w: Array) -> Array:
    """2 x 2 taps, steps of 1, no padding."""
    y = np.zeros((1, 2, 2, 2), dtype=object)
    for o, i, j in np.ndindex(2, 2, 2):
        y[0, o, i, j] = (x[0, :, i : i + 2, j : j + 2] * w[o]).sum()
    return y


@case("DequantizeLinear")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    zero = np.uint8(7)
    model = one_node(
        name, {"Q": (9,), "S": ()}, {}, {"z": zero}, ["Q", "S", "z"], {"Q": TensorProto.UINT8}, out=TensorProto.FLOAT
    )
    q, s = rng.choice((0, 10, 12, 18, 200, 255), 9).astype(float), numbers(rng, (), abs(spread), positive=True)
    r = radii(rng, s, share)
    less = exact(q - 7)
    env = {"Q": less, "n": 1, "Y": less * Fraction(float(s))}
    return Case(name, model, {"S": s}, {"S": r}, env, (q, "S"))


@case("QuantizeLinear")
def _(name: str, rng: Rng, spread: int, share: float) -> Case:
    model = one_node(name, {"X": (40,), "S": ()}, {}, {"z": np.uint8(7)}, ["X", "S", "z"], out=TensorProto.UINT8)
    s = np.abs(numbers(rng, (), 2))
    x = (rng.integers(-20, 260, 40) * s / 2).astype(np.float32)
    values = {"X": x, "S": s}
    errors = {n: radii(rng, v, share * 1e-3) for n, v in values.items()}
    made = Case(name, model, values, errors, {"Z": Fraction(7)}, tuple(values))
    quotient = exact(x) / Fraction(float(s))
    stored = lambda v: np.array([min(max(round(q) + 7, 0), 255) for q in v], dtype=object)
    made.env.update({"Y": stored(quotient), "saturate": stored})
    return made


ARITHMETIC = {
    e: Arithmetic(
        execution=e,
        ulps={
            n: (
                v,
                {"sigmoid": "1", "sin": "1", "cos": "1", "softplus": "1+y", "gelu": "x", "hardswish": "x"}.get(n, "y"),
            )
            for n, v in ULPS.items()
        },
    )
    for e in ("node", "fused")
}
assert math.isfinite(FLOAT32.largest)
