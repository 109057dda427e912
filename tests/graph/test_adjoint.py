"""Proofs of the adjoint law: what is linear is proven, what is wrong is refuted, and nothing else is ever proven."""

from __future__ import annotations

import itertools
import runpy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import laws
import specgrad as sg
from specgrad.graph.transforms.adjoint_proof import Claim, prove_adjoint
from specgrad.op import REGISTRY, Op, apply
from specgrad.window import strided

CASES = 4
MANY = pytest.param(16, marks=pytest.mark.slow)
LINEAR = sorted(name for name, op in REGISTRY.items() if op.linear and not op.transcendental)
ZERO = ("fill", "greater", "greater_equal", "equal", "less", "sign", "stop_gradient", "floor", "ceil", "round")
AT_POSITIONS = ("max_pool", "median_pool", "top")  # linear once the positions are known: take and put
WINDOW = strided("avg_pool", (5,), (2,), stride=2, padding=1)  # cells -1 0 | 1 2 | 3 4


def graph_of(op: Op, case: Any, free: list[int]) -> sg.Graph:
    """One call; the arguments in `free` are inputs, the others constants."""
    args, params = case

    def fn(*values: Any) -> Any:
        given = dict(zip(free, values, strict=True))
        return apply(op, *(given.get(i, a) for i, a in enumerate(args)), **params)

    shapes = [sg.Index(np.shape(args[i])) if i in op.index_args else np.shape(args[i]) for i in free]
    return sg.trace(fn, *shapes)


def claims(op: Op, seed: int) -> list[tuple[Claim, Any]]:
    """Over every linear group, all linear arguments together, and all arguments, indices too."""
    case = op.cases(Random(f"{op.name}/{seed}"))
    count = len(case[0])
    groups = [list(g) for g in op.linear_groups(count)]
    together = sorted(set().union(*groups)) if groups else []
    choices = [*groups, together, list(range(count))]
    found = []
    for free in (c for c in choices if any(i not in op.index_args for i in c)):
        found += [(claim, case) for claim in prove_adjoint(graph_of(op, case, free)).claims]
    return found


def settled(op: Op, *shapes: Any, **params: Any) -> Claim:
    (claim,) = prove_adjoint(sg.trace(lambda *args: apply(op, *args, **params), *shapes)).claims
    return claim


@pytest.mark.parametrize("count", [CASES, MANY])
@pytest.mark.parametrize("name", LINEAR)
def test_linear_operators_are_proven(name: str, count: int) -> None:
    op = REGISTRY[name]
    for seed in range(count):
        for claim, case in claims(op, seed):
            wide = set(claim.tangents) <= set().union(*op.linear_groups(len(case[0])))
            if wide and "not linear in argument" not in claim.text:  # a divisor, a mask: an input here, not a constant
                assert claim.verdict == "proven", (seed, case[1], str(claim))


@pytest.mark.parametrize("name", AT_POSITIONS)
def test_reading_and_writing_at_positions_is_proven(name: str) -> None:
    for seed in range(CASES):
        assert [claim.verdict for claim, _ in claims(REGISTRY[name], seed)] == ["proven"], seed


@pytest.mark.parametrize("name", sorted(REGISTRY.keys() - set(LINEAR) - {*AT_POSITIONS, *ZERO}))
@pytest.mark.parametrize("count", [CASES, MANY])
def test_what_is_not_linear_is_not_proven(name: str, count: int) -> None:
    op = REGISTRY[name]
    for claim, (args, params) in itertools.chain.from_iterable(claims(op, seed) for seed in range(count)):
        identity = name in ("clamp", "quantize") and params == {"low": None, "high": None}
        constant = name == "power" and params["exponent"] == 0
        nothing = op.transcendental and op.linear and not any(map(len, _taps(params, args)))  # no exp is ever taken
        assert claim.verdict == "not proven" or identity or constant or nothing, str(claim)


