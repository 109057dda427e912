"""Loads the model and the inputs that a user names on the command line."""

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

from .shape_option import Dims, complete_shapes, requested_shapes

ANY_SIZE = 1 << 80  # bytes of a value that is never there at once


def load_model(name: str) -> Any:
    """Return the path of an ONNX file, a saved graph, or the PyTorch module of package.module:attribute."""
    if ":" in name and not Path(name).exists():
        return _load_module(name)
    path = Path(name)
    if not path.is_file():
        raise ParameterError("model", f"no file {name}; give an .onnx file, a saved graph (.json) or module:attribute")
    return load(path) if path.suffix == ".json" else str(path)


def _load_module(name: str) -> Any:
    """Import a PyTorch module, or call a function without arguments for it; the current folder is searched too."""
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
    """Return the declared shapes of an ONNX model's inputs; None stands for an open size or rank."""
    from specgrad.interop.onnx import input_dims

    return input_dims(model)


def shapes_of(model: str, files: Sequence[Path], texts: Sequence[str]) -> dict[str, Shape]:
    """Return one shape per input of an ONNX model: of its file, of --shape, or declared."""
    declared = declared_shapes(model)
    requested = requested_shapes(texts, list(declared))
    if len(files) not in (0, len(declared)):
        raise ParameterError("--input", f"the model takes {len(declared)} inputs; got {len(files)} files")
    for name, file in zip(declared, files, strict=False):
        shape = read_array(file).shape
        if requested.setdefault(name, shape) != shape:
            raise ParameterError("--shape", f"input {name} is to be {requested[name]}, and {file} has shape {shape}")
    return complete_shapes(declared, requested)


def only_shape(model: str, x: Path | None, texts: Sequence[str]) -> Shape | None:
    """Return the shape of the only input by --shape or the array `x`; None if model or property decide."""
    declared = declared_shapes(model)
    requested = requested_shapes(texts, list(declared))
    dims = next(iter(declared.values()), ())
    if not requested and x is not None and len(declared) == 1 and (dims is None or None in dims):
        shape = read_array(x).shape
        if dims is None or len(shape) == len(dims):
            return shape
    complete_shapes(declared, requested)  # says which size is missing
    return next(iter(requested.values()), None)


def read_inputs(model: Any, files: Sequence[Path], texts: Sequence[str] = ()) -> list[Array]:
    """Return the float32 array of every .npy file; without files, standard normal numbers of seed 0."""
    shapes = shapes_of(model, files, texts) if isinstance(model, str) else _module_shapes(model, files, texts)
    if files:
        return [read_array(path) for path in files]
    return normal_inputs(shapes.values())


def _module_shapes(module: Any, files: Sequence[Path], texts: Sequence[str]) -> dict[str, Shape]:
    """Return the shapes by --shape of a PyTorch module's arguments."""
    if not files and not texts:
        text = "--input or --shape is needed for a PyTorch module: its shapes are not written anywhere"
        raise ParameterError("--input", text)
    names = list(inspect.signature(module.forward).parameters)[: max(len(texts), len(files))]
    return requested_shapes(texts, names)


def read_array(path: Path) -> Array:
    """Return the array of an .npy file; ParameterError if it is invalid or shorter than its header claims."""
    if not path.is_file():
        raise ParameterError("--input", f"no file {path}")
    try:
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError, OSError, BadZipFile) as error:
        raise ParameterError("--input", f"{path} is no .npy file: {error}") from None


def as_graph(model: Any, files: Sequence[Path], texts: Sequence[str] = ()) -> Graph:
    """Return the graph of a model, at the shapes of the inputs or of --shape; other batch sizes stay symbolic."""
    if isinstance(model, Graph):
        requested = requested_shapes(texts, [n for n in model.names if n])
        return model.at(**requested) if requested else model
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
    """Return the graph of a model at shapes of any size, since it is not run whole."""
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


def importable_graph(model: Any, files: Sequence[Path], texts: Sequence[str]) -> tuple[Graph, list[str]]:
    """Return the graph of a model, or of its importable part, and a note per node that is left out."""
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
    """Return one array per input, of any type: .npy files, one .npz file by names, or normal numbers."""
    if [path.suffix for path in files] == [".npz"]:
        arrays = _read_archive(files[0])
        names = input_names(model)
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


def input_names(model: Any) -> list[str]:
    """Return the names of a model's inputs."""
    if isinstance(model, Graph):
        return list(model.names)
    if isinstance(model, str):
        return list(declared_shapes(model))
    return list(inspect.signature(model.forward).parameters)


def _read_archive(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz file by name."""
    if not path.is_file():
        raise ParameterError("--input", f"no file {path}")
    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: np.array(data[name]) for name in data.files}
    except (ValueError, EOFError, OSError, BadZipFile) as error:
        raise ParameterError("--input", f"{path} is no .npz file: {error}") from None
