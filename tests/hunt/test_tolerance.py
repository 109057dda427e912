"""No execution is farther from the exact outputs than `check.tolerance` says; mistakes in it are caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
import tolerances
from claims import MODELS, SETTINGS
from deep import ALL, deep_network
from executor import Setting, execute
from networks import Network, network
from optimisers import OPTIMISERS, is_misread_by_openvino
from program import Program
from specgrad.check import tolerance
from steered import aims
from test_planted import halved, one_less, plant
from tolerances import Exact, Hunt, Sighting, exact_outputs, hunts, mixed_network

pytest.importorskip("torch")  # crown

CASES = [(name, model) for name in SETTINGS for model in MODELS]
FUSED = Setting()
NODE = replace(FUSED, model="node")


def escapes(found: Sequence[Sighting]) -> list[str]:
    return [e for s in found for e in s.escapes]


@pytest.mark.parametrize(("name", "model"), CASES)
def test_no_execution_leaves_the_tolerance(name: str, model: str) -> None:
    """A network per case."""
    setting, start = replace(SETTINGS[name], model=model), CASES.index((name, model))
    found = list(hunts([(start, mixed_network(start, setting.form))], setting, 4))
    assert not escapes(found)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model"), CASES)
def test_long_hunt(name: str, model: str) -> None:
    """504 networks over all cases; the largest seen over proven is printed with -s."""
    setting, start = replace(SETTINGS[name], model=model), 1000 + 36 * CASES.index((name, model))
    found = list(hunts(((k, mixed_network(k, setting.form)) for k in range(start, start + 36)), setting, 16))
    worst = max(found, key=lambda s: s.ratio)
    print(f"{name} {model}: {worst.ratio:.3f} at {worst.where}, {worst.closest}")
    assert not escapes(found)


def runtimes(found: Network, where: str, names: Sequence[str]) -> Sighting:
    """A network on real optimisers, against the tolerance of float32, fused."""
    hunt = Hunt(found, FUSED, where)
    inputs = [np.ascontiguousarray(x, dtype=np.float32) for x in found.inputs]
    for name in names:
        if not (name == "openvino" and is_misread_by_openvino(found.graph)):  # shown in test_optimisers.py
            hunt.against(name, OPTIMISERS[name](found.graph)(inputs))
    return hunt.sighting


@pytest.mark.parametrize("kind", ALL)
def test_runtimes_stay_within_the_tolerance(kind: str) -> None:
    assert not runtimes(deep_network(0, kind=kind), kind, list(OPTIMISERS)).escapes


@pytest.mark.slow
def test_runtimes_on_many_networks() -> None:
    found = [runtimes(mixed_network(seed), str(seed), list(OPTIMISERS)) for seed in range(2000, 2200)]
    assert not escapes(found)


# --- the hunter -------------------------------------------------------------------------------------------------------


def test_exact_values_of_roots_lie_between_fractions() -> None:
    graph = sg.trace(lambda x: sg.sqrt(x), (2,))
    pytest.importorskip("flint")
    (found,) = exact_outputs(graph, [np.float32([2.0, 4.0])])
    assert all(a**2 <= v <= b**2 and b - a < 1e-12 for a, b, v in zip(found.low, found.high, (2, 4), strict=True))


def test_a_value_just_outside_is_an_escape() -> None:
    graph = sg.trace(lambda x: x * 1.0, (1,))
    (exact,) = exact_outputs(graph, [np.float32([1.0])])
    for value, out in ((1.0, False), (1.5, False), (np.nextafter(1.5, 2), True), (np.inf, True), (np.nan, True)):
        sighting = Sighting("here")
        sighting.judge("someone", exact, np.array([0.5]), [value])
        assert bool(sighting.escapes) == out
    assert isinstance(exact, Exact)


def test_aimed_executions_go_further() -> None:
    """In most networks four of them come further than four random ones."""
    further = 0
    for seed in range(8):
        found = deep_network(seed, kind="deep_perceptron")
        graph, program, (exact,) = found.graph, Program(found.graph), exact_outputs(found.graph, found.inputs)
        (p,), aim = graph.output_positions, aims(graph, found.inputs, graph.output_positions[0], 0, 1)
        apart = [
            max(float(exact.distance(0, execute(program, found.inputs, NODE, Random(k), how).values[p][0][0]))
                for k in range(4))
            for how in (None, aim)
        ]  # fmt: skip
        further += apart[1] > apart[0]
    assert further >= 6, further


# --- planted mistakes -------------------------------------------------------------------------------------------------


def caught(make: Callable[[int], Network], runs: Setting, claim: Setting | None = None, seeds: int = 30) -> int | None:
    """The first seed whose network shows an escape."""
    for seed in range(seeds):
        if escapes(list(hunts([(seed, make(seed))], runs, 12, claim))):
            return seed
    return None


def is_clean(make: Callable[[int], Network], runs: Setting, seed: int | None) -> bool:
    """Whether the right tolerance of that network holds all the same executions."""
    assert seed is not None, "the mistake was not caught"
    return not escapes(list(hunts([(seed, make(seed))], runs, 12)))


def kind_of(name: str) -> Callable[[int], Network]:
    make = deep_network if name in ALL else network
    return lambda seed: make(seed, kind=name)


def biased(seed: int) -> Network:
    """w*x + b just above 1, where half a unit in the last place is all of u: two roundings, and both can be had."""
    rng = np.random.default_rng(seed)
    w, x = (1 + rng.random((2, 32, 1)) * 2.0**-8).astype(np.float32)
    b = (rng.random(32) * 2.0**-9).astype(np.float32)
    return Network("biased", sg.trace(lambda x: sg.conv(w[:, :, None], b, x, groups=32), (1, 32, 1)), (x[None],))


def near_zero(seed: int) -> Network:
    """Relus whose exact inputs are 0 or next to it, and computed ones are not."""
    rng = np.random.default_rng(seed)
    w, x = rng.normal(size=(8, 6)).astype(np.float32), rng.normal(size=(1, 6)).astype(np.float32)
    b = -(x.astype(float) @ w.T.astype(float))[0].astype(np.float32)
    return Network("near_zero", sg.trace(lambda x: sg.relu(sg.linear(w, b, x)), (1, 6)), (x,))


def near_tie(seed: int) -> Network:
    """The larger of two sums of the same terms, which one is decided by rounding; less the first of them."""
    rng = np.random.default_rng(seed)
    w, x = rng.normal(size=(4, 6)).astype(np.float32), rng.normal(size=(1, 6)).astype(np.float32)
    order = rng.permutation(6)

    def net(x: Any) -> Any:
        both = [sg.linear(w, None, x), sg.linear(w[:, order], None, sg.concat([x[:, k : k + 1] for k in order], 1))]
        pairs = sg.concat([sg.reshape(y, (1, 4, 1)) for y in both], 2)
        return sg.max_pool(pairs, (2,)) - pairs[:, :, :1]

    return Network("near_tie", sg.trace(net, (1, 6)), (x,))


OTHER = {
    "borders of nodes": ("matmul_level", FUSED, NODE),
    "one value per node": ("copied", FUSED, NODE),
    "float32 operands": ("matmul_add", SETTINGS["tf32"], FUSED),
    "rounding to nearest": ("div_chain", SETTINGS["float32 either way"], FUSED),
    "wider accumulators": ("matmul_level", SETTINGS["bfloat16"], SETTINGS["bfloat16 in float32"]),
}


@pytest.mark.parametrize("name", list(OTHER))
def test_a_tolerance_for_something_else_is_left(name: str) -> None:
    kind, runs, claim = OTHER[name]
    make = lambda seed: (deep_network if kind in ALL else network)(seed, runs.form, kind)
    assert is_clean(make, runs, caught(make, runs, claim))


def decided(low: Any, high: Any) -> Any:
    """Relus by the sign of the middle, as if none could flip."""
    from specgrad.bounds.linear.relaxation.formulas import LinearRelaxation

    on = (low + high > 0).to(low)
    return LinearRelaxation(on, 0 * on, on, 0 * on)


def won(low: Any, high: Any, inside: Any) -> Any:
    """Maxima by the largest middle, as if no winner could change."""
    import torch

    from specgrad.bounds.linear.relaxation.formulas import LinearRelaxation

    middle = torch.where(inside, low / 2 + high / 2, torch.finfo(low.dtype).min)
    only = torch.zeros_like(low).scatter(0, middle.argmax(0, keepdim=True), 1.0)
    return LinearRelaxation(only, 0 * only[0], only, 0 * only[0])


def same_for_all(right: Callable[..., Any]) -> Callable[..., Any]:
    """Every reader sees the same value of a node."""

    def wrong(self: Any, i: int, *rest: Any) -> Any:
        error = right(self, i, *rest)
        self.deviation[i] = 0 * self.deviation[i]
        self.region_deviation[i] = 0 * self.region_deviation.get(i, self.deviation[i])
        return error

    return wrong


def half_as_far(*args: Any, **options: Any) -> Any:
    found = tolerance(*args, **options)
    return replace(found, tolerances=tuple(d / 2 for d in found.tolerances))


def mistake(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from specgrad.bounds.linear.intermediate import forward_pass as walked
    from specgrad.bounds.linear.relaxation import formulas
    from specgrad.rounding.arithmetic import growth

    wrong: dict[str, tuple[Any, Any]] = {
        "half the roundings": (growth, halved(growth)),
        "no rounding of the bias": (growth, one_less(growth)),
        "no relu flips": (formulas.relu, decided),
        "no winner changes": (formulas.largest, won),
    }
    if name in wrong:
        plant(monkeypatch, *wrong[name])
    elif name == "half the distance":
        monkeypatch.setattr(tolerances, "tolerance", half_as_far)
    else:
        monkeypatch.setattr(walked.ForwardPass, "_set_deviation", same_for_all(walked.ForwardPass._set_deviation))


MISTAKES: dict[str, tuple[Callable[[int], Network], Setting]] = {
    "half the roundings": (biased, NODE),
    "half the distance": (biased, FUSED),
    "no rounding of the bias": (biased, FUSED),
    "no relu flips": (near_zero, NODE),
    "no winner changes": (near_tie, NODE),
    "one value for all readers": (kind_of("copied"), FUSED),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, setting = MISTAKES[name]
    mistake(name, monkeypatch)
    seed = caught(make, setting)
    monkeypatch.undo()
    assert is_clean(make, setting, seed)
