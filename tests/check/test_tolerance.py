"""Tolerances of whole models: exact values and executions from independent arithmetic, never outside."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad import interop
from specgrad.bounds import Box, crown, ibp
from specgrad.bounds.linear.intermediate import tighten
from specgrad.check import tolerance
from specgrad.check.tolerances import point_bounds
from specgrad.check.tolerances.allclose import allclose_pair
from specgrad.errors import ContradictionError, ParameterError, ShapeError, SpecgradError, UnsupportedError
from specgrad.rounding import FORMATS, Arithmetic, radius
from specgrad.scalar import exact

torch = pytest.importorskip("torch")

NODE = Arithmetic(execution="node")


def small_network(seed: int, depth: int = 3) -> tuple[Any, np.ndarray]:
    """Convolutions and relus, an average, a sum: (1, 4, 5, 5) to (1, 4)."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32) for _ in range(depth)]
    biases = [rng.normal(0, 0.1, 4).astype(np.float32) for _ in range(depth)]

    def net(x: Any) -> Any:
        for w, b in zip(weights, biases, strict=True):
            x = sg.relu(sg.conv(w, b, x, padding=1))
        return sg.mean(x, (2, 3))

    return sg.trace(net, (1, 4, 5, 5)), rng.normal(size=(1, 4, 5, 5)).astype(np.float32)


def exact_values(graph: Any, *inputs: np.ndarray) -> np.ndarray:
    constants = {p: exact(c) for p, c in graph.constants.items()}
    return replace(graph, constants=constants)(*map(exact, inputs))


def farthest(values: np.ndarray, from_: np.ndarray) -> list[Fraction]:
    pairs = zip(values.ravel().tolist(), from_.ravel().tolist(), strict=True)
    return [abs(Fraction(a) - Fraction(b)) for a, b in pairs]


@pytest.mark.parametrize("arithmetic", [Arithmetic(), NODE, Arithmetic("float64"), Arithmetic(operands="tf32")])
def test_the_exact_value_is_where_it_is_said_to_be(arithmetic: Arithmetic) -> None:
    """The reference is within the distance of the exact value, which is computed in fractions."""
    graph, x = small_network(0)
    found = tolerance(graph, x, arithmetic=arithmetic)
    apart = farthest(exact_values(graph, x), found.exact[0])
    assert all(a <= Fraction(d) for a, d in zip(apart, found.tolerances[0].ravel().tolist(), strict=True))
    assert (found.pairwise_tolerances[0] <= 2 * found.tolerances[0]).all()


def test_executions_keep_the_tolerance() -> None:
    graph, x = small_network(1)
    found = tolerance(graph, x)
    run = sg.compile(graph, "torch")(torch.from_numpy(x)).numpy()
    assert run.dtype == np.float32
    apart = farthest(run, exact_values(graph, x))
    assert all(a <= Fraction(d) for a, d in zip(apart, found.tolerances[0].ravel().tolist(), strict=True))


def test_backwards_is_narrower_than_forwards() -> None:
    graph, x = small_network(2, depth=5)
    forwards = radius(graph, x).outputs.radius.max()
    assert tolerance(graph, x).tolerance < forwards / 5


def test_several_outputs_and_positions() -> None:
    graph = sg.trace(lambda x: (sg.exp(x), sg.argmax(x, 0), x * 3.0), (3,))
    found = tolerance(graph, np.float32([0.1, 0.2, 0.3]))
    assert [d.shape for d in found.tolerances] == [(3,), (3,)]
    assert found.tolerance == max(d.max() for d in found.tolerances)


def test_an_unbounded_cell_is_infinitely_far() -> None:
    graph = sg.trace(lambda x: sg.exp(x), (2,))
    found = tolerance(graph, np.float32([1.0, 1000.0]))
    assert found.verdict == "unbounded"
    assert found.tolerance == np.inf == found.pairwise_tolerances[0].max()


def test_what_has_no_rounding_has_no_tolerance() -> None:
    found = tolerance(sg.trace(sg.relu, (3,)), np.float32([-1.0, 0.0, 2.0]))
    assert found.tolerance == 0.0
    assert found.exact[0].tolist() == [0.0, 0.0, 2.0]


def test_positions_alone_are_refused() -> None:
    with pytest.raises(ParameterError, match="no output of numbers"):
        tolerance(sg.trace(lambda x: sg.argmax(x, 0), (3,)), np.float32([1, 2, 3]))


