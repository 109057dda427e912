"""Inputs of a model where the user gives none: types, sizes and ranges that it accepts, and what was assumed, in words.

Every command draws its inputs here. What a size or a number was taken for stands in `DefaultInputs.about`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specgrad.errors import ParameterError, SpecgradError
from specgrad.interop.model import Model, ModelInput, open_model
from specgrad.scalar import Array
from specgrad.window import Shape

from .sample_data import SAMPLE_RATE, draw_image, draw_sound, preprocess

IMAGE_SIDE, SEQUENCE, SOUND_SAMPLES, PAST = 224, 16, 512, 8
LINE_HEIGHTS = (48, 32)  # of images of one line of text, which is tried where a model does not take squares
CHANNELS, MIN_SIDE, MIN_SAMPLES = (1, 3, 4), 16, 256
SOUNDS = re.compile("audio|wav|speech|sound|signal|input_values", re.I)
RATES = re.compile("sr|.*sampl.*rate.*", re.I)


@dataclass(frozen=True)
class DefaultInputs:
    """Inputs for a model that came without any.

    Attributes
    ----------
    arrays : tuple of array
        One per input of the model, in its order.
    about : tuple of str
        A sentence per input: what was drawn.

    Examples
    --------
    >>> import specgrad as sg
    >>> drawn = sg.check.default_inputs(sg.trace(lambda x: sg.relu(x), (1, 8)))
    >>> drawn.arrays[0].shape, len(drawn.about)
    ((1, 8), 1)
    """

    arrays: tuple[Array, ...]
    about: tuple[str, ...]

    @property
    def note(self) -> str:
        """All sentences in one: what every command that drew inputs prints."""
        return f"inputs: {'; '.join(self.about)}"


def default_inputs(
    model: Any, shapes: Mapping[str, Sequence[int]] | None = None, *, seed: int = 0, how: str | None = None
) -> DefaultInputs:
    """Return inputs that the model accepts, as far as its file says what it accepts: the same for the same seed.

    Images have structure; ids lie inside the table that they index; masks are ones; sounds lie in [-1, 1]; other floats
    are normal numbers. Sizes that the file leaves open are 1 for batches, 224 for images, 512 samples for sounds and 16
    for other axes, unless `shapes` says otherwise.

    Parameters
    ----------
    model : Graph, path, bytes, ModelProto or nn.Module
        A Graph, an ONNX file (path, bytes or ModelProto) or a PyTorch module.
    shapes : mapping of str to sequence of int, optional
        By the names of inputs; of a PyTorch module one per argument, in order.
    seed : int, default 0
        The same seed draws the same inputs.
    how : str, optional
        "imagenet", "unit" or "raw": how images become numbers; imagenet for 3 channels, else unit, if not given.

    Returns
    -------
    DefaultInputs
        Arrays, and a sentence about each.

    Raises
    ------
    ParameterError
        For a module without shapes, and where the file does not say a type or a size.

    Examples
    --------
    >>> import specgrad as sg
    >>> drawn = default_inputs(sg.trace(lambda x: sg.relu(x), (1, 8)), seed=1)
    >>> drawn.arrays[0].shape
    (1, 8)
    """
    model = open_model(model, "inputs")
    asked = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    inputs = _inputs_to_draw(model, asked)
    closed = _closed_shapes(model, inputs, asked)
    rng = np.random.default_rng(seed)
    drawn = [_draw_input(rng, _Sample(i, closed[i.name], _has_rate(inputs), how)) for i in inputs]
    several = len(inputs) > 1
    about = [
        f"{f'{i.name}: ' if several else ''}{words}, {'x'.join(map(str, a.shape)) or 'a number'}, seed {seed}"
        for i, (a, words) in zip(inputs, drawn, strict=True)
    ]
    return DefaultInputs(tuple(a for a, _ in drawn), tuple(about))


# --- what is known of an input ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _KnownInput:
    """An input as declared, and what the file does with it.

    dims          declared sizes, None where open; None: no shape is declared
    symbols       names of open sizes, per axis
    rows          how many rows the table has that it indexes, if it does
    is_sound      whether what reads it shows that it is a sound
    name, dtype   as declared
    """

    name: str
    dims: tuple[int | None, ...] | None
    dtype: str
    symbols: tuple[str | None, ...] = ()
    rows: int | None = None
    is_sound: bool = False


def _inputs_to_draw(model: Model, asked: Mapping[str, Shape]) -> list[_KnownInput]:
    """Return the inputs to draw; `asked` are shapes by name. ParameterError for a module of which no shapes are
    given.
    """
    if model.kind == "torch":
        if not asked:
            text = "--input or --shape is needed for a PyTorch module: its shapes are not written anywhere"
            raise ParameterError("--input", text)
        return [_KnownInput(name, tuple(shape), "float32") for name, shape in asked.items()]
    if model.kind == "graph":
        graph = model.source.at(**asked) if asked else model.source.at()
        nodes = [graph.nodes[p] for p in graph.input_positions]
        return [_KnownInput(n.name, n.shape, "int64" if n.kind == "index" else "float32", rows=1) for n in nodes]
    from specgrad.interop.onnx.input_use import input_uses

    uses = input_uses(model.file)
    return [_known_input(i, **vars(uses[i.name])) for i in model.inputs]


def _known_input(declared: ModelInput, **use: Any) -> _KnownInput:
    """Return a `declared` input as a `_KnownInput`: its name, sizes and type, and `use`, further fields of that class
    by name.

    ParameterError for an input that declares no type.
    """
    if declared.dtype is None:
        raise ParameterError("--input", f"input {declared.name} declares no type that is known; give --input")
    dims = None if declared.dims is None else tuple(declared.dims)
    return replace(_KnownInput(declared.name, dims, declared.dtype), **use)


def _has_rate(inputs: list[_KnownInput]) -> bool:
    """Return whether one input is a sampling rate: then others are sounds."""
    return any(i.dtype in ("int32", "int64") and RATES.fullmatch(i.name) for i in inputs)


# --- sizes ------------------------------------------------------------------------------------------------------------


def _closed_shapes(model: Model, inputs: list[_KnownInput], asked: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return {input: shape}: as `asked`, as declared, or those assumed at which most nodes of the model have a
    meaning.
    """
    if all(i.name in asked or (i.dims is not None and None not in i.dims) for i in inputs):
        return {i.name: asked[i.name] if i.name in asked else tuple(d or 0 for d in i.dims or ()) for i in inputs}
    best: tuple[int, dict[str, Shape]] | None = None
    for shapes in _assumed_shapes(inputs, asked):
        if best is not None and best[1] == shapes:
            continue
        refused = _nodes_refused(model, shapes)
        if best is None or refused < best[0]:
            best = refused, shapes
        if not refused:
            break
    assert best is not None
    return best[1]


