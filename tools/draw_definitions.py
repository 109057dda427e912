"""Draw definitions of the package by a seed and print what a reader sees of each: module, signature, docstring.

With it the module's first sentence, of a method the docstring of its class, of a class the strings under its fields.

python tools/draw_definitions.py --seed 34 --count 25

Somebody who did not write them says of each what it returns, then opens the file. What was not understood needs a
better name or a better first sentence.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "specgrad"
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(tree: ast.Module | ast.ClassDef, outer: str = "") -> Iterator[tuple[str, Definition, str]]:
    """Every class, function and method of a module: dotted name, node, and the docstring of what it stands in.

    Those inside functions are left out. Of the module's docstring the first paragraph is given.
    """
    above = texts(tree) if isinstance(tree, ast.ClassDef) else (ast.get_docstring(tree) or "").partition("\n\n")[0]
    for node in tree.body:
        if isinstance(node, Definition):
            yield outer + node.name, node, above
            if isinstance(node, ast.ClassDef):
                yield from definitions(node, f"{outer}{node.name}.")


def texts(node: Definition) -> str:
    """A definition's docstring, and of a class the strings under its fields."""
    lines = [ast.get_docstring(node) or "(no docstring)"]
    for field, below in itertools.pairwise(node.body if isinstance(node, ast.ClassDef) else ()):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            lines.append(f"{ast.unparse(field.target)}: {inspect.cleandoc(str(below.value.value))}")
    return "\n".join(lines)


def head(node: Definition) -> str:
    """The definition's signature on one line, without decorators, docstring and body."""
    if isinstance(node, ast.ClassDef):
        fields = ", ".join(ast.unparse(n.target) for n in node.body if isinstance(n, ast.AnnAssign))
        return f"class {node.name}" + (f"  fields: {fields}" if fields else "")
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returned}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=34)
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--room", default="", help="only modules below this folder of src/specgrad")
    asked = parser.parse_args()
    found = [
        (path.relative_to(SOURCE), name, node, above)
        for path in sorted((SOURCE / asked.room).rglob("*.py"))
        for name, node, above in definitions(ast.parse(path.read_text(encoding="utf-8")))
        if not name.rpartition(".")[2].startswith("__")
    ]
    for number, (path, name, node, above) in enumerate(random.Random(asked.seed).sample(found, asked.count), 1):
        outer, text = (t.replace("\n", "\n       ") for t in (above, texts(node)))
        print(f"{number:3d}. {path}  {name}\n     in:  {outer}\n     {head(node)}\n       {text}\n")


if __name__ == "__main__":
    main()
