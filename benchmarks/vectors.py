"""Test vectors on runtimes, from their files alone: what differs, what is refused, and which known defects are found.

    python benchmarks/vectors.py | tee benchmarks/vectors.txt                     # three minutes of CPU time
    python benchmarks/vectors.py --operator MaxPool --runtime onnxruntime

`specgrad conformance vectors` writes a folder; a program that imports numpy and the runtime alone, and the folder's own
run_vectors.py, reads it: a crash is an answer. Classes that differ are listed with their first case. Then planted
mistakes: each wrong kernel must be caught by some vector, a wrong expected value by all runtimes.
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
folder, wanted = pathlib.Path(sys.argv[1]), json.load(sys.stdin)
sys.path.insert(0, str(folder))
import run_vectors
{run}
run_vectors.run = run
cases = {{case["tag"]: case for case in json.loads((folder / "index.json").read_text())["cases"]}}
for tag in wanted:
    print(json.dumps([tag, *run_vectors.run_case(folder, cases[tag])]), flush=True)
assert "specgrad" not in sys.modules
"""
VERDICTS = ("ok", "differs", "refuses", "crashes")
Row = tuple[str, str, str]  # tag, verdict, detail
Class = tuple[str, str, str]  # operator, type, zone


def answers(folder: Path, run: str, tags: list[str]) -> list[Row]:
    """Verdicts on cases, by a program that knows the folder alone; one that ends it is started again behind it."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", PROGRAM.format(run=run), str(folder)]
    rows: list[Row] = []
    while len(rows) < len(tags):
        left = json.dumps(tags[len(rows) :])
        done = subprocess.run(command, input=left, capture_output=True, text=True, env=environment, timeout=1800)
        rows += [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith('["E_')]
        if len(rows) < len(tags):
            rows.append((tags[len(rows)], "crashes", done.stderr.strip()[-200:]))
    return rows


def class_of(tag: str) -> Class:
    _, operator, kind, zone, _ = tag.split("_")
    return operator, kind, zone


def classes(rows: Iterable[Row], verdict: str) -> dict[Class, list[Row]]:
    """Rows of a verdict, by class."""
    found = defaultdict(list)
    for row in rows:
        if row[1] == verdict:
            found[class_of(row[0])].append(row)
    return dict(found)


def show(title: str, rows: list[Row]) -> None:
    """Counts per operator, then what differs; a type of which half of the classes differ is one line."""
    operators = list(dict.fromkeys(class_of(t)[0] for t, _, _ in rows))
    print(f"\n## {title}\n\n{'operator':20}" + "".join(f"{v:>9}" for v in VERDICTS))
    for operator in (*operators, "all"):
        count = Counter(v for t, v, _ in rows if operator in ("all", class_of(t)[0]))
        print(f"{operator:20}" + "".join(f"{count[v]:>9}" for v in VERDICTS))
    there = Counter((o, k) for o, k, _ in {class_of(t) for t, _, _ in rows})
    wrong = classes(rows, "differs")
    many = Counter((o, k) for o, k, _ in wrong)
    print("\ndiffers:")
    for (o, k, z), some in sorted(wrong.items()):
        if 2 * many[o, k] < there[o, k]:
            print(f"  {o} {k} {z}: {len(some)} cases; {some[0][0]}: {some[0][2]}")
    for (o, k), n in sorted(many.items()):
        if 2 * n >= there[o, k]:
            some = [r for c, rs in wrong.items() for r in rs if c[:2] == (o, k)]
            print(f"  {o} {k}: {n} of {there[o, k]} classes, {len(some)} cases; {some[0][0]}: {some[0][2]}")
    free = classes([(t, "free", d) for t, v, d in rows if v == "ok" and d], "free")
    print("other values than the contract's in open cells: " + (", ".join(" ".join(c) for c in sorted(free)) or "none"))


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


def planted_kernels(folder: Path, right: list[str]) -> None:
    print("\n## wrong kernels (ONNX Runtime with one mistake put into it)\n")
    for name, (operator, wrong) in WRONG_KERNELS.items():
        tags = [t for t in right if class_of(t)[0] == operator.upper()]
        rows = answers(folder, PLANTED.format(wrong=textwrap.indent(wrong.strip(), "    ")), tags)
        caught = classes(rows, "differs")
        words = ", ".join(f"{kind} {zone}" for _, kind, zone in list(caught)[:4])
        count = sum(map(len, caught.values()))
        verdict = f"caught by {count} cases of {len(caught)} classes: {words}" if caught else "NOT CAUGHT"
        if tags:
            print(f"{operator:16} {name:38} {verdict}")


def planted_answers(folder: Path, right: list[str]) -> None:
    """One expected cell of a case that all runtimes answer right is moved by 1: each must contradict."""
    print("\n## wrong expected values\n")
    index = {case["tag"]: case for case in json.loads((folder / "index.json").read_text())["cases"]}
    for operator in ("CONV", "CONVINTEGER", "MAXPOOL", "QUANTIZELINEAR", "ADD"):
        tags = [t for t in right if class_of(t)[0] == operator and index[t]["outputs"][0]["shape"]]
        for case in (index[t] for t in tags[:1]):
            file = folder / case["folder"] / case["outputs"][0]["expected"]
            before = file.read_bytes()
            moved = np.load(file)
            moved.flat[0] = moved.flat[0] + 1 if moved.flat[0] < 100 else moved.flat[0] - 1
            np.save(file, moved)
            says = [f"{name} {answers(folder, RUNTIMES[name], [case['tag']])[0][1]}" for name in RUNTIMES]
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
        ]
        done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
        made: dict[str, Any] = json.loads(done.stdout)
        covered, listed = (sum(o[k] for o in made["operators"].values()) for k in ("covered", "listed"))
        print(
            f"{made['cases']} cases of {len(made['operators'])} operators, {covered} of {listed} listed classes; ",
            end="",
        )
        print(f"{made['cells']} cells, {made['open']} of them open; seed {asked.seed}")
        tags = [case["tag"] for case in json.loads((folder / "index.json").read_text())["cases"]]
        rows = {name: answers(folder, RUNTIMES[name], tags) for name in asked.runtime or RUNTIMES}
        for name, some in rows.items():
            show(f"{name} {version(PACKAGES[name])}", some)
        if asked.mistakes and "onnxruntime" in rows:
            planted_kernels(folder, [t for t, v, _ in rows["onnxruntime"] if v == "ok"])
            right = [t for t in tags if all((t, "ok") in {r[:2] for r in some} for some in rows.values())]
            planted_answers(folder, right)


if __name__ == "__main__":
    main()