def _taps(params: Any, args: Any) -> list[list[Any]]:
    return [list(params["window"].taps()) if args[0].size and args[1].size else []]


def test_zero_is_adjoint_to_zero() -> None:
    for name in ZERO:
        for claim, _ in claims(REGISTRY[name], 0):
            assert (claim.verdict, claim.text) == ("proven", "both rules are zero")


def test_what_a_claim_says() -> None:
    def net(w, x):
        y = sg.max_pool(sg.conv(w, None, x) / np.array([2.0, 4.0, 8.0]), (2,), stride=1)
        return sg.relu(y), x * 2

    proof = prove_adjoint(sg.trace(net, (1, 1, 2), (1, 4)))
    assert str(proof).splitlines() == [
        "conv (conv of 1x4, 1x1x2): proven: for all dx0, dx1, gy, x0, x1",
        "div (div of 1x3, 1x3): proven: for all dx0, gy, at this x1",
        "max_pool (max_pool of 1x3): proven: for all dx0, gy, x0 and every index in 0..2",
        "relu (relu of 1x2): not proven: select: stands in a rule and is not linear in argument 0",
        "mul (mul of 1x4): proven: for all dx0, gy",
    ]
    assert not proof.proven
    assert prove_adjoint(sg.trace(lambda x: sg.avg_pool(x, (2,)) * 3, (4,))).proven
    assert proof.claims[0].tangents == (0, 1)


def test_a_claim_is_about_the_tangents_that_a_graph_has(monkeypatch) -> None:
    """A rule that is right if both arguments have tangents, and wrong after stop_gradient, where one has none."""
    graph = sg.trace(lambda x: sg.stop_gradient(x) * x, (2,))
    assert [c.tangents for c in prove_adjoint(graph).claims] == [(0,), (1,)]
    assert prove_adjoint(graph).proven
    right = REGISTRY["mul"].jvp
    careless = lambda y, args, dargs: dargs[1] if dargs[0] is None else right(y, args, dargs)
    op = replace(REGISTRY["mul"], name="planted", jvp=careless)
    assert prove_adjoint(sg.trace(lambda x, z: apply(op, x, z), (2,), (2,))).proven
    stopped = prove_adjoint(sg.trace(lambda x: apply(op, sg.stop_gradient(x), x), (2,))).claims[-1]
    assert (stopped.tangents, stopped.verdict) == ((1,), "refuted")


def test_a_claim_is_what_all_pairs_of_a_basis_say() -> None:
    """J and J^T as matrices, column by column over Fractions, by the rules on arrays: no symbol in sight."""
    op, params = REGISTRY["avg_pool"], {"window": WINDOW, "divisor": "padded"}
    assert settled(op, (5,), **params).verdict == "proven"
    x, y = sg.exact(np.zeros(5)), sg.exact(np.zeros(3))
    basis = [sg.exact(row) for row in np.eye(5)]
    forward = np.array([op.tangent(y, (x,), (dx,), params) for dx in basis]).T
    reverse = np.array([op.cotangents(sg.exact(row), y, (x,), params)[0] for row in np.eye(3)])
    assert (forward == reverse).all()
    half = Fraction(1, 2)
    assert forward.tolist() == [[half, 0, 0, 0, 0], [0, half, half, 0, 0], [0, 0, 0, half, half]]


MAPS = {
    "same": lambda x, t: t,
    "rolled": lambda x, t: rolled(t),
    "doubled": lambda x, t: doubled(t),
    "negative": lambda x, t: -t,
    "scaled": lambda x, t: t * x,
    "total": lambda x, t: sg.broadcast(sg.sum(t, keepdims=True), t.shape),
    "first": lambda x, t: sg.broadcast(sg.slice(t, slice(0, 1)), t.shape),
    "to the first": lambda x, t: sg.pad(sg.sum(t, keepdims=True), [(0, t.shape[0] - 1)]),
}


