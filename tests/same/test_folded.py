"""What folding in float32 explains, and what not: batch normalisations folded as tools do, and then mistakes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from evaluated import is_kept
from false_sames import verdict
from specgrad.check import compare
from specgrad.equivalence import folded, matching

onnx = pytest.importorskip("onnx")

from specgrad.interop import from_onnx  # noqa: E402

Arrays = dict[str, np.ndarray]
NAMES = ("w", "b", "g", "beta", "m", "v")
EPS = float(np.float32(1e-5))


def drawn(seed: int) -> Arrays:
    """Weights of a convolution and of the normalisation behind it; of every third network the shifts cancel."""
    rng = np.random.default_rng(seed)
    made = {name: rng.normal(size=(3, 2, 3, 3) if name == "w" else 3).astype(np.float32) for name in NAMES}
    made["v"] = made["v"] ** 2 + np.float32(0.1)
    if seed % 3 == 0:
        made["m"], made["beta"] = made["b"] + np.float32(1e-4) * made["m"], np.float32(1e-4) * made["beta"]
    return made


def network(arrays: Arrays, normed: bool = True) -> sg.Graph:
    """relu of a convolution, with the normalisation or without."""
    norm = onnx.helper.make_node("BatchNormalization", ["c", "g", "beta", "m", "v"], ["n"], epsilon=EPS)
    nodes = [onnx.helper.make_node("Conv", ["x", "w", "b"], ["c"]), *([norm] if normed else [])]
    nodes.append(onnx.helper.make_node("Relu", ["n" if normed else "c"], ["y"]))
    info = onnx.helper.make_tensor_value_info
    tensors = [onnx.numpy_helper.from_array(arrays[name], name) for name in (NAMES if normed else NAMES[:2])]
    graph = onnx.helper.make_graph(nodes, "g", [info("x", 1, (1, 2, 5, 5))], [info("y", 1, None)], tensors)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return from_onnx(model)


def by_scale(a: Arrays) -> Arrays:
    """As ONNX Runtime folds: scale first, then (b - m) * scale + beta."""
    scale = a["g"] / np.sqrt(a["v"] + np.float32(EPS))
    return {"w": a["w"] * scale.reshape(3, 1, 1, 1), "b": (a["b"] - a["m"]) * scale + a["beta"]}


def by_root(a: Arrays) -> Arrays:
    """As PyTorch folds: 1/root first, the shift as b * scale + (beta - m * scale)."""
    root = np.float32(1) / np.sqrt(a["v"] + np.float32(EPS))
    scale = a["g"] * root
    return {"w": a["w"] * scale.reshape(3, 1, 1, 1), "b": a["b"] * scale + (a["beta"] - a["m"] * scale)}


def moved(arrays: Arrays, name: str, change: Callable[[np.ndarray], Any]) -> Arrays:
    new = {key: array.copy() for key, array in arrays.items()}
    new[name] = np.asarray(change(new[name]), np.float32)
    return new


def by_ulps(count: int) -> Callable[[np.ndarray], Any]:
    """The largest cell, so many units in the last place away."""

    def change(array: np.ndarray) -> np.ndarray:
        cell = np.unravel_index(np.argmax(abs(array)), array.shape)
        array[cell] += count * np.spacing(array[cell])
        return array

    return change


MISTAKES: dict[str, Callable[[Arrays], Arrays]] = {
    "16 ulps of a weight": lambda a: moved(a, "w", by_ulps(16)),
    "a bias off by 1e-4": lambda a: moved(a, "b", lambda b: b + np.float32([0, 1e-4, 0])),
    "two channels swapped": lambda a: moved(a, "w", lambda w: w[[1, 0, 2]]),
    "a kernel turned": lambda a: moved(a, "w", lambda w: w[..., ::-1]),
    "weights of float16": lambda a: moved(a, "w", lambda w: w.astype(np.float16)),
    "a channel of zeros": lambda a: moved(a, "w", lambda w: w * np.float32([0, 1, 1]).reshape(3, 1, 1, 1)),
}
GIVEN: dict[str, Callable[[Arrays], Arrays]] = {
    **{f"one ulp of {name}": lambda a, n=name: moved(a, n, by_ulps(1)) for name in NAMES},
    "the mean lost": lambda a: moved(a, "m", lambda m: 0 * m),
}


def wrong(seeds: range) -> list[str]:
    """Every verdict that is not what the construction makes it."""
    told = []
    for seed in seeds:
        arrays = drawn(seed)
        whole = network(arrays)
        for fold in (by_scale, by_root):
            if verdict(whole, network(fold(arrays), normed=False)) != "same within rounding":
                told.append(f"{seed}: {fold.__name__} is no rounding")
            for what, change in MISTAKES.items():
                if verdict(whole, network(change(fold(arrays)), normed=False)) != "cannot tell":
                    told.append(f"{seed}: {what}, {fold.__name__}")
        third = Fraction(1, 3) + np.array([0, Fraction(seed + 1, 2**90)], dtype=object)
        if verdict(*(sg.trace(lambda x, c=c: sg.relu(x) * c, (1,)) for c in third)) != "cannot tell":
            told.append(f"{seed}: numbers that float64 does not tell apart")
        told += [f"{seed}: {w}" for w, c in GIVEN.items() if verdict(whole, network(c(arrays))) != "cannot tell"]
    return told


@pytest.mark.quick
def test_folding_is_told_from_mistakes() -> None:
    assert wrong(range(2)) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_folding_is_told_from_mistakes_at_length(part: int) -> None:
    """Over 5,000 pairs in all."""
    assert wrong(range(2 + 50 * part, 52 + 50 * part)) == []


def test_weights_that_underflow_are_rounded_as_float32_rounds_them() -> None:
    """Numbers below 2**-126 are 2**-149 apart; half of that is explained where one was folded, and no more."""
    arrays = drawn(1)
    arrays["w"] = (arrays["w"] * np.float32(2.0**-130)).astype(np.float32)
    whole, folded_arrays = network(arrays), by_scale(arrays)
    assert abs(folded_arrays["w"]).max() < 2.0**-126
    assert verdict(whole, network(folded_arrays, normed=False)) == "same within rounding"
    beyond = moved(folded_arrays, "w", by_ulps(16))
    assert verdict(whole, network(beyond, normed=False)) == "cannot tell"
    assert verdict(whole, network(moved(arrays, "w", by_ulps(1)))) == "cannot tell"


def test_slices_of_slices_are_one_slice() -> None:
    """Pairs of slices with steps 1 to 3 of five cells: one slice by the rule, of the cells that both leave."""
    cells, starts = np.arange(5.0), [slice(a, b, c) for a in (0, 1) for b in (a, a + 1, 4, 5) for c in (1, 2, 3)]
    for first in starts:
        for second in starts:
            left = cells[first][second]
            step = int(left[1] - left[0]) if len(left) > 1 else 1
            at = slice(int(left[0]), int(left[-1]) + 1, step) if len(left) else slice(0, 0)
            both, one = (sg.trace(f, (5,)) for f in (lambda x, p=first, q=second: x[p][q], lambda x, p=at: x[p]))
            assert verdict(both, one) == "same", (first, second)
            if len(left) > 1:
                other = sg.trace(lambda x, p=slice(at.start, at.stop - 1, 1): x[p], (5,))
                assert verdict(both, other) != "same", (first, second)


def test_a_permutation_goes_below_a_reshape_of_single_cells() -> None:
    """All orders of four axes, two of them of one cell, that a reshape has put anywhere."""
    for shape in ((1, 2, 3, 1), (2, 1, 1, 3), (1, 1, 2, 3), (2, 3, 1, 1)):
        for order in permutations(range(4)):
            graph = sg.trace(
                lambda x, s=shape, o=order: sg.permute(sg.reshape(sg.permute(x, (0, 2, 1)), s), o), (2, 3, 1)
            )
            if np.prod(shape) == 6:
                assert is_kept([graph], 1), (shape, order)


def product(shape: tuple[int, ...], *factors: Any) -> sg.Graph:
    """The product of an input with numbers, one after the other."""

    def fn(x: Any) -> Any:
        for c in factors:
            x = x * np.float32(c)
        return x

    return sg.trace(fn, shape)


def product_of_two(arrays: list[Arrays], folded_first: bool, turned: bool) -> sg.Graph:
    """relu(w x g) * tanh(w x g) of two layers, with g folded or behind the product, computed in either order."""

    def net(x: Any) -> Any:
        plain = lambda a: sg.linear(a["w"], None, x) * a["g"]
        layer = (lambda a: sg.linear(a["w"] * a["g"][:, None], None, x)) if folded_first else plain
        kinds = [sg.relu, sg.tanh]
        one, two = (kinds[k](layer(arrays[k])) for k in ((1, 0) if turned else (0, 1)))
        return one * two

    return sg.trace(net, (1, 3))


@pytest.mark.quick
def test_factors_are_paired_in_any_order() -> None:
    """Of a product of two folded layers, either may be computed first."""
    rng = np.random.default_rng(0)
    drawn_array = lambda *shape: rng.normal(size=shape).astype(np.float32)
    arrays = [{"w": drawn_array(3, 3), "g": drawn_array(3)} for _ in range(2)]
    whole = product_of_two(arrays, False, False)
    for turned in (False, True):
        assert verdict(whole, product_of_two(arrays, True, turned)) == "same within rounding"
        assert verdict(whole, product_of_two(arrays[::-1], True, turned)) == "cannot tell"
        off = [arrays[0], moved(arrays[1], "w", by_ulps(16))]
        assert verdict(whole, product_of_two(off, True, turned)) == "cannot tell"


def test_sides_of_a_quotient_are_not_exchanged() -> None:
    """exp(w x g) / sigmoid(v x g) is not sigmoid(v x g) / exp(w x g), folded or not."""
    rng = np.random.default_rng(1)
    w, v, g = (rng.normal(size=(3, 3)).astype(np.float32) for _ in "wvg")
    g = g[0]

    def net(x: Any, folds: bool, exchanged: bool) -> Any:
        one, two = (sg.linear(a * g[:, None], None, x) if folds else sg.linear(a, None, x) * g for a in (w, v))
        one, two = sg.exp(one), sg.sigmoid(two)
        return two / one if exchanged else one / two

    graph = lambda *how: sg.trace(lambda x: net(x, *how), (1, 3))
    assert verdict(graph(False, False), graph(True, False)) == "same within rounding"
    assert verdict(graph(False, False), graph(True, True)) == "cannot tell"


def test_a_size_that_is_no_float_explains_nothing() -> None:
    """Sizes, and bounds of constants, beyond the largest float: no distance is told from them."""
    up, down = [3e38] * 9, [0.9 / 3e38] * 9
    assert verdict(product((2,), *up, *down, 1.5), product((2,), 7)) == "cannot tell"
    assert verdict(product((2,), *up), product((2,), *up[:7], 2e38)) == "cannot tell"


@pytest.mark.parametrize("columns", [3, 300])
def test_a_cell_that_nobody_folds_is_as_it_was_given(columns: int) -> None:
    """A row is scaled twice, the other is multiplied by 1: an ulp of the second is no rounding."""
    w, scale = np.full((2, columns), 1.75, np.float32), np.float32([[1], [1.75]])
    folded_weights = w * scale * scale
    whole = sg.trace(lambda x: sg.linear(w, None, x) * scale.reshape(2) * scale.reshape(2), (1, columns))
    rounded = folded_weights.copy()
    rounded[1, 0] = np.nextafter(rounded[1, 0], np.float32(9))
    plain = sg.trace(lambda x: sg.linear(rounded, None, x), (1, columns))
    assert verdict(whole, plain) == "same within rounding"
    other = folded_weights.copy()
    other[0, 0] = np.nextafter(other[0, 0], np.float32(2))
    assert verdict(whole, sg.trace(lambda x: sg.linear(other, None, x), (1, columns))) == "cannot tell"


def _left_alone(self: Any, value: Any, size: float | None = None, *roundings: int) -> None:
    """What cancels is not counted."""
    PLAIN(self, value, None, *roundings)


def _both_folded(p: Any, q: Any) -> tuple[Any, int]:
    """What both models leave to fold explains what differs."""
    unit, _ = UNIT_AND_ROUNDINGS(p, q)
    return unit, sum(0 if each is None else each.foldings()[1] for each in (p, q))


PLAIN, UNIT_AND_ROUNDINGS = folded.Folded.__init__, matching._unit_and_roundings
PLANTED: dict[str, tuple[Any, str, Any]] = {
    "foldings of both are allowed": (matching, "_unit_and_roundings", _both_folded),
    "the size of a sum is that of what is left": (folded.Folded, "__init__", _left_alone),
    "no cell is looked at": (matching, "_cells", lambda constant, shape: iter(())),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_planted_mistakes_are_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[mistake])
    assert wrong(range(1))


def test_a_number_that_stands_elsewhere_explains_nothing() -> None:
    """945 is given beside 3*5*7*9, which nobody folded: 3 and the number after it are two numbers."""

    def net(first: float):
        return sg.trace(lambda x: (x * np.float32(first) * 5 * 7 * 9, sg.relu(x) * np.float32(945)), (2,))

    done = compare(net(3), net(float(np.nextafter(np.float32(3), np.float32(4)))))
    assert done.verdict == "differs"


@pytest.mark.parametrize("shape", [(), (3,), (3, 3), (40, 40)])
def test_what_is_made_of_a_number_that_stands_elsewhere_explains_nothing(shape: tuple[int, ...]) -> None:
    """945 w is given beside 3*5*7*9 w; what is made of it with 1.1 is rounded once, not five times: scales, weights."""
    w = np.random.default_rng(len(shape)).integers(1, 60, shape).astype(np.float32)
    whole, rate = np.float32(945) * w, np.float32(1.1)
    off = np.array(whole * rate)
    cell = np.unravel_index(np.argmax(np.frexp(off)[0]), shape)  # where an ulp is little more than one rounding
    off[cell] += 3 * np.spacing(off[cell])
    by = lambda x, a: sg.linear(a, None, x) if len(shape) == 2 else x * a

    def folded_and_given(x: Any) -> Any:
        return by(x, w) * np.float32(3) * 5 * 7 * 9, by(sg.relu(x), whole) * rate

    networks = [folded_and_given, lambda x: (by(x, whole), by(sg.relu(x), off))]
    assert verdict(*(sg.trace(f, (1, *(shape[1:] or (3,)))) for f in networks)) == "cannot tell"


def test_a_quotient_is_rounded_once_and_by_a_power_of_2_never() -> None:
    """2/3, 3/2, 1/4, and a seventh, rounded before, that is divided by 2 and divides 5."""
    number = lambda *x: folded.folded(Fraction(*x))
    seventh = number(1) / 7
    made = [(x.value, x.roundings) for x in (number(2) / 3, number(3) / 2, 1 / number(4), seventh / 2, 5 / seventh)]
    assert made == [(Fraction(2, 3), 1), (Fraction(3, 2), 0), (Fraction(1, 4), 0), (Fraction(1, 14), 1), (35, 2)]


def test_numbers_put_in_one_place_are_added_exactly() -> None:
    """1 + 2**-60 is no 1, though float64 says so; what only moves is folded."""

    def net(at: list[int], found: Any) -> tuple[sg.Graph, sg.Graph]:
        cells = np.float32([1, 2.0**-60])
        put = sg.trace(lambda x: sg.put(x * 0 + cells, np.array(at), size=(2,)) + x, (2,))
        return put, sg.trace(lambda x: x + np.float32(found), (2,))

    assert verdict(*net([1, 0], [2.0**-60, 1])) == "same"
    assert verdict(*net([0, 0], [1, 0])) != "same"
    assert compare(*net([0, 0], [1, 0])).verdict == "differs"


@pytest.mark.parametrize(
    ("written", "near"), [("clamp", Fraction(1, 3)), ("fill", Fraction(1, 3)), ("fill", 2**53 + 1)]
)
def test_numbers_that_no_float_holds_are_not_written_into_large_constants(written: str, near: Any) -> None:
    cells = np.linspace(0, 1, 2**14 + 2, dtype=np.float32)
    params = [{"low": v, "high": None} if written == "clamp" else {"value": v} for v in (near, float(near))]
    one, other = (
        sg.trace(lambda x, p=p: sg.apply(sg.REGISTRY[written], x * 0 + cells, **p) + x, cells.shape) for p in params
    )
    assert verdict(one, other) != "same"
    assert verdict(other, other) == "same"
