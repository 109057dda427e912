"""Default inputs: types, ranges and sizes that models accept, by what ONNX Runtime says; what was assumed is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import specgrad as sg
from specgrad.check import audit, default_inputs
from specgrad.check.models.sample_data import draw_image, preprocess
from specgrad.errors import ParameterError

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
helper, info = onnx.helper, onnx.helper.make_tensor_value_info
FLOAT, INT64, UINT8, BOOL = 1, 7, 2, 9


def weights(name: str, *shape: int) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.random.default_rng(len(name)).normal(size=shape).astype(np.float32), name)


def model(nodes: list, inputs: list[tuple[str, int, list]], tensors: list) -> onnx.ModelProto:
    ends = [info(*each) for each in inputs], [info("y", FLOAT, None)]
    graph = helper.make_graph(nodes, "g", *ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(file: onnx.ModelProto, drawn) -> list[np.ndarray]:
    """The outputs of ONNX Runtime, which refuses ids outside of tables and types that were not declared."""
    session = ort.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], drawn.arrays, strict=True)))


def text_model(rows: int = 50) -> onnx.ModelProto:
    """word[ids] + type[types], times the mask, times a matrix."""
    nodes = [
        helper.make_node("Reshape", ["input_ids", "flat"], ["f"]),
        helper.make_node("Gather", ["word", "f"], ["e"]),
        helper.make_node("Gather", ["type", "token_type_ids"], ["t"]),
        helper.make_node("Add", ["e", "t"], ["s"]),
        helper.make_node("Cast", ["attention_mask"], ["m"], to=FLOAT),
        helper.make_node("Unsqueeze", ["m", "last"], ["u"]),
        helper.make_node("Mul", ["s", "u"], ["p"]),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    names = ("input_ids", "attention_mask", "token_type_ids")
    last, flat = (onnx.numpy_helper.from_array(np.int64(v), n) for n, v in (("last", [-1]), ("flat", [0, -1])))
    tensors = [weights("word", rows, 8), weights("type", 2, 8), weights("w", 8, 4), last, flat]
    return model(nodes, [(n, INT64, ["batch", "seq"]) for n in names], tensors)


def test_a_text_model_gets_ids_masks_and_types() -> None:
    file = text_model()
    drawn = default_inputs(file)
    ids, mask, types = drawn.arrays
    assert [a.shape for a in drawn.arrays] == [(1, 16)] * 3
    assert {a.dtype for a in drawn.arrays} == {np.dtype(np.int64)}
    assert (ids.min() >= 0, ids.max() < 50, len(set(ids.ravel())) > 4) == (True, True, True)
    assert ((mask == 1).all(), (types == 0).all()) == (True, True)
    assert np.isfinite(run(file, drawn)[0]).all()
    assert drawn.note.startswith("inputs: input_ids: ids below 50, 1x16, seed 0; attention_mask: a mask of ones")
    assert audit(file, "onnxruntime", list(drawn.arrays)).coverage.layers >= 6


@pytest.mark.parametrize("seed", range(4))
def test_ids_reach_no_row_that_is_not_there(seed: int) -> None:
    """A table of three rows: ONNX Runtime refuses a fourth. Ids of another seed are others, all of them inside."""
    file = text_model(3)
    drawn = default_inputs(file, seed=seed)
    assert set(np.unique(drawn.arrays[0])) <= {0, 1, 2}
    assert run(file, drawn)


def test_sizes_of_one_name_are_one_size() -> None:
    drawn = default_inputs(text_model(), {"input_ids": (3, 7)})
    assert [a.shape for a in drawn.arrays] == [(3, 7)] * 3


CONV = [helper.make_node("Conv", ["x", "w"], ["y"])]


@pytest.mark.parametrize(
    ("dims", "shape", "words"),
    [
        (["N", 3, "H", "W"], (1, 3, 224, 224), "images with structure, imagenet, 1x3x224x224, seed 0"),
        ([2, 3, 32, "W"], (2, 3, 32, 224), "images with structure, imagenet, 2x3x32x224, seed 0"),
        ([1, 3, 5, 5], (1, 3, 5, 5), "normal numbers, 1x3x5x5, seed 0"),
    ],
)
def test_sizes_of_images(dims: list, shape: tuple[int, ...], words: str) -> None:
    file = model(CONV, [("x", FLOAT, dims)], [weights("w", 4, 3, 3, 3)])
    drawn = default_inputs(file)
    assert (drawn.arrays[0].shape, drawn.about, drawn.arrays[0].dtype) == (shape, (words,), np.float32)
    assert np.isfinite(run(file, drawn)[0]).all()


def test_a_line_of_text_where_squares_do_not_fit() -> None:
    """A height that a reshape needs is found by our shape rules: 48 rows in 3 pools of 4 leave none but 3."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[16, 1], strides=[16, 1]),
        helper.make_node("Transpose", ["p"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Reshape", ["t", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    tensors = [weights("w", 9, 4), onnx.numpy_helper.from_array(np.int64([0, 0, 9]), "shape")]
    file = model(nodes, [("x", FLOAT, ["N", 3, "H", "W"])], tensors)
    drawn = default_inputs(file)
    assert drawn.arrays[0].shape == (1, 3, 48, 224)
    assert run(file, drawn)[0].shape == (1, 224, 4)


def test_types_that_are_declared() -> None:
    """uint8 images are raw; half floats stay half; a bool is true; a number beside a sound is its rate."""
    nodes = [helper.make_node("Cast", ["x"], ["f"], to=FLOAT), helper.make_node("Conv", ["f", "w"], ["y"])]
    image = default_inputs(model(nodes, [("x", UINT8, [1, 3, 32, 32])], [weights("w", 1, 3, 3, 3)]))
    assert (image.arrays[0].dtype, image.about) == (np.uint8, ("images with structure, raw, 1x3x32x32, seed 0",))
    nodes = [
        helper.make_node("Cast", ["sr"], ["r"], to=FLOAT),
        helper.make_node("Mul", ["input", "r"], ["m"]),
        helper.make_node("Where", ["on", "m", "input"], ["y"]),
    ]
    file = model(nodes, [("input", FLOAT, ["N", "T"]), ("sr", INT64, []), ("on", BOOL, [1])], [])
    sound, rate, on = default_inputs(file).arrays
    assert (sound.shape, bool(np.abs(sound).max() <= 1), int(rate), on.tolist()) == ((1, 512), True, 16000, [True])


def test_images_have_structure() -> None:
    """Neighbours are alike and edges are there: white noise of the same size has neither."""
    image = draw_image(np.random.default_rng(0), 64, 64, 3).astype(float)
    steps = np.abs(np.diff(image, axis=1))
    assert np.median(steps) < 0.2 * image.std() < np.quantile(steps, 0.995)
    assert (draw_image(np.random.default_rng(1), 64, 64, 3) != image).mean() > 0.9


def test_preprocessing_is_that_of_its_name() -> None:
    image = np.uint8([[[0, 128, 255]]])
    assert preprocess(image, "raw").ravel().tolist() == [0, 128, 255]
    np.testing.assert_allclose(preprocess(image, "unit").ravel(), [0, 128 / 255, 1], rtol=1e-15)
    wanted = [(0 - 0.485) / 0.229, (128 / 255 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    np.testing.assert_allclose(preprocess(image, "imagenet").ravel(), wanted, rtol=1e-14)
    with pytest.raises(ParameterError, match="must be one of imagenet, unit, raw; got 'half'"):
        preprocess(image, "half")
    with pytest.raises(ParameterError, match="imagenet is for 3 channels; the image has 1"):
        preprocess(image[..., :1], "imagenet")


def test_graphs_and_modules(tmp_path: Path) -> None:
    graph = default_inputs(sg.trace(sg.relu, (2, 3)))
    assert (graph.arrays[0].shape, graph.about) == ((2, 3), ("normal numbers, 2x3, seed 0",))
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 2)
    assert default_inputs(module, {"input": (4, 2)}).arrays[0].shape == (4, 2)
    with pytest.raises(ParameterError, match="its shapes are not written anywhere"):
        default_inputs(module)


def test_large_integers_are_refused() -> None:
    """Beyond 2^53 float64 has not every integer, and a verdict would be about another input."""
    file = model([helper.make_node("Cast", ["x"], ["y"], to=FLOAT)], [("x", INT64, [1])], [])
    with pytest.raises(ParameterError, match=r"whole numbers up to 2\^53"):
        audit(file, "onnxruntime", np.array([2**53 + 1]))
