"""Reads an ONNX model as a graph; sizes that it leaves open are read at their defaults, and again for every other size.

Inside such files shapes are computed from the sizes of the inputs by nodes of all kinds, so reading again is the
derivation that leaves nothing out. What is read again must be the same file.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from specgrad.errors import SpecgradError
from specgrad.graph.ir.node import INPUT, Node, Program
from specgrad.graph.ir.symbolic import SymbolicProgram
from specgrad.scalar import Array
from specgrad.window import Shape, SymbolicSize, size_at, symbolic, symbols_in

from ..file import BYTE_BUDGET, ByteBudget, ModelError, declared_size, read_model, shown
from .convert_node import TypesByName, UnsupportedNode, declared_values
from .importer import Importer, in_order, needed_before
from .model import OnnxGraph, import_model, run_model

Given = Mapping[str, Sequence[Any]]
MALFORMED = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


def from_onnx(
    model: Any,
    *,
    byte_budget: int = BYTE_BUDGET,
    largest_value: int | None = None,
    input_shapes: Mapping[str, Sequence[Any]] | None = None,
    partial: bool = False,
    declared: TypesByName | None = None,
    fixed: Mapping[str, Any] | None = None,
    block_channels: int | None = None,
) -> OnnxGraph:
    """Return the graph of an ONNX model.

    Weights of the result are constants (`trainable` names them), its layers carry the names of the ONNX nodes (of their
    first output where they have none), and `values` maps the name of an ONNX value to the position of the node that
    computes it.

    The model is not trusted. Sizes are computed in Python integers and compared with the budget before anything is
    allocated; external data is read from the model's own folder only, never through a link. Whatever is not honoured is
    refused by name, in one line.

    Parameters
    ----------
    model : path, bytes or ModelProto
        A model of opset 7 to 25.
    byte_budget : int, default 2147483648
        No single value, at 8 bytes a cell, and not all weights together may need more.
    largest_value : int, optional
        In place of `byte_budget` for the inputs and what is computed from them: of graphs that run in tiles
        only.
    input_shapes : mapping of str to sequence, optional
        Sizes for inputs whose declared shape leaves some open: {"x": (1, 3, 224, 224)}. A name leaves a size open in
        the graph too, for `Graph.at`: ("N", 3, "H=224", "W=224"). So does a first axis that the file leaves open; it is
        1 by default.
    partial : bool, default False
        Pass over nodes that have no meaning here, and list them in `unexamined`: what they read are further outputs of
        the graph, what they give are further inputs. Otherwise they are refused, all at once.
    declared : mapping, optional
        Shape and element type of values that such nodes give; default: what ONNX's shape inference finds.
    fixed : mapping of str to array, optional
        Values of inputs that are then no inputs of the graph, but constants: {"sr": 16000} of an integer that branches
        or shapes depend on.
    block_channels : int, optional
        8 or 16: what a block of com.microsoft.nchwc has, where the file does not show it.

    Returns
    -------
    OnnxGraph
        A Graph.

    Raises
    ------
    SpecgradError
        For whatever is not honoured ([P5]): an UnsupportedError, a ParameterError, a ShapeError or a FileError.
    MissingPackageError
        Without the package `onnx`.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None if n == "y" else [1, 1, 4]) for n in "xy")
    >>> pool = helper.make_node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2], strides=[2])
    >>> model = helper.make_model(helper.make_graph([pool], "net", [x], [y]))
    >>> graph = from_onnx(model)
    >>> graph(np.array([[[1.0, 3.0, 2.0, 5.0]]]))
    array([[[3., 5.]]])
    >>> graph.nodes[graph.values["y"]].name
    'pool'
    """
    try:
        proto, folder = read_model(model, byte_budget)
        proto, notes = _plain_with_notes(proto, fixed)
        given = input_shapes or {}
        if partial:
            declared = declared_values(proto, given) if declared is None else declared
        elif open_inputs := open_shapes(proto, given):
            names = [t.name for t in proto.graph.initializer]
            read = functools.partial(_import_at_sizes, byte_budget, fixed, block_channels)
            return import_open(read, model, given, open_inputs, names)
        budget = ByteBudget(byte_budget, largest_value)
        return import_model(proto, folder, budget, given, partial, declared or {}, notes, block_channels)
    except SpecgradError:
        raise
    except MALFORMED as error:  # the last net under files that no rule above has met
        raise ModelError(f"malformed model ({type(error).__name__}: {error})") from error


def _plain_with_notes(
    model: onnx.ModelProto, fixed: Mapping[str, Any] | None
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return the model in plain form, with inputs `fixed`, and notes on what was done; most files are plain."""
    if not (fixed or len(model.functions)) and in_order(needed_before(model.graph.node)):
        return model, ()
    from ..plain import plain_model

    return plain_model(model, fixed)


