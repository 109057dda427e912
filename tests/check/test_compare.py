"""Two models: the same function is shown, another one is told apart at an input, and nothing is guessed."""

from __future__ import annotations

import dataclasses
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Box
from specgrad.check import compare
from specgrad.check.comparison import difference_bounds
from specgrad.check.comparison.compare import NODE_FOR_NODE
from specgrad.errors import ParameterError, ShapeError

pytest.importorskip("torch")
flint = pytest.importorskip("flint")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import compared  # noqa: E402
from specgrad.interop import from_onnx  # noqa: E402

X = np.random.default_rng(1).normal(size=compared.SHAPE).astype(np.float32)


def exact_gap(a: Any, b: Any, x: tuple[np.ndarray, ...], output: int, place: tuple[int, ...]) -> Any:
    """abs(a - b) at one cell, over balls of 400 bits, by calling the graphs: nothing of check/ or same/ is in it."""
    before, flint.ctx.prec = flint.ctx.prec, 400
    try:
        cells = []
        for model in (a, b):
            graph = from_onnx(model) if not isinstance(model, sg.Graph) else model
            constants = {p: sg.balls(c) for p, c in graph.constants.items()}
            y = dataclasses.replace(graph, constants=constants)(*map(sg.balls, x))
            cells.append((y if isinstance(y, tuple) else (y,))[output][place])
        return abs(cells[0] - cells[1])
    finally:
        flint.ctx.prec = before


@pytest.mark.quick
@pytest.mark.parametrize("change", compared.SAME)
def test_the_same_function_is_shown(change: Any) -> None:
    done = compare(compared.original(), compared.edited(change), X)
    nothing_left = change is compared.left_over  # the importer itself drops Identity and Dropout
    how = "node for node, weights bit for bit" if nothing_left else "by rewriting over exact numbers"
    assert (done.verdict, done.method) == ("same", how)
    assert done.points == ()
    assert done.weights is None


@pytest.mark.parametrize("change", compared.OTHER)
def test_another_function_is_told_apart(change: Any) -> None:
    first, second = compared.original(), compared.edited(change)
    layer, alike = compared.OTHER[change]
    done = compare(first, second, X)
    if change is compared.fused:
        assert done.verdict == "same within rounding"
        done = compare(first, second, X, exact=True)
    assert done.verdict == "differs"
    assert done.divergent_layers is not None
    assert done.divergent_layers[0] == layer
    assert (done.weights is not None) == alike
    w = done.witness
    assert w is not None
    gap = exact_gap(first, second, w.inputs, w.output, w.index)
    assert gap >= w.lower > 0
    assert gap <= w.upper
    assert w.within_rounding is (change in (compared.fused, compared.one_ulp))


def test_names_order_and_sharing_do_not_matter() -> None:
    other = compared.original()
    for node in other.graph.node:
        node.name = f"renamed {node.name}"
    done = compare(compared.original(), other, X, eps=0.5)
    assert (done.verdict, done.method) == ("same", "node for node, weights bit for bit")
    assert done.box is not None
    assert (done.box.max_difference, done.box.witness_difference) == (0.0, 0.0)
    assert 0 < done.box.max_execution_difference < 0.01  # two executions of one function


def test_what_a_real_optimiser_changes(tmp_path: Any) -> None:
    """ONNX Runtime's basic level folds batch normalisations in float32: the same structure, within rounding."""
    pytest.importorskip("onnxruntime")
    plain = compared.edited(lambda nodes, w: _without_norms(nodes))
    saved = compared.optimised(plain, "ORT_ENABLE_BASIC", str(tmp_path / "plain.onnx"))
    assert compare(plain, saved, X).verdict == "same"
    full = compared.optimised(compared.original(), "ORT_ENABLE_BASIC", str(tmp_path / "full.onnx"))
    assert "BatchNormalization" not in {n.op_type for n in full.graph.node}
    done = compare(compared.original(), full, X)
    assert (done.verdict, done.points) == ("same within rounding", ())
    assert done.weights is not None
    assert 0 < done.weights.units < done.weights.roundings <= 8
    assert "2**-24" in str(done)
    done = compare(compared.original(), full, X, exact=True)
    assert done.verdict == "differs"
    assert done.witness is not None
    assert done.witness.within_rounding
    assert done.weights is not None
    assert done.weights.relative < 2e-7
    assert done.first_divergent_value is None