@pytest.mark.parametrize("arithmetic", [Arithmetic(), NODE, Arithmetic("float16"), Arithmetic("float64")])
def test_contributions_of_layers_add_up(arithmetic: Arithmetic) -> None:
    graph, x = small_network(3)
    found = tolerance(graph, x, arithmetic=arithmetic)
    assert sum(found.layers.values()) == pytest.approx(found.tolerance, rel=1e-12)
    assert min(found.layers.values()) >= 0
    assert list(found.layers.values()) == sorted(found.layers.values(), reverse=True)


# --- the pair for a test ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("seed", range(4))
def test_no_two_executions_fail_the_pair(dtype: str, seed: int) -> None:
    """Arrays of the format at the very ends of what is allowed, compared by NumPy in that format."""
    rng = np.random.default_rng(seed)
    form, cells = FORMATS[dtype], 4000
    middle = rng.choice([-1.0, 1.0], cells) * 2.0 ** rng.uniform(-12, 12, cells)
    middle[rng.random(cells) < 0.1] = 0.0
    share = 2.0 ** rng.uniform(-10, -3)
    reach = np.abs(middle) * share * rng.uniform(0.5, 1, cells) + rng.choice([0.0, 1e-3, form.tiny], cells)
    low, high = (ends_in_format(middle + s * reach, dtype, s) for s in (-1.0, 1.0))
    far = np.nextafter(high.astype(float) - low.astype(float), np.inf)
    least = np.maximum(np.maximum(low.astype(float), -high.astype(float)), 0.0)
    rtol, atol = allclose_pair([far], [least], [np.abs(middle)], form)
    assert rtol > 0 or seed > 1
    for a, b in ((low, high), (high, low), (low, middle), (middle, high)):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    smaller = {"rtol": 0.9 * rtol, "atol": 0.9 * atol}  # planted: a pair that is too small is failed
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(low, high, **smaller)


def test_the_pair_allows_for_its_own_rounding() -> None:
    """In float16, atol and rtol are rounded as well, here by more than is left of a decimal of three digits."""
    a, b = np.float16([[0.5908203125, 958.5], [0.587890625, 954.0]])
    sizes = [np.minimum(a, b).astype(float)]
    rtol, atol = allclose_pair([np.abs(a.astype(float) - b)], sizes, sizes, FORMATS["float16"])
    assert rtol > 0
    for first, second in ((a, b), (b, a)):
        np.testing.assert_allclose(first, second, rtol=rtol, atol=atol)


def ends_in_format(x: np.ndarray, dtype: str, direction: float) -> np.ndarray:
    """Numbers of the format that lie inward of x."""
    near = x.astype(dtype)
    inward = np.nextafter(near, np.array(-direction * np.inf, dtype))
    beyond = near.astype(float) > x if direction > 0 else near.astype(float) < x
    return np.where(beyond, inward, near)


def test_atol_alone_where_sizes_tell_nothing() -> None:
    between = [np.array([1e-3, 2e-3])]
    assert allclose_pair(between, [np.zeros(2)], [np.ones(2)], FORMATS["float32"]) == (0.0, 0.002)
    assert allclose_pair([np.array([np.inf])], [np.ones(1)], [np.ones(1)], FORMATS["float32"]) == (0.0, np.inf)
    assert allclose_pair([np.zeros(3)], [np.ones(3)], [np.ones(3)], FORMATS["float32"]) == (0.0, 0.0)


def test_units_in_the_last_place() -> None:
    proven = tolerance(sg.trace(lambda x: x * 3.0, (3,)), np.float32([1.0, 100.0, 2.0**-140]))
    spacing = np.spacing(np.abs(proven.exact[0]).astype(np.float32)).astype(float)
    np.testing.assert_array_equal(proven.ulps[0], proven.tolerances[0] / spacing)


# --- points, formats, derivatives -------------------------------------------------------------------------------------


def test_points_are_inputs_by_themselves() -> None:
    graph, x = small_network(4)
    several = np.concatenate([x, 2 * x, -x])
    together = tolerance(graph, several, points=True)
    each = [tolerance(graph, several[k : k + 1]) for k in range(3)]
    assert together.points == 3
    for k, one in enumerate(each):
        np.testing.assert_array_equal(together.tolerances[0][k], one.tolerances[0])
        np.testing.assert_array_equal(together.exact[0][k], one.exact[0])
    farthest = max(each, key=lambda one: one.tolerance)
    assert together.layers == farthest.layers
    assert together.largest.point == each.index(farthest)
    with pytest.raises(ShapeError, match="must count the points"):
        tolerance(graph, np.float32(1.0), points=True)