def examine(
    model: onnx.ModelProto,
    folder: Path | None,
    skipped_types: TypesByName,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    byte_budget: int = BYTE_BUDGET,
) -> tuple[Importer, list[UnsupportedNode]]:
    """Return the importer, which knows every value (shape, type, constant array), and the nodes that were skipped.

    Values that no output needs are there too, which a graph leaves out. `skipped_types` has shape and element type of
    values that skipped nodes compute: reading goes on behind them. `input_shapes` closes open sizes; `byte_budget`
    limits the bytes of each value, and of all weights and constants together. ModelError for a malformed model.
    """
    try:
        given = input_shapes or {}
        importer, _, passed = run_model(
            _plain_with_notes(model, None)[0], folder, ByteBudget(byte_budget), given, skipped_types
        )
        return importer, passed
    except SpecgradError:
        raise
    except MALFORMED as error:
        raise ModelError(f"malformed model ({type(error).__name__}: {error})") from error


def input_dims(model: Any, *, byte_budget: int = BYTE_BUDGET) -> dict[str, list[int | None] | None]:
    """Return the sizes that an ONNX model declares for its inputs, by name; None for an open size or an open shape.
    ModelError for files above `byte_budget` bytes.
    """
    return _declared_dims(read_model(model, byte_budget)[0])


def declared_inputs(proto: onnx.ModelProto) -> list[tuple[str, list[int | None] | None, str | None]]:
    """Return (name, sizes, NumPy's name of the type) of every input that is no initializer; None for what is open."""
    types = {i.name: i.type.tensor_type.elem_type for i in proto.graph.input}
    return [(name, dims, _numpy_name(types[name])) for name, dims in _declared_dims(proto).items()]


def _numpy_name(elem_type: int) -> str | None:
    """Return NumPy's name of the ONNX element type `elem_type`; None for a type that ONNX does not know."""
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)).name if elem_type else None
    except (KeyError, TypeError, ValueError):
        return None


def _import_at_sizes(
    byte_budget: int,
    fixed: Mapping[str, Any] | None,
    block_channels: int | None,
    model: Any,
    input_shapes: Mapping[str, Sequence[int]],
) -> OnnxGraph:
    """Import the model at fixed input shapes, within `byte_budget` bytes; for models with symbolic sizes.

    SpecgradError, in the words of `from_onnx`, for what it refuses.
    """
    return from_onnx(
        model, byte_budget=byte_budget, input_shapes=input_shapes, fixed=fixed, block_channels=block_channels
    )


# --- sizes that are left open -----------------------------------------------------------------------------------------


def _declared_dims(model: onnx.ModelProto) -> dict[str, list[int | None] | None]:
    """Return the declared sizes of the inputs by name; None for an open size, or for an undeclared shape."""
    initial = {t.name for t in model.graph.initializer}
    return {
        i.name: [declared_size(d) for d in i.type.tensor_type.shape.dim]
        if i.type.tensor_type.HasField("shape")
        else None
        for i in model.graph.input
        if i.name not in initial
    }


def open_shapes(model: onnx.ModelProto, given: Given) -> dict[str, tuple[Any, ...]]:
    """Return the shapes of the inputs that have a symbolic size: named in `given`, or an open batch axis."""
    initial = {t.name for t in model.graph.initializer}
    symbols: dict[str, SymbolicSize] = {}
    shapes = {i.name: _symbolic_shape(i, given, symbols) for i in model.graph.input if i.name not in initial}
    return {name: s for name, s in shapes.items() if any(isinstance(n, SymbolicSize) for n in s)}


def _symbolic_shape(info: onnx.ValueInfoProto, given: Given, symbols: dict[str, SymbolicSize]) -> tuple[Any, ...]:
    """Return the shape of the input `info`: as in `given`, where names are symbolic sizes, else as declared.

    An open batch axis becomes a symbolic size. New ones are entered in `symbols`; None for another open size.
    """
    if info.name in given:
        return tuple(_symbolic_size(n, symbols) if isinstance(n, str) else n for n in given[info.name])
    dims = list(info.type.tensor_type.shape.dim)
    sizes: list[Any] = [declared_size(d) for d in dims]
    if sizes and sizes[0] is None and None not in sizes[1:]:
        name = dims[0].dim_param if dims[0].dim_param.isidentifier() else _unused_name(symbols)
        sizes[0] = _symbolic_size(name, symbols)
    return tuple(sizes)


