"""The safety profile on public architectures: findings before and after `--normalise`, and the bits on ONNX Runtime.

python benchmarks/safety_profile.py                     all 20 rows, written to benchmarks/safety_profile.txt
python benchmarks/safety_profile.py resnet18 lenet      some rows, printed

Per row: broken rules with the number of findings, before and after; findings left that normalising should have cured;
whether ONNX Runtime gives the same bits on three random inputs, executing the file as it is written (no optimisation),
and as it does by default, where it merges other nodes in the two files: then the largest difference, over the largest
output.

The exporter is torch.onnx's older one (dynamo=False), which writes neither types nor shapes nor defaults. Needs
torchvision's and timm's definitions, not their compiled parts: benchmarks/zoo.py.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
import warnings
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch

from specgrad.errors import SpecgradError
from specgrad.process import Process
from specgrad.safety.profile import Profile, check_profile, normalise
from zoo import build, variant

import models  # isort: skip - of tests/interop, which zoo adds to the path

ROWS = ("lenet", "unet", "cnn3d", "alexnet", "squeezenet1_1", "resnet18", "resnext50_32x4d", "googlenet")
ROWS += ("shufflenet_v2_x1_0", "mobilenet_v2", "mobilenet_v3_small", "mnasnet1_0", "efficientnet_b0", "regnet_x_400mf")
ROWS += ("detector", "lraspp_mobilenet_v3_large", "vit_ti_16", "ghostnet_100 (timm)", "squeezenet1_1 int8")
ROWS += ("mobilenet_v2 float16",)
LEVELS = onnxruntime.GraphOptimizationLevel
OUT = Path(__file__).with_suffix(".txt")


def exported(module: Any, x: Any) -> bytes:
    buffer = io.BytesIO()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), buffer, dynamo=False)
    return buffer.getvalue()


def model_of(name: str) -> tuple[bytes, Any]:
    if name in models.SMALL:
        module, x = models.SMALL[name]()
        return exported(module, x), x.numpy()
    module, x = build(name)
    return variant(name, exported, module, x), x.numpy()


def outputs(data: bytes, x: Any, level: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads, options.log_severity_level = level, 1, 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: x}))


def agreement(before: bytes, after: bytes, x: Any, level: Any) -> str:
    rng, worst = np.random.default_rng(0), 0.0
    for k in range(3):
        given = x if k == 0 else rng.normal(size=x.shape).astype(x.dtype)
        for a, b in zip(outputs(before, given, level), outputs(after, given, level), strict=True):
            if a.tobytes() != b.tobytes():
                a, b = a.astype(float), b.astype(float)
                worst = max(worst, float(np.abs(a - b).max() / np.abs(a).max()))
    return "same bits" if worst == 0 else f"{worst:.1g}"


def broken(profile: Profile) -> str:
    counts = Counter(f.rule for f in profile.findings if f.severity == "broken")
    return ", ".join(f"{rule} {n}" for rule, n in counts.items()) or "none"


def row(name: str, process: Process) -> str:
    start = time.process_time()
    data, x = model_of(name)
    before = check_profile(data, process=process)
    try:
        done = normalise(data, process=process)
    except SpecgradError as error:
        return f"{name}: refused: {error}"
    after = check_profile(done.data, digests=done.digests, process=process)
    curable = [f for f in after.findings if "--normalise" in f.cure and not f.cure.startswith("nothing")]
    nodes = len(onnx.load_from_string(data).graph.node), len(onnx.load_from_string(done.data).graph.node)
    bits = [agreement(data, done.data, x, level) for level in (LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_ALL)]
    cells = (name, f"{nodes[0]} -> {nodes[1]}", broken(before), broken(after), str(len(curable)))
    return " | ".join((*cells, *bits, f"{time.process_time() - start:.1f}"))


HEAD = "model | nodes | broken before | broken after | curable left | as written | optimised | CPU s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*")
    given = parser.parse_args()
    packages = ", ".join(f"{p} {version(p)}" for p in ("specgrad", "torch", "onnx", "onnxruntime"))
    lines = [f"python benchmarks/safety_profile.py: {packages}", HEAD]
    print("\n".join(lines), flush=True)
    with Process(seconds=600) as process:
        for name in given.rows or ROWS:
            lines.append(row(name, process))
            print(lines[-1], flush=True)
    if not given.rows:
        OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
