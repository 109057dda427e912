"""A model and its inputs as the command line gives them: arrays, images and sounds in files, --shape, or drawn ones.
What does not fit the model is a ParameterError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from specgrad.bounded_files import read_npy, read_npz
from specgrad.errors import ParameterError, SpecgradError
from specgrad.graph.graph import Graph
from specgrad.interop.model import ANY_SIZE, Model
from specgrad.scalar import Array
from specgrad.window import Shape

MODEL_HELP = "An .onnx file, a saved graph (.json), or module:attribute (PyTorch)."
ModelName = Annotated[str, typer.Argument(help=MODEL_HELP)]
ArrayFiles = Annotated[
    list[Path] | None,
    typer.Option("--input", help="An .npy file per input, or one .npz file by names: shapes are taken."),
]
Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--input",
        help="A file per input (.npy, .png, .jpg, .wav), or one .npz file by names; "
        "default: inputs that the model accepts, seed 0, which are named.",
    ),
]
Preprocess = Annotated[
    str | None,
    typer.Option(
        "--preprocess",
        help="How images become numbers: imagenet (mean and deviation), unit (0 to 1) or raw (0 to 255).",
        autocompletion=lambda: ["imagenet", "unit", "raw"],
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Sizes of an input that the model leaves open: x=8,3,224,224; "
        "8,3,224,224 of the only input. May be given again.",
    ),
]

Fixed = Annotated[
    list[str] | None,
    typer.Option(
        "--fix",
        help="Read an ONNX file at a value of an input: sr=16000; it is a constant then. May be given again.",
    ),
]


def at_fixed(model: Model, texts: Sequence[str] | None) -> Model:
    """Return the model with the inputs of --fix (`texts`) at their values; ParameterError for what are no values."""
    values: dict[str, list[float]] = {}
    for text in texts or ():
        key, _, number = text.partition("=")
        try:
            numbers = [float(n) if set(n) & set(".eE") else int(n) for n in number.split(",")]
        except ValueError:
            raise ParameterError("--fix", f"must be a name and numbers, as sr=16000; got {text!r:.80}") from None
        if values.setdefault(key, numbers) != numbers:
            raise ParameterError("--fix", f"input {key} is given twice")
    return model.at_values({k: v[0] if len(v) == 1 else v for k, v in values.items()})


def complete_runtime(typed: str) -> list[str]:
    """Return the runtimes that begin with `typed`, for shell completion."""
    from specgrad.check import RUNTIMES

    return [name for name in RUNTIMES if name.startswith(typed)]


def requested_shapes(texts: Sequence[str], names: Sequence[str]) -> dict[str, Shape]:
    """Return the shapes of --shape (`texts`), by input, in the order of `names`.

    ParameterError for an input that is not there, not named among several, or given twice.

    >>> requested_shapes(["x=1,3,8,8", "mask=1"], ["x", "mask"])
    {'x': (1, 3, 8, 8), 'mask': (1,)}
    >>> requested_shapes(["mask=1", "x=1,3,8,8"], ["x", "mask"])
    {'x': (1, 3, 8, 8), 'mask': (1,)}
    >>> requested_shapes(["1,3,8,8"], ["x"])
    {'x': (1, 3, 8, 8)}
    """
    shapes: dict[str, Shape] = {}
    if texts and not names:
        raise ParameterError("--shape", f"the model takes no inputs; got {texts[0]!r:.80}")
    for text in texts:
        name, _, sizes = text.rpartition("=")
        if not name and len(names) != 1:
            raise ParameterError("--shape", f"the model takes {', '.join(names)}; say which: {names[0]}={text}")
        name = name or names[0]
        if name not in names:
            raise ParameterError("--shape", f"there is no input {name!r}; the model takes {', '.join(names)}")
        if shapes.setdefault(name, _sizes(text, sizes)) != _sizes(text, sizes):
            raise ParameterError("--shape", f"input {name} is given twice")
    return {name: shapes[name] for name in names if name in shapes}


def _sizes(text: str, sizes: str) -> Shape:
    """Parse sizes separated by commas; ParameterError, which quotes the option's `text`, if one is no positive
    integer.
    """
    parts = sizes.split(",")
    if not all(p.isascii() and p.isdigit() and len(p) < 14 and 0 < int(p) < 1 << 40 for p in parts):
        raise ParameterError(
            "--shape", f"must be whole numbers with commas between, as x=1,3,224,224; got {text!r:.80}"
        )
    return tuple(map(int, parts))


def shapes_of(model: Model, files: Sequence[Path], texts: Sequence[str]) -> dict[str, Shape]:
    """Return one shape per input of an ONNX model: that of its file, what --shape (`texts`) says, or what the model
    declares.

    ParameterError for another number of files than inputs, and where two of these disagree.
    """
    asked = requested_shapes(texts, model.names)
    if [file.suffix for file in files] == [".npz"]:
        arrays, files = _named_arrays(files[0], model), [files[0]] * len(model.inputs)
    elif len(files) in (0, len(model.inputs)):
        arrays = [read_npy(file) for file in files]
    else:
        raise ParameterError("--input", f"the model takes {len(model.inputs)} inputs; got {len(files)} files")
    for name, file, array in zip(model.names, files, arrays, strict=False):
        if asked.setdefault(name, array.shape) != array.shape:
            raise ParameterError("--shape", f"input {name} is to be {asked[name]}, and {file} has shape {array.shape}")
    return model.closed_shapes(asked)


def only_shape(model: Model, x: Path | None, texts: Sequence[str]) -> Shape | None:
    """Return what --shape (`texts`), or the array in file x to stay around, says of the only input; None where the
    model or the property will.
    """
    asked = requested_shapes(texts, model.names)
    dims = model.inputs[0].dims if model.inputs else ()
    if not asked and x is not None and len(model.inputs) == 1 and (dims is None or None in dims):
        shape = read_npy(x).shape
        if dims is None or len(shape) == len(dims):
            return shape
    model.closed_shapes(asked)  # says which size is missing
    return next(iter(asked.values()), None)


@dataclass(frozen=True)
class GivenInputs:
    """One array per input, and a sentence (`note`) on what was drawn, or made of images and sounds; "" for arrays in
    files.
    """

    arrays: list[Array]
    note: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentence as a tuple of one; () if there is none."""
        return (self.note,) if self.note else ()


