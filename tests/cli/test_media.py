"""--input of images and sounds: sizes by the model, the preprocessing named, and refused where nobody says it."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest

from specgrad.check.models.input_files import read_media
from specgrad.errors import ParameterError
from specgrad.interop.model import ModelInput

onnx = pytest.importorskip("onnx")
image_files = pytest.importorskip("PIL.Image")
helper, info = onnx.helper, onnx.helper.make_tensor_value_info


@pytest.fixture
def media(folder: Path) -> Path:
    """relu of an image of 4 x 4 and of a sound of 4 samples; a picture, a photo that is none, and two sounds."""
    for name, shape in (("image", [1, 3, 4, 4]), ("sound", ["N", 4])):
        graph = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"], name="y")], "g", [info("x", 1, shape)], [info("y", 1, None)]
        )
        file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(file, folder / f"{name}.onnx")
    image_files.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(folder / "p.png")
    (folder / "bad.png").write_bytes(b"\x89PNG no picture")
    for name, channels in (("s.wav", 1), ("two.wav", 2)):
        with wave.open(str(folder / name), "wb") as file:
            file.setparams((channels, 2, 8000, 0, "NONE", ""))
            file.writeframes(np.array([0, 16384, -32768, 8192, 1, 2], "<i2").tobytes())
    return folder


def test_an_image_becomes_the_numbers_that_are_named(media) -> None:
    wanted = ModelInput("x", [None, 3, 4, 4], "float32")
    pixels = np.arange(48, dtype=np.float64).reshape(4, 4, 3)
    array, words = read_media(media / "p.png", wanted, "unit")
    assert (array.dtype, words) == (np.float32, "p.png, unit, 1x3x4x4")
    np.testing.assert_array_equal(array[0], np.moveaxis(pixels / 255, -1, 0).astype(np.float32))
    last, _ = read_media(media / "p.png", ModelInput("x", [1, 4, 4, 3], "uint8"), None)
    np.testing.assert_array_equal(last[0], pixels.astype(np.uint8))
    larger, words = read_media(media / "p.png", ModelInput("x", [3, 7, 14], "float32"), "imagenet")
    assert (larger.shape, words) == ((3, 7, 14), "p.png, imagenet, from 4x4, 3x7x14")
    grey, _ = read_media(media / "p.png", ModelInput("x", [1, 1, None, None], "float16"), "raw")
    assert (grey.shape, grey.dtype) == ((1, 1, 4, 4), np.float16)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sounds_of_every_width(tmp_path: Path, width: int) -> None:
    """The same four numbers in 8, 16, 24 and 32 bits; 8 bits are unsigned around 128."""
    exact = [0.0, 0.5, -1.0, 0.25]
    scale = 2 ** (8 * width - 1)
    cells = [int(v * scale) + (128 if width == 1 else 0) for v in exact]
    with wave.open(str(tmp_path / "s.wav"), "wb") as file:
        file.setparams((1, width, 16000, 0, "NONE", ""))
        file.writeframes(b"".join(c.to_bytes(width, "little", signed=width > 1) for c in cells))
    array, words = read_media(tmp_path / "s.wav", ModelInput("x", [1, 3], "float32"), None)
    assert array.tolist() == [exact[:3]]
    assert words == "s.wav, in [-1, 1], the first 3 of 4 samples, 16000 a second"


def test_the_command_names_what_it_took(media, run) -> None:
    pytest.importorskip("torch")
    code, out, _ = run("tolerance image.onnx --input p.png --preprocess imagenet --json")
    assert code == 0
    assert "inputs: p.png, imagenet, 1x3x4x4" in json.loads(out)["notes"]
    assert (
        "note: inputs: s.wav, in [-1, 1], the first 4 of 6 samples, 8000 a second"
        in (run("tolerance sound.onnx --input s.wav")[1])
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("image.onnx --input p.png", "how p.png becomes numbers must be said: --preprocess imagenet, unit or raw"),
        ("image.onnx --input p.png --preprocess half", "must be one of imagenet, unit, raw; got 'half'"),
        ("image.onnx --input bad.png --preprocess raw", "bad.png is no image that can be read"),
        ("image.onnx --input s.wav", "s.wav is one sound; input x is float32 of shape (1, 3, 4, 4)"),
        ("sound.onnx --input p.png --preprocess raw", "p.png is one image; input x of shape (open, 4) takes none of"),
        ("sound.onnx --input two.wav", "two.wav has 2 channels; give a sound of one"),
        ("sound.onnx --input s.wav --shape 1,9", "s.wav has 6 samples; input x takes 9"),
        ("net.onnx --input x.npy --preprocess unit", "nothing was given that it changes: it is for images"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(media, run, command: str, message: str) -> None:
    code, _, err = run(f"tolerance {command}")
    assert (code, len(err.strip().splitlines())) == (3, 1)
    assert message in err


def test_a_sound_that_is_cut_off_is_refused(media) -> None:
    data = (media / "s.wav").read_bytes()
    (media / "short.wav").write_bytes(data[:-3])
    with pytest.raises(ParameterError, match=r"is cut off|is no wav file"):
        read_media(media / "short.wav", ModelInput("x", [1, 4], "float32"), None)