def matrix(f: Any, size: int) -> Any:
    return np.array([f(sg.exact(row)) for row in np.eye(size, dtype=int)])


@pytest.mark.parametrize("count", [400, pytest.param(4000, marks=pytest.mark.slow)])
def test_proven_if_and_only_if_the_matrices_agree(count, monkeypatch) -> None:
    """Rules composed at random; the judge evaluates them on all basis elements, at an x that nobody would choose."""
    x, rng, found = sg.exact([7, -11, 13]), Random(0), {"proven": 0, "refuted": 0}
    for _ in range(count):
        f, g, h, k = (rng.choice(list(MAPS.values())) for _ in range(4))
        tangent, cotangent = lambda x, t, f=f, g=g: f(x, g(x, t)), lambda x, t, h=h, k=k: h(x, k(x, t))
        op = made(
            monkeypatch,
            spec=lambda x: x,
            jvp=lambda y, a, d, f=tangent: f(a[0], d[0]),
            vjp=lambda gy, y, a, f=cotangent: (f(a[0], gy),),
        )
        claim = settled(op, (3,))
        if claim.verdict == "not proven":
            assert TOGETHER in claim.text  # x twice
            continue
        agree = (matrix(lambda t, f=cotangent: f(x, t), 3) == matrix(lambda t, f=tangent: f(x, t), 3).T).all()
        assert (claim.verdict == "proven") == agree, str(claim)
        found[claim.verdict] += 1
    assert min(found.values()) > 10, found


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_proven_if_and_only_if_the_matrices_agree_for_every_index(count, monkeypatch) -> None:
    """take and put between maps; the judge tries all 16 indices of two cells in -1..2."""
    maps = [f for name, f in MAPS.items() if name != "scaled"]
    rng, found = Random(1), {"proven": 0, "refuted": 0}
    for _ in range(count):
        f, g, h, k = (rng.choice(maps) for _ in range(4))
        tangent = lambda t, i, f=f, g=g: f(None, sg.take(g(None, t), i, rank=1))
        cotangent = lambda t, i, h=h, k=k: h(None, sg.put(k(None, t), i, size=(3,)))
        jvp, vjp = lambda y, a, d, f=tangent: f(d[0], a[1]), lambda gy, y, a, f=cotangent: (f(gy, a[1]), None)
        without = {"shape": lambda x, i: i, "index_args": (1,), "jvp": jvp, "vjp": vjp}
        claim = settled(made(monkeypatch, spec=lambda x, i: x, **without), (3,), sg.Index((2,)))
        indices = [np.array(i) for i in itertools.product(range(-1, 3), repeat=2)]
        agree = all(
            (matrix(lambda t, i=i, f=cotangent: f(t, i), 2) == matrix(lambda t, i=i, f=tangent: f(t, i), 3).T).all()
            for i in indices
        )
        assert claim.verdict == ("proven" if agree else "refuted"), str(claim)
        found[claim.verdict] += 1
    assert min(found.values()) > 3, found


# --- planted mistakes ------------------------------------------------------------------------------------------------


def rolled(x: Any) -> Any:
    return sg.concat([sg.slice(x, slice(1, None)), sg.slice(x, slice(0, 1))], 0)


def doubled(g: Any) -> Any:
    """The first cell counts twice."""
    first = sg.slice(g, *[slice(0, 1)] * len(g.shape))
    return g + sg.pad(first, [(0, n - 1) for n in g.shape])


def wrong(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> Op:
    broken = replace(REGISTRY[name], **changes)
    monkeypatch.setitem(REGISTRY, name, broken)
    return broken


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (rolled, "dx0[0] gy[0] counts 1/2 in <gy, J dx> and 0 in <J^T gy, dx>"),
        (doubled, "dx0[0] gy[0] counts 1/2 in <gy, J dx> and 1 in <J^T gy, dx>"),
    ],
)
def test_a_shifted_adjoint_and_a_doubled_tap_are_refuted(change, text, monkeypatch) -> None:
    vjp = REGISTRY["avg_pool"].vjp
    broken = wrong(monkeypatch, "avg_pool", vjp=lambda gy, y, args, **p: (change(vjp(gy, y, args, **p)[0]),))
    claim = settled(broken, (5,), window=WINDOW, divisor="padded")
    assert (claim.verdict, claim.text) == ("refuted", text)


