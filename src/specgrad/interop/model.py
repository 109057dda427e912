"""The one gate: a path, bytes, a PyTorch module or a graph becomes one `Model` - its inputs, its graph at given sizes.

What is refused is refused here, in one wording: an unknown kind of model, another number of inputs, a shape that does
not fit, a size that nobody gives, operators without a meaning. Running a model on a runtime is `check.models`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import ParameterError, ShapeError, SpecgradError, UnsupportedError, need
from ..graph.files.save import load
from ..graph.graph import Graph
from ..graph.ir.tree import Tree, match, transform
from ..scalar import Array
from ..window import Shape

Dims = Sequence[int | None] | None
"""Declared sizes of an input: None for one that is left open, or in place of all where the rank is open too."""
ANY_SIZE = 1 << 80  # bytes of a value that is never in memory at once
LARGEST_INSIDE = 1 << 16
"""The most bytes of a tensor of external data that is put into the file; shapes and axes, which have few, are read
there.
"""


@dataclass(frozen=True)
class ModelInput:
    """One input as the model declares it: `dims` are its sizes, None where open or undeclared; dtype is NumPy's name,
    None where nothing declares one.
    """

    name: str
    dims: Dims = None
    dtype: str | None = None

    @property
    def range(self) -> tuple[int, int] | None:
        """The least and the largest number that the type holds, of integers and bool; None: no range is declared.

        >>> ModelInput("x", [1], "uint8").range, ModelInput("x", [1], "int4").range, ModelInput("x").range
        ((0, 255), (-8, 7), None)
        """
        if self.dtype == "bool":
            return 0, 1
        if not (integer := re.fullmatch(r"(u?)int(\d+)", self.dtype or "")):
            return None
        bits = int(integer[2])
        return (0, 2**bits - 1) if integer[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@dataclass(frozen=True, eq=False)
class Model:
    """A network that a user gave.

    source  a Graph, an ONNX file (path, bytes, ModelProto) or a PyTorch module
    title   the file's name, or the class of the module or graph; "model" of bytes and of a ModelProto
    kind    which of these it is
    fixed   values of inputs of an ONNX file that are constants from here on: `inputs` and `proto` are without them
    block_channels   what a block of com.microsoft.nchwc is read as, where an ONNX file does not show it
    """

    source: Any
    kind: Literal["graph", "onnx", "torch"]
    title: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    block_channels: int | None = None

    def at_values(self, values: Mapping[str, Any]) -> Model:
        """The model with some of its inputs at these values, by name; ParameterError unless it is an ONNX file."""
        if not values:
            return self
        if self.kind != "onnx":
            raise ParameterError("fix", "inputs of ONNX files alone are fixed at a value", rule="P5")
        model = replace(self, fixed={**self.fixed, **values})
        _ = model.file  # refused before the work
        return model

    def at_scalars(self, inputs: Sequence[Any]) -> tuple[Model, list[Any]]:
        """An ONNX file at the values of those inputs that are one integer each or count keys, and the other inputs.

        Such an input steers what a model does (a sampling rate, a mask of past keys): what holds of given inputs is
        said at it.
        ParameterError unless it is an ONNX file.
        """
        if self.kind != "onnx" or len(inputs) != len(self.inputs):
            return self, list(inputs)
        from .onnx.input_use import inputs_that_count

        steering = inputs_that_count(self.file)
        pairs = zip(self.inputs, inputs, strict=True)
        scalars = {i.name: a for i, a in pairs if _is_one_integer(a) or i.name in steering}
        rest = [a for i, a in zip(self.inputs, inputs, strict=True) if i.name not in scalars]
        return self.at_values(scalars), rest

    @property
    def leaves_blocks_open(self) -> bool:
        """Whether it is an ONNX file in blocks of channels (com.microsoft.nchwc) that does not show how many these are,
        and nobody has said it.
        """
        if self.kind != "onnx" or self.block_channels is not None:
            return False
        from .onnx.read.model import leaves_blocks_open

        return leaves_blocks_open(self.file.graph)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes that every result of this model carries: the values at which inputs are fixed."""
        values = (f"{name} = {np.asarray(value).tolist()!s:.80}" for name, value in self.fixed.items())
        return (f"read at {', '.join(values)}",) if self.fixed else ()

    @cached_property
    def inputs(self) -> tuple[ModelInput, ...]:
        """The inputs in order, one per array; of a module the parameters of `forward`, with open sizes."""
        if self.kind == "graph":
            program = self.source if self.source.open is None else self.source.open.program
            nodes = [program.nodes[p] for p in program.input_positions]
            return tuple(ModelInput(n.name, [d if isinstance(d, int) else None for d in n.shape]) for n in nodes)
        if self.kind == "onnx":
            from .onnx import declared_inputs

            return tuple(ModelInput(*each) for each in declared_inputs(self.file))
        return tuple(ModelInput(parameter.name) for parameter in self._parameters)

    @property
    def names(self) -> list[str]:
        """The names of the inputs; of a graph those of its arguments, each of which may be a structure of arrays."""
        return list(self.source.names) if self.kind == "graph" else [i.name for i in self.inputs]

    def closed_shapes(self, asked: Mapping[str, Shape]) -> dict[str, Shape]:
        """One shape per input: as asked, else as declared with an open batch of 1.

        ParameterError for another open size.
        """
        return {i.name: asked[i.name] if i.name in asked else _at_batch_one(i) for i in self.inputs}

    def graph(self, shapes: Mapping[str, Sequence[int]] | None = None, *, largest_value: int | None = None) -> Graph:
        """The graph at these shapes of inputs; without them at those declared, and a batch that is open stays open.

        ParameterError where a size is not known.

        shapes          by the names of inputs; of a PyTorch module one per argument, in order
        largest_value   bytes that a value may need, of graphs that nobody runs whole (ANY_SIZE)
        """
        if self.kind == "graph":
            refuse_parts(self.source, "model")
            graph: Graph = self.source.at(**shapes) if shapes else self.source
            return graph
        if self.kind == "onnx":
            from .onnx import from_onnx

            read: Graph = from_onnx(
                self.source,
                input_shapes=shapes,
                largest_value=largest_value,
                fixed=self.fixed,
                block_channels=self.block_channels,
            )
            return read
        if not shapes:
            text = "the shapes of a PyTorch module are written nowhere; give inputs or shapes"
            raise ParameterError("model", text, rule="P5")
        import torch

        from .torch.formats import float_type

        kind = getattr(torch, float_type(self.source))
        return self._trace_module([torch.zeros((), dtype=kind).expand(shape) for shape in shapes.values()])

    def graph_for(self, inputs: Sequence[Any], who: str) -> Graph:
        """The whole graph at the sizes of these inputs (arrays, or structures of them for a Graph's arguments).

        Refused: inputs that do not fit, operators without a meaning, graphs from which an import left some out. `who`
        names the caller in errors.
        """
        if self.kind == "graph":
            refuse_parts(self.source, who)
        arrays = self.arrays(inputs, who)
        if self.kind == "torch":
            from .torch.formats import float_type

            kind = float_type(self.source)  # a meaning does not depend on the numbers, and tracing asks for this type
            return self._trace_module([_stand_in(a.shape, kind if a.dtype.kind == "f" else a.dtype) for a in arrays])
        if self.kind == "onnx":
            shapes = {i.name: a.shape for i, a in zip(self.inputs, arrays, strict=True)}
            for i in self.inputs:
                _check_shape(i.name, shapes[i.name], i.dims, who)
            return self.graph(shapes)
        graph: Graph = self.source
        dims = dict(zip(graph.input_positions, (i.dims for i in self.inputs), strict=True))
        for name, pattern, tree in zip(graph.names, graph.inputs, arrays, strict=True):
            for path, position, array in match(pattern, tree, name):
                _check_shape(path, array.shape, dims[position], who)
        return graph.fitted(arrays)

    def arrays(self, inputs: Sequence[Any], who: str) -> tuple[Tree, ...]:
        """What was given for every input as an array of numbers; for a Graph's argument, in its structure.

        Refused: another number of inputs, another structure, what holds no numbers. `who` names the caller in errors.
        """
        self.check_count(inputs, who)
        if self.kind != "graph":
            names = [*self.names, *(str(k) for k in range(len(inputs)))]  # of a module that takes any number
            return tuple(array_of(given, name, who) for name, given in zip(names, inputs, strict=False))

        def filled(name: str, pattern: Tree, tree: Tree) -> Tree:
            leaves = {path: leaf for path, _, leaf in match(pattern, tree, name)}
            return transform(lambda path, _: array_of(leaves[path], path, who), pattern, name)

        return tuple(map(filled, self.source.names, self.source.inputs, inputs))

    def part(self, shapes: Mapping[str, Shape], declared: Any = None) -> Any:
        """An ONNX file's graph without the nodes that have no meaning here, which `unexamined` of the graph lists.

        SpecgradError for a file that cannot be read.

        declared   shape and ONNX element type of values that such nodes give, by name; None: as ONNX infers them
        shapes     those of the inputs, by name
        """
        from .onnx import from_onnx

        return from_onnx(self.source, input_shapes=shapes, partial=True, declared=declared, fixed=self.fixed)

    def formats(self, graph: Graph) -> Mapping[str, str]:
        """Name of a node -> the format that a runtime computes it in, where that is not float32."""
        return getattr(self.source if self.kind == "graph" else graph, "formats", {})

    @cached_property
    def proto(self) -> Any:
        """The ModelProto of an ONNX file in plain form: its bytes are all that a runtime needs which works in
        `folder`.
        """
        return self.whole(self.file)

    def whole(self, file: Any) -> Any:
        """This file, or one that was made of it, with functions inlined, nodes in order and external data inside, but
        for large tensors, which stay in the file's folder.

        ModelError for external data of a type that is not read, or beyond the budget.
        """
        from .onnx.file import BYTE_BUDGET, with_external_data
        from .onnx.plain import plain_model

        return with_external_data(plain_model(file)[0], self._read[1], BYTE_BUDGET, LARGEST_INSIDE)

    @cached_property
    def folder(self) -> Path | None:
        """The folder in which runtimes find the tensors that `proto` leaves outside; None: it leaves none."""
        from .onnx.file import external_files

        return self._read[1] if external_files(self.proto) else None

    @cached_property
    def file(self) -> Any:
        """The ModelProto of an ONNX file as it stands, but for fixed inputs; external data outside.

        ParameterError for a fixed value that its declaration does not hold.
        """
        if not self.fixed:
            return self._read[0]
        from .onnx.plain import with_fixed_inputs

        return with_fixed_inputs(self._read[0], self.fixed)

    @property
    def changed_file(self) -> str:
        """The name of a file of the model, or of its tensors, that was changed after it was first read; "" for none."""
        from .onnx.file import file_states

        proto, _, states = self._read
        now = file_states(self.source, proto)
        return next((name for name in states if now[name] != states[name]), "")

    @cached_property
    def _read(self) -> tuple[Any, Path | None, Mapping[str, tuple[int, ...]]]:
        """The ModelProto, the folder that its external data must lie in, and the states of its files.

        ParameterError for a model that is no ONNX file.
        """
        if self.kind != "onnx":
            text = f"the model must be an ONNX file; got {type(self.source).__name__}"
            raise ParameterError("model", text, rule="P5")
        from .onnx.file import BYTE_BUDGET, file_states, read_model

        proto, folder = read_model(self.source, BYTE_BUDGET)
        return proto, folder, file_states(self.source, proto)

    def check_count(self, inputs: Sequence[Any], who: str) -> None:
        """Raise ParameterError, in the name of `who`, for another number of inputs than the model takes."""
        least, most = _argument_counts(self._parameters) if self.kind == "torch" else (len(self.names), len(self.names))
        if not least <= len(inputs) <= most:
            more = "" if least == most else " or more" if most == sys.maxsize else f" to {most}"
            text = f"the model takes {least}{more} inputs ({', '.join(self.names)}); got {len(inputs)}"
            raise ParameterError(who, text)

    @cached_property
    def _parameters(self) -> tuple[inspect.Parameter, ...]:
        """The parameters of a module's `forward`."""
        return tuple(inspect.signature(self.source.forward).parameters.values())

    def _trace_module(self, examples: Sequence[Any]) -> Graph:
        """The graph of a PyTorch module at these examples; ParameterError for what torch.export does not take."""
        from .torch.formats import meaning_of

        try:
            return meaning_of(self.source, examples)
        except SpecgradError:
            raise
        except Exception as error:  # of the user's program, or of torch.export on it
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise ParameterError("model", f"torch.export does not take {self.title}: {text:.300}", rule="P5") from error