def _without_norms(nodes: Any) -> None:
    for name, source in (("bn1", "conv1"), ("bn2", "conv2")):
        compared._replace(nodes, name, ("Identity", [source], name, {}))


def test_weights_are_as_far_apart_as_said() -> None:
    """A fold with a root, against the rounded fold: the distance holds the largest true one, and is not much more."""
    done = compare(compared.original(), compared.edited(compared.fused), X)
    assert done.weights is not None
    w, ball = compared.WEIGHTS, lambda v: sg.balls(v).item()
    folded = compared.edited(compared.fused)
    new = {t.name: onnx.numpy_helper.to_array(t) for t in folded.graph.initializer}
    worst = 0.0
    for c in range(4):
        scale = ball(w["gamma1"][c]) / (ball(w["var1"][c]) + ball(np.float32(1e-3))).sqrt()
        for old, rounded in zip(w["w1"][c].flat, new["w1"][c].flat, strict=True):
            worst = max(worst, float(abs(ball(old) * scale - ball(rounded)).mid()))
        shift = ball(w["beta1"][c]) - ball(w["mean1"][c]) * scale - ball(new["b1"][c])
        worst = max(worst, float(abs(shift).mid()))
    assert worst <= done.weights.max_difference <= worst * 1.0001


@pytest.mark.parametrize(("eps", "verdict"), [(1e-5, "differs"), (2.0**-16, "same")])
def test_an_eps_is_what_the_model_says(eps: float, verdict: str) -> None:
    """A Python number in a module, a float32 in a file: one function where float32 holds it."""
    import torch

    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(2, eps=eps).eval()
    info = onnx.helper.make_tensor_value_info
    given = {n: t.detach().numpy() for n, t in norm.state_dict().items() if t.ndim}
    names = ["x", "weight", "bias", "running_mean", "running_var"]
    node = onnx.helper.make_node("BatchNormalization", names, ["y"], epsilon=eps)
    arrays = [onnx.numpy_helper.from_array(given[n], n) for n in names[1:]]
    graph = onnx.helper.make_graph([node], "g", [info("x", 1, (1, 2, 3, 3))], [info("y", 1, (1, 2, 3, 3))], arrays)
    file = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 3)).astype(np.float32)
    done = compare(norm, file, x)
    assert done.verdict == verdict
    if verdict == "differs":
        assert done.witness is not None
        assert done.witness.within_rounding
        scale = 1 / np.sqrt(1 + 1e-5) - 1 / np.sqrt(1 + float(np.float32(1e-5)))  # of a variance of 1
        assert done.witness.lower == pytest.approx(abs(scale * x).max(), rel=1e-2)


# --- distances --------------------------------------------------------------------------------------------------------


def pair(seed: int) -> tuple[sg.Graph, sg.Graph]:
    rng = np.random.default_rng(seed)
    w, v = rng.normal(size=(2, 3, 4)).astype(np.float32)
    near = w + rng.choice((0, 1e-3, 1), size=w.shape).astype(np.float32) * v
    net = lambda m: sg.trace(lambda x: sg.relu(sg.linear(m, None, x)) - sg.abs(x[:, :3]), (1, 4))
    return net(w), net(near)


