"""docs/accuracy/ from the code: a page per ONNX operator, its formulas, conditions and promises.

python tools/make_accuracy.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from specgrad.declared_errors import MEASURED, ULPS, WRONG, as_pair, declared
from specgrad.graph.ir.node import bind_inputs
from specgrad.interop import from_onnx
from specgrad.interop.onnx.read.convert_node import all_operators
from specgrad.rounding import Arithmetic
from specgrad.rounding.propagate import graph_context, node_ball
from specgrad.safety.accuracy import SHEETS, Sheet

PAGES = Path(__file__).parents[1] / "docs" / "accuracy"
HUNTED = Path(__file__).parents[1] / "benchmarks" / "accuracy.txt"
PROSE = Path(__file__).with_name("accuracy_prose.md")
MADE = "Made from the code by `python tools/make_accuracy.py`; a test holds every formula against `specgrad.rounding`."

# --- operators without a formula of their own -------------------------------------------------------------------------

NORMAL: dict[str, dict[str, Any]] = {
    "LogSoftmax": {"shapes": [(2, 4)], "axis": 1},
    "InstanceNormalization": {"shapes": [(1, 2, 4), (2,), (2,)]},
    "GroupNormalization": {"shapes": [(1, 4, 2), (4,), (4,)], "num_groups": 2},
    "LRN": {"shapes": [(1, 4, 2)], "size": 3},
    "LpPool": {"shapes": [(1, 1, 4)], "kernel_shape": [2]},
    "GlobalLpPool": {"shapes": [(1, 1, 4)]},
    "ReduceL1": {"shapes": [(2, 4)], "constants": {"axes": np.int64([1])}},
    "ReduceL2": {"shapes": [(2, 4)], "constants": {"axes": np.int64([1])}},
    "ReduceSumSquare": {"shapes": [(2, 4)], "constants": {"axes": np.int64([1])}},
    "ReduceLogSumExp": {"shapes": [(2, 4)], "constants": {"axes": np.int64([1])}},
    "Erf": {"shapes": [(4,)]},
    "Softsign": {"shapes": [(4,)]},
    "Mish": {"shapes": [(4,)]},
    "Swish": {"shapes": [(4,)], "alpha": 1.5, "version": 24},
    "Elu": {"shapes": [(4,)]},
    "Celu": {"shapes": [(4,)], "alpha": 1.5},
    "Selu": {"shapes": [(4,)]},
    "HardSigmoid": {"shapes": [(4,)]},
    "PRelu": {"shapes": [(4,), (4,)]},
    "ThresholdedRelu": {"shapes": [(4,)]},
    "Upsample": {"shapes": [(1, 1, 4)], "constants": {"s": np.float32([1, 1, 1.75])}, "mode": "linear", "version": 9},
    "DynamicQuantizeLinear": {"shapes": [(4,)], "outputs": 3},
}
"""Nodes that are several steps: an example, whose steps the page lists."""
EXACT = {
    "OneHot": "numbers that are given, at positions that are whole",
    "Scatter": "as ScatterElements, which replaced it",
    "MaxUnpool": "copies cells to known positions; the rest is 0",
    "ScatterND": "copies cells to known positions",
    "ScatterElements": "adds: as many roundings as values meet in a cell, less one (put, rounding.md)",
    "CausalConvWithState": "is Conv on the state and X, concatenated, and its activation",
    "Cast": "one rounding to the format, u*(abs(X) + E_X) + its smallest number; what the format holds stays",
    "CastLike": "as Cast",
    "QLinearConv": "an exact integer sum, 1 rounding above 2**24, 4 of the scales, then round and saturate",
    "QLinearMatMul": "an exact integer sum, 1 rounding above 2**24, 4 of the scales, then round and saturate",
}
DECISIONS = [
    "And",
    "ArgMax",
    "ArgMin",
    "Ceil",
    "Equal",
    "Floor",
    "Greater",
    "GreaterOrEqual",
    "IsNaN",
    "Less",
    "LessOrEqual",
]
DECISIONS += ["Mod", "Not", "Or", "Round", "Sign", "TopK", "Xor"]
SHAPES = ["Constant", "ConstantOfShape", "Range", "Shape", "Size"]
WRITTEN = ["If", "Loop", "Scan"]
BY_STEPS = ["AffineGrid", "Attention", "CenterCropPad", "CumProd", "GRU", "GridSample", "LSTM", "LinearAttention"]
BY_STEPS += ["MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "RMSNormalization", "RNN", "ReduceLogSum"]
BY_STEPS += ["ReduceProd", "RoiAlign", "RotaryEmbedding", "Shrink", "SoftmaxCrossEntropyLoss", "SwiGLU"]
REFUSED = ["DeformConv", "NonMaxSuppression"]
PAGE_OF = {
    "sum": "ReduceSum",
    "amax": "ReduceMax",
    "select": "Where",
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
}
PAGE_OF |= {
    "avg_pool": "AveragePool",
    "normal_cdf": "",
    "clamp": "Clip",
    "contract": "MatMul",
    "quantize": "QuantizeLinear",
}
LAYOUT = ("input", "constant", "reshape", "broadcast", "permute", "stop_gradient", "slice")


def example(
    name: str, shapes: Any, constants: Any = None, version: int = 22, outputs: int = 1, **attributes: Any
) -> Any:
    """A graph of one node."""
    values = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, s) for i, s in enumerate(shapes)]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    node = helper.make_node(
        name, [v.name for v in values] + [t.name for t in stored], list("yzw"[:outputs]), **attributes
    )
    ends = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in "yzw"[:outputs]]
    file = helper.make_model(
        helper.make_graph([node], "g", values, ends, stored),
        opset_imports=[helper.make_opsetid("", version)],
        ir_version=10,
    )
    return from_onnx(file)


def roundings(graph: Any) -> list[tuple[str, int | None]]:
    """Per step: the operator, and what its terms have met; None where it ends a region."""
    run = graph_context(graph, Arithmetic(execution="node"), "numpy")
    rng = np.random.default_rng(0)
    given = [rng.uniform(1, 2, graph.nodes[p].shape).astype(np.float32) for p in graph.input_positions]
    inputs = bind_inputs(graph, given)
    balls: list[Any] = []
    for i, node in enumerate(graph.nodes):
        balls.append(node_ball(graph, i, node, balls, inputs, run))
    steps = [(n.op.name, b.expansion) for n, b in zip(graph.nodes, balls, strict=True) if n.op.name not in LAYOUT]
    return [(name, None if e is None else e.count.total) for name, e in steps]


def link(op: str) -> str:
    """The page of a graph's operator."""
    page = PAGE_OF.get(op, next((n for n in SHEETS if n.lower() == op.replace("_", "")), ""))
    return f"[{page}]({page.lower()}.md)" if page else "[rounding.md](../reference/rounding.md)"


