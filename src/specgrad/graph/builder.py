"""The builder of graphs: inputs, constants and calls record nodes, and every shape is checked before there is data.

`trace` runs an ordinary Python function once on the builder's variables, which carry only a shape.
"""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import ShapeError, SpecgradError
from ..op import SCOPES, Op, Params, Scope, Value, is_literal, scope, shape_of
from ..scalar import Array
from ..window import Guard, OpenWindow, Repeated, Shape, SymbolicSize, open_key, symbolic, symbols_in, without_guards
from .graph import CONSTANT, INPUT, Arg, Graph, Kind, Node, NumberArg, distinct, opened
from .ir.tree import Tree, is_shape, leaves, transform
from .var import Var as Var

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Index:
    """An example for an integer input of a traced function: labels, pooling indices.

    Parameters
    ----------
    shape : tuple of int
        Its shape; `kind` is "index".

    Examples
    --------
    >>> from specgrad import take, trace
    >>> trace(lambda x, i: take(x, i, rank=1), (4,), Index((2,)))(np.array([5.0, 6.0, 7.0, 8.0]), np.array([3, 0]))
    array([8., 5.])
    """

    kind: Kind = "index"

    def __init__(self, shape: Shape) -> None:
        self.shape = tuple(shape)


def _callers_line() -> tuple[str, int, str] | None:
    """Return file, line and function of the innermost frame outside this package; None if there is none."""
    frame = sys._getframe(2)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return None