def adjoint_at_random(op: Op, case: Any, moving: Any, rng: Random) -> bool:
    """The law at one point, over Fractions: the judge of the test below."""
    args, params = case
    y = laws.value(op, args, params)
    dargs = [laws.sample_inputs.like(rng, a) if k in moving else None for k, a in enumerate(args)]
    gy, found = laws.sample_inputs.like(rng, y), 0
    for d, g in zip(dargs, op.cotangents(gy, y, args, params), strict=True):
        found += laws.inner(g, d)
    return laws.inner(gy, op.tangent(y, args, dargs, params)) == found


@pytest.mark.parametrize("count", [2 * CASES, MANY])
@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("change", [doubled, lambda g: g * 2, lambda g: -g], ids=["one cell", "twice", "negated"])
def test_wrong_cotangents_of_every_linear_operator_are_refuted(name, change, count, monkeypatch) -> None:
    op = REGISTRY[name]
    group = op.linear_groups(9)[0][:1]

    def vjp(gy: Any, y: Any, args: Any, **params: Any) -> Any:
        found = list(op.vjp(gy, y, args, **params))
        found[group[0]] = found[group[0]] if 0 in found[group[0]].shape else change(found[group[0]])
        return tuple(found)

    broken = replace(op, name="planted", vjp=vjp)
    monkeypatch.setitem(REGISTRY, "planted", broken)
    refuted = 0
    for seed in range(count):
        case = op.cases(Random(f"{name}/{seed}"))
        (claim,) = prove_adjoint(graph_of(broken, case, list(group))).claims
        right = adjoint_at_random(broken, case, group, Random(seed))
        assert right or claim.verdict == "refuted", (seed, str(claim))
        refuted += claim.verdict == "refuted"
    assert refuted or (name, change) == ("slice", doubled)  # these slices leave the first cell out


def test_wrong_kernels_and_scatters_are_refuted(monkeypatch) -> None:
    conv, taking = REGISTRY["conv"], REGISTRY["take"]

    def other_way_round(gy: Any, y: Any, args: Any, **params: Any) -> Any:
        kernel = sg.concat([args[1][..., 1:], args[1][..., :1]], 2)
        return (apply(REGISTRY["conv_transpose"], gy, kernel, **params), *conv.vjp(gy, y, args, **params)[1:])

    broken = replace(conv, name="planted", vjp=other_way_round)
    claim = settled(broken, (1, 3), (1, 1, 2), window=strided("conv", (3,), (2,)), groups=1)
    assert claim.verdict == "refuted"
    assert claim.text == "dx0[0, 0] gy[0, 0] x1[0, 0, 0] counts 1 in <gy, J dx> and 0 in <J^T gy, dx>"

    scatter = lambda gy, y, args, **_: (sg.put(rolled(gy), args[1], size=args[0].shape[-1:]), None)
    claim = settled(replace(taking, vjp=scatter), (3,), sg.Index((2,)), rank=1, empty=True)
    assert claim.verdict == "refuted"  # while all cells of the index are equal, nothing shows
    assert claim.text == "dx0[0] gy[0] counts 1 in <gy, J dx> and 0 in <J^T gy, dx>, index [0, -1]"


# --- what must never be proven ---------------------------------------------------------------------------------------


def shape_of_x(x: Any, **_: Any) -> Any:
    return x


def made(monkeypatch: pytest.MonkeyPatch, name: str = "planted", **fields: Any) -> Op:
    op = Op(name=name, **({"shape": shape_of_x, "cases": lambda rng: None} | fields))
    monkeypatch.setitem(REGISTRY, name, op)
    return op


