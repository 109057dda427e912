"""Test vectors on runtimes, from their files alone: what differs, what is refused, and which known defects are found.

    python benchmarks/vectors.py | tee benchmarks/vectors.txt                     # about two minutes on 2 cores
    python benchmarks/vectors.py --operator MaxPool --runtime onnxruntime

`specgrad vectors` writes a folder; a program that imports numpy and the runtime alone, and the folder's own
run_vectors.py, reads it, one process per operator: a crash is an answer. Zones that differ are listed with their first
case. Then planted mistakes: each wrong kernel must be caught by some vector, a wrong expected value by all runtimes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

RUNTIMES = {
    "onnxruntime": """
import onnxruntime
onnxruntime.set_default_logger_severity(4)
def run(path, feeds):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
""",
    "onnx-reference": """
import onnx
from onnx.reference import ReferenceEvaluator
def run(path, feeds):
    return ReferenceEvaluator(onnx.load(path)).run(None, feeds)
""",
    "openvino-f32": """
import numpy as np
import openvino
core = openvino.Core()
def run(path, feeds):
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [np.array(v) for v in compiled(feeds).to_tuple()]
""",
}
PACKAGES = {"onnxruntime": "onnxruntime", "onnx-reference": "onnx", "openvino-f32": "openvino"}
PROGRAM = """
import json, pathlib, sys, warnings
warnings.simplefilter("ignore")
folder, operator = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(folder))
import run_vectors
{run}
run_vectors.run = run
for case in json.loads((folder / "index.json").read_text())["cases"]:
    if case["operator"] == operator:
        print(json.dumps([case["tag"], *run_vectors.run_case(folder, case)]), flush=True)
assert "specgrad" not in sys.modules
"""
Row = tuple[str, str, str]  # tag, verdict, detail


def answers(folder: Path, runtime: str, operator: str) -> list[Row]:
    """Verdicts on every case of an operator, by a program that knows the folder alone."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", PROGRAM.format(run=RUNTIMES[runtime]), str(folder), operator]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    rows: list[Row] = [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith('["E_')]
    if done.returncode:
        rows.append((f"E_{operator.upper()}_", "crashes", done.stderr.strip().splitlines()[-1][:200]))
    return rows


def zones(rows: Iterable[Row], verdict: str) -> dict[tuple[str, str, str], list[Row]]:
    """(operator, type, zone) -> the rows of a verdict."""
    found = defaultdict(list)
    for row in rows:
        if row[1] == verdict:
            _, operator, kind, zone = row[0].split("_")[:4]
            found[operator, kind, zone].append(row)
    return dict(found)


def show(runtime: str, rows: list[Row], operators: list[str]) -> None:
    counts = {o: Counter(v for t, v, _ in rows if t.split("_")[1] == o.upper()) for o in operators}
    print(f"\n## {runtime} {version(PACKAGES[runtime])}\n")
    print(f"{'operator':20} {'ok':>6} {'differs':>8} {'refuses':>8} {'crashes':>8}")
    for operator, count in counts.items():
        print(
            f"{operator:20} "
            + " ".join(f"{count[v]:>{w}}" for v, w in (("ok", 6), ("differs", 8), ("refuses", 8), ("crashes", 8)))
        )
    total = sum(counts.values(), Counter())
    print(
        f"{'all':20} "
        + " ".join(f"{total[v]:>{w}}" for v, w in (("ok", 6), ("differs", 8), ("refuses", 8), ("crashes", 8)))
    )
    print("\ndiffers, a line per class:")
    for (operator, kind, zone), some in sorted(zones(rows, "differs").items()):
        print(f"  {operator} {kind} {zone}: {len(some)} cases, {some[0][0]} {some[0][2][:150]}")
    free = [row for row in rows if row[1] == "ok" and row[2]]
    for (operator, kind, zone), some in sorted(zones([(t, "free", d) for t, _, d in free], "free").items()):
        print(f"  open: {operator} {kind} {zone}: {len(some)} cases, {some[0][0]} {some[0][2]}")


# --- planted mistakes -------------------------------------------------------------------------------------------------