def test_modules_and_files_are_models(tmp_path: Any) -> None:
    onnx = pytest.importorskip("onnx")
    graph, x = small_network(5)
    expected = tolerance(graph, x).tolerance
    model = interop.to_onnx(graph)
    onnx.save(model, tmp_path / "net.onnx")
    for file in (model, model.SerializeToString(), tmp_path / "net.onnx", str(tmp_path / "net.onnx")):
        assert tolerance(file, x).tolerance == pytest.approx(expected, rel=1e-6)
    module = torch.nn.Sequential(torch.nn.Conv2d(4, 3, 3), torch.nn.ReLU(), torch.nn.Flatten()).eval()
    proven = tolerance(module, torch.from_numpy(x))
    run = module(torch.from_numpy(x)).detach().numpy()
    assert (np.abs(run - proven.exact[0]) <= proven.tolerances[0]).all()
    assert tolerance(module, x.astype(np.float64)).tolerance == proven.tolerance
    with pytest.raises(ParameterError, match="must be a Graph, an ONNX file or a PyTorch module; got dict"):
        tolerance({}, x)
    for one in (model, graph):
        with pytest.raises(
            ShapeError, match=r"input x must have shape \(1, 4, 5, 5\); got \(2, 4, 5, 5\); if its first"
        ):
            tolerance(one, np.concatenate([x, x]))


def test_halves_are_bounded_in_their_own_format() -> None:
    """A half module is no float32 execution: its tolerance is that of halves, and its run keeps it."""
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.ReLU(), torch.nn.Flatten()).eval()
    x = np.random.default_rng(0).normal(size=(1, 2, 6, 6)).astype(np.float16)
    run = module.half()(torch.from_numpy(x)).detach().numpy().astype(float)
    for arithmetic in (None, Arithmetic("float16", accumulate="float32"), Arithmetic("float16")):
        proven = tolerance(module, x, arithmetic=arithmetic)
        assert (np.abs(run - proven.exact[0]) <= proven.tolerances[0]).all()
        assert proven.tolerance > 1e-4
    declared = tolerance(module, x)
    assert declared.formats == ("float16",)
    assert "float16" in declared.notes[0]
    assert "float16 where the model says so" in str(declared)
    assert declared.largest.ulps == declared.tolerance / float(np.spacing(np.float16(declared.largest.exact)))
    graph = sg.trace(lambda x: x * np.float16([0.5, 3.0]), (2,))
    with pytest.raises(ParameterError, match="is of float16"):
        tolerance(graph, np.float16([1.0, 2.0]))
    assert tolerance(graph, np.float16([1.0, 2.0]), arithmetic=Arithmetic("float16")).tolerance < 0.01


def test_camera_bytes_are_numbers() -> None:
    """Preprocessing in the graph: uint8 / 255, normalised; bytes are exact inputs."""
    graph, _ = small_network(6)

    def camera(b: Any) -> Any:
        return graph((b / 255.0 - 0.5) / 0.25)

    whole = sg.trace(camera, (1, 4, 5, 5))
    b = np.random.default_rng(0).integers(0, 256, (1, 4, 5, 5)).astype(np.uint8)
    proven = tolerance(whole, b)
    assert 0 < proven.tolerance < radius(whole, b).outputs.radius.max() / 2
    apart = farthest(exact_values(whole, b.astype(int)), proven.exact[0])
    assert all(a <= Fraction(d) for a, d in zip(apart, proven.tolerances[0].ravel().tolist(), strict=True))
    run = sg.compile(whole, "torch")(torch.from_numpy(b.astype(np.float32))).numpy()
    assert (np.abs(run - proven.exact[0]) <= proven.tolerances[0]).all()


def test_gradients_have_tolerances() -> None:
    """A derivative graph is a graph: d loss / d x of a small network, against fractions and PyTorch's autograd."""
    graph, x = small_network(7, depth=2)
    weights = np.float32([[0.5, -1.0, 2.0, 0.25]])
    gradient = sg.grad(sg.trace(lambda x: sg.sum(graph(x) * weights), x.shape))
    proven = tolerance(gradient, x)
    assert 0 < proven.tolerance < 1e-3
    apart = farthest(exact_values(gradient, x), proven.exact[0])
    assert all(a <= Fraction(d) for a, d in zip(apart, proven.tolerances[0].ravel().tolist(), strict=True))
    leaf = torch.from_numpy(x).requires_grad_(True)
    (sg.compile(graph, "torch")(leaf) * torch.from_numpy(weights)).sum().backward()
    assert (np.abs(leaf.grad.numpy() - proven.exact[0]) <= proven.tolerances[0]).all()


