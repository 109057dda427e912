"""ResNet-18 and a U-Net in bare PyTorch, beside the same networks as compiled graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import specgrad as sg

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import common
import resnet18
import unet

Tree = Any


def conv_bn(conv: Tree, bn: Tree, x: torch.Tensor, stride: int = 1) -> torch.Tensor:
    w = conv["weight"]
    x = F.conv2d(x, w, None, stride, w.shape[-1] // 2)
    return F.batch_norm(x, bn["running_mean"], bn["running_var"], bn["weight"], bn["bias"])


def block(p: Tree, x: torch.Tensor) -> torch.Tensor:
    stride = 2 if "downsample" in p else 1
    y = conv_bn(p["conv2"], p["bn2"], F.relu(conv_bn(p["conv1"], p["bn1"], x, stride)))
    return F.relu(y + (conv_bn(*p["downsample"], x, stride) if "downsample" in p else x))


def bare_resnet18(p: Tree, x: torch.Tensor) -> torch.Tensor:
    x = F.max_pool2d(F.relu(conv_bn(p["conv1"], p["bn1"], x, 2)), 3, 2, 1)
    for stage in resnet18.STAGES:
        for part in p[stage]:
            x = block(part, x)
    return F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), p["fc"]["weight"], p["fc"]["bias"])


def bare_unet(p: Tree, x: torch.Tensor) -> torch.Tensor:
    def convs(q: Tree, t: torch.Tensor) -> torch.Tensor:
        for layer in q:
            t = F.relu(F.conv2d(t, layer["weight"], layer["bias"], 1, 1))
        return t

    skips = []
    for stage in p["down"]:
        x = convs(stage, x)
        skips.append(x)
        x = F.max_pool2d(x, 2)
    x = convs(p["bottom"], x)
    for stage in p["up"]:
        x = F.conv_transpose2d(x, stage["up"]["weight"], stage["up"]["bias"], 2)
        x = convs(stage["merge"], torch.cat([skips.pop(), x], 1))
    return F.conv2d(x, p["head"]["weight"], p["head"]["bias"])


def pair(
    name: str, net: Any, bare: Any, shapes: Tree, shape: tuple[int, ...]
) -> Iterator[tuple[str, Callable, Callable]]:
    """Forward without a gradient, then forward and backward of the mean square."""
    arrays = common.init(shapes)
    params = common.each(
        lambda path, a: torch.tensor(a, dtype=torch.float32, requires_grad=common.learnable(path)), arrays
    )
    module = sg.compile(sg.trace(net, shapes, shape), "torch")
    x = torch.randn(shape)

    def forward(f: Any) -> Callable[[], Any]:
        def run() -> Any:
            with torch.no_grad():
                return f(params, x)

        return run

    learn = [p for p in common.flat(params).values() if p.requires_grad]
    step = lambda f: lambda: torch.autograd.grad(f(params, x).square().mean(), learn)
    torch.testing.assert_close(forward(bare)(), forward(module)(), rtol=1e-4, atol=1e-5)
    yield f"{name} forward", forward(bare), forward(module)
    yield f"{name} forward + backward", step(bare), step(module)


def pairs() -> Iterator[tuple[str, Callable, Callable]]:
    yield from pair("ResNet-18 8x3x64x64", resnet18.net, bare_resnet18, resnet18.shapes(), (8, 3, 64, 64))
    yield from pair("U-Net 1x1x128x128, width 16", unet.net, bare_unet, unet.shapes(width=16), (1, 1, 128, 128))
