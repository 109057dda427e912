"""Who imports whom, read from the source: imports inside functions, absolute ones and import_module included."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "specgrad"


def name_of(path: Path) -> str:
    parts = ("specgrad", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a source text, which nobody changes: many tests walk the same ones."""
    return ast.parse(source)


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """All of its nodes, in the order of `ast.walk`."""
    return tuple(ast.walk(parsed(source)))


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


READ = (ast.Import, ast.ImportFrom, ast.Call)
"""What `_named` looks at."""


def imported(name: str, text: str, package: bool, modules: frozenset[str] | None = None) -> set[str]:
    """The modules of specgrad that a source text imports; `package`: it is that of an __init__.py."""
    known = frozenset(MODULES) if modules is None else modules
    home = name.split(".") if package else name.split(".")[:-1]
    nodes = [n for n in nodes_of(text) if isinstance(n, READ)]
    return {m for node in nodes for m in _named(node, home, known) if m in known} - {name}


def _named(node: ast.AST, home: list[str], known: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (a.name for a in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = home[: len(home) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        for a in node.names:  # a module of the package, or a name that the package itself defines
            yield f"{base}.{a.name}" if f"{base}.{a.name}" in known else base
    elif isinstance(node, ast.Call) and _callee(node.func) == "import_module" and node.args:
        yield from _dynamic(node.args[0], home, known)


def _callee(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _dynamic(arg: ast.expr, home: list[str], known: frozenset[str]) -> Iterator[str]:
    """import_module(f".{x}", __name__) may mean every module with that beginning."""
    parts = arg.values if isinstance(arg, ast.JoinedStr) else [arg]
    first = parts[0].value if isinstance(parts[0], ast.Constant) else ""
    start = ".".join(home) + first if first.startswith(".") else first
    if start.startswith("specgrad"):
        whole = [m for m in known if m.startswith(start) and not is_command(m)]
        yield from whole if len(parts) > 1 else known & {start}


def dependencies() -> dict[str, set[str]]:
    return {n: imported(n, p.read_text(), p.name == "__init__.py") for n, p in MODULES.items()}


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other, by taking away whoever imports nothing that is left."""
    left = {name: set(to) for name, to in edges.items()}
    while free := [name for name, to in left.items() if not to & left.keys()]:
        for name in free:
            del left[name]
    back = {name: {n for n in left if name in left[n]} for name in left}
    while free := [name for name in back if not back[name] & back.keys()]:
        for name in free:
            del back[name]
    return [sorted(back)] if back else []


def is_command(name: str) -> bool:
    """A room brings its command, which stands on the floor of cli/: it may import anything, and nobody imports it."""
    return name.endswith(".command")


def room_of(name: str) -> str:
    return "cli" if is_command(name) else next(itertools.islice(name.split("."), 1, 2), "specgrad")


ROOMS = {room: [m for m in MODULES if room_of(m) == room] for room in sorted(set(map(room_of, MODULES)))}
"""The modules of each room: a test per room, which names the modules that break its rule."""


@cache
def texts(room: str) -> dict[str, str]:
    return {name: MODULES[name].read_text(encoding="utf-8") for name in ROOMS[room]}


# --- coordinates ------------------------------------------------------------------------------------------------------

STEPS = {"stride", "dilation", "lo", "hi", "pads"}
"""What the window relation multiplies positions by and adds to them."""
HANDED_ON = {"zip", "range", "tuple", "list", "min", "max", "reversed", "enumerate", "sorted", "divmod", "sum", "abs"}
"""Functions whose results are still the numbers that they were given; an array that was padded is no coordinate."""
ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod


STEPPED = re.compile(rf"\.\s*(?:{'|'.join(sorted(STEPS))})\b|\b(?:native|steps)\b")
"""What every source has that `_gives_steps` finds something in."""


def _gives_steps(node: ast.AST, names: set[str]) -> bool:
    """Whether the value of an expression holds a step of a window."""
    if isinstance(node, ast.Attribute):
        return node.attr in STEPS
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Call) and _callee(node.func) not in HANDED_ON:
        return _callee(node.func) in ("native", "steps")
    return any(_gives_steps(child, names) for child in ast.iter_child_nodes(node))


def _stepped(function: ast.AST) -> set[str]:
    """Local names that were given a step of a window, directly or through other names."""
    names: set[str] = set()
    while True:
        before = len(names)
        for n in ast.walk(function):
            if isinstance(n, ast.Assign) and _gives_steps(n.value, names):
                names |= {t.id for target in n.targets for t in _paired(target, n.value, names)}
            if isinstance(n, ast.For | ast.comprehension) and _gives_steps(n.iter, names):
                names |= {t.id for t in ast.walk(n.target) if isinstance(t, ast.Name)}
        if len(names) == before:
            return names


def _paired(target: ast.AST, value: ast.AST, names: set[str]) -> list[ast.Name]:
    """The names of a target whose own part of the value holds a step: of a, b = stride, x only a."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        return [n for t, v in pairs if _gives_steps(v, names) for n in _paired(t, v, names)]
    return [n for n in ast.walk(target) if isinstance(n, ast.Name)]


def coordinates(source: str) -> list[int]:
    """Lines that add, subtract, multiply or divide with a stride, a dilation or a padding of a window."""
    lines = set()
    for function in nodes_of(source) if STEPPED.search(source) else ():
        if isinstance(function, ast.FunctionDef):
            names = _stepped(function)
            for n in ast.walk(function):
                if isinstance(n, ast.BinOp) and isinstance(n.op, ARITHMETIC):
                    lines |= {n.lineno for side in (n.left, n.right) if _is_step(side, names)}
    return sorted(lines)


def _is_step(side: ast.AST, names: set[str]) -> bool:
    """A step itself, its sign changed or not; not a list that is joined to another."""
    if isinstance(side, ast.UnaryOp):
        return _is_step(side.operand, names)
    return isinstance(side, ast.Attribute | ast.Name) and _gives_steps(side, names)


# --- taps -------------------------------------------------------------------------------------------------------------


INDEXED = re.compile(r"\.\s*_?(?:ins|outs)\b|,\s*(?:#.*\s*)*\(*\.\.\.\)*\s*(?:#.*\s*)*,")
"""What every such line has, so that most texts need not be parsed."""


def tap_indices(source: str) -> list[int]:
    """Lines that take a tap's index, or set something before an ellipsis and something behind it in one index.

    With an array of positions behind it and an integer before it, NumPy moves axes.
    """
    lines = set()
    for n in nodes_of(source) if INDEXED.search(source) else ():
        if isinstance(n, ast.Attribute) and n.attr in ("ins", "outs", "_ins", "_outs"):
            whose = n.value.id if isinstance(n.value, ast.Name) else ""
            if n.attr.startswith("_") or whose in ("t", "tap"):
                lines.add(n.lineno)
        if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Tuple) and not _is_type(n.value):
            inner = n.slice.elts[1:-1]
            if any(isinstance(e, ast.Constant) and e.value is ... for e in inner):
                lines.add(n.lineno)
    return sorted(lines)


def _is_type(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("tuple", "Callable")
