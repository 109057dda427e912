"""Normalised files: what could be cured is, ONNX Runtime gives the same bits, and a changed meaning is refused."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import models  # noqa: E402
import profile_cases as cases  # noqa: E402
from specgrad.errors import UnsupportedError  # noqa: E402
from specgrad.process import Process  # noqa: E402
from specgrad.safety.profile import check_profile, model_view, normalise  # noqa: E402
from specgrad.safety.profile.normaliser import passes  # noqa: E402
from specgrad.safety.profile.onnx_checker import run_onnx_code  # noqa: E402
from specgrad.safety.profile.operator_rules import wrong_slice  # noqa: E402

DTYPES = {TensorProto.FLOAT: np.float32, TensorProto.BOOL: np.bool_, TensorProto.DOUBLE: np.float64}
WRITTEN, OPTIMISED = ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch, shared: Process) -> None:
    """ONNX's own code is another process: there is one for all tests."""
    for module in (model_view, sys.modules["specgrad.safety.profile.normaliser.normalise"]):
        monkeypatch.setattr(
            module, "run_onnx_code", lambda model, folder, process: run_onnx_code(model, folder, shared)
        )


def outputs(data: bytes, feeds: dict[str, Any], level: Any = WRITTEN) -> list[bytes]:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads, options.log_severity_level = level, 1, 3
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return [np.asarray(y).tobytes() for y in session.run(None, feeds)]


def feeds_of(model: Any, seed: int, special: bool = False) -> dict[str, Any]:
    """Random inputs; `special` ones hold infinities, zeros of both signs and large numbers."""
    rng, initial = np.random.default_rng(seed), {t.name for t in model.graph.initializer}
    feeds = {}
    for info in model.graph.input:
        kind = info.type.tensor_type
        if info.name not in initial:
            x = rng.normal(size=[d.dim_value for d in kind.shape.dim]) * 3
            if special:
                x = rng.choice([np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-40], size=x.shape)
            feeds[info.name] = x.astype(DTYPES[kind.elem_type])
    return feeds


def same_bits(model: Any, data: bytes, level: Any = WRITTEN, seeds: int = 3) -> bool:
    before = model.SerializeToString()
    asked = [feeds_of(model, seed, special) for seed in range(seeds) for special in (False, True)]
    return all(outputs(before, f, level) == outputs(data, f, level) for f in asked)


def named_model(nodes: Any, shape: Any, result: Any, initializers: Any = (), opset: int = 25) -> Any:
    return cases.model(nodes, [cases.info("x", shape)], [cases.info("y", result)], initializers, opset=opset)


def old(opset: int, op: str, shape: Any, result: Any, *more: Any, **attributes: Any) -> Any:
    made = cases.single(op, shape, result, *more, **attributes)
    made.opset_import[0].version = opset
    made.ir_version = 8
    return made


CURABLE: dict[str, tuple[str, Callable[[], Any]]] = {
    **{
        f"{rule}: {name}": (rule, cases.VIOLATIONS[rule][name])
        for rule in ("S5", "S6", "S9", "S10", "S13", "S15", "S27")
        for name in cases.VIOLATIONS[rule]
    },
    "S16: unused initializer": ("S16", cases.VIOLATIONS["S16"]["unused initializer"]),
    "S19: old opset": ("S19", cases.VIOLATIONS["S19"]["old opset"]),
    "S19: another domain": ("S19", cases.VIOLATIONS["S19"]["another domain"]),
    "S23: no name": ("S23", cases.VIOLATIONS["S23"]["no name"]),
    "S28: auto_pad": ("S28", cases.VIOLATIONS["S28"]["auto_pad"]),
    "S29: auto_pad": ("S29", cases.VIOLATIONS["S29"]["auto_pad"]),
    "S31: end": ("S31", cases.VIOLATIONS["S31"]["end"]),
    "function": ("S17", cases.function),
    "Clip without bounds": ("S6", lambda: cases.single("Clip", [9], [9])),
    "Where": ("S13", lambda: where()),
    "Pow": ("S13", lambda: cases.single("Pow", [2, 3], [2, 3], numpy_helper.from_array(np.float32(2), "n"))),
    "ReduceMean 13": ("S19", lambda: old(13, "ReduceMean", [2, 3, 4], [2, 3], axes=[-1], keepdims=0)),
    "Squeeze 11": ("S19", lambda: old(11, "Squeeze", [2, 1, 3], [2, 3], axes=[1])),
    "Unsqueeze 11": ("S19", lambda: old(11, "Unsqueeze", [2, 3], [2, 1, 3], axes=[1])),
    "AveragePool 11": ("S5", lambda: old(11, "AveragePool", [1, 1, 5], [1, 1, 5], kernel_shape=[3], pads=[1, 1])),
    "Split 13": ("S19", lambda: halves()),
    "Slice by computed ends": ("S15", lambda: computed()),
    "Slice to the end": ("S6", lambda: to_the_end()),
}