def forgets(x: Any) -> Any:
    x[0] = x[0] * 0  # changes its argument, so that both sides forget the same cell
    return x * 1


LOOKS, BELIEVES_NEITHER = "has no value to look at", "over numbers, or for the indices that occur, it may be otherwise"
FALSE_PROMISES = {  # specification, the factor in its cotangent, why it is not proven
    "squares, which are x on 0 and 1": (lambda x: x * x, 1, BELIEVES_NEITHER),
    "sizes": (abs, 1, LOOKS),
    "positive parts": (lambda x: np.where(x > 0, x, x * 0), 1, LOOKS),
    "looks for zeros": (lambda x: np.where(x == 0, x * 3, x * 1), 1, LOOKS),
    "doubles if the first is not zero": (lambda x: x * (2 if x.flat[0] else 1), 2, LOOKS),
    "one more": (lambda x: x + 1, 1, "gy[0] counts 1 in <gy, J dx> and 0 in <J^T gy, dx>"),
    "products of neighbours": (lambda x: x * np.roll(x, 1), 1, "dx0[0] gy[0] counts 0 in"),
    "halves on numbers alone": (lambda x: x / (2 if isinstance(x.flat[0], Fraction) else 1), 1, "otherwise on numbers"),
    "changes its argument": (forgets, 1, "read-only"),
    "floats": (lambda x: x * 0.5, Fraction(1, 2), "symbol: meets exact numbers alone; got float"),
    "another shape": (lambda x: x.reshape(1, -1), 1, "gives (1, 2) where its shape rule says (2,)"),
}


@pytest.mark.parametrize("name", FALSE_PROMISES)
def test_an_operator_that_only_promises_to_be_linear_is_not_proven(name, monkeypatch) -> None:
    spec, factor, why = FALSE_PROMISES[name]
    op = made(monkeypatch, spec=spec, linear="all", vjp=lambda gy, y, args: (gy if factor == 1 else gy * factor,))
    claim = settled(op, (2,))
    assert claim.verdict == ("refuted" if "counts" in why else "not proven")
    assert why in claim.text
    if name == "changes its argument":
        monkeypatch.setattr("specgrad.graph.transforms.adjoint_proof._read_only", lambda a: np.asarray(a))
        assert settled(op, (2,)).verdict == "proven"  # so the guard is what refuses it


def test_a_square_that_promises_to_be_linear_is_not_proven_in_what_it_multiplies(monkeypatch) -> None:
    square = made(monkeypatch, "square", spec=lambda x: x * x, linear="all", vjp=lambda gy, y, args: (gy,))
    times = lambda x, t: apply(square, x) * t
    op = made(monkeypatch, spec=times, jvp=lambda y, a, d: times(a[0], d[0]), vjp=lambda gy, y, a: (times(a[0], gy),))
    assert settled(op, (2,)).text == "planted: its rules multiply a value with itself"


def test_a_bilinear_operator_that_promises_to_be_jointly_linear_is_not_proven(monkeypatch) -> None:
    op = made(
        monkeypatch,
        shape=lambda a, b: a,
        spec=lambda a, b: a * b,
        linear="all",
        jvp=lambda y, args, dargs: apply(op, *dargs),
        vjp=lambda gy, y, args: (apply(op, gy, args[1]), apply(op, gy, args[0])),
    )
    assert settled(op, (2,), (2,)).verdict == "refuted"


def best(x: Any) -> Any:
    return apply(REGISTRY["winner"], x, window=strided("planted", (2,), (1,)))


def take(x: Any, i: Any) -> Any:
    return sg.take(x, i, rank=1)


def put(x: Any, i: Any) -> Any:
    return sg.put(x, i, size=(2,))


