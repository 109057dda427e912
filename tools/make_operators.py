"""docs/reference/operators.md from the code: the public calls with their docstrings, the registry with its traits.

python tools/make_operators.py
"""

from __future__ import annotations

import inspect
from pathlib import Path

import specgrad as sg
from specgrad.op import REGISTRY, Op
from specgrad.ops import (
    activation,
    avg_pool,
    composites,
    contract,
    conv,
    elementwise,
    gather,
    integer_rounding,
    layout,
    max_pool,
    quantize,
    resize,
    smooth_pool,
    sorting,
    trigonometric,
)

FAMILIES = (
    conv,
    avg_pool,
    max_pool,
    smooth_pool,
    elementwise,
    integer_rounding,
    trigonometric,
    activation,
    quantize,
    contract,
    layout,
    gather,
    resize,
    sorting,
    composites,
)
INTRO = """# Operators

Made from the code by `python tools/make_operators.py`; a test keeps it current. Rules in brackets, such as [W2], are
quoted by the errors that enforce them.

Scalars: floats (IEEE), exact rationals (integers count as exact), python-flint balls, dual numbers, any type with
`+ - * /` and `>`. Pooling acts on the last axes, one per entry of the kernel, and maps the axes before them; conv takes
`(*batch, channels, *spatial)`. What each argument is, which shapes it has and what is raised stands on the page of the
call: [every public name](api.md).
"""


def public_name(fn: object) -> str | None:
    for name in sg.__all__:
        if getattr(sg, name) is fn:
            return name
    return None


def signature(fn: object) -> str:
    """Names and defaults; the types stand in the code."""
    parameters = [p.replace(annotation=inspect.Parameter.empty) for p in inspect.signature(fn).parameters.values()]
    return str(inspect.Signature(parameters))


def section(module: object) -> list[str]:
    doc = inspect.getdoc(module) or ""
    lines = [f"## {module.__name__.rpartition('.')[2]}", "", doc, ""]
    for fn in vars(module).values():
        name = public_name(fn) if inspect.isfunction(fn) else None
        if name and inspect.unwrap(fn).__module__ == module.__name__:
            lines += [f"### `{name}{signature(fn)}`", "", *_docstring(fn), ""]
    return lines


def _docstring(fn: object) -> list[str]:
    """Prose as prose, the example as code; what arguments are stands on the page of the call."""
    doc = inspect.getdoc(fn) or ""
    _, prompt, example = doc.partition(">>>")
    return [doc.partition("\nParameters\n---")[0].strip(), "", "```python", prompt + example, "```"]


def traits(op: Op) -> str:
    linear = "all" if op.linear == "all" else " ".join("(" + ",".join(map(str, g)) + ")" for g in op.linear)
    cells = (op.name, linear, " ".join(map(str, op.monotone)), "yes" * op.exact, "yes" * (op.roundings is not None))
    return "| " + " | ".join(cells) + " |"


def document() -> str:
    lines = [INTRO]
    for module in FAMILIES:
        lines += section(module)
    lines += [
        "## Registered operators and their promises",
        "",
        "Arguments are counted from 0. Linear: groups of arguments in which the operator is jointly linear. Monotone:",
        "arguments in which no output decreases. Exact: no rounding in floating point. Counted: it declares how many",
        "roundings an output takes. Each promise is a law that `tests/laws` checks on 200 generated cases.",
        "",
        "| operator | linear in | monotone in | exact | counted |",
        "|---|---|---|---|---|",
        *(traits(op) for op in REGISTRY.values() if op.spec.__module__.startswith("specgrad.")),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    (Path(__file__).parents[1] / "docs" / "reference" / "operators.md").write_text(document(), encoding="utf-8")