def test_partial_graphs_are_refused_by_name() -> None:
    onnx = pytest.importorskip("onnx")
    graph, x = small_network(8)
    model = interop.to_onnx(graph)
    model.graph.node[1].domain = "mine"
    model.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    name = model.graph.node[1].op_type
    with pytest.raises(SpecgradError, match=name):
        tolerance(model, x)
    with pytest.raises(UnsupportedError, match=f"leaves out what has no meaning here: {name}"):
        tolerance(interop.from_onnx(model, partial=True), x, x)


@pytest.mark.parametrize("bad", [np.float32([np.nan, 0, 1]), np.float32([np.inf, 0, 1]), np.array(["a", "b", "c"])])
def test_inputs_are_finite_numbers(bad: np.ndarray) -> None:
    with pytest.raises(ParameterError, match=r"must hold (finite )?numbers"):
        tolerance(sg.trace(sg.relu, (3,)), bad)


def test_without_time_radii_are_left() -> None:
    graph, x = small_network(9)
    hasty = tolerance(graph, x, seconds=0)
    assert tolerance(graph, x).tolerance < hasty.tolerance < np.inf
    assert hasty.tolerance == pytest.approx(radius(graph, x, backend="torch").outputs.radius.max(), rel=1e-3)


def test_outputs_are_bounded_as_memory_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, x = small_network(13)
    several = sg.trace(lambda x: (graph(x), sg.relu(x * 3.0), graph(x)[0]), x.shape)
    at_once = tolerance(several, x)
    monkeypatch.setattr(tighten, "MAX_OBJECTIVE_CELLS", 1500)
    for a, b in zip(tolerance(several, x).tolerances, at_once.tolerances, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("execution", ["node", "fused"])
def test_the_exact_value_by_bounds_within_bounds(execution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where radii leave the exact value open, bounds without rounding narrow it, from boxes that are known to hold."""
    graph, x = small_network(10, depth=4)
    arithmetic = Arithmetic(execution=execution)
    plain = tolerance(graph, x, arithmetic=arithmetic)
    asked = []
    monkeypatch.setattr(point_bounds, "NARROW_SHARE", 0.0)
    monkeypatch.setattr(point_bounds, "crown", lambda *args, **named: asked.append(named) or crown(*args, **named))
    proven = tolerance(graph, x, arithmetic=arithmetic)
    assert [bool(named.get("interm_bounds")) for named in asked] == [False, True]
    np.testing.assert_allclose(proven.tolerances[0], plain.tolerances[0], rtol=1e-6)
    apart = farthest(exact_values(graph, x), proven.exact[0])
    assert max(apart) < Fraction(1, 10**11)
    assert all(a <= Fraction(d) for a, d in zip(apart, proven.tolerances[0].ravel().tolist(), strict=True))


def test_bytes_of_a_file_are_moved_and_not_computed() -> None:
    """A file that takes uint8 and casts it is bounded backwards as well."""
    onnx = pytest.importorskip("onnx")
    graph, _ = small_network(11)
    model = interop.to_onnx(graph)
    (given,) = model.graph.input
    info = onnx.helper.make_tensor_value_info("bytes", onnx.TensorProto.UINT8, [1, 4, 5, 5])
    cast = onnx.helper.make_node("Cast", ["bytes"], [given.name], name="cast", to=onnx.TensorProto.FLOAT)
    model.graph.input.remove(given)
    model.graph.input.append(info)
    model.graph.node.insert(0, cast)
    b = np.random.default_rng(0).integers(0, 256, (1, 4, 5, 5)).astype(np.uint8)
    proven = tolerance(model, b)
    assert proven.layers
    assert proven.tolerance == pytest.approx(tolerance(graph, b.astype(np.float32)).tolerance, rel=1e-6)


@pytest.mark.parametrize(
    "first",
    [
        lambda x: sg.reshape(sg.permute(x, (0, 2, 3, 1)), (1, 4, 5, 5)),
        lambda x: sg.pad(x, ((0, 0), (0, 0), (1, 0), (0, 1)))[:, :, :5, 1:],
        lambda x: sg.relu(x),
        lambda x: sg.max_pool(x, (3, 3), stride=1, padding=1),
        lambda x: sg.clamp(x, -0.5, 0.5),
    ],
)
@pytest.mark.parametrize("execution", ["node", "fused"])
def test_inputs_that_are_moved_first_lose_nothing(first: Any, execution: str) -> None:
    """What is only moved, or chosen, is as good as an input: the tolerance is that of the rest at the moved input."""
    graph, x = small_network(12)
    arithmetic = Arithmetic(execution=execution)
    whole = tolerance(sg.trace(lambda x: graph(first(x)), x.shape), x, arithmetic=arithmetic)
    moved = sg.trace(first, x.shape)(x).astype(np.float32)
    rest = tolerance(sg.trace(lambda x: graph(x), x.shape), moved, arithmetic=arithmetic)
    assert whole.tolerance == pytest.approx(rest.tolerance, rel=1e-6)
    assert sum(whole.layers.values()) == pytest.approx(whole.tolerance)


def nearest(x: np.ndarray, bits: int) -> np.ndarray:
    """float32 numbers to the nearest with so many bits left, ties to even: 13 fewer for TF32, 16 fewer for bfloat16."""
    whole = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    half = np.uint64((1 << (bits - 1)) - 1) + ((whole >> np.uint64(bits)) & np.uint64(1))
    return (((whole + half) >> np.uint64(bits)) << np.uint64(bits)).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize(("operands", "bits"), [("tf32", 13), ("bfloat16", 16)])
def test_factors_of_fewer_bits_are_another_class(operands: str, bits: int) -> None:
    """Executions with rounded factors keep the tolerance of their own class, and leave that of float32."""
    rng = np.random.default_rng(0)
    layers = [rng.normal(0, 0.2, (32, 32)).astype(np.float32) for _ in range(3)]

    def net(x: Any) -> Any:
        for w in layers:
            x = sg.relu(sg.linear(w, None, x))
        return x

    graph, x = sg.trace(net, (32,)), rng.normal(size=32).astype(np.float32)
    run = x
    for w in layers:
        run = np.maximum(nearest(w, bits) @ nearest(run, bits), np.float32(0))
    own = tolerance(graph, x, arithmetic=Arithmetic(operands=operands))
    assert (np.abs(run - own.exact[0]) <= own.tolerances[0]).all()
    plain = tolerance(graph, x)
    assert (np.abs(run - plain.exact[0]) > plain.tolerances[0]).any()
    assert (np.abs(graph(x) - plain.exact[0]) <= plain.tolerances[0]).all()


@pytest.mark.parametrize("kind", [{}, {"qdq": True}, {"integer": True}])
def test_quantised_models_on_onnx_runtime(kind: dict[str, bool]) -> None:
    """Integers are summed exactly; a cell that rounding may move is allowed a whole step, and no other is."""
    onnxruntime = pytest.importorskip("onnxruntime")
    from quantised import data, model

    file, x = model(1, **kind), data(1)
    proven = tolerance(file, x)
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    (run,) = session.run(None, {"x": x})
    assert (np.abs(run - proven.exact[0]) <= proven.tolerances[0]).all()
    assert np.median(proven.tolerances[0]) < 1e-5
    assert "int32" in proven.notes[0]


def test_one_unbounded_cell_leaves_the_others_true() -> None:
    """Of a layer with one cell that may overflow no false box is used for its other cells."""
    large = np.float32([2.0**95, 2.0**95])
    graph = sg.trace(lambda x: x * large * large, (2,))
    x = np.float32([2.0**-95 * 1.25, 1.0])
    for execution in ("node", "fused"):
        proven = tolerance(graph, x, arithmetic=Arithmetic(execution=execution))
        assert proven.tolerances[0][1] == np.inf
        assert abs(2.0**95 * 1.25 - proven.exact[0][0]) <= proven.tolerances[0][0]
    low = ibp(graph, Box(x, x), arithmetic=NODE).outputs.low
    assert low[0] <= 2.0**95 * 1.25 <= ibp(graph, Box(x, x), arithmetic=NODE).outputs.high[0]


def test_a_contradiction_is_no_small_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a box beside the exact value is a fault, and not a proof."""
    graph, x = small_network(14)

    def beside(*args: Any, **named: Any) -> Any:
        bounds = crown(*args, **named)
        name = graph.nodes[graph.output_positions[0]].name
        moved = {**bounds.layers, name: Box(bounds.layers[name].low + 9.0, bounds.layers[name].high + 9.0)}
        return replace(bounds, layers=moved)

    monkeypatch.setattr(point_bounds, "crown", beside)
    with pytest.raises(ContradictionError, match="exclude each other"):
        tolerance(graph, x)


def test_an_argument_too_many_is_refused_with_points_too() -> None:
    with pytest.raises(sg.SpecgradError, match="the model takes 1 inputs"):
        tolerance(sg.trace(sg.relu, (1, 3)), np.ones((2, 3)), np.ones((2, 3)), points=True)