WRONG_KERNELS = {  # x: inputs by name, y: what ONNX Runtime gives, a: attributes, t: the type of the first output
    "ties to another cell": ("MaxPool", "return [y[0], y[1] + 1] if len(y) > 1 else y"),
    "NaN becomes 0": ("Relu", "return [np.nan_to_num(y[0], nan=0.0, posinf=np.inf, neginf=-np.inf)]"),
    "half away from zero": (
        "QuantizeLinear",
        """
if np.ndim(x["scale"]) or x["x"].dtype != np.float32:
    return y
q = x["x"] / x["scale"]
r = np.sign(q) * np.floor(np.abs(q) + 0.5) + x.get("zero", np.uint8(0)).astype(np.float64)
return [np.clip(np.nan_to_num(r), np.iinfo(t).min, np.iinfo(t).max).astype(t)]
""",
    ),
    "the zero point after saturation": (
        "QuantizeLinear",
        """
if np.ndim(x["scale"]):
    return y
r = np.clip(np.nan_to_num(np.rint(x["x"] / x["scale"])), np.iinfo(t).min, np.iinfo(t).max)
return [(r.astype(np.int64) + x.get("zero", np.uint8(0))).astype(t)]
""",
    ),
    "padding with 0 before the zero point": (
        "ConvInteger",
        """
d, pads = x["x"].ndim - 2, a.get("pads")
if not pads:
    return y
wide = [(0, 0), (0, 0), *zip(pads[:d], pads[d:])]
return base({**x, "x": np.pad(x["x"], wide)}, pads=[0] * 2 * d)
""",
    ),
    "results in half precision": ("MatMul", "return [y[0].astype(np.float16).astype(t)]"),
    "no shift before exp": ("Softmax", "e = np.exp(x['x'])\nreturn [(e / e.sum(a['axis'], keepdims=True)).astype(t)]"),
    "the order of cells": ("Reshape", "return [y[0].ravel('F').reshape(y[0].shape)]"),
    "the order of parts": ("Concat", "return [np.flip(y[0], a['axis'])]"),
    "the sign of zero is lost": ("Add", "return [y[0] + t.type(0)]"),
    "saturates where it overflows": ("Mul", "return [np.clip(y[0], np.finfo(t).min, np.finfo(t).max)]"),
    "subnormal results are flushed": (
        "Mul",
        "return [np.where(np.abs(y[0]) < np.finfo(t).smallest_normal, 0, y[0]).astype(t)]",
    ),
}
PLANTED = """
import numpy as np
import onnx, onnxruntime
onnxruntime.set_default_logger_severity(4)
def wrong(x, y, a, t):
{wrong}
def run(path, feeds):
    model = onnx.load(path)
    (node,) = model.graph.node
    a = {{i.name: onnx.helper.get_attribute_value(i) for i in node.attribute}}
    def base(x, **other):
        again = onnx.ModelProto(); again.CopyFrom(model)
        again.graph.node[0].ClearField("attribute")
        again.graph.node[0].attribute.extend(onnx.helper.make_attribute(k, v) for k, v in {{**a, **other}}.items())
        for info in again.graph.input:
            info.type.tensor_type.ClearField("shape")
        for info in again.graph.output:
            info.type.tensor_type.ClearField("shape")
        return onnxruntime.InferenceSession(again.SerializeToString()).run(None, x)
    globals()["base"] = base
    with np.errstate(all="ignore"):
        y = base(feeds)
        return wrong(feeds, y, a, y[0].dtype)
"""


def planted_kernels(folder: Path, operators: list[str]) -> None:
    print("\n## wrong kernels (ONNX Runtime with one mistake put into it)\n")
    right = {t for o in operators for t, v, _ in answers(folder, "onnxruntime", o) if v == "ok"}
    for name, (operator, wrong) in WRONG_KERNELS.items():
        if operator not in operators:
            continue
        RUNTIMES["planted"] = PLANTED.format(wrong=textwrap.indent(wrong.strip(), "    "))
        rows = [r for r in answers(folder, "planted", operator) if r[0] in right]
        caught = zones(rows, "differs")
        words = ", ".join(f"{kind} {zone}" for _, kind, zone in list(caught)[:4])
        verdict = (
            f"caught by {sum(map(len, caught.values()))} cases of {len(caught)} classes: {words}"
            if caught
            else "NOT CAUGHT"
        )
        print(f"{operator:16} {name:38} {verdict}")


def planted_answers(folder: Path, operators: list[str]) -> None:
    """One expected cell of each operator is moved: every runtime that answered the case right now says so."""
    print("\n## wrong expected values\n")
    index = json.loads((folder / "index.json").read_text())
    for operator in operators:
        case = next(
            c
            for c in index["cases"]
            if c["operator"] == operator and c["outputs"][0]["shape"] and not c["outputs"][0]["open"]
        )
        file = folder / case["folder"] / case["outputs"][0]["expected"]
        before = file.read_bytes()
        moved = np.load(file)
        moved.flat[0] = moved.flat[0] + 1 if moved.flat[0] < 100 else moved.flat[0] - 1
        np.save(file, moved)
        says = []
        for runtime in PACKAGES:
            rows = {t: v for t, v, _ in answers(folder, runtime, operator)}
            says.append(f"{runtime} {rows.get(case['tag'], 'crashes')}")
        file.write_bytes(before)
        print(f"{case['tag']:36} {', '.join(says)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operator", action="append", help="of these operators only")
    parser.add_argument("--runtime", action="append", choices=[*PACKAGES], help="on these runtimes only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mistakes", action=argparse.BooleanOptionalAction, default=True, help="plant mistakes too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "pack"
        options = [w for o in asked.operator or () for w in ("--operator", o)]
        command = [
            sys.executable,
            "-m",
            "specgrad",
            "vectors",
            "--out",
            str(folder),
            "--seed",
            str(asked.seed),
            "--json",
            *options,
        ]
        made: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        operators = [*made["operators"]]
        covered, listed = (sum(o[k] for o in made["operators"].values()) for k in ("covered", "listed"))
        print(f"{made['cases']} cases of {len(operators)} operators, {covered} of {listed} listed classes; ", end="")
        print(f"{made['cells']} cells, {made['open']} of them open; seed {asked.seed}")
        for runtime in asked.runtime or PACKAGES:
            show(runtime, [row for o in operators for row in answers(folder, runtime, o)], operators)
        if asked.mistakes:
            planted_kernels(folder, operators)
            planted_answers(
                folder, [o for o in operators if o in ("Conv", "ConvInteger", "MaxPool", "QuantizeLinear", "Add")]
            )


if __name__ == "__main__":
    main()
