"""Is this a counterexample? VNN-LIB read here, outputs from ONNX Runtime on the CPU, compared as exact rationals.

    python benchmarks/vnncomp/check_counterexample.py query.vnnlib results.txt net.onnx
    python benchmarks/vnncomp/check_counterexample.py query.vnnlib results.txt f=one.onnx g=two.onnx

Nothing of specgrad is imported. As in VNN-COMP 2026 the outputs that a tool states are ignored: the query is evaluated
at the stated inputs, digit by digit, and at what ONNX Runtime computes from them, rounded to float32, to nearest and of
two to the even one. No tolerance: an input lies in its box or it does not.
"""

from __future__ import annotations

import gzip
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

TOKEN = re.compile(r';[^\n]*|([()]|"[^"]*"|[^\s()\[\]";]*\[[^\]]*\]|[^\s()\[\]";]+)')
COMPARISONS = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


class NoCounterexampleError(ValueError):
    """Why it is none."""


# --- the query --------------------------------------------------------------------------------------------------------


def statements(text: str) -> list[Any]:
    """Parentheses as lists, the rest as strings."""
    stack: list[list[Any]] = [[]]
    for token in TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        elif token:
            stack[-1].append(token)
    (whole,) = stack
    return whole


def holds(formula: Any, cells: Mapping[str, Fraction]) -> bool:
    """Whether a formula is true where every variable has a value."""
    head, *rest = formula
    if head in ("and", "or"):
        return (all if head == "and" else any)(holds(part, cells) for part in rest)
    return all(COMPARISONS[head](value(a, cells), value(b, cells)) for a, b in pairwise(rest))


def value(term: Any, cells: Mapping[str, Fraction]) -> Fraction:
    if isinstance(term, str):
        name = re.sub(r"\s", "", term)
        return cells[name] if name in cells else Fraction(term)
    head, *rest = term
    parts = [value(part, cells) for part in rest]
    if head == "+":
        return sum(parts, Fraction(0))
    if head == "-":
        return -parts[0] if len(parts) == 1 else parts[0] - sum(parts[1:])
    if head == "*":
        return math.prod(parts, start=Fraction(1))
    raise NoCounterexampleError(f"the query has an operator that is not read here: {head}")


def sizes(text: str) -> list[int]:
    return [int(n) for n in text.strip("[] ").split(",") if n.strip()]


def networks(query: Sequence[Any]) -> list[dict[str, Any]]:
    """Declared ones: name, whom it equals, its inputs and outputs as (name, type, shape); 1.0 has X and Y alone."""
    declared = [s for s in query if s[0] == "declare-network"]
    if not declared:
        names = [s[1] for s in query if s[0] == "declare-const"]
        ends = [[(n, "real", [sum(v.startswith(f"{n}_") for v in names)])] for n in ("X", "Y")]
        return [{"name": "", "equals": "", "inputs": ends[0], "outputs": ends[1]}]
    result = []
    for _, name, *parts in declared:
        tensors = [[(p[1], p[2], sizes(p[3])) for p in parts if p[0] == f"declare-{e}"] for e in ("input", "output")]
        equals = "".join(p[1] for p in parts if p[0] == "equal-to")
        result.append({"name": name, "equals": equals, "inputs": tensors[0], "outputs": tensors[1]})
    return result


def names(tensor: tuple[str, str, list[int]], in_2_0: bool) -> Iterator[str]:
    """Of its cells, in row-major order."""
    name, _, shape = tensor
    for place in np.ndindex(*shape):
        yield f"{name}[{','.join(map(str, place))}]" if in_2_0 and shape else f"{name}_{place[0]}" if shape else name


# --- the assignment ---------------------------------------------------------------------------------------------------


def stated(text: str, tensors: Sequence[tuple[str, str, list[int]]], in_2_0: bool) -> dict[str, list[Fraction]]:
    """The cells of every tensor as stated, exactly, tensors in their order and nothing else."""
    lines = text.strip().splitlines()
    if lines and lines[0].strip() == "sat":
        lines.pop(0)
    if in_2_0:
        texts = _cells_2_0(lines, tensors)
    else:
        pairs = re.findall(r"\(\s*([XY]_\d+)\s+([^\s()]+)\s*\)", "\n".join(lines))
        if [n for n, _ in pairs] != [n for t in tensors for n in names(t, False)]:
            raise NoCounterexampleError("the assignment must name X_0, X_1, ..., Y_0, Y_1, ... once each, in order")
        texts = {t[0]: [v for n, v in pairs if n.startswith(f"{t[0]}_")] for t in tensors}
    for name, cells in texts.items():
        for i, cell in enumerate(cells):
            if not DECIMAL.fullmatch(cell):
                raise NoCounterexampleError(f"cell {i} of {name} is no number: {cell}")
    return {name: [Fraction(cell) for cell in cells] for name, cells in texts.items()}


