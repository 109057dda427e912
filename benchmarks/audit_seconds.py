"""CPU seconds of an audit on ONNX Runtime: of an ONNX file, and of the PyTorch module that it was exported from.

python benchmarks/audit_seconds.py                   # prints, and writes benchmarks/audit_seconds.txt
python benchmarks/audit_seconds.py lenet             # some networks, printed only
python benchmarks/audit_seconds.py --beside ../b/src  # beside the package in another folder, taking turns

Every audit has a process of its own with one thread, in which torch and specgrad.check are imported beforehand. "first"
is the first audit there and brings what else is to be imported (onnxruntime, of a module torch.onnx's exporter);
"again" is the second one. Both count the process in which the runtime runs, its start and its imports included. Of
each the least of all rounds; packages, networks and ways take turns. "forwards" is "again" over PyTorch's forward pass.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "interop")]
NETWORKS = ("lenet", "resnet18")
WAYS = ("file", "module")
Seconds = dict[str, float]


def spent() -> float:
    """CPU seconds of this process and of all that it waited for."""
    each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in each)


def forward_seconds(module: Any, x: Any) -> float:
    """The least CPU seconds of ten forward passes."""
    import torch

    times = []
    with torch.no_grad():
        for _ in range(11):
            start = time.process_time()
            module(x)
            times.append(time.process_time() - start)
    return min(times[1:])


def child(name: str, way: str, path: str) -> None:
    """Print the seconds of two audits in this process, of their exports alone, and of a forward pass."""
    import torch

    import models
    from specgrad.check import audit

    torch.set_num_threads(1)
    module, x = models.FULL[name]()
    module.eval()
    seconds = {"forward": forward_seconds(module, x)}
    export, exports = torch.onnx.export, [0.0]

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        program = export(*args, **kwargs)
        exports[0] += time.process_time() - start
        return program

    torch.onnx.export = timed  # type: ignore[assignment]
    for which in ("first", "again"):
        start, exports[0] = spent(), 0.0
        found = audit(path if way == "file" else module, "onnxruntime", x.numpy())
        seconds |= {which: spent() - start, f"{which} export": exports[0]}
    print(json.dumps({"seconds": seconds, "verdict": str(found.verdict)}))


def measure(package: Path, name: str, way: str, path: str) -> Seconds:
    """Run one child with the package of this folder."""
    words = [sys.executable, __file__, "--child", name, way, path]
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    out = subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout
    seconds: Seconds = json.loads(out.splitlines()[-1])["seconds"]
    return seconds


def write_file(name: str, folder: str) -> str:
    """Export a network with torch.onnx; the file's path."""
    import torch

    import models

    module, x = models.FULL[name]()
    path = f"{folder}/{name}.onnx"
    torch.onnx.export(module.eval(), (x,), dynamo=True, verbose=False).save(path)
    return path


def table(packages: dict[str, Path], networks: list[str], rounds: int) -> list[str]:
    """Lines of the least seconds, by network, way and package."""
    least: dict[tuple[str, str, str], Seconds] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {name: write_file(name, folder) for name in networks}
        for turn in range(rounds):
            for name in networks:
                for way in WAYS:
                    for label in list(packages)[:: 1 if turn % 2 else -1]:
                        found = measure(packages[label], name, way, files[name])
                        before = least.setdefault((name, way, label), found)
                        least[name, way, label] = {k: min(v, before[k]) for k, v in found.items()}
    head = f"{'network':10} {'audit of':9} {'package':8} {'first':>7} {'(export)':>9} {'again':>7} {'(export)':>9} "
    lines = [head + f"{'forwards':>9}"]
    for (name, way, label), s in sorted(least.items(), key=lambda item: networks.index(item[0][0])):
        forwards = s["again"] / min(v["forward"] for (n, *_), v in least.items() if n == name)
        lines.append(
            f"{name:10} {way:9} {label:8} {s['first']:7.2f} {s['first export']:9.2f} {s['again']:7.2f} "
            f"{s['again export']:9.2f} {forwards:9,.0f}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; default: all, written to the file")
    parser.add_argument("--beside", type=Path, help="the folder of another package, which is called before")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    import torch

    from pace import slower

    packages = {"now": ROOT / "src"} | ({"before": options.beside.absolute()} if options.beside else {})
    said = f"CPU seconds of an audit, one thread, torch {torch.__version__}, least of {options.rounds} rounds; "
    lines = [f"{said}pace {slower():.1f} (1: an idle machine)", "(export): torch.onnx.export, a part of the audit", ""]
    lines += table(packages, options.networks or list(NETWORKS), options.rounds)
    print("\n".join(lines))
    if not options.networks:
        Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