def read_inputs(model: Model, files: Sequence[Path], texts: Sequence[str] = (), how: str | None = None) -> GivenInputs:
    """Return one array per file, or those of one .npz file; without files, inputs that the model accepts.

    ParameterError for another number of files than inputs, for names and sizes that are not those of the model or of
    --shape, and for a preprocessing (`how`) that nothing here has. `texts` are those of --shape.
    """
    names = model.names if model.kind != "torch" else model.names[: max(len(texts), len(files))]
    asked = requested_shapes(texts, [n for n in names if n])
    if not files:
        from specgrad.check.models.drawn_inputs import default_inputs

        drawn = default_inputs(model, asked, how=how)
        return GivenInputs(list(drawn.arrays), drawn.note)
    if [path.suffix for path in files] == [".npz"]:
        read = [(array, "") for array in _named_arrays(files[0], model)]
    else:
        if model.kind == "onnx" and len(files) != len(model.inputs):
            raise ParameterError("--input", f"the model takes {len(model.inputs)} inputs; got {len(files)} files")
        read = [_read_file(model, k, path, asked, how) for k, path in enumerate(files)]
    said = [words for _, words in read if words]
    if how is not None and not said:
        raise ParameterError("--preprocess", "nothing was given that it changes: it is for images")
    for (array, _), name, path in zip(
        read, model.names, files if len(files) > 1 else [files[0]] * len(read), strict=False
    ):
        if asked.get(name, array.shape) != array.shape:
            text = f"input {name} is to be {asked[name]}, and {path} has shape {array.shape}"
            raise ParameterError("--shape", text)
    return GivenInputs([array for array, _ in read], f"inputs: {'; '.join(said)}" if said else "")