def _cells_2_0(lines: Sequence[str], tensors: Sequence[tuple[str, str, list[int]]]) -> dict[str, list[str]]:
    """A header per tensor, then a line per cell."""
    texts, at = {}, 0
    for name, kind, shape in tensors:
        header = f"{name} {kind} [{','.join(map(str, shape))}]"
        if at >= len(lines) or lines[at].strip() != header:
            raise NoCounterexampleError(f"line {at + 2} of the results must be {header!r}")
        count = math.prod(shape)
        texts[name] = [line.strip() for line in lines[at + 1 : at + 1 + count]]
        at += 1 + count
    if at != len(lines):
        raise NoCounterexampleError(f"{len(lines) - at} lines stand after the assignment, or it is cut")
    return texts


def float32(cells: Sequence[Fraction]) -> np.ndarray:
    """The nearest float32 numbers, of two the one whose last bit is 0."""
    return np.array([_nearest(cell) for cell in cells], np.float32)


def _nearest(cell: Fraction) -> np.float32:
    near = np.float32(float(cell))  # rounded twice, so one of its neighbours may be nearer
    beside = [np.nextafter(near, np.float32(way)) for way in (-np.inf, np.inf)]
    several = [v for v in (near, *beside) if np.isfinite(v)]
    if not several:
        raise NoCounterexampleError(f"an input is too large for float32: {float(cell)}")
    return min(several, key=lambda v: (abs(Fraction(float(v)) - cell), int(v.view(np.uint32)) & 1))


# --- the run ----------------------------------------------------------------------------------------------------------


def outputs(file: Path, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes; sizes that the file leaves open are what the input fills, a batch being 1."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else str(file)
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feeds = {}
    for end, cells in zip(session.get_inputs(), inputs, strict=True):
        shape = [n if isinstance(n, int) and n > 0 else -1 for n in end.shape]
        while shape.count(-1) > 1:
            shape[shape.index(-1)] = 1
        feeds[end.name] = cells.reshape(shape)
    return [np.ravel(y) for y in session.run(None, feeds)]


def check(query_file: Path, assignment: str, files: Mapping[str, Path]) -> float:
    """The largest difference between stated outputs and those of ONNX Runtime; an error where it is none."""
    raw = query_file.read_bytes()
    query = statements((gzip.decompress(raw) if query_file.suffix == ".gz" else raw).decode())
    in_2_0 = any(s[0] == "declare-network" for s in query)
    declared = networks(query)
    given = stated(assignment, [t for n in declared for t in (*n["inputs"], *n["outputs"])], in_2_0)
    cells: dict[str, Fraction] = {}
    apart = 0.0
    for network in declared:
        file = files.get(network["name"]) or files.get(network["equals"]) or files[""]
        computed = outputs(file, [float32(given[t[0]]) for t in network["inputs"]])
        for tensor, y in zip(network["outputs"], computed, strict=False):
            apart = max(apart, float(np.max(np.abs(y.astype(float) - np.array(given[tensor[0]], float)), initial=0.0)))
            cells |= {n: Fraction(v) for n, v in zip(names(tensor, in_2_0), y.tolist(), strict=True)}
        for tensor in network["inputs"]:
            cells |= dict(zip(names(tensor, in_2_0), given[tensor[0]], strict=True))
    for k, statement in enumerate(s for s in query if s[0] == "assert"):
        if not holds(statement[1], cells):
            raise NoCounterexampleError(f"assertion {k + 1} is false: {str(statement[1])[:200]}")
    return apart


def main() -> None:
    query, results, *models = sys.argv[1:]
    files = {}
    for model in models:
        name, equals, file = model.partition("=")
        files |= {"": Path(model)} if not equals or Path(model).is_file() else {name: Path(file)}
    try:
        apart = check(Path(query), Path(results).read_text(), files)
    except NoCounterexampleError as error:
        print(f"no counterexample: {error}")
        sys.exit(1)
    print(f"correct; the stated outputs differ from those of ONNX Runtime by {apart:.3g} at most")


if __name__ == "__main__":
    main()
