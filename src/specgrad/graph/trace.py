"""From an ordinary Python function to a graph: run it once on variables that carry only a shape."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import ShapeError, SpecgradError
from ..op import SCOPES, Op, Params, Scope, Value, is_literal, shape_of
from ..scalar import Array
from ..window import Shape
from .graph import CONSTANT, INPUT, Arg, Graph, Kind, Node, NumberArg, distinct
from .tree import Tree, is_shape, leaves, transform
from .var import Var as Var

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Index:
    """An example for an integer input (labels, pooling indices): `Index((8,))`."""

    def __init__(self, shape: Shape) -> None:
        self.shape = tuple(shape)


def _callers_line() -> tuple[str, int] | None:
    """File and line of the innermost frame outside this package."""
    frame = sys._getframe(2)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


class Trace:
    """A graph under construction. With share=True equal nodes are recorded once."""

    def __init__(self, *, share: bool = False) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[int, Array] = {}
        self.prefix: str | None = None  # names the nodes that a derivative rule records
        self._groups: dict[Scope, str] = {}
        self._share: dict[Any, int] | None = {} if share else None
        self._seen: dict[
            tuple[int, bool], tuple[Any, int]
        ] = {}  # captured values are kept, so that no id is used twice
        self._names: Counter[str] = Counter()

    def _append(self, node: Node) -> Var:
        self.nodes.append(node)
        return Var(self, len(self.nodes) - 1)

    def unique(self, base: str) -> str:
        self._names[base] += 1
        count = self._names[base]
        return base if count == 1 else self.unique(f"{base}_{count}")

    def input(self, name: str, shape: Shape, kind: Kind = "real") -> Var:
        name = self.unique(name)
        return self._append(Node(INPUT, (), {}, shape, kind, name, name))

    def constant(self, value: Any, name: str = "constant", *, real: bool = False, owned: bool = False) -> Var:
        """A copy of an array captured by the function; the same array is recorded once, unless it changed meanwhile.

        real   integers stand for exact numbers, not for an index
        owned  the array is already a graph's own, and no copy is needed
        """
        array = np.asarray(value)
        array = array.astype(object) if real and array.dtype.kind in "iub" else array
        _, known = self._seen.get((id(value), real), (None, None))
        if known is not None and _identical(array, self.constants[known]):
            return Var(self, known)
        kind: Kind = "index" if array.dtype.kind == "i" else "real"
        name = self.unique(name)
        var = self._append(Node(CONSTANT, (), {}, array.shape, kind, name, name))
        self.constants[var.position] = array if owned else _copy(array)
        self._seen[id(value), real] = value, var.position
        return var

    def _arg(self, op: Op, i: int, a: Value) -> Arg:
        if isinstance(a, Var):
            if a.trace is not self:
                raise SpecgradError(op.name, f"{a} belongs to another trace; pass it to the function as an argument")
            var = a
        elif is_literal(a):
            return NumberArg(a)
        else:
            var = self.constant(a, real=i not in op.index_args and op.kind != "same")
        kind = self.nodes[var.position].kind
        if (i in op.index_args) != (kind == "index") and op.kind != "same":
            wanted = "an index (integers: trace it from an integer array or Index(shape))"
            raise ShapeError(op.name, f"{var} must be {wanted if i in op.index_args else 'numbers, not an index'}")
        return var.position

    def _named(self, op: Op) -> tuple[str, str]:
        """Name and layer of a new node, from the scopes around the call."""
        if self.prefix is not None:
            return self.unique(self.prefix), self.prefix
        scopes = SCOPES.get()
        path = [s.name for s in scopes]
        for depth, s in enumerate(scopes, 1):
            if s.composite:
                if s not in self._groups:
                    self._groups[s] = self.unique(".".join(path[:depth]))
                group = self._groups[s]
                return self.unique(".".join([group, *path[depth:], op.name])), group
        name = self.unique(".".join([*path, op.name]))
        return name, name

    def record(
        self, op: Op, args: Sequence[Value], params: Params, *, name: str | None = None, group: str | None = None
    ) -> Var:
        """Append one node, after the shape rule has agreed."""
        shape = op.shape(*(shape_of(a) for a in args), **params)
        positions = tuple(self._arg(op, i, a) for i, a in enumerate(args))
        key = None
        if self._share is not None:
            key = (op.name, tuple(map(repr, positions)), tuple(sorted(params.items(), key=lambda item: item[0])))
            if key in self._share:
                return Var(self, self._share[key])
        if op.kind == "same":
            kind: Kind = self.nodes[positions[0]].kind if isinstance(positions[0], int) else "real"
        else:
            kind = op.kind
        name, group = (self.unique(name), group or name) if name else self._named(op)
        var = self._append(Node(op, positions, params, shape, kind, name, group, _callers_line()))
        if self._share is not None:
            self._share[key] = var.position
        return var

    def graph(self, names: tuple[str, ...], inputs: tuple[Tree, ...], outputs: tuple[Tree, ...], single: bool) -> Graph:
        """Freeze, keeping the inputs and what the outputs need."""
        inputs, outputs = (transform(lambda _, v: v.position, t) for t in (inputs, outputs))
        alive = set(leaves(outputs)) | set(leaves(inputs))
        for position in range(len(self.nodes) - 1, -1, -1):
            if position in alive:
                alive.update(self.nodes[position].operands())
        new = {old: i for i, old in enumerate(sorted(alive))}

        def moved(n: Node) -> Node:
            args = tuple(a if isinstance(a, NumberArg) else new[a] for a in n.args)
            return Node(n.op, args, n.params, n.shape, n.kind, n.name, n.group, n.where)

        renumber = lambda _, p: new[p]
        return Graph(
            tuple(moved(self.nodes[old]) for old in sorted(alive)),
            names,
            transform(renumber, inputs),
            transform(renumber, outputs),
            single,
            {new[p]: a for p, a in self.constants.items() if p in alive},
        )


def _copy(array: Array) -> Array:
    """A copy that nobody else can change; repeated cells (strides of 0) stay one cell."""
    cells = array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]
    return np.array(cells) if cells.shape == array.shape else np.broadcast_to(np.array(cells), array.shape)


def _identical(a: Array, b: Array) -> bool:
    """Whether two arrays hold the same bits, or the same exact numbers."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype != object:
        return a.tobytes() == b.tobytes()
    return all(p is q or _equal_numbers(p, q) for p, q in zip(a.flat, b.flat, strict=True))


