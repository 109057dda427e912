"""How much may a correct runtime differ? Proven tolerances of 13 networks beside what runtimes really do.

python benchmarks/tolerance.py                 # all, each in a process of its own; writes benchmarks/tolerance.txt
python benchmarks/tolerance.py LeNet-5         # one; printed only
python benchmarks/tolerance.py --limit 300     # seconds for one network (default 600); beyond that a line says so

outputs      the largest output
forward      the radius carried forwards (rounding.radius), the largest over all outputs, float32 fused
tolerance    the same proven by check.tolerance, fused; and by node
seen         the largest distance of ONNX Runtime, OpenVINO (f32), jax.jit and PyTorch from a float64 run
orders       the same of executions whose every sum takes one of several orders, at random or against one output
ratio        the larger of both over the tolerance
seconds      of check.tolerance, fused, CPU seconds of one thread; the forward radius takes milliseconds

Weights are random (He) but for the two networks that are trained in benchmarks/trained.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "hunt")]
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import cnn3d  # noqa: E402
import lenet  # noqa: E402
import mobilenetv2  # noqa: E402
import resnet18  # noqa: E402
import specgrad as sg  # noqa: E402
import unet  # noqa: E402
from common import init  # noqa: E402
from optimisers import OPTIMISERS, is_misread_by_openvino  # noqa: E402
from specgrad.check import tolerance  # noqa: E402
from specgrad.check.models.emulate import Executor, slopes  # noqa: E402
from specgrad.interop import from_torch  # noqa: E402
from specgrad.rounding import Arithmetic, radius  # noqa: E402
from trained import digits, pictures  # noqa: E402

torch.set_num_threads(1)
PAGE = Path(__file__).with_suffix(".txt")
Case = tuple[sg.Graph, list[np.ndarray]]
NODE = Arithmetic(execution="node")


# --- networks ---------------------------------------------------------------------------------------------------------


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).random(shape).astype(np.float32)


def example(net: Callable[..., Any], shapes: Any, *size: int) -> Case:
    """A network of examples/ with its weights as constants, as a runtime loads it."""
    params = sg.tree.transform(lambda _, a: np.asarray(a, np.float32), init(shapes))
    return sg.trace(lambda x: net(params, x), size), [image(*size)]


def module(layers: nn.Module, *size: int) -> Case:
    torch.manual_seed(0)
    for part in layers.modules():
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            nn.init.normal_(part.bias, std=0.05)
    x = image(*size)
    return from_torch(layers.eval(), torch.from_numpy(x)), [x]


def perceptron() -> Case:
    sizes = (784, 128, 128, 10)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return module(nn.Sequential(*layers[:-1]), 1, 784)


def vgg() -> Case:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 8), (8, 16), (16, 32)):
        for a, b in ((inputs, outputs), (outputs, outputs)):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    return module(nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10)), 1, 3, 32, 32)


def autoencoder() -> Case:
    down = [nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()]
    up = [nn.ConvTranspose2d(16, 8, 2, 2), nn.ReLU(), nn.ConvTranspose2d(8, 1, 2, 2), nn.Sigmoid()]
    return module(nn.Sequential(*down, *up), 1, 1, 16, 16)


def speech() -> Case:
    """Convolutions over time, by channel and across channels, as keyword spotters have them."""
    layers: list[nn.Module] = [nn.Conv1d(10, 24, 5, 2, 2), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Conv1d(24, 24, 5, 1, 2, groups=24), nn.BatchNorm1d(24), nn.ReLU(), nn.Conv1d(24, 24, 1)]
        layers += [nn.BatchNorm1d(24), nn.ReLU()]
    return module(nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(24, 12)), 1, 10, 32)


class Encoder(nn.Module):
    """One block of a transformer: attention of two heads, two layer normalisations, gelu."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        q, k, v = (part(y).reshape(1, -1, 2, 8).transpose(1, 2) for part in self.parts[:3])
        shares = torch.softmax(q @ k.transpose(2, 3) / 8**0.5, -1)
        x = x + self.parts[3]((shares @ v).transpose(1, 2).reshape(x.shape))
        return x + self.second(nn.functional.gelu(self.first(self.norms[1](x))))


def trained(task: Any) -> Case:
    x = task.x[:1]
    return from_torch(task.module, torch.from_numpy(x)), [x]


def lenet_gradient() -> Case:
    graph, (x,) = example(lenet.net, lenet.shapes(), 1, 1, 28, 28)
    return sg.vjp(graph), [x, np.eye(10, dtype=np.float32)[:1]]