@pytest.mark.parametrize("how", ["balls", "fixed point", "float64"])
@pytest.mark.parametrize("seed", range(6))
def test_distances_hold_the_exact_ones(seed: int, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At points over balls, in fixed point and over float64, and over a box, against rationals."""
    monkeypatch.setattr(difference_bounds, "WORK", 2**20 if how == "balls" else 0)
    monkeypatch.setattr(difference_bounds, "FIXED_POINT_SHARE", 0.6 if how == "fixed point" else -1)
    a, b = pair(seed)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1, 4)).astype(np.float32)
    at, box = (
        difference_bounds.difference_at(a, b, (x,)),
        difference_bounds.difference_over_box(a, b, (Box(x - 0.25, x + 0.25),)),
    )
    assert at.how.startswith(how)
    for k in range(5):
        given = x if k == 0 else (x + rng.choice((-0.25, 0.25, 0.125), size=x.shape)).astype(np.float32)
        gaps = [_rational(g, given) for g in (a, b)]
        for place in np.ndindex(1, 3):
            gap = gaps[0][place] - gaps[1][place]
            assert Fraction(box.low[0][place]) <= gap <= Fraction(box.high[0][place])
            if k == 0:
                assert Fraction(at.low[0][place]) <= gap <= Fraction(at.high[0][place])
                assert Fraction(at.least[0][place]) <= abs(gap) <= Fraction(at.most[0][place])


def _rational(graph: sg.Graph, x: np.ndarray) -> np.ndarray:
    constants = {p: sg.exact(c) for p, c in graph.constants.items()}
    return dataclasses.replace(graph, constants=constants)(sg.exact(x))


def test_what_is_one_function_and_not_shown_is_no_difference() -> None:
    """abs(x) is relu(x) + relu(-x): no rule says so, and no input sets them apart."""
    a, b = sg.trace(sg.abs, (3,)), sg.trace(lambda x: sg.relu(x) + sg.relu(-x), (3,))
    done = compare(a, b)
    assert (done.verdict, done.max_difference, done.witness) == ("cannot tell", 0.0, None)
    assert len(done.points) == 3


def test_a_difference_far_from_the_input_given_is_searched() -> None:
    a, b = sg.trace(sg.relu, (30,)), sg.trace(sg.relu6, (30,))
    done = compare(a, b, np.zeros(30, np.float32))
    assert done.verdict == "differs"
    assert done.witness is not None
    assert done.witness.about == "normal numbers times 16"
    assert done.witness.upper > 0


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [None, 0.01])
def test_a_limit_is_kept_by_models_that_are_too_large(eps: float | None) -> None:
    """10 GMAC each, of one function in two structures: nothing is begun that does not end soon."""
    w = np.random.default_rng(0).normal(size=(128, 128, 3, 3)).astype(np.float32)

    def net(scale: float) -> Any:
        def fn(x: Any) -> Any:
            for _ in range(8):
                x = sg.relu(sg.conv(w, None, x, padding=1) * scale) / scale
            return x

        return fn

    a, b = (sg.trace(net(scale), (1, 128, 96, 96)) for scale in (1, 2))
    start, limit = time.process_time(), 0.3
    done = compare(a, b, np.ones((1, 128, 96, 96), np.float32), eps=eps, seconds=limit)
    assert time.process_time() - start < 1.1 * limit + 5
    assert done.verdict == "cannot tell"
    assert any("out of time" in note for note in done.notes)


def test_models_that_give_other_shapes_differ() -> None:
    a, b = sg.trace(lambda x: x * 2, (3,)), sg.trace(lambda x: sg.sum(x), (3,))
    done = compare(a, b)
    assert (done.verdict, done.method) == ("differs", "the outputs are (3,) and ()")


def test_inputs_are_matched_by_name_where_the_names_agree() -> None:
    a = sg.trace(lambda x, y: x - y, (2,), (2,))
    b, c = sg.trace(lambda y, x: x - y, (2,), (2,)), sg.trace(lambda u, v: v - u, (2,), (2,))
    assert compare(a, b).verdict == "same"
    done = compare(a, c)
    assert done.verdict == "differs"
    assert "matched by their order" in done.notes[0]


@pytest.mark.parametrize("eps", [-1, float("nan"), float("inf")])
def test_a_wrong_eps_is_refused(eps: float) -> None:
    graph = sg.trace(sg.relu, (3,))
    with pytest.raises(ParameterError, match="eps must be"):
        compare(graph, graph, eps=eps)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"low": 0}, "both low and high"),
        ({"low": 1, "high": 0}, "low must not exceed high"),
        ({"box": Box(np.zeros(3), np.ones(3)), "eps": 1}, "a box, or eps"),
        ({"box": np.zeros(3)}, "box must be a Box"),
    ],
)
def test_a_box_that_says_nothing_is_refused(asked: Any, message: str) -> None:
    graph = sg.trace(sg.relu, (3,))
    with pytest.raises(ParameterError, match=message):
        compare(graph, graph, **asked)


def test_a_box_of_another_shape_is_refused() -> None:
    graph = sg.trace(sg.relu, (3,))
    with pytest.raises(ShapeError, match="input x must have shape"):
        compare(graph, graph, np.zeros(3, np.float32), box=Box(np.zeros(4), np.ones(4)))


def test_boxes_in_three_words_are_one() -> None:
    a, b = sg.trace(lambda x: sg.relu(3 * x), (2,)), sg.trace(lambda x: sg.relu(3.25 * x), (2,))
    middle = np.full(2, 0.5, np.float32)
    asked = [{"eps": Fraction(1, 2)}, {"low": 0, "high": 1}, {"box": Box(np.zeros(2), np.ones(2))}]
    for done in (compare(a, b, middle, **options) for options in (*asked, {"eps": 9, "low": 0, "high": 1})):
        assert done.box is not None
        assert 0.25 <= done.box.max_difference < 0.2501  # at x = 1
        assert 0.2499 < done.box.witness_difference <= 0.25
    assert compare(a, b, box=Box(np.zeros(2), np.ones(2))).points[0].about == "the middle of the box"


def test_a_difference_that_only_the_box_shows() -> None:
    """Nothing at the input given, at normal numbers, nor next to a number of the graphs: a relu that begins at 99."""
    late = lambda x: sg.relu(x - 33 - 33 - 33)
    a, b = sg.trace(late, (1,)), sg.trace(lambda x: late(x) * 2, (1,))
    done = compare(a, b, np.float32([0]), low=0, high=100)
    assert done.verdict == "differs"
    assert done.witness is not None
    assert done.witness.about == "an input of the box"
    assert compare(a, b, np.float32([0])).verdict == "cannot tell"
    seen = compare(*(sg.trace(lambda x, s=s: sg.relu(x - 99) * s, (1,)) for s in (1, 2)), np.float32([0]))
    assert seen.witness is not None
    assert seen.witness.about == "every cell 100, next to 99"


def test_models_that_do_not_fit_the_input_are_refused() -> None:
    graph = sg.trace(sg.relu, (3,))
    with pytest.raises(ShapeError, match="input x must have shape"):
        compare(graph, graph, np.zeros(4, np.float32))


def test_formats_are_said_and_are_no_part_of_the_meaning() -> None:
    half = compared.original()
    half.graph.node.insert(0, onnx.helper.make_node("Cast", ["x"], ["xh"], to=10))
    half.graph.node.insert(1, onnx.helper.make_node("Cast", ["xh"], ["xf"], to=1))
    half.graph.node[2].input[0] = "xf"
    done = compare(compared.original(), half, X)
    assert done.verdict == "same"
    assert "float16" in "".join(done.notes)


def chain(kind: int, *constants: Any, to: int | None = None) -> Any:
    """y is x times all constants, converted at the end; `kind` is the type of x."""
    nodes = [helper.make_node("Mul", [f"v{k}", f"c{k}"], [f"v{k + 1}"]) for k in range(len(constants))]
    nodes.append(helper.make_node("Cast", [f"v{len(constants)}"], ["y"], to=to or kind))
    infos = (helper.make_tensor_value_info(n, t, (3,)) for n, t in (("v0", kind), ("y", to or kind)))
    stored = [numpy_helper.from_array(np.asarray(c), f"c{k}") for k, c in enumerate(constants)]
    return helper.make_model(helper.make_graph(nodes, "net", [next(infos)], [next(infos)], stored))


def test_what_is_computed_in_float64_is_not_folded_in_float32() -> None:
    for kind, dtype, verdict in (
        (TensorProto.FLOAT, np.float32, "same within rounding"),
        (TensorProto.DOUBLE, np.float64, "differs"),  # by 2**-53, which is not counted, and by 2**-25
    ):
        a, b = dtype(1.1), dtype(1.3)
        assert compare(chain(kind, a, b), chain(kind, a * b), seconds=20).verdict == verdict
    far = compare(chain(kind, a, b), chain(kind, a * b * (1 + 2.0**-25)), seconds=20)
    assert far.verdict == "differs"
    assert far.weights.within_rounding is False


def test_whole_numbers_are_compared_as_long_as_they_hold() -> None:
    """int64 as int32 discards bits: 2**32 + 1 becomes 1."""
    narrow = chain(TensorProto.INT64, to=TensorProto.INT32)
    narrow.graph.node.append(helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT))
    narrow.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, (3,)))
    wide = chain(TensorProto.INT64, to=TensorProto.FLOAT)
    done = compare(narrow, wide)
    assert done.verdict == "same"
    assert done.method.endswith("as long as no integer leaves its type")


def test_positions_that_callers_give_may_leave_int32() -> None:
    """Where nothing computes with them too; those that an operator finds are no larger than an axis."""
    narrow = chain(TensorProto.INT64, to=TensorProto.INT32)
    done = compare(narrow, narrow)
    assert (done.verdict, done.method.partition(", as")[2]) == ("same", " long as no integer leaves its type")
    wide = chain(TensorProto.INT32, to=TensorProto.INT64)
    assert compare(wide, wide).method == NODE_FOR_NODE
    found = chain(TensorProto.FLOAT, to=TensorProto.INT32)
    found.graph.node.insert(0, helper.make_node("ArgMax", ["v0"], ["k"], axis=0, keepdims=1))
    found.graph.node[1].input[0] = "k"
    found.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    assert compare(found, found).method == NODE_FOR_NODE


def test_a_single_integer_beyond_float64_is_kept() -> None:
    first, second = (chain(TensorProto.INT64, np.int64(2**53 + k), to=TensorProto.INT64) for k in (0, 1))
    assert compare(first, first).verdict == "same"
    assert compare(first, second).verdict == "differs"


def test_weights_in_float16_are_those_that_a_cast_makes_of_them() -> None:
    """A file may store its weights in float16 and compute in float32."""
    half = np.float16([[0.1, 0.7], [1.3, -2]])

    def model(stored: np.ndarray) -> Any:
        cast = helper.make_node("Cast", ["h"], ["w"], to=TensorProto.FLOAT)
        nodes = [cast, helper.make_node("MatMul", ["x", "w"], ["y"])]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2)) for name in "xy"]
        graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [numpy_helper.from_array(stored, "h")])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    assert compare(model(half), model(half.astype(np.float32))).method == NODE_FOR_NODE
    assert compare(model(half), model(half[::-1].copy())).verdict == "differs"


def test_integers_are_evaluated_over_balls() -> None:
    models = [chain(TensorProto.INT64, np.int64(k), to=TensorProto.FLOAT) for k in (3, 4)]
    done = compare(*models, np.int64([1, 2, -3]))
    assert done.verdict == "differs"
    assert done.witness.lower == pytest.approx(3, rel=1e-12)


def test_booleans_are_tried_as_booleans() -> None:
    """Of 0 and 1 the square is the number itself."""
    plain = chain(TensorProto.BOOL, to=TensorProto.FLOAT)
    square = chain(TensorProto.BOOL, to=TensorProto.FLOAT)
    square.graph.node.append(helper.make_node("Mul", ["y", "y"], ["z"]))
    square.graph.output[0].name = "z"
    assert compare(plain, square).verdict == "cannot tell"
    negated = chain(TensorProto.BOOL, to=TensorProto.FLOAT)
    negated.graph.node.insert(0, helper.make_node("Not", ["v0"], ["n"]))
    negated.graph.node[1].input[0] = "n"
    done = compare(plain, negated)
    assert done.verdict == "differs"
    assert set(np.unique(done.witness.inputs[0])) <= {0.0, 1.0}


@pytest.mark.parametrize("size", [3, 200])
def test_a_cast_of_weights_is_another_number(size: int) -> None:
    """What is computed is rounded by a cast; weights that a narrow format does not hold are replaced by others."""
    drawn = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    whole = np.ones((size, size), np.float32)
    for w, verdict in ((drawn, "cannot tell"), (whole, "same")):
        models = []
        for casts in (False, True):
            nodes = [helper.make_node("Cast", ["w"], ["h"], to=16), helper.make_node("Cast", ["h"], ["v"], to=1)]
            nodes = [*(nodes if casts else ()), helper.make_node("MatMul", ["x", "v" if casts else "w"], ["y"])]
            infos = [helper.make_tensor_value_info(n, 1, (1, size)) for n in "xy"]
            graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], [numpy_helper.from_array(w, "w")])
            models.append(helper.make_model(graph))
        done = compare(*models)
        assert done.verdict == verdict
        assert "bfloat16" in "".join(done.notes)


def test_positions_in_one_model_may_be_numbers_in_the_other() -> None:
    """x - 3 + 3 is x for every int32, though only one of the models computes with it."""
    infos = [helper.make_tensor_value_info(n, TensorProto.INT32, (3,)) for n in "xy"]
    three = numpy_helper.from_array(np.array([3], np.int32), "c")
    bare = [helper.make_node("Identity", ["x"], ["y"])]
    moved = [helper.make_node("Sub", ["x", "c"], ["a"]), helper.make_node("Add", ["a", "c"], ["y"])]
    a, b = (helper.make_model(helper.make_graph(n, "net", infos[:1], infos[1:], [three])) for n in (moved, bare))
    done = compare(a, b)
    assert done.verdict == "cannot tell"
    assert "positions" in done.method


def test_what_float64_does_not_tell_apart_is_shown_in_fixed_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit of a weight beside 2^40, which float64 rounds away; one function is never called another."""
    monkeypatch.setattr(difference_bounds, "WORK", 0)
    w = np.random.default_rng(2).normal(size=(4, 2, 3, 3)).astype(np.float32)
    other = w.copy()
    other[3, 1, 2, 2] = np.nextafter(other[3, 1, 2, 2], np.float32(np.inf))
    far = np.float32(2.0**40)
    a, b, same = (
        sg.trace(lambda x, w=w, k=k: sg.relu(sg.conv(w * k, None, x) / k + far) - far, compared.SHAPE)
        for w, k in ((w, 1), (other, 1), (w, 2))
    )
    apart = difference_bounds.difference_at(a, b, (X,))
    k, place = apart.farthest
    assert apart.differs
    assert apart.how.startswith("fixed point of ")
    assert apart.least[k][place] <= exact_gap(a, b, (X,), k, place) <= apart.most[k][place]
    done = compare(a, b, X, exact=True)
    assert done.verdict == "differs"
    assert done.witness is not None
    assert not difference_bounds.difference_at(a, same, (X,)).differs


def test_sums_of_no_cell_and_infinite_limits_are_compared() -> None:
    """Balls do not meet the Fractions that stand for no cell, and fixed point has no infinity."""
    for net in (lambda x: x + sg.sum(x[4:4], (0,)), lambda x: sg.clamp(x, -np.inf, None)):
        one, other = sg.trace(net, (4,)), sg.trace(lambda x: x + 1e-9, (4,))
        assert compare(one, other).verdict == "differs"
        assert compare(one, sg.trace(lambda x: sg.abs(x) * sg.sign(x), (4,))).verdict == "cannot tell"