def _read_file(model: Model, k: int, path: Path, asked: dict[str, Shape], how: str | None) -> tuple[Array, str]:
    """Return the array of one file for input k, and words for what was made of an image or a sound.

    `asked` are shapes by name, `how` is the preprocessing of images.
    """
    from specgrad.check.models.input_files import IMAGES, SOUNDS, read_media

    if path.suffix.lower() not in (*IMAGES, *SOUNDS):
        return read_npy(path), ""
    if k >= len(model.inputs):
        model.check_count([path] * (k + 1), "--input")
    wanted = model.inputs[k]
    return read_media(path, replace(wanted, dims=asked.get(wanted.name, wanted.dims)), how)


def _module_shapes(model: Model, files: Sequence[Path], texts: Sequence[str]) -> dict[str, Shape]:
    """Return what --shape (`texts`) says of a PyTorch module's arguments; ParameterError if there are neither shapes
    nor files.
    """
    if not files and not texts:
        text = "--input or --shape is needed for a PyTorch module: its shapes are not written anywhere"
        raise ParameterError("--input", text)
    return requested_shapes(texts, model.names[: max(len(texts), len(files))])


def read_samples(path: Path, array: str | None) -> Array | dict[str, Array]:
    """Return the samples of an .npy file, or those of an .npz file by name: the one called `array`, or all.

    FileError if it is no such file, or has no such array.
    """
    return read_npy(path) if path.suffix == ".npy" else read_npz(path, None if array is None else [array])


def as_graph(model: Model, files: Sequence[Path], texts: Sequence[str] = ()) -> Graph:
    """Return the graph of a model; the input files, or --shape (`texts`), give its shapes. A batch that nobody gives
    stays open.
    """
    if model.kind == "graph":
        return model.graph(requested_shapes(texts, [n for n in model.names if n]))
    if model.kind == "onnx":
        shapes = shapes_of(model, files, texts)
        return model.graph(shapes if files or texts else None)
    return model.graph_for(read_inputs(model, files, texts).arrays, "model")


def graph_of_shapes(model: Model, texts: Sequence[str]) -> Graph:
    """Return the graph of a model at shapes (--shape, `texts`) of any size: nobody runs it whole. A module's example is
    one cell, repeated.
    """
    if model.kind == "graph":
        return as_graph(model, [], texts).at()
    shapes = shapes_of(model, [], texts) if model.kind == "onnx" else _module_shapes(model, [], texts)
    return model.graph(shapes, largest_value=ANY_SIZE)


def input_shapes(model: Model, texts: Sequence[str]) -> list[Shape]:
    """Return one shape per input array: what --shape (`texts`) says, or what the model declares; only batch 1 is
    assumed.
    """
    if model.kind == "graph":
        graph = as_graph(model, [], texts).at()
        return [graph.nodes[p].shape for p in graph.input_positions]
    shapes = shapes_of(model, [], texts) if model.kind == "onnx" else _module_shapes(model, [], texts)
    return list(shapes.values())


def importable_graph(model: Model, files: Sequence[Path], texts: Sequence[str]) -> tuple[Graph, list[str]]:
    """Return the graph of a model, or of what is known of it, and notes: what was done to read it, what is passed over.

    Input files, or --shape (`texts`), give its shapes.
    """
    try:
        graph = as_graph(model, files, texts).at()
        return graph, [f"note: {text}" for text in (*model.notes, *getattr(graph, "notes", ()))]
    except SpecgradError:
        if model.kind != "onnx":
            raise
        part = model.part(shapes_of(model, files, texts))
        if not part.unexamined:
            raise
        passed = [f"not examined: {u.operator} {u.layer}: {u.reason}" for u in part.unexamined]
        return part, [*(f"note: {text}" for text in (*model.notes, *part.notes)), *passed]


def _named_arrays(path: Path, model: Model) -> list[Array]:
    """Return the arrays of an .npz file in the order of the model's inputs; ParameterError if it holds others.

    Those of inputs that --fix has fixed are left out.
    """
    arrays = {name: a for name, a in read_npz(path).items() if name not in model.fixed}
    names = model.names
    if set(arrays) != set(names):
        text = f"{path} must hold arrays {', '.join(names)}; it holds {', '.join(arrays) or 'none'}"
        raise ParameterError("--input", text)
    return [arrays[name] for name in names]
