"""Inputs in files that are no arrays: images (png, jpg) and sounds (wav), with the preprocessing named."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from specgrad.errors import ParameterError, need
from specgrad.interop.model import ModelInput
from specgrad.scalar import Array

from .sample_data import PREPROCESSINGS, preprocess

IMAGES, SOUNDS = (".png", ".jpg", ".jpeg"), (".wav",)
MAX_PIXELS = 1 << 28
Dims = Sequence[int | None]


def read_media(path: Path, wanted: ModelInput, how: str | None) -> tuple[Array, str]:
    """Return an image or a sound as the array that an input takes, and words for what was done with it.

    ParameterError if there is no such file, or the model does not say the input's shape.

    how   of images: imagenet, unit or raw (`preprocess`), which must be said; raw where the model takes uint8
    """
    if not path.is_file():
        raise ParameterError("--input", f"no file {path}")
    if wanted.dims is None:
        raise ParameterError("--input", f"the model does not say the shape of input {wanted.name}; give an .npy file")
    if path.suffix.lower() in SOUNDS:
        return _read_sound(path, wanted, wanted.dims)
    return _read_image(path, wanted, wanted.dims, how)


# --- images -----------------------------------------------------------------------------------------------------------


def _read_image(path: Path, wanted: ModelInput, dims: Dims, how: str | None) -> tuple[Array, str]:
    """Return an image in the input's layout, of its size where the model says one, and how it became numbers, in words.

    `wanted` is the input, `dims` its sizes, `how` a name of PREPROCESSINGS; bytes (uint8) are read "raw".

    ParameterError if `how` is None for an input of another type, or not "raw" for bytes.
    """
    if wanted.dtype == "uint8":
        how = how or "raw"
    if how is None:
        text = f"how {path} becomes numbers must be said: --preprocess {', '.join(PREPROCESSINGS[:-1])} or raw"
        raise ParameterError("--preprocess", text)
    if wanted.dtype == "uint8" and how != "raw":
        raise ParameterError("--preprocess", f"input {wanted.name} is uint8, which only raw numbers are")
    layout = _image_axes(path, wanted.name, dims)
    height, width, channels = (dims[axis] for axis in layout)
    pixels, resized = _read_pixels(path, height, width, int(channels or 0), how)
    numbers = preprocess(pixels, how)
    ordered = np.moveaxis(numbers, -1, layout[2] - (len(dims) - 3))
    array = ordered if len(dims) == 3 else ordered[None]
    shape = "x".join(map(str, array.shape))
    return np.ascontiguousarray(array, wanted.dtype or "float32"), f"{path.name}, {how}{resized}, {shape}"


def _image_axes(path: Path, name: str, dims: Dims) -> tuple[int, int, int]:
    """Return the axes (height, width, channels) of one image; ParameterError for inputs that are none.

    `name` is the input's, for the error; `dims` are its sizes.
    """
    rank = len(dims)
    if rank in (3, 4) and (rank == 3 or dims[0] in (None, 1)):
        first = rank - 3
        for channels in (3, 1, 4):  # an image of 4 rows and 3 channels has two axes that could be channels
            if dims[first] == channels:
                return first + 1, first + 2, first
            if dims[-1] == channels:
                return first, first + 1, first + 2
    shown = ", ".join("open" if d is None else str(d) for d in dims)
    text = f"{path} is one image; input {name} of shape ({shown}) takes none of 1, 3 or 4 channels"
    raise ParameterError("--input", text)


def _read_pixels(path: Path, height: int | None, width: int | None, channels: int, how: str) -> tuple[Array, str]:
    """Return an image as (height, width, channels) of uint8, and words for a change of size.

    `how` is its preprocessing. imagenet: the shorter side becomes 8/7 of the size (256 for 224), then the middle is cut
    out; unit and raw: resized. ParameterError for a file that is no image, or has too many pixels.
    """
    need("PIL", "images need")
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            if file.width * file.height > MAX_PIXELS:
                raise ParameterError("--input", f"{path} has {file.width}x{file.height} pixels; too many")
            image = file.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise ParameterError("--input", f"{path} is no image that can be read: {error}") from None
    height, width = height or image.height, width or image.width
    resized = ""
    if (image.height, image.width) != (height, width):
        resized = f", from {image.height}x{image.width}"
        if how == "imagenet":
            scale = max(height / image.height, width / image.width) * 8 / 7
            near = max(width, round(image.width * scale)), max(height, round(image.height * scale))
            left, top = (near[0] - width) // 2, (near[1] - height) // 2
            image = image.resize(near, Image.Resampling.BILINEAR).crop((left, top, left + width, top + height))
        else:
            image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image, np.uint8).reshape(height, width, channels), resized


# --- sounds -----------------------------------------------------------------------------------------------------------


def _read_sound(path: Path, wanted: ModelInput, dims: Dims) -> tuple[Array, str]:
    """Return a sound of one channel in [-1, 1]: its first samples, where the model takes fewer; ParameterError if it
    has too few, or several channels.

    It also returns how the sound was read, in words; `wanted` is the input, `dims` its sizes.
    """
    if not (wanted.dtype or "float32").startswith("float") or not dims or any(d not in (None, 1) for d in dims[:-1]):
        shown = ", ".join("open" if d is None else str(d) for d in dims)
        text = f"{path} is one sound; input {wanted.name} is {wanted.dtype} of shape ({shown})"
        raise ParameterError("--input", text)
    samples, rate = _wav_samples(path)
    count = dims[-1] or len(samples)
    if len(samples) < count:
        raise ParameterError("--input", f"{path} has {len(samples)} samples; input {wanted.name} takes {count}")
    first = f", the first {count} of {len(samples)} samples" if count < len(samples) else f", {count} samples"
    array = samples[:count].reshape(*(1,) * (len(dims) - 1), count).astype(wanted.dtype or "float32")
    return array, f"{path.name}, in [-1, 1]{first}, {rate} a second"


def _wav_samples(path: Path) -> tuple[Array, int]:
    """Return the samples of a wav file of whole numbers, over the largest that they can be, and how many a second.

    ParameterError for a file that is none, is cut off, or has several channels.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "a.wav"
    >>> with wave.open(str(place), "wb") as file:
    ...     file.setparams((1, 2, 8000, 0, "NONE", ""))
    ...     file.writeframes(np.array([0, 16384, -32768], "<i2").tobytes())
    >>> _wav_samples(place)
    (array([ 0. ,  0.5, -1. ]), 8000)
    """
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, rate, frames = file.getparams()[:4]
            data = file.readframes(frames)
    except (wave.Error, EOFError, OSError) as error:
        raise ParameterError("--input", f"{path} is no wav file of whole numbers: {error}") from None
    if channels != 1:
        raise ParameterError("--input", f"{path} has {channels} channels; give a sound of one")
    if len(data) != frames * width:
        raise ParameterError("--input", f"{path} is cut off: {len(data)} bytes of {frames * width}")
    if width == 1:
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) / 128, rate
    padded = np.zeros((frames, 4), np.uint8)  # 16, 24 and 32 bits, little-endian, in the upper bytes of 32
    padded[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(frames, width)
    return padded.view("<i4").ravel().astype(np.float64) / 2.0**31, rate
