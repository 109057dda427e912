"""Judged by outputs alone: right files are consistent on every runtime, planted faults are not, what hides is said."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import specgrad as sg  # noqa: E402
from planted import Builder, as_bfloat16  # noqa: E402
from planted_files import FAULTS, NETWORKS, Fault, points  # noqa: E402
from specgrad.check import audit, audit_recorded  # noqa: E402
from specgrad.check.auditing import merged_layers  # noqa: E402
from specgrad.check.auditing.merged_layers import MergedLayersJudge  # noqa: E402
from specgrad.check.tolerances.allowance import Clock, allowance  # noqa: E402
from specgrad.check.verdicts.observation import Observation  # noqa: E402
from specgrad.errors import ParameterError  # noqa: E402
from specgrad.interop import from_onnx  # noqa: E402
from specgrad.rounding import Arithmetic, Ball  # noqa: E402

optimisers = pytest.importorskip("optimisers")
pytestmark = pytest.mark.usefixtures("kept_workers")
CONSISTENT = re.compile(r"consistent with float32 in any order: ([\d.e-]+) of ([\d.e-]+) allowed")


def run(model: onnx.ModelProto, xs: list[np.ndarray]) -> np.ndarray:
    """What ONNX Runtime gives, with all its optimisations, one point after the other."""
    session = optimisers.onnxruntime_session(model.SerializeToString())
    return np.stack([session([x])[0] for x in xs])


def recorded(model: onnx.ModelProto, xs: list[np.ndarray], ys: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": np.stack(xs), model.graph.output[0].name: ys}


# --- no false alarm ---------------------------------------------------------------------------------------------------

ONES = ("onnxruntime ORT_DISABLE_ALL", "onnxruntime ORT_ENABLE_ALL", "openvino", "jax.jit", "torch")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_right_file_is_consistent_on_every_runtime(name: str) -> None:
    model, xs = NETWORKS[name](), points(name, 1)
    graph = from_onnx(model)
    runners = [make for text, make in optimisers.OPTIMISERS.items() if text in ONES]
    assert len(runners) == len(ONES)
    shape = run(model, xs).shape
    each = [make(graph) for make in runners]
    ys = [np.stack([runner([x])[0] for x in xs]).reshape(shape) for runner in each]
    for y in ys:
        audited = audit_recorded(model, recorded(model, xs, y))
        assert audited.verdict == "rounding", audited
        seen, allowed = map(float, CONSISTENT.search(audited.whole.detail).groups())
        assert 0 < seen < allowed < 1e-3


# --- planted faults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.text)
def test_a_fault_is_seen_through_outputs_alone_or_hides_below_its_allowance(fault: Fault) -> None:
    model, xs = NETWORKS[fault.network](), points(fault.network, 1)
    right, wrong = run(model, xs), run(fault.change(model), xs)
    audited = audit_recorded(model, recorded(model, xs, wrong))
    if fault.seen:
        assert audited.verdict in ("differs", "other arithmetic"), audited
        assert re.search("not (explained )?by float32", audited.whole.detail)
        assert audited.first_divergent is None  # no layer can be named
        assert audited.blind_spots is None
    else:
        assert audited.verdict in ("rounding", "unusual")  # the second is an estimate, and may see it
        assert np.abs(wrong - right).max() < audited.blind_spots.largest


def test_what_could_hide_is_said() -> None:
    """An eps that is ten times too large in a batch-norm: its effect is below what rounding may do."""
    model, xs = NETWORKS["image"](), points("image", 2)
    audited = audit_recorded(model, recorded(model, xs, run(model, xs)))
    blind = audited.blind_spots
    assert (blind.points, blind.cells) == (2, 10)
    assert blind.undetected == ("norm0 with ten times its eps",)
    assert (blind.tried, blind.detected) == (25, 24)
    first, second = blind.sentences()
    assert "cannot be seen" in first
    assert (
        second
        == "of 25 usual faults, planted one at a time, 24 would be seen; these could hide: norm0 with ten times its eps"
    )
    wrong = run(next(f for f in FAULTS if "1e-3" in f.text).change(model), xs)  # a hundred times: seen
    assert audit_recorded(model, recorded(model, xs, wrong)).verdict == "differs"


def test_a_wrong_tie_rule_changes_no_value_and_shows_in_gradients_of_exact_ties() -> None:
    """The maximum of equal cells is the same whoever wins. Behind a rounding, either may win in a right execution."""

    def winners(before, x: list[float]) -> tuple[str, str]:
        def net(v):
            return sg.sum(sg.mul(sg.max_pool(before(v), (2,)), np.float32([[3, 5]])))

        graph = sg.grad(sg.trace(net, (1, 4)))
        given = np.array([x], float)
        first = np.float32(graph(given))
        last = first[:, [1, 0, 2, 3]]
        judge = MergedLayersJudge(Arithmetic(), Clock(10), outputs_only=True)
        return tuple(judge.judge(Observation(graph, [given], [y]))[0].kind for y in (first, last))

    third = np.float32(0.3)
    assert winners(lambda v: v, [1, 1, 2, 1]) == ("exact", "differs")
    near = float(np.float32(1.1))
    assert winners(lambda v: sg.mul(v, third), [near, near, 2, 1])[1] != "differs"


# --- which arithmetic -------------------------------------------------------------------------------------------------


def in_bfloat16(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that rounds both factors of every product to bfloat16, as a device with such units does."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    nodes = []
    for node in copy.graph.node:
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            weight = next(t for t in copy.graph.initializer if t.name == node.input[1])
            weight.CopyFrom(numpy_helper.from_array(as_bfloat16(numpy_helper.to_array(weight)), weight.name))
            x, names = node.input[0], [f"{node.name}_short", f"{node.name}_again"]
            nodes.append(helper.make_node("Cast", [x], names[:1], to=TensorProto.BFLOAT16))
            nodes.append(helper.make_node("Cast", names[:1], names[1:], to=TensorProto.FLOAT))
            node.input[0] = names[1]
        nodes.append(node)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def chain(depth: int, channels: int, size: int) -> onnx.ModelProto:
    """Convolutions and relus, one after the other; then the mean of every channel."""
    b, x = Builder(5), "x"
    for k in range(depth):
        x = b.node("Relu", f"relu{k}", [b.conv(f"conv{k}", x, channels if k else 3, channels)])
    x = b.node("GlobalAveragePool", "mean", [x])
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 3, size, size]), (x, None))]
    graph = helper.make_graph(b.nodes, "chain", ends[:1], ends[1:], b.stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture(scope="module")
def deep() -> tuple[onnx.ModelProto, list[np.ndarray]]:
    rng = np.random.default_rng(3)
    return chain(7, 4, 6), [rng.normal(size=(1, 3, 6, 6)).astype(np.float32) for _ in range(2)]


def test_another_arithmetic_is_named_and_accepted(deep) -> None:
    """The narrowest class that allows what was seen: here TF32, in whose worst case bfloat16 usually hides."""
    model, xs = deep
    values = recorded(model, xs, run(in_bfloat16(model), xs))
    audited = audit_recorded(model, values)
    assert audited.verdict == "other arithmetic", audited
    assert audited.whole.arithmetic == "tf32"
    assert re.search(r"not explained by float32 \(.* allowed\); by TF32 operands yes \(", audited.whole.detail)
    allowed = audit_recorded(model, values, accept=["tf32"])
    assert (allowed.verdict, allowed.whole.arithmetic) == ("rounding", "tf32")
    assert audit_recorded(model, values, accept=["float16"]).verdict == "other arithmetic"


def test_bfloat16_is_named_where_few_layers_are_passed() -> None:
    """Then its factors are nearly known, and so are their short forms."""
    model, xs = chain(2, 4, 6), [np.random.default_rng(4).normal(size=(1, 3, 6, 6)).astype(np.float32)]
    audited = audit_recorded(model, recorded(model, xs, run(in_bfloat16(model), xs)))
    assert (audited.verdict, audited.whole.arithmetic) == ("other arithmetic", "bfloat16-operands"), audited


def test_a_fault_is_in_no_class(deep) -> None:
    model, xs = deep[0], deep[1][:1]
    moved = [np.roll(x, 1, -1) for x in xs]
    values = recorded(model, xs, 2 * run(model, moved))
    audited = audit_recorded(model, values)
    assert audited.verdict == "differs"
    assert "not explained by float32 in any order; bfloat16 operands" in audited.whole.detail  # nor by TF32
    assert "would allow too much to mean anything" in audited.whole.detail
    assert audit_recorded(model, values, accept=["any"]).verdict == "cannot tell"  # never "rounding"


# --- how narrow -------------------------------------------------------------------------------------------------------


def exact(w: np.ndarray, v: np.ndarray, x: np.ndarray) -> list[Fraction]:
    """v relu(w x), over fractions."""
    hidden = [
        max(Fraction(0), sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(r, x, strict=True))) for r in w
    ]
    return [sum(Fraction(float(a)) * h for a, h in zip(r, hidden, strict=True)) for r in v]


def test_the_smaller_of_both_holds_the_exact_value_and_every_order() -> None:
    rng = np.random.default_rng(0)
    w, v = (rng.normal(size=(6, 6)).astype(np.float32) for _ in range(2))
    graph = sg.trace(lambda x: v @ sg.relu(w @ x), (6,))
    for _ in range(10):
        x = rng.normal(size=6).astype(np.float32)
        both = allowance(graph, [x.astype(float)], Arithmetic(), Clock(60), tight=0).balls[0]
        forwards = allowance(graph, [x.astype(float)], Arithmetic(), Clock(0), tight=0).balls[0]
        assert (both.radius <= forwards.radius).all()
        values = [float(e) for e in exact(w, v, x)]
        assert both.contains(np.array(values)).all()
        for _ in range(10):
            p, q = rng.permutation(6), rng.permutation(6)
            hidden = np.array([np.add.accumulate((r * x)[p], dtype=np.float32)[-1] for r in w])
            y = np.array([np.add.accumulate((r * np.maximum(hidden, 0))[q], dtype=np.float32)[-1] for r in v])
            assert both.contains(y).all()


def test_a_tolerance_that_is_too_small_is_caught(monkeypatch, deep) -> None:
    """So right files are a hunter: with a thousandth of what is proven, one of them is called wrong."""
    model, xs = deep
    values = recorded(model, xs, run(model, xs))
    assert audit_recorded(model, values).verdict == "rounding"
    whole = merged_layers.allowance

    def small(*args, **named):
        allowed = whole(*args, **named)
        return type(allowed)([Ball(b.value, b.radius * 1e-4) for b in allowed.balls])

    monkeypatch.setattr(merged_layers, "allowance", small)
    assert audit_recorded(model, values).verdict != "rounding"


def test_without_time_a_wide_allowance_proves_nothing(deep) -> None:
    model, xs = deep
    ys = run(model, xs)
    wide = audit_recorded(model, recorded(model, xs, ys), tolerance_seconds=0)
    narrow = audit_recorded(model, recorded(model, xs, ys))
    assert narrow.verdict == "rounding"
    assert narrow.blind_spots.largest < wide.blind_spots.largest / 10 if wide.blind_spots else True
    far = chain(14, 16, 6)
    values = recorded(far, xs, run(far, xs))
    audited = audit_recorded(far, values, tolerance_seconds=0)
    assert audited.verdict == "cannot tell", audited
    assert "larger than the values (no time is left to go backwards" in audited.whole.detail


def test_the_whole_line_of_an_audit_is_the_tolerance() -> None:
    """Where the forward radius is wide; without time it stays, and says so where it is larger than the values."""
    model, x = chain(9, 6, 6), points("upsample", 1)[0][:, :, :6, :6]
    narrow = audit(model, "onnxruntime", x, tolerance_seconds=60).whole
    wide = audit(model, "onnxruntime", x, tolerance_seconds=0).whole
    assert (narrow.kind, wide.kind) == ("rounding", "rounding")
    assert CONSISTENT.match(narrow.detail)
    assert narrow.ratio > 10 * wide.ratio


# --- several points ---------------------------------------------------------------------------------------------------


def test_points_stand_in_front_or_in_the_batch_that_is_one_in_the_file() -> None:
    model, xs = NETWORKS["upsample"](), points("upsample", 3)
    ys = run(model, xs)
    ys[1, 0, 1, 2, 3] += 0.01
    name = model.graph.output[0].name
    front = audit_recorded(model, {"x": np.stack(xs), name: ys})
    batch = audit_recorded(model, {"x": np.concatenate(xs), name: np.concatenate(ys)})
    assert front.whole == batch.whole
    assert (front.verdict, front.whole.index) == ("differs", (1, 0, 1, 2, 3))
    assert front.whole.detail.endswith("(point 1)")
    one = audit_recorded(model, {"x": xs[0], name: ys[0]})
    assert one.verdict == "rounding"
    assert one.blind_spots.points == 1


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((3, 1, 3, 8, 8), (2, 1, 2, 8, 8)), "the inputs are of 3 points; sigmoid_out has shape (2, 1, 2, 8, 8)"),
        (((3, 3, 8, 8), (2, 2, 8, 8)), "the inputs are of 3 points; sigmoid_out has shape (2, 2, 8, 8)"),
        (((0, 3, 8, 8), (0, 2, 8, 8)), "the inputs are of 0 points"),
        (((3, 1, 3, 8, 8), (3, 1, 2, 8, 4)), "recorded with shape (1, 2, 8, 4); in the model it has (1, 2, 8, 8)"),
    ],
)
def test_points_that_do_not_fit_are_refused(shapes, text: str) -> None:
    arrays = [np.zeros(s, np.float32) for s in shapes]
    with pytest.raises(ParameterError, match=re.escape(text)):
        audit_recorded(NETWORKS["upsample"](), dict(zip(("x", "sigmoid_out"), arrays, strict=True)))


def test_the_command(tmp_path, monkeypatch) -> None:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from specgrad.cli.main import app

    monkeypatch.chdir(tmp_path)
    model, xs = NETWORKS["upsample"](), points("upsample", 2)
    onnx.save(model, "net.onnx")
    np.save("x.npy", np.stack(xs))
    np.save("right.npy", run(model, xs))
    np.save("wrong.npy", run(next(f for f in FAULTS if "nearest" in f.text).change(model), xs))
    command = ["audit", "net.onnx", "--input", "x.npy", "--outputs"]
    done = CliRunner().invoke(app, [*command, "right.npy"])
    assert done.exit_code == 0, done.output
    assert CONSISTENT.search(done.output)
    assert "cannot be seen" in done.output
    assert "first layer" not in done.output
    done = CliRunner().invoke(app, [*command, "wrong.npy", "--json", "--html", "report.html"])
    assert done.exit_code == 1, done.output
    said = json.loads(done.stdout)
    assert (said["verdict"], said["first_divergent"], said["blind_spots"]) == ("differs", None, None)
    assert "not explained by float32" in said["whole"]["detail"]
    assert "Outputs alone: differs: not explained by float32" in (tmp_path / "report.html").read_text()
