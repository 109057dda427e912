"""Write docs/reference/api.md: every public name, in groups; the site makes a page of each from its docstring."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.md"
GROUPS = {  # of the names of `specgrad` itself, by the module that has them
    "Graphs": ("graph", "op"),
    "Windowed operators": ("ops.conv", "ops.max_pool", "ops.avg_pool", "ops.smooth_pool", "ops.resize"),
    "Layers made of operators": ("ops.composites", "ops.contract"),
    "Activations": ("ops.activation",),
    "Other operators": ("ops",),
    "Numbers, files, errors": ("",),
}
MODULES = {
    "Is it right?": "check",
    "How far may it differ?": "rounding",
    "Does it hold?": "bounds",
    "Properties": "properties",
    "At scale": "scale",
    "In and out": "interop",
}
INTRO = """One page each, which `help()` shows too: parameters with types and shapes, what is returned, what is raised
with the rule that is broken, an example. `specgrad explain W2` prints a rule.

In these pages an *array_like* is a NumPy array, a number or nested lists of numbers, a PyTorch tensor, a JAX array, or
a variable of a graph; an *array* that is returned is of the same kind. Integers and lists of them are exact rationals.
`x : array_like, shape (*batch, Cin, *spatial)` has any number of axes where a star stands. A *structure* is what
`specgrad.tree` knows: tuples and dicts, nested, of arrays.

"""


def home(name: str) -> str:
    """The module of a public name, without the package; data have none."""
    import specgrad as sg

    return str(getattr(getattr(sg, name), "__module__", "specgrad")).removeprefix("specgrad").lstrip(".")


def grouped() -> dict[str, list[str]]:
    """Every name once, in the first group whose modules have it."""
    import specgrad as sg

    groups: dict[str, list[str]] = {title: [] for title in GROUPS}
    for name in sorted(sg.__all__):
        of = home(name)
        fits = (t for t, starts in GROUPS.items() if any(of == s or of.startswith(f"{s}.") or not s for s in starts))
        groups[next(fits)].append(name)
    return groups


def section(title: str, module: str, names: list[str]) -> Iterator[str]:
    yield f"## {title}\n\n```{{eval-rst}}\n.. currentmodule:: {module}\n\n"
    yield ".. autosummary::\n   :toctree: api\n   :nosignatures:\n\n"
    yield from (f"   {name}\n" for name in names)
    yield "```\n\n"


def public(module: str) -> list[str]:
    """What a module says is public, or what it names without an underscore."""
    of = importlib.import_module(module)
    return sorted(getattr(of, "__all__", None) or (n for n in dir(of) if not n.startswith("_")))


def document() -> str:
    parts = ["# Every public name\n\n"]
    parts.append(INTRO)
    for title, names in grouped().items():
        parts += section(title, "specgrad", names)
    for title, module in MODULES.items():
        whole = f"specgrad.{module}"
        parts += section(f"{title} `{whole}`", whole, public(whole))
    return "".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(document())
    sys.stdout.write(f"{PAGE.name}: {document().count(chr(10) + '   ')} lines\n")