def _equal_numbers(p: Any, q: Any) -> bool:
    return type(p) is type(q) and isinstance(p, int | Fraction) and p == q


def _example(path: str, example: Any) -> tuple[Shape, Kind]:
    if isinstance(example, Index):
        return example.shape, "index"
    if is_shape(example):
        if any(n < 0 for n in example):
            raise ShapeError("trace", f"{path} has a negative size; got {example}", rule="W1")
        return example, "real"
    if isinstance(example, bool | str) or (not hasattr(example, "shape") and not is_literal(example)):
        raise ShapeError("trace", f"{path} must be an array or a shape; got {example!r}")
    return shape_of(example), "index" if getattr(example, "dtype", np.dtype(float)) in _INTEGERS else "real"


_INTEGERS = tuple(np.dtype(t) for t in ("int8", "int16", "int32", "int64"))


def _argument_names(fn: Callable[..., Any], count: int) -> tuple[str, ...]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return distinct((), [plain[i] if i < len(plain) else f"arg{i}" for i in range(count)])


def trace(fn: Callable[..., Any], *examples: Any) -> Graph:
    """Build the graph of `fn` by running it once on variables.

    Examples are arrays or shapes, nested in tuples and dicts: trace(net, {"w": (8, 3, 3, 3)}, (1, 3, 32, 32)).
    Integer arrays, or Index(shape), make integer inputs (labels, indices). Only shapes are looked at.
    A shape error carries the line of your code and the layers built so far.

    >>> from specgrad import relu
    >>> g = trace(lambda x: relu(x) + 1, (2, 3))
    >>> g(np.array([[-1.0, 0.0, 1.0], [2.0, 3.0, 4.0]]))
    array([[1., 1., 2.],
           [3., 4., 5.]])
    """
    t = Trace()
    names = _argument_names(fn, len(examples))

    def new_input(path: str, example: Any) -> Var:
        shape, kind = _example(path, example)
        return t.input(path, shape, kind)

    inputs = tuple(
        transform(new_input, example, name, leaf=is_shape) for name, example in zip(names, examples, strict=True)
    )
    try:
        result = fn(*inputs)
    except SpecgradError as error:
        _explain(error, t, inputs, names)
        raise
    single = not isinstance(result, tuple | list)
    outputs = transform(
        lambda path, v: v if isinstance(v, Var) else _captured(t, path, v), (result,) if single else result
    )
    return t.graph(names, inputs, outputs, single)


def _captured(t: Trace, path: str, value: Any) -> Var:
    if value is None or isinstance(value, str):
        raise ShapeError("trace", f"output {path} must be a value; got {value!r}")
    return t.constant(np.asarray(value))


def _explain(error: SpecgradError, t: Trace, inputs: tuple[Tree, ...], names: tuple[str, ...]) -> None:
    """Add the user's own line and the layers built so far."""
    from .show import table

    line, step = None, error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            line = (code.co_filename, step.tb_lineno, code.co_name)
        step = step.tb_next
    if line is not None:
        source = linecache.getline(line[0], line[1]).strip()
        error.add_note(f"  in {line[2]}, {os.path.basename(line[0])}:{line[1]}: {source}")
    last = tuple(Var(t, i) for i in range(len(t.nodes)))
    error.add_note("  built so far:\n" + table(t.graph(names, inputs, last[-1:], True), every=t.nodes))