def where() -> Any:
    nodes = [
        helper.make_node("Less", ["x", "b"], ["c"], "less"),
        helper.make_node("Where", ["c", "x", "d"], ["y"], "where"),
    ]
    return named_model(nodes, [2, 3], [2, 3], [cases.numbers("b", 1), cases.numbers("d", 3)])


def halves() -> Any:
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], "split", axis=-1),
        helper.make_node("Sub", ["a", "b"], ["y"], "sub"),
    ]
    made = named_model(nodes, [2, 6], [2, 3], opset=13)
    made.ir_version = 8
    return made


def computed() -> Any:
    """The end is half a size: once it is written as a number, nothing needs the nodes that computed it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"], "sizes", start=0),
        helper.make_node("Gather", ["sizes", "last"], ["size"], "size", axis=0),
        helper.make_node("Div", ["size", "two"], ["end"], "end"),
        helper.make_node("Slice", ["x", "zero", "end", "last"], ["y"], "half"),
    ]
    constants = [cases.whole("last", 1), cases.whole("two", 2), cases.whole("zero", 0)]
    return named_model(nodes, [2, 6], [2, 3], constants)


def to_the_end(step: int = 2) -> Any:
    more = [cases.whole("s", -4), cases.whole("e", step * 2**61), cases.whole("a", -1), cases.whole("t", step)]
    return cases.single("Slice", [2, 5], [2, 2 if step > 0 else 1], *more)


@pytest.mark.parametrize("name", CURABLE)
def test_what_can_be_cured_is_and_the_bits_are_the_same(name: str) -> None:
    rule, build = CURABLE[name]
    model = build()
    done = normalise(model)
    after = check_profile(done.data, digests=done.digests)
    assert rule not in {f.rule for f in after.findings}
    assert not [f for f in after.findings if "normalise" in f.cure and "nothing" not in f.cure]
    loadable = cases.base() if rule == "S9" else model  # ONNX Runtime reads no value of type 0
    assert same_bits(loadable, done.data)
    assert same_bits(loadable, done.data, OPTIMISED)


def test_normalising_again_changes_nothing() -> None:
    first = normalise(cases.VIOLATIONS["S13"]["Add"]())
    assert normalise(first.data).data == first.data
    assert normalise(first.data).changes == {}


def test_the_side_file_is_about_the_file(tmp_path: Path) -> None:
    done = normalise(cases.base())
    (tmp_path / "n.onnx").write_bytes(done.data)
    (tmp_path / "n.onnx.digests.json").write_text(done.side)
    assert check_profile(tmp_path / "n.onnx").verdict == "no finding"
    assert set(json.loads(done.side)["tensors"]) == {"w", "b", "m", "a"}


def test_external_data_moves_inside(tmp_path: Path) -> None:
    model = cases.base()
    onnx.save_model(model, tmp_path / "net.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    done = normalise(tmp_path / "net.onnx")
    assert same_bits(cases.base(), done.data)


def test_open_sizes_are_closed_by_shapes_alone() -> None:
    model = cases.VIOLATIONS["S11"]["batch"]()
    with pytest.raises(UnsupportedError, match="input 'x' has an open size; give --shape x="):
        normalise(model)
    done = normalise(model, shapes={"x": (2, 3)})
    assert "S11" not in {f.rule for f in check_profile(done.data).findings}
    feeds = {"x": np.float32([[1, -2, 3], [0, 5, -6]])}
    assert outputs(model.SerializeToString(), feeds) == outputs(done.data, feeds)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: cases.single("Acos", [2], [2]), "has no meaning here"),
        (cases.recursion, "not valid ONNX"),
        (lambda: cases.changed(lambda m: setattr(m.opset_import[0], "version", 26)), "25 is the newest"),
        (lambda: cases.changed(lambda m: setattr(m.graph, "name", "")), "not valid ONNX"),
    ],
)
def test_what_cannot_be_compared_is_refused(model: Callable[[], Any], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        normalise(model())


# --- networks -----------------------------------------------------------------------------------------------------


def exported(module: Any, x: Any) -> bytes:
    """By the older exporter, which writes neither types nor shapes nor defaults."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), buffer, dynamo=False)
    return buffer.getvalue()


SMALL = ["lenet", "unet", *(pytest.param(n, marks=pytest.mark.slow) for n in ("cnn3d", "resnet18", "mobilenetv2"))]


@pytest.mark.parametrize("name", SMALL)
def test_networks_are_written_whole_and_give_the_same_bits(name: str) -> None:
    hold_network(*models.SMALL[name]())