def _assumed_shapes(inputs: list[_KnownInput], asked: Mapping[str, Shape]) -> Iterator[dict[str, Shape]]:
    """Yield shapes of all inputs to try, by name: those `asked` for, else images that are squares, then lines of text.

    ParameterError if the model does not say a shape.
    """
    for height in (IMAGE_SIDE, *LINE_HEIGHTS):
        sizes: dict[str, int] = {}
        for i in inputs:
            for symbol, size in zip(i.symbols, asked.get(i.name, ()), strict=False):
                if symbol is not None:
                    sizes.setdefault(symbol, size)
        yield {i.name: asked[i.name] if i.name in asked else _assumed_shape(i, inputs, sizes, height) for i in inputs}


def _assumed_shape(i: _KnownInput, inputs: list[_KnownInput], sizes: dict[str, int], height: int) -> Shape:
    """Return a shape of input i; axes of one symbol have one size in all inputs.

    `sizes`, by symbol, grows; `height` is that of images. ParameterError if the model does not say the shape.
    """
    if i.dims is None:
        text = f"the model does not say the shape of input {i.name}; give --shape {i.name}=1,..."
        raise ParameterError("--shape", text)
    shape = []
    for axis, known in enumerate(i.dims):
        symbol = i.symbols[axis] if axis < len(i.symbols) else None
        if known is None and symbol is not None:
            known = sizes[symbol] if symbol in sizes else _sum_of_symbols(symbol, sizes)
        size = _assumed_size(i, axis, symbol or "", height, _has_rate(inputs)) if known is None else known
        if symbol is not None:
            sizes.setdefault(symbol, size)
        shape.append(size)
    return tuple(shape)