def _symbolic_size(text: str, symbols: dict[str, SymbolicSize]) -> SymbolicSize:
    """Return the symbolic size of this name from `symbols`, where a new one is entered.

    ShapeError for a name that is none.
    """
    size = symbolic(text)
    (symbol,) = symbols_in(size)
    return symbols.setdefault(symbol.name, size)


def _unused_name(symbols: Mapping[str, SymbolicSize]) -> str:
    """Return a name, not among `symbols`, for an axis without one."""
    return "N" if "N" not in symbols else next(f"N_{k}" for k in range(2, 10**6) if f"N_{k}" not in symbols)


@dataclass(frozen=True, eq=False)
class Reimport:
    """Imports a model again at other sizes, if the file is unchanged; weights are those of the first import.

    read      imports a source at given shapes or arrays of inputs
    source    the file's path, or its bytes; `digest` is the SHA-256 of what was read first
    given     what the caller says of inputs, by name
    shapes    symbolic shapes, by input name
    weights   parameters of the first import, by name
    """

    read: Callable[..., OnnxGraph]
    source: Any
    digest: str
    given: Given
    shapes: Mapping[str, tuple[Any, ...]]
    weights: Mapping[str, Array]

    def __call__(self, sizes: Mapping[str, int]) -> OnnxGraph:
        if _model_digest(self.source) != self.digest:
            raise ModelError(f"{shown(str(self.source))} has changed since it was read; read it again")
        graph = self.read(self.source, {**self.given, **_shapes_at(self.shapes, sizes)})
        again = _initializer_values(graph, self.weights)
        for name, array in again.items():
            if array.dtype != object and array.tobytes() != self.weights[name].tobytes():
                raise ModelError(f"the data of {shown(name)} has changed since it was read; read the model again")
        first = {graph.values[name]: self.weights[name] for name in again}
        return replace(graph, constants={**graph.constants, **first})


def _initializer_values(graph: OnnxGraph, names: Iterable[str]) -> dict[str, Array]:
    """Return the constants of the graph that hold the initializers `names`, by name."""
    places = {name: graph.values[name] for name in names if name in graph.values}
    return {name: graph.constants[p] for name, p in places.items() if p in graph.constants}


def _shapes_at(shapes: Mapping[str, tuple[Any, ...]], sizes: Mapping[str, int]) -> dict[str, Shape]:
    """Return the shapes, by input, with their symbols replaced by the numbers in `sizes`."""
    return {name: tuple(size_at(n, sizes) for n in shape) for name, shape in shapes.items()}


def _model_digest(source: str | os.PathLike[str] | bytes) -> str:
    """Return the SHA-256 of a model's bytes, in hexadecimal digits; `source` is the path of its file, or the bytes
    themselves.
    """
    data = Path(source).read_bytes() if isinstance(source, str | os.PathLike) else bytes(source)
    return hashlib.sha256(data).hexdigest()


def import_open(
    read: Callable[..., OnnxGraph], source: Any, given: Given, shapes: Mapping[str, Any], initializers: Iterable[str]
) -> OnnxGraph:
    """Return the graph at the default sizes; for other sizes it imports the file again.

    read           imports a source at given shapes or arrays of inputs
    given          what the caller says of inputs, by name
    shapes         symbolic shapes, by input name
    initializers   names of the parameters in the file
    """
    source = source.SerializeToString() if isinstance(source, onnx.ModelProto) else source
    digest = _model_digest(source)
    defaults = {s.name: s.default for shape in shapes.values() for n in shape for s in symbols_in(n)}
    graph = read(source, {**given, **_shapes_at(shapes, defaults)})
    weights = _initializer_values(graph, initializers)
    nodes = [graph.nodes[p] for p in graph.input_positions]
    inputs = tuple(Node(INPUT, (), {}, shapes.get(n.name, n.shape), n.kind, n.name, n.name) for n in nodes)
    program = Program(inputs, graph.names, tuple(range(len(inputs))), (), graph.single, {})
    return replace(
        graph, open=SymbolicProgram(program, reimport=Reimport(read, source, digest, given, shapes, weights))
    )