def hold_network(module: Any, x: Any) -> None:
    data = exported(module, x)
    done = normalise(data)
    before, after = check_profile(data), check_profile(done.data, digests=done.digests)
    assert {"S5", "S9", "S10", "S19", "S24"} <= {f.rule for f in before.findings}
    assert not {"S5", "S6", "S9", "S10", "S13", "S15", "S19", "S24", "S27"} & {f.rule for f in after.findings}
    assert not [f for f in after.findings if "--normalise" in f.cure and not f.cure.startswith("nothing")]
    rng = np.random.default_rng(0)
    (name,) = [i.name for i in onnx.load_from_string(data).graph.input]
    for given in (x.numpy(), rng.normal(size=x.shape).astype(np.float32), np.zeros(x.shape, np.float32)):
        assert outputs(data, {name: given}) == outputs(done.data, {name: given})


ZOO = ("alexnet", "squeezenet1_1", "resnet18", "shufflenet_v2_x1_0", "mobilenet_v2", "mobilenet_v3_small", "mnasnet1_0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_public_networks_are_written_whole_and_give_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    zoo = pytest.importorskip("zoo")
    hold_network(*zoo.build(name))


# --- planted mistakes ---------------------------------------------------------------------------------------------


def _change(op: str, attribute: str, value: Any) -> Callable[[Any], None]:
    def step(draft: Any) -> None:
        for node in draft.nodes(op):
            passes.set_attribute(node.proto, attribute, value)

    return step


def _swap_inputs(draft: Any) -> None:
    for node in draft.nodes("Sub"):
        a, b = node.proto.input
        node.proto.input[:] = [b, a]


def _expand_wrongly(draft: Any) -> None:
    """(3,) to (3, 3) by repeating the wrong axis."""
    for node in list(draft.nodes("Add")):
        name = draft.fresh("turned")
        shape = draft.int64_constant("column", [3, 1])
        draft.model.graph.node.insert(0, helper.make_node("Reshape", ["b", shape], [name], "turn", allowzero=0))
        node.proto.input[1] = name


def _one_bit(draft: Any) -> None:
    proto = draft.model.graph.initializer[0]
    data = bytearray(proto.raw_data)
    data[0] ^= 1
    proto.raw_data = bytes(data)


PLANTED = {
    "padding on the other side": (_change("Conv", "pads", [2, 1, 0, 1]), cases.base),
    "another stride and padding": (_change("MaxPool", "strides", [1, 1]), cases.pool),
    "another axis": (_change("Softmax", "axis", 0), lambda: cases.single("Softmax", [3, 3], [3, 3], axis=-1)),
    "another default": (_change("LeakyRelu", "alpha", 0.02), lambda: cases.single("LeakyRelu", [2], [2])),
    "operands swapped": (_swap_inputs, halves),
    "a broadcast along another axis": (
        _expand_wrongly,
        lambda: cases.single("Add", [3, 3], [3, 3], cases.numbers("b", 3)),
    ),
    "one bit of a weight": (_one_bit, cases.base),
    "a Clip bound": (
        lambda draft: draft.nodes("Clip") and _clip(draft),
        lambda: cases.single("Clip", [9], [9]),
    ),
}


def _clip(draft: Any) -> None:
    for node in draft.nodes("Clip"):
        passes.set_input(node.proto, 2, draft.constant("six", np.float32(6)))


@pytest.mark.parametrize("name", PLANTED)
def test_a_step_that_changes_the_meaning_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step, build = PLANTED[name]
    module = sys.modules["specgrad.safety.profile.normaliser.normalise"]
    assert normalise(build()).data
    monkeypatch.setattr(module, "PASSES", (*passes.PASSES, step))
    with pytest.raises(UnsupportedError, match=r"one graph|valid ONNX|cannot be read"):
        normalise(build())


def test_without_the_comparison_planted_mistakes_would_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["specgrad.safety.profile.normaliser.normalise"]
    step, build = PLANTED["one bit of a weight"]
    monkeypatch.setattr(module, "PASSES", (*passes.PASSES, step))
    monkeypatch.setattr(module, "_check_same", lambda *_: None)
    assert not same_bits(build(), normalise(build()).data)


# --- slices -------------------------------------------------------------------------------------------------------


def test_slices_are_numpys() -> None:
    """Every start, end and step around axes of 1 to 4 cells, against NumPy's own slicing."""
    far = (sys.maxsize, -sys.maxsize)
    for size in range(1, 5):
        row = list(range(size))
        ends = (*range(-size - 2, size + 3), *far)
        for start, end, step in itertools.product(ends, ends, (-3, -2, -1, 1, 2, 3)):
            cells = row[start:end:step]
            first, stop, by = passes._canonical_slice(start, end, step, size)
            assert row[first : stop if stop >= -size else None : by] == cells or not cells
            if cells:
                assert wrong_slice(first, stop, by, size) == "", (size, start, end, step)
            if wrong_slice(start, end, step, size) == "":
                assert cells, (size, start, end, step)
