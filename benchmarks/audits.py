"""Audit five networks at real size on three runtimes; a planted fault and a faulty export beside them.

python benchmarks/audits.py            writes docs/findings/audits.md (some minutes)
python benchmarks/audits.py --small    small networks, printed only
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "interop"))

import models  # noqa: E402
from specgrad.check import Audit, audit  # noqa: E402

RUNTIMES = ("torch", "onnxruntime", "openvino-f32", "openvino")
INTRO = """# Audits of whole models

Networks in plain PyTorch with random weights of a fixed seed, on {versions}.
For every layer, the runtime's output is compared with the meaning of that layer on the runtime's own inputs to it; the
last but one column is the model as it is, nothing exposed, as a share of the radius through all layers. Seconds include
the export by torch.onnx, both runs of the runtime and all radii, on 2 shared cores. The radius through all layers is a
worst case that grows with depth: for ResNet-18 it says little; the layers are what proves something. OpenVINO without
the f32 hint computes in bfloat16 where the processor has AMX.

Written by `python benchmarks/audits.py`.

| network | runtime | verdict | layers | exact | worst used/allowed | whole model | seconds |
|---|---|---|--:|--:|--:|--:|--:|
"""


def row(name: str, runtime: str, found: Audit, seconds: float) -> str:
    kinds = [layer.verdict.kind for layer in found.layers]
    worst = max((layer.verdict.ratio for layer in found.layers), default=0.0)
    verdict = found.verdict if found.first_divergent is None else f"{found.verdict}: {found.first_divergent.name}"
    whole = f"{found.whole.kind} {found.whole.ratio:.2g}"
    cells = (name, runtime, verdict, len(kinds), kinds.count("exact"), f"{worst:.2g}", whole, f"{seconds:.0f}")
    return f"| {' | '.join(map(str, cells))} |"


def rows(table: dict) -> Iterator[str]:
    for name, make in {**table, "AvgPool2d(2, divisor_override=1)": models.overridden_divisor}.items():
        for runtime in RUNTIMES:
            module, x = make()
            start = time.perf_counter()
            found = audit(module, runtime, x.numpy())
            yield row(name, runtime, found, time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small networks, printed only")
    parser.add_argument("networks", nargs="*", help=f"some of {', '.join(models.FULL)}; default: all")
    options = parser.parse_args()
    small = options.small
    packages = ("torch", "onnx", "onnxruntime", "openvino")
    text = INTRO.format(versions=", ".join(f"{p} {version(p)}" for p in packages))
    table = models.SMALL if small else models.FULL
    for line in rows({n: m for n, m in table.items() if not options.networks or n in options.networks}):
        print(line, flush=True)
        text += line + "\n"
    if not small:
        (ROOT / "docs" / "findings" / "audits.md").write_text(text)


if __name__ == "__main__":
    main()