# --- pages ------------------------------------------------------------------------------------------------------------


def formula(expr: Any) -> list[str]:
    return ["```text", expr.symbols, "```", "", f"In code: `{expr.code}`", ""]


def hunted(name: str) -> list[str]:
    """What executions used of the bound: the operator's line in benchmarks/accuracy.txt."""
    for line in HUNTED.read_text(encoding="utf-8").splitlines() if HUNTED.exists() else ():
        words = line.split()
        if len(words) == 11 and words[0] == name and words[9] == "%":
            rows = [
                f"| {what} | {' | '.join(words[k : k + 3])} |" for what, k in (("exact inputs", 2), ("inputs off", 5))
            ]
            head = ["| largest error over its bound | PyTorch | ONNX Runtime | JAX |", "|---|---|---|---|"]
            said = f"{words[1]} cells each, {words[10]} outside (`python benchmarks/accuracy.py`):"
            return ["", "## Executions", "", said, "", *head, *rows]
    return []


def declared_errors(function: str) -> list[str]:
    """What runtimes are declared to err by, from measurement."""
    rows = [f"| runtime | e of {function} | relative to | but |", "|---|---|---|---|"]
    for name, (version, _) in MEASURED.items():
        wrong = WRONG.get((name, function), "")
        units, scale = as_pair(ULPS[name].get(function, declared()[function]))
        said = f"{units:g}" if function in ULPS[name] else f"{units:g}, the default"
        rows.append(f"| {version} | {said} | {SCALE[scale]} | {wrong} |")
    units, scale = as_pair(declared()[function])
    rows.append(f"| any other: the default | {units:g} | {SCALE[scale]} | |")
    measured = "`benchmarks/ulps.py`, `benchmarks/runtime_ulps.py`"
    return [*rows, "", f"Measured by {measured}; what stands under *but* is a fault that no entry covers.", ""]


SCALE = {"y": "the result", "1": "1", "x": "the argument", "1+y": "1 + the result"}


