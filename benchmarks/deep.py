"""Deep networks: CPU seconds and widths of linear bounds, over a box of eps 1/255 and at its middle, one thread.

python benchmarks/deep.py                                   # all; writes benchmarks/deep.txt
PYTHONPATH=path/to/auto_LiRPA python benchmarks/deep.py     # with auto_LiRPA's CROWN beside ours, in the same process

Ours hold for every float32 execution, fused unless "by node"; auto_LiRPA's for real arithmetic, as far as its own
float32 goes. Weights are random (He), batch-norms as they are made: harder than trained networks.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from specgrad import bounds
from specgrad.interop import from_torch
from specgrad.rounding import Arithmetic

torch.set_num_threads(1)
PAGE = Path(__file__).with_suffix(".txt")
EPS = 1 / 255
KERNELS = (nn.Conv2d, nn.Conv3d, nn.Linear, nn.ConvTranspose2d)


# --- networks ---------------------------------------------------------------------------------------------------------


def normed(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """relu(f(x) + shortcut(x)), or f(x) + x without a relu behind it."""

    def __init__(self, body: nn.Module, shortcut: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut, self.activation = body, shortcut, activation

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.activation(self.body(x) + self.shortcut(x))
        return y


def basic_block(inputs: int, outputs: int, stride: int) -> nn.Module:
    body = nn.Sequential(*normed(inputs, outputs, 3, stride), nn.ReLU(), *normed(outputs, outputs, 3))
    same = stride == 1 and inputs == outputs
    return Residual(body, nn.Identity() if same else nn.Sequential(*normed(inputs, outputs, 1, stride)), nn.ReLU())


def resnet(stem: int, blocks: int, width: int = 8, image: int = 32) -> nn.Module:
    """stem 7: as for ImageNet, with a maximum; 3: one convolution at full size."""
    layers: list[nn.Module] = [*normed(3, width, stem, 2 if stem == 7 else 1), nn.ReLU()]
    layers += [nn.MaxPool2d(3, 2, 1)] if stem == 7 else []
    inputs, size = width, image // 4 if stem == 7 else image
    for stage in range(4):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            layers.append(basic_block(inputs, width << stage, stride))
            inputs, size = width << stage, -(-size // stride)
    return nn.Sequential(*layers, nn.AvgPool2d(size), nn.Flatten(), nn.Linear(inputs, 10))


def bottleneck(inputs: int, outputs: int, stride: int, expand: int) -> nn.Module:
    hidden = inputs * expand
    layers = [] if expand == 1 else [*normed(inputs, hidden, 1), nn.ReLU6()]
    layers += [*normed(hidden, hidden, 3, stride, hidden), nn.ReLU6(), *normed(hidden, outputs, 1)]
    body = nn.Sequential(*layers)
    return Residual(body, nn.Identity(), nn.Identity()) if stride == 1 and inputs == outputs else body


STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet(share: float = 0.25) -> nn.Module:
    def width(channels: int) -> int:
        return max(4, int(channels * share))

    inputs = width(32)
    layers: list[nn.Module] = [*normed(3, inputs, 3, 2), nn.ReLU6()]
    for expand, outputs, count, stride in STAGES:
        for k in range(count):
            layers.append(bottleneck(inputs, width(outputs), 1 if k else stride, expand))
            inputs = width(outputs)
    layers += [*normed(inputs, width(1280), 1), nn.ReLU6(), nn.AvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(width(1280), 10))


class UNet(nn.Module):
    def __init__(self, width: int = 4, depth: int = 2) -> None:
        super().__init__()

        def twice(a: int, b: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())

        widths = [width << k for k in range(depth + 1)]
        self.down = nn.ModuleList([twice(a, b) for a, b in zip([1, *widths], widths, strict=False)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * a, a, 2, 2) for a in widths[:-1]])
        self.join = nn.ModuleList([twice(2 * a, a) for a in widths[:-1]])
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for part in self.down[:-1]:
            skipped.append(part(x))
            x = nn.functional.max_pool2d(skipped[-1], 2)
        x = self.down[-1](x)
        for k in reversed(range(len(skipped))):
            x = self.join[k](torch.cat([skipped[k], self.up[k](x)], 1))
        y: Tensor = self.last(x)
        return y


def cnn3d(width: int = 8) -> nn.Module:
    layers: list[nn.Module] = []
    for k, (a, b) in enumerate(((1, width), (width, 2 * width), (2 * width, 4 * width))):
        layers += [nn.Conv3d(a, b, 3, padding=1), nn.ReLU()] + ([nn.MaxPool3d(2)] if k < 2 else [])
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width * 64, 10))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], float]] = {
    "ResNet-18 w8": (lambda: resnet(7, 2), (1, 3, 32, 32), 3),
    "ResNet-10 w8, 3x3 stem": (lambda: resnet(3, 1), (1, 3, 32, 32), 15),
    "MobileNetV2 x0.25": (mobilenet, (1, 3, 32, 32), 35),
    "U-Net w4": (UNet, (1, 1, 32, 32), 25),
    "3-D CNN w8": (cnn3d, (1, 1, 16, 16, 16), 25),
}


def made(name: str) -> tuple[nn.Module, Tensor]:
    build, shape, _ = NETWORKS[name]
    network = build()
    torch.manual_seed(0)
    for part in network.modules():
        if isinstance(part, KERNELS):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            if part.bias is not None:
                nn.init.normal_(part.bias, std=0.05)
    return network.eval(), torch.rand(shape, generator=torch.Generator().manual_seed(1))


# --- one row ----------------------------------------------------------------------------------------------------------


def timed(work: Callable[[], tuple[Any, Any]]) -> str:
    start = time.process_time()
    low, high = work()
    seconds = time.process_time() - start
    return f"{seconds:7.1f} s {np.max(np.asarray(high) - np.asarray(low)):9.4g}"


def ours(graph: Any, x: np.ndarray, eps: float, arithmetic: Arithmetic) -> Callable[[], tuple[Any, Any]]:
    def work() -> tuple[Any, Any]:
        found = bounds.crown(graph, bounds.Box(x - eps, x + eps), arithmetic=arithmetic).outputs
        return found.low, found.high

    return work


def theirs(network: nn.Module, x: Tensor) -> str:
    """CROWN of auto_LiRPA; what it says where it does not."""
    try:
        from auto_LiRPA import BoundedModule, BoundedTensor, PerturbationLpNorm
    except ImportError:
        return "-"

    def work() -> tuple[Any, Any]:
        with contextlib.redirect_stdout(io.StringIO()):
            bounded = BoundedModule(network, x)
            moved = BoundedTensor(x, PerturbationLpNorm(norm=np.inf, eps=EPS))
            low, high = bounded.compute_bounds(x=(moved,), method="CROWN")
        return low.detach(), high.detach()

    try:
        return timed(work)
    except Exception as error:  # whatever a library raises that does not take the network
        return f"{type(error).__name__}: {str(error).splitlines()[0][:60] if str(error) else ''}"


def row(name: str) -> str:
    network, x = made(name)
    graph, point = from_torch(network, x), x.double().numpy()
    parts = [timed(ours(graph, point, eps, Arithmetic(execution=e))) for e, eps in COLUMNS]
    return f"{name:24} {NETWORKS[name][2]:3.0f} s  {'  '.join(parts)}  {theirs(network, x)}"


COLUMNS = (("fused", EPS), ("fused", 0.0), ("node", 0.0))
HEAD = f"{'':24} {'ask':>5}  {'box: CPU, width':>19}  {'point':>19}  {'point, by node':>19}  auto_LiRPA, box"


def main() -> None:
    if len(sys.argv) > 1:
        print(row(sys.argv[1]))
        return
    lines = [HEAD]
    print(HEAD, flush=True)
    for name in NETWORKS:  # each in a process of its own: one network's memory is not another's
        run = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
        lines.append(run.stdout.rstrip().splitlines()[-1])
        print(lines[-1], flush=True)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
