"""The gate: every kind of model that a user gives is one `Model`, and what does not fit is refused in one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.errors import ParameterError, ShapeError, SpecgradError, UnsupportedError
from specgrad.interop.model import ModelInput, named_model, open_model

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
from onnx import TensorProto, helper  # noqa: E402

from specgrad.bounds import certify  # noqa: E402
from specgrad.bounds.search.statement.problem import cells_of  # noqa: E402
from specgrad.check import audit, compare, preserve, tolerance  # noqa: E402
from specgrad.check.models.model_run import as_declared  # noqa: E402
from specgrad.check.verdicts.first_divergence import first_difference  # noqa: E402

X = np.float32([[1.0, -2.0, 3.0]])


def relu_file(dims: list[Any] | None, kind: int = TensorProto.FLOAT, operator: str = "Relu") -> Any:
    x, y = (helper.make_tensor_value_info(n, kind, dims) for n in "xy")
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], name="layer")], "net", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def given(kind: str, folder: Path) -> Any:
    """One relu of (batch, 3) in every form that a user may have it in."""
    file, saved = folder / "net.onnx", folder / "net.json"
    onnx.save(relu_file(["N", 3]), file)
    sg.save(sg.trace(sg.relu, ("N", 3)), saved)
    return {
        "path": file,
        "text": str(file),
        "bytes": file.read_bytes(),
        "bytearray": bytearray(file.read_bytes()),
        "proto": relu_file(["N", 3]),
        "graph": sg.trace(sg.relu, ("N", 3)),
        "saved graph": saved,
        "module": torch.nn.ReLU(),
    }[kind]


KINDS = ["path", "text", "bytes", "bytearray", "proto", "graph", "saved graph", "module"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_of_a_model_gives_the_same_graph(kind: str, tmp_path: Path) -> None:
    model = open_model(given(kind, tmp_path))
    assert open_model(model) is model
    graph = model.graph_for([X], "test")
    assert np.asarray(graph(X)).tolist() == [[1.0, 0.0, 3.0]]
    assert model.graph({model.names[0]: (4, 3)}).nodes[-1].shape == (4, 3)
    assert not model.formats(graph)


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_an_input_of_another_shape_is_refused_in_one_wording(kind: str, tmp_path: Path) -> None:
    model = open_model(given(kind, tmp_path))
    assert [i.dims if i.dims is None else list(i.dims) for i in model.inputs] == [[None, 3]]
    with pytest.raises(ShapeError, match=r"test: input x .*3"):
        model.graph_for([np.zeros((1, 4), np.float32)], "test")


def test_what_a_file_declares_is_what_inputs_say() -> None:
    assert open_model(relu_file([None, 3])).inputs == (ModelInput("x", [None, 3], "float32"),)
    assert open_model(relu_file([1, 3], TensorProto.FLOAT16)).inputs == (ModelInput("x", [1, 3], "float16"),)
    assert open_model(relu_file(None)).inputs[0].dims is None


def test_a_range_is_declared_by_a_type_of_integers_alone() -> None:
    ranges = {kind: ModelInput("x", [1], kind).range for kind in ("int8", "uint16", "int64", "bool", "float32", None)}
    for kind in ("int8", "uint16", "int64"):
        assert ranges[kind] == (np.iinfo(kind).min, np.iinfo(kind).max)
    assert (ranges["bool"], ranges["float32"], ranges[None]) == ((0, 1), None, None)
    assert open_model(relu_file([1, 3], TensorProto.UINT8)).inputs[0].range == (0, 255)


@pytest.mark.parametrize(
    ("cells", "fits"),
    [([0, 255, 7], True), ([-1, 0, 0], False), ([0, 256, 0], False), ([0.5, 0, 0], False), ([np.nan, 0, 0], False)],
)
def test_floats_become_integers_in_the_declared_range_alone(cells: list[float], fits: bool) -> None:
    model = open_model(relu_file([3], TensorProto.UINT8))
    for kind in ("float16", "float32"):
        given = {"x": np.array(cells, kind)}
        if fits:
            assert as_declared(model, given)[0]["x"].tolist() == cells
        else:
            with pytest.raises(ParameterError, match=r"uint8 in the model, whole numbers from 0 to 255; got"):
                as_declared(model, given)


def test_the_ends_of_long_integers_are_exact() -> None:
    model = open_model(relu_file([1], TensorProto.INT64))
    assert as_declared(model, {"x": np.float32([-(2.0**63)])})[0]["x"].tolist() == [-(2**63)]
    with pytest.raises(ParameterError, match="from -9223372036854775808 to 9223372036854775807"):
        as_declared(model, {"x": np.float32([2.0**63])})


def test_a_batch_that_nobody_gives_is_one_and_other_open_sizes_are_asked_for() -> None:
    assert open_model(relu_file([None, 3])).closed_shapes({}) == {"x": (1, 3)}
    assert open_model(relu_file([None, None])).closed_shapes({"x": (2, 5)}) == {"x": (2, 5)}
    with pytest.raises(ParameterError, match=r"leaves axis 1 of input x open; give --shape x=1,SIZE, or --input"):
        open_model(relu_file([None, None])).closed_shapes({})
    with pytest.raises(ParameterError, match="does not say the shape of input x"):
        open_model(relu_file(None)).closed_shapes({})


def test_another_number_of_inputs_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"audit: the model takes 1 inputs \(x\); got 2"):
        open_model(relu_file([1, 3])).graph_for([X, X], "audit")


def test_a_graph_says_in_the_same_words_how_many_inputs_it_takes() -> None:
    model = open_model(sg.trace(lambda x, y: x + y, (1, 3), (1, 3)))
    for given in ([X], [X, X, X]):
        with pytest.raises(ParameterError, match=rf"audit: the model takes 2 inputs \(x, y\); got {len(given)}"):
            model.graph_for(given, "audit")


def test_a_module_says_how_many_inputs_it_takes() -> None:
    class Optional(torch.nn.Module):
        def forward(self, x: Any, scale: Any = None) -> Any:
            return x

    class Several(torch.nn.Module):
        def forward(self, x: Any, *more: Any) -> Any:
            return x + sum(more)

    for net, words in ((torch.nn.ReLU(), "1 inputs"), (Optional(), "1 to 2 inputs"), (Several(), "1 or more inputs")):
        with pytest.raises(ParameterError, match=f"audit: the model takes {words} .*; got 0"):
            open_model(net).graph_for([], "audit")
    assert open_model(Several()).graph_for([X, X, X], "audit").nodes[-1].shape == (1, 3)


ODD = {
    "ragged": ([[1.0, 2.0], [3.0]], "is no array of numbers: .*inhomogeneous"),
    "text": (np.array([["a", "b", "c"]]), "must hold numbers.*got <U1"),
    "None": ([[1.0, None, 2.0]], "must hold numbers.*got object"),
    "complex": (X * 1j, "must hold numbers.*got complex64"),
    "times": (np.array([[1, 2, 3]], "datetime64[s]"), "must hold numbers"),
    "wide": (X.astype(np.longdouble), "must hold numbers, floats of 64 bits at most"),
    "masked": (np.ma.array(X, mask=[[0, 1, 0]]), "has masked cells"),
    "meta": (torch.zeros(1, 3, device="meta"), "is no array of numbers"),
    "sparse": (torch.zeros(1, 3).to_sparse(), "is no array of numbers"),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", ["bytes", "graph", "module"])
def test_what_is_no_array_of_numbers_is_refused_in_one_wording(kind: str, odd: str, tmp_path: Path) -> None:
    what, text = ODD[odd]
    if odd == "wide" and np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("here it is float64")
    for call in (lambda m: m.graph_for([what], "audit"), lambda m: compare(m, m, what), lambda m: tolerance(m, what)):
        with pytest.raises(ParameterError, match=rf": input (x|input) {text}"):
            call(open_model(given(kind, tmp_path)))


@pytest.mark.parametrize("kind", ["bytes", "graph", "module"])
def test_an_array_may_be_a_list_or_a_tensor_or_of_another_order_of_bytes(kind: str, tmp_path: Path) -> None:
    model = open_model(given(kind, tmp_path))
    forms = [X.tolist(), tuple(map(tuple, X.tolist())), torch.tensor(X), torch.tensor(X).bfloat16(), X.astype(">f4")]
    for form in forms:
        (array,) = model.arrays([form], "test")
        assert (array.tolist(), array.dtype.isnative) == (X.tolist(), True)
    assert tolerance(model, X.tolist()).exact[0].tolist() == [[1.0, 0.0, 3.0]]


def test_the_structure_of_an_argument_is_the_graph_s() -> None:
    graph = sg.trace(lambda p: p["a"] + p["b"][0], {"a": (3,), "b": [(3,)]})
    (found,) = open_model(graph).arrays([{"b": [[1.0, 2.0, 3.0]], "a": [0, 0, 1]}], "test")
    assert (found["a"].tolist(), found["b"][0].tolist()) == ([0, 0, 1], [1.0, 2.0, 3.0])
    with pytest.raises(ParameterError, match=r"test.*input p\.b\.0 must hold numbers"):
        open_model(graph).arrays([{"a": X[0], "b": ["x"]}], "test")


def test_outputs_of_a_module_may_be_structures_inputs_and_the_same_twice() -> None:
    class Nested(torch.nn.Module):
        def forward(self, x: Any, y: Any = None) -> Any:
            z = torch.relu(x)
            return x, {"z": z, "again": [z]}

    assert audit(Nested(), "torch", X).verdict == "exact"
    graph = open_model(Nested()).graph_for([X], "test")
    assert len(graph.output_positions) > len({*graph.output_positions} - {*graph.input_positions})
    assert first_difference(graph, graph, [X], "torch") is None
    other = sg.trace(lambda x: (x, sg.relu(-x), sg.relu(-x)), (1, 3))
    assert first_difference(graph, other, [X], "torch") is not None


def test_normalisations_that_were_folded_agree_and_another_epsilon_in_one_is_named() -> None:
    """The other values are near those of the file, within one in two hundred: only the allowance tells them apart."""
    torch.manual_seed(0)
    blocks = [(torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()) for _ in range(5)]
    for _, norm, _ in blocks:
        torch.nn.init.uniform_(norm.running_var, 0.5, 2)
        torch.nn.init.normal_(norm.running_mean, 0, 0.2)
    module = torch.nn.Sequential(*(m for block in blocks for m in block)).eval()
    x = torch.randn(1, 4, 6, 6)
    graph, inputs = open_model(module).graph_for([x.numpy()], "test"), [x.double().numpy()]
    fused = [(torch.nn.utils.fusion.fuse_conv_bn_eval(conv, norm), relu) for conv, norm, relu in blocks]
    folded = open_model(torch.nn.Sequential(*(m for block in fused for m in block))).graph_for([x.numpy()], "test")
    assert [first_difference(graph, folded, inputs, backend) for backend in ("numpy", "torch")] == [None, None]
    blocks[3][1].eps += 1e-2
    parted = first_difference(open_model(module).graph_for([x.numpy()], "test"), folded, inputs, "numpy")
    assert parted is not None
    assert graph.nodes[parted[0]].group in ("9", "10")  # the convolution is folded too: its value stands nowhere


def test_integers_that_float64_does_not_hold_are_taken_as_they_are_or_refused() -> None:
    long = np.int64([2**60 + 1])
    with pytest.raises(ParameterError, match=r"preserve.*array x has integers beyond 2\^53"):
        preserve(sg.trace(sg.relu, (1, 1)), long[None], runtimes=())
    graph = sg.trace(lambda a, b: sg.concat([a, b], 0), (1,), (1,))
    assert cells_of((long, np.float32([0.5])), graph).tolist() == [2**60 + 1, 0.5]


def test_what_torch_jit_made_is_refused_before_its_signature_is_asked_for() -> None:
    with pytest.raises(ParameterError, match=r"tolerance.*torch.jit made .* give the module itself"):
        tolerance(torch.jit.trace(torch.nn.ReLU(), torch.zeros(1, 3)), X, points=True)


def test_names_with_line_breaks_stay_in_one_line() -> None:
    file = relu_file([1, 3])
    file.graph.input[0].name = file.graph.node[0].input[0] = "x\n\x1b[2Jy"
    with pytest.raises(ShapeError) as error:
        open_model(file).graph_for([X[0]], "test")
    assert "input x\\n\\x1b[2Jy must have shape" in str(error.value)


@pytest.mark.parametrize("what", [7, None, [1.0], np.zeros(3)])
def test_what_is_no_model_is_refused_by_its_type(what: Any) -> None:
    with pytest.raises(
        ParameterError, match=f"tolerance.*a Graph, an ONNX file or a PyTorch module; got {type(what).__name__}"
    ):
        open_model(what, "tolerance")


@pytest.mark.parametrize("what", ["class", "optimizer", "state"])
def test_what_has_a_state_dict_and_is_no_module_is_refused(what: str) -> None:
    net = torch.nn.Linear(3, 2)
    given = {"class": torch.nn.Linear, "optimizer": torch.optim.SGD(net.parameters()), "state": net.state_dict()}[what]
    with pytest.raises(ParameterError, match=f"a PyTorch module; got {type(given).__name__}"):
        open_model(given)


def test_files_that_cannot_be_read_are_refused_as_models(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "empty.onnx").touch()
    for name in ("none.json", "folder.json", "a" * 300 + ".json"):
        with pytest.raises(ParameterError, match="tolerance: cannot read"):
            open_model(tmp_path / name, "tolerance")
    for what, text in ((tmp_path / "empty.onnx", "no bytes"), (b"", "no bytes"), ("a\0b.onnx", "no file is called")):
        with pytest.raises(SpecgradError, match=text):
            _ = open_model(what).inputs


def test_an_element_type_that_onnx_does_not_know_has_no_name() -> None:
    file = relu_file([1, 3])
    file.graph.input[0].type.tensor_type.elem_type = 99
    model = open_model(file)
    assert model.inputs == (ModelInput("x", [1, 3], None),)
    with pytest.raises(SpecgradError, match="element type"):
        model.graph_for([X], "test")


def test_the_sizes_of_a_module_must_be_given() -> None:
    with pytest.raises(ParameterError, match="written nowhere; give inputs or shapes"):
        open_model(torch.nn.ReLU()).graph()


def test_a_module_is_traced_in_its_own_type() -> None:
    for kind in (torch.float64, torch.float16, torch.bfloat16):
        model = open_model(torch.nn.Linear(3, 2).to(kind))
        graph = model.graph_for([X], "test")
        assert graph.nodes[-1].shape == (1, 2)
        assert set(model.formats(graph).values()) == {str(kind).removeprefix("torch.")}


def test_what_a_module_or_torch_export_raises_is_said_in_one_line() -> None:
    class Raises(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            raise RuntimeError("mine\nsecond line")

    class Keyword(torch.nn.Module):
        def forward(self, x: Any, *, scale: Any) -> Any:
            return x * scale

    for net, text in ((Raises(), "Raises: RuntimeError: mine second line"), (Keyword(), "Keyword: TypeError: .*scale")):
        with pytest.raises(ParameterError, match=f"torch.export does not take {text}"):
            open_model(net).graph_for([X], "test")


def test_a_partial_graph_is_no_whole_model() -> None:
    part = open_model(relu_file([1, 3], operator="Det")).part({"x": (1, 3)})
    assert [u.operator for u in part.unexamined] == ["Det"]
    with pytest.raises(UnsupportedError, match="leaves out what has no meaning here: Det"):
        open_model(part).graph_for([X], "compare")
    with pytest.raises(UnsupportedError, match="certify: the graph leaves out what has no meaning here: Det"):
        certify(part, ((X, X), 0, 0.125))


def test_the_command_line_names_files_and_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets_of_the_gate.py").write_text("import torch\ndef make():\n    return torch.nn.ReLU()\nnumber = 3\n")
    onnx.save(relu_file([1, 3]), "net.onnx")
    assert (named_model("net.onnx").kind, named_model("nets_of_the_gate:make").title) == ("onnx", "ReLU")
    with pytest.raises(ParameterError, match=r"no file other.onnx; give an .onnx file"):
        named_model("other.onnx")
    with pytest.raises(ParameterError, match="cannot take nets_of_the_gate:number"):
        named_model("nets_of_the_gate:number")


def test_only_an_onnx_file_has_a_proto() -> None:
    with pytest.raises(ParameterError, match="must be an ONNX file; got Graph"):
        _ = open_model(sg.trace(sg.relu, (3,))).proto


def test_a_half_module_at_a_huge_size_takes_no_memory() -> None:
    """The example is one cell, repeated; a copy of it would need 12 TiB."""
    graph = open_model(torch.nn.Linear(3, 2).half()).graph({"input": (1 << 40, 3)})
    assert graph.nodes[-1].shape == (1 << 40, 2)


def test_a_partial_graph_is_refused_at_given_sizes_too() -> None:
    part = open_model(relu_file([1, 3], operator="Det")).part({"x": (1, 3)})
    with pytest.raises(UnsupportedError, match="leaves out what has no meaning here: Det"):
        open_model(part).graph()