def page(sheet: Sheet) -> str:
    family = sheet.family
    lines = [f"# {sheet.operator}", "", MADE, "", f"`{sheet.meaning}`", ""]
    if sheet.steps:
        lines += ["| symbol | what it is | formula |", "|---|---|---|"]
        lines += [f"| {s.name} | {s.words} | {_cell(s.formula)} |" for s in sheet.steps] + [""]
    lines += ["## Propagated error", "", *formula(sheet.propagated)]
    lines += ["## Introduced error", "", "By node:", "", *formula(sheet.introduced)]
    lines += [*sheet.notes, ""] if sheet.notes else []
    lines += ["Fused: " + family.fused, ""]
    if sheet.declared:
        lines += ["### The declared error e", "", *declared_errors(sheet.declared)]
    lines += ["## Conditions", ""]
    named = [word for word, _ in sheet.conditions]
    kept = [(word, text) for word, text in family.conditions if word not in named]
    lines += [f"- {word}: {text}" for word, text in (*kept, *sheet.conditions)]
    if sheet.fits is not None:
        lines.append(f"- *fits*: `{sheet.fits.code}` must be at most the largest number of the format")
    if sheet.divisor is not None:
        lines.append(f"- *divisor*: `{sheet.divisor.code}` must be at least t")
    lines += ["", "## Where the constants come from", "", family.source, ""]
    lines += ["## What an implementation must promise", ""]
    lines += [f"- {text}" for text in (*sheet.promises, *family.promises)]
    lines += hunted(sheet.operator)
    return "\n".join(lines) + "\n"


def _cell(expr: Any) -> str:
    return "given" if expr is None else "`" + expr.symbols.replace("|", "\\|") + "`"


def steps_page(name: str) -> str:
    """Of a node that is several steps."""
    shapes = ", ".join(map(str, NORMAL[name]["shapes"]))
    lines = [
        f"# {name}",
        "",
        MADE,
        "",
        *STEPS,
        "",
        f"At shapes {shapes}:",
        "",
        "| step | R | formula |",
        "|---|---|---|",
    ]
    graph = example(name, **NORMAL[name])
    lines += [f"| {op} | {'' if n is None else n} | {link(op)} |" for op, n in roundings(graph)]
    return "\n".join([*lines, "", *MERGED, *hunted(name)]) + "\n"


STEPS = (
    "One node of the file, several steps: the error of each is that of its page, with what comes in from the step",
    "before. Steps that are linear are merged, and their roundings counted once, at the end of their region: R is the",
    "most that a term has met. `specgrad tolerance accuracy` says the numbers for a model.",
)
MERGED = (
    "By node the layer is one region between the cuts; fused it is merged with the linear operators around it",
    "([executions.md](../reference/executions.md)). Conditions and promises are those of the steps.",
)


def index() -> str:
    """The table of all pages, and what has none."""
    rows = ["| operator | propagated | introduced |", "|---|---|---|"]
    for name in sorted({*SHEETS, *NORMAL}):
        s = SHEETS.get(name)
        cells = [_short(s.propagated), _short(s.introduced)] if s else ["by its steps", "by its steps"]
        rows.append(f"| [{name}]({name.lower()}.md) | {cells[0]} | {cells[1]} |")
    text = PROSE.read_text(encoding="utf-8").replace("{TABLE}", "\n".join(rows))
    text = text.replace("{EXACT}", "\n".join(f"- {n}: {why}" for n, why in EXACT.items()))
    text = text.replace("{DECISIONS}", ", ".join(DECISIONS)).replace("{SHAPES}", ", ".join(SHAPES))
    for name, names in (("REFUSED", REFUSED), ("WRITTEN", WRITTEN), ("STEPS", BY_STEPS)):
        text = text.replace(f"{{{name}}}", ", ".join(names))
    return text.replace("{PAGES}", "\n".join(name.lower() for name in sorted({*SHEETS, *NORMAL})))


def _short(expr: Any) -> str:
    text = _cell(expr)
    return text if len(text) < 70 else "see the page"


def pages() -> dict[str, str]:
    """Every file of the folder."""
    listed = {*SHEETS, *NORMAL, *EXACT, *DECISIONS, *SHAPES, *WRITTEN, *BY_STEPS, *REFUSED}
    assert listed == set(all_operators()), listed ^ set(all_operators())
    made = {f"{name.lower()}.md": page(sheet) for name, sheet in SHEETS.items()}
    made |= {f"{name.lower()}.md": steps_page(name) for name in NORMAL}
    return {**made, "index.md": index()}


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    wanted = pages()
    for old in PAGES.glob("*.md"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        (PAGES / name).write_text(text, encoding="utf-8")
