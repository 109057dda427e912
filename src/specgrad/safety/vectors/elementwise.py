"""Equivalence classes of elementwise operators, with one and with several arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from specgrad.scalar import Array

from .case import Draw, EquivalenceClass, OperatorClasses, VectorCase, zone
from .sample_values import Type, extreme_values, numbers, pairs

NAN, INF = float("nan"), float("inf")
INTEGERS = "integers: the importer reads none here, since they wrap"
STRETCHED = "texts of the profile demand equal shapes (Mul, Div, Where) or allow broadcasting (Add, Max)"
Rows = Callable[[Type], tuple[Array, Array]]


# --- two arguments ----------------------------------------------------------------------------------------------


def _binary_case(operator: str, a: Array, b: Array, **more: Any) -> VectorCase:
    """Return a case of an operator with the arguments a and b; `more` are fields of VectorCase."""
    return VectorCase(operator, {"a": a, "b": b}, **more)


def _random_pairs(operator: str, kind: str, shape: tuple[int, ...] = (2, 3, 4)) -> Any:
    """Return draw(rng, dtype): two cases of `operator` with random numbers of one kind of data, both of this shape.

    Subnormal numbers are divided by usual ones.
    """

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        other = "gaussian" if (operator, kind) == ("Div", "subnormal") else kind
        for _ in range(2):
            yield _binary_case(operator, numbers(rng, kind, shape, dtype), numbers(rng, other, shape, dtype))

    return draw


def _fixed_rows(operator: str, rows: Rows, **more: Any) -> Any:
    """Return a draw of one case of `operator` whose arguments are `rows(dtype)`; `more` are fields of VectorCase."""
    return lambda rng, dtype: [_binary_case(operator, *rows(dtype), **more)]


def _random_shapes(operator: str, shapes: Iterable[tuple[tuple[int, ...], tuple[int, ...]]], note: str = "") -> Any:
    """Return a draw of one Gaussian case of `operator` per pair of shapes; `note` is the cases'."""

    def draw(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
        for first, second in shapes:
            a, b = numbers(rng, "gaussian", first, dtype), numbers(rng, "gaussian", second, dtype)
            yield _binary_case(operator, a, b, note=note)

    return draw


SHAPES = [((), ()), ((5,), (5,)), ((1, 1), (1, 1)), ((1, 4), (1, 4)), ((4, 1), (4, 1)), ((2, 1, 3, 2), (2, 1, 3, 2))]
BROADCASTS = [((2, 3), ()), ((), (4,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((4, 1, 2), (3, 1)), ((1,), (2, 2, 2))]
NONE = [((0,), (0,)), ((2, 0, 3), (2, 0, 3))]
ZEROS = (0.0, -0.0)
SIZES = (INF, -INF, 1.5, -2.0, 0.0, -0.0)


def _neutral_rows(operator: str) -> Rows:
    """Return a function of a type: pairs of numbers whose second is a neutral or absorbing element of the operator:
    "Add", "Sub", "Mul" or "Div".
    """
    right = {"Add": ZEROS, "Sub": ZEROS, "Mul": (1.0, 0.0, -1.0), "Div": (1.0, -1.0)}[operator]
    return lambda dtype: pairs((3.25, -0.5, 1.0), right, dtype)


def _overflow_rows(operator: str) -> Rows:
    """Return a function of a type: pairs of numbers whose result lies far beyond the largest number."""

    def rows(dtype: Type) -> tuple[Array, Array]:
        f = np.finfo(dtype)
        if operator in ("Add", "Sub"):
            other = 1.0 if operator == "Add" else -1.0
            return np.array([f.max, -f.max, f.max], dtype), np.array([f.max, -f.max, f.max], dtype) * dtype.type(other)
        small = f.smallest_normal if operator == "Div" else f.max
        return np.array([f.max, -f.max, f.max], dtype), np.array([small, small, -small], dtype)

    return rows


def _underflow_rows(operator: str) -> Rows:
    """Return a function of a type: pairs of numbers whose result lies below the smallest number."""

    def rows(dtype: Type) -> tuple[Array, Array]:
        f = np.finfo(dtype)
        large = f.max if operator == "Div" else f.smallest_normal
        return np.array([f.smallest_normal, -f.smallest_normal], dtype), np.array([large, large], dtype)

    return rows


def _pole_rows(dtype: Type) -> tuple[Array, Array]:
    """Return all pairs of a few numbers with zeros of both signs as divisors."""
    return pairs((1.5, -2.0, 0.0, -0.0), ZEROS, dtype)


def _binary_classes(operator: str) -> OperatorClasses:
    """Return the equivalence classes of `operator`: "Add", "Sub", "Mul" or "Div"."""
    zones = [
        zone(
            "FUNC",
            "numbers of everyday size, every result another one",
            "function",
            _random_pairs(operator, "gaussian"),
        ),
        zone(
            "WIDE",
            "sizes from 2^-20 to 2^7: small terms are lost, quotients spread",
            "function",
            _random_pairs(operator, "wide"),
        ),
        zone("NEUTRAL", "neutral and absorbing elements", "function", _fixed_rows(operator, _neutral_rows(operator))),
        zone(
            "ZERO",
            "zeros of both signs: the sign of the result is part of the answer",
            "type",
            _fixed_rows(
                operator, lambda d: pairs((0.0, -0.0), (1.0, -1.0) if operator == "Div" else ZEROS, d), signs=True
            ),
        ),
        zone("SUBNORMAL", "subnormal numbers; results may be flushed", "type", _random_pairs(operator, "subnormal")),
        zone(
            "BOUND",
            "where the type ends, with 1",
            "type",
            _fixed_rows(operator, lambda d: pairs(extreme_values(d), (1.0,), d)),
        ),
        zone(
            "OVERFLOW",
            "results far beyond the largest number: infinities",
            "type",
            _fixed_rows(operator, _overflow_rows(operator)),
        ),
        zone(
            "INF",
            "infinities with infinities, numbers and zeros",
            "type",
            _fixed_rows(operator, lambda d: pairs(SIZES, SIZES, d)),
        ),
        zone(
            "NAN",
            "NaN with NaN, infinities and numbers; payloads are free",
            "type",
            _fixed_rows(operator, lambda d: pairs((NAN, 1.0, INF), (NAN, -2.0, 0.0), d)),
        ),
        zone("SHAPE", "ranks 0 to 4, sizes of 1", "shape", _random_shapes(operator, SHAPES)),
        zone("NULL", "tensors without cells", "shape", _random_shapes(operator, NONE)),
        zone("BCAST", "shapes that are stretched", "broadcasting", _random_shapes(operator, BROADCASTS, STRETCHED)),
    ]
    if operator in ("Mul", "Div"):
        zones.append(
            zone(
                "UNDERFLOW",
                "results below the smallest number",
                "type",
                _fixed_rows(operator, _underflow_rows(operator)),
            )
        )
    if operator == "Div":
        zones.append(
            zone(
                "POLE",
                "divisors of 0, with both signs: infinities, and NaN for 0/0",
                "function",
                _fixed_rows(operator, _pole_rows),
            )
        )
    missing = {"INT8 .. UINT64": INTEGERS}
    return OperatorClasses(operator, tuple(zones), missing)


# --- the largest ------------------------------------------------------------------------------------------------


def _max_counts(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases of Max with one to five arguments. Their numbers are of type `dtype`."""
    for count in (1, 2, 3, 5):
        yield VectorCase("Max", {f"x{i}": numbers(rng, "gaussian", (2, 3), dtype) for i in range(count)})


MAX = OperatorClasses(
    "Max",
    (
        zone("FUNC", "one to five arguments", "function", _max_counts),
        zone("TIES", "equal arguments", "function", _random_pairs("Max", "ties")),
        zone(
            "ZERO",
            "zeros of both signs: the sign of the result is free",
            "type",
            _fixed_rows("Max", lambda d: pairs(ZEROS, ZEROS, d)),
        ),
        zone("SUBNORMAL", "subnormal numbers", "type", _random_pairs("Max", "subnormal")),
        zone(
            "BOUND",
            "where the type ends, with itself",
            "type",
            _fixed_rows("Max", lambda d: pairs(extreme_values(d), extreme_values(d), d)),
        ),
        zone("INF", "-inf is neutral, +inf absorbs", "type", _fixed_rows("Max", lambda d: pairs(SIZES, SIZES, d))),
        zone(
            "NAN",
            "NaN propagates [P1]",
            "type",
            _fixed_rows("Max", lambda d: pairs((NAN, 1.0, INF, -INF), (NAN, -2.0, 0.0), d)),
        ),
        zone("SHAPE", "ranks 0 to 4, sizes of 1", "shape", _random_shapes("Max", SHAPES)),
        zone("NULL", "tensors without cells", "shape", _random_shapes("Max", NONE)),
        zone("BCAST", "shapes that are stretched", "broadcasting", _random_shapes("Max", BROADCASTS, STRETCHED)),
    ),
    {"INT8 .. UINT64": INTEGERS},
)


# --- one argument -----------------------------------------------------------------------------------------------

Attributes = Mapping[str, Any]
Build = Callable[[Array], Iterable[VectorCase]]


def _unary_case(operator: str) -> Build:
    """Return a builder: from an input to the one case of `operator`, which has no attributes."""
    return lambda x: [VectorCase(operator, {"x": x})]


def _unary_with_attributes(operator: str, *attributes: Attributes) -> Build:
    """Return a builder: input -> one case of `operator` per entry of `attributes`."""
    return lambda x: [VectorCase(operator, {"x": x}, a) for a in attributes]


def _random_inputs(build: Build, kind: str, shape: tuple[int, ...] = (3, 4)) -> Any:
    """Return draw(rng, dtype): a list of the cases that `build` makes of two random arrays, of a kind of `DATA`."""
    return lambda rng, dtype: [c for _ in range(2) for c in build(numbers(rng, kind, shape, dtype))]


def _fixed_inputs(build: Build, values: Callable[[Type], Any]) -> Any:
    """Return a function (rng, dtype) -> the cases that `build` makes of one fixed input, `values(dtype)`."""
    return lambda rng, dtype: build(np.array(values(dtype)).astype(dtype))


def _with_neighbours(*points: float) -> Callable[[Type], Any]:
    """Return a function of a type: each point with its two neighbours in that type."""

    def values(dtype: Type) -> list[Any]:
        given = [dtype.type(p) for p in points]
        return [v for p in given for v in (np.nextafter(p, dtype.type(-9)), p, np.nextafter(p, dtype.type(9)))]

    return values


def _inputs_of_shapes(build: Build, shapes: Iterable[tuple[int, ...]]) -> Any:
    """Return a draw of the cases that `build` makes of one Gaussian input for each of `shapes`."""
    return lambda rng, dtype: [c for s in shapes for c in build(numbers(rng, "gaussian", s, dtype))]


def _unary_classes(
    operator: str,
    build: Build,
    *more: EquivalenceClass,
    points: tuple[float, ...] = (0.0,),
    positive: bool = False,
    missing: Mapping[str, str] | None = None,
) -> OperatorClasses:
    """Return the equivalence classes of a function of one cell; `points` are where it changes, `positive`: its domain.

    `build` makes cases of an array.

    `more` are classes of its own; `missing` as in `OperatorClasses`.
    """

    def size(x: Any) -> Any:
        return np.abs(x) if positive else x

    def drawn(kind: str) -> Any:
        return lambda rng, dtype: [c for _ in range(2) for c in build(size(numbers(rng, kind, (3, 4), dtype)))]

    zones = (
        zone("FUNC", "numbers of everyday size", "function", drawn("gaussian")),
        zone("WIDE", "sizes from 2^-20 to 2^7", "function", drawn("wide")),
        zone(
            "EDGE",
            f"next to {', '.join(map(str, points))}: where the function changes",
            "function",
            _fixed_inputs(build, lambda d: size(np.array(_with_neighbours(*points)(d)))),
        ),
        zone(
            "ZERO",
            "zeros of both signs; the sign of a zero is free",
            "type",
            _fixed_inputs(build, lambda d: [0.0, -0.0]),
        ),
        zone("SUBNORMAL", "subnormal numbers; they may be flushed", "type", drawn("subnormal")),
        zone("BOUND", "where the type ends", "type", _fixed_inputs(build, lambda d: size(extreme_values(d)))),
        zone(
            "INF",
            "infinities beside numbers",
            "type",
            _fixed_inputs(build, lambda d: [INF, 1.0] if positive else [INF, -INF, 1.0]),
        ),
        zone(
            "NAN",
            "NaN stays NaN beside numbers; payloads are free",
            "type",
            _fixed_inputs(build, lambda d: [NAN, 1.0, NAN]),
        ),
        zone(
            "SHAPE",
            "ranks 0 to 4, sizes of 1",
            "shape",
            _inputs_of_shapes(_with_size(build, size), [a for a, _ in SHAPES]),
        ),
        zone("NULL", "tensors without cells", "shape", _inputs_of_shapes(build, [a for a, _ in NONE])),
        *more,
    )
    return OperatorClasses(operator, zones, missing or {})


def _with_size(build: Build, size: Callable[[Any], Any]) -> Build:
    """Return a builder of cases that applies `size`, such as abs, to the input before `build`."""
    return lambda x: build(np.asarray(size(x)))


NEGATIVE = "negative numbers give NaN"
RELU = _unary_classes("Relu", _unary_case("Relu"), missing={"INT8 .. INT64": INTEGERS})
LEAKY = _unary_classes("LeakyRelu", _unary_with_attributes("LeakyRelu", {"alpha": 0.01}, {"alpha": 0.25}))
TAIL = "the declared error is absolute: relative accuracy of small results is not demanded"
SIGMOID = _unary_classes(
    "Sigmoid",
    _unary_case("Sigmoid"),
    zone(
        "TAIL",
        "small results, far below 0",
        "risk",
        _fixed_inputs(
            lambda x: [c.with_note(TAIL) for c in _unary_case("Sigmoid")(x)],
            lambda d: [-5.0, -10.0, -15.0, -18.0, -50.0],
        ),
    ),
)
TANH = _unary_classes("Tanh", _unary_case("Tanh"))
SQRT = _unary_classes(
    "Sqrt",
    _unary_case("Sqrt"),
    zone(
        "SQUARES",
        "squares: roots that are exact",
        "function",
        _fixed_inputs(_unary_case("Sqrt"), lambda d: [1, 4, 2.25, 0.0625, 144]),
    ),
    zone("DOMAIN", NEGATIVE, "function", _fixed_inputs(_unary_case("Sqrt"), lambda d: [-1.0, -np.finfo(d).max, 4.0])),
    points=(1.0,),
    positive=True,
)
LOG = _unary_classes(
    "Log",
    _unary_case("Log"),
    zone(
        "DOMAIN",
        f"{NEGATIVE}, zeros -inf",
        "function",
        _fixed_inputs(_unary_case("Log"), lambda d: [0.0, -0.0, -1.0, 1.0]),
    ),
    points=(1.0, 2.71875),
    positive=True,
)
EXP = _unary_classes(
    "Exp",
    _unary_case("Exp"),
    zone(
        "OVERFLOW",
        "far beyond the last finite result, and far below the smallest",
        "type",
        _fixed_inputs(_unary_case("Exp"), lambda d: [12, 90, 710.5, 1e4, -30, -120, -800, -1e4]),
    ),
    zone(
        "LAST",
        "around the last finite result (the profile's exp.md states inputs that overflow)",
        "type",
        _fixed_inputs(_unary_case("Exp"), lambda d: [11.086, 11.09375, 88.72, 88.72283935546875, 709.78, 709.79]),
    ),
)


# --- with numbers beside the data -------------------------------------------------------------------------------


def _clip_build(low: float | None, high: float | None) -> Build:
    """Return a builder of a Clip case with these bounds; None leaves a bound out."""

    def build(x: Array) -> list[VectorCase]:
        bounds = {k: None if v is None else np.array(v, x.dtype) for k, v in (("min", low), ("max", high))}
        stored = tuple(k for k, v in bounds.items() if v is not None)
        return [VectorCase("Clip", {"x": x, **bounds}, stored=stored)]

    return build


def _all_builds(*builds: Build) -> Build:
    """Return a builder that yields the cases of all given builders, one after the other."""
    return lambda x: [c for b in builds for c in b(x)]


CLIP = _unary_classes(
    "Clip",
    _clip_build(-1.0, 0.75),
    zone(
        "OPTION",
        "without min, without max, without both; min = max",
        "function",
        _random_inputs(
            _all_builds(
                _clip_build(None, 0.5), _clip_build(-0.5, None), _clip_build(None, None), _clip_build(0.25, 0.25)
            ),
            "gaussian",
        ),
    ),
    points=(-1.0, 0.75),
    missing={
        "min > max": "refused: the profile's text gives max, and NaN data differ between its text and its formula",
        "NaN as a bound": "refused: the profile takes it for no bound, runtimes do not",
        "INT8 .. UINT64": INTEGERS,
    },
)


def _power_build(*exponents: float) -> Build:
    """Return a builder of one Pow case per exponent, which is stored in the file."""
    return lambda x: [VectorCase("Pow", {"x": x, "p": np.array(p, x.dtype)}, stored=("p",)) for p in exponents]


POW = _unary_classes(
    "Pow",
    _power_build(2.0, 3.0, -1.0, 0.5, 1.0),
    zone(
        "WHOLE",
        "whole exponents of negative numbers",
        "function",
        lambda rng, d: _power_build(2.0, 3.0, -2.0, 0.0)(np.array([-1.5, -2.0, 2.0, 0.5], d)),
    ),
    zone(
        "POLE",
        "0 to a negative power; negative numbers to a fraction: the profile's text contradicts itself (4.6)",
        "function",
        lambda rng, d: _power_build(-1.0, 0.5)(np.array([0.0, 4.0], d)),
    ),
    points=(1.0,),
    positive=True,
    missing={
        "exponents that are data": "refused: the importer reads one known exponent",
        "INT32, INT64": INTEGERS,
    },
)


def _where_cases(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases of Where with random conditions. Their numbers are of type `dtype`."""
    for shape in ((4,), (2, 3), (2, 2, 3)):
        a, b = (numbers(rng, "gaussian", shape, dtype) for _ in range(2))
        yield _where_case(rng.random(shape) < 0.5, a, b)


def _where_case(test: Array, a: Array, b: Array, note: str = "") -> VectorCase:
    """Return a case of Where with a note: a where `test` holds, else b; the condition is stored in the file."""
    return VectorCase("Where", {"c": test, "a": a, "b": b}, stored=("c",), outputs={"y": a.dtype}, note=note)


def _where_special(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a case of Where with NaN, infinities and zeros. Its numbers are of type `dtype`."""
    a, b = pairs((NAN, INF, -INF, 1.0), (NAN, 2.0, -0.0), dtype)
    yield _where_case(np.arange(a.size) % 2 == 0, a, b)


def _where_stretched(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases of Where with broadcast arguments. Their numbers are of type `dtype`."""
    shapes: list[list[tuple[int, ...]]] = [[(2, 1), (1, 3), (2, 3)], [(3,), (), (2, 3)]]
    for test, *others in shapes:
        a, b = (numbers(rng, "gaussian", s, dtype) for s in others)
        yield _where_case(rng.random(test) < 0.5, a, b, STRETCHED)


WHERE = OperatorClasses(
    "Where",
    (
        zone("FUNC", "either value, by a condition that stands in the file", "function", _where_cases),
        zone("SPECIAL", "NaN, infinities and zeros are handed on, or not met", "type", _where_special),
        zone("BCAST", "shapes that are stretched", "broadcasting", _where_stretched),
    ),
    {"a condition that is fed": "refused: the importer reads no input of type bool", "INT8 .. UINT64": INTEGERS},
)

CELLS = (
    *map(_binary_classes, ("Add", "Sub", "Mul", "Div")),
    MAX,
    RELU,
    LEAKY,
    CLIP,
    SIGMOID,
    TANH,
    EXP,
    LOG,
    SQRT,
    POW,
    WHERE,
)