class GraphBuilder:
    """A graph under construction: input, constant and call give variables, build gives the graph.

    A variable has a shape, and the id of its node: nodes are numbered in the order of their recording. Operators called
    on variables record nodes of their own accord; `call` also names them, and says of an error at which node it arose.

    Parameters
    ----------
    share : bool, default False
        Record equal nodes once.

    Examples
    --------
    >>> from specgrad import avg_pool, relu
    >>> b = GraphBuilder()
    >>> x = b.input("x", (1, 4))
    >>> y = b.call(avg_pool, x, (2,), name="pool")
    >>> z = relu(y - b.constant(np.array([1.5, 1.5]), "threshold"))
    >>> y, z.id
    (Var(pool.avg_pool: (1, 2)), 5)
    >>> graph = b.build(z)
    >>> graph(np.array([[1.0, 2.0, 3.0, 4.0]]))
    array([[0., 2.]])
    """

    def __init__(self, *, share: bool = False) -> None:
        self.nodes: list[Node] = []
        self.arguments: dict[str, Tree] = {}
        self.constants: dict[int, Array] = {}
        self.guards: list[Guard] = []  # what was decided by an open size
        self.sizes: dict[str, SymbolicSize] = {}  # those that inputs of this graph have left open
        self.prefix: str | None = None  # names the nodes that a derivative rule records
        self._open = False
        self._groups: dict[Scope, str] = {}
        self._share: dict[Any, int] | None = {} if share else None
        self._seen: dict[
            tuple[int, bool], tuple[Any, int]
        ] = {}  # captured values are kept, so that no id is used twice
        self._names: Counter[str] = Counter()

    def _append(self, node: Node) -> Var:
        """Append a node and return its variable."""
        self.nodes.append(node)
        return Var(self, len(self.nodes) - 1)

    def unique(self, base: str) -> str:
        """Return `base`, with a counter appended if the name is taken; the name is taken from then on."""
        self._names[base] += 1
        count = self._names[base]
        return base if count == 1 else self.unique(f"{base}_{count}")

    def input(self, name: str, example: Any) -> Any:
        """Record one argument `name` of the graph, by example: an array, a shape or Index(shape), or a structure of
        them.

        SpecgradError if there is one of that name.

        Only shapes are looked at; integer arrays, or Index(shape), make integer inputs (labels, indices). The result
        has the structure of the example, with a variable for each leaf.
        """
        if name in self.arguments:
            raise SpecgradError("input", f"there is an input {name!r} already; the inputs are {list(self.arguments)}")
        tree = transform(lambda path, e: self.leaf(path, *_example(path, e)), example, name, leaf=is_shape)
        self.arguments[name] = tree
        return tree

    def leaf(self, name: str, shape: Shape, kind: Kind = "real") -> Var:
        """Record an input node called `name`, made unique, that is no argument by itself; return its variable.

        A size may be a name ("N"), which is then open. `kind` is "real" or "index". ShapeError if a name is given two
        default sizes.
        """
        shape = tuple(self._size(n) if isinstance(n, str) else n for n in shape)
        self._open = self._open or any(isinstance(n, SymbolicSize) for n in shape)
        name = self.unique(name)
        return self._append(Node(INPUT, (), {}, shape, kind, name, name))

    def _size(self, text: str) -> SymbolicSize:
        """Return the symbolic size that `text` names ("N", "H=224"), one for all inputs of the graph.

        A new one is remembered in `sizes`. ShapeError if it is given two defaults.
        """
        size = symbolic(text, self.guards)
        (new,) = symbols_in(size)
        known = self.sizes.setdefault(new.name, size)
        (old,) = symbols_in(known)
        if "=" in text and old.default != new.default:
            raise ShapeError("input", f"size {new.name} has two defaults, {old.default} and {new.default}; give one")
        return known

    def call(self, fn: Callable[..., Any], /, *args: Any, name: str | None = None, **options: Any) -> Any:
        """Return fn(*args, **options), with `name` before the names of the nodes that it records.

        An error carries the node at which it arose, your own line and the layers built so far.
        """
        try:
            with scope(name) if name else nullcontext():
                return fn(*args, **options)
        except SpecgradError as error:
            self._explain(error, f"{name}.{error.operator}" if name else error.operator)
            raise

    def build(self, outputs: Any) -> Graph:
        """Return the graph from the inputs so far to `outputs`: a variable or a structure (a tuple: several results).

        What no output needs is left out, and ids count what stays; names do not change.
        """
        single = not isinstance(outputs, tuple | list)
        variables = transform(self._output, (outputs,) if single else outputs)
        graph = self.freeze(tuple(self.arguments), tuple(self.arguments.values()), variables, single)
        return opened(graph, self.guards) if self.sizes else graph

    def _output(self, path: str, value: Any) -> Var:
        """Return the output `value` at `path` of the structure as a variable of this builder; raise ShapeError for None
        and texts.
        """
        if value is None or isinstance(value, str):
            raise ShapeError("build", f"output {path} must be a value; got {value!r}")
        return self._check_own("build", value) if isinstance(value, Var) else self.constant(np.asarray(value))

    def constant(self, value: Any, name: str = "constant", *, real: bool = False, owned: bool = False) -> Var:
        """Record a copy of the array `value` as a node; the same array is recorded once, unless it changed meanwhile.

        real   integers stand for exact numbers, not for an index
        owned  the array is already a graph's own, and no copy is needed
        name   of the node, made unique

        ShapeError for an open size among the entries.
        """
        if isinstance(value, Repeated):
            var = self.constant(np.asarray(value.array).view(), name, real=real)  # a view: a node of its own
            self.nodes[var.id] = replace(self.nodes[var.id], shape=value.shape)
            return var
        array = np.asarray(value)
        if array.dtype == object and any(isinstance(v, SymbolicSize) for v in array.flat):
            raise ShapeError("constant", "an open size is no entry of an array; use it as a number, or as a size")
        array = array.astype(object) if real and array.dtype.kind in "iub" else array
        _, known = self._seen.get((id(value), real), (None, None))
        if known is not None and _identical(array, self.constants[known]):
            return Var(self, known)
        kind: Kind = "index" if array.dtype.kind == "i" else "real"
        name = self.unique(name)
        var = self._append(Node(CONSTANT, (), {}, array.shape, kind, name, name))
        self.constants[var.id] = array if owned else _copy(array)
        self._seen[id(value), real] = value, var.id
        return var

    def _check_own(self, operator: str, var: Var) -> Var:
        """Return the variable; raise SpecgradError, in the name of the operator, if it belongs to another builder."""
        if var.builder is not self:
            raise SpecgradError(operator, f"{var} belongs to another graph; make it an input of this one")
        return var

    def _arg(self, op: Op, i: int, a: Value) -> Arg:
        """Return `a`, argument i of `op`, as its node's position, or as a NumberArg if it is a Python number.

        An array is recorded as a constant first. ShapeError where floats stand for indices, or indices for floats.
        """
        if isinstance(a, Var):
            var = self._check_own(op.name, a)
        elif is_literal(a):
            return NumberArg(a)
        else:
            var = self.constant(a, real=i not in op.index_args and op.kind != "same")
        kind = self.nodes[var.id].kind
        if (i in op.index_args) != (kind == "index") and op.kind != "same":
            wanted = "an index (integers: trace it from an integer array or Index(shape))"
            raise ShapeError(op.name, f"{var} must be {wanted if i in op.index_args else 'numbers, not an index'}")
        return var.id

    def _name_and_layer(self, op: Op) -> tuple[str, str]:
        """Return name and layer of a new node, from the scopes around the call.

        The name is taken from then on; the first node in a composite scope takes a name for its group as well.
        """
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
        """Append one node after its shape rule has agreed, and return its variable.

        With sharing an equal node is reused. It is called `name` and belongs to the layer `group`; None: names are
        made. ShapeError if the rule refuses the shapes, and where floats stand for indices or indices for floats.
        """
        with without_guards() if self._open else nullcontext():
            shape = op.shape(*(shape_of(a) for a in args), **params)
        positions = tuple(self._arg(op, i, a) for i, a in enumerate(args))
        key = None
        if self._share is not None:
            items = ((name, _key(value, self._open)) for name, value in params.items())
            key = (op, tuple(map(repr, positions)), tuple(sorted(items, key=lambda item: item[0])))
            if key in self._share:
                return Var(self, self._share[key])
        if op.kind == "same":
            kind: Kind = self.nodes[positions[0]].kind if isinstance(positions[0], int) else "real"
        else:
            kind = op.kind
        name, group = (self.unique(name), group or name) if name else self._name_and_layer(op)
        line = _callers_line()
        var = self._append(Node(op, positions, params, shape, kind, name, group, line and line[:2]))
        if self._share is not None:
            self._share[key] = var.id
        return var

    def freeze(
        self, names: tuple[str, ...], inputs: tuple[Tree, ...], outputs: tuple[Tree, ...], single: bool
    ) -> Graph:
        """Return the graph of the inputs and of what the outputs need.

        `names` are those of the inputs; `single`: a call returns the only output, not a tuple.
        """
        inputs, outputs = (transform(lambda _, v: v.id, t) for t in (inputs, outputs))
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

    def _explain(self, error: SpecgradError, node: str) -> None:
        """Add notes to an error: the `node` where it arose, in words, the user's own line and the layers built so
        far.
        """
        from .drawing.summary import table

        line, step = _callers_line(), error.__traceback__
        while step is not None:
            code = step.tb_frame.f_code
            if not code.co_filename.startswith(PACKAGE):
                line = (code.co_filename, step.tb_lineno, code.co_name)
            step = step.tb_next
        note = f"  at node {len(self.nodes)} ({node})"
        if line is not None:
            note += f" in {line[2]}, {os.path.basename(line[0])}:{line[1]}: {linecache.getline(*line[:2]).strip()}"
        error.add_note(note)
        last = (Var(self, len(self.nodes) - 1),) if self.nodes else ()
        known = self.freeze(tuple(self.arguments), tuple(self.arguments.values()), last, True)
        if self._open:
            return  # shapes over names have no count of cells
        error.add_note("  built so far:\n" + table(known, every=self.nodes))