def _sum_of_symbols(symbol: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size of an axis whose `symbol` is a sum of numbers and names in `sizes`: "past_sequence_length + 1";
    None if it is none.
    """
    parts = [part.strip() for part in symbol.split("+")]
    if len(parts) < 2 or not all(p.isdigit() or p in sizes for p in parts):
        return None
    return sum(int(p) if p.isdigit() else sizes[p] for p in parts)


def _assumed_size(i: _KnownInput, axis: int, symbol: str, height: int, has_rate: bool) -> int:
    """Return the size to assume for an open axis of input i: a batch is 1, images have `height` and IMAGE_SIDE, else by
    the words in its `symbol`.

    `has_rate` says whether another input gives a sample rate.
    """
    dims, word = i.dims or (), symbol.lower()
    rank = len(dims)
    if axis == 0 or "batch" in word:
        return 1
    if (layout := _image_layout(dims)) is not None:
        return height if axis == layout[0] else IMAGE_SIDE
    if i.dtype.startswith("float") and axis == rank - 1 and rank < 4 and _is_sound_input(i, has_rate):
        return SOUND_SAMPLES
    if rank == 3 and axis == 1 and dims[0] not in (None, 1) and dims[2] is not None:
        return 1  # a state: layers, batch, channels
    return PAST if "past" in word else SEQUENCE


def _nodes_refused(model: Model, shapes: Mapping[str, Shape]) -> int:
    """Return how many nodes of the model have no meaning at these input shapes; 2**30 if the whole has none."""
    try:
        return len(model.part(shapes).unexamined)
    except SpecgradError:
        return 1 << 30


def _image_layout(dims: tuple[int | None, ...]) -> tuple[int, int, int] | None:
    """Return the axes (height, width, channels) of an image with sizes `dims`; None if these are no image's.

    >>> _image_layout((1, 3, 224, 224)), _image_layout((None, 64, None, 1)), _image_layout((1, 3, 5, 5))
    ((2, 3, 1), (1, 2, 3), None)
    """

    def large(*axes: int) -> bool:
        return all(dims[a] is None or int(dims[a] or 0) >= MIN_SIDE for a in axes)

    if len(dims) == 4 and dims[1] in CHANNELS and large(2, 3):
        return 2, 3, 1
    if len(dims) == 4 and dims[3] in CHANNELS and large(1, 2):
        return 1, 2, 3
    if len(dims) == 3 and dims[0] == 3 and large(1, 2):
        return 1, 2, 0
    return None


def _is_sound_input(i: _KnownInput, has_rate: bool) -> bool:
    """Return whether a float input is a sound: by its name, by what reads it, or beside a sampling rate
    (`has_rate`).
    """
    rank = len(i.dims or ())
    beside = has_rate and rank == 2
    return 0 < rank < 4 and (i.is_sound or beside or SOUNDS.search(i.name) is not None)


# --- numbers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sample:
    """What is to be drawn: an array of `shape` for `input`.

    has_rate   whether a sampling rate stands beside it
    how        how images become numbers
    """

    input: _KnownInput
    shape: Shape
    has_rate: bool
    how: str | None

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The declared type, of NumPy; ParameterError for one that NumPy lacks."""
        try:
            return np.dtype(self.input.dtype)
        except TypeError:
            text = f"input {self.input.name} is {self.input.dtype}, which is not drawn; give --input"
            raise ParameterError("--input", text) from None


Drawn = tuple[Array, str]


def _draw_input(rng: np.random.Generator, drawing: _Sample) -> Drawn:
    """Return an array for the input that `drawing` describes, in its type, and the words for what it is."""
    kind = drawing.dtype.kind
    layout = _image_layout(drawing.shape)
    if "mask" in drawing.input.name.lower():
        return np.ones(drawing.shape, drawing.dtype), "a mask of ones"
    if layout is not None and (kind == "f" or drawing.dtype.name in ("uint8", "int8")):
        return _draw_images(rng, drawing, layout)
    draw: Callable[[np.random.Generator, _Sample], Drawn] = _draw_floats if kind == "f" else _draw_integers
    return draw(rng, drawing)


def _draw_images(rng: np.random.Generator, drawing: _Sample, layout: tuple[int, int, int]) -> Drawn:
    """Return the images that `drawing` asks for, with structure, and words for them; `layout` numbers the axes height,
    width and channels.
    """
    height, width, channels = (drawing.shape[axis] for axis in layout)
    count = drawing.shape[0] if len(drawing.shape) == 4 else 1
    images = np.stack([draw_image(rng, height, width, channels) for _ in range(count)])
    if drawing.dtype.kind == "f":
        how = drawing.how or ("imagenet" if channels == 3 else "unit")
        numbers = preprocess(images, how)
    else:
        how, numbers = "raw", images.astype(np.int16) - (128 if drawing.dtype.kind == "i" else 0)
    ordered = np.moveaxis(numbers if len(drawing.shape) == 4 else numbers[0], -1, layout[2])
    return np.ascontiguousarray(ordered, drawing.dtype), f"images with structure, {how}"


def _draw_floats(rng: np.random.Generator, drawing: _Sample) -> Drawn:
    """Return (array, what it is in words): sounds if the input looks like sound, else normal numbers.

    `drawing` describes the input.
    """
    shape = drawing.shape
    if _is_sound_input(drawing.input, drawing.has_rate) and shape[-1] >= MIN_SAMPLES:
        sounds = [draw_sound(rng, shape[-1]) for _ in range(int(np.prod(shape[:-1])))]
        return np.reshape(sounds, shape).astype(drawing.dtype), f"sound in [-1, 1], {SAMPLE_RATE} samples a second"
    return rng.normal(size=shape).astype(drawing.dtype), "normal numbers"


def _draw_integers(rng: np.random.Generator, drawing: _Sample) -> Drawn:
    """Return integers for the input that `drawing` describes, and words for them.

    They index what it indexes, or mean what its name says. ParameterError for a type without a range.
    """
    given, shape, name = drawing.input, drawing.shape, drawing.input.name.lower()
    declared = ModelInput(given.name, shape, given.dtype).range
    if declared is None:
        raise ParameterError("--input", f"input {given.name} is {given.dtype}, which is not drawn; give --input")
    if drawing.dtype.kind == "b":
        return np.ones(shape, bool), "true"
    if RATES.fullmatch(name) and np.prod(shape) == 1:
        return np.full(shape, SAMPLE_RATE, drawing.dtype), f"a sampling rate of {SAMPLE_RATE}"
    if "token_type" in name or "segment" in name:
        return np.zeros(shape, drawing.dtype), "token types of 0"
    if "position" in name and shape and (given.rows is None or shape[-1] <= given.rows):
        return np.broadcast_to(np.arange(shape[-1]), shape).astype(drawing.dtype), "positions from 0"
    bits = drawing.dtype.itemsize * 8
    low, high, words = (0, 1, "0 and 1, since no range is known")
    if given.rows is not None:
        high, words = min(given.rows - 1, declared[1]), f"ids below {given.rows}"
    elif "byte" in name or bits == 8:
        low, high = (0, 255) if declared[1] >= 255 else declared
        words = f"whole numbers from {low} to {high}"
    return rng.integers(low, high, shape, drawing.dtype, endpoint=True), words
