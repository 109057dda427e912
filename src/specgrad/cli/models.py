"""What a user names on the command line: a model and its inputs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ..errors import ParameterError
from ..graph.graph import Graph
from ..graph.save import load
from ..scalar import Array


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
    package, _, attribute = name.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(package), attribute)
    except (ImportError, AttributeError) as error:
        raise ParameterError("model", f"cannot import {name}: {error}") from None
    finally:
        sys.path.remove("")
    return found if hasattr(found, "state_dict") and not isinstance(found, type) else found().eval()


def input_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """The declared shapes of an ONNX model's inputs; an open dimension counts as 1."""
    from ..interop.onnx_file import BYTE_BUDGET, read_model

    file, _ = read_model(model, BYTE_BUDGET)
    initial = {t.name for t in file.graph.initializer}
    return {
        i.name: tuple(d.dim_value or 1 for d in i.type.tensor_type.shape.dim)
        for i in file.graph.input
        if i.name not in initial
    }


def read_inputs(model: Any, files: Sequence[Path]) -> list[Array]:
    """One float32 array per .npy file; without files, standard normal numbers of a fixed seed."""
    if files:
        return [read_array(path) for path in files]
    if not isinstance(model, str):
        raise ParameterError("--input", "needed for a PyTorch module: its shapes are not written anywhere")
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for shape in input_shapes(model).values()]


def read_array(path: Path) -> Array:
    """The array of an .npy file. It is mapped, so a header that claims more cells than there are is refused at once."""
    if not path.is_file():
        raise ParameterError("--input", f"no file {path}")
    try:
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, EOFError, OSError, BadZipFile) as error:
        raise ParameterError("--input", f"{path} is no .npy file: {error}") from None


def as_graph(model: Any, files: Sequence[Path]) -> Graph:
    """The meaning of a model; the inputs give its shapes."""
    if isinstance(model, Graph):
        return model
    if isinstance(model, str):
        from ..interop import from_onnx

        shapes = input_shapes(model)
        if files:
            shapes = {n: read_array(f).shape for n, f in zip(shapes, files, strict=True)}
        graph: Graph = from_onnx(model, input_shapes=shapes)
        return graph
    import torch

    from ..interop import from_torch

    found: Graph = from_torch(model, *(torch.from_numpy(a) for a in read_inputs(model, files)))
    return found