def _key(value: Any, open_sizes: bool) -> Any:
    """Return a parameter's value as part of a cache key: numbers as they are written, so that 0.0 is not -0.0.

    `open_sizes`: symbolic sizes in it are compared as they are written.
    """
    if isinstance(value, int | float | Fraction):
        return repr(value)
    if not open_sizes:
        return value
    return value.key if isinstance(value, OpenWindow) else open_key(value)


def _copy(array: Array) -> Array:
    """Return a copy of an array that no caller can change; repeated cells (strides of 0) stay one cell.

    An array over bytes, as of a file, is one already.
    """
    if _lies_in_bytes(array):
        return array
    cells = array[(*(slice(0, 1) if step == 0 else slice(None) for step in array.strides), ...)]  # of rank 0: an array
    return np.array(cells) if cells.shape == array.shape else np.broadcast_to(np.array(cells), array.shape)


def _lies_in_bytes(array: Any) -> bool:
    """Return whether the cells of an array are those of a `bytes` object, which nobody can change."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, bytes)


def _identical(a: Array, b: Array) -> bool:
    """Return whether the arrays a and b hold the same bits, or the same exact numbers."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype != object:
        return a.tobytes() == b.tobytes()
    return all(p is q or _equal_numbers(p, q) for p, q in zip(a.flat, b.flat, strict=True))


