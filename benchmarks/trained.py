"""Two networks trained here, in minutes of one thread and with fixed seeds: digits, and pictures of 32x32.

    from trained import digits, pictures
    task = digits()          # Task(name, module, x, y): a float32 module, test images and their classes

Weights are kept in a folder outside the repository (SPECGRAD_WEIGHTS, else the user's cache), and trained anew where
they are not there. Digits are scikit-learn's 8x8 (pip install '.[examples]'); pictures are drawn below, ten classes of
shapes and textures in random colours, places and sizes, with noise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


class Task(NamedTuple):
    """A trained module in evaluation mode, and test images with their classes."""

    name: str
    module: nn.Module
    x: np.ndarray
    y: np.ndarray

    @property
    def accuracy(self) -> float:
        with torch.no_grad():
            found = torch.cat([self.module(part).argmax(1) for part in torch.from_numpy(self.x).split(100)])
        return float((found.numpy() == self.y).mean())


# --- digits -----------------------------------------------------------------------------------------------------------


def digits_module(width: int = 16) -> nn.Module:
    """Five convolutions, two of stride 2, and a matrix product."""
    layers: list[nn.Module] = []
    sizes = [
        (1, width, 1),
        (width, width, 2),
        (width, 2 * width, 1),
        (2 * width, 2 * width, 2),
        (2 * width, 2 * width, 1),
    ]
    for inputs, outputs, stride in sizes:
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2 * width * 4, 10))


def digits_data() -> tuple[np.ndarray, ...]:
    from sklearn.datasets import load_digits

    images, classes = load_digits(return_X_y=True)
    x, y = (images.reshape(-1, 1, 8, 8) / 16).astype(np.float32), classes.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    return x[:1297], y[:1297], x[1297:], y[1297:]


def digits() -> Task:
    """1,297 images to learn from, 500 to test."""
    return _task("digits", digits_module, digits_data, epochs=30, rate=3e-3)


# --- pictures ---------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Two convolutions with batch normalisation around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        same = stride == 1 and inputs == outputs
        short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.short = nn.Identity() if same else nn.Sequential(short, nn.BatchNorm2d(outputs))

    def folded(self) -> Block:
        short = self.short if isinstance(self.short, nn.Identity) else folded(self.short)
        self.first, self.second, self.short = folded(self.first), folded(self.second), short
        return self

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.short(x))


def folded(layers: nn.Module) -> nn.Sequential:
    """Batch normalisation multiplied into the convolution before it, in float32: as exporters to ONNX write it."""
    found: list[nn.Module] = []
    for layer in layers.children():
        if isinstance(layer, nn.BatchNorm2d):
            found[-1] = fuse_conv_bn_eval(found[-1], layer)
        else:
            found.append(layer.folded() if isinstance(layer, Block) else layer)
    return nn.Sequential(*found).eval()


def resnet20(width: int = 16, stride: int = 1) -> nn.Module:
    """He et al.'s for 32x32: a stem and three stages of three blocks, of width, 2*width and 4*width channels.

    stride   of the stem; theirs has 1
    """
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage in range(3):
        for k in range(3):
            layers.append(Block(inputs, width << stage, 2 if stage and k == 0 else 1))
            inputs = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def _masks(rng: np.random.Generator) -> list[Callable[[], np.ndarray]]:
    """Ten shapes and textures, each a mask of 32x32 at a random place, size and phase."""
    v, u = np.mgrid[0:32, 0:32].astype(float)
    y, x, r = v - rng.uniform(11, 21), u - rng.uniform(11, 21), rng.uniform(6, 10)
    period, phase = rng.uniform(5, 8), rng.uniform(0, 8)
    wave = lambda t: np.sin(2 * np.pi * (t + phase) / period) > 0
    far = np.hypot(x, y)
    return [
        lambda: far < r,
        lambda: np.maximum(abs(x), abs(y)) < r * 0.85,
        lambda: (y < r * 0.8) & (abs(x) < (y + r) * 0.6),
        lambda: (np.minimum(abs(x), abs(y)) < r * 0.3) & (np.maximum(abs(x), abs(y)) < r),
        lambda: (far < r) & (far > r * 0.6),
        lambda: wave(v),
        lambda: wave(u),
        lambda: wave((u + v) / np.sqrt(2)),
        lambda: wave(u) ^ wave(v),
        lambda: np.hypot((u + phase) % period - period / 2, (v + phase) % period - period / 2) < period * 0.3,
    ]


def picture(kind: int, rng: np.random.Generator) -> np.ndarray:
    ground, colour = rng.uniform(0, 1, (3, 1, 1)), rng.uniform(0, 1, (3, 1, 1))
    while np.abs(ground - colour).max() < 0.4:
        colour = rng.uniform(0, 1, (3, 1, 1))
    image = np.where(_masks(rng)[kind](), colour, ground) + rng.normal(size=(3, 32, 32)) * 0.05
    return (np.round(np.clip(image, 0, 1) * 255) / 255).astype(np.float32)


def picture_data() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 10, 3500)
    x = np.stack([picture(int(kind), rng) for kind in y])
    return x[:3000], y[:3000], x[3000:], y[3000:]


def pictures(width: int = 16, stride: int = 1) -> Task:
    """3,000 pictures to learn from, 500 to test."""
    name = f"ResNet-20 of width {width}" + (f", stem of stride {stride}" if stride > 1 else "")
    task = _task(name, lambda: resnet20(width, stride), picture_data, epochs=8, rate=2e-3)
    return task._replace(name=f"{name}, folded", module=folded(task.module))


# --- training ---------------------------------------------------------------------------------------------------------


def _folder() -> Path:
    return Path(os.environ.get("SPECGRAD_WEIGHTS", Path.home() / ".cache" / "specgrad" / "trained"))


def _task(name: str, build: Callable[[], nn.Module], data: Callable[[], Any], epochs: int, rate: float) -> Task:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, (x, y, test_x, test_y) = build(), data()
    path = _folder() / f"{name.replace(' ', '-')}.npz"
    if path.exists():
        with np.load(path) as kept:
            module.load_state_dict({k: torch.from_numpy(kept[k]) for k in kept.files})
    else:
        _train(module, torch.from_numpy(x), torch.from_numpy(y), epochs, rate)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **{k: v.numpy() for k, v in module.state_dict().items()})
    return Task(name, module.eval(), test_x, test_y)


def _train(module: nn.Module, x: Tensor, y: Tensor, epochs: int, rate: float) -> None:
    """Adam, one cycle of the rate, batches of 50."""
    optimiser = torch.optim.Adam(module.parameters(), rate, weight_decay=1e-4)
    steps = epochs * -(-len(x) // 50)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    module.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
            optimiser.step()
            schedule.step()


def main() -> None:
    for make in (digits, pictures):
        start = time.process_time()
        task = make()
        count = sum(p.numel() for p in task.module.parameters())
        said = f"{task.name}: {count:,} parameters, {100 * task.accuracy:.1f} % of {len(task.y)} test images right"
        print(f"{said}, {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
