"""What a user names on the command line: a model and its inputs."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from specgrad.check.models.inputs import normal_inputs
from specgrad.errors import ParameterError, SpecgradError, need
from specgrad.graph.files.save import load
from specgrad.graph.graph import Graph
from specgrad.scalar import Array
from specgrad.window import Shape

from .shape_option import Dims, asked_shapes, closed_shapes

ANY_SIZE = 1 << 80  # bytes of a value that is never there at once


def load_model(name: str) -> Any:
    """An ONNX file's path, a saved graph, or a PyTorch module given as package.module:attribute."""
    if ":" in name and not Path(name).exists():
        return _module(name)
    path = Path(name)
    if not path.is_file():
        raise ParameterError("model", f"no file {name}; give an .onnx file, a saved graph (.json) or module:attribute")
    return load(path) if path.suffix == ".json" else str(path)


def _module(name: str) -> Any:
    """A module, or what a function of no arguments returns; the current folder is searched too."""
    need("torch", "PyTorch modules need")
    package, _, attribute = name.partition(":")
    sys.path.insert(0, "")
    try:
        module = getattr(importlib.import_module(package), attribute)
        module = module if hasattr(module, "state_dict") and not isinstance(module, type) else module().eval()
    except (Exception, SystemExit) as error:  # it is the user's program, whatever it does
        raise ParameterError("model", f"cannot take {name} as a PyTorch module: {error!r:.300}") from error
    finally:
        sys.path.remove("")
    if not hasattr(module, "state_dict"):
        raise ParameterError("model", f"{name} is no PyTorch module; got {type(module).__name__}")
    return module


def declared_shapes(model: str) -> Mapping[str, Dims]:
    """The declared shapes of an ONNX model's inputs; None stands for what it leaves open."""
    from specgrad.interop.onnx import input_dims

    return input_dims(model)


def shapes_of(model: str, files: Sequence[Path], texts: Sequence[str]) -> dict[str, Shape]:
    """One shape per input of an ONNX model: that of its file, what --shape says, or what the model declares."""
    declared = declared_shapes(model)
    asked = asked_shapes(texts, list(declared))
    if len(files) not in (0, len(declared)):
        raise ParameterError("--input", f"the model takes {len(declared)} inputs; got {len(files)} files")
    for name, file in zip(declared, files, strict=False):
        shape = read_array(file).shape
        if asked.setdefault(name, shape) != shape:
            raise ParameterError("--shape", f"input {name} is to be {asked[name]}, and {file} has shape {shape}")
    return closed_shapes(declared, asked)


def only_shape(model: str, x: Path | None, texts: Sequence[str]) -> Shape | None:
    """What --shape, or the array to stay around, says of the only input; None where the model or the property will."""
    declared = declared_shapes(model)
    asked = asked_shapes(texts, list(declared))
    dims = next(iter(declared.values()), ())
    if not asked and x is not None and len(declared) == 1 and (dims is None or None in dims):
        shape = read_array(x).shape
        if dims is None or len(shape) == len(dims):
            return shape
    closed_shapes(declared, asked)  # says which size is missing
    return next(iter(asked.values()), None)


def read_inputs(model: Any, files: Sequence[Path], texts: Sequence[str] = ()) -> list[Array]:
    """One float32 array per .npy file; without files, standard normal numbers of a fixed seed."""
    shapes = shapes_of(model, files, texts) if isinstance(model, str) else _module_shapes(model, files, texts)
    if files:
        return [read_array(path) for path in files]
    return normal_inputs(shapes.values())


def _module_shapes(module: Any, files: Sequence[Path], texts: Sequence[str]) -> dict[str, Shape]:
    """What --shape says of a PyTorch module's arguments."""
    if not files and not texts:
        text = "--input or --shape is needed for a PyTorch module: its shapes are not written anywhere"
        raise ParameterError("--input", text)
    names = list(inspect.signature(module.forward).parameters)[: max(len(texts), len(files))]
    return asked_shapes(texts, names)


def read_array(path: Path) -> Array:
    """The array of an .npy file. It is mapped, so a header that claims more cells than there are is refused at once."""
    if not path.is_file():
        raise ParameterError("--input", f"no file {path}")
    try:
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError, OSError, BadZipFile) as error:
        raise ParameterError("--input", f"{path} is no .npy file: {error}") from None


def as_graph(model: Any, files: Sequence[Path], texts: Sequence[str] = ()) -> Graph:
    """The meaning of a model; the inputs, or --shape, give its shapes. A batch that nobody gives stays open."""
    if isinstance(model, Graph):
        asked = asked_shapes(texts, [n for n in model.names if n])
        return model.at(**asked) if asked else model
    if isinstance(model, str):
        from specgrad.interop import from_onnx

        shapes = shapes_of(model, files, texts)
        graph: Graph = from_onnx(model, input_shapes=shapes if files or texts else None)
        return graph
    import torch

    from specgrad.interop import from_torch

    traced: Graph = from_torch(model, *(torch.from_numpy(a) for a in read_inputs(model, files, texts)))
    return traced


def graph_of_shapes(model: Any, texts: Sequence[str]) -> Graph:
    """The meaning of a model at shapes of any size: nobody runs it whole. A module's example is one cell, repeated."""
    if isinstance(model, Graph):
        return as_graph(model, [], texts).at()
    if isinstance(model, str):
        from specgrad.interop import from_onnx

        read: Graph = from_onnx(model, input_shapes=shapes_of(model, [], texts), largest_value=ANY_SIZE)
        return read
    import torch

    from specgrad.interop import from_torch

    shapes = _module_shapes(model, [], texts)
    graph: Graph = from_torch(model, *(torch.zeros(()).expand(shape) for shape in shapes.values()))
    return graph


def known_part(model: Any, files: Sequence[Path], texts: Sequence[str]) -> tuple[Graph, list[str]]:
    """The meaning of a model, or of what is known of it, and a line per node that is passed over."""
    try:
        return as_graph(model, files, texts).at(), []
    except SpecgradError:
        if not isinstance(model, str):
            raise
        from specgrad.interop import from_onnx

        part = from_onnx(model, input_shapes=shapes_of(model, files, texts), partial=True)
        if not part.unexamined:
            raise
        return part, [f"not examined: {u.operator} {u.layer}: {u.reason}" for u in part.unexamined]


def named_inputs(model: Any, files: Sequence[Path], texts: Sequence[str]) -> list[Array]:
    """As `read_inputs`, of any type; a single .npz file holds them all, by their names. Saved graphs take them too."""
    if [path.suffix for path in files] == [".npz"]:
        arrays = _archive(files[0])
        names = names_of(model)
        if set(arrays) != set(names):
            text = f"{files[0]} must hold arrays {', '.join(names)}; it holds {', '.join(arrays) or 'none'}"
            raise ParameterError("--input", text)
        return [arrays[name] for name in names]
    if files:
        return [read_array(path) for path in files]
    if not isinstance(model, Graph):
        return read_inputs(model, files, texts)
    graph = as_graph(model, files, texts).at()
    return normal_inputs(graph.nodes[p].shape for p in graph.input_positions)


def names_of(model: Any) -> list[str]:
    """Of its inputs."""
    if isinstance(model, Graph):
        return list(model.names)
    if isinstance(model, str):
        return list(declared_shapes(model))
    return list(inspect.signature(model.forward).parameters)


def _archive(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise ParameterError("--input", f"no file {path}")
    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: np.array(data[name]) for name in data.files}
    except (ValueError, EOFError, OSError, BadZipFile) as error:
        raise ParameterError("--input", f"{path} is no .npz file: {error}") from None