CASES: dict[str, Callable[[], Case]] = {
    "perceptron 784-128-128-10": perceptron,
    "LeNet-5": lambda: example(lenet.net, lenet.shapes(), 1, 1, 28, 28),
    "digits (trained)": lambda: trained(digits()),
    "autoencoder, 16x16": autoencoder,
    "1-D CNN, by channel": speech,
    "transformer block": lambda: module(Encoder(), 1, 6, 16),
    "VGG-7, 32x32": vgg,
    "ResNet-18 w8, 32x32": lambda: example(resnet18.net, resnet18.shapes(10, 8), 1, 3, 32, 32),
    "ResNet-20 w8, stem s2 (trained)": lambda: trained(pictures(8, 2)),
    "U-Net w4, 32x32": lambda: example(unet.net, unet.shapes(width=4, depth=2), 1, 1, 32, 32),
    "3-D CNN w4, 16x16x16": lambda: example(cnn3d.net, cnn3d.shapes(1, 10, 4), 1, 1, 16, 16, 16),
    "MobileNetV2 x0.25, 32x32": lambda: example(mobilenetv2.net, mobilenetv2.shapes(10, 8), 1, 3, 32, 32),
    "gradient of LeNet-5": lenet_gradient,
}


# --- one network ------------------------------------------------------------------------------------------------------


def apart(exact: Sequence[np.ndarray], outputs: Sequence[Any]) -> float:
    pairs = zip(exact, outputs, strict=True)
    return max(float(np.abs(np.asarray(y, float).reshape(e.shape) - e).max(initial=0)) for e, y in pairs)


def on_runtimes(graph: sg.Graph, inputs: list[np.ndarray], exact: Sequence[np.ndarray]) -> dict[str, float]:
    found = {}
    for name in ("onnxruntime ORT_ENABLE_ALL", "openvino", "jax.jit", "torch"):
        if name == "openvino" and is_misread_by_openvino(graph):
            continue
        try:
            found[name] = apart(exact, OPTIMISERS[name](graph)(inputs))
        except sg.SpecgradError:
            continue
    return found


def by_orders(graph: sg.Graph, inputs: list[np.ndarray], exact: Sequence[np.ndarray], count: int = 3) -> float:
    """Executions by node: some with random directions, some against the first output, up and down."""
    executor, rng = Executor(graph, NODE), np.random.default_rng(0)
    row = np.zeros(sum(e.size for e in exact))
    row[0] = 1.0
    steep = slopes(graph, inputs, row)
    ways = [{i: rng.choice((-1.0, 1.0), n.shape) for i, n in enumerate(graph.nodes)} for _ in range(count)]
    ways += [{i: sign * g for i, g in steep.items()} for sign in (1, -1)]
    return max(apart(exact, executor.run(inputs, way)) for way in ways)


def measured(name: str) -> Iterator[dict[str, Any]]:
    """What is known, more after every step: a process that is stopped has said some of it."""
    graph, inputs = CASES[name]()
    balls = sg.tree.leaves(radius(graph, *inputs, backend="torch").outputs)
    found: dict[str, Any] = {"forward": max(float(np.max(b.radius)) for b in balls)}
    exact = [np.asarray(b.value) for b in balls]
    found |= {"size": max(float(np.abs(e).max()) for e in exact), "runtimes": on_runtimes(graph, inputs, exact)}
    yield found
    start = time.process_time()
    found["fused"] = tolerance(graph, *inputs).tolerance
    found["seconds"] = time.process_time() - start
    yield found
    found["node"] = tolerance(graph, *inputs, arithmetic=NODE).tolerance
    yield found
    found["orders"] = by_orders(graph, inputs, exact)
    yield found


# --- the table --------------------------------------------------------------------------------------------------------


def in_process(name: str, limit: float) -> str:
    """The line of a network; what stops it is said."""
    command = [sys.executable, __file__, name, "--json"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        said, end = run.stdout, run.stderr.strip().splitlines()[-1][:100] if run.returncode else ""
    except subprocess.TimeoutExpired as stopped:
        said, end = bytes(stopped.stdout or b"").decode(), f"stopped after {limit:g} s"
    return line(name, json.loads((said.splitlines() or ["{}"])[-1]), end)


def line(name: str, r: dict[str, Any], end: str) -> str:
    number = lambda key: f"{r[key]:.2g}" if key in r else "-"
    by, seen = max(r.get("runtimes", {"": 0.0}).items(), key=lambda pair: pair[1])
    ratio = f"{max(seen, r.get('orders', 0)) / r['fused']:.1e}" if "fused" in r else "-"
    return (
        f"{name:32} {number('size'):>8} {number('forward'):>8} {number('fused'):>9} {number('node'):>9} {seen:8.2g}"
        f" {number('orders'):>8} {ratio:>8} {number('seconds'):>8}  {by.split()[0] if by else '':12}{end}"
    )


HEAD = (
    f"{'network':32} {'outputs':>8} {'forward':>8} {'tolerance':>9} {'by node':>9} {'seen':>8} {'orders':>8}"
    f" {'ratio':>8} {'seconds':>8}  seen by"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", choices=[[], *CASES], default=[])
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--json", action="store_true", help="one network, here")
    options = parser.parse_args()
    if options.json:
        for found in measured(options.networks[0]):
            print(json.dumps(found), flush=True)
        return
    lines = [HEAD]
    print(HEAD)
    for name in options.networks or CASES:
        lines.append(in_process(name, options.limit))
        print(lines[-1], flush=True)
        if not options.networks:
            PAGE.write_text("\n".join([__doc__ or "", *lines]) + "\n")


if __name__ == "__main__":
    main()
