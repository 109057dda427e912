"""Draw definitions of the package by a seed and print what a reader sees of each: module, signature, docstring.

python tools/draw_definitions.py --seed 34 --count 25

Somebody who did not write them says of each what it returns, then opens the file. What was not understood needs a
better name or a better first sentence.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "specgrad"
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, Definition]]:
    """Every class, function and method of a module with its dotted name; those inside functions are left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition):
            yield outer + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from definitions(node, f"{outer}{node.name}.")


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
        (path.relative_to(SOURCE), name, node)
        for path in sorted((SOURCE / asked.room).rglob("*.py"))
        for name, node in definitions(ast.parse(path.read_text(encoding="utf-8")))
        if not name.rpartition(".")[2].startswith("__")
    ]
    for number, (path, name, node) in enumerate(random.Random(asked.seed).sample(found, asked.count), 1):
        text = (ast.get_docstring(node) or "(no docstring)").replace("\n", "\n       ")
        print(f"{number:3d}. {path}  {name}\n     {head(node)}\n       {text}\n")


if __name__ == "__main__":
    main()