def _stand_in(shape: Shape, dtype: Any) -> Any:
    """Return a tensor of zeros, whose memory nothing has touched yet: large inputs are not copied to read a graph."""
    import torch

    return torch.from_numpy(np.zeros(shape, dtype))


def open_model(given: Any, who: str = "model") -> Model:
    """Return the model `given` as a path (ONNX, or a saved graph: .json), an ONNX file's bytes or ModelProto, a module,
    or a Graph.

    A Model is returned as it is; ParameterError, in the name of `who`, for anything else and for files that cannot be
    read. A path is where it leads now: a model is read when it is asked, from whatever folder.
    """
    if isinstance(given, Model):
        return given
    if isinstance(given, str | Path) and Path(given).suffix == ".json":
        try:
            return Model(load(given), "graph", Path(given).name)
        except OSError as error:
            raise ParameterError(who, f"cannot read {str(given)!r:.200}: {error.strerror}") from error
    if isinstance(given, Graph):
        return Model(given, "graph", type(given).__name__)
    if is_onnx(given):
        need("onnx", "ONNX files need")
        if isinstance(given, str | Path):
            return Model(Path(given).absolute(), "onnx", Path(given).name)
        return Model(bytes(given) if isinstance(given, bytearray | memoryview) else given, "onnx", "model")
    if hasattr(given, "state_dict"):
        need("torch", "PyTorch modules need")
        import torch

        if isinstance(given, torch.jit.ScriptModule):
            text = f"torch.export does not take what torch.jit made ({type(given).__name__}); give the module itself"
            raise ParameterError(who, text, rule="P5")
        if isinstance(given, torch.nn.Module):
            return Model(given, "torch", type(given).__name__)
    text = f"model must be a Graph, an ONNX file or a PyTorch module; got {type(given).__name__}"
    raise ParameterError(who, text, rule="P5")