def _equal_numbers(p: Any, q: Any) -> bool:
    """Return whether p and q are equal ints or equal Fractions, of one type."""
    return type(p) is type(q) and isinstance(p, int | Fraction) and p == q


def _example(path: str, example: Any) -> tuple[Shape, Kind]:
    """Return shape and kind of an example input; raise ShapeError if it is neither array nor shape."""
    if isinstance(example, Index | Var):
        return example.shape, example.kind
    if is_shape(example):
        if any(isinstance(n, int) and n < 0 for n in example):
            raise ShapeError("input", f"{path} has a negative size; got {example}", rule="W1")
        return example, "real"
    if isinstance(example, bool | str) or (not hasattr(example, "shape") and not is_literal(example)):
        raise ShapeError("input", f"{path} must be an array or a shape; got {example!r}")
    return shape_of(example), "index" if getattr(example, "dtype", np.dtype(float)) in _INTEGERS else "real"


_INTEGERS = tuple(np.dtype(t) for t in ("int8", "int16", "int32", "int64"))


def _argument_names(fn: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return distinct names for the first `count` arguments: those of fn's signature, else arg0, arg1, ..."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return distinct((), [plain[i] if i < len(plain) else f"arg{i}" for i in range(count)])


def trace(fn: Callable[..., Any], *examples: Any) -> Graph:
    """Build the graph of `fn` by running it once on variables.

    Parameters
    ----------
    fn : callable
        A function of the library's calls, Python's operators and many of NumPy's functions.
    *examples : array, shape or structure of them
        One per argument, nested in tuples and dicts: {"w": (8, 3, 3, 3)}, (1, 3, 32, 32). Only shapes are looked at.
        Integer arrays, or Index(shape), make integer inputs (labels, indices). A name in place of a size leaves it
        open, for `Graph.at` and for the caller: ("N", 3, "H=224", "W=224").

    Returns
    -------
    Graph
        Called as fn is, on arrays of these shapes.

    Raises
    ------
    ShapeError
        For shapes that an operator refuses: with the line of your code and the layers built so far.

    Examples
    --------
    >>> from specgrad import relu
    >>> g = trace(lambda x: relu(x) + 1, (2, 3))
    >>> g(np.array([[-1.0, 0.0, 1.0], [2.0, 3.0, 4.0]]))
    array([[1., 1., 2.],
           [3., 4., 5.]])
    """
    builder = GraphBuilder()
    inputs = [builder.input(*pair) for pair in zip(_argument_names(fn, len(examples)), examples, strict=True)]
    return builder.build(builder.call(fn, *inputs))