UNKNOWN = replace(REGISTRY["neg"], name="neg")  # the name is registered, this record is not
TOGETHER = "is not linear in arguments [0, 1] together"
RULES = {  # two rules f(x, t), and why nothing is said of them; as it happens most are adjoint
    "compares": (
        lambda x, t: sg.select(sg.greater(x, 0), t, 0),
        None,
        "select: stands in a rule and is not linear in argu",
    ),
    "powers": (lambda x, t: sg.power(x, 2) * t, None, "power: stands in a rule and is not linear in argument 0"),
    "twice in a product": (lambda x, t: x * (x * t), None, f"mul: stands in a rule and {TOGETHER}"),
    "a tangent squared": (lambda x, t: t * t, None, TOGETHER),
    "divides by a value": (lambda x, t: t / x, None, "div: stands in a rule and is not linear in argument 1"),
    "an array of its own": (lambda x, t: t * np.ones(2), None, "a rule reads an array of its own"),
    "not registered": (lambda x, t: apply(UNKNOWN, t), None, "neg: stands in a rule and is not registered"),
    "wrong shape": (lambda x, t: t, lambda x, t: sg.reshape(t, (1, 2)), "not numbers of shape (2,)"),
    "no value": (lambda x, t: t, lambda x, t: 0, "a rule gives 0, not numbers"),
    "an index": (lambda x, t: t, lambda x, t: best(x), "not numbers of shape (2,)"),
    "chooses by the tangent": (lambda x, t: take(t, best(t)), lambda x, t: put(t, best(t)), TOGETHER),
    "two indices": (
        lambda x, t: take(t, best(x)) + take(t, best(-x)),
        lambda x, t: put(t, best(x)) + put(t, best(-x)),
        "its rules read more than one index",
    ),
    "an index in an index": (
        lambda x, t: take(put(take(t, best(x)), best(x)), best(x)),
        lambda x, t: put(take(put(t, best(x)), best(x)), best(x)),
        TOGETHER,
    ),
    "an index times an index": (
        lambda x, t: take(t, best(x)) * put(x * 0 + t, best(x)),
        lambda x, t: put(t, best(x)) * take(t, best(x)),
        TOGETHER,
    ),
    "shifted, for indices that may not occur": (
        lambda x, t: take(t, best(x)),
        lambda x, t: put(rolled(t), best(x)),
        BELIEVES_NEITHER,
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_that_are_no_linear_composition_are_not_proven(name, monkeypatch) -> None:
    forward, reverse, why = RULES[name]
    tangent = lambda y, args, dargs: forward(args[0], dargs[0])
    op = made(monkeypatch, spec=lambda x: x, jvp=tangent, vjp=lambda gy, y, args: ((reverse or forward)(args[0], gy),))
    claim = settled(op, (2,))
    assert claim.verdict == "not proven"
    assert why in claim.text


def test_rules_that_multiply_tangents_or_read_the_output_are_not_proven(monkeypatch) -> None:
    op = made(
        monkeypatch,
        shape=lambda a, b: a,
        spec=lambda a, b: a,
        jvp=lambda y, args, dargs: dargs[0] * dargs[1],
        vjp=lambda gy, y, args: (gy, gy),
    )
    assert TOGETHER in settled(op, (2,), (2,)).text
    op = made(monkeypatch, spec=lambda x: x, jvp=lambda y, a, d: y * d[0], vjp=lambda gy, y, a: (y * gy,))
    assert settled(op, (2,)).text == "planted: its rules read the output"


def test_another_winner_of_the_same_name_is_not_the_same_index(monkeypatch) -> None:
    last = replace(REGISTRY["winner"], spec=lambda x, *, window: np.full(window.out, 1))
    window = strided("max_pool", (2,), (2,))
    vjp = lambda gy, y, args, *, window: (sg.put(gy, apply(last, args[0], window=window), size=(2,), empty=False),)
    op = wrong(monkeypatch, "max_pool", vjp=vjp)
    assert "not registered" in settled(op, (2,), window=window).text
    monkeypatch.setitem(REGISTRY, "winner", last)
    assert settled(op, (2,), window=window).verdict == "not proven"


def test_an_index_is_read_once_whatever_is_promised(monkeypatch) -> None:
    """Two operators that promise to be linear in their index too."""
    for name in ("take", "put"):
        monkeypatch.setitem(REGISTRY, f"{name}_all", replace(REGISTRY[name], name=f"{name}_all", linear="all"))

    def twice(name: str, x: Any, i: Any, **params: Any) -> Any:
        op = REGISTRY[name]
        return apply(op, apply(op, x, i, empty=True, **params), i, empty=True, **params)

    op = made(
        monkeypatch,
        shape=lambda x, i: x,
        spec=lambda x, i: x,
        index_args=(1,),
        jvp=lambda y, args, dargs: twice("put_all", dargs[0], args[1], size=(2,)),
        vjp=lambda gy, y, args: (twice("take_all", gy, args[1], rank=1), None),
    )
    assert TOGETHER in settled(op, (2,), sg.Index((2,))).text


def test_an_index_that_is_read_as_a_whole_is_not_proven(monkeypatch) -> None:
    """take that promises nothing; and two that promise too much, and break the law that says what `picks` means."""
    jvp = lambda y, args, dargs, **params: apply(REGISTRY["take"], dargs[0], args[1], **params)
    op = wrong(monkeypatch, "take", picks=False, jvp=jvp)
    assert "several cells of the index at once" in settled(op, (3,), sg.Index((2,)), rank=1, empty=True).text
    overwrites = runpy.run_path(str(META))["forgetful_scatter"]
    adds_up = lambda x, i, **_: np.resize(x.flat[i.sum() % x.size], i.shape)
    given, index = sg.exact([5, 6, 7, 9]), np.array([0, 1, 1, 3])
    for name, spec, params in (("take", adds_up, {"rank": 1}), ("put", overwrites, {"size": (4,)})):
        case = (given, index), {**params, "empty": True}
        with pytest.raises(AssertionError):
            laws.check_picks(replace(REGISTRY[name], spec=spec, picks=True), case, Random(1))


def test_work_is_bounded_and_shapes_matter() -> None:
    graph = sg.trace(lambda w, x: sg.conv(w, None, x), (2, 3, 3), (3, 8))
    assert prove_adjoint(graph).proven
    (claim,) = prove_adjoint(graph, work=100).claims
    assert (claim.verdict, claim.text) == ("not proven", "prove_adjoint: it takes more terms than work= allows")
    assert claim.shapes == ((3, 8), (2, 3, 3))
    with pytest.raises(sg.SpecgradError, match="prove_adjoint: needs a graph, whose shapes are fixed; trace it first"):
        prove_adjoint(sg.neg)


META = Path(__file__).parents[1] / "meta" / "test_broken_operators.py"
BROKEN = runpy.run_path(str(META))["MUTANTS"]
NOT_ADJOINT = [
    m for m, (name, _, law) in BROKEN.items() if law in ("adjoint", "closure") and name in (*LINEAR, "max_pool")
]


@pytest.mark.parametrize("mutant", NOT_ADJOINT)
def test_the_broken_operators_of_the_laws_are_never_proven(mutant, monkeypatch) -> None:
    """Those whose rules are not adjoint: on every case on which the law of adjoints rejects them."""
    name, changes, _ = BROKEN[mutant]
    broken = wrong(monkeypatch, name, **changes)
    rejected = 0
    for seed in range(40):
        case = broken.cases(Random(f"{name}/{seed}"))
        try:
            laws.check_adjoint(broken, case, Random(seed))
            if mutant == "a rule that leaves the registry":
                raise AssertionError
        except AssertionError:
            rejected += 1
            free = [i for i in range(len(case[0])) if i not in broken.index_args]
            assert all(c.verdict != "proven" for c in prove_adjoint(graph_of(broken, case, free)).claims), seed
    assert rejected