def named_model(name: str) -> Model:
    """Return the model that a command line names: `name` is a file, or a PyTorch module as package.module:attribute.

    ParameterError if there is no such file.
    """
    if ":" in name and not Path(name).exists():
        return open_model(_imported(name))
    if not Path(name).is_file():
        raise ParameterError("model", f"no file {name}; give an .onnx file, a saved graph (.json) or module:attribute")
    return open_model(name)


def _is_one_integer(given: Any) -> bool:
    """Return whether `given` is one number without axes, of an integer type or bool."""
    return np.ndim(given) == 0 and np.asarray(given).dtype.kind in "iub"


def is_onnx(given: Any) -> bool:
    """Whether this is what ONNX files are given as: a path, their bytes, a ModelProto."""
    return isinstance(given, str | Path | bytes | bytearray | memoryview) or hasattr(given, "SerializeToString")


def array_of(given: Any, name: str, who: str) -> Array:
    """One input, `given` for `name`, as an array of numbers, in its own type (bfloat16: float32) and this machine's
    order of bytes; `who` refuses what is none.
    """
    try:
        x = given.detach().cpu() if hasattr(given, "detach") else given
        array = np.asarray(x.float() if str(getattr(x, "dtype", "")) == "torch.bfloat16" else x)
    except (TypeError, ValueError, RuntimeError) as error:  # lists of other lengths, tensors without numbers
        text = f"input {name} is no array of numbers: {' '.join(str(error).split()):.200}"
        raise ParameterError(who, text, rule="P5") from error
    if np.ma.is_masked(given):
        raise ParameterError(who, f"input {name} has masked cells, whose numbers are not known", rule="P5")
    if array.dtype.name == "bfloat16":  # NumPy has it of another library, as bytes of no kind
        array = array.astype(np.float32)
    kind, wide = array.dtype.kind, array.dtype.kind == "f" and array.dtype.itemsize > 8
    if kind not in "fiubO" or wide or (kind == "O" and not all(isinstance(v, Real) for v in array.flat)):
        text = f"input {name} must hold numbers, floats of 64 bits at most; got {array.dtype} of shape {array.shape}"
        raise ParameterError(who, text, rule="P5")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def refuse_parts(graph: Graph, who: str) -> None:
    """Raise UnsupportedError, in the name of `who`, for a graph from which a partial import left operators out."""
    if left_out := getattr(graph, "unexamined", ()):
        names = ", ".join(f"{u.operator} {u.layer}" for u in left_out[:3])
        raise UnsupportedError(who, f"the graph leaves out what has no meaning here: {names}")


