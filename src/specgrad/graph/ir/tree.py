"""Nested structures: tuples, lists and dicts of leaves. Lists become tuples; dicts keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from specgrad.errors import ShapeError
from specgrad.window import SymbolicSize

Tree = Any


def is_branch(tree: Tree) -> bool:
    """Return whether a structure is a tuple, list or dict."""
    return isinstance(tree, tuple | list | dict)


def is_shape(tree: Tree) -> bool:
    """Return whether a structure is a shape: a tuple of ints and names of symbolic sizes; () is a scalar's."""
    return isinstance(tree, tuple) and all(
        isinstance(n, int | str | SymbolicSize) and not isinstance(n, bool) for n in tree
    )


def items(tree: Tree) -> list[tuple[str, Tree]]:
    """Return (key as text, child) for every entry of a branch."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [(str(key), child) for key, child in pairs]


def walk(tree: Tree, path: str = "", leaf: Callable[[Tree], bool] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield every leaf of a structure with its dotted path, which begins with `path`; `leaf` tests what counts as one.

    >>> list(walk({"a": (1, 2), "b": 3}))
    [('a.0', 1), ('a.1', 2), ('b', 3)]
    """
    if not is_branch(tree) or (leaf is not None and leaf(tree)):
        yield path, tree
        return
    for key, child in items(tree):
        yield from walk(child, f"{path}.{key}" if path else key, leaf)


def leaves(tree: Tree) -> list[Any]:
    """Return all leaves of a structure in order."""
    return [value for _, value in walk(tree)]


def transform(f: Callable[[str, Any], Any], tree: Tree, path: str = "", leaf: Any = None) -> Tree:
    """Return the structure with f(path, leaf) at every leaf; `leaf` tests what counts as one, `path` is the prefix."""
    if not is_branch(tree) or (leaf is not None and leaf(tree)):
        return f(path, tree)
    children = [transform(f, child, f"{path}.{key}" if path else key, leaf) for key, child in items(tree)]
    return dict(zip(tree, children, strict=True)) if isinstance(tree, dict) else tuple(children)


def at(tree: Tree, path: str) -> Tree:
    """Return the part of a structure that a dotted path names; raise KeyError if there is none.

    >>> at({"a": (1, {"b": 2})}, "a.1.b")
    2
    """
    for key in path.split(".") if path else ():
        tree = dict(items(tree) if is_branch(tree) else ())[key]
    return tree


def paths(tree: Tree, keys: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every leaf with the tuple of keys that leads to it, for `at_path`.

    >>> list(paths({"a": (1, 2)}))
    [(('a', 0), 1), (('a', 1), 2)]
    """
    if not is_branch(tree):
        yield keys, tree
        return
    for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from paths(child, (*keys, key))


def at_path(value: Any, keys: tuple[Any, ...]) -> Any:
    """Return the entry of `value`, nested dicts and tuples, that a tuple of keys leads to."""
    for key in keys:
        value = value[key]
    return value


def match(pattern: Tree, tree: Tree, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, pattern leaf, part of `tree` there); raise ShapeError if the structures disagree."""
    if not is_branch(pattern):
        yield path, pattern, tree
        return
    keys = [key for key, _ in items(pattern)]
    if not is_branch(tree):
        raise ShapeError("graph", f"{path} must have entries {', '.join(keys)}; got a bare {type(tree).__name__}")
    given = [key for key, _ in items(tree)]
    lacks, unknown = [k for k in keys if k not in given], [k for k in given if k not in keys]
    if lacks or unknown:
        problems = [f"lacks {', '.join(lacks)}"] * bool(lacks) + [f"has unknown {', '.join(unknown)}"] * bool(unknown)
        raise ShapeError("graph", f"{path} {' and '.join(problems)}")
    lookup = dict(items(tree))
    for key, child in items(pattern):
        yield from match(child, lookup[key], f"{path}.{key}")