def refuse_other_formats(model: Any) -> None:
    """Raise ParameterError if a model, an ONNX file or PyTorch module, declares floating tensors other than float32.

    Inputs of whole numbers are refused too: a point between them would be a counterexample that nobody can give.
    """
    from ..proof.base.deployed_graph import REFUSED

    given = open_model(model, "certify")
    declared = {"onnx": _onnx_types, "torch": _torch_types}.get(given.kind, lambda _: iter(()))
    for what, kind in declared(given):
        raise ParameterError("certify", f"{what} is of {kind}; {REFUSED}", rule="P5")


def _onnx_types(model: Model) -> Iterator[tuple[str, str]]:
    """Yield (what, type) of inputs, weights, constants and casts of the model's file that are not float32.

    ParameterError for inputs of whole numbers.
    """
    from onnx import TensorProto

    from .onnx.file import FLOATS, shown, type_name

    graph = model.file.graph
    initial = {t.name for t in graph.initializer}
    for i in graph.input:
        kind = i.type.tensor_type.elem_type
        if i.name not in initial and kind not in FLOATS:
            text = "certify proves things about all numbers of a box, and may find a counterexample between whole ones"
            raise ParameterError("certify", f"input {shown(i.name)} is of {type_name(kind)}; {text}", rule="P5")
    declared = [(f"input {shown(i.name)}", i.type.tensor_type.elem_type) for i in graph.input]
    declared += [(f"tensor {shown(t.name)}", t.data_type) for t in graph.initializer]
    for node in graph.node:
        for attribute in node.attribute:
            what = f"{attribute.name} of node {shown(node.name or node.op_type)}"
            declared += [(what, attribute.t.data_type)] if attribute.HasField("t") else []
            declared += [(what, attribute.i)] if node.op_type == "Cast" and attribute.name == "to" else []
    for what, kind in declared:
        if kind in FLOATS and kind != TensorProto.FLOAT:
            yield what, type_name(kind)


def _torch_types(model: Model) -> Iterator[tuple[str, str]]:
    """Yield (name, type) of parameters and buffers that are not float32."""
    for name, value in {**dict(model.source.named_parameters()), **dict(model.source.named_buffers())}.items():
        if value.is_floating_point() and str(value.dtype) != "torch.float32":
            yield f"{name!r}", str(value.dtype).removeprefix("torch.")


def _imported(name: str) -> Any:
    """Return the PyTorch module `name`, "package:attribute", or what a function of no arguments returns; the current
    folder is searched too.

    ParameterError if it cannot be imported, or is no module.
    """
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


def _argument_counts(parameters: Sequence[inspect.Parameter]) -> tuple[int, int]:
    """How many arguments a function of these `parameters` takes by position, at least and at most."""
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_number = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    return sum(p.default is p.empty for p in by_position), sys.maxsize if any_number else len(by_position)


def _at_batch_one(given: ModelInput) -> Shape:
    """Return the shape that the input `given` declares, with an open batch of 1; ParameterError if another size is
    open.
    """
    name, dims = given.name, given.dims
    if dims is None:
        raise ParameterError("--shape", f"the model does not say the shape of input {name}; give --shape {name}=1,...")
    axes = [axis for axis, n in enumerate(dims) if n is None and axis > 0]
    if axes:
        example = ",".join("1" if n is None and axis == 0 else str(n or "SIZE") for axis, n in enumerate(dims))
        open_axes = f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(map(str, axes))}"
        text = f"the model leaves {open_axes} of input {name} open; give --shape {name}={example}, or --input"
        raise ParameterError("--shape", text)
    return tuple(1 if n is None else n for n in dims)


def _check_shape(name: str, shape: Shape, dims: Dims, who: str) -> None:
    """Refuse a shape of input `name` that does not fit `dims`; open sizes fit any; `who` refuses.

    Several points that nobody announced get a hint.
    """

    def fits(given: Shape) -> bool:
        return dims is None or (
            len(given) == len(dims) and all(d in (None, n) for d, n in zip(dims, given, strict=True))
        )

    if not fits(shape):
        several = fits(shape[1:]) or fits((1, *shape[1:]))
        hint = "; if its first axis counts points, say so (--points, points=True)" if several else ""
        wanted = ", ".join("open" if d is None else str(d) for d in dims or ())
        raise ShapeError(who, f"input {name} must have shape ({wanted}); got {shape}{hint}")
